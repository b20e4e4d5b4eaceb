"""Writing hub pods' Events, against a cluster in memory, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from random import Random
from typing import Any

import pytest
import structlog
from hypothesis import given, settings
from hypothesis import strategies as st

from federate.cluster.port import ClusterPort
from federate.errors import (
    AlreadyExists,
    ClusterError,
    Forbidden,
    LeadershipLost,
    NotFound,
    ServerFault,
    Throttled,
    Unreachable,
)
from federate.events.render import HubEvent, render_event
from federate.events.teller import (
    MOST_ATTEMPTS,
    MOST_KNOWN,
    MOST_OF_A_POD,
    MOST_REPEAT_SECONDS,
    MOST_WAITING,
    REPEAT_SECONDS,
    WRITES_AT_ONCE,
    WRITES_PER_SECOND,
    Teller,
)
from federate.model.objects import JsonDict, JsonObject, ObjectKey, uid_of
from federate.model.resources import CORE_EVENTS, Resource
from federate.patch.document import PatchBody
from tests.support.clock import run_virtual, virtual_loop, virtual_time
from tests.support.fakeclient import Call, Fault, LostReply, Refuse
from tests.support.fakecluster import FakeCluster
from tests.unit.cluster.test_reflector import ScriptedPort

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def said(
    uid: str = "e1", *, name: str = "web", namespace: str = "default", count: int = 1
) -> HubEvent:
    """A target's Event about the mirror of a hub pod, as the hub shall tell it."""
    hub_pod = {"metadata": {"namespace": namespace, "name": name, "uid": f"hub-{namespace}-{name}"}}
    event = {
        "metadata": {"uid": uid},
        "involvedObject": {"kind": "Pod", "uid": f"mirror-{namespace}-{name}"},
        "type": "Warning",
        "reason": "BackOff",
        "message": f"{uid} happened",
        "source": {"component": "kubelet", "host": "worker1"},
        "firstTimestamp": BEGAN.isoformat(),
        "lastTimestamp": (BEGAN + timedelta(seconds=count)).isoformat(),
        "count": count,
    }
    return render_event(event, hub_pod, target_name="edge")


