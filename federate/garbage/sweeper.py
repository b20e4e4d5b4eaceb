"""Sweep a target: find the mirrors nobody wants, and remove them one by one, surely.

A running virtual node finds orphans by events at once; `run` is the net under it, which reads both
sides anew and hands what it found to the same queue. `survey` and `remove_orphan` serve the command
line. Deletion needs all of: a complete quorum read of the hub, a direct read that confirms, our
marks, and the mirror's uid as precondition (C51).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from federate.cluster.identity import IdentityGuard, cluster_identity
from federate.cluster.port import ClusterPort
from federate.errors import ClusterError, Conflict, NotFound
from federate.garbage.namespaces import NamespaceKeeper
from federate.garbage.plan import Orphan, Survey, plan_sweep
from federate.model.marks import HUB_LABEL, Scope, origin_of
from federate.model.objects import ObjectKey, uid_of
from federate.model.resources import PODS

log = structlog.stdlib.get_logger(__name__)

SWEEP_PERIOD_SECONDS = 60.0
"""How often both sides are read anew. Events and the comparison of stores come first."""


async def survey_scope(
    hub: ClusterPort,
    target: ClusterPort,
    scope: Scope,
    *,
    confirm_hub: Callable[[], Awaitable[None]],
) -> Survey:
    """Read the target's mirrors first, then all hub pods of the node, and compare.

    In this order a hub pod that is created meanwhile is seen, so its mirror is no orphan. What the
    hub does not list counts only once it is sure that it is still the same hub.
    """
    mirrors = await target.list(PODS, label_selector=f"{HUB_LABEL}={scope.hub_id}")
    hub_pods = await hub.list(
        PODS, field_selector=f"spec.nodeName={scope.node_name}", metadata_only=True
    )
    await confirm_hub()
    return plan_sweep(scope=scope, hub_pods=hub_pods.items, mirrors=mirrors.items)


async def survey(hub: ClusterPort, target: ClusterPort, *, node_name: str) -> Survey:
    """Survey one virtual node's target, for the command line. Writes nothing."""
    scope = Scope(hub_id=await cluster_identity(hub), node_name=node_name)
    guard = IdentityGuard(hub, scope.hub_id)
    return await survey_scope(hub, target, scope, confirm_hub=guard.confirm)


async def remove_orphan(hub: ClusterPort, target: ClusterPort, orphan: Orphan) -> str:
    """Confirm an orphan by direct reads, and delete it under its uid; returns what happened."""
    try:
        hub_pod = await hub.get(PODS, orphan.hub_pod)
    except NotFound:
        await IdentityGuard(hub, orphan.hub_id).confirm()
        hub_pod = {}
    if uid_of(hub_pod) == orphan.hub_pod_uid:
        return "kept: its hub pod exists"
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
        namespaces: NamespaceKeeper,
    ) -> None:
        self._hub = hub
        self._target = target
        self._scope = scope
        self._confirm_hub = confirm_hub
        self._confirm_target = confirm_target
        self._enqueue = enqueue
        self._namespaces = namespaces
        self.unknown_mirrors = 0

    async def run(self) -> None:
        """Sweep until cancelled; a failed pass is logged and tried again a period later."""
        while True:
            await asyncio.sleep(SWEEP_PERIOD_SECONDS)
            try:
                await self.sweep()
                await self._namespaces.give_back()
            except ClusterError as error:
                log.info("sweep not finished; trying again later", error=str(error))

    async def sweep(self) -> Survey:
        """Read both sides and hand every orphan's key to the queue, which confirms and deletes."""
        found = await survey_scope(
            self._hub, self._target, self._scope, confirm_hub=self._confirm_hub
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
