"""One virtual node's heartbeat against a hub and a target in memory, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from itertools import pairwise

import pytest

from federate.cluster.store import Store
from federate.errors import (
    Conflict,
    Forbidden,
    LeadershipLost,
    NotFound,
    NotOurs,
    ServerFault,
    TargetChanged,
    Unauthorized,
)
from federate.model.marks import (
    ACCEPT_TARGET_ANNOTATION,
    ANCHORS_ANNOTATION,
    REINSTALL_ANNOTATION,
    TARGET_IDENTITY_ANNOTATION,
)
from federate.model.objects import (
    JsonDict,
    ObjectKey,
    annotations_of,
    condition_of,
    labels_of,
    uid_of,
)
from federate.model.resources import CONFIGMAPS, LEASES, NAMESPACES, NODES
from federate.node.anchors import UNKNOWN_IDENTITY, NodeAnchors
from federate.node.heartbeat import Heartbeat, NodeIdentity, NodePorts
from federate.node.reachability import TargetState
from tests.support.clock import virtual_time
from tests.support.fakeclient import Call, Delay, Fault, LostReply, Refuse
from tests.support.fakecluster import EPOCH, FakeCluster
from tests.support.views import SCOPE, condition_status

KEY = ObjectKey("", "edge")
LEASE = ObjectKey("kube-node-lease", "edge")


class Offer:
    def __init__(self) -> None:
        self.amounts: Mapping[str, str] | None = {"cpu": "8", "memory": "16Gi", "pods": "110"}
        self.labels: dict[str, str] = {}
        self.said = ""

    def capacity(self) -> Mapping[str, str] | None:
        return self.amounts

    def trouble(self) -> str:
        return self.said

    def common_labels(self) -> Mapping[str, str]:
        return self.labels


class Bench:
    """A heartbeat with its two clusters; the store follows the hub as a reflector's does."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.hub, self.target = FakeCluster("hub", loop.time), FakeCluster("berlin", loop.time)
        self.hub.add_namespace("kube-node-lease")
        self.offer = Offer()
        self.version = "v1.34.0"
        self.nodes = Store()
        self.nodes_synced = asyncio.Event()
        self.anchors = NodeAnchors(hub=self.hub.client(), scope=SCOPE, fence=lambda: None)
        self.uninstalled: list[str] = []
        self.reached = 0
        self.lost = False
        self.heartbeat = Heartbeat(
            identity=NodeIdentity(
                scope=SCOPE,
                target_name="berlin",
                address="192.0.2.10",
                kubelet_version=lambda: self.version,
                federate_version="1.0",
                user_labels={"site": "b"},
            ),
            ports=NodePorts(
                hub=self.hub.client(),
                target=self.target.client(),
                nodes=self.nodes,
                nodes_synced=self.nodes_synced,
                offer=self.offer,
                anchors=self.anchors,
                uninstalled=lambda: self.uninstalled,
                wake_pods=self._note_reached,
                fence=self._fence,
                now=lambda: EPOCH + timedelta(seconds=loop.time()),
            ),
        )

    def _note_reached(self) -> None:
        self.reached += 1

    def _fence(self) -> None:
        if self.lost:
            raise LeadershipLost("another replica leads")

    async def follow(self) -> None:
        listing = await self.hub.client("reflector").list(NODES)
        changes = self.nodes.replace(listing.items)
        for change in changes:
            self.heartbeat.on_node(change)
        self.nodes_synced.set()
        events = self.hub.client("reflector").watch(
            NODES, resource_version=listing.resource_version
        )
        async for event in events:
            if event.object["metadata"]["name"] == "edge":
                changed = self.nodes.apply(event)
                if changed is not None:
                    self.heartbeat.on_node(changed)

    def node(self) -> JsonDict:
        return self.hub.read(NODES, KEY)

    def renewed_at(self) -> datetime:
        return datetime.fromisoformat(self.hub.read(LEASES, LEASE)["spec"]["renewTime"])

    def age(self) -> float:
        """Return how long ago the node lease was renewed."""
        now = EPOCH + timedelta(seconds=asyncio.get_running_loop().time())
        return (now - self.renewed_at()).total_seconds()

    def node_writes(self) -> int:
        return sum(1 for call in self.hub.writes() if call.resource == NODES)

    def lease_writes(self) -> int:
        return sum(1 for call in self.hub.writes() if call.resource == LEASES)

    def hang_target(self) -> None:
        self.target.faults = lambda _call: Delay(3600)

    def refuse_target(self) -> None:
        self.target.faults = lambda _call: Refuse(Unauthorized("token expired", status=401))

    def heal_target(self) -> None:
        self.target.faults = None


