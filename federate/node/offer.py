"""Follow what a target offers: its nodes, the pods of others, what its admission added to mirrors.

Keeps the running sums of `capacity` and wakes the heartbeat when one changed. No I/O of its own: it
is fed by reflectors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from federate.cluster.store import Change, Store
from federate.model.marks import origin_of
from federate.model.objects import (
    JsonDict,
    JsonObject,
    ObjectKey,
    key_of,
    metadata_of,
    spec_of,
    uid_of,
)
from federate.model.pods import node_name_of
from federate.node.capacity import (
    Ledger,
    aggregate_offer,
    excess_requests,
    foreign_requests,
    is_offering,
    node_allocatable,
    static_offer,
)
from federate.node.render import common_labels


class StaticOffer:
    """A fixed capacity."""

    def __init__(self, capacity: Mapping[str, str]) -> None:
        self._capacity = static_offer(capacity)

    def capacity(self) -> Mapping[str, str]:
        """Return the fixed capacity."""
        return self._capacity

    def common_labels(self) -> Mapping[str, str]:
        """Return nothing: the target's nodes are not looked at."""
        return {}


def lean_foreign_pod(pod: JsonDict) -> JsonObject:
    """Keep of a pod that is not ours only what it takes and where: there may be very many."""
    meta, spec = metadata_of(pod), spec_of(pod)
    fields = ("containers", "initContainers", "resources", "overhead")
    return {
        "metadata": {k: meta.get(k) for k in ("namespace", "name", "uid", "resourceVersion")},
        "spec": {
            "nodeName": spec.get("nodeName", ""),
            **{
                field: spec[field]
                if field in ("resources", "overhead")
                else [_lean_container(c) for c in spec[field]]
                for field in fields
                if field in spec
            },
        },
        "status": {"phase": (pod.get("status") or {}).get("phase", "Pending")},
    }


def _lean_container(container: JsonObject) -> JsonObject:
    return {k: container[k] for k in ("name", "resources", "restartPolicy") if k in container}


def lean_node(node: JsonDict) -> JsonObject:
    """Keep of a target node what tells whether, and how much, it offers."""
    meta, spec, status = metadata_of(node), spec_of(node), node.get("status") or {}
    return {
        "metadata": {
            k: meta[k]
            for k in ("name", "uid", "resourceVersion", "labels", "deletionTimestamp")
            if k in meta
        },
        "spec": {k: spec[k] for k in ("unschedulable", "taints") if k in spec},
        "status": {
            "allocatable": status.get("allocatable") or {},
            "conditions": [
                {"type": c["type"], "status": c.get("status")}
                for c in status.get("conditions") or ()
                if c.get("type") == "Ready"
            ],
        },
    }


class AggregateOffer:
    """What the target has left, followed live."""

    def __init__(
        self,
        *,
        nodes: Store,
        foreign_pods: Store,
        hub_pods: Store,
        is_synced: Callable[[], bool],
        wake: Callable[[], None],
    ) -> None:
        self._nodes = nodes
        self._foreign_pods = foreign_pods
        self._hub_pods = hub_pods
        self._is_synced = is_synced
        self._wake = wake
        self._allocatable: Ledger[ObjectKey] = Ledger()
        self._foreign: Ledger[ObjectKey] = Ledger()
        self._excess: Ledger[ObjectKey] = Ledger()
        self._exceeding: dict[ObjectKey, JsonObject] = {}
        """Mirrors that count, by hub pod key: they are looked at again when their hub pod comes."""

    def capacity(self) -> Mapping[str, str] | None:
        """Return what is left; None until nodes and pods are known."""
        if not self._is_synced():
            return None
        return aggregate_offer(
            self._allocatable.total(), self._foreign.total(), self._excess.total()
        )

    def common_labels(self) -> Mapping[str, str]:
        """Return the labels all target nodes share."""
        return common_labels(self._nodes.values())

    def on_node(self, change: Change) -> None:
        """Follow a target node, and the pods on it: they count only where their node does."""
        amount = node_allocatable(change.new) if change.new is not None else None
        changed = self._allocatable.put(change.key, amount)
        if _offers(change.old) != _offers(change.new):
            for pod in self._foreign_pods.values():
                if node_name_of(pod) == change.key.name:
                    self._count_foreign(pod)
        if changed or _labels(change.old) != _labels(change.new):
            self._wake()

    def on_foreign_pod(self, change: Change) -> None:
        """Follow a pod of the target that is not a mirror of this virtual node."""
        if change.new is None:
            changed = self._foreign.put(change.key, None)
        else:
            changed = self._count_foreign(change.new)
        if changed:
            self._wake()

    def on_mirror(self, change: Change) -> None:
        """Follow a mirror: what admission in the target added to it lowers the offer."""
        amount = None
        if change.new is not None:
            amount = excess_requests(self._hub_pod_of(change.new), change.new)
        mirror = change.new or change.old
        origin = origin_of(mirror) if mirror is not None else None
        if origin is not None and mirror is not None:
            self._exceeding.pop(origin.pod, None)
            if amount is not None:
                self._exceeding[origin.pod] = mirror
        if self._excess.put(change.key, amount):
            self._wake()

    def _hub_pod_of(self, mirror: JsonObject) -> JsonObject | None:
        origin = origin_of(mirror)
        hub_pod = self._hub_pods.get(origin.pod) if origin is not None else None
        same = origin is not None and hub_pod is not None and uid_of(hub_pod) == origin.pod_uid
        return hub_pod if same else None

    def on_hub_pod(self, change: Change) -> None:
        """Follow a hub pod: a mirror that was seen before it counted whole until now."""
        mirror = self._exceeding.get(change.key)
        if mirror is not None:
            self.on_mirror(Change(key=key_of(mirror), old=mirror, new=mirror))

    def _count_foreign(self, pod: JsonObject) -> bool:
        key = ObjectKey(metadata_of(pod)["namespace"], metadata_of(pod)["name"])
        node = self._nodes.get(ObjectKey("", node_name_of(pod)))
        elsewhere = bool(node_name_of(pod)) and (node is None or not is_offering(node))
        return self._foreign.put(key, None if elsewhere else foreign_requests(pod))


def _offers(node: JsonObject | None) -> bool:
    return node is not None and is_offering(node)


def _labels(node: JsonObject | None) -> object:
    return metadata_of(node).get("labels") if node is not None else None
