"""What many pods cost that merely stand there, and how long one create and one status take.

One story: few pods, then many (memory), a while in which nothing happens (idle cost), single
creates and statuses (latency), the same while another Deployment goes up and down (busy), and a new
start of federate with all pods standing (cold start).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from e2e.support.manifests import pod, pod_spec
from e2e.testbed.errors import TestbedError
from e2e.testbed.progress import Progress

from .audit import Writes
from .bed import NAMESPACE, NODE, Bed, deployment_for
from .figures import quantile
from .plan import Plan
from .requests import Connection
from .updown import DEPLOYMENTS, Arm, limit_seconds

DEPLOYMENT = "standing"
CHURNING = "churning"
PROBE = "probe"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"

SETTLE_SECONDS = 10.0
BUSY_SECONDS = 120.0
GONE_SECONDS = 300.0
"""How long a pod may take to go behind all that a busy hub deletes."""
MOST_CHURNING = 500
"""Pods of the Deployment that makes it busy: more would measure how long its own queue is."""
"""How long single creates and statuses are taken under load, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """Milliseconds from sending a request to what the witness sees of it."""

    count: int
    p50: float
    p99: float
    floor_p50: float
    """The same for the request's own object: what the API server and the witness take of it."""
    floor_p99: float


@dataclass(slots=True, kw_only=True)
class Idle:
    """A while in which nothing happens."""

    seconds: float
    federate_cpu_seconds: float
    hub_writes: Writes
    target_writes: Writes


@dataclass(slots=True, kw_only=True)
class ColdStart:
    """A new start of federate, with everything standing and one pod that waits for its mirror."""

    ready_seconds: float
    first_mirror_seconds: float
    cpu_seconds: float
    resident_mib: float


@dataclass(slots=True, kw_only=True)
class Standing:
    """All of it, for one kind of nodes."""

    pods: int
    hub_pod_bytes: int = 0
    """JSON as the API server sends it, managedFields included."""
    mirror_bytes: int = 0
    resident_mib: dict[int, float] = field(default_factory=dict)
    """By number of pods."""
    kib_per_mirror: float = 0.0
    idle: Idle | None = None
    create_idle: Latencies | None = None
    status_idle: Latencies | None = None
    create_busy: Latencies | None = None
    status_busy: Latencies | None = None
    cold_start: ColdStart | None = None