@asynccontextmanager
async def beating(bench: Bench, *, announce: bool = True) -> AsyncIterator[Bench]:
    """Let it beat, up to where the Node stands and nothing more is to be done."""
    tasks = [asyncio.create_task(bench.follow()), asyncio.create_task(bench.heartbeat.run())]
    if announce:
        bench.heartbeat.announce()
    try:
        await asyncio.sleep(3.0)
        yield bench
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


# -- registration ----------------------------------------------------------------------------------


@virtual_time
async def test_c10_the_node_is_registered_with_its_status_and_lease() -> None:
    """One create makes a Ready node, and its lease follows at once, owned by it."""
    async with beating(Bench()) as b:
        node = b.node()
        assert condition_status(node, "Ready") == "True"
        assert node["status"]["capacity"]["cpu"] == "8"
        assert labels_of(node)["site"] == "b"
        lease = b.hub.read(LEASES, LEASE)
        assert [r["uid"] for r in lease["metadata"]["ownerReferences"]] == [uid_of(node)]
        assert lease["spec"]["leaseDurationSeconds"] == 40
        assert b.heartbeat.announced.is_set()
        assert b.node_writes() == 1


@virtual_time
async def test_c13_nothing_is_registered_before_the_controllers_are_ready() -> None:
    """Without the word to announce there is no Node and no lease."""
    async with beating(Bench(), announce=False) as b:
        assert b.heartbeat.reachability.is_reachable
        assert b.hub.writes() == []
        b.heartbeat.announce()
        await asyncio.sleep(1.0)
        assert condition_status(b.node(), "Ready") == "True"


@virtual_time
async def test_nothing_is_registered_before_the_capacity_is_known() -> None:
    """A Node is never shown with an invented size."""
    b = Bench()
    b.offer.amounts = None
    async with beating(b):
        assert b.hub.writes() == []
        b.offer.amounts = {"cpu": "2"}
        b.heartbeat.wake()
        await asyncio.sleep(1.0)
        assert b.node()["status"]["capacity"] == {"cpu": "2"}


@virtual_time
async def test_a_dead_target_registers_no_node() -> None:
    """A target that never answered has no virtual node."""
    b = Bench()
    b.target.go_down()
    async with beating(b):
        await asyncio.sleep(60.0)
        assert b.hub.writes() == []


@virtual_time
async def test_a_target_without_the_pinged_object_answers_too() -> None:
    """That the object is absent is an answer."""
    b = Bench()
    b.target.delete_by_user(CONFIGMAPS, ObjectKey("default", "kube-root-ca.crt"))
    async with beating(b):
        assert b.heartbeat.reachability.is_reachable


@virtual_time
async def test_c10_a_deleted_node_is_registered_again_within_a_second() -> None:
    """With its memory of anchors, and a lease that follows the new uid."""
    async with beating(Bench()) as b:
        await b.anchors.record("hub-0a-default", "anchor-1")
        await asyncio.sleep(1.0)
        old = uid_of(b.node())
        b.hub.delete_by_user(NODES, KEY)
        await asyncio.sleep(1.0)
        node = b.node()
        assert uid_of(node) != old
        assert annotations_of(node)[ANCHORS_ANNOTATION] == '{"hub-0a-default":"anchor-1"}'
        await asyncio.sleep(10.0)
        lease = b.hub.read(LEASES, LEASE)
        assert [r["uid"] for r in lease["metadata"]["ownerReferences"]] == [uid_of(node)]


@virtual_time
async def test_c10_a_node_deleted_in_an_outage_comes_back_silent() -> None:
    """Its pods must not be collected by the hub; but nothing vouches for a dead target."""
    async with beating(Bench()) as b:
        old = uid_of(b.node())
        b.target.go_down()
        await asyncio.sleep(60.0)
        assert b.heartbeat.reachability.state is TargetState.UNREACHABLE
        leases = b.lease_writes()
        b.hub.delete_by_user(NODES, KEY)
        await asyncio.sleep(2.0)
        node = b.node()
        assert uid_of(node) != old
        assert condition_status(node, "Ready") != "True"
        assert condition_status(node, "federate.dev/TargetReachable") == "False"
        writes = b.node_writes()
        await asyncio.sleep(120.0)
        assert b.lease_writes() == leases
        assert b.node_writes() == writes
        b.target.come_up()
        await asyncio.sleep(30.0)
        assert condition_status(b.node(), "Ready") == "True"
        assert b.age() < 11.0


