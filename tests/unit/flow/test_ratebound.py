"""The token bucket in virtual time."""

from __future__ import annotations

import asyncio

from federate.flow.ratebound import RateBound
from tests.support.clock import virtual_loop, virtual_time


def bound(*, per_second: float = 10.0, burst: int = 5) -> RateBound:
    return RateBound(per_second=per_second, burst=burst, clock=virtual_loop().time)


async def take(rate: RateBound, count: int) -> list[float]:
    """When each of `count` simultaneous askers got its turn, from now."""
    began = virtual_loop().time()

    async def one() -> float:
        await rate.take()
        return round(virtual_loop().time() - began, 3)

    return await asyncio.gather(*(one() for _ in range(count)))


@virtual_time
async def test_a_burst_then_the_rate() -> None:
    """The burst goes at once, the rest one by one, in order of arrival."""
    assert await take(bound(), 8) == [0, 0, 0, 0, 0, 0.1, 0.2, 0.3]


@virtual_time
async def test_rest_gives_the_burst_back_and_no_more() -> None:
    """However long it rested, no more than a burst goes at once."""
    rate = bound()
    await take(rate, 8)
    await asyncio.sleep(1000.0)
    assert await take(rate, 7) == [0, 0, 0, 0, 0, 0.1, 0.2]


@virtual_time
async def test_never_more_than_burst_and_rate_allow() -> None:
    """Over any stretch the count stays within burst plus rate times its length."""
    rate, taken = bound(), 0
    began = virtual_loop().time()
    while virtual_loop().time() - began < 10.0:
        await rate.take()
        taken += 1
        await asyncio.sleep(0.03)
    assert 99 <= taken <= 106
