"""Which volumes of the hub lead where: kept up from their watch. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from federate.claims.keys import ClaimKey, Handle, handle_of
from federate.model.marks import Scope
from federate.model.objects import JsonObject, ObjectKey, spec_of


class _Lead(NamedTuple):
    key: ClaimKey | None
    """The claim of the hub that it is for."""
    handle: Handle | None


class Leads:
    """The volumes of one virtual node, by the claims at both ends."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._leads: dict[str, _Lead] = {}
        self._by_key: dict[ClaimKey, str] = {}
        self._by_place: dict[ObjectKey, set[str]] = {}

    def volume_is(self, name: str, volume: JsonObject | None) -> frozenset[ClaimKey]:
        """Take note of a volume; return the claims of the hub that it is, or was, for."""
        before = self._leads.pop(name, None)
        if before is not None:
            self._drop(name, before)
        lead = _read(self._scope, volume) if volume is not None else None
        if lead is not None:
            self._leads[name] = lead
            if lead.key is not None:
                self._by_key[lead.key] = name
            if lead.handle is not None:
                self._by_place.setdefault(lead.handle.key, set()).add(name)
        keys = (each.key for each in (before, lead) if each is not None)
        return frozenset(key for key in keys if key is not None)

    def _drop(self, name: str, lead: _Lead) -> None:
        if lead.key is not None and self._by_key.get(lead.key) == name:
            del self._by_key[lead.key]
        if lead.handle is not None:
            names = self._by_place[lead.handle.key]
            names.discard(name)
            if not names:
                del self._by_place[lead.handle.key]

    def volume_for(self, key: ClaimKey) -> str | None:
        """Name the volume that is for a claim of the hub; None where none is."""
        return self._by_key.get(key)

    def led_to(self, place: ObjectKey) -> Iterator[ClaimKey]:
        """Yield the claims of the hub whose volumes lead to a claim of the target."""
        for name in self._by_place.get(place, ()):
            key = self._leads[name].key
            if key is not None:
                yield key


def _read(scope: Scope, volume: JsonObject) -> _Lead:
    reference = spec_of(volume).get("claimRef") or {}
    parts = (str(reference.get(field) or "") for field in ClaimKey._fields)
    key = ClaimKey(*parts)
    return _Lead(key if all(key) else None, handle_of(scope, volume))
