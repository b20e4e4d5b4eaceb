"""Connections to one API server that grow old and are replaced.

Between `connect`, which says how to reach a server and as whom, and `client`, which asks. A pool is
replaced when it is too old or when the TLS identity changes; it is closed once the last request or
watch on it has ended, so that nothing in flight is cut.
"""

from __future__ import annotations

import random
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

import aiohttp

from federate.cluster.conceal import forms_of
from federate.cluster.proxies import Proxy
from federate.errors import ConfigError
from federate.model.expiry import Expiry

CONNECTIONS = 100
"""Per API server and purpose, watches aside. Fewer: requests queue. More: the server's memory
suffers."""

IDLE_SECONDS = 45.0
"""Below the 60 s after which common load balancers and the 90 s after which API servers hang up."""

MAX_AGE_SECONDS = 600.0
"""How long a pool is used before new requests get fresh connections, so that load spreads over
replicas behind a load balancer and a changed DNS name is seen. Shorter: more TLS handshakes."""


class Purpose(Enum):
    """What connections are for: none of these may take those of another."""

    REQUESTS = "requests"
    BESIDE = "beside"
    """About what comes along with pods: where its storage or admission hangs, pods, statuses and
    heartbeats go on."""
    WATCHES = "watches"
    """Each keeps its connection: whoever opens watches bounds them."""


Headers = tuple[tuple[str, str], ...]
"""Header lines; a name may stand in several."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Access:
    """How to reach an API server and as whom. Never printed with its headers."""

    server: str
    tls: ssl.SSLContext | None = None
    server_hostname: str | None = None
    proxy: Proxy | None = field(default=None, repr=False)
    headers: Headers = field(default=(), repr=False)
    expiry: Expiry | None = None
    """When the credentials end, where that is known."""
    concealed: tuple[str, ...] = field(default=(), repr=False)
    """What no message may hold, in all its forms."""

    def through(self) -> dict[str, Any]:
        """Return what a request has to say about an HTTP proxy; fresh, since aiohttp adds to it."""
        if self.proxy is None or self.proxy.is_socks:
            return {}
        return {"proxy": self.proxy.url, "proxy_headers": self.proxy.headers}

    @property
    def place(self) -> tuple[object, ...]:
        """Return where it leads, whoever we are there."""
        return (self.server, self.server_hostname, self.proxy and self.proxy.url)

    @property
    def content(self) -> tuple[object, ...]:
        """Return all there is, to see whether anything changed."""
        return (self.place, self.tls, self.proxy, self.headers, self.expiry, self.concealed)


def to_conceal(headers: Headers, proxy: Proxy | None, *more: str) -> tuple[str, ...]:
    """Return what no message may hold, of a request's headers, its proxy, and `more`."""
    secrets = [*more]
    for name, value in headers:
        if name.lower() in ("authorization", "proxy-authorization"):
            secrets += [value.partition(" ")[2] or value]
    if proxy is not None:
        secrets += [proxy.password, proxy.authorization.partition(" ")[2]]
    return forms_of(secrets)


class Credentials(Protocol):
    """Keeps an `Access` fresh. No method raises: a stale access meets a 401."""

    def known(self) -> Access:
        """Return what is known now; a new reading begins where it is due."""

    async def current(self) -> Access:
        """Return what to use now, refreshed if that is due."""

    async def renew(self, refused: Access) -> Access:
        """Return a newer access after a 401, or `refused` itself where there is none."""

    async def aclose(self) -> None:
        """End what goes on behind the requests."""


@dataclass(slots=True, kw_only=True, eq=False)
class _Pool:
    session: aiohttp.ClientSession
    identity: tuple[object, ...]
    purpose: Purpose
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
    async def lend(
        self, access: Access, purpose: Purpose = Purpose.REQUESTS
    ) -> AsyncIterator[aiohttp.ClientSession]:
        """Lend a session for one request or watch."""
        pool = await self._pool_for(access, purpose)
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

    async def _pool_for(self, access: Access, purpose: Purpose) -> _Pool:
        now = self._clock()
        for pool in list(self._pools):
            if pool.retired or pool.purpose is not purpose:
                continue
            if pool.identity == _identity(access) and now < pool.retire_at:
                return pool
            pool.retired = True
            if not pool.users:
                await self._close(pool)
        return self._open(access, now, purpose)

    def _open(self, access: Access, now: float, purpose: Purpose) -> _Pool:
        session = aiohttp.ClientSession(
            connector=self._connector(access, purpose),
            cookie_jar=aiohttp.DummyCookieJar(),
            middlewares=(_only_reads_are_repeated,),
        )
        age = self._max_age_seconds * (1.0 + 0.2 * self._jitter())
        pool = _Pool(
            session=session,
            identity=_identity(access),
            purpose=purpose,
            retire_at=now + age,
        )
        self._pools.append(pool)
        return pool

    def _connector(self, access: Access, purpose: Purpose) -> aiohttp.BaseConnector:
        options: dict[str, Any] = {
            "limit": 0 if purpose is Purpose.WATCHES else self._connections,
            "keepalive_timeout": IDLE_SECONDS,
            "ssl": access.tls if access.tls is not None else True,
        }
        if access.proxy is None or not access.proxy.is_socks:
            return aiohttp.TCPConnector(**options)
        from federate.cluster.socks import socks_connector  # few need that library

        return socks_connector(access.proxy, **options)

    async def _close(self, pool: _Pool) -> None:
        if pool in self._pools:
            self._pools.remove(pool)
        await pool.session.close()


def _identity(access: Access) -> tuple[object, ...]:
    """Return what connections are made with; requests on them may differ in their headers."""
    is_socks = access.proxy is not None and access.proxy.is_socks
    return (access.tls, access.proxy if is_socks else None)


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


def authorization(value: str, *, where: str) -> tuple[tuple[str, str], ...]:
    """Return the header Authorization, none for an empty value.

    Raises:
        ConfigError: no HTTP header may hold that.
    """
    if not value:
        return ()
    if not value.isascii() or not value.isprintable():
        raise ConfigError(f"{where}: the token holds characters that no HTTP header may hold")
    return (("Authorization", value),)
