"""The word on a Node that its virtual node is being left: read by the leader, set by the command.

While it stands, the leader goes on with statuses and deletions and mirrors nothing new. `federate
leave` sets it together with the cordon; taking both off again calls the leaving off.
"""

from __future__ import annotations

from federate.model.marks import LEAVING_ANNOTATION
from federate.model.objects import JsonObject, annotations_of, spec_of, uid_of
from federate.patch.document import MERGE, PatchBody


def is_leaving(node: JsonObject) -> bool:
    """Tell whether the Node says that it is being left."""
    return LEAVING_ANNOTATION in annotations_of(node)


def leaving_patch(node: JsonObject, *, now: str) -> PatchBody | None:
    """Cordon the very Node and say that it is being left; None where it says both already."""
    if is_leaving(node) and spec_of(node).get("unschedulable"):
        return None
    metadata = {"uid": uid_of(node), "annotations": {LEAVING_ANNOTATION: now}}
    body = {"metadata": metadata, "spec": {"unschedulable": True}}
    return PatchBody(media_type=MERGE, body=body)
