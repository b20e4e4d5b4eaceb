"""A connection of its own to an API server, through its proxy and with its TLS, as raw bytes.

Below `streaming`. Pools of an HTTP library cannot give a connection away once it stopped speaking
HTTP, and streams that last for hours must not use up the places of short requests (C2).
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import sys
from asyncio.sslproto import SSLProtocol
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from fcntl import ioctl
from termios import TIOCOUTQ
from typing import cast
from urllib.parse import SplitResult, urlsplit

from federate.cluster.proxies import Proxy
from federate.cluster.sessions import Access

OPEN_SECONDS = 10.0
"""Proxy, TCP and TLS together. Shorter fails across continents with lost packets; longer hides a
target that drops them."""

MOST_HELD = 262_144
"""Bytes a connection holds for a reader, and again for the network. Less: more wake-ups for each
megabyte. More: memory, for each of hundreds of streams."""

END_SECONDS = 5.0
"""How long the other side has to answer that a connection ends. It has all our bytes by then."""

LEAST_POLL_SECONDS, MOST_POLL_SECONDS = 0.001, 0.1
"""How often we look whether the other side took everything; nothing tells."""

MOST_PROXY_HEAD = 16_384
"""Bytes of a proxy's answer to CONNECT."""

TLS_READ_BYTES = 65_536
"""What asyncio sets aside for each TLS connection to read into, of its own accord 256 KiB: most of
what one of hundreds of streams costs. No slower with less; four TLS records fit."""

SSLProtocol.max_size = TLS_READ_BYTES  # of all connections of the process: there is no other way

_DEFAULT_PORTS = {"https": 443, "http": 80}


