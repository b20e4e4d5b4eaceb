"""Write hub pods' Events: a bounded number a second, fairly, and dropped rather than in the way.

`tell` only takes note; `run` writes. What a hub pod is told has a name that follows from the
target's Event, so that telling it again, after a restart or by another leader, changes nothing.
Namespaces take turns; a pod has only so many Events waiting, and where there are too many in all,
the namespace with most of them gives way. Events are help for people, nothing depends on them.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import structlog

from federate.cluster.port import ClusterPort
from federate.errors import (
    AlreadyExists,
    ClusterError,
    Conflict,
    Forbidden,
    NotFound,
    ServerFault,
    Throttled,
    Unauthorized,
    Unreachable,
)
from federate.events.render import HubEvent, Progress
from federate.flow.ratebound import RateBound
from federate.flow.workqueue import WorkQueue
from federate.model.objects import ObjectKey
from federate.model.resources import CORE_EVENTS

log = structlog.stdlib.get_logger(__name__)

LANE = "events"

WRITES_PER_SECOND = 20.0
WRITES_AT_ONCE = 40
"""A kubelet may send 50 a second; more would compete with the pods' own requests."""

REPEAT_SECONDS = 10.0
MOST_REPEAT_SECONDS = 60.0
"""A count is brought up to date so long after the last time, twice as long each time: who looks at
a pod that begins to crash sees it at once, and a count that moves each second helps nobody."""

MOST_WAITING = 1000
"""Events that wait to be told for the first time. More are told too late to be of use."""

MOST_OF_A_POD = 20
"""Of those, of one pod: a kubelet makes no more than 25 for a pod in one go either."""

MOST_KNOWN = 4096
"""Events remembered, told and waiting; of one that is forgotten the next repeat costs a request
more."""

RETRY_SECONDS = 1.0
MOST_RETRY_SECONDS = 30.0
MOST_ATTEMPTS = 8
"""About two minutes: an Event older than that is found again by the watch, or is history."""

_PASSING = (Unreachable, Throttled, ServerFault, Unauthorized, Conflict)


@dataclass(slots=True, kw_only=True, eq=False)
class _Telling:
    """One Event of the hub. `waiting` is what it shall say, None once it says so."""

    waiting: HubEvent | None
    heard: Progress
    is_there: bool = False
    writes: int = 0
    next_at: float = float("-inf")


