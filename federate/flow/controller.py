"""Workers: take a key, reconcile it, interpret the outcome.

The only interpreter of outcomes and errors: a reconcile returns `Done`, `Again` or `Elsewhere`, or
raises; what that means for the key is decided here, through `errors.disposition_of`. A key is asked
for again before it leaves the worker's hand, so an outcome is never lost between the two.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeAlias, TypeVar, assert_never

import structlog

from federate.errors import Conflict, Disposition, FederateError, Throttled, disposition_of
from federate.flow.workqueue import Lane, QueueClosed, WorkQueue

__all__ = [
    "Again",
    "Controller",
    "Done",
    "Elsewhere",
    "Outcome",
    "ReconcileObserver",
    "ReconcileTimeout",
]

K = TypeVar("K", bound=Hashable)

log = structlog.stdlib.get_logger(__name__)

RECONCILE_TIMEOUT_SECONDS = 120.0
"""Bound of one reconcile: longer than any request's own bound, so that it only ends what hangs."""
SLOW_BASE_SECONDS = 5.0
"""First delay where only a person or another controller can change the outcome."""
SLOW_CAP_SECONDS = 120.0
"""Longest such delay: how long a repaired object may go unnoticed if no event tells of it."""
QUIET_CONFLICTS = 3
"""Conflicts in a row that are ordinary life with other writers and not worth a warning."""
MOVES_AT_ONCE = 3
"""Moves between lanes in a row before they count as failures: two lanes may not play ping-pong."""


@dataclass(frozen=True, slots=True)
class Done:
    """Nothing is left to do until something changes."""


@dataclass(frozen=True, slots=True)
class Again:
    """Come back after that time, whether or not something changes."""

    after_seconds: float


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """The plan belongs to another lane's budget: hand the key out there at once."""

    lane: Lane


Outcome: TypeAlias = Done | Again | Elsewhere


class ReconcileTimeout(FederateError):
    """A reconcile did not end within its bound and was cancelled."""


class ReconcileObserver(Protocol):
    """Who counts reconciles."""

    def reconciled(
        self, *, controller: str, lane: Lane, result: str, duration_seconds: float
    ) -> None:
        """Note one reconcile; `result` is done, again, elsewhere, or the error class's name."""


class _NoObserver:
    def reconciled(
        self, *, controller: str, lane: Lane, result: str, duration_seconds: float
    ) -> None:
        pass


