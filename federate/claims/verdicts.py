"""What is told of a claim that cannot serve a pod, from wherever that is found. Pure."""

from __future__ import annotations

from federate.claims.protocol import phase_of
from federate.claims.steps import ClaimView, Look, Rest, Seen, Standing
from federate.companions.steps import Blocked
from federate.model.objects import JsonObject, ObjectKey, is_terminating
from federate.model.reasons import PodReason


def blocked(reason: str, message: str, *, standing: Standing = Standing.BLOCKED) -> Rest:
    """Come to rest with words for the pods that wait."""
    return Rest(reason=reason, standing=standing, blocked=Blocked(reason=reason, message=message))


def unreadable(look: Look, seen: Seen, *, side: str) -> Rest:
    """A right is missing."""
    return blocked(
        PodReason.CLAIM_PENDING,
        f"{side} does not let federate read {look.sought.value} {look.key}: {seen.forbids}",
    )


def unusable(view: ClaimView, place: ObjectKey, claim: JsonObject) -> Rest | None:
    """Say why a claim of ours in the target holds no data for a pod; None where it may."""
    if is_terminating(claim):
        return blocked(
            PodReason.CLAIM_LOST,
            f"claim {place} of {view.target_name}, which holds the data of {view.key}, is being "
            "deleted there",
        )
    if phase_of(claim) == "Lost":
        return blocked(
            PodReason.CLAIM_LOST,
            f"claim {place} of {view.target_name}, which holds the data of {view.key}, has lost "
            "its volume there",
        )
    return None
