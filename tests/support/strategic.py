"""Apply patches as an API server does: strategic merge (over `listkeys`) and RFC 7386 merge.

For the in-memory cluster. Written against the documented behaviour, independent of
`patch.threeway`; `tests/integration/test_patch_real.py` compares it with a real server.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from federate.model.objects import JsonDict, JsonObject
from federate.patch.listkeys import ListKind, ListRule, ListRules, rules_for

DIRECTIVE = "$patch"
DELETE_FROM = "$deleteFromPrimitiveList/"
SET_ORDER = "$setElementOrder/"
RETAIN = "$retainKeys"


class BadPatch(Exception):
    """The server would answer 400 or 422."""


def apply_merge_patch(obj: JsonObject, patch: JsonObject) -> JsonDict:
    """Return `obj` after an RFC 7386 merge patch."""
    merged: JsonDict = deepcopy(dict(obj))
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, Mapping):
            there = merged.get(name)
            merged[name] = apply_merge_patch(there if isinstance(there, Mapping) else {}, value)
        else:
            merged[name] = deepcopy(value)
    return merged


def apply_strategic_patch(obj: JsonObject, patch: JsonObject, *, kind: str) -> JsonDict:
    """Return `obj` after a strategic merge patch; preconditions are the caller's."""
    return _map(obj, patch, (), rules_for(kind))


def _map(obj: JsonObject, patch: JsonObject, path: tuple[str, ...], rules: ListRules) -> JsonDict:
    directive = patch.get(DIRECTIVE)
    if directive == "replace":
        return {k: deepcopy(v) for k, v in patch.items() if k != DIRECTIVE}
    if directive == "delete":
        return {}
    if directive is not None:
        raise BadPatch(f"unknown directive {directive!r}")
    merged: JsonDict = deepcopy(dict(obj))
    if RETAIN in patch:
        merged = {k: v for k, v in merged.items() if k in patch[RETAIN]}
    for name, value in patch.items():
        if name == RETAIN or name.startswith(SET_ORDER):
            continue
        if name.startswith(DELETE_FROM):
            field = name.removeprefix(DELETE_FROM)
            if field in merged:
                merged[field] = [item for item in merged[field] if item not in value]
        elif value is None:
            merged.pop(name, None)
        else:
            merged[name] = _value(merged.get(name), value, (*path, name), rules)
    return merged


def _value(there: Any, value: Any, path: tuple[str, ...], rules: ListRules) -> Any:
    if isinstance(value, Mapping):
        if isinstance(there, Mapping):
            return _map(there, value, path, rules)
        return _without_directives(value)
    if isinstance(value, list):
        if isinstance(there, list):
            return _list(there, value, path, rules)
        return _without_directives(value)
    return value


def _list(there: list[Any], patch: list[Any], path: tuple[str, ...], rules: ListRules) -> list[Any]:
    rule = rules.rule(path)
    if rule.kind is ListKind.SET:
        return list(dict.fromkeys([*there, *patch]))
    if not rule.server_key:
        return deepcopy(patch)
    return _keyed_list(there, patch, path, (rule, rules))


def _keyed_list(
    there: list[Any], patch: list[Any], path: tuple[str, ...], by: tuple[ListRule, ListRules]
) -> list[Any]:
    rule, rules = by
    key = rule.server_key
    plain = [item for item in patch if DIRECTIVE not in item]
    if any(item.get(DIRECTIVE) == "replace" for item in patch):
        return deepcopy(plain)
    if any(key not in item for item in patch):
        raise BadPatch(f"an element of {'.'.join(path)} has no merge key {key}")
    gone = [item[key] for item in patch if item.get(DIRECTIVE) == "delete"]
    merged = [deepcopy(item) for item in there if item.get(key) not in gone]
    for item in plain:
        at = next((i for i, m in enumerate(merged) if m.get(key) == item[key]), None)
        if at is None:
            merged.append(deepcopy(item))
        else:
            merged[at] = _map(merged[at], item, path, rules)
    return merged


def _without_directives(value: Any) -> Any:
    """What a server keeps of a value for a field that was absent: no nulls, no directives."""
    if isinstance(value, Mapping):
        return {
            k: _without_directives(v)
            for k, v in value.items()
            if v is not None
            and not k.startswith("$")
            and not (isinstance(v, Mapping) and DIRECTIVE in v)
        }
    if isinstance(value, list):
        return [
            _without_directives(v) for v in value if not (isinstance(v, Mapping) and DIRECTIVE in v)
        ]
    return value
