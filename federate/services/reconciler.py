"""The hub Services that follow into one target: which are to be looked at, and where each stands.

Pods tell where a hub namespace lives; a watch of the hub's Services and one of those that stand in
the target tell what changed. Each makes keys for one queue, whose workers carry out rounds. Where a
Service came to rest is `known` until something changes.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

import structlog

from federate.cluster.reflector import Reflector
from federate.cluster.store import Change, Store
from federate.companions.steps import Blocked
from federate.flow.controller import Again, Controller, Done, Outcome
from federate.flow.workqueue import WorkQueue
from federate.model.objects import JsonObject, key_of, resource_version_of, uid_of
from federate.model.resources import SERVICES
from federate.services.following import (
    ServiceKey,
    is_followed,
    is_marked,
    is_owned,
    service_of,
    services_selector,
)
from federate.services.population import Move, Place, Population
from federate.services.ports import ServicePorts
from federate.services.refusals import Memory
from federate.services.round import Need, ServiceRound, Settled
from federate.services.rules import FollowMode
from federate.services.steps import Rest, Standing
from federate.services.watched import HubObjects

log = structlog.stdlib.get_logger(__name__)

NOT_FOLLOWED = "ServiceNotFollowed"
"""Reason of the Event that a hub Service gets; its words begin with the reason in detail."""

LINGER_SECONDS = 60.0
"""How long a Service stays where no pods are: a roll-out ends the old ones and starts new ones.
Longer, and a name leads to nobody; shorter, and its address changes for nothing."""
PASS_SECONDS = 60.0
"""How often what stands in the target is compared with what ought to; events come first."""
UNREACHABLE_SECONDS = 5.0
MOST_DOUBTS = 3
"""Rounds in a row that were overtaken by another change before their result counts all the same."""


class Lane(StrEnum):
    """Budgets of workers."""

    KEEP = "keep"
    REMOVE = "remove"


WORKERS: Mapping[str, int] = {Lane.KEEP: 8, Lane.REMOVE: 4}
"""Requests under way: each waits for one round trip at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """Where a Service came to rest, and of which versions that is true; "" for an absent one."""

    rest: Rest
    hub_version: str | None
    companion_version: str | None


