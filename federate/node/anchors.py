"""The hub's memory of which target namespaces have their anchor: an annotation of the Node (C23).

Kept in memory too, so that a Node somebody deleted gets its memory back. An operator's word, the
annotation `federate.dev/reinstall`, makes federate forget a namespace and use it anew.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping

import structlog

from federate.cluster.port import ClusterPort
from federate.errors import Conflict, NotFound, NotOurs
from federate.model.marks import (
    ANCHORS_ANNOTATION,
    NODE_HUB_ANNOTATION,
    REINSTALL_ANNOTATION,
    Scope,
)
from federate.model.objects import (
    JsonObject,
    ObjectKey,
    annotations_of,
    resource_version_of,
    uid_of,
)
from federate.model.resources import NODES
from federate.patch.document import MERGE, PatchBody

log = structlog.stdlib.get_logger(__name__)

WRITE_TRIES = 3
"""The Node is written by its heartbeat too: a conflict is ordinary, three in a row are not."""


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
    """Memory of one virtual node's anchors; satisfies `mirror.ground.AnchorRegister`.

    What the Node says is the truth, and changed one namespace at a time under its version; memory
    stands in while there is no Node.
    """

    def __init__(self, *, hub: ClusterPort, scope: Scope, fence: Callable[[], None]) -> None:
        self._hub = hub
        self._scope = scope
        self._key = ObjectKey("", scope.node_name)
        self._fence = fence
        self._known: dict[str, str] = {}
        self._has_learnt = False
        self._lock = asyncio.Lock()

    def recorded(self) -> Mapping[str, str]:
        """Return target namespace -> anchor uid."""
        return self._known

    def format(self) -> str:
        """Render the annotation's value, "" where there is nothing to remember."""
        return _format(self._known) if self._known else ""

    def learn(self, node: JsonObject) -> None:
        """Take over what the Node remembers, the first time it is seen; then ours is newer."""
        if not self._has_learnt:
            self._has_learnt = True
            self._known = {**parse_anchors(node), **self._known}

    async def record(self, namespace: str, uid: str) -> None:
        """Keep that the namespace has its anchor; on the hub first, then in memory."""
        await self._change(lambda _, known: {**known, namespace: uid})

    async def forget(self, namespace: str) -> None:
        """Forget a namespace whose anchor federate itself is about to remove."""
        await self._change(lambda _, known: {n: u for n, u in known.items() if n != namespace})

    async def reinstall(self) -> None:
        """Use namespaces anew: the operator's word is carried out and taken down, once."""

        def without(node: JsonObject, known: Mapping[str, str]) -> dict[str, str]:
            free = parse_reinstall(node)
            log.info("reinstall confirmed by an operator", namespaces=sorted(free))
            return {n: uid for n, uid in known.items() if n not in free}

        await self._change(without, takes_word_down=True)

    async def _change(
        self,
        change: Callable[[JsonObject, Mapping[str, str]], dict[str, str]],
        *,
        takes_word_down: bool = False,
    ) -> None:
        """Read the Node, change the memory on it under its version, and then our own."""
        async with self._lock:
            for _ in range(WRITE_TRIES - 1):
                try:
                    await self._change_once(change, takes_word_down=takes_word_down)
                except Conflict:
                    continue
                return
            await self._change_once(change, takes_word_down=takes_word_down)

    async def _change_once(
        self,
        change: Callable[[JsonObject, Mapping[str, str]], dict[str, str]],
        *,
        takes_word_down: bool,
    ) -> None:
        try:
            node = await self._hub.get(NODES, self._key)
        except NotFound:
            # The Node is about to be registered again, with this memory (`format`).
            log.info("the Node is absent; its anchors are written with its registration")
            self._known = change({}, self._known)
            return
        if annotations_of(node).get(NODE_HUB_ANNOTATION) != self._scope.hub_id:
            raise NotOurs(f"Node {self._key} is not this hub's virtual node: it stays untouched")
        known = change(node, {**self._known, **parse_anchors(node)})
        annotations: dict[str, str | None] = {ANCHORS_ANNOTATION: _format(known)}
        if takes_word_down:
            annotations[REINSTALL_ANNOTATION] = None
        metadata = {
            "uid": uid_of(node),
            "resourceVersion": resource_version_of(node),
            "annotations": annotations,
        }
        self._fence()
        await self._hub.patch(
            NODES, self._key, PatchBody(media_type=MERGE, body={"metadata": metadata})
        )
        self._known = known


def _format(known: Mapping[str, str]) -> str:
    return json.dumps(known, separators=(",", ":"), sort_keys=True)
