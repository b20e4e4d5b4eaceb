"""Walk the way to an API server leg by leg: name, address, TLS, an answer.

Below HTTP and without credentials, so that each leg fails by itself and says why. Each has a bound
in time. What is found is judged in `connection`.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

from federate.check.connection import Leg, WayFacts
from federate.cluster.expiry import expiry_of_certificate
from federate.cluster.sessions import Access
from federate.model.expiry import Expiry

LEG_SECONDS = 5.0
"""As long as federate itself waits for a connection."""

HANG_UP_SECONDS = 1.0
"""A server that does not say good-bye is left."""

MOST_HEADER_BYTES = 65_536

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Broken(Exception):
    def __init__(self, leg: Leg, why: str) -> None:
        super().__init__(why)
        self.leg = leg


async def walk(
    access: Access,
    *,
    where: str,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    leg_seconds: float = LEG_SECONDS,
) -> WayFacts:
    """Walk as far as it goes; a broken leg is a fact. Where there is a proxy, it ends there."""
    proxy = access.proxy.url if access.proxy is not None else ""
    url = urlsplit(proxy or access.server)
    default = 443 if url.scheme == "https" else 1080 if url.scheme.startswith("socks") else 80
    facts = WayFacts(
        server=access.server,
        host=url.hostname or "",
        port=url.port or default,
        where=where,
        proxy=f"{url.hostname}:{url.port or default}" if proxy else None,
        is_encrypted=access.tls is not None,
        is_verified=access.tls is not None and access.tls.verify_mode is not ssl.CERT_NONE,
        credential=access.expiry,
    )
    connection: Connection | None = None
    try:
        await _resolve(facts, leg_seconds)
        connection = await _connect(facts, leg_seconds)
        if proxy:
            return facts
        if access.tls is not None:
            ends = await _encrypt(connection, facts, access, leg_seconds)
            facts = replace(facts, server_certificate=ends)
        return await _ask(connection, facts, now, leg_seconds)
    except _Broken as broken:
        return replace(facts, failed=broken.leg, error=str(broken))
    finally:
        if connection is not None:
            await _hang_up(connection[1])


async def _hang_up(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(HANG_UP_SECONDS):
            await writer.wait_closed()


async def _resolve(facts: WayFacts, leg_seconds: float) -> None:
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(leg_seconds):
            await loop.getaddrinfo(facts.host, facts.port, type=socket.SOCK_STREAM)
    except TimeoutError:
        raise _Broken(Leg.DNS, _late(leg_seconds)) from None
    except (OSError, UnicodeError) as error:
        raise _Broken(Leg.DNS, str(getattr(error, "strerror", "") or error)) from error


async def _connect(facts: WayFacts, leg_seconds: float) -> Connection:
    try:
        async with asyncio.timeout(leg_seconds):
            return await asyncio.open_connection(facts.host, facts.port, limit=MOST_HEADER_BYTES)
    except TimeoutError:
        raise _Broken(Leg.TCP, f"{_late(leg_seconds)}; a firewall may drop packets") from None
    except OSError as error:
        raise _Broken(Leg.TCP, _words(error)) from error


async def _encrypt(
    connection: Connection, facts: WayFacts, access: Access, leg_seconds: float
) -> Expiry | None:
    assert access.tls is not None  # noqa: S101 - asked by the caller
    _, writer = connection
    try:
        async with asyncio.timeout(leg_seconds):
            await writer.start_tls(access.tls, server_hostname=access.server_hostname or facts.host)
    except TimeoutError:
        raise _Broken(Leg.TLS, _late(leg_seconds)) from None
    except ssl.SSLError as error:
        said = getattr(error, "verify_message", "") or error.reason or str(error)
        raise _Broken(Leg.TLS, str(said).replace("_", " ").lower()) from error
    except OSError as error:
        raise _Broken(Leg.TLS, _words(error)) from error
    certificate = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    if not certificate:
        return None
    pem = ssl.DER_cert_to_PEM_cert(certificate).encode()
    return expiry_of_certificate(pem, what="the API server's certificate", is_renewed=True)


async def _ask(
    connection: Connection, facts: WayFacts, now: Callable[[], datetime], leg_seconds: float
) -> WayFacts:
    """Ask for the version as nobody: any answer will do, its Date tells the server's clock."""
    reader, writer = connection
    request = (
        f"GET /version HTTP/1.1\r\nHost: {facts.host}:{facts.port}\r\n"
        "User-Agent: federate\r\nConnection: close\r\n\r\n"
    )
    asked_at = now()
    try:
        async with asyncio.timeout(leg_seconds):
            writer.write(request.encode("ascii", "replace"))
            await writer.drain()
            head = await reader.readuntil(b"\r\n\r\n")
    except TimeoutError:
        raise _Broken(Leg.HTTP, _late(leg_seconds)) from None
    except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise _Broken(Leg.HTTP, _words(error)) from error
    if not head.startswith(b"HTTP/"):
        raise _Broken(Leg.HTTP, "that was no HTTP")
    return replace(facts, server_time=_date_of(head), asked_at=asked_at, answered_at=now())


def _date_of(head: bytes) -> datetime | None:
    for line in head.decode("latin-1").split("\r\n"):
        name, _, value = line.partition(":")
        if name.strip().lower() == "date":
            try:
                return parsedate_to_datetime(value.strip()).astimezone(UTC)
            except ValueError:
                return None
    return None


def _late(seconds: float) -> str:
    return f"no answer within {seconds:g} s"


def _words(error: Exception) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, ConnectionResetError | asyncio.IncompleteReadError):
        return "the connection was cut"
    return str(getattr(error, "strerror", "") or error) or type(error).__name__
