"""Does the target answer, and is it the cluster on record? In virtual time (C5, C12)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

import pytest

from federate.errors import (
    ClusterError,
    Forbidden,
    NotFound,
    ServerFault,
    TargetChanged,
    Unreachable,
)
from federate.model.naming import anchor_name
from federate.model.objects import JsonDict, ObjectKey, uid_of
from federate.model.resources import CONFIGMAPS, NAMESPACES, SERVICEACCOUNTS
from federate.node.anchors import UNKNOWN_IDENTITY, NodeAnchors
from federate.node.probe import PING, TargetProbe, changed_message, offered_identity
from federate.node.reachability import TargetState
from tests.support.clock import virtual_loop, virtual_time
from tests.support.fakeclient import Call, Delay, Fault, Refuse
from tests.support.fakecluster import FakeCluster
from tests.support.views import SCOPE

SYSTEM = ObjectKey("", "kube-system")


class Bench:
    """A target that can be exchanged for another at a word."""

    def __init__(self, *, recorded: str | None = None, namespaces: Sequence[str] = ()) -> None:
        clock = virtual_loop().time
        self.target = FakeCluster("berlin", clock)
        self.uid = uid_of(self.target.read(NAMESPACES, SYSTEM))
        self.memory = NodeAnchors(
            hub=FakeCluster("hub", clock).client(), scope=SCOPE, fence=lambda: None
        )
        if recorded is not None:
            self.memory.meet(recorded)
        self.changes: list[TargetState] = []
        self.probe = TargetProbe(
            target=self.target.client(),
            scope=SCOPE,
            memory=self.memory,
            on_change=lambda: self.changes.append(self.state()),
            namespaces=namespaces,
        )

    def state(self) -> TargetState:
        return self.probe.reachability.state

    def become(self, uid: str) -> None:
        def rename(namespace: JsonDict) -> None:
            namespace["metadata"]["uid"] = uid

        self.target.edit(NAMESPACES, SYSTEM, rename)

    def forbid_identity(self) -> None:
        def refuse(call: Call) -> Fault | None:
            return Refuse(Forbidden("no", status=403)) if call.key == SYSTEM else None

        self.target.faults = refuse


@asynccontextmanager
async def probing(bench: Bench) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(bench.probe.run())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


# -- one request answers both ----------------------------------------------------------------------


@virtual_time
async def test_a_ping_is_one_read_of_kube_system() -> None:
    """A minute of calm costs thirty requests, each of which tells the identity too."""
    b = Bench()
    async with probing(b):
        await asyncio.sleep(60.0)
    assert {str(call) for call in b.target.calls} == {"get namespaces kube-system"}
    assert 29 <= len(b.target.calls) <= 32
    assert b.changes == [TargetState.REACHABLE]


@virtual_time
async def test_c5_the_first_cluster_that_answers_is_the_target() -> None:
    """Where nothing is on record, who answers is met, and everything may begin."""
    b = Bench()
    async with probing(b):
        await asyncio.sleep(1.0)
        assert (b.memory.identity, b.probe.found) == (b.uid, b.uid)
        assert b.probe.confirmed.is_set()
        await b.probe.confirm()


@pytest.mark.parametrize("way", ["forbidden", "absent"])
@virtual_time
async def test_c5_a_target_that_may_not_tell_who_it_is_answers_all_the_same(way: str) -> None:
    """Its identity is unknown, a namespaced read stands in, and every confirmation passes."""
    b = Bench()
    if way == "absent":
        b.target.store.remove(NAMESPACES, SYSTEM)
    else:
        b.forbid_identity()
    b.target.delete_by_user(CONFIGMAPS, PING)  # that it is absent is an answer
    async with probing(b):
        await asyncio.sleep(1.0)
        assert b.memory.identity == UNKNOWN_IDENTITY
        assert b.state() is TargetState.REACHABLE
        await b.probe.confirm()


@virtual_time
async def test_c5_an_unknown_target_is_known_once_it_may_be_read() -> None:
    """From then on another is told from it."""
    b = Bench()
    b.forbid_identity()
    async with probing(b):
        await asyncio.sleep(1.0)
        b.target.faults = None
        await asyncio.sleep(3.0)
        assert b.memory.identity == b.uid


@virtual_time
async def test_c5_a_target_that_cannot_tell_any_more_who_it_is_refuses() -> None:
    """Neither the same nor another: no confirmation, and the Node says what is forbidden."""
    b = Bench()
    async with probing(b):
        await asyncio.sleep(1.0)
        b.forbid_identity()
        with pytest.raises(Forbidden):
            await b.probe.confirm()
        await asyncio.sleep(10.0)
        assert b.state() is TargetState.REFUSED
        assert "kube-system" in b.probe.reachability.message
        assert b.probe.found == UNKNOWN_IDENTITY  # which an operator may accept


@virtual_time
async def test_an_identity_without_a_uid_is_no_identity() -> None:
    """A proxy that strips what it does not know makes no other cluster."""
    b = Bench(recorded="a")
    b.become("")
    async with probing(b):
        await asyncio.sleep(10.0)
        assert b.state() is TargetState.UNREACHABLE


@virtual_time
async def test_c12_a_hung_target_is_dead_in_15_seconds() -> None:
    """A ping has a bound."""
    b = Bench()
    async with probing(b):
        await asyncio.sleep(1.0)
        b.target.faults = lambda _call: Delay(3600)
        await asyncio.sleep(15.0)
        assert b.state() is TargetState.UNREACHABLE
        assert b.probe.reachability.message == "no answer within 3 s"


@virtual_time
async def test_c5_confined_to_what_is_not_there_nothing_is_confirmed() -> None:
    """That somebody answers is known, and no more; once the namespace is there, who it is."""
    b = Bench(namespaces=["team-a"])
    b.forbid_identity()
    async with probing(b):
        await asyncio.sleep(30.0)
        assert b.state() is TargetState.REACHABLE
        assert b.memory.identity == UNKNOWN_IDENTITY
        with pytest.raises(NotFound):
            await b.probe.confirm()
        b.target.add_namespace("team-a")
        with suppress(NotFound):
            await b.probe.confirm()
        await asyncio.sleep(3.0)
        await b.probe.confirm()
        account = b.target.read(SERVICEACCOUNTS, ObjectKey("team-a", "default"))
        assert b.memory.identity == b.probe.found == f"team-a/{uid_of(account)}"
    asked = [str(call) for call in b.target.calls]
    assert asked.count("get namespaces kube-system") == 1
    assert set(asked) == {"get namespaces kube-system", "get serviceaccounts team-a/default"}


@virtual_time
async def test_c5_a_confined_cluster_is_told_from_another_in_words() -> None:
    """The message names what was read, and an operator can accept it."""
    b = Bench(recorded="team-a/the-old-one", namespaces=["team-a"])
    b.target.add_namespace("team-a")
    async with probing(b):
        await asyncio.sleep(1.0)
        assert b.state() is TargetState.CHANGED
        message = b.probe.reachability.message
        assert "of the default service account in namespace team-a" in message
        assert offered_identity(message) == b.probe.found


# -- anchors on record of a cluster that nobody named ----------------------------------------------


ANCHOR = ObjectKey("hub-x-team", anchor_name(SCOPE))
OTHER_ANCHOR = ObjectKey("hub-x-shop", anchor_name(SCOPE))


async def used_without_a_name(*anchors: ObjectKey) -> Bench:
    """A target that was used without the right to read kube-system; now there is that right."""
    b = Bench(recorded=UNKNOWN_IDENTITY)
    for key in anchors:
        b.target.add_namespace(key.namespace)
        b.target.add(CONFIGMAPS, {"metadata": {"namespace": key.namespace, "name": key.name}})
        await b.memory.record(key.namespace, uid_of(b.target.read(CONFIGMAPS, key)))
    return b


def refusing(b: Bench, *keys: ObjectKey, error: ClusterError | None = None) -> None:
    told = error or Forbidden("no", status=403)
    b.target.faults = lambda call: (
        Refuse(told) if call.resource == CONFIGMAPS and call.key in keys else None
    )


@virtual_time
async def test_c5_a_cluster_that_names_itself_is_met_where_our_anchor_stands() -> None:
    """The right to read kube-system came; one anchor with the uid on record is enough."""
    b = await used_without_a_name(ANCHOR, OTHER_ANCHOR)
    b.target.delete_by_user(CONFIGMAPS, OTHER_ANCHOR)
    await b.probe.confirm()
    async with probing(b):
        await asyncio.sleep(1.0)
        assert (b.state(), b.memory.identity) == (TargetState.REACHABLE, b.uid)


@pytest.mark.parametrize("way", ["absent", "anew"])
@virtual_time
async def test_c5_a_cluster_that_names_itself_is_another_without_our_anchor(way: str) -> None:
    """It names itself, but that is no proof: nothing absent there is believed."""
    b = await used_without_a_name(ANCHOR)
    b.target.delete_by_user(CONFIGMAPS, ANCHOR)
    if way == "anew":
        b.target.add(CONFIGMAPS, {"metadata": {"namespace": ANCHOR.namespace, "name": ANCHOR.name}})
    with pytest.raises(TargetChanged):
        await b.probe.confirm()
    async with probing(b):
        await asyncio.sleep(10.0)
        assert b.state() is TargetState.CHANGED
        assert not b.probe.confirmed.is_set()
        assert b.memory.identity == UNKNOWN_IDENTITY
        assert offered_identity(b.probe.reachability.message) == b.uid
        assert "none of its anchors" in b.probe.reachability.message


@virtual_time
async def test_c5_an_anchor_that_may_not_be_read_says_neither() -> None:
    """Neither met nor another, as long as it lasts; the operator may accept what is found."""
    b = await used_without_a_name(ANCHOR, OTHER_ANCHOR)
    b.target.delete_by_user(CONFIGMAPS, OTHER_ANCHOR)
    refusing(b, ANCHOR)
    with pytest.raises(Forbidden):
        await b.probe.confirm()
    async with probing(b):
        await asyncio.sleep(10.0)
        assert b.state() is TargetState.REFUSED
        assert b.memory.identity == UNKNOWN_IDENTITY
        assert b.probe.found == b.uid
        assert not b.probe.confirmed.is_set()
        b.target.faults = None
        await asyncio.sleep(5.0)
        assert (b.state(), b.memory.identity) == (TargetState.REACHABLE, b.uid)


@virtual_time
async def test_c5_another_anchor_stands_in_for_one_that_may_not_be_read() -> None:
    """Rights in a namespace may go with it."""
    b = await used_without_a_name(ANCHOR, OTHER_ANCHOR)
    refusing(b, OTHER_ANCHOR)  # the first that is asked for
    await b.probe.confirm()


@virtual_time
async def test_c5_an_anchor_that_cannot_be_read_just_now_says_neither() -> None:
    """Out of reach, until it can."""
    b = await used_without_a_name(ANCHOR)
    refusing(b, ANCHOR, error=ServerFault("etcd", status=500))
    with pytest.raises(ServerFault):
        await b.probe.confirm()
    async with probing(b):
        await asyncio.sleep(10.0)
        assert (b.state(), b.memory.identity) == (TargetState.UNREACHABLE, UNKNOWN_IDENTITY)
        b.target.faults = None
        await asyncio.sleep(5.0)
        assert (b.state(), b.memory.identity) == (TargetState.REACHABLE, b.uid)


@virtual_time
async def test_c5_anchors_of_a_node_without_an_identity_count_too() -> None:
    """Somebody removed the annotation, or it was never written: the anchors are still ours."""
    b = Bench()
    await b.memory.record(ANCHOR.namespace, "not-there")
    async with probing(b):
        await asyncio.sleep(1.0)
        assert b.state() is TargetState.CHANGED
        assert b.memory.identity == ""


@virtual_time
async def test_c5_a_cluster_that_does_not_name_itself_is_not_asked_for_anchors() -> None:
    """Each namespace's anchor stands in for it then, where that namespace is used."""
    b = await used_without_a_name(ANCHOR)
    b.target.delete_by_user(CONFIGMAPS, ANCHOR)
    b.forbid_identity()
    async with probing(b):
        await asyncio.sleep(1.0)
        assert (b.state(), b.memory.identity) == (TargetState.REACHABLE, UNKNOWN_IDENTITY)


