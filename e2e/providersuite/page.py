"""Write the suite's section of docs/conformance.md from the results."""

from collections.abc import Iterable, Sequence

from e2e.conformance.comparing import Exemption
from e2e.conformance.page import cell
from e2e.conformance.record import Record, Runs
from e2e.conformance.results import Outcome, Result
from e2e.testbed.components import component_of

from .keeping import Keeping
from .program import PROGRAM

HEAD = """## The virtual-kubelet project's suite for providers

A second judge, by others: the end-to-end tests that the virtual-kubelet project has for nodes like
ours ({version}), unchanged, on the target's own node and on the virtual one (kind; `addresses:
reflect`, as they wait for an address of each pod). `python -m e2e.providersuite` runs them again;
`make test` runs those that a kubelet could pass on bare control planes, whose pods end at once. Two
things are put right between the suite and the API server: usage is looked for at a pod that is
named like the node and answers to anybody, which is led to the node's own proxy; and pods run an
image that the nodes have.

Of {specs} specs {passing} pass through the virtual node, {direct} on the target's own node: a
kubelet's `/runningpods/` is up to three seconds old, which the two about deletion do not allow for.
{exempted} ask for what no kubelet does; {differ} differ.

"""


def section(keeping: Keeping | None = None) -> str:
    """Render the section; nothing where nothing was run."""
    kept = keeping or Keeping()
    record, exemptions = kept.read(), kept.exemptions(with_containers=True)
    if not record:
        return ""
    failing = {name for name, runs in record.items() if not passes(runs.through)}
    exempted = {name for name in failing if reason_of(name, exemptions)}
    head = HEAD.format(
        version=component_of(PROGRAM).version,
        specs=len(record),
        passing=len(record) - len(failing),
        direct=sum(passes([runs.direct]) for runs in record.values()),
        exempted=len(exempted),
        differ=len(failing - exempted) or "none",
    )
    return head + table(record, exemptions)


def table(record: Record, exemptions: Sequence[Exemption]) -> str:
    """Render a line for each spec."""
    lines = ["| spec | a real kubelet | through the node | |", "|---|---|---|---|"]
    for name, runs in sorted(record.items()):
        through = last_of(runs)
        why = "" if passes(runs.through) else reason_of(name, exemptions)
        said = "" if why or passes(runs.through) else f"not classified: {through.message}"
        cells = (name, str(runs.direct.outcome), str(through.outcome), why or said)
        lines.append(f"| {' | '.join(map(cell, cells))} |")
    return "\n".join(lines) + "\n"


def last_of(runs: Runs) -> Result:
    """Return the last result through the node; without any that is nothing."""
    return runs.through[-1] if runs.through else Result(outcome=Outcome.ABSENT)


def passes(results: Sequence[Result]) -> bool:
    """Tell whether it passed."""
    return bool(results) and results[-1].outcome is Outcome.PASSED


def reason_of(name: str, exemptions: Iterable[Exemption]) -> str:
    """Say why a spec is not asked of the node; empty where it is."""
    return next((one.reason for one in exemptions if one.matches(name)), "")
