"""Hold the leader lease of a virtual node that is being left, and see that nobody does afterwards.

The command stands for election as any other replica: where a federate runs, that one leads and the
command stands by; where none does, or it dies, the command leads. Later `retire` marks the lease
(`federate.dev/left`): whoever leads gives it back, whoever stands by gives up, and only the command
takes it. All who are alive have seen the mark by the time it has stood there for `SEEN_SECONDS`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from typing import TypeAlias

import structlog

from federate.cluster.port import ClusterPort
from federate.errors import (
    ClusterError,
    Conflict,
    FederateError,
    LeadershipLost,
    NotFound,
    TargetChanged,
)
from federate.model.instants import format_instant
from federate.model.leases import holder_of
from federate.model.marks import LEFT_ANNOTATION
from federate.model.objects import (
    JsonObject,
    ObjectKey,
    annotations_of,
    resource_version_of,
    uid_of,
)
from federate.model.resources import LEASES
from federate.patch.document import MERGE, PatchBody
from federate.runtime.election import (
    RENEW_PERIOD_SECONDS,
    RENEW_TIMEOUT_SECONDS,
    STANDBY_PERIOD_SECONDS,
    Election,
)

log = structlog.stdlib.get_logger(__name__)

SEEN_SECONDS = max(RENEW_PERIOD_SECONDS, STANDBY_PERIOD_SECONDS) + RENEW_TIMEOUT_SECONDS
"""How long the mark stands before everyone who is alive, and reaches the hub, has seen it."""
AGAIN_SECONDS = 1.0


Body: TypeAlias = Callable[[Election], Callable[[], Awaitable[None]]]
"""Makes of an election what runs while it is won; that never ends by itself."""


def idle(_election: Election) -> Callable[[], Awaitable[None]]:
    """Lead without doing anything."""

    async def stay() -> None:
        await asyncio.Event().wait()

    return stay


class Tenure:
    """One candidate's time with the lease; `body` runs while it leads."""

    def __init__(
        self,
        *,
        hub: ClusterPort,
        key: ObjectKey,
        identity: str,
        confirm_hub: Callable[[], Awaitable[None]],
        now: Callable[[], datetime],
        body: Body = idle,
    ) -> None:
        self._hub = hub
        self._key = key
        self._now = now
        self._clock = asyncio.get_running_loop().time
        self._marked_at: float | None = None
        self._body = body
        self.failure: BaseException | None = None
        """What ended the tenure for good: another cluster answers than the one on record."""
        self.election = Election(
            hub=hub,
            key=key,
            identity=identity,
            confirm_hub=confirm_hub,
            now=now,
            clock=self._clock,
            retires=False,
        )

    @property
    def holder(self) -> str:
        """Who leads, as it was seen last."""
        return self.election.holder

    @asynccontextmanager
    async def standing(self) -> AsyncIterator[None]:
        """Stand for election inside; the lease is given back at the end."""
        task = asyncio.create_task(self._run(), name="tenure")
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _run(self) -> None:
        while True:
            try:
                await self.election.lead(self._body(self.election))
            except TargetChanged as error:
                self.failure = error
                return
            except (ClusterError, LeadershipLost) as error:
                log.debug("not leading; trying again", error=str(error))
            except Exception:  # a supervised edge, as that of a running virtual node (C13)
                log.exception("leading crashed; trying again")
            await asyncio.sleep(AGAIN_SECONDS)

    async def is_retired(self) -> bool:
        """Mark the lease, and tell whether all others are out and we lead; ask until it is so."""
        if self.failure is not None:
            raise self.failure
        try:
            lease = await self._hub.get(LEASES, self._key)
        except NotFound:
            return False  # ours is created in a moment
        if LEFT_ANNOTATION not in annotations_of(lease):
            self._marked_at = None
            await self._hub.patch(LEASES, self._key, self._mark(lease))
        if self._marked_at is None:
            # One that stood there before us is as good as ours only from now on: who began to
            # stand by in between has had its time too.
            self._marked_at = self._clock()
        has_been_seen = self._clock() - self._marked_at >= SEEN_SECONDS
        return has_been_seen and self.election.is_leading

    def _mark(self, lease: JsonObject) -> PatchBody:
        annotations = {LEFT_ANNOTATION: format_instant(self._now())}
        metadata = {"uid": uid_of(lease), "annotations": annotations}
        return PatchBody(media_type=MERGE, body={"metadata": metadata})


async def confirm_nobody_leads(hub: ClusterPort, key: ObjectKey, *, identity: str) -> None:
    """Return where the leader lease, as read after this call, is ours, or marked and free, or gone.

    Others who know the mark do not take it; an older federate does, and mirrors anew.

    Raises:
        FederateError: it lost its mark.
        Conflict: another holds it: a second command, which will be done; or an older federate.
    """
    try:
        lease = await hub.get(LEASES, key)
    except NotFound:
        return
    holder = holder_of(lease)
    _check_mark(key, lease)
    if holder not in ("", identity):
        raise Conflict(
            f"leader lease {key} is held by {holder}. If that is no second federate leave, it is "
            "a federate too old to know that it is left: stop it"
        )


def _check_mark(key: ObjectKey, lease: JsonObject) -> None:
    if LEFT_ANNOTATION not in annotations_of(lease):
        raise FederateError(
            f"leader lease {key} has lost its mark, and {holder_of(lease) or 'anybody'} may lead: "
            "stop federate, or remove the virtual node from its configuration, and repeat the "
            "command"
        )


async def remove_left_lease(hub: ClusterPort, key: ObjectKey, *, identity: str) -> str:
    """Delete a marked leader lease that nobody else holds; says why it is still there.

    Raises:
        FederateError: it lost its mark, and a federate may lead again.
        Conflict: it changed while it was looked at.
    """
    try:
        lease = await hub.get(LEASES, key)
    except NotFound:
        return ""
    holder = holder_of(lease)
    _check_mark(key, lease)
    if holder not in ("", identity):
        return f"held by another command: {holder}"
    await hub.delete(LEASES, key, uid=uid_of(lease), resource_version=resource_version_of(lease))
    return ""
