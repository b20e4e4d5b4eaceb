"""Merge what we want into what is there, without touching what others put there.

`base` is what we wanted last time, `ours` what we want now, `theirs` what is there. The result is
edits to `theirs`: what ours says is set, what base said and ours no longer says is removed, all
else survives. Nothing to change gives no edits; applying the edits and merging again gives none.
`document` turns edits into a patch; `apply_edits` applies them here.

An absent field, null, an empty list, and an empty map with free keys are the same thing, as they
are to the server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Final, TypeAlias

from federate.model.objects import JsonDict, JsonObject
from federate.patch.edits import (
    AddToSet,
    Conflict,
    Edit,
    Edits,
    Element,
    Path,
    Remove,
    RemoveFromSet,
    ReplaceList,
    SetValue,
    apply_edits,
)
from federate.patch.listkeys import OPEN_MAPS, ListKind, ListRule, ListRules

__all__ = ["Conflict", "Edits", "apply_edits", "merge"]


class _Absent(Enum):
    ABSENT = "absent"


_ABSENT: Final = _Absent.ABSENT
_Json: TypeAlias = Any
_Keyed: TypeAlias = Mapping[tuple[Any, ...], JsonObject]
_NO_LISTS = ListRules({})


def merge(base: JsonObject, ours: JsonObject, theirs: JsonObject, *, lists: ListRules) -> Edits:
    """Return the edits to `theirs` that bring in what changed from `base` to `ours`.

    A field of ours that others changed or removed since is set again, whether it is in base or not.
    """
    walk = _Walk(lists)
    walk.fields((), *_differing(base, ours, theirs))
    return Edits(edits=tuple(walk.edits), conflicts=tuple(walk.conflicts))


class _Walk:
    """One descent through the three trees, which are pruned; collects edits and conflicts."""

    def __init__(self, lists: ListRules) -> None:
        self.lists = lists
        self.edits: list[Edit] = []
        self.conflicts: list[Conflict] = []

    def fields(self, path: Path, base: JsonObject, ours: JsonObject, theirs: JsonObject) -> None:
        for name in dict.fromkeys((*ours, *base)):
            known, there = base.get(name, _ABSENT), theirs.get(name, _ABSENT)
            at = (*path, name)
            if name in ours and ours[name] != there:
                self._want(at, known, ours[name], there)
            elif name not in ours and there is not _ABSENT:
                self._drop(at, known, there)

    def _want(self, path: Path, base: _Json, ours: _Json, theirs: _Json) -> None:
        """Edit theirs, which differs from ours, to say what ours says."""
        if isinstance(ours, Mapping) and (theirs is _ABSENT or isinstance(theirs, Mapping)):
            before = len(self.edits)
            self.fields(path, _map(base), ours, _map(theirs))
            if theirs is _ABSENT and len(self.edits) == before:
                self.edits.append(SetValue(path=path, value={}))
        elif isinstance(ours, list):
            self._want_list(path, base, ours, theirs)
        else:
            self._note(path, base, ours, theirs)
            self.edits.append(SetValue(path=path, value=ours))

    def _want_list(self, path: Path, base: _Json, ours: list[Any], theirs: _Json) -> None:
        rule = self._rule(path)
        known, there = _list(base), _list(theirs)
        if rule.kind is ListKind.ATOMIC:
            self._note(path, base, ours, theirs)
            self._replace(path, rule, ours)
        elif rule.kind is ListKind.SET:
            self._set_values(path, [v for v in known if v not in ours], ours, there)
        else:
            self._want_elements(path, rule, known, ours, there)

    def _want_elements(
        self, path: Path, rule: ListRule, base: list[Any], ours: list[Any], theirs: list[Any]
    ) -> None:
        indexed = _indexed(rule, base, ours, theirs)
        if indexed and rule.kind is ListKind.KEYED:
            self._want_keyed(path, rule.keys[0], *indexed)
            return
        merged = self._merged(path, *indexed) if indexed else _merged_unkeyed(base, ours, theirs)
        if merged != theirs:
            self._replace(path, rule, merged)

    def _want_keyed(self, path: Path, key: str, base: _Keyed, ours: _Keyed, theirs: _Keyed) -> None:
        for identity, element in ours.items():
            at = (*path, Element(key, identity[0]))
            known = base.get(identity, _ABSENT)
            if identity in theirs:
                self.fields(at, _map(known), element, theirs[identity])
            else:
                self._note(at, known, element, _ABSENT)
                self.edits.append(SetValue(path=at, value=element))
        for identity, element in base.items():
            if identity in theirs and identity not in ours:
                at = (*path, Element(key, identity[0]))
                self._note(at, element, _ABSENT, theirs[identity])
                self.edits.append(Remove(path=at))

    def _merged(self, path: Path, base: _Keyed, ours: _Keyed, theirs: _Keyed) -> list[JsonObject]:
        """Return theirs with our elements merged in, in their order; new ones come last."""
        result: list[JsonObject] = []
        for identity, there in theirs.items():
            if identity in ours:
                element = _Walk(_NO_LISTS)
                element.fields((), base.get(identity, {}), ours[identity], there)
                if element.conflicts:
                    self._note(path, base.get(identity, _ABSENT), ours[identity], there)
                result.append(apply_edits(there, Edits(edits=tuple(element.edits))))
            elif identity not in base:
                result.append(there)
            else:
                self._note(path, base[identity], _ABSENT, there)
        result += [element for identity, element in ours.items() if identity not in theirs]
        return result

    def _drop(self, path: Path, base: _Json, theirs: _Json) -> bool:
        """Remove what base has from theirs; tell whether nothing of theirs is left."""
        if isinstance(base, Mapping) and isinstance(theirs, Mapping):
            before = len(self.edits)
            left = [
                name
                for name, there in theirs.items()
                if name not in base or not self._drop((*path, name), base[name], there)
            ]
            if not left and path[-1] not in OPEN_MAPS:
                del self.edits[before:]
                self.edits.append(Remove(path=path))
            return not left
        if isinstance(base, list) and isinstance(theirs, list):
            return self._drop_list(path, base, theirs)
        self._note(path, base, _ABSENT, theirs)
        self.edits.append(Remove(path=path))
        return True

    def _drop_list(self, path: Path, base: list[Any], theirs: list[Any]) -> bool:
        rule = self._rule(path)
        if rule.kind is ListKind.ATOMIC:
            self._note(path, base, _ABSENT, theirs)
            self.edits.append(Remove(path=path))
            return True
        if rule.kind is ListKind.SET:
            self._set_values(path, base, [], theirs)
            return all(value in base for value in theirs)
        self._want_elements(path, rule, base, [], theirs)
        if indexed := _indexed(rule, base, theirs):
            return indexed[1].keys() <= indexed[0].keys()
        return all(item in base for item in theirs)

    def _set_values(
        self, path: Path, drop: list[Any], want: list[Any], theirs: Sequence[Any]
    ) -> None:
        added = tuple(v for v in want if v not in theirs)
        if removed := tuple(v for v in theirs if v in drop):
            self.edits.append(RemoveFromSet(path=path, values=removed))
        if added:
            self.edits.append(AddToSet(path=path, values=added))

    def _replace(self, path: Path, rule: ListRule, items: Sequence[Any]) -> None:
        guarded = rule.kind is not ListKind.ATOMIC
        merges = bool(rule.server_key)
        self.edits.append(
            ReplaceList(path=path, items=tuple(items), server_merges=merges, guarded=guarded)
        )

    def _note(self, path: Path, base: _Json, ours: _Json, theirs: _Json) -> None:
        """Record a conflict where both sides moved away from base."""
        if base not in (ours, theirs):
            values = [None if v is _ABSENT else v for v in (base, ours, theirs)]
            self.conflicts.append(
                Conflict(path=path, base=values[0], ours=values[1], theirs=values[2])
            )

    def _rule(self, path: Path) -> ListRule:
        return self.lists.rule(tuple(step for step in path if isinstance(step, str)))


def _differing(
    base: JsonObject, ours: JsonObject, theirs: JsonObject
) -> tuple[JsonDict, JsonDict, JsonDict]:
    """Return the three pruned, less the fields that agree or are only theirs.

    Most fields agree, and a comparison costs a tenth of a pruned copy.
    """
    kept: tuple[JsonDict, JsonDict, JsonDict] = ({}, {}, {})
    for name in dict.fromkeys((*ours, *base)):
        values = [tree.get(name, _ABSENT) for tree in (base, ours, theirs)]
        if values[1] is not _ABSENT and values[1] == values[2]:
            continue
        known, wanted, there = values
        if (
            type(wanted) is dict
            and type(there) is dict
            and (known is _ABSENT or type(known) is dict)
        ):
            pruned: Sequence[_Json] = _differing(_map(known), wanted, there)
        else:
            pruned = [_pruned_value(value) for value in values]
        for tree, value, what in zip(kept, values, pruned, strict=True):
            if value is not _ABSENT and not _is_nothing(name, what):
                tree[name] = what
    return kept


def _is_nothing(name: str, pruned: _Json) -> bool:
    """Tell whether a pruned field is the same as an absent one."""
    return pruned is None or pruned == [] or (pruned == {} and name in OPEN_MAPS)


def _pruned(value: JsonObject) -> JsonDict:
    """Return a copy without nulls, empty lists and empty open maps."""
    kept = {}
    for name, child in value.items():
        pruned = _pruned_value(child)
        if not _is_nothing(name, pruned):
            kept[name] = pruned
    return kept


def _pruned_value(value: Any) -> Any:
    # Exact types first: JSON has no others, and the abstract checks cost ten times as much.
    if type(value) is dict:
        return _pruned(value)
    if type(value) is list:
        return [_pruned_value(item) for item in value]
    if isinstance(value, str) or not isinstance(value, (Mapping, tuple)):
        return value
    return _pruned(value) if isinstance(value, Mapping) else [_pruned_value(v) for v in value]


def _map(value: _Json) -> JsonObject:
    return value if isinstance(value, Mapping) else {}


def _list(value: _Json) -> list[Any]:
    return value if isinstance(value, list) else []


def _indexed(rule: ListRule, *lists: Sequence[JsonObject]) -> tuple[_Keyed, ...] | None:
    """Return the elements of each list by identity; None where elements cannot be told apart."""
    indexes: list[_Keyed] = []
    for items in lists:
        index = {rule.identity(item): item for item in items}
        if len(index) < len(items) or any(None in identity for identity in index):
            return None
        indexes.append(index)
    return tuple(indexes)


def _merged_unkeyed(base: list[Any], ours: list[Any], theirs: list[Any]) -> list[Any]:
    """Merge elements that differ as a whole, in their order; new ones come last."""
    kept = [item for item in theirs if item in ours or item not in base]
    return kept + [item for item in ours if item not in theirs]
