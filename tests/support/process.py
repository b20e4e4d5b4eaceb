"""A federate process between two clusters in memory: the product's own mirroring, in virtual time.

Nothing of its memory outlives it. `Lives` starts one after the other, as a supervisor and a leader
lease do, and lets a stopped one go on beside its successor (C70).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta

from federate.claims.rules import ClaimRules
from federate.companions.rules import CompanionRules
from federate.errors import ClusterError, LeadershipLost
from federate.mirror.steps import Lane
from federate.model.naming import NamespaceRules
from federate.model.objects import ObjectKey
from federate.model.resources import NODES
from federate.node.anchors import NodeAnchors
from federate.policy.rules import PolicyRules
from federate.runtime.lags import PodLags
from federate.runtime.mirroring import NO_NETWORK, Mirroring, MirroringPorts, MirroringRules, Timing
from federate.services.rules import NetworkRules
from tests.support.fakeclient import Crash, FakeClient, Ice
from tests.support.fakecluster import EPOCH
from tests.support.scene import RULES, SCOPE, NoEvents, Told, agreed

WITHOUT_COMPANIONS = CompanionRules(are_made=False)


def _not_ours() -> None:
    raise LeadershipLost("another leads")


class Process:
    """What runs of federate for one virtual node, from start to crash: the product's mirroring.

    `with_nets` adds the comparisons and the sweeper, as a leader runs them.
    """

    def __init__(
        self,
        hub: FakeClient,
        target: FakeClient,
        *,
        clock: Callable[[], float],
        target_reachable: Callable[[], bool] = lambda: True,
        workers: int = 3,
        with_nets: bool = True,
        namespaces: NamespaceRules,
        companions: CompanionRules = WITHOUT_COMPANIONS,
        claims: ClaimRules | None = None,
        network: NetworkRules = NO_NETWORK,
        policy: PolicyRules | None = None,
    ) -> None:
        self.hub, self.target = hub, target
        self._clock = clock
        self.events = NoEvents()
        self.fence: Callable[[], None] = lambda: None
        self.is_fenced = False
        self.with_nets = with_nets
        self.register = NodeAnchors(hub=hub, scope=SCOPE, fence=lambda: self.fence())
        self.mirror_lags: list[float] = []
        self.status_lags: list[float] = []
        self.object_events = Told()
        render = replace(
            RULES.render, claims=claims or ClaimRules(), policy=policy or RULES.render.policy
        )
        self.mirroring = Mirroring(
            MirroringRules(
                scope=SCOPE,
                namespaces=namespaces,
                plan=replace(RULES, render=render),
                companions=companions,
                network=network,
            ),
            MirroringPorts(
                hub=hub,
                target=target,
                events=self.events,
                object_events=self.object_events,
                fence=lambda: self.fence(),
                fence_target=lambda: None,
                confirm_hub=agreed,
                confirm_target=agreed,
                register=self.register,
                target_reachable=target_reachable,
                admit=lambda: None,
                hub_pod_changed=lambda _change: None,
                mirror_changed=lambda _change: None,
                anchor_changed=lambda: None,
                watch_gap=lambda _cluster, _resource: None,
                orphan_deleted=lambda: None,
                lags=PodLags(
                    mirrored=self.mirror_lags.append, told=self.status_lags.append, clock=clock
                ),
            ),
            Timing(
                clock=clock,
                now=lambda: EPOCH + timedelta(seconds=clock()),
                random=random.Random(7),
            ),
            workers=dict.fromkeys(Lane, workers),
        )
        self.hub_pods, self.mirrors = self.mirroring.hub_pods, self.mirroring.mirrors
        self.queue, self.pods = self.mirroring.queue, self.mirroring.pods

    def close_fence(self) -> None:
        """It leads no more, and knows it."""
        self.is_fenced = True
        self.fence = _not_ours
        self.hub.fenced_at = self.target.fenced_at = self._clock()

    def wake_all(self) -> None:
        self.mirroring.wake_all()

    async def run(self) -> None:
        """Run until cancelled or crashed, in the order of a leader."""
        await self._learn()
        async with asyncio.TaskGroup() as group:
            reflectors = self.mirroring.open()
            for reflector in reflectors:
                group.create_task(reflector.run())
            for reflector in reflectors:
                await reflector.synced.wait()
            group.create_task(self.mirroring.work())
            if self.with_nets:
                for net in self.mirroring.nets().values():
                    group.create_task(net())

    async def _learn(self) -> None:
        """Take over the Node's memory, as a leader does from its own watch of it."""
        while True:
            try:
                self.register.learn(await self.hub.get(NODES, ObjectKey("", SCOPE.node_name)))
            except ClusterError:
                await asyncio.sleep(0.5)
            else:
                return


@dataclass(frozen=True, slots=True, kw_only=True)
class Zombie:
    """How a stopped process comes back beside its successor."""

    successor_after: float = 15.0
    """A leader lease is free after that time."""
    thaws_after: float = 25.0
    blind_for: float = 0.0
    """So long it does not notice that it leads no more: its fence stays open."""


class Lives:
    """Starts `begin()` whenever nobody leads any more; the latest process leads."""

    def __init__(self, begin: Callable[[Ice], Process]) -> None:
        self._begin = begin
        self.count = 0
        self.process: Process
        self.task: asyncio.Task[None] | None = None
        self.zombie = Zombie()
        self.complaints: list[str] = []
        self._ice = Ice()
        self._dead: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Let one process follow another until cancelled."""
        try:
            while True:
                self.count += 1
                self._ice = Ice()
                self.process = self._begin(self._ice)
                self.task = asyncio.create_task(self.process.run())
                stopped = asyncio.create_task(self._ice.frozen.wait())
                await asyncio.wait({self.task, stopped}, return_when=asyncio.FIRST_COMPLETED)
                stopped.cancel()
                if self.task.done():
                    self._judge(self.task, LeadershipLost if self.process.is_fenced else Crash)
                    await asyncio.sleep(0.1)
                else:
                    self._haunt(self.process, self.task, self._ice, self.zombie)
                    await asyncio.sleep(self.zombie.successor_after)
        finally:
            tasks = [*self._dead, *([self.task] if self.task else [])]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def kill(self) -> None:
        """The leading process dies wherever it stands."""
        if self.task is not None:
            self.task.cancel()

    @property
    def are_haunted(self) -> bool:
        """Tell whether a stopped process has not ended yet."""
        return bool(self._dead)

    def _haunt(self, process: Process, task: asyncio.Task[None], ice: Ice, how: Zombie) -> None:
        haunting = asyncio.create_task(self._end(process, task, ice, how))
        self._dead.add(haunting)
        haunting.add_done_callback(self._dead.discard)

    async def _end(self, process: Process, task: asyncio.Task[None], ice: Ice, how: Zombie) -> None:
        try:
            if not how.blind_for:
                process.close_fence()
            await asyncio.sleep(how.thaws_after)
            ice.thaw()
            if how.blind_for:
                await asyncio.wait({task}, timeout=how.blind_for)
                process.close_fence()
            await asyncio.wait({task}, timeout=5.0)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            self._judge(task, LeadershipLost)

    def _judge(self, task: asyncio.Task[None], expected: type[BaseException]) -> None:
        ended = None if task.cancelled() else task.exception()
        if ended is not None and not _only(ended, expected):
            self.complaints.append(f"the process ended: {ended!r}")


def _only(error: BaseException, kind: type[BaseException]) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(_only(one, kind) for one in error.exceptions)
    return isinstance(error, (kind, Crash, asyncio.CancelledError))
