"""How one virtual node mirrors: stores, reflectors, queue, reconciler, and the nets under them.

Part of what a leader runs (`leading` adds heartbeat and Node), and all that a hub pod's way takes:
events of either side become keys, workers reconcile them, and comparisons find what no event told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from random import Random

import structlog

from federate.claims.ports import ClaimTools
from federate.claims.reconciler import Claims
from federate.cluster.port import ClusterPort
from federate.cluster.reflector import Reflector
from federate.cluster.shelf import Glance, Shelf
from federate.cluster.store import Change, Store
from federate.companions.demand import has_mirror, target_namespace_of
from federate.companions.holding import Hold, joined
from federate.companions.issued import place_of
from federate.companions.keys import name_of
from federate.companions.ports import CompanionPorts
from federate.companions.rules import CompanionRules, IdentityMode
from federate.companions.words import Words
from federate.errors import ClusterError, Forbidden
from federate.flow.controller import Controller, Elsewhere, Outcome, ReconcileObserver
from federate.flow.ratebound import RateBound
from federate.flow.workqueue import WorkQueue
from federate.garbage.companions import CompanionSweeper
from federate.garbage.namespaces import NamespaceKeeper
from federate.garbage.sweeper import Sweeper
from federate.mirror.ground import Ground, GroundRules
from federate.mirror.ports import (
    ORIGIN_INDEX,
    EventSink,
    ObjectEventSink,
    PodPorts,
    Untold,
    origin_index,
)
from federate.mirror.reconciler import PodReconciler
from federate.mirror.refusal import refusal_of
from federate.mirror.steps import Lane, PlanRules
from federate.model.hostports import HOST_PORT_INDEX, host_port_index
from federate.model.marks import COMPANION_LABEL, Scope, origin_of, record_of
from federate.model.naming import (
    SYSTEM_NAMESPACES,
    NamespaceRules,
    allows_system_namespaces,
    anchor_name,
    confined_to,
    keeps_names,
)
from federate.model.objects import (
    JsonObject,
    ObjectKey,
    controller_of,
    is_terminating,
    key_of,
    labels_of,
    uid_of,
)
from federate.model.pods import is_terminal, node_name_of
from federate.model.resources import CONFIGMAPS, PODS, Resource
from federate.node.anchors import NodeAnchors, is_identity
from federate.policy.level import level_of
from federate.policy.turns import FailingTurns
from federate.policy.verdict import runs_namespace, travelling_pod
from federate.runtime.companions import (
    Comers,
    CompanionGround,
    advertised_to_pods,
    build_comers,
    with_companions,
)
from federate.runtime.lags import PodLags
from federate.runtime.together import run_together
from federate.services.addressing import AddressPorts
from federate.services.network import Network
from federate.services.ports import ServicePorts
from federate.services.ranges import RangeSources
from federate.services.reading import read_range_sources
from federate.services.rules import AddressMode, NetworkPolicyMode, NetworkRules
from federate.services.watched import hub_services

log = structlog.stdlib.get_logger(__name__)

WORKERS: Mapping[str, int] = {Lane.SYNC: 24, Lane.DELETE: 24, Lane.STATUS: 24}
"""Requests under way per direction: each waits for one round trip at a time."""

COMPARE_SECONDS = 5.0
"""How often both stores are compared, and read anew: a lost pod is noticed within this (C43)."""
VERIFY_SHARE = 0.05
"""At most this share of the time goes into reading both sides anew, however many pods there are."""

UID_INDEX = "uid"
"""Index of the mirrors' store."""

RECORDED_INDEX = "recorded-namespace"
"""Index of the hub pods' store: target namespace -> hub pods whose mirror is on record there."""

ORPHANS_PER_SECOND = 50.0
ORPHANS_AT_ONCE = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Where time and chance come from."""

    clock: Callable[[], float]
    """Monotonic, and as fast as the event loop's."""
    now: Callable[[], datetime]
    random: Random


