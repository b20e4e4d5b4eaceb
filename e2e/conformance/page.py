"""Write docs/conformance.md from the results."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from .comparing import Comparison, Figure, Standing, figure_of
from .origin import Origin
from .results import Result
from .slices import SLICES

HEAD = """# Kubernetes' conformance tests, through the virtual node

<!-- Written by `make conformance`; a test compares. Change e2e/conformance/page.py instead. -->

Kubernetes' own end-to-end tests ({version}), run twice: on the target directly, and on a hub whose
only usable node is virtual. What passes on the target, in its one run there, should pass through
the node. Through the node a skip counts as a failure. What differs was run up to five times more;
what passes then is named as flaky. `make conformance` runs them again, `make conformance
ARGS=--page` prints the figure without a run; e2e/conformance/results has every spec. What this
means for what you run: [which features work](features.md). Of slices besides the figure a part may
have been run: the numbers are of what was.

The setting: two kind clusters of one node each, joined so that pods reach each other's addresses;
identity `hub`, `services: all`, `volumes.claims: target` and a policy that allows everything
(e2e/conformance/files/virtual-node.yaml); `taintEffect: none`, as the suite uses no node that has a
taint; the hub's own node is tainted as control planes are. Only for `network` the namespaces are
the hub's by name (`namespaces: same`): names in DNS have a namespace in them.
Images are stand-ins of our own, but for agnhost.
"""

SUM = "**the figure**"


def render_page(slices: Mapping[str, Sequence[Comparison]], more: Sequence[str] = ()) -> str:
    """Render the page; `slices` is by name, `more` are sections of others."""
    known = {name: slices[name] for name in SLICES if name in slices}
    rows = [one for compared in known.values() for one in compared]
    parts = [
        HEAD.format(version=versions_of(rows)),
        f"## The figure\n\n{total(known).sentence()}\n\n{figures(known)}",
        f"## Which federate was run, and when\n\n{origins(known)}",
        f"## What cannot pass, by design\n\n{by_design(rows)}",
        f"## What differs\n\n{differing(rows)}",
        f"## Flaky\n\n{flaky(rows)}",
        *filter(None, more),
        f"## Not counted\n\n{not_counted(rows)}",
    ]
    return "\n".join(parts)


def versions_of(rows: Iterable[Comparison]) -> str:
    """Name the versions of Kubernetes that results are of."""
    found = {result.origin.kubernetes for one in rows for result in (one.direct, *one.through)}
    return ", ".join(sorted(found)) or "none yet"


def total(slices: Mapping[str, Sequence[Comparison]]) -> Figure:
    """Count the slices that the figure is of."""
    return figure_of(
        one for name, compared in slices.items() if SLICES[name].counts for one in compared
    )


def figures(slices: Mapping[str, Sequence[Comparison]]) -> str:
    """Render one line for each slice, and the sum of those that count."""
    rows = {
        name: figure_row(name, one.about, figure_of(slices[name]))
        if name in slices
        else f"| {name} | {one.about} | not run yet | | | | | |"
        for name, one in SLICES.items()
    }
    return lines_of(
        [
            "| slice | | pass directly | through the node | flaky | by design | differ | |",
            "|---|---|---|---|---|---|---|---|",
            *(rows[name] for name, one in SLICES.items() if one.counts),
            figure_row(SUM, "of the slices above", total(slices)),
            *(rows[name] for name, one in SLICES.items() if not one.counts),
        ]
    )


def figure_row(name: str, about: str, one: Figure) -> str:
    """Render a line of figures."""
    share = f"{one.percent:.1f} %" if one.of else ""
    cells = (about, one.of, one.passing, one.flaky, one.by_design, one.differs, share)
    return f"| {name} | {' | '.join(map(str, cells))} |"


def origins(slices: Mapping[str, Sequence[Comparison]]) -> str:
    """Render for each slice of which federate its results through the node are."""
    sources = sources_of(one for compared in slices.values() for one in compared)
    is_of_one = len(sources) == 1 and sources != {""}
    lines = [
        f"The results are {'' if is_of_one else 'not known to be '}of one federate.\n",
        "| slice | specs | when (UTC) | federate | Kubernetes | images |",
        "|---|---|---|---|---|---|",
    ]
    for name, compared in slices.items():
        for (program, kubernetes, images), found in programs_of(compared).items():
            cells = (name, str(len(found)), when_of(found), program, kubernetes, images)
            lines.append(f"| {' | '.join(cells)} |")
    return lines_of(lines)


def sources_of(compared: Iterable[Comparison]) -> set[str]:
    """Name by their digests which federates were run last."""
    return {one.through[-1].origin.source for one in compared if one.through}


def when_of(found: Iterable[Origin]) -> str:
    """Say when runs began: the first and the last."""
    times = sorted({one.at for one in found if one.at})
    return " to ".join(dict.fromkeys((*times[:1], *times[-1:])))


def programs_of(
    compared: Iterable[Comparison],
) -> dict[tuple[str, str, str], list[Origin]]:
    """Group a slice's last runs through the node by what was run."""
    found: dict[tuple[str, str, str], list[Origin]] = {}
    for one in compared:
        if one.through:
            origin = one.through[-1].origin
            key = (origin.program, origin.kubernetes, origin.images)
            found.setdefault(key, []).append(origin)
    return found


