"""The fields of a pod's spec, from the schema that an API server publishes.

Each is a leaf with its path and a fragment of a spec that sets it and nothing else, so that a test
can say something of every field that Kubernetes has, and hears of new ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from federate.model.objects import JsonObject

POD_SPEC = "io.k8s.api.core.v1.PodSpec"
REF = "#/components/schemas/"


@dataclass(frozen=True, slots=True)
class Field:
    """A leaf of the schema: its path, and a spec's fragment that sets it and nothing else.

    `types` are the names of all types on the way.
    """

    path: str
    fragment: Any
    types: tuple[str, ...]


def fields_of(schemas: JsonObject, name: str) -> Iterator[Field]:
    for key, schema in schemas[name]["properties"].items():
        for found in walk(schemas, schema, key, (name.rpartition(".")[2],)):
            yield Field(found.path, {key: found.fragment}, found.types)


def walk(
    schemas: JsonObject, schema: JsonObject, path: str, types: tuple[str, ...]
) -> Iterator[Field]:
    reference = reference_of(schema)
    if reference:
        kind = reference.rpartition(".")[2]
        if "properties" in schemas[reference]:
            for key, inner in schemas[reference]["properties"].items():
                for found in walk(schemas, inner, f"{path}.{key}", (*types, kind)):
                    yield Field(found.path, {key: found.fragment}, found.types)
            return
        yield Field(path, value_of(schemas[reference], kind), (*types, kind))
    elif schema.get("type") == "array":
        for found in walk(schemas, schema["items"], path, types):
            yield Field(found.path, [found.fragment], found.types)
    elif "additionalProperties" in schema:
        for found in walk(schemas, schema["additionalProperties"], path, types):
            yield Field(found.path, {"example.com/key": found.fragment}, found.types)
    else:
        yield Field(path, value_of(schema, ""), types)


def reference_of(schema: JsonObject) -> str:
    candidates = [schema, *schema.get("allOf", ())]
    found = next((c["$ref"] for c in candidates if "$ref" in c), "")
    return str(found).removeprefix(REF)


def value_of(schema: JsonObject, kind: str) -> Any:
    if kind == "Quantity":
        return "3"
    if kind == "IntOrString":
        return 8080
    if kind == "Time":
        return "2026-01-01T00:00:00Z"
    if schema.get("type") == "object":
        return {"x": "y"}  # a type without properties of its own
    values: Mapping[str, Any] = {"string": "text", "integer": 3, "number": 1.5, "boolean": True}
    return values[schema["type"]]
