"""A kubeconfig that suddenly leads to another cluster hurts neither of the two, nor the hub (C5).

What federate does in the other cluster is read from that cluster's own audit log.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import uuid4

import pytest

from e2e.support.accounts import account_of
from e2e.support.audit import AuditLog, Request, arguments_for
from e2e.support.manifests import deployment, pod, pod_spec
from e2e.support.measuring import Measurements
from e2e.support.pods import (
    annotations_of,
    condition_of,
    is_ready,
    is_terminating,
    phase_of,
    uid_of,
)
from e2e.support.process import FederateProcess, run_cli
from e2e.support.witness import Json, Witness
from e2e.support.world import Space, World, wait_for
from e2e.support.worlds import Worlds
from e2e.testbed.fixtures import TARGET, TestbedFactory
from e2e.testbed.kubeconfigs import read_kubeconfig, write_kubeconfig
from e2e.testbed.local import LocalCluster
from e2e.testbed.provider import TestCluster

pytest_plugins = ["e2e.support.fixtures"]
pytestmark = pytest.mark.e2e

NOTICE_SECONDS = 15.0
"""From the replacement of the kubeconfig file to the word on the node (C5, C12)."""

BACK_SECONDS = 15.0
"""From the right file to a node that is well again: the file is read every 5 s, the pods after."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Other:
    """A cluster that nobody meant, and what it wrote down of its visitors."""

    cluster: LocalCluster
    witness: Witness
    log: AuditLog

    def requests(self) -> list[Request]:
        """Read what federate asked of it so far."""
        return self.log.requests(program="federate")

    def writes(self) -> list[str]:
        """Name federate's requests that were more than a read."""
        return [str(request) for request in self.requests() if request.is_write]

    def identity(self) -> str:
        """Read the cluster's identity."""
        found = self.witness.get("Namespace", "", "kube-system")
        assert found is not None
        return uid_of(found)


@pytest.fixture(scope="module")
def other(
    testbed_factory: TestbedFactory, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Other]:
    """A whole cluster of its own with an audit log."""
    folder = tmp_path_factory.mktemp("audit")
    spec = replace(
        TARGET,
        name="other-target",
        nodes=1,
        service_range="10.105.0.0/16",
        apiserver_arguments=arguments_for(folder),
    )
    cluster = testbed_factory.cluster(spec)
    witness = Witness(cluster.name, cluster.kubeconfig)
    yield Other(cluster=cluster, witness=witness, log=AuditLog(folder=folder))
    witness.close()
    cluster.stop()


class Signpost:
    """The kubeconfig file that federate reads, and that the test makes lead elsewhere."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def lead_to(self, cluster: TestCluster) -> float:
        """Replace the file, whole, as a tool would; returns when."""
        return self.lead_by(cluster.kubeconfig)

    def lead_by(self, kubeconfig: Path) -> float:
        """Put another kubeconfig in the place of the file; returns when.

        Its context has one name whatever it leads to, as with kubeadm: federate stays with the
        name it began with.
        """
        content = read_kubeconfig(kubeconfig)
        names = (content["current-context"], "the-target")
        [chosen] = [c for c in content["contexts"] if c["name"] == names[0]]
        content |= {"current-context": names[1], "contexts": [{**chosen, "name": names[1]}]}
        write_kubeconfig(self.file, content)
        return time.monotonic()


@contextmanager
def signposted(
    worlds: Worlds,
    *,
    node: str,
    hub: TestCluster,
    target: TestCluster,
    folder: Path,
    kubeconfig: Path | None = None,
    arguments: Sequence[str] = (),
) -> Iterator[tuple[World, Signpost]]:
    """Run federate with a kubeconfig of its own for its target: the cluster's, or one given."""
    signpost = Signpost(folder / "target.yaml")
    signpost.lead_by(kubeconfig or target.kubeconfig)
    with worlds.world(
        node=node, hub=hub, target=target, arguments=arguments, started=False
    ) as plain:
        options = replace(plain.federate.options, target=signpost.file)
        federate = FederateProcess(options, folder=folder)
        world = replace(plain, federate=federate)
        try:
            world.start_federate()
            yield world, signpost
        finally:
            federate.close()


def told(world: World) -> Json:
    return condition_of(world.read_node(), "federate.dev/TargetReachable")


def wait_told(world: World, reason: str) -> float:
    """Wait for the node's word on its target; returns when it was seen."""
    wait_for(
        f"the node says {reason}",
        lambda: told(world).get("reason") == reason,
        timeout_seconds=100.0,
        explain=world.federate.log_tail,
    )
    return time.monotonic()


def namespaces(witness: Witness) -> set[str]:
    return {ns["metadata"]["name"] for ns in witness.list("Namespace")}


