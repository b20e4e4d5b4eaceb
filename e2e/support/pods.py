"""Read pods and nodes: the few facts that tests ask for, by Kubernetes' own words."""

from decimal import Decimal
from typing import Any

from kubernetes.utils.quantity import parse_quantity

from .witness import Json

parse: Any = parse_quantity

VIRTUAL_NODE_LABEL = "federate.dev/virtual-node"
HUB_POD_UID_LABEL = "federate.dev/hub-pod-uid"
MIRRORED_CONDITION = "federate.dev/Mirrored"


def uid_of(obj: Json) -> str:
    """Return the uid."""
    uid: str = obj["metadata"]["uid"]
    return uid


def name_of(obj: Json) -> str:
    """Return the name."""
    name: str = obj["metadata"]["name"]
    return name


def version_of(obj: Json) -> str:
    """Return the resource version."""
    version: str = obj["metadata"]["resourceVersion"]
    return version


def labels_of(obj: Json) -> dict[str, str]:
    """Return the labels."""
    return obj["metadata"].get("labels") or {}


def annotations_of(obj: Json) -> dict[str, str]:
    """Return the annotations."""
    return obj["metadata"].get("annotations") or {}


def is_terminating(obj: Json) -> bool:
    """Tell whether the object is being deleted."""
    return "deletionTimestamp" in obj["metadata"]


def phase_of(pod: Json) -> str:
    """Return the phase."""
    return str(pod.get("status", {}).get("phase", ""))


def condition_of(obj: Json, kind: str) -> Json:
    """Return a condition; an empty one when the object does not have it."""
    conditions = obj.get("status", {}).get("conditions") or []
    return next((c for c in conditions if c["type"] == kind), {})


def is_ready(obj: Json) -> bool:
    """Tell whether a pod or node says it is ready."""
    return condition_of(obj, "Ready").get("status") == "True"


def waiting_reason(pod: Json) -> str:
    """Return why a pod waits: what a pending pod says in its status."""
    return str(pod.get("status", {}).get("reason", "")) if phase_of(pod) == "Pending" else ""


def waiting_words(pod: Json) -> str:
    """Return everything a waiting pod says to a user."""
    status = pod.get("status", {})
    return f"{status.get('message', '')} {condition_of(pod, MIRRORED_CONDITION).get('message', '')}"


def hub_pod_uid_of(mirror: Json) -> str:
    """Return which hub pod a mirror stands for."""
    return labels_of(mirror).get(HUB_POD_UID_LABEL, "")


def amount(quantity: str) -> Decimal:
    """Read a Kubernetes quantity."""
    return Decimal(parse(quantity))


def sketch(pod: Json) -> str:
    """Say in one line how a pod is."""
    status = pod.get("status", {})
    metadata = pod["metadata"]
    parts = [
        f"{metadata['namespace']}/{metadata['name']}",
        f"uid={metadata['uid']}",
        f"phase={status.get('phase')}",
        f"ready={is_ready(pod)}",
        f"node={pod['spec'].get('nodeName')}",
    ]
    if reason := status.get("reason"):
        parts.append(f"reason={reason} ({status.get('message')})")
    if is_terminating(pod):
        grace = metadata.get("deletionGracePeriodSeconds")
        parts.append(f"terminating since {metadata['deletionTimestamp']} with {grace} s")
    return " ".join(parts)
