"""Virtual time: hours pass in a test as soon as nothing is left to do in the present.

`VirtualLoop` is an asyncio loop whose `time()` jumps to the next timer whenever nothing is ready.
Everything that measures with the loop's clock (asyncio.sleep, asyncio.timeout, call_later) and
everything that is handed `loop.time` as its clock moves together, exactly and without waiting.
"""

from __future__ import annotations

import asyncio
import functools
import selectors
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

__all__ = ["Deadlock", "ManualClock", "VirtualLoop", "run_virtual", "virtual_loop", "virtual_time"]

T = TypeVar("T")
P = ParamSpec("P")

START_SECONDS = 1000.0
"""Where virtual time starts: not zero, so that a forgotten start time shows."""
TIME_DECIMALS = 9
"""Virtual time is rounded to the loop's own resolution, so that sums of floats do not drift."""
LIMIT_SECONDS = 30 * 24 * 3600.0
"""Longest virtual time a test may take: a loop of retries that never ends is found out."""


class Deadlock(BaseException):
    """Every task waits, and there is no timer that could ever wake one."""


class _JumpingSelector(selectors.DefaultSelector):  # type: ignore[valid-type, misc, unused-ignore]
    """Polls instead of waiting, and tells the loop how long it would have waited."""

    def __init__(self) -> None:
        super().__init__()
        self.jump: Callable[[float | None], None] = lambda _seconds: None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events: list[tuple[selectors.SelectorKey, int]] = super().select(0)
        if not events and (timeout is None or timeout > 0):
            self.jump(timeout)
        return events


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time; threads and real sockets have no place in it."""

    def __init__(self) -> None:
        self._virtual_seconds = START_SECONDS
        selector = _JumpingSelector()
        super().__init__(selector)
        selector.jump = self._jump

    def time(self) -> float:
        return self._virtual_seconds

    def _jump(self, seconds: float | None) -> None:
        if seconds is None:
            raise Deadlock("every task waits, and no timer is set")
        self._virtual_seconds = round(self._virtual_seconds + seconds, TIME_DECIMALS)
        if self._virtual_seconds > START_SECONDS + LIMIT_SECONDS:
            raise Deadlock(f"the test did not end within {LIMIT_SECONDS:g} virtual seconds")


def virtual_loop() -> asyncio.AbstractEventLoop:
    """Return the running loop, which must be a virtual one."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` to its end on a fresh virtual loop, in debug mode."""
    with asyncio.Runner(debug=True, loop_factory=VirtualLoop) as runner:
        return runner.run(main)


def virtual_time(test: Callable[P, Awaitable[T]]) -> Callable[P, T]:
    """Make an `async def` test run in virtual time; fixtures are passed on."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        async def main() -> T:
            return await test(*args, **kwargs)

        return run_virtual(main())

    return run


class ManualClock:
    """A clock that moves only when told: for code without an event loop."""

    def __init__(self, seconds: float = START_SECONDS) -> None:
        self._seconds = seconds

    def __call__(self) -> float:
        return self._seconds

    def advance(self, seconds: float) -> None:
        self._seconds += seconds
