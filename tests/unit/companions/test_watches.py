"""Which watches are held open, and what is asked for instead."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from federate.companions.keys import CompanionKey, Kind
from federate.companions.watches import MOST_WATCHES, Watch, WatchPlan, plan_watches
from federate.model.objects import ObjectKey

SECRET = Kind.SECRET


def keys(count: int, *, namespace: str = "ns", kind: Kind = SECRET) -> list[CompanionKey]:
    return [CompanionKey("there", kind, namespace, f"s-{n}") for n in range(count)]


def test_a_few_objects_are_watched_one_by_one() -> None:
    """By name: nothing else of the namespace is read."""
    plan = plan_watches(keys(4))
    assert plan.watches == {Watch(SECRET, "ns", f"s-{n}") for n in range(4)}
    assert plan.asked == frozenset()
    assert {w.field_selector for w in plan.watches} >= {"metadata.name=s-0"}


def test_many_objects_of_a_namespace_share_a_watch() -> None:
    """A thousand distinct ones cost one connection; of each kind, of each namespace."""
    plan = plan_watches([*keys(1000), *keys(5, kind=Kind.CONFIGMAP), *keys(1, namespace="b")])
    assert plan.watches == {
        Watch(SECRET, "ns"),
        Watch(Kind.CONFIGMAP, "ns"),
        Watch(SECRET, "b", "s-0"),
    }
    assert Watch(SECRET, "ns").field_selector == ""


def test_an_object_with_companions_in_two_places_is_watched_once() -> None:
    """It is the hub's object that is watched."""
    there, elsewhere = keys(1)[0], keys(1)[0]._replace(target_namespace="elsewhere")
    assert len(plan_watches([there, elsewhere]).watches) == 1


@pytest.mark.parametrize(("count", "together"), [(2, False), (3, True), (4, True), (5, True)])
def test_the_kind_of_watch_does_not_flap(count: int, together: bool) -> None:
    """What is watched together stays so until few are left."""
    plan = plan_watches(keys(count), present={Watch(SECRET, "ns")})
    assert (Watch(SECRET, "ns") in plan.watches) is together


def test_beyond_the_limit_objects_are_asked_for() -> None:
    """A thousand namespaces with one Secret each: the limit holds, and nothing is forgotten."""
    wanted = [key for n in range(1000) for key in keys(1, namespace=f"ns-{n:04}")]
    plan = plan_watches(wanted)
    assert len(plan.watches) == MOST_WATCHES
    assert len(plan.asked) == 1000 - MOST_WATCHES


def test_what_is_watched_stays_watched_and_the_largest_groups_come_next() -> None:
    """No churn; and a connection goes where it serves most."""
    wanted = [*keys(1, namespace="a"), *keys(1, namespace="z"), *keys(9, namespace="m")]
    present = {Watch(SECRET, "z", "s-0")}
    plan = plan_watches(wanted, present=present, most=2)
    assert plan.watches == {*present, Watch(SECRET, "m")}
    assert plan.asked == {(SECRET, ObjectKey("a", "s-0"))}


def test_of_a_group_that_does_not_fit_the_watched_ones_stay() -> None:
    """Object by object."""
    plan = plan_watches(keys(3), present={Watch(SECRET, "ns", "s-2")}, most=1)
    assert plan.watches == {Watch(SECRET, "ns", "s-2")}


def test_a_name_that_cannot_exist_is_neither_watched_nor_asked_for() -> None:
    """It would be a part of a field selector."""
    odd = CompanionKey("there", SECRET, "ns", "a,metadata.namespace=kube-system")
    assert plan_watches([odd]) == WatchPlan(watches=frozenset(), asked=frozenset())


WANTED = st.lists(
    st.builds(
        CompanionKey,
        st.just("there"),
        st.sampled_from(Kind),
        st.sampled_from(["a", "b", "c"]),
        st.sampled_from([f"s-{n}" for n in range(7)]),
    ),
    max_size=30,
)
PRESENT = st.frozensets(
    st.builds(
        Watch,
        st.sampled_from(Kind),
        st.sampled_from(["a", "b", "gone"]),
        st.sampled_from(["", "s-0", "s-1", "gone"]),
    ),
    max_size=6,
)


@settings(max_examples=200, deadline=None)
@given(wanted=WANTED, present=PRESENT, most=st.integers(0, 12))
def test_each_object_is_watched_or_asked_for(
    wanted: list[CompanionKey], present: Collection[Watch], most: int
) -> None:
    """Within the limit, nothing twice, nothing that nobody wants; and the plan is stable."""
    plan = plan_watches(wanted, present=present, most=most)
    assert len(plan.watches) <= most
    objects = {(key.kind, key.hub_key) for key in wanted}
    covered = {
        (kind, key)
        for kind, key in objects
        if plan.watches & {Watch(kind, key.namespace), Watch(kind, *key)}
    }
    assert plan.asked == objects - covered
    for watch in plan.watches:
        served = {
            key for kind, key in objects if (kind, key.namespace) == (watch.kind, watch.namespace)
        }
        assert served if not watch.name else ObjectKey(watch.namespace, watch.name) in served
    assert plan_watches(wanted, present=plan.watches, most=most) == plan
