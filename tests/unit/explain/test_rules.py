"""What is configured for a virtual node is what a pod is judged by."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from federate.claims.rules import ClaimMode, ClaimRules
from federate.companions.keys import Kind
from federate.companions.rules import CompanionRules, IdentityMode
from federate.explain.rules import rules_of
from federate.model.naming import NamespaceRules, NamespaceStrategy
from federate.policy.rules import Outcome, PolicyRules
from federate.runtime.settings import TargetSettings
from federate.services.rules import AddressMode, NetworkRules

OTHERS: dict[str, Any] = {
    "policy": PolicyRules(outcomes={"privileged": Outcome.ALLOW}),
    "claims": ClaimRules(mode=ClaimMode.TARGET),
    "network": NetworkRules(addresses=AddressMode.HIDE),
}
"""Of each of these settings one that is not the default."""


def target(**changes: Any) -> TargetSettings:
    return TargetSettings(name="edge", kubeconfig=Path("edge.yaml"), **changes)


def test_companions_and_namespaces_are_as_configured() -> None:
    single = NamespaceRules(strategy=NamespaceStrategy.SINGLE, single="all")
    shared = frozenset({(Kind.SECRET, "pull")})
    rules = rules_of(
        target(
            namespaces=single,
            companions=CompanionRules(shared=shared, identity=IdentityMode.TARGET),
        ),
        "hub-uid",
    )
    assert (rules.scope.hub_id, rules.scope.node_name) == ("hub-uid", "edge")
    assert rules.namespaces == single
    assert rules.render.shared == shared
    assert not rules.render.keeps_names
    assert rules.render.travelling_tokens
    assert rules_of(target(companions=CompanionRules(are_made=False)), "h").render.scope is None


@pytest.mark.parametrize(
    "name", sorted(OTHERS.keys() & {field.name for field in fields(TargetSettings)})
)
def test_every_setting_that_refuses_pods_counts(name: str) -> None:
    """A setting that a run knows is not left out here."""
    rules = rules_of(target(**{name: OTHERS[name]}), "hub-uid")
    found = getattr(rules, name)
    expected = OTHERS[name]
    if name == "policy":
        assert found.outcomes == expected.outcomes
    else:
        assert found == expected
