"""What a leader of a virtual node runs: the mirroring of its pods, its heartbeat, its offer.

Built anew each time the lease is won, so nothing known from an earlier leadership can mislead; and
each time the target became another cluster, so nothing read there can. Start is strict (C5, C13):
the cluster on record answers, stores synced, then the pod controller, then the Node is announced.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial

import structlog

from federate.claims.reconciler import Claims
from federate.cluster.port import ClusterPort
from federate.cluster.reflector import Reflector
from federate.cluster.store import Change, Store
from federate.cluster.upstream import OpenCall, Reply, UpstreamCall
from federate.errors import ClusterError, LeadershipLost, NotOurs, Unreachable
from federate.events.relay import EventRelay
from federate.events.render import render_event
from federate.events.teller import Teller
from federate.flow.controller import Again, Outcome
from federate.mirror.ports import EventSink, ObjectEventSink, Untold
from federate.mirror.render import RenderRules
from federate.mirror.steps import Lane, PlanRules
from federate.model.expiry import Expiry
from federate.model.marks import Scope
from federate.model.naming import confined_to
from federate.model.objects import JsonObject, ObjectKey, key_of
from federate.model.pods import VIRTUAL_NODE_TAINT_KEY
from federate.model.resources import NODES, Resource
from federate.node.anchors import NodeAnchors
from federate.node.heartbeat import Heartbeat, NodeIdentity, NodePorts
from federate.node.leaving import is_leaving
from federate.node.render import NodeShape
from federate.policy.rules import PolicyRules
from federate.runtime.companions import Comers
from federate.runtime.daemonsets import DaemonSetsView
from federate.runtime.hosted import HostedPods
from federate.runtime.kubeletapi import KubeletApi, KubeletPorts
from federate.runtime.mirroring import Mirroring, MirroringPorts, MirroringRules, Timing
from federate.runtime.offering import AllowedOffer, OfferPorts, build_offering
from federate.runtime.settings import TargetSettings
from federate.runtime.telemetry import Metrics
from federate.services.network import Network
from federate.services.ranges import RangeSources
from federate.status.project import Addresses

log = structlog.stdlib.get_logger(__name__)

TELL_WAITING_SECONDS = 10.0
STRANGER_PAUSE_SECONDS = 1.0
UNREGISTERED_PAUSE_SECONDS = 0.5

COMPANION_STANDINGS = ("settled", "absent", "blocked", "coming")
ISSUED_STANDINGS = ("settled", "coming", "blocked", "overdue")
CLAIM_STANDINGS = ("settled", "coming", "blocked", "elsewhere")
FOLLOWED_STANDINGS = ("followed", "waiting", "blocked", "absent", "coming")
"""Values of the label `standing`."""


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
    credential_expiry: Callable[[], Expiry | None] | None = None
    """When the credentials for the target end; None: the Node says nothing of them."""
    open_call: OpenCall | None = None
    """Opens a stream to the target; None: no kubelet API is served."""
    object_events: ObjectEventSink = field(default_factory=Untold)
    read_daemonsets: Callable[[], Awaitable[Sequence[JsonObject] | None]] | None = None
    """Lists the hub's DaemonSets, or says None where it may not; None: nothing is told of them."""
    read_hub_ranges: Callable[[], Awaitable[RangeSources]] | None = None
    """Tells the hub's address ranges, read once for all virtual nodes; None: each reads them."""
    is_leaving_for_good: bool = False
    """Nothing new is mirrored, whatever the Node says: it may have been registered anew."""


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
        memory: NodeAnchors | None = None,
    ) -> None:
        """`memory` is what was known a moment ago, should the Node be gone meanwhile."""
        self._settings = settings
        self._scope = scope
        self._ports = ports
        self._target_version = ""
        self._closed_namespaces: set[str] = set()
        self._nodes = Store()
        self._node_reflector = Reflector(
            ports.hub,
            NODES,
            self._nodes,
            name="node",
            field_selector=f"metadata.name={scope.node_name}",
            matches=lambda node: key_of(node).name == scope.node_name,
            on_change=self._on_node,
        )
        self.register = NodeAnchors(hub=ports.hub, scope=scope, fence=ports.fence, before=memory)
        self._timing = Timing(
            clock=asyncio.get_running_loop().time,
            now=_now,
            random=random.Random(),  # noqa: S311 (jitter)
        )
        self._mirroring = self._build_mirroring(node_address)
        self._offering = build_offering(
            settings.capacity,
            OfferPorts(
                target=ports.target,
                scope=scope,
                hub_pods=self._mirroring.hub_pods,
                mirrors=self._mirroring.mirrors,
                wake=lambda: self._heartbeat.wake(),
                clock=self._timing.clock,
                call_later=asyncio.get_running_loop().call_later,
            ),
        )
        self._target_events = self._build_target_events()
        self._kubelet = self._build_kubelet(node_address)
        self._daemonsets = self._build_daemonsets()
        self._heartbeat = Heartbeat(
            identity=NodeIdentity(
                scope=scope,
                target_name=settings.name,
                address=node_address,
                kubelet_version=lambda: self._target_version,
                federate_version=federate_version,
                user_labels=settings.labels,
                confined_to=confined_to(settings.namespaces) or (),
                shape=NodeShape(
                    taint_value=settings.taint_value,
                    taint_effect=settings.taint_effect,
                    taints=settings.taints,
                    provider_id=settings.provider_id,
                ),
            ),
            ports=NodePorts(
                hub=ports.hub,
                target=ports.target,
                nodes=self._nodes,
                nodes_synced=self._node_reflector.synced,
                offer=AllowedOffer(self._offering.offer, settings.policy),
                anchors=self.register,
                uninstalled=self._mirroring.ground.uninstalled,
                companions_left=self._mirroring.companions_left,
                wake_pods=self._mirroring.wake_all,
                fence=ports.fence,
                now=_now,
                credential_expiry=ports.credential_expiry,
                kubelet=lambda: self._kubelet.word() if self._kubelet is not None else None,
                addresses=lambda: self._mirroring.network.decision,
                daemonsets=lambda node: (
                    self._daemonsets.word(node) if self._daemonsets is not None else None
                ),
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
                return float(len(self._mirroring.hub_pods))
            case "federate_mirrors":
                return float(len(self._mirroring.mirrors))
            case "federate_target_reachable":
                return float(self._heartbeat.reachability.is_reachable)
        raise KeyError(name)

    # -- building ----------------------------------------------------------------------------------

    def _policy(self) -> PolicyRules:
        """The target's policy, which knows the taints of the virtual node."""
        keys = (VIRTUAL_NODE_TAINT_KEY, *(taint.key for taint in self._settings.taints))
        return replace(self._settings.policy, own_taint_keys=frozenset(keys))

    def _build_mirroring(self, node_address: str) -> Mirroring:
        ports, metrics, name = self._ports, self._ports.metrics, self._settings.name
        return Mirroring(
            MirroringRules(
                scope=self._scope,
                namespaces=self._settings.namespaces,
                plan=PlanRules(
                    render=RenderRules(
                        policy=self._policy(),
                        claims=self._settings.claims,
                        dns=self._settings.network.dns,
                    ),
                    addresses=Addresses(node_address=node_address),
                    target_name=name,
                ),
                companions=self._settings.companions,
                network=self._settings.network,
            ),
            MirroringPorts(
                hub=ports.hub,
                target=ports.target,
                events=ports.events,
                object_events=ports.object_events,
                fence=ports.fence,
                fence_target=lambda: self._heartbeat.probe.fence(),
                confirm_hub=ports.confirm_hub,
                confirm_target=lambda: self._heartbeat.probe.confirm(),
                register=self.register,
                target_reachable=lambda: self._heartbeat.reachability.is_reachable,
                admit=self._admit,
                hub_pod_changed=lambda change: self._offering.on_hub_pod(change),
                mirror_changed=lambda change: self._offering.on_mirror(change),
                anchor_changed=lambda: self._heartbeat.wake(),
                watch_gap=self._on_gap,
                orphan_deleted=partial(metrics.orphan_deleted, name),
                observer=metrics.reconcile_observer(name),
                lags=metrics.pod_lags(name, clock=self._timing.clock),
                leaving=self._is_leaving,
                read_hub_ranges=ports.read_hub_ranges,
                addresses_decided=lambda: self._heartbeat.wake(),
                companion_read=partial(metrics.companion_read, name),
            ),
            self._timing,
        )

    def _build_target_events(self) -> EventRelay:
        """Wire what no other part waits for: where it fails, hub pods go without Events."""
        ports, metrics, name = self._ports, self._ports.metrics, self._settings.name
        hub_pod_of = self._mirroring.hub_pod_of
        timing = self._timing
        teller = Teller(
            ports.hub,
            wants=lambda mirror_uid: hub_pod_of(mirror_uid) is not None,
            fence=ports.fence,
            on_told=partial(metrics.target_event, name, "told"),
            on_dropped=partial(metrics.target_event, name, "dropped"),
            clock=timing.clock,
            random=timing.random,
        )
        return EventRelay(
            ports.target,
            hub_pod_of,
            teller,
            render=partial(render_event, target_name=name, words=self._mirroring.words),
            namespaces=lambda: self._mirroring.ground.watched,
            clock=timing.clock,
            now=timing.now,
            random=timing.random,
        )

    def _build_kubelet(self, node_address: str) -> KubeletApi | None:
        """Wire what answers `kubectl logs` and the like: pods do not wait for it either."""
        ports, settings, mirroring = self._ports, self._settings, self._mirroring
        open_call = ports.open_call
        if open_call is None or not settings.kubelet.is_served:
            return None

        return KubeletApi(
            settings.kubelet,
            KubeletPorts(
                hub=ports.hub,
                target=ports.target,
                open_call=fenced(open_call, ports.fence, lambda: self._heartbeat.probe.fence()),
                pods=HostedPods(hub_pods=mirroring.hub_pods, mirror_by_uid=mirroring.mirror_by_uid),
                namespaces=lambda: mirroring.ground.watched,
                counts=ports.metrics.kubelet_counts(settings.name),
                tell=lambda: self._heartbeat.wake(),
            ),
            scope=self._scope,
            node_address=node_address,
        )

    def _build_daemonsets(self) -> DaemonSetsView | None:
        read = self._ports.read_daemonsets
        if read is None:
            return None
        return DaemonSetsView(
            read,
            mode=self._settings.policy.daemon_sets,
            tell=lambda: self._heartbeat.wake(),
            random=self._timing.random,
        )

    def _watch_kubelet(self, kubelet: KubeletApi) -> None:
        node = {"node": self._settings.name}
        for name, read in (
            ("federate_kubelet_streams", lambda: float(kubelet.open_streams)),
            ("federate_kubelet_serving", lambda: float(kubelet.word().is_serving)),
            ("federate_kubelet_certificate_expiry_timestamp_seconds", kubelet.certificate_ends_at),
        ):
            self._ports.metrics.watch_gauge(name, node, read)

    def _watch_comers(self, comers: Comers, claims: Claims) -> None:
        metrics, node = self._ports.metrics, {"node": self._settings.name}
        companions = comers.companions
        for name, count, standings in (
            ("federate_companions", companions.counts, COMPANION_STANDINGS),
            ("federate_issued", comers.issuer.counts, ISSUED_STANDINGS),
            ("federate_claims", claims.counts, CLAIM_STANDINGS),
        ):
            for standing in standings:
                metrics.watch_gauge(
                    name, {**node, "standing": standing}, partial(_read_count, count, standing)
                )
        metrics.watch_gauge("federate_companion_watches", node, lambda: float(companions.watches))
        metrics.watch_gauge("federate_companions_asked", node, lambda: float(companions.asked()))

    def _watch_followed(self, network: Network) -> None:
        for standing in FOLLOWED_STANDINGS:
            self._ports.metrics.watch_gauge(
                "federate_followed_services",
                {"node": self._settings.name, "standing": standing},
                partial(_read_count, network.counts, standing),
            )

    def _watch_gauges(self) -> None:
        metrics, queue = self._ports.metrics, self._mirroring.queue
        unknown = partial(getattr, self._mirroring.sweeper, "unknown_mirrors")
        metrics.watch_gauge("federate_unknown_mirrors", {"target": self._settings.name}, unknown)
        is_open = partial(getattr, self._target_events, "is_open")
        metrics.watch_gauge("federate_target_events_open", {"node": self._settings.name}, is_open)
        if self._kubelet is not None:
            self._watch_kubelet(self._kubelet)
        self._watch_comers(self._mirroring.comers, self._mirroring.claims)
        self._watch_followed(self._mirroring.network)
        for lane in Lane:
            labels = {"node": self._settings.name, "lane": str(lane)}
            depth = partial(queue.depth, lane)
            oldest = partial(queue.oldest_wait_seconds, lane)
            metrics.watch_gauge("federate_queue_depth", labels, depth)
            metrics.watch_gauge("federate_queue_oldest_wait_seconds", labels, oldest)

    # -- what mirroring tells and asks -------------------------------------------------------------

    def _on_node(self, change: Change) -> None:
        self._heartbeat.on_node(change)
        before, after = (node is not None and is_leaving(node) for node in (change.old, change.new))
        if before != after:
            self._mirroring.wake_all()

    def _is_leaving(self) -> bool:
        node = self._nodes.get(ObjectKey("", self._scope.node_name))
        return self._ports.is_leaving_for_good or (node is not None and is_leaving(node))

    def _on_gap(self, cluster: ClusterPort, resource: Resource) -> None:
        self._ports.metrics.watch_gap(cluster=cluster.name, resource=resource.plural)

    def _admit(self) -> Outcome | None:
        """Let no pod be touched whose node is a stranger's, or not there: who knows whose it is."""
        self._heartbeat.check_ours()
        return None if self._heartbeat.is_registered else Again(UNREGISTERED_PAUSE_SECONDS)

    # -- running -----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Run all parts until cancelled; the first that fails ends the others.

        Raises:
            TargetChanged: the target has become another cluster, and the Node says so.
        """
        async with asyncio.TaskGroup() as group:
            group.create_task(self._node_reflector.run(), name="reflector-node")
            group.create_task(self._heartbeat.run(), name="heartbeat")
            await self._wait_for_target()
            reflectors = [*self._mirroring.open(), *self._offering.reflectors]
            for reflector in reflectors:
                group.create_task(reflector.run(), name=f"reflector-{reflector.name}")
            for reflector in reflectors:
                await self._wait_for_store(reflector)
            if self._kubelet is not None:
                group.create_task(self._kubelet.run(), name="kubelet")
            await self.register.find(self._mirroring.anchors_in_use())
            self._target_version = await self._ask_target_version()
            group.create_task(self._mirroring.work(), name="pods")
            beside = {**self._mirroring.nets(), **self._target_events.parts()}
            if self._daemonsets is not None:
                beside["daemonsets"] = self._daemonsets.run
            for name, part in beside.items():
                group.create_task(part(), name=name)
            self._heartbeat.announce()

    async def _wait_for_target(self) -> None:
        """Wait until it is sure that the Node is ours, and that the target is the one on record."""
        await self._ports.is_distinct.wait()
        await self._wait_for_store(self._node_reflector)
        await self._wait_for_our_node()
        probe = self._heartbeat.probe
        while not probe.confirmed.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(TELL_WAITING_SECONDS):
                    await probe.confirmed.wait()
                    return
            said = probe.reachability.message or "nothing yet"
            log.warning("still waiting for the target", said=said)

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
        while not self._is_closed(reflector):
            try:
                async with asyncio.timeout(TELL_WAITING_SECONDS):
                    await reflector.synced.wait()
            except TimeoutError:
                if self._mirroring.may_begin_without(reflector):
                    self._closed_namespaces.add(reflector.namespace)
                    log.warning(
                        "a target namespace may not be read: its pods stay as they are",
                        namespace=reflector.namespace,
                        error=str(reflector.last_error),
                    )
                    return
                error = reflector.last_error
                log.warning(
                    "still waiting for a first listing",
                    reflector=reflector.name,
                    error=str(error) if error else "no answer yet",
                )
            else:
                return

    def _is_closed(self, reflector: Reflector) -> bool:
        """Tell whether another reflector of its namespace was waited for in vain already."""
        is_known = reflector.namespace in self._closed_namespaces
        return is_known and self._mirroring.may_begin_without(reflector)

    async def _ask_target_version(self) -> str:
        while True:
            try:
                version = await self._ports.target.raw_get("/version")
            except ClusterError as error:
                log.info("the target does not tell its version yet", error=str(error))
                await asyncio.sleep(1.0)
            else:
                return str(version.get("gitVersion") or "unknown")


def _read_count(count: Callable[[], Mapping[str, int]], standing: str) -> float:
    return float(count().get(standing, 0))


def fenced(open_call: OpenCall, *fences: Callable[[], None]) -> OpenCall:
    """Open streams only while no fence objects.

    Whoever lost the lease may know mirrors that are gone, whose names others have now; and pods of
    the same names may run in a cluster that is not the target any more (C5).
    """

    def open_fenced(call: UpstreamCall) -> AbstractAsyncContextManager[Reply]:
        try:
            for fence in fences:
                fence()
        except LeadershipLost as lost:
            # A request fails of it; what leads ends by itself.
            raise Unreachable(str(lost)) from lost
        return open_call(call)

    return open_fenced


def _now() -> datetime:
    return datetime.now(UTC)
