"""Which watches of the hub's ConfigMaps and Secrets to hold open, within a limit. Pure.

Secrets are never listed cluster-wide. A watch is for one object by its name, or, where more than a
few of a kind and namespace are wanted, for all of that namespace. Each costs a connection at both
ends, so there is a limit; what is beyond it is not watched but asked for, one by one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from federate.companions.keys import CompanionKey, Kind
from federate.model.objects import ObjectKey

MOST_WATCHES = 200
"""Connections to the hub for this. An API server holds thousands, but they are shared by all of its
clients; fewer make changes in some namespaces come late."""

MOST_OF_A_NAMESPACE = 4
"""More objects of a kind in one namespace are watched together."""

FEW_OF_A_NAMESPACE = 2
"""So few are watched one by one again: less often than they come and go, the kind of watch does."""


class Watch(NamedTuple):
    """One watch: of an object, or of all of a kind in the namespace where `name` is ""."""

    kind: Kind
    namespace: str
    name: str = ""

    @property
    def field_selector(self) -> str:
        """What to ask for."""
        return f"metadata.name={self.name}" if self.name else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchPlan:
    """What to watch, and what is left to be asked for."""

    watches: frozenset[Watch]
    asked: frozenset[tuple[Kind, ObjectKey]]


def plan_watches(
    wanted: Iterable[CompanionKey],
    *,
    present: Collection[Watch] = (),
    most: int = MOST_WATCHES,
) -> WatchPlan:
    """Decide which watches there shall be, with those that are `present` kept where they serve.

    Each wanted object that can exist is watched or asked for. Planned again on its own result, the
    plan is the same.
    """
    names: dict[tuple[Kind, str], set[str]] = defaultdict(set)
    for key in wanted:
        if key.can_exist:
            names[key.kind, key.namespace].add(key.name)
    known = frozenset(present)
    candidates = [
        (watch not in known, -serves, watch)
        for group, members in names.items()
        for watch, serves in _watches_of(group, members, known)
    ]
    # What is open stays open; of others those come first that serve most objects.
    watches = frozenset(watch for *_, watch in sorted(candidates)[:most])
    return WatchPlan(watches=watches, asked=_uncovered(names, watches))


def _watches_of(
    group: tuple[Kind, str], names: Collection[str], known: frozenset[Watch]
) -> list[tuple[Watch, int]]:
    """List the watches that a group wants, each with how many objects it serves."""
    bound = FEW_OF_A_NAMESPACE if Watch(*group) in known else MOST_OF_A_NAMESPACE
    if len(names) > bound:
        return [(Watch(*group), len(names))]
    return [(Watch(*group, name), 1) for name in names]


def _uncovered(
    names: Mapping[tuple[Kind, str], Collection[str]], watches: Collection[Watch]
) -> frozenset[tuple[Kind, ObjectKey]]:
    return frozenset(
        (kind, ObjectKey(namespace, name))
        for (kind, namespace), group in names.items()
        if Watch(kind, namespace) not in watches
        for name in group
        if Watch(kind, namespace, name) not in watches
    )
