"""Which object that came along something in the target tells of: itself, or a Secret. Pure.

ConfigMaps are known by their marks, Secrets by their entries, or by the lines that earlier versions
wrote into anchors.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from federate.companions.demand import listed_in
from federate.companions.entries import is_entry
from federate.companions.issued import IssuedKey, issued_in, issued_of
from federate.companions.keys import CompanionKey, companion_of
from federate.model.marks import Scope
from federate.model.objects import JsonObject

Key: TypeAlias = CompanionKey | IssuedKey


def key_of_brought(scope: Scope, obj: JsonObject) -> Key | None:
    """Read which it is itself; None unless its marks and its name agree."""
    return companion_of(scope, obj) or issued_of(scope, obj)


def told_by(scope: Scope, configmap: JsonObject) -> Key | None:
    """Read what a ConfigMap tells of: a Secret, if it is an entry, else itself."""
    if is_entry(scope, configmap):
        return next(_lines(scope, configmap), None)
    return key_of_brought(scope, configmap)


def told_by_anchor(scope: Scope, anchor: JsonObject) -> Iterator[Key]:
    """Yield the Secrets that an anchor tells of."""
    if scope.owns(anchor):
        yield from _lines(scope, anchor)


def _lines(scope: Scope, lister: JsonObject) -> Iterator[Key]:
    yield from listed_in(scope, lister)
    yield from issued_in(scope, lister)
