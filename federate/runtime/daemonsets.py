"""Look at the hub's DaemonSets now and then: the virtual nodes tell which of them tolerate them.

A right to list them is lent or not; without it nothing is told, and nothing else is missing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from random import Random

import structlog

from federate.cluster.port import ClusterPort
from federate.errors import ClusterError, Forbidden
from federate.model.objects import JsonDict, JsonObject
from federate.model.resources import DAEMONSETS
from federate.node.daemonsets import (
    DaemonSetsWord,
    daemonsets_word,
    lean_daemonset,
    traits_of,
)
from federate.policy.rules import DaemonSetMode

log = structlog.stdlib.get_logger(__name__)

LOOK_SECONDS = 60.0
GOOD_FOR_SECONDS = 50.0
"""How long a listing is told to others who ask: many virtual nodes are one question a minute."""


class HubDaemonSets:
    """The hub's DaemonSets, listed by one of all who ask; the others have the same answer."""

    def __init__(self, hub: ClusterPort, *, clock: Callable[[], float]) -> None:
        self._hub = hub
        self._clock = clock
        self._under_way = asyncio.Lock()
        self._known: Sequence[JsonDict] | None = None
        self._read_at = float("-inf")
        self._is_closed = False

    async def read(self) -> Sequence[JsonObject] | None:
        """Return what was listed not long ago, or list it; None where we may not.

        Raises:
            ClusterError: an answer did not come, and may another time.
        """
        async with self._under_way:
            if self._clock() - self._read_at >= GOOD_FOR_SECONDS:
                began_at = self._clock()
                self._known = await self._list()
                self._read_at = began_at
            return self._known

    async def _list(self) -> Sequence[JsonDict] | None:
        try:
            found = (await self._hub.list(DAEMONSETS, shrink=lean_daemonset)).items
        except Forbidden as error:
            if not self._is_closed:
                log.info("the virtual nodes do not tell of DaemonSets", error=str(error))
            self._is_closed = True
            return None
        self._is_closed = False
        return found


class DaemonSetsView:
    """What one virtual node has to say of the hub's DaemonSets."""

    def __init__(
        self,
        read: Callable[[], Awaitable[Sequence[JsonObject] | None]],
        *,
        mode: DaemonSetMode,
        tell: Callable[[], None],
        random: Random,
    ) -> None:
        """`tell` is called when there may be something else to say."""
        self._read = read
        self._mode = mode
        self._tell = tell
        self._random = random
        self._known: Sequence[JsonObject] | None = None

    def word(self, node: JsonObject) -> DaemonSetsWord | None:
        """Say which DaemonSets tolerate the Node as it stands; None where that is not known."""
        if self._known is None:
            return None
        return daemonsets_word(self._known, traits_of(node), self._mode)

    async def run(self) -> None:
        """Look, now and then, until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_SECONDS * self._random.uniform(0.9, 1.1))

    async def look(self) -> None:
        """Look once; what was known stands where no answer comes."""
        try:
            found = await self._read()
        except ClusterError as error:
            log.debug("DaemonSets could not be listed; trying again", error=str(error))
            return
        if found != self._known:
            self._known = found
            self._tell()
