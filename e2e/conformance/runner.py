"""Run slices on both sides, and keep what comes out after every run."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from e2e.testbed.progress import Progress

from .comparing import compare, figure_of, to_run_again, to_settle
from .keeping import Keeping
from .origin import Origin
from .record import Record, answers, passing_directly, with_again, with_direct, with_through
from .results import Outcome, Results
from .suite import Run, Suite
from .watch import StageBrokenError, Watch

TakeIn = Callable[[Record, Results], Record]
"""Put results into a record."""

StartWatch = Callable[[], Watch]
"""Begin to look at what a run stands on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """What is run of a slice."""

    of_slice: Collection[str]
    """All names of its specs."""
    wanted: Sequence[str]
    """Those that are run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    """What all runs share."""

    suite: Suite
    keeping: Keeping
    progress: Progress
    chosen: Mapping[str, Chosen]
    """By the slice's name."""
    origin: Callable[[], Origin]
    """Describes a run that begins now."""
    procs: int
    only_differing: bool = False
    """Whether through the node only that is run which is known to differ, or was not run."""

    def run_direct(self, name: str, target: Path, start_watch: StartWatch) -> None:
        """Run a slice on the target."""
        chosen = self.chosen[name]
        take_in = partial(with_direct, of_slice=chosen.of_slice)
        run = self._prepare(f"{name}-direct", chosen.wanted, target)
        results = self._run(name, run, start_watch, take_in, counts_absent=False)
        passing = sum(one.outcome is Outcome.PASSED for one in results.values())
        self._say(f"{name}: {passing} of {len(run.names)} specs pass on the target.")
        if missing := sorted(set(run.names) - results.keys()):
            self._say(
                f"{name}: of {len(missing)} specs the run has no word; they are not counted: "
                f"{', '.join(missing)}"
            )

    def run_through(self, name: str, hub: Path, start_watch: StartWatch, *, again: int) -> None:
        """Run what passes on the target through the node; what differs up to `again` times more."""
        wanted = self._to_run_through(name)
        for number in range(again + 1):
            if wanted:
                take_in = with_again if number or self.only_differing else with_through
                run = self._prepare(f"{name}-through-{number}", wanted, hub)
                self._run(name, run, start_watch, take_in, counts_absent=True)
                wanted = self._differing(name, wanted)

    def _to_run_through(self, name: str) -> list[str]:
        record = self.keeping.read(name)
        known = [one for one in passing_directly(record) if one in self.chosen[name].wanted]
        if not known:
            self._say(f"{name}: none of these specs is known to pass on the target.")
        if not self.only_differing:
            return known
        still_open = to_settle(compare(record, self.keeping.exemptions()))
        wanted = [one for one in known if one in still_open]
        self._say(f"{name}: {len(wanted)} of {len(known)} specs differ, or were not run yet.")
        return wanted

    def _differing(self, name: str, wanted: Collection[str]) -> list[str]:
        """Say how the slice stands; returns those of the wanted that are to be run again."""
        compared = compare(self.keeping.read(name), self.keeping.exemptions())
        self._say(f"{name}: {figure_of(compared).sentence()}")
        return [one for one in to_run_again(compared) if one in wanted]

    def _prepare(self, title: str, names: Sequence[str], kubeconfig: Path) -> Run:
        return Run(title=title, kubeconfig=kubeconfig, names=names, procs=self.procs)

    def _run(
        self, name: str, run: Run, start_watch: StartWatch, take_in: TakeIn, *, counts_absent: bool
    ) -> Results:
        """Run specs of a slice and keep what comes out; ended early, what was over by then."""
        origin = self.origin()
        try:
            results = self.suite.run(run, start_watch)
        except (KeyboardInterrupt, SystemExit, StageBrokenError):
            over = answers(self.suite.so_far, run.names, origin=origin, is_over=False)
            self._keep(name, take_in, over)
            self._say(f"{run.title} ended early; {len(over)} of {len(run.names)} specs are kept.")
            raise
        kept = answers(results, run.names, origin=origin, is_over=counts_absent)
        self._keep(name, take_in, kept)
        return kept

    def _keep(self, name: str, take_in: TakeIn, results: Results) -> None:
        if results:
            self.keeping.write(name, take_in(self.keeping.read(name), results))

    def _say(self, text: str) -> None:
        self.progress.say(text, always=True)
