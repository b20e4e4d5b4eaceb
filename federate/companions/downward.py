"""The downward API tells of the hub pod, not of its mirror (C32). Pure.

In the environment, facts of the hub are literals, with `$` escaped, for values are expanded and
facts are not. In volumes they are read from annotations of the mirror, which federate keeps as the
hub pod is: the kubelet writes the files anew as soon as the mirror changes, as it does on a node of
the hub. Addresses and resources stay what the mirror says of itself, and so do labels and
annotations that the mirror has.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from federate.model.marks import (
    HUB_ANNOTATIONS_ANNOTATION,
    HUB_LABELS_ANNOTATION,
    HUB_VALUE_ANNOTATION,
    PREFIX,
)
from federate.model.objects import (
    JsonDict,
    JsonObject,
    annotations_of,
    copied,
    labels_of,
    metadata_of,
    spec_of,
    uid_of,
)
from federate.model.pods import CONTAINER_FIELDS, node_name_of

LABELS = "metadata.labels"
ANNOTATIONS = "metadata.annotations"

Flows: TypeAlias = Callable[[str], bool]
"""Whether a label or annotation of that key is on the mirror as it is on the hub pod."""

_SUBSCRIPTED = re.compile(r"(metadata\.(?:labels|annotations))\['(.*)'\]", re.DOTALL)

ANNOTATIONS_LIMIT_BYTES = 256 * 1024
"""What an API server takes of keys and values of all annotations together."""


def with_hub_facts(spec: JsonObject, hub_pod: JsonObject, flows: Flows) -> JsonDict:
    """Return a copy of a mirror's spec, or of a part of one, whose facts are the hub pod's."""
    told: JsonDict = copied(spec)
    for kind in CONTAINER_FIELDS:
        for container in told.get(kind) or ():
            for variable in container.get("env") or ():
                _tell_variable(variable, hub_pod, flows)
    for item in _volume_items(told):
        selector = item["fieldRef"]
        annotation = _annotation_for(selector.get("fieldPath", ""), flows)
        if annotation:
            selector["fieldPath"] = f"{ANNOTATIONS}['{annotation}']"
    return told


def fact_annotations(hub_pod: JsonObject, flows: Flows) -> dict[str, str]:
    """Return the annotations that the mirror's downward API files are read from.

    They follow the hub pod, as its labels do: write them in the same request.
    """
    paths = {item["fieldRef"].get("fieldPath", "") for item in _volume_items(spec_of(hub_pod))}
    return {
        annotation: hub_fact(hub_pod, path) or ""
        for path in sorted(paths)
        if (annotation := _annotation_for(path, flows))
    }


def facts_read(spec: JsonObject, hub_pod: JsonObject, flows: Flows) -> dict[str, str]:
    """Return those of the `fact_annotations` that the volumes of a mirror's spec read.

    A mirror may have been made by other rules than today's, and its volumes can never change.
    """
    paths = {item["fieldRef"].get("fieldPath", "") for item in _volume_items(spec)}
    read = {split_subscript(path)[1] for path in paths}
    if not any(key is not None and key.startswith(PREFIX) for key in read):
        return {}
    return {key: fact for key, fact in fact_annotations(hub_pod, flows).items() if key in read}


def annotations_bytes(annotations: Mapping[str, str]) -> int:
    """Count annotations as an API server does, to compare with its limit."""
    return sum(len(k.encode()) + len(v.encode()) for k, v in annotations.items())


def hub_fact(hub_pod: JsonObject, field_path: str) -> str | None:
    """Return what a kubelet of the hub would say; None for what the mirror says for itself.

    Our own labels and annotations are none of the user's, and are left out.
    """
    metadata = metadata_of(hub_pod)
    match field_path:
        case "metadata.name" | "metadata.namespace":
            return str(metadata.get(field_path.removeprefix("metadata."), ""))
        case "metadata.uid":
            return uid_of(hub_pod)
        case "spec.nodeName" | "spec.host":  # `spec.host` is an old name that is still understood
            return node_name_of(hub_pod)
        case "spec.serviceAccountName":
            return str(spec_of(hub_pod).get("serviceAccountName") or "")
        case _:
            return _map_fact(hub_pod, field_path)


def _map_fact(hub_pod: JsonObject, field_path: str) -> str | None:
    path, key = split_subscript(field_path)
    if path not in (LABELS, ANNOTATIONS):
        return None
    values = labels_of(hub_pod) if path == LABELS else annotations_of(hub_pod)
    theirs = {k: v for k, v in values.items() if not k.startswith(PREFIX)}
    return format_map(theirs) if key is None else theirs.get(key, "")


def split_subscript(field_path: str) -> tuple[str, str | None]:
    """Split `metadata.labels['key']` into path and key; the key is None where there is none."""
    found = _SUBSCRIPTED.fullmatch(field_path)
    return (found[1], found[2]) if found else (field_path, None)


def _volume_items(spec: JsonObject) -> Iterator[Any]:
    """Yield the files of downward API volumes that tell a field of the pod."""
    for volume in spec.get("volumes") or ():
        sources = (volume.get("projected") or {}).get("sources") or ()
        for holder in (volume, *sources):
            for item in (holder.get("downwardAPI") or {}).get("items") or ():
                if item.get("fieldRef"):
                    yield item


# -- the environment -------------------------------------------------------------------------------


def _tell_variable(variable: JsonDict, hub_pod: JsonObject, flows: Flows) -> None:
    selector = (variable.get("valueFrom") or {}).get("fieldRef") or {}
    field_path = selector.get("fieldPath", "")
    if _is_told_by_mirror(field_path, flows):
        return
    fact = hub_fact(hub_pod, field_path)
    if fact is not None:
        del variable["valueFrom"]
        variable["value"] = escaped(fact)


def _is_told_by_mirror(field_path: str, flows: Flows) -> bool:
    _, key = split_subscript(field_path)
    return key is not None and flows(key)


def escaped(text: str) -> str:
    """Write a text so that a kubelet's expansion of `$(VAR)` and `$$` gives it back."""
    return text.replace("$", "$$")


# -- files -----------------------------------------------------------------------------------------


def _annotation_for(field_path: str, flows: Flows) -> str:
    """Name the annotation of the mirror that holds a fact; "" where the mirror has it itself."""
    path, key = split_subscript(field_path)
    if path in ("metadata.name", "metadata.namespace", "metadata.uid"):
        return _value_annotation(field_path)
    if path not in (LABELS, ANNOTATIONS):
        return ""
    if key is None:
        return HUB_LABELS_ANNOTATION if path == LABELS else HUB_ANNOTATIONS_ANNOTATION
    return "" if flows(key) else _value_annotation(field_path)


def _value_annotation(field_path: str) -> str:
    return f"{HUB_VALUE_ANNOTATION}-{hashlib.sha256(field_path.encode()).hexdigest()[:16]}"


def format_map(values: Mapping[str, str]) -> str:
    """Write a map as a kubelet writes it into a file: a line for each key, values quoted."""
    return "\n".join(f"{key}={quoted(values[key])}" for key in sorted(values, key=_utf8))


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


_ESCAPES: Mapping[str, str] = {
    "\a": r"\a",
    "\b": r"\b",
    "\f": r"\f",
    "\n": r"\n",
    "\r": r"\r",
    "\t": r"\t",
    "\v": r"\v",
    "\\": "\\\\",
    '"': '\\"',
}


def quoted(text: str) -> str:
    """Quote a text as Go's `%q` does."""
    return '"' + "".join(map(_quoted_character, text)) + '"'


def _quoted_character(character: str) -> str:
    code = ord(character)
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable():
        return character
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
