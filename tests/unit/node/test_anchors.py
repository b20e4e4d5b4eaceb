"""The hub's memory of anchors: on the Node, and in the process (C23)."""

from __future__ import annotations

import asyncio

import pytest

from federate.errors import Conflict, NotOurs
from federate.model.marks import (
    ACCEPT_TARGET_ANNOTATION,
    ANCHORS_ANNOTATION,
    NODE_HUB_ANNOTATION,
    REINSTALL_ANNOTATION,
    TARGET_IDENTITY_ANNOTATION,
)
from federate.model.objects import JsonDict, ObjectKey, annotations_of
from federate.model.resources import NODES
from federate.node.anchors import (
    UNKNOWN_IDENTITY,
    WRITE_TRIES,
    NodeAnchors,
    parse_accepted,
    parse_anchors,
    parse_identity,
    parse_reinstall,
)
from tests.support.clock import ManualClock
from tests.support.fakeclient import Refuse
from tests.support.fakecluster import FakeCluster
from tests.support.views import SCOPE

KEY = ObjectKey("", "edge")


def node(**annotations: str) -> JsonDict:
    ours = {NODE_HUB_ANNOTATION: SCOPE.hub_id, **annotations}
    return {"metadata": {"name": "edge", "annotations": ours}}


def anchored(text: str) -> JsonDict:
    return {"metadata": {"name": "edge", "annotations": {ANCHORS_ANNOTATION: text}}}


@pytest.mark.parametrize("text", ["", "nonsense", "[]", "3"])
def test_an_unreadable_memory_is_empty(text: str) -> None:
    """What somebody spoilt is as if it were not there."""
    assert parse_anchors(anchored(text)) == {}
    assert parse_anchors({"metadata": {"name": "edge"}}) == {}


def test_a_memory_is_read() -> None:
    """Target namespace and anchor uid."""
    assert parse_anchors(anchored('{"a": "1"}')) == {"a": "1"}


@pytest.mark.parametrize(
    ("text", "names"), [("", set()), ("a", {"a"}), (" a, b ,,", {"a", "b"}), (",", set())]
)
def test_an_operators_word_is_a_list_of_names(text: str, names: set[str]) -> None:
    """Names between commas, spaces forgiven."""
    assert parse_reinstall(node(**{REINSTALL_ANNOTATION: text})) == names


async def test_an_anchor_is_kept_on_the_hub_first() -> None:
    """What is recorded survives a restart, and other annotations survive the record."""
    hub = FakeCluster("hub", ManualClock())
    hub.add(NODES, node(note="x"))
    anchors = NodeAnchors(hub=hub.client(), scope=SCOPE, fence=lambda: None)
    assert anchors.annotations() == {}
    await anchors.record("a", "1")
    present = hub.read(NODES, KEY)
    assert parse_anchors(present) == {"a": "1"}
    assert annotations_of(present)["note"] == "x"
    restarted = NodeAnchors(hub=hub.client(), scope=SCOPE, fence=lambda: None)
    restarted.learn(present)
    assert restarted.recorded() == {"a": "1"}
    assert restarted.annotations() == {ANCHORS_ANNOTATION: '{"a":"1"}'}


async def test_an_anchor_that_could_not_be_kept_is_not_remembered() -> None:
    """A hub that does not answer leaves the namespace unrecorded: it is tried again."""
    hub = FakeCluster("hub", ManualClock())
    hub.go_down()
    anchors = NodeAnchors(hub=hub.client(), scope=SCOPE, fence=lambda: None)
    with pytest.raises(Exception, match="edge"):
        await anchors.record("a", "1")
    assert anchors.recorded() == {}


async def test_an_absent_node_loses_nothing() -> None:
    """What cannot be written now is written with the Node's registration."""
    anchors = NodeAnchors(
        hub=FakeCluster("hub", ManualClock()).client(), scope=SCOPE, fence=lambda: None
    )
    await anchors.record("a", "1")
    assert anchors.annotations() == {ANCHORS_ANNOTATION: '{"a":"1"}'}


