"""The virtual nodes of a process, each supervised for itself (C2, C13).

Time is virtual. The targets' clients are handed out by a stand-in for `connect`.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from federate.cluster.client import ClusterClient
from federate.errors import ConfigError, Unreachable
from federate.garbage.sweeper import Sweeper
from federate.leave.tenure import SEEN_SECONDS
from federate.model.marks import LEFT_ANNOTATION
from federate.model.objects import JsonDict, ObjectKey
from federate.model.resources import LEASES, NODES, PODS
from federate.node.capacity import CapacityRules
from federate.runtime import manager, virtual_node
from federate.runtime.following import Following
from federate.runtime.settings import KubeletSettings, Settings, TargetSettings
from federate.runtime.telemetry import Metrics, Telemetry
from federate.runtime.virtual_node import VirtualNode
from tests.support.builders import pod
from tests.support.clock import virtual_loop, virtual_time
from tests.support.fakeclient import Call, Delay, FakeClient, Fault, LostRequest
from tests.support.fakecluster import FakeCluster


def target_settings(name: str, **changed: Any) -> TargetSettings:
    return TargetSettings(
        name=name,
        kubeconfig=Path(name),
        capacity=CapacityRules.fixed({"cpu": "4", "pods": "10"}),
        kubelet=KubeletSettings(is_served=False),  # its sockets know no virtual time
        **{"node_address": "192.0.2.9", **changed},
    )


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
        self.wrong = ""
        self.hub_identity: str | None = None
        self.node_address: str | None = "192.0.2.9"
        self.names: tuple[str, ...] = names
        """The virtual nodes that are there from the start."""
        self.removed: list[str] = []
        self._process: manager.Process | None = None
        self.service: manager.Service | None = None
        patch.setattr(virtual_node, "connect", self._connect)

    async def _connect(self, kubeconfig: Path, *, name: str, **_options: Any) -> FakeClient:
        self.connected_at.append(virtual_loop().time())
        if name == self.wrong:
            raise ConfigError("no such context")
        if name == self.unconnectable:
            await asyncio.sleep(60.0)
            raise Unreachable("no answer")
        self.clients.append(self.targets[name].client())
        return self.clients[-1]

    @property
    def process(self) -> manager.Process:
        assert self._process is not None
        return self._process

    @property
    def nodes(self) -> list[VirtualNode]:
        assert self.service is not None
        return [seat.node for seat in self.service.seats if seat.node is not None]

    def settings(self, *names: str, **changed: Any) -> Settings:
        """Settings of virtual nodes by these names; of all targets without."""
        return Settings(
            hub_kubeconfig=Path("hub"),
            targets=tuple(
                target_settings(name, node_address=self.node_address)
                for name in names or self.targets
            ),
            identity="this-process",
            **changed,
        )

    @asynccontextmanager
    async def running(self, following: Following | None = None) -> AsyncIterator[None]:
        hub = cast(ClusterClient, self.hub.client())
        self._process = manager.Process(
            self.settings(*self.names, hub_identity=self.hub_identity),
            telemetry=Telemetry(metrics=Metrics(version="0")),
            following=following,
            on_removed=lambda target: self.removed.append(target.name),
        )
        self.service = manager.Service(self._process, hub)
        task = asyncio.create_task(self.service.run())
        try:
            yield
            assert not task.done() or task.exception() is not None
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
        # Mirrors, anchors, companions and Events.
        assert len(stage.targets["edge"].store.watches) == 4, "only the living one watches"
        assert stage.nodes[0].trouble == ""
        stage.submit("a", "edge")
        await asyncio.sleep(5.0)
        assert len(stage.mirrors("edge")) == 1


@virtual_time
async def test_c62_a_new_address_of_this_host_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The virtual node begins anew with it; having no way to the hub is no address.

    One of two addresses that this host has stays, whichever the way to the hub begins with.
    """
    host = "192.0.2.9"

    async def at_once(find: Callable[[], str]) -> str:
        if not host:
            raise OSError(errno.EMFILE, "Too many open files")
        return find()

    monkeypatch.setattr(manager, "_address_towards", lambda _url: host)
    monkeypatch.setattr(asyncio, "to_thread", at_once)
    stage = Stage(monkeypatch, "edge")
    stage.node_address = None

    def told() -> Any:
        node = stage.hub.find(NODES, ObjectKey("", "edge"))
        return node and node["status"]["addresses"][0]["address"]

    async with stage.running():
        await asyncio.sleep(40.0)
        assert told() == host
        lives = len(stage.connected_at)
        host = ""
        await asyncio.sleep(100.0)
        host = "127.0.0.1"
        await asyncio.sleep(100.0)
        assert (told(), len(stage.connected_at)) == ("192.0.2.9", lives)
        host = "127.0.0.2"
        await asyncio.sleep(40.0)
        assert (told(), len(stage.connected_at)) == ("127.0.0.2", lives + 1)
        host = "192.0.2.10"
        await asyncio.sleep(100.0)
        assert (told(), len(stage.connected_at)) == ("127.0.0.2", lives + 1)
        assert stage.nodes[0].trouble == ""


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
async def test_c13_a_leader_is_ready_once_its_node_is_announced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not already with the lease: the host's address is looked up in between."""

    async def slowly(find: Callable[[], str]) -> str:
        await asyncio.sleep(5.0)
        return find()

    monkeypatch.setattr(manager, "_address_towards", lambda _url: "192.0.2.9")
    monkeypatch.setattr(asyncio, "to_thread", slowly)
    stage = Stage(monkeypatch, "edge")
    stage.node_address = None
    async with stage.running():
        for _ in range(100):
            await asyncio.sleep(0.1)
            (node,) = stage.nodes
            assert node.is_ready <= stage.is_announced("edge")
        assert node.is_ready


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

    async def serve(_process: manager.Process, client: FakeClient, ends: manager.Ends) -> None:
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
    process = manager.Process(settings, telemetry=telemetry)
    task = asyncio.create_task(manager.run_process(process, stop=stop))
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