@virtual_time
async def test_c10_a_node_that_never_was_is_not_registered_in_an_outage() -> None:
    """The target dies between the first answer and the word to announce: no Node."""
    async with beating(Bench(), announce=False) as b:
        b.target.go_down()
        await asyncio.sleep(60.0)
        assert b.heartbeat.reachability.state is TargetState.UNREACHABLE
        b.heartbeat.announce()
        await asyncio.sleep(60.0)
        assert b.hub.writes() == []


@virtual_time
async def test_a_registration_whose_reply_was_lost_is_taken_over() -> None:
    """A second create meets AlreadyExists, and goes on with what is there."""
    b = Bench()
    lost: list[Call] = []

    def lose_once(call: Call) -> Fault | None:
        if call.verb == "create" and call.resource == NODES and not lost:
            lost.append(call)
            return LostReply()
        return None

    b.hub.faults = lose_once
    async with beating(b):
        await asyncio.sleep(2.0)
        assert lost
        assert b.heartbeat.announced.is_set()
        assert b.age() <= 10.0


@virtual_time
async def test_a_node_found_by_another_create_is_read() -> None:
    """A Node the store does not know yet is read, not created twice."""
    b = Bench()
    async with beating(b):
        pass
    b.nodes.replace([])
    writes = b.node_writes()
    await b.heartbeat.beat()
    assert b.nodes.get(KEY) is not None
    assert b.node_writes() == writes + 1  # the create that was refused
    assert uid_of(b.node()) == uid_of(b.nodes.get(KEY) or {})


@virtual_time
async def test_a_foreign_node_of_our_name_stays_untouched() -> None:
    """A Node that federate did not register is told in the log, and never written."""
    b = Bench()
    b.hub.add(NODES, {"metadata": {"name": "edge", "labels": {"rack": "7"}}})
    before = b.node()
    async with beating(b):
        await asyncio.sleep(120.0)
        assert b.node() == before
        assert b.hub.writes() == []
        with pytest.raises(NotOurs, match="stay untouched"):
            await b.heartbeat.beat()


# -- staying ---------------------------------------------------------------------------------------


@virtual_time
async def test_c11_an_unchanged_node_costs_no_write() -> None:
    """Ten quiet minutes are sixty lease renewals and nothing else."""
    async with beating(Bench()) as b:
        await asyncio.sleep(0.5)
        nodes, leases = b.node_writes(), b.lease_writes()
        await asyncio.sleep(600.0)
        assert b.node_writes() == nodes
        assert 59 <= b.lease_writes() - leases <= 61
        assert all(call.verb == "replace" for call in b.hub.writes() if call.number > 5)


@virtual_time
async def test_c10_what_others_put_on_the_node_survives() -> None:
    """Labels, taints, a cordon and conditions of others stay through our writes."""
    async with beating(Bench()) as b:

        def change(node: JsonDict) -> None:
            node["metadata"]["labels"]["team"] = "blue"
            node["spec"]["unschedulable"] = True
            node["spec"]["taints"].append({"key": "upgrade", "effect": "NoExecute"})
            node["status"]["conditions"].append({"type": "example.com/Ok", "status": "True"})

        b.hub.edit(NODES, KEY, change)
        b.offer.amounts, b.offer.labels = {"cpu": "1"}, {"zone": "z"}
        b.heartbeat.wake()
        await asyncio.sleep(1.0)
        node = b.node()
        assert (labels_of(node)["team"], labels_of(node)["zone"]) == ("blue", "z")
        assert node["spec"]["unschedulable"] is True
        assert "upgrade" in [t["key"] for t in node["spec"]["taints"]]
        assert condition_status(node, "example.com/Ok") == "True"
        assert node["status"]["capacity"] == {"cpu": "1"}


