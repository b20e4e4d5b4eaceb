"""Small proxies that ask who is there: HTTP with CONNECT, over TLS too, and SOCKS5."""

from __future__ import annotations

import asyncio
import base64
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

USER, PASSWORD = "federate", "let me/pass"
QUOTED_PASSWORD = "let%20me%2Fpass"


@dataclass
class Relay:
    """Counts the tunnels it made and the clients it sent away."""

    port: int = 0
    password: str = PASSWORD
    tunnels: int = 0
    refused: int = 0
    asked_for: list[str] = field(default_factory=list)
    _open: set[asyncio.Task[None]] = field(default_factory=set)

    def cut(self) -> int:
        """Break every tunnel; returns how many there were."""
        for task in self._open:
            task.cancel()
        return len(self._open)

    async def close(self) -> None:
        """Break every tunnel and wait until they are gone."""
        self.cut()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def serve_http(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        word = base64.b64encode(f"{USER}:{self.password}".encode()).decode()
        if f"Proxy-Authorization: Basic {word}" not in head:
            self.refused += 1
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()
            writer.close()
            return
        host, _, port = head.split()[1].rpartition(":")
        self.asked_for.append(host)
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await self._tunnel(reader, writer, host, int(port))

    async def serve_socks(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, count = await reader.readexactly(2)
        await reader.readexactly(count)
        writer.write(b"\x05\x02")
        _, size = await reader.readexactly(2)
        user = await reader.readexactly(size)
        password = await reader.readexactly((await reader.readexactly(1))[0])
        if (user.decode(), password.decode()) != (USER, self.password):
            self.refused += 1
            writer.write(b"\x01\x01")
            writer.close()
            return
        writer.write(b"\x01\x00")
        kind = (await reader.readexactly(4))[3]
        if kind == 3:
            host = (await reader.readexactly((await reader.readexactly(1))[0])).decode()
        else:
            host = socket.inet_ntoa(await reader.readexactly(4))
        port = int.from_bytes(await reader.readexactly(2), "big")
        self.asked_for.append(host)
        writer.write(b"\x05\x00\x00\x01\0\0\0\0\0\0")
        await self._tunnel(reader, writer, host, port)

    async def _tunnel(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, port: int
    ) -> None:
        self.tunnels += 1
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            far_reader, far_writer = await asyncio.open_connection(host, port)
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(_pump(reader, far_writer))
                    group.create_task(_pump(far_reader, writer))
            finally:
                far_writer.transport.abort()
        except (OSError, BaseExceptionGroup):
            pass
        finally:
            self._open.discard(task)
            writer.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(65_536):
        writer.write(chunk)
        await writer.drain()
    writer.close()


@asynccontextmanager
async def http_relay(
    tls: ssl.SSLContext | None = None, *, password: str = PASSWORD
) -> AsyncIterator[Relay]:
    """Run an HTTP proxy; with `tls` it is reached over TLS."""
    relay = Relay(password=password)
    server = await asyncio.start_server(relay.serve_http, "127.0.0.1", 0, ssl=tls)
    async with _served(relay, server):
        yield relay


@asynccontextmanager
async def socks_relay() -> AsyncIterator[Relay]:
    """Run a SOCKS5 proxy."""
    relay = Relay()
    server = await asyncio.start_server(relay.serve_socks, "127.0.0.1", 0)
    async with _served(relay, server):
        yield relay


@asynccontextmanager
async def _served(relay: Relay, server: asyncio.Server) -> AsyncIterator[None]:
    relay.port = server.sockets[0].getsockname()[1]
    try:
        yield
    finally:
        server.close()
        await relay.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(5.0):
                await server.wait_closed()
