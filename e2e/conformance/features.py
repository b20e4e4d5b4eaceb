"""Tell a user which Kubernetes features work through the node: docs/features.md from the results.

features.yaml says in plain words what specs are about; how many of them pass says whether it works.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import yaml

from .comparing import Comparison, Standing
from .page import cell, leaf_of, link_to, versions_of

HEAD = """# Which Kubernetes features work through the virtual node

<!-- Written by `make conformance`; a test compares. Change e2e/conformance/features.yaml. -->

What Kubernetes' own end-to-end tests ({version}) say, each run on a target directly and on a hub
whose only usable node is virtual. The numbers are specs: of those that pass on the target, how many
pass through the node. [How they are run](conformance.md), and each spec that does not pass.

- **works**: all of them pass.
- **works, flaky in the tests**: all of them pass, some not at the first go.
- **differs**: some do not pass, and nothing says that it has to be so.
- **by design not**, **by design in part**: what does not pass cannot, for the reason that is given.
- **no answer**: they do not pass on the target of the tests either.

The tests ran with a policy that allows everything, as the target's own admin would. Yours may be
stricter: [policy](policy.md), [volumes](volumes.md), [identity](identity.md),
[networking](networking.md).
"""

REST = "Everything else"


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """What some specs are about."""

    name: str
    patterns: tuple[str, ...]
    """One of these regular expressions is found in the whole name of each of its specs."""

    def has(self, spec: str) -> bool:
        """Tell whether a spec is about it."""
        return any(re.search(pattern, spec) for pattern in self.patterns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Area:
    """Features that belong together."""

    name: str
    features: tuple[Feature, ...]


def read_areas(text: str) -> list[Area]:
    """Read features.yaml."""
    return [
        Area(
            name=area["area"],
            features=tuple(
                Feature(name=one["feature"], patterns=tuple(one["specs"]))
                for one in area["features"]
            ),
        )
        for area in yaml.safe_load(text)
    ]


def features_with(spec: str, areas: Iterable[Area]) -> list[Feature]:
    """Name all features that a spec is about; a good list has one."""
    return [one for area in areas for one in area.features if one.has(spec)]


def grouped(
    rows: Iterable[Comparison], areas: Sequence[Area]
) -> dict[Feature | None, list[Comparison]]:
    """Put each spec to its feature; None has the rest."""
    groups: dict[Feature | None, list[Comparison]] = defaultdict(list)
    for row in rows:
        groups[next(iter(features_with(row.name, areas)), None)].append(row)
    return groups


def render_features(slices: Mapping[str, Sequence[Comparison]], areas: Sequence[Area]) -> str:
    """Render the page."""
    rows = [one for compared in slices.values() for one in compared]
    groups = grouped(rows, areas)
    parts = [HEAD.format(version=versions_of(rows)), summary(groups)]
    for area in areas:
        known = [(one.name, groups.get(one, [])) for one in area.features]
        parts.append(f"## {area.name}\n\n{table(known)}")
    if rest := groups.get(None):
        parts.append(f"## {REST}\n\n{table([(leaf_of(one), [one]) for one in rest])}")
    return "\n".join(parts)


def summary(groups: Mapping[Feature | None, Sequence[Comparison]]) -> str:
    """Count the features that there is an answer for."""
    verdicts = [verdict(group) for one, group in groups.items() if one is not None]
    answered = [one for one in verdicts if one not in (NO_ANSWER, NOT_RUN)]
    working = sum(one in (WORKS, FLAKY) for one in answered)
    return f"Of {len(answered)} features that there is an answer for, {working} work.\n"


def table(groups: Iterable[tuple[str, Sequence[Comparison]]]) -> str:
    """Render one line for each feature."""
    lines = ["| feature | | specs | |", "|---|---|---|---|"]
    for name, group in groups:
        known = counted(group)
        passing = sum(one.standing in PASSING for one in known)
        number = f"{passing} of {len(known)}" if known else ""
        lines.append(f"| {cell(name)} | {verdict(group)} | {number} | {remarks(known)} |")
    return "\n".join(lines) + "\n"


PASSING = (Standing.SAME, Standing.FLAKY)
NOT_JUDGED = (Standing.NOT_COUNTED, Standing.NOT_RUN)

WORKS = "works"
FLAKY = "works, flaky in the tests"
DIFFERS = "**differs**"
BY_DESIGN = "by design not"
PARTLY = "by design in part"
NO_ANSWER = "no answer"
NOT_RUN = "not run yet"

MOST_NAMED = 5
"""How many specs that differ a line names."""


def counted(group: Iterable[Comparison]) -> list[Comparison]:
    """Leave out specs that say nothing of the node."""
    return [one for one in group if one.standing not in NOT_JUDGED]


def verdict(group: Iterable[Comparison]) -> str:
    """Say in words how a feature does."""
    standings = {one.standing for one in group}
    judged = standings.difference(NOT_JUDGED)
    if not judged:
        return NO_ANSWER if Standing.NOT_COUNTED in standings else NOT_RUN
    if Standing.DIFFERS in judged:
        return DIFFERS
    if Standing.BY_DESIGN in judged:
        return PARTLY if judged.intersection(PASSING) else BY_DESIGN
    return FLAKY if Standing.FLAKY in judged else WORKS


def remarks(known: Sequence[Comparison]) -> str:
    """Give the reasons for what cannot pass, and name what differs."""
    reasons = dict.fromkeys(
        f"{one.exemption.reason} ({link_to(one.exemption.see)})"
        for one in known
        if one.standing is Standing.BY_DESIGN and one.exemption is not None
    )
    differing = [f"not: {leaf_of(one)}" for one in known if one.standing is Standing.DIFFERS]
    more = len(differing) - MOST_NAMED
    rest = [f"and {more} more"] if more > 0 else []
    return cell("; ".join((*reasons, *differing[:MOST_NAMED], *rest)))
