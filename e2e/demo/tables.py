"""Objects as rows of a table, in the words of kubectl. Pure."""

from datetime import datetime

from e2e.support.pods import annotations_of, is_ready, is_terminating, labels_of, name_of, phase_of
from e2e.support.witness import Json

NODE_HEADS = ("NAME", "STATUS", "VERSION", "CPU", "MEMORY", "PODS")
HUB_POD_HEADS = ("NAME", "READY", "STATUS", "NODE", "RUNS ON", "AGE")
MIRROR_HEADS = ("NAME", "READY", "STATUS", "NODE", "STANDS FOR HUB POD")

HUB_POD_NAMESPACE = "federate.dev/hub-pod-namespace"
HUB_POD_NAME = "federate.dev/hub-pod-name"
HUB_POD_UID = "federate.dev/hub-pod-uid"
TARGET_NODE = "federate.dev/target-node"


def node_row(node: Json) -> tuple[str, ...]:
    """Return the cells of a node."""
    status = node.get("status", {})
    allocatable = status.get("allocatable", {})
    return (
        name_of(node),
        "Ready" if is_ready(node) else "NotReady",
        status.get("nodeInfo", {}).get("kubeletVersion", ""),
        *(str(allocatable.get(name, "?")) for name in ("cpu", "memory", "pods")),
    )


def hub_pod_row(pod: Json, *, now: datetime) -> tuple[str, ...]:
    """Return the cells of a hub pod, with the target's node that its mirror runs on."""
    runs_on = annotations_of(pod).get(TARGET_NODE) or "<none>"
    return (*_pod_cells(pod), runs_on, format_age(pod["metadata"]["creationTimestamp"], now=now))


def mirror_row(mirror: Json) -> tuple[str, ...]:
    """Return the cells of a mirror, with the hub pod it stands for."""
    annotations = annotations_of(mirror)
    namespace, name = annotations.get(HUB_POD_NAMESPACE, "?"), annotations.get(HUB_POD_NAME, "?")
    uid = labels_of(mirror).get(HUB_POD_UID, "?")
    return (*_pod_cells(mirror), f"{namespace}/{name} (uid {uid[:8]})")


def _pod_cells(pod: Json) -> tuple[str, ...]:
    status, spec = pod.get("status", {}), pod["spec"]
    containers = status.get("containerStatuses") or []
    ready = sum(bool(container.get("ready")) for container in containers)
    return (
        name_of(pod),
        f"{ready}/{len(spec['containers'])}",
        status_of(pod),
        spec.get("nodeName") or "<none>",
    )


def status_of(pod: Json) -> str:
    """Return the one word that kubectl has for how a pod is."""
    if is_terminating(pod):
        return "Terminating"
    return str(pod.get("status", {}).get("reason") or phase_of(pod) or "Unknown")


def agree(hub_pod: Json, mirror: Json) -> bool:
    """Tell whether the hub pod says of itself what its mirror is."""
    ours, theirs = hub_pod["status"], mirror["status"]
    same = all(ours.get(field) == theirs.get(field) for field in ("phase", "startTime"))
    runs_on = annotations_of(hub_pod).get(TARGET_NODE)
    return same and is_ready(hub_pod) == is_ready(mirror) and runs_on == mirror["spec"]["nodeName"]


def format_age(instant: str, *, now: datetime) -> str:
    """Say how long ago an instant of Kubernetes was."""
    seconds = max(0, int((now - datetime.fromisoformat(instant)).total_seconds()))
    return f"{seconds}s" if seconds < 120 else f"{seconds // 60}m"
