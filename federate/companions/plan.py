"""Decide the next step for one companion. Pure.

Input: the hub's object, what stands in the target under the companion's name, and who wants it;
output: one step with its reason. A round carries it out, looks again, and asks for the next: it may
be killed between any two, and deciding twice on the same input gives the same step.

    wanted, the hub has it      enlist it (a Secret), create it, or change it to be the same;
                                where an API server lets it not be changed, delete it first
    wanted, the hub has none    delete the companion too: what is revoked on the hub is revoked
    by a mirror alone           leave it as it is: who may write mirrors must not read the hub
    not wanted                  after a while, and once that is sure, delete it

Values are the hub's alone: a key that somebody added in the target would be seen by the pod, and
goes. Of metadata only our marks and owner are ours; what the target added there stays (C24).
"""

from __future__ import annotations

from typing import Any

from federate.companions.entries import is_made_with, taking_up
from federate.companions.keys import Kind, companion_of, name_of
from federate.companions.render import (
    CONTENTS,
    OPAQUE,
    SIZE_LIMIT_BYTES,
    render_companion,
    size_bytes,
)
from federate.companions.steps import (
    Blocked,
    CompanionView,
    ConfirmUnwanted,
    CreateCompanion,
    DeleteCompanion,
    Enlist,
    Ground,
    LookUpCompanion,
    LookUpHubObject,
    PatchCompanion,
    PrepareGround,
    Rest,
    Standing,
    Step,
    Strike,
)
from federate.model.objects import (
    JsonDict,
    JsonObject,
    annotations_of,
    is_terminating,
    labels_of,
    metadata_of,
    resource_version_of,
    uid_of,
)
from federate.model.reasons import PodReason
from federate.patch.document import MERGE, PatchBody


def plan_companion(view: CompanionView) -> Step:
    """Decide the next step."""
    if not view.is_wanted:
        return _plan_unwanted(view)
    if not view.has_hub_pod:
        return Rest(reason="no hub pod asks for it, a mirror uses it", standing=Standing.ABSENT)
    return _plan_wanted(view)


def _plan_wanted(view: CompanionView) -> Step:
    if view.hub_forbids:
        return _blocked(
            PodReason.COMPANION_UNREADABLE,
            f"the hub does not let federate read {view.key}: {view.hub_forbids}",
        )
    if not view.key.can_exist:
        return _plan_absent(view)
    if not view.hub_fresh:
        return LookUpHubObject(reason="what does the hub say?")
    if view.hub_object is None:
        return _plan_absent(view)
    if size_bytes(view.key.kind, view.hub_object) > SIZE_LIMIT_BYTES:
        return _blocked(
            PodReason.COMPANION_TOO_LARGE,
            f"{view.key} is larger than {SIZE_LIMIT_BYTES} bytes: no API server takes it",
        )
    return _plan_there(view, view.hub_object)


def _plan_there(view: CompanionView, hub_object: JsonObject) -> Step:
    """The hub has it, so the target shall have it."""
    if view.ground is Ground.UNINSTALLED:
        return _blocked(
            PodReason.UNINSTALLED,
            f"federate was uninstalled from namespace {view.key.target_namespace} of "
            f"{view.target_name} (its anchor was deleted there); an operator must confirm",
        )
    if view.ground is Ground.NOT_YET or view.anchor is None:
        return PrepareGround(reason="the target namespace or its anchor is not there yet")
    if not view.companion_fresh:
        return LookUpCompanion(reason="what does the target have?")
    return _what_blocks(view) or _plan_contents(view, hub_object)


def _what_blocks(view: CompanionView) -> Rest | None:
    if view.companion is None:
        return None
    if not _is_ours(view, view.companion):
        return _name_taken(view)
    if is_terminating(view.companion):
        return _blocked(
            PodReason.COMPANION_ENDING,
            f"{view.key.kind} {name_of(view.scope, view.key)} of {view.target_name}, which stands "
            f"for {view.key}, is being deleted there and not gone yet",
        )
    return None


def _plan_contents(view: CompanionView, hub_object: JsonObject) -> Step:
    owner = view.anchor if view.key.kind is Kind.CONFIGMAP else _entry_to_rest_on(view)
    if owner is None:
        return Enlist(reason="on record before it is there")
    wanted = render_companion(view.key, hub_object, scope=view.scope, owner=owner)
    if view.companion is None:
        return CreateCompanion(reason="the target has none", body=wanted)
    return _plan_ours(view, wanted, view.companion)


def _entry_to_rest_on(view: CompanionView) -> JsonObject | None:
    """Return the entry that a Secret is made with, or has; None where it must be enlisted first.

    A create may rest only on an entry that nobody else is about to strike.
    """
    return view.entry if view.companion is not None or view.entry_fresh else None


def _plan_ours(view: CompanionView, wanted: JsonObject, companion: JsonObject) -> Step:
    if not _is_marked(view, companion):
        return _delete(companion, reason="it must be made anew: its marks were taken off")
    why = _why_replace(view.key.kind, wanted, companion)
    if why:
        return _delete(companion, reason=f"it must be made anew: {why}")
    patch = companion_patch(view.key.kind, wanted, companion)
    if patch is not None:
        return PatchCompanion(reason="it differs from the hub's", patch=patch)
    if not view.is_held:
        return PatchCompanion(reason="taken up before it is used", patch=taking_up(companion))
    return Rest(reason="as on the hub", standing=Standing.SETTLED)


