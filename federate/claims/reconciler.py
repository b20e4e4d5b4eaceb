"""The claims of one virtual node: which are to be looked at, and what pods may rely on.

Three watches make keys for one queue: claims of the hub (metadata of all, for pods name them and
schedulers choose us for them), volumes of the hub and claims of the target (ours alone, by label).
Where a claim came to rest is `known` until something changes; a pod without a mirror waits while
something that it needs is not known, and is woken when it is.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from enum import StrEnum

import structlog

from federate.claims.holding import hold_of, names_of, verdict_of_name
from federate.claims.keys import ClaimKey, claim_key, origin_of_claim, volume_name
from federate.claims.leading import Leads
from federate.claims.places import ClaimUse, claims_used
from federate.claims.ports import ClaimTools
from federate.claims.protocol import is_chosen
from federate.claims.round import ClaimRound, Settled
from federate.claims.steps import Rest, Sought, Standing
from federate.claims.users import Waiting
from federate.cluster.reflector import Reflector, every_object
from federate.cluster.store import Change, Store
from federate.companions.holding import Hold
from federate.companions.steps import Blocked
from federate.flow.controller import Again, Controller, Done, Outcome
from federate.flow.refusals import Refusals
from federate.flow.workqueue import WorkQueue
from federate.model.objects import (
    JsonObject,
    ObjectKey,
    key_of,
    resource_version_of,
)
from federate.model.resources import CLAIMS, VOLUMES, Resource

log = structlog.stdlib.get_logger(__name__)

UNREACHABLE_SECONDS = 5.0
LOOK_SECONDS = 300.0
"""How old what is known of a claim may be: a word may be missed."""
LOOKS_PER_SECOND = 5
"""Rounds a second for that; each is three reads."""
MOST_DOUBTS = 3
"""Rounds in a row that were overtaken by another change before their result counts all the same."""


class Lane(StrEnum):
    """Budgets of workers."""

    CLAIMS = "claims"


WORKERS: Mapping[str, int] = {Lane.CLAIMS: 8}
"""Rounds under way: a StatefulSet of a hundred is served within seconds."""


class Claims:
    """All claims of one virtual node; see `ports` for who calls what."""

    def __init__(self, tools: ClaimTools, *, workers: Mapping[str, int] = WORKERS) -> None:
        self._tools = tools
        self._ports = ports = tools.ports
        self._workers = workers
        self.hub_claims = Store(deleted_limit=0)
        self.volumes = Store(deleted_limit=0)
        self.claims = Store(deleted_limit=0)
        self.queue: WorkQueue[ClaimKey] = WorkQueue(
            lanes=tuple(Lane),
            clock=ports.clock,
            random=ports.random,
            fair_by=lambda key: key.namespace,
        )
        self._leads = Leads(ports.scope)
        self._waiting_pods = Waiting(tools)
        self._known: dict[ClaimKey, Settled] = {}
        self._known_at: dict[ClaimKey, float] = {}
        self._waiting: dict[ObjectKey, set[ObjectKey]] = {}
        """Hub pods by the claim, whatever its uid, that they wait for."""
        self._refusals: dict[ClaimKey, Refusals[str, str]] = {}
        self._rounds: dict[ClaimKey, dict[Sought, str]] = {}
        """The versions that the watches told during a round."""
        self._doubts: Counter[ClaimKey] = Counter()
        self._said: dict[ClaimKey, str] = {}
        """What the target said last, as the pods were told."""

    # -- what pods ask -----------------------------------------------------------------------------

    def hold(self, hub_pod: JsonObject, target_namespace: str) -> Hold | None:
        """Say what a hub pod waits for; None where nothing holds it back.

        It is woken when that comes, or is known not to come.
        """
        uses = claims_used(hub_pod)
        if not uses or not self._tools.rules.are_made:
            return None
        known = self._known_of(hub_pod, uses)
        hold = hold_of(uses, known, target_namespace)
        if hold is not None and not self._ports.leaving():
            self._wait(key_of(hub_pod), uses, known)
        return hold

    def names(self, hub_pod: JsonObject, target_namespace: str) -> Mapping[str, str] | None:
        """Name the target's claims by the volumes of a hub pod that are claims.

        None where one of them has none (any more): then `hold` says what is waited for.
        """
        uses = claims_used(hub_pod)
        return names_of(uses, self._known_of(hub_pod, uses), target_namespace)

    def words(self, hub_pod: JsonObject) -> str:
        """Return what the target says of the pod's claims that have no storage, "" for nothing."""
        uses = claims_used(hub_pod) if self._known else ()
        settled = (self._settled_of(use.claim) for use in uses)
        return next((s.said for s in settled if s is not None and s.said), "")

    def _known_of(
        self, hub_pod: JsonObject, uses: tuple[ClaimUse, ...]
    ) -> dict[ObjectKey, Rest | Blocked]:
        is_new = not self._ports.has_mirror(hub_pod)
        known: dict[ObjectKey, Rest | Blocked] = {}
        for use in uses:
            why = verdict_of_name(use, self.hub_claims.get(use.claim), is_new=is_new)
            settled = self._settled_of(use.claim)
            if why is not None:
                known[use.claim] = why
            elif settled is not None and settled.rest is not None:
                known[use.claim] = settled.rest
        return known

    def _settled_of(self, hub_key: ObjectKey) -> Settled | None:
        claim = self.hub_claims.get(hub_key)
        return self._known.get(claim_key(claim)) if claim is not None else None

    def _wait(
        self,
        pod: ObjectKey,
        uses: tuple[ClaimUse, ...],
        known: Mapping[ObjectKey, Rest | Blocked],
    ) -> None:
        for use in uses:
            self._waiting.setdefault(use.claim, set()).add(pod)
            claim = self.hub_claims.get(use.claim)
            if claim is None or use.claim in known:
                continue
            key = claim_key(claim)
            # In a hand it is on its way; where it failed it has its time, however many pods ask.
            if key not in self._rounds and not self.queue.failures(key):
                self.queue.add(key, Lane.CLAIMS)

    def _wake(self, hub_key: ObjectKey) -> None:
        for pod in self._waiting.pop(hub_key, ()):
            self._ports.wake(pod)

    # -- from events to keys -----------------------------------------------------------------------

    def on_hub_pod(self, change: Change) -> None:
        """Forget that a pod waits that is gone."""
        if change.new is not None or change.old is None:
            return
        for use in claims_used(change.old):
            pods = self._waiting.get(use.claim, set())
            pods.discard(change.key)
            if not pods:
                self._waiting.pop(use.claim, None)

    def _on_hub_claim(self, change: Change) -> None:
        for claim in (change.old, change.new):
            if claim is None:
                continue
            key = claim_key(claim)
            is_there = change.new is not None and claim_key(change.new) == key
            if self._concerns(key, claim):
                self._note(key, Sought.HUB_CLAIM, change.new if is_there else None)
        if change.old is None or change.new is None:
            self._wake(change.key)

    def _concerns(self, key: ClaimKey, hub_claim: JsonObject) -> bool:
        return (
            key in self._known
            or key in self._rounds
            or key.hub_key in self._waiting
            or is_chosen(hub_claim, self._ports.scope.node_name)
            or self._leads.volume_for(key) is not None
        )

    def _on_volume(self, change: Change) -> None:
        for key in self._leads.volume_is(change.key.name, change.new):
            is_its = self._leads.volume_for(key) == change.key.name
            self._note(key, Sought.VOLUME, change.new if is_its else None)

    def _on_claim(self, change: Change) -> None:
        concerned = set(self._leads.led_to(change.key))
        for claim in (change.old, change.new):
            key = origin_of_claim(self._ports.scope, claim) if claim is not None else None
            if key is not None:
                concerned.add(key)
        for key in concerned:
            self._note(key, Sought.CLAIM, change.new)

    def _note(self, key: ClaimKey, sought: Sought, obj: JsonObject | None) -> None:
        """Have a claim looked at, unless what is told is what its round has seen."""
        version = resource_version_of(obj) if obj is not None else ""
        if key in self._rounds:
            self._rounds[key][sought] = version
            return
        known = self._known.get(key)
        if known is None or known.versions.get(sought) != version:
            self._unlearn(key)
            self.enqueue(key)

    def _unlearn(self, key: ClaimKey) -> None:
        self._known.pop(key, None)
        self._known_at.pop(key, None)

    def enqueue(self, key: ClaimKey) -> None:
        """Have a claim looked at."""
        self.queue.add(key, Lane.CLAIMS)

    def wake_all(self) -> None:
        """The target is back, or an operator spoke: look at all that has not come to rest."""
        for key, known in self._known.items():
            if known.rest is None or known.rest.standing is not Standing.SETTLED:
                self.enqueue(key)

    # -- one key -----------------------------------------------------------------------------------

    async def reconcile(self, key: ClaimKey, lane: str) -> Outcome:
        """Bring a claim to what it ought to be, as far as it goes now."""
        instead = self._ports.admit()
        if instead is not None:
            return instead
        if not self._ports.target_reachable():
            return Again(UNREACHABLE_SECONDS)
        told = self._rounds[key] = {}
        begun_at = self._ports.clock()
        try:
            settled = await ClaimRound(
                key,
                tools=self._tools,
                waiting=self._waiting_pods,
                refusals=self._refusals.setdefault(key, Refusals()),
                volume_name=self._leads.volume_for(key) or volume_name(key),
            ).run()
        finally:
            del self._rounds[key]
        return self._take(key, settled, told, begun_at=begun_at)

    def _take(
        self, key: ClaimKey, settled: Settled, told: Mapping[Sought, str], *, begun_at: float
    ) -> Outcome:
        """Take over how a round ended, and wake the pods that wait for that."""
        is_overtaken = any(
            settled.versions.get(sought, version) != version for sought, version in told.items()
        )
        self._doubts[key] = self._doubts[key] + 1 if is_overtaken else 0
        if is_overtaken:
            self.enqueue(key)
            if self._doubts[key] < MOST_DOUBTS:
                self._unlearn(key)
                return Done()
        before = self._known.get(key)
        self._known[key], self._known_at[key] = settled, begun_at
        # Asked before they are woken: who waits now wants to know how it stands.
        is_nobodys = self._is_nobodys(key, settled)
        if before is None or before.rest != settled.rest:
            self._wake(key.hub_key)
        if self._said.get(key, "") != settled.said:
            self._said[key] = settled.said
            self._tell_users(key.hub_key)
        if is_nobodys:
            self._forget(key)
        return Done() if settled.again_seconds is None else Again(settled.again_seconds)

    def _tell_users(self, hub_key: ObjectKey) -> None:
        """Have the pods of a claim looked at: what the target says of it is told there, too."""
        hub_pods = self._ports.hub_pods
        for pod in [pod for pod in hub_pods.keys() if pod.namespace == hub_key.namespace]:  # noqa: SIM118
            found = hub_pods.get(pod)
            if found is not None and any(use.claim == hub_key for use in claims_used(found)):
                self._ports.wake(pod)

    def _is_nobodys(self, key: ClaimKey, settled: Settled) -> bool:
        """Tell whether it is gone, or waits for another node and no pod of ours for it."""
        rest = settled.rest
        if settled.again_seconds is not None or self._leads.volume_for(key) is not None:
            return False
        is_elsewhere = rest is not None and rest.standing is Standing.ELSEWHERE
        return is_elsewhere and (not self._is_there(key) or key.hub_key not in self._waiting)

    def _is_there(self, key: ClaimKey) -> bool:
        claim = self.hub_claims.get(key.hub_key)
        return claim is not None and claim_key(claim) == key

    def _forget(self, key: ClaimKey) -> None:
        self._unlearn(key)
        self._doubts.pop(key, None)
        self._said.pop(key, None)
        # What was refused is remembered as long as the scheduler may choose us again.
        if not self._is_there(key):
            self._refusals.pop(key, None)

    def counts(self) -> Mapping[str, int]:
        """Count the claims that are known by where they stand."""
        return Counter(
            settled.rest.standing.name.lower() if settled.rest is not None else "coming"
            for settled in self._known.values()
        )

    # -- running -----------------------------------------------------------------------------------

    def open(self) -> tuple[Reflector, ...]:
        """Build the reflectors that must have synced before anything is decided."""
        if not self._tools.rules.are_made:
            return ()
        return (
            self._reflect_hub(CLAIMS, self.hub_claims, self._on_hub_claim, metadata_only=True),
            self._reflect_hub(VOLUMES, self.volumes, self._on_volume),
            *map(self._reflect_target, self._ports.watched()),
        )

    def _reflect_hub(
        self,
        resource: Resource,
        store: Store,
        on_change: Callable[[Change], None],
        *,
        metadata_only: bool = False,
    ) -> Reflector:
        scope, is_ours = self._ports.scope, resource == VOLUMES
        return Reflector(
            self._ports.hub,
            resource,
            store,
            name=f"hub-{resource.plural}",
            label_selector=scope.selector if is_ours else "",
            matches=scope.owns if is_ours else every_object,
            metadata_only=metadata_only,
            on_change=on_change,
            clock=self._ports.clock,
            jitter=self._ports.random.random,
        )

    def _reflect_target(self, namespace: str) -> Reflector:
        scope = self._ports.scope
        return Reflector(
            self._ports.target,
            CLAIMS,
            self.claims,
            name=f"claims-{namespace}" if namespace else "claims",
            namespace=namespace,
            label_selector=scope.selector,
            matches=scope.owns,
            metadata_only=True,
            on_change=self._on_claim,
            clock=self._ports.clock,
            jitter=self._ports.random.random,
        )

    def parts(self) -> Mapping[str, Callable[[], Coroutine[None, None, None]]]:
        """Name what runs beside the reflectors, each until cancelled."""
        if not self._tools.rules.are_made:
            return {}
        return {"claims": self.work, "claim-looks": self.look}

    async def work(self) -> None:
        """Reconcile what is queued until cancelled."""
        controller = Controller(
            f"{self._ports.scope.node_name}-claims",
            self.queue,
            self.reconcile,
            self._workers,
            context={"kind": CLAIMS.kind},
        )
        await controller.run()

    async def look(self) -> None:
        """Look again at what was not looked at for long, oldest first."""
        while True:
            await asyncio.sleep(1.0)
            due = self._ports.clock() - LOOK_SECONDS
            old = sorted((at, key) for key, at in self._known_at.items() if at <= due)
            for _, key in old[:LOOKS_PER_SECOND]:
                self.enqueue(key)
