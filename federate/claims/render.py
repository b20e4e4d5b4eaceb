"""Render the claim that ought to stand in the target, and the hub's volume for it. Pure.

Of a claim what it asks of storage travels, and no metadata: a controller of the target acts on
nothing that a hub user wrote. It has no owner: it outlives pods, its anchor and federate, since
data is in it.
"""

from __future__ import annotations

from collections.abc import Collection
from decimal import Decimal

from federate.claims.keys import (
    ClaimKey,
    Handle,
    claim_annotations,
    target_claim_name,
    volume_name,
)
from federate.claims.protocol import (
    DELETE,
    DRIVER,
    HOSTNAME_LABEL,
    PROVISIONED_BY_ANNOTATION,
    PROVISIONER,
    RETAIN,
    WAITS_FOR_CONSUMER,
    class_of,
    request_of,
    size_of,
)
from federate.model.marks import NODE_NAME_ANNOTATION, TARGET_ANNOTATION, Scope
from federate.model.objects import JsonDict, JsonObject, key_of, spec_of, uid_of
from federate.model.quantities import quantity_of
from federate.model.resources import CLAIMS, STORAGE_CLASSES, VOLUMES


def reclaim_of(hub_class: JsonObject) -> str:
    """Return what becomes of the data when the hub's claim is gone: kept, unless deletion is asked.

    A class that says nothing means `Delete` by Kubernetes' own default, which API servers fill in.
    """
    return DELETE if hub_class.get("reclaimPolicy") == DELETE else RETAIN


def render_claim(
    key: ClaimKey,
    hub_claim: JsonObject,
    *,
    scope: Scope,
    namespace: str,
    target_class: str,
) -> JsonDict:
    """Render the claim in the target; `target_class` "" leaves the choice to the target."""
    asked = spec_of(hub_claim)
    spec: JsonDict = {
        "accessModes": list(asked.get("accessModes") or ()),
        "resources": {"requests": {"storage": request_of(hub_claim)}},
        "volumeMode": asked.get("volumeMode") or "Filesystem",
    }
    if target_class:
        spec["storageClassName"] = target_class
    return {
        "apiVersion": CLAIMS.group_version,
        "kind": CLAIMS.kind,
        "metadata": {
            "namespace": namespace,
            "name": target_claim_name(scope, key),
            "labels": scope.labels(),
            "annotations": claim_annotations(scope, key),
        },
        "spec": spec,
    }


def render_volume(
    key: ClaimKey,
    hub_claim: JsonObject,
    claim: JsonObject,
    *,
    scope: Scope,
    target_name: str,
    reclaim: str,
) -> JsonDict:
    """Render the hub's volume: for that claim alone, and on the virtual node alone."""
    return {
        "apiVersion": VOLUMES.group_version,
        "kind": VOLUMES.kind,
        "metadata": {
            "name": volume_name(key),
            "labels": scope.labels(),
            "annotations": {
                PROVISIONED_BY_ANNOTATION: PROVISIONER,
                NODE_NAME_ANNOTATION: scope.node_name,
                TARGET_ANNOTATION: target_name,
            },
        },
        "spec": {
            "capacity": {"storage": capacity_of(hub_claim, claim)},
            "accessModes": list(spec_of(hub_claim).get("accessModes") or ()),
            "volumeMode": spec_of(hub_claim).get("volumeMode") or "Filesystem",
            "storageClassName": class_of(hub_claim),
            "persistentVolumeReclaimPolicy": reclaim,
            "csi": {
                "driver": DRIVER,
                "volumeHandle": Handle(*key_of(claim), uid_of(claim)).format(),
            },
            "claimRef": {
                "apiVersion": CLAIMS.group_version,
                "kind": CLAIMS.kind,
                "namespace": key.namespace,
                "name": key.name,
                "uid": key.uid,
            },
            "nodeAffinity": {"required": {"nodeSelectorTerms": [_on_node(scope.node_name)]}},
        },
    }


def capacity_of(hub_claim: JsonObject, claim: JsonObject) -> str:
    """Return what the hub is told of the size: the target's, or as much as is asked for.

    Never less than that: the hub would not bind a smaller volume.
    """
    asked, there = request_of(hub_claim), size_of(claim)
    return there if there and _amount(there) >= _amount(asked) else asked


def _amount(size: str) -> Decimal:
    return quantity_of(size)


def _on_node(node_name: str) -> JsonDict:
    return {"matchExpressions": [{"key": HOSTNAME_LABEL, "operator": "In", "values": [node_name]}]}


def render_storage_class(
    name: str, *, node_names: Collection[str] = (), reclaim: str = RETAIN, expands: bool = True
) -> JsonDict:
    """Render the hub's class for claims that shall stand in targets.

    With `node_names` the scheduler offers it on these virtual nodes alone: those that do not make
    claims, and the hub's own nodes, would leave the pod waiting.
    """
    rendered: JsonDict = {
        "apiVersion": STORAGE_CLASSES.group_version,
        "kind": STORAGE_CLASSES.kind,
        "metadata": {"name": name},
        "provisioner": PROVISIONER,
        "volumeBindingMode": WAITS_FOR_CONSUMER,
        "reclaimPolicy": reclaim,
        "allowVolumeExpansion": expands,
    }
    if node_names:
        topology = {"key": HOSTNAME_LABEL, "values": sorted(node_names)}
        rendered["allowedTopologies"] = [{"matchLabelExpressions": [topology]}]
    return rendered
