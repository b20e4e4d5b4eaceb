"""The target's Events about pods, as they come: one watch, and nothing kept.

Between the target's client and whoever picks out what is about a mirror. There may be a hundred
thousand Events of others, so they are neither listed nor stored: a watch without a version begins
with all that there is, one by one. Nothing waits for this watch; where it is refused or breaks, it
is tried again, and pods run on without.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from datetime import datetime, timedelta
from typing import cast

import structlog

from federate.cluster.port import ClusterPort, WatchEvent
from federate.errors import ClusterError, Expired, Forbidden, Rejected, Throttled
from federate.events.render import POD_EVENTS, last_seen_at
from federate.model.objects import JsonObject, resource_version_of
from federate.model.resources import CORE_EVENTS

log = structlog.stdlib.get_logger(__name__)

WATCH_SECONDS = 60.0
"""How long a watch lasts. Events have no bookmarks on most API servers, and a client takes a watch
that is silent for 90 s for dead: it ends in good order before that."""

AFRESH_SECONDS = 240.0
"""After so long without an Event the last version may be compacted away (API servers do it every
five minutes), or the watch mute after a restore from a backup: begin anew."""

CATCH_UP_SECONDS = 600.0
"""What happened longer ago is history: told by an earlier leader, or of no more use. Shorter loses
what happened in an outage or between two leaders; longer writes much again at every start."""

HISTORY_SECONDS = 30.0
"""How long after its beginning a watch may still bring what was there before. Only so long is the
age looked at, for it is told by the target's clock, which may be wrong by hours."""

SETTLED_SECONDS = 5.0
"""A watch that lived so long was not refused."""

LEAST_BACK_OFF_SECONDS = 1.0
MOST_BACK_OFF_SECONDS = 60.0
REFUSED_BACK_OFF_SECONDS = 120.0
"""Only an admin of the target can change it; so long a granted right may go unnoticed."""


class EventFeed:
    """Hands `on_event` each Event about a pod of the target, repeats and replays included.

    With a `namespace`, of the pods there.
    """

    def __init__(
        self,
        target: ClusterPort,
        on_event: Callable[[JsonObject], None],
        *,
        namespace: str = "",
        clock: Callable[[], float],
        now: Callable[[], datetime],
        jitter: Callable[[], float],
    ) -> None:
        self._target = target
        self._on_event = on_event
        self._namespace = namespace
        self._clock = clock
        self._now = now
        self._jitter = jitter
        self._resource_version = ""
        self._opened_at: float | None = None
        self._history_until = float("-inf")
        self._heard_at = float("-inf")
        self._failures = 0
        self._trouble = ""
        self._log = log.bind(cluster=target.name)

    @property
    def is_open(self) -> bool:
        """Tell whether the target lets us watch."""
        opened_at = self._opened_at
        return opened_at is not None and self._clock() - opened_at >= SETTLED_SECONDS

    async def run(self) -> None:
        """Watch until cancelled; what `on_event` raises ends it, and is not handed out again."""
        while True:
            try:
                await self._follow()
            except Expired as error:
                self._resource_version = ""
                await self._pause(error)
            except ClusterError as error:
                await self._pause(error)

    async def _follow(self) -> None:
        """Watch until the server ends it."""
        if not self._resource_version:
            self._history_until = self._clock() + HISTORY_SECONDS
            self._heard_at = self._clock()
        if self._opened_at is None:
            self._opened_at = self._clock()
        watch = self._target.watch(
            CORE_EVENTS,
            resource_version=self._resource_version,
            namespace=self._namespace,
            field_selector=POD_EVENTS,
            timeout_seconds=WATCH_SECONDS * (1.0 - 0.2 * self._jitter()),
        )
        began_at = self._clock()
        # The port promises an iterator only; ours are generators, which hold a connection.
        async with aclosing(cast("AsyncGenerator[WatchEvent, None]", watch)) as events:
            async for event in events:
                self._take(event)
        if self._clock() - began_at < LEAST_BACK_OFF_SECONDS:
            await asyncio.sleep(LEAST_BACK_OFF_SECONDS)
        self._note_life()
        if self._clock() - self._heard_at >= AFRESH_SECONDS:
            self._resource_version = ""

    def _take(self, event: WatchEvent) -> None:
        self._note_life()
        self._heard_at = self._clock()
        self._resource_version = resource_version_of(event.object) or self._resource_version
        # An Event that is DELETED has merely expired.
        if event.type in ("ADDED", "MODIFIED") and not self._is_history(event.object):
            self._on_event(event.object)

    def _is_history(self, event: JsonObject) -> bool:
        if self._clock() >= self._history_until:
            return False
        return last_seen_at(event) < self._now() - timedelta(seconds=CATCH_UP_SECONDS)

    def _note_life(self) -> None:
        self._failures = 0
        if self._trouble:
            self._trouble = ""
            self._log.info("the target's events are told again")

    async def _pause(self, error: ClusterError) -> None:
        self._opened_at = None
        self._failures += 1
        self._tell(error)
        doubled = LEAST_BACK_OFF_SECONDS * 2.0 ** min(self._failures - 1, 10)
        seconds = min(doubled, MOST_BACK_OFF_SECONDS)
        if isinstance(error, Forbidden | Rejected):
            seconds = REFUSED_BACK_OFF_SECONDS
        if isinstance(error, Throttled):
            seconds = max(seconds, error.retry_after_seconds)
        await asyncio.sleep(seconds * (0.75 + 0.5 * self._jitter()))

    def _tell(self, error: ClusterError) -> None:
        """Log a trouble once: it may last for as long as we run."""
        kind = type(error).__name__
        if kind == self._trouble or isinstance(error, Expired):
            self._log.debug("watch of events interrupted", error=str(error))
            return
        self._trouble = kind
        if isinstance(error, Forbidden):
            self._log.warning(
                "the target's events may not be read: hub pods go without them",
                error=str(error),
                remedy="grant get, list and watch on events to federate's user in the target",
            )
            return
        self._log.info("watch of events interrupted, trying again", error=str(error))
