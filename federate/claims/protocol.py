"""How Kubernetes asks a dynamic provisioner for storage, read from objects of the hub. Pure.

federate is such a provisioner: the scheduler writes the node that it chose on the claim, the
volume controller writes whose turn it is, and a volume that names the claim is the answer. Pods are
bound only after that, so nothing can be told from pods.
"""

from __future__ import annotations

from federate.model.marks import PREFIX
from federate.model.objects import JsonObject, annotations_of, spec_of, status_of, uid_of

PROVISIONER = f"{PREFIX}target"
"""What a StorageClass of the hub names, and volumes are marked with. No mark, though one of ours
is spelled alike."""
DRIVER = "federate.dev"
"""The CSI driver that the hub's volumes name. No node has it: containers run in the target."""

SELECTED_NODE_ANNOTATION = "volume.kubernetes.io/selected-node"
"""The node that the scheduler chose for the first pod of a claim. Whoever cannot serve it there
takes it off: then the scheduler chooses again."""
STORAGE_PROVISIONER_ANNOTATIONS = (
    "volume.kubernetes.io/storage-provisioner",
    "volume.beta.kubernetes.io/storage-provisioner",
)
PROVISIONED_BY_ANNOTATION = "pv.kubernetes.io/provisioned-by"
"""Tells the volume controller that the end of a volume is somebody else's business."""
_CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"
"""How classes were named before 1.6; it still goes before the field."""

HOSTNAME_LABEL = "kubernetes.io/hostname"

WAITS_FOR_CONSUMER = "WaitForFirstConsumer"
RETAIN = "Retain"
DELETE = "Delete"


def class_of(claim: JsonObject) -> str:
    """Return the storage class that a claim names, "" where it names none."""
    name: str = (
        annotations_of(claim).get(_CLASS_ANNOTATION) or spec_of(claim).get("storageClassName") or ""
    )
    return name


def volume_name_of(claim: JsonObject) -> str:
    """Return the volume that a claim is bound to, or shall be; "" where there is none."""
    name: str = spec_of(claim).get("volumeName") or ""
    return name


def phase_of(claim: JsonObject) -> str:
    """Return the phase of a claim or volume."""
    phase: str = status_of(claim).get("phase") or ""
    return phase


def request_of(claim: JsonObject) -> str:
    """Return the size that a claim asks for; API servers take none without."""
    size: str = ((spec_of(claim).get("resources") or {}).get("requests") or {}).get("storage", "0")
    return size


def size_of(claim: JsonObject) -> str:
    """Return the size that a claim has, "" until it is bound."""
    size: str = (status_of(claim).get("capacity") or {}).get("storage", "")
    return size


def is_chosen(claim: JsonObject, node_name: str) -> bool:
    """Tell whether we are asked for storage on that node. Metadata is enough to tell."""
    annotations = annotations_of(claim)
    provisioners = {annotations.get(name) for name in STORAGE_PROVISIONER_ANNOTATIONS}
    return annotations.get(SELECTED_NODE_ANNOTATION) == node_name and PROVISIONER in provisioners


def claims_it(volume: JsonObject, claim_uid: str) -> bool:
    """Tell whether a volume is for that claim."""
    return bool(claim_uid) and (spec_of(volume).get("claimRef") or {}).get("uid") == claim_uid


def is_for(volume: JsonObject, claim: JsonObject) -> bool:
    """Tell whether the two are bound to each other: the claim names it, it names the claim."""
    name = (volume.get("metadata") or {}).get("name")
    return volume_name_of(claim) == name and claims_it(volume, uid_of(claim))
