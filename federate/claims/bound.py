"""Decide the next step for a claim of the hub that has a volume. Pure.

A mirror may name a claim of the target only where all of it agrees: the hub's claim and volume name
each other, the volume is this virtual node's, and what it leads to stands there with our marks and
the very uid. Sizes follow: what is asked for goes down, what there is comes up.

A claim whose data was given on is marked first: a process that led before may stand still with the
order to delete it, for the version that it saw.
"""

from __future__ import annotations

from decimal import Decimal

from federate.claims.keys import Handle, handle_of, is_federates, node_named_by, origin_of_claim
from federate.claims.protocol import (
    PROVISIONER,
    is_for,
    phase_of,
    request_of,
    size_of,
    volume_name_of,
)
from federate.claims.steps import (
    Change,
    ClaimView,
    Look,
    LookUp,
    Rest,
    Sought,
    Standing,
    Step,
    Wish,
)
from federate.claims.verdicts import blocked, unreadable, unusable
from federate.model.marks import TAKEN_UP_ANNOTATION
from federate.model.objects import (
    JsonDict,
    JsonObject,
    ObjectKey,
    annotations_of,
    resource_version_of,
    spec_of,
    uid_of,
)
from federate.model.quantities import quantity_of
from federate.model.reasons import PodReason
from federate.patch.document import MERGE, PatchBody


def plan_bound(view: ClaimView, hub_claim: JsonObject) -> Step:
    """Decide the next step."""
    look = _volume(hub_claim)
    seen = view.seen.get(look)
    if seen is None:
        return LookUp(reason="where does it lead?", look=look)
    if seen.forbids:
        return unreadable(look, seen, side="the hub")
    if seen.obj is None:
        return blocked(
            PodReason.CLAIM_LOST, f"{view.key}: its volume {look.key.name} is not on the hub"
        )
    handle = handle_of(view.scope, seen.obj)
    if handle is None:
        return _stored_elsewhere(view, seen.obj)
    if not is_for(seen.obj, hub_claim) or phase_of(hub_claim) != "Bound":
        return blocked(
            PodReason.CLAIM_PENDING,
            f"{view.key} and volume {look.key.name} are not bound to each other on the hub",
            standing=Standing.COMING,
        )
    return _plan_led(view, hub_claim, seen.obj, handle)


def _volume(hub_claim: JsonObject) -> Look:
    return Look(Sought.VOLUME, ObjectKey("", volume_name_of(hub_claim)))


def _stored_elsewhere(view: ClaimView, volume: JsonObject) -> Rest:
    where = "is stored on the hub, where containers in a target do not reach it"
    if is_federates(volume):
        where = f"is stored in the target of virtual node {node_named_by(volume) or 'unknown'}"
    return blocked(
        PodReason.CLAIM_REFUSED,
        f"{view.key} {where}. Take a claim of a storage class of {PROVISIONER}, or have the pod "
        "run elsewhere",
    )


def _plan_led(view: ClaimView, hub_claim: JsonObject, volume: JsonObject, handle: Handle) -> Step:
    look = Look(Sought.CLAIM, handle.key)
    seen = view.seen.get(look)
    if seen is None:
        return LookUp(reason="what does the target have?", look=look)
    if seen.forbids:
        return unreadable(look, seen, side=view.target_name)
    if seen.obj is None or uid_of(seen.obj) != handle.uid:
        is_another = "" if seen.obj is None else "; one that was made anew has its name"
        return blocked(
            PodReason.CLAIM_LOST,
            f"claim {handle.key} of {view.target_name}, which holds the data of {view.key}, was "
            f"removed there{is_another}",
        )
    if origin_of_claim(view.scope, seen.obj) is None:
        return blocked(
            PodReason.MARKS_REMOVED,
            f"claim {handle.key} of {view.target_name}, which holds the data of {view.key}, has "
            "federate's marks no more: put labels and annotations of federate.dev/ back",
        )
    return (
        unusable(view, handle.key, seen.obj)
        or _take_up(view, seen.obj, look=look)
        or _follow_sizes(view, hub_claim, volume, seen.obj, look=look)
        or Rest(
            reason="the hub's volume leads to our claim",
            standing=Standing.SETTLED,
            handle=handle,
            is_bound_there=phase_of(seen.obj) == "Bound",
        )
    )


def _take_up(view: ClaimView, claim: JsonObject, *, look: Look) -> Change | None:
    """Give a claim that was made for another one a version that nobody has seen; once."""
    if origin_of_claim(view.scope, claim) == view.key or Wish.MARK in view.keeps:
        return None
    if annotations_of(claim).get(TAKEN_UP_ANNOTATION) == view.key.uid:
        return None
    more: JsonDict = {"annotations": {TAKEN_UP_ANNOTATION: view.key.uid}}
    return Change(
        reason="its data was given on",
        wish=Wish.MARK,
        wanted=view.key.uid,
        look=look,
        patch=_patch(claim, {}, metadata=more),
    )


# -- sizes -----------------------------------------------------------------------------------------


def _follow_sizes(
    view: ClaimView, hub_claim: JsonObject, volume: JsonObject, claim: JsonObject, *, look: Look
) -> Change | None:
    asked = _asked_anew(hub_claim, claim)
    if asked and Wish.SIZE not in view.keeps:
        body: JsonDict = {"spec": {"resources": {"requests": {"storage": asked}}}}
        return Change(
            reason="another size is asked for",
            wish=Wish.SIZE,
            wanted=asked,
            look=look,
            patch=_patch(claim, body),
        )
    return _tell_size(view, hub_claim, volume, claim)


def _tell_size(
    view: ClaimView, hub_claim: JsonObject, volume: JsonObject, claim: JsonObject
) -> Change | None:
    """Let the hub say what the target has."""
    there = size_of(claim)
    if not there:
        return None
    told = (spec_of(volume).get("capacity") or {}).get("storage", "0")
    if _amount(told) < _amount(there) and Wish.VOLUME_SIZE not in view.keeps:
        return Change(
            reason="it is larger in the target",
            wish=Wish.VOLUME_SIZE,
            wanted=there,
            look=_volume(hub_claim),
            patch=_patch(volume, {"spec": {"capacity": {"storage": there}}}),
        )
    is_told = _amount(size_of(hub_claim) or "0") >= _amount(there)
    if is_told or Wish.CLAIM_SIZE in view.keeps:
        return None
    return Change(
        reason="it is larger in the target",
        wish=Wish.CLAIM_SIZE,
        wanted=there,
        look=Look(Sought.HUB_CLAIM, view.key.hub_key),
        patch=_patch(hub_claim, {"status": {"capacity": {"storage": there}}}),
        subresource="status",
    )


def _asked_anew(hub_claim: JsonObject, claim: JsonObject) -> str:
    """Return the size that the target is to be asked for; "" where it is asked for that.

    A claim that is not bound cannot change; nor does one become smaller than what it has.
    """
    wanted = request_of(hub_claim)
    is_same = _amount(wanted) == _amount(request_of(claim))
    has = size_of(claim)
    return "" if is_same or not has or _amount(wanted) < _amount(has) else wanted


def _amount(size: str) -> Decimal:
    return quantity_of(size)


def _patch(obj: JsonObject, body: JsonDict, *, metadata: JsonDict | None = None) -> PatchBody:
    """Change an object as it was seen, and no other."""
    named = {"uid": uid_of(obj), "resourceVersion": resource_version_of(obj), **(metadata or {})}
    return PatchBody(media_type=MERGE, body={"metadata": named, **body})