NO_NETWORK = NetworkRules(addresses=AddressMode.HIDE, network_policies=NetworkPolicyMode.IGNORE)
"""Nothing of the hub's network is looked at, and no address shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirroringRules:
    """What stays the same for all pods of a virtual node."""

    scope: Scope
    namespaces: NamespaceRules
    plan: PlanRules
    companions: CompanionRules = field(default_factory=lambda: CompanionRules(are_made=False))
    network: NetworkRules = NO_NETWORK


@dataclass(frozen=True, slots=True, kw_only=True)
class MirroringPorts:
    """What mirroring acts through, and whom it tells."""

    hub: ClusterPort
    target: ClusterPort
    events: EventSink
    fence: Callable[[], None]
    """Raises LeadershipLost where we may not act any more; called before every write."""
    fence_target: Callable[[], None]
    """Raises ClusterError while the target is another cluster; called before writes to it."""
    confirm_hub: Callable[[], Awaitable[None]]
    confirm_target: Callable[[], Awaitable[None]]
    register: NodeAnchors
    target_reachable: Callable[[], bool]
    admit: Callable[[], Outcome | None]
    """Asked before each reconcile: an outcome, or what is raised, stands instead of it."""
    hub_pod_changed: Callable[[Change], None]
    """Told before the key is queued."""
    mirror_changed: Callable[[Change], None]
    """Told of what events, and replies to our own requests, brought to the mirrors' store."""
    anchor_changed: Callable[[], None]
    watch_gap: Callable[[ClusterPort, Resource], None]
    orphan_deleted: Callable[[], None]
    observer: ReconcileObserver | None = None
    lags: PodLags | None = None
    object_events: ObjectEventSink = field(default_factory=Untold)
    leaving: Callable[[], bool] = lambda: False
    """Whether the virtual node is being left: then nothing new is mirrored."""
    read_hub_ranges: Callable[[], Awaitable[RangeSources]] | None = None
    """Tells the hub's address ranges, read by whoever asked first; None: each reads them."""
    addresses_decided: Callable[[], None] = lambda: None
    """Another decision about addresses: the Node is to say so."""
    companion_read: Callable[[str], None] = lambda _cluster: None
    """Told of each read of what pods refer to, with the name of the cluster."""


