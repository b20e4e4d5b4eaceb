"""Write docs/conformance.md from the results."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from .comparing import Comparison, Figure, Standing, figure_of
from .slices import APART, SLICES

HEAD = """# Kubernetes' conformance tests, through the virtual node

<!-- Written by `make conformance`; a test compares. Change e2e/conformance/page.py instead. -->

Kubernetes' own end-to-end tests ({version}), run twice: on the target directly, and on a hub whose
only usable node is virtual. What passes on the target should pass through the node. Through the
node a skip counts as a failure. What differs was run up to five times more; what passes then is
named as flaky. `make conformance` runs them again; e2e/conformance/results has every spec.

The setting: two kind clusters of one node each, joined so that pods reach each other's addresses;
identity `hub`, `services: all`, `volumes.claims: target` and a policy that allows everything
(e2e/conformance/files/virtual-node.yaml); an admission policy takes the taint from the virtual
node, as the suite uses no node that has one; the hub's own node is tainted as control planes are.
Images are stand-ins of our own, but for agnhost.
"""

MARK = {
    Standing.SAME: "works",
    Standing.FLAKY: "works, flaky in the tests",
    Standing.DIFFERS: "**differs**",
    Standing.BY_DESIGN: "not by design",
}


def render_page(version: str, slices: Mapping[str, Sequence[Comparison]]) -> str:
    """Render the page; `slices` is by name, in the order of `slices.SLICES`."""
    known = [name for name in SLICES if name in slices]
    parts = [HEAD.format(version=version), f"## The figure\n\n{figures(slices, known)}"]
    rows = [one for name in known for one in slices[name]]
    parts.append(f"## What differs\n\n{differing(rows)}")
    parts.append(f"## Flaky\n\n{flaky(rows)}")
    parts.append(f"## Which features work\n\n{features(rows)}")
    parts.append(f"## Not counted\n\n{not_counted(rows)}")
    return "\n".join(parts)


def total(slices: Mapping[str, Sequence[Comparison]]) -> Figure:
    """Count all slices but those that are reported apart."""
    return figure_of(one for name in slices if name not in APART for one in slices[name])


def figures(slices: Mapping[str, Sequence[Comparison]], known: Sequence[str]) -> str:
    """Render one line for each slice, and the sum."""
    lines = [
        "| slice | pass directly | through the node | flaky | by design | differ | |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [figure_row(name, figure_of(slices[name])) for name in known]
    lines.append(figure_row("**all but network**", total(slices)))
    missing = [name for name in SLICES if name not in slices]
    lines.append(f"\nNot run yet: {', '.join(missing)}." if missing else "")
    return "\n".join(lines) + "\n"


def figure_row(name: str, one: Figure) -> str:
    """Render a line of figures."""
    cells = (one.of, one.passing, one.flaky, one.by_design, one.differs, f"{one.percent:.1f} %")
    return f"| {name} | {' | '.join(map(str, cells))} |"


def differing(rows: Iterable[Comparison]) -> str:
    """Render every spec that differs, and why."""
    wanted = (Standing.DIFFERS, Standing.BY_DESIGN)
    found = [one for one in rows if one.standing in wanted]
    if not found:
        return "Nothing.\n"
    lines = ["| spec | reason |", "|---|---|"]
    lines += [f"| {cell(one.name)} | {cell(one.reason or last_words(one))} |" for one in found]
    return "\n".join(lines) + "\n"


def last_words(one: Comparison) -> str:
    """Say what the spec itself said."""
    last = one.through[-1]
    return f"not classified; {last.outcome}: {last.message}"


def flaky(rows: Iterable[Comparison]) -> str:
    """Name the specs that passed some time."""
    found = [one for one in rows if one.standing is Standing.FLAKY]
    lines = [f"- {one.name} ({one.passes} of {len(one.through)} times)" for one in found]
    return "\n".join(lines or ["None."]) + "\n"


def features(rows: Iterable[Comparison]) -> str:
    """Render a line for each group of specs."""
    groups: dict[str, list[Comparison]] = defaultdict(list)
    for one in rows:
        if one.standing not in (Standing.NOT_COUNTED, Standing.NOT_RUN):
            groups[without_labels(one.direct.feature)].append(one)
    lines = ["| feature | |", "|---|---|"]
    lines += [f"| {cell(name)} | {verdict(groups[name])} |" for name in sorted(groups)]
    return "\n".join(lines) + "\n"


def without_labels(feature: str) -> str:
    """Leave out labels in brackets, but for the special interest group."""
    return re.sub(r"\s*\[(?!sig-)[^\]]*\]", "", feature).strip()


def verdict(group: Sequence[Comparison]) -> str:
    """Say in words how a group does."""
    standings = {one.standing for one in group}
    if standings == {Standing.SAME}:
        return f"works ({len(group)})"
    passing = sum(one.standing in (Standing.SAME, Standing.FLAKY) for one in group)
    worst = next(
        standing
        for standing in (Standing.DIFFERS, Standing.BY_DESIGN, Standing.FLAKY)
        if standing in standings
    )
    return f"{MARK[worst]} ({passing} of {len(group)})"


def not_counted(rows: Iterable[Comparison]) -> str:
    """Name what does not pass on the target either, here."""
    found = [one for one in rows if one.standing is Standing.NOT_COUNTED]
    lines = [f"- {one.name}: {one.direct.outcome}" for one in found]
    return "\n".join(lines or ["None."]) + "\n"


def cell(text: str) -> str:
    """Make a text fit a table."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")
