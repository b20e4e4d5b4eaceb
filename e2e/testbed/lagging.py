"""Let an API server lag behind its storage while it still answers.

A `LaggingStorage` stands between one of several API servers and the storage. It holds back what
watches tell, and nothing else: such a server reads and writes as fast as any other, and answers
what it is asked to answer from its cache at once, and wrongly. The storage speaks gRPC over HTTP/2;
only as much of that is understood here as is needed to know a watch.
"""

import asyncio
import threading
import time
from collections.abc import Coroutine
from typing import Any, Self, TypeVar
from weakref import WeakSet

from .ports import free_ports

T = TypeVar("T")

CHUNK_BYTES = 65536
LOOK_SECONDS = 0.01
"""How often each connection looks whether it may hand on what is held."""

NEWS_SECONDS = 0.5
"""How long news flow freely each time. A steady delay of each message would fill the windows of
HTTP/2 and hold up the whole connection, for longer and longer."""

FRAME_HEAD_BYTES = 9
"""Of an HTTP/2 frame: length, kind, flags, stream."""

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class LaggingStorage:
    """A port that leads to a storage, with watches that lag; lives in a thread of its own.

    An answer that ends (to a read, a write) is handed on when it does. The messages of a stream
    that goes on, which is a watch, wait: every `lag_seconds` all are handed on that came, and those
    that come in the half second after. The lag may be changed at any time.
    """

    def __init__(self, storage_port: int) -> None:
        self._lag_seconds = 0.0
        self._lags_since = 0.0
        self._storage_port = storage_port
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: WeakSet[asyncio.StreamWriter] = WeakSet()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="lagging-storage", daemon=True)
        (self.port,) = free_ports(1)

    def __enter__(self) -> Self:
        self._thread.start()
        self._server = self._do(asyncio.start_server(self._take, "127.0.0.1", self.port))
        return self

    def __exit__(self, *_: object) -> None:
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    @property
    def lag_seconds(self) -> float:
        return self._lag_seconds

    @lag_seconds.setter
    def lag_seconds(self, seconds: float) -> None:
        self._lag_seconds, self._lags_since = seconds, time.monotonic()

    @property
    def hands_on_news(self) -> bool:
        """Tell whether watches are handed on right now."""
        lags_for = time.monotonic() - self._lags_since
        return lags_for % (self._lag_seconds + NEWS_SECONDS) >= self._lag_seconds

    def _run(self) -> None:
        self._loop.run_forever()
        self._loop.close()

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _end(self) -> None:
        self._server.close()
        while tasks := list(self._tasks):
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for writer in list(self._writers):
            # Nobody may wait for a side that takes no more bytes.
            writer.transport.abort()
        # The sockets are closed in the loop's next rounds.
        for _ in range(3):
            await asyncio.sleep(0)

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        try:
            storage = await asyncio.open_connection("127.0.0.1", self._storage_port)
            self._writers.add(storage[1])
            await self._carry((reader, writer), storage)
        except (OSError, asyncio.CancelledError):
            pass  # a side went away, or all ends: both end the connection
        finally:
            writer.close()
            self._tasks.discard(task)

    async def _carry(self, client: Streams, storage: Streams) -> None:
        """Carry bytes until either side ends; the other is ended too."""
        ways = [
            asyncio.create_task(_carry_questions(client[0], storage[1])),
            asyncio.create_task(self._carry_answers(storage[0], client[1])),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            storage[1].close()
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _carry_answers(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        held = HeldFrames()
        letting_go = asyncio.create_task(self._let_go(held, writer))
        try:
            while True:
                head = await reader.readexactly(FRAME_HEAD_BYTES)
                frame = head + await reader.readexactly(int.from_bytes(head[:3]))
                writer.writelines(held.take(frame))
                await writer.drain()
        except asyncio.IncompleteReadError:
            return
        finally:
            letting_go.cancel()

    async def _let_go(self, held: "HeldFrames", writer: asyncio.StreamWriter) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if self.hands_on_news:
                writer.writelines(held.let_go())


async def _carry_questions(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(CHUNK_BYTES):
        writer.write(chunk)
        await writer.drain()


_DATA, _HEADERS, _RESET = 0x0, 0x1, 0x3
_END_STREAM = 0x1
_MESSAGE_HEAD_BYTES = 5
"""Of a gRPC message: whether it is compressed, and its length."""


class HeldFrames:
    """Messages of streams that go on, until they are let go. Pure: frames in, frames out.

    Only DATA waits: all headers of a connection share one compression state, so their order must
    stay, and the rest (settings, windows, pings) keeps the connection itself alive. A stream whose
    first message is larger than a frame is a long answer to a read, and never waits: its reader
    must take some before the storage may send more. (A watch begins with a short "created".)
    """

    def __init__(self) -> None:
        self._held: dict[int, list[bytes]] = {}
        self._long_answers: set[int] = set()
        self._begun: set[int] = set()

    def take(self, frame: bytes) -> list[bytes]:
        """Take a frame from the server; return what is to be handed on at once."""
        kind, flags = frame[3], frame[4]
        stream = int.from_bytes(frame[5:9]) & 0x7FFFFFFF
        if kind == _RESET or (kind in (_DATA, _HEADERS) and flags & _END_STREAM):
            self._begun.discard(stream)
            self._long_answers.discard(stream)
            return [*self._held.pop(stream, ()), frame]
        if kind != _DATA:
            return [frame]
        if stream not in self._begun:
            self._begun.add(stream)
            if _is_cut(frame):
                self._long_answers.add(stream)
        if stream in self._long_answers:
            return [frame]
        self._held.setdefault(stream, []).append(frame)
        return []

    def let_go(self) -> list[bytes]:
        """Return what is held, each stream's in order."""
        frames = [frame for stream in self._held.values() for frame in stream]
        self._held.clear()
        return frames


def _is_cut(frame: bytes) -> bool:
    """Tell whether a message begins in the frame and does not end there."""
    message = frame[FRAME_HEAD_BYTES:]
    length = int.from_bytes(message[1:_MESSAGE_HEAD_BYTES])
    return len(message) < _MESSAGE_HEAD_BYTES + length
