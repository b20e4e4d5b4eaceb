"""Where Services can follow."""

from __future__ import annotations

import pytest

from federate.model.naming import NamespaceRules, NamespaceStrategy
from federate.services.rules import FollowMode, follow_problem

TWO_IN_ONE = NamespaceRules(strategy=NamespaceStrategy.MAP, mapping={"a": "x", "b": "x", "c": "y"})
ONE_EACH = NamespaceRules(strategy=NamespaceStrategy.MAP, mapping={"a": "x", "c": "y"})
SINGLE = NamespaceRules(strategy=NamespaceStrategy.SINGLE, single="hub")


@pytest.mark.parametrize("mode", [FollowMode.LABELLED, FollowMode.ALL])
def test_services_follow_only_where_a_target_namespace_stands_for_one(mode: FollowMode) -> None:
    assert "single" in follow_problem(mode, SINGLE)
    assert "more than one hub namespace is mapped to x" in follow_problem(mode, TWO_IN_ONE)
    assert follow_problem(mode, ONE_EACH) == follow_problem(mode, NamespaceRules()) == ""


def test_who_follows_nothing_has_no_problem() -> None:
    assert follow_problem(FollowMode.IGNORE, SINGLE) == ""
