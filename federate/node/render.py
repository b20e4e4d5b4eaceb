"""Render the Node that ought to stand on the hub. Pure.

`render_node` says the part of the Node that is ours: labels, taint, provider id, status. What
others put there survives, because each part is merged three ways with what we applied last (C10,
C11).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from federate.model.marks import (
    LAST_APPLIED_ANNOTATION,
    LAST_APPLIED_STATUS_ANNOTATION,
    NODE_HUB_ANNOTATION,
    PREFIX,
    SHOWN_RANGES_ANNOTATION,
    TARGET_ANNOTATION,
    Scope,
)
from federate.model.objects import (
    JsonDict,
    JsonObject,
    annotations_of,
    condition_of,
    labels_of,
    resource_version_of,
    spec_of,
    uid_of,
)
from federate.model.pods import NODE_TYPE_LABEL, VIRTUAL_NODE_TYPE
from federate.model.reasons import NodeReason
from federate.model.taints import Taint, TaintEffect, taints_of_virtual_node
from federate.node.credentials import CredentialsWord
from federate.node.daemonsets import DaemonSetsWord
from federate.node.reachability import TargetState
from federate.patch.document import PatchBody, strategic_patch
from federate.patch.listkeys import NODE
from federate.patch.threeway import merge
from federate.services.addresses import (
    ADDRESSES_REFLECTED,
    AddressDecision,
    Showing,
    address_annotations,
    addresses_condition,
)

TARGET_REACHABLE = "federate.dev/TargetReachable"
CREDENTIALS_VALID = "federate.dev/CredentialsValid"
KUBELET_SERVING = "federate.dev/KubeletServing"
DAEMONSETS_KEPT_OFF = "federate.dev/DaemonSetsKeptOff"

_NOT_REACHABLE = {
    TargetState.UNREACHABLE: NodeReason.TARGET_UNREACHABLE,
    TargetState.REFUSED: NodeReason.TARGET_REFUSES,
    TargetState.CHANGED: NodeReason.TARGET_CHANGED,
}

ASSUMED_LABELS: Mapping[str, str] = {
    "kubernetes.io/os": "linux",
    "kubernetes.io/arch": "amd64",
}
"""What a target's nodes are taken for where none is known. The user's labels know better."""

_OWN_LABEL_KEYS = ("kubernetes.io/hostname", NODE_TYPE_LABEL, "kubernetes.io/role")
_NOT_COMMON_PREFIXES = (
    PREFIX,
    "node-role.kubernetes.io/",
    "node.kubernetes.io/exclude-",
    "kwok.x-k8s.io/",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeShape:
    """What the user makes of the Node, beside its labels."""

    taint_value: str = "federate"
    """Value of the taint that says this is a virtual node; its key is fixed."""
    taint_effect: TaintEffect | None = TaintEffect.NO_SCHEDULE
    """What it does; None: the Node has no such taint."""
    taints: Sequence[Taint] = ()
    """More taints, beside that one."""
    provider_id: str | None = None
    """None: `federate://` and the target's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletWord:
    """How the kubelet API of the virtual node stands: what `kubectl logs` and the like need."""

    port: int
    """Where it listens; 0: nowhere, and the Node names no port."""
    is_serving: bool
    reason: NodeReason
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """What is true of the virtual node right now."""

    scope: Scope
    target_name: str
    address: str
    kubelet_version: str
    """The target's Kubernetes version: what a kubelet there would say."""
    federate_version: str
    offer: Mapping[str, str]
    state: TargetState
    state_message: str
    offer_trouble: str = ""
    """Why less is offered than there may be."""
    target_labels: Mapping[str, str] = field(default_factory=dict)
    user_labels: Mapping[str, str] = field(default_factory=dict)
    shape: NodeShape = field(default_factory=NodeShape)
    credentials: CredentialsWord | None = None
    """How the credentials for the target stand; None: nothing is said of them."""
    uninstalled: Sequence[str] = ()
    """Target namespaces whose anchor somebody removed."""
    companions_left: str = ""
    """What came along with pods before, where nothing shall any more."""
    kubelet: KubeletWord | None = None
    """None: no kubelet API is served, and nothing is said of one."""
    daemonsets: DaemonSetsWord | None = None
    """Which DaemonSets of the hub tolerate the Node; None: they are not looked at."""
    addresses: AddressDecision | None = None
    """Which addresses its pods show; None: nothing is said of them."""


def is_registered_by(node: JsonObject, hub_id: str) -> bool:
    """Tell whether federate registered this Node for that hub; any other is a stranger's."""
    return annotations_of(node).get(NODE_HUB_ANNOTATION) == hub_id


