"""What the virtual node offers: a fixed amount, or what the target has left. Pure.

`aggregate` = allocatable of the target's ready, schedulable nodes, less the requests of every pod
there that is not a mirror of *this* virtual node; of that the share, and no more than the cap; less
what admission in the target added to its mirrors. That comes last, so that share and cap bound what
mirrors take in the target, and not what their hub pods ask for. Sums are kept running, so one
change costs one addition, however many pods there are.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from functools import lru_cache
from typing import Generic, TypeVar

from federate.model.objects import (
    JsonObject,
    ObjectKey,
    condition_of,
    is_terminating,
    metadata_of,
    spec_of,
    status_of,
    uid_of,
)
from federate.model.pods import is_terminal, is_virtual_node
from federate.model.quantities import (
    Amounts,
    add,
    format_amounts,
    largest,
    parse_amounts,
    pod_requests,
    scale,
    subtract,
)

K = TypeVar("K", bound=Hashable)

NO_SCHEDULE = frozenset({"NoSchedule", "NoExecute"})

ALWAYS_OFFERED = ("cpu", "memory", "ephemeral-storage", "pods")
"""Shown even as zero: a scheduler takes an absent resource for one the node does not know."""


class CapacityMode(StrEnum):
    """Where the size of a virtual node comes from."""

    AGGREGATE = "aggregate"
    STATIC = "static"
    QUOTA = "quota"


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityRules:
    """How large a virtual node is (C14)."""

    mode: CapacityMode = CapacityMode.AGGREGATE
    static: Mapping[str, str] = field(default_factory=dict)
    """Quantities by resource: mode `static` offers these, with `pods`; mode `quota` those of them
    that the quota does not limit."""
    node_selector: str = ""
    """Label selector for the target nodes that count; mode `aggregate` alone."""
    share: Decimal = Decimal(1)
    """What part of the rest is offered, above 0 and at most 1; not in mode `static`."""
    cap: Mapping[str, str] = field(default_factory=dict)
    """Quantities by resource that are never exceeded; not in mode `static`."""
    at_least: Mapping[str, str] = field(default_factory=dict)
    """What the target's nodes grow to when pods ask for it, however few they are; mode `aggregate`
    alone."""
    quota: ObjectKey | None = None
    """The ResourceQuota in the target that mode `quota` follows; one without a name is the only one
    of its namespace."""

    def __post_init__(self) -> None:
        if self.mode is CapacityMode.QUOTA and self.quota is None:
            raise ValueError("mode quota follows a ResourceQuota: name its namespace")

    @classmethod
    def fixed(cls, quantities: Mapping[str, str]) -> CapacityRules:
        """Make the rules of a fixed size."""
        return cls(mode=CapacityMode.STATIC, static=quantities)


EVERYTHING = CapacityRules()
"""All that is left, unbounded."""


class Ledger(Generic[K]):
    """A running sum of resource lists by key; single writer."""

    def __init__(self) -> None:
        self._entries: dict[K, Amounts] = {}
        self._total: Amounts = {}

    def put(self, key: K, amount: Amounts | None) -> bool:
        """Enter, replace or (None) strike an entry; tells whether the sum changed."""
        present = self._entries.get(key)
        if present == amount or (not present and not amount):
            return False
        if present:
            self._total = subtract(self._total, present)
            del self._entries[key]
        if amount:
            self._total = add(self._total, amount)
            self._entries[key] = amount
        return True

    def total(self) -> Amounts:
        """Return the sum."""
        return self._total


def is_offering(node: JsonObject) -> bool:
    """Tell whether new pods may go to a target node: ready, not cordoned, no hard taint.

    Taints of nodes that others must tolerate keep mirrors off too: a mirror brings only the hub
    pod's own tolerations. No mirror goes to a virtual node, tainted or not (C3): two clusters that
    federate each other would offer back what the other offers, and grow without end.
    """
    if is_virtual_node(node) or is_terminating(node) or spec_of(node).get("unschedulable"):
        return False
    if any(t.get("effect") in NO_SCHEDULE for t in spec_of(node).get("taints") or ()):
        return False
    ready = condition_of(node, "Ready")
    return ready is not None and ready.get("status") == "True"


def node_allocatable(node: JsonObject) -> Amounts | None:
    """Return what a target node adds to the offer; None where it adds nothing."""
    return parse_amounts(status_of(node).get("allocatable") or {}) if is_offering(node) else None


def requests_of(pod: JsonObject) -> Amounts | None:
    """Return what a pod takes from its cluster; terminal pods have given it back."""
    return None if is_terminal(pod) else _shared(tuple(pod_requests(pod).items()))


@lru_cache(maxsize=4096)
def _shared(items: tuple[tuple[str, Decimal], ...]) -> Amounts:
    """Return one and the same list for equal requests: pods are many, and mostly alike."""
    return dict(items)


def excess_requests(hub_pod: JsonObject | None, mirror: JsonObject) -> Amounts | None:
    """Return what a mirror requests beyond its hub pod (sidecars, defaults set in the target).

    The hub's scheduler counts the hub pod itself, so only the difference lowers the offer. A mirror
    whose hub pod is gone, or has ended, counts whole.
    """
    if is_terminal(mirror):
        return None
    counted = None if hub_pod is None or is_terminal(hub_pod) else hub_pod
    if counted is not None and _same_resources(counted, mirror):
        return None
    asked = pod_requests(mirror)
    known = pod_requests(counted) if counted is not None else {}
    beyond = {
        name: amount - known.get(name, Decimal(0))
        for name, amount in asked.items()
        if amount > known.get(name, Decimal(0))
    }
    return beyond or None


def _same_resources(one: JsonObject, other: JsonObject) -> bool:
    """Tell whether two pods ask for the same, by the look of it: that is cheaper than counting."""
    a, b = spec_of(one), spec_of(other)
    if any(a.get(field) != b.get(field) for field in ("resources", "overhead")):
        return False
    for group in ("containers", "initContainers"):
        ours, theirs = a.get(group) or (), b.get(group) or ()
        if len(ours) != len(theirs):
            return False
        for mine, its in zip(ours, theirs, strict=True):
            if any(mine.get(f) != its.get(f) for f in ("name", "resources", "restartPolicy")):
                return False
    return True


def may_ask_otherwise(before: JsonObject, now: JsonObject) -> bool:
    """Tell whether a pod may ask for something else than before: another object, or its spec moved.

    The generation tells of it; servers before 1.33 give pods none.
    """
    if uid_of(before) != uid_of(now):
        return True
    was = metadata_of(before).get("generation")
    if was:
        return bool(was != metadata_of(now).get("generation"))
    return not _same_resources(before, now)


def may_take_otherwise(before: JsonObject, now: JsonObject) -> bool:
    """Tell whether a pod may take something else: it asks so, has ended, or is being resized."""
    if is_terminal(before) != is_terminal(now) or may_ask_otherwise(before, now):
        return True
    return _held(before) != _held(now)


def _held(pod: JsonObject) -> list[object]:
    statuses = status_of(pod)
    return [
        (container.get("resources"), container.get("allocatedResources"))
        for group in ("containerStatuses", "initContainerStatuses")
        for container in statuses.get(group) or ()
        if "resources" in container
    ]


def bounded(left: Amounts, rules: CapacityRules) -> Amounts:
    """Return what of the rest may be used: the share of it, in whole units, up to the cap."""
    return capped(left if rules.share == 1 else scale(left, rules.share), rules)


def capped(amounts: Amounts, rules: CapacityRules) -> Amounts:
    """Return at most the cap of each resource."""
    cap = parse_amounts(rules.cap)
    return {name: min(amount, cap.get(name, amount)) for name, amount in amounts.items()}


def aggregate_offer(
    allocatable: Amounts, foreign: Amounts, excess: Amounts, rules: CapacityRules = EVERYTHING
) -> dict[str, str]:
    """Return the capacity to show, as quantities; nothing below zero."""
    able = largest(allocatable, parse_amounts(rules.at_least))
    left = subtract(able, foreign)
    return to_show(subtract(bounded(left, rules), excess, floor_at_zero=True))


def to_show(amounts: Amounts) -> dict[str, str]:
    """Write an offer as a Node shows it."""
    return format_amounts({**dict.fromkeys(ALWAYS_OFFERED, Decimal(0)), **amounts})


def static_offer(capacity: Mapping[str, str]) -> dict[str, str]:
    """Return a fixed capacity as quantities."""
    return format_amounts(parse_amounts(capacity))
