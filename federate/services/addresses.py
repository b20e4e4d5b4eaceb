"""Decide whether hub pods show the addresses of their mirrors (C47), and which of them. Pure.

Two clusters that give pods the same addresses cannot tell each other's apart: a hub Service would
send traffic to a stranger. So an address is shown only where the ranges of both sides are known and
apart, and where it lies in a range of its own side. Several targets may have the same ranges, too:
each virtual node says on its Node which ones it shows, and the elder one goes on showing them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from federate.model.marks import SHOWN_RANGES_ANNOTATION, TARGET_IDENTITY_ANNOTATION
from federate.model.objects import (
    JsonDict,
    JsonObject,
    annotations_of,
    key_of,
    metadata_of,
    status_of,
)
from federate.model.reasons import NodeReason
from federate.services.ranges import (
    Network,
    Overlap,
    Ranges,
    format_networks,
    is_within,
    overlaps,
    parse_networks,
    unknown_kinds,
)
from federate.services.rules import AddressMode

ADDRESSES_REFLECTED = "federate.dev/AddressesReflected"
"""A condition of the Node: whether its pods show addresses, and why."""


class Showing(StrEnum):
    """What becomes of a mirror's addresses on its hub pod."""

    REFLECT = "reflect"
    HIDE = "hide"
    KEEP = "keep"
    """Not decided yet: what is shown stays, and nothing is added. So a restart takes none back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressDecision:
    """What is decided for one target, and why."""

    showing: Showing
    reason: NodeReason
    message: str
    home: tuple[Network, ...] | None = None
    """An address outside of these is none of the target's that anybody told of. None: not asked."""
    strange: tuple[Network, ...] = ()
    """An address in these may be somebody else's on the hub."""
    shown_ranges: tuple[Network, ...] = ()
    """What the Node tells other virtual nodes."""

    def shows(self, address: str) -> bool:
        """Tell whether a mirror's address is one that its hub pod may show."""
        if self.showing is not Showing.REFLECT:
            return False
        is_home = self.home is None or is_within(address, self.home)
        return is_home and not is_within(address, self.strange)