def our_writes(space: Space) -> dict[str, tuple[bool, list[Json]]]:
    """Return by uid what federate did last to each mirror in the space's target.

    A kubelet there goes on writing, so versions say nothing.
    """
    return {
        uid_of(mirror): (
            is_terminating(mirror),
            [e for e in mirror["metadata"]["managedFields"] if e["manager"] == "federate"],
        )
        for mirror in space.mirrors()
    }


def running_pods(space: Space) -> set[str]:
    """Return the uids of the hub pods that run."""
    return {uid_of(p) for p in space.pods() if phase_of(p) == "Running"}


def accept(world: World, cluster: TestCluster) -> str:
    """Accept the cluster that answers, as an operator would; returns what was said."""
    done = run_cli("accept", world.node, "--hub", str(cluster.kubeconfig), "--yes")
    assert done.returncode == 0, done.stderr
    return done.stdout


def wait_replaced(space: Space, before: set[str], count: int) -> None:
    """Wait until so many pods are ready that were not there before."""

    def probe() -> bool:
        new = [p for p in space.pods() if uid_of(p) not in before]
        return len(new) == count and all(map(is_ready, new))

    space.wait("the owner's new pods are ready", probe)


def test_a_wrong_kubeconfig_hurts_nobody(
    worlds: Worlds,
    local_hub: LocalCluster,
    local_target: LocalCluster,
    other: Other,
    tmp_path: Path,
    measured: Measurements,
) -> None:
    """federate tells it, writes nothing there, fails nothing here; the right file heals all."""
    there_before, writes_before = namespaces(other.witness), other.writes()
    with signposted(
        worlds, node="misled", hub=local_hub, target=local_target, folder=tmp_path
    ) as found:
        world, signpost = found
        space = Space(world, "misled")
        space.open()
        space.create(deployment("web", pod_spec(space.node), replicas=3))
        space.run_pod(pod("once", pod_spec(space.node, restartPolicy="Never")))
        ended = space.run_pod(pod("ended", pod_spec(space.node)))
        space.wait_ready_pods(5)

        turned_at = signpost.lead_to(other.cluster)
        arrivals = iter(range(1000))

        def is_told() -> bool:
            # At every instant of the change there is a pod that wants to be created.
            space.create(pod(f"late-{next(arrivals)}", pod_spec(space.node)))
            return told(world).get("reason") == "TargetChanged"

        wait_for("the node tells it", is_told, timeout_seconds=75.0, explain=space.explain)
        seconds = time.monotonic() - turned_at
        measured.seconds("until another cluster is told", seconds, promise=NOTICE_SECONDS)
        late = next(arrivals)
        before = {uid_of(p) for p in space.pods()}
        running, mirrors = running_pods(space), our_writes(space)
        recorded = annotations_of(world.read_node())["federate.dev/target-identity"]
        assert recorded != other.identity()
        assert recorded in told(world)["message"]
        assert other.identity() in told(world)["message"]

        # A pod deleted, and federate started anew: nothing comes of it, in either cluster.
        space.delete_pod("ended")
        world.federate.stop()
        asked = len(other.requests())
        world.federate.start()
        wait_for("the new process asks who is there", lambda: len(other.requests()) >= asked + 2)
        space.hold(
            "all pods are as they were",
            lambda: (
                running_pods(space) == running
                and our_writes(space) == mirrors
                and told(world)["reason"] == "TargetChanged"
                and world.federate.is_running
            ),
            seconds=3.0,
        )

        turned_at = signpost.lead_to(local_target)
        seconds = wait_told(world, "TargetAnswers") - turned_at
        measured.seconds("until the right cluster is told", seconds, promise=BACK_SECONDS)
        space.wait_pod_gone("ended")
        space.wait_ready_pods(4 + late)
        assert {uid_of(p) for p in space.pods()} == before - {uid_of(ended)}
        failed = world.hub_record.find(
            lambda e: e.phase == "Failed" and e.uid != uid_of(ended), namespace=space.namespace
        )
        assert failed is None
        space.assert_one_mirror_each()
        assert other.writes() == writes_before
        assert namespaces(other.witness) == there_before
        space.close()


