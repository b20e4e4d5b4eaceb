"""Run slices on both sides, and keep what comes out after every run."""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from e2e.testbed.progress import Progress

from .comparing import compare, figure_of, focus_on, to_run_again
from .keeping import Keeping
from .record import Record, passing_directly, with_again, with_direct, with_through
from .results import Outcome, Results
from .slices import SLICES
from .suite import Run, Suite

TakeIn = Callable[[Record, Collection[str], Results], Record]
"""Put results into a record; of specs that were wanted and have none, that is taken in too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    """What all runs share."""

    suite: Suite
    keeping: Keeping
    progress: Progress
    version: str
    focus: str
    procs: int

    def run_direct(self, name: str, target: Path) -> None:
        """Run a slice on the target."""

        def take_in(record: Record, _: Collection[str], results: Results) -> Record:
            return with_direct(record, results)

        results = self._run(name, "direct", target, self.focus, take_in)
        passing = sum(one.outcome is Outcome.PASSED for one in results.values())
        self._say(f"{name}: {passing} of {len(results)} specs pass on the target.")

    def run_through(self, name: str, hub: Path, *, again: int) -> None:
        """Run what passes on the target through the node; what differs up to `again` times more."""
        known = passing_directly(self.keeping.read(name))
        wanted = [one for one in known if re.search(self.focus, one)]
        if not wanted:
            self._say(f"{name}: nothing is known to pass on the target.")
        for number in range(again + 1):
            if wanted:
                take_in = with_again if number else with_through
                title = f"through-{number}"
                self._run(name, title, hub, focus_on(wanted), take_in, wanted=wanted)
                wanted = self._differing(name, wanted)

    def _differing(self, name: str, wanted: Collection[str]) -> list[str]:
        """Say how the slice stands; returns those of the wanted that are to be run again."""
        compared = compare(self.keeping.read(name), self.keeping.exemptions())
        self._say(f"{name}: {figure_of(compared).sentence()}")
        return [one for one in to_run_again(compared) if one in wanted]

    def _run(
        self,
        name: str,
        what: str,
        kubeconfig: Path,
        focus: str,
        take_in: TakeIn,
        *,
        wanted: Collection[str] = (),
    ) -> Results:
        """Run specs of a slice and keep what comes out; interrupted, what was over by then."""
        run = Run(
            title=f"{name}-{what}",
            kubeconfig=kubeconfig,
            label_filter=SLICES[name],
            focus=focus,
            procs=self.procs,
        )
        try:
            results = self.suite.run(run)
        except (KeyboardInterrupt, SystemExit):
            over = self.suite.so_far
            self._keep(name, take_in, over, over)
            raise
        self._keep(name, take_in, wanted, results)
        return results

    def _keep(self, name: str, take_in: TakeIn, wanted: Collection[str], results: Results) -> None:
        record = take_in(self.keeping.read(name), wanted, results)
        self.keeping.write(name, record, version=self.version)

    def _say(self, text: str) -> None:
        self.progress.say(text, always=True)
