"""One Deployment up to all pods Ready and down to none, in one of three arms.

    federate   on the hub, for the virtual node; ready when seen so on the hub, gone on both sides
    target     the same Deployment in the target, without federate
    both       the same in both clusters at once, without federate: what two API servers, schedulers
               and kwoks on this machine can do at best

federate runs in its own arm only: in the others it would follow the target's pods for its capacity,
and slow down what it is compared with.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial

from e2e.support.witness import Json

from .audit import Writes
from .bed import NAMESPACE, NODE, Bed, deployment_for
from .figures import quantile
from .machine import busy_seconds, cpu_seconds
from .profile import Profiler
from .requests import Connection

SETTLE_SECONDS, SETTLE_FEW_SECONDS, FEW_PODS = 2.0, 0.5, 100
"""How long the end of a phase is waited out: late writes belong to it, and not to the next."""

DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"


class Arm(StrEnum):
    """Where the Deployment is created."""

    FEDERATE = "federate"
    TARGET = "target"
    BOTH = "both"

    @property
    def clusters(self) -> tuple[str, ...]:
        """Where it is created, by role."""
        return {"federate": ("hub",), "target": ("target",), "both": ("hub", "target")}[self.value]

    @property
    def selector(self) -> Json:
        """Which nodes its pods may go to."""
        return {"kubernetes.io/hostname": NODE} if self is Arm.FEDERATE else {"type": "kwok"}


@dataclass(slots=True, kw_only=True)
class Phase:
    """Up or down: seconds, and what was used and written meanwhile."""

    seconds: float = 0.0
    federate_cpu_seconds: float = 0.0
    machine_cpu_seconds: float = 0.0
    """Of all cores together, the witness and whatever else ran included."""
    cpu_seconds_by_server: Mapping[str, float] = field(default_factory=dict)
    hub_writes: Writes = field(default_factory=dict)
    target_writes: Writes = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Round:
    """One Deployment, up and down."""

    arm: Arm
    pods: int
    up: Phase = field(default_factory=Phase)
    down: Phase = field(default_factory=Phase)
    bound_to_ready_p50: float = 0.0
    bound_to_ready_p99: float = 0.0
    resident_mib: float = 0.0
    """federate's, with all pods up."""
    load_before: float = 0.0


def limit_seconds(pods: int) -> float:
    """Return how long a phase may take at all: fifty times what it should."""
    return 120.0 + pods * 1.0


def run_round(bed: Bed, arm: Arm, pods: int, *, profiler: Profiler | None = None) -> Round:
    """Run one Deployment up and down, and leave the clusters as they were."""
    result = Round(arm=arm, pods=pods, load_before=round(os.getloadavg()[0], 2))
    bed.watching.forget_gone()
    if arm is Arm.FEDERATE:
        bed.start_federate()
    settle_seconds = SETTLE_SECONDS if pods >= FEW_PODS else SETTLE_FEW_SECONDS
    measuring = partial(measured, bed, arm, settle_seconds=settle_seconds, profiler=profiler)
    try:
        with measuring(result.up, name=f"up-{pods}"):
            result.up.seconds = go_up(bed, arm, pods)
        note_pods(bed, arm, result)
        with measuring(result.down, name=f"down-{pods}"):
            result.down.seconds = go_down(bed, arm, pods)
    finally:
        bed.stop_federate()
    return result


@contextmanager
def measured(
    bed: Bed, arm: Arm, phase: Phase, *, name: str, settle_seconds: float, profiler: Profiler | None
) -> Iterator[None]:
    """Note what is used and written within the block and shortly after it."""
    is_ours = arm is Arm.FEDERATE
    logs = {role: bed.audit_log(cluster) for role, cluster in bed.clusters.items()}
    marks = {role: log.mark() for role, log in logs.items()}
    pids = bed.server_pids() | ({"federate": bed.federate.pid} if is_ours else {})
    used = {name: cpu_seconds(pid) for name, pid in pids.items()}
    busy = busy_seconds()
    recording = profiler.record(bed.federate.pid, name) if profiler and is_ours else None
    try:
        yield
        time.sleep(settle_seconds)
    finally:
        if recording is not None:
            recording.stop()
    phase.machine_cpu_seconds = round(busy_seconds() - busy, 2)
    spent = {name: round(cpu_seconds(pid) - used[name], 2) for name, pid in pids.items()}
    phase.federate_cpu_seconds = spent.pop("federate", 0.0)
    phase.cpu_seconds_by_server = spent
    writes = {role: log.writes_since(marks[role]) for role, log in logs.items()}
    phase.hub_writes, phase.target_writes = writes["hub"], writes["target"]


def go_up(bed: Bed, arm: Arm, pods: int) -> float:
    """Create the Deployment and wait until all pods are Ready; returns the seconds that took."""
    body = deployment_for(arm.value, arm.selector, replicas=pods)
    seen = [bed.watching.seen[role] for role in arm.clusters]
    started_at = time.monotonic()
    for role in arm.clusters:
        connection_of(bed, role).create(DEPLOYMENTS, body)
    reached_at = bed.watching.wait(
        f"{pods} pods are ready ({arm})",
        lambda: all(len(cluster.ready) == pods for cluster in seen),
        timeout_seconds=limit_seconds(pods),
        check=bed.check_federate if arm is Arm.FEDERATE else lambda: None,
    )
    return round(reached_at - started_at, 3)


def go_down(bed: Bed, arm: Arm, pods: int) -> float:
    """Delete the Deployment and wait until no pod is left; returns the seconds that took."""
    seen = list(bed.watching.seen.values())
    started_at = time.monotonic()
    for role in arm.clusters:
        connection_of(bed, role).delete(f"{DEPLOYMENTS}/{arm.value}")
    reached_at = bed.watching.wait(
        f"no pod is left ({arm})",
        lambda: not any(cluster.alive for cluster in seen),
        timeout_seconds=limit_seconds(pods),
        check=bed.check_federate if arm is Arm.FEDERATE else lambda: None,
    )
    return round(reached_at - started_at, 3)


def note_pods(bed: Bed, arm: Arm, result: Round) -> None:
    """Note how long single pods took, where the arm is looked at, and federate's memory."""
    seen = bed.watching.seen[arm.clusters[0]]
    took = [p.ready_at - p.bound_at for p in seen.pods.values() if p.ready_at and p.bound_at]
    result.bound_to_ready_p50 = round(quantile(took, 0.5), 3)
    result.bound_to_ready_p99 = round(quantile(took, 0.99), 3)
    if arm is Arm.FEDERATE:
        result.resident_mib = round(bed.federate.usage().resident_bytes / 2**20, 1)


def connection_of(bed: Bed, role: str) -> Connection:
    """Return the connection to hub or target."""
    return bed.on_hub if role == "hub" else bed.on_target
