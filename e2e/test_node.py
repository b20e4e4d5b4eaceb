"""The virtual node is a node like any other, and shares its object with others (C10-C16, C41)."""

import time
from collections.abc import Iterator
from decimal import Decimal

import pytest

from e2e.support.manifests import container, deployment, pod, pod_spec
from e2e.support.measuring import Measurements
from e2e.support.pods import (
    VIRTUAL_NODE_LABEL,
    amount,
    annotations_of,
    condition_of,
    is_ready,
    labels_of,
    phase_of,
    uid_of,
)
from e2e.support.witness import STRATEGIC_PATCH, Json
from e2e.support.world import Space, World, hold, wait_for
from e2e.support.worlds import Worlds
from e2e.testbed.provider import TestCluster

pytest_plugins = ["e2e.support.fixtures"]
pytestmark = pytest.mark.e2e

RESOURCES = ("cpu", "memory", "pods")
LEASE_PERIOD_SECONDS = 10.0


@pytest.fixture(scope="module")
def spare(worlds: Worlds, hub: TestCluster, target: TestCluster) -> Iterator[World]:
    """A world of fixed size whose node the tests change and whose federate they restart."""
    arguments = ["--capacity", "cpu=100,memory=200Gi,pods=50"]
    with worlds.world(node="spare", hub=hub, target=target, arguments=arguments) as found:
        yield found


def test_the_node_says_what_it_is(world: World) -> None:
    """The node carries the labels, taint, address and conditions that tools look for."""
    node = world.read_node()
    labels = labels_of(node)
    expected = {
        "type": "virtual-kubelet",
        "kubernetes.io/hostname": "edge",
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/role": "agent",
        "node.kubernetes.io/exclude-from-external-load-balancers": "true",
        "node.kubernetes.io/exclude-disruption": "true",
    }
    assert {key: labels.get(key) for key in expected} == expected
    assert node["spec"]["taints"] == [
        {"key": "virtual-kubelet.io/provider", "value": "federate", "effect": "NoSchedule"}
    ]
    assert node["spec"]["providerID"].startswith("federate://")
    assert [a["type"] for a in node["status"]["addresses"]] == ["InternalIP"]
    conditions = {c["type"]: c["status"] for c in node["status"]["conditions"]}
    own = {
        "Ready": "True",
        "MemoryPressure": "False",
        "DiskPressure": "False",
        "PIDPressure": "False",
        "NetworkUnavailable": "False",
        "federate.dev/TargetReachable": "True",
    }
    assert {kind: conditions.get(kind) for kind in own} == own
    info = node["status"]["nodeInfo"]
    assert info["kubeletVersion"].startswith("v1.")
    assert (info["operatingSystem"], info["architecture"]) == ("linux", "amd64")


# -- capacity --


def offer_of(node: Json) -> dict[str, Decimal]:
    allocatable = node["status"]["allocatable"]
    return {name: amount(allocatable[name]) for name in RESOURCES}


def expected_offer(world: World) -> dict[str, Decimal]:
    """Work out what the target's ready nodes have left beside the pods of others."""
    left = dict.fromkeys(RESOURCES, Decimal(0))
    offering = set()
    for node in world.target.list("Node"):
        if is_ready(node) and not node["spec"].get("taints"):
            offering.add(node["metadata"]["name"])
            for name in RESOURCES:
                left[name] += amount(node["status"]["allocatable"][name])
    for found in world.target.list("Pod"):
        is_own = annotations_of(found).get("federate.dev/node-name") == world.node
        if is_own or phase_of(found) in ("Succeeded", "Failed"):
            continue
        # kube-proxy goes to any node that an earlier test left behind, a virtual one too.
        if found["spec"].get("nodeName", "") not in offering | {""}:
            continue
        left["pods"] -= 1
        for each in found["spec"]["containers"]:
            for name, quantity in each.get("resources", {}).get("requests", {}).items():
                left[name] -= amount(quantity)
    return left


def wait_offer(world: World) -> dict[str, Decimal]:
    """Wait until the node offers what the target has left."""

    def probe() -> dict[str, Decimal] | None:
        offered, expected = offer_of(world.read_node()), expected_offer(world)
        return offered if offered == expected else None

    return wait_for(
        "the node offers what the target has left",
        probe,
        explain=lambda: f"{offer_of(world.read_node())} and not {expected_offer(world)}",
    )