@virtual_time
async def test_changes_that_come_together_are_written_together() -> None:
    """A hundred changes of capacity in a moment cost a few writes."""
    async with beating(Bench()) as b:
        before = b.node_writes()
        for number in range(100):
            b.offer.amounts = {"cpu": str(number)}
            b.heartbeat.wake()
            await asyncio.sleep(0.01)
        await asyncio.sleep(1.0)
        assert b.node()["status"]["capacity"] == {"cpu": "99"}
        assert b.node_writes() - before <= 8


@virtual_time
async def test_a_capacity_unknown_for_a_while_stays_as_it_was() -> None:
    """A target whose nodes are listed anew does not shrink meanwhile."""
    async with beating(Bench()) as b:
        b.offer.amounts = None
        b.uninstalled = ["hub-0a-default"]
        b.heartbeat.wake()
        await asyncio.sleep(1.0)
        node = b.node()
        assert node["status"]["capacity"]["cpu"] == "8"
        ready = condition_of(node, "Ready")
        assert ready is not None
        assert ready["reason"] == "Uninstalled"


@virtual_time
async def test_c23_an_operators_word_is_carried_out() -> None:
    """`federate.dev/reinstall` frees the namespace, wakes its pods, and is taken down."""
    async with beating(Bench()) as b:
        await b.anchors.record("a", "1")
        reached = b.reached

        def allow(node: JsonDict) -> None:
            node["metadata"]["annotations"][REINSTALL_ANNOTATION] = "a"

        b.hub.edit(NODES, KEY, allow)
        await asyncio.sleep(1.0)
        assert b.anchors.recorded() == {}
        assert REINSTALL_ANNOTATION not in annotations_of(b.node())
        assert b.reached > reached


@virtual_time
async def test_conflicts_are_retried_at_once_then_slower() -> None:
    """A conflict costs no pause, a failing hub an ever longer one."""
    async with beating(Bench()) as b:
        failures: list[float] = []

        def refuse(call: Call) -> Fault | None:
            if call.resource == NODES and call.verb == "patch" and len(failures) < 6:
                failures.append(asyncio.get_running_loop().time())
                if len(failures) == 1:
                    return Refuse(Conflict("modified", status=409))
                return Refuse(ServerFault("etcd", status=500))
            return None

        b.hub.faults = refuse
        b.offer.amounts = {"cpu": "1"}
        b.heartbeat.wake()
        await asyncio.sleep(60.0)
        assert b.node()["status"]["capacity"] == {"cpu": "1"}
        pauses = [after - before for before, after in pairwise(failures)]
        assert pauses[0] < 0.1
        assert pauses[1:] == sorted(pauses[1:])
        assert pauses[-1] <= 11.0


@virtual_time
async def test_a_node_that_vanishes_under_a_patch_is_registered_again() -> None:
    """NotFound to a patch is no failure: the Node is made anew."""
    async with beating(Bench()) as b:

        def vanish(call: Call) -> Fault | None:
            if call.resource == NODES and call.verb == "patch":
                b.hub.faults = None
                b.hub.delete_by_user(NODES, KEY)
                return Refuse(NotFound("gone", status=404))
            return None

        b.hub.faults = vanish
        b.offer.amounts = {"cpu": "1"}
        b.heartbeat.wake()
        await asyncio.sleep(1.0)
        assert b.node()["status"]["capacity"] == {"cpu": "1"}


# -- the target dies, and comes back ---------------------------------------------------------------


@pytest.mark.parametrize("way", ["refuses connections", "hangs"])
@virtual_time
async def test_c12_a_dead_target_is_told_once_then_there_is_silence(way: str) -> None:
    """Within 15 s the Node says why; then no status, no lease: the hub's own grace decides."""
    async with beating(Bench()) as b:
        if way == "hangs":
            b.hang_target()
        else:
            b.target.go_down()
        await asyncio.sleep(15.0)
        node = b.node()
        told = condition_of(node, "federate.dev/TargetReachable")
        assert told is not None
        assert (told["status"], told["reason"]) == ("False", "TargetUnreachable")
        assert told["message"]
        assert condition_status(node, "Ready") == "True"
        writes = len(b.hub.writes())
        b.offer.amounts = {"cpu": "1"}
        b.heartbeat.wake()
        await asyncio.sleep(300.0)
        assert len(b.hub.writes()) == writes
        assert b.age() > 300.0


