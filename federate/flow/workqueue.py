"""One key in one hand: the queue between watch events and reconciles.

Reflectors, timers and controllers put keys in; workers take them out. A lane is a budget of
workers, not a kind of work: whichever lane hands a key out, the reconcile looks at all of it.

What always holds:

- A key is in at most one hand, across all lanes. `add` for a key in a hand is remembered and the
  key becomes ready again on `done`.
- A wish (`add`, `add_after`, `add_rate_limited`) is answered by the first hand-out that begins
  after it was made; that hand-out comes no earlier than the earliest unanswered wish of the key. A
  delayed wish is therefore an upper bound: who is handed the key earlier and still waits for the
  time to pass asks again. No wish is dropped unanswered while the queue is open.
- Within a lane, groups (`fair_by`) take turns and keys of one group go first in, first out, so
  neither a busy key nor a busy group keeps others waiting.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable
from random import Random
from typing import Generic, TypeAlias, TypeVar

__all__ = ["Lane", "QueueClosed", "WorkQueue"]

Lane: TypeAlias = str
"""The name of a worker budget; a `StrEnum` of the user's serves well."""

K = TypeVar("K", bound=Hashable)

BACK_OFF_BASE_SECONDS = 0.25
"""Delay after the first failure. Smaller hammers a server in trouble; larger is felt by people."""
BACK_OFF_CAP_SECONDS = 60.0
"""Longest delay between tries. Larger delays the recovery after an outage by as much."""
BACK_OFF_FACTOR = 2.0
JITTER = 0.1
"""Share by which a delay varies either way, so that keys that failed together spread out."""
MAX_EXPONENT = 64
"""Keeps the power finite after thousands of failures; every cap is reached long before."""
TIMER_RESOLUTION_SECONDS = 1e-6
"""A wish this close is due: event loops round, and call a timer up to their resolution early."""
STALE_TIMERS_TOLERATED = 64
"""Answered wishes leave timers behind; more of them than this and than live ones are cleared."""


class QueueClosed(Exception):
    """The queue is closed: no key will be handed out any more."""


class _ReadyLane(Generic[K]):
    """The ready keys of one lane: groups take turns, first in, first out within a group."""

    def __init__(self, group_of: Callable[[K], Hashable]) -> None:
        self._group_of = group_of
        self._groups: OrderedDict[Hashable, OrderedDict[K, float]] = OrderedDict()
        self._length = 0
        self.getters: deque[asyncio.Future[None]] = deque()

    def __len__(self) -> int:
        return self._length

    def push(self, key: K, at: float) -> None:
        self._groups.setdefault(self._group_of(key), OrderedDict())[key] = at
        self._length += 1

    def pop(self) -> K:
        group, keys = self._groups.popitem(last=False)
        key, _ = keys.popitem(last=False)
        if keys:
            self._groups[group] = keys
        self._length -= 1
        return key

    def remove(self, key: K) -> None:
        group = self._group_of(key)
        del self._groups[group][key]
        if not self._groups[group]:
            del self._groups[group]
        self._length -= 1

    def oldest_at(self) -> float | None:
        return min((next(iter(keys.values())) for keys in self._groups.values()), default=None)

    def wake_one(self) -> None:
        """Wake one getter that still waits; it takes the key itself."""
        while self.getters:
            getter = self.getters.popleft()
            if not getter.done():
                getter.set_result(None)
                return


