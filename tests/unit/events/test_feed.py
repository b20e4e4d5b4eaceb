"""The watch of the target's Events, against a port that plays a script, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, TypeAlias

import pytest
import structlog

from federate.cluster.port import WatchEvent
from federate.errors import ClusterError, Expired, Forbidden, Throttled, Unreachable
from federate.events.feed import (
    AFRESH_SECONDS,
    CATCH_UP_SECONDS,
    HISTORY_SECONDS,
    REFUSED_BACK_OFF_SECONDS,
    SETTLED_SECONDS,
    WATCH_SECONDS,
    EventFeed,
)
from federate.model.objects import JsonObject
from federate.model.resources import CORE_EVENTS, Resource
from tests.support.clock import START_SECONDS, virtual_loop, virtual_time
from tests.unit.cluster.test_reflector import ScriptedPort

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


@dataclass(frozen=True)
class Wait:
    """The watch says nothing for so long."""

    seconds: float


Line: TypeAlias = WatchEvent | ClusterError | Wait


class WatchedPort(ScriptedPort):
    """Answers each watch with the next script, and then with silence until the server ends it."""

    def __init__(self, *scripts: list[Line]) -> None:
        super().__init__()
        self.scripts = list(scripts)
        self.watched: list[tuple[str, float]] = []
        """Version and time of each watch."""
        self.open_now = 0

    async def watch(self, resource: Resource, **options: Any) -> AsyncIterator[WatchEvent]:
        assert resource is CORE_EVENTS
        assert options["field_selector"] == "involvedObject.kind=Pod"
        assert options["timeout_seconds"] < 90.0, "a silent watch ends before it is taken for dead"
        loop = virtual_loop()
        self.watched.append((options["resource_version"], loop.time() - START_SECONDS))
        ends_at = loop.time() + options["timeout_seconds"]
        self.open_now += 1
        try:
            for line in self.scripts.pop(0) if self.scripts else []:
                if isinstance(line, ClusterError):
                    raise line
                if isinstance(line, Wait):
                    await asyncio.sleep(line.seconds)
                else:
                    yield line
            await asyncio.sleep(ends_at - loop.time())
        finally:
            self.open_now -= 1


def event(uid: str, version: str, *, age_seconds: float = 0.0) -> JsonObject:
    seen_at = NOW - timedelta(seconds=age_seconds)
    return {
        "metadata": {"uid": uid, "resourceVersion": version},
        "lastTimestamp": seen_at.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


def added(uid: str, version: str, *, age_seconds: float = 0.0) -> WatchEvent:
    return WatchEvent(type="ADDED", object=dict(event(uid, version, age_seconds=age_seconds)))


class Bench:
    def __init__(self, *scripts: list[Line], port: WatchedPort | None = None) -> None:
        self.port = port or WatchedPort(*scripts)
        self.heard: list[str] = []
        self.poison = ""
        self.feed = EventFeed(
            self.port,
            self.on_event,
            clock=virtual_loop().time,
            now=lambda: NOW,
            jitter=lambda: 0.5,
        )

    def on_event(self, event: JsonObject) -> None:
        if event["metadata"]["uid"] == self.poison:
            raise ValueError(self.poison)
        self.heard.append(event["metadata"]["uid"])

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.feed.run())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            assert self.port.open_now == 0


@virtual_time
async def test_it_begins_with_what_is_there_and_goes_on_where_it_ended() -> None:
    """No list is made: the first watch has no version, the next goes on from the last Event."""
    b = Bench([added("a", "5"), added("b", "7")])
    async with b.running():
        await asyncio.sleep(WATCH_SECONDS)
        assert b.heard == ["a", "b"]
        assert [version for version, _ in b.port.watched] == ["", "7"]


@virtual_time
async def test_expired_events_and_bookmarks_say_nothing() -> None:
    """An Event that expires in the target is no news, but it carries the version on."""
    gone = WatchEvent(type="DELETED", object=dict(event("a", "8")))
    mark = WatchEvent(type="BOOKMARK", object={"metadata": {"resourceVersion": "9"}})
    repeat = WatchEvent(type="MODIFIED", object=dict(event("a", "6")))
    b = Bench([added("a", "5"), repeat, gone, mark])
    async with b.running():
        await asyncio.sleep(WATCH_SECONDS)
        assert b.heard == ["a", "a"]
        assert b.port.watched[1][0] == "9"


@virtual_time
async def test_history_is_not_told_again() -> None:
    """At the beginning, what happened before the last ten minutes is left out, an outage is not."""
    old, outage = CATCH_UP_SECONDS + 60.0, CATCH_UP_SECONDS - 60.0
    b = Bench([added("old", "1", age_seconds=old), added("outage", "2", age_seconds=outage)])
    async with b.running():
        await asyncio.sleep(1.0)
        assert b.heard == ["outage"]


@virtual_time
async def test_a_wrong_clock_in_the_target_silences_nothing() -> None:
    """Half a minute after the beginning the age by the target's clock does not matter."""
    hours = 5 * 3600.0
    b = Bench([Wait(HISTORY_SECONDS), added("late", "1", age_seconds=hours)])
    async with b.running():
        await asyncio.sleep(HISTORY_SECONDS + 1.0)
        assert b.heard == ["late"]


