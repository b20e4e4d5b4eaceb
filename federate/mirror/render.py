"""Render the mirror that ought to exist for a hub pod. Pure.

The mirror's spec is the *whole* hub spec less a deny list, never an allow list: a field of a newer
Kubernetes travels without anybody adding it here. A test made from the API schema proves each
field. Deciding twice on the same input gives the same object.

What is left of it points at companions instead of the hub's objects (C30), and tells facts of the
hub pod instead of the mirror's (C32).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import orjson

from federate.claims.places import with_claims
from federate.claims.rules import ClaimRules
from federate.claims.words import mirror_words
from federate.companions.downward import facts_read, with_hub_facts
from federate.companions.keys import Kind
from federate.companions.render import owner_reference
from federate.companions.rewrite import renaming, with_companion_names
from federate.companions.words import Words, as_said, hub_words
from federate.mirror.applied import (
    Part,
    changeable,
    generation_of,
    record_annotations,
)
from federate.model.marks import (
    HUB_POD_NAMESPACE_LABEL,
    MADE_AS_ANNOTATION,
    MANAGED_KEYS_ANNOTATION,
    PREFIX,
    RECORDED_GATE,
    Origin,
    Scope,
    parsed_once,
)
from federate.model.objects import (
    JsonDict,
    JsonObject,
    ObjectKey,
    annotations_of,
    copied,
    fingerprint_of,
    key_of,
    labels_of,
    metadata_of,
    spec_of,
    uid_of,
)
from federate.model.pods import (
    CONTAINER_FIELDS,
    NODE_TYPE_LABEL,
    VIRTUAL_NODE_TYPE,
    admission_token_volumes,
    is_token_mount,
)
from federate.patch.document import STRATEGIC, PatchBody
from federate.policy.placing import travelling_selector, travelling_term
from federate.policy.rules import PolicyRules
from federate.policy.verdict import (
    applied,
    applied_annotations,
    applied_debugger,
    applied_labels,
    applied_tolerations,
    asked_spec,
    is_travelling_key,
)
from federate.services.dns import DnsRules, with_dns
from federate.services.hubnames import UNLED, HubApi, with_hub_names

NEVER_TRAVELS: Mapping[str, str] = {
    "nodeName": "names a node of the hub",
    "priority": "admission computes it from the class and refuses another number",
    "preemptionPolicy": "admission computes it from the priority class",
    "overhead": "admission computes it from the runtime class and refuses another",
    "readinessGates": "their conditions are written on the hub, and evaluated there",
    "schedulingGates": "were opened on the hub before the pod was bound",
    "serviceAccountName": "names an identity of the hub",
    "serviceAccount": "the deprecated twin of serviceAccountName",
    "ephemeralContainers": "are added through their own subresource; a create with them is refused",
    "workloadRef": "names a Workload object of the hub (1.35)",
    "schedulingGroup": "names a PodGroup object of the hub",
}
"""Fields of a hub pod's spec that stay behind, with the reason."""

NEVER_FLOWS = "kubectl.kubernetes.io/last-applied-configuration"
"""The pod as somebody wrote it on the hub: as large as the pod, and of no use in the target."""

HOSTNAME_LIMIT = 63

NO_CLAIMS: Mapping[str, str] = {}

NOT_VIRTUAL: JsonObject = {
    "key": NODE_TYPE_LABEL,
    "operator": "NotIn",
    "values": [VIRTUAL_NODE_TYPE],
}
"""Keeps a mirror off every virtual node, so that mirrors of mirrors cannot arise (C3)."""


