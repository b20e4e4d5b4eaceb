"""Hold the leader lease of a virtual node that is being left, until its Node is gone.

The command stands for election as any other replica: where a federate runs, that one leads and the
command stands by; where none does, or it dies, the command leads. Later `retire` marks the lease
(`federate.dev/left`): whoever leads gives it back, whoever stands by gives up, and only the command
takes it. All who are alive have seen the mark by the time it has stood there for `SEEN_SECONDS`.
Then the command's own part in leading ends (`is_resting`), and it holds the lease all the same: a
federate too old to know the mark stands by as long as another holds it.
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
    FederateError,
    LeadershipLost,
    NotFound,
    TargetChanged,
)
from federate.leave.survey import find_node
from federate.model.instants import format_instant
from federate.model.leases import holder_of
from federate.model.marks import LEFT_ANNOTATION
from federate.model.objects import (
    JsonObject,
    ObjectKey,
    annotations_of,
    resource_version_of,
    spec_of,
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
        self._identity = identity
        self._body = body
        self._rest = asyncio.Event()
        self._is_at_rest = False
        self._term: tuple[str, int] | None = None
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
                await self.election.lead(self._work)
            except TargetChanged as error:
                self.failure = error
                return
            except (ClusterError, LeadershipLost) as error:
                log.debug("not leading; trying again", error=str(error))
            except Exception:  # a supervised edge, as that of a running virtual node (C13)
                log.exception("leading crashed; trying again")
            await asyncio.sleep(AGAIN_SECONDS)

    async def _work(self) -> None:
        """Run the body until it is to rest; then nothing, while the lease is held."""
        if not self._rest.is_set():
            await self._run_body()
        self._is_at_rest = True
        await asyncio.Event().wait()

    async def _run_body(self) -> None:
        body = asyncio.ensure_future(self._body(self.election)())
        rest = asyncio.ensure_future(self._rest.wait())
        try:
            await asyncio.wait({body, rest}, return_when=asyncio.FIRST_COMPLETED)
            if body.done():
                body.result()
        finally:
            body.cancel()
            rest.cancel()
            await asyncio.gather(body, rest, return_exceptions=True)

    async def is_retired(self) -> bool:
        """Mark the lease, and tell whether all others are out and we lead; ask until it is so."""
        self._raise_failure()
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

    @property
    def seen_in_seconds(self) -> float:
        """How long until everybody who is alive has seen the mark; 0 where it is not there yet."""
        if self._marked_at is None:
            return 0.0
        return max(0.0, self._marked_at + SEEN_SECONDS - self._clock())

    async def is_resting(self) -> bool:
        """End the body, and tell whether the lease is held without it; ask until it is so.

        From then on `confirm_held` finds out whether another led in between.
        """
        self._raise_failure()
        self._rest.set()
        if not (self._is_at_rest and self.election.is_leading):
            return False
        lease = await self._hub.get(LEASES, self._key)
        _check_mark(self._key, lease)
        if holder_of(lease) != self._identity:
            return False
        self._term = _term_of(lease)
        return True

    async def confirm_held(self) -> None:
        """Return where the lease, as read after this call, is marked and ours, without a gap.

        A command that was frozen may find that an older federate led meanwhile, and mirrored anew.

        Raises:
            FederateError: it lost its mark, or another took it: a second command, or an older
                federate.
            LeadershipLost: it could not be renewed for a while.
        """
        self._raise_failure()
        lease = await self._hub.get(LEASES, self._key)
        _check_mark(self._key, lease)
        if (holder := holder_of(lease)) != self._identity:
            raise FederateError(
                f"leader lease {self._key} was taken by {holder or 'another'}. If that is no "
                "second federate leave, it is a federate too old to know that it is left: stop it, "
                "and repeat the command"
            )
        if self._term not in (None, _term_of(lease)):
            raise FederateError(
                f"another led by leader lease {self._key} meanwhile, and may have mirrored: repeat "
                "the command"
            )
        self.election.fence()

    def _raise_failure(self) -> None:
        if self.failure is not None:
            raise self.failure

    def _mark(self, lease: JsonObject) -> PatchBody:
        annotations = {LEFT_ANNOTATION: format_instant(self._now())}
        metadata = {"uid": uid_of(lease), "annotations": annotations}
        return PatchBody(media_type=MERGE, body={"metadata": metadata})


def _term_of(lease: JsonObject) -> tuple[str, int]:
    """What changes whenever another holds the lease, were it only for a moment."""
    return uid_of(lease), spec_of(lease).get("leaseTransitions") or 0


def _check_mark(key: ObjectKey, lease: JsonObject) -> None:
    if LEFT_ANNOTATION not in annotations_of(lease):
        raise FederateError(
            f"leader lease {key} has lost its mark, and {holder_of(lease) or 'anybody'} may lead: "
            "stop federate, or remove the virtual node from its configuration, and repeat the "
            "command"
        )


async def remove_left_lease(
    hub: ClusterPort, key: ObjectKey, *, identity: str, node_name: str
) -> str:
    """Delete a marked leader lease that nobody else holds; says why it is still there.

    Raises:
        FederateError: it lost its mark, and a federate may lead again; or one led meanwhile.
        Conflict: it changed while it was looked at.
    """
    try:
        lease = await hub.get(LEASES, key)
    except NotFound:
        return ""
    holder = holder_of(lease)
    _check_mark(key, lease)
    if holder not in ("", identity):
        return (
            f"held by {holder}: another federate leave, or a federate too old to know that it is "
            "left; stop that one"
        )
    # Looked at after the lease, whose version is the precondition: who takes it now is noticed.
    if await find_node(hub, node_name) is not None:
        raise FederateError(
            f"a federate too old to know that it is left registered {node_name} anew: stop it, and "
            "repeat the command"
        )
    await hub.delete(LEASES, key, uid=uid_of(lease), resource_version=resource_version_of(lease))
    return ""
