"""Which Service of the target stands for which of the hub, and how it ought to look. Pure.

It has the same name, so that short DNS names work, and a selector that selects mirrors of its hub
namespace alone: what else runs in the target namespace has no part in it, be it another hub
namespace's that another virtual node maps to the same one. Only fields that say who answers, and on
which port, travel. Others reach out of the cluster or take somebody else's traffic (externalIPs,
node ports, load balancers), and a label or annotation might make a controller of the target act.

Several virtual nodes of a hub may share a target namespace. The Service is then one for all of
them: each adds its anchor to the owners, and takes it off again; whoever finds no other owner
deletes it, and the target's garbage collector does the same.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from federate.model.marks import (
    COMPANION_LABEL,
    COMPANION_OF_ANNOTATION,
    FOLLOW_LABEL,
    HUB_LABEL,
    HUB_POD_NAMESPACE_LABEL,
    RECORDS_KEPT,
    Scope,
)
from federate.model.naming import anchor_name
from federate.model.objects import (
    JsonDict,
    JsonObject,
    ObjectKey,
    annotations_of,
    key_of,
    labels_of,
    metadata_of,
    resource_version_of,
    spec_of,
    uid_of,
)
from federate.patch.document import MERGE, PatchBody
from federate.services.door import is_door_name
from federate.services.rules import FollowMode
from federate.services.selecting import EXTERNAL_NAME

SERVICE_KIND = "Service"
COMPANION_VALUE = "service"
"""What `COMPANION_LABEL` says of a followed Service."""

HEADLESS = "None"

_PORT_FIELDS = ("name", "protocol", "appProtocol", "port", "targetPort")


class ServiceKey(NamedTuple):
    """One Service of the hub, and the target namespace where it is followed."""

    target_namespace: str
    namespace: str
    name: str

    @property
    def hub_key(self) -> ObjectKey:
        """The Service of the hub."""
        return ObjectKey(self.namespace, self.name)

    @property
    def target_key(self) -> ObjectKey:
        """The Service of the target."""
        return ObjectKey(self.target_namespace, self.name)

    def __str__(self) -> str:
        return f"Service {self.hub_key}"


def is_followed(service: JsonObject, mode: FollowMode) -> bool:
    """Tell whether a Service of the hub is made in the target, where its namespace has pods.

    One without a selector has endpoints that somebody wrote by hand; they mean nothing there. One
    that federate made itself (the hub may be a target, too) is never followed, nor one that would
    take the name of a door.
    """
    labels, spec = labels_of(service), spec_of(service)
    if is_door_name(key_of(service).name):
        return False
    if COMPANION_LABEL in labels or not spec.get("selector") or spec.get("type") == EXTERNAL_NAME:
        return False
    match mode:
        case FollowMode.ALL:
            return labels.get(FOLLOW_LABEL) != "false"
        case FollowMode.LABELLED:
            return labels.get(FOLLOW_LABEL) == "true"
        case FollowMode.IGNORE:
            return False


# -- marks -----------------------------------------------------------------------------------------


def services_selector(scope: Scope) -> str:
    """Label selector of the Services that were made for this hub, by whichever virtual node."""
    return f"{HUB_LABEL}={scope.hub_id},{COMPANION_LABEL}={COMPANION_VALUE}"


def is_marked(scope: Scope, obj: JsonObject) -> bool:
    """Tell whether an object is what `services_selector` selects."""
    labels = labels_of(obj)
    return labels.get(HUB_LABEL) == scope.hub_id and labels.get(COMPANION_LABEL) == COMPANION_VALUE


def service_of(scope: Scope, obj: JsonObject) -> ServiceKey | None:
    """Read which Service of this hub an object follows; None where a mark or its name says no."""
    told = _parse_told(annotations_of(obj).get(COMPANION_OF_ANNOTATION, ""))
    metadata = metadata_of(obj)
    if not is_marked(scope, obj) or told is None or told.name != metadata.get("name"):
        return None
    return ServiceKey(metadata.get("namespace") or "", *told)


def _format_told(hub_key: ObjectKey) -> str:
    told = {"kind": SERVICE_KIND, "namespace": hub_key.namespace, "name": hub_key.name}
    return json.dumps(told, separators=(",", ":"))


@lru_cache(maxsize=RECORDS_KEPT)
def _parse_told(text: str) -> ObjectKey | None:
    try:
        value = json.loads(text)
        if value["kind"] != SERVICE_KIND:
            return None
        return ObjectKey(str(value["namespace"]), str(value["name"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


# -- owners ----------------------------------------------------------------------------------------


def owner_of(anchor: JsonObject) -> JsonDict:
    """Return the owner reference of an anchor; no controller, for there may be several."""
    metadata = metadata_of(anchor)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": metadata["name"],
        "uid": metadata["uid"],
    }


def owners_of(service: JsonObject) -> Sequence[JsonObject]:
    """Return the owner references."""
    owners: Sequence[JsonObject] = metadata_of(service).get("ownerReferences") or ()
    return owners


def others_owners(scope: Scope, service: JsonObject) -> list[JsonObject]:
    """Return the owners that are not this virtual node's anchor, one of before included."""
    name = anchor_name(scope)
    return [owner for owner in owners_of(service) if owner.get("name") != name]