class Identity(Protocol):
    """Who the containers of a mirror are, where that is not nobody (C31)."""

    @property
    def brings_tokens(self) -> bool:
        """Whether the hub's service account tokens come along."""

    @property
    def travelling_tokens(self) -> bool:
        """Whether a token that a pod's own volume asks for is there, of whichever cluster."""

    def dress(self, spec: JsonObject, hub_pod: JsonObject) -> JsonDict:
        """Return a copy of a mirror's spec, or of a part of one, with tokens and service account.

        It is given what the hub pod's token volumes became: all but their tokens is the target's.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderRules:
    """What differs between targets in how a mirror is rendered."""

    scope: Scope | None = None
    """The virtual node whose companions come along; None where none do."""
    shared: frozenset[tuple[Kind, str]] = frozenset()
    """Objects of the target that hub pods may use, by their own names."""
    identity: Identity | None = None
    policy: PolicyRules = field(default_factory=PolicyRules)
    claims: ClaimRules = field(default_factory=ClaimRules)
    dns: DnsRules = field(default_factory=DnsRules)
    hub_api: HubApi = UNLED
    """Where the names of the hub's API server lead, in the target namespace of one mirror."""
    keeps_names: bool = True
    """A mirror has its hub pod's name: what a kubelet makes of the name may be left to it."""

    @property
    def brings_tokens(self) -> bool:
        """Whether the hub's service account tokens come along."""
        return self.identity is not None and self.identity.brings_tokens

    @property
    def travelling_tokens(self) -> bool:
        """Whether a token that a pod's own volume asks for is there, of whichever cluster."""
        return self.identity is not None and self.identity.travelling_tokens

    def flows(self, key: str) -> bool:
        """Tell whether a label or annotation of that key is on the mirror as on the hub pod."""
        return is_travelling_key(key, self.policy) and not is_own_key(key)

    def sharing(self, shared: frozenset[tuple[Kind, str]] | None) -> RenderRules:
        """Return the same rules, by which these objects of the target keep their names, too."""
        return replace(self, shared=self.shared | shared) if shared else self

    def leading(self, hub_api: HubApi) -> RenderRules:
        """Return the same rules for mirrors of a target namespace where the names lead there."""
        return replace(self, hub_api=hub_api)

    def words(self, hub_pod: JsonObject, target_namespace: str) -> Words:
        """Return what puts the target's words about a mirror into the hub's."""
        if self.scope is None:
            return as_said
        return hub_words(
            self.scope,
            hub_pod,
            target_namespace,
            shared=self.shared,
            brings_tokens=self.brings_tokens,
        )

    def words_of(self, hub_pod: JsonObject, mirror: JsonObject) -> Words:
        """Return the same for a mirror that is known: it names its claims itself."""
        companions = self.words(hub_pod, key_of(mirror).namespace)
        claims = mirror_words(hub_pod, mirror)
        return lambda text: claims(companions(text))


def render_mirror(
    hub_pod: JsonObject,
    *,
    origin: Origin,
    mirror: ObjectKey,
    anchor: JsonObject,
    rules: RenderRules,
    claim_names: Mapping[str, str] = NO_CLAIMS,
) -> JsonDict:
    """Render the mirror pod; `anchor` becomes its controller, so nothing else can adopt it.

    `claim_names` are the target's claims by the volumes of the pod that are some.

    It is born gated: it waits until its uid is on record, so that a create which arrives late, or
    a second time, never runs (C20, C70).
    """
    looks = looks_of(hub_pod, origin=origin, rules=rules, claim_names=claim_names)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": mirror.namespace,
            "name": mirror.name,
            "labels": looks.labels,
            "annotations": {**looks.annotations, MADE_AS_ANNOTATION: looks.fingerprint},
            "ownerReferences": [owner_reference(anchor)],
        },
        "spec": looks.spec,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Looks:
    """All of a new mirror that hub pod and rules decide: place and owner come on top."""

    labels: dict[str, str]
    annotations: dict[str, str]
    spec: JsonDict

    @property
    def fingerprint(self) -> str:
        """Tells mirrors apart that were made by other rules, or of another state of the hub pod.

        The whole hash: hub users choose most of what goes into it.
        """
        text = fingerprint_of([self.labels, self.annotations, self.spec])
        return hashlib.sha256(text.encode()).hexdigest()

    def are_those_of(self, mirror: JsonObject) -> bool:
        """Tell whether a mirror was made as this; what became of it since does not count."""
        return annotations_of(mirror).get(MADE_AS_ANNOTATION) == self.fingerprint


