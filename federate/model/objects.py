"""JSON objects as they travel, and safe ways to read them.

Objects stay JSON from wire to wire: unknown fields survive. What comes in is read-only
(`JsonObject`); what goes out is a fresh `dict`. Accessors return empty values for what is absent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import orjson

JsonObject: TypeAlias = Mapping[str, Any]
JsonDict: TypeAlias = dict[str, Any]

_EMPTY: JsonObject = {}

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_SUBDOMAIN_LIMIT = 253


def is_object_name(name: str) -> bool:
    """Tell whether an object may be called so (RFC 1123 subdomain).

    What somebody wrote into a spec, an annotation or a list may be anything: it must be asked
    before it becomes a part of a URL, where `x/proxy` leads elsewhere than to a pod of that name.
    """
    return len(name) <= _SUBDOMAIN_LIMIT and _SUBDOMAIN.fullmatch(name) is not None


class ObjectKey(NamedTuple):
    """Namespace and name; the namespace is "" for cluster-scoped objects.

    A tuple, because thousands are made and looked up for each pod.
    """

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def can_exist(self) -> bool:
        """Tell whether an object of a namespace may be called so; see `is_object_name`."""
        return is_object_name(self.namespace) and is_object_name(self.name)


def copied(value: Any) -> Any:
    """Copy JSON all the way down, in a third of the time of `copy.deepcopy`."""
    if isinstance(value, dict):
        return {name: copied(inner) for name, inner in value.items()}
    return [copied(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def fingerprint_of(value: Any) -> str:
    """Return a text that is the same for the same JSON, whatever the order of its keys."""
    return orjson.dumps(value, default=as_plain, option=orjson.OPT_SORT_KEYS).decode()


def as_plain(value: object) -> Any:
    """Let orjson write read-only mappings too; give it to its `default`."""
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is no JSON")


def metadata_of(obj: JsonObject) -> JsonObject:
    """Return the metadata, empty where there is none."""
    return obj.get("metadata") or _EMPTY


def drop_managed_fields(obj: JsonDict) -> JsonDict:
    """Return the object without `metadata.managedFields`, often half of its size."""
    metadata = metadata_of(obj)
    if "managedFields" not in metadata:
        return obj
    return {**obj, "metadata": {k: v for k, v in metadata.items() if k != "managedFields"}}


def key_of(obj: JsonObject) -> ObjectKey:
    """Return the object's key."""
    meta = metadata_of(obj)
    return ObjectKey(meta.get("namespace") or "", meta.get("name") or "")


def uid_of(obj: JsonObject) -> str:
    """Return the uid, "" where there is none."""
    uid: str = metadata_of(obj).get("uid") or ""
    return uid


def resource_version_of(obj: JsonObject) -> str:
    """Return the resourceVersion; it is opaque and never ordered."""
    version: str = metadata_of(obj).get("resourceVersion") or ""
    return version


def labels_of(obj: JsonObject) -> Mapping[str, str]:
    """Return the labels."""
    return metadata_of(obj).get("labels") or {}


def annotations_of(obj: JsonObject) -> Mapping[str, str]:
    """Return the annotations."""
    return metadata_of(obj).get("annotations") or {}


def spec_of(obj: JsonObject) -> JsonObject:
    """Return the spec."""
    return obj.get("spec") or _EMPTY


def status_of(obj: JsonObject) -> JsonObject:
    """Return the status."""
    return obj.get("status") or _EMPTY


def is_terminating(obj: JsonObject) -> bool:
    """Tell whether the object carries a deletionTimestamp."""
    return bool(metadata_of(obj).get("deletionTimestamp"))


def controller_of(obj: JsonObject) -> JsonObject | None:
    """Return the ownerReference with `controller: true`, if there is one."""
    references: Sequence[JsonObject] = metadata_of(obj).get("ownerReferences") or ()
    return next((r for r in references if r.get("controller")), None)


def condition_of(obj: JsonObject, condition_type: str) -> JsonObject | None:
    """Return the status condition of that type, if there is one."""
    conditions: Sequence[JsonObject] = status_of(obj).get("conditions") or ()
    return next((c for c in conditions if c.get("type") == condition_type), None)