@virtual_time
async def test_c12_a_target_that_comes_back_is_told_within_seconds() -> None:
    """Ready is restored, whatever the hub's node controller wrote, and the lease goes on."""
    async with beating(Bench()) as b:
        b.hang_target()
        await asyncio.sleep(60.0)

        def overwrite(node: JsonDict) -> None:
            for condition in node["status"]["conditions"]:
                if condition["type"] == "Ready":
                    condition.update(status="Unknown", reason="NodeStatusUnknown")

        b.hub.edit(NODES, KEY, overwrite)
        reached = b.reached
        b.heal_target()
        await asyncio.sleep(5.0)
        assert condition_status(b.node(), "Ready") == "True"
        assert condition_status(b.node(), "federate.dev/TargetReachable") == "True"
        assert b.reached == reached + 1
        assert b.age() <= 5.0


@virtual_time
async def test_c12_a_glitch_changes_nothing() -> None:
    """Two seconds without an answer are no news."""
    async with beating(Bench()) as b:
        writes = b.node_writes()
        b.target.go_down()
        await asyncio.sleep(2.0)
        b.target.come_up()
        await asyncio.sleep(30.0)
        assert b.node_writes() == writes
        assert b.age() <= 10.0


@virtual_time
async def test_c12_refused_credentials_are_told_and_the_lease_goes_on() -> None:
    """401 is an authenticated refusal: Ready=False, with the target's words."""
    async with beating(Bench()) as b:
        b.refuse_target()
        await asyncio.sleep(60.0)
        ready = condition_of(b.node(), "Ready")
        assert ready is not None
        assert (ready["status"], ready["reason"]) == ("False", "TargetRefuses")
        assert "token expired" in ready["message"]
        assert b.age() <= 10.0


@virtual_time
async def test_c12_a_target_that_refused_and_then_died_is_told_as_dead() -> None:
    """The reason on the Node is the one that is true."""
    async with beating(Bench()) as b:
        b.refuse_target()
        await asyncio.sleep(20.0)
        b.hang_target()
        await asyncio.sleep(15.0)
        told = condition_of(b.node(), "federate.dev/TargetReachable")
        assert told is not None
        assert (told["status"], told["reason"]) == ("False", "TargetUnreachable")
        writes = len(b.hub.writes())
        await asyncio.sleep(120.0)
        assert len(b.hub.writes()) == writes


@virtual_time
async def test_c12_a_restart_in_an_outage_tells_it_and_no_more() -> None:
    """A federate that starts while its target is dead writes one condition, no lease."""
    b = Bench()
    async with beating(b):
        await asyncio.sleep(1.0)
    second = Bench()
    second.hub.add(NODES, b.node())
    second.target.go_down()
    async with beating(second, announce=False):
        await asyncio.sleep(30.0)
        assert condition_status(second.node(), "federate.dev/TargetReachable") == "False"
        assert condition_status(second.node(), "Ready") == "True"
        assert second.node_writes() == 1
        assert second.lease_writes() == 0


@virtual_time
async def test_c13_a_restart_writes_nothing_before_it_is_ready() -> None:
    """A Node that stands already waits for the controllers like a new one."""
    b = Bench()
    async with beating(b):
        pass
    second = Bench()
    second.hub.add(NODES, b.node())
    async with beating(second, announce=False):
        assert second.hub.writes() == []
        second.heartbeat.announce()
        await asyncio.sleep(1.0)
        assert second.heartbeat.announced.is_set()
        assert second.age() <= 1.0


# -- the target becomes another cluster ------------------------------------------------------------


SYSTEM = ObjectKey("", "kube-system")


def become(bench: Bench, uid: str) -> None:
    bench.target.edit(NAMESPACES, SYSTEM, lambda n: n["metadata"].update(uid=uid))


def say(bench: Bench, accepted: str) -> None:
    """Let an operator accept a cluster."""
    word = {ACCEPT_TARGET_ANNOTATION: accepted}
    bench.hub.edit(NODES, KEY, lambda n: n["metadata"]["annotations"].update(word))


def told(bench: Bench) -> tuple[str, str]:
    condition = condition_of(bench.node(), "federate.dev/TargetReachable") or {}
    return condition.get("status", ""), condition.get("reason", "")


def is_registered(bench: Bench) -> bool:
    return bench.heartbeat.is_registered


