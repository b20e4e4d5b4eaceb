"""Several hubs and virtual nodes share clusters, and none touches what is another's (C3)."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from functools import partial
from pathlib import Path

import pytest

from e2e.support.manifests import container, daemon_set, deployment, pod, pod_spec, stateful_set
from e2e.support.measuring import Measurements
from e2e.support.pods import (
    amount,
    annotations_of,
    condition_of,
    hub_pod_uid_of,
    is_ready,
    is_terminating,
    labels_of,
    name_of,
    phase_of,
    uid_of,
    version_of,
)
from e2e.support.process import FederateProcess, run_sweep
from e2e.support.witness import Json
from e2e.support.world import Space, World
from e2e.support.worlds import Worlds
from e2e.testbed.fixtures import TARGET, TestbedFactory
from e2e.testbed.local import LocalCluster
from e2e.testbed.provider import TestCluster
from federate.model.marks import HUB_LABEL, NODE_NAME_ANNOTATION, REINSTALL_ANNOTATION
from federate.model.reasons import NodeReason, PodReason

pytest_plugins = ["e2e.support.fixtures"]
pytestmark = pytest.mark.e2e

OTHER = replace(TARGET, name="other", nodes=1, service_range="10.108.0.0/16")
"""A whole cluster, so that it can be all of it: a hub, its own target, and another's target."""

TOLERATES_ALL = [{"operator": "Exists"}]

SETTLED_SECONDS = 2.0
"""How long nothing more may happen. A pod that is handed to and fro is handed on within one."""

SWEEP_PERIOD_SECONDS = 60.0


@pytest.fixture(scope="module")
def other(testbed_factory: TestbedFactory, worlds: Worlds) -> Iterator[LocalCluster]:
    """A third cluster, with one real node.

    It is not stopped here: the module's tests are in two groups, which one process may run after
    each other, and the factory hands out a cluster of that name once.
    """
    cluster = testbed_factory.cluster(OTHER)
    yield cluster
    worlds.forget(cluster)


# -- what a virtual node has in its target ---------------------------------------------------------


def hub_id_of(world: World) -> str:
    system = world.hub.get("Namespace", "", "kube-system")
    assert system is not None
    return uid_of(system)


def own(space: Space, kind: str) -> list[Json]:
    """List what the space's virtual node has there: read off the marks, not by their hash."""
    of_this_hub = f"{HUB_LABEL}={hub_id_of(space.world)}"
    return [
        found
        for found in space.target.list(kind, space.target_namespace, labels=of_this_hub)
        if annotations_of(found)[NODE_NAME_ANNOTATION] == space.node
    ]


def own_mirrors(space: Space) -> list[Json]:
    """List the mirrors of the space's virtual node, and not those of its neighbours there."""
    return own(space, "Pod")


def belongings(space: Space) -> dict[str, str]:
    """Return the versions of all mirrors and anchors of the space's virtual node there."""
    return {
        f"{kind} {name_of(found)} {uid_of(found)}": version_of(found)
        for kind in ("Pod", "ConfigMap")
        for found in own(space, kind)
    }


def delete_anchor(space: Space) -> None:
    """Uninstall a virtual node from the space's target namespace, as an admin there does."""
    (anchor,) = own(space, "ConfigMap")
    assert space.target.delete("ConfigMap", space.target_namespace, name_of(anchor))


def reinstall(space: Space) -> None:
    """Give the space's target namespace free again, as an operator of the hub does."""
    metadata = {"annotations": {REINSTALL_ANNOTATION: space.target_namespace}}
    space.hub.patch("Node", "", space.node, {"metadata": metadata})
    space.wait("the node is whole again", lambda: ready_reason(space.world) == NodeReason.READY)


def ready_reason(world: World) -> str:
    return str(condition_of(world.read_node(), "Ready").get("reason"))


# -- two hubs, one target --------------------------------------------------------------------------


