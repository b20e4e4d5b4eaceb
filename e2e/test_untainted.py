"""Virtual nodes without a taint: any pod may come, and still no mirror is mirrored (C3, C10).

Two clusters federate each other, each by a configuration file. Nothing here tolerates a taint, so
what keeps mirrors off the virtual node of the other is their node affinity and their marks alone.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path

import pytest
import yaml

from e2e.support.manifests import container, daemon_set, deployment, pod
from e2e.support.pods import (
    amount,
    annotations_of,
    is_ready,
    is_terminating,
    labels_of,
    name_of,
    phase_of,
    uid_of,
)
from e2e.support.witness import Json
from e2e.support.world import Space, World, wait_for
from e2e.support.worlds import Worlds
from e2e.testbed.fixtures import TARGET, TestbedFactory
from e2e.testbed.local import LocalCluster
from e2e.testbed.provider import TestCluster

pytest_plugins = ["e2e.support.fixtures"]
pytestmark = pytest.mark.e2e

OUT, BACK = "open-there", "open-here"
OPEN = {"taintEffect": "none"}
OWN_TAINT = "virtual-kubelet.io/provider"
FOREIGN_TAINT = {"key": "example.com/rack", "value": "7", "effect": "PreferNoSchedule"}

FIRST = replace(TARGET, name="first", nodes=1, service_range="10.109.0.0/16")
SECOND = replace(TARGET, name="second", nodes=1, service_range="10.110.0.0/16")
"""Clusters of their own: an open virtual node draws the pods of other tests."""

SETTLED_SECONDS = 3.0
"""How long nothing more may happen. A pod that is handed to and fro is handed on within one."""


def write_file(
    path: Path, node: str, hub: TestCluster, target: TestCluster, **more: object
) -> Path:
    """Write, or replace, a configuration with one virtual node."""
    new = path.with_suffix(".new")
    virtual_node = {
        "nodeName": node,
        "target": {"kubeconfig": str(target.kubeconfig)},
        **more,
    }
    document = {
        "apiVersion": "federate.dev/v1alpha1",
        "kind": "Federation",
        "hub": {"kubeconfig": str(hub.kubeconfig)},
        "virtualNodes": [virtual_node],
    }
    new.write_text(yaml.safe_dump(document))
    new.replace(path)
    return path


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of both directions."""

    world: World
    hub: TestCluster
    target: TestCluster
    file: Path

    def write(self, **more: object) -> None:
        """Change the virtual node's configuration."""
        write_file(self.file, self.world.node, self.hub, self.target, **more)

    def taints(self) -> list[Json]:
        """Return the Node's taints, but for those of its health."""
        taints: list[Json] = self.world.read_node()["spec"].get("taints") or []
        return [taint for taint in taints if not taint["key"].startswith("node.kubernetes.io/")]


@pytest.fixture(scope="module")
def clusters(
    testbed_factory: TestbedFactory, worlds: Worlds
) -> Iterator[tuple[LocalCluster, LocalCluster]]:
    found = testbed_factory.cluster(FIRST), testbed_factory.cluster(SECOND)
    yield found
    for cluster in found:
        worlds.forget(cluster)


@pytest.fixture(scope="module")
def sides(
    worlds: Worlds,
    clusters: tuple[LocalCluster, LocalCluster],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Side, Side]]:
    """Two clusters, each with an open virtual node for the other."""
    one, other = clusters
    folder = tmp_path_factory.mktemp("untainted")
    files = {
        OUT: write_file(folder / "out.yaml", OUT, one, other, **OPEN),
        BACK: write_file(folder / "back.yaml", BACK, other, one, **OPEN),
    }
    with (
        worlds.world(node=OUT, hub=one, target=other, config=files[OUT]) as out,
        worlds.world(node=BACK, hub=other, target=one, config=files[BACK]) as back,
    ):
        yield (
            Side(world=out, hub=one, target=other, file=files[OUT]),
            Side(world=back, hub=other, target=one, file=files[BACK]),
        )


@pytest.fixture
def spaces(sides: tuple[Side, Side]) -> Iterator[tuple[Space, Space]]:
    found = Space(sides[0].world, "open-out"), Space(sides[1].world, "open-back")
    for space in found:
        space.open()
    yield found
    for space in found:
        space.close()


def plain(node: str | None = None) -> Json:
    """Render a spec without tolerations, for any node or for one."""
    chosen = {"nodeSelector": {"kubernetes.io/hostname": node}} if node else {}
    return {"containers": [container()], **chosen}


def real_nodes(world_nodes: list[Json]) -> set[str]:
    return {name_of(n) for n in world_nodes if labels_of(n).get("type") != "virtual-kubelet"}


