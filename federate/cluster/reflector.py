"""List, then watch, into a store: a collection of one cluster as it is now.

Between `client` and whoever reads the store. Each event is in the store and handed to `on_change`
before the next is read. After a break the watch resumes from the last version it saw; only an
expired version leads to a new list. `verify` compares the store with the server behind the events.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import structlog

from federate.cluster.port import ClusterPort, WatchEvent
from federate.cluster.shelf import Glance
from federate.cluster.store import Change, Store
from federate.errors import ClusterError, Expired, NotFound, Throttled
from federate.model.objects import (
    JsonDict,
    JsonObject,
    ObjectKey,
    key_of,
    metadata_of,
    resource_version_of,
    uid_of,
)
from federate.model.resources import Resource

log = structlog.get_logger()

LEAST_BACK_OFF_SECONDS = 0.5
MOST_BACK_OFF_SECONDS = 30.0
"""Longer: a returned target is noticed late. Shorter: an overloaded one is not left in peace."""

WATCH_SECONDS = 300.0
"""Most a watch lasts before the server ends it; each is up to a fifth shorter, so that the many
watches of a start do not end together."""

BRIEF_SECONDS = 1.0
"""A watch that ends so soon and brought nothing is taken as a failure, or it would spin."""

MUTE_SECONDS = 60.0
"""A watch that lived so long without even a bookmark (they come each minute) and then failed."""

SETTLE_SECONDS = 1.0
"""How far the events may lag behind a list before `verify` calls an object suspect."""

MOST_SUSPECTS = 200
"""More differences than that are not read one by one: the collection is listed again."""


def every_object(obj: JsonObject) -> bool:
    """Select everything."""
    return True


def ignore_gap() -> None:
    """Nobody asked to be told."""


@dataclass(frozen=True, slots=True)
class _Suspect:
    known: Glance | None
    listed: JsonObject | None


class Reflector:
    """Keeps `store` like the server's collection; `run` it as a task under supervision.

    With a `namespace` only that part of the store is its own: several may feed one store.
    `matches` says of a full object whether the selectors select it: `verify` needs it, for a GET
    takes no selectors. `synced` is set after the first list. `relists` counts full lists: what
    happened before the last one may have gone unseen; `on_gap` is called for each but the first.
    `last_activity_at` is the monotonic time of the last sign of life, `last_error` what ails now.
    """

    def __init__(  # noqa: PLR0913  ports and selectors, each with a default that most keep
        self,
        client: ClusterPort,
        resource: Resource,
        store: Store,
        *,
        on_change: Callable[[Change], None],
        name: str,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        metadata_only: bool = False,
        matches: Callable[[JsonObject], bool] = every_object,
        on_gap: Callable[[], None] = ignore_gap,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.name = name
        self.namespace = namespace
        self.synced = asyncio.Event()
        self.relists = 0
        self.last_activity_at = float("-inf")
        self.last_error: ClusterError | None = None
        self._client = client
        self._resource = resource
        self._store = store
        self._on_change = on_change
        self._label_selector = label_selector
        self._field_selector = field_selector
        self._metadata_only = metadata_only
        self._matches = matches
        self._on_gap = on_gap
        self._clock = clock
        self._sleep = sleep
        self._jitter = jitter
        self._resource_version = ""
        self._must_list = True
        self._watch_bound: asyncio.Timeout | None = None
        self._failures = 0
        self._outbox: deque[Change] = deque()
        self._log = log.bind(reflector=name, cluster=client.name)

    async def run(self) -> None:
        """List and watch until cancelled; what `on_change` raises ends it.

        May be started again: it goes on where it stopped.
        """
        self._deliver(())
        while True:
            try:
                if self._must_list:
                    await self._list()
                await self._follow()
            except Expired as error:
                self._must_list = True
                self._failures += 1
                self._note(error)
                if self._failures > 1:
                    await self._sleep(self._back_off_seconds(error))
            except ClusterError as error:
                self._failures += 1
                self._note(error)
                await self._sleep(self._back_off_seconds(error))

    async def verify(self) -> int:
        """Compare with the server and repair what the events did not bring; return how much.

        Where the watch said nothing meanwhile, it may never say anything: one from a version that
        the server never reached, because its storage was restored from a backup, is not refused
        but mute. It is ended, and the collection listed again.

        Raises:
            ClusterError: the comparison could not be made.
        """
        if not self.synced.is_set():
            return 0
        heard_at = self.last_activity_at
        listing = await self._client.list(
            self._resource,
            namespace=self.namespace,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
            resource_version="0",
            bare=True,
        )
        suspects = self._suspects(listing.items)
        if suspects:
            await self._sleep(SETTLE_SECONDS)
            suspects = {k: s for k, s in suspects.items() if self._is_still(k, s)}
        if len(suspects) > MOST_SUSPECTS:
            self._log.warning("store differs widely, listing again", differences=len(suspects))
            self._list_again()
            return 0
        repaired = 0
        for key in suspects:
            repaired += await self._repair(key)
        if repaired:
            self._log.warning("store repaired: events were missed", objects=repaired)
            if self.last_activity_at == heard_at:
                self._list_again()
        return repaired

    def _list_again(self) -> None:
        """List as soon as may be: a watch under way is ended."""
        self._must_list = True
        bound, self._watch_bound = self._watch_bound, None
        if bound is not None:
            bound.reschedule(asyncio.get_running_loop().time())

    # --- list and watch ------------------------------------------------------------------------

    async def _list(self) -> None:
        listing = await self._client.list(
            self._resource,
            namespace=self.namespace,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
            metadata_only=self._metadata_only,
            shrink=self._store.listed,
        )
        # In no other list: each is let go when it is told, with what its hearers unpacked of it.
        self._outbox.extend(self._store.replace(listing.items, namespace=self.namespace))
        changes = len(self._outbox)
        self.relists += 1
        if self.relists > 1:
            self._on_gap()
        self._resource_version = listing.resource_version
        self._must_list = False
        self._note_life()
        self._deliver(())
        self.synced.set()
        self._log.debug("listed", objects=len(self._store), changes=changes)

    async def _follow(self) -> None:
        """Watch until the server ends it, or a new list is needed."""
        started, alive = self._clock(), False
        try:
            async with asyncio.timeout(None) as bound, _closing(self._watch()) as events:
                self._watch_bound = bound
                async for event in events:
                    alive = True
                    self._take(event)
        except ClusterError:
            # The net under `verify`: a watch may be mute (see there) while nothing differs.
            self._must_list |= not alive and self._clock() - started >= MUTE_SECONDS
            raise
        except TimeoutError:
            if self._must_list:
                return
            raise
        finally:
            self._watch_bound = None
        if alive or self._clock() - started >= BRIEF_SECONDS:
            self._note_life()
            self._failures = 0
            return
        self._failures += 1
        if self._failures > 1:
            await self._sleep(self._back_off_seconds(None))

    def _watch(self) -> AsyncIterator[WatchEvent]:
        return self._client.watch(
            self._resource,
            resource_version=self._resource_version,
            namespace=self.namespace,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
            timeout_seconds=WATCH_SECONDS * (1.0 - 0.2 * self._jitter()),
            metadata_only=self._metadata_only,
        )

    def _take(self, event: WatchEvent) -> None:
        self._note_life()
        self._failures = 0
        change = self._store.apply(event)
        self._resource_version = resource_version_of(event.object) or self._resource_version
        self._deliver(() if change is None else (change,))

    def _deliver(self, changes: Iterable[Change]) -> None:
        # What `on_change` raises passes upwards; the changes after that one wait for a new run.
        self._outbox.extend(changes)
        while self._outbox:
            self._on_change(self._outbox.popleft())

    def _note_life(self) -> None:
        self.last_activity_at = self._clock()
        self.last_error = None

    def _note(self, error: ClusterError) -> None:
        self.last_error = error
        self._log.info("watch interrupted", error=str(error), failures=self._failures)

    def _back_off_seconds(self, error: ClusterError | None) -> float:
        doubled = LEAST_BACK_OFF_SECONDS * 2.0 ** min(self._failures - 1, 10)
        jittered = doubled * (0.75 + 0.5 * self._jitter())
        seconds = min(max(jittered, LEAST_BACK_OFF_SECONDS), MOST_BACK_OFF_SECONDS)
        if isinstance(error, Throttled):
            return max(seconds, error.retry_after_seconds)
        return seconds

    # --- the comparison behind the events ------------------------------------------------------

    def _suspects(self, items: list[JsonDict]) -> dict[ObjectKey, _Suspect]:
        listed: dict[ObjectKey, JsonDict] = {key_of(item): item for item in items}
        keys = dict.fromkeys(listed) | dict.fromkeys(self._store.keys_in(self.namespace))
        pairs = {key: _Suspect(self._store.glance(key), listed.get(key)) for key in keys}
        return {key: pair for key, pair in pairs.items() if not _same(pair.known, pair.listed)}

    def _is_still(self, key: ObjectKey, suspect: _Suspect) -> bool:
        known = self._store.glance(key)
        return known is suspect.known and not _same(known, suspect.listed)

    async def _repair(self, key: ObjectKey) -> int:
        known = self._store.glance(key)
        try:
            found: JsonDict | None = await self._client.get(self._resource, key)
        except NotFound:
            found = None
        if found is not None and not self._matches(found):
            found = None
        if self._store.glance(key) is not known:
            return 0  # the watch moved on during the read, and may be newer than it
        correction = self._correction(self._store.get(key), found)
        change = self._store.apply(correction) if known or found else None
        if change is None:
            # Nothing was wrong, or a write of ours whose event never came shields the key: then
            # only a list is the truth.
            if not _same(known, found):
                self._list_again()
            return 0
        self._deliver((change,))
        return 1

    def _correction(self, known: JsonObject | None, found: JsonDict | None) -> WatchEvent:
        if found is None:
            return WatchEvent(type="DELETED", object=dict(known or {}))
        if self._metadata_only:
            found = {"metadata": dict(metadata_of(found))}
        return WatchEvent(type="ADDED" if known is None else "MODIFIED", object=found)


def _same(known: Glance | None, other: JsonObject | None) -> bool:
    if known is None or other is None:
        return known is None and other is None
    return known.version == resource_version_of(other) and known.uid == uid_of(other)


@asynccontextmanager
async def _closing(events: AsyncIterator[WatchEvent]) -> AsyncIterator[AsyncIterator[WatchEvent]]:
    # The port promises an iterator only; a generator holds a connection until it is closed.
    try:
        yield events
    finally:
        close = getattr(events, "aclose", None)
        if close is not None:
            await close()