@virtual_time
async def test_an_expired_version_begins_anew() -> None:
    """After a compaction everything is told again; what was told is known by its name."""
    b = Bench([added("a", "5"), Expired("compacted")], [added("a", "5"), added("b", "9")])
    async with b.running():
        await asyncio.sleep(10.0)
        assert b.heard == ["a", "a", "b"]
        assert [version for version, _ in b.port.watched] == ["", ""]


@virtual_time
async def test_a_quiet_watch_begins_anew() -> None:
    """A version that is minutes old may be compacted away, or never have been: it is given up."""
    b = Bench([added("a", "5")])
    async with b.running():
        await asyncio.sleep(AFRESH_SECONDS + 2 * WATCH_SECONDS)
        assert [version for version, _ in b.port.watched[:6]] == ["", "5", "5", "5", "5", ""]
        assert AFRESH_SECONDS <= b.port.watched[5][1] <= AFRESH_SECONDS + WATCH_SECONDS


@virtual_time
async def test_a_broken_watch_backs_off_and_goes_on() -> None:
    """A target that does not answer is asked less and less often; nothing is lost when it does."""
    gone: list[list[Line]] = [[Unreachable("no")] for _ in range(10)]
    b = Bench([added("a", "5"), Unreachable("cut")], *gone, [added("b", "6")])
    async with b.running():
        await asyncio.sleep(600.0)
        assert b.heard == ["a", "b"]
        times = [at for _, at in b.port.watched[:11]]
        pauses = [later - earlier for earlier, later in pairwise(times)]
        assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60, 60]
        assert {version for version, _ in b.port.watched[1:12]} == {"5"}


@virtual_time
async def test_a_forbidden_watch_says_so_once() -> None:
    """Without the right the log names the next step once, and a granted right is noticed."""
    refused: list[list[Line]] = [[Forbidden("events is forbidden")] for _ in range(3)]
    b = Bench(*refused, [added("a", "5")])
    with structlog.testing.capture_logs() as lines:
        async with b.running():
            await asyncio.sleep(SETTLED_SECONDS)
            states = [b.feed.is_open]
            await asyncio.sleep(3 * REFUSED_BACK_OFF_SECONDS + 1.0)
            assert b.heard == ["a"]
            await asyncio.sleep(SETTLED_SECONDS)
            states.append(b.feed.is_open)
    assert states == [False, True]
    warnings = [line for line in lines if line["log_level"] == "warning"]
    assert len(warnings) == 1
    assert "watch on events" in warnings[0]["remedy"]
    assert [line["event"] for line in lines if line["log_level"] == "info"] == [
        "the target's events are told again"
    ]


@virtual_time
async def test_a_busy_target_is_left_in_peace() -> None:
    """What the server asks to wait is waited."""
    busy = Throttled("later")
    busy.retry_after_seconds = 40.0
    b = Bench([busy])
    async with b.running():
        await asyncio.sleep(50.0)
        assert [at for _, at in b.port.watched] == [0.0, 40.0]


@virtual_time
async def test_a_watch_that_ends_at_once_does_not_spin() -> None:
    """A server that closes each watch at once is asked once a second."""

    class Hasty(WatchedPort):
        async def watch(self, resource: Resource, **options: Any) -> AsyncIterator[WatchEvent]:
            self.watched.append(("", 0.0))
            for line in self.scripts:
                yield WatchEvent(type="ADDED", object={"line": line})

    b = Bench(port=Hasty())
    async with b.running():
        await asyncio.sleep(10.5)
        assert len(b.port.watched) == 11


@virtual_time
async def test_what_could_not_be_handled_is_not_handed_out_again() -> None:
    """An Event that crashes its reader ends the watch; the next begins behind it."""
    b = Bench([added("a", "5"), added("bad", "6")], [added("c", "7")])
    b.poison = "bad"
    with pytest.raises(ValueError, match="bad"):
        await b.feed.run()
    async with b.running():
        await asyncio.sleep(1.0)
        assert b.heard == ["a", "c"]
        assert b.port.watched[1][0] == "6"