def is_owned(scope: Scope, service: JsonObject) -> bool:
    """Tell whether a virtual node has a part in it: its anchor owns it, or nobody does."""
    owners = owners_of(service)
    return not owners or len(others_owners(scope, service)) < len(owners)


# -- as it ought to be -----------------------------------------------------------------------------


def render_service(
    key: ServiceKey, service: JsonObject, *, scope: Scope, anchor: JsonObject
) -> JsonDict:
    """Render the Service that ought to stand in the target."""
    spec = rendered_spec(service, scope)
    return {
        "apiVersion": "v1",
        "kind": SERVICE_KIND,
        "metadata": {
            "namespace": key.target_namespace,
            "name": key.name,
            "labels": {HUB_LABEL: scope.hub_id, COMPANION_LABEL: COMPANION_VALUE},
            "annotations": {COMPANION_OF_ANNOTATION: _format_told(key.hub_key)},
            "ownerReferences": [owner_of(anchor)],
        },
        "spec": {**spec, "clusterIP": HEADLESS} if is_headless(service) else spec,
    }


def rendered_spec(service: JsonObject, scope: Scope) -> JsonDict:
    """Render what may change of it later: all but whether it is headless."""
    spec = spec_of(service)
    affinity = spec.get("sessionAffinity") or "None"
    return {
        "type": "ClusterIP",
        # A user's own selector may name our labels, too; what we say counts.
        "selector": {
            **(spec.get("selector") or {}),
            HUB_LABEL: scope.hub_id,
            HUB_POD_NAMESPACE_LABEL: key_of(service).namespace,
        },
        "ports": [_port(port) for port in spec.get("ports") or ()],
        "sessionAffinity": affinity,
        "sessionAffinityConfig": _affinity_config(spec) if affinity != "None" else None,
        "publishNotReadyAddresses": bool(spec.get("publishNotReadyAddresses")),
        "internalTrafficPolicy": spec.get("internalTrafficPolicy") or "Cluster",
    }


def _affinity_config(spec: JsonObject) -> JsonDict | None:
    timeout = ((spec.get("sessionAffinityConfig") or {}).get("clientIP") or {}).get(
        "timeoutSeconds"
    )
    return {"clientIP": {"timeoutSeconds": timeout}} if timeout is not None else None


def _port(port: JsonObject) -> JsonDict:
    told = {name: port[name] for name in _PORT_FIELDS if port.get(name) is not None}
    return {"protocol": "TCP", "targetPort": port.get("port"), **told}


def is_headless(service: JsonObject) -> bool:
    """Tell whether a Service has no address of its own, so that its name leads to its pods."""
    return spec_of(service).get("clusterIP") == HEADLESS


# -- from what it is to what it ought to be --------------------------------------------------------


def service_patch(wanted: JsonObject, there: JsonObject) -> PatchBody | None:
    """Say what must change of a Service, as a merge patch of that very version; None: nothing.

    What the target's API server and admins added stays, but for what decides who answers.
    """
    spec = _spec_changes(spec_of(wanted), spec_of(there))
    metadata = _metadata_changes(wanted, there)
    if not spec and not metadata:
        return None
    body: JsonDict = {"metadata": {**metadata, **_preconditions(there)}}
    return PatchBody(media_type=MERGE, body={**body, "spec": spec} if spec else body)


def _spec_changes(wanted: JsonObject, there: JsonObject) -> JsonDict:
    """Compare what is ours to say; whether it is headless cannot change."""
    present = {
        "type": there.get("type") or "ClusterIP",
        "ports": [_port(port) for port in there.get("ports") or ()],
        "sessionAffinity": there.get("sessionAffinity") or "None",
        "sessionAffinityConfig": _affinity_config(there),
        "publishNotReadyAddresses": bool(there.get("publishNotReadyAddresses")),
        "internalTrafficPolicy": there.get("internalTrafficPolicy") or "Cluster",
    }
    changes: JsonDict = {
        field: wanted.get(field) for field, value in present.items() if wanted.get(field) != value
    }
    selector = _exact(wanted["selector"], there.get("selector") or {})
    return {**changes, "selector": selector} if selector else changes


def _exact(wanted: JsonObject, there: JsonObject) -> dict[str, Any]:
    changed = {key: value for key, value in wanted.items() if there.get(key) != value}
    return {**changed, **{key: None for key in there if key not in wanted}}


def _metadata_changes(wanted: JsonObject, there: JsonObject) -> JsonDict:
    """Restore our marks, and our anchor among the owners."""
    changes: JsonDict = {}
    for name, of in (("labels", labels_of), ("annotations", annotations_of)):
        lacking = {k: v for k, v in of(wanted).items() if of(there).get(k) != v}
        if lacking:
            changes[name] = lacking
    ours = owners_of(wanted)[0]
    if not any(ours.items() <= owner.items() for owner in owners_of(there)):
        # One of our name with another uid is a former anchor.
        others = [owner for owner in owners_of(there) if owner.get("name") != ours["name"]]
        changes["ownerReferences"] = [*others, ours]
    return changes


def disown_patch(scope: Scope, there: JsonObject) -> PatchBody:
    """Take this virtual node's anchor off the owners of that very version."""
    metadata = {"ownerReferences": others_owners(scope, there), **_preconditions(there)}
    return PatchBody(media_type=MERGE, body={"metadata": metadata})


def _preconditions(there: JsonObject) -> JsonDict:
    return {"uid": uid_of(there), "resourceVersion": resource_version_of(there)}
