"""Render the companion that ought to exist for an object of the hub. Pure.

Its contents are the hub object's, to the byte. Nothing of its metadata travels: a label could make
a controller of the target take it for its own. A type that some controller of the target acts on
becomes Opaque; pods do not see the type.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from federate.companions.keys import (
    CompanionKey,
    Kind,
    companion_annotations,
    companion_labels,
    name_of,
)
from federate.model.marks import Scope
from federate.model.objects import JsonDict, JsonObject, metadata_of

OPAQUE = "Opaque"
ACTED_ON = frozenset({"kubernetes.io/service-account-token", "bootstrap.kubernetes.io/token"})
"""Types of Secrets that a cluster acts on: it fills in or takes away tokens, and whoever has a
bootstrap token may join."""

SIZE_LIMIT_BYTES = 1024 * 1024
"""What API servers take of a ConfigMap's or Secret's values together."""

CONTENTS: Mapping[Kind, tuple[str, ...]] = {
    Kind.CONFIGMAP: ("data", "binaryData"),
    Kind.SECRET: ("data",),
}
"""The fields that hold values, by key."""


def render_companion(
    key: CompanionKey, hub_object: JsonObject, *, scope: Scope, owner: JsonObject
) -> JsonDict:
    """Render the companion; its owner, the anchor or an entry, takes it along as it goes (C23)."""
    place = name_of(scope, key)
    body: JsonDict = {
        "apiVersion": key.kind.resource.group_version,
        "kind": str(key.kind),
        "metadata": {
            "namespace": place.namespace,
            "name": place.name,
            "labels": companion_labels(scope, key),
            "annotations": companion_annotations(scope, key),
            "ownerReferences": [owner_reference(owner)],
        },
    }
    for field in CONTENTS[key.kind]:
        if hub_object.get(field):
            body[field] = dict(hub_object[field])
    if hub_object.get("immutable"):
        body["immutable"] = True
    if key.kind is Kind.SECRET:
        body["type"] = _travelling_type(hub_object)
    return body


def owner_reference(owner: JsonObject) -> JsonDict:
    """Return the reference to the anchor, or to an entry, that everything of federate's has."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": metadata_of(owner)["name"],
        "uid": metadata_of(owner)["uid"],
        "controller": True,
    }


def _travelling_type(hub_object: JsonObject) -> str:
    secret_type: str = hub_object.get("type") or OPAQUE
    return OPAQUE if secret_type in ACTED_ON else secret_type


def size_bytes(kind: Kind, hub_object: JsonObject) -> int:
    """Count the values as an API server does: what is base64 on the wire counts decoded."""
    return sum(
        _value_bytes(kind, field, value)
        for field in CONTENTS[kind]
        for value in (hub_object.get(field) or {}).values()
    )


def _value_bytes(kind: Kind, field: str, value: Any) -> int:
    text = str(value)
    if kind is Kind.CONFIGMAP and field == "data":
        return len(text.encode())
    return len(text) * 3 // 4 - text[-2:].count("=")
