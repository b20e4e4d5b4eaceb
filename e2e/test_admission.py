"""Host ports of a virtual node, for pods that were bound past the scheduler: as a kubelet admits.

A pod whose creator set spec.nodeName was asked by no scheduler whether the node has its host port
left. A kubelet rejects it then: phase Failed, reason NodePorts (decision 0026).
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import yaml

from e2e.support.manifests import (
    ENDS_AFTER,
    container,
    daemon_set,
    pod,
    pod_spec,
    quota,
    stateful_set,
)
from e2e.support.measuring import Measurements
from e2e.support.pods import condition_of, is_ready, name_of, phase_of, uid_of
from e2e.support.recorder import PodEvent
from e2e.support.witness import Json
from e2e.support.world import PATIENCE_SECONDS, Space, World, wait_for
from e2e.support.worlds import Worlds
from e2e.support.writes import hub_writes
from e2e.testbed.local import LocalCluster

pytest_plugins = ["e2e.support.fixtures"]
pytestmark = pytest.mark.e2e

NODE, STRIPPING = "ports", "ports-strip"
REASON = "NodePorts"

TURN_SECONDS = 10.0
"""One of an owner's pods fails, and so long no other one does."""
LOOKED_AGAIN_SECONDS = 7.0
"""Whoever waits for a port has looked again by then."""
QUOTA = "few"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Two virtual nodes: one lets host ports through, one strips them."""

    world: World


@pytest.fixture(scope="module")
def stage(
    worlds: Worlds,
    local_hub: LocalCluster,
    local_target: LocalCluster,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Stage]:
    policies = {
        NODE: {"hostPorts": "allow", "daemonSets": "mirror"},
        STRIPPING: {"hostPorts": "strip"},
    }
    document = {
        "apiVersion": "federate.dev/v1alpha1",
        "kind": "Federation",
        "hub": {"kubeconfig": str(local_hub.kubeconfig)},
        "virtualNodes": [
            {
                "nodeName": name,
                "target": {"kubeconfig": str(local_target.kubeconfig)},
                "policy": policy,
            }
            for name, policy in policies.items()
        ],
    }
    file = tmp_path_factory.mktemp("admission") / "federation.yaml"
    file.write_text(yaml.safe_dump(document))
    with worlds.world(
        node=NODE, hub=local_hub, target=local_target, config=file, also=[STRIPPING]
    ) as world:
        wait_for("the other node is ready", lambda: is_up(world, STRIPPING))
        yield Stage(world=world)


def is_up(world: World, name: str) -> bool:
    found = world.hub.get("Node", "", name)
    return found is not None and is_ready(found)


@pytest.fixture
def ports_space(stage: Stage, request: pytest.FixtureRequest) -> Iterator[Space]:
    if not stage.world.federate.is_running:
        stage.world.start_federate()
    found = Space(stage.world, "admission")
    found.open()
    yield found
    found.close()


def asking(port: int, *, node: str = NODE, **more: object) -> Json:
    """Render a spec that asks for a host port and names its node itself."""
    ports = [{"containerPort": 80, "hostPort": port, **more}]
    return pod_spec(node, nodeName=node, containers=[container(ports=ports)])


def placed(spec: Json) -> Json:
    """Leave the choice of the node to the scheduler."""
    return {key: value for key, value in spec.items() if key != "nodeName"}


def wait_rejected(space: Space, name: str) -> Json:
    """Wait until a pod has ended as one that a kubelet rejected."""
    found = space.wait_phase(name, "Failed")
    assert found["status"]["reason"] == REASON, found["status"]
    words = "Pod was rejected: Predicate NodePorts failed: node(s) didn't have free ports"
    assert found["status"]["message"].startswith(words)
    assert not found["status"].get("containerStatuses")
    assert space.mirror(name) is None
    return found


def statefulset_pods(space: Space) -> list[list[PodEvent]]:
    """Return the histories of all pods that were ever called ss-0, the oldest first."""
    histories = space.world.hub_record.histories(space.namespace).values()
    return [history for history in histories if history[0].name == "ss-0"]


def test_a_statefulset_recreates_a_pod_whose_host_port_is_taken_until_it_is_free(
    ports_space: Space, measured: Measurements
) -> None:
    """Its pod fails and is replaced, seldom enough to be no storm; when the port is free it runs.

    As Kubernetes' conformance tests ask: "Should recreate evicted statefulset".
    """
    space = ports_space
    space.create(pod("test-pod", asking(21017)))
    space.wait_running("test-pod")
    began = time.monotonic()
    space.create(stateful_set("ss", asking(21017)))

    def nth(number: int) -> Json | None:
        """Return the one that stands, once there were so many."""
        ever, found = statefulset_pods(space), space.pod("ss-0")
        return found if found and len(ever) == number else None

    second = space.wait("the first was replaced", lambda: nth(2))
    measured.seconds("failed and replaced", time.monotonic() - began, promise=PATIENCE_SECONDS)
    waiting = space.wait_waiting("ss-0", REASON)
    assert uid_of(second) == uid_of(waiting)
    assert "TCP 21017 is taken by another pod" in waiting["status"]["message"]
    space.hold("its owner's next waits", lambda: nth(2) is not None, seconds=TURN_SECONDS / 2)
    space.wait("its turn comes", lambda: nth(3))
    space.wait_waiting("ss-0", REASON)

    writes = [hub_writes(history).up for history in statefulset_pods(space)]
    measured.note("federate's writes to each of the StatefulSet's pods", writes)
    assert len(writes) == 3 and max(writes) <= 2, "one says that it waits, one that it failed"
    ends = [history[-1].phase for history in statefulset_pods(space)]
    assert ends == ["Failed", "Failed", "Pending"]

    freed = time.monotonic()
    space.delete_pod("test-pod", grace_seconds=0)
    space.wait_running("ss-0")
    measured.seconds("runs when the port is free", time.monotonic() - freed, promise=5.0)
    assert len(statefulset_pods(space)) == 3, "the one that waited runs"
    space.assert_one_mirror_each()


def test_a_bare_pod_whose_host_port_is_taken_is_rejected_for_good(ports_space: Space) -> None:
    """It ends at once, with one write and a kubelet's words; protocol and address count."""
    space = ports_space
    space.create(pod("holder", asking(21018)))
    space.wait_running("holder")
    space.create(pod("same", {**asking(21018), "restartPolicy": "Never"}))
    space.create(pod("udp", asking(21018, protocol="UDP")))
    space.create(pod("address", asking(21018, hostIP="127.0.0.1")))
    for name in ("same", "address"):
        rejected = wait_rejected(space, name)
        history = space.world.hub_record.events(uid=uid_of(rejected))
        assert hub_writes(history).up == 1
    space.wait_running("udp")
    space.create(pod("elsewhere", asking(21018, node=STRIPPING)))
    space.create(pod("stripped", asking(21018, node=STRIPPING)))
    for name in ("elsewhere", "stripped"):
        space.wait_running(name)
    assert phase_of(space.pod("holder") or {}) == "Running"