class Teller:
    """Tells hub pods; `wants` says whether a mirror of that uid is still a living hub pod's own.

    `on_told` and `on_dropped` are called for each Event that was written, and each that never will
    be.
    """

    def __init__(
        self,
        hub: ClusterPort,
        *,
        wants: Callable[[str], bool],
        fence: Callable[[], None],
        on_told: Callable[[], None],
        on_dropped: Callable[[], None],
        clock: Callable[[], float],
        random: Random,
    ) -> None:
        self._hub = hub
        self._wants = wants
        self._fence = fence
        self._on_told = on_told
        self._on_dropped = on_dropped
        self._clock = clock
        self._queue: WorkQueue[ObjectKey] = WorkQueue(
            lanes=(LANE,), clock=clock, random=random, fair_by=lambda key: key.namespace
        )
        self._bound = RateBound(per_second=WRITES_PER_SECOND, burst=WRITES_AT_ONCE, clock=clock)
        self._known: OrderedDict[ObjectKey, _Telling] = OrderedDict()
        self._crowd = _Crowd()
        self._was_refused = False

    def tell(self, event: HubEvent) -> None:
        """Take note of an Event, or of its repeat; returns at once and never raises."""
        known = self._known.get(event.key)
        if known is not None and event.progress <= known.heard:
            return
        if known is None:
            known = self._take_in(event)
            if known is None:
                return
        known.waiting, known.heard = event, event.progress
        self._known.move_to_end(event.key)
        self._queue.add_after(event.key, LANE, known.next_at - self._clock())

    async def run(self) -> None:
        """Write until cancelled.

        Raises:
            LeadershipLost: we may not write any more.
        """
        while True:
            key = await self._queue.get(LANE)
            try:
                await self._handle(key)
            finally:
                self._queue.done(key)
            await asyncio.sleep(0)  # what is unwanted by now never gave way to others

    # -- who waits ---------------------------------------------------------------------------------

    def _take_in(self, event: HubEvent) -> _Telling | None:
        """Remember a new Event, None where there is no room for it."""
        crowded_out = self._crowd.add(event)
        if crowded_out is not None:
            self._known.pop(crowded_out, None)
            self._on_dropped()
        if crowded_out == event.key:
            return None
        telling = _Telling(waiting=event, heard=event.progress)
        self._known[event.key] = telling
        self._bound_memory()
        return telling

    def _bound_memory(self) -> None:
        while len(self._known) > MOST_KNOWN:
            key, telling = self._known.popitem(last=False)
            if telling.waiting is not None:
                self._give_up(key, telling.waiting)

    def _give_up(self, key: ObjectKey, event: HubEvent) -> None:
        """Forget an Event that was not told; should it happen again, it is new."""
        self._known.pop(key, None)
        self._crowd.remove(event)
        self._queue.forget(key)
        self._on_dropped()

    # -- writing -----------------------------------------------------------------------------------

    async def _handle(self, key: ObjectKey) -> None:
        telling = self._known.get(key)
        if telling is None or telling.waiting is None:
            return
        too_early_by = telling.next_at - self._clock()
        if too_early_by > 0:
            self._queue.add_after(key, LANE, too_early_by)
            return
        if self._is_unwanted(telling.waiting):
            return
        await self._bound.take()
        event = telling.waiting
        if self._known.get(key) is not telling or self._is_unwanted(event):
            return
        self._crowd.remove(event)
        try:
            await self._write(telling, event)
        except ClusterError as error:
            self._recover(event, error)
        else:
            self._note_told(telling, event)

    def _is_unwanted(self, event: HubEvent) -> bool:
        """Forget an Event whose hub pod went while it waited."""
        if self._wants(event.mirror_uid):
            return False
        self._known.pop(event.key, None)
        self._crowd.remove(event)
        self._queue.forget(event.key)
        return True

    async def _write(self, telling: _Telling, event: HubEvent) -> None:
        self._fence()
        if telling.is_there:
            try:
                await self._hub.patch(CORE_EVENTS, event.key, event.change())
                return
            except NotFound:
                telling.is_there = False  # Events live for an hour
                self._fence()
        try:
            await self._hub.create(CORE_EVENTS, event.body, namespace=event.key.namespace)
        except AlreadyExists:
            self._fence()
            await self._hub.patch(CORE_EVENTS, event.key, event.change())

    def _note_told(self, telling: _Telling, event: HubEvent) -> None:
        self._queue.forget(event.key)
        telling.is_there = True
        pause = REPEAT_SECONDS * 2.0 ** min(telling.writes, 10)
        telling.writes += 1
        telling.next_at = self._clock() + min(pause, MOST_REPEAT_SECONDS)
        if telling.waiting is event:
            telling.waiting = None
        else:
            self._queue.add_after(event.key, LANE, telling.next_at - self._clock())
        self._on_told()

    def _recover(self, event: HubEvent, error: ClusterError) -> None:
        """Try again what may pass, and give up the rest: its namespace is going, say."""
        if isinstance(error, _PASSING) and self._queue.failures(event.key) + 1 < MOST_ATTEMPTS:
            self._queue.add_rate_limited(
                event.key,
                LANE,
                base_seconds=RETRY_SECONDS,
                cap_seconds=MOST_RETRY_SECONDS,
                at_least_seconds=error.retry_after_seconds if isinstance(error, Throttled) else 0.0,
            )
            return
        self._give_up(event.key, event)
        if isinstance(error, Forbidden) and not self._was_refused and not _is_going(error):
            self._was_refused = True
            log.warning(
                "the hub does not take the target's events",
                error=str(error),
                remedy="grant create and patch on events to federate's user in the hub",
            )
            return
        log.debug("target's event dropped", key=str(event.key), error=str(error))


class _Crowd:
    """Which Events wait for a first attempt to tell them, by namespace and by pod."""

    def __init__(self) -> None:
        self._by_namespace: dict[str, dict[ObjectKey, str]] = {}
        self._by_pod: Counter[str] = Counter()
        self._size = 0

    def add(self, event: HubEvent) -> ObjectKey | None:
        """Let an Event wait; return the one that has no room, itself maybe."""
        if self._by_pod[event.pod_uid] >= MOST_OF_A_POD:
            return event.key
        self._by_namespace.setdefault(event.key.namespace, {})[event.key] = event.pod_uid
        self._by_pod[event.pod_uid] += 1
        self._size += 1
        if self._size <= MOST_WAITING:
            return None
        most = max(self._by_namespace.values(), key=len)
        key = next(reversed(most))
        self._take_out(key)
        return key

    def remove(self, event: HubEvent) -> None:
        """Let an Event wait no more, if it did."""
        if event.key in self._by_namespace.get(event.key.namespace, ()):
            self._take_out(event.key)

    def _take_out(self, key: ObjectKey) -> None:
        waiting = self._by_namespace[key.namespace]
        pod_uid = waiting.pop(key)
        self._size -= 1
        if not waiting:
            del self._by_namespace[key.namespace]
        self._by_pod[pod_uid] -= 1
        if not self._by_pod[pod_uid]:
            del self._by_pod[pod_uid]


def _is_going(error: ClusterError) -> bool:
    return "being terminated" in error.detail
