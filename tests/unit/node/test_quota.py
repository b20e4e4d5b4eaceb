"""What a ResourceQuota of the target leaves to a virtual node (C14)."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from federate.model.objects import JsonDict, ObjectKey
from federate.model.quantities import Amounts
from federate.node.capacity import CapacityMode, CapacityRules
from federate.node.quota import (
    SETTLE_SECONDS,
    Granted,
    Settling,
    node_resource,
    offer_by_quota,
)

HARD = {"requests.cpu": "8", "requests.memory": "8Gi", "pods": "20"}
ZERO = {"cpu": "0", "memory": "0", "ephemeral-storage": "0", "pods": "0"}
WANTED = ObjectKey("team", "compute")


def quota(
    hard: dict[str, str] | None = None,
    used: dict[str, str] | None = None,
    *,
    name: str = "compute",
    **spec: Any,
) -> JsonDict:
    granted = HARD if hard is None else hard
    return {
        "metadata": {"namespace": "team", "name": name},
        "spec": {"hard": granted, **spec},
        "status": {"hard": granted, "used": {**dict.fromkeys(granted, "0"), **(used or {})}},
    }


def offered(
    *quotas: JsonDict,
    own: Amounts | None = None,
    excess: Amounts | None = None,
    wanted: ObjectKey = WANTED,
    **rules: Any,
) -> Granted:
    return offer_by_quota(
        quotas,
        own=own or {},
        excess=excess or {},
        rules=CapacityRules(mode=CapacityMode.QUOTA, quota=wanted, **rules),
        wanted=wanted,
    )


@pytest.mark.parametrize(
    ("entry", "resource"),
    [
        ("cpu", "cpu"),
        ("requests.cpu", "cpu"),
        ("memory", "memory"),
        ("requests.memory", "memory"),
        ("requests.ephemeral-storage", "ephemeral-storage"),
        ("pods", "pods"),
        ("count/pods", "pods"),
        ("requests.nvidia.com/gpu", "nvidia.com/gpu"),
        ("hugepages-2Mi", "hugepages-2Mi"),
        ("requests.hugepages-2Mi", "hugepages-2Mi"),
        ("limits.cpu", None),
        ("limits.memory", None),
        ("requests.storage", None),
        ("gold.storageclass.storage.k8s.io/requests.storage", None),
        ("gpu.deviceclass.resource.k8s.io/devices", None),
        ("count/jobs.batch", None),
        ("services", None),
    ],
)
def test_entries_of_a_quota_name_resources_of_a_node(entry: str, resource: str | None) -> None:
    """Requests count; limits, storage classes and other objects are nothing a node has."""
    assert node_resource(entry) == resource


def test_c14_a_quota_leaves_what_others_do_not_use() -> None:
    """Devices and pods too."""
    hard = {**HARD, "requests.nvidia.com/gpu": "4", "limits.cpu": "1"}
    used = {"requests.cpu": "1500m", "requests.nvidia.com/gpu": "1", "pods": "3"}
    said = offered(quota(hard, used))
    assert said.trouble == ""
    assert said.capacity == {
        "cpu": "6500m",
        "memory": "8Gi",
        "ephemeral-storage": "0",
        "pods": "17",
        "nvidia.com/gpu": "3",
    }


def test_c14_what_our_mirrors_use_is_not_taken_off() -> None:
    """And if the target has not counted one of them yet, no more is offered than it grants."""
    own = {"cpu": Decimal(2), "pods": Decimal(2)}
    said = offered(quota(used={"requests.cpu": "3", "pods": "1"}), own=own)
    assert said.capacity is not None
    assert (said.capacity["cpu"], said.capacity["pods"]) == ("7", "20")


def test_c14_what_admission_added_is_taken_off() -> None:
    """The hub's scheduler does not know of it."""
    said = offered(quota(), own={"cpu": Decimal(3)}, excess={"cpu": Decimal(1), "x": Decimal(1)})
    assert said.capacity is not None
    assert said.capacity["cpu"] == "7"
    assert "x" not in said.capacity


def test_c14_the_tighter_of_two_entries_counts() -> None:
    """`cpu` is another name for `requests.cpu`, `count/pods` counts ended pods too."""
    hard = {"cpu": "4", "requests.cpu": "8", "memory": "1Gi", "pods": "10", "count/pods": "12"}
    said = offered(quota(hard, {"count/pods": "7", "pods": "1"}))
    assert said.capacity is not None
    assert (said.capacity["cpu"], said.capacity["pods"]) == ("4", "5")


