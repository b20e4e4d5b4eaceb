"""What a leader of a virtual node runs: reflectors, pod controller, heartbeat, sweeper.

Built anew each time the lease is won, so nothing known from an earlier leadership can mislead.
Start is strict (C13): stores synced, then the pod controller, then the Node is announced.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

import structlog

from federate.cluster.port import ClusterPort
from federate.cluster.reflector import Reflector
from federate.cluster.store import Change, Store
from federate.errors import ClusterError, NotOurs
from federate.flow.controller import Again, Controller, Outcome
from federate.flow.ratebound import RateBound
from federate.flow.workqueue import WorkQueue
from federate.garbage.namespaces import NamespaceKeeper
from federate.garbage.sweeper import Sweeper
from federate.mirror.ground import Ground, GroundRules
from federate.mirror.ports import ORIGIN_INDEX, EventSink, PodPorts, origin_index
from federate.mirror.reconciler import PodReconciler
from federate.mirror.render import RenderRules
from federate.mirror.steps import Lane, PlanRules
from federate.model.marks import Scope
from federate.model.objects import JsonObject, ObjectKey, key_of
from federate.model.pods import node_name_of
from federate.model.resources import CONFIGMAPS, NODES, PODS, Resource
from federate.node.anchors import NodeAnchors
from federate.node.heartbeat import Heartbeat, NodeIdentity, NodePorts
from federate.node.offer import AggregateOffer, StaticOffer, lean_foreign_pod, lean_node
from federate.runtime.settings import TargetSettings
from federate.runtime.telemetry import Metrics
from federate.status.project import Addresses

log = structlog.stdlib.get_logger(__name__)

WORKERS: dict[str, int] = {Lane.SYNC: 24, Lane.DELETE: 24, Lane.STATUS: 24}
"""Requests under way per direction: each waits for one round trip at a time."""

COMPARE_SECONDS = 5.0
"""How often both stores are compared, and read anew: a lost pod is noticed within this (C43)."""
VERIFY_SHARE = 0.05
"""At most this share of the time goes into reading both sides anew, however many pods there are."""

TELL_WAITING_SECONDS = 10.0
STRANGER_PAUSE_SECONDS = 1.0
UNREGISTERED_PAUSE_SECONDS = 0.5

ORPHANS_PER_SECOND = 50.0
ORPHANS_AT_ONCE = 100

_LIVE_PODS = "status.phase!=Succeeded,status.phase!=Failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeadingPorts:
    """What a leader acts through."""

    hub: ClusterPort
    target: ClusterPort
    events: EventSink
    fence: Callable[[], None]
    confirm_hub: Callable[[], Awaitable[None]]
    metrics: Metrics
    is_distinct: asyncio.Event
    """Set once it is sure that target and hub may share namespaces as configured."""


class Leading:
    """All that runs while the leader lease is ours."""

    def __init__(
        self,
        settings: TargetSettings,
        *,
        scope: Scope,
        ports: LeadingPorts,
        node_address: str,
        federate_version: str,
    ) -> None:
        hub, target = ports.hub, ports.target
        self._settings = settings
        self._scope = scope
        self._hub = hub
        self._target = target
        self._metrics = ports.metrics
        self._is_distinct = ports.is_distinct
        self._target_version = ""
        self._hub_pods = Store()
        self._mirrors = Store(indexers={ORIGIN_INDEX: origin_index})
        self._anchors = Store()
        self._nodes = Store()
        self._queue: WorkQueue[ObjectKey] = WorkQueue(
            lanes=tuple(Lane),
            clock=asyncio.get_running_loop().time,
            random=random.Random(),  # noqa: S311 (jitter)
            fair_by=lambda key: key.namespace,
        )
        self._build_reflectors()
        register = NodeAnchors(hub=hub, scope=scope, fence=ports.fence)
        self._register = register
        self._ground = Ground(
            rules=GroundRules(scope=scope, strategy=settings.namespaces),
            target=target,
            anchors=self._anchors,
            register=register,
            now=_now,
        )
        self._heartbeat = Heartbeat(
            identity=NodeIdentity(
                scope=scope,
                target_name=settings.name,
                address=node_address,
                kubelet_version=lambda: self._target_version,
                federate_version=federate_version,
                user_labels=settings.labels,
            ),
            ports=NodePorts(
                hub=hub,
                target=target,
                nodes=self._nodes,
                offer=self._build_offer(),
                anchors=register,
                uninstalled=self._ground.uninstalled,
                wake_pods=self._wake_all,
                fence=ports.fence,
                now=_now,
            ),
        )
        self._pods = PodReconciler(
            scope=scope,
            rules=PlanRules(
                render=RenderRules(),
                addresses=Addresses(node_address=node_address),
                target_name=settings.name,
            ),
            ports=PodPorts(
                hub=hub,
                target=target,
                hub_pods=self._hub_pods,
                mirrors=self._mirrors,
                ground=self._ground,
                events=ports.events,
                target_reachable=lambda: self._heartbeat.reachability.is_reachable,
                watch_gaps=lambda: self._mirror_reflector.relists,
                watch_heard_at=lambda: self._mirror_reflector.last_activity_at,
                confirm_hub=ports.confirm_hub,
                clock=time.monotonic,
                fence=ports.fence,
                now=_now,
                mirror_changed=self._follow_mirror,
                on_orphan_deleted=partial(ports.metrics.orphan_deleted, settings.name),
                orphan_bound=RateBound(
                    per_second=ORPHANS_PER_SECOND,
                    burst=ORPHANS_AT_ONCE,
                    clock=asyncio.get_running_loop().time,
                ),
            ),
        )
        self._sweeper = Sweeper(
            hub=hub,
            target=target,
            scope=scope,
            confirm_hub=ports.confirm_hub,
            enqueue=self._enqueue,
            namespaces=NamespaceKeeper(
                hub=hub,
                target=target,
                scope=scope,
                forget_anchor=register.forget,
                confirm_hub=ports.confirm_hub,
                fence=ports.fence,
            ),
        )
        self._watch_gauges()

    @property
    def is_announced(self) -> bool:
        """Tell whether the Node is on the hub with our word."""
        return self._heartbeat.announced.is_set()

    def gauge(self, name: str) -> float:
        """Read one of the gauges of a virtual node."""
        match name:
            case "federate_hub_pods":
                return float(len(self._hub_pods))
            case "federate_mirrors":
                return float(len(self._mirrors))
            case "federate_target_reachable":
                return float(self._heartbeat.reachability.is_reachable)
        raise KeyError(name)

    # -- building ----------------------------------------------------------------------------------

    def _build_reflectors(self) -> None:
        scope = self._scope
        self._hub_pod_reflector = Reflector(
            self._hub,
            PODS,
            self._hub_pods,
            name="hub-pods",
            field_selector=f"spec.nodeName={scope.node_name}",
            matches=lambda pod: node_name_of(pod) == scope.node_name,
            on_change=self._on_hub_pod,
            on_gap=self._gap(self._hub, PODS),
        )
        self._mirror_reflector = Reflector(
            self._target,
            PODS,
            self._mirrors,
            name="mirrors",
            label_selector=scope.selector,
            matches=scope.owns,
            on_change=self._on_mirror,
            on_gap=self._gap(self._target, PODS),
        )
        self._anchor_reflector = Reflector(
            self._target,
            CONFIGMAPS,
            self._anchors,
            name="anchors",
            label_selector=scope.selector,
            matches=scope.owns,
            on_change=self._on_anchor,
        )
        self._node_reflector = Reflector(
            self._hub,
            NODES,
            self._nodes,
            name="node",
            field_selector=f"metadata.name={scope.node_name}",
            matches=lambda node: key_of(node).name == scope.node_name,
            on_change=lambda change: self._heartbeat.on_node(change),
        )
        self._reflectors = [
            self._hub_pod_reflector,
            self._mirror_reflector,
            self._anchor_reflector,
            self._node_reflector,
        ]

    def _gap(self, cluster: ClusterPort, resource: Resource) -> Callable[[], None]:
        return partial(self._metrics.watch_gap, cluster=cluster.name, resource=resource.plural)

    def _build_offer(self) -> StaticOffer | AggregateOffer:
        self._aggregate: AggregateOffer | None = None
        if self._settings.capacity is not None:
            return StaticOffer(self._settings.capacity)
        target_nodes = Store(transform=lean_node)
        foreign_pods = Store(transform=lean_foreign_pod)
        offer = AggregateOffer(
            nodes=target_nodes,
            foreign_pods=foreign_pods,
            hub_pods=self._hub_pods,
            is_synced=lambda: node_reflector.synced.is_set() and pod_reflector.synced.is_set(),
            wake=lambda: self._heartbeat.wake(),
        )
        node_reflector = Reflector(
            self._target, NODES, target_nodes, name="target-nodes", on_change=offer.on_node
        )
        pod_reflector = Reflector(
            self._target,
            PODS,
            foreign_pods,
            name="foreign-pods",
            label_selector=self._scope.others_selector,
            field_selector=_LIVE_PODS,
            on_change=offer.on_foreign_pod,
        )
        self._reflectors += [node_reflector, pod_reflector]
        self._aggregate = offer
        return offer

    def _watch_gauges(self) -> None:
        target = {"target": self._settings.name}
        unknown = partial(getattr, self._sweeper, "unknown_mirrors")
        self._metrics.watch_gauge("federate_unknown_mirrors", target, unknown)
        for lane in Lane:
            labels = {"node": self._settings.name, "lane": str(lane)}
            depth = partial(self._queue.depth, lane)
            oldest = partial(self._queue.oldest_wait_seconds, lane)
            self._metrics.watch_gauge("federate_queue_depth", labels, depth)
            self._metrics.watch_gauge("federate_queue_oldest_wait_seconds", labels, oldest)

    # -- from events to keys -----------------------------------------------------------------------

    def _on_hub_pod(self, change: Change) -> None:
        if self._aggregate is not None:
            self._aggregate.on_hub_pod(change)
        self._queue.add(*self._pods.on_hub_pod(change))

    def _follow_mirror(self, change: Change) -> None:
        if self._aggregate is not None:
            self._aggregate.on_mirror(change)

    def _on_mirror(self, change: Change) -> None:
        self._follow_mirror(change)
        woken = self._pods.on_mirror(change)
        if woken is not None:
            self._queue.add(*woken)

    def _on_anchor(self, change: Change) -> None:
        self._heartbeat.wake()
        for key in list(self._hub_pods.keys()):
            if self._ground.mirror_key(key).namespace == change.key.namespace:
                self._enqueue(key)

    def _enqueue(self, key: ObjectKey) -> None:
        self._queue.add(key, self._pods.lane_of_key(key))

    def _wake_all(self) -> None:
        """The target is back, or an operator spoke: every pod is worth a look."""
        for key in list(self._hub_pods.keys()):
            self._enqueue(key)

    async def _reconcile(self, key: ObjectKey, lane: str) -> Outcome:
        """Reconcile a hub pod, unless its node is a stranger's, or not there: who knows whose."""
        self._heartbeat.check_ours()
        if not self._heartbeat.is_registered:
            return Again(UNREGISTERED_PAUSE_SECONDS)
        return await self._pods.reconcile(key, lane)

    # -- running -----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Run all parts until cancelled; the first that fails ends the others."""
        async with asyncio.TaskGroup() as group:
            for reflector in self._reflectors:
                group.create_task(reflector.run(), name=f"reflector-{reflector.name}")
            group.create_task(self._heartbeat.run(), name="heartbeat")
            await self._wait_until_ready()
            controller = Controller(
                self._settings.name,
                self._queue,
                self._reconcile,
                WORKERS,
                observer=self._metrics.reconcile_observer(self._settings.name),
                context={"kind": "Pod"},
            )
            group.create_task(controller.run(), name="pods")
            group.create_task(self._sweeper.run(), name="sweeper")
            group.create_task(self._compare(), name="compare")
            for reflector in (self._hub_pod_reflector, self._mirror_reflector):
                group.create_task(self._verify(reflector), name=f"verify-{reflector.name}")
            self._heartbeat.announce()

    async def _wait_until_ready(self) -> None:
        """Wait for the stores and the target's word: what is announced must be true (C13)."""
        await self._is_distinct.wait()
        for reflector in self._reflectors:
            await self._wait_for_store(reflector)
        await self._wait_for_our_node()
        node: JsonObject | None = self._nodes.get(ObjectKey("", self._scope.node_name))
        if node is not None:
            self._register.learn(node)
        self._target_version = await self._ask_target_version()
        await self._heartbeat.asked.wait()

    async def _wait_for_our_node(self) -> None:
        """Wait while a stranger's Node has our name; the heartbeat tells of it in the log."""
        while True:
            try:
                self._heartbeat.check_ours()
            except NotOurs:
                await asyncio.sleep(STRANGER_PAUSE_SECONDS)
            else:
                return

    async def _wait_for_store(self, reflector: Reflector) -> None:
        while True:
            try:
                async with asyncio.timeout(TELL_WAITING_SECONDS):
                    await reflector.synced.wait()
            except TimeoutError:
                error = reflector.last_error
                log.warning(
                    "still waiting for a first listing",
                    reflector=reflector.name,
                    error=str(error) if error else "no answer yet",
                )
            else:
                return

    async def _ask_target_version(self) -> str:
        while True:
            try:
                version = await self._target.raw_get("/version")
            except ClusterError as error:
                log.info("the target does not tell its version yet", error=str(error))
                await asyncio.sleep(1.0)
            else:
                return str(version.get("gitVersion") or "unknown")

    async def _compare(self) -> None:
        """The net under the events: what was last handled against what is known now."""
        while True:
            await asyncio.sleep(COMPARE_SECONDS)
            for key in self._pods.unsettled_keys():
                self._enqueue(key)

    async def _verify(self, reflector: Reflector) -> None:
        """The net under the watch: read the collection anew and repair what was never told."""
        clock = asyncio.get_running_loop().time
        pause = COMPARE_SECONDS
        while True:
            await asyncio.sleep(pause)
            started_at = clock()
            try:
                await reflector.verify()
            except ClusterError as error:
                log.debug("comparison not finished", reflector=reflector.name, error=str(error))
            took = clock() - started_at
            pause = max(COMPARE_SECONDS, (took - 1.0) / VERIFY_SHARE)


def _now() -> datetime:
    return datetime.now(UTC)
