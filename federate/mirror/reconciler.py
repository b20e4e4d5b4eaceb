"""Which hub pod keys are to be looked at, and when: the outside of mirroring, status and deletion.

Events of either side wake a key; a comparison of both stores is the net under them. What happens to
a key is in `round`.
"""

from __future__ import annotations

from federate.cluster.store import Change
from federate.flow.controller import Outcome
from federate.mirror.ports import ORIGIN_INDEX, PodMemories, PodPorts
from federate.mirror.round import Round
from federate.mirror.steps import (
    Lane,
    PlanRules,
)
from federate.model.marks import (
    Scope,
    origin_of,
)
from federate.model.objects import (
    ObjectKey,
    uid_of,
)


class PodReconciler:
    """Reconciles hub pod keys; one key is in one hand at a time (the queue sees to it)."""

    def __init__(self, *, scope: Scope, rules: PlanRules, ports: PodPorts) -> None:
        self._scope = scope
        self._rules = rules
        self._ports = ports
        self._memories = PodMemories(ports)
        self._handled: dict[ObjectKey, tuple[str, ...]] = {}

    # -- from events to keys -----------------------------------------------------------------------

    def on_hub_pod(self, change: Change) -> tuple[ObjectKey, Lane]:
        """Say which key a changed hub pod wakes, and in which lane."""
        if change.new is None and change.old is not None:
            self._memories.forget(uid_of(change.old))
        return change.key, self.lane_of_key(change.key)

    def on_mirror(self, change: Change) -> tuple[ObjectKey, Lane] | None:
        """Say which key a changed mirror wakes; remember the last state of one that vanished."""
        known = change.new or change.old
        origin = origin_of(known) if known is not None else None
        if origin is None and change.old is not None:
            origin = origin_of(change.old)
        if origin is None:
            return None
        if change.new is None and known is not None:
            # The object in a DELETED event is newer than what the store had.
            final = self._ports.mirrors.last_deleted(uid_of(known))
            self._memories.note_end(origin, known, last=final or known)
        return origin.pod, self.lane_of_key(origin.pod)

    def lane_of_key(self, key: ObjectKey) -> Lane:
        """Guess the lane of a key's next step; a wrong guess costs one move between lanes."""
        hub_pod = self._ports.hub_pods.glance(key)
        mirrors = self._ports.mirrors.glances_by_index(ORIGIN_INDEX, str(key))
        if hub_pod is None or hub_pod.terminating or any(m.terminating for m in mirrors):
            return Lane.DELETE
        return Lane.STATUS if mirrors else Lane.SYNC

    def unsettled_keys(self) -> list[ObjectKey]:
        """Compare both ways what was last handled with what is known; list what differs."""
        keys = set(self._ports.hub_pods.keys()) | self._orphaned_keys()
        for gone in self._handled.keys() - keys:
            del self._handled[gone]
        self._memories.prune()
        return [key for key in keys if self._handled.get(key) != self._versions(key)]

    def _orphaned_keys(self) -> set[ObjectKey]:
        """Return the hub pod keys that mirrors name and no hub pod has; only these are unpacked."""
        mirrors = self._ports.mirrors
        known = {str(key) for key in self._ports.hub_pods.keys()}  # noqa: SIM118 - not a dict
        orphaned = mirrors.index_values(ORIGIN_INDEX) - known
        named = (mirrors.by_index(ORIGIN_INDEX, value) for value in orphaned)
        origins = (origin_of(mirror) for found in named for mirror in found)
        return {origin.pod for origin in origins if origin is not None}

    def _versions(self, key: ObjectKey) -> tuple[str, ...]:
        hub_pod = self._ports.hub_pods.glance(key)
        mirrors = self._ports.mirrors.glances_by_index(ORIGIN_INDEX, str(key))
        own = hub_pod.version if hub_pod is not None else ""
        return (own, *sorted(mirror.version for mirror in mirrors))

    # -- one key -----------------------------------------------------------------------------------

    async def reconcile(self, key: ObjectKey, lane: str) -> Outcome:
        """Bring hub pod and mirror of `key` together, as far as it goes now."""
        try:
            return await Round(
                key,
                scope=self._scope,
                rules=self._rules,
                ports=self._ports,
                memories=self._memories,
                on_mirror=self.on_mirror,
            ).run(lane)
        finally:
            self._handled[key] = self._versions(key)
