"""Express what the hub pod must say as one patch of `pods/status`. Pure.

Record, annotations and status travel in one atomic patch, with the uid and the version it was
decided on as preconditions: a late or doubled one does no harm (C20, C70), and a phase that became
terminal meanwhile is never overwritten (C42).
"""

from __future__ import annotations

from dataclasses import dataclass

from federate.model.marks import (
    RECORD_ANNOTATION,
    TARGET_ANNOTATION,
    TARGET_NODE_ANNOTATION,
    MirrorRecord,
)
from federate.model.objects import (
    JsonDict,
    JsonObject,
    annotations_of,
    fingerprint_of,
    resource_version_of,
    status_of,
    uid_of,
)
from federate.patch.document import PatchBody, strategic_patch
from federate.patch.edits import Edits
from federate.patch.listkeys import POD
from federate.patch.threeway import merge
from federate.status.project import derive_base, owned_part

_OWN_ANNOTATIONS = (RECORD_ANNOTATION, TARGET_ANNOTATION, TARGET_NODE_ANNOTATION)


@dataclass(frozen=True, slots=True, kw_only=True)
class HubWrite:
    """One patch of a hub pod's status. `fingerprint` tells two with the same content."""

    patch: PatchBody
    fingerprint: str


def plan_hub_write(
    hub_pod: JsonObject,
    *,
    status: JsonObject | None = None,
    record: MirrorRecord | None = None,
    target: str = "",
    target_node: str = "",
    futile: str = "",
) -> HubWrite | None:
    """Merge three ways and express the difference; None where nothing must change.

    `futile` is the fingerprint of a write that the server answered without taking it (a field it
    does not know): asking again would loop.
    """
    annotations = _own_annotations(hub_pod)
    if record is not None:
        annotations[RECORD_ANNOTATION] = record.format()
    if target:
        annotations[TARGET_ANNOTATION] = target
    if target_node:
        annotations[TARGET_NODE_ANNOTATION] = target_node
    if _is_said(hub_pod, status, annotations):
        return None
    edits = _merge(hub_pod, status, annotations)
    # Where a pod runs rides along with news; it is worth a write of its own only past Pending,
    # when no other may come.
    if (status or {}).get("phase") == "Pending" and _tells_only_the_node(edits):
        return None
    patch = strategic_patch(
        edits, uid=uid_of(hub_pod), resource_version=resource_version_of(hub_pod)
    )
    if patch is None:
        return None
    fingerprint = _fingerprint(patch)
    return None if fingerprint == futile else HubWrite(patch=patch, fingerprint=fingerprint)


def _tells_only_the_node(edits: Edits) -> bool:
    return all(
        edit.path[:3] == ("metadata", "annotations", TARGET_NODE_ANNOTATION) for edit in edits.edits
    )


def _is_said(hub_pod: JsonObject, status: JsonObject | None, annotations: JsonObject) -> bool:
    """Tell cheaply that nothing is to be written: what most looks at a pod come to."""
    same_status = status is None or status == owned_part(hub_pod)
    return same_status and annotations == _own_annotations(hub_pod)


def _own_annotations(hub_pod: JsonObject) -> dict[str, str]:
    present = annotations_of(hub_pod)
    return {key: present[key] for key in _OWN_ANNOTATIONS if key in present}


def _merge(hub_pod: JsonObject, status: JsonObject | None, annotations: JsonObject) -> Edits:
    base: JsonDict = {"metadata": {"annotations": _own_annotations(hub_pod)}}
    ours: JsonDict = {"metadata": {"annotations": annotations}}
    if status is not None:
        base["status"] = derive_base(hub_pod)
        ours["status"] = status
    theirs: JsonDict = {
        "metadata": {"annotations": annotations_of(hub_pod)},
        "status": status_of(hub_pod),
    }
    return merge(base, ours, theirs, lists=POD)


def _fingerprint(patch: PatchBody) -> str:
    body = dict(patch.body)
    metadata = {k: v for k, v in body.pop("metadata", {}).items() if k != "resourceVersion"}
    return fingerprint_of({**body, "metadata": metadata})
