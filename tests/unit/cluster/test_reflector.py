"""The reflector against a scripted port, in virtual time."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from operator import attrgetter
from typing import Any, TypeAlias

import pytest

from federate.cluster.port import Listing, WatchEvent
from federate.cluster.reflector import MOST_BACK_OFF_SECONDS, MOST_SUSPECTS, Reflector
from federate.cluster.store import Change, Store
from federate.errors import (
    ClusterError,
    Expired,
    Forbidden,
    NotFound,
    Throttled,
    Unauthorized,
    Unreachable,
)
from federate.model.objects import JsonDict, JsonObject, ObjectKey
from federate.model.resources import PODS, Resource
from federate.patch.document import PatchBody


def pod(name: str, version: str, **more: Any) -> JsonDict:
    metadata = {"namespace": "ns", "name": name, "uid": f"u-{name}", "resourceVersion": version}
    return {"metadata": metadata, **more}


def event(kind: str, name: str, version: str) -> WatchEvent:
    return WatchEvent(type=kind, object=pod(name, version))


def bookmark(version: str) -> WatchEvent:
    return WatchEvent(type="BOOKMARK", object={"metadata": {"resourceVersion": version}})


Step: TypeAlias = WatchEvent | ClusterError | Callable[[], Awaitable[object] | None]


class Done(Exception):
    """The script is at its end."""


class ScriptedPort:
    """Answers lists, watches and gets from scripts; an error in a script is raised."""

    name = "east"

    def __init__(self) -> None:
        self.lists: list[Listing | ClusterError] = []
        self.watches: list[list[Step]] = []
        self.gets: dict[ObjectKey, JsonDict] = {}
        self.asked: list[dict[str, Any]] = []
        self.closed_watches = 0
        self.before_get: Callable[[], object] = lambda: None

    async def list(self, resource: Resource, **options: Any) -> Listing:
        self.asked.append({"verb": "list", **options})
        if not self.lists:
            raise Done
        answer = self.lists.pop(0)
        if isinstance(answer, ClusterError):
            raise answer
        return answer

    async def watch(self, resource: Resource, **options: Any) -> AsyncIterator[WatchEvent]:
        self.asked.append({"verb": "watch", **options})
        if not self.watches:
            raise Done
        try:
            for step in self.watches.pop(0):
                if isinstance(step, ClusterError):
                    raise step
                if isinstance(step, WatchEvent):
                    yield step
                elif (waiting := step()) is not None:
                    await waiting
        finally:
            self.closed_watches += 1

    async def get(
        self,
        resource: Resource,
        key: ObjectKey,
        *,
        subresource: str = "",
        metadata_only: bool = False,
    ) -> JsonDict:
        self.asked.append({"verb": "get", "key": key})
        self.before_get()
        if key not in self.gets:
            raise NotFound("gone")
        return self.gets[key]

    async def create(self, *args: Any, **options: Any) -> JsonDict:
        raise NotImplementedError

    async def patch(
        self, resource: Resource, key: ObjectKey, patch: PatchBody, **options: Any
    ) -> JsonDict:
        raise NotImplementedError

    async def replace(self, *args: Any, **options: Any) -> JsonDict:
        raise NotImplementedError

    async def delete(self, *args: Any, **options: Any) -> JsonDict | None:
        raise NotImplementedError

    async def request_token(self, *args: Any) -> JsonDict:
        raise NotImplementedError

    async def raw_get(self, path: str) -> JsonDict:
        raise NotImplementedError


class Bench:
    """A reflector with everything around it under the test's hand."""

    def __init__(self, **options: Any) -> None:
        self.port = ScriptedPort()
        self.now = 100.0
        self.slept: list[float] = []
        self.changes: list[Change] = []
        self.store = Store()
        self.during_sleep: Callable[[], None] = lambda: None
        settings: dict[str, Any] = {"on_change": self.changes.append, **options}
        self.reflector = Reflector(
            self.port,
            PODS,
            self.store,
            name="target-pods",
            clock=lambda: self.now,
            sleep=self.sleep,
            jitter=lambda: 0.5,
            **settings,
        )

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        self.during_sleep()
        for _ in range(10):
            await asyncio.sleep(0)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    async def play(self) -> None:
        with pytest.raises(Done):
            await self.reflector.run()

    def lists(self, version: str, *items: JsonDict) -> None:
        self.port.lists.append(Listing(items=list(items), resource_version=version))

    def watches(self, *steps: Step) -> None:
        self.port.watches.append(list(steps))

    def later(self, seconds: float) -> Callable[[], None]:
        def move() -> None:
            self.now += seconds

        return move

    @property
    def watched_from(self) -> list[str]:
        return [a["resource_version"] for a in self.port.asked if a["verb"] == "watch"]

    @property
    def names(self) -> list[str]:
        return sorted(map(attrgetter("name"), self.store.keys()))


