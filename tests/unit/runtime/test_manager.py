"""The virtual nodes of a process, each supervised for itself (C2, C13).

Time is virtual. The targets' clients are handed out by a stand-in for `connect`.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, cast

import pytest

from federate.cluster.client import ClusterClient
from federate.errors import Unreachable
from federate.garbage.sweeper import Sweeper
from federate.model.objects import JsonDict, ObjectKey
from federate.model.resources import LEASES, NODES, PODS
from federate.node.capacity import CapacityRules
from federate.runtime import manager, virtual_node
from federate.runtime.settings import Settings, TargetSettings
from federate.runtime.telemetry import Metrics, Telemetry
from federate.runtime.virtual_node import VirtualNode
from tests.support.builders import pod
from tests.support.clock import virtual_loop, virtual_time
from tests.support.fakeclient import Call, Delay, FakeClient, Fault
from tests.support.fakecluster import FakeCluster


class Stage:
    """A hub, targets by name, and the process between them."""

    def __init__(self, patch: pytest.MonkeyPatch, *names: str) -> None:
        clock = virtual_loop().time
        self.hub = FakeCluster("hub", clock)
        self.hub.add_namespace("kube-node-lease")
        self.targets = {name: FakeCluster(name, clock) for name in names}
        self.clients: list[FakeClient] = []
        self.connected_at: list[float] = []
        self.unconnectable = ""
        self.nodes: list[VirtualNode] = []
        patch.setattr(virtual_node, "connect", self._connect)

    async def _connect(self, kubeconfig: Path, *, name: str, **_options: Any) -> FakeClient:
        self.connected_at.append(virtual_loop().time())
        if name == self.unconnectable:
            await asyncio.sleep(60.0)
            raise Unreachable("no answer")
        self.clients.append(self.targets[name].client())
        return self.clients[-1]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        settings = Settings(
            hub_kubeconfig=Path("hub"),
            targets=tuple(
                TargetSettings(
                    name=name, kubeconfig=Path(name), capacity=CapacityRules.fixed({"cpu": "4"})
                )
                for name in self.targets
            ),
            identity="this-process",
            node_address="10.0.0.9",
        )
        hub = cast(ClusterClient, self.hub.client())
        telemetry = Telemetry(metrics=Metrics(version="0"))
        task = asyncio.create_task(manager._work(settings, hub, telemetry, self.nodes))
        try:
            yield
            assert not task.done()
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    def submit(self, name: str, node: str) -> None:
        body = pod(name).bound_to(node).build()
        del body["metadata"]["uid"]
        self.hub.add(PODS, body)

    def mirrors(self, target: str) -> list[JsonDict]:
        return [obj for resource, obj in self.targets[target].store.all() if resource == PODS]

    def is_announced(self, node: str) -> bool:
        return self.hub.find(NODES, ObjectKey("", node)) is not None


@virtual_time
async def test_c13_a_crash_of_any_part_ends_the_virtual_node_and_starts_it_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its connections are closed, and each new start comes later, until it lives again."""
    stage = Stage(monkeypatch, "edge")
    lived = Sweeper.run
    crashes = 0

    async def crash(sweeper: Sweeper) -> None:
        nonlocal crashes
        if crashes < 3:
            crashes += 1
            raise RuntimeError("a part broke")
        await lived(sweeper)

    monkeypatch.setattr(Sweeper, "run", crash)
    async with stage.running():
        await asyncio.sleep(120.0)
        assert crashes == 3
        starts = stage.connected_at
        pauses = [later - sooner for sooner, later in itertools.pairwise(starts)]
        assert len(pauses) == 3
        assert pauses[0] < pauses[1] < pauses[2], pauses
        assert [client._closed for client in stage.clients] == [True, True, True, False]
        assert {watch.client for watch in stage.targets["edge"].store.watches} == {"edge"}
        # Mirrors, anchors and Events.
        assert len(stage.targets["edge"].store.watches) == 3, "only the living one watches"
        assert stage.nodes[0].trouble == ""
        stage.submit("a", "edge")
        await asyncio.sleep(5.0)
        assert len(stage.mirrors("edge")) == 1


