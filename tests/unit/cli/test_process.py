"""The process: a bounded end on a signal, at once on the second."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys

import pytest

from federate.cli.process import END_SECONDS, STOP_SECONDS, run_until_signal, supervise
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
