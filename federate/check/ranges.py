"""Judge whether addresses of both sides may be told apart (C47). Pure.

Two clusters that give pods or Services the same addresses cannot see each other's pods by address:
traffic for a reflected address would reach a stranger. What nobody tells is said to be unknown.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from federate.check.findings import Finding, FindingId
from federate.model.objects import JsonObject, labels_of, spec_of, status_of
from federate.model.pods import NODE_TYPE_LABEL, VIRTUAL_NODE_TYPE

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


def ranges_of(sources: RangeSources) -> Ranges:
    """Work out the ranges of one side."""
    kubeadm = _kubeadm_subnets(sources.kubeadm)
    nodes = [
        node
        for node in sources.nodes or ()
        # A virtual node's address is that of a process, not of the cluster.
        if labels_of(node).get(NODE_TYPE_LABEL) != VIRTUAL_NODE_TYPE
    ]
    services = _networks(
        cidr for one in sources.service_ranges or () for cidr in spec_of(one).get("cidrs") or ()
    )
    return Ranges(
        pods=_merged((*kubeadm.get("podSubnet", ()), *_networks(_pod_ranges(nodes)))),
        services=_merged(services or kubeadm.get("serviceSubnet", ())),
        nodes=_merged(_networks(_addresses(nodes))),
    )


def _pod_ranges(nodes: Iterable[JsonObject]) -> Iterable[str]:
    for node in nodes:
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


def judge_ranges(hub: Ranges, target: Ranges, *, target_name: str) -> tuple[Finding, ...]:
    """Compare both sides: overlaps first, then what is not known."""
    return (*_overlaps(hub, target, target_name), *_unknown(hub, target, target_name))


def _overlaps(hub: Ranges, target: Ranges, target_name: str) -> Iterable[Finding]:
    pairs = [
        f"{ours_kind} of the hub ({first}) with {theirs_kind} of {target_name} ({second})"
        for ours_kind, ours in hub.by_kind().items()
        for theirs_kind, theirs in target.by_kind().items()
        # Nodes of two clusters may well stand in one network.
        if not ours_kind == theirs_kind == "nodes"
        for first, second in [(a, b) for a in ours for b in theirs if _overlap(a, b)][:1]
    ]
    if pairs:
        yield Finding(
            id=FindingId.RANGES_OVERLAP,
            what=f"addresses in common: {'; '.join(pairs)}. The address of a mirrored pod may be a "
            "stranger's on the hub",
            fix="give one of the clusters other ranges when it is built (K3s: --cluster-cidr, "
            "--service-cidr; kubeadm: podSubnet, serviceSubnet); until then let no hub Service "
            "select mirrored pods",
        )


def _overlap(first: Network, second: Network) -> bool:
    if isinstance(first, ipaddress.IPv4Network) and isinstance(second, ipaddress.IPv4Network):
        return first.overlaps(second)
    if isinstance(first, ipaddress.IPv6Network) and isinstance(second, ipaddress.IPv6Network):
        return first.overlaps(second)
    return False


def _unknown(hub: Ranges, target: Ranges, target_name: str) -> Iterable[Finding]:
    lacking = [
        f"{kind} of {name}"
        for name, side in (("the hub", hub), (target_name, target))
        for kind, networks in side.by_kind().items()
        if not networks
    ]
    if lacking:
        yield Finding(
            id=FindingId.RANGES_UNKNOWN,
            what=f"not known: addresses of {', '.join(lacking)}",
            fix="compare them by hand, or grant the reads: federate rbac --side hub|target "
            "--with check",
        )