@virtual_time
async def test_c13_a_lost_lease_stops_all_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """When another holds the lease, this process stands by and is silent."""
    stage = Stage(monkeypatch, "edge")
    async with stage.running():
        await asyncio.sleep(20.0)
        assert stage.is_announced("edge")
        lease = ObjectKey("kube-system", "federate-edge")

        def take(found: JsonDict) -> None:
            found["spec"].update(holderIdentity="another", leaseTransitions=1)

        stage.hub.edit(LEASES, lease, take)
        await asyncio.sleep(10.0)
        before = len(stage.hub.writes()) + len(stage.targets["edge"].writes())
        stage.submit("a", "edge")
        for _ in range(6):
            await asyncio.sleep(5.0)
            stage.hub.edit(
                LEASES, lease, lambda found: found["spec"].update(renewTime=stage.hub.now())
            )
        assert len(stage.hub.writes()) + len(stage.targets["edge"].writes()) == before
        assert stage.nodes[0].leading is None
        assert stage.nodes[0].is_ready, "it stands by"


@virtual_time
@pytest.mark.parametrize("hangs", ["connect", "first listing"])
async def test_c2_a_hanging_target_keeps_no_other_from_starting(
    hangs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each virtual node starts for itself; the one whose target hangs starts when it answers."""
    stage = Stage(monkeypatch, "mute", "edge")

    def mute(call: Call) -> Fault | None:
        return Delay(3600.0) if call.verb == "list" else None

    if hangs == "connect":
        stage.unconnectable = "mute"
    else:
        stage.targets["mute"].faults = mute
    async with stage.running():
        await asyncio.sleep(20.0)
        assert stage.is_announced("edge")
        assert not stage.is_announced("mute")
        assert [node.is_ready for node in stage.nodes] == [False, True]
        stage.submit("a", "edge")
        stage.submit("b", "mute")
        await asyncio.sleep(5.0)
        assert len(stage.mirrors("edge")) == 1
        assert stage.mirrors("mute") == []
        stage.unconnectable, stage.targets["mute"].faults = "", None
        await asyncio.sleep(120.0)
        assert stage.is_announced("mute")
        assert len(stage.mirrors("mute")) == 1


@virtual_time
async def test_a_hub_that_moved_is_served_by_a_new_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """C72: nothing learnt from one hub, and no connection to it, is used for another."""
    hub = FakeCluster("hub", virtual_loop().time)
    clients: list[FakeClient] = []
    moves: list[Callable[[], None]] = []
    served: list[FakeClient] = []

    async def connect(_path: Path, *, on_moved: Callable[[], None], **_options: Any) -> FakeClient:
        clients.append(hub.client())
        moves.append(on_moved)
        return clients[-1]

    async def serve(
        _settings: Settings, client: FakeClient, _telemetry: Telemetry, ends: manager.Ends
    ) -> None:
        served.append(client)
        waits = [asyncio.ensure_future(end.wait()) for end in (ends.stop, ends.moved)]
        _, left = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in left:
            wait.cancel()

    monkeypatch.setattr(manager, "connect", connect)
    monkeypatch.setattr(manager, "_serve", serve)
    stop = asyncio.Event()
    settings = Settings(hub_kubeconfig=Path("hub"), targets=(), identity="this-process")
    telemetry = Telemetry(metrics=Metrics(version="0"))
    task = asyncio.create_task(manager.run_process(settings, telemetry=telemetry, stop=stop))
    await asyncio.sleep(1.0)
    moves[0]()
    await asyncio.sleep(1.0)
    assert served == clients
    assert len(clients) == 2
    assert clients[0]._closed
    assert not task.done()
    stop.set()
    await task
    assert clients[1]._closed
