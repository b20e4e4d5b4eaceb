"""What a leader runs, wired as in the product, between two clusters in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from pathlib import Path

import pytest

from federate.cluster.upstream import OpenCall, Reply, UpstreamCall
from federate.errors import LeadershipLost, ServerFault, TargetChanged, Unreachable
from federate.model.objects import JsonDict, ObjectKey, annotations_of, labels_of, uid_of
from federate.model.pods import phase_of
from federate.model.resources import LEASES, NODES, PODS
from federate.node.capacity import CapacityRules
from federate.runtime.leading import Leading, LeadingPorts
from federate.runtime.settings import TargetSettings
from federate.runtime.telemetry import Metrics
from tests.support.builders import pod
from tests.support.clock import virtual_loop, virtual_time
from tests.support.fakeclient import Call, Fault, LostRequest, Refuse
from tests.support.fakecluster import FakeCluster
from tests.support.scene import SCOPE, TARGET_NAMESPACE, NoEvents

NODE = ObjectKey("", "edge")
LEASE = ObjectKey("kube-node-lease", "edge")
A = ObjectKey("default", "a")
MIRROR = ObjectKey(TARGET_NAMESPACE, "a")


class Stage:
    """Two clusters, and a leader between them."""

    def __init__(self, *, capacity: dict[str, str] | None = None) -> None:
        self.hub = FakeCluster("hub", virtual_loop().time)
        self.target = FakeCluster("target", virtual_loop().time)
        self.hub.add_namespace("kube-node-lease")
        self.target.documents["/version"] = {"gitVersion": "v1.34.4"}
        self.capacity = capacity
        self.is_ours = True
        self.is_distinct = asyncio.Event()
        self.is_distinct.set()

    def fence(self) -> None:
        if not self.is_ours:
            raise LeadershipLost("not ours")

    async def _agree(self) -> None:
        pass

    def build(self, *, open_call: OpenCall | None = None) -> Leading:
        return Leading(
            TargetSettings(
                name="edge",
                kubeconfig=Path("x"),
                capacity=CapacityRules.fixed(self.capacity)
                if self.capacity is not None
                else CapacityRules(),
            ),
            scope=SCOPE,
            ports=LeadingPorts(
                hub=self.hub.client(),
                target=self.target.client(),
                events=NoEvents(),
                fence=self.fence,
                confirm_hub=self._agree,
                metrics=Metrics(version="0"),
                is_distinct=self.is_distinct,
                open_call=open_call,
            ),
            node_address="10.0.0.9",
            federate_version="0",
        )

    @asynccontextmanager
    async def leading(self) -> AsyncIterator[Leading]:
        leading = self.build()
        task = asyncio.create_task(leading.run())
        try:
            yield leading
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    def submit(self, name: str) -> None:
        body = pod(name).bound_to("edge").with_restart_policy("Never").build()
        del body["metadata"]["uid"]
        self.hub.add(PODS, body)

    def node(self) -> JsonDict | None:
        return self.hub.find(NODES, NODE)


@virtual_time
async def test_the_node_is_announced_last() -> None:
    """Caches first, then the pod controller, then the Node (C13): no cache, no Node."""
    stage = Stage(capacity={"cpu": "4"})

    def blind(call: Call) -> Fault | None:
        return LostRequest() if (call.client, call.verb) == ("target", "list") else None

    stage.target.faults = blind
    async with stage.leading() as leading:
        await asyncio.sleep(60.0)
        assert stage.node() is None
        stage.target.faults = None
        await asyncio.sleep(40.0)
        assert leading.is_announced
        node = stage.node()
        assert node is not None
        assert labels_of(node)["type"] == "virtual-kubelet"
        assert node["status"]["nodeInfo"]["kubeletVersion"].startswith("v1.34.4")
        assert stage.hub.find(LEASES, LEASE) is not None


@virtual_time
async def test_a_pod_is_mirrored_told_and_ended() -> None:
    """Down, up and away, through the wiring of the product."""
    stage = Stage(capacity={"cpu": "4"})
    async with stage.leading() as leading:
        await asyncio.sleep(3.0)
        stage.submit("a")
        await asyncio.sleep(3.0)
        stage.target.schedule(MIRROR, "worker")
        stage.target.set_pod_status(MIRROR, phase="Running")
        await asyncio.sleep(2.0)
        assert phase_of(stage.hub.read(PODS, A)) == "Running"
        assert leading.gauge("federate_hub_pods") == 1.0
        assert leading.gauge("federate_mirrors") == 1.0
        assert leading.gauge("federate_target_reachable") == 1.0
        with pytest.raises(KeyError):
            leading.gauge("other")
        stage.hub.delete_by_user(PODS, A)
        await asyncio.sleep(2.0)
        stage.target.finish_termination(MIRROR)
        await asyncio.sleep(2.0)
        assert stage.hub.find(PODS, A) is None
        assert stage.target.find(PODS, MIRROR) is None


@virtual_time
async def test_rest_costs_no_writes_but_leases() -> None:
    """With a running pod and nothing happening, a minute sees lease renewals only."""
    stage = Stage()
    stage.target.add(
        NODES,
        {
            "metadata": {"name": "worker"},
            "status": {
                "allocatable": {"cpu": "8", "memory": "16Gi", "pods": "110"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        },
    )
    async with stage.leading():
        await asyncio.sleep(3.0)
        stage.submit("a")
        await asyncio.sleep(3.0)
        stage.target.schedule(MIRROR, "worker")
        stage.target.set_pod_status(MIRROR, phase="Running")
        await asyncio.sleep(60.0)
        hub, target = len(stage.hub.writes()), len(stage.target.writes())
        await asyncio.sleep(60.0)
        written = [str(call) for call in stage.hub.writes()[hub:] if call.resource != LEASES]
        assert written == []
        assert stage.target.writes()[target:] == []
        assert 4 <= len(stage.hub.writes()) - hub <= 8


@virtual_time
async def test_a_lost_event_is_noticed_by_the_comparison() -> None:
    """A mirror whose end no watch told of is noticed within seconds (C43)."""
    stage = Stage(capacity={"cpu": "4"})
    async with stage.leading():
        await asyncio.sleep(3.0)
        stage.submit("a")
        await asyncio.sleep(3.0)
        stage.target.store.remove(PODS, MIRROR)
        for watching in stage.target.store.watches:
            while not watching.messages.empty():
                watching.messages.get_nowait()
        await asyncio.sleep(12.0)
        assert phase_of(stage.hub.read(PODS, A)) == "Failed"


@virtual_time
async def test_a_new_leader_remembers_the_anchors() -> None:
    """The Node carries the memory of anchors from one leadership to the next."""
    stage = Stage(capacity={"cpu": "4"})
    async with stage.leading():
        await asyncio.sleep(3.0)
        stage.submit("a")
        await asyncio.sleep(3.0)
    node = stage.node()
    assert node is not None
    assert TARGET_NAMESPACE in annotations_of(node)["federate.dev/anchors"]
    created = [c for c in stage.target.writes() if c.verb == "create"]
    async with stage.leading():
        await asyncio.sleep(3.0)
        stage.submit("b")
        await asyncio.sleep(3.0)
        again = [c for c in stage.target.writes() if c.verb == "create"][len(created) :]
        assert [str(c) for c in again] == [f"create pods {TARGET_NAMESPACE}/b"]


@virtual_time
async def test_two_namespaces_at_once_are_both_remembered() -> None:
    """Anchors recorded side by side are both on the Node, at once and not at some later write."""
    stage = Stage(capacity={"cpu": "4"})
    async with stage.leading():
        await asyncio.sleep(3.0)
        names = [f"ns-{number}" for number in range(6)]
        for name in names:
            body = pod("a", namespace=name).bound_to("edge").build()
            body["metadata"]["uid"] = f"uid-{name}"
            stage.hub.add(PODS, body)
        await asyncio.sleep(0.5)
        node = stage.node()
        assert node is not None
        told = annotations_of(node)["federate.dev/anchors"]
        assert all(f"-{name}" in told for name in names), told


@virtual_time
async def test_a_lost_lease_ends_everything() -> None:
    """The first fence that is found closed ends all parts, and nothing is written after it."""
    stage = Stage(capacity={"cpu": "4"})
    leading = stage.build()
    task = asyncio.create_task(leading.run())
    await asyncio.sleep(3.0)
    stage.is_ours = False
    before = len(stage.hub.writes()) + len(stage.target.writes())
    stage.submit("a")
    await asyncio.sleep(15.0)
    assert task.done()
    assert isinstance(task.exception(), BaseExceptionGroup)
    assert len(stage.hub.writes()) + len(stage.target.writes()) == before


@virtual_time
async def test_a_target_that_comes_back_wakes_every_pod() -> None:
    """Pods that arrived during an outage say so, and start when the target answers again."""
    stage = Stage(capacity={"cpu": "4"})
    async with stage.leading():
        await asyncio.sleep(3.0)
        stage.submit("b")
        await asyncio.sleep(3.0)
        stage.target.go_down()
        await asyncio.sleep(30.0)
        stage.submit("a")
        await asyncio.sleep(10.0)
        assert stage.hub.read(PODS, A)["status"]["reason"] == "TargetUnreachable"
        stage.target.come_up()
        await asyncio.sleep(40.0)
        assert uid_of(stage.target.read(PODS, MIRROR))


@virtual_time
async def test_c3_no_pod_is_touched_before_it_is_sure_that_the_target_is_another_cluster() -> None:
    """With namespaces `same` a target that does not tell who it is gets no mirrors."""
    stage = Stage(capacity={"cpu": "4"})
    stage.is_distinct.clear()
    stage.submit("a")
    async with stage.leading():
        await asyncio.sleep(20.0)
        assert stage.target.writes() == []
        stage.is_distinct.set()
        await asyncio.sleep(20.0)
        assert stage.target.find(PODS, MIRROR) is not None


@virtual_time
@pytest.mark.parametrize("is_there_first", [True, False])
async def test_c3_the_pods_of_a_strangers_node_stay_untouched(is_there_first: bool) -> None:
    """A target named like a real node of the hub: neither that Node nor its pods are written."""
    stage = Stage(capacity={"cpu": "4"})
    stranger: JsonDict = {"kind": "Node", "metadata": {"name": "edge"}, "spec": {}, "status": {}}
    if is_there_first:
        stage.hub.add(NODES, stranger)
        stage.hub.add(PODS, pod("db").bound_to("edge").running().build())
    async with stage.leading():
        await asyncio.sleep(5.0)
        if not is_there_first:
            node = stage.node()
            assert node is not None
            stage.hub.edit(NODES, NODE, lambda n: n["metadata"].pop("annotations"))
            stage.hub.add(PODS, pod("db").bound_to("edge").running().build())
        await asyncio.sleep(60.0)
        stays = stage.hub.read(PODS, ObjectKey("default", "db"))
        assert phase_of(stays) == "Running"
        assert not annotations_of(stays)
        assert not [c for c in stage.hub.writes() if c.resource is PODS]
        assert not [c for c in stage.target.writes() if c.resource is PODS]


@virtual_time
async def test_c3_no_pod_is_touched_while_no_node_is_registered() -> None:
    """Without a Node nobody knows whose pods of that name are: they wait until it stands again."""
    stage = Stage(capacity={"cpu": "4"})

    def no_node(call: Call) -> Fault | None:
        hit = (call.verb, call.resource) == ("create", NODES)
        return Refuse(ServerFault("etcd", status=500)) if hit else None

    async with stage.leading():
        await asyncio.sleep(3.0)
        stage.hub.faults = no_node
        stage.hub.delete_by_user(NODES, NODE)
        stage.submit("a")
        await asyncio.sleep(60.0)
        assert stage.node() is None
        assert not [c for c in stage.hub.writes() if c.resource == PODS]
        assert not [c for c in stage.target.writes() if c.resource == PODS]
        stage.hub.faults = None
        await asyncio.sleep(30.0)
        assert stage.node() is not None
        assert stage.target.find(PODS, MIRROR) is not None


@virtual_time
async def test_c14_what_the_target_added_is_given_back_with_the_mirror() -> None:
    """A sidecar of the target lowers the offer from the create's reply on, until its end."""
    stage = Stage()
    stage.target.add(
        NODES,
        {
            "metadata": {"name": "worker"},
            "status": {
                "allocatable": {"cpu": "8", "memory": "16Gi", "pods": "110"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        },
    )

    def inject(call: Call) -> Fault | None:
        if (call.client, call.verb, call.resource) == ("target", "create", PODS):
            assert call.body is not None
            sidecar = {"name": "proxy", "image": "p", "resources": {"requests": {"cpu": "1"}}}
            call.body["spec"]["containers"].append(sidecar)  # the server gets this very body
        return None

    def offered() -> str:
        node = stage.node()
        assert node is not None
        return str(node["status"]["allocatable"]["cpu"])

    stage.target.faults = inject
    async with stage.leading():
        await asyncio.sleep(3.0)
        stage.submit("a")
        await asyncio.sleep(3.0)
        assert offered() == "7"
        stage.hub.delete_by_user(PODS, A)
        await asyncio.sleep(5.0)
        assert stage.target.find(PODS, MIRROR) is None
        assert offered() == "8"


@virtual_time
async def test_no_stream_is_opened_past_a_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease that is lost, a target that became another cluster: names may be others' now."""
    opened: list[UpstreamCall] = []

    def open_call(call: UpstreamCall) -> AbstractAsyncContextManager[Reply]:
        opened.append(call)
        return nullcontext(Reply(status=200, headers=()))

    def changed() -> None:
        raise TargetChanged("another cluster")

    stage = Stage()
    leading = stage.build(open_call=open_call)
    assert leading._kubelet is not None
    opening = leading._kubelet._ports.open_call
    call = UpstreamCall(method="GET", path="/api")
    async with opening(call) as reply:
        assert reply.status == 200
    stage.is_ours = False
    with pytest.raises(Unreachable, match="not ours"):
        opening(call)
    stage.is_ours = True
    monkeypatch.setattr(leading._heartbeat.probe, "fence", changed)
    with pytest.raises(TargetChanged):
        opening(call)
    assert opened == [call]