def looks_of(
    hub_pod: JsonObject,
    *,
    origin: Origin,
    rules: RenderRules,
    claim_names: Mapping[str, str] = NO_CLAIMS,
) -> Looks:
    """Render what the mirror of a hub pod would be if it were made now."""
    labels, annotations = flowing_metadata(hub_pod, rules)
    spec = gated_spec(hub_pod, rules, claim_names)
    own_annotations = {
        **origin.annotations(),
        **facts_read(spec, hub_pod, rules.flows),
        MANAGED_KEYS_ANNOTATION: format_managed_keys(labels, annotations),
        **_creation_record(hub_pod, rules),
    }
    return Looks(
        labels={**labels, **_told_labels(hub_pod), **origin.labels()},
        annotations={**annotations, **own_annotations},
        spec=spec,
    )


def _creation_record(hub_pod: JsonObject, rules: RenderRules) -> dict[str, str]:
    """Record what the mirror is created with.

    Debug containers are added afterwards: until then the hub pod's generation is not all applied.
    """
    wanted = applicable(hub_pod, rules)
    applied = {**wanted, Part.DEBUGGERS: []}
    return record_annotations(applied, "" if wanted[Part.DEBUGGERS] else generation_of(hub_pod))


def applicable(hub_pod: JsonObject, rules: RenderRules) -> dict[Part, Any]:
    """Return what of a hub pod's spec may change later, as its mirror shall have it."""
    return changeable(spec_of(hub_pod), tolerations=kept_tolerations(spec_of(hub_pod), rules))


def gated_spec(
    hub_pod: JsonObject, rules: RenderRules, claim_names: Mapping[str, str] = NO_CLAIMS
) -> JsonDict:
    """Render the mirror's spec as it is created: behind our gate."""
    spec = render_spec(hub_pod, rules, claim_names)
    return {**spec, "schedulingGates": [{"name": RECORDED_GATE}]}


def ungating_patch(mirror: JsonObject) -> PatchBody:
    """Lift our gate, and no other, from that very mirror; again does no harm."""
    return PatchBody(
        media_type=STRATEGIC,
        body={
            "metadata": {"uid": uid_of(mirror)},
            "spec": {"schedulingGates": [{"$patch": "delete", "name": RECORDED_GATE}]},
        },
    )


def render_spec(
    hub_pod: JsonObject, rules: RenderRules, claim_names: Mapping[str, str] = NO_CLAIMS
) -> JsonDict:
    """Render the mirror's spec.

    Raises:
        KeyError: a volume is a claim, and `claim_names` has none for it: under the hub's name it
            would be whatever is called so in the target.
    """
    allowed = applied(asked_spec(hub_pod), rules.policy)
    spec: JsonDict = {
        key: copied(value) for key, value in allowed.items() if key not in NEVER_TRAVELS
    }
    if not rules.brings_tokens:
        _drop_admission_tokens(spec)
    _set_or_drop(spec, "tolerations", kept_tolerations(spec, rules))
    _render_node_selector(spec, rules)
    _render_node_affinity(spec, rules)
    _render_hostname(spec, metadata_of(hub_pod).get("name", ""), rules)
    spec["automountServiceAccountToken"] = False
    spec["enableServiceLinks"] = False
    asking = with_dns(with_claims(spec, claim_names), rules.dns)
    asking = with_hub_names(asking, key_of(hub_pod).namespace, rules.hub_api)
    return _as_the_target_reads_it(asking, hub_pod, rules)