# -- a configuration that changes ------------------------------------------------------------------


def take_over(stage: Stage, *targets: TargetSettings, **changed: Any) -> bool:
    assert stage.service is not None and stage.service._group is not None
    wanted = replace(stage.process.settings, targets=targets, **changed)
    return stage.process.take_over(stage.service._group, wanted)


@virtual_time
async def test_c15_virtual_nodes_come_change_and_go_while_others_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who is not named keeps connection, watches and pods; who goes leaves Node and mirrors."""
    stage = Stage(monkeypatch, "stays", "turns", "goes", "comes")
    stage.names = ("stays", "turns", "goes")
    async with stage.running():
        await asyncio.sleep(20.0)
        for name in stage.names:
            stage.submit(f"pod-{name}", name)
        await asyncio.sleep(5.0)
        uids = {name: [m["metadata"]["uid"] for m in stage.mirrors(name)] for name in stage.names}
        assert all(len(found) == 1 for found in uids.values())
        stays = stage.nodes[0]
        assert take_over(
            stage,
            target_settings("stays"),
            target_settings("turns", labels={"zone": "north"}),
            target_settings("comes"),
        )
        assert stage.removed == ["goes"]
        before = len(stage.targets["goes"].writes())
        await asyncio.sleep(30.0)
        stage.submit("pod-comes", "comes")
        stage.submit("late", "goes")
        await asyncio.sleep(30.0)
        assert stage.nodes[0] is stays
        clients = [client.name for client in stage.clients]
        assert sorted(clients) == ["comes", "goes", "stays", "turns", "turns"]
        assert [c.name for c in stage.clients if c._closed] == ["turns", "goes"]
        turned = stage.hub.find(NODES, ObjectKey("", "turns"))
        assert turned is not None and turned["metadata"]["labels"]["zone"] == "north"
        assert stage.is_announced("goes"), "its Node stays"
        assert len(stage.targets["goes"].writes()) == before
        assert len(stage.mirrors("comes")) == 1
        after = {name: [m["metadata"]["uid"] for m in stage.mirrors(name)] for name in stage.names}
        assert after == uids, "no mirror was touched"
        # What comes back goes on with what it left.
        assert take_over(stage, *(target_settings(name) for name in stage.targets))
        await asyncio.sleep(30.0)
        assert sorted(m["metadata"]["name"] for m in stage.mirrors("goes")) == ["late", "pod-goes"]
        assert uids["goes"][0] in [m["metadata"]["uid"] for m in stage.mirrors("goes")]


@virtual_time
@pytest.mark.parametrize("key", sorted(manager.HUB_KEYS))
async def test_another_hub_waits_for_a_start_with_all_else(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Virtual nodes that are meant for another hub never start at this one."""
    stage = Stage(monkeypatch, "edge", "new")
    stage.names = ("edge",)
    async with stage.running():
        await asyncio.sleep(20.0)
        with capture_logs() as logs:
            assert not take_over(
                stage, target_settings("new"), **{key: Path("x") if key.endswith("file") else "x"}
            )
        assert [entry["changed"] for entry in logs] == [manager.HUB_KEYS[key]]
        await asyncio.sleep(20.0)
        assert [node.settings.name for node in stage.nodes] == ["edge"]
        assert stage.removed == []


