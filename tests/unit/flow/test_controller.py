"""The controller: outcomes, errors, budgets, bounds and what it tells."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from random import Random
from typing import cast

import pytest
import structlog
from structlog.testing import capture_logs

from federate.errors import (
    Conflict,
    LeadershipLost,
    NotOurs,
    Rejected,
    Throttled,
    Unreachable,
)
from federate.flow.controller import Again, Controller, Done, Elsewhere, Outcome
from federate.flow.workqueue import Lane, WorkQueue
from tests.support.clock import virtual_loop, virtual_time

LANES = ("sync", "delete", "status")
Reconcile = Callable[[str, Lane], Awaitable[Outcome]]
Logs = list[dict[str, object]]


class Scripted:
    """A reconcile that plays a list of outcomes and errors, then is Done; notes when and where."""

    def __init__(self, script: Iterable[Outcome | BaseException] = ()) -> None:
        self.script = list(script)
        self.calls: list[tuple[float, str, str]] = []

    async def __call__(self, key: str, lane: Lane) -> Outcome:
        self.calls.append((virtual_loop().time(), key, lane))
        step = self.script.pop(0) if self.script else Done()
        if isinstance(step, BaseException):
            raise step
        return step

    def gaps(self) -> list[float]:
        times = [at for at, _, _ in self.calls]
        return [later - earlier for earlier, later in itertools.pairwise(times)]


class Counting:
    def __init__(self) -> None:
        self.seen: list[tuple[str, str, str, float]] = []

    def reconciled(
        self, *, controller: str, lane: Lane, result: str, duration_seconds: float
    ) -> None:
        self.seen.append((controller, lane, result, duration_seconds))


def make_queue() -> WorkQueue[str]:
    return WorkQueue(lanes=LANES, clock=virtual_loop().time, random=Random(7))


@asynccontextmanager
async def running(
    queue: WorkQueue[str],
    reconcile: Reconcile,
    *,
    workers: Mapping[Lane, int] | None = None,
    observer: Counting | None = None,
    timeout_seconds: float = 120,
) -> AsyncIterator[asyncio.Task[None]]:
    controller = Controller(
        "pods",
        queue,
        reconcile,
        workers or dict.fromkeys(LANES, 2),
        observer=observer,
        context={"cluster": "edge", "kind": "Pod"},
        reconcile_timeout_seconds=timeout_seconds,
    )
    task = asyncio.create_task(controller.run())
    try:
        yield task
    finally:
        queue.close()
        await asyncio.gather(task, return_exceptions=True)


def near(seconds: float) -> object:
    return pytest.approx(seconds, rel=0.1001, abs=1e-6)


def unreachable(count: int) -> list[Outcome | BaseException]:
    return [Unreachable("refused") for _ in range(count)]


@virtual_time
async def test_done_waits_for_the_next_change() -> None:
    """A key that is done is left alone until it is added again."""
    queue, reconcile, observer = make_queue(), Scripted(), Counting()
    async with running(queue, reconcile, observer=observer):
        queue.add("a", "sync")
        await asyncio.sleep(1000)
        queue.add("a", "status")
        await asyncio.sleep(1000)
    assert [(key, lane) for _, key, lane in reconcile.calls] == [("a", "sync"), ("a", "status")]
    assert observer.seen == [("pods", "sync", "done", 0), ("pods", "status", "done", 0)]


@virtual_time
async def test_again_comes_back_after_its_time() -> None:
    """A reconcile that waits for time to pass is called again after it, and failures are forgot."""
    queue, reconcile, observer = make_queue(), Scripted([*unreachable(1), Again(30)]), Counting()
    async with running(queue, reconcile, observer=observer):
        queue.add("a", "sync")
        await asyncio.sleep(1)
        assert queue.failures("a") == 0
        await asyncio.sleep(1000)
    assert reconcile.gaps() == [near(0.25), near(30)]
    assert [result for _, _, result, _ in observer.seen] == ["Unreachable", "again", "done"]


@virtual_time
async def test_elsewhere_moves_the_key_at_once() -> None:
    """A plan that belongs to another budget is carried out there without delay."""
    queue, reconcile, observer = make_queue(), Scripted([Elsewhere("delete")]), Counting()
    async with running(queue, reconcile, observer=observer):
        queue.add("a", "sync")
        await asyncio.sleep(100)
    assert [lane for _, _, lane in reconcile.calls] == ["sync", "delete"]
    assert reconcile.gaps() == [0]
    assert [result for _, _, result, _ in observer.seen] == ["elsewhere", "done"]


@virtual_time
async def test_lanes_that_disagree_back_off() -> None:
    """Two lanes that send a key back and forth slow down instead of spinning, and are told."""
    moves: list[Outcome | BaseException] = [Elsewhere("delete"), Elsewhere("sync")] * 4
    queue, reconcile = make_queue(), Scripted(moves)
    with capture_logs() as logs:
        async with running(queue, reconcile):
            queue.add("a", "sync")
            await asyncio.sleep(100)
            assert queue.failures("a") == 0
    assert reconcile.gaps() == [0, 0, 0, *(near(0.25 * 2**n) for n in range(5))]
    assert {line["event"] for line in logs} == {"lanes disagree"}


@virtual_time
async def test_unreachable_backs_off_and_recovers() -> None:
    """A key whose cluster does not answer is retried at doubling delays, for ever, up to a cap."""
    queue, reconcile = make_queue(), Scripted(unreachable(12))
    async with running(queue, reconcile):
        queue.add("a", "sync")
        await asyncio.sleep(1000)
    assert reconcile.gaps() == [near(min(60, 0.25 * 2**n)) for n in range(12)]
    assert {lane for _, _, lane in reconcile.calls} == {"sync"}


@virtual_time
async def test_a_conflict_is_retried_at_once_then_backs_off_and_is_no_error() -> None:
    """Conflicts are ordinary: the first retry comes at once, and no log line calls them errors."""
    queue, reconcile = make_queue(), Scripted([Conflict("changed") for _ in range(9)])
    with capture_logs() as logs:
        async with running(queue, reconcile):
            queue.add("a", "sync")
            await asyncio.sleep(300)
    assert reconcile.gaps() == [0, *(near(0.25 * 2**n) for n in range(8))]
    assert [line["failures"] for line in logs if line["log_level"] == "warning"] == [4, 8]
    assert all(line["log_level"] in {"debug", "warning"} for line in logs)


@virtual_time
async def test_a_throttled_key_honours_the_servers_wish() -> None:
    """After a 429 the key stays away for as long as the server asked, and not much longer."""
    throttled = Throttled("slow down")
    throttled.retry_after_seconds = 17
    queue, reconcile = make_queue(), Scripted([throttled])
    async with running(queue, reconcile):
        queue.add("a", "sync")
        await asyncio.sleep(100)
    (gap,) = reconcile.gaps()
    assert 17 <= gap <= 17.3


@pytest.mark.parametrize("error", [Rejected("invalid"), NotOurs("no mark")])
@virtual_time
async def test_what_only_people_can_heal_is_retried_slowly(error: Exception) -> None:
    """An invalid object is tried again after 5 s, doubling up to 2 minutes."""
    queue, reconcile = make_queue(), Scripted([error] * 8)
    async with running(queue, reconcile):
        queue.add("a", "sync")
        await asyncio.sleep(3000)
    assert reconcile.gaps() == [near(min(120, 5.0 * 2**n)) for n in range(8)]


@virtual_time
async def test_lost_leadership_ends_everything_at_once() -> None:
    """When the leader lease is lost, run() raises it bare and running reconciles are cancelled."""
    queue = make_queue()
    cancelled: list[str] = []

    async def reconcile(key: str, lane: Lane) -> Outcome:
        if key == "loser":
            raise LeadershipLost("another replica leads")
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.append(key)
            raise
        return Done()

    async with running(queue, reconcile) as task:
        queue.add("slow", "sync")
        queue.add("loser", "sync")
        with pytest.raises(LeadershipLost):
            await task
    assert cancelled == ["slow"]
    assert queue.in_hand() == frozenset()


@virtual_time
async def test_an_unknown_error_is_told_with_its_traceback_and_backs_off() -> None:
    """A bug in one reconcile costs that key some delay and one ERROR line, and stops nothing."""
    queue, reconcile, observer = make_queue(), Scripted([ValueError("bug")]), Counting()
    with capture_logs() as logs:
        async with running(queue, reconcile, observer=observer) as task:
            queue.add("a", "sync")
            await asyncio.sleep(10)
            assert not task.done()
    assert reconcile.gaps() == [near(0.25)]
    assert observer.seen[0][2] == "ValueError"
    (line,) = logs
    assert (line["log_level"], line["event"]) == ("error", "reconcile failed unexpectedly")
    assert isinstance(line["exc_info"], ValueError)


@virtual_time
async def test_a_hung_reconcile_is_cancelled_at_its_bound() -> None:
    """A reconcile that hangs is cancelled after the bound and the key is retried."""
    queue, observer = make_queue(), Counting()
    calls: list[float] = []

    async def reconcile(key: str, lane: Lane) -> Outcome:
        calls.append(virtual_loop().time())
        if len(calls) == 1:
            await asyncio.sleep(10_000)
        return Done()

    async with running(queue, reconcile, observer=observer, timeout_seconds=20):
        queue.add("a", "sync")
        await asyncio.sleep(100)
    assert calls[1] - calls[0] == pytest.approx(20.25, abs=0.03)
    assert [entry[2:] for entry in observer.seen] == [("ReconcileTimeout", 20), ("done", 0)]


@virtual_time
async def test_a_timeout_of_the_reconciles_own_keeps_its_name() -> None:
    """A TimeoutError from inside a reconcile is not mistaken for the controller's bound."""
    queue, reconcile, observer = make_queue(), Scripted([TimeoutError("mine")]), Counting()
    with capture_logs():
        async with running(queue, reconcile, observer=observer):
            queue.add("a", "sync")
            await asyncio.sleep(10)
    assert observer.seen[0][2] == "TimeoutError"


