"""What the target says about a mirror stands on the hub pod (C44)."""

import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest
import yaml

from e2e.support.manifests import APP, container, pod, pod_spec
from e2e.support.measuring import Measurements
from e2e.support.pods import phase_of, uid_of
from e2e.support.process import FederateProcess, RunOptions
from e2e.support.witness import Json
from e2e.support.world import Space, World, wait_for
from e2e.testbed.local import LocalCluster
from e2e.testbed.provider import TestCluster

pytest_plugins = ["e2e.support.fixtures"]
pytestmark = pytest.mark.e2e

FLOOD = 2000
FLOODERS = 4

RIGHTS_WITHOUT_EVENTS = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "rules": [
        {
            "apiGroups": [""],
            "resources": [
                "pods", "pods/status", "configmaps", "namespaces", "serviceaccounts", "nodes"
            ],
            "verbs": ["*"],
        }
    ],
}  # fmt: skip


def say(space: Space, about: Json, reason: str, **more: object) -> Json:
    """Write an Event about a pod of the target as a kubelet does."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    meta = about["metadata"]
    body: Json = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{meta['name']}.{uuid4().hex[:16]}"},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": meta["namespace"],
            "name": meta["name"],
            "uid": meta["uid"],
            "fieldPath": "spec.containers{main}",
        },
        "type": "Warning",
        "reason": reason,
        "message": f"{reason} said by a test",
        "source": {"component": "kubelet", "host": "worker-of-test"},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
        **more,
    }
    return space.target.create(body, meta["namespace"])


def told(space: Space, name: str, reason: str) -> list[Json]:
    """List the hub's Events about the hub pod for that reason."""
    found = space.pod(name)
    assert found is not None
    fields = f"involvedObject.uid={uid_of(found)},reason={reason}"
    return space.hub.list("Event", space.namespace, fields=fields)


def mirror_of(space: Space, name: str) -> Json:
    found = space.mirror(name)
    assert found is not None
    return found


def metric(federate: FederateProcess, name: str, **labels: str) -> float:
    """Read one number of federate's own page; 0 where it is not there."""
    wanted = ",".join(f'{label}="{value}"' for label, value in sorted(labels.items()))
    found = re.search(rf"^{name}{{{wanted}}} (\S+)$", federate.fetch("/metrics"), re.MULTILINE)
    return float(found[1]) if found else 0.0


def test_c44_words_about_a_mirror_stand_on_the_hub_pod(
    space: Space, hub: TestCluster, measured: Measurements
) -> None:
    """Within seconds, with the count growing, in `kubectl describe`; of other pods nothing is."""
    space.run_pods("web", "other")
    began = time.monotonic()
    said = say(space, mirror_of(space, "web"), "BackOffTest")
    (event,) = space.wait("the hub tells it", lambda: told(space, "web", "BackOffTest"))
    measured.seconds("a target's Event reaches the hub pod", time.monotonic() - began, promise=2.0)
    assert event["count"] == 1
    assert event["type"] == "Warning"
    assert event["message"] == "BackOffTest said by a test"
    assert event["firstTimestamp"] == said["firstTimestamp"]
    assert event["involvedObject"]["fieldPath"] == "spec.containers{main}"
    assert event["source"] == {"component": "kubelet", "host": f"{space.node}/worker-of-test"}

    later = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    meta = said["metadata"]
    growth = {"count": 7, "lastTimestamp": later}
    space.target.patch("Event", meta["namespace"], meta["name"], growth)
    space.wait(
        "the count grows in the same Event",
        lambda: [e["count"] for e in told(space, "web", "BackOffTest")] == [7],
        timeout_seconds=60.0,
    )

    shown = hub.kubectl("describe", "pod", "web", f"--namespace={space.namespace}")
    (line,) = [line for line in shown.splitlines() if "BackOffTest" in line]
    assert re.search(r"Warning +BackOffTest +\S+ \(x7 over \S+\) +kubelet +BackOffTest said", line)
    assert told(space, "other", "BackOffTest") == []