def test_c14_an_overdrawn_quota_leaves_nothing() -> None:
    """It may be lowered below what runs already."""
    said = offered(quota(used={"requests.cpu": "9"}))
    assert said.capacity is not None
    assert said.capacity["cpu"] == "0"


def test_c14_share_and_cap_bound_a_quota() -> None:
    """As they bound what nodes have left."""
    said = offered(quota(), share=Decimal("0.5"), cap={"memory": "1Gi", "gpu": "7"})
    assert said.capacity == {
        "cpu": "4",
        "memory": "1Gi",
        "ephemeral-storage": "0",
        "pods": "10",
    }


def test_c14_what_a_quota_does_not_limit_the_user_says() -> None:
    """Under the cap; what the quota limits is the quota's word."""
    static = {"pods": "50", "cpu": "99", "memory": "64Gi"}
    said = offered(quota({"cpu": "4"}), static=static, cap={"memory": "1Gi"})
    assert said.trouble == ""
    assert said.capacity == {"cpu": "4", "memory": "1Gi", "ephemeral-storage": "0", "pods": "50"}


@pytest.mark.parametrize(
    ("hard", "words"),
    [
        ({"cpu": "4", "memory": "1Gi"}, "does not limit pods, so the node takes no pods:"),
        ({"pods": "4"}, "does not limit cpu, memory, so the node takes no pods that request it"),
        ({}, "does not limit cpu, memory, pods, so the node takes no pods:"),
    ],
)
def test_c14_what_has_no_value_is_told(hard: dict[str, str], words: str) -> None:
    """With what to do about it."""
    said = offered(quota(hard))
    assert words in said.trouble
    assert "capacity.static" in said.trouble


@pytest.mark.parametrize(
    ("quotas", "wanted", "words"),
    [
        ([], WANTED, "no ResourceQuota team/compute in namespace team"),
        ([], ObjectKey("team", ""), "no ResourceQuota at all in namespace team"),
        ([quota(), quota(name="b")], ObjectKey("team", ""), "2 ResourceQuotas (b, compute)"),
        ([quota(scopes=["BestEffort"])], WANTED, "has scopes (BestEffort)"),
        (
            [quota(scopeSelector={"matchExpressions": [{"scopeName": "PriorityClass"}]})],
            WANTED,
            "has scopes (PriorityClass)",
        ),
    ],
)
def test_c14_where_no_quota_tells_nothing_is_offered(
    quotas: list[JsonDict], wanted: ObjectKey, words: str
) -> None:
    """None there, several, or one that limits some pods only: the node says which."""
    said = offered(*quotas, wanted=wanted, static={"pods": "9"})
    assert words in said.trouble
    assert said.capacity == ZERO


def test_c14_the_only_quota_of_a_namespace_needs_no_name() -> None:
    """And empty scopes are none."""
    only = quota(scopes=[], scopeSelector={})
    assert offered(only, wanted=ObjectKey("team", "")).trouble == ""


@pytest.mark.parametrize("status", [{}, {"hard": HARD}, {"hard": HARD, "used": {"pods": "1"}}])
def test_c14_a_quota_that_is_not_counted_yet_says_nothing(status: JsonDict) -> None:
    """The target's admission refuses every pod until then, so what was offered stands."""
    said = offered({**quota(), "status": status})
    assert said.capacity is None
    assert "has not counted ResourceQuota team/compute yet" in said.trouble


def test_what_sinks_waits_and_what_rises_does_not() -> None:
    """Resource by resource, and a resource that is gone is one that sank."""
    settling, over = Settling(), SETTLE_SECONDS
    four, five, three = ({"cpu": Decimal(n), "gpu": Decimal(9 - n)} for n in (4, 5, 3))
    assert settling.settle(four, now=0.0) == four
    assert not settling.holds_back()
    assert settling.settle(five, now=1.0) == {"cpu": Decimal(5), "gpu": Decimal(5)}
    assert settling.holds_back()
    assert settling.settle(three, now=1.5) == {"cpu": Decimal(5), "gpu": Decimal(6)}
    assert settling.settle({"cpu": Decimal(3)}, now=1.0 + over) == {"cpu": Decimal(3)}
    assert not settling.holds_back()


def test_what_sinks_for_a_moment_never_sank() -> None:
    """Each time anew; after it was forgotten anything passes at once."""
    settling, full, less = Settling(), {"cpu": Decimal(4)}, {"cpu": Decimal(1)}
    now = 0.0
    for _ in range(5):
        assert settling.settle(full, now=now) == full
        assert settling.settle(less, now=now + 0.9 * SETTLE_SECONDS) == full
        now += SETTLE_SECONDS
    settling.forget()
    assert settling.settle(less, now=now) == less
