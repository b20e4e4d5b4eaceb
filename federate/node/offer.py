"""Follow what a target offers: its nodes, the pods of others, a quota, what mirrors take.

Keeps the running sums of `capacity` and wakes the heartbeat when one changed. No I/O of its own: it
is fed by reflectors, with each event of every pod, so a callback that has nothing to say returns
after a few look-ups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import structlog

from federate.cluster.store import Change, Indexer, Store
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
from federate.model.pods import is_virtual_node, node_name_of
from federate.model.quantities import parse_amounts
from federate.node.capacity import (
    EVERYTHING,
    CapacityRules,
    Ledger,
    aggregate_offer,
    excess_requests,
    is_offering,
    may_take_otherwise,
    node_allocatable,
    requests_of,
    static_offer,
    to_show,
)
from federate.node.quota import SETTLE_SECONDS, Granted, Settling, offer_by_quota
from federate.node.render import ASSUMED_LABELS, common_labels

log = structlog.stdlib.get_logger(__name__)

NODE_INDEX = "node"
FOREIGN_INDEXERS: Mapping[str, Indexer] = {NODE_INDEX: lambda pod: (node_name_of(pod),)}
"""Indexers of the store of others' pods: a node that comes or goes takes its pods with it."""

_TAKES = "takes"
"""Where a lean pod keeps what it takes."""


class StaticOffer:
    """A fixed capacity."""

    def __init__(self, capacity: Mapping[str, str]) -> None:
        self._capacity = static_offer(capacity)

    def capacity(self) -> Mapping[str, str]:
        """Return the fixed capacity."""
        return self._capacity

    def trouble(self) -> str:
        """Return nothing: the user said how much there is."""
        return ""

    def common_labels(self) -> Mapping[str, str]:
        """Return what most nodes are: the target's own are not looked at."""
        return ASSUMED_LABELS


class MirrorSums:
    """What mirrors take, kept running: beyond their hub pods, and whole in the namespace `own_in`.

    A mirror is weighed when it or its hub pod appears, ends, goes, or changes what it asks for or
    holds. The many events that bring only another status cost a few look-ups.
    """

    def __init__(
        self,
        *,
        hub_pods: Store,
        mirrors_of: Callable[[ObjectKey], Iterable[JsonObject]],
        wake: Callable[[], None],
        own_in: str = "",
    ) -> None:
        """`mirrors_of` finds the standing mirrors of a hub pod."""
        self._hub_pods = hub_pods
        self._mirrors_of = mirrors_of
        self._wake = wake
        self._own_in = own_in
        self.excess: Ledger[ObjectKey] = Ledger()
        self.own: Ledger[ObjectKey] = Ledger()

    def on_mirror(self, change: Change) -> None:
        """Follow a mirror: what admission in the target added to it lowers the offer."""
        old, new = change.old, change.new
        if old is not None and new is not None and not may_take_otherwise(old, new):
            return
        if self._counts(change.key):
            takes = requests_of(new) if self._own_in and new is not None else None
            if self.own.put(change.key, takes):
                self._wake()
            self._weigh(change.key, new)

    def on_hub_pod(self, change: Change) -> None:
        """Follow a hub pod: its mirrors are weighed against it."""
        old, new = change.old, change.new
        if old is not None and new is not None and not may_take_otherwise(old, new):
            return
        for mirror in self._mirrors_of(change.key):
            if self._counts(key := key_of(mirror)):
                self._weigh(key, mirror)

    def _counts(self, key: ObjectKey) -> bool:
        return self._own_in in ("", key.namespace)

    def _weigh(self, key: ObjectKey, mirror: JsonObject | None) -> None:
        excess = None if mirror is None else excess_requests(self._hub_pod_of(mirror), mirror)
        if self.excess.put(key, excess):
            self._wake()

    def _hub_pod_of(self, mirror: JsonObject) -> JsonObject | None:
        origin = origin_of(mirror)
        hub_pod = self._hub_pods.get(origin.pod) if origin is not None else None
        same = origin is not None and hub_pod is not None and uid_of(hub_pod) == origin.pod_uid
        return hub_pod if same else None


# -- aggregate -------------------------------------------------------------------------------------


