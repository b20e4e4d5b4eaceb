"""Lead while we hold the lease, and not a moment longer.

One leader Lease per virtual node: the holder acts, the others stand by. Leases are no fencing
tokens, so every write has a precondition of its own; but `fence` stops a leader that could not
renew before another may start (C70). Time is judged by the local monotonic clock alone.

A lease with the mark `federate.dev/left` retires its virtual node (decision 0014): whoever leads
sees it at the next renewal, whoever stands by at the next look, and neither acts from then on.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import datetime

import structlog

from federate.cluster.port import ClusterPort
from federate.errors import (
    AlreadyExists,
    ClusterError,
    Conflict,
    LeadershipLost,
    NotFound,
    VirtualNodeLeft,
)
from federate.model.leases import (
    Acquire,
    Lost,
    Observation,
    Renew,
    Wait,
    decide,
    holder_of,
    observe,
    render_leader_lease,
    render_released_lease,
)
from federate.model.marks import LEAVING_ANNOTATION, LEFT_ANNOTATION
from federate.model.objects import JsonObject, ObjectKey, annotations_of
from federate.model.resources import LEASES
from federate.runtime.identity import is_dead_neighbour
from federate.runtime.together import run_together

log = structlog.stdlib.get_logger(__name__)

DURATION_SECONDS = 15
"""How long the others wait for a silent leader; client-go's default."""
RENEW_DEADLINE_SECONDS = 10.0
"""How long a leader acts without a renewal; the rest of the duration covers requests in flight."""
RENEW_PERIOD_SECONDS = 4.0
RETRY_PERIOD_SECONDS = 1.0
RENEW_TIMEOUT_SECONDS = 3.0
"""Two tries fit between two renewals' distance and the deadline: of several API servers behind one
address a hung one may get the first."""
CONFLICT_PAUSE_SECONDS = 0.2
STANDBY_PERIOD_SECONDS = 2.0


