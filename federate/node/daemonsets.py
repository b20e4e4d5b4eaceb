"""Which DaemonSets put a pod on a node, and what a virtual node says of them. Pure.

A DaemonSet that tolerates everything (network, storage, logging agents) has a pod on the virtual
node, which does no good there (C26). Affinity and taints are read as the DaemonSet controller does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

from federate.model.objects import JsonDict, JsonObject, key_of, labels_of, metadata_of, spec_of
from federate.model.pods import NODE_TYPE_LABEL, VIRTUAL_NODE_TYPE
from federate.model.reasons import NodeReason
from federate.policy.rules import DaemonSetMode

HARD = ("NoSchedule", "NoExecute")

MOST_NAMED = 10
"""Of the DaemonSets in a condition; `federate check` names all."""
LONGEST_COMMAND = 600
"""In a condition: the command repeats the affinity that a DaemonSet has, which may be long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTraits:
    """What of a Node decides whether a DaemonSet puts a pod on it."""

    name: str
    labels: Mapping[str, str]
    taints: Sequence[JsonObject]


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonSetsWord:
    """What a virtual node says of the hub's DaemonSets."""

    is_kept_off: bool
    reason: NodeReason
    message: str


def traits_of(node: JsonObject) -> NodeTraits:
    """Read a Node that stands on the hub."""
    # Taints that come and go with a node's health are tolerated by every DaemonSet pod.
    taints = [
        taint
        for taint in spec_of(node).get("taints") or ()
        if not str(taint.get("key")).startswith("node.kubernetes.io/")
    ]
    return NodeTraits(name=key_of(node).name, labels=labels_of(node), taints=taints)


def lean_daemonset(daemonset: JsonDict) -> JsonDict:
    """Keep of a DaemonSet what tells which nodes it wants: its template may be long."""
    meta, pod = metadata_of(daemonset), _pod_spec(daemonset)
    node_affinity = (pod.get("affinity") or {}).get("nodeAffinity")
    wanted: JsonDict = {k: pod[k] for k in ("tolerations", "nodeSelector") if pod.get(k)}
    if node_affinity:
        wanted["affinity"] = {"nodeAffinity": node_affinity}
    return {
        "metadata": {k: meta.get(k) for k in ("namespace", "name", "uid", "resourceVersion")},
        "spec": {"template": {"spec": wanted}},
    }


# -- what the node says ----------------------------------------------------------------------------


def daemonsets_word(
    daemonsets: Iterable[JsonObject], node: NodeTraits, mode: DaemonSetMode
) -> DaemonSetsWord:
    """Say which DaemonSets tolerate a virtual node, and how to keep them off."""
    wanting = sorted((one for one in daemonsets if wants_node(one, node)), key=key_of)
    if not wanting:
        return DaemonSetsWord(
            is_kept_off=True,
            reason=NodeReason.DAEMONSETS_KEPT_OFF,
            message="no DaemonSet of the hub tolerates this node",
        )
    reason, consequence = _consequence(mode)
    return DaemonSetsWord(
        is_kept_off=False,
        reason=reason,
        message=f"{_named(wanting)}: {consequence}{_how_to_keep_off(wanting)}",
    )


def _consequence(mode: DaemonSetMode) -> tuple[NodeReason, str]:
    match mode:
        case DaemonSetMode.PENDING:
            words = "a pod of each waits here for ever, and may hold up its roll-outs"
            return NodeReason.DAEMONSETS_WAIT, words
        case DaemonSetMode.PRETEND:
            return NodeReason.DAEMONSETS_PRETENDED, "a pod of each says Ready here and runs nowhere"
        case DaemonSetMode.MIRROR:
            return NodeReason.DAEMONSETS_MIRRORED, "a pod of each runs in the target"
        case _:
            assert_never(mode)


def _named(daemonsets: Sequence[JsonObject]) -> str:
    names = ", ".join(str(key_of(one)) for one in daemonsets[:MOST_NAMED])
    more = len(daemonsets) - MOST_NAMED
    return f"{names}, and {more} more" if more > 0 else names


