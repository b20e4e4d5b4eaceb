"""Read what there is to leave, on both sides. Writes nothing.

The target must be the cluster on record (C5): marks in another one say nothing about this virtual
node's mirrors.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from datetime import datetime, timedelta

from federate.claims.kept import kept_claims
from federate.cluster.port import ClusterPort
from federate.errors import ConfigError, Forbidden, NotFound, TargetChanged
from federate.garbage.brought import Brought, brought
from federate.leave.plan import Found
from federate.model.instants import parse_instant
from federate.model.leases import NODE_LEASE_NAMESPACE
from federate.model.marks import COMPANION_LABEL, NODE_HUB_ANNOTATION, Scope, record_of
from federate.model.naming import anchor_name
from federate.model.objects import JsonDict, JsonObject, ObjectKey, annotations_of, key_of, spec_of
from federate.model.resources import CLAIMS, CONFIGMAPS, LEASES, NODES, PODS, SERVICES, Resource
from federate.node.anchors import UNKNOWN_IDENTITY, NodeAnchors, is_identity, parse_anchors
from federate.node.recognition import Recognition
from federate.services.clearing import followed_services

LATELY = timedelta(seconds=40)
"""The duration of a node lease: who renewed it within may still be alive."""
LOOKS, LOOK_SECONDS = 6, 2.0
"""Longer in all than the ten seconds between two renewals of a node lease."""


async def find_node(hub: ClusterPort, node_name: str) -> JsonDict | None:
    """Read the virtual node; None where it is gone.

    Raises:
        ConfigError: a Node of that name is there, and is no virtual node.
    """
    try:
        node = await hub.get(NODES, ObjectKey("", node_name))
    except NotFound:
        return None
    if not annotations_of(node).get(NODE_HUB_ANNOTATION):
        raise ConfigError(f"{node_name} is no virtual node of federate; see federate status")
    return node


async def survey_hub(
    hub: ClusterPort, node_name: str, lease_key: ObjectKey, *, hub_id: str
) -> Found:
    """Read the hub's side. The Node says whose marks to look for; `hub_id` where it is gone."""
    node = await find_node(hub, node_name)
    said = annotations_of(node or {}).get(NODE_HUB_ANNOTATION)
    leases: list[JsonDict] = []
    with suppress(NotFound):
        leases.append(await hub.get(LEASES, lease_key))
    return Found(
        scope=Scope(hub_id=said or hub_id, node_name=node_name),
        node=node,
        hub_pods=await hub_pods_of(hub, node_name),
        leases=leases,
        recorded=tuple(parse_anchors(node or {})),
    )


async def leads_elsewhere(
    hub: ClusterPort, found: Found, lease_key: ObjectKey, *, now: Callable[[], datetime]
) -> bool:
    """Tell whether somebody leads by another leader lease than the one that was looked for.

    Then that one is not there, and the node lease is renewed all the same: lately, by the clocks,
    or before our eyes.
    """
    if found.node is None or found.leases:
        return False
    seen = await _renewal(hub, found.scope.node_name)
    renewed_at = parse_instant(seen)
    if renewed_at is not None and timedelta() <= now() - renewed_at < LATELY:
        return True
    for _ in range(LOOKS):
        await asyncio.sleep(LOOK_SECONDS)
        if await _renewal(hub, found.scope.node_name) != seen:
            return not await _exists(hub, lease_key)  # else a federate was started meanwhile
    return False


async def _renewal(hub: ClusterPort, node_name: str) -> str:
    try:
        lease = await hub.get(LEASES, ObjectKey(NODE_LEASE_NAMESPACE, node_name))
    except NotFound:
        return ""
    return str(spec_of(lease).get("renewTime") or "")


async def _exists(hub: ClusterPort, lease_key: ObjectKey) -> bool:
    try:
        await hub.get(LEASES, lease_key)
    except NotFound:
        return False
    return True


async def hub_pods_of(hub: ClusterPort, node_name: str) -> list[JsonDict]:
    """List the pods that are bound to the virtual node."""
    listing = await hub.list(PODS, field_selector=f"spec.nodeName={node_name}")
    return listing.items


class TargetGuard:
    """Confirms that the target is still the cluster that is left.

    That is the one on record, known as a running federate knows it; without a record, as where the
    Node is gone, the one that answered first. One that nobody names passes where it never had one.
    """

    def __init__(self, hub: ClusterPort, target: ClusterPort, found: Found) -> None:
        self._target = target
        records = (record_of(pod) for pod in found.hub_pods)
        self._has_mirrors = any(r is not None and r.mirror_uid for r in records)
        self._memory = NodeAnchors(hub=hub, scope=found.scope, fence=_writes_nothing)
        if found.node is not None:
            self._memory.learn(found.node)
        self._recognition = Recognition(
            target=target,
            memory=self._memory,
            namespaces=sorted(known_namespaces(found)),
            anchor_name=anchor_name(found.scope),
        )

    async def confirm(self) -> None:
        """Return where it is the same cluster, as read after this call.

        Raises:
            TargetChanged: it is another one.
            ClusterError: it cannot be told.
        """
        expected = self._memory.identity
        try:
            found = await self._recognition.identify()
        except (Forbidden, NotFound):
            if is_identity(expected):
                raise
            found = UNKNOWN_IDENTITY
        # After all mirrors are ended an interrupted command finds no anchor either.
        matters = is_identity(expected) or self._has_mirrors
        if matters and await self._recognition.is_another(found):
            known = expected if is_identity(expected) else "one that could not tell its name"
            raise TargetChanged(
                f"another cluster answers: {found}, on record is {known}, and none of its anchors "
                "stands there. Nothing is written there. Give the kubeconfig of the cluster on "
                "record",
                cluster=self._target.name,
            )
        self._memory.know_as(found)


