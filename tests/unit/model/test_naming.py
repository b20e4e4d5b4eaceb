"""Names in the target: valid, deterministic, distinct, and the same for ever."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from federate.model.naming import (
    NAME_LIMIT,
    NamespaceRules,
    NamespaceStrategy,
    allows_system_namespaces,
    anchor_name,
    confined_to,
    leader_lease_name,
    mangled_name,
    may_meet_hub,
    mirror_key,
    prefixed_namespace,
    short_hub_id,
    suffixed_namespace,
    watched_namespaces,
)
from federate.model.objects import ObjectKey
from tests.support.views import OTHER_SCOPE, SCOPE

LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")

PREFIXED = NamespaceRules()
SUFFIXED = NamespaceRules(strategy=NamespaceStrategy.SUFFIXED)
SAME = NamespaceRules(strategy=NamespaceStrategy.SAME)
MAP = NamespaceRules(strategy=NamespaceStrategy.MAP, mapping={"shop": "team-a", "db": "team-b"})
SINGLE = NamespaceRules(strategy=NamespaceStrategy.SINGLE, single="team-a")
ALL_RULES = (PREFIXED, SUFFIXED, SAME, MAP, SINGLE)

HUBS = ("hub-1", "hub-2")

LAW = settings(max_examples=60, deadline=None)


def namespaces() -> st.SearchStrategy[str]:
    """Draw namespaces that look like each other, like other hubs', and like our own making."""
    plain = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True)
    near = st.sampled_from(("shop", "db", "a", "a-b", "b", "a" * 63, "a" * 62 + "b", "kube-system"))
    made = st.builds(
        lambda make, hub, base: make(hub, base)[:NAME_LIMIT].strip("-"),
        st.sampled_from((prefixed_namespace, suffixed_namespace)),
        st.sampled_from(HUBS),
        near,
    )
    return plain | near | made


def pod_names() -> st.SearchStrategy[str]:
    """Draw pod names: with dots, long ones, and ones that are crafted after mangled names."""
    label = r"[a-z0-9]([-a-z0-9]{0,40}[a-z0-9])?"
    plain = st.from_regex(rf"{label}(\.{label})?", fullmatch=True)
    near = st.sampled_from(("web", "web-0", "web.0", "a-b", "a", "b", "x" * 253, "x" * 252 + "y"))
    made = st.builds(
        mangled_name, st.sampled_from(HUBS), st.builds(ObjectKey, st.just("shop"), near)
    )
    return plain | near | made


keys = st.builds(ObjectKey, namespaces(), pod_names())


# -- each strategy ---------------------------------------------------------------------------------


def test_c22_prefixed_names_the_hub() -> None:
    """A short hub id tells hubs apart, the namespace is readable."""
    name = prefixed_namespace("hub-1", "default")
    assert name == f"hub-{short_hub_id('hub-1')}-default"
    assert len(short_hub_id("hub-1")) == 8
    assert name != prefixed_namespace("hub-2", "default")


def test_c22_suffixed_names_the_hub_behind() -> None:
    """The hub's namespace stands in front."""
    name = suffixed_namespace("hub-1", "default")
    assert name == f"default-hub-{short_hub_id('hub-1')}"
    assert mirror_key(SUFFIXED, "hub-1", ObjectKey("default", "web")) == ObjectKey(name, "web")


def test_c22_same_keeps_both_names() -> None:
    """For one trusted hub."""
    key = ObjectKey("kube-system", "web")
    assert mirror_key(SAME, "hub-1", key) == key


def test_c22_map_knows_its_entries_alone() -> None:
    """A pod of a namespace without an entry gets no mirror."""
    assert mirror_key(MAP, "hub-1", ObjectKey("shop", "web")) == ObjectKey("team-a", "web")
    assert mirror_key(MAP, "hub-1", ObjectKey("team-a", "web")) is None


def test_c22_single_is_read_in_front_and_unique_behind() -> None:
    """Pod, then namespace, then what tells it from all others."""
    found = mirror_key(SINGLE, "hub-1", ObjectKey("shop", "web-7c9d8f6b5-x2x4z"))
    assert found is not None
    assert found.namespace == "team-a"
    assert re.fullmatch(r"web-7c9d8f6b5-x2x4z-shop-[a-z2-7]{16}", found.name)