def _how_to_keep_off(daemonsets: Sequence[JsonObject]) -> str:
    command = affinity_patch_command(daemonsets[0])
    if len(command) > LONGEST_COMMAND:
        return ". To keep them off: federate check prints a command for each"
    each = "" if len(daemonsets) == 1 else " (federate check prints the command for each)"
    return f". To keep it off{each}: {command}"


# -- which nodes a DaemonSet wants -----------------------------------------------------------------


def is_kept_by_taint(node: NodeTraits) -> bool:
    """Tell whether the node has a taint that keeps off pods which do not tolerate it."""
    return any(taint.get("effect") in HARD for taint in node.taints)


def wants_node(daemonset: JsonObject, node: NodeTraits) -> bool:
    """Tell whether a DaemonSet's pods may be on the node, as its controller judges."""
    pod = _pod_spec(daemonset)
    tolerations = pod.get("tolerations") or ()
    if any(
        taint.get("effect") in HARD and not any(_tolerates(one, taint) for one in tolerations)
        for taint in node.taints
    ):
        return False
    selector = pod.get("nodeSelector") or {}
    if any(node.labels.get(key) != value for key, value in selector.items()):
        return False
    terms = _required_terms(pod)
    return terms is None or any(_matches_term(term, node) for term in terms)


def _pod_spec(daemonset: JsonObject) -> JsonObject:
    return spec_of(spec_of(daemonset).get("template") or {})


def _tolerates(toleration: JsonObject, taint: JsonObject) -> bool:
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    key = toleration.get("key") or ""
    if key and key != taint.get("key"):
        return False
    if (toleration.get("operator") or "Equal") == "Exists":
        return True
    return bool(key) and (toleration.get("value") or "") == (taint.get("value") or "")


def _required_terms(pod: JsonObject) -> Sequence[JsonObject] | None:
    affinity = (pod.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return None if required is None else required.get("nodeSelectorTerms") or ()


def _matches_term(term: JsonObject, node: NodeTraits) -> bool:
    expressions = term.get("matchExpressions") or ()
    fields = term.get("matchFields") or ()
    if not expressions and not fields:
        return False  # an empty term matches nothing
    names = {"metadata.name": node.name}
    return all(matches(one, node.labels) for one in expressions) and all(
        matches(one, names) for one in fields
    )


def affinity_patch_command(daemonset: JsonObject) -> str:
    """Return the command that keeps a DaemonSet off virtual nodes.

    Terms are alternatives, so each that is there gets the condition.
    """
    condition = {"key": NODE_TYPE_LABEL, "operator": "NotIn", "values": [VIRTUAL_NODE_TYPE]}
    present = _required_terms(_pod_spec(daemonset))
    terms = [
        {**term, "matchExpressions": [*(term.get("matchExpressions") or ()), condition]}
        for term in present or ({},)
    ]
    required = {"nodeSelectorTerms": terms}
    node_affinity = {"requiredDuringSchedulingIgnoredDuringExecution": required}
    affinity = {"nodeAffinity": node_affinity}
    patch: JsonDict = {"spec": {"template": {"spec": {"affinity": affinity}}}}
    key = key_of(daemonset)
    text = json.dumps(patch, separators=(",", ":")).replace("'", "'\\''")
    return f"kubectl -n {key.namespace} patch daemonset {key.name} --type merge -p '{text}'"


# -- selectors -------------------------------------------------------------------------------------


def matches(requirement: JsonObject, labels: Mapping[str, str]) -> bool:
    """Tell whether labels meet one requirement of a selector."""
    key, values = str(requirement.get("key")), requirement.get("values") or ()
    present = labels.get(key)
    match requirement.get("operator"):
        case "In":
            return present in values
        case "NotIn":
            return present not in values
        case "Exists":
            return present is not None
        case "DoesNotExist":
            return present is None
        case "Gt" | "Lt" as operator:
            return _compare(present, operator, values)
        case _:
            return False


def _compare(present: str | None, operator: str, values: Sequence[str]) -> bool:
    whole = re.compile(r"[-+]?\d+")
    if present is None or len(values) != 1:
        return False
    if not (whole.fullmatch(present) and whole.fullmatch(values[0])):
        return False
    left, right = int(present), int(values[0])
    return left > right if operator == "Gt" else left < right
