"""Which object of the hub a companion stands for, where, and under what name. Pure.

A companion's name is made of hub, virtual node, kind, namespace and name: no two companions share
one, and no user can choose a name that leads to an object of the target. The rule may never
change: mirrors that run carry these names.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from federate.model.marks import (
    COMPANION_LABEL,
    COMPANION_OF_ANNOTATION,
    NODE_NAME_ANNOTATION,
    RECORDS_KEPT,
    Scope,
)
from federate.model.naming import NAME_LIMIT
from federate.model.objects import (
    JsonObject,
    ObjectKey,
    annotations_of,
    labels_of,
    metadata_of,
)
from federate.model.objects import is_object_name as is_object_name
from federate.model.resources import CONFIGMAPS, SECRETS, Resource

_UNREADABLE = re.compile(r"[^a-z0-9]+")
_UNIQUE_LENGTH = 16
"""Base32 digits of eighty bits: nobody finds a name that meets another's."""


class Kind(StrEnum):
    """What kinds of objects come along."""

    CONFIGMAP = "ConfigMap"
    SECRET = "Secret"  # noqa: S105 (a kind)

    @property
    def resource(self) -> Resource:
        """Where such objects are in the API."""
        return SECRETS if self is Kind.SECRET else CONFIGMAPS


class CompanionKey(NamedTuple):
    """One companion: which object of the hub, and in which namespace of the target it stands.

    A changed namespace strategy moves no mirror, so one object may have companions in two places.
    """

    target_namespace: str
    kind: Kind
    namespace: str
    name: str

    @property
    def hub_key(self) -> ObjectKey:
        """The object it stands for."""
        return ObjectKey(self.namespace, self.name)

    @property
    def can_exist(self) -> bool:
        """Tell whether the hub may have an object of that name.

        API servers check names in the environment, but not those of volumes and pull secrets: one
        may be anything, and must not become a part of a URL. Nor must a namespace that somebody
        wrote on a list in the target.
        """
        return self.hub_key.can_exist

    def __str__(self) -> str:
        return f"{self.kind} {self.hub_key}"


@lru_cache(maxsize=4096)
def companion_name(scope: Scope, kind: Kind, hub_key: ObjectKey) -> str:
    """Name a companion: to be read in front, unique behind; a DNS label, whatever the name is."""
    # Only the last part is a user's free text, so no two different tuples join to the same text.
    identity = "\n".join((scope.hub_id, scope.node_name, kind, hub_key.namespace, hub_key.name))
    digest = hashlib.sha256(identity.encode("utf-8", "surrogatepass")).digest()[:10]
    unique = base64.b32encode(digest).decode().lower()
    readable = _UNREADABLE.sub("-", hub_key.name.lower()).strip("-")
    kept = readable[: NAME_LIMIT - _UNIQUE_LENGTH - 1].rstrip("-") or "unnamed"
    return f"{kept}-{unique}"


def name_of(scope: Scope, key: CompanionKey) -> ObjectKey:
    """Say where the companion stands in the target."""
    return ObjectKey(key.target_namespace, companion_name(scope, key.kind, key.hub_key))


# -- marks -----------------------------------------------------------------------------------------


def companion_labels(scope: Scope, key: CompanionKey) -> dict[str, str]:
    """Return the labels of a companion; the hub object's own might mean something in the target."""
    return {**scope.labels(), COMPANION_LABEL: key.kind.lower()}


def companion_annotations(scope: Scope, key: CompanionKey) -> dict[str, str]:
    """Return the annotations of a companion."""
    told = {"kind": key.kind, "namespace": key.namespace, "name": key.name}
    return {
        NODE_NAME_ANNOTATION: scope.node_name,
        COMPANION_OF_ANNOTATION: json.dumps(told, separators=(",", ":")),
    }


def companion_of(scope: Scope, obj: JsonObject) -> CompanionKey | None:
    """Read which companion of this scope an object is; None where a mark or its name says no.

    All must agree: who may edit marks must not make us take one object for another.
    """
    if not scope.owns(obj):
        return None
    told = _parse_told(annotations_of(obj).get(COMPANION_OF_ANNOTATION, ""))
    if told is None:
        return None
    kind, namespace, name = told
    key = CompanionKey(metadata_of(obj).get("namespace") or "", kind, namespace, name)
    is_named = metadata_of(obj).get("name") == companion_name(scope, kind, key.hub_key)
    is_labelled = labels_of(obj).get(COMPANION_LABEL) == kind.lower()
    return key if is_named and is_labelled else None


@lru_cache(maxsize=RECORDS_KEPT)
def _parse_told(text: str) -> tuple[Kind, str, str] | None:
    try:
        value = json.loads(text)
        return Kind(value["kind"]), str(value["namespace"]), str(value["name"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


# -- names in a target's words ---------------------------------------------------------------------


def hub_names(scope: Scope, keys: Iterable[CompanionKey]) -> dict[ObjectKey, ObjectKey]:
    """Say of each companion which object it stands for: what `in_hub_words` needs."""
    return {name_of(scope, key): key.hub_key for key in keys}


def in_hub_words(text: str, names: Mapping[ObjectKey, ObjectKey]) -> str:
    """Put the hub's names for those of companions, in what a kubelet or scheduler says.

    Generated names occur nowhere else. Where the namespace stands before one (`ns/name`, or both
    quoted) it becomes the hub's too.
    """
    hub_keys = {target.name: hub for target, hub in names.items()}
    if not any(name in text for name in hub_keys):
        return text
    either = "|".join(
        rf'(?:{re.escape(target.namespace)}("/"|/))?{re.escape(target.name)}' for target in names
    )
    # Whole names only: one may be the beginning of another.
    pattern = rf"(?<![a-z0-9-])(?:{either})(?![a-z0-9-])"

    def said(found: re.Match[str]) -> str:
        hub = hub_keys[re.split(r'"/"|/', found[0])[-1]]
        between = next((group for group in found.groups() if group), "")
        return f"{hub.namespace}{between}{hub.name}" if between else hub.name

    return re.sub(pattern, said, text)
