"""The companion that ought to exist: contents to the byte, and nothing of the hub's metadata."""

from __future__ import annotations

import base64
import copy

import pytest

from federate.companions.keys import Kind, companion_of, name_of
from federate.companions.render import render_companion, size_bytes
from federate.model.objects import JsonDict, JsonObject
from tests.support.companions import ANCHOR, TARGET_NAMESPACE, encoded, hub_object, key_for
from tests.support.views import SCOPE


def rendered(kind: Kind, of: JsonObject) -> JsonDict:
    key = key_for(kind)
    before = copy.deepcopy(dict(of))
    made = render_companion(key, of, scope=SCOPE, owner=ANCHOR)
    assert made == render_companion(key, of, scope=SCOPE, owner=ANCHOR)
    assert of == before
    return made


@pytest.mark.parametrize("kind", Kind)
def test_a_companion_has_the_contents_and_our_marks_alone(kind: Kind) -> None:
    """Labels and annotations of the hub could mean something to a controller of the target."""
    key = key_for(kind)
    made = rendered(kind, hub_object(key))
    assert companion_of(SCOPE, made) == key
    metadata = made.pop("metadata")
    assert set(metadata) == {"namespace", "name", "labels", "annotations", "ownerReferences"}
    assert (metadata["namespace"], metadata["name"]) == tuple(name_of(SCOPE, key))
    assert metadata["namespace"] == TARGET_NAMESPACE
    assert all(name.startswith("federate.dev/") for name in metadata["labels"])
    assert all(name.startswith("federate.dev/") for name in metadata["annotations"])
    value = encoded("hunter2") if kind is Kind.SECRET else "hunter2"
    assert made == {
        "apiVersion": "v1",
        "kind": str(kind),
        "data": {"password": value},
        **({"type": "Opaque"} if kind is Kind.SECRET else {}),
    }


def test_the_anchor_is_its_controller() -> None:
    """Who deletes the anchor removes it too, and nothing can adopt it (C23)."""
    made = rendered(Kind.SECRET, hub_object(key_for()))
    assert made["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": ANCHOR["metadata"]["name"],
            "uid": "anchor-1",
            "controller": True,
        }
    ]


def test_binary_values_and_immutability_come_along() -> None:
    """An object that says neither has neither."""
    key = key_for(Kind.CONFIGMAP)
    made = rendered(key.kind, hub_object(key, binaryData={"b": "AAE="}, immutable=True))
    assert made["binaryData"] == {"b": "AAE="}
    assert made["immutable"] is True
    bare = rendered(key.kind, hub_object(key, {}, binaryData={}, immutable=False))
    assert {"data", "binaryData", "immutable"}.isdisjoint(bare)


@pytest.mark.parametrize(
    ("given", "travels"),
    [
        ("kubernetes.io/dockerconfigjson", "kubernetes.io/dockerconfigjson"),
        ("kubernetes.io/tls", "kubernetes.io/tls"),
        ("example.com/own", "example.com/own"),
        ("kubernetes.io/service-account-token", "Opaque"),
        ("bootstrap.kubernetes.io/token", "Opaque"),
        ("", "Opaque"),
    ],
)
def test_a_type_that_the_target_would_act_on_does_not_travel(given: str, travels: str) -> None:
    """Tokens would be filled in or taken away; a bootstrap token would let join the target."""
    assert rendered(Kind.SECRET, hub_object(key_for(), type=given))["type"] == travels


def test_a_secret_without_a_type_is_opaque() -> None:
    """As the API server has it."""
    bare = hub_object(key_for())
    del bare["type"]
    assert rendered(Kind.SECRET, bare)["type"] == "Opaque"


@pytest.mark.parametrize("length", [0, 1, 2, 3, 4, 1000])
def test_sizes_are_those_that_the_api_server_counts(length: int) -> None:
    """Values decoded, text in bytes."""
    packed = base64.b64encode(b"x" * length).decode()
    secret = hub_object(key_for(), {}, data={"a": packed, "b": packed})
    assert size_bytes(Kind.SECRET, secret) == 2 * length
    configmap = {"data": {"a": "ä" * length}, "binaryData": {"b": packed}}
    assert size_bytes(Kind.CONFIGMAP, configmap) == 3 * length
    assert size_bytes(Kind.CONFIGMAP, {"data": None}) == 0
