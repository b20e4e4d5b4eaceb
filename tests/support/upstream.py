"""An API server of one connection each: what it was asked, and whatever it likes to answer."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

SWITCH = (
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"
    b"X-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n"
)


@dataclass
class Conversation:
    """One connection, its request read."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    head: str = ""
    body: bytes = b""

    @property
    def line(self) -> str:
        return self.head.split("\r\n", 1)[0]

    def all(self, name: str) -> list[str]:
        lines = self.head.split("\r\n")[1:]
        pairs = (line.partition(":") for line in lines if line)
        return [value.strip() for key, _, value in pairs if key.lower() == name.lower()]

    async def send(self, *parts: bytes) -> None:
        for part in parts:
            self.writer.write(part)
            await self.writer.drain()


Script = Callable[[Conversation], Awaitable[None]]


def says(*parts: bytes) -> Script:
    """Send these and hang up."""

    async def script(talk: Conversation) -> None:
        await talk.send(*parts)

    return script


def status(code: int, body: bytes = b"", *headers: str) -> Script:
    lines = [f"HTTP/1.1 {code} X", f"Content-Length: {len(body)}", *headers]
    return says("\r\n".join([*lines, "", ""]).encode() + body)


@dataclass
class Upstream:
    """Plays its scripts in turn, the last one for ever."""

    scripts: Sequence[Script]
    port: int = 0
    seen: list[Conversation] = field(default_factory=list)
    open: int = 0
    """Connections whose script is not at its end."""
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.open += 1
        try:
            with suppress(OSError, asyncio.IncompleteReadError):
                await self._converse(Conversation(reader, writer))
        finally:
            self.open -= 1
            self._tasks.discard(task)
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _converse(self, talk: Conversation) -> None:
        talk.head = (await talk.reader.readuntil(b"\r\n\r\n")).decode()
        length = int((talk.all("Content-Length") or ["0"])[0])
        talk.body = await talk.reader.readexactly(length)
        self.seen.append(talk)
        await self.scripts[min(len(self.seen), len(self.scripts)) - 1](talk)

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def upstream(*scripts: Script, tls: ssl.SSLContext | None = None) -> AsyncIterator[Upstream]:
    served = Upstream(scripts)
    server = await asyncio.start_server(served.serve, "127.0.0.1", 0, ssl=tls)
    served.port = server.sockets[0].getsockname()[1]
    try:
        yield served
    finally:
        server.close()
        await served.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(5.0):
                await server.wait_closed()
