"""Who wants which companion: derived from both stores each time, counted nowhere. Pure.

A count that is kept somewhere is wrong after the first crash. So a companion is wanted as long as a
hub pod that is not over refers to it, or a mirror that lives does, and an inventory is what the
target shows: ConfigMaps by their marks, Secrets by the lists in the anchors.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from federate.companions.keys import CompanionKey, Kind, companion_name, companion_of
from federate.companions.references import names_used, wants_of
from federate.model.marks import Scope, origin_of, record_of
from federate.model.objects import JsonObject, ObjectKey, key_of, metadata_of

LISTED_AS = "Secret "
"""How an entry of an anchor's list begins; the object's key follows."""


def target_namespace_of(hub_pod: JsonObject, by_rule: ObjectKey | None) -> str | None:
    """Say where a hub pod's companions stand: where its mirror does, or shall by today's rules."""
    record = record_of(hub_pod)
    if record is not None and record.mirror_uid:
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


def demand_of(
    *,
    scope: Scope,
    hub_pods: Iterable[tuple[JsonObject, str | None]],
    mirrors: Iterable[JsonObject],
    shared: Collection[tuple[Kind, str]] = (),
) -> Demand:
    """Gather what is wanted; each hub pod with the target namespace of its companions."""
    keys = (wants_of(pod, namespace, shared) for pod, namespace in hub_pods if namespace)
    used = (
        (kind, ObjectKey(key_of(mirror).namespace, name))
        for mirror in mirrors
        if (origin := origin_of(mirror)) is not None and origin.scope == scope
        for kind, name in names_used(mirror)
    )
    return Demand(keys=frozenset().union(*keys), used=frozenset(used))


# -- the inventory ---------------------------------------------------------------------------------


def listing_entry(key: CompanionKey) -> str:
    """Return what an anchor's list says of a Secret, beside the companion's name."""
    return f"{LISTED_AS}{key.hub_key}"


def listed_in(scope: Scope, anchor: JsonObject) -> Iterator[CompanionKey]:
    """Yield the Secrets on an anchor's list; an entry whose name and words disagree is none."""
    data: Mapping[str, str] = anchor.get("data") or {}
    namespace: str = metadata_of(anchor).get("namespace") or ""
    for name, entry in data.items():
        hub_namespace, slash, hub_name = entry.removeprefix(LISTED_AS).partition("/")
        hub_key = ObjectKey(hub_namespace, hub_name)
        is_entry = entry.startswith(LISTED_AS) and slash
        if is_entry and companion_name(scope, Kind.SECRET, hub_key) == name:
            yield CompanionKey(namespace, Kind.SECRET, *hub_key)


def unwanted_companions(
    *,
    scope: Scope,
    demand: Demand,
    configmaps: Iterable[JsonObject],
    anchors: Iterable[JsonObject],
) -> tuple[CompanionKey, ...]:
    """List what nobody wants, to be planned one by one; it may not be deleted on this word alone.

    Objects of other virtual nodes and hubs are left out, and whatever is not wholly marked.
    """
    found = {
        key
        for configmap in configmaps
        if (key := companion_of(scope, configmap)) is not None and key.kind is Kind.CONFIGMAP
    }
    for anchor in anchors:
        if scope.owns(anchor):
            found.update(listed_in(scope, anchor))
    return tuple(sorted(key for key in found if not demand.wants(scope, key)))