class Channel(asyncio.Protocol):
    """Raw bytes both ways with bounded buffers; satisfies `upstream.Upgraded`.

    One reader and one writer at a time.
    """

    def __init__(self, connected: Callable[[Channel], None] | None = None) -> None:
        """`connected` is called once it is connected: a server begins there."""
        self._connected = connected
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._below: list[asyncio.Transport] = []
        self._chunks: deque[bytes] = deque()
        self._held = 0
        self._is_paused = False
        self._is_finishing = False
        self._ended = False
        self._broken: Exception | None = None
        self._lost = self._loop.create_future()
        self._waker: asyncio.Future[None] | None = None
        self._drained: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin; asyncio calls it."""
        self._carry_on(cast(asyncio.Transport, transport))
        if (connection := transport.get_extra_info("socket")) is not None:
            keep_alive(connection)
        if self._connected is not None:
            self._connected(self)

    async def begin_tls(
        self,
        tls: ssl.SSLContext | None,
        *,
        server_hostname: str | None = None,
        server_side: bool = False,
        handshake_seconds: float = OPEN_SECONDS,
    ) -> None:
        """Go on with TLS over what there is, which may be TLS already; None: as clients do.

        Raises:
            OSError: the handshake failed, or took too long.
        """
        transport = await self._loop.start_tls(
            self.transport,
            self,
            tls if tls is not None else ssl.create_default_context(),
            server_hostname=server_hostname,
            server_side=server_side,
            ssl_handshake_timeout=handshake_seconds,
            ssl_shutdown_timeout=END_SECONDS,
        )
        if transport is None:
            raise ConnectionResetError("the connection ended under the TLS handshake")
        self._carry_on(transport)

    def _carry_on(self, transport: asyncio.Transport) -> None:
        transport.set_write_buffer_limits(high=MOST_HELD)
        if self._transport is not None:
            self._below.append(self._transport)
        self._transport = transport

    @property
    def transport(self) -> asyncio.Transport:
        """What it goes over."""
        if self._transport is None:
            raise ConnectionError("not connected yet")
        return self._transport

    def data_received(self, data: bytes) -> None:
        """Keep what came; asyncio calls it."""
        if self._is_finishing:
            return  # taken, or the kernel would reset the connection and lose what it still holds
        self._chunks.append(data)
        self._held += len(data)
        if self._held > MOST_HELD and not self._is_paused:
            self._is_paused = True
            self.transport.pause_reading()
        self._wake()

    def eof_received(self) -> bool:
        """Note that no more comes; a plain connection still takes what we send."""
        self._ended = True
        self._wake()
        return self.transport.can_write_eof()

    def connection_lost(self, error: Exception | None) -> None:
        """Note the end; asyncio calls it."""
        self._ended = True
        self._broken = error
        if not self._lost.done():
            self._lost.set_result(None)
        self._wake()
        self.resume_writing()

    def pause_writing(self) -> None:
        """Let writers wait; asyncio calls it."""
        if self._drained is None:
            self._drained = self._loop.create_future()

    def resume_writing(self) -> None:
        """Let writers go on; asyncio calls it."""
        drained, self._drained = self._drained, None
        if drained is not None and not drained.done():
            drained.set_result(None)

    async def read(self, limit: int = 65536) -> bytes:
        """Return what came, at most `limit` bytes; b"" at the end.

        Raises:
            OSError: the connection broke.
        """
        while not self._chunks:
            if self._broken is not None:
                raise ConnectionResetError("the connection broke") from self._broken
            if self._ended:
                return b""
            self._waker = self._loop.create_future()
            await self._waker
        data = self._take(limit)
        if self._is_paused and self._held <= MOST_HELD // 2:
            self._is_paused = False
            self.transport.resume_reading()
        return data

    async def write(self, data: bytes) -> None:
        """Send; waits while the other side is slow.

        Raises:
            OSError: the connection broke.
        """
        self._check_open()
        self.transport.write(data)
        while (drained := self._drained) is not None:
            await asyncio.shield(drained)
            self._check_open()

    async def finish(self) -> None:
        """Send all that was written, for as long as the other side takes; then end in order.

        Raises:
            OSError: the connection broke before.
        """
        transport = self.transport
        self._is_finishing = True
        self._chunks.clear()
        if self._is_paused:
            transport.resume_reading()
        transport.set_write_buffer_limits(high=1, low=0)  # 0 would pause TLS with nothing to send
        while (drained := self._drained) is not None:
            await asyncio.shield(drained)
        pause = LEAST_POLL_SECONDS
        while self._is_under_way():
            await asyncio.sleep(pause)
            pause = min(2 * pause, MOST_POLL_SECONDS)
        broken = self._broken
        transport.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(END_SECONDS):
                await asyncio.shield(self._lost)
        transport.abort()
        if broken is not None:
            raise ConnectionResetError("the connection broke") from broken

    def close(self) -> None:
        """End it at once; idempotent."""
        if self._transport is not None:
            self._transport.abort()
        self._chunks.clear()
        self._held = 0
        self._ended = True
        self._wake()

    def unread(self, data: bytes) -> None:
        """Give back what was read too far."""
        if data:
            self._chunks.appendleft(data)
            self._held += len(data)

    def _check_open(self) -> None:
        if self._lost.done() or self.transport.is_closing():
            raise ConnectionResetError("the connection has ended") from self._broken

    def _is_under_way(self) -> bool:
        """Tell whether bytes of ours are below: of TLS, or in the kernel, which forgets them about
        a minute after the end of a connection whose reader stalls.
        """
        if self._lost.done():
            return False
        connection = self.transport.get_extra_info("socket")
        return any(each.get_write_buffer_size() for each in self._below) or (
            connection is not None and _unacknowledged(connection) > 0
        )

    def _take(self, limit: int) -> bytes:
        """Take as many of the chunks as fit together; a longer one is cut."""
        taken, size = [], 0
        while self._chunks and size + len(self._chunks[0]) <= limit:
            chunk = self._chunks.popleft()
            taken.append(chunk)
            size += len(chunk)
        if not taken:
            chunk = self._chunks.popleft()
            taken.append(chunk[:limit])
            self._chunks.appendleft(chunk[limit:])
            size = limit
        self._held -= size
        return taken[0] if len(taken) == 1 else b"".join(taken)

    def _wake(self) -> None:
        waker, self._waker = self._waker, None
        if waker is not None and not waker.done():
            waker.set_result(None)


def _unacknowledged(connection: socket.socket) -> int:
    """Return how many bytes the kernel holds for the other side; 0 where it does not say."""
    try:
        return int.from_bytes(ioctl(connection.fileno(), TIOCOUTQ, bytes(4)), sys.byteorder)
    except OSError:
        return 0


def keep_alive(connection: socket.socket) -> None:
    """Let the kernel ask every half minute whether the other side is still there.

    So a stream may be silent for hours: what lies between keeps the connection, and a peer that is
    gone is noticed within two minutes. There is no bound on data that is not taken: a reader may
    stall for as long as it likes.
    """
    with suppress(OSError):  # no TCP socket: one of a test, say
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 6)):
            if (number := getattr(socket, option, None)) is not None:
                connection.setsockopt(socket.IPPROTO_TCP, number, value)


async def open_tunnel(access: Access) -> Channel:
    """Connect to the API server of `access`, through its proxy where there is one.

    Raises:
        OSError: no connection (TimeoutError: not in time); TLS refused included.
    """
    async with asyncio.timeout(OPEN_SECONDS):
        channel = Channel()
        try:
            await _connect(channel, access)
        except BaseException:
            channel.close()
            raise
        return channel


async def _connect(channel: Channel, access: Access) -> None:
    server = urlsplit(access.server)
    if access.proxy is None:
        await _dial(channel, *_address(server))
    elif access.proxy.is_socks:
        await _through_socks(channel, access.proxy, server)
    else:
        await _through_http(channel, access.proxy, server, access.tls)
    if server.scheme == "https":
        name = access.server_hostname or server.hostname or ""
        await channel.begin_tls(access.tls, server_hostname=name)


def _address(url: SplitResult) -> tuple[str, int]:
    return url.hostname or "", url.port or _DEFAULT_PORTS.get(url.scheme, 443)


async def _dial(channel: Channel, host: str, port: int) -> None:
    loop = asyncio.get_running_loop()
    await loop.create_connection(lambda: channel, host, port, happy_eyeballs_delay=0.25)


async def _through_socks(channel: Channel, proxy: Proxy, server: SplitResult) -> None:
    from federate.cluster.socks import socks_connection  # few need that library

    connection = await socks_connection(proxy, *_address(server))
    loop = asyncio.get_running_loop()
    try:
        await loop.create_connection(lambda: channel, sock=connection)
    except BaseException:
        connection.close()
        raise


async def _through_http(
    channel: Channel, proxy: Proxy, server: SplitResult, tls: ssl.SSLContext | None
) -> None:
    """Ask the proxy for a tunnel, for a server without TLS too: an upgrade needs one."""
    url = urlsplit(proxy.url)
    await _dial(channel, *_address(url))
    if url.scheme == "https":
        await channel.begin_tls(tls, server_hostname=url.hostname or "")
    host, port = _address(server)
    authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    lines = [f"CONNECT {authority} HTTP/1.1", f"Host: {authority}", "User-Agent: federate"]
    lines += [f"{name}: {value}" for name, value in proxy.headers.items()]
    await channel.write("\r\n".join([*lines, "", ""]).encode("ascii"))
    await _await_tunnel(channel)


async def _await_tunnel(channel: Channel) -> None:
    """Read the proxy's answer. Its words stay out of the error: it may repeat our password."""
    head = b""
    while b"\r\n\r\n" not in head:
        data = await channel.read()
        head += data
        if not data or len(head) > MOST_PROXY_HEAD:
            raise ConnectionError("the proxy did not answer in HTTP")
    line = head.split(b"\r\n", 1)[0].split(b" ")
    if len(line) < 2 or not line[0].startswith(b"HTTP/1.") or not line[1].isdigit():
        raise ConnectionError("the proxy did not answer in HTTP")
    if len(line[1]) != 3 or not line[1].startswith(b"2"):
        raise ConnectionError(f"the proxy made no tunnel: HTTP status {int(line[1][:3])}")
    if not head.endswith(b"\r\n\r\n") or head.count(b"\r\n\r\n") != 1:
        raise ConnectionError("the proxy sent more than its answer")