def test_c44_words_about_foreign_pods_are_nobodys_business(space: Space) -> None:
    """An Event about a pod that somebody else runs in the target reaches no hub pod."""
    space.run_pods("web")
    foreign = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "foreign"},
        "spec": {"containers": [container()]},
    }
    found = space.target.create(foreign, space.target_namespace)
    try:
        say(space, found, "ForeignTest")
        say(space, mirror_of(space, "web"), "AfterwardsTest")
        space.wait("what came later is told", lambda: told(space, "web", "AfterwardsTest"))
        everywhere = space.hub.list("Event", fields="reason=ForeignTest")
        assert everywhere == []
    finally:
        space.target.delete("Pod", space.target_namespace, "foreign", grace_seconds=0)


def test_c46_the_targets_scheduler_speaks_on_the_hub_pod(space: Space, hub: TestCluster) -> None:
    """A mirror that fits no node of the target shows FailedScheduling, said by the target's own."""
    spec = pod_spec(space.node, nodeName=space.node)
    spec["containers"] = [container(resources={"requests": {"cpu": "100k"}})]
    space.create(pod("huge", spec))
    (event,) = space.wait(
        "the target's scheduler is heard", lambda: told(space, "huge", "FailedScheduling")
    )
    assert "Insufficient cpu" in event["message"]
    assert event["reportingComponent"] == "default-scheduler"
    shown = hub.kubectl("describe", "pod", "huge", f"--namespace={space.namespace}")
    assert re.search(rf"FailedScheduling .* default-scheduler, {space.node} ", shown)


def test_c44_a_real_kubelets_words(space: Space, target: TestCluster) -> None:
    """A container's start, its crashes and the back-off are told as the kubelet says them."""
    if isinstance(target, LocalCluster):
        pytest.skip("played nodes have no kubelet that says something")
    spec = pod_spec(space.node)
    spec["containers"] = [container(command=[APP, "exit", "3"])]
    space.create(pod("crashing", spec))
    wanted = {"Scheduled", "Pulled", "Created", "Started", "BackOff"}

    def all_heard() -> bool:
        events = [event for reason in wanted for event in told(space, "crashing", reason)]
        return {event["reason"] for event in events if _is_from_target(event)} == wanted

    space.wait("the kubelet is heard", all_heard, timeout_seconds=60.0)


def _is_from_target(event: Json) -> bool:
    component: str = (event.get("source") or {}).get("component", "")
    return component == "kubelet" or ", " in component


def test_c70_what_was_said_meanwhile_is_told_once(fragile_space: Space) -> None:
    """A federate that was away tells what happened meanwhile, and nothing a second time."""
    space = fragile_space
    space.run_pods("web")
    mirror = mirror_of(space, "web")
    say(space, mirror, "BeforeTest")
    (before,) = space.wait("the first is told", lambda: told(space, "web", "BeforeTest"))
    space.world.federate.stop()
    say(space, mirror, "MeanwhileTest")
    space.world.start_federate()
    space.wait("what was missed is told", lambda: told(space, "web", "MeanwhileTest"))
    (again,) = told(space, "web", "BeforeTest")
    assert uid_of(again) == uid_of(before)
    assert again["count"] == 1


@contextmanager
def without_events(target: TestCluster, folder: Path) -> Iterator[Path]:
    """Make a user of the target who has federate's rights but those on Events."""
    name = f"no-events-{uuid4().hex[:8]}"
    account = f"kube-system:{name}"
    role = {**RIGHTS_WITHOUT_EVENTS, "metadata": {"name": name}}
    target.kubectl("create", "serviceaccount", name, "--namespace=kube-system")
    try:
        target.kubectl("create", "-f", "-", stdin=yaml.safe_dump(role))
        target.kubectl(
            *("create", "clusterrolebinding", name),
            *(f"--clusterrole={name}", f"--serviceaccount={account}"),
        )
        token = target.kubectl(
            "create", "token", name, "--namespace=kube-system", "--duration=1h"
        ).strip()
        kubeconfig = yaml.safe_load(target.kubeconfig.read_text())
        kubeconfig["users"] = [
            {"name": user["name"], "user": {"token": token}} for user in kubeconfig["users"]
        ]
        path = folder / "no-events.yaml"
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(kubeconfig))
        yield path
    finally:
        for kind in ("clusterrolebinding", "clusterrole"):
            target.kubectl("delete", kind, name, "--ignore-not-found")
        target.kubectl("delete", "serviceaccount", name, "--namespace=kube-system")