@virtual_time
async def test_cancelling_run_cancels_reconciles_and_empties_hands() -> None:
    """Shutting down is prompt: a cancelled run() cancels its reconciles and does not retry them."""
    queue = make_queue()
    reconcile_started = asyncio.Event()

    async def reconcile(key: str, lane: Lane) -> Outcome:
        reconcile_started.set()
        await asyncio.sleep(3600)
        return Done()

    async with running(queue, reconcile) as task:
        queue.add("a", "sync")
        await reconcile_started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert queue.in_hand() == frozenset()
        assert queue.failures("a") == 0


@virtual_time
async def test_a_crash_leaves_run_bare() -> None:
    """What is no Exception is handled by no worker and leaves run() as it is."""

    class Crash(BaseException):
        pass

    queue, reconcile = make_queue(), Scripted([Crash()])
    async with running(queue, reconcile) as task:
        queue.add("a", "sync")
        with pytest.raises(Crash):
            await task


@virtual_time
async def test_failures_are_logged_at_doubling_counts() -> None:
    """A key that fails a hundred times is warned about seven times, with a constant message."""
    queue, reconcile = make_queue(), Scripted(unreachable(100))
    with capture_logs() as logs:
        async with running(queue, reconcile):
            queue.add("a", "sync")
            await asyncio.sleep(10_000)
    warned = [line["failures"] for line in logs if line["log_level"] == "warning"]
    assert warned == [1, 2, 4, 8, 16, 32, 64]
    assert {line["event"] for line in logs} == {"reconcile failed"}


