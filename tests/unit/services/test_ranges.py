"""Which addresses a cluster uses, as it is told, and as it may ever be."""

from __future__ import annotations

from ipaddress import ip_network

import pytest

from federate.model.objects import JsonDict
from federate.services.ranges import (
    Ranges,
    RangeSources,
    cautious_ranges_of,
    format_networks,
    is_within,
    overlaps,
    parse_networks,
    ranges_of,
    unknown_kinds,
)


def node(name: str, cidr: str, address: str = "", **labels: str) -> JsonDict:
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"podCIDR": cidr, "podCIDRs": [cidr]} if cidr else {},
        "status": {"addresses": [{"type": "InternalIP", "address": address}] if address else []},
    }


def kubeadm(text: str) -> JsonDict:
    return {"data": {"ClusterConfiguration": text}}


def nets(*texts: str) -> tuple[object, ...]:
    return tuple(map(ip_network, texts))


def test_ranges_come_from_nodes_and_service_cidrs() -> None:
    found = ranges_of(
        RangeSources(
            nodes=[node("a", "10.0.0.0/24", "192.168.0.1"), node("b", "10.0.1.0/24", "fd00::1")],
            service_ranges=[{"spec": {"cidrs": ["10.96.0.0/12", "fd01::/108"]}}],
        )
    )
    assert found.pods == nets("10.0.0.0/23")
    assert found.services == nets("10.96.0.0/12", "fd01::/108")
    assert found.nodes == nets("192.168.0.1/32", "fd00::1/128")


def test_kubeadm_tells_where_the_api_does_not() -> None:
    text = "networking:\n  podSubnet: 10.2.0.0/16,fd02::/48\n  serviceSubnet: 10.3.0.0/16\n"
    found = ranges_of(RangeSources(kubeadm=kubeadm(text)))
    assert found.pods == nets("10.2.0.0/16", "fd02::/48")
    assert found.services == nets("10.3.0.0/16")


def test_the_next_node_has_another_part_of_the_cluster_range() -> None:
    """K3s tells no more than 10.42.0.0/24 of 10.42.0.0/16 while it has one node."""
    one = RangeSources(nodes=[node("a", "10.42.0.0/24"), node("b", "fd42:0:0:1::/64")])
    assert cautious_ranges_of(one).pods == nets("10.42.0.0/16", "fd42::/48")
    assert cautious_ranges_of(RangeSources(nodes=[node("a", "10.0.0.0/8")])).pods == nets(
        "10.0.0.0/8"
    )


def test_kubeadm_tells_the_whole_range() -> None:
    text = "networking:\n  podSubnet: 10.2.0.0/18\n"
    sources = RangeSources(nodes=[node("a", "10.2.0.0/24")], kubeadm=kubeadm(text))
    assert cautious_ranges_of(sources).pods == nets("10.2.0.0/18")


def test_where_a_node_has_no_part_somebody_else_gives_addresses() -> None:
    sources = RangeSources(nodes=[node("a", "10.2.0.0/24"), node("b", "")])
    assert ranges_of(sources).pods == nets("10.2.0.0/24")
    assert cautious_ranges_of(sources).pods == ()


def test_virtual_nodes_are_no_addresses_of_the_cluster() -> None:
    virtual = node("edge", "10.9.0.0/24", "10.9.9.9", type="virtual-kubelet")
    assert ranges_of(RangeSources(nodes=[virtual])) == Ranges()
    both = RangeSources(nodes=[node("a", "10.2.0.0/24"), node("edge", "", type="virtual-kubelet")])
    assert cautious_ranges_of(both).pods == nets("10.2.0.0/16")


def test_nonsense_is_left_out() -> None:
    sources = RangeSources(nodes=[node("a", "nonsense", "host.example")], kubeadm=kubeadm("}{"))
    assert ranges_of(sources) == cautious_ranges_of(sources) == Ranges()
    assert parse_networks("10.0.0.0/8,nonsense,,fd00::/8") == nets("10.0.0.0/8", "fd00::/8")


def test_overlaps_are_of_kinds_and_families() -> None:
    hub = Ranges(
        pods=parse_networks("10.0.0.0/16"),
        services=parse_networks("10.1.0.0/16"),
        nodes=parse_networks("192.168.0.1/32"),
    )
    far = Ranges(
        pods=parse_networks("10.2.0.0/16,fd00::/8"),
        services=parse_networks("10.3.0.0/16"),
        nodes=parse_networks("192.168.0.1/32"),
    )
    assert list(overlaps(hub, far)) == []
    near = Ranges(pods=parse_networks("10.0.128.0/17"), services=parse_networks("10.0.0.0/20"))
    assert [(o.our_kind, o.their_kind) for o in overlaps(hub, near)] == [
        ("pods", "pods"),
        ("pods", "services"),
    ]
    assert unknown_kinds(near) == ("nodes",)
    assert "unknown" in Ranges().say()


@pytest.mark.parametrize(
    ("address", "is_in"),
    [("10.1.2.3", True), ("10.2.0.1", False), ("fd00::7", True), ("", False), ("pod", False)],
)
def test_an_address_lies_in_a_network_of_its_family(address: str, is_in: bool) -> None:
    networks = parse_networks("10.1.0.0/16,fd00::/64")
    assert is_within(address, networks) is is_in
    assert parse_networks(format_networks(networks)) == networks
