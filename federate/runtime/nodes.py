"""The virtual nodes of a process: each in a task of its own, started and ended one by one.

`plan_change` says what a new configuration asks for; a `NodeGroup` does it. What is not named in a
change is not touched by it (C2).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import structlog

from federate.runtime.settings import TargetSettings
from federate.runtime.virtual_node import VirtualNode

log = structlog.stdlib.get_logger(__name__)

TELL_WAITING_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """How to get from the virtual nodes that run to those that are wanted."""

    start: tuple[TargetSettings, ...] = ()
    restart: tuple[TargetSettings, ...] = ()
    """Present ones that are to be otherwise: what they shall be."""
    stop: tuple[TargetSettings, ...] = ()
    """As they were."""


def plan_change(running: Iterable[TargetSettings], wanted: Iterable[TargetSettings]) -> Change:
    """Compare by name; the order says nothing."""
    before = {target.name: target for target in running}
    after = {target.name: target for target in wanted}
    return Change(
        start=tuple(t for name, t in after.items() if name not in before),
        restart=tuple(t for name, t in after.items() if before.get(name, t) != t),
        stop=tuple(t for name, t in before.items() if name not in after),
    )


class Seat:
    """The place of one virtual node, taken from when it is wanted until it no longer is."""

    def __init__(self, settings: TargetSettings) -> None:
        self.settings = settings
        self.node: VirtualNode | None = None
        """None: one of that name, of settings of before, has not ended yet."""

    @property
    def is_ready(self) -> bool:
        """Tell whether its virtual node does its part."""
        return self.node is not None and self.node.is_ready


class NodeGroup:
    """The virtual nodes that are wanted, running."""

    def __init__(
        self,
        make: Callable[[TargetSettings], VirtualNode],
        *,
        forget: Callable[[str], None] = lambda _name: None,
    ) -> None:
        """`forget` is called with the name of a virtual node whenever one has ended."""
        self._make = make
        self._forget = forget
        self._seats: dict[str, tuple[Seat, asyncio.Task[None]]] = {}
        self._ending: dict[str, set[asyncio.Task[None]]] = {}
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def seats(self) -> Sequence[Seat]:
        """Return the places in the order in which they were taken."""
        return [seat for seat, _task in self._seats.values()]

    def become(self, wanted: Sequence[TargetSettings]) -> Change:
        """Start, end and start anew what differs; returns at once, having told what."""
        change = plan_change((seat.settings for seat in self.seats), wanted)
        for target in (*change.stop, *change.restart):
            self._vacate(target.name)
        for target in (*change.start, *change.restart):
            self._take(target)
        return change

    async def fail(self) -> None:
        """Wait until one of them fails.

        Raises:
            ConfigError: of a virtual node that is strict (see VirtualNode).
        """
        await asyncio.shield(self._failure)

    async def end(self) -> None:
        """End all of them, and return when they have ended."""
        self._failure.cancel()
        for name in list(self._seats):
            self._vacate(name)
        left = {task for tasks in self._ending.values() for task in tasks}
        if left:
            await asyncio.wait(left)

    def _take(self, target: TargetSettings) -> None:
        seat = Seat(target)
        earlier = frozenset(self._ending.get(target.name, ()))
        task = asyncio.create_task(self._sit(seat, earlier), name=f"virtual-node-{target.name}")
        self._seats[target.name] = (seat, task)
        task.add_done_callback(lambda task: self._on_end(target.name, task))

    def _vacate(self, name: str) -> None:
        seat, task = self._seats.pop(name)
        if seat.node is not None:
            seat.node.is_ending = True
        task.cancel()
        self._ending.setdefault(name, set()).add(task)

    async def _sit(self, seat: Seat, earlier: frozenset[asyncio.Task[None]]) -> None:
        """Run one virtual node, once nothing of its name runs any more: two would be two."""
        name = seat.settings.name
        while any(not task.done() for task in earlier):
            _, left = await asyncio.wait(earlier, timeout=TELL_WAITING_SECONDS)
            if left:
                log.warning("the virtual node of before has not ended yet", node=name)
        seat.node = self._make(seat.settings)
        try:
            await seat.node.run()
        finally:
            self._forget(name)

    def _on_end(self, name: str, task: asyncio.Task[None]) -> None:
        ending = self._ending.get(name, set())
        is_wanted = task not in ending
        ending.discard(task)
        if not ending:
            self._ending.pop(name, None)
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        if not is_wanted:
            log.warning("virtual node did not end cleanly", node=name, error=str(error))
        elif not self._failure.done():
            self._failure.set_exception(error)