class Mirroring:
    """The parts, wired; whoever runs them starts the reflectors of `open`, then `work` and `nets`.

    `open` needs a register that has learnt from the Node; `work` may begin once all reflectors are
    synced.
    """

    def __init__(
        self,
        rules: MirroringRules,
        ports: MirroringPorts,
        timing: Timing,
        *,
        workers: Mapping[str, int] = WORKERS,
    ) -> None:
        self._rules = rules
        self.plan = _plan_rules(rules)
        self._ports = ports
        self._timing = timing
        self._workers = workers
        self.hub_pods = store_of_hub_pods()
        self.mirrors = store_of_mirrors()
        self.anchors = Store()
        self.queue: WorkQueue[ObjectKey] = WorkQueue(
            lanes=tuple(Lane),
            clock=timing.clock,
            random=timing.random,
            fair_by=lambda key: key.namespace,
        )
        self.reflectors: tuple[Reflector, ...] = ()
        self.ground = Ground(
            rules=GroundRules(
                scope=rules.scope,
                namespaces=rules.namespaces,
                level=level_of(rules.plan.render.policy),
            ),
            target=ports.target,
            anchors=self.anchors,
            register=ports.register,
            confirm_target=ports.confirm_target,
            fence=self._fence_target,
            now=timing.now,
        )
        self.services = hub_services(
            ports.hub,
            clock=timing.clock,
            random=timing.random,
            is_needed=rules.companions.identity is IdentityMode.HUB,
        )
        """The hub's Services: one watch for all who ask."""
        self.comers = self._build_comers()
        """What comes along with pods. With `companions: false` nothing does, and what came before
        is removed once no mirror uses it."""
        self.claims = self._build_claims()
        self.network = self._build_network()
        self.pods = PodReconciler(scope=rules.scope, rules=self.plan, ports=self._pod_ports())
        self.sweeper = self._build_sweeper()

    # -- building ----------------------------------------------------------------------------------

    def open(self) -> tuple[Reflector, ...]:
        """Build the reflectors; once the register has learnt, for it knows namespaces of before."""
        self.ground.watch_recorded()
        self.reflectors = (
            self._reflect_hub_pods(),
            *map(self._reflect_mirrors, self.ground.watched),
            *map(self._reflect_anchors, self.ground.watched),
            *self.comers.open(),
            *self.claims.open(),
        )
        return self.reflectors

    def may_begin_without(self, reflector: Reflector) -> bool:
        """Tell whether it waits for a namespace that is closed to us, while another one is open.

        What stands there is out of sight, and stays as it is: its absence is asked for, and the
        answer refused.
        """
        is_closed = reflector.namespace and isinstance(reflector.last_error, Forbidden)
        return bool(is_closed) and any(
            other.namespace not in ("", reflector.namespace) and other.synced.is_set()
            for other in self.reflectors
        )

    def _reflect_hub_pods(self) -> Reflector:
        ports, scope = self._ports, self._rules.scope
        return self._keeping(
            ports.hub,
            PODS,
            self.hub_pods,
            name="hub-pods",
            field_selector=f"spec.nodeName={scope.node_name}",
            matches=lambda pod: node_name_of(pod) == scope.node_name,
            on_change=self._on_hub_pod,
            on_gap=lambda: ports.watch_gap(ports.hub, PODS),
        )

    def _reflect_mirrors(self, namespace: str) -> Reflector:
        ports, scope = self._ports, self._rules.scope
        return self._keeping(
            ports.target,
            PODS,
            self.mirrors,
            name=_named("mirrors", namespace),
            namespace=namespace,
            label_selector=scope.selector,
            matches=scope.owns,
            on_change=self._on_mirror,
            on_gap=lambda: ports.watch_gap(ports.target, PODS),
        )

    def _reflect_anchors(self, namespace: str) -> Reflector:
        ports, scope = self._ports, self._rules.scope
        return self._keeping(
            ports.target,
            CONFIGMAPS,
            self.anchors,
            name=_named("anchors", namespace),
            namespace=namespace,
            # Companions carry the same labels, and their contents are not kept here.
            label_selector=f"{scope.selector},!{COMPANION_LABEL}",
            matches=lambda obj: scope.owns(obj) and COMPANION_LABEL not in labels_of(obj),
            on_change=self._on_anchor,
        )

    @property
    def _keeping(self) -> Callable[..., Reflector]:
        return partial(Reflector, clock=self._timing.clock, jitter=self._timing.random.random)

    def _pod_ports(self) -> PodPorts:
        ports, timing = self._ports, self._timing
        return PodPorts(
            hub=ports.hub,
            target=ports.target,
            hub_pods=self.hub_pods,
            mirrors=self.mirrors,
            ground=self.ground,
            events=ports.events,
            target_reachable=ports.target_reachable,
            target_known=lambda: is_identity(ports.register.identity),
            confirm_hub=ports.confirm_hub,
            confirm_target=ports.confirm_target,
            fence=ports.fence,
            fence_target=ports.fence_target,
            now=timing.now,
            mirror_changed=self._note_mirror,
            on_orphan_deleted=ports.orphan_deleted,
            leaving=ports.leaving,
            orphan_bound=self._delete_bound(),
            turns=FailingTurns(timing.clock),
            hold=self._hold,
            shared=lambda hub_pod, namespace: self.comers.shared(hub_pod, namespace),
            claim_names=lambda hub_pod, namespace: self.claims.names(hub_pod, namespace),
            claim_words=lambda hub_pod: self.claims.words(hub_pod),
            hub_api=lambda namespace: self.network.hub_api(namespace),
            mirror_made=lambda hub_pod, namespace: self.network.on_made(hub_pod, namespace),
            network_refusal=lambda hub_pod: self.network.refusal(hub_pod),
            addresses=lambda: self.network.decision,
        )

    def _delete_bound(self) -> RateBound:
        return RateBound(
            per_second=ORPHANS_PER_SECOND, burst=ORPHANS_AT_ONCE, clock=self._timing.clock
        )

    def _build_comers(self) -> Comers:
        ports, timing, rules = self._ports, self._timing, self._rules.companions
        if not rules.are_made:
            rules = replace(rules, identity=IdentityMode.NONE)  # no token is issued, or renewed
        return build_comers(
            rules,
            CompanionPorts(
                scope=self._rules.scope,
                target_name=self.plan.target_name,
                hub=ports.hub,
                target=ports.target,
                hub_pods=self.hub_pods,
                anchors=self.anchors,
                ground=CompanionGround(self.ground),
                shared=rules.shared,
                brings_tokens=rules.identity is IdentityMode.HUB,
                target_namespace=self._target_namespace,
                has_mirror=self._has_mirror,
                is_refused=self._is_refused,
                travelling=lambda hub_pod: travelling_pod(hub_pod, self.plan.render.policy),
                watched=lambda: self.ground.watched,
                wake=self.enqueue,
                admit=ports.admit,
                target_reachable=ports.target_reachable,
                leaving=ports.leaving,
                confirm_hub=ports.confirm_hub,
                confirm_target=ports.confirm_target,
                fence=ports.fence,
                fence_target=ports.fence_target,
                count_read=ports.companion_read,
                delete_bound=self._delete_bound(),
                clock=timing.clock,
                random=timing.random,
            ),
            events=ports.events,
            services=self.services,
            wall_clock=lambda: timing.now().timestamp(),
        )

    def _build_claims(self) -> Claims:
        return Claims(
            ClaimTools(
                ports=self.comers.ports,
                rules=self.plan.render.claims,
                events=self._ports.object_events,
                namespace_of=self._storage_namespace_of,
            )
        )

    def _build_network(self) -> Network:
        ports, timing, scope = self._ports, self._timing, self._rules.scope
        name, register = self.plan.target_name, ports.register
        read_hub = ports.read_hub_ranges or partial(read_range_sources, ports.hub)
        return Network(
            self._rules.network,
            ServicePorts(
                scope=scope,
                target_name=name,
                hub=ports.hub,
                target=ports.target,
                ground=CompanionGround(self.ground),
                events=ports.object_events,
                target_namespace=self._namespace_of,
                watched=lambda: self.ground.watched,
                wake=self.enqueue,
                admit=ports.admit,
                target_reachable=ports.target_reachable,
                leaving=ports.leaving,
                confirm_hub=ports.confirm_hub,
                confirm_target=ports.confirm_target,
                fence=ports.fence,
                fence_target=ports.fence_target,
                delete_bound=self._delete_bound(),
                clock=timing.clock,
                random=timing.random,
            ),
            AddressPorts(
                read_hub=read_hub,
                read_target=self._read_target_ranges,
                node_name=scope.node_name,
                target_name=name,
                target_identity=lambda: register.identity if is_identity(register.identity) else "",
                target_reachable=ports.target_reachable,
                changed=self._on_addresses_decided,
                clock=timing.clock,
                random=timing.random,
            ),
            services=self.services,
            advertised=advertised_to_pods(self._rules.companions),
        )

    async def _read_target_ranges(self) -> RangeSources:
        """Read them, but of a target that is confined to namespaces: there is no right to."""
        if confined_to(self._rules.namespaces) is not None:
            return RangeSources()
        return await read_range_sources(self._ports.target)

    def _on_addresses_decided(self) -> None:
        self._ports.addresses_decided()
        for key in list(self.hub_pods.keys()):
            self.enqueue(key)

    def _namespace_of(self, hub_namespace: str) -> str | None:
        """Say where pods of a hub namespace run by today's rules; None where none may."""
        place = self.ground.mirror_key(ObjectKey(hub_namespace, hub_namespace))
        if place is None:
            return None
        is_closed = place.namespace in SYSTEM_NAMESPACES and not self.plan.allow_system_namespaces
        return None if is_closed else place.namespace

    def _storage_namespace_of(self, hub_namespace: str) -> str | None:
        """Say where claims of a hub namespace stand; nowhere, where its pods are refused whole.

        Other refusals are of pods, and a claim is judged by those that wait for it.
        """
        may_run = runs_namespace(hub_namespace, self.plan.render.policy)
        return self._namespace_of(hub_namespace) if may_run else None

    def _hold(self, hub_pod: JsonObject, target_namespace: str) -> Hold | None:
        is_asked = self._rules.companions.are_made  # else who names one is refused
        brought = joined(
            self.comers.hold(hub_pod, target_namespace) if is_asked else None,
            self.claims.hold(hub_pod, target_namespace),
        )
        return joined(brought, self.network.hold(hub_pod, target_namespace))

    def _target_namespace(self, hub_pod: JsonObject) -> str | None:
        """Say where the companions of a hub pod stand; nowhere, where none are brought."""
        if not self._rules.companions.are_made:
            return None
        return target_namespace_of(
            hub_pod,
            self.ground.mirror_key(key_of(hub_pod)),
            is_mirrored=self._has_mirror(hub_pod),
        )

    def _has_mirror(self, hub_pod: JsonObject) -> bool:
        """Tell whether the mirror on record stands there, and is the pod's."""
        keys = self.mirrors.keys_by_index(ORIGIN_INDEX, str(key_of(hub_pod)))
        found = ((key, self.mirrors.glance(key)) for key in keys)
        return has_mirror(hub_pod, {key: mirror.uid for key, mirror in found if mirror is not None})

    def companions_left(self) -> str:
        """Say what came along before and is still there, with `companions: false`; else ""."""
        if self._rules.companions.are_made:
            return ""
        scope, companions = self._rules.scope, self.comers.companions
        left = [(key.kind, name_of(scope, key)) for key in companions.inventory()]
        left += [(key.kind.kind, place_of(scope, key)) for key in self.comers.issuer.left_behind()]
        used = sum(1 for kind, place in left if companions.is_used(kind, place))
        return _tell_left(self.plan.target_name, used=used, unused=len(left) - used)

    def _is_refused(self, hub_pod: JsonObject) -> bool:
        """Tell whether a hub pod gets no mirror, so that nothing of it goes anywhere."""
        key = self.ground.mirror_key(key_of(hub_pod))
        if key is None or self.network.refuses(hub_pod):
            return True
        refusal = refusal_of(
            hub_pod,
            mirror_key=key,
            rules=self.plan.render,
            target_name=self.plan.target_name,
            allow_system_namespaces=self.plan.allow_system_namespaces,
        )
        return refusal is not None

    async def _sweep_companions(self) -> None:
        await CompanionSweeper(self.comers.companions, self._rules.scope).run()

    def _build_keeper(self) -> NamespaceKeeper | None:
        """Namespaces that the user named are none of ours to give back."""
        if confined_to(self._rules.namespaces) is not None:
            return None
        ports = self._ports
        return NamespaceKeeper(
            hub=ports.hub,
            target=ports.target,
            scope=self._rules.scope,
            forget_anchor=ports.register.forget,
            confirm_hub=ports.confirm_hub,
            confirm_target=ports.confirm_target,
            fence=ports.fence,
        )

    def _build_sweeper(self) -> Sweeper:
        ports, scope = self._ports, self._rules.scope
        return Sweeper(
            hub=ports.hub,
            target=ports.target,
            scope=scope,
            confirm_hub=ports.confirm_hub,
            confirm_target=ports.confirm_target,
            enqueue=self.enqueue,
            keeper=self._build_keeper(),
            watched=lambda: self.ground.watched,
        )

    def _fence_target(self) -> None:
        self._ports.fence()
        self._ports.fence_target()

    # -- from events to keys -----------------------------------------------------------------------

    def _on_hub_pod(self, change: Change) -> None:
        if self._ports.lags is not None:
            self._ports.lags.hub_pod_changed(change)
        self._ports.hub_pod_changed(change)
        self.comers.on_hub_pod(change)
        self.claims.on_hub_pod(change)
        self.network.on_hub_pod(change)
        self._wake_rivals(change)
        self.queue.add(*self.pods.on_hub_pod(change))

    def _note_mirror(self, change: Change) -> None:
        if self._ports.lags is not None:
            self._ports.lags.mirror_changed(change)
        self._ports.mirror_changed(change)
        self.comers.on_mirror(change)

    def _on_mirror(self, change: Change) -> None:
        self._note_mirror(change)
        if self._ports.lags is not None:
            self._ports.lags.mirror_told(change)
        woken = self.pods.on_mirror(change)
        if woken is not None:
            self.queue.add(*woken)

    def _on_anchor(self, change: Change) -> None:
        self.comers.on_anchor(change)
        self.network.on_anchor(change)
        if _only_list_changed(change):
            return
        self._ports.anchor_changed()
        for key in self._concerned(change.key.namespace):
            self.enqueue(key)

    def _concerned(self, namespace: str) -> list[ObjectKey]:
        """Return the hub pods whose mirror would stand there by today's rules, or stands there."""
        standing = frozenset(self.hub_pods.keys_by_index(RECORDED_INDEX, namespace))

        def is_concerned(key: ObjectKey) -> bool:
            place = self.ground.mirror_key(key)
            return key in standing or (place is not None and place.namespace == namespace)

        return [key for key in self.hub_pods.keys() if is_concerned(key)]  # noqa: SIM118

    def enqueue(self, key: ObjectKey) -> None:
        """Have a hub pod looked at."""
        self.queue.add(key, self.pods.lane_of_key(key))

    def anchors_in_use(self) -> dict[str, str]:
        """Return target namespace -> uid of the anchor that owns mirrors there, standing or not.

        A namespace without living mirrors does not count: it may be on its way to be given back, or
        its anchor may be one that an operator gave up. Where an anchor stands, it is that one.
        """
        name = anchor_name(self._rules.scope)
        found: dict[str, str] = {}
        for mirror in self.mirrors.values():
            owner = controller_of(mirror)
            if owner is None or owner.get("name") != name or is_terminating(mirror):
                continue
            namespace = key_of(mirror).namespace
            anchor = self.ground.anchor(namespace)
            found[namespace] = uid_of(anchor) if anchor is not None else str(owner.get("uid"))
        return found

    def mirror_by_uid(self, uid: str) -> JsonObject | None:
        """Return the mirror of that uid, while it stands and is in sight."""
        standing = self.mirrors.by_index(UID_INDEX, uid)
        return standing[0] if standing else None

    def hub_pod_of(self, mirror_uid: str) -> JsonObject | None:
        """Return the living hub pod that has this mirror on record; it may have vanished since.

        The record alone is not believed: who may annotate a pod could name a stranger's.
        """
        mirror = self.mirror_by_uid(mirror_uid) or self.mirrors.last_deleted(mirror_uid)
        origin = origin_of(mirror) if mirror is not None else None
        hub_pod = self.hub_pods.get(origin.pod) if origin is not None else None
        if origin is None or hub_pod is None or uid_of(hub_pod) != origin.pod_uid:
            return None
        record = record_of(hub_pod)
        return hub_pod if record is not None and record.mirror_uid == mirror_uid else None

    def words(self, hub_pod: JsonObject, target_namespace: str) -> Words:
        """Return what puts the target's words about a hub pod's mirror into the hub's."""
        record = record_of(hub_pod)
        mirror = self.mirrors.get(record.mirror) if record is not None else None
        if mirror is None:
            return self.plan.render.words(hub_pod, target_namespace)
        return self.plan.render.words_of(hub_pod, mirror)

    def wake_all(self) -> None:
        """The target is back, or an operator spoke: every pod is worth a look."""
        self.comers.wake_all()
        self.claims.wake_all()
        self.network.wake_all()
        for key in list(self.hub_pods.keys()):
            self.enqueue(key)

    async def _reconcile(self, key: ObjectKey, lane: str) -> Outcome:
        instead = self._ports.admit()
        if instead is not None:
            return instead
        before, known = self._hub_version(key), self.hub_pods.glance(key)
        try:
            outcome = await self.pods.reconcile(key, lane)
        finally:
            self._tell_comers(key, known)
        if self._ports.lags is not None:
            after = self._hub_version(key)
            wrote = after not in ("", before)
            self._ports.lags.reconciled(key, wrote=wrote, rests=not isinstance(outcome, Elsewhere))
        return outcome

    def _tell_comers(self, key: ObjectKey, known: Glance | None) -> None:
        """Tell what our own requests brought to the store: no event will (`Store.writing`)."""
        found = self.hub_pods.glance(key)
        if found is not known:
            change = Change(key=key, old=known, new=self.hub_pods.get(key))
            self.comers.on_hub_pod(change)
            self.claims.on_hub_pod(change)
            self.network.on_hub_pod(change)
            self._wake_rivals(change)

    def _wake_rivals(self, change: Change) -> None:
        """A pod that has ended gives its host ports back to those that wait for one."""
        new = change.new
        old = change.old if new is None or is_terminal(new) else None
        if old is None:
            return
        for place in host_port_index(old):
            for key in self.hub_pods.keys_by_index(HOST_PORT_INDEX, place):
                if key != change.key:
                    self.enqueue(key)

    def _hub_version(self, key: ObjectKey) -> str:
        hub_pod = self.hub_pods.glance(key)
        return hub_pod.version if hub_pod is not None else ""

    # -- running -----------------------------------------------------------------------------------

    async def work(self) -> None:
        """Reconcile what is queued until cancelled."""
        controller = Controller(
            self._rules.scope.node_name,
            self.queue,
            self._reconcile,
            self._workers,
            observer=self._ports.observer,
            context={"kind": "Pod"},
        )
        # Not one mapping of all: where two of them give a part the same name, both are run.
        beside = [self.comers.parts(), self.claims.parts(), self.network.parts()]
        parts = [part for each in beside for part in each.values()]
        if self.comers.issuer.reads_services or self.network.reads_services:
            parts.append(self.services.run)
        await run_together(controller.run, *parts)

    def nets(self) -> Mapping[str, Callable[[], Coroutine[None, None, None]]]:
        """Name what finds the work that no event told of; each is run until cancelled."""
        hub_pods, *others = self.reflectors
        mirrors = others[: len(self.ground.watched)]
        return {
            "compare": self._compare,
            "verify-hub-pods": partial(self._verify, hub_pods),
            **{f"verify-{each.name}": partial(self._verify, each) for each in mirrors},
            "sweeper": self.sweeper.run,
            "companion-sweeper": self._sweep_companions,
        }

    async def _compare(self) -> None:
        """The net under the events: what was last handled against what is known now."""
        while True:
            await asyncio.sleep(COMPARE_SECONDS)
            for key in self.pods.unsettled_keys():
                self.enqueue(key)

    async def _verify(self, reflector: Reflector) -> None:
        """The net under the watch: read the collection anew and repair what was never told."""
        clock = self._timing.clock
        pause = COMPARE_SECONDS
        while True:
            await asyncio.sleep(pause)
            pause = COMPARE_SECONDS
            started_at = clock()
            try:
                await reflector.verify()
            except ClusterError as error:
                # However long that took: a server that hangs was not kept busy by us.
                log.debug("comparison not finished", reflector=reflector.name, error=str(error))
                continue
            took = clock() - started_at
            pause = max(COMPARE_SECONDS, (took - 1.0) / VERIFY_SHARE)


