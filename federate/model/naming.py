"""Hub names become target names, for every namespace strategy. Deterministic and collision-free.

`prefixed` gives each hub its own target namespaces; `same` keeps the name (opt-in, one trusted
hub). A pod keeps its own name in both: one hub pod key has one mirror key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from federate.model.marks import Scope

NAME_LIMIT = 63
"""Namespaces are DNS labels (RFC 1123)."""

SYSTEM_NAMESPACES = frozenset({"kube-system", "kube-public", "kube-node-lease"})


class NamespaceStrategy(StrEnum):
    """How a hub namespace finds its target namespace."""

    PREFIXED = "prefixed"
    SAME = "same"


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceRules:
    """How hub namespaces find their target namespaces."""

    strategy: NamespaceStrategy = NamespaceStrategy.PREFIXED
    mapping: Mapping[str, str] = field(default_factory=dict)
    """Strategy `map`: hub namespace -> target namespace; others get no mirror."""
    single: str = ""
    """Strategy `single`: the one target namespace, where pods get mangled names."""


def short_hub_id(hub_id: str) -> str:
    """Eight hex digits that tell hubs apart in names; the full id stands in the labels."""
    return hashlib.sha256(hub_id.encode()).hexdigest()[:8]


def target_namespace(strategy: NamespaceStrategy, hub_id: str, namespace: str) -> str:
    """Name the target namespace of a hub namespace.

    A name too long is cut and told apart by a hash, behind a prefix that no uncut name has: else
    a user could pick a hub namespace whose target is somebody else's.
    """
    match strategy:
        case NamespaceStrategy.SAME:
            return namespace
        case NamespaceStrategy.PREFIXED:
            name = f"hub-{short_hub_id(hub_id)}-{namespace}"
            return name if len(name) <= NAME_LIMIT else _cut(hub_id, namespace)


def _cut(hub_id: str, namespace: str) -> str:
    digest = hashlib.sha256(namespace.encode()).hexdigest()[:16]
    prefix = f"hubcut-{short_hub_id(hub_id)}-"
    kept = namespace[: NAME_LIMIT - len(prefix) - len(digest) - 1].rstrip("-")
    return f"{prefix}{kept}-{digest}"


def anchor_name(scope: Scope) -> str:
    """Name the anchor ConfigMap of a virtual node; the same in each target namespace."""
    return f"federate-anchor-{scope.virtual_node_hash}"


def leader_lease_name(node_name: str) -> str:
    """Name the leader lease of a virtual node."""
    return f"federate-{node_name}"