class QuickHub(ScriptedPort):
    """Takes thousands of Events in no time, and knows their names only."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.verbs: list[str] = []

    async def create(
        self, resource: Resource, body: JsonObject, *, namespace: str = "", dry_run: bool = False
    ) -> JsonDict:
        self.verbs.append("create")
        if body["metadata"]["name"] in self.names:
            raise AlreadyExists("there")
        self.names.add(body["metadata"]["name"])
        return {}

    async def patch(
        self, resource: Resource, key: ObjectKey, patch: PatchBody, **options: Any
    ) -> JsonDict:
        self.verbs.append("patch")
        return {}


class Bench:
    """A hub, and a teller that may write to it."""

    def __init__(self, port: ClusterPort | None = None) -> None:
        self.hub = FakeCluster("hub", virtual_loop().time)
        self.port = port or self.hub.client()
        self.gone: set[str] = set()
        self.is_ours = True
        self.told = 0
        self.dropped = 0
        self.teller = self.build()

    def build(self) -> Teller:
        return Teller(
            self.port,
            wants=lambda mirror_uid: mirror_uid not in self.gone,
            fence=self.fence,
            on_told=self.on_told,
            on_dropped=self.on_dropped,
            clock=virtual_loop().time,
            random=Random(1),
        )

    def fence(self) -> None:
        if not self.is_ours:
            raise LeadershipLost("not ours")

    def on_told(self) -> None:
        self.told += 1

    def on_dropped(self) -> None:
        self.dropped += 1

    def refuse(self, error: ClusterError, verb: str = "") -> None:
        def fault(call: Call) -> Fault | None:
            return Refuse(error) if verb in ("", call.verb) else None

        self.hub.faults = fault

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.teller.run())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    def events(self) -> list[JsonDict]:
        return [dict(obj) for resource, obj in self.hub.store.all() if resource == CORE_EVENTS]

    def writes(self) -> list[str]:
        return [call.verb for call in self.hub.writes()]


@virtual_time
async def test_an_event_is_told_at_once() -> None:
    """What happens in the target stands on the hub without delay."""
    b = Bench()
    async with b.running():
        b.teller.tell(said())
        await asyncio.sleep(0.1)
        (event,) = b.events()
        assert event["involvedObject"]["uid"] == "hub-default-web"
        assert (event["reason"], event["count"]) == ("BackOff", 1)
        assert (b.told, b.dropped) == (1, 0)


@virtual_time
async def test_repeats_move_the_count_of_the_same_event() -> None:
    """A count is brought up to date soon at first, then at most once a minute."""
    b = Bench()
    async with b.running():
        for second in range(600):
            b.teller.tell(said(count=second + 1))
            await asyncio.sleep(1.0)
        (event,) = b.events()
        assert event["count"] >= 600 - MOST_REPEAT_SECONDS
        at = [call.sent_at for call in b.hub.writes()]
        pauses = [round(later - earlier) for earlier, later in pairwise(at)]
        assert pauses[:4] == [REPEAT_SECONDS, 2 * REPEAT_SECONDS, 4 * REPEAT_SECONDS, 60]
        assert set(pauses[4:]) == {MOST_REPEAT_SECONDS}
        assert b.writes() == ["create"] + ["patch"] * (len(at) - 1)


@virtual_time
async def test_the_last_repeat_is_told() -> None:
    """However fast repeats come, the last count is told in the end."""
    b = Bench()
    async with b.running():
        for count in range(1, 50):
            b.teller.tell(said(count=count))
            await asyncio.sleep(0.01)
        await asyncio.sleep(2 * MOST_REPEAT_SECONDS)
        assert [event["count"] for event in b.events()] == [49]
        assert b.writes() == ["create", "patch"]


@virtual_time
async def test_a_repeat_during_the_write_is_not_lost() -> None:
    """What arrives while the request is under way is told with the next one, at its time."""
    b = Bench()
    b.hub.latency_seconds = 1.0
    async with b.running():
        b.teller.tell(said())
        await asyncio.sleep(0.5)
        b.teller.tell(said(count=2))
        await asyncio.sleep(REPEAT_SECONDS)
        assert b.writes() == ["create"]
        await asyncio.sleep(5.0)
        assert [event["count"] for event in b.events()] == [2]


@virtual_time
async def test_replays_cost_nothing() -> None:
    """The same words again, or older ones, are no news."""
    b = Bench()
    async with b.running():
        b.teller.tell(said(count=5))
        await asyncio.sleep(1.0)
        for count in (5, 3, 1, 5):
            b.teller.tell(said(count=count))
        await asyncio.sleep(2 * MOST_REPEAT_SECONDS)
        assert b.writes() == ["create"]
        assert b.events()[0]["count"] == 5


@virtual_time
async def test_another_leader_tells_it_again_without_harm() -> None:
    """After a take-over the same Event is found by its name, and brought up to date."""
    b = Bench()
    async with b.running():
        b.teller.tell(said(count=5))
        await asyncio.sleep(1.0)
    b.teller = b.build()
    async with b.running():
        b.teller.tell(said(count=6))
        await asyncio.sleep(1.0)
    assert [event["count"] for event in b.events()] == [6]


@virtual_time
async def test_a_lost_reply() -> None:
    """A create that was done although its reply was lost is not done twice."""
    b = Bench()
    b.hub.faults = lambda call: LostReply() if call.number == 0 else None
    async with b.running():
        b.teller.tell(said())
        await asyncio.sleep(5.0)
        assert len(b.events()) == 1
        assert (b.told, b.dropped) == (1, 0)


@virtual_time
async def test_an_event_that_expired_on_the_hub_is_made_anew() -> None:
    """Events live for an hour; what goes on after that is told again."""
    b = Bench()
    async with b.running():
        b.teller.tell(said())
        await asyncio.sleep(1.0)
        (event,) = b.events()
        b.hub.store.remove(CORE_EVENTS, ObjectKey("default", event["metadata"]["name"]))
        await asyncio.sleep(REPEAT_SECONDS)
        b.teller.tell(said(count=2))
        await asyncio.sleep(1.0)
        assert [event["count"] for event in b.events()] == [2]
        b.teller.tell(said(count=3))
        await asyncio.sleep(2 * REPEAT_SECONDS)
        assert b.writes() == ["create", "patch", "create", "patch"]


@virtual_time
async def test_a_pod_that_went_while_its_event_waited() -> None:
    """Nothing is told of a pod that is gone."""
    b = Bench()
    b.teller.tell(said())
    b.gone.add("mirror-default-web")
    async with b.running():
        await asyncio.sleep(5.0)
        assert (b.writes(), b.told, b.dropped) == ([], 0, 0)


@virtual_time
async def test_writes_are_bounded() -> None:
    """A flood is written at a bounded pace, and what has no room is dropped and counted."""
    hub = QuickHub()
    b = Bench(hub)
    pods = [f"web-{number}" for number in range(MOST_WAITING // MOST_OF_A_POD + 10)]
    async with b.running():
        for name in pods:
            for number in range(MOST_OF_A_POD):
                b.teller.tell(said(f"{name}-{number}", name=name))
        assert b.dropped == 10 * MOST_OF_A_POD
        await asyncio.sleep(10.0)
        assert len(hub.verbs) <= WRITES_AT_ONCE + 10 * WRITES_PER_SECOND + 1
        await asyncio.sleep(MOST_WAITING / WRITES_PER_SECOND)
        assert b.told == len(hub.names) == MOST_WAITING


@virtual_time
async def test_a_pod_has_only_so_many_waiting() -> None:
    """One pod with thousands of Events does not fill the queue for the others."""
    b = Bench()
    for number in range(2000):
        b.teller.tell(said(f"e{number}", name="noisy"))
    b.teller.tell(said("calm", name="calm"))
    async with b.running():
        await asyncio.sleep(5.0)
        names = [event["involvedObject"]["name"] for event in b.events()]
        assert names.count("noisy") == MOST_OF_A_POD
        assert names.count("calm") == 1
        assert b.dropped == 2000 - MOST_OF_A_POD


@virtual_time
async def test_namespaces_take_turns() -> None:
    """A namespace full of crashing pods keeps no other namespace waiting."""
    b = Bench()
    b.hub.add_namespace("noisy")
    b.hub.add_namespace("calm")
    async with b.running():
        for number in range(MOST_WAITING):
            b.teller.tell(said(f"e{number}", name=f"web-{number}", namespace="noisy"))
        await asyncio.sleep(10.0)
        waiting = MOST_WAITING - b.told
        assert waiting > MOST_WAITING // 2
        b.teller.tell(said("calm", namespace="calm"))
        await asyncio.sleep(3.0 / WRITES_PER_SECOND)
        assert [e for e in b.events() if e["metadata"]["namespace"] == "calm"]


@virtual_time
async def test_who_has_most_gives_way() -> None:
    """Where there is no room at all, the namespace with most Events waiting loses one."""
    b = Bench()
    b.hub.add_namespace("noisy")
    b.hub.add_namespace("calm")
    for number in range(MOST_WAITING):
        b.teller.tell(said(f"e{number}", name=f"web-{number}", namespace="noisy"))
    b.teller.tell(said("calm", namespace="calm"))
    b.teller.tell(said("one more", name="one-more", namespace="noisy"))
    assert b.dropped == 2
    async with b.running():
        await asyncio.sleep(MOST_WAITING / WRITES_PER_SECOND + 5.0)
        namespaces = [event["metadata"]["namespace"] for event in b.events()]
        assert namespaces.count("calm") == 1
        assert namespaces.count("noisy") == MOST_WAITING - 1


@virtual_time
async def test_memory_is_bounded() -> None:
    """Only so many Events are remembered; one that was forgotten is found again by its name."""
    hub = QuickHub()
    b = Bench(hub)
    async with b.running():
        b.teller.tell(said("first"))
        await asyncio.sleep(1.0)
        for number in range(MOST_KNOWN):
            b.teller.tell(said(f"e{number}", name=f"web-{number}"))
            if number % 500 == 499:
                await asyncio.sleep(500.0 / WRITES_PER_SECOND)
        await asyncio.sleep(100.0)
        assert (len(hub.names), b.dropped) == (MOST_KNOWN + 1, 0)
        hub.verbs.clear()
        b.teller.tell(said("first", count=2))
        await asyncio.sleep(1.0)
        assert hub.verbs == ["create", "patch"]
        assert len(hub.names) == MOST_KNOWN + 1


@virtual_time
async def test_what_is_dropped_may_be_told_later() -> None:
    """An Event that found no room is not remembered: its next repeat is told."""
    b = Bench(QuickHub())
    for number in range(MOST_WAITING + 1):
        b.teller.tell(said(f"e{number}", name=f"web-{number}"))
    assert b.dropped == 1
    async with b.running():
        await asyncio.sleep(MOST_WAITING / WRITES_PER_SECOND)
        b.teller.tell(said(f"e{MOST_WAITING}", name=f"web-{MOST_WAITING}", count=2))
        await asyncio.sleep(1.0)
        assert b.told == MOST_WAITING + 1


@pytest.mark.parametrize("error", [Unreachable("no"), ServerFault("no"), Throttled("later")])
@virtual_time
async def test_what_may_pass_is_tried_again(error: ClusterError) -> None:
    """A hub in trouble is told later, and given up after about two minutes."""
    b = Bench()
    b.refuse(error)
    async with b.running():
        b.teller.tell(said())
        await asyncio.sleep(20.0)
        assert b.dropped == 0
        b.hub.faults = None
        await asyncio.sleep(30.0)
        assert b.told == 1
        b.refuse(error)
        b.teller.tell(said("other"))
        before = len(b.hub.calls)
        await asyncio.sleep(300.0)
        assert len(b.hub.calls) - before == MOST_ATTEMPTS
        assert b.dropped == 1


@virtual_time
async def test_what_is_refused_is_dropped() -> None:
    """An Event in a namespace that is going is dropped without a word; a missing right is told."""
    b = Bench()
    with structlog.testing.capture_logs() as lines:
        async with b.running():
            b.refuse(Forbidden("namespace x is being terminated"))
            b.teller.tell(said("a"))
            await asyncio.sleep(1.0)
            b.refuse(NotFound("namespace x not found"))
            b.teller.tell(said("b"))
            await asyncio.sleep(1.0)
            assert not [line for line in lines if line["log_level"] == "warning"]
            b.refuse(Forbidden("user may not create events"))
            b.teller.tell(said("c"))
            b.teller.tell(said("d"))
            await asyncio.sleep(60.0)
            assert (len(b.hub.writes()), b.dropped) == (4, 4)
    (warning,) = [line for line in lines if line["log_level"] == "warning"]
    assert "create and patch on events" in warning["remedy"]


@virtual_time
async def test_c70_nothing_is_written_without_the_lease() -> None:
    """Who leads no more writes nothing, and ends."""
    b = Bench()
    b.is_ours = False
    b.teller.tell(said())
    with pytest.raises(LeadershipLost):
        await b.teller.run()
    assert b.hub.calls == []


@pytest.mark.parametrize(
    ("memory", "first"), [("none", "create"), ("of an Event that expired", "patch")]
)
@virtual_time
async def test_c70_nothing_is_written_after_the_lease_was_lost_on_the_way(
    memory: str, first: str
) -> None:
    """Between two requests about one Event the lease is asked for again."""
    b = Bench()
    async with b.running():
        b.teller.tell(said())
        await asyncio.sleep(1.0)
    if memory == "none":
        b.teller = b.build()
    else:
        (event,) = b.events()
        b.hub.store.remove(CORE_EVENTS, ObjectKey("default", event["metadata"]["name"]))

    def lose(call: Call) -> Fault | None:
        b.is_ours = False
        return None

    await asyncio.sleep(REPEAT_SECONDS)
    b.hub.calls.clear()
    b.hub.faults = lose
    b.teller.tell(said(count=2))
    with pytest.raises(LeadershipLost):
        await b.teller.run()
    assert b.writes() == [first]


def shown(hub: FakeCluster) -> dict[str, tuple[str, int]]:
    """What the hub shows: by Event, its words and count."""
    return {
        event["metadata"]["name"]: (event["message"], event["count"])
        for resource, event in hub.store.all()
        if resource == CORE_EVENTS
    }


_REPEATS = st.lists(
    st.tuples(st.integers(0, 5), st.integers(1, 4), st.sampled_from(["tell", "restart", "wait"])),
    max_size=25,
)


@settings(max_examples=40, deadline=None)
@given(_REPEATS)
def test_law_a_replay_is_harmless(steps: list[tuple[int, int, str]]) -> None:
    """However often, by whomever and in whatever order it is told, the hub shows the same."""

    async def play(act: Callable[[Bench], object]) -> dict[str, tuple[str, int]]:
        b = Bench()
        for number, count, what in steps:
            async with b.running():
                b.teller.tell(said(f"e{number}", count=count))
                if what == "wait":
                    await asyncio.sleep(2 * MOST_REPEAT_SECONDS)
            if what == "restart":
                act(b)
        # Whoever leads in the end sees everything as it is in the target now.
        highest: dict[int, int] = {}
        for number, count, _ in steps:
            highest[number] = max(count, highest.get(number, 0))
        async with b.running():
            for number, count in highest.items():
                b.teller.tell(said(f"e{number}", count=count))
            await asyncio.sleep(2 * MOST_REPEAT_SECONDS)
        assert all(uid_of(event) for event in b.events())
        return shown(b.hub)

    def take_over(b: Bench) -> None:
        b.teller = b.build()

    plain = run_virtual(play(lambda b: None))
    assert plain == run_virtual(play(take_over))
    numbers = {number for number, _, _ in steps}
    assert {message for message, _ in plain.values()} == {f"e{n} happened" for n in numbers}
    for number, count in {n: max(c for m, c, _ in steps if m == n) for n in numbers}.items():
        assert (f"e{number} happened", count) in plain.values()