# --- list and watch ----------------------------------------------------------------------------


async def test_list_then_watch() -> None:
    """What is there is listed, what happens afterwards follows, each with its change."""
    b = Bench(namespace="ns", label_selector="app=x", field_selector="spec.nodeName=n")
    b.lists("5", pod("a", "1"))
    b.watches(event("ADDED", "b", "6"), event("MODIFIED", "a", "7"), event("DELETED", "b", "8"))
    assert not b.reflector.synced.is_set()
    await b.play()
    assert b.reflector.synced.is_set()
    assert b.names == ["a"]
    assert [(c.key.name, c.old is None, c.new is None) for c in b.changes] == [
        ("a", True, False),
        ("b", True, False),
        ("a", False, False),
        ("b", False, True),
    ]
    first, second = b.port.asked[:2]
    selection = {"namespace": "ns", "label_selector": "app=x", "field_selector": "spec.nodeName=n"}
    assert first.items() >= (selection | {"verb": "list", "metadata_only": False}).items()
    assert second.items() >= (selection | {"verb": "watch", "resource_version": "5"}).items()
    assert second["timeout_seconds"] == 270.0
    assert b.reflector.relists == 1


async def test_a_change_is_delivered_before_the_next_event_is_read() -> None:
    """Nothing piles up between the server and the handler."""
    seen: list[int] = []
    b = Bench()
    b.lists("5")
    b.watches(
        event("ADDED", "a", "6"),
        lambda: seen.append(len(b.changes)),
        event("ADDED", "b", "7"),
        lambda: seen.append(len(b.changes)),
    )
    await b.play()
    assert seen == [1, 2]


async def test_what_a_list_changed_is_let_go_as_soon_as_it_is_told() -> None:
    """Whoever is told unpacks it: all of ten thousand pods would take 140 MB."""
    alive: list[int] = []

    def look(change: Change) -> None:
        assert change.new is not None
        alive.append(sum(isinstance(obj, Change) for obj in gc.get_objects()))

    b = Bench(on_change=look)
    b.lists("5", *(pod(f"p{n}", "1") for n in range(20)))
    gc.collect()
    await b.play()
    assert alive == list(range(alive[0], alive[0] - 20, -1))


async def test_resume_without_listing() -> None:
    """After an end or a break the watch goes on behind the last event or bookmark."""
    b = Bench()
    b.lists("5")
    b.watches(event("ADDED", "a", "6"), bookmark("9"))
    b.watches(event("MODIFIED", "a", "11"), Unreachable("cut"))
    b.watches(bookmark("12"))
    await b.play()
    assert b.watched_from == ["5", "9", "11", "12"]
    assert b.reflector.relists == 1
    assert b.slept == [0.5]


async def test_a_clean_end_is_followed_at_once() -> None:
    """A watch that ends as agreed is resumed without a pause, even where nothing happened."""
    b = Bench()
    b.lists("5")
    for _ in range(3):
        b.watches(b.later(300.0))
    await b.play()
    assert b.slept == []
    assert b.watched_from == ["5"] * 4


