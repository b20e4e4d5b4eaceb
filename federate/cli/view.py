"""What `federate status` shows, worked out from hub objects alone. Pure.

Input: Nodes, the pods bound to them, leader leases and the time; output: records that print as a
table or as JSON.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from federate.companions.references import wants_of
from federate.model.instants import parse_instant
from federate.model.marks import (
    LEAVING_ANNOTATION,
    LEFT_ANNOTATION,
    NODE_HUB_ANNOTATION,
    record_of,
)
from federate.model.objects import (
    JsonObject,
    ObjectKey,
    annotations_of,
    condition_of,
    is_terminating,
    key_of,
    metadata_of,
    spec_of,
    status_of,
)
from federate.model.pods import container_statuses_of, is_terminal, phase_of
from federate.model.quantities import add, format_amounts, parse_amounts, pod_requests
from federate.model.reasons import NodeReason
from federate.node.render import TARGET_REACHABLE
from federate.services.addresses import ADDRESSES_REFLECTED

SHOWN_WAITING = 20
"""Waiting pods in the table; a screen of them is enough to see what is wrong."""

_COUNTED = ("cpu", "pods")

_ALL_WELL = (NodeReason.READY, NodeReason.TARGET_ANSWERS)

_PHASES = ("Running", "Pending", "Terminating", "Succeeded", "Failed", "Unknown")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """One virtual node. Sizes are quantities, `requested` of what is not terminal."""

    name: str
    ready: str
    target_reachable: str
    reason: str
    message: str
    age_seconds: float | None
    pods: Mapping[str, int]
    requested: Mapping[str, str]
    allocatable: Mapping[str, str]
    companions: int
    """ConfigMaps and Secrets of the hub that its mirrored pods name, each once."""
    leader: str
    leader_silent_seconds: float | None
    """Since the leader's last renewal, where that is longer than the lease lasts; else None."""
    leaving_since: str = ""
    """Since when nothing new is mirrored: `federate leave` marked the Node."""
    left_since: str = ""
    """Since when no federate leads it any more: `federate leave` marked the leader lease."""
    addresses: str = ""
    """Why its pods show the addresses of their mirrors, or do not; "" where nobody says."""
    addresses_reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingPod:
    """A pod bound to a virtual node that does not run yet, and why."""

    node: str
    namespace: str
    name: str
    age_seconds: float | None
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HubView:
    """All virtual nodes of a hub, by name, and the pods that wait, longest first."""

    nodes: tuple[NodeView, ...]
    waiting: tuple[WaitingPod, ...]
    left: tuple[str, ...] = ()
    """Virtual nodes of which nothing is there any more but their leader lease, marked."""

    def as_json(self) -> dict[str, Any]:
        """Return what `-o json` prints."""
        return asdict(self)


def is_virtual_node(node: JsonObject) -> bool:
    """Tell whether federate registered that Node."""
    return NODE_HUB_ANNOTATION in annotations_of(node)


def view_of(
    nodes: Iterable[JsonObject],
    pods: Mapping[str, Sequence[JsonObject]],
    leases: Mapping[str, JsonObject],
    *,
    now: datetime,
) -> HubView:
    """Put together what is shown; `pods` and `leases` by node name."""
    nodes = list(nodes)
    present = {key_of(node).name for node in nodes}
    ours = sorted((node for node in nodes if is_virtual_node(node)), key=key_of)
    waiting = [
        _waiting(pod, key_of(node).name, now)
        for node in ours
        for pod in pods.get(key_of(node).name, ())
        if is_waiting(pod)
    ]
    waiting.sort(key=lambda pod: (-(pod.age_seconds or 0), pod.namespace, pod.name))
    return HubView(
        nodes=tuple(
            _node(node, pods.get(key_of(node).name, ()), leases.get(key_of(node).name), now)
            for node in ours
        ),
        waiting=tuple(waiting),
        left=tuple(sorted(n for n, one in leases.items() if n not in present and _left(one))),
    )


def is_waiting(pod: JsonObject) -> bool:
    """Tell whether a pod has yet to run."""
    return phase_of(pod) == "Pending" and not is_terminating(pod)


