"""Which addresses a cluster uses for pods, Services and nodes, as far as anybody tells. Pure.

Nodes tell the pods' ranges, ServiceCIDR objects those of Services, and kubeadm's ConfigMap both.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

from federate.model.objects import JsonObject, spec_of, status_of
from federate.model.pods import is_virtual_node

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

_SUBNET = re.compile(r"^\s*(podSubnet|serviceSubnet):\s*[\"']?([0-9a-fA-F.:/,]+)", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranges:
    """Addresses one side uses; an empty tuple means nobody tells."""

    pods: tuple[Network, ...] = ()
    services: tuple[Network, ...] = ()
    nodes: tuple[Network, ...] = ()

    def by_kind(self) -> Mapping[str, tuple[Network, ...]]:
        """Return them by what they are for."""
        return {"pods": self.pods, "services": self.services, "nodes": self.nodes}

    def say(self) -> str:
        """Say them in a few words; nodes are counted."""
        parts = [
            f"{kind} {', '.join(map(str, networks)) or 'unknown'}"
            for kind, networks in self.by_kind().items()
            if kind != "nodes"
        ]
        return "; ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeSources:
    """What was read of one side; None where it may not or cannot be read."""

    nodes: Sequence[JsonObject] | None = None
    service_ranges: Sequence[JsonObject] | None = None
    kubeadm: JsonObject | None = None


CLUSTER_PREFIX: Mapping[int, int] = {4: 16, 6: 48}
"""How large the range is taken to be of which a node has a part, where nobody tells: as K3s and
kubeadm give it, or larger."""


def ranges_of(sources: RangeSources) -> Ranges:
    """Work out the ranges of one side, as they are told."""
    kubeadm = _kubeadm_subnets(sources.kubeadm)
    nodes = _real_nodes(sources)
    services = _networks(
        cidr for one in sources.service_ranges or () for cidr in spec_of(one).get("cidrs") or ()
    )
    parts = _networks(part for node in nodes for part in _pod_ranges(node))
    return Ranges(
        pods=_merged((*kubeadm.get("podSubnet", ()), *parts)),
        services=_merged(services or kubeadm.get("serviceSubnet", ())),
        nodes=_merged(_networks(_addresses(nodes))),
    )


def cautious_ranges_of(sources: RangeSources) -> Ranges:
    """Work out the ranges that addresses of one side may ever be of.

    A node tells its part of the cluster's pod range: the next node has another part, that nobody
    told of before. Where a node has none, somebody else gives its pods addresses.
    """
    told = ranges_of(sources)
    whole = _kubeadm_subnets(sources.kubeadm).get("podSubnet", ())
    if whole:
        return replace(told, pods=_merged((*whole, *told.pods)))
    if not all(any(True for _ in _pod_ranges(node)) for node in _real_nodes(sources)):
        return replace(told, pods=())
    return replace(told, pods=_merged(tuple(map(_widened, told.pods))))


def _widened(network: Network) -> Network:
    prefix = min(network.prefixlen, CLUSTER_PREFIX[network.version])
    return network.supernet(new_prefix=prefix)


def _real_nodes(sources: RangeSources) -> list[JsonObject]:
    """Leave out virtual nodes: the address of one is that of a process, not of the cluster."""
    return [node for node in sources.nodes or () if not is_virtual_node(node)]


def _pod_ranges(node: JsonObject) -> Iterator[str]:
    spec = spec_of(node)
    yield from spec.get("podCIDRs") or ([spec["podCIDR"]] if spec.get("podCIDR") else ())


def _addresses(nodes: Iterable[JsonObject]) -> Iterable[str]:
    for node in nodes:
        for address in status_of(node).get("addresses") or ():
            if address.get("type") in ("InternalIP", "ExternalIP"):
                yield str(address.get("address"))


def _kubeadm_subnets(config: JsonObject | None) -> dict[str, tuple[Network, ...]]:
    text = str(((config or {}).get("data") or {}).get("ClusterConfiguration") or "")
    return {name: _networks(listed.split(",")) for name, listed in _SUBNET.findall(text)}


def _networks(texts: Iterable[str]) -> tuple[Network, ...]:
    found = []
    for text in texts:
        try:
            found.append(ipaddress.ip_network(text.strip(), strict=False))
        except ValueError:
            continue
    return tuple(found)


def _merged(networks: Iterable[Network]) -> tuple[Network, ...]:
    """Leave out what lies in another one, and join neighbours."""
    fours = [n for n in networks if isinstance(n, ipaddress.IPv4Network)]
    sixes = [n for n in networks if isinstance(n, ipaddress.IPv6Network)]
    return (*ipaddress.collapse_addresses(fours), *ipaddress.collapse_addresses(sixes))


# -- of two clusters -------------------------------------------------------------------------------


class Overlap(NamedTuple):
    """Addresses that two clusters have in common: what for, and where, on either side."""

    our_kind: str
    ours: Network
    their_kind: str
    theirs: Network


def overlaps(ours: Ranges, theirs: Ranges) -> Iterator[Overlap]:
    """Yield one overlap for each pair of kinds that has one.

    Nodes of two clusters may well stand in one network, or be the same machine.
    """
    for our_kind, our_networks in ours.by_kind().items():
        for their_kind, their_networks in theirs.by_kind().items():
            if our_kind == their_kind == "nodes":
                continue
            pairs = ((a, b) for a in our_networks for b in their_networks if _overlap(a, b))
            for a, b in pairs:
                yield Overlap(our_kind, a, their_kind, b)
                break


def unknown_kinds(ranges: Ranges) -> tuple[str, ...]:
    """Name the kinds of addresses of which nobody tells the range."""
    return tuple(kind for kind, networks in ranges.by_kind().items() if not networks)


def is_within(address: str, networks: Iterable[Network]) -> bool:
    """Tell whether an address lies in one of the networks; what is no address lies in none."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    return any(found in network for network in networks)


def format_networks(networks: Iterable[Network]) -> str:
    """Write networks as one text."""
    return ",".join(map(str, networks))


def parse_networks(text: str) -> tuple[Network, ...]:
    """Read them again; what is none is left out."""
    return _networks(part for part in text.split(",") if part)


def _overlap(first: Network, second: Network) -> bool:
    if isinstance(first, ipaddress.IPv4Network) and isinstance(second, ipaddress.IPv4Network):
        return first.overlaps(second)
    if isinstance(first, ipaddress.IPv6Network) and isinstance(second, ipaddress.IPv6Network):
        return first.overlaps(second)
    return False