async def begun_anew(recorded: str = "the-old-one", **annotations: str) -> Bench:
    """Make a bench whose Node stands from before, with a cluster on record."""
    b = Bench()
    async with beating(b):
        pass
    second = Bench()
    node = b.node()
    node["metadata"]["annotations"].update({TARGET_IDENTITY_ANNOTATION: recorded, **annotations})
    second.hub.add(NODES, node)
    return second


@virtual_time
async def test_c5_the_target_is_on_record_with_the_registration() -> None:
    """The Node says from its first moment which cluster it stands for."""
    async with beating(Bench()) as b:
        uid = uid_of(b.target.read(NAMESPACES, SYSTEM))
        assert annotations_of(b.node())[TARGET_IDENTITY_ANNOTATION] == uid
        assert b.node_writes() == 1
        assert b.heartbeat.is_registered


@virtual_time
async def test_c5_a_node_from_before_is_given_the_record() -> None:
    """Until it is there, no pod is to be touched."""
    b = Bench()
    async with beating(b):
        pass
    second = Bench()
    node = b.node()
    del node["metadata"]["annotations"][TARGET_IDENTITY_ANNOTATION]
    second.hub.add(NODES, node)
    async with beating(second, announce=False):
        assert not is_registered(second)
        second.heartbeat.announce()
        await asyncio.sleep(2.0)
        uid = uid_of(second.target.read(NAMESPACES, SYSTEM))
        assert annotations_of(second.node())[TARGET_IDENTITY_ANNOTATION] == uid
        assert is_registered(second)
        assert second.heartbeat.announced.is_set()


@virtual_time
async def test_c5_a_changed_target_is_told_then_all_begins_anew() -> None:
    """Within seconds; Ready, capacity and labels stay, and nothing is written after the word."""
    b = Bench()
    b.offer.labels = {"zone": "z"}
    tasks = [asyncio.create_task(b.follow()), asyncio.create_task(b.heartbeat.run())]
    b.heartbeat.announce()
    await asyncio.sleep(5.0)
    before = b.node()
    become(b, "rebuilt")
    b.offer.amounts, b.offer.labels = {"cpu": "1"}, {}
    with pytest.raises(BaseExceptionGroup) as caught:
        async with asyncio.timeout(4.0):
            await tasks[1]
    assert caught.group_contains(TargetChanged)
    assert told(b) == ("False", "TargetChanged")
    assert condition_status(b.node(), "Ready") == "True"
    assert b.node()["status"]["capacity"] == before["status"]["capacity"]
    assert labels_of(b.node()) == labels_of(before)
    assert annotations_of(b.node())[TARGET_IDENTITY_ANNOTATION] == b.anchors.identity
    tasks[0].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@virtual_time
async def test_c5_a_hub_that_takes_no_word_holds_up_nothing() -> None:
    """The end of the work on a changed target does not wait for the hub."""
    b = Bench()
    tasks = [asyncio.create_task(b.follow()), asyncio.create_task(b.heartbeat.run())]
    b.heartbeat.announce()
    await asyncio.sleep(5.0)
    b.hub.faults = lambda call: Delay(3600) if call.is_write else None
    become(b, "rebuilt")
    with pytest.raises(BaseExceptionGroup):
        async with asyncio.timeout(9.0):
            await tasks[1]
    tasks[0].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@virtual_time
async def test_c5_a_target_changed_before_the_start_is_told_and_nothing_else_happens() -> None:
    """One condition, no lease, no restart, however long; pointing back heals by itself."""
    b = await begun_anew()
    b.version = ""  # nobody was asked yet
    version = b.node()["status"]["nodeInfo"]["kubeletVersion"]
    async with beating(b, announce=False):
        assert told(b) == ("False", "TargetChanged")
        message = (condition_of(b.node(), "federate.dev/TargetReachable") or {})["message"]
        assert "the-old-one" in message
        assert condition_status(b.node(), "Ready") == "True"
        assert b.node()["status"]["nodeInfo"]["kubeletVersion"] == version
        await asyncio.sleep(600.0)
        assert (b.node_writes(), b.lease_writes()) == (1, 0)
        assert not b.heartbeat.probe.confirmed.is_set()
        become(b, "the-old-one")
        await asyncio.sleep(5.0)
        assert b.heartbeat.probe.confirmed.is_set()
        b.heartbeat.announce()
        await asyncio.sleep(2.0)
        assert told(b) == ("True", "TargetAnswers")
        assert b.age() <= 2.0