def test_another_cluster_takes_over_once_it_is_accepted(
    worlds: Worlds,
    local_hub: LocalCluster,
    local_target: LocalCluster,
    other: Other,
    tmp_path: Path,
    measured: Measurements,
) -> None:
    """Old mirrors are lost and left alone; owners replace them in the accepted cluster."""
    with signposted(
        worlds, node="moving", hub=local_hub, target=local_target, folder=tmp_path
    ) as found:
        world, signpost = found
        space = Space(world, "moving")
        space.open()
        space.create(deployment("web", pod_spec(space.node), replicas=2))
        space.run_pod(pod("once", pod_spec(space.node, restartPolicy="Never")))
        space.wait_ready_pods(3)
        before, mirrors = {uid_of(p) for p in space.pods()}, our_writes(space)
        signpost.lead_to(other.cluster)
        wait_told(world, "TargetChanged")

        said = accept(world, local_hub)
        accepted_at = time.monotonic()
        assert other.identity() in said
        assert "cluster on record: 3" in said
        wait_told(world, "TargetAnswers")
        wait_replaced(space, before, 2)
        seconds = time.monotonic() - accepted_at
        measured.note("from the acceptance to pods in the new cluster", f"{seconds:.2f} s")
        once = space.wait_phase("once", "Failed")
        assert once["status"]["reason"] == "MirrorLost"
        annotations = annotations_of(world.read_node())
        assert annotations["federate.dev/target-identity"] == other.identity()
        assert "federate.dev/accept-target" not in annotations

        moved = Space(replace(world, target=other.witness), "moved")
        moved.namespace, moved.target_namespace = space.namespace, space.target_namespace
        assert [phase_of(m) for m in moved.mirrors()] == ["Running"] * 2
        assert our_writes(space) == mirrors, "the old cluster is left as it was"
        moved.close()
        assert our_writes(space) == mirrors
        (remedy,) = (line.split()[3:] for line in said.splitlines() if "kubectl" in line)
        local_target.kubectl(*remedy)
        space.wait("the old mirrors are gone", lambda: not space.mirrors())


@pytest.mark.long
def test_a_confined_federate_is_not_misled_either(
    worlds: Worlds,
    local_hub: LocalCluster,
    local_target: LocalCluster,
    other: Other,
    tmp_path: Path,
) -> None:
    """It may read one namespace only, and the other cluster has one of that name."""
    team = f"e2e-team-{uuid4().hex[:4]}"
    rights = ("--side", "target", "--namespace", team)
    with ExitStack() as stack:
        files = []
        for cluster in (local_target, other.cluster):
            cluster.kubectl("create", "namespace", team)
            stack.callback(cluster.kubectl, "delete", "namespace", team, "--wait=false")
            files.append(
                stack.enter_context(account_of(cluster, *rights, folder=tmp_path, namespace=team))
            )
        world, signpost = stack.enter_context(
            signposted(
                worlds,
                node="team",
                hub=local_hub,
                target=local_target,
                folder=tmp_path,
                kubeconfig=files[0],
                arguments=("--namespaces", f"single={team}", "--capacity", "cpu=4,pods=20"),
            )
        )
        space = Space(world, "team")
        space.target_namespace = team
        space.open()
        before = other.writes()
        signpost.lead_by(files[1])  # before there is any anchor
        wait_told(world, "TargetChanged")
        space.create(pod("late", pod_spec(space.node)))
        space.hold(
            "nothing comes of it", lambda: told(world)["reason"] == "TargetChanged", seconds=3.0
        )
        signpost.lead_by(files[0])
        wait_told(world, "TargetAnswers")
        late = space.wait_running("late")
        assert other.writes() == before
        assert set(world.target_record.mirror_uids(team)) == {uid_of(late)}
        space.close()


@pytest.mark.long
def test_a_cluster_built_anew_at_its_address_is_another(
    worlds: Worlds, local_hub: LocalCluster, other: Other, measured: Measurements
) -> None:
    """Same address, same authority, empty storage: not written before it is accepted."""
    node = "rebuilt"
    with worlds.world(node=node, hub=local_hub, target=other.cluster) as world:
        space = Space(world, node)
        space.open()
        space.create(deployment("web", pod_spec(space.node), replicas=2))
        space.run_pod(pod("once", pod_spec(space.node, restartPolicy="Never")))
        space.wait_ready_pods(3)
        before = {uid_of(p) for p in space.pods()}
        worlds.forget(other.cluster)
        other.cluster.rebuild()
        served_at = time.monotonic()
        writes, there = other.writes(), namespaces(other.witness)
        seconds = wait_told(world, "TargetChanged") - served_at
        measured.seconds("until a cluster built anew is told", seconds, promise=NOTICE_SECONDS)
        space.hold(
            "no pod of the hub changes",
            lambda: running_pods(space) == before,
            seconds=5.0,
        )
        assert other.writes() == writes
        assert namespaces(other.witness) == there
        accept(world, local_hub)
        wait_told(world, "TargetAnswers")
        rebuilt = Space(replace(world, target=other.witness), node)
        rebuilt.namespace, rebuilt.target_namespace = space.namespace, space.target_namespace
        wait_replaced(rebuilt, before, 2)
        assert rebuilt.wait_phase("once", "Failed")["status"]["reason"] == "MirrorLost"
        rebuilt.close()