def common_labels(nodes: Iterable[JsonObject]) -> dict[str, str]:
    """Return the labels that every target node carries with one value."""
    common: dict[str, str] | None = None
    for node in nodes:
        labels = labels_of(node)
        if common is None:
            common = dict(labels)
        else:
            common = {k: v for k, v in common.items() if labels.get(k) == v}
    return {
        key: value
        for key, value in (common or {}).items()
        if key not in _OWN_LABEL_KEYS and not key.startswith(_NOT_COMMON_PREFIXES)
    }


def render_node(facts: NodeFacts, present: JsonObject | None, *, now: str) -> JsonDict:
    """Render our part of the Node; transition times stay where a condition's status does."""
    labels = {
        **facts.target_labels,
        **facts.user_labels,
        NODE_TYPE_LABEL: VIRTUAL_NODE_TYPE,
        "kubernetes.io/hostname": facts.scope.node_name,
        "kubernetes.io/role": "agent",
        "node.kubernetes.io/exclude-from-external-load-balancers": "true",
        "node.kubernetes.io/exclude-disruption": "true",
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": facts.scope.node_name,
            "labels": labels,
            "annotations": {
                NODE_HUB_ANNOTATION: facts.scope.hub_id,
                TARGET_ANNOTATION: facts.target_name,
                **_shown_ranges(facts, present),
            },
        },
        "spec": {"providerID": _provider_id(facts, present), "taints": _taints(facts.shape)},
        "status": {
            "capacity": dict(facts.offer),
            "allocatable": dict(facts.offer),
            "addresses": [{"type": "InternalIP", "address": facts.address}],
            **_daemon_endpoints(facts.kubelet),
            "conditions": _render_conditions(facts, present, now=now),
            "nodeInfo": _render_node_info(facts, labels),
        },
    }


def _provider_id(facts: NodeFacts, present: JsonObject | None) -> str:
    """Return the id a Node has, or is to get: the API server refuses to change one."""
    has: str = spec_of(present or {}).get("providerID") or ""
    return has or facts.shape.provider_id or f"federate://{facts.target_name}"


def _taints(shape: NodeShape) -> list[JsonDict]:
    taints = taints_of_virtual_node(
        value=shape.taint_value, effect=shape.taint_effect, more=shape.taints
    )
    return [taint.as_json() for taint in taints]


