"""What the run was, as text: counts, times, and every violation with all that led to it. Pure."""

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from .judge import Judge, Violation

AROUND_SECONDS = 30.0
"""How much of the faults' timeline a violation is shown with, before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """Translate the monotonic clock into that of the logs."""

    monotonic: float
    wall: float

    def words(self, at: float) -> str:
        """Say an instant as the logs do."""
        instant = datetime.fromtimestamp(self.wall + at - self.monotonic, tz=UTC)
        return instant.isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything that is told at the end."""

    seed: int
    seconds: float
    clock: Clock
    struck: Counter[str]
    missed: Counter[str]
    acts: Counter[str]
    shrugged: Counter[str]
    exits: Counter[str]
    late_answers: Counter[int]
    timeline: Sequence[tuple[float, str]]
    times: Mapping[str, Sequence[float]]
    """Convergence, detection and take-over times, by what they are of."""
    gaps: Sequence[str]
    judge: Judge

    @property
    def kinds(self) -> list[str]:
        """Name every kind of fault that was tried, struck or not."""
        return sorted({*self.struck, *self.missed})

    @property
    def violations(self) -> list[Violation]:
        """What federate did not keep."""
        return self.judge.violations

    def summary(self) -> list[str]:
        """Say it in few lines."""
        pods, mirrors = len(self.judge.hub_pods), len(self.judge.mirrors)
        return [
            f"seed {self.seed}, {self.seconds:.0f} s, {pods} hub pods, {mirrors} mirrors",
            f"faults: {self.struck.total()} of {len(self.kinds)} kinds, at least "
            f"{min((self.struck[kind] for kind in self.kinds), default=0)} of each; "
            f"{self.missed.total()} met nothing",
            f"acts: {self.acts.total()}; {self.shrugged.total()} found nothing to act on",
            *(f"{what}: {spread(seconds)}" for what, seconds in self.times.items() if seconds),
            f"ends of replicas by themselves: {counted(self.exits)}",
            f"violations: {len(self.violations)}",
        ]

    def text(self) -> str:
        """Say everything."""
        lines = [
            *self.summary(),
            "",
            "faults by kind (struck, met nothing):",
            *(f"  {kind}: {self.struck[kind]}, {self.missed[kind]}" for kind in self.kinds),
            "acts by kind (done, nothing to act on):",
            *(
                f"  {name}: {self.acts[name]}, {self.shrugged[name]}"
                for name in sorted({*self.acts, *self.shrugged})
            ),
            f"answers to late writes: {counted(self.late_answers)}",
            "gaps of the witness:",
            *(f"  {gap}" for gap in self.gaps),
            "violations:",
        ]
        told: set[str] = set()
        for violation in self.violations:
            lines += [f"* {self.clock.words(violation.at)} {violation.rule}: {violation.words}"]
            if violation.uid not in told:
                told.add(violation.uid)
                lines += self._story(violation)
        lines += ["timeline:", *self._lines(self.timeline)]
        return "\n".join(lines) + "\n"

    def _story(self, violation: Violation) -> Iterable[str]:
        """Tell all that happened to a hub pod, and what else happened about then."""
        history = self.judge.history(violation.uid)
        first = min((at for at, _ in history), default=violation.at) - AROUND_SECONDS
        around = [entry for entry in self.timeline if first <= entry[0] <= violation.at]
        return self._lines(sorted([*history, *around], key=lambda entry: entry[0]))

    def _lines(self, entries: Iterable[tuple[float, str]]) -> list[str]:
        return [f"    {self.clock.words(at)} {words}" for at, words in entries]


def spread(seconds: Sequence[float]) -> str:
    """Say how times are spread."""
    median = statistics.median(seconds)
    return (
        f"min {min(seconds):.2f} s, median {median:.2f} s, max {max(seconds):.2f} s "
        f"of {len(seconds)}"
    )


def counted(counts: Counter[str] | Counter[int]) -> str:
    """Say how often each happened."""
    return ", ".join(f"{what}: {count}" for what, count in sorted(counts.items())) or "none"
