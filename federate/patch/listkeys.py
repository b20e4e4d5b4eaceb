"""Which lists of a Pod, Node or Namespace are keyed, sets, or atomic.

The three-way merge asks here how to merge a list, and the strategic patch how the server will. A
list that is not named is atomic for both, as it is for the server. The table says what the Go
struct tags say (`patchStrategy`, `patchMergeKey`); a test holds it against a server's OpenAPI.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from federate.model.objects import JsonObject


class ListKind(Enum):
    """How *we* merge a list."""

    ATOMIC = "replaced whole; order counts"
    SET = "primitive values, each present or not"
    KEYED = "elements found by one key, each merged; the server does the same"
    MERGED = "elements found by all keys and merged by us; the server gets the whole list"


@dataclass(frozen=True, slots=True)
class ListRule:
    """One list. `server_key` is the key the *server* merges by, "" where it replaces the list.

    The two differ where the server's key does not tell elements apart (two ports of one number,
    two addresses of one type), where the server has no key at all (taints), or where order counts
    (the first pod IP is *the* pod IP, and merging by key does not keep order).
    """

    kind: ListKind
    keys: tuple[str, ...] = ()
    server_key: str = ""
    defaults: Mapping[str, str] = field(default_factory=dict)

    def identity(self, element: JsonObject) -> tuple[Any, ...]:
        """Return what tells `element` apart in its list; None stands for an absent key."""
        return tuple(element.get(key, self.defaults.get(key)) for key in self.keys)


ATOMIC = ListRule(ListKind.ATOMIC)
SET = ListRule(ListKind.SET)

OPEN_MAPS = frozenset(
    {
        "allocatable",
        "allocatedResources",
        "annotations",
        "capacity",
        "labels",
        "limits",
        "matchLabels",
        "nodeSelector",
        "options",
        "overhead",
        "requests",
        "volumeAttributes",
    }
)
"""Maps with free keys. An empty one equals an absent one, because the server drops it; and it is
never removed whole, since others may be adding keys. Elsewhere an empty map says something
(`emptyDir: {}`)."""


@dataclass(frozen=True, slots=True)
class ListRules:
    """The lists of one kind by their path of field names; elements leave no trace in a path."""

    by_path: Mapping[tuple[str, ...], ListRule]

    def rule(self, path: tuple[str, ...]) -> ListRule:
        """Return the rule of the list at `path`."""
        return self.by_path.get(path, ATOMIC)


def _keyed(key: str) -> ListRule:
    return ListRule(ListKind.KEYED, (key,), key)


def _ordered(server_key: str) -> ListRule:
    return ListRule(ListKind.ATOMIC, (), server_key)


_PORTS = ListRule(
    ListKind.MERGED, ("containerPort", "protocol"), "containerPort", {"protocol": "TCP"}
)

_METADATA: Mapping[str, ListRule] = {
    "metadata.finalizers": SET,
    "metadata.ownerReferences": _keyed("uid"),
}

_CONTAINER: Mapping[str, ListRule] = {
    "": _keyed("name"),
    ".env": _keyed("name"),
    ".ports": _PORTS,
    ".volumeDevices": _keyed("devicePath"),
    ".volumeMounts": _keyed("mountPath"),
}

_POD: Mapping[str, ListRule] = {
    **{
        f"spec.{containers}{suffix}": rule
        for containers in ("containers", "initContainers", "ephemeralContainers")
        for suffix, rule in _CONTAINER.items()
    },
    "spec.hostAliases": _keyed("ip"),
    "spec.imagePullSecrets": _keyed("name"),
    "spec.resourceClaims": _keyed("name"),
    "spec.schedulingGates": _keyed("name"),
    "spec.topologySpreadConstraints": ListRule(
        ListKind.MERGED, ("topologyKey", "whenUnsatisfiable"), "topologyKey"
    ),
    "spec.volumes": _keyed("name"),
    "spec.volumes.ephemeral.volumeClaimTemplate.metadata.finalizers": SET,
    "spec.volumes.ephemeral.volumeClaimTemplate.metadata.ownerReferences": _keyed("uid"),
    "status.conditions": _keyed("type"),
    "status.hostIPs": _ordered("ip"),
    "status.podIPs": _ordered("ip"),
    "status.resourceClaimStatuses": _keyed("name"),
}

_NODE: Mapping[str, ListRule] = {
    "spec.podCIDRs": SET,
    "spec.taints": ListRule(ListKind.MERGED, ("key", "effect")),
    "status.addresses": ListRule(ListKind.MERGED, ("type", "address"), "type"),
    "status.conditions": _keyed("type"),
}

_NAMESPACE: Mapping[str, ListRule] = {"status.conditions": _keyed("type")}


def _rules(*tables: Mapping[str, ListRule]) -> ListRules:
    return ListRules(
        {tuple(path.split(".")): rule for table in tables for path, rule in table.items()}
    )


POD = _rules(_METADATA, _POD)
NODE = _rules(_METADATA, _NODE)
NAMESPACE = _rules(_METADATA, _NAMESPACE)
METADATA_ONLY = _rules(_METADATA)

_BY_KIND: Mapping[str, ListRules] = {"Pod": POD, "Node": NODE, "Namespace": NAMESPACE}


def rules_for(kind: str) -> ListRules:
    """Return the rules of a kind; kinds that are not ours to merge have those of metadata."""
    return _BY_KIND.get(kind, METADATA_ONLY)