class Election:
    """One leader lease, one candidate."""

    def __init__(
        self,
        *,
        hub: ClusterPort,
        key: ObjectKey,
        identity: str,
        confirm_hub: Callable[[], Awaitable[None]],
        now: Callable[[], datetime],
        clock: Callable[[], float] = time.monotonic,
        retires: bool = True,
    ) -> None:
        """`retires`: obey the mark that the virtual node is left; not so who set it."""
        self._retires = retires
        self._hub = hub
        self._key = key
        self._identity = identity
        self._confirm_hub = confirm_hub
        self._now = now
        self._clock = clock
        self._observed: Observation | None = None
        self._last_held: Observation | None = None
        """As another held it: a lease that is deleted leaves a leader that does not know of it."""
        self._leading = False
        self._renewed_at = float("-inf")
        self.holder = ""

    @property
    def is_leading(self) -> bool:
        """Tell whether we may act right now."""
        return self._leading and self._clock() - self._renewed_at < RENEW_DEADLINE_SECONDS

    def fence(self) -> None:
        """Raise LeadershipLost where we may not act any more; called before every write."""
        if not self.is_leading:
            raise LeadershipLost(f"leader lease {self._key} is not ours any more")

    async def lead(self, body: Callable[[], Awaitable[None]]) -> None:
        """Wait for the lease, run `body` while holding it, and give it back at the end.

        `body` never ends by itself.

        Raises:
            VirtualNodeLeft: the lease says so; whoever held it has given it back.
            LeadershipLost: the lease could not be renewed in time; `body` was cancelled.
        """
        await self._stand_by()
        log.info("leading", lease=str(self._key))
        try:
            await run_together(self._keep, body)
        finally:
            await asyncio.shield(self._give_back())

    async def look_for_mark(self) -> None:
        """Look at the lease while neither leading nor standing by; what does not answer is no word.

        Raises:
            VirtualNodeLeft: the lease says so.
        """
        try:
            async with asyncio.timeout(RENEW_TIMEOUT_SECONDS):
                lease = await self._hub.get(LEASES, self._key)
        except (ClusterError, TimeoutError):
            return
        self._obey(lease)

    async def _stand_by(self) -> None:
        told = ""
        while True:
            wait_seconds = await self._try()
            if self._leading:
                return
            if self.holder and self.holder != told:
                told = self.holder
                log.info("standing by", lease=str(self._key), holder=self.holder)
            await asyncio.sleep(min(wait_seconds, STANDBY_PERIOD_SECONDS))

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(RENEW_PERIOD_SECONDS)
            while (pause := await self._renew()) is not None:
                self.fence()
                await asyncio.sleep(pause)

    async def _renew(self) -> float | None:
        """Try once; returns how long to wait before the next try, None where it is renewed."""
        before = self._renewed_at
        pause = await self._try()
        return None if self._renewed_at != before else min(pause, RETRY_PERIOD_SECONDS)

    async def _try(self) -> float:
        """Look at the lease and do what the decision says; returns how long to wait."""
        try:
            async with asyncio.timeout(RENEW_TIMEOUT_SECONDS):
                return await self._step()
        except TimeoutError:
            log.warning("the hub did not answer in time about the leader lease")
            return CONFLICT_PAUSE_SECONDS  # long enough was waited already
        except (Conflict, AlreadyExists, NotFound):
            # Somebody else wrote or removed it: look anew before the next word.
            self._observed = None
            return CONFLICT_PAUSE_SECONDS
        except ClusterError as error:
            log.warning("leader lease not written; trying again", error=str(error))
        return RETRY_PERIOD_SECONDS

    async def _step(self) -> float:
        """Read, decide, write. A leader writes over the version it wrote, without reading."""
        if not self._leading or self._observed is None:
            await self._look()
        self._obey_mark()
        decision = decide(
            self._observed.lease if self._observed is not None else None,
            identity=self._identity,
            observed=self._observed,
            now_monotonic=self._clock(),
            duration_seconds=DURATION_SECONDS,
            renew_deadline_seconds=RENEW_DEADLINE_SECONDS,
            renewed_at_monotonic=self._renewed_at if self._leading else None,
            last_held=self._last_held,
        )
        match decision:
            case Acquire() | Renew():
                await self._write()
                return 0.0
            case Wait(seconds=seconds, holder=holder):
                self.holder = holder
                if is_dead_neighbour(holder, self._identity):
                    log.info("the holder was a process here and is gone", holder=holder)
                    await self._write()
                    return 0.0
                return seconds
            case Lost(reason=reason):
                self._leading = False
                raise LeadershipLost(reason)

    def _obey_mark(self) -> None:
        self._obey(self._observed.lease if self._observed is not None else {})

    def _obey(self, lease: JsonObject) -> None:
        if self._retires and LEFT_ANNOTATION in annotations_of(lease):
            namespace, name = self._key.namespace, self._key.name
            raise VirtualNodeLeft(
                f"leader lease {self._key} is marked: its virtual node is left (federate leave). "
                "Remove it from the configuration; or, to use it again: kubectl annotate lease -n "
                f"{namespace} {name} {LEFT_ANNOTATION}-; where its Node is still there, also: "
                f"kubectl annotate node NODE {LEAVING_ANNOTATION}-, and kubectl uncordon NODE; and "
                "start federate again"
            )

    async def _look(self) -> None:
        try:
            lease = await self._hub.get(LEASES, self._key)
        except NotFound:
            await self._confirm_hub()
            self._observed = None
            return
        self._observed = observe(lease, self._observed, now_monotonic=self._clock())
        is_held = holder_of(lease) not in ("", self._identity)
        self._last_held = self._observed if is_held else None

    async def _write(self) -> None:
        sent_at = self._clock()
        present = self._observed.lease if self._observed is not None else None
        body = render_leader_lease(
            namespace=self._key.namespace,
            name=self._key.name,
            identity=self._identity,
            duration_seconds=DURATION_SECONDS,
            now=self._now(),
            previous=present,
        )
        if present is None:
            lease = await self._hub.create(LEASES, body, namespace=self._key.namespace)
        else:
            lease = await self._hub.replace(LEASES, self._key, body)
        self._observed = Observation(lease=lease, seen_at_monotonic=sent_at)
        self._renewed_at = sent_at
        self._leading = True
        self.holder = self._identity

    async def _give_back(self) -> None:
        """Empty the lease, so that a standby takes over at once; a failure only costs its wait."""
        was_leading, self._leading = self.is_leading, False
        present: JsonObject | None = self._observed.lease if self._observed else None
        if not was_leading or present is None:
            return
        if holder_of(present) != self._identity:
            return
        try:
            async with asyncio.timeout(1.0):
                await self._hub.replace(
                    LEASES, self._key, render_released_lease(present, now=self._now())
                )
        except (ClusterError, TimeoutError) as error:
            log.info("leader lease not given back; it runs out by itself", error=str(error))