async def test_watches_that_end_at_once_back_off() -> None:
    """A server or proxy that ends every watch immediately is not asked in a tight loop."""
    b = Bench()
    b.lists("5")
    for _ in range(4):
        b.watches()
    await b.play()
    assert b.slept == [1.0, 2.0, 4.0]


async def test_an_expired_version_is_listed_again() -> None:
    """A version that is too old leads to a new list, whose differences are delivered."""
    b = Bench()
    b.lists("5", pod("a", "1"), pod("b", "2"))
    b.watches(Expired("too old"))
    b.lists("90", pod("b", "2"), pod("c", "80"))
    b.watches(bookmark("91"))
    await b.play()
    assert b.reflector.relists == 2
    assert [(c.key.name, c.new is None) for c in b.changes[2:]] == [("c", False), ("a", True)]
    assert b.watched_from == ["5", "90", "91"]
    assert b.slept == []


async def test_versions_that_expire_over_and_over_back_off() -> None:
    """A server whose every version is too old is not listed in a tight loop."""
    b = Bench()
    for _ in range(4):
        b.lists("5")
        b.watches(Expired("too old"))
    await b.play()
    assert b.reflector.relists == 4
    assert b.slept == [1.0, 2.0, 4.0]


async def test_errors_back_off_and_are_readable() -> None:
    """Failures are retried ever more slowly, and the last one can be read until it is over."""
    b = Bench()
    b.port.lists += [Unauthorized("no"), Forbidden("no"), *[Unreachable("no")] * 7]
    errors: list[ClusterError | None] = []
    b.during_sleep = lambda: errors.append(b.reflector.last_error)
    b.lists("5")
    b.watches(lambda: errors.append(b.reflector.last_error))
    await b.play()
    assert b.slept[:7] == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0]
    assert max(b.slept) == MOST_BACK_OFF_SECONDS
    assert [type(e) for e in errors[:2]] == [Unauthorized, Forbidden]
    assert None in errors


async def test_success_resets_the_back_off() -> None:
    """After a sign of life the next failure starts with the shortest pause again."""
    b = Bench()
    b.lists("5")
    b.watches(Unreachable("no"))
    b.watches(Unreachable("no"))
    b.watches(bookmark("6"), Unreachable("no"))
    await b.play()
    assert b.slept == [0.5, 1.0, 0.5]


async def test_a_throttled_reflector_waits_as_told() -> None:
    """The server's wish for patience outweighs a shorter pause of ours."""
    b = Bench()
    busy = Throttled("busy")
    busy.retry_after_seconds = 17.0
    b.port.lists.append(busy)
    await b.play()
    assert b.slept == [17.0]


async def test_freshness() -> None:
    """Each event and bookmark shows that the connection lives."""
    b = Bench()
    b.lists("5")
    b.watches(b.later(60.0), bookmark("6"), b.later(7.0), Unreachable("cut"))
    assert b.reflector.last_activity_at == float("-inf")
    await b.play()
    assert b.reflector.last_activity_at == 160.0


async def test_what_a_handler_raises_ends_the_reflector() -> None:
    """A bug in a handler is not swallowed; a new run goes on with what it kept others from."""
    seen: list[str] = []

    def handle(change: Change) -> None:
        seen.append(change.key.name)
        if change.key.name == "a":
            raise ZeroDivisionError

    b = Bench(on_change=handle)
    b.lists("5", pod("a", "1"), pod("b", "2"))
    with pytest.raises(ZeroDivisionError):
        await b.reflector.run()
    assert seen == ["a"]
    await b.play()
    assert seen == ["a", "b"]
    assert b.watched_from == ["5"]


async def test_a_handler_that_raises_leaves_no_watch_open() -> None:
    """The connection of a watch is given back when its events cannot be handled."""

    def handle(change: Change) -> None:
        raise ZeroDivisionError

    b = Bench(on_change=handle)
    b.lists("5")
    b.watches(event("ADDED", "a", "6"), event("ADDED", "b", "7"))
    with pytest.raises(ZeroDivisionError):
        await b.reflector.run()
    assert b.port.closed_watches == 1


