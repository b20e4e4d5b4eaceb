"""Decide the next step for a claim of the hub that has no volume yet. Pure.

The scheduler has chosen our node for the claim's first pod, which is bound only when the claim is.
So where the target waits for a first consumer too, the hub's volume is made as soon as the target
has the claim: the mirror will be that consumer. Elsewhere it waits until the target has storage.
"""

from __future__ import annotations

from federate.claims.keys import ClaimKey, origin_of_claim, target_claim_name
from federate.claims.protocol import (
    PROVISIONER,
    SELECTED_NODE_ANNOTATION,
    WAITS_FOR_CONSUMER,
    claims_it,
    class_of,
    is_chosen,
    phase_of,
)
from federate.claims.render import reclaim_of, render_claim, render_volume
from federate.claims.steps import (
    ClaimView,
    CreateClaim,
    CreateVolume,
    GiveUp,
    Look,
    LookForUsers,
    LookUp,
    PrepareGround,
    Rest,
    Sought,
    Standing,
    Step,
    Users,
)
from federate.claims.verdicts import blocked, unreadable, unusable
from federate.companions.steps import Blocked, Ground
from federate.model.objects import (
    JsonObject,
    ObjectKey,
    is_terminating,
    resource_version_of,
    spec_of,
    uid_of,
)
from federate.model.reasons import PodReason
from federate.patch.document import MERGE, PatchBody


def plan_unbound(view: ClaimView, hub_claim: JsonObject) -> Step:
    """Decide the next step."""
    if is_terminating(hub_claim) or not is_chosen(hub_claim, view.scope.node_name):
        return blocked(
            PodReason.CLAIM_PENDING,
            f"{view.key} is not bound on the hub. One of a class of {PROVISIONER} is bound when "
            "the scheduler places its first pod here; a pod that names its node itself waits",
            standing=Standing.ELSEWHERE,
        )
    return (
        _is_answered(view)
        or _is_refused(view, hub_claim)
        or _plan_class(view, hub_claim)
        or _plan_there(view, hub_claim)
    )


def _is_answered(view: ClaimView) -> Step | None:
    """The volume may be there already, from a life before this one."""
    look = Look(Sought.VOLUME, ObjectKey("", view.volume_name))
    seen = view.seen.get(look)
    if seen is None:
        return LookUp(reason="was it answered before?", look=look)
    if seen.forbids:
        return unreadable(look, seen, side="the hub")
    if seen.obj is None:
        return None
    if claims_it(seen.obj, view.key.uid):
        return Rest(reason="the hub has its volume, and will bind it", standing=Standing.COMING)
    return blocked(
        PodReason.NAME_TAKEN,
        f"volume {view.volume_name} of the hub has the name of the one for {view.key}, but is for "
        "another claim: it stays untouched. Remove it there",
    )


# -- what is refused -------------------------------------------------------------------------------


def _is_refused(view: ClaimView, hub_claim: JsonObject) -> Step | None:
    if view.is_leaving:
        words = f"virtual node {view.scope.node_name} is being left: no storage is made there"
        return give_up(hub_claim, _refused(words))
    if view.target_namespace is None:
        words = f"pods of namespace {view.key.namespace} are not run in {view.target_name}"
        return give_up(hub_claim, _refused(words))
    if view.ground is Ground.UNINSTALLED:
        message = (
            f"federate was uninstalled from namespace {view.target_namespace} of "
            f"{view.target_name} (its anchor was deleted there); an operator must confirm"
        )
        return give_up(hub_claim, Blocked(reason=PodReason.UNINSTALLED, message=message))
    words = _unserved(view, hub_claim)
    return give_up(hub_claim, _refused(words)) if words else None


def _unserved(view: ClaimView, hub_claim: JsonObject) -> str:
    """Say what of a claim cannot be had in the target; "" where nothing speaks against it."""
    spec, name = spec_of(hub_claim), class_of(hub_claim)
    if name not in view.rules.storage_classes:
        return (
            f"{view.key}: storage class {name} stands for no class of {view.target_name} "
            "(volumes.storageClasses); take another, or ask its operator"
        )
    for field in ("dataSource", "dataSourceRef"):
        if spec.get(field):
            return f"{view.key}: spec.{field}: what it names is on the hub, and does not travel"
    for field in ("selector", "volumeAttributesClassName"):
        if spec.get(field):
            return f"{view.key}: spec.{field} speaks of the hub's storage, and does not travel"
    return ""


def _refused(message: str) -> Blocked:
    return Blocked(reason=PodReason.CLAIM_REFUSED, message=message)


def give_up(hub_claim: JsonObject, why: Blocked) -> GiveUp:
    """Hand the choice back to the scheduler, for this version of the claim."""
    metadata = {
        "uid": uid_of(hub_claim),
        "resourceVersion": resource_version_of(hub_claim),
        "annotations": {SELECTED_NODE_ANNOTATION: None},
    }
    patch = PatchBody(media_type=MERGE, body={"metadata": metadata})
    return GiveUp(reason="it cannot be served here", blocked=why, patch=patch)


