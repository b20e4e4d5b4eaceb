"""Tell the figure in words: what `make conformance` prints, and `--page` without a run."""

from collections.abc import Iterable, Mapping, Sequence

from .comparing import Comparison, Exemption, figure_of, stale_among
from .page import programs_of, sources_of, total
from .slices import SLICES


def tell(
    slices: Mapping[str, Sequence[Comparison]],
    exemptions: Iterable[Exemption],
    *,
    present_source: str,
) -> str:
    """Say how things stand, and whether it is all of one federate, and of the present one."""
    counting = [name for name in slices if SLICES[name].counts]
    apart = [name for name in slices if not SLICES[name].counts]
    lines = [total(slices).sentence()]
    lines += [line for name in counting for line in about_slice(name, slices[name])]
    if apart:
        lines.append("Not part of the figure:")
        lines += [line for name in apart for line in about_slice(name, slices[name])]
    if missing := [name for name in SLICES if name not in slices]:
        lines.append(f"Not run yet: {', '.join(missing)}.")
    lines += warnings(slices, exemptions, present_source=present_source)
    return "\n".join(lines)


def about_slice(name: str, compared: Sequence[Comparison]) -> list[str]:
    """Say how a slice stands, and what its results through the node are of."""
    figure = figure_of(compared)
    share = f" ({figure.percent:.1f} %)" if figure.of else ""
    lines = [
        f"  {name}: {figure.passing} of {figure.of}{share}; {figure.flaky} flaky, "
        f"{figure.by_design} by design, {figure.differs} differ, {figure.not_run} not run"
    ]
    for (program, kubernetes, images), origins in programs_of(compared).items():
        last = max(one.at for one in origins)
        what = ", ".join(
            part
            for part in (
                last and f"{last} UTC",
                f"federate {program}",
                f"Kubernetes {kubernetes}",
                images,
            )
            if part
        )
        lines.append(f"    {len(origins)} specs: {what}")
    return lines


def warnings(
    slices: Mapping[str, Sequence[Comparison]],
    exemptions: Iterable[Exemption],
    *,
    present_source: str,
) -> list[str]:
    """Say what makes the figure less than it seems."""
    rows = [one for compared in slices.values() for one in compared]
    sources = {name: sources_of(compared) for name, compared in slices.items()}
    lines = []
    if len(set().union(*sources.values())) > 1:
        lines.append("Beware: the results are not all of one federate; see above.")
    if others := [name for name, found in sources.items() if found - {present_source}]:
        lines.append(
            "Beware: of another federate than that of this checkout (or of nobody knows which) "
            f"are results of: {', '.join(others)}."
        )
    lines += [
        f"Beware: no spec needs the exemption {one.pattern!r} any more; take it out."
        for one in stale_among(exemptions, rows)
    ]
    return lines
