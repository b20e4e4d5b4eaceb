"""The process: a bounded end on a signal, at once on the second."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import subprocess
import sys

import pytest

from federate.cli.process import (
    END_SECONDS,
    STOP_SECONDS,
    raise_file_limit,
    run_until_signal,
    supervise,
)
from federate.errors import ConfigError
from tests.support.clock import virtual_loop, virtual_time

SCRIPT = """
import asyncio, sys
from federate.cli.process import run_until_signal

async def work(stop):
    print("up", flush=True)
    await stop.wait()
    print("stopping", flush=True)
    if sys.argv[1] == "hang":
        await asyncio.Event().wait()

run_until_signal(work)
print("left", flush=True)
"""


FLAPPING = """
import asyncio, random, socket, struct, threading, time
import aiohttp
from federate.cli.process import run_until_signal

AT_ONCE = struct.pack("ii", 1, 0)

def listen(port):
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(("127.0.0.1", port))
    server.listen(random.choice([1, 200]))
    server.settimeout(0.02)
    return server

def flap(server, port):
    while True:
        until = time.monotonic() + random.random() * 0.3
        while time.monotonic() < until:
            try:
                connection, _ = server.accept()
            except OSError:
                continue
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
            threading.Timer(random.random() * 0.002, connection.close).start()
        server.close()
        time.sleep(random.random() * 0.2)
        while True:
            try:
                server = listen(port)
                break
            except OSError:
                time.sleep(0.01)

async def work(stop):
    server = listen(0)
    port = server.getsockname()[1]
    threading.Thread(target=flap, args=(server, port), daemon=True).start()
    until = time.monotonic() + 4.0
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        async def ask():
            while time.monotonic() < until:
                timeout = aiohttp.ClientTimeout(total=random.random() * 0.05)
                try:
                    async with session.get(f"https://127.0.0.1:{port}/", timeout=timeout) as reply:
                        await reply.read()
                except (aiohttp.ClientError, OSError, TimeoutError, RuntimeError):
                    await asyncio.sleep(0)
        await asyncio.gather(*(ask() for _ in range(24)))

run_until_signal(work)
print("left", flush=True)
"""


def test_a_server_that_comes_and_goes_does_not_end_the_process() -> None:
    """C2: resets and refusals in every moment of a connection; uvloop aborts here (0010)."""
    ended = subprocess.run(
        [sys.executable, "-c", FLAPPING],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )
    assert (ended.returncode, ended.stdout.strip()) == (0, "left"), ended.stderr[-2000:]


def start(mode: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, mode],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )
    assert said_by(process) == "up"
    return process


def said_by(process: subprocess.Popen[str]) -> str:
    """Return the next line that is no log line."""
    assert process.stdout is not None
    while line := process.stdout.readline():
        if line.strip() in ("up", "stopping", "left"):
            return line.strip()
    return ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_process_well(number: signal.Signals) -> None:
    """SIGTERM and Ctrl-C stop the work and end with exit code 0."""
    with start("good") as process:
        process.send_signal(number)
        assert [said_by(process), said_by(process)] == ["stopping", "left"]
        assert process.wait() == 0


def test_a_second_signal_ends_it_at_once() -> None:
    """Who does not want to wait sends another signal, whichever, and gets 130."""
    with start("hang") as process:
        process.send_signal(signal.SIGTERM)
        assert said_by(process) == "stopping"
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130


@virtual_time
async def test_a_stop_that_takes_too_long_is_cancelled() -> None:
    """Work that does not stop is cancelled within the 5 s that stopping may take."""
    stop = asyncio.Event()
    cancelled_at = 0.0

    async def work(_stop: asyncio.Event) -> None:
        nonlocal cancelled_at
        try:
            await asyncio.sleep(3600)
        finally:
            cancelled_at = virtual_loop().time()

    began_at = virtual_loop().time()
    virtual_loop().call_later(10, stop.set)
    await supervise(work, stop)
    assert cancelled_at - began_at == pytest.approx(10 + STOP_SECONDS)
    assert STOP_SECONDS < END_SECONDS < 5


@virtual_time
async def test_work_that_ends_by_itself_ends_the_process() -> None:
    """Nothing waits for a signal once the work is done."""

    async def work(_stop: asyncio.Event) -> None:
        await asyncio.sleep(1)

    await supervise(work, asyncio.Event())


def test_errors_of_the_work_come_out() -> None:
    """An error of ours is raised as it is, and so is a bug."""

    async def lost(_stop: asyncio.Event) -> None:
        raise ConfigError("c")

    async def bug(_stop: asyncio.Event) -> None:
        raise KeyError("bug")

    with pytest.raises(ConfigError, match="c"):
        run_until_signal(lost)
    with pytest.raises(KeyError):
        run_until_signal(bug)


def test_as_many_files_as_may_be_are_open() -> None:
    """The soft limit goes up to what is wanted or allowed, and never down."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
        raise_file_limit(300)
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (300, before[1])
        raise_file_limit(200)
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (300, before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
