"""The marks federate leaves: what is ours, from which hub, virtual node and hub pod.

Uids and hashes stand in labels (they can be selected on), names in annotations (they may be longer
than a label value). Everything with our prefix is written by federate alone: it never flows from
hub metadata, so a user cannot forge a mark or a record.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import orjson

from federate.model.objects import (
    JsonDict,
    JsonObject,
    ObjectKey,
    annotations_of,
    labels_of,
    uid_of,
)

T = TypeVar("T")

PREFIX = "federate.dev/"
FIELD_MANAGER = "federate"

# -- labels of everything federate makes in a target --
HUB_LABEL = PREFIX + "hub"
"""Uid of the hub's kube-system namespace."""
VIRTUAL_NODE_LABEL = PREFIX + "virtual-node"
"""Hash of hub and node name, so that one selector finds, and one excludes, a node's objects."""
HUB_POD_UID_LABEL = PREFIX + "hub-pod-uid"

# -- scheduling gate of mirrors --
RECORDED_GATE = PREFIX + "recorded"
"""Keeps a mirror from being bound until its uid is on record on the hub pod (KEP-3521)."""

# -- annotations of mirrors --
NODE_NAME_ANNOTATION = PREFIX + "node-name"
HUB_POD_NAMESPACE_ANNOTATION = PREFIX + "hub-pod-namespace"
HUB_POD_NAME_ANNOTATION = PREFIX + "hub-pod-name"
HUB_POD_NAMESPACE_LABEL = HUB_POD_NAMESPACE_ANNOTATION
"""The same once more, to be selected on: by Services that followed. No mark; put back where it is
missing, as from mirrors that were made before there was one."""
HUB_GENERATION_ANNOTATION = PREFIX + "hub-generation"
"""The hub pod's generation of which all is applied."""
LAST_APPLIED_SPEC_ANNOTATION = PREFIX + "last-applied-spec"
"""What may change in a pod, as it was last taken over from the hub pod (C25)."""
MANAGED_KEYS_ANNOTATION = PREFIX + "managed-keys"
"""Which label and annotation keys came from the hub: the base of their three-way merge."""

MADE_AS_ANNOTATION = PREFIX + "made-as"
"""Fingerprint of what it was created as: whoever finds one that never ran compares (C26, C70)."""

HUB_LABELS_ANNOTATION = PREFIX + "hub-labels"
HUB_ANNOTATIONS_ANNOTATION = PREFIX + "hub-annotations"
"""All labels, and all annotations, of the hub pod as a kubelet writes them into a file (C32)."""
HUB_VALUE_ANNOTATION = PREFIX + "hub-value"
"""With a hash behind: one value of the hub pod's that the mirror does not have itself (C32)."""

# -- companions --
COMPANION_LABEL = PREFIX + "companion"
"""The kind, in small letters: tells companions from anchors and mirrors."""
COMPANION_OF_ANNOTATION = PREFIX + "companion-of"
"""Which object of the hub it stands for."""
TAKEN_UP_ANNOTATION = PREFIX + "taken-up"
"""Of a companion, how often another process put to use what it did not make; of a claim in the
target, which claim of the hub its data was given on to. Either changes the version."""

HUB_API_ANNOTATION = PREFIX + "hub-api"
"""Of the EndpointSlice that leads to the hub's API server: the address of its Service, by which
mirrors know it. Should that Service be deleted, whoever makes it anew asks for this one."""

SHARED_LABEL = PREFIX + "shared"
"""Put by people of the target on a ConfigMap or Secret of theirs, `true`: hub pods may name it."""

# -- annotation of claims in the target --
CLAIM_OF_ANNOTATION = PREFIX + "claim-of"
"""For which claim of the hub it was made."""

FOLLOW_LABEL = PREFIX + "follow"
"""On a Service of the hub, by its user: whether it is made in the targets of its pods (C33)."""

