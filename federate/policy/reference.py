"""The generated part of docs/policy.md: every topic, out of the table that judges. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from federate.policy.rules import BASELINE_CAPABILITIES, BASELINE_SYSCTLS, GRANTING_KEYS
from federate.policy.topics import TOPICS

BEGIN = "<!-- from here to the end mark: written out of federate/policy; a test compares -->"
END = "<!-- end of the written part -->"


def with_reference(page: str) -> str:
    """Return a page with the part between the marks as it ought to be."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page lacks {BEGIN!r} or {END!r}")
    return f"{before}{BEGIN}\n\n{render_reference()}\n{END}{after}"


def render_reference() -> str:
    """Render the table of topics and what the lists hold where they are not given."""
    rows = [
        "| key below `policy` | what a pod asks for | default | `strip`: the mirror without it "
        "| PodSecurity `baseline` |",
        "|---|---|---|---|---|",
    ]
    rows += [
        f"| `{topic.key}` | {topic.what} | `{topic.default}` | {topic.stripped} "
        f"| {'refuses it' if topic.is_baseline else 'has no word on it'} |"
        for topic in TOPICS
    ]
    lists = (
        f"`allowedCapabilities`, where it is not given: {_listed(BASELINE_CAPABILITIES)}.",
        f"`allowedSysctls`, where it is not given: {_listed(BASELINE_SYSCTLS)}.",
        f"Labels and annotations that stay behind, but for those in `allowedMetadata`: "
        f"{_listed(GRANTING_KEYS)}.",
    )
    return "\n".join([*rows, *(line for text in lists for line in ("", text)), ""])


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))
