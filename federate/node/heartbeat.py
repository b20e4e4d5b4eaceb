"""Keep the virtual node alive: probe the target, write the Node and its status, renew its lease.

Three loops that never wait for each other. What the Node should say is rendered purely from facts;
this module only looks, writes, and keeps time. A dead target, and one that has become another
cluster, is told once (TargetReachable=False), then there is silence: no status, no lease, so that
the hub's own grace decides (C12). An operator's words on the Node are carried out here.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Protocol

import structlog

from federate.cluster.port import ClusterPort
from federate.cluster.store import Change, Store
from federate.errors import (
    AlreadyExists,
    ClusterError,
    Conflict,
    NotFound,
    NotOurs,
    TargetChanged,
)
from federate.model.expiry import Expiry
from federate.model.instants import format_instant
from federate.model.leases import NODE_LEASE_NAMESPACE, render_node_lease
from federate.model.marks import Scope
from federate.model.objects import (
    JsonDict,
    JsonObject,
    ObjectKey,
    condition_of,
    is_terminating,
    status_of,
    uid_of,
)
from federate.model.reasons import NodeReason
from federate.model.resources import LEASES, NODES
from federate.node.anchors import NodeAnchors, parse_accepted, parse_reinstall
from federate.node.capacity import to_show
from federate.node.credentials import credentials_word
from federate.node.daemonsets import DaemonSetsWord
from federate.node.probe import TargetProbe
from federate.node.reachability import Reachability, TargetState
from federate.node.render import (
    TARGET_REACHABLE,
    KubeletWord,
    NodeFacts,
    NodeShape,
    is_registered_by,
    new_node,
    node_patch,
    node_status_patch,
    render_node,
)
from federate.patch.document import PatchBody
from federate.services.addresses import AddressDecision

log = structlog.stdlib.get_logger(__name__)

LEASE_DURATION_SECONDS = 40
"""A kubelet's default; the hub's node controller judges by its own grace anyway."""
LEASE_RENEW_SECONDS = 10.0
"""A kubelet's pace: a quarter of the lease's 40 s."""
LEASE_RETRY_SECONDS = 0.5
"""After a failure: quick, since three missed renewals make the node NotReady."""
BATCH_SECONDS = 0.2
"""Changes of capacity and labels that come together are written together."""
LOOK_AGAIN_SECONDS = 30.0
TELL_SECONDS = 5.0
"""How long a hub is waited for to take the word on a changed target, before we begin anew."""


class Offer(Protocol):
    """What the target offers at the moment."""

    def capacity(self) -> Mapping[str, str] | None:
        """Return quantities by resource; None while it is not known yet."""

    def trouble(self) -> str:
        """Return why less is offered than there may be, "" where all is well."""

    def common_labels(self) -> Mapping[str, str]:
        """Return the labels all target nodes that count share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeIdentity:
    """What never changes about a virtual node while it runs."""

    scope: Scope
    target_name: str
    address: str
    kubelet_version: Callable[[], str]
    federate_version: str
    user_labels: Mapping[str, str]
    shape: NodeShape = field(default_factory=NodeShape)
    confined_to: Sequence[str] = ()
    """The only namespaces of the target that may be read; empty: no bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePorts:
    """Everything the heartbeat acts through."""

    hub: ClusterPort
    target: ClusterPort
    nodes: Store
    """The hub's Node of our name, kept by a reflector."""
    nodes_synced: asyncio.Event
    """Set once `nodes` says whether the Node is there, and what it remembers."""
    offer: Offer
    anchors: NodeAnchors
    uninstalled: Callable[[], list[str]]
    wake_pods: Callable[[], None]
    """Called when the target answers again, and when an operator gives a namespace free."""
    fence: Callable[[], None]
    now: Callable[[], datetime]
    credential_expiry: Callable[[], Expiry | None] | None = None
    """When the credentials for the target end; None: nothing is said of them."""
    kubelet: Callable[[], KubeletWord | None] = lambda: None
    """How the kubelet API stands; None: nothing is said of one."""
    addresses: Callable[[], AddressDecision | None] = lambda: None
    """Which addresses pods show; None: nothing is said of them."""
    daemonsets: Callable[[JsonObject], DaemonSetsWord | None] = lambda node: None
    """Which DaemonSets tolerate the Node as it stands; None: nothing is said of them."""
    companions_left: Callable[[], str] = lambda: ""
    """What of companions is left that shall be none; no reason to write the Node at once."""


