"""Read what a scheduler says of a pod that it finds no node for. Pure.

The words are the scheduler's own and change with its version: nothing depends on them but which
reason a condition shows, and what is not recognised keeps the scheduler's.
"""

from __future__ import annotations

import re
from enum import Enum, auto

from federate.model.reasons import PodReason

UNSCHEDULABLE = "Unschedulable"
"""The scheduler's own reason, whatever the cause."""

_COUNTED = re.compile(r"\b\d+ ([^,.]+(?:\.(?=\S)[^,.]+)*)")
"""`3 Insufficient cpu`: so many nodes, and the first thing that was wrong with them."""


class _Cause(Enum):
    ROOM = auto()
    LABELS = auto()
    TAINTS = auto()
    OTHER = auto()


def unscheduled_reason(message: str) -> PodReason | None:
    """Say why no node was found; None where the words do not tell.

    A scheduler asks for taints first, then labels, then room: a node that merely lacks room passed
    all before, so it is what would have to change.
    """
    if "no nodes available" in message:
        return PodReason.TARGET_HAS_NO_NODES
    said = message.partition("preemption:")[0].partition("are available:")[2]
    causes = {_cause_of(part) for part in _COUNTED.findall(said)}
    if _Cause.ROOM in causes:
        return PodReason.TARGET_LACKS_ROOM
    if _Cause.OTHER in causes:
        return None
    if _Cause.LABELS in causes:
        return PodReason.TARGET_NODES_DO_NOT_MATCH
    return PodReason.TARGET_NODES_TAINTED if _Cause.TAINTS in causes else None


def _cause_of(part: str) -> _Cause:
    if part.startswith(("Insufficient ", "Too many pods")):
        return _Cause.ROOM
    if "node affinity" in part or "node selector" in part:
        return _Cause.LABELS if "volume" not in part else _Cause.OTHER
    if " taint" in part or "were unschedulable" in part:
        return _Cause.TAINTS
    return _Cause.OTHER