async def test_a_node_is_learnt_from_once() -> None:
    """After that the process knows better; an edit by hand does not change its mind."""
    anchors = NodeAnchors(
        hub=FakeCluster("hub", ManualClock()).client(), scope=SCOPE, fence=lambda: None
    )
    await anchors.record("a", "1")
    anchors.learn(anchored('{"a":"old","b":"2"}'))
    assert anchors.recorded() == {"a": "1", "b": "2"}
    anchors.learn(anchored('{"c":"3"}'))
    assert anchors.recorded() == {"a": "1", "b": "2"}


async def test_an_operators_word_is_carried_out_and_taken_down() -> None:
    """The namespace is forgotten on both sides, and the annotation goes."""
    hub = FakeCluster("hub", ManualClock())
    hub.add(NODES, node(**{REINSTALL_ANNOTATION: "a"}))
    anchors = NodeAnchors(hub=hub.client(), scope=SCOPE, fence=lambda: None)
    await anchors.record("a", "1")
    await anchors.record("b", "2")
    await anchors.reinstall()
    present = hub.read(NODES, KEY)
    assert anchors.recorded() == parse_anchors(present) == {"b": "2"}
    assert REINSTALL_ANNOTATION not in annotations_of(present)


async def test_a_namespace_that_federate_removes_is_forgotten() -> None:
    """Giving a namespace back is no uninstall, and no operator's word is taken down with it."""
    hub = FakeCluster("hub", ManualClock())
    hub.add(NODES, node(**{REINSTALL_ANNOTATION: "b"}))
    anchors = NodeAnchors(hub=hub.client(), scope=SCOPE, fence=lambda: None)
    await anchors.record("a", "1")
    await anchors.forget("a")
    await anchors.forget("never-known")
    present = hub.read(NODES, KEY)
    assert anchors.recorded() == parse_anchors(present) == {}
    assert annotations_of(present)[REINSTALL_ANNOTATION] == "b"


async def test_records_that_meet_lose_nothing() -> None:
    """Two namespaces prepared at the same time are both kept."""
    hub = FakeCluster("hub", ManualClock())
    hub.add(NODES, node())
    anchors = NodeAnchors(hub=hub.client(), scope=SCOPE, fence=lambda: None)
    await asyncio.gather(*(anchors.record(name, "1") for name in "abcd"))
    assert parse_anchors(hub.read(NODES, KEY)) == dict.fromkeys("abcd", "1")


async def test_records_of_two_processes_lose_nothing() -> None:
    """A former leader and its successor record at once: the version decides, the loser reads."""
    hub = FakeCluster("hub", ManualClock())
    hub.add(NODES, node())
    old, new = (
        NodeAnchors(hub=hub.client(name), scope=SCOPE, fence=lambda: None)
        for name in ("old", "new")
    )
    await asyncio.gather(old.record("a", "1"), new.record("b", "2"))
    assert parse_anchors(hub.read(NODES, KEY)) == {"a": "1", "b": "2"}
    assert len(hub.writes()) == 3  # one of them met the other's version


async def test_endless_conflicts_record_nothing_and_end() -> None:
    """What could not be written on the Node is not believed in memory either."""
    hub = FakeCluster("hub", ManualClock())
    hub.add(NODES, node())
    hub.faults = lambda call: (
        Refuse(Conflict("modified", status=409)) if call.verb == "patch" else None
    )
    anchors = NodeAnchors(hub=hub.client(), scope=SCOPE, fence=lambda: None)
    with pytest.raises(Conflict):
        await anchors.record("a", "1")
    assert anchors.recorded() == {}
    assert len(hub.writes()) == WRITE_TRIES


@pytest.mark.parametrize("hub_id", [None, "another"])
async def test_a_strangers_node_is_never_patched(hub_id: str | None) -> None:
    """Neither to record, nor to forget, nor to take down an operator's word."""
    hub = FakeCluster("hub", ManualClock())
    marks = {} if hub_id is None else {NODE_HUB_ANNOTATION: hub_id}
    hub.add(NODES, {"metadata": {"name": "edge", "annotations": marks}})
    anchors = NodeAnchors(hub=hub.client(), scope=SCOPE, fence=lambda: None)
    for change in (anchors.record("a", "1"), anchors.forget("a"), anchors.reinstall()):
        with pytest.raises(NotOurs):
            await change
    assert hub.writes() == []
    assert anchors.recorded() == {}


