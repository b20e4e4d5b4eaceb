"""Which addresses of mirrors hub pods show (C47)."""

from __future__ import annotations

import pytest

from federate.model.marks import SHOWN_RANGES_ANNOTATION
from federate.model.objects import JsonDict
from federate.model.reasons import NodeReason
from federate.services.addresses import (
    UNDECIDED,
    AddressDecision,
    Neighbour,
    Showing,
    address_annotations,
    addresses_condition,
    decide_addresses,
    elder_neighbours,
    with_shown_addresses,
)
from federate.services.ranges import Ranges, parse_networks
from federate.services.rules import AddressMode


def ranges(pods: str, services: str, nodes: str) -> Ranges:
    return Ranges(
        pods=parse_networks(pods), services=parse_networks(services), nodes=parse_networks(nodes)
    )


HUB = ranges("10.244.0.0/16", "10.96.0.0/12", "192.168.0.1/32")
EDGE = ranges("10.42.0.0/16", "10.43.0.0/16", "192.168.0.2/32")


def decided(
    hub: Ranges = HUB,
    target: Ranges = EDGE,
    *,
    mode: AddressMode = AddressMode.AUTO,
    neighbours: tuple[Neighbour, ...] = (),
) -> AddressDecision:
    return decide_addresses(
        mode, hub=hub, target=target, target_name="edge-1", neighbours=neighbours
    )


def mirror_status(*addresses: str) -> JsonDict:
    return {
        "phase": "Running",
        "podIP": addresses[0],
        "podIPs": [{"ip": address} for address in addresses],
    }


def shown(decision: AddressDecision, *addresses: str, hub: JsonDict | None = None) -> list[str]:
    status = with_shown_addresses(mirror_status(*addresses), {"status": hub or {}}, decision)
    assert status["phase"] == "Running"
    listed = [one["ip"] for one in status.get("podIPs", [])]
    assert status.get("podIP") == (listed[0] if listed else None)
    return listed


# -- the decision ----------------------------------------------------------------------------------


def test_ranges_that_are_apart_are_shown() -> None:
    decision = decided()
    assert (decision.showing, decision.reason) == (Showing.REFLECT, NodeReason.RANGES_APART)
    assert shown(decision, "10.42.0.7") == ["10.42.0.7"]
    assert "10.244.0.0/16" in decision.message
    assert "10.42.0.0/16" in decision.message


@pytest.mark.parametrize(
    "target",
    [
        ranges("10.244.0.0/16", "10.43.0.0/16", "192.168.0.2/32"),
        ranges("10.42.0.0/16", "10.244.128.0/20", "192.168.0.2/32"),
        ranges("10.96.0.0/24", "10.43.0.0/16", "192.168.0.2/32"),
        ranges("10.42.0.0/16", "10.96.0.0/24", "192.168.0.2/32"),
        ranges("192.168.0.0/24", "10.43.0.0/16", "192.168.9.2/32"),
        ranges("10.42.0.0/16", "10.43.0.0/16", "10.244.3.3/32"),
    ],
)
def test_c47_whatever_the_two_have_in_common_hides_all(target: Ranges) -> None:
    decision = decided(target=target)
    assert (decision.showing, decision.reason) == (Showing.HIDE, NodeReason.RANGES_OVERLAP)
    assert "in common" in decision.message
    assert shown(decision, "10.42.0.7") == []


@pytest.mark.parametrize("lacking", ["pods", "services", "nodes"])
@pytest.mark.parametrize("side", ["hub", "target"])
def test_c47_what_nobody_tells_hides_all(side: str, lacking: str) -> None:
    kinds = {"pods": "10.42.0.0/16", "services": "10.43.0.0/16", "nodes": "192.168.0.2/32"}
    partly = ranges(**{**kinds, lacking: ""})
    whole = HUB if side == "target" else EDGE
    decision = decided(hub=partly, target=whole) if side == "hub" else decided(target=partly)
    assert (decision.showing, decision.reason) == (Showing.HIDE, NodeReason.RANGES_UNKNOWN)
    assert f"{lacking} of {'the hub' if side == 'hub' else 'edge-1'}" in decision.message


def test_the_user_may_say_what_is_to_be() -> None:
    same = decided(target=HUB, mode=AddressMode.REFLECT)
    assert shown(same, "10.244.0.7") == ["10.244.0.7"]
    assert shown(decided(mode=AddressMode.HIDE), "10.42.0.7") == []
    for mode in (AddressMode.REFLECT, AddressMode.HIDE):
        assert decided(mode=mode).reason is NodeReason.ADDRESSES_CONFIGURED


def test_an_address_outside_of_what_was_told_is_hidden() -> None:
    """A CNI with pools of its own: then what was told is not the whole truth."""
    decision = decided()
    assert shown(decision, "172.20.0.7") == []
    assert shown(decision, "192.168.0.2") == ["192.168.0.2"]  # a pod in its node's network