@virtual_time
async def test_c5_a_node_deleted_while_its_target_is_another_comes_back_with_its_memory() -> None:
    """As silent as before, or the hub would remove its pods; and still told."""
    b = await begun_anew(**{ANCHORS_ANNOTATION: '{"a":"1"}'})
    async with beating(b, announce=False):
        old = uid_of(b.node())
        b.hub.delete_by_user(NODES, KEY)
        await asyncio.sleep(2.0)
        node = b.node()
        assert uid_of(node) != old
        assert annotations_of(node)[TARGET_IDENTITY_ANNOTATION] == "the-old-one"
        assert annotations_of(node)[ANCHORS_ANNOTATION] == '{"a":"1"}'
        assert told(b) == ("False", "TargetChanged")
        assert condition_status(node, "Ready") != "True"
        assert b.lease_writes() == 0
        assert not b.heartbeat.announced.is_set()


@virtual_time
async def test_c5_an_accepted_target_is_taken_within_seconds() -> None:
    """The word is carried out once: record, no anchors, and the way is free."""
    b = await begun_anew(**{ANCHORS_ANNOTATION: '{"a":"1"}'})
    uid = uid_of(b.target.read(NAMESPACES, SYSTEM))
    async with beating(b, announce=False):
        say(b, uid)
        await asyncio.sleep(2.0)
        annotations = annotations_of(b.node())
        assert annotations[TARGET_IDENTITY_ANNOTATION] == uid
        assert annotations[ANCHORS_ANNOTATION] == "{}"
        assert ACCEPT_TARGET_ANNOTATION not in annotations
        assert b.heartbeat.probe.confirmed.is_set()
        assert b.anchors.recorded() == {}
        b.heartbeat.announce()
        await asyncio.sleep(1.0)
        assert told(b) == ("True", "TargetAnswers")


@virtual_time
async def test_c5_a_word_about_a_cluster_that_is_not_there_waits_for_it() -> None:
    """A wrong uid accepts nothing; a right one said early is carried out when it answers."""
    b = await begun_anew()
    async with beating(b, announce=False):
        say(b, "third")
        await asyncio.sleep(60.0)
        assert told(b) == ("False", "TargetChanged")
        assert annotations_of(b.node())[TARGET_IDENTITY_ANNOTATION] == "the-old-one"
        become(b, "third")
        await asyncio.sleep(5.0)
        assert annotations_of(b.node())[TARGET_IDENTITY_ANNOTATION] == "third"
        assert ACCEPT_TARGET_ANNOTATION not in annotations_of(b.node())
        assert b.heartbeat.probe.confirmed.is_set()


@virtual_time
async def test_c5_to_accept_the_target_on_record_changes_nothing() -> None:
    """The word is taken down, and the anchors stay."""
    async with beating(Bench()) as b:
        await b.anchors.record("a", "1")
        say(b, b.anchors.identity)
        await asyncio.sleep(1.0)
        assert ACCEPT_TARGET_ANNOTATION not in annotations_of(b.node())
        assert b.anchors.recorded() == {"a": "1"}


@virtual_time
async def test_c5_a_target_that_may_not_tell_any_more_who_it_is_can_be_accepted() -> None:
    """The Node refuses, Ready=False; the word `unknown` lets the anchors stand in."""
    b = await begun_anew(**{ANCHORS_ANNOTATION: '{"a":"1"}'})
    b.target.faults = lambda call: (
        Refuse(Forbidden("no", status=403)) if call.key == SYSTEM else None
    )
    async with beating(b, announce=False):
        assert told(b) == ("False", "TargetRefuses")
        assert condition_status(b.node(), "Ready") == "False"
        assert not b.heartbeat.probe.confirmed.is_set()
        say(b, UNKNOWN_IDENTITY)
        await asyncio.sleep(3.0)
        assert b.heartbeat.probe.confirmed.is_set()
        assert b.anchors.recorded() == {"a": "1"}
        assert annotations_of(b.node())[TARGET_IDENTITY_ANNOTATION] == UNKNOWN_IDENTITY


