"""The ground a mirror stands on: target namespace, default service account, anchor.

Made on demand and once (single flight per namespace). With the strategies that are confined to
namespaces (`map`, `single`) the namespace is used as it is found, and nothing is asked outside: no
right on namespaces is needed. The anchor is the one object that owns every mirror there: who
deletes it uninstalls federate from that namespace (C23), so an anchor that is on record but not
there is never made again without an operator's word. Nothing without our marks is touched: a
namespace of our name that is not ours is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from federate.cluster.port import ClusterPort
from federate.cluster.store import Store
from federate.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    NotFound,
    NotOurs,
    Rejected,
    Unreachable,
)
from federate.mirror.steps import AnchorState
from federate.model.instants import format_micro_instant
from federate.model.marks import (
    HUB_LABEL,
    HUB_NAMESPACE_ANNOTATION,
    NODE_NAME_ANNOTATION,
    USED_AT_ANNOTATION,
    Scope,
)
from federate.model.naming import (
    NamespaceRules,
    NamespaceStrategy,
    anchor_name,
    confined_to,
    mirror_key,
    watched_namespaces,
)
from federate.model.objects import (
    JsonDict,
    JsonObject,
    ObjectKey,
    annotations_of,
    is_terminating,
    key_of,
    labels_of,
    resource_version_of,
    uid_of,
)
from federate.model.resources import CONFIGMAPS, NAMESPACES, SERVICEACCOUNTS
from federate.patch.document import MERGE, PatchBody
from federate.policy.level import PodSecurityLevel

POD_SECURITY_LABEL = "pod-security.kubernetes.io/enforce"

DEFAULT_ACCOUNT = "default"

TERMINATING_WORDS = "is being terminated"
"""What admission says of a create in a namespace that ends (it asks before it looks whether the
object exists)."""
QUOTA_WORDS = "exceeded quota"
"""What is said afterwards, so the namespace does not end."""

IMMUTABLE_UID_WORDS = "metadata.uid"
"""What an API server says of a patch that names another uid than the object's."""