@virtual_time
async def test_what_belongs_to_the_process_is_told_and_the_rest_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The log says what waits for a start; virtual nodes do not wait for it."""
    stage = Stage(monkeypatch, "edge", "new")
    stage.names = ("edge",)
    async with stage.running():
        await asyncio.sleep(5.0)
        with capture_logs() as logs:
            targets = [target_settings(name) for name in ("edge", "new")]
            assert take_over(stage, *targets, log_level="debug", listen_port=1, listen_host="x")
        told = [entry["changed"] for entry in logs if "changed" in entry]
        assert told == ["listen, logLevel"]
        assert stage.process.settings.log_level == "info"
        await asyncio.sleep(20.0)
        assert stage.is_announced("new")


@virtual_time
async def test_what_only_the_user_can_mend_ends_the_process_at_its_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One kubeconfig without the context, of several: told before anybody relies on the rest."""
    stage = Stage(monkeypatch, "edge", "wrong")
    stage.wrong = "wrong"
    with pytest.raises(ConfigError, match="no such context"):
        async with stage.running():
            await asyncio.sleep(60.0)
    assert not any(watch for watch in stage.targets["edge"].store.watches)


@virtual_time
@pytest.mark.parametrize("when", ["added", "changed", "late"])
async def test_later_it_is_the_trouble_of_one_virtual_node(
    when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is tried again and again, and serves as soon as it is mended; the others never notice."""
    stage = Stage(monkeypatch, "edge", "wrong")
    if when == "added":
        stage.names = ("edge",)
    if when == "late":
        # It does not answer at first, and what is wrong shows when it does.
        stage.unconnectable = "wrong"
    async with stage.running():
        await asyncio.sleep(20.0)
        if when == "late":
            await asyncio.sleep(20.0)
            stage.unconnectable = ""
        stage.wrong = "wrong"
        turned = {} if when != "changed" else {"labels": {"zone": "north"}}
        if when != "late":
            take_over(stage, target_settings("edge"), target_settings("wrong", **turned))
        await asyncio.sleep(60.0)
        assert stage.service is not None
        assert stage.service.ready() == (False, "not ready: wrong")
        assert "no such context" in stage.nodes[1].trouble
        assert stage.is_announced("edge")
        stage.wrong = ""
        await asyncio.sleep(90.0)
        assert stage.service.ready() == (True, "ok")
        assert stage.is_announced("wrong")


@virtual_time
async def test_a_virtual_node_that_breaks_while_it_ends_does_not_start_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A failure on the way out must not take the place of the wish to end."""
    stage = Stage(monkeypatch, "edge", "broken")
    lived = Sweeper.run

    async def break_when_cancelled(sweeper: Sweeper) -> None:
        try:
            await lived(sweeper)
        except asyncio.CancelledError:
            raise RuntimeError("broke while ending") from None

    monkeypatch.setattr(Sweeper, "run", break_when_cancelled)
    async with stage.running():
        await asyncio.sleep(20.0)
        take_over(stage, target_settings("edge"))
        await asyncio.sleep(60.0)
        broken = [client for client in stage.clients if client.name == "broken"]
        assert [client._closed for client in broken] == [True]
        assert not stage.targets["broken"].store.watches


@virtual_time
async def test_c3_a_hub_may_be_given_another_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Marks carry the configured identity; whether the hub is the same is asked of its uid."""
    stage = Stage(monkeypatch, "edge")
    stage.hub_identity = "second-copy"
    async with stage.running():
        await asyncio.sleep(20.0)
        stage.submit("a", "edge")
        await asyncio.sleep(10.0)
        (mirror,) = stage.mirrors("edge")
        assert mirror["metadata"]["labels"]["federate.dev/hub"] == "second-copy"
        node = stage.hub.find(NODES, ObjectKey("", "edge"))
        assert node is not None
        assert node["metadata"]["annotations"]["federate.dev/hub"] == "second-copy"


@virtual_time
async def test_c15_a_node_that_was_left_is_not_registered_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`federate leave` marks the leader lease: that virtual node retires, the others go on."""
    stage = Stage(monkeypatch, "edge", "west")
    async with stage.running():
        await asyncio.sleep(20.0)

        def mark(lease: JsonDict) -> None:
            lease["metadata"].setdefault("annotations", {})[LEFT_ANNOTATION] = "now"

        lease = ObjectKey("kube-system", "federate-edge")
        stage.hub.edit(LEASES, lease, mark)
        await asyncio.sleep(10.0)
        assert "holderIdentity" not in stage.hub.read(LEASES, lease)["spec"]
        edge, west = stage.nodes
        assert (edge.is_left, west.is_left) == (True, False)
        stage.hub.delete_by_user(LEASES, lease)
        stage.hub.delete_by_user(NODES, ObjectKey("", "edge"))
        await asyncio.sleep(120.0)
        assert stage.hub.find(NODES, ObjectKey("", "edge")) is None
        assert edge.is_ready, "it has nothing more to do"
        assert stage.is_announced("west")


@virtual_time
async def test_c15_a_node_that_is_left_during_its_back_off_retires_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`federate leave` gives everybody seven seconds, however long the next start is away."""
    stage = Stage(monkeypatch, "edge")
    crashes = 0

    async def crash(_sweeper: Sweeper) -> None:
        nonlocal crashes
        await asyncio.sleep(1.0)
        crashes += 1
        raise RuntimeError("boom")

    monkeypatch.setattr(Sweeper, "run", crash)
    lease = ObjectKey("kube-system", "federate-edge")

    def mark(found: JsonDict) -> None:
        found["metadata"].setdefault("annotations", {})[LEFT_ANNOTATION] = "now"

    async with stage.running():
        while crashes < 6:  # noqa: ASYNC110 (the clock is virtual)
            await asyncio.sleep(0.5)
        await asyncio.sleep(2.0)
        [edge] = stage.nodes
        assert edge.trouble
        stage.hub.faults = lambda _call: LostRequest()
        await asyncio.sleep(6.0)  # a hub that does not answer ends no back-off
        assert [node.is_left for node in stage.nodes] == [False]
        stage.hub.faults = None
        stage.hub.edit(LEASES, lease, mark)
        await asyncio.sleep(SEEN_SECONDS)
        assert edge.is_left
        assert crashes == 6