def lean_foreign_pod(pod: JsonDict) -> JsonObject:
    """Keep of a pod that is not ours only what it takes and where: there may be very many."""
    meta = metadata_of(pod)
    return {
        "metadata": {k: meta.get(k) for k in ("namespace", "name", "uid", "resourceVersion")},
        "spec": {"nodeName": node_name_of(pod)},
        _TAKES: requests_of(pod),
    }


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
        sums: MirrorSums,
        is_synced: Callable[[], bool],
        wake: Callable[[], None],
        rules: CapacityRules = EVERYTHING,
    ) -> None:
        """`nodes` are those that the rules select, `foreign_pods` has `FOREIGN_INDEXERS`."""
        self._nodes = nodes
        self._foreign_pods = foreign_pods
        self._sums = sums
        self._is_synced = is_synced
        self._wake = wake
        self._rules = rules
        self._counting: set[str] = set()
        """Names of the nodes that offer; pods count only where their node does."""
        self._allocatable: Ledger[ObjectKey] = Ledger()
        self._foreign: Ledger[ObjectKey] = Ledger()
        self._common: Mapping[str, str] | None = None

    def capacity(self) -> Mapping[str, str] | None:
        """Return what is left; None until nodes and pods are known."""
        if not self._is_synced():
            return None
        return aggregate_offer(
            self._allocatable.total(),
            self._foreign.total(),
            self._sums.excess.total(),
            self._rules,
        )

    def trouble(self) -> str:
        """Return nothing: what is there is there."""
        return ""

    def common_labels(self) -> Mapping[str, str]:
        """Return the labels that all nodes that count share.

        Those of all selected nodes while none counts: a label is not lost because nodes restart.
        """
        if self._common is None:
            known = [node for node in self._nodes.values() if not is_virtual_node(node)]
            nodes = [node for node in known if key_of(node).name in self._counting] or known
            self._common = common_labels(nodes) if nodes else ASSUMED_LABELS
        return self._common

    def on_node(self, change: Change) -> None:
        """Follow a target node, and the pods on it."""
        name = change.key.name
        counts = change.new is not None and is_offering(change.new)
        amount = node_allocatable(change.new) if change.new is not None else None
        changed = self._allocatable.put(change.key, amount)
        if counts != (name in self._counting):
            (self._counting.add if counts else self._counting.discard)(name)
            for pod in self._foreign_pods.by_index(NODE_INDEX, name):
                changed |= self._count_foreign(pod)
            self._common, changed = None, True
        elif _labels(change.old) != _labels(change.new):
            self._common, changed = None, True
        if changed:
            self._wake()

    def on_foreign_pod(self, change: Change) -> None:
        """Follow a pod of the target that is not a mirror of this virtual node."""
        if change.new is None:
            changed = self._foreign.put(change.key, None)
        else:
            changed = self._count_foreign(change.new)
        if changed:
            self._wake()

    def _count_foreign(self, pod: JsonObject) -> bool:
        """Count a pod on a node that counts, or on none yet: it will take its room somewhere."""
        node = node_name_of(pod)
        counts = not node or node in self._counting
        return self._foreign.put(key_of(pod), pod[_TAKES] if counts else None)


def _labels(node: JsonObject | None) -> object:
    return metadata_of(node).get("labels") if node is not None else None


# -- quota -----------------------------------------------------------------------------------------


class QuotaOffer:
    """What a ResourceQuota of the target leaves, followed live."""

    def __init__(
        self,
        *,
        quotas: Store,
        sums: MirrorSums,
        rules: CapacityRules,
        wanted: ObjectKey,
        is_synced: Callable[[], bool],
        wake: Callable[[], None],
        clock: Callable[[], float],
        call_later: Callable[[float, Callable[[], None]], object],
    ) -> None:
        """`quotas` holds the one that is `wanted`, or all of its namespace."""
        self._quotas = quotas
        self._sums = sums
        self._rules = rules
        self._wanted = wanted
        self._is_synced = is_synced
        self._wake = wake
        self._clock = clock
        self._call_later = call_later
        self._settling = Settling()
        self._told = ""

    def capacity(self) -> Mapping[str, str] | None:
        """Return what the quota leaves; None until it is known and counted."""
        if not self._is_synced():
            return None
        granted = self._granted()
        if granted.trouble != self._told:
            self._told = granted.trouble
            log.warning("how much the target grants", said=granted.trouble or "known again")
        if granted.trouble or granted.capacity is None:
            self._settling.forget()
            return granted.capacity
        return self._settled(granted.capacity)

    def _settled(self, capacity: Mapping[str, str]) -> Mapping[str, str]:
        held_back = self._settling.holds_back()
        settled = self._settling.settle(parse_amounts(capacity), now=self._clock())
        if self._settling.holds_back() and not held_back:
            # A little later than that, lest a timer that is early finds it too early.
            self._call_later(1.1 * SETTLE_SECONDS, self._wake)
        return to_show(settled)

    def trouble(self) -> str:
        """Return why less is offered than there may be, "" where all is well."""
        return self._granted().trouble if self._is_synced() else ""

    def common_labels(self) -> Mapping[str, str]:
        """Return what most nodes are: the target's own are not looked at."""
        return ASSUMED_LABELS

    def on_quota(self, change: Change) -> None:
        """Follow the quota."""
        del change
        self._wake()

    def _granted(self) -> Granted:
        return offer_by_quota(
            self._quotas.values(),
            own=self._sums.own.total(),
            excess=self._sums.excess.total(),
            rules=self._rules,
            wanted=self._wanted,
        )