# -- another cluster -------------------------------------------------------------------------------


@virtual_time
async def test_c5_another_cluster_at_the_start_opens_nothing() -> None:
    """It is told at the first answer, and the probe goes on asking for the one on record."""
    b = Bench(recorded="the-old-one")
    async with probing(b) as task:
        await asyncio.sleep(60.0)
        assert b.state() is TargetState.CHANGED
        assert b.changes == [TargetState.CHANGED]
        assert not b.probe.confirmed.is_set()
        with pytest.raises(TargetChanged):
            b.probe.fence()
        b.become("the-old-one")
        await asyncio.sleep(5.0)
        assert b.state() is TargetState.REACHABLE
        assert b.probe.confirmed.is_set()
        assert not task.done()
        b.probe.fence()


@virtual_time
async def test_c5_another_cluster_later_ends_the_probe_within_a_ping() -> None:
    """What was read since the change hangs on two clusters: all of it is to be thrown away."""
    b = Bench()
    async with probing(b) as task:
        await asyncio.sleep(10.0)
        b.become("rebuilt")
        await asyncio.sleep(2.1)
        with pytest.raises(TargetChanged, match="rebuilt"):
            await task
        assert b.changes[-1] is TargetState.CHANGED
        assert b.memory.identity == b.uid


@virtual_time
async def test_c5_who_asks_for_a_confirmation_is_the_first_to_know() -> None:
    """The fence falls with the answer, for everybody, and the probe ends at once."""
    b = Bench()
    async with probing(b) as task:
        await asyncio.sleep(10.1)
        b.probe.fence()
        b.become("rebuilt")
        with pytest.raises(TargetChanged):
            await b.probe.confirm()
        with pytest.raises(TargetChanged):
            b.probe.fence()
        before = len(b.target.calls)
        with pytest.raises(TargetChanged):
            await b.probe.confirm()
        assert len(b.target.calls) == before  # known already: nobody is asked
        await asyncio.sleep(0.1)
        assert task.done()


