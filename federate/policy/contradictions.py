"""What two rules of a policy say against each other. Pure.

It looks at a policy as it is written, which may be wrong in other ways too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from federate.policy.rules import Outcome
from federate.policy.topics import TOPIC_OF


def contradictions_of(written: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield where something cannot be kept, and what is wrong with it."""
    yield from _host_process(written)
    yield from _node_keys(written.get("nodeKeys"))


def _host_process(written: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Processes of a Windows node are in its network: a mirror without would be invalid."""
    allows = _outcome(written, "hostProcess") == Outcome.ALLOW
    if allows and _outcome(written, "hostNetwork") == Outcome.STRIP:
        yield ("hostProcess",), "found allow; expected another with hostNetwork strip"


def _outcome(written: Mapping[str, Any], key: str) -> Any:
    return written.get(key) or TOPIC_OF[key].default


def _node_keys(written: Any) -> Iterator[tuple[tuple[str, ...], str]]:
    """A mirror can ask a node for one value of a label."""
    seen: dict[str, str] = {}
    for before, after in written.items() if isinstance(written, dict) else ():
        if not isinstance(after, str):
            continue
        if after in seen:
            yield ("nodeKeys", before), f"found {after}, which {seen[after]} has; expected another"
        seen.setdefault(after, before)
