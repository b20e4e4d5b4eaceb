"""Put the names of companions for those of the hub's objects, everywhere in a spec. Pure.

Nothing else of the spec changes. What the operator shares in the target keeps its name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeAlias

from federate.companions.keys import Kind, companion_name
from federate.companions.places import named_in
from federate.model.marks import Scope
from federate.model.objects import JsonDict, JsonObject, ObjectKey, copied

Renaming: TypeAlias = Callable[[Kind, str], str]
"""The name in the target of an object that a pod calls so."""


def renaming(
    scope: Scope, hub_namespace: str, shared: Collection[tuple[Kind, str]] = ()
) -> Renaming:
    """Return how the pods of a hub namespace have their references renamed.

    `shared` are objects of the target that its operator lets hub pods use, by their own names.
    """

    def rename(kind: Kind, name: str) -> str:
        if (kind, name) in shared:
            return name
        return companion_name(scope, kind, ObjectKey(hub_namespace, name))

    return rename


def with_companion_names(spec: JsonObject, rename: Renaming) -> JsonDict:
    """Return a copy of a pod's spec, or of a part of one, in which each reference is renamed.

    Give it a single debug container as `{"ephemeralContainers": [container]}`.
    """
    renamed: JsonDict = copied(spec)
    for place, holder in named_in(renamed):
        holder[place.name_field] = rename(place.kind, str(holder[place.name_field]))
    return renamed
