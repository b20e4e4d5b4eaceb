"""Bound a rate: a burst at once, then so many a second."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


class RateBound:
    """A token bucket; `take` waits for its turn, in order of arrival."""

    def __init__(
        self,
        *,
        per_second: float,
        burst: int,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._interval_seconds = 1.0 / per_second
        self._burst_seconds = burst * self._interval_seconds
        self._clock = clock
        self._sleep = sleep
        self._next_at = float("-inf")

    async def take(self) -> None:
        """Wait until one more may go."""
        now = self._clock()
        self._next_at = max(self._next_at, now - self._burst_seconds) + self._interval_seconds
        wait_seconds = self._next_at - now
        if wait_seconds > 0:
            await self._sleep(wait_seconds)