def by_design(rows: Iterable[Comparison]) -> str:
    """Render every spec that cannot pass, and why."""
    found = [
        (one.name, one.exemption)
        for one in rows
        if one.standing is Standing.BY_DESIGN and one.exemption is not None
    ]
    lines = ["| spec | reason | see |", "|---|---|---|"]
    lines += [f"| {cell(name)} | {cell(one.reason)} | {link_to(one.see)} |" for name, one in found]
    return lines_of(lines) if found else "Nothing.\n"


def link_to(see: str) -> str:
    """Point to a clause of the contract, or to a page."""
    if re.fullmatch(r"C\d+", see):
        return f"[{see}](contract.md)"
    return f"[{see.removesuffix('.md')}]({see})"


def differing(rows: Iterable[Comparison]) -> str:
    """Render every spec that differs, and what it said."""
    found = [one for one in rows if one.standing is Standing.DIFFERS]
    lines = ["| spec | runs | what it said |", "|---|---|---|"]
    lines += [
        f"| {cell(one.name)} | {len(one.through)} | {cell(words_of(one.through[-1]))} |"
        for one in found
    ]
    return lines_of(lines) if found else "Nothing.\n"


def words_of(result: Result) -> str:
    """Say how a spec ended, and what it said itself."""
    return f"{result.outcome}: {result.message}" if result.message else str(result.outcome)


def flaky(rows: Iterable[Comparison]) -> str:
    """Name the specs that passed some time."""
    found = [one for one in rows if one.standing is Standing.FLAKY]
    lines = [f"- {one.name} ({one.passes} of {len(one.through)} times)" for one in found]
    return lines_of(lines or ["None."])


def not_counted(rows: Iterable[Comparison]) -> str:
    """Name what does not pass on the target either, here."""
    found = [one for one in rows if one.standing is Standing.NOT_COUNTED]
    ended = Counter(str(one.direct.outcome) for one in found)
    told = ", ".join(f"{number} {outcome}" for outcome, number in sorted(ended.items()))
    lines = [f"On the target {told}:\n", "| spec | what it said there |", "|---|---|"]
    lines += [f"| {cell(one.name)} | {cell(words_of(one.direct))} |" for one in found]
    return lines_of(lines) if found else "None.\n"


def leaf_of(one: Comparison) -> str:
    """Name a spec without its headings and labels."""
    rest = one.name.removeprefix(one.direct.feature)
    return re.sub(r"\s*\[[^\]]*\]", "", rest).strip()


def lines_of(lines: Iterable[str]) -> str:
    """Put lines together."""
    return "\n".join(lines) + "\n"


def cell(text: str) -> str:
    """Make a text fit a table."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")
