"""Run one coroutine as a process: event loop, signals, a bounded end.

Below `cli.run`. The first SIGTERM or SIGINT sets the stop event; work that has not ended
`STOP_SECONDS` later is cancelled, and soon after the process ends in any case: nothing is lost,
because every start goes on from what the clusters say. The second signal ends the process at once.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable, Coroutine
from types import FrameType

import structlog

from federate.cli.failures import EXIT_INTERRUPTED
from federate.errors import FederateError

log = structlog.get_logger()

STOP_SECONDS = 4.4
"""Bound of an orderly stop: supervisors and people who wait 5 s see a clean end."""

END_SECONDS = 4.9
"""After so long the process ends whatever hangs: a thread, a task that will not be cancelled."""

MOST_FILES = 65_536
"""Far more than all streams of a process take; some programs walk through as many as they may."""

SIGNALS = (signal.SIGTERM, signal.SIGINT)

Work = Callable[[asyncio.Event], Coroutine[None, None, None]]


def raise_file_limit(most: int = MOST_FILES) -> None:
    """Let the process open as many files as it may: each stream to a container takes two.

    Shells and service managers give 1024 by default, and leave it to programs to ask for more.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = most if hard == resource.RLIM_INFINITY else min(most, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def run_until_signal(work: Work) -> None:
    """Run `work(stop)` until it ends, by itself or because a signal set `stop`.

    Raises:
        FederateError: what ended the work.
    """
    try:
        # Not uvloop, though it is faster: decision 0010.
        asyncio.run(_with_signals(work))
    except FederateError as error:
        log.debug("federate ends", error=str(error), exc_info=error)
        raise


async def _with_signals(work: Work) -> None:
    stop = asyncio.Event()
    _watch_signals(stop)
    await supervise(work, stop)


async def supervise(work: Work, stop: asyncio.Event) -> None:
    """Run `work` until it ends, or is cancelled some time after `stop`; raises what it raised."""
    working = asyncio.create_task(work(stop), name="federate")
    stopping = asyncio.create_task(stop.wait(), name="stop-signal")
    await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not working.done():
        await asyncio.wait((working,), timeout=STOP_SECONDS)
    if not working.done():
        log.warning("stop took too long, cancelled", after_seconds=STOP_SECONDS)
        working.cancel()
        await asyncio.wait((working,))
    if not working.cancelled():
        working.result()


def _watch_signals(stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()

    def first() -> None:
        log.info("stopping; a second signal ends federate at once")
        for number in SIGNALS:
            loop.remove_signal_handler(number)
            # Not through the loop: it may be what hangs.
            signal.signal(number, _second)
        watchdog = threading.Timer(END_SECONDS, _end_now, (0,))
        watchdog.daemon = True
        watchdog.start()
        stop.set()

    for number in SIGNALS:
        loop.add_signal_handler(number, first)


def _second(_number: int, _frame: FrameType | None) -> None:
    _end_now(EXIT_INTERRUPTED)


def _end_now(code: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