@contextmanager
def namesake(
    worlds: Worlds,
    hub: TestCluster,
    target: TestCluster,
    *,
    node: str,
    folder: Path,
    arguments: Sequence[str] = (),
) -> Iterator[World]:
    """Run federate for a node whose name another hub's has too, with a folder of its own."""
    with worlds.world(
        node=node, hub=hub, target=target, arguments=arguments, started=False
    ) as found:
        world = replace(found, federate=FederateProcess(found.federate.options, folder=folder))
        try:
            world.start_federate()
            yield world
        finally:
            world.federate.close()


@pytest.fixture(scope="module")
def elsewhere(
    worlds: Worlds,
    other: LocalCluster,
    target: TestCluster,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[World]:
    """A node of another hub with the name and the target of `fragile`."""
    folder = tmp_path_factory.mktemp("elsewhere")
    with namesake(worlds, other, target, node="fragile", folder=folder) as found:
        yield found


@pytest.fixture
def twins(fragile: World, elsewhere: World) -> Iterator[tuple[Space, Space]]:
    """The same namespace in two hubs, for nodes of the same name."""
    yield from spaces_of_one_name((fragile, elsewhere), "twins")


def spaces_of_one_name(worlds: tuple[World, World], name: str) -> Iterator[tuple[Space, Space]]:
    left, right = (Space(world, name) for world in worlds)
    prefix = right.target_namespace.removesuffix(right.namespace)
    right.namespace = left.namespace
    right.target_namespace = prefix + right.namespace
    for space in (left, right):
        space.open()
    yield left, right
    for space in (left, right):
        if not space.world.federate.is_running:
            space.world.start_federate()
        space.close()


def test_two_hubs_with_the_same_names_have_mirrors_of_their_own(
    twins: tuple[Space, Space],
) -> None:
    """Pods of one name in two hubs run side by side in one target, and go one by one.

    Deleting one of them, and uninstalling one hub, leaves every object of the other as it was.
    """
    left, right = twins
    for space in twins:
        space.run_pods("first", "second")
    assert left.target_namespace != right.target_namespace
    for space in twins:
        mirrored = {hub_pod_uid_of(mirror) for mirror in space.mirrors()}
        assert mirrored == {uid_of(found) for found in space.pods()}, space.explain()
        assert {labels_of(m)[HUB_LABEL] for m in space.mirrors()} == {hub_id_of(space.world)}

    lefts = belongings(left)
    right.delete_pod("first")
    right.wait_mirror_gone("first")
    right.wait_pod_gone("first")
    delete_anchor(right)
    right.wait("the target removes the mirrors", lambda: not right.mirrors())
    right.wait("the node says so", lambda: ready_reason(right.world) == NodeReason.UNINSTALLED)
    assert belongings(left) == lefts, left.explain()
    assert ready_reason(left.world) == NodeReason.READY
    left.run_pods("third")
    reinstall(right)


def test_orphans_of_one_hub_are_no_concern_of_another(twins: tuple[Space, Space]) -> None:
    """Mirrors of a dead federate's force-deleted pods wait for it, whoever else sweeps there.

    Neither a sweep nor a restart of another hub's federate removes them; their own does, and
    nothing else.
    """
    left, right = twins
    for space in twins:
        space.run_pods("goes", "stays")
    right.world.federate.kill()
    right.delete_pod("goes", grace_seconds=0)
    lefts, rights = belongings(left), belongings(right)

    told = run_sweep(left.world.federate.options, "--yes")
    assert "Noorphansoffragile." in told, told
    assert right.target_namespace not in told, "other hubs' mirrors are not even read"
    left.world.federate.restart()
    left.world.wait_node_ready()
    assert (belongings(left), belongings(right)) == (lefts, rights)

    right.world.start_federate()
    right.wait_mirror_gone("goes")
    assert belongings(left) == lefts, left.explain()
    assert belongings(right).items() < rights.items(), right.explain()
    assert [name_of(mirror) for mirror in right.mirrors()] == ["stays"]


@pytest.mark.long
def test_sweeps_of_one_hub_leave_the_orphans_of_another_alone(twins: tuple[Space, Space]) -> None:
    """Two periodic sweeps of one hub's federate touch nothing of another hub's."""
    left, right = twins
    for space in twins:
        space.run_pods("goes", "stays")
    right.world.federate.kill()
    right.delete_pod("goes", grace_seconds=0)
    before = belongings(left), belongings(right)
    left.hold(
        "all mirrors are as they were",
        lambda: (belongings(left), belongings(right)) == before,
        seconds=2 * SWEEP_PERIOD_SECONDS + 10.0,
    )


@pytest.fixture
def sharers(
    worlds: Worlds, hub: TestCluster, other: LocalCluster, target: TestCluster, tmp_path: Path
) -> Iterator[tuple[Space, Space]]:
    """The same namespace in two hubs, whose mirrors share a target namespace."""
    arguments = ["--namespaces", "same"]
    start = partial(namesake, worlds, node="sharer", target=target, arguments=arguments)
    with (
        start(hub=hub, folder=tmp_path / "left") as one,
        start(hub=other, folder=tmp_path / "right") as two,
    ):
        for spaces in spaces_of_one_name((one, two), "shared"):
            for space in spaces:
                space.target_namespace = space.namespace
            yield spaces
            for space in spaces:
                remove_pods(space)


def remove_pods(space: Space) -> None:
    """Empty a namespace whose target namespace another hub uses too."""
    space.hub.delete_all("Pod", space.namespace)
    space.wait("its hub pods are gone", lambda: not space.pods())


@pytest.mark.long
def test_two_hubs_that_use_one_namespace_get_in_nobodys_way(sharers: tuple[Space, Space]) -> None:
    """With namespaces `same` two hubs share a target namespace, and still no mirror.

    A name that is taken is waited for; one hub's anchor owns nothing of the other's.
    """
    left, right = sharers
    left.run_pods("both", "left-only")
    lefts = belongings(left)
    right.run_pods("right-only")
    right.create(pod("both", pod_spec(right.node)))
    right.wait_waiting("both", PodReason.NAME_TAKEN)
    right.delete_pod("both")
    right.wait_pod_gone("both")
    assert belongings(left) == lefts, left.explain()

    delete_anchor(right)
    right.wait("its mirrors go", lambda: not own_mirrors(right))
    assert belongings(left) == lefts, left.explain()


# -- two virtual nodes of one hub, one target ------------------------------------------------------


@pytest.fixture
def beside(space: Space, fragile: World) -> Iterator[Space]:
    """The same namespace as `space`, for another virtual node of the same hub and target."""
    found = Space(fragile, "beside")
    found.namespace, found.target_namespace = space.namespace, space.target_namespace
    yield found
    if not fragile.federate.is_running:
        fragile.start_federate()


def wait_mirrored(space: Space, count: int) -> list[Json]:
    """Wait until so many hub pods of the space's own node are ready, and return their mirrors."""

    def probe() -> bool:
        bound = [p for p in space.pods() if p["spec"].get("nodeName") == space.node]
        ready = [is_ready(found) for found in bound if not is_terminating(found)]
        return ready == [True] * count and len(own_mirrors(space)) == count

    space.wait(f"{count} pods run on {space.node}", probe)
    return own_mirrors(space)


def test_two_nodes_of_one_hub_share_a_target_namespace_and_no_mirror(
    space: Space, beside: Space
) -> None:
    """Two virtual nodes with one target keep to their own mirrors, in one and the same namespace.

    So it is when a pod of one is replaced, when one federate is restarted, when it was killed and
    finds an orphan, and when orphans are swept by hand.
    """
    space.create(stateful_set("db", pod_spec(space.node)))
    beside.create(deployment("web", pod_spec(beside.node), replicas=2))
    wait_mirrored(space, 1)
    wait_mirrored(beside, 2)
    ours, theirs = belongings(space), belongings(beside)
    assert not ours.keys() & theirs.keys()

    beside.world.federate.restart()
    beside.world.wait_node_ready()
    assert (belongings(space), belongings(beside)) == (ours, theirs), space.explain()

    first = space.wait_phase("db-0", "Running")
    space.delete_pod("db-0")
    space.wait_phase("db-0", "Running", not_uid=uid_of(first))
    assert belongings(beside) == theirs, beside.explain()

    beside.world.federate.kill()
    ours = belongings(space)
    orphan = own_mirrors(beside)[0]
    beside.delete_pod(name_of(orphan), grace_seconds=0)
    told = run_sweep(space.world.federate.options, "--yes")
    assert f"Noorphansof{space.node}." in told, told
    assert "Nottouched" in told, told
    assert belongings(beside) == theirs, beside.explain()
    beside.world.start_federate()
    beside.wait_mirror_gone(name_of(orphan))
    wait_mirrored(beside, 2)
    assert belongings(space) == ours, space.explain()


def test_an_anchor_owns_the_mirrors_of_one_virtual_node(space: Space, beside: Space) -> None:
    """Deleting one virtual node's anchor uninstalls that node alone from the namespace."""
    space.run_pods("ours")
    beside.run_pods("theirs")
    ours = belongings(space)
    delete_anchor(beside)
    beside.wait("its mirrors go", lambda: not own_mirrors(beside))
    beside.wait("its node says so", lambda: ready_reason(beside.world) == NodeReason.UNINSTALLED)

    assert belongings(space) == ours, space.explain()
    assert ready_reason(space.world) == NodeReason.READY
    space.run_pods("another")
    beside.create(pod("waits", pod_spec(beside.node)))
    beside.wait_waiting("waits", PodReason.UNINSTALLED)
    reinstall(beside)
    beside.wait_phase("waits", "Running")


def test_what_one_virtual_node_runs_is_missing_in_the_offer_of_another(
    space: Space, beside: Space
) -> None:
    """A mirror lowers the offer of every virtual node of its target but its own (C14)."""

    def ahead() -> tuple[Decimal, Decimal]:
        """Say how many CPUs and pods more the node beside offers."""
        ours, theirs = (s.world.read_node()["status"]["allocatable"] for s in (space, beside))
        cpu, pods = (amount(theirs[name]) - amount(ours[name]) for name in ("cpu", "pods"))
        return cpu, pods

    space.wait("both offer the same", lambda: ahead() == (Decimal(0), Decimal(0)))
    busy = container(resources={"requests": {"cpu": "300m"}})
    beside.run_pod(pod("busy", pod_spec(beside.node, containers=[busy])))
    space.wait("only the other node offers less", lambda: ahead() == (amount("300m"), Decimal(1)))
    beside.delete_pod("busy")
    space.wait("both offer the same again", lambda: ahead() == (Decimal(0), Decimal(0)))


# -- a cluster that federates itself, and two that federate each other -----------------------------


def everything(spec: Json, node: str) -> Json:
    """Let a pod tolerate all taints, and land on one virtual node all the same."""
    return {**spec, "tolerations": TOLERATES_ALL, "nodeSelector": {"kubernetes.io/hostname": node}}


def submit_tolerant(space: Space) -> None:
    """Submit what goes to every node it may: a Deployment for the virtual one, and a DaemonSet."""
    space.create(deployment("web", everything(pod_spec(space.node), space.node), replicas=3))
    spec = {"containers": [container()], "tolerations": TOLERATES_ALL}
    space.create(daemon_set("everywhere", spec))


def expected_phases(space: Space) -> Counter[tuple[str, str]]:
    """Count what the hub should have of it: owner's kind and phase."""
    types = [labels_of(node).get("type") for node in space.hub.list("Node")]
    virtual = types.count("virtual-kubelet")
    return Counter(
        {
            ("ReplicaSet", "Running"): 3,
            ("DaemonSet", "Running"): len(types) - virtual,
            ("DaemonSet", "Pending"): virtual,
        }
    )


def stands(space: Space) -> bool:
    """Tell whether the Deployment is mirrored, and the DaemonSet runs on all real nodes."""
    phases = Counter(
        (found["metadata"]["ownerReferences"][0]["kind"], phase_of(found)) for found in space.pods()
    )
    return phases == expected_phases(space) and len(space.mirrors()) == 3


def wait_at_rest(*spaces: Space) -> None:
    """Wait until everything stands, and make sure that nothing more happens."""
    first, *_ = spaces

    def all_stand() -> bool:
        return all(map(stands, spaces))

    first.wait("all pods run", all_stand)
    first.hold("there are no more", all_stand, seconds=SETTLED_SECONDS)


def assert_no_mirror_of_a_mirror(space: Space) -> None:
    """Make sure, by all that ever happened on both sides, that mirroring went one step far."""
    space.assert_one_mirror_each()
    for record in (space.world.hub_record, space.world.target_record):
        mirrors = {event.uid for event in record.events() if event.hub_pod_uid}
        again = [event for event in record.events() if event.hub_pod_uid in mirrors]
        assert not again, again[:3]


def pods_ever(world: World, *namespaces: str) -> int:
    """Count the pods there ever were in namespaces of the hub."""
    return sum(len(world.hub_record.histories(namespace)) for namespace in namespaces)


def test_a_cluster_that_is_its_own_target_runs_mirrors_on_its_real_nodes(
    worlds: Worlds, other: LocalCluster
) -> None:
    """A cluster that federates itself runs the mirrors on its real node, once, and lets them go."""
    with worlds.world(node="itself", hub=other, target=other) as world:
        space = Space(world, "itself")
        space.open()
        submit_tolerant(space)
        wait_at_rest(space)
        assert {m["spec"]["nodeName"] for m in space.mirrors()} == {"other-node-0"}
        assert_no_mirror_of_a_mirror(space)
        ever = pods_ever(world, space.namespace, space.target_namespace)
        assert ever == expected_phases(space).total() + 3
        space.close()


@pytest.fixture(scope="module")
def neighbours(
    worlds: Worlds, other: LocalCluster, target: TestCluster
) -> Iterator[tuple[World, World]]:
    """Two clusters, each with a virtual node for the other."""
    with (
        worlds.world(node="over-there", hub=other, target=target) as out,
        worlds.world(node="over-here", hub=target, target=other) as back,
    ):
        yield out, back


@pytest.fixture
def there_and_back(neighbours: tuple[World, World]) -> Iterator[tuple[Space, Space]]:
    """A namespace in each of both."""
    spaces = Space(neighbours[0], "out"), Space(neighbours[1], "back")
    for space in spaces:
        space.open()
    yield spaces
    for space in spaces:
        space.close()


def test_two_clusters_that_federate_each_other_hand_no_pod_to_and_fro(
    there_and_back: tuple[Space, Space], measured: Measurements
) -> None:
    """Pods that tolerate everything go one step, from their hub to a real node of the other."""
    for space in there_and_back:
        submit_tolerant(space)
    wait_at_rest(*there_and_back)
    for space in there_and_back:
        hosts = {m["spec"]["nodeName"] for m in space.mirrors()}
        assert not hosts & {"over-there", "over-here"}, hosts
        assert_no_mirror_of_a_mirror(space)
        ever = pods_ever(space.world, space.namespace)
        measured.note(f"pods ever in the hub of {space.node}", ever)
        assert ever == expected_phases(space).total()


def test_a_pod_with_the_marks_of_a_mirror_is_not_mirrored(
    there_and_back: tuple[Space, Space],
) -> None:
    """In a cluster that is target and hub at once, a pod made like a mirror goes no further.

    Whether only its labels were copied or its annotations too: the mirror it was copied from stays.
    """
    out, back = there_and_back
    out.run_pods("model")
    model = out.mirror("model")
    assert model is not None
    marks = {"labels": labels_of(model), "annotations": annotations_of(model)}
    back.create(pod("labels-only", pod_spec(back.node), labels=marks["labels"]))
    back.wait_waiting("labels-only", PodReason.MIRROR_OF_MIRROR)
    back.hold(
        "it is not mirrored, and nobody removes it",
        lambda: (
            (found := back.pod("labels-only")) is not None
            and not is_terminating(found)
            and not back.mirrors()
        ),
        seconds=SETTLED_SECONDS,
    )
    back.create(pod("copy", pod_spec(back.node), **marks))
    back.wait("the copy, which claims to be a second run, is gone", lambda: not back.pod("copy"))
    assert not back.mirrors()
    assert out.mirror("model") == model
