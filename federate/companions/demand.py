"""Who wants which companion: derived from both stores each time, counted nowhere. Pure.

A count that is kept somewhere is wrong after the first crash. So a companion is wanted as long as a
hub pod that is not over refers to it, or a mirror that lives does, and an inventory is what the
target shows: ConfigMaps by their marks, Secrets by their entries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from federate.companions.entries import lines_of
from federate.companions.keys import CompanionKey, Kind, companion_name
from federate.model.marks import Scope, record_of
from federate.model.objects import JsonObject, ObjectKey, metadata_of

LISTED_AS = "Secret "
"""How the words of an entry begin; the object's key follows."""


def has_mirror(hub_pod: JsonObject, standing: Mapping[ObjectKey, str]) -> bool:
    """Tell whether a hub pod has the mirror that it has on record: the target says so as well.

    `standing` are the mirrors in sight whose marks name the hub pod, with their uids. A record is
    an annotation, which whoever may edit the pod can write: alone it is not believed.
    """
    record = record_of(hub_pod)
    recorded = record.mirror_uid if record is not None else ""
    return record is not None and recorded != "" and standing.get(record.mirror) == recorded


def target_namespace_of(
    hub_pod: JsonObject, by_rule: ObjectKey | None, *, is_mirrored: bool
) -> str | None:
    """Say where a hub pod's companions stand: where its mirror does, or shall by today's rules.

    `is_mirrored` is the answer of `has_mirror`. Without, a record would let a hub user have what he
    likes put into any namespace that federate uses.
    """
    record = record_of(hub_pod)
    if record is not None and is_mirrored:
        return record.mirror.namespace
    return by_rule.namespace if by_rule is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """All that is wanted: by hub pods as keys, by mirrors as names in the target."""

    keys: frozenset[CompanionKey]
    used: frozenset[tuple[Kind, ObjectKey]]

    def wants(self, scope: Scope, key: CompanionKey) -> bool:
        """Tell whether anybody wants the companion."""
        place = ObjectKey(key.target_namespace, companion_name(scope, key.kind, key.hub_key))
        return key in self.keys or (key.kind, place) in self.used


# -- the inventory ---------------------------------------------------------------------------------


def listing_entry(key: CompanionKey) -> str:
    """Return what the entry of a Secret says that it stands for."""
    return f"{LISTED_AS}{key.hub_key}"


def listed_in(scope: Scope, lister: JsonObject) -> Iterator[CompanionKey]:
    """Yield the Secrets that an entry, or an anchor, tells of: where name and words agree."""
    namespace: str = metadata_of(lister).get("namespace") or ""
    for name, entry in lines_of(lister).items():
        hub_namespace, slash, hub_name = entry.removeprefix(LISTED_AS).partition("/")
        hub_key = ObjectKey(hub_namespace, hub_name)
        is_entry = entry.startswith(LISTED_AS) and slash
        if is_entry and companion_name(scope, Kind.SECRET, hub_key) == name:
            yield CompanionKey(namespace, Kind.SECRET, *hub_key)
