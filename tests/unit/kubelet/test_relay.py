"""The relay between two upgraded connections: all bytes, no more memory, one end ends both."""

from __future__ import annotations

import asyncio
import random
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from federate.cluster.tunnel import Channel
from federate.kubelet.relay import Direction, relay
from tests.support.credentials import Authority


class Side:
    """One connection in memory; `None` in the script of what comes is where it breaks."""

    def __init__(self, *comes: bytes | None, room: int | None = None) -> None:
        self.comes: asyncio.Queue[bytes | None] = asyncio.Queue()
        for part in comes:
            self.comes.put_nowait(part)
        self.took: list[bytes] = []
        self.room = room
        self.is_closed = False
        self.is_finished = False
        self.may_finish = asyncio.Event()
        self.may_finish.set()

    async def read(self, limit: int = 65536) -> bytes:
        part = await self.comes.get()
        if part is None:
            raise ConnectionResetError
        return part

    async def write(self, data: bytes) -> None:
        if self.room is not None and len(self.took) >= self.room:
            raise BrokenPipeError
        self.took.append(data)

    async def finish(self) -> None:
        await self.may_finish.wait()
        self.is_finished = True

    def close(self) -> None:
        self.is_closed = True


@pytest.mark.parametrize("end", [b"", None])
async def test_what_the_target_said_last_arrives(end: bytes | None) -> None:
    """At its end, in order or not, the hub takes all of it, as slowly as it likes."""
    hub, target = Side(b"in"), Side(b"out", b"last", end)
    hub.may_finish.clear()
    count = {Direction.IN: 0, Direction.OUT: 0}

    def moved(direction: Direction, size: int) -> None:
        count[direction] += size

    relaying = asyncio.create_task(relay(hub, target, moved=moved))
    await asyncio.sleep(0.05)
    assert (target.is_closed, hub.is_closed, relaying.done()) == (True, False, False)
    hub.may_finish.set()
    await relaying
    assert (hub.took, target.took) == ([b"out", b"last"], [b"in"])
    assert hub.is_finished and hub.is_closed and not target.is_finished
    assert count == {Direction.IN: 2, Direction.OUT: 7}


async def test_the_hub_ends_it() -> None:
    """What the client said last reaches the container too."""
    hub, target = Side(b"a", b"b", b""), Side()
    await relay(hub, target)
    assert target.took == [b"a", b"b"] and target.is_finished
    assert hub.is_closed and target.is_closed


async def test_last_words_of_a_side_that_takes_no_more() -> None:
    """An exec that ended says so and hangs up, while its client still types."""
    hub, target = Side(b"typed"), Side(room=0)
    relaying = asyncio.create_task(relay(hub, target))
    await asyncio.sleep(0.05)
    assert not relaying.done()
    for part in (b"exit code 3", b""):
        target.comes.put_nowait(part)
    await relaying
    assert hub.took == [b"exit code 3"] and hub.is_finished


async def test_both_break() -> None:
    """Then nothing is left to do."""
    hub, target = Side(b"x", room=0), Side(b"y", room=0)
    await relay(hub, target)
    assert hub.is_closed and target.is_closed
    assert not hub.is_finished and not target.is_finished


@pytest.mark.parametrize("waits_for_the_end", [False, True])
async def test_cancelled(waits_for_the_end: bool) -> None:
    """A server that stops ends both at once, also one that only takes the rest."""
    hub, target = Side(), Side(*([b""] if waits_for_the_end else []))
    hub.may_finish.clear()
    relaying = asyncio.create_task(relay(hub, target))
    await asyncio.sleep(0.05)
    relaying.cancel()
    with pytest.raises(asyncio.CancelledError):
        await relaying
    assert hub.is_closed and target.is_closed and not hub.is_finished


async def test_what_is_no_broken_connection_is_raised() -> None:
    """A fault of ours is not hidden."""

    class Odd(Side):
        async def read(self, limit: int = 65536) -> bytes:
            raise ValueError("ours")

    hub, target = Side(), Odd()
    with pytest.raises(ValueError, match="ours"):
        await relay(hub, target)
    assert hub.is_closed and target.is_closed


# --- over TLS ------------------------------------------------------------------------------------


