"""Wire what tells how large a virtual node is: an offer, the reflectors that feed it, the sums.

Which reflectors there are follows from the rules: a fixed size asks the target nothing, a quota is
followed with rights in its namespace alone, and only `aggregate` lists nodes and all pods.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from federate.cluster.port import ClusterPort
from federate.cluster.reflector import Reflector
from federate.cluster.store import Change, Store
from federate.mirror.ports import ORIGIN_INDEX
from federate.model.marks import Scope
from federate.model.objects import ObjectKey
from federate.model.resources import NODES, PODS, RESOURCEQUOTAS
from federate.node.capacity import CapacityMode, CapacityRules
from federate.node.offer import (
    FOREIGN_INDEXERS,
    AggregateOffer,
    MirrorSums,
    QuotaOffer,
    StaticOffer,
    lean_foreign_pod,
    lean_node,
)
from federate.policy.offered import offered
from federate.policy.rules import PolicyRules

_LIVE_PODS = "status.phase!=Succeeded,status.phase!=Failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferPorts:
    """What an offer is made from, and whom it wakes."""

    target: ClusterPort
    scope: Scope
    hub_pods: Store
    mirrors: Store
    """With `ORIGIN_INDEX`."""
    wake: Callable[[], None]
    clock: Callable[[], float]
    call_later: Callable[[float, Callable[[], None]], object]
    """Calls back when so many seconds of `clock` are over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offering:
    """An offer with what feeds it; the owner runs the reflectors and tells of pods."""

    offer: StaticOffer | AggregateOffer | QuotaOffer
    reflectors: tuple[Reflector, ...] = ()
    sums: MirrorSums | None = None

    def on_hub_pod(self, change: Change) -> None:
        """Follow a hub pod."""
        if self.sums is not None:
            self.sums.on_hub_pod(change)

    def on_mirror(self, change: Change) -> None:
        """Follow a mirror."""
        if self.sums is not None:
            self.sums.on_mirror(change)


@dataclass(frozen=True, slots=True)
class AllowedOffer:
    """An offer less the devices that the policy refuses pods for."""

    offer: StaticOffer | AggregateOffer | QuotaOffer
    policy: PolicyRules

    def capacity(self) -> Mapping[str, str] | None:
        """Return quantities by resource; None while they are not known yet."""
        capacity = self.offer.capacity()
        return None if capacity is None else offered(capacity, self.policy)

    def trouble(self) -> str:
        """Return why less is offered than there may be, "" where all is well."""
        return self.offer.trouble()

    def common_labels(self) -> Mapping[str, str]:
        """Return the labels all target nodes that count share."""
        return self.offer.common_labels()


def build_offering(rules: CapacityRules, ports: OfferPorts) -> Offering:
    """Build the offer that the rules ask for."""
    if rules.mode is CapacityMode.STATIC:
        return Offering(offer=StaticOffer(rules.static))
    if rules.mode is CapacityMode.QUOTA and rules.quota is not None:
        return _follow_quota(rules, rules.quota, ports)
    return _follow_nodes(rules, ports)


def _follow_quota(rules: CapacityRules, wanted: ObjectKey, ports: OfferPorts) -> Offering:
    sums = _build_sums(ports, own_in=wanted.namespace)
    quotas = Store()
    offer = QuotaOffer(
        quotas=quotas,
        sums=sums,
        rules=rules,
        wanted=wanted,
        is_synced=lambda: reflector.synced.is_set(),
        wake=ports.wake,
        clock=ports.clock,
        call_later=ports.call_later,
    )
    reflector = Reflector(
        ports.target,
        RESOURCEQUOTAS,
        quotas,
        name="quota",
        namespace=wanted.namespace,
        field_selector=f"metadata.name={wanted.name}" if wanted.name else "",
        on_change=offer.on_quota,
    )
    return Offering(offer=offer, reflectors=(reflector,), sums=sums)


def _follow_nodes(rules: CapacityRules, ports: OfferPorts) -> Offering:
    sums = _build_sums(ports)
    nodes = Store(transform=lean_node)
    foreign_pods = Store(transform=lean_foreign_pod, indexers=FOREIGN_INDEXERS)
    offer = AggregateOffer(
        nodes=nodes,
        foreign_pods=foreign_pods,
        sums=sums,
        is_synced=lambda: all(r.synced.is_set() for r in (node_reflector, pod_reflector)),
        wake=ports.wake,
        rules=rules,
    )
    node_reflector = Reflector(
        ports.target,
        NODES,
        nodes,
        name="target-nodes",
        label_selector=rules.node_selector,
        on_change=offer.on_node,
    )
    pod_reflector = Reflector(
        ports.target,
        PODS,
        foreign_pods,
        name="foreign-pods",
        label_selector=ports.scope.others_selector,
        field_selector=_LIVE_PODS,
        on_change=offer.on_foreign_pod,
    )
    return Offering(offer=offer, reflectors=(node_reflector, pod_reflector), sums=sums)


def _build_sums(ports: OfferPorts, *, own_in: str = "") -> MirrorSums:
    return MirrorSums(
        hub_pods=ports.hub_pods,
        mirrors_of=lambda key: ports.mirrors.by_index(ORIGIN_INDEX, str(key)),
        wake=ports.wake,
        own_in=own_in,
    )