def _as_the_target_reads_it(spec: JsonDict, hub_pod: JsonObject, rules: RenderRules) -> JsonDict:
    """Let a spec, or a part of one, tell of the hub pod and point at what came along with it."""
    told = with_hub_facts(spec, hub_pod, rules.flows)
    if rules.scope is not None:
        namespace: str = metadata_of(hub_pod).get("namespace") or ""
        told = with_companion_names(told, renaming(rules.scope, namespace, rules.shared))
    return told if rules.identity is None else rules.identity.dress(told, hub_pod)


def rendered_debugger(container: JsonObject, hub_pod: JsonObject, rules: RenderRules) -> JsonDict:
    """Render a debug container: without the mount of a token volume that the mirror lacks."""
    allowed = applied_debugger(container, hub_pod, rules.policy)
    part: JsonDict = {"ephemeralContainers": [copied(allowed)]}
    if not rules.brings_tokens:
        _drop_token_mounts(part, admission_token_volumes(spec_of(hub_pod)))
    rendered: JsonDict = _as_the_target_reads_it(part, hub_pod, rules)["ephemeralContainers"][0]
    return rendered


def _drop_admission_tokens(spec: JsonDict) -> None:
    token_volumes = admission_token_volumes(spec)
    if not token_volumes:
        return
    _set_or_drop(spec, "volumes", [v for v in spec["volumes"] if v["name"] not in token_volumes])
    _drop_token_mounts(spec, token_volumes)


def _drop_token_mounts(spec: JsonDict, token_volumes: frozenset[str]) -> None:
    for kind in CONTAINER_FIELDS:
        for container in spec.get(kind) or ():
            mounts = container.get("volumeMounts") or ()
            kept = [m for m in mounts if not is_token_mount(m, token_volumes)]
            _set_or_drop(container, "volumeMounts", kept)


def kept_tolerations(spec: JsonObject, rules: RenderRules) -> list[JsonDict]:
    """Drop what would tolerate a virtual node: its taint by key, and the blanket toleration."""
    return [
        dict(toleration)
        for toleration in applied_tolerations(spec, rules.policy)
        if toleration.get("key") and toleration["key"] not in rules.policy.own_taint_keys
    ]


def _render_node_selector(spec: JsonDict, rules: RenderRules) -> None:
    kept = travelling_selector(spec.get("nodeSelector") or {}, rules.policy.node_keys)
    _set_or_drop(spec, "nodeSelector", kept)


def _render_node_affinity(spec: JsonDict, rules: RenderRules) -> None:
    """Keep the terms on common keys; every required term excludes virtual nodes."""
    affinity: JsonDict = spec.setdefault("affinity", {})
    node_affinity: JsonDict = affinity.setdefault("nodeAffinity", {})
    required = node_affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    keys = rules.policy.node_keys
    terms = [travelling_term(t, keys) for t in required.get("nodeSelectorTerms") or ()] or [{}]
    for term in terms:
        term["matchExpressions"] = [*term.get("matchExpressions", ()), copied(NOT_VIRTUAL)]
    node_affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {
        "nodeSelectorTerms": _distinct(terms)
    }
    preferred = [
        {**preference, "preference": term}
        for preference in node_affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
        if (term := travelling_term(preference.get("preference") or {}, keys))
    ]
    _set_or_drop(node_affinity, "preferredDuringSchedulingIgnoredDuringExecution", preferred)


def _distinct(terms: Sequence[JsonDict]) -> list[JsonDict]:
    distinct: list[JsonDict] = []
    for term in terms:
        if term not in distinct:
            distinct.append(term)
    return distinct


def _render_hostname(spec: JsonDict, pod_name: str, rules: RenderRules) -> None:
    """Set an unset hostname to the hub pod's name, cut as a kubelet cuts it.

    A name with dots stays unset: it is no valid `hostname`, and the kubelet derives it from the
    pod's name. Where the mirror's name is another, dots become dashes: closer one cannot come. A
    pod in the host's network has the host's name.
    """
    if spec.get("hostname") or spec.get("hostNetwork") or spec.get("hostnameOverride"):
        return
    hostname = pod_name[:HOSTNAME_LIMIT].rstrip("-.")
    if not rules.keeps_names:
        hostname = hostname.replace(".", "-")
    if hostname and "." not in hostname:
        spec["hostname"] = hostname


