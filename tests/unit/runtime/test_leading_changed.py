"""A leader whose target becomes another cluster, wired as in the product (C5)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from federate.cluster.port import ClusterPort
from federate.errors import TargetChanged
from federate.model.marks import ACCEPT_TARGET_ANNOTATION, TARGET_IDENTITY_ANNOTATION
from federate.model.objects import JsonDict, ObjectKey, annotations_of, condition_of, uid_of
from federate.model.pods import phase_of
from federate.model.resources import NAMESPACES, NODES, PODS
from federate.node.capacity import CapacityRules
from federate.runtime.leading import Leading, LeadingPorts
from federate.runtime.settings import TargetSettings
from federate.runtime.telemetry import Metrics
from tests.support.builders import pod
from tests.support.clock import virtual_loop, virtual_time
from tests.support.fakeclient import Delay
from tests.support.fakecluster import FakeCluster
from tests.support.scene import SCOPE, TARGET_NAMESPACE, NoEvents, agreed

NODE = ObjectKey("", "edge")
SYSTEM = ObjectKey("", "kube-system")
A, B = ObjectKey("default", "a"), ObjectKey("default", "b")
MIRROR_A, MIRROR_B = ObjectKey(TARGET_NAMESPACE, "a"), ObjectKey(TARGET_NAMESPACE, "b")


class Stage:
    """A hub, two clusters that could be its target, and leaders that follow one another."""

    def __init__(self) -> None:
        clock = virtual_loop().time
        self.hub = FakeCluster("hub", clock)
        self.hub.add_namespace("kube-node-lease")
        self.first, self.second = FakeCluster("first", clock), FakeCluster("second", clock)
        for cluster in (self.first, self.second):
            cluster.documents["/version"] = {"gitVersion": "v1.34.4"}
        self.target = self.first
        self.starts = 0
        self._leading: Leading | None = None

    async def live(self) -> None:
        """Lead, and begin anew where the target changed, as `VirtualNode` does."""
        while True:
            self.starts += 1
            self._leading = self._build()
            try:
                await self._leading.run()
            except* TargetChanged:
                pass
            await asyncio.sleep(1.0)

    def _build(self) -> Leading:
        is_distinct = asyncio.Event()
        is_distinct.set()
        return Leading(
            TargetSettings(
                name="edge",
                kubeconfig=Path("x"),
                capacity=CapacityRules.fixed({"cpu": "4", "pods": "9"}),
            ),
            scope=SCOPE,
            ports=LeadingPorts(
                hub=self.hub.client(),
                target=cast(ClusterPort, Replaceable(self)),
                events=NoEvents(),
                fence=lambda: None,
                confirm_hub=agreed,
                metrics=Metrics(version="0"),
                is_distinct=is_distinct,
            ),
            node_address="10.0.0.9",
            federate_version="0",
            memory=self._leading.register if self._leading is not None else None,
        )

    def submit(self, name: str) -> None:
        body = pod(name).bound_to("edge").with_restart_policy("Never").build()
        del body["metadata"]["uid"]
        self.hub.add(PODS, body)

    def run_mirror(self, key: ObjectKey) -> None:
        """Play the target's scheduler and kubelet."""
        self.target.schedule(key, "worker")
        self.target.set_pod_status(key, phase="Running")

    def node(self) -> JsonDict:
        return self.hub.read(NODES, NODE)

    def told(self) -> tuple[str, str]:
        condition = condition_of(self.node(), "federate.dev/TargetReachable") or {}
        return condition.get("status", ""), condition.get("reason", "")

    def accept(self, uid: str) -> None:
        word = {ACCEPT_TARGET_ANNOTATION: uid}
        self.hub.edit(NODES, NODE, lambda n: n["metadata"]["annotations"].update(word))


class Replaceable:
    """A client whose kubeconfig may lead elsewhere from one request to the next.

    A watch stays where it began, as a real connection does.
    """

    name = "target"

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stage.target.client("target"), name)


@asynccontextmanager
async def running(stage: Stage) -> AsyncIterator[Stage]:
    """Run up to where pod `a` runs in the first cluster."""
    task = asyncio.create_task(stage.live())
    try:
        await asyncio.sleep(3.0)
        stage.submit("a")
        await asyncio.sleep(3.0)
        stage.run_mirror(MIRROR_A)
        await asyncio.sleep(2.0)
        assert phase_of(stage.hub.read(PODS, A)) == "Running"
        yield stage
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def identity_of(cluster: FakeCluster) -> str:
    return uid_of(cluster.read(NAMESPACES, SYSTEM))