def all_run(space: Space) -> bool:
    """Tell whether three pods run through the virtual node, and the DaemonSet on the real one.

    Of the DaemonSet a pod waits on the virtual node, as the policy says.
    """
    (real,) = real_nodes(space.hub.list("Node"))
    expected = Counter(
        {
            ("ReplicaSet", space.node, "Running"): 3,
            ("DaemonSet", space.node, "Pending"): 1,
            ("DaemonSet", real, "Running"): 1,
        }
    )
    found = Counter(
        (one["metadata"]["ownerReferences"][0]["kind"], one["spec"].get("nodeName"), phase_of(one))
        for one in space.pods()
    )
    return found == expected and len(space.mirrors()) == 3


def test_c3_two_clusters_without_taints_hand_no_pod_to_and_fro(
    spaces: tuple[Space, Space], sides: tuple[Side, Side]
) -> None:
    """Pods that tolerate nothing go one step; every mirror is on the other's real node."""
    assert [side.taints() for side in sides] == [[], []]
    for space in spaces:
        space.create(deployment("web", plain(space.node), replicas=3))
        space.create(daemon_set("everywhere", plain()))
    first, second = spaces
    first.wait("all pods run", lambda: all_run(first) and all_run(second))
    first.hold(
        "there are no more", lambda: all_run(first) and all_run(second), seconds=SETTLED_SECONDS
    )
    for space in spaces:
        hosts = {mirror["spec"]["nodeName"] for mirror in space.mirrors()}
        assert hosts == real_nodes(space.target.list("Node"))
        space.assert_one_mirror_each()
        for record in (space.world.hub_record, space.world.target_record):
            mirrors = {event.uid for event in record.events() if event.hub_pod_uid}
            again = [event for event in record.events() if event.hub_pod_uid in mirrors]
            assert not again, again[:3]
        assert len(space.world.hub_record.histories(space.namespace)) == 5


def test_c3_marks_alone_keep_a_copied_mirror_from_going_on(spaces: tuple[Space, Space]) -> None:
    """A mirror's copy that is bound to the untainted node of the other is not mirrored."""
    out, back = spaces
    out.create(pod("model", plain(out.node)))
    out.wait_running("model")
    model = out.read_mirror("model")
    copy = pod("copied", plain(back.node), labels=labels_of(model))
    back.create(copy)
    back.wait_waiting("copied", "MirrorOfMirror")
    back.hold("it has no mirror", lambda: not back.mirrors(), seconds=SETTLED_SECONDS)
    assert uid_of(out.read_mirror("model")) == uid_of(model)


def test_c14_open_virtual_nodes_do_not_offer_each_other(sides: tuple[Side, Side]) -> None:
    """What a virtual node of the target offers is somebody else's: nothing grows to and fro."""

    def offered(side: Side) -> Decimal:
        return amount(side.world.read_node()["status"]["allocatable"]["cpu"])

    def real(side: Side) -> Decimal:
        nodes = side.world.target.list("Node")
        return sum(
            (
                amount(node["status"]["allocatable"]["cpu"])
                for node in nodes
                if name_of(node) in real_nodes(nodes)
            ),
            Decimal(0),
        )

    for side in sides:
        assert Decimal(0) < offered(side) <= real(side)


def test_c10_the_taint_follows_the_file(
    spaces: tuple[Space, Space], sides: tuple[Side, Side]
) -> None:
    """It comes with each effect and goes again while federate runs; others' taints stay.

    A pod without tolerations runs on while the effect forbids new ones alone, and is evicted when
    it says so, as on any node: its mirror goes with it.
    """
    space, side = spaces[0], sides[0]
    node = space.node

    def ours() -> list[tuple[str, str]]:
        found = [t for t in side.taints() if t["key"] == OWN_TAINT]
        return [(t["value"], t["effect"]) for t in found]

    space.create(pod("there", plain(node)))
    before = space.wait_running("there")
    space.hub.patch("Node", "", node, {"spec": {"taints": [FOREIGN_TAINT]}})

    side.write(taintEffect="NoSchedule", taintValue="closed")
    wait_for("the node is tainted", lambda: ours() == [("closed", "NoSchedule")])
    space.create(pod("late", plain(node)))
    space.hold(
        "no other pod comes, and the one that is there stays",
        lambda: (
            not (space.pod("late") or {}).get("spec", {}).get("nodeName")
            and uid_of(space.pod("there") or {}) == uid_of(before)
        ),
        seconds=SETTLED_SECONDS,
    )
    side.write(taintEffect="PreferNoSchedule")
    wait_for("the taint is a wish", lambda: ours() == [("federate", "PreferNoSchedule")])
    space.wait_running("late")

    side.write(taintEffect="NoExecute")
    wait_for("the taint is an order", lambda: ours() == [("federate", "NoExecute")])
    for name in ("there", "late"):
        space.wait_pod_gone(name)
        space.wait_mirror_gone(name)

    side.write(**OPEN)
    wait_for("the taint is gone", lambda: ours() == [])
    assert side.taints() == [FOREIGN_TAINT]
    space.hub.patch("Node", "", node, {"spec": {"taints": None}})
    wait_for("the node is ready", lambda: is_ready(side.world.read_node()))
    assert not is_terminating(side.world.read_node())
    assert annotations_of(side.world.read_node())["federate.dev/target"] == node
