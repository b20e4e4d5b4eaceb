"""What the virtual node offers: a fixed amount, or what the target has left. Pure.

`aggregate` = allocatable of the target's ready, schedulable nodes, less the requests of every pod
there that is not a mirror of *this* virtual node, less what admission in the target added to its
mirrors. Sums are kept running, so one change costs one addition, however many pods there are.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import Generic, TypeVar

from federate.model.objects import (
    JsonObject,
    ObjectKey,
    condition_of,
    is_terminating,
    spec_of,
    status_of,
)
from federate.model.pods import is_terminal
from federate.model.quantities import (
    Amounts,
    add,
    format_amounts,
    parse_amounts,
    pod_requests,
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
    """Quantities by resource, with `pods`; mode `static` alone."""
    node_selector: str = ""
    """Label selector for the target nodes that count; mode `aggregate` alone."""
    share: Decimal = Decimal(1)
    """What part of the rest is offered, above 0 and at most 1; not in mode `static`."""
    cap: Mapping[str, str] = field(default_factory=dict)
    """Quantities by resource that are never exceeded; not in mode `static`."""
    quota: ObjectKey | None = None
    """The ResourceQuota in the target that mode `quota` follows."""

    @classmethod
    def fixed(cls, quantities: Mapping[str, str]) -> CapacityRules:
        """Make the rules of a fixed size."""
        return cls(mode=CapacityMode.STATIC, static=quantities)


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
    pod's own tolerations.
    """
    if is_terminating(node) or spec_of(node).get("unschedulable"):
        return False
    if any(t.get("effect") in NO_SCHEDULE for t in spec_of(node).get("taints") or ()):
        return False
    ready = condition_of(node, "Ready")
    return ready is not None and ready.get("status") == "True"


def node_allocatable(node: JsonObject) -> Amounts | None:
    """Return what a target node adds to the offer; None where it adds nothing."""
    return parse_amounts(status_of(node).get("allocatable") or {}) if is_offering(node) else None


def foreign_requests(pod: JsonObject) -> Amounts | None:
    """Return what a pod that is not ours takes from the offer; terminal pods take nothing."""
    return None if is_terminal(pod) else pod_requests(pod)


def excess_requests(hub_pod: JsonObject | None, mirror: JsonObject) -> Amounts | None:
    """Return what a mirror requests beyond its hub pod (sidecars, defaults set in the target).

    The hub's scheduler counts the hub pod itself, so only the difference lowers the offer. A mirror
    without its hub pod counts whole.
    """
    if is_terminal(mirror):
        return None
    if hub_pod is not None and _same_resources(hub_pod, mirror):
        return None
    asked = pod_requests(mirror)
    known = pod_requests(hub_pod) if hub_pod is not None else {}
    beyond = {
        name: amount - known.get(name, Decimal(0))
        for name, amount in asked.items()
        if amount > known.get(name, Decimal(0))
    }
    return beyond or None


def _same_resources(hub_pod: JsonObject, mirror: JsonObject) -> bool:
    def shape(pod: JsonObject) -> tuple[object, ...]:
        spec = spec_of(pod)
        lists = (spec.get("initContainers") or (), spec.get("containers") or ())
        return (
            tuple(tuple((c.get("name"), c.get("resources")) for c in group) for group in lists),
            spec.get("resources"),
            spec.get("overhead"),
        )

    return shape(hub_pod) == shape(mirror)


def aggregate_offer(allocatable: Amounts, foreign: Amounts, excess: Amounts) -> dict[str, str]:
    """Return the capacity to show, as quantities; nothing below zero."""
    left = subtract(subtract(allocatable, foreign), excess)
    shown = {name: max(Decimal(0), left.get(name, Decimal(0))) for name in ALWAYS_OFFERED}
    others = {n: max(Decimal(0), v) for n, v in left.items() if n in allocatable}
    return format_amounts({**shown, **others})


def static_offer(capacity: Mapping[str, str]) -> dict[str, str]:
    """Return a fixed capacity as quantities."""
    return format_amounts(parse_amounts(capacity))
