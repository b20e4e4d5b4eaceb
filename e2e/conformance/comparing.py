"""Compare what passes on the target with what passes through the virtual node.

The denominator is what passes on the target. Through the node a skip is a failure, and so is a
spec that the run has no word of. Only specs that differ are run again; one that then passes is
flaky, which is said, and counts as passing.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from .record import Record, Runs
from .results import Outcome, Result

MOST_RUNS = 6
"""The first, and five more of what differs."""


class Standing(StrEnum):
    """What the two sides together say of a spec."""

    SAME = "same"
    FLAKY = "flaky"
    DIFFERS = "differs"
    BY_DESIGN = "by design"
    """It differs, and the list of exceptions says why it must."""
    NOT_RUN = "not run"
    """Nobody has run it through the node yet."""
    NOT_COUNTED = "not counted"
    """It does not pass on the target either."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exemption:
    """Specs that cannot pass through a virtual node, and why."""

    pattern: str
    """Regular expression that is looked for in a spec's whole name."""
    reason: str
    see: str = ""
    """What says so: a clause of the contract, or a page below docs/."""

    def matches(self, name: str) -> bool:
        """Tell whether the spec is meant."""
        return re.search(self.pattern, name) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One spec on both sides."""

    name: str
    direct: Result
    through: tuple[Result, ...]
    """All runs, in order."""
    standing: Standing
    exemption: Exemption | None = None
    """What says that it cannot pass, if it does not."""

    @property
    def passes(self) -> int:
        """How often it passed through the node."""
        return sum(one.outcome is Outcome.PASSED for one in self.through)

    @property
    def reason(self) -> str:
        """Why it cannot pass; empty where nobody says so."""
        return self.exemption.reason if self.exemption else ""


def compare(record: Record, exemptions: Sequence[Exemption] = ()) -> list[Comparison]:
    """Compare spec by spec."""
    return [compare_one(name, runs, exemptions) for name, runs in sorted(record.items())]


def compare_one(name: str, runs: Runs, exemptions: Sequence[Exemption]) -> Comparison:
    """Say where one spec stands."""
    exemption = next((one for one in exemptions if one.matches(name)), None)
    passed = [one.outcome is Outcome.PASSED for one in runs.through]
    if runs.direct.outcome is not Outcome.PASSED:
        standing = Standing.NOT_COUNTED
    elif not passed:
        standing = Standing.NOT_RUN
    elif all(passed):
        standing = Standing.SAME
    elif any(passed):
        standing = Standing.FLAKY
    else:
        standing = Standing.BY_DESIGN if exemption else Standing.DIFFERS
    return Comparison(
        name=name,
        direct=runs.direct,
        through=runs.through,
        standing=standing,
        exemption=exemption,
    )


def stale_among(exemptions: Iterable[Exemption], compared: Iterable[Comparison]) -> list[Exemption]:
    """Name the exemptions that no spec needs: all that they are for pass, or go by another."""
    needed = {one.exemption for one in compared if one.standing is Standing.BY_DESIGN}
    return [one for one in exemptions if one not in needed]


def to_run_again(compared: Iterable[Comparison]) -> list[str]:
    """Name the specs whose next run may change the picture; those by design are left alone."""
    return [
        one.name
        for one in compared
        if one.standing is Standing.DIFFERS and len(one.through) < MOST_RUNS
    ]


def to_settle(compared: Iterable[Comparison]) -> list[str]:
    """Name the specs of which it is open whether they pass through the node as it is by now."""
    return [one.name for one in compared if one.standing in (Standing.DIFFERS, Standing.NOT_RUN)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """What is printed in the end."""

    of: int
    """How many pass on the target, and were run through the node."""
    same: int
    flaky: int
    by_design: int
    differs: int
    not_run: int

    @property
    def passing(self) -> int:
        """How many of them pass through the node."""
        return self.same + self.flaky

    @property
    def percent(self) -> float:
        """The figure; without any spec there is none to fall short of."""
        return 100.0 * self.passing / self.of if self.of else 100.0

    def sentence(self) -> str:
        """Say it in words."""
        if not self.of:
            return "No spec was run on both sides."
        return (
            f"{self.passing} of {self.of} specs that pass on the target pass through the virtual "
            f"node: {self.percent:.1f} % ({self.flaky} of them not at the first go; "
            f"{self.by_design} cannot by design, {self.differs} differ)."
            + (f" {self.not_run} more were not run through it." if self.not_run else "")
        )


def figure_of(compared: Iterable[Comparison]) -> Figure:
    """Count."""
    counted = Counter(one.standing for one in compared)
    return Figure(
        of=counted.total() - counted[Standing.NOT_COUNTED] - counted[Standing.NOT_RUN],
        same=counted[Standing.SAME],
        flaky=counted[Standing.FLAKY],
        by_design=counted[Standing.BY_DESIGN],
        differs=counted[Standing.DIFFERS],
        not_run=counted[Standing.NOT_RUN],
    )


def focus_on(names: Iterable[str]) -> str:
    """Render the regular expression by which ginkgo runs these specs and no others.

    ginkgo puts the suite's name before a spec's.
    """
    return "|".join(f" {go_quoted(name)}$" for name in names)


def go_quoted(text: str) -> str:
    """Quote a text for Go's regular expressions, which know fewer escapes than Python's."""
    return re.sub(r"([\\.+*?()|\[\]{}^$])", r"\\\1", text)
