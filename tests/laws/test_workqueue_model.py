"""The workqueue against a model: one hand, no wish lost, nothing early, in any interleaving."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from federate.flow.workqueue import WorkQueue
from tests.support.clock import VirtualLoop

LANES = ("sync", "delete")
KEYS = st.sampled_from(["a/1", "a/2", "b/1"])  # few, so that they meet
LANE = st.sampled_from(LANES)
SECONDS = st.sampled_from([0.0, 0.25, 0.5, 1.0])  # exact in binary: early is early


class Model:
    """What the queue promises: of each key the earliest unanswered wish, and who is in a hand."""

    def __init__(self) -> None:
        self.wishes: dict[str, tuple[float, str]] = {}
        self.held: set[str] = set()

    def wish(self, key: str, lane: str, due: float, now: float) -> None:
        at, _ = self.wishes.get(key, (float("inf"), ""))
        if due <= now or now < due < at:
            self.wishes[key] = (due, lane)

    def ready(self, lane: str, now: float) -> set[str]:
        due = {key for key, (at, wished) in self.wishes.items() if at <= now and wished == lane}
        return due - self.held

    def take(self, key: str) -> None:
        self.held.add(key)
        del self.wishes[key]


class Interleavings(RuleBasedStateMachine):
    """Adds, delays, workers that come, go and are cancelled, in virtual time."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = VirtualLoop()
        self.queue: WorkQueue[str] = WorkQueue(
            lanes=LANES,
            clock=self.loop.time,
            random=Random(3),
            fair_by=lambda key: key.split("/")[0],
        )
        self.model = Model()
        self.getters: list[tuple[str, asyncio.Task[str]]] = []

    def step(self, seconds: float = 0.0) -> None:
        async def pause() -> None:
            await asyncio.sleep(seconds)
            for _ in range(4):  # woken getters run, and those they wake
                await asyncio.sleep(0)

        self.loop.run_until_complete(pause())
        self.collect()

    def collect(self) -> None:
        for lane, getter in list(self.getters):
            if getter.done():
                self.getters.remove((lane, getter))
                self.received(lane, getter.result())

    def received(self, lane: str, key: str) -> None:
        assert key not in self.model.held, "one key in two hands"
        assert key in self.model.ready(lane, self.loop.time()), "early, or in the wrong lane"
        self.model.take(key)

    def call(self, function: Any, *args: Any) -> None:
        async def inside() -> None:
            function(*args)

        self.loop.run_until_complete(inside())

    @rule(key=KEYS, lane=LANE)
    def add(self, key: str, lane: str) -> None:
        now = self.loop.time()
        self.call(self.queue.add, key, lane)
        self.model.wish(key, lane, now, now)
        self.step()

    @rule(key=KEYS, lane=LANE, seconds=SECONDS)
    def add_after(self, key: str, lane: str, seconds: float) -> None:
        now = self.loop.time()
        self.call(self.queue.add_after, key, lane, seconds)
        self.model.wish(key, lane, now + seconds, now)
        self.step()

    @rule(lane=LANE, count=st.integers(1, 2))
    def workers_come(self, lane: str, count: int) -> None:
        for _ in range(count):
            self.getters.append((lane, self.loop.create_task(self.queue.get(lane))))
        self.step()

    @rule(lane=LANE)
    def handle_all(self, lane: str) -> None:
        while self.queue.depth(lane):
            held = set(self.model.held)
            self.workers_come(lane, 1)
            (key,) = self.model.held - held
            self.put_down(key)

    @rule(key=KEYS, lane=LANE, first=SECONDS, then=SECONDS)
    def change_of_mind(self, key: str, lane: str, first: float, then: float) -> None:
        """A delay is answered early, and another asked for before its time."""
        self.add_after(key, lane, first)
        self.add(key, lane)
        self.handle_all(lane)
        self.add_after(key, lane, then)

    @precondition(lambda self: self.getters)
    @rule(data=st.data(), key=KEYS, wished=st.booleans())
    def cancel_a_getter(self, data: st.DataObject, key: str, wished: bool) -> None:
        """Cancelling may race with the wake-up of the very getter."""
        lane, getter = data.draw(st.sampled_from(self.getters))

        def race() -> None:
            if wished:
                now = self.loop.time()
                self.queue.add(key, lane)
                self.model.wish(key, lane, now, now)
            getter.cancel()

        self.call(race)
        self.getters.remove((lane, getter))
        self.step()
        assert getter.cancelled()

    @precondition(lambda self: self.model.held)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        self.put_down(data.draw(st.sampled_from(sorted(self.model.held))))

    def put_down(self, key: str) -> None:
        self.call(self.queue.done, key)
        self.model.held.remove(key)
        self.step()

    @rule(seconds=SECONDS)
    def wait(self, seconds: float) -> None:
        self.step(seconds)

    @invariant()
    def nothing_is_lost(self) -> None:
        now = self.loop.time()
        assert self.queue.in_hand() == self.model.held
        for lane in LANES:
            ready = self.model.ready(lane, now)
            assert self.queue.depth(lane) == len(ready)
            waiting = any(of == lane for of, _ in self.getters)
            assert not (ready and waiting), "a worker waits although a key is ready"
        later = sum(at > now for at, _ in self.model.wishes.values())
        assert self.queue.delayed() == later

    def teardown(self) -> None:
        for _, getter in self.getters:
            getter.cancel()
        self.step_quietly()
        self.queue.close()
        self.loop.close()

    def step_quietly(self) -> None:
        tasks = [getter for _, getter in self.getters]

        async def settle() -> None:
            await asyncio.gather(*tasks, return_exceptions=True)

        self.loop.run_until_complete(settle())


TestInterleavings = Interleavings.TestCase
TestInterleavings.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