def test_c22_single_cuts_what_is_too_long_at_the_end() -> None:
    """As much of the pod's name as fits stays."""
    name = mangled_name("hub-1", ObjectKey("shop", "x" * 253))
    assert re.fullmatch(r"x{46}-[a-z2-7]{16}", name)


@pytest.mark.parametrize(
    ("rules", "short", "long"),
    [
        (
            PREFIXED,
            "hub-695387d2-default/web-0",
            f"hubcut-695387d2-{'n' * 30}-fb886b452111b2ed/a.b",
        ),
        (
            SUFFIXED,
            "default-hub-695387d2/web-0",
            f"{'n' * 30}-fb886b452111b2ed-hubcut-695387d2/a.b",
        ),
        (
            SINGLE,
            "team-a/web-0-default-tbsvlcsdmmzwep3m",
            f"team-a/a-b-{'n' * 42}-uicittsvev4b3flu",
        ),
    ],
)
def test_c22_names_never_change(rules: NamespaceRules, short: str, long: str) -> None:
    """An upgrade must not look for mirrors elsewhere than where they stand."""
    assert str(mirror_key(rules, "hub-1", ObjectKey("default", "web-0"))) == short
    assert str(mirror_key(rules, "hub-1", ObjectKey("n" * 60, "a.b"))) == long


# -- what holds for all of them --------------------------------------------------------------------


@LAW
@given(st.sampled_from(ALL_RULES), st.sampled_from(HUBS), keys)
@example(SINGLE, "hub-1", ObjectKey("a", "x" * 45 + "-y"))
@example(SUFFIXED, "hub-1", ObjectKey("a" * 29 + "-" + "b" * 30, "x"))
def test_c22_every_name_is_valid(rules: NamespaceRules, hub_id: str, key: ObjectKey) -> None:
    """A namespace is a DNS label, a pod's name a subdomain; a mangled one is a label too."""
    found = mirror_key(rules, hub_id, key)
    if found is None:
        assert key.namespace not in MAP.mapping
        return
    assert len(found.namespace) <= NAME_LIMIT
    assert LABEL.fullmatch(found.namespace)
    assert len(found.name) <= max(NAME_LIMIT, len(key.name))
    assert SUBDOMAIN.fullmatch(found.name)
    if rules is SINGLE:
        assert len(found.name) <= NAME_LIMIT
        assert LABEL.fullmatch(found.name)
        assert found.name.startswith(key.name.replace(".", "-")[:40].rstrip("-"))


@LAW
@given(st.sampled_from(ALL_RULES), st.sets(keys, min_size=2, max_size=8))
@example(SINGLE, {ObjectKey("b", "a"), ObjectKey("a-b", "a"), ObjectKey("b", "a-a")})
@example(SINGLE, {ObjectKey("b", "web.0"), ObjectKey("b", "web-0")})
@example(PREFIXED, {ObjectKey("a" * 63, "a"), ObjectKey("a" * 62 + "b", "a")})
def test_c22_no_two_pods_of_a_hub_share_a_name(
    rules: NamespaceRules, hub_keys: set[ObjectKey]
) -> None:
    """However alike they are, and whatever somebody crafts."""
    found = [mirror_key(rules, "hub-1", key) for key in sorted(hub_keys)]
    mirrored = [key for key in found if key is not None]
    assert len(set(mirrored)) == len(mirrored)


@LAW
@given(st.sampled_from((PREFIXED, SUFFIXED, SINGLE)), keys, keys)
def test_c3_no_two_hubs_share_a_name(
    rules: NamespaceRules, one: ObjectKey, other: ObjectKey
) -> None:
    """With `same` and `map` they may: then the marks decide."""
    assert mirror_key(rules, "hub-1", one) != mirror_key(rules, "hub-2", other)


@LAW
@given(keys, keys)
def test_c22_nobody_is_called_like_a_mangled_pod(one: ObjectKey, other: ObjectKey) -> None:
    """Neither is a mangled name mangled again the same, nor does a pod's own name do as one."""
    name = mangled_name("hub-1", one)
    assert mangled_name("hub-1", ObjectKey(other.namespace, name)) != name
    assert mangled_name("hub-1", ObjectKey(one.namespace, name)) != name


