"""Entries of Secrets: how they come and go, and what of it is on record."""

from __future__ import annotations

from typing import Any

import pytest

from federate.companions.entries import lines_of, render_entry
from federate.companions.issued import listing_of, place_of
from federate.companions.keys import CompanionKey, Kind, name_of
from federate.companions.record import Key
from federate.errors import Conflict, NotOurs, Unreachable
from federate.model.naming import anchor_name
from federate.model.objects import JsonDict, ObjectKey, uid_of
from federate.model.resources import CONFIGMAPS
from tests.support.clock import virtual_time
from tests.support.fakeclient import Call, Fault, Refuse
from tests.support.issuestage import TARGET_NAMESPACE, IssueStage, until
from tests.support.views import SCOPE, hub_pod

DB = CompanionKey(TARGET_NAMESPACE, Kind.SECRET, "default", "db")
PLACE, SAID = name_of(SCOPE, DB), "Secret default/db"
ANCHOR = ObjectKey(TARGET_NAMESPACE, anchor_name(SCOPE))


def entry_in(stage: IssueStage) -> JsonDict | None:
    return stage.target.find(CONFIGMAPS, PLACE)


def told(stage: IssueStage) -> list[tuple[Key, bool]]:
    """What the lists tell those who listen."""
    heard: list[tuple[Key, bool]] = []
    stage.lists.listeners.append(lambda key, is_there: heard.append((key, is_there)))
    return heard


@virtual_time
async def test_an_entry_comes_and_goes() -> None:
    """It is owned by the anchor, says whom it is for, and is known before a watch tells of it."""
    stage = IssueStage()
    heard = told(stage)
    made = await stage.lists.enlist(PLACE, SAID)
    assert made["metadata"]["ownerReferences"][0]["uid"] == uid_of(
        stage.target.read(CONFIGMAPS, ANCHOR)
    )
    assert not made.get("data")
    assert stage.lists.entry(PLACE) == made
    assert stage.lists.on_record() == {DB}
    await stage.lists.strike(PLACE, made)
    assert entry_in(stage) is None
    assert stage.lists.entry(PLACE) is None
    assert stage.lists.on_record() == set()
    assert heard == [(DB, True), (DB, False)]


@virtual_time
async def test_the_watch_tells_of_what_others_do() -> None:
    """Made by a process before us; removed by somebody in the target."""
    stage = IssueStage()
    heard = told(stage)
    anchor = stage.target.read(CONFIGMAPS, ANCHOR)
    stage.target.add(CONFIGMAPS, render_entry(PLACE, SAID, scope=SCOPE, anchor=anchor))
    async with stage.running():
        assert stage.lists.on_record() == {DB}
        stage.target.delete_by_user(CONFIGMAPS, PLACE)
        await until(lambda: not stage.lists.on_record())
    assert heard == [(DB, True), (DB, False)]


@pytest.mark.parametrize("is_known", [True, False])
@virtual_time
async def test_c70_one_that_is_there_is_taken_up_and_who_strikes_it_comes_too_late(
    is_known: bool,
) -> None:
    """Whether the watch told of it or the server did; under today's anchor."""
    stage = IssueStage()
    before = await stage.lists.enlist(PLACE, SAID)
    stage.target.delete_by_user(CONFIGMAPS, ANCHOR)
    await stage.ground.prepare("default")
    if not is_known:
        stage.start()
    taken = await stage.lists.enlist(PLACE, SAID)
    assert uid_of(taken) == uid_of(before)
    assert taken["metadata"]["annotations"]["federate.dev/taken-up"] == "1"
    assert taken["metadata"]["ownerReferences"][0]["uid"] == uid_of(
        stage.target.read(CONFIGMAPS, ANCHOR)
    )
    with pytest.raises(Conflict):
        await stage.lists.strike(PLACE, before)
    assert entry_in(stage) is not None
    await stage.lists.strike(PLACE, taken)
    assert entry_in(stage) is None