class Controller(Generic[K]):
    """Drives `reconcile(key, lane)` with so many workers a lane.

    `context` (cluster, kind) is bound to every log line of a reconcile, next to its key, lane and
    `reconcile_id`. `reconcile` may be cancelled at any await, at its bound and at shutdown.
    """

    def __init__(
        self,
        name: str,
        queue: WorkQueue[K],
        reconcile: Callable[[K, Lane], Awaitable[Outcome]],
        workers: Mapping[Lane, int],
        *,
        observer: ReconcileObserver | None = None,
        context: Mapping[str, str] | None = None,
        reconcile_timeout_seconds: float = RECONCILE_TIMEOUT_SECONDS,
    ) -> None:
        unknown = set(workers) - set(queue.lanes)
        if unknown:
            raise ValueError(f"controller {name}: the queue has no lane {', '.join(unknown)}")
        self._name = name
        self._queue = queue
        self._reconcile = reconcile
        self._workers = dict(workers)
        self._observer: ReconcileObserver = observer or _NoObserver()
        self._context = dict(context or {})
        self._reconcile_timeout_seconds = reconcile_timeout_seconds
        self._ids = itertools.count(1)
        self._moves: dict[K, int] = {}

    async def run(self) -> None:
        """Work until the queue is closed and every hand is empty.

        Raises:
            LeadershipLost: at once, and whatever else `disposition_of` answers with STOP.
        """
        try:
            async with asyncio.TaskGroup() as group:
                for lane, count in self._workers.items():
                    for number in range(count):
                        group.create_task(self._work(lane), name=f"{self._name}-{lane}-{number}")
        except BaseExceptionGroup as failed:
            # Only what no worker may handle gets here; the first one ended the others.
            raise failed.exceptions[0] from failed

    async def _work(self, lane: Lane) -> None:
        while True:
            try:
                key = await self._queue.get(lane)
            except QueueClosed:
                return
            try:
                await self._handle(key, lane)
            finally:
                self._queue.done(key)
            await asyncio.sleep(0)  # a reconcile that found nothing to do never gave way to others

    async def _handle(self, key: K, lane: Lane) -> None:
        now = asyncio.get_running_loop().time
        started_at = now()
        with structlog.contextvars.bound_contextvars(
            **self._context,
            key=str(key),
            lane=str(lane),
            reconcile_id=f"{self._name}-{next(self._ids)}",
        ):
            try:
                outcome = await self._bounded(key, lane)
                result = self._obey(key, lane, outcome)
            except Exception as error:  # noqa: BLE001 - the supervised edge of every reconcile
                result = type(error).__name__
                self._moves.pop(key, None)
                self._recover(key, lane, error)
            duration_seconds = now() - started_at
            self._observer.reconciled(
                controller=self._name, lane=lane, result=result, duration_seconds=duration_seconds
            )

    async def _bounded(self, key: K, lane: Lane) -> Outcome:
        """Reconcile within the bound; a TimeoutError of the reconcile's own stays what it is."""
        bound = asyncio.timeout(self._reconcile_timeout_seconds)
        try:
            async with bound:
                return await self._reconcile(key, lane)
        except TimeoutError as error:
            if not bound.expired():
                raise
            raise ReconcileTimeout(
                f"not finished after {self._reconcile_timeout_seconds:g} s"
            ) from error

    def _obey(self, key: K, lane: Lane, outcome: Outcome) -> str:
        """Do with `key` what its reconcile asked for, and name it."""
        if isinstance(outcome, Elsewhere):
            self._move(key, lane, outcome.lane)
            return "elsewhere"
        self._moves.pop(key, None)
        self._queue.forget(key)
        match outcome:
            case Done():
                return "done"
            case Again(after_seconds):
                self._queue.add_after(key, lane, after_seconds)
                return "again"
            case _:
                assert_never(outcome)

    def _move(self, key: K, lane: Lane, to_lane: Lane) -> None:
        moves = self._moves.get(key, 0) + 1
        self._moves[key] = moves
        if moves <= MOVES_AT_ONCE:
            self._queue.add(key, to_lane)
            return
        delay = self._queue.add_rate_limited(key, to_lane)
        log.warning("lanes disagree", from_lane=lane, to_lane=to_lane, retry_seconds=delay)

    def _recover(self, key: K, lane: Lane, error: Exception) -> None:
        """Ask for a failed key again at the pace its error deserves, or raise what means stop."""
        disposition = disposition_of(error)
        match disposition:
            case Disposition.STOP:
                log.warning("reconcile stopped", error=str(error))
                raise error
            case Disposition.RETRY_NOW:
                delay = self._queue.add_rate_limited(key, lane, free_retries=1)
            case Disposition.SLOW:
                delay = self._queue.add_rate_limited(
                    key, lane, base_seconds=SLOW_BASE_SECONDS, cap_seconds=SLOW_CAP_SECONDS
                )
            case Disposition.BACK_OFF:
                wish = error.retry_after_seconds if isinstance(error, Throttled) else 0.0
                delay = self._queue.add_rate_limited(key, lane, at_least_seconds=wish)
            case _:
                assert_never(disposition)
        self._report(error, self._queue.failures(key), delay)

    def _report(self, error: Exception, failures: int, delay: float) -> None:
        """Log a failure, at doubling counts only: one that lasts for days must not fill a disk."""
        doubling = failures & (failures - 1) == 0
        quiet = isinstance(error, Conflict) and failures <= QUIET_CONFLICTS
        facts = {
            "error": str(error),
            "error_class": type(error).__name__,
            "failures": failures,
            "retry_seconds": round(delay, 3),
        }
        if not doubling or quiet:
            log.debug("reconcile failed", **facts)
        elif isinstance(error, FederateError):
            log.warning("reconcile failed", **facts)
        else:
            log.error("reconcile failed unexpectedly", exc_info=error, **facts)
