"""The record of each Secret that federate makes: an *entry* of its name (decision 0020). Pure.

No Secret is ever listed, so something else must tell which there are: an empty ConfigMap for each,
made before it and deleted after it. The entry owns its Secret. A create that arrives when the entry
is gone (sent by a process that led before, say) names an owner that is no more, and the target's
garbage collector takes away what it made: however late, nothing stays that is on no record.

Earlier versions wrote lines into the anchor's `data`: these are read and struck, none is added.
"""

from __future__ import annotations

from collections.abc import Mapping

from federate.companions.render import owner_reference
from federate.model.marks import (
    COMPANION_LABEL,
    COMPANION_OF_ANNOTATION,
    NODE_NAME_ANNOTATION,
    TAKEN_UP_ANNOTATION,
    Scope,
)
from federate.model.objects import (
    JsonDict,
    JsonObject,
    ObjectKey,
    annotations_of,
    labels_of,
    metadata_of,
    resource_version_of,
    uid_of,
)
from federate.patch.document import MERGE, PatchBody

ENTRY = "entry"
"""What the label of an entry says, where a companion's names a kind."""


def is_entry(scope: Scope, obj: JsonObject) -> bool:
    """Tell whether it is an entry of this virtual node."""
    return scope.owns(obj) and labels_of(obj).get(COMPANION_LABEL) == ENTRY


def lines_of(lister: JsonObject) -> Mapping[str, str]:
    """Return what an object keeps on record, by the Secret's name: an entry one, an anchor any."""
    if labels_of(lister).get(COMPANION_LABEL) == ENTRY:
        said = annotations_of(lister).get(COMPANION_OF_ANNOTATION, "")
        return {metadata_of(lister).get("name") or "": said}
    return lister.get("data") or {}


def render_entry(place: ObjectKey, said: str, *, scope: Scope, anchor: JsonObject) -> JsonDict:
    """Render the entry of a Secret that shall stand at that place; `said`: what it stands for."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "namespace": place.namespace,
            "name": place.name,
            "labels": {**scope.labels(), COMPANION_LABEL: ENTRY},
            "annotations": {
                NODE_NAME_ANNOTATION: scope.node_name,
                COMPANION_OF_ANNOTATION: said,
            },
            "ownerReferences": [owner_reference(anchor)],
        },
    }


def taking_up(there: JsonObject) -> PatchBody:
    """Put to use what is there: whoever led before is about to delete it as he saw it, perhaps.

    Now it has another version; what is merely looked at keeps the one that he names.
    """
    times = annotations_of(there).get(TAKEN_UP_ANNOTATION, "")
    counted = int(times) + 1 if times.isascii() and times.isdigit() else 1
    metadata = {
        "uid": uid_of(there),
        "resourceVersion": resource_version_of(there),
        "annotations": {TAKEN_UP_ANNOTATION: str(counted)},
    }
    return PatchBody(media_type=MERGE, body={"metadata": metadata})


def taking_up_entry(entry: JsonObject, wanted: JsonObject) -> PatchBody:
    """Put an entry to use again, as it ought to be today: the anchor may be another one."""
    ours = metadata_of(wanted)
    metadata = metadata_of(taking_up(entry).body)
    annotations = {**ours["annotations"], **metadata["annotations"]}
    more = {"annotations": annotations, "ownerReferences": ours["ownerReferences"]}
    return PatchBody(media_type=MERGE, body={"metadata": {**metadata, **more}})


def is_made_with(entry: JsonObject | None, secret: JsonObject) -> bool:
    """Tell whether a Secret was made on that entry, whatever became of its marks since.

    Its owner is named by a uid, which nobody else writes there by chance; and once the entry goes,
    Kubernetes removes what it owns.
    """
    if entry is None:
        return False
    owners: list[JsonObject] = list(metadata_of(secret).get("ownerReferences") or ())
    ours = owner_reference(entry)
    return any(ours.items() <= owner.items() for owner in owners)


def outline_of(configmap: JsonDict) -> JsonDict:
    """Keep of a ConfigMap of ours what tells which it is: there may be very many."""
    metadata = metadata_of(configmap)
    return {"metadata": {name: metadata[name] for name in _OUTLINE if name in metadata}}


_OUTLINE = (
    "namespace",
    "name",
    "uid",
    "resourceVersion",
    "deletionTimestamp",
    "labels",
    "annotations",
)
