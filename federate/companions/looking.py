"""Ask for what no watch tells of: metadata by name, at a bounded pace.

On the hub that is what is beyond the limit of watches, or may not be watched. In the target it is
everything: Secrets are never listed or watched there, and of ConfigMaps a word may be missed.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

import structlog

from federate.cluster.port import ClusterPort
from federate.companions.keys import Kind
from federate.errors import ClusterError, Forbidden, NotFound
from federate.model.objects import ObjectKey, resource_version_of

log = structlog.stdlib.get_logger(__name__)

LOOKS_PER_SECOND = 20
"""Requests a second, to hub and target together. Fewer, and changes beyond the limit of watches
come later; more, and a large virtual node is felt by its API servers."""
HUB_SECONDS = 30.0
"""How old what is known of an object of the hub may be: all are asked for within this, or within as
many seconds as their number by the pace."""
TARGET_SECONDS = 300.0
"""The same of what stands in the target: nobody but us has business there."""
PERIOD_SECONDS = 1.0
AHEAD_SECONDS = 5.0
"""For how long in advance it is asked what will be due: to go through ten thousand companions takes
some 50 ms, which each second would be too often."""
MOST_UNDER_WAY = 20
"""Requests to one cluster that wait for an answer: where all of them hang, the other cluster's go
on."""
AGAIN_SECONDS = 10.0
"""How soon what could not be asked for is tried again: a cluster that refuses all of ten thousand
looks would else have the whole pace for itself."""

Subject: TypeAlias = tuple[str, Kind, ObjectKey]
"""An object of a cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One object to be asked for."""

    cluster: ClusterPort
    kind: Kind
    key: ObjectKey
    due_at: float
    known_version: str
    """"" where there was none."""
    is_due: Callable[[], bool]
    """Whether it is still to be asked for: nobody looked since."""
    confirmed: Callable[[], None]
    """It is as it was."""
    differs: Callable[[], None]

    @property
    def subject(self) -> Subject:
        """What it asks for: no two ask for the same at once."""
        return self.cluster.name, self.kind, self.key


class Looking:
    """`run` it until cancelled; `due` lists what is to be asked for until a time."""

    def __init__(
        self,
        *,
        due: Callable[[float], Iterable[Look]],
        count_read: Callable[[str], None],
        clock: Callable[[], float],
    ) -> None:
        self._due = due
        self._count_read = count_read
        self._clock = clock
        self._line: deque[tuple[float, Look]] = deque()
        """What is to be asked for next, in order, each not before its time."""
        self._lined_up_at = float("-inf")
        self._asking: set[Subject] = set()
        self._not_before: dict[Subject, float] = {}
        """What could not be asked for: its next try comes after those that were due meanwhile."""

    async def run(self) -> None:
        """Ask, oldest first."""
        async with asyncio.TaskGroup() as group:
            while True:
                await asyncio.sleep(PERIOD_SECONDS)
                for look in self._next():
                    self._asking.add(look.subject)
                    group.create_task(self._look(look))

    def _next(self) -> list[Look]:
        """Take from the line what is due now, as much as the pace and hanging requests allow."""
        now = self._clock()
        if now - self._lined_up_at >= AHEAD_SECONDS:
            self._line_up(now)
        under_way = Counter(name for name, *_ in self._asking)
        taken: list[Look] = []
        passed: list[tuple[float, Look]] = []
        while self._line and self._line[0][0] <= now and len(taken) < LOOKS_PER_SECOND:
            at, look = self._line.popleft()
            if under_way[look.cluster.name] >= MOST_UNDER_WAY:
                passed.append((at, look))
            elif look.is_due() and look.subject not in self._asking:
                under_way[look.cluster.name] += 1
                taken.append(look)
        self._line.extendleft(reversed(passed))
        return taken

    def _line_up(self, now: float) -> None:
        self._lined_up_at = now
        looks = {look.subject: look for look in self._due(now + AHEAD_SECONDS)}
        self._not_before = {what: at for what, at in self._not_before.items() if what in looks}
        timed = (
            (max(look.due_at, self._not_before.get(subject, look.due_at)), look)
            for subject, look in looks.items()
        )
        self._line = deque(sorted(timed, key=lambda one: one[0]))

    async def _look(self, look: Look) -> None:
        try:
            await self._ask(look)
        finally:
            self._asking.discard(look.subject)

    async def _ask(self, look: Look) -> None:
        self._count_read(look.cluster.name)
        try:
            found = await look.cluster.get(look.kind.resource, look.key, metadata_only=True)
            version = resource_version_of(found)
        except NotFound:
            version = ""
        except Forbidden:
            look.differs()  # whoever looks closer tells of it
            return
        except ClusterError as error:
            self._not_before[look.subject] = self._clock() + AGAIN_SECONDS
            log.debug("could not ask", kind=str(look.kind), key=str(look.key), error=str(error))
            return
        self._not_before.pop(look.subject, None)
        if version == look.known_version:
            look.confirmed()
        else:
            look.differs()