@virtual_time
async def test_a_strangers_configmap_of_the_name_is_left_alone() -> None:
    """Nothing may be made then."""
    stage = IssueStage()
    stage.target.add(CONFIGMAPS, {"metadata": {"namespace": PLACE.namespace, "name": PLACE.name}})
    with pytest.raises(NotOurs, match="does not carry federate's marks"):
        await stage.lists.enlist(PLACE, SAID)
    assert stage.lists.entry(PLACE) is None
    found = entry_in(stage)
    assert found is not None and "labels" not in found["metadata"]


@virtual_time
async def test_an_entry_whose_marks_the_target_takes_off_is_taken_back() -> None:
    """Nobody would know it for one; the words say what to look for."""
    stage = IssueStage()

    def strip(call: Call) -> Fault | None:
        if call.verb == "create" and call.body is not None:
            call.body["metadata"]["labels"] = {}
        return None

    stage.target.faults = strip
    with pytest.raises(NotOurs, match="let admission there leave"):
        await stage.lists.enlist(PLACE, SAID)
    assert entry_in(stage) is None


@virtual_time
async def test_without_an_anchor_there_is_no_entry() -> None:
    """It would outlive an uninstall."""
    stage = IssueStage()
    stage.target.delete_by_user(CONFIGMAPS, ANCHOR)
    with pytest.raises(Conflict, match="the anchor is not there"):
        await stage.lists.enlist(PLACE, SAID)
    assert entry_in(stage) is None


@virtual_time
async def test_one_that_somebodys_finalizer_holds_is_none() -> None:
    """What rests on it would go with it; it is waited for."""
    stage = IssueStage()
    made = await stage.lists.enlist(PLACE, SAID)
    stage.target.edit(
        CONFIGMAPS, PLACE, lambda obj: obj["metadata"].update(finalizers=["example.com/x"])
    )
    stage.start()
    async with stage.running():
        held = stage.lists.entry(PLACE)
        assert held is not None
        await stage.lists.strike(PLACE, held)
        assert stage.lists.entry(PLACE) is None
        with pytest.raises(Conflict, match="still being removed"):
            await stage.lists.enlist(PLACE, SAID)
    assert uid_of(made) == uid_of(held)


@virtual_time
async def test_a_failure_is_told_and_nothing_is_known_by_it() -> None:
    """Whether the request arrived nobody knows; it is asked again."""
    stage = IssueStage()
    stage.target.faults = lambda call: Refuse(Unreachable("timed out"))
    with pytest.raises(Unreachable):
        await stage.lists.enlist(PLACE, SAID)
    assert stage.lists.entry(PLACE) is None
    stage.target.faults = None
    assert await stage.lists.enlist(PLACE, SAID)


@virtual_time
async def test_lines_of_earlier_versions_are_read_and_struck() -> None:
    """In the anchor's data, under its version; whatever else stands there stays."""
    stage = IssueStage()
    tokens = stage.token_key(hub_pod("web").with_uid("uid-web").build())
    place = place_of(SCOPE, tokens)
    lines = {"README": "x", PLACE.name: SAID, place.name: listing_of(tokens), "other": SAID}
    stage.target.edit(CONFIGMAPS, ANCHOR, lambda obj: obj.update(data=lines))
    async with stage.running():
        assert stage.lists.on_record() == {DB, tokens}
        assert stage.lists.has_line(PLACE) and stage.lists.entry(PLACE) is None
        await stage.lists.strike(PLACE, None)
        assert not stage.lists.has_line(PLACE)
        left = lines_of(stage.target.read(CONFIGMAPS, ANCHOR))
        assert left.keys() == {"README", place.name, "other"}


def test_c73_an_entry_says_no_more_than_a_name() -> None:
    """Nothing that could be guessed at."""
    anchor: Any = {"metadata": {"name": "anchor", "uid": "u"}}
    body = render_entry(PLACE, SAID, scope=SCOPE, anchor=anchor)
    assert body.keys() == {"apiVersion", "kind", "metadata"}