class Follower:
    """All Services that follow into one target, for one virtual node."""

    def __init__(
        self,
        ports: ServicePorts,
        *,
        mode: FollowMode,
        population: Population,
        services: HubObjects,
        workers: Mapping[str, int] = WORKERS,
        linger_seconds: float = LINGER_SECONDS,
    ) -> None:
        self._ports = ports
        self._mode = mode
        self._population = population
        self._services = services
        self._workers = workers
        self._linger_seconds = linger_seconds
        self.companions = Store(deleted_limit=0)
        self.reflectors: tuple[Reflector, ...] = ()
        self.queue: WorkQueue[ServiceKey] = WorkQueue(
            lanes=tuple(Lane),
            clock=ports.clock,
            random=ports.random,
            fair_by=lambda key: key.namespace,
        )
        self._known: dict[ServiceKey, Known] = {}
        self._memories: dict[ServiceKey, Memory] = {}
        self._unwanted_since: dict[ServiceKey, float] = {}
        self._rounds: dict[ServiceKey, ServiceRound] = {}
        self._doubts: Counter[ServiceKey] = Counter()
        services.listen(self._on_hub_service)

    # -- from events to keys -----------------------------------------------------------------------

    def on_move(self, move: Move) -> None:
        """Take note that pods began to live somewhere, or ended."""
        if move.begun is not None:
            for key in self._keys_at(move.begun):
                self._unwanted_since.pop(key, None)
                self.enqueue(key)
        if move.ended is not None:
            for key in self._keys_at(move.ended):
                self._part_with(key)

    def on_anchor(self, change: Change) -> None:
        """Look at what an anchor owns where it came, went, or is another one."""
        old, new = change.old, change.new
        if old is not None and new is not None and uid_of(old) == uid_of(new):
            return
        for place in self._population.places():
            if place.target_namespace == change.key.namespace:
                self._differs_all(place)

    def wake_all(self) -> None:
        """The target is back, or an operator spoke: look at all that has not come to rest."""
        for key in self._wanted():
            known = self._known.get(key)
            if known is None or known.rest.standing in (Standing.BLOCKED, Standing.WAITING):
                self.enqueue(key)

    def enqueue(self, key: ServiceKey) -> None:
        """Have one looked at."""
        self.queue.add(key, Lane.KEEP if self._is_wanted(key) else Lane.REMOVE)

    def _part_with(self, key: ServiceKey) -> None:
        """No pods want it: let it linger, and then see."""
        self._unwanted_since[key] = self._ports.clock()
        lingers = 0.0 if self._ports.leaving() else self._linger_seconds
        self.queue.add_after(key, Lane.REMOVE, lingers)

    def _on_hub_service(self, change: Change) -> None:
        shown = change.new or change.old
        if shown is None:
            return
        version = resource_version_of(change.new) if change.new is not None else ""
        for place in self._population.places_of(change.key.namespace):
            if not self._is_by_rule(place):
                continue
            key = ServiceKey(place.target_namespace, *change.key)
            under_way, known = self._rounds.get(key), self._known.get(key)
            if under_way is not None:
                under_way.hub_seen = version
            elif known is not None and known.hub_version != version:
                self._differs(key)
            elif known is None and is_followed(shown, self._mode):
                self.enqueue(key)

    def _on_companion(self, change: Change) -> None:
        shown = change.new or change.old
        key = service_of(self._ports.scope, shown) if shown is not None else None
        if key is None:
            return
        version = resource_version_of(change.new) if change.new is not None else ""
        under_way, known = self._rounds.get(key), self._known.get(key)
        if under_way is not None:
            under_way.companion_seen = version
        elif self._is_wanted(key) and (known is None or known.companion_version != version):
            self._differs(key)

    def _differs(self, key: ServiceKey) -> None:
        self._known.pop(key, None)
        self.enqueue(key)

    def _differs_all(self, place: Place) -> None:
        for key in self._keys_at(place):
            self._differs(key)

    # -- what is wanted ----------------------------------------------------------------------------

    def _keys_at(self, place: Place) -> list[ServiceKey]:
        """List the Services that follow there by the watch; which may be behind."""
        return [
            ServiceKey(place.target_namespace, *key_of(service))
            for service in self._services.in_namespace(place.namespace)
            if self._is_by_rule(place) and is_followed(service, self._mode)
        ]

    def _is_by_rule(self, place: Place) -> bool:
        """Tell whether mirrors stand there by today's rules; a pod's record may say anything."""
        return self._ports.target_namespace(place.namespace) == place.target_namespace

    def _is_wanted(self, key: ServiceKey) -> bool:
        place = Place(key.namespace, key.target_namespace)
        return self._population.lives_at(place) and self._is_by_rule(place)

    def _wanted(self) -> Iterator[ServiceKey]:
        for place in self._population.places():
            yield from self._keys_at(place)

    def standing(self) -> frozenset[ServiceKey]:
        """Return what stands in the target and is this virtual node's, or nobody's."""
        scope = self._ports.scope
        found = set()
        for service in self.companions.values():
            key = service_of(scope, service)
            if key is not None and is_owned(scope, service):
                found.add(key)
        return frozenset(found)

    def counts(self) -> Mapping[str, int]:
        """Count what is wanted by where it stands."""
        return Counter(
            str(self._known[key].rest.standing) if key in self._known else "coming"
            for key in self._wanted()
        )

    # -- one key -----------------------------------------------------------------------------------

    async def reconcile(self, key: ServiceKey, lane: str) -> Outcome:
        """Bring a Service to what it ought to be, as far as it goes now."""
        instead = self._ports.admit()
        if instead is not None:
            return instead
        if not self._ports.target_reachable():
            return Again(UNREACHABLE_SECONDS)
        under_way = self._rounds[key] = ServiceRound(
            key,
            mode=self._mode,
            ports=self._ports,
            memory=self._memories.setdefault(key, Memory()),
            need=partial(self._need, key),
        )
        try:
            settled = await under_way.run()
        finally:
            del self._rounds[key]
        self._take(key, settled, under_way)
        return Done() if settled.again_seconds is None else Again(settled.again_seconds)

    def _need(self, key: ServiceKey) -> Need:
        if self._is_wanted(key):
            self._unwanted_since.pop(key, None)
            return Need(is_wanted=True)
        now = self._ports.clock()
        since = self._unwanted_since.setdefault(key, now)
        lingers = 0.0 if self._ports.leaving() else since + self._linger_seconds - now
        return Need(is_wanted=False, lingers_seconds=max(0.0, lingers))

    def _take(self, key: ServiceKey, settled: Settled, under_way: ServiceRound) -> None:
        """Take over how a round ended, and tell what does not follow."""
        rest, before = settled.rest, self._known.get(key)
        if not self._is_wanted(key) and settled.again_seconds is None:
            self._forget(key)
            return
        if rest is None:
            return
        if _is_overtaken(settled, under_way):
            self._doubts[key] += 1
            self.enqueue(key)
            if self._doubts[key] < MOST_DOUBTS:
                self._known.pop(key, None)
                return
        self._doubts.pop(key, None)
        self._known[key] = Known(
            rest=rest,
            hub_version=settled.hub_version,
            companion_version=settled.companion_version,
        )
        is_news = before is None or before.rest.blocked != rest.blocked
        if rest.blocked is not None and is_news and settled.hub_service is not None:
            self._tell(settled.hub_service, rest.blocked)

    def _tell(self, hub_service: JsonObject, blocked: Blocked) -> None:
        self._ports.events.event(
            SERVICES,
            hub_service,
            reason=NOT_FOLLOWED,
            note=f"{blocked.reason}: {blocked.message}",
            action="Follow",
        )

    def _forget(self, key: ServiceKey) -> None:
        for known in (self._known, self._unwanted_since, self._doubts):
            known.pop(key, None)
        memory = self._memories.get(key)
        if memory is not None and not memory.stripped_uid:
            del self._memories[key]

    # -- running -----------------------------------------------------------------------------------

    def parts(self) -> Mapping[str, Callable[[], Coroutine[None, None, None]]]:
        """Name what runs beside each other, each until cancelled."""
        self.reflectors = tuple(map(self._reflect, self._ports.watched()))
        return {
            "services-work": self.work,
            "services-pass": self._pass_by,
            **{reflector.name: reflector.run for reflector in self.reflectors},
        }

    def _reflect(self, namespace: str) -> Reflector:
        scope = self._ports.scope
        return Reflector(
            self._ports.target,
            SERVICES,
            self.companions,
            name=f"followed-services-{namespace}" if namespace else "followed-services",
            namespace=namespace,
            label_selector=services_selector(scope),
            matches=partial(is_marked, scope),
            metadata_only=True,
            on_change=self._on_companion,
            clock=self._ports.clock,
            jitter=self._ports.random.random,
        )

    async def work(self) -> None:
        """Reconcile what is queued until cancelled."""
        controller = Controller(
            f"{self._ports.scope.node_name}-services",
            self.queue,
            self.reconcile,
            self._workers,
            context={"kind": "Service"},
        )
        await controller.run()

    async def _pass_by(self) -> None:
        while True:
            await asyncio.sleep(PASS_SECONDS)
            self.sweep()

    def sweep(self) -> frozenset[ServiceKey]:
        """Have looked at what is there and not wanted, or wanted and not known: the net.

        Nothing is deleted on its word: the round asks both sides.
        """
        if not self._services.is_known:
            return frozenset()
        wanted = set(self._wanted())
        due = (self.standing() - wanted) | (wanted - self._known.keys())
        for key in sorted(due):
            self.enqueue(key)
        return frozenset(due)


def _is_overtaken(settled: Settled, under_way: ServiceRound) -> bool:
    """Tell whether another version was seen than the round ended with."""
    return any(
        seen is not None and ended is not None and seen != ended
        for seen, ended in (
            (under_way.hub_seen, settled.hub_version),
            (under_way.companion_seen, settled.companion_version),
        )
    )
