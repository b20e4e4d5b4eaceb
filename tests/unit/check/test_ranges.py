"""Address ranges of both sides: overlaps, and what nobody tells (C47)."""

from __future__ import annotations

from ipaddress import ip_network

from federate.check.findings import FindingId, Severity
from federate.check.ranges import judge_ranges
from federate.services.ranges import Ranges


def ranges(pods: str, services: str, nodes: str) -> Ranges:
    return Ranges(
        pods=(ip_network(pods),), services=(ip_network(services),), nodes=(ip_network(nodes),)
    )


HUB = ranges("10.0.0.0/16", "10.1.0.0/16", "192.168.0.1/32")


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
