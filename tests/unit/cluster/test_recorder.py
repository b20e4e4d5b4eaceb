"""The recorder against a port that remembers what was written, on a clock under our hand."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from federate.cluster.recorder import (
    MOST_ATTEMPTS,
    MOST_KNOWN,
    MOST_QUEUED,
    WRITES_A_SECOND,
    ObjectRef,
    Recorder,
    ref_to,
)
from federate.errors import AlreadyExists, ClusterError, Forbidden, NotFound, Unreachable
from federate.model.objects import JsonDict, JsonObject, ObjectKey
from federate.model.resources import EVENTS, NODES, PODS, Resource
from federate.patch.document import MERGE, PatchBody
from tests.unit.cluster.test_reflector import ScriptedPort


class WritingPort(ScriptedPort):
    """Remembers creates and patches; raises `error` instead while it is set."""

    def __init__(self) -> None:
        super().__init__()
        self.created: list[JsonObject] = []
        self.patched: list[tuple[ObjectKey, PatchBody]] = []
        self.error: ClusterError | None = None
        self.attempts = 0

    def _attempt(self) -> None:
        self.attempts += 1
        if self.error is not None:
            raise self.error

    async def create(
        self, resource: Resource, body: JsonObject, *, namespace: str = "", dry_run: bool = False
    ) -> JsonDict:
        self._attempt()
        assert resource is EVENTS
        assert namespace == body["metadata"]["namespace"]
        self.created.append(body)
        return dict(body)

    async def patch(
        self, resource: Resource, key: ObjectKey, patch: PatchBody, **options: Any
    ) -> JsonDict:
        self._attempt()
        self.patched.append((key, patch))
        return {}


class Bench:
    def __init__(self) -> None:
        self.port = WritingPort()
        self.now = 1000.0
        self.recorder = Recorder(
            self.port,
            instance="federate-0",
            clock=lambda: self.now,
            wall_clock=lambda: 1_700_000_000.25 + self.now,
        )

    def event(self, name: str = "a", note: str = "no space", **more: Any) -> None:
        self.recorder.event(pod(name), reason="MirrorRefused", note=note, action="Mirror", **more)


def pod(name: str) -> ObjectRef:
    return ref_to(PODS, {"metadata": {"namespace": "ns", "name": name, "uid": f"u-{name}"}})


async def test_an_event() -> None:
    """An Event says who reports what about which object, and lives beside it."""
    b = Bench()
    b.event(type="Warning")
    await b.recorder.flush()
    (body,) = b.port.created
    assert body["regarding"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": "ns",
        "name": "a",
        "uid": "u-a",
    }
    assert body["metadata"]["namespace"] == "ns"
    assert body["metadata"]["name"].startswith("a.")
    assert body["eventTime"] == "2023-11-14T22:30:00.250000Z"
    assert (body["reportingController"], body["reportingInstance"]) == (
        "federate.dev/federate",
        "federate-0",
    )
    assert (body["type"], body["reason"], body["action"], body["note"]) == (
        "Warning",
        "MirrorRefused",
        "Mirror",
        "no space",
    )
    assert "series" not in body


async def test_an_event_about_a_node() -> None:
    """Events about objects without a namespace live in `default`."""
    b = Bench()
    ref = ref_to(NODES, {"metadata": {"name": "n", "uid": "u"}})
    b.recorder.event(ref, reason="R", note="n", action="A")
    await b.recorder.flush()
    (body,) = b.port.created
    assert body["metadata"]["namespace"] == "default"
    assert "namespace" not in body["regarding"]


async def test_repeats_become_a_series() -> None:
    """The same words about the same object are counted, and written once a minute."""
    b = Bench()
    b.event()
    await b.recorder.flush()
    for _ in range(5):
        b.now += 5
        b.event()
        await b.recorder.flush()
    assert (len(b.port.created), len(b.port.patched)) == (1, 0)
    b.now += 40
    await b.recorder.flush()
    await b.recorder.flush()
    ((key, patch),) = b.port.patched
    assert key.name == b.port.created[0]["metadata"]["name"]
    assert patch.media_type == MERGE
    assert patch.body == {"series": {"count": 6, "lastObservedTime": "2023-11-14T22:30:25.250000Z"}}
    b.event()
    await b.recorder.flush()
    assert len(b.port.patched) == 1


async def test_repeats_before_the_first_write() -> None:
    """What is repeated before it is written is written once, with its count."""
    b = Bench()
    b.event()
    b.event()
    await b.recorder.flush()
    (body,) = b.port.created
    assert body["series"]["count"] == 2


async def test_other_words_are_another_event() -> None:
    """Another object, or another note, is an Event of its own."""
    b = Bench()
    b.event()
    b.event(note="no memory")
    b.event("b")
    await b.recorder.flush()
    assert len({body["metadata"]["name"] for body in b.port.created}) == 3


async def test_after_a_while_it_is_news_again() -> None:
    """Six minutes after the last repeat, the same words are a new Event."""
    b = Bench()
    b.event()
    await b.recorder.flush()
    b.now += 360
    b.event()
    await b.recorder.flush()
    assert len(b.port.created) == 2
    b.now += 360
    await b.recorder.flush()
    b.event()
    await b.recorder.flush()
    assert len(b.port.created) == 3


async def test_a_burst_is_spread() -> None:
    """A burst is written at a bounded pace, and what does not fit the queue is counted."""
    b = Bench()
    for i in range(MOST_QUEUED + 7):
        b.event(f"p{i}")
    assert b.recorder.dropped == 7
    await b.recorder.flush()
    assert len(b.port.created) == WRITES_A_SECOND
    await b.recorder.flush()
    assert len(b.port.created) == 2 * WRITES_A_SECOND


async def test_memory_is_bounded() -> None:
    """Only so many Events are remembered for counting."""
    b = Bench()
    for i in range(MOST_KNOWN + 1):
        b.event(f"p{i}")
        if i % WRITES_A_SECOND == 0:
            await b.recorder.flush()
    while len(b.port.created) < MOST_KNOWN + 1 - b.recorder.dropped:
        await b.recorder.flush()
    b.event("p0")
    await b.recorder.flush()
    names = [body["regarding"]["name"] for body in b.port.created]
    assert names.count("p0") == 2


async def test_an_unreachable_server() -> None:
    """Events wait out a short outage, and are dropped and counted in a long one."""
    b = Bench()
    b.port.error = Unreachable("no")
    b.event()
    b.event("b")
    await b.recorder.flush()
    assert b.port.attempts == 1
    b.port.error = None
    await b.recorder.flush()
    assert len(b.port.created) == 2
    b.port.error = Unreachable("no")
    b.event("c")
    for _ in range(MOST_ATTEMPTS):
        await b.recorder.flush()
    b.port.error = None
    await b.recorder.flush()
    assert (len(b.port.created), b.recorder.dropped) == (2, 1)


async def test_a_refused_event() -> None:
    """An Event that the server does not take, say in a namespace on its way out, is dropped."""
    b = Bench()
    b.port.error = Forbidden("terminating")
    b.event()
    await b.recorder.flush()
    await b.recorder.flush()
    assert (b.port.attempts, b.recorder.dropped) == (1, 1)


async def test_a_lost_reply() -> None:
    """A create that was done although its reply was lost counts as written."""
    b = Bench()
    b.event()
    b.port.error = AlreadyExists("there")
    await b.recorder.flush()
    assert b.recorder.dropped == 0
    await b.recorder.flush()
    assert b.port.attempts == 1


async def test_an_event_that_expired_meanwhile() -> None:
    """A series whose Event is gone starts as a new one."""
    b = Bench()
    b.event()
    await b.recorder.flush()
    b.now += 61
    b.event()
    b.port.error = NotFound("gone")
    await b.recorder.flush()
    b.port.error = None
    b.event()
    await b.recorder.flush()
    assert len(b.port.created) == 2


async def test_limits_of_the_api() -> None:
    """Names and notes are cut to what the API takes, between characters."""
    b = Bench()
    b.recorder.event(pod("x" * 235 + "." * 18), reason="R", note="ü" * 600, action="A")
    b.recorder.event(pod("y"), reason="R", note="x" + "ü" * 600, action="A")
    await b.recorder.flush()
    first, second = b.port.created
    assert len(first["metadata"]["name"]) == 235 + 17
    assert ".." not in first["metadata"]["name"]
    assert len(first["note"].encode()) == 1024
    assert len(second["note"].encode()) == 1023


async def test_run_writes_each_second() -> None:
    """The recorder writes until it is cancelled."""
    b = Bench()
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            raise asyncio.CancelledError

    recorder = Recorder(b.port, instance="x", sleep=sleep)
    recorder.event(pod("a"), reason="R", note="n", action="A")
    with pytest.raises(asyncio.CancelledError):
        await recorder.run()
    assert (len(b.port.created), slept) == (1, [1.0] * 3)