# -- which cluster the target is -------------------------------------------------------------------


def memory_of(hub: FakeCluster, name: str = "hub") -> NodeAnchors:
    return NodeAnchors(hub=hub.client(name), scope=SCOPE, fence=lambda: None)


def identified(uid: str, **more: str) -> JsonDict:
    return node(**{TARGET_IDENTITY_ANNOTATION: uid, **more})


async def test_c5_the_cluster_met_first_is_put_on_record() -> None:
    """Under the Node's version, beside the anchors, and with the next registration too."""
    hub = FakeCluster("hub", ManualClock())
    hub.add(NODES, node())
    memory = memory_of(hub)
    memory.learn(hub.read(NODES, KEY))
    assert not memory.is_on_record(hub.read(NODES, KEY))
    memory.meet("a")
    await memory.record_identity()
    assert parse_identity(hub.read(NODES, KEY)) == "a"
    assert memory.is_on_record(hub.read(NODES, KEY))
    [patch] = hub.writes()
    assert {"uid", "resourceVersion"} <= set((patch.body or {})["metadata"])
    await memory.record("ns", "1")
    assert memory.annotations() == {
        ANCHORS_ANNOTATION: '{"ns":"1"}',
        TARGET_IDENTITY_ANNOTATION: "a",
    }


def test_c5_who_is_on_record_is_not_forgotten_for_another() -> None:
    """Meeting another cluster changes nothing; only `unknown` gives way."""
    memory = memory_of(FakeCluster("hub", ManualClock()))
    memory.learn(identified("a"))
    memory.meet("b")
    assert memory.identity == "a"
    unknown = memory_of(FakeCluster("hub", ManualClock()))
    unknown.learn(identified(UNKNOWN_IDENTITY))
    unknown.meet("b")
    assert unknown.identity == "b"


async def test_c5_an_edit_by_hand_is_put_right() -> None:
    """Another uid written over the record is not accepted; there is a word for that."""
    hub = FakeCluster("hub", ManualClock())
    hub.add(NODES, identified("a"))
    memory = memory_of(hub)
    memory.learn(hub.read(NODES, KEY))
    hub.edit(
        NODES, KEY, lambda n: n["metadata"]["annotations"].update({TARGET_IDENTITY_ANNOTATION: "b"})
    )
    assert not memory.is_on_record(hub.read(NODES, KEY))
    await memory.record_identity()
    assert parse_identity(hub.read(NODES, KEY)) == "a"


async def test_c5_an_accepted_cluster_takes_the_place_of_the_one_before() -> None:
    """One write: the new identity, no anchors, and the word is down."""
    hub = FakeCluster("hub", ManualClock())
    hub.add(NODES, identified("a", **{ANCHORS_ANNOTATION: '{"ns":"1"}'}))
    memory = memory_of(hub)
    memory.learn(hub.read(NODES, KEY))
    say(hub, "b")
    await memory.accept("b")
    present = hub.read(NODES, KEY)
    assert (memory.identity, parse_identity(present)) == ("b", "b")
    assert (memory.recorded(), parse_anchors(present)) == ({}, {})
    assert parse_accepted(present) == ""
    assert len(hub.writes()) == 1
    await memory.accept("b")
    assert len(hub.writes()) == 1


async def test_c5_a_word_that_changed_meanwhile_is_not_carried_out() -> None:
    """What an operator took back, or said anew, stays as it is."""
    hub = FakeCluster("hub", ManualClock())
    hub.add(NODES, identified("a"))
    memory = memory_of(hub)
    memory.learn(hub.read(NODES, KEY))
    say(hub, "c")
    await memory.accept("b")
    assert (memory.identity, parse_accepted(hub.read(NODES, KEY))) == ("a", "c")
    assert hub.writes() == []


async def test_c5_to_accept_who_is_on_record_only_takes_the_word_down() -> None:
    """The anchors stay: it is the cluster they stand in."""
    hub = FakeCluster("hub", ManualClock())
    hub.add(NODES, identified("a", **{ANCHORS_ANNOTATION: '{"ns":"1"}'}))
    memory = memory_of(hub)
    memory.learn(hub.read(NODES, KEY))
    say(hub, "a")
    await memory.accept("a")
    assert memory.recorded() == {"ns": "1"}
    assert parse_accepted(hub.read(NODES, KEY)) == ""