# -- annotations of target namespaces that federate made --
HUB_NAMESPACE_ANNOTATION = PREFIX + "hub-namespace"
USED_AT_ANNOTATION = PREFIX + "used-at"
"""Written when a virtual node begins to use a namespace that was there: changes its version."""

# -- annotations of hub pods --
RECORD_ANNOTATION = PREFIX + "mirror"
TARGET_ANNOTATION = PREFIX + "target"
TARGET_NODE_ANNOTATION = PREFIX + "target-node"

# -- annotations of the Node --
NODE_HUB_ANNOTATION = PREFIX + "hub"
LAST_APPLIED_ANNOTATION = PREFIX + "last-applied"
LAST_APPLIED_STATUS_ANNOTATION = PREFIX + "last-applied-status"
ANCHORS_ANNOTATION = PREFIX + "anchors"
REINSTALL_ANNOTATION = PREFIX + "reinstall"
TARGET_IDENTITY_ANNOTATION = PREFIX + "target-identity"
"""Uid of the target's kube-system namespace, or `unknown` where that may not be read (C5)."""
ACCEPT_TARGET_ANNOTATION = PREFIX + "accept-target"
"""An operator's word: the identity of a target that shall take the place of the one on record."""
SHOWN_RANGES_ANNOTATION = PREFIX + "shown-ranges"
"""The pod ranges of a target whose addresses hub pods show (C47)."""
LEAVING_ANNOTATION = PREFIX + "leaving"
"""Since when `federate leave` drains the virtual node: nothing new is mirrored."""

# -- annotation of the leader lease --
LEFT_ANNOTATION = PREFIX + "left"
"""Since when the virtual node is retired: a running federate gives the lease back, for good."""

ORIGIN_LABELS = (HUB_LABEL, VIRTUAL_NODE_LABEL, HUB_POD_UID_LABEL)
ORIGIN_ANNOTATIONS = (
    NODE_NAME_ANNOTATION,
    HUB_POD_NAMESPACE_ANNOTATION,
    HUB_POD_NAME_ANNOTATION,
)
"""What `origin_of` reads of a mirror."""


