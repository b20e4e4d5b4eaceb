"""Ask again until it is so: what every step of a leaving waits with.

What heals by itself (a hub or target that does not answer for a while, a conflict) is shown and
tried again; what only a person can mend ends the command, which may be repeated.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from federate.errors import (
    ClusterError,
    FederateError,
    Forbidden,
    LeadershipLost,
    Rejected,
    TargetChanged,
    Unauthorized,
)
from federate.leave.progress import Progress

POLL_SECONDS = 1.0
NO_ANSWER = "waiting for an answer"


class Patience:
    """Bounds all waiting of one command; `seconds` 0 waits for ever."""

    def __init__(self, seconds: float, progress: Progress) -> None:
        self._seconds = seconds
        self._clock = asyncio.get_running_loop().time
        self._ends_at = self._clock() + seconds if seconds else float("inf")
        self._progress = progress
        self._pauses: list[tuple[str, float]] = []

    async def until(self, step: str, attempt: Callable[[], Awaitable[str]]) -> None:
        """Repeat `attempt` until it returns ""; anything else says what is waited for.

        Raises:
            FederateError: the time is up, or only a person can help.
        """
        while True:
            try:
                state = await self._shown(attempt)
            except (TargetChanged, Forbidden, Unauthorized, Rejected):
                raise
            except (ClusterError, LeadershipLost) as error:
                state = f"trying again: {error}"
            if not state:
                return
            self._progress.now(state)
            if self._clock() >= self._ends_at:
                raise FederateError(
                    f"not done within {self._seconds:g} s: {step} ({state}). What is done stays "
                    "done; the same command goes on from here"
                )
            await asyncio.sleep(POLL_SECONDS)

    async def pause(self, why: str, seconds: float) -> None:
        """Wait inside an attempt, and have it said why, and how long still."""
        one = (why, self._clock() + seconds)
        self._pauses.append(one)
        try:
            await asyncio.sleep(seconds)
        finally:
            self._pauses.remove(one)

    async def _shown(self, attempt: Callable[[], Awaitable[str]]) -> str:
        """Make one attempt; while it lasts, say each second what is waited for."""
        async with ticking(self._say):
            return await attempt()

    def _say(self) -> None:
        if not self._pauses:
            self._progress.now(NO_ANSWER)
            return
        why, ends_at = max(self._pauses, key=lambda pause: pause[1])
        self._progress.now(why, left_seconds=math.ceil(max(0.0, ends_at - self._clock())))


@asynccontextmanager
async def ticking(say: Callable[[], None]) -> AsyncIterator[None]:
    """Call `say` each second as long as the block lasts."""

    async def go_on() -> None:
        while True:
            await asyncio.sleep(POLL_SECONDS)
            say()

    task = asyncio.create_task(go_on(), name="ticking")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def looking(progress: Progress, what: str) -> AsyncIterator[None]:
    """Say what is looked at, should it take long; nothing of it stays to be read."""
    progress.begin(what)
    try:
        async with ticking(lambda: progress.now(NO_ANSWER)):
            yield
    finally:
        progress.close()