def _plan_absent(view: CompanionView) -> Step:
    """The hub has no such object: a kubelet of the hub would not find it either.

    Nor may one of the target's that has the name: a mirror would read what is not ours (C30).
    """
    if not view.companion_fresh:
        return LookUpCompanion(reason="the hub has no such object: has the target?")
    if view.companion is not None and not _is_ours(view, view.companion):
        return _name_taken(view)
    return _plan_end(view, reason="its hub object is gone") or Rest(
        reason="the hub has no such object", standing=Standing.ABSENT
    )


def _plan_unwanted(view: CompanionView) -> Step:
    gone = Rest(reason="nobody wants it", standing=Standing.ABSENT)
    if not view.key.can_exist:
        return gone
    if view.lingers:
        return Rest(reason="nobody wants it just now", standing=Standing.ABSENT)
    if not view.companion_fresh:
        return LookUpCompanion(reason="nobody wants it: is it there?")
    is_there = view.companion is not None and _is_ours(view, view.companion)
    if is_there and not view.unwanted_fresh:
        return ConfirmUnwanted(reason="is it sure that nobody wants it?")
    return _plan_end(view, reason="nobody wants it any more") or gone


def _plan_end(view: CompanionView, *, reason: str) -> Step | None:
    """Delete what is there and ours, then take it off record; None where nothing is left."""
    companion, is_on_record = view.companion, view.entry is not None or view.has_line
    if companion is not None and _is_ours(view, companion):
        if is_terminating(companion):
            return Rest(reason="it is ending", standing=Standing.ABSENT)
        return _delete(companion, reason=reason)
    if companion is not None and is_on_record:
        # It may be ours, stripped of all that would tell: then the record is the only trace.
        return _name_taken(view)
    if is_on_record:
        return Strike(reason="there is no such companion any more", entry=view.entry)
    return None


def _delete(companion: JsonObject, *, reason: str) -> DeleteCompanion:
    return DeleteCompanion(
        reason=reason, uid=uid_of(companion), resource_version=resource_version_of(companion)
    )


def _is_marked(view: CompanionView, companion: JsonObject) -> bool:
    return companion_of(view.scope, companion) == view.key


def _is_ours(view: CompanionView, companion: JsonObject) -> bool:
    """Tell whether it is ours by its marks, or by its owner where the target took them off."""
    return _is_marked(view, companion) or is_made_with(view.entry, companion)


def _name_taken(view: CompanionView) -> Rest:
    return _blocked(
        PodReason.NAME_TAKEN,
        f"{view.key.kind} {name_of(view.scope, view.key)} of {view.target_name} has the name of "
        f"what stands for {view.key}, but not federate's marks: it stays untouched. Remove or "
        "rename it there",
    )


def _blocked(reason: PodReason, message: str) -> Rest:
    return Rest(
        reason=reason,
        standing=Standing.BLOCKED,
        blocked=Blocked(reason=reason, message=message),
    )


# -- from what it is to what it ought to be --------------------------------------------------------


def _why_replace(kind: Kind, wanted: JsonObject, companion: JsonObject) -> str:
    """Say what an API server does not let us change; "" where it does."""
    if wanted.get("type", OPAQUE) != companion.get("type", OPAQUE):
        return "a Secret's type cannot change"
    if companion.get("immutable") and not (
        wanted.get("immutable") and _same_values(kind, wanted, companion)
    ):
        return "it is immutable"
    return ""


def _same_values(kind: Kind, wanted: JsonObject, companion: JsonObject) -> bool:
    return all((wanted.get(f) or {}) == (companion.get(f) or {}) for f in CONTENTS[kind])


def companion_patch(kind: Kind, wanted: JsonObject, companion: JsonObject) -> PatchBody | None:
    """Say what must change of a companion, as a merge patch of that very version; None: nothing."""
    body: JsonDict = {}
    for field in CONTENTS[kind]:
        values = _exact(wanted.get(field) or {}, companion.get(field) or {})
        if values:
            body[field] = values
    if wanted.get("immutable") and not companion.get("immutable"):
        body["immutable"] = True
    metadata = metadata_changes(wanted, companion)
    if not body and not metadata:
        return None
    metadata["uid"] = uid_of(companion)
    metadata["resourceVersion"] = resource_version_of(companion)
    return PatchBody(media_type=MERGE, body={"metadata": metadata, **body})


def _exact(wanted: JsonObject, there: JsonObject) -> dict[str, Any]:
    changed = {key: value for key, value in wanted.items() if there.get(key) != value}
    return {**changed, **{key: None for key in there if key not in wanted}}


def metadata_changes(wanted: JsonObject, companion: JsonObject) -> JsonDict:
    """Restore our marks and our owner; whatever else stands there is somebody's, and stays."""
    changes: JsonDict = {}
    for name, of in (("labels", labels_of), ("annotations", annotations_of)):
        lacking = {k: v for k, v in of(wanted).items() if of(companion).get(k) != v}
        if lacking:
            changes[name] = lacking
    owners: list[JsonObject] = list(metadata_of(companion).get("ownerReferences") or ())
    ours = metadata_of(wanted)["ownerReferences"][0]
    if not any(ours.items() <= owner.items() for owner in owners):
        # Only one may be the controller: one that is there is a former anchor.
        others = [owner for owner in owners if not owner.get("controller")]
        changes["ownerReferences"] = [ours, *others]
    return changes
