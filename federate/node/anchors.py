"""The hub's memory of a virtual node's target: annotations of the Node (C5, C23).

Which target namespaces have their anchor, and which cluster the target is. Kept in memory too, so
that a Node somebody deleted gets its memory back. Two words of an operator change it, each carried
out once and taken down: `federate.dev/reinstall` makes federate forget a namespace and use it anew,
`federate.dev/accept-target` puts another cluster in the place of the one on record.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import structlog

from federate.cluster.port import ClusterPort
from federate.errors import Conflict, NotFound, NotOurs
from federate.model.marks import (
    ACCEPT_TARGET_ANNOTATION,
    ANCHORS_ANNOTATION,
    NODE_HUB_ANNOTATION,
    REINSTALL_ANNOTATION,
    TARGET_IDENTITY_ANNOTATION,
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

UNKNOWN_IDENTITY = "unknown"
"""What is on record of a target that nobody tells us the name of (`recognition`). Then the anchors
stand in, one namespace at a time: one on record that is not there means `Uninstalled`, and nothing
is created. A namespace that never had an anchor has no such protection. Confined to namespaces this
lasts only as long as none of them is there, and nothing is believed or created meanwhile."""


def is_identity(text: str) -> bool:
    """Tell whether that names a cluster, so that another can be told from it."""
    return text not in ("", UNKNOWN_IDENTITY)


def parse_anchors(node: JsonObject) -> dict[str, str]:
    """Read target namespace -> anchor uid; empty where it is absent or unreadable."""
    try:
        value = json.loads(annotations_of(node).get(ANCHORS_ANNOTATION, "{}"))
    except (ValueError, RecursionError):
        return {}
    return {str(k): str(v) for k, v in value.items()} if isinstance(value, dict) else {}


def parse_identity(node: JsonObject) -> str:
    """Read which cluster the target is, "" where that is not on record."""
    return annotations_of(node).get(TARGET_IDENTITY_ANNOTATION, "")


def parse_reinstall(node: JsonObject) -> frozenset[str]:
    """Read the namespaces an operator gave free: names between commas."""
    text = annotations_of(node).get(REINSTALL_ANNOTATION, "")
    return frozenset(name.strip() for name in text.split(",") if name.strip())


def parse_accepted(node: JsonObject) -> str:
    """Read the identity of the cluster that an operator accepts; "" where there is no word."""
    return annotations_of(node).get(ACCEPT_TARGET_ANNOTATION, "").strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Memory:
    anchors: Mapping[str, str] = field(default_factory=dict)
    identity: str = ""

    def annotations(self) -> dict[str, str]:
        written = {}
        if self.anchors:
            written[ANCHORS_ANNOTATION] = _format(self.anchors)
        if self.identity:
            written[TARGET_IDENTITY_ANNOTATION] = self.identity
        return written


_Change: TypeAlias = Callable[[JsonObject, _Memory], _Memory | None]
"""From the Node and what is known to what shall be known; None leaves all as it is."""


class NodeAnchors:
    """Memory of one virtual node's target; satisfies `mirror.ground.AnchorRegister`.

    What the Node says is the truth, and changed one fact at a time under its version; memory stands
    in while there is no Node.
    """

    def __init__(
        self,
        *,
        hub: ClusterPort,
        scope: Scope,
        fence: Callable[[], None],
        before: NodeAnchors | None = None,
    ) -> None:
        """`before` is the memory of a moment ago: it counts where the Node is gone (`recall`)."""
        self._before = before
        self._hub = hub
        self._scope = scope
        self._key = ObjectKey("", scope.node_name)
        self._fence = fence
        self._known = _Memory()
        self._lock = asyncio.Lock()
        self.has_learnt = False
        """Tells whether the Node was ever seen standing on the hub."""

    def recorded(self) -> Mapping[str, str]:
        """Return target namespace -> anchor uid."""
        return self._known.anchors

    @property
    def identity(self) -> str:
        """Which cluster the target is: a uid, `unknown`, or "" as long as nobody knows."""
        return self._known.identity

    def annotations(self) -> dict[str, str]:
        """Render the memory for a Node that is about to be registered."""
        return self._known.annotations()

    def learn(self, node: JsonObject) -> None:
        """Take over what the Node remembers, the first time it is seen; then ours is newer."""
        if not self.has_learnt:
            self.has_learnt = True
            known = _merged(self._known, node)
            self._known = replace(known, anchors={**known.anchors, **self._known.anchors})

    def recall(self) -> None:
        """Go on with the memory of before: the Node that kept it was deleted in between."""
        if self._before is not None and self._before.has_learnt and not self.has_learnt:
            self.has_learnt = True
            self._known = self._before._known
            log.warning("the Node is gone; it is registered again with what it remembered")

    def meet(self, identity: str) -> None:
        """Take the cluster that answers for the target, where none is known by its uid.

        Call it only after the Node had its say (`learn`). It is on record once `is_on_record`.
        """
        if not is_identity(self.identity):
            self._known = replace(self._known, identity=identity)

    def know_as(self, identity: str) -> None:
        """Call the cluster by another name: an anchor on record says that it is the same."""
        self._known = replace(self._known, identity=identity)

    def is_on_record(self, node: JsonObject) -> bool:
        """Tell whether the Node says which cluster the target is, as we know it."""
        return bool(self.identity) and parse_identity(node) == self.identity

    async def record(self, namespace: str, uid: str) -> None:
        """Keep that the namespace has its anchor; on the hub first, then in memory."""
        await self._change(lambda _, m: replace(m, anchors={**m.anchors, namespace: uid}))

    async def find(self, in_use: Mapping[str, str]) -> None:
        """Keep anchors that stand in the target and are on no record: the Node lost its memory."""

        def found(_: JsonObject, memory: _Memory) -> _Memory | None:
            lost = {n: uid for n, uid in in_use.items() if n not in memory.anchors}
            if not lost:
                return None
            log.warning("anchors found that no Node remembered", namespaces=sorted(lost))
            return replace(memory, anchors={**memory.anchors, **lost})

        if in_use.keys() - self.recorded().keys():
            await self._change(found)

    async def forget(self, namespace: str) -> None:
        """Forget a namespace whose anchor federate itself is about to remove."""
        await self._change(lambda _, m: replace(m, anchors=_without(m.anchors, {namespace})))

    async def record_identity(self) -> None:
        """Write on the Node which cluster the target is."""
        await self._change(lambda _, memory: memory)

    async def reinstall(self) -> None:
        """Use namespaces anew: the operator's word is carried out and taken down, once."""

        def without(node: JsonObject, memory: _Memory) -> _Memory:
            free = parse_reinstall(node)
            log.info("reinstall confirmed by an operator", namespaces=sorted(free))
            return replace(memory, anchors=_without(memory.anchors, free))

        await self._change(without, takes_down=REINSTALL_ANNOTATION)

    async def accept(self, identity: str) -> None:
        """Put the accepted cluster on record; the operator's word is taken down, once.

        The anchors of the cluster before are forgotten with it. Where the present one cannot tell
        who it is, they are all there is to know it by, and stay.
        """

        def accepted(node: JsonObject, memory: _Memory) -> _Memory | None:
            if parse_accepted(node) != identity:
                return None
            if identity == memory.identity:
                return memory
            log.warning(
                "another target accepted by an operator", before=memory.identity, after=identity
            )
            anchors = {} if is_identity(identity) else memory.anchors
            return _Memory(anchors=anchors, identity=identity)

        await self._change(accepted, takes_down=ACCEPT_TARGET_ANNOTATION)

    async def _change(self, change: _Change, *, takes_down: str = "") -> None:
        """Read the Node, change the memory on it under its version, and then our own."""
        async with self._lock:
            for _ in range(WRITE_TRIES - 1):
                try:
                    await self._change_once(change, takes_down=takes_down)
                except Conflict:
                    continue
                return
            await self._change_once(change, takes_down=takes_down)

    async def _change_once(self, change: _Change, *, takes_down: str) -> None:
        try:
            node = await self._hub.get(NODES, self._key)
        except NotFound:
            # The Node is about to be registered again, with this memory (`annotations`).
            log.info("the Node is absent; its memory is written with its registration")
            self._known = change({}, self._known) or self._known
            return
        if annotations_of(node).get(NODE_HUB_ANNOTATION) != self._scope.hub_id:
            raise NotOurs(f"Node {self._key} is not this hub's virtual node: it stays untouched")
        known = change(node, _merged(self._known, node))
        if known is None:
            return
        annotations: dict[str, str | None] = {**known.annotations()}
        if ANCHORS_ANNOTATION in annotations_of(node):
            annotations[ANCHORS_ANNOTATION] = _format(known.anchors)
        if takes_down:
            annotations[takes_down] = None
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


def _merged(known: _Memory, node: JsonObject) -> _Memory:
    """Return what the Node says, and of what it does not say what we know.

    A cluster that we know by its uid stays: only an accepted one takes its place.
    """
    identity = known.identity if is_identity(known.identity) else parse_identity(node)
    return _Memory(
        anchors={**known.anchors, **parse_anchors(node)}, identity=identity or known.identity
    )


def _without(anchors: Mapping[str, str], names: frozenset[str] | set[str]) -> dict[str, str]:
    return {name: uid for name, uid in anchors.items() if name not in names}


def _format(anchors: Mapping[str, str]) -> str:
    return json.dumps(anchors, separators=(",", ":"), sort_keys=True)
