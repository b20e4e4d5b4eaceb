"""Asking for what nothing tells of: at a pace, in turn, and whatever fails or hangs."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

from federate.companions.keys import Kind
from federate.companions.looking import (
    AGAIN_SECONDS,
    AHEAD_SECONDS,
    LOOKS_PER_SECOND,
    MOST_UNDER_WAY,
    Look,
    Looking,
)
from federate.errors import ClusterError, Forbidden, NotFound, ServerFault
from federate.model.objects import JsonDict, ObjectKey
from federate.model.resources import Resource
from tests.support.clock import virtual_loop, virtual_time

HUB_SECONDS = 30.0


class Played:
    """A cluster that answers as it is told; `hangs` holds names that get no answer."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.asked: list[tuple[float, str]] = []
        self.hangs: Callable[[str], bool] = lambda _name: False
        self.answer: Callable[[str], str | ClusterError] = lambda _name: "1"

    async def get(self, resource: Resource, key: ObjectKey, *, metadata_only: bool) -> JsonDict:
        assert metadata_only
        self.asked.append((asyncio.get_running_loop().time(), key.name))
        if self.hangs(key.name):
            await asyncio.Event().wait()
        answer = self.answer(key.name)
        if isinstance(answer, ClusterError):
            raise answer
        return {"metadata": {"name": key.name, "resourceVersion": answer}}


class Stage:
    """Objects that are due every so often, counted from when they were last confirmed."""

    def __init__(self, **counts: int) -> None:
        self.clusters = {name: Played(name) for name in ("hub", "target")}
        self.looked_at = {
            (cluster, f"{cluster}-{number}"): self.clock()
            for cluster, count in counts.items()
            for number in range(count)
        }
        self.lined_up = 0
        self.reads: Counter[str] = Counter()
        self.differing: list[str] = []
        self.looking = Looking(
            due=self.due, count_read=lambda name: self.reads.update([name]), clock=self.clock
        )

    def clock(self) -> float:
        return virtual_loop().time()

    def due(self, until: float) -> Iterator[Look]:
        self.lined_up += 1
        for (cluster, name), at in self.looked_at.items():
            if until - at >= HUB_SECONDS:
                yield self.look(cluster, name, at)

    def look(self, cluster: str, name: str, at: float) -> Look:
        what = (cluster, name)
        port: Any = self.clusters[cluster]
        return Look(
            cluster=port,
            kind=Kind.SECRET,
            key=ObjectKey("default", name),
            due_at=at + HUB_SECONDS,
            known_version="1",
            is_due=lambda: self.looked_at.get(what) == at,
            confirmed=lambda: self.looked_at.update({what: self.clock()}),
            differs=lambda: self.differing.append(name),
        )

    def asked(self, cluster: str) -> list[str]:
        return [name for _, name in self.clusters[cluster].asked]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.looking.run())
        try:
            yield
            assert not task.done()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@virtual_time
async def test_each_is_asked_for_when_it_is_due_and_no_more() -> None:
    """Not seconds too late though what is due is listed now and then only."""
    stage = Stage(hub=3)
    async with stage.running():
        await asyncio.sleep(HUB_SECONDS - 1.0)
        assert not stage.asked("hub")
        await asyncio.sleep(3.0)
        assert sorted(stage.asked("hub")) == ["hub-0", "hub-1", "hub-2"]
        await asyncio.sleep(10 * HUB_SECONDS)
        per_object = Counter(stage.asked("hub"))
        assert set(per_object.values()) <= {10, 11}
        assert stage.lined_up <= stage.clock() / AHEAD_SECONDS + 2
        assert stage.reads["hub"] == len(stage.asked("hub"))


@virtual_time
async def test_the_pace_is_kept_however_many_are_due() -> None:
    stage = Stage(hub=200)
    async with stage.running():
        await asyncio.sleep(HUB_SECONDS + 5.5)
        assert 5 * LOOKS_PER_SECOND <= len(stage.asked("hub")) <= 6 * LOOKS_PER_SECOND
        await asyncio.sleep(6.0)
        assert len(set(stage.asked("hub"))) == 200


@virtual_time
async def test_what_changed_is_told_and_what_changed_hands_is_not_asked_for() -> None:
    stage = Stage(hub=4)
    answers: dict[str, str | ClusterError] = {
        "hub-0": "2",
        "hub-1": NotFound("gone", status=404),
        "hub-2": Forbidden("no", status=403),
    }
    stage.clusters["hub"].answer = lambda name: answers.get(name, "1")
    async with stage.running():
        await asyncio.sleep(HUB_SECONDS - 1.0)
        del stage.looked_at["hub", "hub-3"]
        await asyncio.sleep(2.0)
        assert sorted(stage.differing) == ["hub-0", "hub-1", "hub-2"]
        assert "hub-3" not in stage.asked("hub")


@virtual_time
async def test_what_cannot_be_asked_for_keeps_nobody_else_waiting() -> None:
    """A hundred that fail each time, and are the oldest: all others are asked for in their time."""
    stage = Stage(hub=200)
    fails = {f"hub-{number}" for number in range(100)}
    stage.clusters["hub"].answer = lambda name: (
        ServerFault("broken", status=500) if name in fails else "1"
    )
    async with stage.running():
        await asyncio.sleep(HUB_SECONDS + 12.0)
        others = set(stage.asked("hub")) - fails
        assert len(others) == 100
        await asyncio.sleep(300.0)
        tries = Counter(stage.asked("hub"))
        assert min(tries[name] for name in others) >= 7
        assert max(tries[name] for name in fails) <= 320 / AGAIN_SECONDS


@virtual_time
async def test_requests_that_hang_hold_up_neither_the_other_cluster_nor_many_of_their_own() -> None:
    stage = Stage(hub=100, target=100)
    hub = stage.clusters["hub"]
    hanging = [f"hub-{number}" for number in range(MOST_UNDER_WAY - 5)]
    hub.hangs = hanging.__contains__
    async with stage.running():
        await asyncio.sleep(HUB_SECONDS + 30.0)
        assert len(set(stage.asked("target"))) == 100
        assert len(set(stage.asked("hub"))) == 100  # by the places that are left
        assert all(stage.asked("hub").count(name) == 1 for name in hanging)
    silent = Stage(hub=100, target=100)
    silent.clusters["hub"].hangs = lambda _name: True
    async with silent.running():
        await asyncio.sleep(2 * HUB_SECONDS)
        assert len(silent.asked("hub")) == MOST_UNDER_WAY
        assert len(set(silent.asked("target"))) == 100
