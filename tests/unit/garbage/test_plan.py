"""Which mirrors nobody wants: only ours, only of uids the hub does not have (C3, C51)."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from federate.garbage.plan import outline_of, plan_sweep
from federate.model.marks import Scope, origin_of
from federate.model.objects import JsonDict, ObjectKey
from tests.support.builders import pod
from tests.support.views import OTHER_SCOPE, SCOPE, hub_pod, mirror

OTHER_HUB = Scope(hub_id="99999999-0000-0000-0000-000000000000", node_name="edge")


def test_c51_a_mirror_without_its_hub_pod_is_an_orphan() -> None:
    """What is needed to confirm and delete it is said; wanted mirrors are not."""
    wanted, orphan = mirror("web").running(), mirror("old").running()
    found = plan_sweep(
        scope=SCOPE, hub_pods=[hub_pod("web").build()], mirrors=[wanted.build(), orphan.build()]
    )
    assert (found.mirrors, found.hub_pods, found.unknown) == (2, 1, ())
    [one] = found.orphans
    assert (one.mirror.name, one.uid) == ("old", "mirror-old")
    assert (one.hub_pod, one.hub_pod_uid) == (ObjectKey("default", "old"), "uid-old")
    assert (one.node_name, one.phase, one.reason) == ("edge", "Running", "its hub pod is gone")


def test_c51_a_mirror_of_an_earlier_uid_is_an_orphan() -> None:
    """The name lives on, the pod does not."""
    found = plan_sweep(
        scope=SCOPE, hub_pods=[hub_pod().build()], mirrors=[mirror(of_uid="uid-old").build()]
    )
    assert [o.hub_pod_uid for o in found.orphans] == ["uid-old"]


def test_an_orphan_that_is_ending_says_so() -> None:
    """What is on its way out is told apart."""
    found = plan_sweep(scope=SCOPE, hub_pods=[], mirrors=[mirror().terminating().build()])
    assert [o.reason for o in found.orphans] == ["already ending"]


def test_c51_a_mirror_of_an_unknown_virtual_node_is_only_reported() -> None:
    """Another node of this hub: a person decides."""
    found = plan_sweep(scope=SCOPE, hub_pods=[], mirrors=[mirror(scope=OTHER_SCOPE).build()])
    assert found.orphans == ()
    assert [(u.node_name, u.reason) for u in found.unknown] == [
        ("attic", "another virtual node of this hub")
    ]


def test_c3_what_is_not_this_hubs_is_not_even_counted() -> None:
    """Other hubs' mirrors, half-marked pods and strangers do not exist for a sweep."""
    half = mirror().build()
    del half["metadata"]["annotations"]["federate.dev/hub-pod-name"]
    strangers = [mirror(scope=OTHER_HUB).build(), half, pod("db").build()]
    found = plan_sweep(scope=SCOPE, hub_pods=[], mirrors=strangers)
    assert (found.orphans, found.unknown, found.mirrors) == ((), (), 0)


@st.composite
def target_pods(draw: st.DrawFn) -> JsonDict:
    scope = draw(st.sampled_from([SCOPE, OTHER_SCOPE, OTHER_HUB]))
    name = draw(st.sampled_from("abc"))
    built = mirror(name, scope=scope).build()
    if draw(st.booleans()):
        lost = draw(st.sampled_from(["labels", "annotations"]))
        mark = draw(st.sampled_from(sorted(built["metadata"][lost])))
        del built["metadata"][lost][mark]
    return built


@settings(max_examples=40, deadline=None)
@given(st.lists(target_pods(), max_size=5), st.sets(st.sampled_from("abc")))
def test_law_orphans_are_ours_and_unwanted(mirrors: list[JsonDict], wanted: set[str]) -> None:
    """Nothing without all of our marks, and nothing whose hub pod is listed, is an orphan."""
    found = plan_sweep(
        scope=SCOPE, hub_pods=[{"metadata": {"uid": f"uid-{n}"}} for n in wanted], mirrors=mirrors
    )
    ours = [m for m in mirrors if (o := origin_of(m)) is not None and o.scope == SCOPE]
    unwanted = [m for m in ours if m["metadata"]["name"] not in wanted]
    assert [o.uid for o in found.orphans] == [m["metadata"]["uid"] for m in unwanted]


@settings(max_examples=40, deadline=None)
@given(st.lists(target_pods(), max_size=5), st.sets(st.sampled_from("abc")))
def test_law_an_outline_tells_as_much_as_the_mirror(
    mirrors: list[JsonDict], wanted: set[str]
) -> None:
    """What is left out of a mirror is not looked at."""
    hub_pods = [{"metadata": {"uid": f"uid-{n}"}} for n in wanted]
    outlines = [outline_of(each) for each in mirrors]
    found = plan_sweep(scope=SCOPE, hub_pods=hub_pods, mirrors=outlines)
    assert found == plan_sweep(scope=SCOPE, hub_pods=hub_pods, mirrors=mirrors)