NOTE_SECONDS = 5.0
"""How long a request about the list may take: looks at the anchor wait for it, and with them the
end of pods. It may be carried out all the same, which the watch tells."""

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
    level: PodSecurityLevel = PodSecurityLevel.BASELINE
    """Of the namespaces that are made."""


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
        self._is_confined = confined_to(rules.namespaces) is not None
        self._watched = watched_namespaces(rules.namespaces, ())

    def mirror_key(self, hub_key: ObjectKey) -> ObjectKey | None:
        """Name the mirror that a hub pod shall have; None where the rules have no place for it."""
        return mirror_key(self._rules.namespaces, self._rules.scope.hub_id, hub_key)

    @property
    def watched(self) -> tuple[str, ...]:
        """The target namespaces that may be asked for; "" stands for all at once."""
        return self._watched

    def watch_recorded(self) -> None:
        """Watch those namespaces too that the register knows, once it has learnt."""
        self._watched = watched_namespaces(self._rules.namespaces, self._register.recorded())

    def is_watched(self, namespace: str) -> bool:
        """Tell whether what stands in the namespace is seen, so that absence means something."""
        return "" in self._watched or namespace in self._watched

    def is_recorded(self, namespace: str) -> bool:
        """Tell whether the namespace was ever used: its anchor is on record."""
        return namespace in self._register.recorded()

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
        recorded = self.is_recorded(namespace)
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
            if self._is_confined:
                await self._try_namespace(namespace)
            else:
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

    async def _try_namespace(self, namespace: str) -> None:
        """Tell a namespace that ends without a right to read it: a create is refused there."""
        self._fence()
        try:
            await self._target.create(
                CONFIGMAPS, self._render_anchor(namespace), namespace=namespace, dry_run=True
            )
        except AlreadyExists:
            self._ending.discard(namespace)
        except NotFound:
            await self._confirm_target()
            self._ending.add(namespace)
        except Forbidden as error:
            if TERMINATING_WORDS in error.detail:
                self._ending.add(namespace)
            elif QUOTA_WORDS not in error.detail:
                raise
        else:
            self._ending.discard(namespace)

    async def prepare(self, hub_namespace: str) -> None:
        """Make sure that mirrors of the hub namespace can be created.

        Raises:
            NotOurs: the namespace or the anchor's name is somebody else's.
            Forbidden: not yet: the namespace terminates, or its service account is missing.
            NotFound: the namespace is not there, and is not ours to make.
            ClusterError: whatever the target answered.
        """
        key = self.mirror_key(ObjectKey(hub_namespace, ""))
        if key is None:
            return
        namespace = key.namespace
        async with self._lock(namespace):
            if self.anchor_state(namespace) is not AnchorState.NEVER:
                return
            await self._confirm_target()
            if self._is_confined:
                await self._use_namespace(namespace)
            else:
                await self._ensure_namespace(namespace, hub_namespace)
                await self._await_service_account(namespace)
            anchor = await self._ensure_anchor(namespace)
            await self._register.record(namespace, uid_of(anchor))

    def _lock(self, namespace: str) -> asyncio.Lock:
        return self._locks.setdefault(namespace, asyncio.Lock())

    async def _use_namespace(self, namespace: str) -> None:
        """See by its service account that a namespace is there, which somebody else made."""
        try:
            await self._target.get(SERVICEACCOUNTS, ObjectKey(namespace, DEFAULT_ACCOUNT))
        except NotFound as error:
            raise NotFound(
                f"namespace {namespace}, or its default service account, is not there; with "
                f"namespaces `{self._rules.namespaces.strategy}` federate makes none",
                cluster=self._target.name,
                verb="use",
                subject=f"namespace {namespace}",
                reason=error.reason,
                status=error.status,
            ) from error
        self._ending.discard(namespace)

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

    async def admit_more(self, namespace: str) -> bool:
        """Let a namespace that federate made admit what the policy does; tells whether it did not.

        A level is never lowered: virtual nodes of one hub share namespaces. One that somebody else
        chose (`restricted`) stays.

        Raises:
            ClusterError: whatever the target answered.
        """
        if self._is_confined or self._rules.level is PodSecurityLevel.BASELINE:
            return False
        key = ObjectKey("", namespace)
        async with self._lock(namespace):
            present = await self._target.get(NAMESPACES, key)
            labels = labels_of(present)
            is_ours = labels.get(HUB_LABEL) == self._rules.scope.hub_id
            if not is_ours or labels.get(POD_SECURITY_LABEL) != PodSecurityLevel.BASELINE:
                return False
            metadata = {
                "uid": uid_of(present),
                "resourceVersion": resource_version_of(present),
                "labels": {POD_SECURITY_LABEL: self._rules.level},
            }
            self._fence()
            await self._target.patch(
                NAMESPACES, key, PatchBody(media_type=MERGE, body={"metadata": metadata})
            )
        return True

    def _render_namespace(self, namespace: str, hub_namespace: str) -> JsonDict:
        return {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {
                "name": namespace,
                "labels": {
                    HUB_LABEL: self._rules.scope.hub_id,
                    POD_SECURITY_LABEL: self._rules.level,
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
                await self._target.get(SERVICEACCOUNTS, ObjectKey(namespace, DEFAULT_ACCOUNT))
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
        scope, body = self._rules.scope, self._render_anchor(namespace)
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

    async def note(self, namespace: str, entries: Mapping[str, str | None], *, exact: bool) -> None:
        """Write entries of the anchor's `data`, None takes one off: the list of Secrets there.

        Others than federate may write entries too: each is a key of its own. `exact` takes the
        anchor's version, as it is known here, for a precondition.

        Raises:
            Conflict: there is no such anchor any more, or (`exact`) it is of another version.
            ClusterError: whatever the target answered.
        """
        key = self._anchor_key(namespace)
        async with self._lock(namespace):
            anchor = self.anchor(namespace)
            if anchor is None:
                raise Conflict("the anchor is not there", subject=f"configmap {key}")
            metadata = {"uid": uid_of(anchor)}
            if exact:
                metadata["resourceVersion"] = resource_version_of(anchor)
            patch = PatchBody(media_type=MERGE, body={"metadata": metadata, "data": dict(entries)})
            with self._anchors.writing(key) as ticket:
                self._fence()
                try:
                    async with asyncio.timeout(NOTE_SECONDS):
                        ticket.commit(await self._target.patch(CONFIGMAPS, key, patch))
                except TimeoutError as error:
                    raise Unreachable(
                        f"no answer within {NOTE_SECONDS:g} s",
                        cluster=self._target.name,
                        verb="patch",
                        subject=f"configmap {key}",
                    ) from error
                except NotFound as error:
                    raise Conflict("the anchor is gone", subject=f"configmap {key}") from error
                except Rejected as error:
                    if IMMUTABLE_UID_WORDS not in error.detail:
                        raise
                    raise Conflict("it is another anchor", subject=f"configmap {key}") from error

    def _render_anchor(self, namespace: str) -> JsonDict:
        scope = self._rules.scope
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": anchor_name(scope),
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

    def _anchor_key(self, namespace: str) -> ObjectKey:
        return ObjectKey(namespace, anchor_name(self._rules.scope))