async def test_c5_a_cluster_that_cannot_be_known_keeps_the_anchors() -> None:
    """They are all there is to tell whether it is the one from before."""
    hub = FakeCluster("hub", ManualClock())
    hub.add(NODES, identified("a", **{ANCHORS_ANNOTATION: '{"ns":"1"}'}))
    memory = memory_of(hub)
    memory.learn(hub.read(NODES, KEY))
    say(hub, UNKNOWN_IDENTITY)
    await memory.accept(UNKNOWN_IDENTITY)
    assert (memory.identity, memory.recorded()) == (UNKNOWN_IDENTITY, {"ns": "1"})
    await memory.record("other", "2")
    assert parse_identity(hub.read(NODES, KEY)) == UNKNOWN_IDENTITY


async def test_c5_an_acceptance_that_failed_changed_nothing() -> None:
    """A conflict that does not end leaves memory and Node as they were."""
    hub = FakeCluster("hub", ManualClock())
    hub.add(NODES, identified("a"))
    memory = memory_of(hub)
    memory.learn(hub.read(NODES, KEY))
    say(hub, "b")
    hub.faults = lambda call: (
        Refuse(Conflict("modified", status=409)) if call.verb == "patch" else None
    )
    with pytest.raises(Conflict):
        await memory.accept("b")
    assert (memory.identity, parse_identity(hub.read(NODES, KEY))) == ("a", "a")


def test_c5_a_node_that_is_gone_gets_back_what_was_known_before() -> None:
    """Only where it is gone: a Node that stands there knows better, and nobody may guess."""
    hub = FakeCluster("hub", ManualClock())
    before = memory_of(hub)
    before.learn(identified("a", **{ANCHORS_ANNOTATION: '{"ns":"1"}'}))

    def begun_anew() -> NodeAnchors:
        return NodeAnchors(hub=hub.client(), scope=SCOPE, fence=lambda: None, before=before)

    gone = begun_anew()
    assert gone.identity == ""
    gone.recall()
    assert (gone.identity, gone.recorded(), gone.has_learnt) == ("a", {"ns": "1"}, True)
    there = begun_anew()
    there.learn(identified("b"))
    there.recall()
    assert (there.identity, there.recorded()) == ("b", {})
    never = NodeAnchors(hub=hub.client(), scope=SCOPE, fence=lambda: None, before=memory_of(hub))
    never.recall()
    assert (never.identity, never.has_learnt) == ("", False)


def say(hub: FakeCluster, accepted: str) -> None:
    """Let an operator accept a cluster."""
    hub.edit(
        NODES,
        KEY,
        lambda n: n["metadata"]["annotations"].update({ACCEPT_TARGET_ANNOTATION: accepted}),
    )


def test_anchors_that_no_node_remembers_are_found_again() -> None:
    """The Node was deleted while nobody looked: what owns mirrors goes on record, and only that."""
    hub = FakeCluster("hub", ManualClock())
    hub.add(NODES, node(**{ANCHORS_ANNOTATION: '{"a":"1"}'}))
    memory = NodeAnchors(hub=hub.client(), scope=SCOPE, fence=lambda: None)
    memory.learn(hub.read(NODES, KEY))
    asyncio.run(memory.find({"a": "of-another", "b": "2"}))
    assert memory.recorded() == {"a": "1", "b": "2"}
    assert parse_anchors(hub.read(NODES, KEY)) == {"a": "1", "b": "2"}
    writes = len(hub.writes())
    asyncio.run(memory.find({"a": "1", "b": "2"}))
    assert len(hub.writes()) == writes


def test_anchors_are_found_before_there_is_a_node() -> None:
    """They are written with its registration."""
    hub = FakeCluster("hub", ManualClock())
    memory = NodeAnchors(hub=hub.client(), scope=SCOPE, fence=lambda: None)
    asyncio.run(memory.find({"b": "2"}))
    assert memory.annotations() == {ANCHORS_ANNOTATION: '{"b":"2"}'}
    assert hub.writes() == []
