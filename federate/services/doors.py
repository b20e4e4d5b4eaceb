"""The names of the hub's API server in one target: where they lead, and what keeps leading there.

Pods ask before their mirrors are made. Where the names lead straight to an address there is nothing
to keep. Else each target namespace of the virtual node has its door: made for the first pod that
asks, looked after while pods live there. A pod waits for it, since its mirror cannot be told later;
where the target refuses it, the pod starts all the same, and an Event says where its names lead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import NamedTuple

import structlog

from federate.cluster.store import Change
from federate.companions.holding import Hold
from federate.companions.steps import Blocked
from federate.errors import ClusterError, Forbidden, NotFound, Rejected
from federate.flow.controller import Again, Controller, Done, Outcome
from federate.flow.workqueue import WorkQueue
from federate.model.objects import JsonObject, ObjectKey, key_of, uid_of
from federate.model.reasons import PodReason
from federate.model.resources import PODS
from federate.services.door import DoorReason, Rest
from federate.services.doorround import DoorRound
from federate.services.hubnames import (
    UNLED,
    USUAL_DOMAIN,
    HubApi,
    Straight,
    ThroughDoor,
    Way,
    domain_by,
    is_address,
)
from federate.services.population import Move, Population
from federate.services.ports import ServicePorts

log = structlog.stdlib.get_logger(__name__)

LANE = "door"
WORKERS: Mapping[str, int] = {LANE: 4}

LOOK_SECONDS = 120.0
"""How long a door that somebody removed or changed may stay so: the names lead nowhere."""
SETTLE_SECONDS = 3.0
"""How long after a change of a door no pod is led to it: kube-proxies take a second or two. Before,
a packet to a new Service leaves the node for whoever has its address outside."""
OLD_SECONDS = 2 * LOOK_SECONDS
"""How long what was seen of a door counts where nobody looks after it."""
BLOCKED_SECONDS = 60.0
"""How long a right that was given later may go unused."""
ENDING_SECONDS = 2.0
PATIENCE_SECONDS = 60.0
"""How long pods wait for what ought to pass by itself, before they start without the names."""
MOST_FORMER = 4
"""Addresses that a door had: one of each family, and some spare."""
UNREACHABLE_SECONDS = 5.0
RESOLVE_SECONDS = 60.0
"""How long the names may lead to an address that the hub's name has no more."""
RESOLVE_TIMEOUT_SECONDS = 5.0
TRIES = 3
TRY_SECONDS = 1.0
"""A DNS that says nothing just then is asked again before pods start without the names."""


ISSUER_PATH = "/.well-known/openid-configuration"

DOMAIN = "the cluster domain of the hub"
"""What a pod that waits for it is told."""


class _Known(NamedTuple):
    """Where a door came to rest, and when it was looked at."""

    rest: Rest
    seen_at: float


class DoorKey(NamedTuple):
    """The door of one target namespace; what a pod that waits for it is told."""

    target_namespace: str

    def __str__(self) -> str:
        return f"the Service of namespace {self.target_namespace} for the hub's API server"