@virtual_time
async def test_log_lines_of_a_reconcile_carry_its_context() -> None:
    """Whatever a reconcile logs names the cluster, the kind, the key, the lane and the attempt."""
    queue = make_queue()
    seen: list[dict[str, object]] = []

    async def reconcile(key: str, lane: Lane) -> Outcome:
        await asyncio.sleep(1)
        seen.append(structlog.contextvars.get_contextvars())
        return Done()

    async with running(queue, reconcile):
        queue.add("a", "sync")
        queue.add("b", "status")
        await asyncio.sleep(10)
    assert seen == [
        {"cluster": "edge", "kind": "Pod", "key": k, "lane": lane, "reconcile_id": f"pods-{n}"}
        for n, (k, lane) in enumerate([("a", "sync"), ("b", "status")], start=1)
    ]
    assert structlog.contextvars.get_contextvars() == {}


@virtual_time
async def test_hanging_creates_do_not_hold_up_deletes_and_statuses() -> None:
    """While every create hangs for 30 s, deletes and statuses of other pods stay immediate."""
    queue = make_queue()
    latency: dict[str, float] = {}
    added: dict[str, float] = {}
    hands: set[str] = set()

    async def reconcile(key: str, lane: Lane) -> Outcome:
        assert key not in hands
        hands.add(key)
        latency[key] = virtual_loop().time() - added[key]
        await asyncio.sleep(30 if lane == "sync" else 0.01)
        hands.remove(key)
        return Done()

    async with running(queue, reconcile, workers={"sync": 4, "delete": 2, "status": 2}):
        for number in range(40):
            for lane in LANES:
                added[f"{lane}-{number}"] = virtual_loop().time()
                queue.add(f"{lane}-{number}", lane)
            await asyncio.sleep(0.1)
        await asyncio.sleep(400)
    assert max(wait for key, wait in latency.items() if not key.startswith("sync")) < 0.02
    assert max(wait for key, wait in latency.items() if key.startswith("sync")) > 200
    assert len(latency) == 120


