"""The table of lists; a real server's OpenAPI is its witness in tests/integration."""

from __future__ import annotations

import pytest

from federate.patch.listkeys import ATOMIC, NODE, POD, SET, ListKind, rules_for


@pytest.mark.parametrize("containers", ["containers", "initContainers", "ephemeralContainers"])
def test_all_kinds_of_containers_have_the_same_lists(containers: str) -> None:
    """Containers are keyed by name, and so are their variables."""
    assert POD.rule(("spec", containers)).keys == ("name",)
    assert POD.rule(("spec", containers, "env")).kind is ListKind.KEYED
    assert POD.rule(("spec", containers, "args")) is ATOMIC


def test_metadata_is_known_for_every_kind() -> None:
    """Finalizers are a set and owner references are keyed, also for kinds not named."""
    for kind in ("Pod", "Node", "Namespace", "Lease"):
        assert rules_for(kind).rule(("metadata", "finalizers")) is SET
        assert rules_for(kind).rule(("metadata", "ownerReferences")).keys == ("uid",)


def test_identity_fills_in_defaults() -> None:
    """A missing key is its default, or None."""
    ports = POD.rule(("spec", "containers", "ports"))
    assert ports.identity({"containerPort": 53}) == (53, "TCP")
    assert NODE.rule(("spec", "taints")).identity({"key": "a"}) == ("a", None)