def _set_or_drop(holder: JsonDict, key: str, value: Any) -> None:
    if value:
        holder[key] = value
    else:
        holder.pop(key, None)


def flowing_metadata(
    hub_pod: JsonObject, rules: RenderRules
) -> tuple[dict[str, str], dict[str, str]]:
    """Labels and annotations that flow to the mirror: all but ours and what the policy denies."""
    return (
        applied_labels(_not_ours(labels_of(hub_pod)), rules.policy),
        applied_annotations(_not_ours(annotations_of(hub_pod)), rules.policy),
    )


def _not_ours(values: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in values.items() if not is_own_key(key)}


def _told_labels(hub_pod: JsonObject) -> dict[str, str]:
    """Labels of the mirror that are ours and no marks."""
    return {HUB_POD_NAMESPACE_LABEL: key_of(hub_pod).namespace}


def is_own_key(key: str) -> bool:
    """Tell whether a label or annotation stays behind whatever the policy says."""
    return key.startswith((PREFIX, NEVER_FLOWS))


def format_managed_keys(labels: Mapping[str, str], annotations: Mapping[str, str]) -> str:
    """Render the record of keys that came from the hub (C24)."""
    return json.dumps(
        {"labels": sorted(labels), "annotations": sorted(annotations)}, separators=(",", ":")
    )


def parse_managed_keys(mirror: JsonObject) -> tuple[frozenset[str], frozenset[str]]:
    """Read the record of keys that came from the hub; empty where it is unreadable."""
    return _parse_managed_keys(annotations_of(mirror).get(MANAGED_KEYS_ANNOTATION, "{}"))


@parsed_once
def _parse_managed_keys(text: str) -> tuple[frozenset[str], frozenset[str]]:
    try:
        value = orjson.loads(text)
        return frozenset(value.get("labels", ())), frozenset(value.get("annotations", ()))
    except (ValueError, AttributeError, TypeError, RecursionError):
        return frozenset(), frozenset()


def metadata_changes(
    hub_pod: JsonObject, mirror: JsonObject, rules: RenderRules
) -> JsonDict | None:
    """Say which labels and annotations of the mirror must change, as a merge patch's metadata.

    Three-way: the base is the record of managed keys, so what the target added stays, and a key
    that left the hub pod leaves the mirror. None where nothing must change.
    """
    labels, annotations = flowing_metadata(hub_pod, rules)
    managed_labels, managed_annotations = parse_managed_keys(mirror)
    told = {**labels, **_told_labels(hub_pod)}
    label_changes = _changes(told, labels_of(mirror), managed_labels)
    facts = facts_read(spec_of(mirror), hub_pod, rules.flows)
    annotation_changes: dict[str, str | None] = _changes(
        {**annotations, **facts}, annotations_of(mirror), managed_annotations
    )
    record = format_managed_keys(labels, annotations)
    if annotations_of(mirror).get(MANAGED_KEYS_ANNOTATION) != record:
        annotation_changes[MANAGED_KEYS_ANNOTATION] = record
    changes: JsonDict = {}
    if label_changes:
        changes["labels"] = label_changes
    if annotation_changes:
        changes["annotations"] = annotation_changes
    return changes or None


def _changes(
    ours: Mapping[str, str], theirs: Mapping[str, str], managed: frozenset[str]
) -> dict[str, str | None]:
    changed: dict[str, str | None] = {k: v for k, v in ours.items() if theirs.get(k) != v}
    gone = {k: None for k in managed if k not in ours and k in theirs}
    return {**changed, **gone}