@pytest.mark.parametrize("make", [prefixed_namespace, suffixed_namespace])
def test_a_name_that_fits_stays(make: Callable[[str, str], str]) -> None:
    """Only what is too long is cut."""
    room = NAME_LIMIT - len(make("hub-1", ""))
    assert "a" * room in make("hub-1", "a" * room)
    assert len(make("hub-1", "a" * room)) == NAME_LIMIT
    assert "cut-" in make("hub-1", "a" * (room + 1))
    assert len(make("hub-1", "a" * (room + 1))) == NAME_LIMIT
    for kept in range(1, 60):
        assert "--" not in make("hub-1", "a" * kept + "-" + "b" * (62 - kept))


@pytest.mark.parametrize("make", [prefixed_namespace, suffixed_namespace])
def test_c22_no_namespace_can_take_the_name_of_a_longer_one(
    make: Callable[[str, str], str],
) -> None:
    """A hub user who picks a name on purpose does not get into another's target namespace."""
    cut = make("hub-1", "a" * 63)
    hub = short_hub_id("hub-1")
    for mark in (f"hub-{hub}-", f"hubcut-{hub}-", f"-hub-{hub}", f"-hubcut-{hub}"):
        crafted = cut.removeprefix(mark).removesuffix(mark)
        assert make("hub-1", crafted) != cut


# -- which namespaces are used ---------------------------------------------------------------------


def test_c22_map_and_single_are_confined_to_what_they_name() -> None:
    """All others may use any namespace."""
    assert [confined_to(rules) for rules in ALL_RULES] == [
        None,
        None,
        None,
        ("team-a", "team-b"),
        ("team-a",),
    ]


@LAW
@given(st.sampled_from((MAP, SINGLE)), keys)
def test_c22_no_mirror_stands_outside_of_them(rules: NamespaceRules, key: ObjectKey) -> None:
    """So that rights in these namespaces are enough."""
    found, confined = mirror_key(rules, "hub-1", key), confined_to(rules)
    assert confined is not None
    assert found is None or found.namespace in confined


def test_c51_namespaces_of_before_are_watched_too() -> None:
    """Mirrors made by other rules stay where they are."""
    assert watched_namespaces(SINGLE, ["hub-x-shop"]) == ("hub-x-shop", "team-a")
    assert watched_namespaces(PREFIXED, ["team-a"]) == ("",)


def test_c22_a_system_namespace_must_be_called_by_its_name() -> None:
    """`same` never asks for one: it is the hub's users who would."""
    named = NamespaceRules(strategy=NamespaceStrategy.SINGLE, single="kube-system")
    assert allows_system_namespaces(named)
    assert not allows_system_namespaces(SAME)


@pytest.mark.parametrize(
    ("mapping", "meets"),
    [
        ({"a": "b"}, False),
        ({"a": "a"}, True),
        ({"a": "b", "b": "c"}, True),
        ({"a": "b", "b": "a"}, True),
        ({"a": "c", "b": "d"}, False),
    ],
)
def test_c3_a_map_may_lead_to_hub_pods(mapping: dict[str, str], meets: bool) -> None:
    """Where the target is the hub, a namespace must not be filled from both sides."""
    rules = NamespaceRules(strategy=NamespaceStrategy.MAP, mapping=mapping)
    assert may_meet_hub(rules) is meets


def test_c3_same_meets_hub_pods_and_names_of_our_own_do_not() -> None:
    """One refuses to start in the hub itself."""
    assert may_meet_hub(SAME)
    assert not any(map(may_meet_hub, (PREFIXED, SUFFIXED, SINGLE)))


def test_anchors_are_told_apart_by_virtual_node() -> None:
    """Two virtual nodes of one hub may use one namespace."""
    assert anchor_name(SCOPE) != anchor_name(OTHER_SCOPE)
    assert LABEL.fullmatch(anchor_name(SCOPE))
    assert leader_lease_name("edge") == "federate-edge"
