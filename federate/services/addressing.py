"""Keep deciding whether addresses are shown: read the ranges of both sides, now and then.

What was decided stands while a side does not answer, and until a second look where a range is not
known any more: a new node may have none yet. At a start nothing is decided yet, and what hub pods
show stays as it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random

import structlog

from federate.errors import ClusterError
from federate.model.reasons import NodeReason
from federate.services.addresses import (
    UNDECIDED,
    AddressDecision,
    Showing,
    decide_addresses,
    elder_neighbours,
)
from federate.services.ranges import RangeSources, cautious_ranges_of
from federate.services.rules import AddressMode

log = structlog.stdlib.get_logger(__name__)

LOOK_SECONDS = 300.0
"""How long it may go unnoticed that a cluster was given a range that the other one has, too."""
RETRY_SECONDS = 15.0
SETTLE_SECONDS = 60.0
"""How long after a decision pods may not be as it says: they follow one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressPorts:
    """What the decision rests on, and who is told."""

    read_hub: Callable[[], Awaitable[RangeSources]]
    """May be `reading.SharedRanges.read`: each virtual node asks."""
    read_target: Callable[[], Awaitable[RangeSources]]
    node_name: str
    target_name: str
    target_identity: Callable[[], str]
    """The target's identity as it is on record, "" while that is not known."""
    target_reachable: Callable[[], bool]
    changed: Callable[[], None]
    """Another decision: every pod is to be looked at, and the Node told."""
    clock: Callable[[], float]
    random: Random


class Addressing:
    """What is decided for one target; `run` it until cancelled."""

    def __init__(self, mode: AddressMode, ports: AddressPorts) -> None:
        self._mode = mode
        self._ports = ports
        self._decided_at = float("-inf")
        self._is_in_doubt = False
        """The last look did not find a range that was known; another one decides."""
        self.decision: AddressDecision = UNDECIDED
        if mode is AddressMode.HIDE:
            self.decision = self._decide(RangeSources(), RangeSources())

    @property
    def is_settled(self) -> bool:
        """Whether a pod without an address is one whose address is hidden."""
        is_old = self._ports.clock() - self._decided_at >= SETTLE_SECONDS
        is_hidden = self.decision.showing is Showing.HIDE
        return is_hidden or (self.decision.showing is Showing.REFLECT and is_old)

    async def run(self) -> None:
        """Decide, and again now and then."""
        while True:
            pause = await self._look_if_possible()
            await asyncio.sleep(pause * self._ports.random.uniform(0.8, 1.0))

    async def _look_if_possible(self) -> float:
        if self._mode is AddressMode.HIDE:
            return LOOK_SECONDS
        if not self._ports.target_reachable():
            return RETRY_SECONDS
        try:
            await self.look()
        except ClusterError as error:
            log.debug("address ranges cannot be read", error=str(error))
            return RETRY_SECONDS
        return RETRY_SECONDS if self._is_in_doubt else LOOK_SECONDS

    async def look(self) -> None:
        """Read both sides and decide.

        Raises:
            ClusterError: one of them does not answer; what was decided stands.
        """
        hub = await self._ports.read_hub()
        target = await self._ports.read_target()
        decision = self._decide(hub, target)
        self._is_in_doubt = not self._is_in_doubt and self._is_doubtful(decision)
        if self._is_in_doubt or decision == self.decision:
            return
        self.decision = decision
        self._decided_at = self._ports.clock()
        log.info(
            "addresses of pods",
            showing=str(self.decision.showing),
            reason=str(self.decision.reason),
            message=self.decision.message,
        )
        self._ports.changed()

    def _is_doubtful(self, decision: AddressDecision) -> bool:
        """Tell whether addresses would be taken back for a node that may have no range yet."""
        is_shown = self.decision.showing is Showing.REFLECT
        return is_shown and decision.reason is NodeReason.RANGES_UNKNOWN

    def _decide(self, hub: RangeSources, target: RangeSources) -> AddressDecision:
        ports = self._ports
        return decide_addresses(
            self._mode,
            hub=cautious_ranges_of(hub),
            target=cautious_ranges_of(target),
            target_name=ports.target_name,
            neighbours=elder_neighbours(
                hub.nodes or (),
                node_name=ports.node_name,
                target_identity=ports.target_identity(),
            ),
        )