UNDECIDED = AddressDecision(
    showing=Showing.KEEP,
    reason=NodeReason.RANGES_BEING_READ,
    message="the address ranges of both clusters are being read",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """Another virtual node that shows addresses, of another target."""

    node_name: str
    ranges: tuple[Network, ...]


def elder_neighbours(
    nodes: Iterable[JsonObject], *, node_name: str, target_identity: str
) -> tuple[Neighbour, ...]:
    """Find the virtual nodes on the hub that were there before this one and show addresses.

    The order of age never changes, so of two that overlap one shows its addresses, always the same.
    """
    listed = {key_of(node).name: node for node in nodes}
    own_age = _age(listed[node_name]) if node_name in listed else None
    found = []
    for name, node in sorted(listed.items()):
        ranges = parse_networks(annotations_of(node).get(SHOWN_RANGES_ANNOTATION, ""))
        is_elder = own_age is None or _age(node) < own_age
        if name != node_name and ranges and is_elder and not _is_same(node, target_identity):
            found.append(Neighbour(node_name=name, ranges=ranges))
    return tuple(found)


def _age(node: JsonObject) -> tuple[str, str]:
    metadata = metadata_of(node)
    return metadata.get("creationTimestamp") or "", metadata.get("name") or ""


def _is_same(node: JsonObject, target_identity: str) -> bool:
    """Tell whether a Node stands for the same target, where that is known for sure."""
    there = annotations_of(node).get(TARGET_IDENTITY_ANNOTATION, "")
    return bool(target_identity) and there == target_identity


def decide_addresses(
    mode: AddressMode,
    *,
    hub: Ranges,
    target: Ranges,
    target_name: str,
    neighbours: Sequence[Neighbour] = (),
) -> AddressDecision:
    """Decide, from the ranges as `cautious_ranges_of` has them."""
    if mode is AddressMode.HIDE:
        return _hidden(NodeReason.ADDRESSES_CONFIGURED, "hidden by the configuration")
    if mode is AddressMode.REFLECT:
        return AddressDecision(
            showing=Showing.REFLECT,
            reason=NodeReason.ADDRESSES_CONFIGURED,
            message="shown by the configuration, whatever the ranges are",
            shown_ranges=target.pods,
        )
    lacking = [
        f"{kind} of {name}"
        for name, side in (("the hub", hub), (target_name, target))
        for kind in unknown_kinds(side)
    ]
    if lacking:
        return _hidden(
            NodeReason.RANGES_UNKNOWN,
            f"hidden, since nobody tells the address ranges of: {', '.join(lacking)}. Where they "
            "are known to be apart, set `addresses: reflect`",
        )
    met = next(overlaps(hub, target), None)
    if met is not None:
        return _hidden(NodeReason.RANGES_OVERLAP, _overlap_words(met, target_name))
    for neighbour in neighbours:
        there = Ranges(pods=neighbour.ranges)
        both = next(overlaps(there, target), None)
        if both is not None:
            return _hidden(
                NodeReason.RANGES_OVERLAP,
                f"hidden, since pods of virtual node {neighbour.node_name} ({both.ours}) show "
                f"addresses that {both.their_kind} of {target_name} ({both.theirs}) have, too",
            )
    return AddressDecision(
        showing=Showing.REFLECT,
        reason=NodeReason.RANGES_APART,
        message=f"shown: the ranges of the hub ({hub.say()}) and of {target_name} "
        f"({target.say()}) are apart",
        home=(*target.pods, *target.nodes),
        strange=(*hub.pods, *hub.services, *hub.nodes),
        shown_ranges=target.pods,
    )


def _hidden(reason: NodeReason, message: str) -> AddressDecision:
    return AddressDecision(showing=Showing.HIDE, reason=reason, message=message)


def _overlap_words(met: Overlap, target_name: str) -> str:
    return (
        f"hidden, since {met.our_kind} of the hub ({met.ours}) and {met.their_kind} of "
        f"{target_name} ({met.theirs}) have addresses in common: a hub Service could send traffic "
        "to a stranger"
    )


def with_shown_addresses(
    status: JsonObject, hub_pod: JsonObject, decision: AddressDecision
) -> JsonDict:
    """Return a mirror's status with those addresses only that its hub pod may show.

    An address that was shown and may not be any more is not in it: the merge takes it back.
    """
    told = {k: v for k, v in status.items() if k not in ("podIP", "podIPs")}
    shown = [address for address in pod_addresses(status) if _may_show(address, hub_pod, decision)]
    if shown:
        told["podIP"] = shown[0]
        told["podIPs"] = [{"ip": address} for address in shown]
    return told


def _may_show(address: str, hub_pod: JsonObject, decision: AddressDecision) -> bool:
    if decision.showing is Showing.KEEP:
        return address in pod_addresses(status_of(hub_pod))
    return decision.shows(address)


def pod_addresses(status: JsonObject) -> tuple[str, ...]:
    """Read the addresses of a pod's status, the first first, each once."""
    several = [one.get("ip") for one in status.get("podIPs") or ()]
    return tuple(dict.fromkeys(str(ip) for ip in (status.get("podIP"), *several) if ip))


def addresses_condition(decision: AddressDecision) -> JsonDict:
    """Say it on the Node; whoever writes it adds the times."""
    status = {Showing.REFLECT: "True", Showing.HIDE: "False", Showing.KEEP: "Unknown"}
    return {
        "type": ADDRESSES_REFLECTED,
        "status": status[decision.showing],
        "reason": str(decision.reason),
        "message": decision.message,
    }


def address_annotations(decision: AddressDecision) -> dict[str, str]:
    """Return what the Node tells other virtual nodes; empty where there is nothing to tell."""
    shown = format_networks(decision.shown_ranges)
    return {SHOWN_RANGES_ANNOTATION: shown} if shown else {}