def test_the_node_is_as_large_as_what_the_target_has_left(world: World, space: Space) -> None:
    """The node offers the sum of the target's nodes less what pods of others request."""
    empty = wait_offer(world)
    space.run_pod(pod("own", pod_spec(space.node, containers=[busy("300m", "64Mi")])))
    assert wait_offer(world) == empty, "a mirror of this node takes nothing from its offer"

    neighbour = pod("neighbour", {"containers": [busy("200m", "32Mi")]})
    world.target.create(neighbour, "default")
    try:
        wait_for("the offer is lower", lambda: offer_of(world.read_node()) != empty)
        shared = wait_offer(world)
        assert shared["cpu"] == empty["cpu"] - amount("200m")
        assert shared["memory"] == empty["memory"] - amount("32Mi")
        assert shared["pods"] == empty["pods"] - 1
    finally:
        world.target.delete("Pod", "default", "neighbour", grace_seconds=0)
    wait_for("the offer is whole again", lambda: wait_offer(world) == empty)


def busy(cpu: str, memory: str) -> Json:
    return container(resources={"requests": {"cpu": cpu, "memory": memory}})


def test_the_node_is_as_large_as_it_was_told(spare: World) -> None:
    """A fixed capacity is what the node offers, whatever the target has."""
    expected = {"cpu": Decimal(100), "memory": amount("200Gi"), "pods": Decimal(50)}
    node = spare.read_node()
    assert offer_of(node) == expected
    assert {n: amount(node["status"]["capacity"][n]) for n in RESOURCES} == expected


# -- what others write --

FOREIGN_TAINT = {"key": "example.com/rack", "value": "7", "effect": "PreferNoSchedule"}


def mark_node(world: World) -> None:
    """Put a label, an annotation, a taint and a condition of somebody else on the node."""
    node = world.read_node()
    metadata = {
        "labels": {"example.com/rack": "7"},
        "annotations": {"example.com/note": "keep"},
    }
    taints = [*node["spec"]["taints"], FOREIGN_TAINT]
    world.hub.patch("Node", "", world.node, {"metadata": metadata, "spec": {"taints": taints}})
    condition = {"type": "example.com/Healthy", "status": "True", "reason": "Seen"}
    world.hub.patch(
        "Node",
        "",
        world.node,
        {"status": {"conditions": [condition]}},
        subresource="status",
        media_type=STRATEGIC_PATCH,
    )


def assert_marks(node: Json) -> None:
    assert labels_of(node).get("example.com/rack") == "7"
    assert annotations_of(node).get("example.com/note") == "keep"
    assert FOREIGN_TAINT in node["spec"]["taints"]
    assert condition_of(node, "example.com/Healthy").get("status") == "True"
    assert any(t["key"] == "virtual-kubelet.io/provider" for t in node["spec"]["taints"])


def test_what_others_put_on_the_node_survives(world: World) -> None:
    """Labels, annotations, taints and conditions of others survive status changes."""
    mark_node(world)
    before = offer_of(world.read_node())
    world.target.create(pod("elsewhere", {"containers": [busy("100m", "16Mi")]}), "default")
    try:
        wait_for("the node's status changes", lambda: offer_of(world.read_node()) != before)
        assert_marks(world.read_node())
    finally:
        world.target.delete("Pod", "default", "elsewhere", grace_seconds=0)
        taints = [t for t in world.read_node()["spec"]["taints"] if t != FOREIGN_TAINT]
        world.hub.patch("Node", "", world.node, {"spec": {"taints": taints}})


def test_what_others_put_on_the_node_survives_a_restart(spare: World) -> None:
    """Labels, annotations, taints and conditions of others survive a restart of federate."""
    mark_node(spare)
    spare.federate.restart()

    def survives() -> bool:
        node = spare.read_node()
        assert_marks(node)
        return is_ready(node)

    hold("the node is ready", survives, seconds=2.0, explain=spare.federate.log_tail)


