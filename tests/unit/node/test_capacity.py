"""What the virtual node offers, from what the target has, less what others take (C14)."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Any

import pytest

from federate.model.objects import JsonDict
from federate.model.quantities import add
from federate.node.capacity import (
    Ledger,
    aggregate_offer,
    excess_requests,
    foreign_requests,
    is_offering,
    node_allocatable,
    static_offer,
)
from tests.support.builders import pod
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
    ],
)
def test_only_nodes_that_take_pods_count(node: JsonDict, offers: bool) -> None:
    """Not ready, cordoned, tainted or leaving nodes offer nothing."""
    assert is_offering(node) is offers
    assert (node_allocatable(node) is not None) is offers


def test_terminal_pods_release_at_once() -> None:
    """A pod of others takes what it requests until it has ended."""
    taken = foreign_requests(pod("x").with_requests(cpu="500m").running().build())
    assert taken == {"cpu": Decimal("0.5"), "pods": Decimal(1)}
    assert foreign_requests(pod("x").with_requests(cpu="500m").succeeded().build()) is None


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


def test_a_mirror_without_its_hub_pod_counts_whole() -> None:
    """Until it is gone it takes what it takes."""
    assert excess_requests(None, mirror().with_requests(cpu="1").build()) == {
        "cpu": Decimal(1),
        "pods": Decimal(1),
    }


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