async def test_cancellation_ends_it() -> None:
    """A reflector stops when it is cancelled."""
    b = Bench()
    b.port.lists = [Unreachable("no")]
    asleep = asyncio.Event()

    async def sleep(seconds: float) -> None:
        asleep.set()
        await asyncio.Event().wait()

    reflector = Reflector(b.port, PODS, b.store, on_change=b.changes.append, name="x", sleep=sleep)
    task = asyncio.create_task(reflector.run())
    await asleep.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


# --- the comparison behind the events ----------------------------------------------------------


async def synced(*items: JsonDict, **options: Any) -> Bench:
    b = Bench(**options)
    b.lists("5", *items)
    await b.play()
    b.changes.clear()
    b.port.asked.clear()
    return b


async def test_verify_before_the_first_list() -> None:
    """There is nothing to compare before the store was filled."""
    b = Bench()
    assert await b.reflector.verify() == 0
    assert b.port.asked == []


async def test_verify_finds_nothing() -> None:
    """A store that equals the server costs one list of metadata and no pause."""
    b = await synced(pod("a", "1"), label_selector="app=x")
    b.lists("6", pod("a", "1"))
    assert await b.reflector.verify() == 0
    (asked,) = b.port.asked
    assert asked["bare"]
    assert (asked["resource_version"], asked["label_selector"]) == ("0", "app=x")
    assert b.slept == []


async def test_verify_repairs_what_events_did_not_bring() -> None:
    """Objects missed, changed or left over are read one by one and delivered as changes."""
    b = await synced(pod("same", "1"), pod("changed", "1"), pod("gone", "1"))
    b.lists("9", pod("same", "1"), pod("changed", "7"), pod("new", "8"))
    b.port.gets = {
        ObjectKey("ns", "changed"): pod("changed", "7", spec={}),
        ObjectKey("ns", "new"): pod("new", "8"),
    }
    assert await b.reflector.verify() == 3
    assert b.slept == [1.0]
    assert b.names == ["changed", "new", "same"]
    whole = b.store.get(ObjectKey("ns", "changed"))
    assert whole is not None
    assert "spec" in whole
    outcome = {c.key.name: (c.old is None, c.new is None) for c in b.changes}
    assert outcome == {
        "changed": (False, False),
        "new": (True, False),
        "gone": (False, True),
    }


async def test_two_reflectors_feed_one_store() -> None:
    """Each with its namespace: neither lists nor verifies away what is the other's."""
    b = await synced(pod("a", "1"), namespace="ns")
    other = Bench(namespace="attic")
    other.reflector._store = b.store
    there = {"metadata": {**pod("a", "1")["metadata"], "namespace": "attic", "uid": "u-attic"}}
    other.lists("5", there)
    await other.play()
    assert len(b.store) == 2
    b.lists("6", pod("a", "1"))
    assert await b.reflector.verify() == 0
    assert b.port.asked[-1]["namespace"] == "ns"
    other.lists("7")
    assert await other.reflector.verify() == 1
    assert list(b.store.keys()) == [ObjectKey("ns", "a")]
    b.reflector._must_list = True
    b.lists("8")
    other.lists("9", there)
    other.reflector._must_list = True
    await other.play()
    await b.play()
    assert list(b.store.keys()) == [ObjectKey("attic", "a")]


async def test_verify_waits_for_events_on_their_way() -> None:
    """Events that were merely late clear a suspicion without a read."""
    b = await synced(pod("late", "1"), pod("other", "1"))
    b.lists("9", pod("late", "7"), pod("other", "3"))

    def events_arrive() -> None:
        b.store.apply(event("MODIFIED", "late", "7"))
        b.store.apply(event("MODIFIED", "other", "8"))

    b.during_sleep = events_arrive
    assert await b.reflector.verify() == 0
    assert [a["verb"] for a in b.port.asked] == ["list"]


