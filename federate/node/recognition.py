"""Who answers for the target, and is that the cluster on record? By direct reads alone (C5).

Two names tell a cluster: the uid of namespace kube-system, and where federate is confined to some
namespaces, the uid of a default service account in one of them. Rights may change, and so may the
namespaces: then a cluster is known again by one of its anchors, whose uids are on record too.
"""

from __future__ import annotations

from collections.abc import Sequence

from federate.cluster.identity import cluster_identity, namespace_identity, telling_namespace
from federate.cluster.port import ClusterPort
from federate.errors import Forbidden, NotFound
from federate.model.objects import ObjectKey, uid_of
from federate.model.resources import CONFIGMAPS
from federate.node.anchors import NodeAnchors, is_identity

MOST_ANCHORS = 3
"""So many anchors are looked for; a bounded ping has no time for all."""


class Recognition:
    """What one virtual node can find out about who answers; `namespaces` empty: no bound."""

    def __init__(
        self,
        *,
        target: ClusterPort,
        memory: NodeAnchors,
        namespaces: Sequence[str],
        anchor_name: str,
    ) -> None:
        self._target = target
        self._memory = memory
        self._namespaces = namespaces
        self._anchor_name = anchor_name
        self._may_read_system = True

    async def identify(self) -> str:
        """Read the identity in the way it was read before, where that is allowed.

        Raises:
            Forbidden, NotFound: nobody says who this is.
            ClusterError: whatever the target answered.
        """
        told_by = telling_namespace(self._memory.identity)
        if told_by:
            try:
                return await namespace_identity(self._target, told_by)
            except NotFound:
                pass  # that one namespace may have been removed
            except Forbidden:
                if told_by in self._namespaces:
                    raise
        if not self._namespaces:
            return await cluster_identity(self._target)
        return await self._identify_confined([n for n in self._namespaces if n != told_by])

    async def _identify_confined(self, namespaces: Sequence[str]) -> str:
        if self._may_read_system:
            try:
                return await cluster_identity(self._target)
            except (Forbidden, NotFound):
                # Not asked again: a refusal each two seconds would fill the target's audit log.
                self._may_read_system = False
        refused: Forbidden | None = None
        for namespace in namespaces:
            try:
                return await namespace_identity(self._target, namespace)
            except NotFound:
                continue
            except Forbidden as error:
                refused = error
        raise refused or NotFound(
            f"none of the namespaces {', '.join(self._namespaces)} is there with its default "
            "service account",
            cluster=self._target.name,
            verb="identify",
            subject="the cluster",
            status=404,
        )

    async def is_another(self, found: str) -> bool:
        """Tell whether who was found is another cluster than the one on record.

        A name alone proves nothing where the one on record had none: that used to be a cluster we
        could not ask, and its anchors are all there is to know it by.

        Raises:
            ClusterError: it cannot be told; an anchor that may not be read may stand.
        """
        recorded = self._memory.identity
        if found == recorded or not is_identity(found):
            return False
        if not is_identity(recorded) and not self._memory.recorded():
            return False  # nothing is known of the target yet
        return self.are_alike(found) or not await self.stands_an_anchor()

    def are_alike(self, found: str) -> bool:
        """Tell whether what was found is read in the same way as what is on record."""
        recorded = self._memory.identity
        return (
            is_identity(recorded) and telling_namespace(found) == telling_namespace(recorded) == ""
        )

    async def stands_an_anchor(self) -> bool:
        """Tell whether an anchor on record stands, by its uid: then it is the same cluster.

        Raises:
            Forbidden: none was seen to stand, and one may not be read.
            ClusterError: one cannot be read just now.
        """
        recorded = sorted(self._memory.recorded().items())
        readable = [
            (n, uid) for n, uid in recorded if not self._namespaces or n in self._namespaces
        ]
        refused: Forbidden | None = None
        for namespace, uid in readable[:MOST_ANCHORS]:
            try:
                anchor = await self._target.get(CONFIGMAPS, ObjectKey(namespace, self._anchor_name))
            except NotFound:
                continue
            except Forbidden as error:
                refused = error
                continue
            if uid_of(anchor) == uid:
                return True
        if refused is not None:
            raise refused
        return False
