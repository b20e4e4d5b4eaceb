"""Leader leases and node leases."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federate.model.instants import format_micro_instant
from federate.model.leases import (
    Acquire,
    LeaseDecision,
    Lost,
    Observation,
    Renew,
    Wait,
    decide,
    holder_of,
    observe,
    render_leader_lease,
    render_node_lease,
    render_released_lease,
)

NOW = datetime(2025, 1, 2, 3, 4, 5, 678900, tzinfo=UTC)
INSTANT = "2025-01-02T03:04:05.678900Z"
DURATION = 15
DEADLINE = 10.0


def lease(holder: str | None = "them", **spec: Any) -> dict[str, Any]:
    held = {"holderIdentity": holder} if holder is not None else {}
    defaults = {"leaseDurationSeconds": DURATION, "renewTime": "t1", "leaseTransitions": 3}
    metadata = {"name": "leader", "uid": "u1", "resourceVersion": "7", "labels": {"a": "1"}}
    return {"metadata": metadata, "spec": {**held, **defaults, **spec}}


def decision(
    found: dict[str, Any] | None,
    *,
    observed: Observation | None = None,
    now: float = 100.0,
    renewed_at: float | None = None,
) -> LeaseDecision:
    return decide(
        found,
        identity="us",
        observed=observed,
        now_monotonic=now,
        duration_seconds=DURATION,
        renew_deadline_seconds=DEADLINE,
        renewed_at_monotonic=renewed_at,
    )


def seen(found: dict[str, Any], at: float) -> Observation:
    return Observation(lease=found, seen_at_monotonic=at)


# --- deciding -----------------------------------------------------------------------------------


@pytest.mark.parametrize("found", [None, lease(None), lease(""), lease("us"), {"metadata": {}}])
def test_a_free_lease_is_acquired_at_once(found: dict[str, Any] | None) -> None:
    """No lease, a released one, and one already in our name are taken without waiting."""
    assert isinstance(decision(found), Acquire)


def test_a_lease_seen_for_the_first_time_is_waited_out() -> None:
    """A fresh replica waits a whole duration, however old the record claims to be."""
    ancient = lease(renewTime="1999-01-01T00:00:00.000000Z")
    assert decision(ancient) == Wait(seconds=15.0, holder="them")


def test_a_silent_holder_is_replaced() -> None:
    """Time counts from when the record was seen to change last."""
    found = lease()
    assert decision(found, observed=seen(found, 90.0)) == Wait(seconds=5.0, holder="them")
    assert isinstance(decision(found, observed=seen(found, 85.0)), Acquire)


def test_a_living_holder_is_waited_for() -> None:
    """A record that changed starts the time again."""
    fresh = lease(renewTime="t2")
    assert decision(fresh, observed=seen(lease(), 1.0)) == Wait(seconds=15.0, holder="them")


def test_the_holders_own_duration_counts() -> None:
    """A holder with a longer duration is given it; without one it is ours."""
    slow = lease(leaseDurationSeconds=60)
    assert decision(slow, observed=seen(slow, 80.0)) == Wait(seconds=40.0, holder="them")
    bare = lease(leaseDurationSeconds=None)
    assert decision(bare, observed=seen(bare, 99.0)) == Wait(seconds=14.0, holder="them")


def test_a_leader_renews_and_knows_when_it_has_lost() -> None:
    """A leader renews what is its own, and stops when late or replaced."""
    assert decision(lease("us"), renewed_at=95.0) == Renew()
    assert decision(lease("us"), renewed_at=90.0) == Lost(reason="not renewed for 10.0 s")
    assert decision(lease("them"), renewed_at=99.0) == Lost(reason="them holds the lease")
    assert decision(lease(""), renewed_at=99.0) == Lost(reason="someone released the lease")
    assert decision(None, renewed_at=80.0) == Lost(reason="not renewed for 20.0 s")


def test_a_leader_makes_a_deleted_lease_anew() -> None:
    """A lease deleted under its leader is created again."""
    assert decision(None, renewed_at=99.0) == Acquire(reason="there is no lease")


def test_only_the_record_counts_as_a_change() -> None:
    """A label says nothing about the holder; a new spec or a new object does."""
    first = observe(lease(), None, now_monotonic=1.0)
    labelled = lease()
    labelled["metadata"] = {**labelled["metadata"], "resourceVersion": "8", "labels": {}}
    again = observe(labelled, first, now_monotonic=2.0)
    assert again == Observation(lease=labelled, seen_at_monotonic=1.0)
    assert observe(lease(renewTime="t2"), again, now_monotonic=3.0).seen_at_monotonic == 3.0
    other = {**lease(), "metadata": {"uid": "u2"}}
    assert observe(other, again, now_monotonic=4.0).seen_at_monotonic == 4.0


@given(
    st.floats(0, 1000, allow_nan=False),
    st.floats(0, 60, allow_nan=False),
    st.floats(0, 60, allow_nan=False),
)
def test_two_replicas_never_lead_at_once(sent: float, delay: float, later: float) -> None:
    """While the leader may act nobody else acquires, however their clocks differ."""
    offset = 12_345.0  # the other replica's monotonic clock began at another time
    found = lease("us")
    observed = seen(found, sent + delay + offset)
    now = sent + delay + later
    other = decide(
        found,
        identity="them",
        observed=observed,
        now_monotonic=now + offset,
        duration_seconds=DURATION,
        renew_deadline_seconds=DEADLINE,
    )
    if isinstance(other, Acquire):
        assert isinstance(decision(found, now=now, renewed_at=sent), Lost)


# --- rendering ----------------------------------------------------------------------------------


def leader(previous: dict[str, Any] | None) -> dict[str, Any]:
    return render_leader_lease(
        namespace="federate",
        name="leader",
        identity="us",
        duration_seconds=DURATION,
        now=NOW,
        previous=previous,
    )


def test_a_new_leader_lease() -> None:
    """The first lease has no transitions and is acquired and renewed now."""
    assert leader(None) == {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"namespace": "federate", "name": "leader"},
        "spec": {
            "holderIdentity": "us",
            "leaseDurationSeconds": 15,
            "acquireTime": INSTANT,
            "renewTime": INSTANT,
            "leaseTransitions": 0,
        },
    }


def test_taking_over_and_renewing() -> None:
    """A take-over counts a transition; a renewal keeps it; the rest of the object stays."""
    old = lease("them", strategy="OldestEmulationVersion", acquireTime="t0")
    taken = leader(old)
    assert taken["metadata"]["resourceVersion"] == "7"
    assert taken["metadata"]["labels"] == {"a": "1"}
    assert taken["spec"]["strategy"] == "OldestEmulationVersion"
    assert (taken["spec"]["leaseTransitions"], taken["spec"]["acquireTime"]) == (4, INSTANT)
    assert old["spec"]["holderIdentity"] == "them"
    mine = lease("us", acquireTime="t0")
    renewed = leader(mine)["spec"]
    assert (renewed["leaseTransitions"], renewed["acquireTime"]) == (3, "t0")
    assert renewed["renewTime"] == INSTANT
    assert leader(lease("them", leaseTransitions=None))["spec"]["leaseTransitions"] == 1


def test_a_released_lease_is_free_at_once() -> None:
    """Releasing leaves no holder, a short duration, and the precondition."""
    released = render_released_lease(lease("us"), now=NOW)
    assert holder_of(released) == ""
    assert "holderIdentity" not in released["spec"]
    assert released["spec"]["leaseDurationSeconds"] == 1
    assert released["spec"]["leaseTransitions"] == 3
    assert released["metadata"]["resourceVersion"] == "7"
    assert isinstance(decision(released), Acquire)


def node_lease(uid: str, previous: dict[str, Any] | None = None) -> dict[str, Any]:
    return render_node_lease(
        node_name="vn", node_uid=uid, duration_seconds=40, now=NOW, previous=previous
    )


def test_a_node_lease_belongs_to_its_node() -> None:
    """The lease is named after the node, held by it and owned by it."""
    owner = {"apiVersion": "v1", "kind": "Node", "name": "vn", "uid": "n1"}
    assert node_lease("n1") == {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"namespace": "kube-node-lease", "name": "vn", "ownerReferences": [owner]},
        "spec": {"holderIdentity": "vn", "leaseDurationSeconds": 40, "renewTime": INSTANT},
    }


def test_a_node_lease_follows_the_uid_of_its_node() -> None:
    """A node registered again owns its lease; foreign owners and the version stay."""
    old = node_lease("n1")
    foreign = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "c"}
    old["metadata"]["ownerReferences"].append(foreign)
    old["metadata"]["resourceVersion"] = "9"
    new = node_lease("n2", old)
    assert [r["uid"] for r in new["metadata"]["ownerReferences"]] == ["n2", "c"]
    assert new["metadata"]["resourceVersion"] == "9"
    assert old["metadata"]["ownerReferences"][0]["uid"] == "n1"


def test_micro_time_is_utc_with_six_digits() -> None:
    """Instants of any zone are written in UTC, always with microseconds."""
    east = timezone(timedelta(hours=2))
    instant = datetime(2025, 1, 2, 5, 4, 5, tzinfo=east)
    assert format_micro_instant(instant) == "2025-01-02T03:04:05.000000Z"