def test_c1_a_target_that_shows_no_events_runs_pods_all_the_same(
    edge: World, hub: TestCluster, target: TestCluster, tmp_path: Path
) -> None:
    """Without rights on Events pods run and end; the log says once what to grant."""
    with without_events(target, tmp_path) as kubeconfig:
        node = f"blind-{uuid4().hex[:4]}"
        options = RunOptions(node=node, hub=hub.kubeconfig, target=kubeconfig)
        federate = FederateProcess(options, folder=tmp_path / node)
        world = World(
            hub=edge.hub,
            target=edge.target,
            hub_record=edge.hub_record,
            target_record=edge.target_record,
            federate=federate,
            pace=edge.pace,
        )
        try:
            world.start_federate()
            space = Space(world, "blind")
            space.open()
            space.run_pods("web")
            say(space, mirror_of(space, "web"), "UnseenTest")
            space.wait(
                "the log says what to do",
                lambda: "grant get, list and watch on events" in federate.log_tail(500),
            )
            assert metric(federate, "federate_target_events_open", node=node) == 0.0
            assert told(space, "web", "UnseenTest") == []
            space.close()
            said = [line for line in federate.log_tail(5000).splitlines() if "grant get" in line]
            assert len(said) == 1
        finally:
            federate.close()
            world.forget_node()


class Flood:
    """Two thousand Events about one mirror, from several writers at once."""

    def __init__(self, space: Space, about: Json) -> None:
        self._space = space
        self._about = about
        self._lock = threading.Lock()
        self.posted = 0

    def pour(self, count: int) -> None:
        """Post so many, each an Event of its own."""
        for _ in range(count):
            say(self._space, self._about, "FloodTest", message=uuid4().hex)
            with self._lock:
                self.posted += 1


def test_c2_a_flood_of_events_delays_no_pod(space: Space, measured: Measurements) -> None:
    """While thousands of Events arrive a new pod starts as ever, and others are still heard."""
    space.run_pods("noisy", "calm")
    federate = space.world.federate
    dropped = metric(federate, "federate_target_events_total", node=space.node, outcome="dropped")
    flood = Flood(space, mirror_of(space, "noisy"))
    with ThreadPoolExecutor(max_workers=FLOODERS) as pool:
        writers = [pool.submit(flood.pour, FLOOD // FLOODERS) for _ in range(FLOODERS)]
        try:
            wait_for("the flood is under way", lambda: flood.posted >= FLOOD // 10)
            began = time.monotonic()
            space.run_pods("new")
            taken = time.monotonic() - began
            at = flood.posted
            began = time.monotonic()
            say(space, mirror_of(space, "calm"), "CalmTest")
            space.wait("another pod is heard", lambda: told(space, "calm", "CalmTest"))
            heard = time.monotonic() - began
        finally:
            for writer in writers:
                with suppress(Exception):
                    writer.result()
    assert flood.posted == FLOOD
    measured.note("Events of the flood when the new pod ran", at)
    measured.seconds("a pod starts in a flood of Events", taken, promise=3.0)
    measured.seconds("another pod's Event is told in a flood", heard, promise=3.0)

    def settled() -> bool:
        labels = {"node": space.node, "outcome": "dropped"}
        lost = metric(federate, "federate_target_events_total", **labels) - dropped
        return lost + len(told(space, "noisy", "FloodTest")) >= FLOOD

    space.wait("all are told or counted as dropped", settled, timeout_seconds=90.0)
    found = space.pod("new")
    assert found is not None
    assert phase_of(found) == "Running"
