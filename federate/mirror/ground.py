"""The ground a mirror stands on: target namespace, default service account, anchor.

Made on demand and once (single flight per namespace). The anchor is the one object that owns every
mirror there: who deletes it uninstalls federate from that namespace (C23), so an anchor that is on
record but not there is never made again without an operator's word. Nothing without our marks is
touched: a namespace of our name that is not ours is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from federate.cluster.port import ClusterPort
from federate.cluster.store import Store
from federate.errors import AlreadyExists, Forbidden, NotFound, NotOurs
from federate.mirror.steps import AnchorState
from federate.model.instants import format_micro_instant
from federate.model.marks import (
    HUB_LABEL,
    HUB_NAMESPACE_ANNOTATION,
    NODE_NAME_ANNOTATION,
    USED_AT_ANNOTATION,
    Scope,
)
from federate.model.naming import NamespaceRules, NamespaceStrategy, anchor_name, target_namespace
from federate.model.objects import (
    JsonDict,
    JsonObject,
    ObjectKey,
    annotations_of,
    is_terminating,
    key_of,
    labels_of,
    uid_of,
)
from federate.model.resources import CONFIGMAPS, NAMESPACES, SERVICEACCOUNTS
from federate.patch.document import MERGE, PatchBody

POD_SECURITY_LABEL = "pod-security.kubernetes.io/enforce"
POD_SECURITY_LEVEL = "baseline"

SERVICE_ACCOUNT_LOOKS = 10
SERVICE_ACCOUNT_PAUSE_SECONDS = 0.1
"""A new namespace has its default account in a moment: about a second is waited for in hand."""


class AnchorRegister(Protocol):
    """Where it is kept, on the hub, that a namespace has its anchor: the memory of C23."""

    def recorded(self) -> Mapping[str, str]:
        """Return target namespace -> anchor uid."""

    async def record(self, namespace: str, uid: str) -> None:
        """Keep that the namespace has its anchor. Idempotent; raises ClusterError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroundRules:
    """How this virtual node uses the target's namespaces."""

    scope: Scope
    namespaces: NamespaceRules


