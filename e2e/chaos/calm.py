"""Tell whether both sides agree: desired is actual, and hub pods say what mirrors say. Pure.

Input: complete listings of both clusters; output: differences, each with the hub pod's uid, and
whether it is federate's to mend or waits for the clusters' own parts (a scheduler, a kubelet).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from e2e.support.pods import (
    condition_of,
    hub_pod_uid_of,
    is_ready,
    is_terminating,
    labels_of,
    name_of,
    phase_of,
    uid_of,
)
from e2e.support.witness import Json

from .sighting import GATE, TERMINAL

LABEL_PREFIX = "chaos.example.com/"
"""Labels that users change: they have to reach the mirror."""

Verdict: TypeAlias = tuple[str, bool]
"""What is wrong, and whether it is federate's to mend."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One thing that is not as it should be."""

    uid: str
    words: str
    is_federates: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """Both clusters, read at about one moment."""

    hub_pods: Sequence[Json]
    target_pods: Sequence[Json]
    workloads: Sequence[Json]
    """Deployments and StatefulSets of the hub."""
    node: Json | None
    node_name: str
    squatted: frozenset[str] = frozenset()
    """Names that strangers hold in the target namespace: their hub pods wait, and rightly so."""


def differences(picture: Picture) -> list[Difference]:
    """Return everything in which the sides disagree."""
    mirrors: dict[str, list[Json]] = {}
    for pod in picture.target_pods:
        if origin := hub_pod_uid_of(pod):
            mirrors.setdefault(origin, []).append(pod)
    found: list[Difference] = []
    for hub_pod in picture.hub_pods:
        own = mirrors.pop(uid_of(hub_pod), [])
        found += _of_hub_pod(picture, hub_pod, own)
    for uid, orphans in mirrors.items():
        names = ", ".join(name_of(orphan) for orphan in orphans)
        found.append(Difference(uid=uid, words=f"orphan mirrors: {names}"))
    found += _of_workloads(picture)
    return [*found, *_of_node(picture.node)]


def _of_hub_pod(picture: Picture, hub_pod: Json, mirrors: Sequence[Json]) -> Iterable[Difference]:
    verdict = _verdict(picture, hub_pod, mirrors)
    if verdict is not None:
        words, is_federates = verdict
        words = f"{name_of(hub_pod)}: {words}"
        yield Difference(uid=uid_of(hub_pod), words=words, is_federates=is_federates)


def _verdict(picture: Picture, hub_pod: Json, mirrors: Sequence[Json]) -> Verdict | None:
    node = hub_pod["spec"].get("nodeName")
    if not node:
        return "not scheduled on the hub", False
    if node != picture.node_name:
        return None
    if is_terminating(hub_pod):
        # What is left of it when its mirror is gone may be another's finalizer.
        finalizers = hub_pod["metadata"].get("finalizers")
        return f"still terminating {finalizers or ''}", not finalizers
    if len(mirrors) > 1:
        return f"{len(mirrors)} mirrors", True
    if name_of(hub_pod) in picture.squatted:
        return ("has a mirror at a stranger's name", True) if mirrors else None
    if phase_of(hub_pod) in TERMINAL:
        return _verdict_on_ended(hub_pod, mirrors)
    return _verdict_on_pair(hub_pod, mirrors[0]) if mirrors else ("no mirror", True)


def _verdict_on_ended(hub_pod: Json, mirrors: Sequence[Json]) -> Verdict | None:
    """A terminal hub pod: nothing of it may run in the target."""
    if mirrors and phase_of(mirrors[0]) not in TERMINAL:
        return f"{phase_of(hub_pod)}, its mirror {phase_of(mirrors[0])}", True
    return None


def _verdict_on_pair(hub_pod: Json, mirror: Json) -> Verdict | None:
    if any(gate["name"] == GATE for gate in mirror["spec"].get("schedulingGates") or ()):
        return "its mirror is still held back", True
    if is_terminating(mirror):
        return "its mirror is terminating", False
    if told(hub_pod) != told(mirror):
        return f"{told(hub_pod)}, its mirror {told(mirror)}", True
    wanted = {k: v for k, v in labels_of(hub_pod).items() if k.startswith(LABEL_PREFIX)}
    lacking = {k: v for k, v in wanted.items() if labels_of(mirror).get(k) != v}
    if lacking:
        return f"its mirror lacks labels {lacking}", True
    return ("its mirror is pending", False) if phase_of(mirror) == "Pending" else None


def told(pod: Json) -> Mapping[str, object]:
    """Read from a status what hub pod and mirror have to say alike."""
    status = pod.get("status", {})
    containers = {
        container["name"]: sorted(container.get("state") or {})
        for container in status.get("containerStatuses") or ()
    }
    return {"phase": phase_of(pod), "ready": is_ready(pod), "containers": containers}


def _of_workloads(picture: Picture) -> list[Difference]:
    found = []
    for workload in picture.workloads:
        wanted = workload["spec"]["replicas"]
        ready = workload.get("status", {}).get("readyReplicas", 0)
        if wanted != ready:
            own = [p for p in picture.hub_pods if name_of(p).startswith(f"{name_of(workload)}-")]
            pods = ", ".join(f"{name_of(p)} {told(p)}{_ending(p)}" for p in own)
            words = f"{name_of(workload)}: {ready} of {wanted} ready ({pods or 'no pods'})"
            found.append(Difference(uid="", words=words, is_federates=False))
    return found


def _ending(pod: Json) -> str:
    return " terminating" if is_terminating(pod) else ""


def _of_node(node: Json | None) -> Iterable[Difference]:
    if node is None:
        yield Difference(uid="", words="the virtual node is not registered")
        return
    if not is_ready(node):
        yield Difference(uid="", words="the virtual node is not ready")
    if condition_of(node, "federate.dev/TargetReachable").get("status") != "True":
        yield Difference(uid="", words="the virtual node says its target is not reachable")
    held_back = [
        taint["key"]
        for taint in node["spec"].get("taints") or ()
        if taint["key"].startswith("node.kubernetes.io/")
    ]
    if held_back:
        yield Difference(uid="", words=f"the virtual node has {held_back}", is_federates=False)
