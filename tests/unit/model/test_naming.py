"""Names in the target: valid, deterministic, distinct."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from federate.model.naming import (
    NAME_LIMIT,
    NamespaceStrategy,
    anchor_name,
    leader_lease_name,
    short_hub_id,
    target_namespace,
)
from tests.support.views import OTHER_SCOPE, SCOPE

LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
NAMESPACES = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True)
PREFIXED, SAME = NamespaceStrategy.PREFIXED, NamespaceStrategy.SAME


def test_c22_prefixed_names_the_hub() -> None:
    """A short hub id tells hubs apart, the namespace is readable."""
    name = target_namespace(PREFIXED, "hub-1", "default")
    assert name == f"hub-{short_hub_id('hub-1')}-default"
    assert len(short_hub_id("hub-1")) == 8
    assert name != target_namespace(PREFIXED, "hub-2", "default")


def test_c22_same_keeps_the_name() -> None:
    """For one trusted hub."""
    assert target_namespace(SAME, "hub-1", "kube-system") == "kube-system"


def test_a_name_that_fits_stays() -> None:
    """Only what is too long is cut."""
    room = NAME_LIMIT - len(target_namespace(PREFIXED, "hub-1", ""))
    assert target_namespace(PREFIXED, "hub-1", "a" * room).endswith("-" + "a" * room)
    assert len(target_namespace(PREFIXED, "hub-1", "a" * (room + 1))) == NAME_LIMIT
    assert "--" not in target_namespace(PREFIXED, "hub-1", "a" * 27 + "-" + "b" * 35)


@settings(max_examples=60, deadline=None)
@given(st.lists(NAMESPACES, min_size=2, max_size=6, unique=True))
def test_c22_target_namespaces_are_valid_and_distinct(namespaces: list[str]) -> None:
    """Two hub namespaces never share one, however long their names are."""
    names = [target_namespace(PREFIXED, "hub-1", namespace) for namespace in namespaces]
    assert len(set(names)) == len(names)
    for name in names:
        assert len(name) <= NAME_LIMIT
        assert LABEL.fullmatch(name)


def test_c22_no_namespace_can_take_the_name_of_a_longer_one() -> None:
    """A hub user who picks a name on purpose does not get into another's target namespace."""
    long = "a" * 63
    cut = target_namespace(PREFIXED, "hub-1", long)
    for prefix in (f"hub-{short_hub_id('hub-1')}-", f"hubcut-{short_hub_id('hub-1')}-"):
        crafted = cut.removeprefix(prefix)
        assert target_namespace(PREFIXED, "hub-1", crafted) != cut


def test_anchors_are_told_apart_by_virtual_node() -> None:
    """Two virtual nodes of one hub may use one namespace."""
    assert anchor_name(SCOPE) != anchor_name(OTHER_SCOPE)
    assert LABEL.fullmatch(anchor_name(SCOPE))
    assert leader_lease_name("edge") == "federate-edge"
