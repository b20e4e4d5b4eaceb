"""Connections to one API server that grow old and are replaced.

Between `connect`, which says how to reach a server and as whom, and `client`, which asks. A pool is
replaced when it is too old or when the TLS identity changes; it is closed once the last request or
watch on it has ended, so that nothing in flight is cut.
"""

from __future__ import annotations

import random
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Protocol

import aiohttp

CONNECTIONS = 100
"""Per API server, watches included. Fewer: requests queue. More: the server's memory suffers."""

IDLE_SECONDS = 45.0
"""Below the 60 s after which common load balancers and the 90 s after which API servers hang up."""

MAX_AGE_SECONDS = 600.0
"""How long a pool is used before new requests get fresh connections, so that load spreads over
replicas behind a load balancer and a changed DNS name is seen. Shorter: more TLS handshakes."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Access:
    """How to reach an API server and as whom. Never printed with its headers."""

    server: str
    tls: ssl.SSLContext | None = None
    server_hostname: str | None = None
    proxy: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


class Credentials(Protocol):
    """Keeps an `Access` fresh. Neither method raises: a stale access meets a 401."""

    async def current(self) -> Access:
        """Return what to use now, refreshed if that is due."""

    async def renew(self, refused: Access) -> Access:
        """Return a newer access after a 401, or `refused` itself where there is none."""


@dataclass(slots=True, kw_only=True, eq=False)
class _Pool:
    session: aiohttp.ClientSession
    tls: ssl.SSLContext | None
    retire_at: float
    users: int = 0
    retired: bool = False


class SessionPools:
    """Lends sessions; `lend` counts who uses which pool. `aclose` cuts what is in flight."""

    def __init__(
        self,
        *,
        connections: int = CONNECTIONS,
        max_age_seconds: float = MAX_AGE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._connections = connections
        self._max_age_seconds = max_age_seconds
        self._clock = clock
        self._jitter = jitter
        self._pools: list[_Pool] = []
        self.closed = False

    @asynccontextmanager
    async def lend(self, access: Access) -> AsyncIterator[aiohttp.ClientSession]:
        """Lend a session for one request or watch."""
        pool = await self._pool_for(access)
        pool.users += 1
        try:
            yield pool.session
        finally:
            pool.users -= 1
            if pool.retired and not pool.users:
                await self._close(pool)

    async def aclose(self) -> None:
        """Close all pools."""
        self.closed = True
        for pool in list(self._pools):
            await self._close(pool)

    async def _pool_for(self, access: Access) -> _Pool:
        now = self._clock()
        for pool in list(self._pools):
            if pool.retired:
                continue
            if pool.tls is access.tls and now < pool.retire_at:
                return pool
            pool.retired = True
            if not pool.users:
                await self._close(pool)
        return self._open(access, now)

    def _open(self, access: Access, now: float) -> _Pool:
        connector = aiohttp.TCPConnector(
            limit=self._connections,
            keepalive_timeout=IDLE_SECONDS,
            ssl=access.tls if access.tls is not None else True,
        )
        session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            middlewares=(_only_reads_are_repeated,),
        )
        age = self._max_age_seconds * (1.0 + 0.2 * self._jitter())
        pool = _Pool(session=session, tls=access.tls, retire_at=now + age)
        self._pools.append(pool)
        return pool

    async def _close(self, pool: _Pool) -> None:
        if pool in self._pools:
            self._pools.remove(pool)
        await pool.session.close()


class LostReply(aiohttp.ClientConnectionError):
    """The connection broke under a write: whether the server acted is unknown."""


async def _only_reads_are_repeated(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    # aiohttp repeats GET, PUT and DELETE once when a kept connection turns out to be closed. A
    # repeated write would turn "the reply was lost" into a conflict with ourselves.
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        if request.method == "GET":
            raise
        raise LostReply(str(error)) from error
