"""Parts that run together end together."""

from __future__ import annotations

import asyncio

import pytest

from federate.errors import ConfigError, LeadershipLost
from federate.runtime.together import first_of, run_together
from tests.support.clock import virtual_time


@virtual_time
async def test_all_parts_run_to_their_end() -> None:
    """Without a failure it ends when the last part does."""
    ended: list[float] = []

    async def part(seconds: float) -> None:
        await asyncio.sleep(seconds)
        ended.append(seconds)

    await run_together(lambda: part(2.0), lambda: part(1.0))
    assert ended == [1.0, 2.0]


@virtual_time
async def test_the_first_failure_cancels_the_others_and_is_raised_bare() -> None:
    """Who failed is what is raised, and nobody runs on."""
    cancelled = asyncio.Event()

    async def lasting() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async def failing() -> None:
        await asyncio.sleep(1.0)
        raise ValueError("boom")

    with pytest.raises(ValueError, match="boom"):
        await run_together(lasting, failing)
    assert cancelled.is_set()


@virtual_time
async def test_cancelling_passes_through() -> None:
    """A cancelled whole cancels its parts, and stays a cancellation."""

    async def lasting() -> None:
        await asyncio.Event().wait()

    task = asyncio.create_task(run_together(lasting, lasting))
    await asyncio.sleep(1.0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("urgent", [LeadershipLost("l"), ConfigError("c")])
def test_what_must_be_acted_on_comes_first(urgent: Exception) -> None:
    """A lost lease is never hidden behind what broke because of it."""
    group = BaseExceptionGroup("g", [ValueError(), ExceptionGroup("h", [OSError(), urgent])])
    assert first_of(group) is urgent


def test_else_the_first_leaf() -> None:
    """Without anything urgent, the first failure is it, however deep."""
    first = ValueError()
    group = BaseExceptionGroup("g", [ExceptionGroup("h", [first]), OSError()])
    assert first_of(group) is first