@virtual_time
async def test_c5_a_confirmation_of_a_dead_target_is_none() -> None:
    """It cannot be told, so nothing absent is believed."""
    b = Bench()
    async with probing(b):
        await asyncio.sleep(1.0)
        b.target.go_down()
        with pytest.raises(Unreachable) as caught:
            await b.probe.confirm()
        assert not isinstance(caught.value, TargetChanged)


@virtual_time
async def test_c5_a_third_cluster_is_told_anew() -> None:
    """The words name the cluster that can be accepted now."""
    b = Bench(recorded="the-old-one")
    async with probing(b):
        await asyncio.sleep(1.0)
        b.become("third")
        await asyncio.sleep(3.0)
        assert len(b.changes) == 2
        assert offered_identity(b.probe.reachability.message) == "third"


@virtual_time
async def test_c5_an_accepted_cluster_is_asked_without_a_pause() -> None:
    """`ask_soon` is for a record that changed."""
    b = Bench(recorded="the-old-one")
    async with probing(b):
        await asyncio.sleep(1.0)
        asked = len(b.target.calls)
        b.probe.ask_soon()
        await asyncio.sleep(0.1)
        assert len(b.target.calls) == asked + 1


def test_the_message_says_all_an_operator_needs() -> None:
    """Both uids, that nothing is written, and the two commands that accept."""
    message = changed_message(node_name="edge", recorded="old-uid", found="new-uid")
    for words in (
        "old-uid",
        "new-uid",
        "Nothing is written",
        "federate accept edge",
        "kubectl annotate node edge federate.dev/accept-target=new-uid",
    ):
        assert words in message
    assert offered_identity(message) == "new-uid"
    assert offered_identity("connection refused") == ""


def test_a_changed_target_is_out_of_reach() -> None:
    """Whoever asked something of it tries again later, as with any target that is away."""
    error = TargetChanged("x", cluster="berlin")
    assert isinstance(error, ClusterError)
    assert isinstance(error, Unreachable)
    assert not isinstance(error, NotFound)
