"""Which claim of the hub a claim of the target stands for, and how either is found. Pure.

The name in the target is made of hub, virtual node and the hub's claim, its uid included: one that
is made anew under an old name gets storage of its own. Once a volume of the hub leads to a claim,
the volume's word counts: whoever writes volumes there is trusted with all storage, as on any
cluster, and may lead an old claim's data to a new one.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from functools import lru_cache
from typing import NamedTuple

from federate.claims.protocol import DRIVER
from federate.model.marks import CLAIM_OF_ANNOTATION, NODE_NAME_ANNOTATION, RECORDS_KEPT, Scope
from federate.model.naming import NAME_LIMIT
from federate.model.objects import (
    JsonObject,
    ObjectKey,
    annotations_of,
    key_of,
    metadata_of,
    spec_of,
    uid_of,
)

_UNREADABLE = re.compile(r"[^a-z0-9]+")
_UNIQUE_LENGTH = 16
"""Base32 digits of eighty bits: nobody finds a name that meets another's."""


class ClaimKey(NamedTuple):
    """One claim of the hub."""

    namespace: str
    name: str
    uid: str

    @property
    def hub_key(self) -> ObjectKey:
        """Where it is on the hub."""
        return ObjectKey(self.namespace, self.name)

    def __str__(self) -> str:
        return f"PersistentVolumeClaim {self.hub_key}"


class Handle(NamedTuple):
    """A claim of the target, as a volume of the hub names it."""

    namespace: str
    name: str
    uid: str

    @property
    def key(self) -> ObjectKey:
        """Where it is in the target."""
        return ObjectKey(self.namespace, self.name)

    def format(self) -> str:
        """Render as a volume handle."""
        return "/".join(self)


def claim_key(claim: JsonObject) -> ClaimKey:
    """Return the key of a claim of the hub."""
    return ClaimKey(*key_of(claim), uid_of(claim))


@lru_cache(maxsize=4096)
def target_claim_name(scope: Scope, key: ClaimKey) -> str:
    """Name a claim's stand-in: to be read in front, unique behind; a DNS label.

    The rule may never change: what is found by its name is not made twice.
    """
    # Neither names nor uids have line breaks, so no two different tuples join to the same text.
    identity = "\n".join((scope.hub_id, scope.node_name, "PersistentVolumeClaim", *key))
    digest = hashlib.sha256(identity.encode("utf-8", "surrogatepass")).digest()[:10]
    unique = base64.b32encode(digest).decode().lower()
    readable = _UNREADABLE.sub("-", key.name.lower()).strip("-")
    kept = readable[: NAME_LIMIT - _UNIQUE_LENGTH - 1].rstrip("-") or "unnamed"
    return f"{kept}-{unique}"


def volume_name(key: ClaimKey) -> str:
    """Name the hub's volume of a claim, as every provisioner does: two that race make one."""
    return f"pvc-{key.uid}"


# -- marks of a claim in the target ----------------------------------------------------------------


def claim_annotations(scope: Scope, key: ClaimKey) -> dict[str, str]:
    """Return the annotations of a claim in the target; its labels are the scope's."""
    return {
        NODE_NAME_ANNOTATION: scope.node_name,
        CLAIM_OF_ANNOTATION: json.dumps(key._asdict(), separators=(",", ":")),
    }


def origin_of_claim(scope: Scope, obj: JsonObject) -> ClaimKey | None:
    """Read for which claim of the hub an object was made; None where a mark or its name says no.

    All must agree: who may edit marks must not make us take one object for another.
    """
    if not scope.owns(obj):
        return None
    key = _parse_origin(annotations_of(obj).get(CLAIM_OF_ANNOTATION) or "")
    if key is None or metadata_of(obj).get("name") != target_claim_name(scope, key):
        return None
    return key


@lru_cache(maxsize=RECORDS_KEPT)
def _parse_origin(text: str) -> ClaimKey | None:
    try:
        value = json.loads(text)
        key = ClaimKey(str(value["namespace"]), str(value["name"]), str(value["uid"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return key if all(key) else None


# -- marks of a volume on the hub ------------------------------------------------------------------


def is_federates(volume: JsonObject) -> bool:
    """Tell whether a volume of the hub is some federate's, of whatever virtual node."""
    return (spec_of(volume).get("csi") or {}).get("driver") == DRIVER


def handle_of(scope: Scope, volume: JsonObject) -> Handle | None:
    """Read to which claim of this scope's target a volume of the hub leads; None: to none."""
    if not is_federates(volume) or not scope.owns(volume):
        return None
    parts = str(spec_of(volume)["csi"].get("volumeHandle", "")).split("/")
    return Handle(*parts) if len(parts) == len(Handle._fields) and all(parts) else None


def node_named_by(volume: JsonObject) -> str:
    """Return the virtual node that a volume of ours is pinned to, "" where none is named."""
    name: str = annotations_of(volume).get(NODE_NAME_ANNOTATION, "")
    return name