# -- what is needed first --------------------------------------------------------------------------


def _plan_class(view: ClaimView, hub_claim: JsonObject) -> Step | None:
    """See that the hub's class is ours."""
    look = _hub_class(hub_claim)
    seen = view.seen.get(look)
    if seen is None:
        return LookUp(reason="what does its class say of the end?", look=look)
    if seen.forbids:
        return unreadable(look, seen, side="the hub")
    if seen.obj is None or seen.obj.get("provisioner") != PROVISIONER:
        return blocked(
            PodReason.CLAIM_PENDING,
            f"{view.key}: its storage class {look.key.name} is not there, or not {PROVISIONER}'s",
        )
    return None


def _is_unwelcome(view: ClaimView, hub_claim: JsonObject) -> Step | None:
    """See, before anything is made, that not all pods which wait for it are refused."""
    if view.users is Users.UNKNOWN:
        return LookForUsers(reason="who asks for it?")
    if view.users is Users.REFUSED:
        words = f"{view.key}: {view.target_name} refuses the pods that ask for it"
        return give_up(hub_claim, _refused(words))
    return None


def _hub_class(hub_claim: JsonObject) -> Look:
    return Look(Sought.HUB_CLASS, ObjectKey("", class_of(hub_claim)))


# -- in the target ---------------------------------------------------------------------------------


def _plan_there(view: ClaimView, hub_claim: JsonObject) -> Step:
    target_class = view.rules.storage_classes[class_of(hub_claim)]
    if target_class:
        look = Look(Sought.TARGET_CLASS, ObjectKey("", target_class))
        seen = view.seen.get(look)
        if seen is None:
            return LookUp(reason="when does the target bind?", look=look)
        if seen.obj is None and not seen.forbids:
            words = f"{view.key}: {view.target_name} has no storage class {target_class}"
            return give_up(hub_claim, _refused(words))
    if view.ground is Ground.NOT_YET:
        return _is_unwelcome(view, hub_claim) or PrepareGround(
            reason="the target namespace or its anchor is not there yet"
        )
    return _plan_claim_there(view, hub_claim, target_class)


def place_of(view: ClaimView, key: ClaimKey) -> ObjectKey:
    """Say where a claim's stand-in is, or would be."""
    return ObjectKey(view.target_namespace or "", target_claim_name(view.scope, key))


def _plan_claim_there(view: ClaimView, hub_claim: JsonObject, target_class: str) -> Step:
    place = place_of(view, view.key)
    look = Look(Sought.CLAIM, place)
    seen = view.seen.get(look)
    if seen is None:
        return LookUp(reason="what does the target have?", look=look)
    if seen.forbids:
        return unreadable(look, seen, side=view.target_name)
    if seen.obj is None:
        body = render_claim(
            view.key,
            hub_claim,
            scope=view.scope,
            namespace=place.namespace,
            target_class=target_class,
        )
        return _is_unwelcome(view, hub_claim) or CreateClaim(
            reason="the target has none", body=body
        )
    if origin_of_claim(view.scope, seen.obj) != view.key:
        return blocked(
            PodReason.NAME_TAKEN,
            f"claim {place} of {view.target_name} has the name of the one for {view.key}, but not "
            "federate's marks: it stays untouched. Remove it there",
        )
    return unusable(view, place, seen.obj) or _answer(view, hub_claim, seen.obj)


def _answer(view: ClaimView, hub_claim: JsonObject, claim: JsonObject) -> Step:
    waits = _must_wait(view, claim)
    if waits is not None:
        return waits
    hub_class = view.seen[_hub_class(hub_claim)].obj
    assert hub_class is not None  # noqa: S101 (`_plan_class` has seen to it)
    body = render_volume(
        view.key,
        hub_claim,
        claim,
        scope=view.scope,
        target_name=view.target_name,
        reclaim=reclaim_of(hub_class),
    )
    return CreateVolume(reason="the target has the claim", body=body)


def _must_wait(view: ClaimView, claim: JsonObject) -> Step | None:
    """Wait for the target's storage, unless that waits for the mirror, or nobody may tell us."""
    if phase_of(claim) == "Bound":
        return None
    name = class_of(claim)
    coming = Rest(
        reason="the target makes the storage", standing=Standing.COMING, is_bound_there=False
    )
    if not name:
        return coming  # the target has no default class, and may get one
    look = Look(Sought.TARGET_CLASS, ObjectKey("", name))
    seen = view.seen.get(look)
    if seen is None:
        return LookUp(reason="when does the target bind?", look=look)
    is_late = (seen.obj or {}).get("volumeBindingMode") == WAITS_FOR_CONSUMER
    return None if is_late or seen.forbids else coming