async def test_verify_with_a_list_that_lags() -> None:
    """A list from a lagging cache makes no repair: the direct read agrees with the store."""
    b = await synced(pod("a", "7"))
    b.lists("3", pod("a", "2"))
    b.port.gets = {ObjectKey("ns", "a"): pod("a", "7")}
    assert await b.reflector.verify() == 0
    assert b.changes == []


async def test_verify_and_an_event_during_the_read() -> None:
    """An event that arrives during the direct read wins over its reply."""
    b = await synced(pod("a", "1"))
    b.lists("9", pod("a", "7"))
    b.port.gets = {ObjectKey("ns", "a"): pod("a", "7")}
    b.port.before_get = lambda: b.store.apply(event("MODIFIED", "a", "8"))
    assert await b.reflector.verify() == 0
    kept = b.store.get(ObjectKey("ns", "a"))
    assert kept is not None
    assert kept["metadata"]["resourceVersion"] == "8"


async def test_verify_honours_the_selection() -> None:
    """An object that the selectors select no more is removed."""

    def here(obj: JsonObject) -> bool:
        return bool(obj.get("spec"))

    b = await synced(pod("a", "1"), matches=here)
    b.lists("9")
    b.port.gets = {ObjectKey("ns", "a"): pod("a", "7")}
    assert await b.reflector.verify() == 1
    assert b.names == []


async def test_verify_of_metadata() -> None:
    """A reflector of metadata stays one: a repaired object has no spec."""
    b = await synced(pod("a", "1"), metadata_only=True)
    b.lists("9", pod("a", "7"))
    b.port.gets = {ObjectKey("ns", "a"): pod("a", "7", spec={"x": 1})}
    assert await b.reflector.verify() == 1
    kept = b.store.get(ObjectKey("ns", "a"))
    assert kept is not None
    assert "spec" not in kept


async def test_verify_of_something_that_vanished_meanwhile() -> None:
    """An object that was only listed and is gone when it is read is nothing to repair."""
    b = await synced()
    b.lists("9", pod("a", "7"))
    assert await b.reflector.verify() == 0
    assert b.changes == []


async def test_verify_lists_again_where_a_write_shields_the_key() -> None:
    """Where a write of ours whose event never came hides the truth, all is listed again."""
    b = await synced(pod("a", "1"))
    b.store.writing(ObjectKey("ns", "a")).commit(pod("a", "2"))
    b.lists("9", pod("a", "7"))
    b.port.gets = {ObjectKey("ns", "a"): pod("a", "7")}
    assert await b.reflector.verify() == 0
    b.lists("9", pod("a", "7"))
    await b.play()
    assert b.reflector.relists == 2
    assert [c.new["metadata"]["resourceVersion"] for c in b.changes if c.new] == ["7"]


async def test_verify_with_very_many_differences() -> None:
    """A store that differs widely is listed again during the watch, not read one by one."""
    b = await synced()
    many = [pod(f"p{i}", "7") for i in range(MOST_SUSPECTS + 1)]
    b.lists("9", *many)
    assert await b.reflector.verify() == 0
    assert [a["verb"] for a in b.port.asked] == ["list"]
    b.lists("9", *many)
    await b.play()
    assert len(b.store) == len(many)


async def silence() -> None:
    """Never end, and never say anything."""
    await asyncio.Event().wait()


async def test_a_needed_list_ends_a_mute_watch() -> None:
    """Where the collection must be listed, a watch that brings nothing does not hold that up."""
    b = Bench()
    many = [pod(f"p{i}", "7") for i in range(MOST_SUSPECTS + 1)]
    b.lists("5")
    b.watches(silence)
    running = asyncio.create_task(b.play())
    await b.reflector.synced.wait()
    b.lists("9", *many)
    assert await b.reflector.verify() == 0
    b.lists("9", *many)
    await running
    assert len(b.store) == len(many)
    assert b.watched_from == ["5", "9"]
    assert b.port.closed_watches == 1


