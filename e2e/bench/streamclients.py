"""Clients of streams: kubectl for what is measured in bytes, and one of our own for what is timed.

A kubectl takes longer to start than federate adds to an exec, and 200 of them would leave nothing
of a small machine. So execs and followers of logs are requests of this process, over one TLS
connection each, alike on both ways.
"""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import ssl
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import IO

import aiohttp

from e2e.support.desk import Side
from e2e.testbed.errors import TestbedError
from e2e.testbed.kubeconfigs import chosen_by_context, read_kubeconfig

PIECE = bytes(1 << 18)
PROTOCOL = "v5.channel.k8s.io"
"""What kubectl speaks."""
OUTPUT, STATUS = 1, 3
"""Its channels."""
OPEN_AT_ONCE = 20
"""Followers that are connecting: more would only wait for processors."""
ENOUGH_SECONDS = 120.0
CLOSING_SECONDS = 0.002


# -- bytes, with kubectl ---------------------------------------------------------------------------


@contextmanager
def kubectl(side: Side, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run kubectl with pipes while the block lasts; it has to succeed."""
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(
            side.command(*arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            bufsize=0,
        ) as process,
    ):
        try:
            yield process
            code = process.wait(ENOUGH_SECONDS)
        finally:
            process.kill()
        if code != 0:
            errors.seek(0)
            said = errors.read(2000).decode(errors="replace")
            raise TestbedError(f"kubectl {' '.join(arguments)} ended with {code}: {said}")


def seconds_of_output(side: Side, *arguments: str, wanted: int) -> float:
    """Return how long kubectl's output took, from its first byte to its end.

    Raises:
        TestbedError: it printed less than `wanted` bytes.
    """
    with kubectl(side, *arguments) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.close()
        seconds, count = drained(process.stdout)
    if count < wanted:
        raise TestbedError(f"kubectl {' '.join(arguments)} printed {count} bytes, not {wanted}.")
    return seconds


def drained(output: IO[bytes]) -> tuple[float, int]:
    """Read to the end; returns the seconds since the first bytes, and their number."""
    count = len(output.read(1))
    began = time.monotonic()
    while part := output.read(len(PIECE)):
        count += len(part)
    return time.monotonic() - began, count


def seconds_of_input(side: Side, *arguments: str, size: int) -> float:
    """Return how long it took to send so much into `app take`: until it has told the number."""
    with kubectl(side, *arguments) as process:
        assert process.stdin is not None and process.stdout is not None
        output = process.stdout
        if read_line(output) != b"ready":
            raise TestbedError(f"kubectl {' '.join(arguments)} did not begin.")
        began = time.monotonic()
        for start in range(0, size, len(PIECE)):
            written = memoryview(PIECE)[: min(len(PIECE), size - start)]
            while written:
                written = written[process.stdin.write(written) :]
        process.stdin.close()
        told = read_line(output)
        seconds = time.monotonic() - began
    if told != str(size).encode():
        raise TestbedError(f"{told!r} bytes of {size} arrived.")
    return seconds


def read_line(output: IO[bytes]) -> bytes:
    """Read a line, and no byte more."""
    line = b""
    while (byte := output.read(1)) not in (b"", b"\n"):
        line += byte
    return line


# -- time, without ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """A pod on one of the two ways, for requests of this process."""

    url: str
    """Of the pod, without a subresource."""
    tls: ssl.SSLContext

    @classmethod
    def of(cls, side: Side, pod: str) -> Reached:
        """Take address and credentials of the side's kubeconfig."""
        settings = chosen_by_context(read_kubeconfig(side.cluster.kubeconfig))
        tls = ssl.create_default_context(
            cadata=base64.b64decode(settings["certificate-authority-data"]).decode()
        )
        with tempfile.NamedTemporaryFile() as pair:
            for key in ("client-certificate-data", "client-key-data"):
                pair.write(base64.b64decode(settings[key]))
            pair.flush()
            tls.load_cert_chain(pair.name)
        return cls(
            url=f"{settings['server']}/api/v1/namespaces/{side.namespace}/pods/{pod}", tls=tls
        )

    @asynccontextmanager
    async def session(self) -> AsyncIterator[aiohttp.ClientSession]:
        """Make a session whose every request has a connection of its own; wait for their ends."""
        sockets: list[socket.socket] = []

        def made(address: aiohttp.AddrInfoType) -> socket.socket:
            family, kind, number, *_ = address
            sockets.append(socket.socket(family, kind, number))
            return sockets[-1]

        connector = aiohttp.TCPConnector(
            ssl=self.tls, limit=0, force_close=True, socket_factory=made
        )
        async with aiohttp.ClientSession(
            connector=connector, timeout=aiohttp.ClientTimeout(None)
        ) as session:
            yield session
        # TLS ends in order, after the session's own end.
        async with asyncio.timeout(ENOUGH_SECONDS):
            while any(one.fileno() >= 0 for one in sockets):  # noqa: ASYNC110 - they tell nobody
                await asyncio.sleep(CLOSING_SECONDS)


async def timed_exec(pod: Reached, container: str, command: Sequence[str]) -> float:
    """Return the seconds from the first packet of a new connection to the command's end."""
    query = [("container", container), ("stdout", "true"), *(("command", word) for word in command)]
    async with pod.session() as session:
        began = time.monotonic()
        async with (
            asyncio.timeout(ENOUGH_SECONDS),
            session.ws_connect(f"{pod.url}/exec", params=query, protocols=(PROTOCOL,)) as heard,
        ):
            async for message in heard:
                if message.type is aiohttp.WSMsgType.BINARY and message.data[0] == STATUS:
                    seconds = time.monotonic() - began
                    if json.loads(message.data[1:]).get("status") != "Success":
                        raise TestbedError(f"An exec failed: {message.data[1:]!r}")
                    return seconds
    raise TestbedError("An exec ended without saying how.")


@dataclass(slots=True, kw_only=True)
class Heard:
    """What followers of `app tick` heard."""

    delays: list[float]
    """Seconds from the container's clock to ours, which is the same machine's."""
    seconds: float = 0.0


async def hear_ticks(
    pod: Reached,
    container: str,
    *,
    followers: int,
    seconds: float,
    began: Callable[[], None],
    looked: Callable[[], None],
) -> Heard:
    """Follow a log many times at once; what comes before all have heard something is not counted.

    `began` is called when counting begins, `looked` every second from then on.
    """
    heard = Heard(delays=[])
    is_counting = asyncio.Event()
    started = [asyncio.Event() for _ in range(followers)]
    gate = asyncio.Semaphore(OPEN_AT_ONCE)
    async with pod.session() as session, asyncio.TaskGroup() as group:

        async def follow(number: int) -> None:
            async with gate:
                query = {"container": container, "follow": "true", "tailLines": "1"}
                reply = await session.get(f"{pod.url}/log", params=query)
            async with reply:
                if reply.status != 200:
                    raise TestbedError(f"A follower got {reply.status}: {await reply.text()}")
                async for line in reply.content:
                    at = time.time()
                    started[number].set()
                    if is_counting.is_set():
                        heard.delays.append(at - float(line.split()[1]))
            raise TestbedError("A follower's log ended.")

        tasks = [group.create_task(follow(number)) for number in range(followers)]
        async with asyncio.timeout(ENOUGH_SECONDS):
            for event in started:
                await event.wait()
        began()
        is_counting.set()
        clock = time.monotonic()
        while (passed := time.monotonic() - clock) < seconds:
            await asyncio.sleep(min(1.0, seconds - passed))
            looked()
        is_counting.clear()
        heard.seconds = time.monotonic() - clock
        for task in tasks:
            task.cancel()
    return heard


@contextmanager
def stalled_log(pod: Reached, container: str) -> Iterator[Callable[[int], int]]:
    """Ask for a whole log and take nothing of it; yields what reads on, and counts."""
    with asyncio.Runner() as runner:
        held = AsyncExitStack()

        async def ask() -> aiohttp.ClientResponse:
            session = await held.enter_async_context(pod.session())
            return await session.get(f"{pod.url}/log", params={"container": container})

        async def read(reply: aiohttp.ClientResponse, most: int) -> int:
            count = 0
            while count < most and (part := await reply.content.readany()):
                count += len(part)
            return count

        async def end(reply: aiohttp.ClientResponse) -> None:
            if reply.connection is not None and reply.connection.transport is not None:
                reply.connection.transport.abort()
            reply.close()
            await held.aclose()

        reply = runner.run(ask())
        try:
            # The loop stands still between two calls: nobody reads.
            yield lambda most: runner.run(read(reply, most))
        finally:
            runner.run(end(reply))
