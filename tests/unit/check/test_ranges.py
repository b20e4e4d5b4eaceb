"""Address ranges of both sides: overlaps, and what nobody tells (C47)."""

from __future__ import annotations

from ipaddress import ip_network

from federate.check.findings import FindingId, Severity
from federate.check.ranges import Ranges, RangeSources, judge_ranges, ranges_of
from federate.model.objects import JsonDict


def node(name: str, cidr: str, address: str, **labels: str) -> JsonDict:
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"podCIDR": cidr, "podCIDRs": [cidr]} if cidr else {},
        "status": {"addresses": [{"type": "InternalIP", "address": address}]},
    }


def kubeadm(text: str) -> JsonDict:
    return {"data": {"ClusterConfiguration": text}}


def ranges(pods: str, services: str, nodes: str) -> Ranges:
    return Ranges(
        pods=(ip_network(pods),), services=(ip_network(services),), nodes=(ip_network(nodes),)
    )


HUB = ranges("10.0.0.0/16", "10.1.0.0/16", "192.168.0.1/32")


def test_ranges_come_from_nodes_and_service_cidrs() -> None:
    found = ranges_of(
        RangeSources(
            nodes=[node("a", "10.0.0.0/24", "192.168.0.1"), node("b", "10.0.1.0/24", "fd00::1")],
            service_ranges=[{"spec": {"cidrs": ["10.96.0.0/12", "fd01::/108"]}}],
        )
    )
    assert found.pods == (ip_network("10.0.0.0/23"),)
    assert found.services == (ip_network("10.96.0.0/12"), ip_network("fd01::/108"))
    assert found.nodes == (ip_network("192.168.0.1/32"), ip_network("fd00::1/128"))


def test_kubeadm_tells_where_the_api_does_not() -> None:
    text = (
        "networking:\n  dnsDomain: x\n  podSubnet: 10.2.0.0/16,fd02::/48\n"
        "  serviceSubnet: 10.3.0.0/16\n"
    )
    found = ranges_of(RangeSources(kubeadm=kubeadm(text)))
    assert found.pods == (ip_network("10.2.0.0/16"), ip_network("fd02::/48"))
    assert found.services == (ip_network("10.3.0.0/16"),)


def test_virtual_nodes_are_no_addresses_of_the_cluster() -> None:
    found = ranges_of(
        RangeSources(nodes=[node("edge", "10.9.0.0/24", "10.9.9.9", type="virtual-kubelet")])
    )
    assert found == Ranges()


def test_nonsense_is_left_out() -> None:
    found = ranges_of(
        RangeSources(nodes=[node("a", "nonsense", "host.example")], kubeadm=kubeadm("}{"))
    )
    assert found == Ranges()


def test_distinct_ranges_are_fine() -> None:
    other = ranges("10.2.0.0/16", "10.3.0.0/16", "192.168.0.2/32")
    assert judge_ranges(HUB, other, target_name="edge") == ()


def test_every_overlap_is_named_in_one_finding() -> None:
    """Pods in pods, and pods in another's Services."""
    other = ranges("10.0.128.0/17", "10.0.0.0/20", "10.1.2.3/32")
    [finding] = judge_ranges(HUB, other, target_name="edge")
    assert finding.id is FindingId.RANGES_OVERLAP
    assert finding.severity is Severity.WARN
    assert "pods of the hub (10.0.0.0/16) with pods of edge (10.0.128.0/17)" in finding.what
    assert "pods of the hub (10.0.0.0/16) with services of edge (10.0.0.0/20)" in finding.what
    assert "services of the hub (10.1.0.0/16) with nodes of edge (10.1.2.3/32)" in finding.what


def test_nodes_may_stand_in_one_network() -> None:
    other = ranges("10.2.0.0/16", "10.3.0.0/16", "192.168.0.1/32")
    assert judge_ranges(HUB, other, target_name="edge") == ()


def test_families_do_not_meet() -> None:
    other = ranges("fd00::/48", "fd01::/108", "fd02::1/128")
    assert judge_ranges(HUB, other, target_name="edge") == ()


def test_what_nobody_tells_is_said_to_be_unknown() -> None:
    [finding] = judge_ranges(HUB, Ranges(pods=HUB.services), target_name="edge")[1:]
    assert finding.id is FindingId.RANGES_UNKNOWN
    assert "services of edge, nodes of edge" in finding.what
    assert "unknown" in Ranges().say()