@virtual_time
async def test_a_delete_waits_for_the_same_pods_create() -> None:
    """A delete of the very pod whose create is under way waits for it, in another lane too."""
    queue = make_queue()
    log: list[str] = []

    async def reconcile(key: str, lane: Lane) -> Outcome:
        log.append(f"{lane} begins")
        await asyncio.sleep(30)
        log.append(f"{lane} ends")
        return Done()

    async with running(queue, reconcile):
        queue.add("a", "sync")
        await asyncio.sleep(1)
        queue.add("a", "delete")
        await asyncio.sleep(100)
    assert log == ["sync begins", "sync ends", "delete begins", "delete ends"]


@virtual_time
async def test_reconciles_without_awaits_give_way() -> None:
    """A thousand keys with nothing to do do not block the loop until they are through."""
    queue, reconcile = make_queue(), Scripted()
    async with running(queue, reconcile, workers={"sync": 1}):
        for number in range(1000):
            queue.add(str(number), "sync")
        for _ in range(20):
            await asyncio.sleep(0)
        assert 0 < len(reconcile.calls) <= 20


@virtual_time
async def test_an_unknown_lane_is_refused() -> None:
    """Workers for a lane that the queue does not have are a programming error."""
    with pytest.raises(ValueError, match="no lane typo"):
        Controller("pods", make_queue(), Scripted(), {"typo": 1})


@virtual_time
async def test_an_outcome_outside_the_union_is_a_bug_and_backs_off() -> None:
    """A reconcile that returns nonsense is treated like one that raises."""
    queue, observer = make_queue(), Counting()
    reconcile = Scripted([cast(Outcome, None)])
    with capture_logs():
        async with running(queue, reconcile, observer=observer):
            queue.add("a", "sync")
            await asyncio.sleep(10)
    assert [result for _, _, result, _ in observer.seen] == ["AssertionError", "done"]