def _writes_nothing() -> None:
    raise AssertionError("a guard only reads")


class TargetSurvey:
    """Reads what this virtual node has in its target.

    Where only single namespaces may be read, those that the hub knows of are.
    """

    def __init__(
        self,
        target: ClusterPort,
        scope: Scope,
        namespaces: Iterable[str],
        *,
        told_by_pods: Iterable[str] = (),
    ) -> None:
        """`told_by_pods`: what records of hub pods say besides, and so anybody may have written."""
        self._target = target
        self._scope = scope
        self._hearsay = frozenset(told_by_pods) - frozenset(namespaces)
        self.namespaces = tuple(sorted({*namespaces, *self._hearsay}))
        self.is_confined = False
        """Tells whether the rights end at single namespaces."""
        self.closed: set[str] = set()
        """Namespaces that only pods told of, and that may not be read."""
        self.unseen: dict[str, tuple[str, ...]] = {}
        """Kind -> namespaces where it may not be looked for, while it may be in others."""

    async def mirrors(self, *, metadata_only: bool = True) -> list[JsonDict]:
        """List the mirrors of this virtual node."""
        return await self._list(PODS, metadata_only=metadata_only)

    async def anchors(self) -> list[JsonDict]:
        """List the anchors of this virtual node, in every namespace: by marks and name.

        With their data: Secrets that came along are on record there.
        """
        name = anchor_name(self._scope)
        marked = await self._list(CONFIGMAPS, f",!{COMPANION_LABEL}", metadata_only=False)
        return [anchor for anchor in marked if key_of(anchor).name == name]

    async def brought(self, anchors: Iterable[JsonObject]) -> tuple[Brought, ...]:
        """List what came along with pods: ConfigMaps by marks, Secrets by the anchors' lists."""
        marked = await self._list(CONFIGMAPS, f",{COMPANION_LABEL}", metadata_only=True)
        return brought(self._scope, configmaps=marked, anchors=anchors)

    async def claims(self) -> list[JsonDict]:
        """List the claims that hold data; none where nobody may look, or federate made none."""
        return await self._list_each(
            CLAIMS.kind, lambda namespace: kept_claims(self._target, self._scope, (namespace,))
        )

    async def services(self) -> list[JsonDict]:
        """List the Services that followed; none where nobody may look, or none ever did."""
        return await self._list_each(
            SERVICES.kind,
            lambda namespace: followed_services(self._target, self._scope, namespaces=(namespace,)),
        )

    def unseen_words(self) -> tuple[str, ...]:
        """Say what could not be looked for, and where."""
        return tuple(
            f"namespace {namespace} may not be looked into for {kind}s: none of them is shown here"
            for kind, namespaces in sorted(self.unseen.items())
            for namespace in namespaces
        )

    async def _list_each(
        self, kind: str, list_in: Callable[[str], Awaitable[list[JsonDict]]]
    ) -> list[JsonDict]:
        """List what not every virtual node has the right to list, as far as it goes."""
        namespaces = self.namespaces if self.is_confined else ("",)
        found: list[JsonDict] = []
        unseen: list[str] = []
        for namespace in namespaces:
            try:
                found += await list_in(namespace)
            except Forbidden:
                unseen.append(namespace)
            except NotFound:
                continue
        # Nowhere: then it is a right that nobody gave, and federate made none.
        is_nowhere = len(unseen) == len(namespaces)
        told = () if is_nowhere else unseen
        self.unseen[kind] = tuple(name for name in told if name not in self.closed)
        return found

    async def _list(
        self, resource: Resource, narrower: str = "", *, metadata_only: bool
    ) -> list[JsonDict]:
        if not self.is_confined:
            try:
                return await self._list_in("", resource, narrower, metadata_only=metadata_only)
            except Forbidden:
                if not self.namespaces:
                    raise
                self.is_confined = True
        found: list[JsonDict] = []
        for namespace in self.namespaces:
            try:
                found += await self._list_in(
                    namespace, resource, narrower, metadata_only=metadata_only
                )
            except Forbidden:
                # Else a user of the hub could keep the operator from leaving.
                if namespace not in self._hearsay:
                    raise
                self.closed.add(namespace)
        return found

    async def _list_in(
        self, namespace: str, resource: Resource, narrower: str, *, metadata_only: bool
    ) -> list[JsonDict]:
        listing = await self._target.list(
            resource,
            namespace=namespace,
            label_selector=f"{self._scope.selector}{narrower}",
            metadata_only=metadata_only,
        )
        return [obj for obj in listing.items if self._scope.owns(obj)]


def survey_of(target: ClusterPort, found: Found) -> TargetSurvey:
    """Survey the target of a virtual node, where the hub says that it has something."""
    return TargetSurvey(target, found.scope, found.recorded, told_by_pods=_told_by_pods(found))


def known_namespaces(found: Found) -> set[str]:
    """Name the target namespaces that the hub knows of."""
    return set(found.recorded) | _told_by_pods(found)


def _told_by_pods(found: Found) -> set[str]:
    records = (record_of(pod) for pod in found.hub_pods)
    return {record.mirror.namespace for record in records if record is not None}