def _daemon_endpoints(kubelet: KubeletWord | None) -> JsonDict:
    """Name the port that the hub's API server asks; servers say 0 where none is named."""
    if kubelet is None or not kubelet.port:
        return {}
    return {"daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet.port}}}


def _render_node_info(facts: NodeFacts, labels: Mapping[str, str]) -> JsonDict:
    return {
        "machineID": facts.scope.virtual_node_hash,
        "systemUUID": facts.scope.virtual_node_hash,
        "bootID": "",
        "kernelVersion": "",
        "osImage": "",
        "containerRuntimeVersion": f"federate://{facts.federate_version}",
        "kubeletVersion": facts.kubelet_version,
        "kubeProxyVersion": "",
        # Nodes of several kinds share no label of theirs: then the Node says neither.
        "operatingSystem": labels.get("kubernetes.io/os", ""),
        "architecture": labels.get("kubernetes.io/arch", ""),
    }


def _render_conditions(facts: NodeFacts, present: JsonObject | None, *, now: str) -> list[JsonDict]:
    refused = facts.state is TargetState.REFUSED
    silent = facts.state.is_silent
    conditions = [
        _condition("MemoryPressure", "False", "TargetHasSufficientMemory"),
        _condition("DiskPressure", "False", "TargetHasNoDiskPressure"),
        _condition("PIDPressure", "False", "TargetHasSufficientPID"),
        _condition("NetworkUnavailable", "False", "TargetNetworkIsItsOwn"),
    ]
    if silent or refused:
        reason = _NOT_REACHABLE[facts.state]
        conditions.append(_condition(TARGET_REACHABLE, "False", reason, facts.state_message))
    else:
        conditions.append(_condition(TARGET_REACHABLE, "True", NodeReason.TARGET_ANSWERS))
    if refused:
        conditions.append(
            _condition("Ready", "False", NodeReason.TARGET_REFUSES, facts.state_message)
        )
    elif not silent:
        conditions.append(_ready(facts))
    if (word := facts.credentials) is not None:
        status = "True" if word.is_valid else "False"
        conditions.append(_condition(CREDENTIALS_VALID, status, word.reason, word.message))
    if (kubelet := facts.kubelet) is not None:
        status = "True" if kubelet.is_serving else "False"
        conditions.append(_condition(KUBELET_SERVING, status, kubelet.reason, kubelet.message))
    if (word_on := facts.daemonsets) is not None:
        status = "True" if word_on.is_kept_off else "False"
        conditions.append(_condition(DAEMONSETS_KEPT_OFF, status, word_on.reason, word_on.message))
    if facts.addresses is not None:
        conditions.append(_addresses_word(facts.addresses, present))
    timed = [_with_times(c, present, now=now) for c in conditions]
    # A target that is away leaves Ready alone: silence lets the hub's own grace work (C12).
    untouched = condition_of(present, "Ready") if silent and present is not None else None
    return [*timed, dict(untouched)] if untouched is not None else timed


def _addresses_word(decision: AddressDecision, present: JsonObject | None) -> JsonDict:
    """Say what is decided of addresses; before that, what the last leader said stays."""
    said = condition_of(present, ADDRESSES_REFLECTED) if present is not None else None
    if decision.showing is Showing.KEEP and said is not None:
        return {name: said.get(name) for name in ("type", "status", "reason", "message")}
    return addresses_condition(decision)


def _shown_ranges(facts: NodeFacts, present: JsonObject | None) -> dict[str, str]:
    """Tell other virtual nodes which ranges are shown; what the last leader told stays at first."""
    decision = facts.addresses
    if decision is None:
        return {}
    if decision.showing is not Showing.KEEP:
        return address_annotations(decision)
    told = annotations_of(present or {}).get(SHOWN_RANGES_ANNOTATION)
    return {SHOWN_RANGES_ANNOTATION: told} if told else {}


def _ready(facts: NodeFacts) -> JsonDict:
    said: list[tuple[NodeReason, str]] = []
    if facts.uninstalled:
        names = ", ".join(facts.uninstalled)
        message = (
            f"anchor removed in {facts.target_name}, nothing is started in: {names}. To go on: "
            f"kubectl annotate node {facts.scope.node_name} federate.dev/reinstall=NAMESPACE"
        )
        said.append((NodeReason.UNINSTALLED, message))
    if facts.offer_trouble:
        said.append((NodeReason.CAPACITY_UNKNOWN, facts.offer_trouble))
    if facts.companions_left:
        said.append((NodeReason.COMPANIONS_LEFT, facts.companions_left))
    if not said:
        said = [(NodeReason.READY, "federate mirrors pods to the target")]
    return _condition("Ready", "True", said[0][0], "; ".join(message for _, message in said))


def _condition(kind: str, status: str, reason: str, message: str = "") -> JsonDict:
    return {"type": kind, "status": status, "reason": reason, "message": message or reason}


def _with_times(condition: JsonDict, present: JsonObject | None, *, now: str) -> JsonDict:
    """Set the times; an unchanged condition keeps both, so that it costs no write."""
    before = condition_of(present, condition["type"]) if present is not None else None
    if before is None or before.get("status") != condition["status"]:
        return {**condition, "lastHeartbeatTime": now, "lastTransitionTime": now}
    same = all(before.get(k) == condition[k] for k in ("reason", "message"))
    return {
        **condition,
        "lastHeartbeatTime": before.get("lastHeartbeatTime") if same else now,
        "lastTransitionTime": before.get("lastTransitionTime"),
    }


# -- from a rendered Node to writes ----------------------------------------------------------------


def new_node(rendered: JsonObject, *, memory: Mapping[str, str]) -> JsonDict:
    """The Node as it is created: with the record of what we applied, and annotations of memory."""
    metadata = dict(rendered["metadata"])
    annotations = {
        **metadata["annotations"],
        **memory,
        LAST_APPLIED_ANNOTATION: _record(_without_status(rendered)),
        LAST_APPLIED_STATUS_ANNOTATION: _record({"status": rendered["status"]}),
    }
    return {**rendered, "metadata": {**metadata, "annotations": annotations}}


def node_patch(rendered: JsonObject, present: JsonObject) -> PatchBody | None:
    """Merge labels, annotations, taints and provider id into the present Node."""
    ours = _without_status(rendered)
    return _patch(ours, present, LAST_APPLIED_ANNOTATION)


def node_status_patch(rendered: JsonObject, present: JsonObject) -> PatchBody | None:
    """Merge our status into the present Node's."""
    return _patch({"status": rendered["status"]}, present, LAST_APPLIED_STATUS_ANNOTATION)


def _patch(ours: JsonDict, present: JsonObject, record_key: str) -> PatchBody | None:
    base = _read_record(annotations_of(present).get(record_key, ""))
    edits = merge(base, ours, present, lists=NODE)
    if not edits:
        return None
    metadata = ours.get("metadata", {})
    annotations = {**metadata.get("annotations", {}), record_key: _record(ours)}
    recorded = {**ours, "metadata": {**metadata, "annotations": annotations}}
    edits = merge(base, recorded, present, lists=NODE)
    return strategic_patch(
        edits, uid=uid_of(present), resource_version=resource_version_of(present)
    )


def _without_status(rendered: JsonObject) -> JsonDict:
    metadata = {k: rendered["metadata"][k] for k in ("labels", "annotations")}
    return {"metadata": metadata, "spec": rendered["spec"]}


def _record(ours: JsonObject) -> str:
    return json.dumps(ours, separators=(",", ":"), sort_keys=True)


def _read_record(text: str) -> JsonObject:
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
