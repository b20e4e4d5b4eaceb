"""Hub names become target names, for every namespace strategy. Deterministic and collision-free.

`mirror_key` is the one way from a hub pod to where its mirror stands. With `prefixed`, `suffixed`,
`same` and `map` a pod keeps its own name in a namespace of its own; with `single` all namespaces of
a hub meet in one, so the pod's name is mangled. One hub pod key has at most one mirror key, and no
two share one. What is on record stays where it is, so none of these rules may ever change.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache

from federate.model.marks import Scope
from federate.model.objects import ObjectKey

NAME_LIMIT = 63
"""Namespaces are DNS labels (RFC 1123); so is what many make of a pod's name."""

SYSTEM_NAMESPACES = frozenset({"kube-system", "kube-public", "kube-node-lease"})


class NamespaceStrategy(StrEnum):
    """How a hub namespace finds its target namespace."""

    PREFIXED = "prefixed"
    SUFFIXED = "suffixed"
    SAME = "same"
    MAP = "map"
    SINGLE = "single"


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceRules:
    """How hub namespaces find their target namespaces."""

    strategy: NamespaceStrategy = NamespaceStrategy.PREFIXED
    mapping: Mapping[str, str] = field(default_factory=dict)
    """Strategy `map`: hub namespace -> target namespace; others get no mirror."""
    single: str = ""
    """Strategy `single`: the one target namespace, where pods get mangled names."""


@lru_cache(maxsize=64)
def short_hub_id(hub_id: str) -> str:
    """Eight hex digits that tell hubs apart in names; the full id stands in the labels."""
    return hashlib.sha256(hub_id.encode()).hexdigest()[:8]


def mirror_key(rules: NamespaceRules, hub_id: str, hub_key: ObjectKey) -> ObjectKey | None:
    """Name the mirror of a hub pod; None where `map` has no place for its namespace."""
    match rules.strategy:
        case NamespaceStrategy.PREFIXED:
            return ObjectKey(prefixed_namespace(hub_id, hub_key.namespace), hub_key.name)
        case NamespaceStrategy.SUFFIXED:
            return ObjectKey(suffixed_namespace(hub_id, hub_key.namespace), hub_key.name)
        case NamespaceStrategy.SAME:
            return hub_key
        case NamespaceStrategy.MAP:
            namespace = rules.mapping.get(hub_key.namespace)
            return ObjectKey(namespace, hub_key.name) if namespace else None
        case NamespaceStrategy.SINGLE:
            return ObjectKey(rules.single, mangled_name(hub_id, hub_key))


def prefixed_namespace(hub_id: str, namespace: str) -> str:
    """Name the target namespace that belongs to a hub's namespace alone.

    A name too long is cut and told apart by a hash, behind a prefix that no uncut name has: else
    a user could pick a hub namespace whose target is somebody else's.
    """
    hub = short_hub_id(hub_id)
    name = f"hub-{hub}-{namespace}"
    if len(name) <= NAME_LIMIT:
        return name
    return _cut(f"hubcut-{hub}-", namespace, f"-{_digest(namespace)}")


def suffixed_namespace(hub_id: str, namespace: str) -> str:
    """Name the same the other way round, so that a list of namespaces sorts by their hub names."""
    hub = short_hub_id(hub_id)
    name = f"{namespace}-hub-{hub}"
    if len(name) <= NAME_LIMIT:
        return name
    return _cut("", namespace, f"-{_digest(namespace)}-hubcut-{hub}")


def _digest(namespace: str) -> str:
    return hashlib.sha256(namespace.encode()).hexdigest()[:16]


def _cut(prefix: str, name: str, suffix: str) -> str:
    kept = name[: NAME_LIMIT - len(prefix) - len(suffix)].rstrip("-")
    return f"{prefix}{kept}{suffix}"


def mangled_name(hub_id: str, hub_key: ObjectKey) -> str:
    """Name a mirror among those of all namespaces and hubs: to be read in front, unique behind.

    Eighty bits of hash over hub, namespace and name: nobody finds a pod name that meets another's.
    The result is a DNS label, whatever the pod's name is; dots become dashes.
    """
    identity = "\n".join((hub_id, hub_key.namespace, hub_key.name))
    digest = hashlib.sha256(identity.encode()).digest()[:10]
    unique = base64.b32encode(digest).decode().lower()
    readable = f"{hub_key.name}-{hub_key.namespace}".replace(".", "-")
    return _cut("", readable, f"-{unique}")


def keeps_names(rules: NamespaceRules) -> bool:
    """Tell whether a mirror has the name of its hub pod."""
    return rules.strategy is not NamespaceStrategy.SINGLE


def confined_to(rules: NamespaceRules) -> tuple[str, ...] | None:
    """Name the only target namespaces that these rules know; None where they know no bound.

    Then nothing is asked of the target outside of them, so that rights there are enough. They are
    used as they are found: federate neither makes nor removes them.
    """
    match rules.strategy:
        case NamespaceStrategy.MAP:
            return tuple(sorted(set(rules.mapping.values())))
        case NamespaceStrategy.SINGLE:
            return (rules.single,)
        case _:
            return None


def watched_namespaces(rules: NamespaceRules, on_record: Iterable[str]) -> tuple[str, ...]:
    """Name the target namespaces to be listed and watched; "" stands for all at once.

    `on_record` are those that were used before: mirrors made by other rules still stand there.
    """
    confined = confined_to(rules)
    return ("",) if confined is None else tuple(sorted({*confined, *on_record}))


def allows_system_namespaces(rules: NamespaceRules) -> bool:
    """Tell whether a system namespace of the target is used: only where it was called by name."""
    return confined_to(rules) is not None


def may_meet_hub(rules: NamespaceRules) -> bool:
    """Tell whether mirrors could have the names of hub pods, were the target the hub itself (C3).

    Mangled names cannot; of a map it is enough that pods of a namespace it fills are mirrored too.
    """
    match rules.strategy:
        case NamespaceStrategy.SAME:
            return True
        case NamespaceStrategy.MAP:
            return not rules.mapping.keys().isdisjoint(rules.mapping.values())
        case _:
            return False


def anchor_name(scope: Scope) -> str:
    """Name the anchor ConfigMap of a virtual node; the same in each target namespace."""
    return f"federate-anchor-{scope.virtual_node_hash}"


def leader_lease_name(node_name: str) -> str:
    """Name the leader lease of a virtual node."""
    return f"federate-{node_name}"
