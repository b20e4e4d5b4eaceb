"""The hub's memory of anchors: on the Node, and in the process (C23)."""

from __future__ import annotations

import asyncio

import pytest

from federate.errors import Conflict, NotOurs
from federate.model.marks import ANCHORS_ANNOTATION, NODE_HUB_ANNOTATION, REINSTALL_ANNOTATION
from federate.model.objects import JsonDict, ObjectKey, annotations_of
from federate.model.resources import NODES
from federate.node.anchors import WRITE_TRIES, NodeAnchors, parse_anchors, parse_reinstall
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
    assert anchors.format() == ""
    await anchors.record("a", "1")
    present = hub.read(NODES, KEY)
    assert parse_anchors(present) == {"a": "1"}
    assert annotations_of(present)["note"] == "x"
    restarted = NodeAnchors(hub=hub.client(), scope=SCOPE, fence=lambda: None)
    restarted.learn(present)
    assert restarted.recorded() == {"a": "1"}
    assert restarted.format() == '{"a":"1"}'


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
    assert anchors.format() == '{"a":"1"}'


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