def test_what_others_put_on_a_pod_survives(space: Space) -> None:
    """A condition and an annotation of somebody else on a hub pod survive a status change."""
    uid = uid_of(space.run_pod(pod("shared", pod_spec(space.node))))
    note = {"metadata": {"annotations": {"example.com/note": "keep"}}}
    space.hub.patch("Pod", space.namespace, "shared", note)
    condition = {"type": "example.com/Checked", "status": "True", "reason": "Seen"}
    write_condition(space, condition)
    write_mirror_condition(space, {"type": "Ready", "status": "False", "reason": "ProbeFailed"})

    # Not for long: a real node's kubelet knows better, and says so.
    told = space.wait(
        "the hub pod is not ready, as its mirror",
        lambda: space.world.hub_record.find(
            lambda event: (
                event.uid == uid
                and event.conditions.get("Ready", {}).get("reason") == "ProbeFailed"
            ),
            namespace=space.namespace,
        ),
    )
    assert told.conditions["Ready"]["status"] == "False"
    assert told.conditions["example.com/Checked"]["status"] == "True"
    assert told.conditions["PodScheduled"]["status"] == "True"
    found = space.pod("shared")
    assert found is not None
    assert annotations_of(found).get("example.com/note") == "keep"
    assert condition_of(found, "example.com/Checked").get("status") == "True"


def write_condition(space: Space, condition: Json) -> None:
    space.hub.patch(
        "Pod",
        space.namespace,
        "shared",
        {"status": {"conditions": [condition]}},
        subresource="status",
        media_type=STRATEGIC_PATCH,
    )


def write_mirror_condition(space: Space, condition: Json) -> None:
    space.target.patch(
        "Pod",
        space.target_namespace,
        "shared",
        {"status": {"conditions": [condition]}},
        subresource="status",
        media_type=STRATEGIC_PATCH,
    )


# -- life --


def node_lease(world: World) -> Json:
    lease = world.hub.get("Lease", "kube-node-lease", world.node)
    assert lease is not None
    return lease


def test_the_node_lease_is_renewed(world: World) -> None:
    """The node's lease belongs to the node, lasts 40 s, and is renewed every 10 s."""
    lease = node_lease(world)
    assert lease["spec"]["leaseDurationSeconds"] == 40
    assert lease["spec"]["holderIdentity"] == world.node
    (owner,) = lease["metadata"]["ownerReferences"]
    assert owner["uid"] == uid_of(world.read_node())
    wait_for(
        "the lease is renewed",
        lambda: node_lease(world)["spec"]["renewTime"] != lease["spec"]["renewTime"],
        timeout_seconds=2 * LEASE_PERIOD_SECONDS,
        explain=world.federate.log_tail,
    )


def test_a_deleted_node_is_registered_again(
    world: World, space: Space, measured: Measurements
) -> None:
    """A node that somebody deletes is back within a second, and its pods run on."""
    before = space.run_pod(pod("survivor", pod_spec(space.node)))
    old = world.read_node()
    started = time.monotonic()
    world.hub.delete("Node", "", world.node)

    def probe() -> Json | None:
        node = world.hub.get("Node", "", world.node)
        return node if node is not None and uid_of(node) != uid_of(old) else None

    wait_for("the node is back", probe, explain=world.federate.log_tail)
    measured.seconds("to a registered node", time.monotonic() - started, promise=1.0)
    world.wait_node_ready()
    wait_for(
        "the lease follows the new node",
        lambda: (
            node_lease(world)["metadata"]["ownerReferences"][0]["uid"] == uid_of(world.read_node())
        ),
        timeout_seconds=2 * LEASE_PERIOD_SECONDS,
        explain=world.federate.log_tail,
    )
    after = space.pod("survivor")
    assert after is not None and uid_of(after) == uid_of(before)
    assert phase_of(after) == "Running"
    assert len(space.mirrors()) == 1
    assert labels_of(space.mirrors()[0]).get(VIRTUAL_NODE_LABEL)
    space.run_pod(pod("successor", pod_spec(space.node)))
    space.assert_one_mirror_each()


def test_a_drained_node_gives_its_pods_back(fragile_space: Space, hub: TestCluster) -> None:
    """`kubectl drain` empties the node and its mirrors go; uncordoned, it takes pods again."""
    space = fragile_space
    space.create(deployment("web", pod_spec(space.node), replicas=3))
    drained = {uid_of(found) for found in space.wait_ready_pods(3)}
    # A hub that runs pods itself has DaemonSets, whose pods for the virtual node only wait.
    hub.kubectl("drain", space.node, "--force", "--ignore-daemonsets", "--timeout=30s")
    try:
        space.wait("the mirrors are gone", lambda: not space.mirrors())
        assert all("nodeName" not in found["spec"] for found in space.pods())
    finally:
        hub.kubectl("uncordon", space.node)
    after = space.wait_ready_pods(3)
    assert not drained & {uid_of(found) for found in after}
    space.assert_one_mirror_each()
