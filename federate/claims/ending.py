"""Decide the next step for a claim of the hub that is gone. Pure.

Data goes only where its class asked for it: the hub's volume says `Delete`, the volume controller
has released it, and what it leads to is ours, by uid. Without a volume nobody is left who could
ask (the hub may have been put back to an older state), so only a claim that never had storage goes.
"""

from __future__ import annotations

from federate.claims.keys import Handle, handle_of, origin_of_claim
from federate.claims.protocol import (
    DELETE,
    PROVISIONED_BY_ANNOTATION,
    PROVISIONER,
    claims_it,
    phase_of,
    volume_name_of,
)
from federate.claims.provision import place_of
from federate.claims.steps import (
    ClaimView,
    ConfirmUnreferenced,
    Delete,
    Look,
    LookUp,
    Rest,
    Sought,
    Standing,
    Step,
)
from federate.claims.verdicts import unreadable
from federate.model.objects import (
    JsonObject,
    ObjectKey,
    annotations_of,
    is_terminating,
    key_of,
    resource_version_of,
    spec_of,
    uid_of,
)


def plan_end(view: ClaimView) -> Step:
    """Decide the next step."""
    look = Look(Sought.VOLUME, ObjectKey("", view.volume_name))
    seen = view.seen.get(look)
    if seen is None:
        return LookUp(reason="the claim is gone: is its volume?", look=look)
    if seen.forbids:
        return unreadable(look, seen, side="the hub")
    if seen.obj is None:
        return _plan_unled(view)
    handle = handle_of(view.scope, seen.obj)
    if handle is None or not claims_it(seen.obj, view.key.uid):
        return _rest("its volume is not ours, or another claim's by now")
    return _plan_released(view, look, seen.obj, handle)


def _rest(reason: str) -> Rest:
    return Rest(reason=reason, standing=Standing.ELSEWHERE)


def _plan_released(view: ClaimView, volume_look: Look, volume: JsonObject, handle: Handle) -> Step:
    if phase_of(volume) != "Released" or is_terminating(volume):
        return _rest("the hub has not released its volume yet")
    is_asked = spec_of(volume).get("persistentVolumeReclaimPolicy") == DELETE
    if not is_asked or annotations_of(volume).get(PROVISIONED_BY_ANNOTATION) != PROVISIONER:
        return _rest("its data is kept")
    look = Look(Sought.CLAIM, handle.key)
    seen = view.seen.get(look)
    if seen is None:
        return LookUp(reason="its class asks for its end: is it there?", look=look)
    if seen.forbids:
        return unreadable(look, seen, side=view.target_name)
    if seen.obj is None or uid_of(seen.obj) != handle.uid:
        return _delete(volume_look, volume, reason="its data is gone")
    return _end_claim(view, look, seen.obj)


def _end_claim(view: ClaimView, look: Look, claim: JsonObject) -> Step:
    if origin_of_claim(view.scope, claim) is None:
        return _rest("what it leads to has our marks no more")
    if is_terminating(claim):
        return _rest("its data is going")
    return _delete(look, claim, reason="its class asks for its end")


def _plan_unled(view: ClaimView) -> Step:
    """No volume leads to it: nothing was made, or the hub was not told of it before it was gone."""
    if view.target_namespace is None:
        return _rest("there is no place where it could be")
    look = Look(Sought.CLAIM, place_of(view, view.key))
    seen = view.seen.get(look)
    if seen is None:
        return LookUp(reason="nobody asks for it: is it there?", look=look)
    claim = seen.obj
    if claim is None or origin_of_claim(view.scope, claim) != view.key or is_terminating(claim):
        return _rest("there is nothing of it")
    if volume_name_of(claim):
        return _rest("it has storage, and nobody asks for its end")
    return _end_unused(view, look, claim)


def _end_unused(view: ClaimView, look: Look, claim: JsonObject) -> Step:
    if view.is_unreferenced is None:
        return ConfirmUnreferenced(
            reason="does no volume lead to it?", handle=Handle(*key_of(claim), uid_of(claim))
        )
    if not view.is_unreferenced:
        return _rest("another volume leads to it")
    return _delete(look, claim, reason="it was never used")


def _delete(look: Look, obj: JsonObject, *, reason: str) -> Delete:
    return Delete(
        reason=reason, look=look, uid=uid_of(obj), resource_version=resource_version_of(obj)
    )