def measure_standing(bed: Bed, plan: Plan, progress: Progress) -> Standing:
    """Play the story; nothing is left of it afterwards."""
    result = Standing(pods=plan.standing_pods)
    bed.watching.forget_gone()
    bed.start_federate()
    try:
        with progress.long_step(f"Memory: {plan.standing_from} and {plan.standing_pods} pods"):
            measure_memory(bed, plan, result)
        with progress.long_step(f"Idle for {plan.idle_seconds:.0f} s"):
            result.idle = measure_idle(bed, plan.idle_seconds)
        with progress.long_step("Single creates and statuses, idle"):
            result.create_idle = measure_creates(bed, plan.samples, "idle")
            result.status_idle = measure_statuses(bed, plan.samples, "idle")
        load = churn(bed, min(MOST_CHURNING, max(10, plan.standing_pods // 4)))
        with progress.long_step("Single creates and statuses, busy"), load:
            result.create_busy = measure_creates(bed, plan.samples, "busy")
            result.status_busy = measure_statuses(bed, plan.samples, "busy")
        with progress.long_step("Cold start"):
            result.cold_start = measure_cold_start(bed)
        with progress.long_step("Removing all"):
            clear(bed, plan.standing_pods)
    finally:
        bed.stop_federate()
    return result


# -- memory --


def measure_memory(bed: Bed, plan: Plan, result: Standing) -> None:
    """Grow from few pods to many, and read federate's memory at both."""
    few, many = plan.standing_from, plan.standing_pods
    body = deployment_for(DEPLOYMENT, Arm.FEDERATE.selector, replicas=few)
    bed.on_hub.create(DEPLOYMENTS, body)
    for pods in (few, many):
        bed.on_hub.patch(f"{DEPLOYMENTS}/{DEPLOYMENT}", {"spec": {"replicas": pods}})
        wait_ready(bed, pods)
        time.sleep(SETTLE_SECONDS)
        result.resident_mib[pods] = round(bed.federate.usage().resident_bytes / 2**20, 1)
    grown = result.resident_mib[many] - result.resident_mib[few]
    result.kib_per_mirror = round(grown * 1024 / max(1, many - few), 1)
    result.hub_pod_bytes = pod_bytes(bed.on_hub)
    result.mirror_bytes = pod_bytes(bed.on_target)


def pod_bytes(connection: Connection) -> int:
    """Return the size of one of the pods that stand."""
    found = connection.get("/api/v1/pods?limit=1")["items"][0]["metadata"]
    return connection.size(f"/api/v1/namespaces/{found['namespace']}/pods/{found['name']}")


def wait_ready(bed: Bed, pods: int) -> None:
    """Wait until so many hub pods are ready."""
    bed.watching.wait(
        f"{pods} pods are ready",
        lambda: len(bed.watching.seen["hub"].ready) == pods,
        timeout_seconds=limit_seconds(pods),
        check=bed.check_federate,
    )


# -- idle --


def measure_idle(bed: Bed, seconds: float) -> Idle:
    """Count what federate does while nothing happens."""
    logs = {role: bed.audit_log(cluster) for role, cluster in bed.clusters.items()}
    marks = {role: log.mark() for role, log in logs.items()}
    cpu, started_at = bed.federate.usage().cpu_seconds, time.monotonic()
    time.sleep(seconds)
    return Idle(
        seconds=round(time.monotonic() - started_at, 1),
        federate_cpu_seconds=round(bed.federate.usage().cpu_seconds - cpu, 2),
        hub_writes=logs["hub"].writes_since(marks["hub"]),
        target_writes=logs["target"].writes_since(marks["target"]),
    )


# -- latency --


def measure_creates(bed: Bed, samples: int, label: str) -> Latencies:
    """Create pods one by one; each until its mirror is seen."""
    took, floor = [], []
    deadline = time.monotonic() + BUSY_SECONDS
    for number in range(samples):
        name = f"{PROBE}-{label}-{number}"
        started_at = time.monotonic()
        bed.on_hub.create(PODS, bound_pod(name))
        wait_seen(bed, f"the mirror of {name}", partial(created_at, bed, "target", name))
        took.append(created_at(bed, "target", name) - started_at)
        floor.append(created_at(bed, "hub", name) - started_at)
        if time.monotonic() > deadline:
            break
    bed.on_hub.delete(f"{PODS}?labelSelector=app={PROBE}")
    wait_seen(bed, "all probes are gone", lambda: not are_alive(bed, PROBE))
    return latencies_of(took, floor)


def measure_statuses(bed: Bed, samples: int, label: str) -> Latencies:
    """Change a mirror's status again and again; each until the hub pod shows it."""
    name = f"{PROBE}-status-{label}"
    bed.on_hub.create(PODS, bound_pod(name))
    hub, target = (bed.watching.seen[role] for role in ("hub", "target"))
    wait_seen(bed, f"{name} runs", lambda: name in hub.by_name and hub.by_name[name].ready_at)
    mirror = bed.on_target.get(f"/api/v1/pods?fieldSelector=metadata.name={name}")["items"][0]
    path = f"/api/v1/namespaces/{mirror['metadata']['namespace']}/pods/{name}/status"
    container = mirror["status"]["containerStatuses"][0]
    took, floor = [], []
    deadline = time.monotonic() + BUSY_SECONDS
    for number in range(1, samples + 1):
        body = {"status": {"containerStatuses": [{**container, "restartCount": number}]}}
        started_at = time.monotonic()
        bed.on_target.patch(path, body)
        wait_seen(bed, f"status {number} of {name}", partial(has_restarts, bed, name, number))
        took.append(hub.by_name[name].restarted_at - started_at)
        floor.append(target.by_name[name].restarted_at - started_at)
        if time.monotonic() > deadline:
            break
    bed.on_hub.delete(f"{PODS}/{name}")
    wait_seen(bed, f"{name} is gone", lambda: not are_alive(bed, PROBE))
    return latencies_of(took, floor)


def bound_pod(name: str) -> dict[str, object]:
    """Render a pod that is on the virtual node already: no scheduler is measured."""
    return pod(name, pod_spec(NODE, nodeName=NODE, nodeSelector={}), labels={"app": PROBE})


def created_at(bed: Bed, role: str, name: str) -> float:
    """Return when a pod was first seen; 0 while it was not."""
    found = bed.watching.seen[role].by_name.get(name)
    return found.created_at if found is not None else 0.0


def has_restarts(bed: Bed, name: str, number: int) -> bool:
    """Tell whether both sides show so many restarts."""
    return all(seen.by_name[name].restarts == number for seen in bed.watching.seen.values())


def are_alive(bed: Bed, prefix: str) -> bool:
    """Tell whether a pod whose name begins like this stands on either side."""
    return any(
        cluster.pods[uid].name.startswith(prefix)
        for cluster in bed.watching.seen.values()
        for uid in cluster.alive
    )


def wait_seen(bed: Bed, what: str, goal: Callable[[], object]) -> None:
    """Wait for what takes milliseconds when all is well."""
    bed.watching.wait(
        what, lambda: bool(goal()), timeout_seconds=GONE_SECONDS, check=bed.check_federate
    )


def latencies_of(took: list[float], floor: list[float]) -> Latencies:
    """Sum up, in milliseconds."""
    return Latencies(
        count=len(took),
        p50=round(1000 * quantile(took, 0.5), 1),
        p99=round(1000 * quantile(took, 0.99), 1),
        floor_p50=round(1000 * quantile(floor, 0.5), 1),
        floor_p99=round(1000 * quantile(floor, 0.99), 1),
    )


@contextmanager
def churn(bed: Bed, pods: int) -> Iterator[None]:
    """Let another Deployment go up and down all the while."""
    ending = threading.Event()
    failures: list[Exception] = []

    def turn() -> None:
        try:
            with Connection(bed.hub) as connection:
                body = deployment_for(CHURNING, Arm.FEDERATE.selector, replicas=pods)
                connection.create(DEPLOYMENTS, body)
                path = f"{DEPLOYMENTS}/{CHURNING}"
                while not ending.is_set():
                    wait_replicas(connection, path, pods, ending)
                    connection.patch(path, {"spec": {"replicas": 0}})
                    wait_replicas(connection, path, 0, ending)
                    connection.patch(path, {"spec": {"replicas": pods}})
                connection.delete(path)
        except Exception as error:  # told below, by the thread that has somebody to tell
            failures.append(error)

    thread = threading.Thread(target=turn, name="bench-churn", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()
    if failures:
        raise TestbedError("the Deployment that makes it busy failed") from failures[0]
    wait_seen(bed, "the load is gone", lambda: not are_alive(bed, CHURNING))


def wait_replicas(connection: Connection, path: str, pods: int, ending: threading.Event) -> None:
    """Wait until the Deployment has so many ready pods, or the load shall end."""
    while not ending.wait(0.2):
        status = connection.get(path)["status"]
        if status.get("readyReplicas", 0) == status.get("replicas", 0) == pods:
            return


# -- cold start --


def measure_cold_start(bed: Bed) -> ColdStart:
    """Stop federate, let a pod wait, and start it again."""
    bed.stop_federate()
    name = f"{PROBE}-cold"
    bed.on_hub.create(PODS, bound_pod(name))
    started_at = time.monotonic()
    bed.federate.start()
    bed.federate.wait_ready()
    ready_seconds = time.monotonic() - started_at
    wait_seen(bed, "the first mirror", lambda: created_at(bed, "target", name))
    first = created_at(bed, "target", name) - started_at
    time.sleep(SETTLE_SECONDS)
    usage = bed.federate.usage()
    bed.on_hub.delete(f"{PODS}/{name}")
    wait_seen(bed, f"{name} is gone", lambda: not are_alive(bed, PROBE))
    return ColdStart(
        ready_seconds=round(ready_seconds, 2),
        first_mirror_seconds=round(first, 2),
        cpu_seconds=round(usage.cpu_seconds, 2),
        resident_mib=round(usage.resident_bytes / 2**20, 1),
    )


def clear(bed: Bed, pods: int) -> None:
    """Remove the Deployment, and wait until nothing is left on either side."""
    bed.on_hub.delete(f"{DEPLOYMENTS}/{DEPLOYMENT}")
    bed.watching.wait(
        "no pod is left",
        lambda: not any(cluster.alive for cluster in bed.watching.seen.values()),
        timeout_seconds=limit_seconds(pods),
        check=bed.check_federate,
    )
