"""The hub's memory of which target namespaces have their anchor: an annotation of the Node (C23).

Kept in memory too, so that a Node somebody deleted gets its memory back. An operator's word, the
annotation `federate.dev/reinstall`, makes federate forget a namespace and use it anew.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping

import structlog

from federate.cluster.port import ClusterPort
from federate.errors import NotFound
from federate.model.marks import ANCHORS_ANNOTATION, REINSTALL_ANNOTATION
from federate.model.objects import JsonObject, ObjectKey, annotations_of
from federate.model.resources import NODES
from federate.patch.document import MERGE, PatchBody

log = structlog.stdlib.get_logger(__name__)


def parse_anchors(node: JsonObject) -> dict[str, str]:
    """Read target namespace -> anchor uid; empty where it is absent or unreadable."""
    try:
        value = json.loads(annotations_of(node).get(ANCHORS_ANNOTATION, "{}"))
    except ValueError:
        return {}
    return {str(k): str(v) for k, v in value.items()} if isinstance(value, dict) else {}


def parse_reinstall(node: JsonObject) -> frozenset[str]:
    """Read the namespaces an operator gave free: names between commas."""
    text = annotations_of(node).get(REINSTALL_ANNOTATION, "")
    return frozenset(name.strip() for name in text.split(",") if name.strip())


class NodeAnchors:
    """Memory of one virtual node's anchors; satisfies `mirror.ground.AnchorRegister`."""

    def __init__(self, *, hub: ClusterPort, node_name: str) -> None:
        self._hub = hub
        self._key = ObjectKey("", node_name)
        self._known: dict[str, str] = {}
        self._has_learnt = False
        self._lock = asyncio.Lock()

    def recorded(self) -> Mapping[str, str]:
        """Return target namespace -> anchor uid."""
        return self._known

    def format(self) -> str:
        """Render the annotation's value, "" where there is nothing to remember."""
        if not self._known:
            return ""
        return json.dumps(self._known, separators=(",", ":"), sort_keys=True)

    def learn(self, node: JsonObject) -> None:
        """Take over what the Node remembers, the first time it is seen; then ours is newer."""
        if not self._has_learnt:
            self._has_learnt = True
            self._known = {**parse_anchors(node), **self._known}

    async def record(self, namespace: str, uid: str) -> None:
        """Keep that the namespace has its anchor; on the hub first, then in memory."""
        async with self._lock:
            await self._write({**self._known, namespace: uid}, reinstalled=False)

    async def forget(self, namespace: str) -> None:
        """Forget a namespace whose anchor federate itself is about to remove."""
        await self._drop(frozenset({namespace}), reinstalled=False)

    async def reinstall(self, namespaces: frozenset[str]) -> None:
        """Use the namespaces anew: the operator's word is carried out and taken down."""
        await self._drop(namespaces, reinstalled=True)
        log.info("reinstall confirmed by an operator", namespaces=sorted(namespaces))

    async def _drop(self, namespaces: frozenset[str], *, reinstalled: bool) -> None:
        async with self._lock:
            kept = {n: uid for n, uid in self._known.items() if n not in namespaces}
            await self._write(kept, reinstalled=reinstalled)

    async def _write(self, known: Mapping[str, str], *, reinstalled: bool) -> None:
        value = json.dumps(known, separators=(",", ":"), sort_keys=True)
        annotations: dict[str, str | None] = {ANCHORS_ANNOTATION: value}
        if reinstalled:
            annotations[REINSTALL_ANNOTATION] = None
        patch = PatchBody(media_type=MERGE, body={"metadata": {"annotations": annotations}})
        try:
            await self._hub.patch(NODES, self._key, patch)
        except NotFound:
            # The Node is about to be registered again, with this memory (`format`).
            log.info("the Node is absent; its anchors are written with its registration")
        self._known = dict(known)
