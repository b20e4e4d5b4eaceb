"""Objects of the hub, companions and views for tests of what a pod needs beside itself."""

from __future__ import annotations

import base64
import copy
from dataclasses import dataclass
from typing import Any

from federate.companions.demand import listing_entry
from federate.companions.entries import render_entry
from federate.companions.keys import CompanionKey, Kind, name_of
from federate.companions.places import EACH, Place
from federate.companions.render import render_companion
from federate.companions.steps import CompanionView, Ground
from federate.model.marks import Scope
from federate.model.naming import anchor_name, prefixed_namespace
from federate.model.objects import JsonDict, JsonObject, ObjectKey, key_of
from tests.support.views import SCOPE

TARGET_NAMESPACE = prefixed_namespace(SCOPE.hub_id, "default")
ANCHOR: JsonObject = {
    "metadata": {
        "name": anchor_name(SCOPE),
        "namespace": TARGET_NAMESPACE,
        "uid": "anchor-1",
        "labels": SCOPE.labels(),
    }
}


def entry_of(place: ObjectKey, said: str, *, scope: Scope = SCOPE) -> JsonDict:
    """An entry as the target's API server has it."""
    made = copy.deepcopy(render_entry(place, said, scope=scope, anchor=ANCHOR))
    made["metadata"] |= {"uid": "uid-entry", "resourceVersion": "5"}
    return made


def entry_for(key: CompanionKey, *, scope: Scope = SCOPE) -> JsonDict:
    """The entry of a companion that is a Secret."""
    return entry_of(name_of(scope, key), listing_entry(key), scope=scope)


def key_for(kind: Kind = Kind.SECRET, name: str = "db", namespace: str = "default") -> CompanionKey:
    return CompanionKey(TARGET_NAMESPACE, kind, namespace, name)


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def hub_object(key: CompanionKey, values: dict[str, str] | None = None, **fields: Any) -> JsonDict:
    """An object as the hub's API server returns it; a Secret's values are encoded."""
    values = {"password": "hunter2"} if values is None else values
    secret = key.kind is Kind.SECRET
    return {
        "apiVersion": "v1",
        "kind": str(key.kind),
        "metadata": {
            "name": key.name,
            "namespace": key.namespace,
            "uid": "uid-hub",
            "resourceVersion": "7",
            "labels": {"app": "db"},
            "annotations": {"note": "mine"},
        },
        "data": {k: encoded(v) if secret else v for k, v in values.items()},
        **({"type": "Opaque"} if secret else {}),
        **fields,
    }


def companion(key: CompanionKey, of: JsonObject, *, scope: Scope = SCOPE) -> JsonDict:
    """A companion as the target's API server has it, made of that object of the hub."""
    owner = entry_for(key, scope=scope) if key.kind is Kind.SECRET else ANCHOR
    made = copy.deepcopy(render_companion(key, of, scope=scope, owner=owner))
    made["metadata"] |= {"uid": "uid-target", "resourceVersion": "3"}
    return made


def view(key: CompanionKey, **fields: Any) -> CompanionView:
    """What is seen once everything was read: the hub's object is there, and wanted."""
    seen: dict[str, Any] = {
        "hub_object": hub_object(key),
        "hub_fresh": True,
        "companion_fresh": True,
        "is_wanted": True,
        "has_hub_pod": True,
        "ground": Ground.READY,
        "anchor": ANCHOR,
        "entry": entry_for(key) if key.kind is Kind.SECRET else None,
        "entry_fresh": key.kind is Kind.SECRET,
        "is_held": True,
        **fields,
    }
    return CompanionView(key=key, scope=SCOPE, target_name="berlin", **seen)


def target_name(kind: Kind, name: str, namespace: str = "default") -> str:
    return name_of(SCOPE, key_for(kind, name, namespace)).name


def naming_fragment(place: Place, name: str, **beside: Any) -> JsonDict:
    """A fragment of a spec that names an object at that place, and nothing else."""
    value: Any = {place.name_field: name, **beside}
    for step in reversed(place.path):
        value = [value] if step == EACH else {step: value}
    fragment: JsonDict = value
    return fragment


def merged(fragments: list[JsonDict]) -> JsonDict:
    """Put fragments of a spec together: their containers and volumes stand one after the other."""
    spec: JsonDict = {}
    for fragment in copy.deepcopy(fragments):
        for name, items in fragment.items():
            spec.setdefault(name, []).extend(items)
    for name, items in spec.items():
        for number, item in enumerate(items):
            if name != "imagePullSecrets":
                item["name"] = f"{name.lower()}-{number}"
    return spec


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedIdentity:
    """An identity for tests of rendering: notes on the spec whom it was given for."""

    brings_tokens: bool
    travelling_tokens: bool

    def dress(self, spec: JsonObject, hub_pod: JsonObject) -> JsonDict:
        return {**copy.deepcopy(dict(spec)), "dressed": key_of(hub_pod).name}
