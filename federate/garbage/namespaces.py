"""Give back target namespaces that federate made and nobody needs (C22).

A namespace goes only if all of this is so: it carries this hub's mark, its hub namespace is gone
(a direct read says so), no other virtual node has an anchor there, and *nothing* is left in it, of
any kind the target serves, but what Kubernetes itself puts into every namespace, what federate
keeps record by, its anchor and the entries of Secrets (which count themselves), and the door to the
hub's API server, which stands as long as the anchor.
What cannot be read counts as being there; and what another cluster says than the one on record
counts for nothing (C5).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import structlog

from federate.cluster.port import ClusterPort
from federate.companions.entries import is_entry
from federate.errors import Conflict, NotFound
from federate.model.marks import HUB_LABEL, HUB_NAMESPACE_ANNOTATION, Scope
from federate.model.naming import anchor_name
from federate.model.objects import (
    JsonObject,
    ObjectKey,
    annotations_of,
    is_terminating,
    key_of,
    labels_of,
    resource_version_of,
    uid_of,
)
from federate.model.resources import NAMESPACES, PODS, Resource
from federate.services.door import is_door

log = structlog.stdlib.get_logger(__name__)

IN_FLIGHT_SECONDS = 35.0
"""A create that was sent while the anchor was still known has ended by then (30 s at most)."""
LOOKS_AT_ONCE = 10
"""Each look lists every kind the target serves, one after the other."""

_MADE_BY_KUBERNETES = frozenset({("ConfigMap", "kube-root-ca.crt"), ("ServiceAccount", "default")})
_NOT_CONTENT = frozenset(
    {("", "Event"), ("events.k8s.io", "Event"), ("metrics.k8s.io", "PodMetrics")}
)
"""Kinds, with their groups, that speak of other objects and go with them."""


class NamespaceKeeper:
    """Removes namespaces of one virtual node's target; called by the sweeper."""

    def __init__(
        self,
        *,
        hub: ClusterPort,
        target: ClusterPort,
        scope: Scope,
        forget_anchor: Callable[[str], Awaitable[None]],
        confirm_hub: Callable[[], Awaitable[None]],
        confirm_target: Callable[[], Awaitable[None]],
        fence: Callable[[], None],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._hub = hub
        self._target = target
        self._scope = scope
        self._forget_anchor = forget_anchor
        self._confirm_hub = confirm_hub
        self._confirm_target = confirm_target
        self._fence = fence
        self._sleep = sleep
        self._looks = asyncio.Semaphore(LOOKS_AT_ONCE)

    async def give_back(self) -> list[str]:
        """Remove what may go; returns the names. A failure leaves the rest for the next pass."""
        listing = await self._target.list(
            NAMESPACES, label_selector=f"{HUB_LABEL}={self._scope.hub_id}"
        )
        removed = []
        for namespace in listing.items:
            may_go = not is_terminating(namespace) and await self._may_go(namespace)
            if may_go and await self._remove(namespace):
                removed.append(key_of(namespace).name)
        return removed

    async def leave(self, name: str) -> str:
        """Remove a namespace though its hub namespace stands: its virtual node is left for good.

        Nobody may mirror for this virtual node any more; another one may just have begun to use the
        namespace, so what is empty is looked at again once its anchor must have arrived. Returns
        why it stays, "" where it goes.

        Raises:
            Conflict: it changed while it was looked at.
        """
        key = ObjectKey("", name)
        try:
            namespace = await self._target.get(NAMESPACES, key)
        except NotFound:
            return ""
        if is_terminating(namespace):
            return ""
        is_ours = labels_of(namespace).get(HUB_LABEL) == self._scope.hub_id
        if not is_ours or HUB_NAMESPACE_ANNOTATION not in annotations_of(namespace):
            return "federate did not make it"
        left = await self._look_in_turn(name)
        if not left:
            await self._sleep(IN_FLIGHT_SECONDS)
            left = await self._look_in_turn(name)
        if left:
            return f"{left} is in it"
        await self._confirm_target()
        self._fence()
        version = resource_version_of(namespace)
        await self._target.delete(NAMESPACES, key, uid=uid_of(namespace), resource_version=version)
        return ""

    async def _may_go(self, namespace: JsonObject) -> bool:
        hub_namespace = annotations_of(namespace).get(HUB_NAMESPACE_ANNOTATION)
        name = key_of(namespace).name
        if not hub_namespace or await self._exists_on_hub(hub_namespace):
            return False
        pods = await self._target.list(PODS, namespace=name, metadata_only=True)
        if pods.items:
            return False
        left = await self._first_content(name)
        if left:
            log.info("target namespace kept: it is not empty", namespace=name, left=left)
        return not left

    async def _exists_on_hub(self, name: str) -> bool:
        try:
            await self._hub.get(NAMESPACES, ObjectKey("", name))
        except NotFound:
            await self._confirm_hub()
            return False
        return True

    async def _look_in_turn(self, namespace: str) -> str:
        """Look at what is in it; of those that are left side by side, only so many at once."""
        async with self._looks:
            return await self._first_content(namespace)

    async def _first_content(self, namespace: str) -> str:
        """Name the first object in the namespace that is not ours or Kubernetes' own."""
        for resource in await self._listable_resources():
            group = resource.group
            if (group, resource.kind) in _NOT_CONTENT:
                continue
            listing = await self._target.list(resource, namespace=namespace, metadata_only=True)
            for item in listing.items:
                name = key_of(item).name
                if (resource.kind, name) not in _MADE_BY_KUBERNETES and not self._goes_along(item):
                    return f"{resource.kind} {name}"
        return ""

    def _goes_along(self, obj: JsonObject) -> bool:
        """Tell an anchor, an entry, which says that there may be a Secret, or a door.

        By the marks, not by the name alone: a stranger may have taken the name.
        """
        is_anchor = key_of(obj).name == anchor_name(self._scope) and self._scope.owns(obj)
        return is_anchor or is_entry(self._scope, obj) or is_door(self._scope, obj)

    async def _listable_resources(self) -> list[Resource]:
        """Ask the target for every namespaced kind it serves, in whatever version."""
        groups = await self._target.raw_get("/apis")
        versions = ["v1", *(v["groupVersion"] for g in groups["groups"] for v in g["versions"])]
        found: dict[tuple[str, str], Resource] = {}
        for version in versions:
            root = f"/api/{version}" if version == "v1" else f"/apis/{version}"
            document = await self._target.raw_get(root)
            for resource in _namespaced(version, document["resources"]):
                found.setdefault((version.partition("/")[0], resource.plural), resource)
        return list(found.values())

    async def _remove(self, namespace: JsonObject) -> bool:
        """Delete the namespace, with all the looks repeated at the last moment.

        The anchor is forgotten first: its end is our own doing, not an uninstall (C23), and from
        then on a new pod makes its ground anew, which changes the namespace's version. The delete
        carries the version that was found empty, so it fails where anybody uses the namespace.
        """
        name = key_of(namespace).name
        await self._confirm_target()
        self._fence()
        await self._forget_anchor(name)
        await self._sleep(IN_FLIGHT_SECONDS)
        if not await self._may_go(namespace):
            return False
        await self._confirm_target()
        self._fence()
        try:
            await self._target.delete(
                NAMESPACES,
                key_of(namespace),
                uid=uid_of(namespace),
                resource_version=resource_version_of(namespace),
            )
        except Conflict:
            return False
        log.info("target namespace removed: its hub namespace is gone", namespace=name)
        return True


def _namespaced(version: str, resources: Iterable[Mapping[str, Any]]) -> list[Resource]:
    return [
        Resource(group_version=version, plural=r["name"], kind=r["kind"], namespaced=True)
        for r in resources
        if r.get("namespaced") and "/" not in r["name"] and "list" in r.get("verbs", ())
    ]
