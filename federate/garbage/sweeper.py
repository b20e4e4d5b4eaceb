"""Sweep a target: find the mirrors nobody wants, and remove them one by one, surely.

A running virtual node finds orphans by events at once; `run` is the net under it, which reads both
sides anew and hands what it found to the same queue. `survey` and `remove_orphan` serve the command
line. Deletion needs all of: a complete quorum read of the hub, a direct read that confirms, our
marks, and the mirror's uid as precondition (C51).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import structlog

from federate.cluster.identity import IdentityGuard, cluster_identity
from federate.cluster.port import ClusterPort
from federate.errors import ClusterError, ConfigError, Conflict, Forbidden, NotFound
from federate.garbage.namespaces import NamespaceKeeper
from federate.garbage.plan import Orphan, Survey, outline_of, plan_sweep
from federate.model.marks import HUB_LABEL, NODE_HUB_ANNOTATION, Scope, origin_of
from federate.model.objects import JsonDict, ObjectKey, annotations_of, uid_of
from federate.model.resources import NODES, PODS

log = structlog.stdlib.get_logger(__name__)

SWEEP_PERIOD_SECONDS = 60.0
"""How often both sides are read anew. Events and the comparison of stores come first."""

ALL_NAMESPACES = ("",)
"""What a listing is asked for where it is not confined to some namespaces."""


async def survey_scope(
    hub: ClusterPort,
    target: ClusterPort,
    scope: Scope,
    *,
    confirm_hub: Callable[[], Awaitable[None]],
    namespaces: Sequence[str] = ALL_NAMESPACES,
    with_phases: bool = True,
) -> Survey:
    """Read the target's mirrors first, then all hub pods of the node, and compare.

    Without phases it takes a fraction of the work and memory, on both sides.

    In this order a hub pod that is created meanwhile is seen, so its mirror is no orphan. What the
    hub does not list counts only once it is sure that it is still the same hub.
    """
    mirrors: list[JsonDict] = []
    for namespace in namespaces:
        mirrors += await _mirrors_in(target, namespace, scope, metadata_only=not with_phases)
    hub_pods = await hub.list(PODS, field_selector=f"spec.nodeName={scope.node_name}", bare=True)
    await confirm_hub()
    return plan_sweep(scope=scope, hub_pods=hub_pods.items, mirrors=mirrors)


async def _mirrors_in(
    target: ClusterPort, namespace: str, scope: Scope, *, metadata_only: bool
) -> list[JsonDict]:
    """List them; a single namespace that is closed to us does not keep the others."""
    try:
        listing = await target.list(
            PODS,
            namespace=namespace,
            label_selector=f"{HUB_LABEL}={scope.hub_id}",
            metadata_only=metadata_only,
            shrink=outline_of,
        )
    except Forbidden as error:
        if not namespace:
            raise
        log.warning("a target namespace is not swept", namespace=namespace, error=str(error))
        return []
    return listing.items


async def survey(
    hub: ClusterPort,
    target: ClusterPort,
    *,
    node_name: str,
    namespaces: Sequence[str] = ALL_NAMESPACES,
    hub_identity: str | None = None,
) -> Survey:
    """Survey one virtual node's target, for the command line. Writes nothing.

    `hub_identity` is what marks call the hub where that is not its uid (C3). The Node has to agree:
    under another hub's name all mirrors of that one would look like orphans.

    Raises:
        ConfigError: the Node is registered for a hub of another name, or not at all, and the name
            is not the hub's own.
    """
    hub_uid = await cluster_identity(hub)
    scope = Scope(hub_id=hub_identity or hub_uid, node_name=node_name)
    registered = await _registered_hub(hub, node_name)
    if registered not in ("", scope.hub_id):
        raise ConfigError(
            f"Node {node_name} is registered for the hub called {registered}, not {scope.hub_id}; "
            f"expected --hub-identity {registered}, if that is this hub"
        )
    if not registered and scope.hub_id != hub_uid:
        raise ConfigError(
            f"Node {node_name} is not registered on this hub, so nothing tells that it is the one "
            f"called {scope.hub_id}: were it another, all mirrors would look like orphans. Check "
            "--hub, and sweep while federate runs; or, to remove all that the virtual node made: "
            f"federate leave {node_name}"
        )
    guard = IdentityGuard(hub, hub_uid)
    return await survey_scope(hub, target, scope, confirm_hub=guard.confirm, namespaces=namespaces)


async def _registered_hub(hub: ClusterPort, node_name: str) -> str:
    try:
        node = await hub.get(NODES, ObjectKey("", node_name))
    except NotFound:
        return ""
    return str(annotations_of(node).get(NODE_HUB_ANNOTATION) or "")


async def remove_orphan(
    hub: ClusterPort,
    target: ClusterPort,
    orphan: Orphan,
    *,
    confirm_hub: Callable[[], Awaitable[None]] | None = None,
) -> str:
    """Confirm an orphan by direct reads, and delete it under its uid; returns what happened.

    Without `confirm_hub` the hub is known by the identity in its marks.
    """
    try:
        hub_pod = await hub.get(PODS, orphan.hub_pod)
    except NotFound:
        hub_pod = {}
    if uid_of(hub_pod) == orphan.hub_pod_uid:
        return "kept: its hub pod exists"
    # Absent, or another pod of its name: either says something only if this is still that hub.
    await (confirm_hub or IdentityGuard(hub, orphan.hub_id).confirm)()
    try:
        mirror = await target.get(PODS, orphan.mirror)
    except NotFound:
        return "already gone"
    origin = origin_of(mirror)
    if uid_of(mirror) != orphan.uid or origin is None or origin.pod_uid != orphan.hub_pod_uid:
        return "kept: another pod has its name now"
    try:
        await target.delete(PODS, orphan.mirror, uid=orphan.uid)
    except Conflict:
        return "kept: another pod has its name now"
    return "deleted"


class Sweeper:
    """The periodic pass of a running virtual node."""

    def __init__(
        self,
        *,
        hub: ClusterPort,
        target: ClusterPort,
        scope: Scope,
        confirm_hub: Callable[[], Awaitable[None]],
        confirm_target: Callable[[], Awaitable[None]],
        enqueue: Callable[[ObjectKey], None],
        keeper: NamespaceKeeper | None,
        watched: Callable[[], Sequence[str]] = lambda: ALL_NAMESPACES,
    ) -> None:
        """`watched` are the target namespaces to be read; no `keeper`: none is given back."""
        self._hub = hub
        self._target = target
        self._scope = scope
        self._confirm_hub = confirm_hub
        self._confirm_target = confirm_target
        self._enqueue = enqueue
        self._keeper = keeper
        self._watched = watched
        self.unknown_mirrors = 0

    async def run(self) -> None:
        """Sweep until cancelled; a failed pass is logged and tried again a period later."""
        while True:
            await asyncio.sleep(SWEEP_PERIOD_SECONDS)
            try:
                await self.sweep()
                if self._keeper is not None:
                    await self._keeper.give_back()
            except ClusterError as error:
                log.info("sweep not finished; trying again later", error=str(error))

    async def sweep(self) -> Survey:
        """Read both sides and hand every orphan's key to the queue, which confirms and deletes."""
        found = await survey_scope(
            self._hub,
            self._target,
            self._scope,
            confirm_hub=self._confirm_hub,
            namespaces=self._watched(),
            with_phases=False,
        )
        await self._confirm_target()  # or another cluster's leftovers would be told as ours
        for orphan in found.orphans:
            self._enqueue(orphan.hub_pod)
        if len(found.unknown) != self.unknown_mirrors:
            log.warning(
                "mirrors of other virtual nodes of this hub are here; `federate sweep` lists them",
                count=len(found.unknown),
            )
        self.unknown_mirrors = len(found.unknown)
        return found