def test_a_node_that_both_have_is_a_stranger() -> None:
    both = ranges("10.42.0.0/16", "10.43.0.0/16", "192.168.0.1/32")
    decision = decided(target=both)
    assert decision.showing is Showing.REFLECT
    assert shown(decision, "192.168.0.1") == []


def test_of_two_families_each_is_judged_by_itself() -> None:
    decision = decided(target=ranges("10.42.0.0/16,fd42::/48", "10.43.0.0/16", "192.168.0.2/32"))
    assert shown(decision, "10.42.0.7", "fd42::7") == ["10.42.0.7", "fd42::7"]
    assert shown(decision, "172.20.0.7", "fd42::7") == ["fd42::7"]


def test_before_anything_is_decided_what_is_shown_stays() -> None:
    """A restart takes no address back, and adds none."""
    assert shown(UNDECIDED, "10.42.0.7", hub=mirror_status("10.42.0.7")) == ["10.42.0.7"]
    assert shown(UNDECIDED, "10.42.0.7", hub=mirror_status("10.42.0.6")) == []
    assert shown(UNDECIDED, "10.42.0.7") == []


def test_an_address_that_may_not_be_shown_any_more_is_taken_back() -> None:
    decision = decided(target=HUB)
    assert shown(decision, "10.42.0.7", hub=mirror_status("10.42.0.7")) == []


def test_a_status_without_addresses_has_none() -> None:
    assert with_shown_addresses({"phase": "Pending"}, {}, decided()) == {"phase": "Pending"}


# -- several targets -------------------------------------------------------------------------------


def virtual_node(name: str, created: str, shown_ranges: str = "", identity: str = "") -> JsonDict:
    annotations = {SHOWN_RANGES_ANNOTATION: shown_ranges} if shown_ranges else {}
    if identity:
        annotations["federate.dev/target-identity"] = identity
    return {"metadata": {"name": name, "creationTimestamp": created, "annotations": annotations}}


def neighbours(*nodes: JsonDict, me: str = "me", identity: str = "uid-1") -> list[str]:
    found = elder_neighbours(nodes, node_name=me, target_identity=identity)
    return [one.node_name for one in found]


def test_of_two_targets_with_the_same_ranges_the_elder_shows_its_own() -> None:
    """Every K3s has 10.42.0.0/16 unless told otherwise."""
    old = virtual_node("old", "2026-01-01T00:00:00Z", "10.42.0.0/16")
    young = virtual_node("young", "2026-01-02T00:00:00Z", "10.42.0.0/16")
    assert neighbours(old, young, me="young") == ["old"]
    assert neighbours(old, young, me="old") == []
    [elder] = elder_neighbours((old, young), node_name="young", target_identity="uid-1")
    decision = decided(neighbours=(elder,))
    assert decision.showing is Showing.HIDE
    assert "virtual node old" in decision.message
    apart = Neighbour(node_name="old", ranges=parse_networks("10.50.0.0/16"))
    assert decided(neighbours=(apart,)).showing is Showing.REFLECT


def test_neighbours_of_one_age_go_by_their_names() -> None:
    a = virtual_node("a", "2026-01-01T00:00:00Z", "10.42.0.0/16")
    b = virtual_node("b", "2026-01-01T00:00:00Z", "10.42.0.0/16")
    assert (neighbours(a, b, me="a"), neighbours(a, b, me="b")) == ([], ["a"])


def test_before_a_node_is_there_all_others_are_elder() -> None:
    assert neighbours(virtual_node("other", "2026-01-01T00:00:00Z", "10.42.0.0/16")) == ["other"]


def test_who_shows_nothing_or_the_same_target_is_no_neighbour() -> None:
    mine = virtual_node("me", "2026-01-03T00:00:00Z")
    silent = virtual_node("silent", "2026-01-01T00:00:00Z")
    twin = virtual_node("twin", "2026-01-01T00:00:00Z", "10.42.0.0/16", identity="uid-1")
    assert neighbours(mine, silent, twin) == []
    assert neighbours(mine, twin, identity="") == ["twin"]  # not known for sure: a stranger


# -- as it is told ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("decision", "status"),
    [(decided(), "True"), (decided(target=HUB), "False"), (UNDECIDED, "Unknown")],
)
def test_the_node_says_so(decision: AddressDecision, status: str) -> None:
    condition = addresses_condition(decision)
    assert condition["status"] == status
    assert condition["type"] == "federate.dev/AddressesReflected"
    assert condition["message"] == decision.message


def test_only_who_shows_addresses_tells_its_ranges() -> None:
    assert address_annotations(decided()) == {SHOWN_RANGES_ANNOTATION: "10.42.0.0/16"}
    for decision in (UNDECIDED, decided(target=HUB), decided(mode=AddressMode.HIDE)):
        assert address_annotations(decision) == {}
