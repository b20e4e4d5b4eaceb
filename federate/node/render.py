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
    uid_of,
)
from federate.model.pods import NODE_TYPE_LABEL, VIRTUAL_NODE_TAINT_KEY, VIRTUAL_NODE_TYPE
from federate.model.reasons import NodeReason
from federate.node.reachability import TargetState
from federate.patch.document import PatchBody, strategic_patch
from federate.patch.listkeys import NODE
from federate.patch.threeway import merge

TAINT_VALUE = "federate"
TARGET_REACHABLE = "federate.dev/TargetReachable"

_NOT_REACHABLE = {
    TargetState.UNREACHABLE: NodeReason.TARGET_UNREACHABLE,
    TargetState.REFUSED: NodeReason.TARGET_REFUSES,
    TargetState.CHANGED: NodeReason.TARGET_CHANGED,
}

_OWN_LABEL_KEYS = ("kubernetes.io/hostname", NODE_TYPE_LABEL, "kubernetes.io/role")
_NOT_COMMON_PREFIXES = (
    PREFIX,
    "node-role.kubernetes.io/",
    "node.kubernetes.io/exclude-",
    "kwok.x-k8s.io/",
)


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
    target_labels: Mapping[str, str] = field(default_factory=dict)
    user_labels: Mapping[str, str] = field(default_factory=dict)
    uninstalled: Sequence[str] = ()
    """Target namespaces whose anchor somebody removed."""


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
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
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
            },
        },
        "spec": {
            "providerID": f"federate://{facts.target_name}",
            "taints": [
                {"key": VIRTUAL_NODE_TAINT_KEY, "value": TAINT_VALUE, "effect": "NoSchedule"}
            ],
        },
        "status": {
            "capacity": dict(facts.offer),
            "allocatable": dict(facts.offer),
            "addresses": [{"type": "InternalIP", "address": facts.address}],
            "conditions": _render_conditions(facts, present, now=now),
            "nodeInfo": _render_node_info(facts, labels),
        },
    }


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
        "operatingSystem": labels["kubernetes.io/os"],
        "architecture": labels["kubernetes.io/arch"],
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
    timed = [_with_times(c, present, now=now) for c in conditions]
    # A target that is away leaves Ready alone: silence lets the hub's own grace work (C12).
    untouched = condition_of(present, "Ready") if silent and present is not None else None
    return [*timed, dict(untouched)] if untouched is not None else timed


def _ready(facts: NodeFacts) -> JsonDict:
    if not facts.uninstalled:
        return _condition("Ready", "True", NodeReason.READY, "federate mirrors pods to the target")
    names = ", ".join(facts.uninstalled)
    message = (
        f"anchor removed in {facts.target_name}, nothing is started in: {names}. To go on: "
        f"kubectl annotate node {facts.scope.node_name} federate.dev/reinstall=NAMESPACE"
    )
    return _condition("Ready", "True", NodeReason.UNINSTALLED, message)


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
