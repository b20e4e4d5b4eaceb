"""What federate makes itself, and copies from nobody: tokens, and news of Services. Pure.

They stand in the target like companions, under generated names that no pod can choose: Secrets with
an entry that owns them, ConfigMaps owned by the anchor and found by their marks. The rule for names
may never change: mirrors that run carry them.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import NamedTuple

from federate.companions.entries import lines_of
from federate.companions.keys import Kind, is_object_name
from federate.companions.render import CONTENTS, owner_reference
from federate.model.marks import (
    COMPANION_LABEL,
    COMPANION_OF_ANNOTATION,
    NODE_NAME_ANNOTATION,
    Scope,
)
from federate.model.naming import NAME_LIMIT
from federate.model.objects import (
    JsonDict,
    JsonObject,
    ObjectKey,
    annotations_of,
    labels_of,
    metadata_of,
)
from federate.model.resources import Resource

_UNREADABLE = re.compile(r"[^a-z0-9]+")
_UNIQUE_LENGTH = 16
"""Base32 digits of eighty bits, as companions have them."""

LINKED = "linked"
UNLINKED = "unlinked"


class IssuedKind(StrEnum):
    """What is issued."""

    TOKENS = "Tokens"
    """A Secret for each hub pod, with all tokens that its volumes ask for (C31)."""
    SERVICES = "Services"
    """A ConfigMap for each hub namespace: the variables that tell of its Services (C32)."""

    @property
    def kind(self) -> Kind:
        """What kind of object it is."""
        return Kind.SECRET if self is IssuedKind.TOKENS else Kind.CONFIGMAP


class IssuedKey(NamedTuple):
    """One issued object. Tokens: of the pod of that name and uid. Services: linked or unlinked."""

    target_namespace: str
    kind: IssuedKind
    namespace: str
    name: str
    uid: str = ""

    @property
    def pod(self) -> ObjectKey:
        """The hub pod that tokens are for."""
        return ObjectKey(self.namespace, self.name)

    @property
    def resource(self) -> Resource:
        """Where it is in the API."""
        return self.kind.kind.resource

    def __str__(self) -> str:
        if self.kind is IssuedKind.TOKENS:
            return f"tokens of pod {self.pod}"
        return f"environment of Services in {self.namespace}"


def token_key(hub_pod: JsonObject, target_namespace: str) -> IssuedKey:
    """Say which object holds the tokens of a hub pod."""
    metadata = metadata_of(hub_pod)
    return IssuedKey(
        target_namespace,
        IssuedKind.TOKENS,
        metadata.get("namespace") or "",
        metadata.get("name") or "",
        metadata.get("uid") or "",
    )


def services_key(target_namespace: str, hub_namespace: str, *, has_links: bool) -> IssuedKey:
    """Say which object tells the pods of a hub namespace of Services."""
    name = LINKED if has_links else UNLINKED
    return IssuedKey(target_namespace, IssuedKind.SERVICES, hub_namespace, name)


def place_of(scope: Scope, key: IssuedKey) -> ObjectKey:
    """Say where it stands in the target: to be read in front, unique behind."""
    # One part more than a companion's identity has: the two never meet.
    identity = "\n".join(
        (scope.hub_id, scope.node_name, key.kind, key.namespace, key.name, key.uid)
    )
    digest = hashlib.sha256(identity.encode()).digest()[:10]
    unique = base64.b32encode(digest).decode().lower()
    what = key.name if key.kind is IssuedKind.TOKENS else f"services-{key.name}"
    readable = _UNREADABLE.sub("-", what.lower()).strip("-")
    kept = readable[: NAME_LIMIT - _UNIQUE_LENGTH - 1].rstrip("-")
    return ObjectKey(key.target_namespace, f"{kept}-{unique}")


# -- marks and lists -------------------------------------------------------------------------------


def listing_of(key: IssuedKey) -> str:
    """Return what its entry, or its own mark, says that it is."""
    return " ".join(part for part in (key.kind, f"{key.namespace}/{key.name}", key.uid) if part)


def _parsed(target_namespace: str, entry: str) -> IssuedKey | None:
    kind, _, rest = entry.partition(" ")
    place, _, uid = rest.partition(" ")
    namespace, slash, name = place.partition("/")
    # Who may write entries could put a path there: what cannot be a name is never asked for.
    is_sound = slash and is_object_name(namespace) and is_object_name(name)
    if kind not in tuple(IssuedKind) or not is_sound:
        return None
    return IssuedKey(target_namespace, IssuedKind(kind), namespace, name, uid)


def issued_in(scope: Scope, lister: JsonObject) -> Iterator[IssuedKey]:
    """Yield what an entry, or an anchor, tells of: where name and words agree."""
    namespace: str = metadata_of(lister).get("namespace") or ""
    for name, entry in lines_of(lister).items():
        key = _parsed(namespace, entry)
        if key is not None and place_of(scope, key).name == name:
            yield key


def issued_of(scope: Scope, obj: JsonObject) -> IssuedKey | None:
    """Read which issued object of this scope it is; None where a mark or its name says no."""
    if not scope.owns(obj):
        return None
    metadata = metadata_of(obj)
    key = _parsed(
        metadata.get("namespace") or "", annotations_of(obj).get(COMPANION_OF_ANNOTATION, "")
    )
    if key is None or labels_of(obj).get(COMPANION_LABEL) != key.kind.lower():
        return None
    return key if metadata.get("name") == place_of(scope, key).name else None


def render_issued(
    key: IssuedKey, values: Mapping[str, str], *, scope: Scope, owner: JsonObject
) -> JsonDict:
    """Render it; a Secret's values are given, and returned, in base64. The owner takes it along."""
    place = place_of(scope, key)
    body: JsonDict = {
        "apiVersion": "v1",
        "kind": str(key.kind.kind),
        "metadata": {
            "namespace": place.namespace,
            "name": place.name,
            "labels": {**scope.labels(), COMPANION_LABEL: key.kind.lower()},
            "annotations": {
                NODE_NAME_ANNOTATION: scope.node_name,
                COMPANION_OF_ANNOTATION: listing_of(key),
            },
            "ownerReferences": [owner_reference(owner)],
        },
        CONTENTS[key.kind.kind][0]: dict(values),
    }
    if key.kind is IssuedKind.TOKENS:
        body["type"] = "Opaque"
    return body