@pytest.mark.parametrize("first_is_gone", [False, True])
@virtual_time
async def test_c5_another_cluster_is_never_written_and_nothing_fails(first_is_gone: bool) -> None:
    """Told within seconds; pods stay as they are, and pointing back heals by itself."""
    async with running(Stage()) as s:
        writes = len(s.first.writes())
        if first_is_gone:
            s.first.go_down()
        s.target = s.second
        await asyncio.sleep(5.0)
        assert s.told() == ("False", "TargetChanged")
        s.submit("b")
        await asyncio.sleep(300.0)
        assert s.second.writes() == []
        assert phase_of(s.hub.read(PODS, A)) == "Running"
        assert phase_of(s.hub.read(PODS, B)) in ("", "Pending")
        assert s.starts == 2  # begun anew once, and then waiting: no crash loop
        if first_is_gone:
            s.first.come_up()
        s.target = s.first
        await asyncio.sleep(6.0)
        assert s.told() == ("True", "TargetAnswers")
        assert len(s.first.writes()) > writes
        s.run_mirror(MIRROR_B)
        await asyncio.sleep(2.0)
        assert phase_of(s.hub.read(PODS, B)) == "Running"
        assert phase_of(s.hub.read(PODS, A)) == "Running"
        assert s.second.writes() == []


@virtual_time
async def test_c5_deletions_wait_for_the_cluster_on_record() -> None:
    """A hub pod deleted meanwhile is not taken for ended, and its mirror goes on return."""
    async with running(Stage()) as s:
        s.target = s.second
        await asyncio.sleep(5.0)
        s.hub.delete_by_user(PODS, A)
        await asyncio.sleep(120.0)
        assert s.hub.find(PODS, A) is not None
        s.target = s.first
        await asyncio.sleep(6.0)
        s.first.finish_termination(MIRROR_A)
        await asyncio.sleep(2.0)
        assert s.hub.find(PODS, A) is None


@virtual_time
async def test_c5_nothing_is_written_between_the_discovery_and_the_end() -> None:
    """A hub that takes the word late holds no fence open: what is due meanwhile waits."""
    async with running(Stage()) as s:
        s.hub.faults = lambda call: (
            Delay(3600) if call.is_write and call.resource == NODES else None
        )
        s.target = s.second
        await asyncio.sleep(2.5)
        s.hub.delete_by_user(PODS, A)
        await asyncio.sleep(2.0)
        assert s.starts == 1
        assert s.second.writes() == []
        await asyncio.sleep(5.0)
        assert s.starts == 2
        assert s.second.writes() == []
        assert s.hub.find(PODS, A) is not None


@virtual_time
async def test_c5_an_accepted_cluster_takes_over() -> None:
    """The old mirrors are lost and said to be; the old cluster is left alone; new pods run."""
    async with running(Stage()) as s:
        s.target = s.second
        await asyncio.sleep(5.0)
        writes = len(s.first.writes())
        s.accept(identity_of(s.second))
        await asyncio.sleep(6.0)
        assert annotations_of(s.node())[TARGET_IDENTITY_ANNOTATION] == identity_of(s.second)
        assert s.told() == ("True", "TargetAnswers")
        lost = s.hub.read(PODS, A)
        assert (phase_of(lost), lost["status"]["reason"]) == ("Failed", "MirrorLost")
        s.submit("b")
        await asyncio.sleep(3.0)
        s.run_mirror(MIRROR_B)
        await asyncio.sleep(2.0)
        assert phase_of(s.hub.read(PODS, B)) == "Running"
        # The old cluster's watches are closed: what happens there is not told any more.
        s.first.set_pod_status(MIRROR_A, phase="Succeeded")
        await asyncio.sleep(30.0)
        assert phase_of(s.hub.read(PODS, A)) == "Failed"
        assert len(s.first.writes()) == writes
        assert phase_of(s.first.read(PODS, MIRROR_A)) == "Succeeded"


@virtual_time
async def test_c5_the_memory_outlives_a_node_deleted_while_we_begin_anew() -> None:
    """Or the next life would take whoever answers for the target."""
    async with running(Stage()) as s:
        s.target = s.second
        for _ in range(100):
            if s.told() == ("False", "TargetChanged"):
                break
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.5)
        assert s.starts == 1
        s.hub.delete_by_user(NODES, NODE)
        await asyncio.sleep(60.0)
        assert s.starts == 2
        assert s.told() == ("False", "TargetChanged")
        assert annotations_of(s.node())[TARGET_IDENTITY_ANNOTATION] == identity_of(s.first)
        assert phase_of(s.hub.read(PODS, A)) == "Running"
        assert s.second.writes() == []


@virtual_time
async def test_c5_leftovers_in_another_cluster_stay_until_it_is_accepted() -> None:
    """A cluster that served this virtual node once has mirrors with our very marks."""
    async with running(Stage()) as s:
        leftover = s.first.read(PODS, MIRROR_A)
        leftover["metadata"]["labels"]["federate.dev/hub-pod-uid"] = "long-gone"
        leftover["metadata"]["annotations"]["federate.dev/hub-pod-name"] = "gone"
        leftover["metadata"].update(name="gone")
        del leftover["metadata"]["ownerReferences"]
        s.second.add_namespace(TARGET_NAMESPACE)
        s.second.add(PODS, leftover)
        s.target = s.second
        await asyncio.sleep(120.0)
        assert s.second.writes() == []
        s.accept(identity_of(s.second))
        await asyncio.sleep(10.0)
        assert [str(call) for call in s.second.writes() if call.verb == "delete"] == [
            f"delete pods {TARGET_NAMESPACE}/gone"
        ]
