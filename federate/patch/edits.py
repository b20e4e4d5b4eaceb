"""Edits to an object as data, and their application.

`threeway.merge` decides edits, `document` turns them into a patch for a server, and `apply_edits`
says what the server will make of it. A path is a tuple of field names, with an `Element` for the
step into a keyed list.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias, assert_never

from federate.model.objects import JsonDict, JsonObject


@dataclass(frozen=True, slots=True)
class Element:
    """The element of a keyed list whose `key` field is `value`."""

    key: str
    value: Any


Step: TypeAlias = str | Element
Path: TypeAlias = tuple[Step, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SetValue:
    """Set a field or a keyed element; a map is merged into the map that may be there."""

    path: Path
    value: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Remove:
    """Remove a field or a keyed element."""

    path: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class AddToSet:
    """Add values to a list that is a set."""

    path: Path
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveFromSet:
    """Remove values from a list that is a set."""

    path: Path
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaceList:
    """Replace a list whole. `server_merges`: the server must be told not to merge by key.

    `guarded`: the items include what others put there, as of `theirs`. Sent without a
    resourceVersion precondition it would undo what they change meanwhile.
    """

    path: Path
    items: tuple[Any, ...]
    server_merges: bool = False
    guarded: bool = False


Edit: TypeAlias = SetValue | Remove | AddToSet | RemoveFromSet | ReplaceList


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """A field both sides changed since base, to different values; ours wins. None: absent."""

    path: Path
    base: Any
    ours: Any
    theirs: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Edits:
    """What to change in theirs; false where there is nothing to change."""

    edits: tuple[Edit, ...] = ()
    conflicts: tuple[Conflict, ...] = ()

    @property
    def needs_resource_version(self) -> bool:
        """Tell whether the patch must carry the resourceVersion of `theirs`."""
        return any(isinstance(edit, ReplaceList) and edit.guarded for edit in self.edits)

    def __bool__(self) -> bool:
        return bool(self.edits)

    def __iter__(self) -> Iterator[Edit]:
        return iter(self.edits)


def apply_edits(theirs: JsonObject, edits: Edits) -> JsonDict:
    """Return a copy of `theirs` with the edits applied, as the server would apply the patch."""
    result: JsonDict = deepcopy(dict(theirs))
    for edit in edits:
        _apply(result, edit)
    return result


def _apply(obj: JsonDict, edit: Edit) -> None:
    parent, last = _parent(obj, edit.path), edit.path[-1]
    if isinstance(last, Element):
        _apply_to_element(parent, last, edit)
        return
    there = parent.get(last)
    match edit:
        case SetValue():
            parent[last] = _overlaid(there, edit.value)
        case Remove():
            parent.pop(last, None)
        case AddToSet():
            there = there or []
            parent[last] = [*there, *(v for v in edit.values if v not in there)]
        case RemoveFromSet():
            parent[last] = [v for v in there or () if v not in edit.values]
        case ReplaceList():
            parent[last] = deepcopy(list(edit.items))
        case _:
            assert_never(edit)


def _apply_to_element(items: list[JsonDict], element: Element, edit: Edit) -> None:
    if isinstance(edit, Remove):
        items[:] = [item for item in items if item.get(element.key) != element.value]
        return
    if not isinstance(edit, SetValue):
        raise TypeError(f"an element is set or removed, not {edit}")
    there = _element(items, element)
    there.update(_overlaid(there, edit.value))


def _parent(obj: JsonDict, path: Path) -> Any:
    """Return the map or list that holds the last step; what is absent on the way is made."""
    node: Any = obj
    for step, following in pairwise(path):
        wanted: type = list if isinstance(following, Element) else dict
        if isinstance(step, Element):
            node = _element(node, step)
        elif isinstance(node.get(step), wanted):
            node = node[step]
        else:
            made = wanted()
            node[step] = made
            node = made
    return node


def _element(items: list[JsonDict], element: Element) -> JsonDict:
    """Return the element; it is made if absent."""
    for item in items:
        if item.get(element.key) == element.value:
            return item
    made: JsonDict = {element.key: element.value}
    items.append(made)
    return made


def _overlaid(there: Any, value: Any) -> Any:
    if not (isinstance(there, Mapping) and isinstance(value, Mapping)):
        return deepcopy(value)
    merged = dict(there)
    for name, child in value.items():
        merged[name] = _overlaid(there.get(name), child)
    return merged