def store_of_hub_pods() -> Store:
    """Build the store of the virtual node's hub pods."""
    return Store(
        indexers={RECORDED_INDEX: _recorded_namespace, HOST_PORT_INDEX: host_port_index},
        shelf=Shelf(packs=True),
    )


def store_of_mirrors() -> Store:
    """Build the store of their mirrors."""
    return Store(
        indexers={ORIGIN_INDEX: origin_index, UID_INDEX: lambda mirror: (uid_of(mirror),)},
        shelf=Shelf(packs=True),
    )


def _recorded_namespace(hub_pod: JsonObject) -> Iterable[str]:
    record = record_of(hub_pod)
    return (record.mirror.namespace,) if record is not None else ()


def _plan_rules(rules: MirroringRules) -> PlanRules:
    """Complete the rules for a pod with what follows from those for namespaces."""
    return replace(
        rules.plan,
        allow_system_namespaces=allows_system_namespaces(rules.namespaces),
        render=with_companions(
            replace(rules.plan.render, keeps_names=keeps_names(rules.namespaces)),
            rules.scope,
            rules.companions,
        ),
    )


def _tell_left(target_name: str, *, used: int, unused: int) -> str:
    told = []
    if used:
        told.append(f"{used} used by pods that run, to go with them")
    if unused:
        told.append(f"{unused} about to go (if they stay, federate's log says what forbids it)")
    if not told:
        return ""
    return f"companions are off, those of before are still in {target_name}: {', '.join(told)}"


def _only_list_changed(change: Change) -> bool:
    """Tell whether an anchor is what it was but for the names of Secrets on it."""
    old, new = change.old, change.new
    if old is None or new is None or old.get("data") == new.get("data"):
        return False
    return all(of(old) == of(new) for of in (uid_of, is_terminating, labels_of))


def _named(name: str, namespace: str) -> str:
    return f"{name}-{namespace}" if namespace else name
