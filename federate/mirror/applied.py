"""The record on a mirror of what was last applied to it of its hub pod's spec. Pure.

Only what may change in a pod that exists is kept. A change is what the hub pod says now against
what stands here, never against the mirror: admission in the target may have changed the mirror, or
undo a change, and would be written to again and again (C25).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, TypeAlias

import orjson

from federate.model.marks import (
    HUB_GENERATION_ANNOTATION,
    LAST_APPLIED_SPEC_ANNOTATION,
    parsed_once,
)
from federate.model.objects import JsonDict, JsonObject, annotations_of, metadata_of

CONTAINER_LISTS = ("containers", "initContainers")


class Part(StrEnum):
    """What may change in a pod that exists: each part is refused, or taken, by itself."""

    IMAGES = "images"
    DEADLINE = "activeDeadlineSeconds"
    TOLERATIONS = "tolerations"
    RESOURCES = "resources"
    DEBUGGERS = "ephemeralContainers"
    """By their names: a debug container that is there can neither be changed nor removed."""


Applied: TypeAlias = Mapping[Part, Any]


def changeable(spec: JsonObject, *, tolerations: Sequence[JsonObject]) -> dict[Part, Any]:
    """Return the parts of a spec that may change; containers are maps by name.

    `tolerations` are those that the mirror shall have, which are not all of the hub pod's.
    """
    return {
        Part.IMAGES: _by_container(spec, "image"),
        Part.DEADLINE: spec.get("activeDeadlineSeconds"),
        Part.TOLERATIONS: list(tolerations),
        Part.RESOURCES: _resources(spec),
        Part.DEBUGGERS: [c.get("name", "") for c in spec.get("ephemeralContainers") or ()],
    }


def _resources(spec: JsonObject) -> JsonDict:
    """Requests and limits of containers, and those of the pod as a whole, which newer ones have."""
    resources = _by_container(spec, "resources")
    return {**resources, "pod": spec["resources"]} if spec.get("resources") else resources


def _by_container(spec: JsonObject, name: str) -> JsonDict:
    found: JsonDict = {}
    for kind in CONTAINER_LISTS:
        values = {c.get("name", ""): c[name] for c in spec.get(kind) or () if c.get(name)}
        if values:
            found[kind] = values
    return found


def generation_of(hub_pod: JsonObject) -> str:
    """Return the hub pod's generation; "" where pods have none (before 1.33)."""
    generation = metadata_of(hub_pod).get("generation")
    return str(generation) if generation else ""


def record_annotations(applied: Applied, generation: str = "") -> dict[str, str]:
    """Return the record as annotations.

    With the hub pod's generation where all of that one is applied: it becomes the hub pod's
    observedGeneration when the target's kubelet has seen it (C40).
    """
    record = {LAST_APPLIED_SPEC_ANNOTATION: format_applied(applied)}
    return {**record, HUB_GENERATION_ANNOTATION: generation} if generation else record


def format_applied(applied: Applied) -> str:
    """Render the record, without what says nothing."""
    told = {part: value for part, value in applied.items() if value not in (None, [], {})}
    return json.dumps(told, separators=(",", ":"), sort_keys=True)


def parse_applied(mirror: JsonObject) -> dict[Part, Any] | None:
    """Read the record of a mirror; None where there is none, or none that can be read.

    A part of another shape than it must have counts as one that says nothing.
    """
    value = _read(annotations_of(mirror).get(LAST_APPLIED_SPEC_ANNOTATION, ""))
    if value is None:
        return None
    return {
        Part.IMAGES: _maps(value.get(Part.IMAGES)),
        Part.DEADLINE: value.get(Part.DEADLINE),
        Part.TOLERATIONS: [t for t in _list(value.get(Part.TOLERATIONS)) if isinstance(t, dict)],
        Part.RESOURCES: _maps(value.get(Part.RESOURCES)),
        Part.DEBUGGERS: _list(value.get(Part.DEBUGGERS)),
    }


def is_readable(mirror: JsonObject) -> bool:
    """Tell whether `parse_applied` would find a record; most looks at a mirror need no more."""
    return _is_readable(annotations_of(mirror).get(LAST_APPLIED_SPEC_ANNOTATION, ""))


@parsed_once
def _is_readable(text: str) -> bool:
    return _read(text) is not None


def _read(text: Any) -> JsonDict | None:
    # By what writes requests, and both ways: what none can carry makes a record unreadable.
    try:
        value = orjson.loads(text)
        orjson.dumps(value)
    except (TypeError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def _maps(value: Any) -> JsonDict:
    found = value if isinstance(value, dict) else {}
    return {key: inner for key, inner in found.items() if isinstance(inner, dict)}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