def test_a_port_is_its_holders_until_that_one_has_ended(ports_space: Space) -> None:
    """A pod that ends still has its port, and fails nobody; who waits for it runs afterwards."""
    space = ports_space
    slow = {"annotations": {ENDS_AFTER: "5s"}}
    space.create(pod("ends", asking(21019), **slow))
    space.wait_running("ends")
    space.delete_pod("ends", grace_seconds=30)
    space.create(pod("next", asking(21019)))
    space.wait_waiting("next", REASON)
    assert space.pod("ends") is not None and space.mirror("next") is None
    space.wait_running("next")
    assert space.pod("ends") is None
    uid = uid_of(space.pod("next") or {})
    phases = [event.phase for event in space.world.hub_record.events(uid=uid)]
    assert "Failed" not in phases


def test_of_two_that_are_new_the_older_is_admitted(ports_space: Space) -> None:
    """Also when federate sees both at once: those that came while it was down."""
    space = ports_space
    space.world.federate.stop()
    for number in range(3):
        space.create(pod(f"new-{number}", asking(21020)))
        time.sleep(1.1)  # creation times are whole seconds
    space.world.start_federate()
    space.wait_running("new-0")
    for name in ("new-1", "new-2"):
        wait_rejected(space, name)
    space.assert_one_mirror_each()


def test_a_daemonset_keeps_its_port(ports_space: Space) -> None:
    """Its pod runs; a scheduler puts no other there, and one bound past the scheduler is rejected.

    In that order: what such a pod asked for, a scheduler takes for free again when it has failed,
    though somebody else has it. So it is with a kubelet.
    """
    space = ports_space
    spec = placed(asking(21021))
    space.create(daemon_set("agent", spec))

    def agents() -> list[Json]:
        return [found for found in space.pods() if name_of(found).startswith("agent-")]

    space.wait("the DaemonSet's pod runs", lambda: [p for p in agents() if is_ready(p)])
    space.create(pod("placed", spec))

    def words() -> str:
        said = condition_of(space.pod("placed") or {}, "PodScheduled")
        return str(said.get("message") or "")

    space.wait("the scheduler says why not", lambda: "free ports" in words())
    space.create(pod("past", asking(21021)))
    wait_rejected(space, "past")
    assert [is_ready(found) for found in agents()] == [True]


def test_what_a_scheduler_placed_loses_its_port_to_nobody(ports_space: Space) -> None:
    """Also while the target refuses it: who was bound past the scheduler waits, and does not fail.

    What it has on record then is an intent, which proves nothing: it may never run.
    """
    space = ports_space
    space.run_pod(pod("first", pod_spec(NODE)))  # so that the target namespace is there
    space.target.create(quota(QUOTA, pods="1"), space.target_namespace)
    space.wait("the target's quota is full", lambda: used_of_quota(space) == "1")
    space.create(pod("held", placed(asking(21022))))
    space.wait_waiting("held", "QuotaExceeded")
    space.create(pod("intruder", asking(21022)))
    space.wait_waiting("intruder", REASON)
    space.hold(
        "it neither gets the port nor fails",
        lambda: phase_of(space.pod("intruder") or {}) == "Pending" and not space.mirror("intruder"),
        seconds=LOOKED_AGAIN_SECONDS,
    )
    space.target.delete("ResourceQuota", space.target_namespace, QUOTA)
    space.wait_running("held")
    wait_rejected(space, "intruder")


def used_of_quota(space: Space) -> str | None:
    found = space.target.get("ResourceQuota", space.target_namespace, QUOTA) or {}
    used: str | None = found.get("status", {}).get("used", {}).get("pods")
    return used