def _node(
    node: JsonObject, pods: Sequence[JsonObject], lease: JsonObject | None, now: datetime
) -> NodeView:
    ready = condition_of(node, "Ready") or {}
    reachable = condition_of(node, TARGET_REACHABLE) or {}
    telling = reachable if reachable.get("status") != "True" and reachable else ready
    # A node that is Ready may have a word for operators all the same.
    healthy = telling.get("reason") in _ALL_WELL and telling.get("status") == "True"
    leader, silent_seconds = _leader(lease, now)
    addresses = condition_of(node, ADDRESSES_REFLECTED) or {}
    return NodeView(
        name=key_of(node).name,
        ready=_ready(node, ready),
        target_reachable=reachable.get("status") or "Unknown",
        reason="" if healthy else telling.get("reason") or "",
        message="" if healthy else telling.get("message") or "",
        age_seconds=_age_seconds(node, now),
        pods=count_phases(pods),
        requested=_readable(_requested(pods)),
        allocatable=_readable(parse_amounts(status_of(node).get("allocatable"))),
        companions=count_companions(pods),
        leader=leader,
        leader_silent_seconds=silent_seconds,
        leaving_since=annotations_of(node).get(LEAVING_ANNOTATION, ""),
        left_since=_left(lease),
        addresses=addresses.get("message") or "",
        addresses_reason=addresses.get("reason") or "",
    )


def _left(lease: JsonObject | None) -> str:
    return annotations_of(lease or {}).get(LEFT_ANNOTATION, "")


def _ready(node: JsonObject, condition: JsonObject) -> str:
    word = {"True": "Ready", "False": "NotReady"}.get(condition.get("status") or "", "Unknown")
    return f"{word},cordoned" if spec_of(node).get("unschedulable") else word


def count_phases(pods: Iterable[JsonObject]) -> dict[str, int]:
    """Count pods by phase, terminating ones apart, in the order they are shown."""
    counts = Counter(
        "Terminating" if is_terminating(pod) and not is_terminal(pod) else phase_of(pod)
        for pod in pods
    )
    return {phase: counts[phase] for phase in _PHASES if counts[phase]}


def count_companions(pods: Iterable[JsonObject]) -> int:
    """Count what came along with the pods that have a mirror; what is shared there counts too."""
    records = ((pod, record_of(pod)) for pod in pods)
    return len(
        {
            key
            for pod, record in records
            if record is not None and record.mirror_uid
            for key in wants_of(pod, record.mirror.namespace)
        }
    )


def _requested(pods: Iterable[JsonObject]) -> Mapping[str, Decimal]:
    zero = {name: Decimal(0) for name in ("cpu", "memory", "pods")}
    for pod in pods:
        if not is_terminal(pod):
            zero = add(zero, pod_requests(pod))
    return zero


def _readable(amounts: Mapping[str, Decimal]) -> dict[str, str]:
    """Write counts in full: the canonical form of 2000 pods is `2k`."""
    counts = {n: f"{a:f}" for n, a in amounts.items() if n in _COUNTED and a == int(a)}
    return {**format_amounts(amounts), **counts}


def _leader(lease: JsonObject | None, now: datetime) -> tuple[str, float | None]:
    spec = spec_of(lease or {})
    holder = str(spec.get("holderIdentity") or "")
    renewed_at = parse_instant(str(spec.get("renewTime") or ""))
    if not holder or renewed_at is None:
        return holder, None
    silent_seconds = (now - renewed_at).total_seconds()
    lasts = float(spec.get("leaseDurationSeconds") or 0)
    return holder, silent_seconds if silent_seconds > lasts else None


def _age_seconds(obj: JsonObject, now: datetime) -> float | None:
    created_at = parse_instant(str(metadata_of(obj).get("creationTimestamp") or ""))
    return None if created_at is None else max(0.0, (now - created_at).total_seconds())


def _waiting(pod: JsonObject, node_name: str, now: datetime) -> WaitingPod:
    reason, message = why_waiting(pod)
    key: ObjectKey = key_of(pod)
    return WaitingPod(
        node=node_name,
        namespace=key.namespace,
        name=key.name,
        age_seconds=_age_seconds(pod, now),
        reason=reason,
        message=message,
    )


def why_waiting(pod: JsonObject) -> tuple[str, str]:
    """Return the reason and message of the pod's status, else of a container that waits."""
    status = status_of(pod)
    if status.get("reason") or status.get("message"):
        return status.get("reason") or "", status.get("message") or ""
    for container in container_statuses_of(pod):
        held = (container.get("state") or {}).get("waiting") or {}
        if held.get("reason"):
            return held["reason"], held.get("message") or ""
    return "", ""


def format_age(seconds: float | None) -> str:
    """Write an age as kubectl does: the largest unit, of small ages in full."""
    if seconds is None:
        return "?"
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{int(seconds // size)}{unit}"
    return f"{int(seconds)}s"