class Tls:
    """Connections over TLS on the loopback."""

    def __init__(self, folder: Path) -> None:
        authority = Authority()
        self.theirs = authority.server_tls(folder, "kubernetes")
        self.ours = ssl.create_default_context(cadata=authority.ca.pem.decode())
        self.ours.verify_flags &= ~ssl.VERIFY_X509_STRICT

    @asynccontextmanager
    async def pair(self) -> AsyncIterator[tuple[Channel, Channel]]:
        """Two ends of one connection: who dialled, and who was dialled."""
        loop = asyncio.get_running_loop()
        arrived: asyncio.Future[Channel] = loop.create_future()
        server = await loop.create_server(
            lambda: Channel(connected=arrived.set_result), "127.0.0.1", 0
        )
        near = Channel()
        port = server.sockets[0].getsockname()[1]
        await loop.create_connection(lambda: near, "127.0.0.1", port)
        far = await arrived
        await asyncio.gather(
            far.begin_tls(self.theirs, server_side=True),
            near.begin_tls(self.ours, server_hostname="kubernetes"),
        )
        try:
            yield near, far
        finally:
            near.close()
            far.close()
            server.close()
            await asyncio.sleep(0.01)


async def collect(channel: Channel, *, pause: float = 0.0) -> bytes:
    came = bytearray()
    while part := await channel.read(262_144):
        came += part
        if pause:
            await asyncio.sleep(pause)
    return bytes(came)


async def test_c60_bytes_both_ways_over_tls(tmp_path: Path) -> None:
    """Different amounts in pieces of any size at once; a slow client gets the tail as well."""
    chance = random.Random(7)
    tls = Tls(tmp_path)
    async with tls.pair() as (client, hub), tls.pair() as (target, server):
        relaying = asyncio.create_task(relay(hub, target))
        up, down = chance.randbytes(3_000_000), chance.randbytes(5_000_000)

        async def say(channel: Channel, data: bytes) -> None:
            at = 0
            while at < len(data):
                size = chance.choice([1, 100, 16_384, 400_000])
                await channel.write(data[at : at + size])
                at += size

        async def take(count: int) -> bytes:
            came = bytearray()
            while len(came) < count:
                came += await server.read()
            return bytes(came)

        async def serve() -> bytes:
            taken, _ = await asyncio.gather(take(len(up)), say(server, down))
            await server.finish()
            return taken

        serving = asyncio.create_task(serve())
        saying = asyncio.create_task(say(client, up))
        came = await collect(client, pause=0.02)
        await saying
        await relaying
        assert came == down
        assert await serving == up


async def test_a_stalled_reader_holds_up_the_other_side(tmp_path: Path) -> None:
    """No matter how much is sent, what lies between is bounded; it all comes in the end."""
    tls = Tls(tmp_path)
    total, sent = 48 * 2**20, 0
    async with tls.pair() as (client, hub), tls.pair() as (target, server):
        relaying = asyncio.create_task(relay(hub, target))

        async def serve() -> None:
            nonlocal sent
            while sent < total:
                await server.write(b"x" * 65_536)
                sent += 65_536
            await server.finish()

        serving = asyncio.create_task(serve())
        before = -1
        while sent != before:
            before = sent
            await asyncio.sleep(0.3)
        print(f"{sent / 2**20:.1f} MB under way to a client that stalls")
        assert sent < total / 2  # kernel buffers of two connections, mostly
        assert not relaying.done()
        count = 0
        while part := await client.read(262_144):
            count += len(part)
        assert count == total
        await asyncio.gather(serving, relaying)


@pytest.mark.parametrize("who", ["client", "server"])
async def test_one_who_hangs_up_ends_the_other(tmp_path: Path, who: str) -> None:
    """A client that is gone leaves no exec behind, and a target that is gone no client."""
    tls = Tls(tmp_path)
    async with tls.pair() as (client, hub), tls.pair() as (target, server):
        relaying = asyncio.create_task(relay(hub, target))
        first, other = (client, server) if who == "client" else (server, client)
        first.close()
        async with asyncio.timeout(10.0):
            await relaying
            assert await other.read() == b""


def test_how_fast_it_is(tmp_path: Path) -> None:
    """Printed, next to the same without a relay; everything shares one core here."""
    total = 64 * 2**20

    async def measured(*, relayed: bool) -> float:
        tls = Tls(tmp_path)
        async with tls.pair() as (client, hub), tls.pair() as (target, server):
            sender = server if relayed else hub
            relaying = asyncio.create_task(relay(hub, target)) if relayed else None
            started = time.perf_counter()

            async def send() -> None:
                piece = b"x" * 32_768
                for _ in range(total // len(piece)):
                    await sender.write(piece)
                await sender.finish()

            sending = asyncio.create_task(send())
            count = 0
            while part := await client.read(262_144):
                count += len(part)
            seconds = time.perf_counter() - started
            assert count == total
            client.close()
            await sending
            if relaying is not None:
                await relaying
            return seconds

    direct = asyncio.run(measured(relayed=False))
    through = asyncio.run(measured(relayed=True))
    rates = (f"{total / 2**20 / seconds:.0f} MB/s" for seconds in (direct, through))
    print("direct {}, through the relay {}".format(*rates))
    assert through < 60.0