@virtual_time
async def test_c5_the_target_is_not_asked_before_it_is_known_which_it_should_be() -> None:
    """Without the hub's word on the Node no answer opens anything."""
    b = Bench()
    task = asyncio.create_task(b.heartbeat.run())
    await asyncio.sleep(60.0)
    assert b.target.calls == []
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


# -- the node lease --------------------------------------------------------------------------------


@virtual_time
async def test_c12_a_lease_changed_by_others_is_read_and_renewed() -> None:
    """A conflict costs one read, not a missed renewal."""
    async with beating(Bench()) as b:

        def touch(lease: JsonDict) -> None:
            lease["metadata"].setdefault("labels", {})["touched"] = "yes"

        b.hub.edit(LEASES, LEASE, touch)
        await asyncio.sleep(10.0)
        assert b.age() <= 10.0
        assert labels_of(b.hub.read(LEASES, LEASE))["touched"] == "yes"


@virtual_time
async def test_c12_a_deleted_lease_is_made_again() -> None:
    """A lease that somebody removed is back with the next renewal."""
    async with beating(Bench()) as b:
        b.hub.delete_by_user(LEASES, LEASE)
        await asyncio.sleep(10.0)
        assert b.age() <= 10.0


@virtual_time
async def test_c12_a_lease_of_an_earlier_process_is_taken_over() -> None:
    """After a restart the lease is read and renewed, not created."""
    b = Bench()
    spec = {"holderIdentity": "edge", "renewTime": "2025-01-01T00:00:00.000000Z"}
    b.hub.add(LEASES, {"metadata": {"namespace": "kube-node-lease", "name": "edge"}, "spec": spec})
    async with beating(b):
        assert b.age() <= 10.0


@virtual_time
async def test_c12_a_failed_renewal_is_tried_again_soon() -> None:
    """Three missed renewals make a node NotReady: a failure is followed up within a second."""
    async with beating(Bench()) as b:
        failed: list[float] = []

        def refuse(call: Call) -> Fault | None:
            if call.resource == LEASES and call.verb == "replace" and len(failed) < 4:
                failed.append(asyncio.get_running_loop().time())
                return Refuse(Forbidden("no", status=403))
            return None

        b.hub.faults = refuse
        await asyncio.sleep(20.0)
        assert len(failed) == 4
        assert failed[-1] - failed[0] < 3.0
        assert b.age() <= 10.0


@virtual_time
async def test_c12_conflicts_in_a_row_are_no_renewal() -> None:
    """A lease that met two conflicts is tried again soon, not after a whole period."""
    async with beating(Bench()) as b:
        refused: list[float] = []

        def refuse(call: Call) -> Fault | None:
            if call.resource == LEASES and call.verb == "replace" and len(refused) < 2:
                refused.append(asyncio.get_running_loop().time())
                return Refuse(Conflict("modified", status=409))
            return None

        b.hub.faults = refuse
        await asyncio.sleep(11.0)
        assert len(refused) == 2
        assert b.age() < 5.0


@virtual_time
async def test_a_lease_without_a_node_is_not_renewed() -> None:
    """No Node, no sign of life."""
    b = Bench()
    await b.heartbeat.renew_lease()
    assert b.hub.calls == []


@virtual_time
async def test_c13_a_lost_leadership_stops_every_write() -> None:
    """The fence stands before registration, patches and leases."""
    b = Bench()
    b.lost = True
    b.nodes_synced.set()
    with pytest.raises(BaseExceptionGroup) as caught:
        async with asyncio.TaskGroup() as group:
            group.create_task(b.heartbeat.run())
            b.heartbeat.announce()
            await asyncio.sleep(30.0)
    assert caught.group_contains(LeadershipLost)
    assert b.hub.writes() == []
    assert b.heartbeat.reachability.state is TargetState.REACHABLE


@virtual_time
async def test_c14_why_less_is_offered_is_told_and_taken_back() -> None:
    """The node stays Ready, and says it as long as it is so."""
    async with beating(Bench()) as b:
        b.offer.said = "no quota"
        b.heartbeat.wake()
        await asyncio.sleep(1.0)
        ready = condition_of(b.node(), "Ready") or {}
        assert (ready["status"], ready["message"]) == ("True", "no quota")
        b.offer.said = ""
        b.heartbeat.wake()
        await asyncio.sleep(1.0)
        assert (condition_of(b.node(), "Ready") or {})["reason"] == "FederateReady"