async def test_a_watch_that_missed_something_in_silence_is_begun_anew() -> None:
    """It may be mute: from a version the server never reached, its storage restored."""
    gaps: list[str] = []
    b = Bench(on_gap=lambda: gaps.append("gap"))
    b.lists("900", pod("old", "900"))
    b.watches(silence)
    running = asyncio.create_task(b.play())
    await b.reflector.synced.wait()
    b.lists("5", pod("new", "5"))
    b.port.gets = {ObjectKey("ns", "new"): pod("new", "5")}
    assert await b.reflector.verify() == 2
    assert b.names == ["new"]
    b.lists("6", pod("new", "5"))
    await running
    assert b.watched_from == ["900", "6"]
    assert gaps == ["gap"]


async def test_a_watch_is_ended_once() -> None:
    """Several reasons to list again in one comparison, or in two, are one."""
    b = Bench()
    b.lists("5", pod("a", "1"), pod("b", "1"))
    b.watches(silence)
    running = asyncio.create_task(b.play())
    await b.reflector.synced.wait()
    for name in ("a", "b"):
        b.store.writing(ObjectKey("ns", name)).commit(pod(name, "2"))
    for _ in range(2):
        b.lists("9", pod("a", "7"), pod("b", "7"), pod("c", "7"))
    b.port.gets = {ObjectKey("ns", name): pod(name, "7") for name in ("a", "b", "c")}
    await b.reflector.verify()
    await running
    assert b.watched_from == ["5", "9"]


async def test_a_watch_that_speaks_goes_on_after_a_repair() -> None:
    """One that lags, or lost a single event among others, is not given up."""
    b = Bench()
    told, ends = asyncio.Event(), asyncio.Event()
    b.lists("5", pod("a", "5"))
    b.watches(told.wait, event("ADDED", "b", "7"), ends.wait)
    b.during_sleep = told.set
    running = asyncio.create_task(b.play())
    await b.reflector.synced.wait()
    b.lists("9", pod("a", "6"), pod("b", "7"))
    b.port.gets = {ObjectKey("ns", "a"): pod("a", "6")}
    assert await b.reflector.verify() == 1
    assert b.names == ["a", "b"]
    ends.set()
    await running
    assert b.watched_from == ["5", "7"]


async def test_a_time_out_of_a_handler_is_not_taken_for_a_needed_list() -> None:
    """What `on_change` raises ends the reflector, whatever its class."""

    def handler(_change: Change) -> None:
        raise TimeoutError

    b = Bench(on_change=handler)
    b.lists("5")
    b.watches(event("ADDED", "a", "6"))
    with pytest.raises(TimeoutError):
        await b.reflector.run()


async def test_verify_tells_what_failed() -> None:
    """A comparison that cannot be made is an error for the caller."""
    b = await synced()
    b.port.lists.append(Unreachable("no"))
    with pytest.raises(Unreachable):
        await b.reflector.verify()


async def test_a_mute_watch_is_answered_by_a_list() -> None:
    """A watch from a version the server never reached says nothing; a list finds back."""
    told: list[str] = []
    bench = Bench(on_gap=lambda: told.append("gap"))
    bench.lists("900", pod("a", "900"))
    bench.lists("5", pod("b", "5"))
    bench.port.watches.append([lambda: bench.pass_time(90.0), Unreachable("silent")])
    await bench.play()
    assert [asked["verb"] for asked in bench.port.asked] == ["list", "watch", "list", "watch"]
    assert [item["metadata"]["name"] for item in bench.store.values()] == ["b"]
    assert told == ["gap"]


async def test_a_watch_that_spoke_is_resumed_after_a_failure() -> None:
    """A connection that breaks after an event costs no new list, however long it lived."""
    bench = Bench()
    bench.lists("1", pod("a", "1"))
    bench.port.watches.append(
        [event("ADDED", "b", "2"), lambda: bench.pass_time(90.0), Unreachable("reset")]
    )
    await bench.play()
    assert [asked["verb"] for asked in bench.port.asked] == ["list", "watch", "watch"]
