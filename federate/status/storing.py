"""Tell on a hub pod why the target has no storage for it yet. Pure.

While a scheduler waits for storage it says nothing of the pod at all, and the words about a claim
stand on the claim; so they are told with the mirror's being scheduled, which they keep from it.
"""

from __future__ import annotations

from collections.abc import Sequence

from federate.model.objects import JsonDict, JsonObject
from federate.model.pods import node_name_of
from federate.model.reasons import PodReason
from federate.status.project import MIRROR_SCHEDULED, keep_transition_time


def with_claim_words(
    status: JsonDict, hub_pod: JsonObject, mirror: JsonObject, *, said: str, now: str
) -> JsonDict:
    """Add what the target says of the pod's claims, while its mirror has no node."""
    if not said or node_name_of(mirror):
        return status
    conditions: Sequence[JsonDict] = status.get("conditions") or ()
    if any(condition["type"] == MIRROR_SCHEDULED for condition in conditions):
        return {**status, "conditions": [_beside(c, said) for c in conditions]}
    others = [c for c in conditions if c["type"] != "Ready"]
    own = (
        (MIRROR_SCHEDULED, PodReason.CLAIM_PENDING),
        ("Ready", PodReason.MIRROR_UNSCHEDULABLE),
    )
    told = [
        keep_transition_time(
            {
                "type": kind,
                "status": "False",
                "reason": str(reason),
                "message": said,
                "lastTransitionTime": now,
            },
            hub_pod,
        )
        for kind, reason in own
    ]
    return {**status, "conditions": [*others, *told]}


def _beside(condition: JsonDict, said: str) -> JsonDict:
    """Put the words behind those of the scheduler."""
    is_told = condition["type"] == MIRROR_SCHEDULED or (
        condition["type"] == "Ready" and condition.get("reason") == PodReason.MIRROR_UNSCHEDULABLE
    )
    if not is_told:
        return condition
    message = "; ".join(part for part in (condition.get("message"), said) if part)
    return {**condition, "message": message}