class Doors:
    """Where the names lead, for one virtual node. Start what `parts` names."""

    def __init__(self, way: Way, ports: ServicePorts, *, population: Population) -> None:
        self._way = way
        self._ports = ports
        self._population = population
        self._resolving = asyncio.Lock()
        self._asked_at = float("-inf")
        """When the DNS was asked for the advertised host."""
        self._addresses: tuple[str, ...] = ()
        """Of the advertised host; () where its name was not resolved yet, or cannot be."""
        if isinstance(way, ThroughDoor) and is_address(way.host):
            self._addresses = (way.host,)
        self.queue: WorkQueue[DoorKey] = WorkQueue(
            lanes=(LANE,), clock=ports.clock, random=ports.random
        )
        self._known: dict[DoorKey, _Known] = {}
        self._addressed: dict[DoorKey, tuple[str, ...]] = {}
        """What mirrors were told there, the last first."""
        self._settled_at: dict[DoorKey, float] = {}
        self._ending_since: dict[DoorKey, float] = {}
        self._lost: dict[DoorKey, str] = {}
        """An address that mirrors have there in vain, until that is told."""
        self._in_hand: set[DoorKey] = set()
        self._waiting: dict[DoorKey, set[ObjectKey]] = {}
        self._told: dict[DoorKey, str] = {}
        """By which reason pods there start without the names, once that was told."""
        self._domain: str | None = None
        """The hub's cluster domain; None: not asked yet."""
        self._waiting_for_domain: set[ObjectKey] = set()

    # -- asked and told ----------------------------------------------------------------------------

    def hold(self, hub_pod: JsonObject, target_namespace: str) -> Hold | None:
        """Say that a pod waits for the door; None: it may start."""
        if self._domain is None:
            self._waiting_for_domain.add(key_of(hub_pod))
            return Hold(coming=(DOMAIN,))
        if isinstance(self._way, Straight):
            return None
        key = DoorKey(target_namespace)
        rest = self._rest_of(key)
        if rest is None:
            self._waiting.setdefault(key, set()).add(key_of(hub_pod))
            # In a hand it is on its way; where it failed, or was just made, it has its time,
            # however many pods ask.
            is_timed = self._settling_seconds(key) > 0 or self.queue.failures(key)
            if key not in self._in_hand and not is_timed:
                self._enqueue(key)
            return Hold(coming=(key,))
        return None

    def on_made(self, hub_pod: JsonObject, target_namespace: str) -> None:
        """Take note that a pod has its mirror: if it had to do without the names, tell it."""
        key = DoorKey(target_namespace)
        rest, lost = self._rest_of(key), self._lost.pop(key, "")
        blocked = rest.blocked if rest is not None else None
        if blocked is not None and self._told.get(key) != blocked.reason:
            self._told[key] = blocked.reason
            self._tell(hub_pod, self._unled_words(blocked))
        if lost:
            self._tell(hub_pod, self._lost_words(lost))

    def api(self, target_namespace: str) -> HubApi | None:
        """Say where the names lead in a target namespace; None: not known, see `hold`."""
        if self._domain is None:
            return None
        if isinstance(self._way, Straight):
            return HubApi(self._way.address, self._domain)
        rest = self._rest_of(DoorKey(target_namespace))
        if rest is None:
            return None
        return HubApi(rest.address, self._domain) if rest.address else UNLED

    def _rest_of(self, key: DoorKey) -> Rest | None:
        """Return where a door came to rest, unless that was long ago: nobody needed it since."""
        known = self._known.get(key)
        is_old = known is not None and self._ports.clock() - known.seen_at > OLD_SECONDS
        return known.rest if known is not None and not is_old else None

    def on_move(self, move: Move) -> None:
        """Take note that pods began to live somewhere, or ended."""
        for place in (move.begun, move.ended):
            # A pod's record may name any place: only where mirrors stand by today's rules.
            if place is not None and self._is_by_rule(place.namespace, place.target_namespace):
                self._enqueue(DoorKey(place.target_namespace))

    def on_anchor(self, change: Change) -> None:
        """Look at what an anchor owns where it came, went, or is another one."""
        old, new = change.old, change.new
        if old is not None and new is not None and uid_of(old) == uid_of(new):
            return
        key = DoorKey(change.key.namespace)
        if key in self._known or key in self._waiting:
            self._enqueue(key)

    def wake_all(self) -> None:
        """The target is back, or an operator spoke."""
        for key in (*self._known, *self._waiting):
            self._enqueue(key)

    def _enqueue(self, key: DoorKey) -> None:
        if isinstance(self._way, ThroughDoor):
            self.queue.add(key, LANE)

    def _is_by_rule(self, namespace: str, target_namespace: str) -> bool:
        return self._ports.target_namespace(namespace) == target_namespace

    def _is_wanted(self, key: DoorKey) -> bool:
        return key in self._waiting or any(
            place.target_namespace == key.target_namespace
            and self._is_by_rule(place.namespace, place.target_namespace)
            for place in self._population.places()
        )

    def _unled_words(self, blocked: Blocked) -> str:
        return (
            f"{blocked.reason}: kubernetes.default.svc and the like lead to the API server of "
            f"{self._ports.target_name} in this pod, and in others there, not to the hub's: "
            f"{blocked.message}. Pods that start once this is mended have the hub's; "
            "KUBERNETES_SERVICE_HOST leads there in any case"
        )

    def _lost_words(self, lost: str) -> str:
        return (
            f"{DoorReason.ADDRESS_LOST}: somebody in {self._ports.target_name} deleted the Service "
            f"that led to the hub's API server and gave its address {lost} away: in pods there "
            "that are older than this one kubernetes.default.svc and the like lead to a stranger. "
            "Restart them"
        )

    def _tell(self, hub_pod: JsonObject, note: str) -> None:
        self._ports.events.event(
            PODS, hub_pod, reason=PodReason.HUB_NAMES_MISSING, note=note, action="Mirror"
        )
        log.warning("names do not lead to the hub's API server", said=note)

    # -- running -----------------------------------------------------------------------------------

    def parts(self) -> Mapping[str, Callable[[], Coroutine[None, None, None]]]:
        """Name what runs beside each other, each until cancelled."""
        parts: dict[str, Callable[[], Coroutine[None, None, None]]] = {
            "hub-domain": self._learn_domain
        }
        if isinstance(self._way, ThroughDoor):
            parts["doors"] = self._work
            if not is_address(self._way.host):
                parts["hub-address"] = self._keep_resolving
        return parts

    async def _learn_domain(self) -> None:
        """Ask the hub who issues its tokens: that name is in its cluster domain.

        Every service account may ask that; where we may not, the usual domain is taken.
        """
        began_at, domain = self._ports.clock(), ""
        while not domain:
            try:
                found = await self._ports.hub.raw_get(ISSUER_PATH)
                domain = domain_by(str(found.get("issuer") or ""))
            except (Forbidden, NotFound, Rejected) as error:
                log.info("the hub does not tell its cluster domain", error=str(error))
                domain = USUAL_DOMAIN
            except ClusterError:
                is_late = self._ports.clock() - began_at > PATIENCE_SECONDS
                if is_late:
                    self._take_domain(USUAL_DOMAIN)  # an answer may come yet
                await asyncio.sleep(BLOCKED_SECONDS if is_late else TRY_SECONDS)
        self._take_domain(domain)

    def _take_domain(self, domain: str) -> None:
        self._domain = domain
        waiting, self._waiting_for_domain = self._waiting_for_domain, set()
        for pod in waiting:
            self._ports.wake(pod)

    async def _work(self) -> None:
        controller = Controller(
            f"{self._ports.scope.node_name}-doors",
            self.queue,
            self.reconcile,
            WORKERS,
            context={"kind": "Door"},
        )
        await controller.run()

    async def reconcile(self, key: DoorKey, _lane: str) -> Outcome:
        """Bring a door to what it ought to be, as far as it goes now."""
        instead = self._ports.admit()
        if instead is not None:
            return instead
        if not self._is_wanted(key) or self._ports.leaving():
            return Done()  # it stays, with the anchor
        if not self._ports.target_reachable():
            return Again(UNREACHABLE_SECONDS)
        self._in_hand.add(key)
        try:
            rest = await self._look(key)
        finally:
            self._in_hand.discard(key)
        return self._outcome(key, rest)

    def _outcome(self, key: DoorKey, rest: Rest) -> Outcome:
        """Take over how a round ended, unless pods are to wait on."""
        if rest.lost:
            self._lost[key] = rest.lost
            log.warning("mirrors have an address in vain", door=str(key), address=rest.lost)
        if rest.address:
            self._ending_since.pop(key, None)
        wait_seconds = self._wait_seconds(key, rest)
        if wait_seconds > 0:
            self._known.pop(key, None)
            return Again(wait_seconds)
        if not rest.is_told:
            # No mirror has made the ground yet: whoever is about to asks again.
            self._known.pop(key, None)
            return Done()
        self._take(key, rest)
        seconds = LOOK_SECONDS if rest.blocked is None else BLOCKED_SECONDS
        return Again(seconds * self._ports.random.uniform(0.8, 1.0))

    def _wait_seconds(self, key: DoorKey, rest: Rest) -> float:
        if rest.address:
            return self._settling_seconds(key)
        return ENDING_SECONDS if self._is_worth_waiting(key, rest) else 0.0

    async def _look(self, key: DoorKey) -> Rest:
        rest = await self._round(key).run()
        is_unknown = rest.blocked is not None and rest.blocked.reason == DoorReason.ADDRESS_UNKNOWN
        if not is_unknown:
            return rest
        # Only now: where a door stands it leads there while the DNS says nothing.
        await self._look_up_host()
        return await self._round(key).run() if self._addresses else rest

    def _settling_seconds(self, key: DoorKey) -> float:
        """Say how long the nodes of the target may yet not know where the door leads."""
        return self._settled_at.get(key, float("-inf")) - self._ports.clock()

    def _note_way(self, key: DoorKey) -> None:
        self._settled_at[key] = self._ports.clock() + SETTLE_SECONDS

    def _is_worth_waiting(self, key: DoorKey, rest: Rest) -> bool:
        """Tell whether pods wait: what is ending is gone in a moment, unless somebody holds it."""
        if rest.blocked is None or rest.blocked.reason != DoorReason.SERVICE_ENDING:
            return False
        now = self._ports.clock()
        return now - self._ending_since.setdefault(key, now) < PATIENCE_SECONDS

    def _round(self, key: DoorKey) -> DoorRound:
        assert isinstance(self._way, ThroughDoor)  # noqa: S101 (who else has anything queued)
        known = self._rest_of(key)
        return DoorRound(
            key.target_namespace,
            way=self._way,
            addresses=self._addresses,
            former=self._addressed.get(key, ()),
            led_to=known.address if known is not None else "",
            on_way=partial(self._note_way, key),
            ports=self._ports,
        )

    def _take(self, key: DoorKey, rest: Rest) -> None:
        """Take over how a round ended, and let the pods go that waited."""
        self._known[key] = _Known(rest, self._ports.clock())
        if rest.address:
            before = self._addressed.get(key, ())
            self._addressed[key] = tuple(dict.fromkeys((rest.address, *before)))[:MOST_FORMER]
            self._told.pop(key, None)
        for pod in self._waiting.pop(key, ()):
            self._ports.wake(pod)

    # -- the address of a host that has a name -----------------------------------------------------

    async def _keep_resolving(self) -> None:
        while True:
            await asyncio.sleep(RESOLVE_SECONDS * self._ports.random.uniform(0.8, 1.0))
            if self._known:
                await self._look_up_host()

    async def _look_up_host(self) -> None:
        """Resolve the name, once for all who ask at a time; where that fails, what was stands."""
        async with self._resolving:
            now = self._ports.clock()
            if now - self._asked_at < RESOLVE_SECONDS / 2:
                return
            found = await self._resolved()
            self._asked_at = self._ports.clock()
            if found and found != self._addresses:
                log.info("the hub's addresses by its name", addresses=found)
                self._addresses = found
                for key in self._known:
                    self._enqueue(key)

    async def _resolved(self) -> tuple[str, ...]:
        assert isinstance(self._way, ThroughDoor)  # noqa: S101 (else there is nothing to resolve)
        for number in range(TRIES):
            if number:
                await asyncio.sleep(TRY_SECONDS)
            try:
                async with asyncio.timeout(RESOLVE_TIMEOUT_SECONDS):
                    found = await self._ports.resolve(self._way.host)
                return tuple(sorted(filter(is_address, set(found))))
            except (OSError, UnicodeError) as error:  # TimeoutError is one of the former
                log.info("the hub's name does not resolve", host=self._way.host, error=str(error))
        return ()
