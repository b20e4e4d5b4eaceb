"""Whether a pod may have its mirror as far as its claims go, and their names there. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from federate.claims.places import ClaimUse
from federate.claims.steps import Rest, Standing
from federate.companions.holding import Coming, Hold
from federate.companions.steps import Blocked
from federate.model.objects import JsonObject, ObjectKey, is_terminating
from federate.model.reasons import PodReason


def hold_of(
    uses: Iterable[ClaimUse], known: Mapping[ObjectKey, Rest | Blocked], target_namespace: str
) -> Hold | None:
    """Say what a pod waits for; None where nothing holds it back.

    `known` is where each claim came to rest, or why it is not worth a look; one that is not in it
    is on its way.
    """
    coming: list[Coming] = []
    stuck: list[tuple[Coming, Blocked]] = []
    for use in uses:
        why = _why(use, known.get(use.claim), target_namespace)
        if isinstance(why, Blocked):
            stuck.append((use, why))
        elif why:
            coming.append(use)
    return Hold(coming=tuple(coming), stuck=tuple(stuck)) if coming or stuck else None


def _why(use: ClaimUse, known: Rest | Blocked | None, target_namespace: str) -> Blocked | bool:
    """Return what keeps the pod, True where it is on its way, False where nothing does."""
    if known is None or isinstance(known, Blocked):
        return known or True
    if known.standing is Standing.SETTLED and known.handle is not None:
        if known.handle.namespace == target_namespace:
            return False
        return Blocked(
            reason=PodReason.CLAIM_REFUSED,
            message=f"{use}: its data is in namespace {known.handle.namespace} of the target, and "
            f"pods of {use.claim.namespace} run in {target_namespace}",
        )
    return known.blocked or True


def names_of(
    uses: Sequence[ClaimUse], known: Mapping[ObjectKey, Rest | Blocked], target_namespace: str
) -> dict[str, str] | None:
    """Name the target's claims by the volumes of a pod; None where one of them has none."""
    names = {
        use.volume: rest.handle.name
        for use in uses
        if isinstance(rest := known.get(use.claim), Rest)
        and rest.handle is not None
        and rest.handle.namespace == target_namespace
    }
    return names if len(names) == len(uses) else None


def verdict_of_name(use: ClaimUse, claim: JsonObject | None, *, is_new: bool) -> Blocked | None:
    """Say why the hub's claim of that name cannot serve the pod; None where it may.

    A kubelet mounts no claim that is being deleted for a pod that has not begun.
    """
    if claim is None:
        return Blocked(
            reason=PodReason.CLAIM_PENDING, message=f"{use} is not on the hub: it is waited for"
        )
    if not use.fits(claim):
        return Blocked(
            reason=PodReason.CLAIM_REFUSED,
            message=f"{use} has the name of the pod's own for volume {use.volume}, and is "
            "somebody else's: delete or rename it",
        )
    if is_new and is_terminating(claim):
        return Blocked(reason=PodReason.CLAIM_PENDING, message=f"{use} is being deleted on the hub")
    return None