class Ground:
    """Namespaces and anchors of one virtual node in its target."""

    def __init__(
        self,
        *,
        rules: GroundRules,
        target: ClusterPort,
        anchors: Store,
        register: AnchorRegister,
        confirm_target: Callable[[], Awaitable[None]],
        fence: Callable[[], None],
        now: Callable[[], datetime],
    ) -> None:
        self._rules = rules
        self._target = target
        self._anchors = anchors
        self._register = register
        self._confirm_target = confirm_target
        self._fence = fence
        """Raises where we may not write to the target any more; called before every write."""
        self._now = now
        self._locks: dict[str, asyncio.Lock] = {}
        self._ending: set[str] = set()
        """Namespaces that were seen going: their anchor goes with them."""

    def mirror_key(self, hub_key: ObjectKey) -> ObjectKey:
        """Name the mirror of a hub pod."""
        namespace = target_namespace(
            self._rules.namespaces.strategy, self._rules.scope.hub_id, hub_key.namespace
        )
        return ObjectKey(namespace, hub_key.name)

    def anchor(self, namespace: str) -> JsonObject | None:
        """Return the namespace's anchor, if it is there to own something."""
        anchor = self._anchors.get(self._anchor_key(namespace))
        if namespace in self._ending:
            return None
        if anchor is None or is_terminating(anchor) or not self._rules.scope.owns(anchor):
            return None
        recorded = self._register.recorded().get(namespace)
        return anchor if recorded in (None, uid_of(anchor)) else None

    def anchor_state(self, namespace: str) -> AnchorState:
        """Say what is known of the namespace's anchor."""
        recorded = namespace in self._register.recorded()
        if self.anchor(namespace) is not None:
            return AnchorState.PRESENT if recorded else AnchorState.NEVER
        return AnchorState.GONE if recorded else AnchorState.NEVER

    def uninstalled(self) -> list[str]:
        """List the target namespaces whose anchor somebody removed."""
        return sorted(n for n in self._register.recorded() if self.anchor(n) is None)

    async def look_up_anchor(self, namespace: str) -> AnchorState:
        """Read the anchor and its namespace from the quorum, and say what stands there.

        A namespace that is being deleted takes pods and anchor along in no particular order: it is
        an uninstall either way.
        """
        key = self._anchor_key(namespace)
        async with self._lock(namespace):
            await self._look_up_namespace(namespace)
            with self._anchors.writing(key) as ticket:
                try:
                    ticket.commit(await self._target.get(CONFIGMAPS, key))
                except NotFound:
                    await self._confirm_target()
                    known = self._anchors.get(key)
                    if known is not None:
                        ticket.commit_deleted(uid_of(known))
        return self.anchor_state(namespace)

    async def _look_up_namespace(self, namespace: str) -> None:
        try:
            present = await self._target.get(NAMESPACES, ObjectKey("", namespace))
        except NotFound:
            await self._confirm_target()
            self._ending.add(namespace)
            return
        (self._ending.add if is_terminating(present) else self._ending.discard)(namespace)

    async def prepare(self, hub_namespace: str) -> None:
        """Make sure that mirrors of the hub namespace can be created.

        Raises:
            NotOurs: the namespace or the anchor's name is somebody else's.
            Forbidden: not yet: the namespace terminates, or its service account is missing.
            ClusterError: whatever the target answered.
        """
        namespace = target_namespace(
            self._rules.namespaces.strategy, self._rules.scope.hub_id, hub_namespace
        )
        async with self._lock(namespace):
            if self.anchor_state(namespace) is not AnchorState.NEVER:
                return
            await self._confirm_target()
            await self._ensure_namespace(namespace, hub_namespace)
            await self._await_service_account(namespace)
            anchor = await self._ensure_anchor(namespace)
            await self._register.record(namespace, uid_of(anchor))

    def _lock(self, namespace: str) -> asyncio.Lock:
        return self._locks.setdefault(namespace, asyncio.Lock())

    async def _ensure_namespace(self, namespace: str, hub_namespace: str) -> None:
        key = ObjectKey("", namespace)
        is_new = False
        try:
            present = await self._target.get(NAMESPACES, key)
        except NotFound:
            self._fence()
            try:
                present = await self._target.create(
                    NAMESPACES, self._render_namespace(namespace, hub_namespace)
                )
                is_new = True
            except AlreadyExists:
                present = await self._target.get(NAMESPACES, key)
        self._ending.discard(namespace)
        if is_terminating(present):
            raise Forbidden(
                "the namespace is being terminated",
                cluster=self._target.name,
                verb="use",
                subject=f"namespace {namespace}",
                reason="NamespaceTerminating",
            )
        is_ours = labels_of(present).get(HUB_LABEL) == self._rules.scope.hub_id
        if self._rules.namespaces.strategy is NamespaceStrategy.SAME and not is_ours:
            return
        if not is_ours:
            raise NotOurs(
                f"namespace {namespace} of {self._target.name} exists without the label "
                f"{HUB_LABEL}={self._rules.scope.hub_id}: it is not federate's and stays untouched"
            )
        other = annotations_of(present).get(HUB_NAMESPACE_ANNOTATION)
        if other != hub_namespace:
            raise NotOurs(
                f"namespace {namespace} of {self._target.name} stands for hub namespace {other}, "
                f"not for {hub_namespace}: it stays untouched"
            )
        if not is_new:
            await self._note_use(present)

    async def _note_use(self, namespace: JsonObject) -> None:
        """Change the namespace's version: whoever is about to give it back finds it in use."""
        patch = PatchBody(
            media_type=MERGE,
            body={
                "metadata": {
                    "uid": uid_of(namespace),
                    "annotations": {USED_AT_ANNOTATION: format_micro_instant(self._now())},
                }
            },
        )
        self._fence()
        await self._target.patch(NAMESPACES, ObjectKey("", key_of(namespace).name), patch)

    def _render_namespace(self, namespace: str, hub_namespace: str) -> JsonDict:
        return {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {
                "name": namespace,
                "labels": {
                    HUB_LABEL: self._rules.scope.hub_id,
                    POD_SECURITY_LABEL: POD_SECURITY_LEVEL,
                },
                "annotations": {HUB_NAMESPACE_ANNOTATION: hub_namespace},
            },
        }

    async def _await_service_account(self, namespace: str) -> None:
        """Pods are refused until the target's controller has made the default account."""
        for attempt in range(SERVICE_ACCOUNT_LOOKS):
            if attempt:
                await asyncio.sleep(SERVICE_ACCOUNT_PAUSE_SECONDS)
            try:
                await self._target.get(SERVICEACCOUNTS, ObjectKey(namespace, "default"))
            except NotFound:
                continue
            return
        raise Forbidden(
            "the namespace's default service account is not there yet",
            cluster=self._target.name,
            verb="use",
            subject=f"namespace {namespace}",
            reason="ServiceAccountMissing",
        )

    async def _ensure_anchor(self, namespace: str) -> JsonDict:
        key = self._anchor_key(namespace)
        scope = self._rules.scope
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": key.name,
                "namespace": namespace,
                "labels": scope.labels(),
                "annotations": {NODE_NAME_ANNOTATION: scope.node_name},
            },
            "data": {
                "README": "This object owns every pod that federate runs here for virtual node "
                f"{scope.node_name}. Delete it to uninstall: Kubernetes then removes them all, "
                "and federate makes no new ones in this namespace."
            },
        }
        with self._anchors.writing(key) as ticket:
            self._fence()
            try:
                anchor = await self._target.create(CONFIGMAPS, body, namespace=namespace)
            except AlreadyExists:
                anchor = await self._target.get(CONFIGMAPS, key)
            if not scope.owns(anchor):
                raise NotOurs(
                    f"ConfigMap {key} of {self._target.name} has the anchor's name but not its "
                    "marks: it stays untouched. Remove or rename it"
                )
            if is_terminating(anchor):
                raise Forbidden(
                    "the namespace's anchor is still being removed",
                    cluster=self._target.name,
                    verb="use",
                    subject=f"configmap {key}",
                    reason="AnchorTerminating",
                )
            ticket.commit(anchor)
        return anchor

    def _anchor_key(self, namespace: str) -> ObjectKey:
        return ObjectKey(namespace, anchor_name(self._rules.scope))
