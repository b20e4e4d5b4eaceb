"""What the virtual node offers, from what the target has, less what others take (C14)."""

from __future__ import annotations

import copy
import random
from decimal import Decimal
from typing import Any

import pytest

from federate.model.objects import JsonDict
from federate.model.quantities import add, pod_requests
from federate.node.capacity import (
    CapacityMode,
    CapacityRules,
    Ledger,
    aggregate_offer,
    excess_requests,
    is_offering,
    may_ask_otherwise,
    may_take_otherwise,
    node_allocatable,
    requests_of,
    static_offer,
)
from tests.support.builders import PodBuilder, pod
from tests.support.views import hub_pod, mirror


def target_node(*, ready: str = "True", **spec: Any) -> JsonDict:
    return {
        "metadata": {"name": "t-1"},
        "spec": spec,
        "status": {
            "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": ready}],
        },
    }


def taint(effect: str) -> list[JsonDict]:
    return [{"key": "k", "effect": effect}]


def test_a_ready_node_offers_what_is_allocatable() -> None:
    """Not its capacity: what the system keeps for itself is nobody's."""
    assert node_allocatable(target_node()) == {
        "cpu": Decimal(4),
        "memory": Decimal(8 * 1024**3),
        "pods": Decimal(110),
    }


@pytest.mark.parametrize(
    ("node", "offers"),
    [
        (target_node(), True),
        (target_node(taints=taint("PreferNoSchedule")), True),
        (target_node(taints=taint("NoSchedule")), False),
        (target_node(taints=taint("NoExecute")), False),
        (target_node(unschedulable=True), False),
        (target_node(ready="False"), False),
        (target_node(ready="Unknown"), False),
        ({"metadata": {"name": "t-1"}}, False),
        ({**target_node(), "metadata": {"name": "t", "deletionTimestamp": "x"}}, False),
        ({**target_node(), "metadata": {"labels": {"type": "virtual-kubelet"}}}, False),
    ],
)
def test_only_nodes_that_take_pods_count(node: JsonDict, offers: bool) -> None:
    """Not ready, cordoned, tainted or leaving nodes offer nothing, and no virtual one does."""
    assert is_offering(node) is offers
    assert (node_allocatable(node) is not None) is offers


def test_terminal_pods_release_at_once() -> None:
    """A pod of others takes what it requests until it has ended."""
    taken = requests_of(pod("x").with_requests(cpu="500m").running().build())
    assert taken == {"cpu": Decimal("0.5"), "pods": Decimal(1)}
    assert requests_of(pod("x").with_requests(cpu="500m").succeeded().build()) is None


def test_a_mirror_lowers_the_offer_only_by_what_it_takes_beyond_its_hub_pod() -> None:
    """The hub's scheduler counts the hub pod itself."""
    hub = hub_pod().with_requests(cpu="1").build()
    assert excess_requests(hub, mirror().with_requests(cpu="1").build()) is None
    assert excess_requests(hub, mirror().with_requests(cpu="250m").build()) is None
    more = (
        mirror()
        .with_requests(cpu="1", memory="1Ki")
        .with_container("mesh", resources={"requests": {"cpu": "100m"}})
    )
    assert excess_requests(hub, more.build()) == {
        "cpu": Decimal("0.1"),
        "memory": Decimal(1024),
    }
    assert excess_requests(hub, more.failed().build()) is None
    ended = hub_pod().with_requests(cpu="1").failed().build()
    assert (excess_requests(ended, mirror().with_requests(cpu="1").build()) or {})["cpu"] == 1


def test_a_mirror_without_its_hub_pod_counts_whole() -> None:
    """Until it is gone it takes what it takes."""
    assert excess_requests(None, mirror().with_requests(cpu="1").build()) == {
        "cpu": Decimal(1),
        "pods": Decimal(1),
    }