class WorkQueue(Generic[K]):
    """The keys of one virtual node; belongs to one event loop.

    `clock` is monotonic and runs as fast as the loop's; `random` draws the jitter; `fair_by` names
    the group of a key (one group where it is absent).
    """

    def __init__(
        self,
        *,
        lanes: Iterable[Lane],
        clock: Callable[[], float],
        random: Random,
        fair_by: Callable[[K], Hashable] | None = None,
    ) -> None:
        self._clock = clock
        self._random = random
        group_of: Callable[[K], Hashable] = fair_by or (lambda _key: None)
        self._ready = {lane: _ReadyLane(group_of) for lane in lanes}
        self._ready_in: dict[K, Lane] = {}
        self._in_hand: set[K] = set()
        self._again_in: dict[K, Lane] = {}
        self._delayed: dict[K, tuple[float, int, Lane]] = {}
        self._timers: list[tuple[float, int, K]] = []
        self._sequence = itertools.count()
        self._failures: dict[K, int] = {}
        self._handle: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def lanes(self) -> tuple[Lane, ...]:
        """The lanes this queue was made with."""
        return tuple(self._ready)

    def add(self, key: K, lane: Lane) -> None:
        """Ask for `key` at once in `lane`; from another lane it moves to the end of this one.

        A closed queue ignores this and every other wish.
        """
        ready = self._ready[lane]
        if self._closed:
            return
        self._delayed.pop(key, None)
        if key in self._in_hand:
            self._again_in[key] = lane
            return
        waits_in = self._ready_in.get(key)
        if waits_in == lane:
            return
        if waits_in is not None:
            self._ready[waits_in].remove(key)
        ready.push(key, self._clock())
        self._ready_in[key] = lane
        ready.wake_one()

    def add_after(self, key: K, lane: Lane, delay_seconds: float) -> None:
        """Ask for `key` in `lane` after a delay; of several wishes the earliest stands."""
        if delay_seconds <= 0:
            self.add(key, lane)
            return
        if lane not in self._ready:  # fail here, not when the timer fires
            raise KeyError(lane)
        if self._closed or key in self._ready_in or key in self._again_in:
            return
        due = self._clock() + delay_seconds
        standing = self._delayed.get(key)
        if standing is not None and standing[0] <= due:
            return
        sequence = next(self._sequence)
        self._delayed[key] = (due, sequence, lane)
        heapq.heappush(self._timers, (due, sequence, key))
        self._drop_stale_timers()
        if self._timers[0][1] == sequence:
            self._arm()

    def add_rate_limited(
        self,
        key: K,
        lane: Lane,
        *,
        base_seconds: float = BACK_OFF_BASE_SECONDS,
        cap_seconds: float = BACK_OFF_CAP_SECONDS,
        at_least_seconds: float = 0.0,
        free_retries: int = 0,
    ) -> float:
        """Count a failure of `key`, ask for it after a delay that doubles, and return the delay.

        The first `free_retries` failures are retried at once. `at_least_seconds` is a server's
        wish: the back-off comes on top of it.
        """
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        delay = at_least_seconds
        if failures >= free_retries:
            exponent = min(failures - free_retries, MAX_EXPONENT)
            back_off = min(cap_seconds, base_seconds * BACK_OFF_FACTOR**exponent)
            delay += back_off * self._random.uniform(1 - JITTER, 1 + JITTER)
        self.add_after(key, lane, delay)
        return delay

    def forget(self, key: K) -> None:
        """Forget the failures of `key`: the next one counts as the first. Wishes stand."""
        self._failures.pop(key, None)

    def failures(self, key: K) -> int:
        """Return how often `key` failed since it was last forgotten."""
        return self._failures.get(key, 0)

    async def get(self, lane: Lane) -> K:
        """Take the next ready key of `lane` into the caller's hand, who must call `done` with it.

        Raises:
            QueueClosed: the queue is closed, even where keys were left.
        """
        ready = self._ready[lane]
        while not self._closed:
            if ready:
                return self._take(ready)
            await self._wait(ready)
        raise QueueClosed

    def done(self, key: K) -> None:
        """Put `key` out of the hand; it is ready again where it was asked for meanwhile.

        Raises:
            KeyError: the key is in nobody's hand.
        """
        self._in_hand.remove(key)
        lane = self._again_in.pop(key, None)
        if lane is not None:
            self.add(key, lane)

    def close(self) -> None:
        """Hand nothing out any more; keys in hand may still be `done`. Twice is harmless."""
        self._closed = True
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        for ready in self._ready.values():
            while ready.getters:
                ready.wake_one()

    def depth(self, lane: Lane) -> int:
        """Return how many keys are ready in `lane`."""
        return len(self._ready[lane])

    def delayed(self) -> int:
        """Return how many keys wait for their time."""
        return len(self._delayed)

    def in_hand(self) -> frozenset[K]:
        """Return the keys that workers hold."""
        return frozenset(self._in_hand)

    def oldest_wait_seconds(self, lane: Lane) -> float:
        """Return how long the key that waits longest in `lane` has been ready; 0 for none."""
        oldest_at = self._ready[lane].oldest_at()
        return 0.0 if oldest_at is None else max(0.0, self._clock() - oldest_at)

    def _take(self, ready: _ReadyLane[K]) -> K:
        key = ready.pop()
        del self._ready_in[key]
        self._in_hand.add(key)
        return key

    async def _wait(self, ready: _ReadyLane[K]) -> None:
        getter = asyncio.get_running_loop().create_future()
        ready.getters.append(getter)
        try:
            await getter
        except asyncio.CancelledError:
            if getter in ready.getters:
                ready.getters.remove(getter)
            elif ready:  # woken and cancelled in one step: the wake-up belongs to the next getter
                ready.wake_one()
            raise

    def _arm(self) -> None:
        """Let the one timer of the loop fire at the earliest due time."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        if self._timers and not self._closed:
            delay = max(0.0, self._timers[0][0] - self._clock())
            self._handle = asyncio.get_running_loop().call_later(delay, self._fire)

    def _fire(self) -> None:
        now = self._clock() + TIMER_RESOLUTION_SECONDS
        while self._timers and self._timers[0][0] <= now:
            _, sequence, key = heapq.heappop(self._timers)
            standing = self._delayed.get(key)
            if standing is not None and standing[1] == sequence:
                self.add(key, standing[2])
        self._arm()

    def _drop_stale_timers(self) -> None:
        if len(self._timers) <= 2 * len(self._delayed) + STALE_TIMERS_TOLERATED:
            return
        self._timers = [(due, seq, key) for key, (due, seq, _) in self._delayed.items()]
        heapq.heapify(self._timers)
