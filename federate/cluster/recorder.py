"""Kubernetes Events about objects of one cluster, aggregated and never in the way.

Reconcilers call `event`, which only takes note; `run` writes, a bounded number a second. Repeats
of the same words about the same object become one Event whose series counts them. What cannot be
written is dropped and counted: Events are help for people, nothing depends on them.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, TypeAlias

import structlog

from federate.cluster.port import ClusterPort
from federate.errors import AlreadyExists, ClusterError, ServerFault, Throttled, Unreachable
from federate.model.events import cut_note, event_name
from federate.model.instants import format_micro_instant
from federate.model.objects import JsonDict, JsonObject, ObjectKey, key_of, uid_of
from federate.model.resources import EVENTS, Resource
from federate.patch.document import MERGE, PatchBody

log = structlog.get_logger()

EventType: TypeAlias = Literal["Normal", "Warning"]

CONTROLLER = "federate.dev/federate"

SAME_SECONDS = 360.0
"""Repeats within this time count as one Event, as in client-go."""

SERIES_SECONDS = 60.0
"""How often a series is written at most: a count that moves each second helps nobody."""

WRITES_A_SECOND = 25
"""More would compete with the pods' own requests; less delays a burst of 1,000 by a minute."""

MOST_QUEUED = 1000
"""Events waiting to be written; beyond it new ones are dropped."""

MOST_KNOWN = 4096
"""Events remembered for aggregation; beyond it the oldest are forgotten."""

MOST_ATTEMPTS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectRef:
    """What an Event is about."""

    resource: Resource
    key: ObjectKey
    uid: str


def ref_to(resource: Resource, obj: JsonObject) -> ObjectRef:
    """Return the reference to an object."""
    return ObjectRef(resource=resource, key=key_of(obj), uid=uid_of(obj))


@dataclass(slots=True, kw_only=True, eq=False)
class _Noted:
    """One Event and its repeats. `written` is the count the server knows, 0 before the create."""

    key: ObjectKey
    body: JsonDict
    last_at: float
    last_seen: str
    count: int = 1
    written: int = 0
    next_write_at: float = 0.0
    attempts: int = 0

    def series(self) -> JsonDict:
        return {"count": self.count, "lastObservedTime": self.last_seen}


class Recorder:
    """Writes Events of one cluster; `instance` names this replica.

    `dropped` counts what was never written: the queue was full, or the server did not take it.
    """

    def __init__(
        self,
        client: ClusterPort,
        *,
        instance: str,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.dropped = 0
        self._client = client
        self._instance = instance[:128]
        self._clock = clock
        self._wall_clock = wall_clock
        self._sleep = sleep
        self._known: dict[tuple[str, str, str], _Noted] = {}
        self._queue: dict[_Noted, None] = {}

    def event(
        self,
        ref: ObjectRef,
        *,
        reason: str,
        note: str,
        action: str,
        type: EventType = "Normal",
    ) -> None:
        """Take note of an Event; returns at once and never raises."""
        now = self._clock()
        same = (ref.uid, reason, note)
        known = self._known.get(same)
        if known is not None and now - known.last_at < SAME_SECONDS:
            known.count += 1
            known.last_at, known.last_seen = now, self._stamp()
            return
        if len(self._queue) >= MOST_QUEUED:
            self.dropped += 1
            return
        noted = self._noted(ref, reason=reason, note=note, action=action, type=type)
        self._known.pop(same, None)
        self._known[same] = noted
        self._queue[noted] = None
        if len(self._known) > MOST_KNOWN:
            del self._known[next(iter(self._known))]

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self.flush()
            await self._sleep(1.0)

    async def flush(self) -> None:
        """Write what is due, a second's share at most."""
        now = self._clock()
        for same, noted in list(self._known.items()):
            if noted.written and noted.written < noted.count and now >= noted.next_write_at:
                self._queue[noted] = None
            elif now - noted.last_at >= SAME_SECONDS and noted not in self._queue:
                del self._known[same]
        for noted in list(self._queue)[:WRITES_A_SECOND]:
            if not await self._write(noted):
                return

    async def _write(self, noted: _Noted) -> bool:
        """Write one; False where the server should be left in peace for a moment."""
        count = noted.count
        try:
            await (self._patch(noted) if noted.written else self._create(noted))
        except (Unreachable, Throttled, ServerFault) as error:
            noted.attempts += 1
            if noted.attempts >= MOST_ATTEMPTS:
                self._drop(noted, error)
            return False
        except ClusterError as error:
            self._drop(noted, error)
            return True
        noted.written, noted.attempts = count, 0
        noted.next_write_at = self._clock() + SERIES_SECONDS
        self._queue.pop(noted, None)
        return True

    async def _create(self, noted: _Noted) -> None:
        body = noted.body | ({"series": noted.series()} if noted.count > 1 else {})
        try:
            await self._client.create(EVENTS, body, namespace=noted.key.namespace)
        except AlreadyExists:
            return  # the reply to an earlier attempt was lost

    async def _patch(self, noted: _Noted) -> None:
        patch = PatchBody(media_type=MERGE, body={"series": noted.series()})
        await self._client.patch(EVENTS, noted.key, patch)

    def _drop(self, noted: _Noted, error: ClusterError) -> None:
        self.dropped += 1
        self._queue.pop(noted, None)
        self._known = {same: known for same, known in self._known.items() if known is not noted}
        log.debug("event dropped", key=str(noted.key), error=str(error))

    def _noted(
        self, ref: ObjectRef, *, reason: str, note: str, action: str, type: EventType
    ) -> _Noted:
        stamp = self._stamp()
        namespace = ref.key.namespace or "default"
        digest = hashlib.sha256(f"{ref.uid} {reason} {stamp} {note}".encode()).hexdigest()[:16]
        name = event_name(ref.key.name, digest)
        regarding = {
            "apiVersion": ref.resource.group_version,
            "kind": ref.resource.kind,
            "name": ref.key.name,
            "uid": ref.uid,
        }
        if ref.key.namespace:
            regarding["namespace"] = ref.key.namespace
        body: JsonDict = {
            "apiVersion": EVENTS.group_version,
            "kind": EVENTS.kind,
            "metadata": {"name": name, "namespace": namespace},
            "eventTime": stamp,
            "reportingController": CONTROLLER,
            "reportingInstance": self._instance,
            "action": action,
            "reason": reason,
            "regarding": regarding,
            "note": cut_note(note),
            "type": type,
        }
        key = ObjectKey(namespace, name)
        return _Noted(key=key, body=body, last_at=self._clock(), last_seen=stamp)

    def _stamp(self) -> str:
        return format_micro_instant(datetime.fromtimestamp(self._wall_clock(), UTC))