class Heartbeat:
    """One virtual node's heartbeat. `announce` once the pod controllers are ready (C13)."""

    def __init__(self, *, identity: NodeIdentity, ports: NodePorts) -> None:
        self.probe = TargetProbe(
            target=ports.target,
            scope=identity.scope,
            memory=ports.anchors,
            on_change=self._on_target,
            namespaces=identity.confined_to,
        )
        self.announced = asyncio.Event()
        self._identity = identity
        self._ports = ports
        self._dirty = asyncio.Event()
        self._may_announce = False
        self._shown: Mapping[str, str] | None = None
        self._told_word = ""
        self._told_changed = asyncio.Event()
        self._key = ObjectKey("", identity.scope.node_name)
        self._lease: JsonDict | None = None

    @property
    def reachability(self) -> Reachability:
        """Tell what is known of the target."""
        return self.probe.reachability

    def announce(self) -> None:
        """Let the Node be registered: everything behind it is ready."""
        self._may_announce = True
        self._dirty.set()

    def wake(self) -> None:
        """Look again soon: capacity, labels or the Node changed."""
        self._dirty.set()

    def on_node(self, change: Change) -> None:
        """Follow the Node: changed by others, or deleted (registered again at once)."""
        if change.new is None:
            self._lease = None
        self._dirty.set()

    async def run(self) -> None:
        """Beat until cancelled.

        Raises:
            TargetChanged: the target has become another cluster; begin anew.
        """
        async with asyncio.TaskGroup() as group:
            group.create_task(self._probe_loop(), name="ping")
            group.create_task(self._node_loop(), name="node")
            group.create_task(self._lease_loop(), name="node-lease")

    # -- the target --------------------------------------------------------------------------------

    async def _probe_loop(self) -> None:
        """Ask the target only once it is known which cluster it should be."""
        await self._ports.nodes_synced.wait()
        present = self._ports.nodes.get(self._key)
        if present is None:
            self._ports.anchors.recall()
        elif is_registered_by(present, self._identity.scope.hub_id):
            self._ports.anchors.learn(present)
        try:
            await self.probe.run()
        except TargetChanged:
            with suppress(TimeoutError):
                async with asyncio.timeout(TELL_SECONDS):
                    await self._told_changed.wait()
            raise

    def _on_target(self) -> None:
        self._dirty.set()
        if self.reachability.is_reachable:
            self._ports.wake_pods()

    # -- the Node ----------------------------------------------------------------------------------

    async def _node_loop(self) -> None:
        failures = 0
        while True:
            try:
                async with asyncio.timeout(LOOK_AGAIN_SECONDS):
                    await self._dirty.wait()
            except TimeoutError:
                pass
            self._dirty.clear()
            try:
                await self.beat()
                failures = 0
                await asyncio.sleep(BATCH_SECONDS)
            except (ClusterError, NotOurs) as error:
                failures += 1
                wait_seconds = 0.0 if failures == 1 and isinstance(error, Conflict) else None
                await self._pause_after(error, failures, wait_seconds)

    async def _pause_after(
        self, error: Exception, failures: int, wait_seconds: float | None
    ) -> None:
        if not isinstance(error, Conflict):
            log.warning("the Node could not be written; trying again", error=str(error))
        if wait_seconds is None:
            wait_seconds = min(10.0, 0.25 * 2.0**failures) * random.uniform(0.9, 1.1)  # noqa: S311
        await asyncio.sleep(wait_seconds)
        self._dirty.set()

    async def beat(self) -> None:
        """Write what the Node should say and does not. Unchanged costs no write.

        Raises:
            NotOurs: a Node of our name exists that is not this hub's virtual node.
            ClusterError: whatever the hub answered.
        """
        self.check_ours()
        present = self._ports.nodes.get(self._key)
        if present is not None:
            self._ports.anchors.learn(present)
            self._shown = status_of(present).get("capacity") or {}
            await self._carry_out_words(present)
        state = self.reachability.state
        if state is TargetState.UNKNOWN:
            return
        if present is None:
            await self._register_if_due()
        elif state.is_silent:
            if not self._is_told(present):
                await self._write_status(present, self._shown or {})
            if state is TargetState.CHANGED:
                self._told_changed.set()
        elif state is TargetState.REFUSED and not self._may_announce:
            await self._write_status(present, self._shown or {})
        elif self._may_announce:
            await self._update(present)

    async def _register_if_due(self) -> None:
        """Register the Node for the first time, or again.

        One that somebody deleted comes back even while the target is away, or the hub would remove
        its pods (pod GC); it is as silent then as the one before (C10). Where its size was never
        seen either, it offers nothing.
        """
        was_there = self.announced.is_set() or self._ports.anchors.has_learnt
        offer = self._ports.offer.capacity()
        if self.reachability.is_reachable:
            if self._may_announce and offer is not None:
                await self._register(offer)
        elif was_there:
            await self._register(self._shown or offer or to_show({}))

    @property
    def is_registered(self) -> bool:
        """Tell whether the Node stands on the hub, is ours, and says which cluster the target is.

        Nothing is to be created in a target before that is on record (C5).
        """
        node = self._ports.nodes.get(self._key)
        return (
            node is not None
            and is_registered_by(node, self._identity.scope.hub_id)
            and self._ports.anchors.is_on_record(node)
        )

    def check_ours(self) -> None:
        """Raise NotOurs where a stranger's Node has our name: its pods are not ours either."""
        present = self._ports.nodes.get(self._key)
        if present is not None and not is_registered_by(present, self._identity.scope.hub_id):
            raise NotOurs(
                f"a Node {self._key} exists on the hub that federate did not register: it and its "
                "pods stay untouched. Give the target another name, or remove that Node"
            )

    async def _carry_out_words(self, present: JsonObject) -> None:
        """Do what an operator wrote on the Node, and take it down."""
        if parse_reinstall(present):
            await self._ports.anchors.reinstall()
            self._ports.wake_pods()
        word = parse_accepted(present)
        if word and word in (self.probe.found, self._ports.anchors.identity):
            await self._ports.anchors.accept(word)
            self.probe.ask_soon()
        elif word and word != self._told_word and self.probe.found:
            # It stays, and is carried out when that cluster answers: so a move can be prepared.
            log.warning("an accepted target does not answer here", accepted=word)
        self._told_word = word

    async def _register(self, offer: Mapping[str, str]) -> None:
        rendered = self._render(None, offer)
        body = new_node(rendered, memory=self._ports.anchors.annotations())
        self._ports.fence()
        with self._ports.nodes.writing(self._key) as ticket:
            try:
                ticket.commit(await self._ports.hub.create(NODES, body))
            except AlreadyExists:
                ticket.commit(await self._ports.hub.get(NODES, self._key))
                self._dirty.set()
                return
        log.info("virtual node registered", node=str(self._key))
        if self._may_announce:
            self.announced.set()
        await self._renew_lease_quietly()

    async def _update(self, present: JsonObject) -> None:
        if not self._ports.anchors.is_on_record(present):
            # Its own event brings the Node back here, under its new version.
            await self._ports.anchors.record_identity()
            return
        offer = self._ports.offer.capacity()
        shown = offer if offer is not None else self._shown or {}
        if not is_terminating(present):
            rendered = self._render(present, shown)
            await self._patch(node_patch(rendered, present), subresource="")
            present = self._ports.nodes.get(self._key) or present
        await self._write_status(present, shown)
        self.announced.set()

    async def _write_status(self, present: JsonObject, shown: Mapping[str, str]) -> None:
        rendered = self._render(present, shown)
        await self._patch(node_status_patch(rendered, present), subresource="status")

    async def _patch(self, patch: PatchBody | None, *, subresource: str) -> None:
        if patch is None:
            return
        self._ports.fence()
        with self._ports.nodes.writing(self._key) as ticket:
            try:
                ticket.commit(
                    await self._ports.hub.patch(NODES, self._key, patch, subresource=subresource)
                )
            except NotFound:
                self._dirty.set()

    def _is_told(self, node: JsonObject) -> bool:
        """Tell whether the Node says already why it is silent."""
        told = condition_of(node, TARGET_REACHABLE) or {}
        if self.reachability.state is TargetState.UNREACHABLE:
            return told.get("reason") == NodeReason.TARGET_UNREACHABLE
        is_same = told.get("message") == self.reachability.message
        return is_same and told.get("reason") == NodeReason.TARGET_CHANGED

    def _render(self, present: JsonObject | None, offer: Mapping[str, str]) -> JsonDict:
        identity, now = self._identity, self._ports.now()
        ask_expiry = self._ports.credential_expiry
        # Before the target was asked for its version the Node keeps what it said.
        said = (status_of(present or {}).get("nodeInfo") or {}).get("kubeletVersion") or ""
        facts = NodeFacts(
            scope=identity.scope,
            target_name=identity.target_name,
            address=identity.address,
            kubelet_version=identity.kubelet_version() or said,
            federate_version=identity.federate_version,
            offer=offer,
            state=self.reachability.state,
            state_message=self.reachability.message,
            offer_trouble=self._ports.offer.trouble(),
            target_labels=self._ports.offer.common_labels(),
            user_labels=identity.user_labels,
            shape=identity.shape,
            credentials=(
                credentials_word(ask_expiry(), now=now.timestamp()) if ask_expiry else None
            ),
            uninstalled=self._ports.uninstalled(),
            companions_left=self._ports.companions_left(),
            addresses=self._ports.addresses(),
            kubelet=self._ports.kubelet(),
        )
        # One that is not registered yet is looked at as it will be.
        shown = present or render_node(facts, None, now=format_instant(now))
        facts = replace(facts, daemonsets=self._ports.daemonsets(shown))
        return render_node(facts, present, now=format_instant(now))

    # -- the node lease ----------------------------------------------------------------------------

    async def _lease_loop(self) -> None:
        await self.announced.wait()
        while True:
            renewed = await self._renew_lease_quietly()
            await asyncio.sleep(LEASE_RENEW_SECONDS if renewed else LEASE_RETRY_SECONDS)

    async def _renew_lease_quietly(self) -> bool:
        if self.reachability.state not in (TargetState.REACHABLE, TargetState.REFUSED):
            return False
        try:
            await self.renew_lease()
        except ClusterError as error:
            self._lease = None
            log.warning("node lease not renewed; trying again", error=str(error))
            return False
        return True

    async def renew_lease(self) -> None:
        """Renew the node lease, optimistically from the last one we wrote (KEP-589)."""
        node = self._ports.nodes.get(self._key)
        if node is None:
            return
        key = ObjectKey(NODE_LEASE_NAMESPACE, self._key.name)
        self._ports.fence()
        try:
            await self._write_lease(key, uid_of(node))
        except (NotFound, Conflict):
            self._lease = None
            await self._write_lease(key, uid_of(node))

    async def _write_lease(self, key: ObjectKey, node_uid: str) -> None:
        """Write over the lease we know; without one create it, or read whose it is first."""
        body = self._render_lease(node_uid)
        if self._lease is not None:
            self._lease = await self._ports.hub.replace(LEASES, key, body)
            return
        try:
            self._lease = await self._ports.hub.create(LEASES, body, namespace=key.namespace)
        except AlreadyExists:
            self._lease = await self._ports.hub.get(LEASES, key)
            body = self._render_lease(node_uid)
            self._lease = await self._ports.hub.replace(LEASES, key, body)

    def _render_lease(self, node_uid: str) -> JsonDict:
        return render_node_lease(
            node_name=self._key.name,
            node_uid=node_uid,
            duration_seconds=LEASE_DURATION_SECONDS,
            now=self._ports.now(),
            previous=self._lease,
        )
