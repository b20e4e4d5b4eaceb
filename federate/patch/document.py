"""A change on its way to an API server: a patch body, its media type and its preconditions.

`strategic_patch` says edits in the language of Kubernetes' strategic merge patch, `merge_patch` in
RFC 7386 for changes to maps. A uid or resourceVersion in a patch's metadata is a precondition: the
server refuses the patch where the object has another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, assert_never

from federate.model.objects import JsonDict
from federate.patch.edits import (
    AddToSet,
    Edit,
    Edits,
    Element,
    Path,
    Remove,
    RemoveFromSet,
    ReplaceList,
    SetValue,
)

STRATEGIC = "application/strategic-merge-patch+json"
MERGE = "application/merge-patch+json"


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchBody:
    """What a PATCH request carries."""

    media_type: str
    body: Mapping[str, Any]


def strategic_patch(edits: Edits, *, uid: str = "", resource_version: str = "") -> PatchBody | None:
    """Return the edits as a strategic merge patch; None where there are none.

    Raises ValueError where the edits need a resourceVersion and none is given.
    """
    if not edits:
        return None
    if edits.needs_resource_version and not resource_version:
        raise ValueError("a list that is replaced whole needs a resourceVersion precondition")
    body: JsonDict = {}
    for edit in edits:
        _express(body, edit)
    _add_preconditions(body, uid=uid, resource_version=resource_version)
    return PatchBody(media_type=STRATEGIC, body=body)


def merge_patch(edits: Edits, *, uid: str = "", resource_version: str = "") -> PatchBody | None:
    """Return edits that touch no list as an RFC 7386 merge patch; None where there are none.

    Raises ValueError for an edit in or of a list.
    """
    if not edits:
        return None
    body: JsonDict = {}
    for edit in edits:
        if not _is_of_maps(edit):
            raise ValueError(f"a merge patch cannot say {edit}")
        _express(body, edit)
    _add_preconditions(body, uid=uid, resource_version=resource_version)
    return PatchBody(media_type=MERGE, body=body)


def _is_of_maps(edit: Edit) -> bool:
    in_map = all(isinstance(step, str) for step in edit.path)
    return in_map and isinstance(edit, (SetValue, Remove))


def _add_preconditions(body: JsonDict, *, uid: str, resource_version: str) -> None:
    for name, value in (("uid", uid), ("resourceVersion", resource_version)):
        if value:
            body.setdefault("metadata", {})[name] = value


def _express(body: JsonDict, edit: Edit) -> None:
    parent, last = _parent(body, edit.path), edit.path[-1]
    match edit:
        case SetValue(value=value) if isinstance(last, Element):
            parent.append(value)
        case SetValue(value=value):
            parent[last] = value
        case Remove() if isinstance(last, Element):
            parent.append({last.key: last.value, "$patch": "delete"})
        case Remove():
            parent[last] = None
        case AddToSet(values=values):
            parent[last] = list(values)
        case RemoveFromSet(values=values):
            parent[f"$deleteFromPrimitiveList/{last}"] = list(values)
        case ReplaceList(items=items, server_merges=True):
            parent[last] = [{"$patch": "replace"}, *items]
        case ReplaceList(items=items):
            parent[last] = list(items)
        case _:
            assert_never(edit)


def _parent(body: JsonDict, path: Path) -> Any:
    """Return the map or list of the patch that says the last step, made where needed."""
    node: Any = body
    for step, following in pairwise(path):
        if isinstance(step, Element):
            node = _element(node, step)
        else:
            node = node.setdefault(step, [] if isinstance(following, Element) else {})
    return node


def _element(items: list[JsonDict], element: Element) -> JsonDict:
    found: Iterable[JsonDict] = (i for i in items if i.get(element.key) == element.value)
    made: JsonDict = {element.key: element.value}
    there = next(iter(found), None)
    if there is None:
        items.append(made)
    return made if there is None else there
