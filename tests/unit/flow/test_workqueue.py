"""The workqueue by example; its laws are in tests/laws/test_workqueue_model.py."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from random import Random

import pytest

from federate.flow.workqueue import QueueClosed, WorkQueue
from tests.support.clock import virtual_loop, virtual_time


def queue(fair_by: Callable[[str], Hashable] | None = None) -> WorkQueue[str]:
    return WorkQueue(
        lanes=("sync", "delete"), clock=virtual_loop().time, random=Random(7), fair_by=fair_by
    )


async def is_empty(q: WorkQueue[str], lane: str) -> bool:
    try:
        async with asyncio.timeout(0):
            key = await q.get(lane)
    except TimeoutError:
        return True
    raise AssertionError(f"{key} was handed out")


@virtual_time
async def test_keys_come_in_order_and_once() -> None:
    """A key that is added several times before it is taken is handed out once, in order."""
    q = queue()
    for key in "abab":
        q.add(key, "sync")
    assert q.depth("sync") == 2
    assert [await q.get("sync"), await q.get("sync")] == ["a", "b"]
    assert q.in_hand() == {"a", "b"}


@virtual_time
async def test_a_key_in_hand_waits_for_done() -> None:
    """A key that changes while a worker holds it is handed out again after that, not before."""
    q = queue()
    q.add("a", "sync")
    await q.get("sync")
    q.add("a", "delete")
    assert await is_empty(q, "delete")
    q.done("a")
    assert await q.get("delete") == "a"
    q.done("a")
    assert q.depth("sync") == q.depth("delete") == 0


@virtual_time
async def test_done_without_hand_is_an_error() -> None:
    """Putting down a key that nobody holds is a programming error."""
    with pytest.raises(KeyError):
        queue().done("a")


@virtual_time
async def test_unknown_lanes_are_errors() -> None:
    """A wish for a lane that does not exist fails where it is made."""
    q = queue()
    with pytest.raises(KeyError):
        q.add("a", "status")
    with pytest.raises(KeyError):
        q.add_after("a", "status", 5)


@virtual_time
async def test_adding_to_another_lane_moves_the_key() -> None:
    """A key waits in one lane only, at the end of the one it was added to last."""
    q = queue()
    q.add("a", "sync")
    q.add("b", "delete")
    q.add("a", "delete")
    assert (q.depth("sync"), q.depth("delete")) == (0, 2)
    assert [await q.get("delete"), await q.get("delete")] == ["b", "a"]


@virtual_time
async def test_a_busy_key_goes_behind_others() -> None:
    """A key that changes all the time does not keep others waiting."""
    q = queue()
    q.add("busy", "sync")
    assert await q.get("sync") == "busy"
    q.add("busy", "sync")
    q.add("quiet", "sync")
    q.done("busy")
    assert await q.get("sync") == "quiet"


@virtual_time
async def test_a_busy_group_takes_turns() -> None:
    """One key of a small namespace comes second, however many keys a big namespace has waiting."""
    q = queue(fair_by=lambda key: key.split("/")[0])
    for number in range(1000):
        q.add(f"big/{number}", "sync")
    q.add("small/0", "sync")
    assert [await q.get("sync") for _ in range(4)] == ["big/0", "small/0", "big/1", "big/2"]


@virtual_time
async def test_the_only_key_of_a_group_moves_to_another_lane() -> None:
    """A group whose last key moved away takes no turn any more."""
    q = queue(fair_by=lambda key: key[0])
    q.add("a1", "sync")
    q.add("b1", "sync")
    q.add("a1", "delete")
    assert await q.get("sync") == "b1"
    assert await q.get("delete") == "a1"


@virtual_time
async def test_a_delayed_key_comes_at_its_time() -> None:
    """A delayed key is ready at its time to the microsecond, not before."""
    q = queue()
    start = virtual_loop().time()
    q.add_after("late", "sync", 30)
    q.add_after("soon", "sync", 0.3)
    assert q.delayed() == 2
    assert await q.get("sync") == "soon"
    assert virtual_loop().time() - start == pytest.approx(0.3, abs=1e-5)
    assert await q.get("sync") == "late"
    assert virtual_loop().time() - start == pytest.approx(30, abs=1e-5)
    assert q.delayed() == 0


@virtual_time
async def test_the_earliest_delay_stands() -> None:
    """Of several delays for a key the earliest counts, with its lane, and the key comes once."""
    q = queue()
    start = virtual_loop().time()
    q.add_after("a", "sync", 60)
    q.add_after("a", "delete", 5)
    q.add_after("a", "sync", 10)
    assert await q.get("delete") == "a"
    assert virtual_loop().time() == start + 5
    q.done("a")
    await asyncio.sleep(120)
    assert q.depth("sync") == q.depth("delete") == 0


@virtual_time
async def test_an_earlier_hand_out_answers_a_delay() -> None:
    """Who is handed a key before its delay is over decides anew whether to wait."""
    q = queue()
    q.add_after("a", "sync", 60)
    q.add("a", "sync")
    q.add_after("a", "sync", 30)
    assert await q.get("sync") == "a"
    q.done("a")
    await asyncio.sleep(120)
    assert q.depth("sync") == 0


@virtual_time
async def test_an_answered_delay_does_not_hurry_a_later_one() -> None:
    """The timer of an answered wish does not make a later wish of the same key fire early."""
    q = queue()
    q.add_after("a", "sync", 5)
    q.add("a", "sync")
    await q.get("sync")
    q.add_after("a", "sync", 10)
    q.done("a")
    await asyncio.sleep(9.9)
    assert q.depth("sync") == 0
    await asyncio.sleep(0.1)
    assert q.depth("sync") == 1


@virtual_time
async def test_neighbours_in_time_do_not_hurry_each_other() -> None:
    """A key due a blink after another waits for its own time."""
    q = queue()
    q.add_after("a", "sync", 5)
    q.add_after("b", "sync", 5.001)
    await asyncio.sleep(5)
    assert q.depth("sync") == 1
    await asyncio.sleep(0.001)
    assert q.depth("sync") == 2


@virtual_time
async def test_a_delay_asked_in_hand_survives_done() -> None:
    """A delay that the worker itself asks for outlives its putting the key down."""
    q = queue()
    q.add("a", "sync")
    await q.get("sync")
    q.add_after("a", "sync", 5)
    q.done("a")
    await asyncio.sleep(4.9)
    assert q.depth("sync") == 0
    await asyncio.sleep(0.1)
    assert q.depth("sync") == 1


@virtual_time
async def test_a_delay_that_ends_in_hand_waits_for_done() -> None:
    """A timer that fires while the key is in a hand is not lost."""
    q = queue()
    q.add("a", "sync")
    await q.get("sync")
    q.add_after("a", "sync", 5)
    await asyncio.sleep(10)
    q.add_after("a", "sync", 5)
    assert (q.depth("sync"), q.delayed()) == (0, 0)
    q.done("a")
    assert await q.get("sync") == "a"


@virtual_time
async def test_no_delay_means_at_once() -> None:
    """A delay of zero or less is an immediate wish."""
    q = queue()
    q.add_after("a", "sync", 0)
    assert q.depth("sync") == 1


@virtual_time
async def test_failures_double_the_delay_up_to_the_cap() -> None:
    """A failing key is retried at doubling delays, within a tenth, up to the cap."""
    q = queue()
    delays = [q.add_rate_limited("a", "sync", cap_seconds=8) for _ in range(9)]
    for delay, exact in zip(delays, [0.25, 0.5, 1, 2, 4, 8, 8, 8, 8], strict=True):
        assert exact * 0.9 <= delay <= exact * 1.1
    assert len(set(delays)) == 9
    assert q.failures("a") == 9
    q.forget("a")
    assert q.failures("a") == 0
    assert q.add_rate_limited("a", "sync") <= 0.275


@virtual_time
async def test_free_retries_come_at_once() -> None:
    """A conflict is retried at once the first time, then backed off from the base."""
    q = queue()
    assert q.add_rate_limited("a", "sync", free_retries=1) == 0
    assert q.depth("sync") == 1
    await q.get("sync")
    assert 0.225 <= q.add_rate_limited("a", "sync", free_retries=1) <= 0.275


@virtual_time
async def test_a_servers_wish_is_a_floor() -> None:
    """A throttled key comes no earlier than the server wishes."""
    q = queue()
    assert 7.2 <= q.add_rate_limited("a", "sync", at_least_seconds=7) <= 7.3


@virtual_time
async def test_years_of_failures_stay_finite() -> None:
    """Thousands of failures still give the longest delay."""
    q = queue()
    for _ in range(5000):
        delay = q.add_rate_limited("a", "sync")
    assert 54 <= delay <= 66


@virtual_time
async def test_waiting_getters_are_woken_in_turn() -> None:
    """Every waiting worker of the lane gets a key, and those of other lanes none."""
    q = queue()
    getters = [asyncio.create_task(q.get("sync")) for _ in range(2)]
    other = asyncio.create_task(q.get("delete"))
    await asyncio.sleep(1)
    q.add("a", "sync")
    q.add("b", "sync")
    await asyncio.sleep(1)
    assert [getter.result() for getter in getters] == ["a", "b"]
    assert not other.done()
    q.close()
    with pytest.raises(QueueClosed):
        await other


@virtual_time
async def test_a_cancelled_getter_passes_its_wake_up_on() -> None:
    """A worker that is cancelled in the very step it was woken in leaves the key to another."""
    q = queue()
    first, second, third = (asyncio.create_task(q.get("sync")) for _ in range(3))
    await asyncio.sleep(1)
    third.cancel()
    await asyncio.sleep(1)
    q.add("a", "sync")
    first.cancel()
    await asyncio.sleep(1)
    assert first.cancelled()
    assert third.cancelled()
    assert second.result() == "a"


@virtual_time
async def test_a_cancelled_getter_whose_key_was_taken_is_harmless() -> None:
    """A getter cancelled after its key went to somebody faster wakes nobody."""
    q = queue()
    waiting = asyncio.create_task(q.get("sync"))
    await asyncio.sleep(1)
    q.add("a", "sync")
    assert await q.get("sync") == "a"
    waiting.cancel()
    await asyncio.sleep(1)
    assert waiting.cancelled()
    assert q.in_hand() == {"a"}


@virtual_time
async def test_a_woken_getter_that_was_outrun_waits_on() -> None:
    """A getter whose key was taken by somebody faster gets the next one."""
    q = queue()
    waiting = asyncio.create_task(q.get("sync"))
    await asyncio.sleep(1)
    q.add("a", "sync")
    assert await q.get("sync") == "a"
    await asyncio.sleep(1)
    q.add("b", "sync")
    await asyncio.sleep(1)
    assert waiting.result() == "b"


@virtual_time
async def test_a_cancelled_but_not_yet_run_getter_is_passed_over() -> None:
    """A key goes to a worker that still waits, not to one whose cancelling is under way."""
    q = queue()
    first, second = (asyncio.create_task(q.get("sync")) for _ in range(2))
    await asyncio.sleep(1)
    first.cancel()
    q.add("a", "sync")
    await asyncio.sleep(1)
    assert second.result() == "a"


@virtual_time
async def test_closing_ends_getters_and_wishes() -> None:
    """A closed queue hands out nothing, ignores wishes and lets hands be emptied."""
    q = queue()
    q.add("held", "sync")
    q.add("left", "sync")
    await q.get("sync")
    q.add_after("later", "sync", 5)
    q.close()
    q.close()
    q.add("new", "delete")
    q.add_after("newer", "delete", 5)
    q.add("held", "sync")
    q.done("held")
    with pytest.raises(QueueClosed):
        await q.get("sync")
    await asyncio.sleep(60)
    assert q.depth("delete") == 0
    assert q.in_hand() == frozenset()


@virtual_time
async def test_waiting_time_is_told() -> None:
    """The wait of the longest waiting key is told per lane."""
    q = queue(fair_by=lambda key: key)
    assert q.oldest_wait_seconds("sync") == 0
    q.add("a", "sync")
    await asyncio.sleep(4)
    q.add("b", "sync")
    assert q.oldest_wait_seconds("sync") == 4
    await q.get("sync")
    assert q.oldest_wait_seconds("sync") == 0
    assert q.lanes == ("sync", "delete")


@virtual_time
async def test_answered_delays_leave_nothing_behind() -> None:
    """Ten thousand answered delays keep no memory."""
    q = queue()
    for _ in range(10_000):
        q.add_after("a", "sync", 300)
        q.add("a", "sync")
        await q.get("sync")
        q.done("a")
    assert len(q._timers) < 200
    q.add_after("a", "sync", 300)
    await asyncio.sleep(300)
    assert q.depth("sync") == 1
