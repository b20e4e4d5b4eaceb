"""Ask again until it is so: what every step of a leaving waits with.

What heals by itself (a hub or target that does not answer for a while, a conflict) is shown and
tried again; what only a person can mend ends the command, which may be repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from federate.errors import (
    ClusterError,
    FederateError,
    Forbidden,
    Rejected,
    TargetChanged,
    Unauthorized,
)
from federate.leave.progress import Progress

POLL_SECONDS = 1.0


class Patience:
    """Bounds all waiting of one command; `seconds` 0 waits for ever."""

    def __init__(self, seconds: float, progress: Progress) -> None:
        self._seconds = seconds
        self._clock = asyncio.get_running_loop().time
        self._ends_at = self._clock() + seconds if seconds else float("inf")
        self._progress = progress

    async def until(self, step: str, attempt: Callable[[], Awaitable[str]]) -> None:
        """Repeat `attempt` until it returns ""; anything else says what is waited for.

        Raises:
            FederateError: the time is up, or only a person can help.
        """
        while True:
            try:
                state = await attempt()
            except (TargetChanged, Forbidden, Unauthorized, Rejected):
                raise
            except ClusterError as error:
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
