"""Carry the bytes of two upgraded connections, each to the other, until one of them ends.

What the bytes mean (SPDY, WebSocket) is between the two ends. Both speak TLS, where a connection
cannot be ended in one direction only: asyncio ends both, and so do API servers. What half-closes
`kubectl` needs (the end of stdin, of one side of a forwarded connection) travels in the bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from enum import Enum, StrEnum

from federate.kubelet.ports import Upgraded

MOST_AT_ONCE = 262_144
"""Bytes read at once: a reader that is behind catches up in few steps."""


class Direction(StrEnum):
    """Which way bytes go."""

    IN = "in"
    """From the hub to the target."""
    OUT = "out"
    """From the target to the hub."""


Moved = Callable[[Direction, int], None]
"""Counts bytes that were handed on."""


def ignore_moves(direction: Direction, count: int) -> None:
    """Count nothing."""


async def relay(hub: Upgraded, target: Upgraded, *, moved: Moved = ignore_moves) -> None:
    """Carry bytes both ways; returns when one side ended and all that it sent was passed on.

    Both are closed then, at once where this is cancelled. A slow reader on one side holds up the
    writer on the other, and only a few hundred kilobytes lie between. Nothing is bounded in time.
    """
    into = asyncio.create_task(_pump(hub, target, Direction.IN, moved))
    out = asyncio.create_task(_pump(target, hub, Direction.OUT, moved))
    try:
        await asyncio.wait((into, out), return_when=asyncio.FIRST_COMPLETED)
        # A side that takes no more may have sent its last words before: an exec that ended.
        if _ending(into) is _Ending.SINK_BROKE or _ending(out) is _Ending.SINK_BROKE:
            await asyncio.wait((into, out))
        if _ending(out) is _Ending.SOURCE_ENDED:
            await _finish(hub, other=target, pump=into)
        elif _ending(into) is _Ending.SOURCE_ENDED:
            await _finish(target, other=hub, pump=out)
    finally:
        hub.close()
        target.close()
        await _stop(into, out)


class _Ending(Enum):
    SOURCE_ENDED = "in order or not, no more comes from there"
    SINK_BROKE = "nothing more can be sent there"


async def _pump(source: Upgraded, sink: Upgraded, direction: Direction, moved: Moved) -> _Ending:
    while True:
        try:
            data = await source.read(MOST_AT_ONCE)
        except OSError:
            data = b""
        if not data:
            return _Ending.SOURCE_ENDED
        try:
            await sink.write(data)
        except OSError:
            return _Ending.SINK_BROKE
        moved(direction, len(data))


def _ending(pump: asyncio.Task[_Ending]) -> _Ending | None:
    return pump.result() if pump.done() else None


async def _finish(sink: Upgraded, *, other: Upgraded, pump: asyncio.Task[_Ending]) -> None:
    """Let `sink` take the rest; of `other`, which has ended, nothing is held meanwhile."""
    await _stop(pump)
    other.close()
    with suppress(OSError):
        await sink.finish()


async def _stop(*pumps: asyncio.Task[_Ending]) -> None:
    for pump in pumps:
        pump.cancel()
    await asyncio.gather(*pumps, return_exceptions=True)
