"""Watches of the hub's objects: never a gap that is not read again, never more than allowed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from federate.companions.keys import CompanionKey, Kind
from federate.companions.watches import Watch
from federate.companions.watching import FORBIDDEN_SECONDS, Watching
from federate.errors import ClusterError, Expired, Forbidden, Throttled, Unreachable
from federate.model.objects import JsonDict, ObjectKey
from federate.model.resources import SECRETS
from tests.support.clock import virtual_time
from tests.support.companions import key_for
from tests.support.fakeclient import Call, Fault, Refuse
from tests.support.fakecluster import FakeCluster
from tests.support.fakestore import Signal


class Stage:
    """One hub in memory; what the watches say is written down."""

    def __init__(self, *, most: int = 200) -> None:
        self.loop = asyncio.get_running_loop()
        self.hub = FakeCluster("hub", self.loop.time)
        self.wanted: list[CompanionKey] = []
        self.seen: list[tuple[str, str]] = []
        self.doubted: list[str] = []
        self.watching = Watching(
            self.hub.client(),
            wanted=lambda: list(self.wanted),
            is_wanted=lambda kind, key: any(
                (w.kind, w.hub_key) == (kind, key) for w in self.wanted
            ),
            seen=lambda _kind, key, version: self.seen.append((key.name, version)),
            doubted=lambda _kind, key: self.doubted.append(key.name),
            clock=self.loop.time,
            random=random.Random(1),
            most=most,
        )

    def give(self, name: str, **fields: Any) -> JsonDict:
        body = {"metadata": {"namespace": "default", "name": name}, "data": {}, **fields}
        return self.hub.add(SECRETS, body)

    def edit(self, name: str) -> str:
        key = ObjectKey("default", name)
        edited = self.hub.edit(SECRETS, key, lambda obj: obj["data"].update(x="eA=="))
        return str(edited["metadata"]["resourceVersion"])

    def take(self, name: str) -> None:
        self.hub.delete_by_user(SECRETS, ObjectKey("default", name))

    def want(self, *names: str) -> None:
        self.wanted = [key_for(Kind.SECRET, name) for name in names]
        self.watching.wake()

    def is_live(self, name: str) -> bool:
        return self.watching.is_live(Kind.SECRET, ObjectKey("default", name))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.watching.run())
        await asyncio.sleep(3.0)
        try:
            yield
            assert not task.done()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def opened(self) -> list[Call]:
        return [call for call in self.hub.calls if call.verb == "watch"]


@virtual_time
async def test_what_is_there_and_what_changes_is_told() -> None:
    stage = Stage()
    version = stage.give("a")["metadata"]["resourceVersion"]
    stage.want("a")
    async with stage.running():
        assert stage.is_live("a")
        assert stage.seen == [("a", version)]
        changed = stage.edit("a")
        stage.take("a")
        await asyncio.sleep(0.1)
        assert stage.seen[1:] == [("a", changed), ("a", "")]
        assert stage.doubted == []


@virtual_time
async def test_what_appears_later_is_told_though_the_watch_was_silent() -> None:
    """Of an object that is not there nothing is said, so it counts as unwatched until then."""
    stage = Stage()
    stage.want("a")
    async with stage.running():
        assert not stage.is_live("a")
        version = stage.give("a")["metadata"]["resourceVersion"]
        await asyncio.sleep(0.1)
        assert stage.seen == [("a", version)]
        assert stage.is_live("a")


@virtual_time
async def test_what_the_beginning_does_not_show_is_read_again() -> None:
    """It may have been deleted between its read and the beginning of the watch."""
    stage = Stage()
    for name in ("a", "b", "c", "d"):
        stage.give(name)
    stage.want("a", "b", "c", "d", "gone")
    async with stage.running():
        assert stage.watching.count == 1
        assert stage.doubted == ["gone"]
        assert {name for name, _ in stage.seen} == {"a", "b", "c", "d"}


@virtual_time
async def test_a_single_watch_that_a_bookmark_brings_to_life_reads_again() -> None:
    stage = Stage()
    stage.want("gone")
    async with stage.running():
        stage.hub.bookmark()
        await asyncio.sleep(2.0)
        assert stage.is_live("gone")
        assert stage.doubted == ["gone"]


@virtual_time
async def test_others_objects_are_not_told() -> None:
    stage = Stage()
    for name in "abcde":
        stage.give(name)
    stage.want(*"abcde")
    async with stage.running():
        stage.seen.clear()
        stage.give("stranger")
        await asyncio.sleep(0.1)
        assert stage.seen == []


@virtual_time
async def test_a_watch_that_breaks_goes_on_where_it_was() -> None:
    """What happened meanwhile is told; until it lives again it is no watch."""
    stage = Stage()
    stage.give("a")
    stage.want("a")
    async with stage.running():
        stage.seen.clear()
        stage.hub.is_down = True
        stage.hub.store.signal(Signal.BREAK, client="hub")
        await asyncio.sleep(0.1)
        assert not stage.is_live("a")
        changed = stage.edit("a")
        await asyncio.sleep(20.0)
        stage.hub.come_up()
        await asyncio.sleep(60.0)
        assert ("a", changed) in stage.seen
        assert stage.is_live("a")


@virtual_time
async def test_an_expired_watch_begins_anew_and_reads_what_it_does_not_show() -> None:
    stage = Stage()
    stage.give("a")
    stage.want("a")
    expired: list[Call] = []

    def expire_once(call: Call) -> Fault | None:
        if call.verb != "watch" or len(expired) >= 2:
            return None
        expired.append(call)
        return Refuse(Expired("too old", status=410))

    async with stage.running():
        stage.hub.faults = expire_once
        stage.hub.store.signal(Signal.BREAK, client="hub")
        await asyncio.sleep(0.1)
        stage.take("a")
        await asyncio.sleep(20.0)
        assert len(expired) == 2
        stage.hub.bookmark()
        await asyncio.sleep(2.0)
        assert stage.doubted == ["a"]


@virtual_time
async def test_what_may_not_be_watched_is_tried_again_seldom() -> None:
    stage = Stage()
    stage.give("a")
    stage.want("a")
    stage.hub.faults = lambda call: (
        Refuse(Forbidden("cannot watch", status=403)) if call.verb == "watch" else None
    )
    async with stage.running():
        await asyncio.sleep(2 * FORBIDDEN_SECONDS)
        assert len(stage.opened()) <= 3
        assert stage.watching.count <= 1
        assert not stage.is_live("a")
        stage.hub.faults = None
        await asyncio.sleep(2 * FORBIDDEN_SECONDS)
        assert stage.is_live("a")


@pytest.mark.parametrize(
    ("error", "least"),
    [(Unreachable("no answer"), 5), (Throttled("wait"), 3)],
)
@virtual_time
async def test_failures_back_off(error: ClusterError, least: int) -> None:
    stage = Stage()
    stage.want("a")
    if isinstance(error, Throttled):
        error.retry_after_seconds = 60.0
    stage.hub.faults = lambda call: Refuse(error) if call.verb == "watch" else None
    async with stage.running():
        await asyncio.sleep(300.0)
        assert least <= len(stage.opened()) <= 30


@virtual_time
async def test_a_server_that_ends_watches_at_once_is_not_stormed() -> None:
    stage = Stage()
    stage.want("a")
    async with stage.running():
        for _ in range(50):
            stage.hub.store.signal(Signal.CLOSE, client="hub")
            await asyncio.sleep(0.05)
        assert len(stage.opened()) <= 10


@virtual_time
async def test_no_more_watches_than_allowed_are_open() -> None:
    """And those that nobody wants any more are closed."""
    stage = Stage(most=3)
    keys = [CompanionKey("t", Kind.SECRET, f"ns{n}", "s") for n in range(10)]
    stage.wanted = keys
    async with stage.running():
        assert stage.watching.count == 3
        assert len(stage.opened()) == 3
        stage.wanted = []
        stage.watching.wake()
        await asyncio.sleep(2.0)
        assert stage.watching.count == 0
        assert not stage.hub.store.watches


@virtual_time
async def test_one_watch_a_namespace_takes_over_from_several() -> None:
    stage = Stage()
    for name in "abcde":
        stage.give(name)
    stage.want("a", "b")
    async with stage.running():
        assert set(stage.watching._open) == {
            Watch(Kind.SECRET, "default", "a"),
            Watch(Kind.SECRET, "default", "b"),
        }
        stage.want(*"abcde")
        await asyncio.sleep(3.0)
        assert set(stage.watching._open) == {Watch(Kind.SECRET, "default")}
        assert stage.is_live("e")