@lru_cache(maxsize=1024)
def _scope_hash(hub_id: str, node_name: str) -> str:
    return hashlib.sha256(f"{hub_id}\n{node_name}".encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """One virtual node of one hub: the bound of every list, sweep and delete in a target."""

    hub_id: str
    node_name: str

    @property
    def virtual_node_hash(self) -> str:
        """Sixteen hex digits that stand for hub and node name in a label."""
        return _scope_hash(self.hub_id, self.node_name)

    @property
    def selector(self) -> str:
        """Label selector of what this virtual node made."""
        return f"{HUB_LABEL}={self.hub_id},{VIRTUAL_NODE_LABEL}={self.virtual_node_hash}"

    @property
    def others_selector(self) -> str:
        """Label selector of everything else (objects without the label included)."""
        return f"{VIRTUAL_NODE_LABEL}!={self.virtual_node_hash}"

    def labels(self) -> dict[str, str]:
        """The labels of everything this virtual node makes."""
        return {HUB_LABEL: self.hub_id, VIRTUAL_NODE_LABEL: self.virtual_node_hash}

    def owns(self, obj: JsonObject) -> bool:
        """Tell whether the object carries exactly this scope's marks."""
        labels = labels_of(obj)
        return (
            labels.get(HUB_LABEL) == self.hub_id
            and labels.get(VIRTUAL_NODE_LABEL) == self.virtual_node_hash
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Which hub pod a mirror stands for."""

    scope: Scope
    pod: ObjectKey
    pod_uid: str

    def labels(self) -> dict[str, str]:
        """The labels a mirror carries."""
        return {**self.scope.labels(), HUB_POD_UID_LABEL: self.pod_uid}

    def annotations(self) -> dict[str, str]:
        """The annotations a mirror carries."""
        return {
            NODE_NAME_ANNOTATION: self.scope.node_name,
            HUB_POD_NAMESPACE_ANNOTATION: self.pod.namespace,
            HUB_POD_NAME_ANNOTATION: self.pod.name,
        }


def origin_of(obj: JsonObject) -> Origin | None:
    """Read the origin of a mirror; None where any mark is missing or they contradict."""
    labels, annotations = labels_of(obj), annotations_of(obj)
    scope = Scope(
        hub_id=labels.get(HUB_LABEL, ""), node_name=annotations.get(NODE_NAME_ANNOTATION, "")
    )
    pod = ObjectKey(
        annotations.get(HUB_POD_NAMESPACE_ANNOTATION, ""),
        annotations.get(HUB_POD_NAME_ANNOTATION, ""),
    )
    uid = labels.get(HUB_POD_UID_LABEL, "")
    # Who may write pods in the target must not lead requests to the hub anywhere but to a pod.
    if not (scope.owns(obj) and pod.can_exist and uid):
        return None
    return Origin(scope=scope, pod=pod, pod_uid=uid)


def carries_marks(obj: JsonObject) -> bool:
    """Tell whether the object is somebody's mirror, whatever hub it names (C3)."""
    labels = labels_of(obj)
    return any(mark in labels for mark in ORIGIN_LABELS)


RECORDS_KEPT = 1024
"""Parsed records that are remembered: a look at a pod reads its record several times."""
LONGEST_KEPT = 4096
"""Longer ones are parsed each time: ours are short, and strangers may write what they like."""


def parsed_once(parse: Callable[[str], T]) -> Callable[[object], T]:
    """Remember what texts of annotations say; `parse` returns what nobody changes.

    What is no text counts as an empty one: an API server sends none, a hostile one may.
    """
    known = lru_cache(maxsize=RECORDS_KEPT)(parse)

    def look(text: object) -> T:
        if not isinstance(text, str):
            return parse("")
        return known(text) if len(text) <= LONGEST_KEPT else parse(text)

    return look


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorRecord:
    """What a hub pod remembers of its mirror: where it is or will be, and its uid once known.

    Without `mirror_uid` it is an *intent*: a create may have been sent. `intended_at` (RFC 3339)
    tells one attempt from another; its age means nothing. A record names the hub pod's uid, because
    people copy manifests with their annotations.
    """

    pod_uid: str
    mirror: ObjectKey
    mirror_uid: str = ""
    intended_at: str = ""

    def format(self) -> str:
        """Render as the annotation's value."""
        value = {
            "podUID": self.pod_uid,
            "namespace": self.mirror.namespace,
            "name": self.mirror.name,
        }
        if self.mirror_uid:
            value["uid"] = self.mirror_uid
        if self.intended_at:
            value["intendedAt"] = self.intended_at
        return json.dumps(value, separators=(",", ":"))


def record_of(hub_pod: JsonObject) -> MirrorRecord | None:
    """Read a hub pod's record; None where there is none, it is unreadable, or another pod's.

    Whoever may annotate the pod can write it. So it decides nothing about other pods (one that
    needs its host port may wait for it: `mirror.admission`), nor about any place but where
    that very mirror stands in the target (`companions.demand.has_mirror`).
    """
    text = annotations_of(hub_pod).get(RECORD_ANNOTATION)
    record = _parse_record(text) if text else None
    return record if record is not None and record.pod_uid == uid_of(hub_pod) else None


def claims_mirror(hub_pod: JsonObject) -> bool:
    """Tell whether a hub pod has a mirror on record: no more than its record says (`record_of`)."""
    record = record_of(hub_pod)
    return record is not None and bool(record.mirror_uid)


@parsed_once
def _parse_record(text: str) -> MirrorRecord | None:
    try:
        value: JsonDict = orjson.loads(text)
        mirror = ObjectKey(str(value["namespace"]), str(value["name"]))
        record = MirrorRecord(
            pod_uid=str(value["podUID"]),
            mirror=mirror,
            mirror_uid=str(value.get("uid", "")),
            intended_at=str(value.get("intendedAt", "")),
        )
        return record if mirror.can_exist else None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