def test_a_pod_asks_otherwise_when_its_spec_moved() -> None:
    """The generation tells; where a server gives none, what is asked for is compared."""
    was = pod("x").with_requests(cpu="1").build()
    later = {**was, "metadata": {**was["metadata"], "generation": 2}}
    other = {**was, "metadata": {**was["metadata"], "uid": "u2"}}
    assert not may_ask_otherwise(was, was)
    assert may_ask_otherwise(was, later)
    assert may_ask_otherwise(was, other)
    old, new, more = (copy.deepcopy(p) for p in (was, was, was))
    more["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "2"}}
    for each in (old, new, more):
        del each["metadata"]["generation"]
    assert not may_ask_otherwise(old, new)
    assert may_ask_otherwise(old, more)


def test_a_pod_takes_otherwise_when_it_ends_or_is_resized() -> None:
    """A new status is no news unless it says so."""
    begun = pod("x").with_requests(cpu="1")
    assert not may_take_otherwise(begun.build(), begun.running().build())
    assert may_take_otherwise(begun.running().build(), begun.succeeded().build())
    holding = begun.running().build()
    holding["status"]["containerStatuses"][0]["resources"] = {"requests": {"cpu": "2"}}
    assert may_take_otherwise(begun.running().build(), holding)


GREEDY = {"name": "i", "resources": {"requests": {"cpu": "9"}}}


@pytest.mark.parametrize(
    "other",
    [
        hub_pod().with_requests(cpu="2"),
        hub_pod().with_requests(cpu="1").with_container("x"),
        hub_pod().with_requests(cpu="1").with_spec(overhead={"cpu": "1"}),
        hub_pod().with_requests(cpu="1").with_spec(initContainers=[GREEDY]),
    ],
)
def test_pods_that_look_otherwise_are_counted(other: PodBuilder) -> None:
    """Only where both look the same is the counting left out, and the sum is the same."""
    hub = hub_pod().with_requests(cpu="1").build()
    asked, known = pod_requests(other.build()), pod_requests(hub)
    beyond = {n: a - known.get(n, 0) for n, a in asked.items() if a > known.get(n, 0)}
    assert excess_requests(hub, other.build()) == (beyond or None)


def test_the_offer_is_what_is_left_and_never_negative() -> None:
    """An overcommitted target offers zero, in words a scheduler reads."""
    offer = aggregate_offer(
        {"cpu": Decimal(4), "memory": Decimal(2**30), "gpu": Decimal(1), "pods": Decimal(10)},
        {"cpu": Decimal(5), "pods": Decimal(1), "gpu": Decimal(3), "elsewhere": Decimal(1)},
        {"memory": Decimal(2**29)},
    )
    assert offer["cpu"] == "0"
    assert offer["memory"] == "512Mi"
    assert offer["pods"] == "9"
    assert offer["ephemeral-storage"] == "0"
    assert offer.get("gpu", "0") == "0"
    assert "elsewhere" not in offer


GIVEN = {"cpu": Decimal(10), "memory": Decimal(1001), "pods": Decimal(11), "gpu": Decimal(3)}


def test_c14_a_share_is_rounded_down_to_whole_units() -> None:
    """Half of three devices is one, half of eleven pods five: nobody runs half a pod."""
    offer = aggregate_offer(GIVEN, {"cpu": Decimal(1)}, {}, CapacityRules(share=Decimal("0.5")))
    assert offer == {"cpu": "4500m", "memory": "500", "ephemeral-storage": "0"} | {
        "pods": "5",
        "gpu": "1",
    }


def test_c14_a_cap_bounds_and_invents_nothing() -> None:
    """It is no promise: what the target lacks is not offered because a cap names it."""
    rules = CapacityRules(cap={"cpu": "2", "pods": "50", "tpu": "4"})
    offer = aggregate_offer(GIVEN, {}, {}, rules)
    assert (offer["cpu"], offer["pods"], offer["gpu"]) == ("2", "11", "3")
    assert "tpu" not in offer


def test_c14_share_and_cap_bound_what_mirrors_take() -> None:
    """What the target adds to mirrors is taken from the bounded part: a cost cap holds there."""
    excess = {"cpu": Decimal(1)}
    assert aggregate_offer(GIVEN, {}, excess, CapacityRules(cap={"cpu": "2"}))["cpu"] == "1"
    assert aggregate_offer(GIVEN, {}, excess, CapacityRules(share=Decimal("0.5")))["cpu"] == "4"
    assert aggregate_offer(GIVEN, {"cpu": Decimal(99)}, excess, CapacityRules())["cpu"] == "0"


def test_c14_a_pool_that_can_grow_is_offered_before_it_does() -> None:
    """Nodes that are scaled to nothing come when a pod asks for them."""
    rules = CapacityRules(at_least={"cpu": "64", "nvidia.com/gpu": "8", "pods": "5"})
    offer = aggregate_offer(GIVEN, {"cpu": Decimal(2)}, {}, rules)
    assert (offer["cpu"], offer["nvidia.com/gpu"], offer["pods"]) == ("62", "8", "11")


def test_c14_a_quota_is_named_by_its_namespace_at_least() -> None:
    """Without one nothing could be followed."""
    with pytest.raises(ValueError, match="ResourceQuota"):
        CapacityRules(mode=CapacityMode.QUOTA)


def test_an_empty_target_offers_zero_of_everything_known() -> None:
    """A resource that is absent would be taken for one nobody knows."""
    assert aggregate_offer({}, {}, {}) == {
        "cpu": "0",
        "memory": "0",
        "ephemeral-storage": "0",
        "pods": "0",
    }


def test_a_static_offer_is_what_was_written() -> None:
    """A fixed capacity in canonical quantities."""
    assert static_offer({"cpu": "4000m", "memory": "1024Mi"}) == {"cpu": "4", "memory": "1Gi"}


def test_a_ledger_tells_when_its_sum_changed() -> None:
    """Only a change wakes the heartbeat."""
    ledger: Ledger[str] = Ledger()
    one = {"cpu": Decimal(1)}
    assert not ledger.put("a", None)
    assert not ledger.put("a", {})
    assert ledger.put("a", one)
    assert not ledger.put("a", dict(one))
    assert ledger.put("a", {"cpu": Decimal(3)})
    assert ledger.put("b", one)
    assert ledger.total() == {"cpu": Decimal(4)}
    assert ledger.put("a", None)
    assert not ledger.put("a", None)
    assert ledger.total() == {"cpu": Decimal(1)}


def test_a_ledgers_sum_never_drifts() -> None:
    """After any history the sum is that of the entries."""
    dice = random.Random(7)
    ledger: Ledger[int] = Ledger()
    entries: dict[int, dict[str, Decimal]] = {}
    for _ in range(500):
        key = dice.randrange(8)
        amount = {"cpu": Decimal(dice.randrange(1, 9)) / 1000} if dice.random() < 0.7 else None
        ledger.put(key, amount)
        entries.pop(key, None)
        if amount:
            entries[key] = amount
    total: dict[str, Decimal] = {}
    for amount in entries.values():
        total = add(total, amount)
    left = {name: value for name, value in ledger.total().items() if value}
    assert left == total
