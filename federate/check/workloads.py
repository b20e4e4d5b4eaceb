"""Judge what stands beside federate in both clusters: DaemonSets, budgets, Services, namespaces.

Pure. Selectors are read as Kubernetes reads them, in full.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from federate.check.findings import Finding, FindingId
from federate.model.marks import HUB_NAMESPACE_ANNOTATION
from federate.model.objects import (
    JsonDict,
    JsonObject,
    annotations_of,
    key_of,
    labels_of,
    spec_of,
    status_of,
)
from federate.model.pods import NODE_TYPE_LABEL, VIRTUAL_NODE_TAINT_KEY, VIRTUAL_NODE_TYPE
from federate.model.taints import Taint

POD_SECURITY = "pod-security.kubernetes.io/enforce"

HARD = ("NoSchedule", "NoExecute")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeShape:
    """What of a Node decides whether a DaemonSet puts a pod on it."""

    name: str
    labels: Mapping[str, str]
    taints: Sequence[JsonObject]


def shape_of(node: JsonObject) -> NodeShape:
    """Read a Node that stands on the hub."""
    # Taints that come and go with a node's health are tolerated by every DaemonSet pod.
    taints = [
        taint
        for taint in spec_of(node).get("taints") or ()
        if not str(taint.get("key")).startswith("node.kubernetes.io/")
    ]
    return NodeShape(name=key_of(node).name, labels=labels_of(node), taints=taints)


def expected_shape(
    name: str, *, taint_value: str, labels: Mapping[str, str], taints: Iterable[Taint] = ()
) -> NodeShape:
    """Say what a virtual node will be like that is not registered yet."""
    own = {
        NODE_TYPE_LABEL: VIRTUAL_NODE_TYPE,
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/role": "agent",
    }
    taint = {"key": VIRTUAL_NODE_TAINT_KEY, "value": taint_value, "effect": "NoSchedule"}
    more = [{"key": one.key, "value": one.value, "effect": str(one.effect)} for one in taints]
    return NodeShape(name=name, labels={**labels, **own}, taints=[taint, *more])


# -- DaemonSets ------------------------------------------------------------------------------------


def judge_daemonsets(daemonsets: Iterable[JsonObject], node: NodeShape) -> tuple[Finding, ...]:
    """Find the DaemonSets that put a pod on the virtual node: there it waits for ever (C26)."""
    return tuple(
        Finding(
            id=FindingId.DAEMONSET_TOLERATES_NODE,
            what=f"DaemonSet {key_of(one)} tolerates {node.name}: its pod there stays Pending, and "
            "its roll-outs never finish",
            fix=affinity_patch_command(one),
        )
        for one in daemonsets
        if wants_node(one, node)
    )


def wants_node(daemonset: JsonObject, node: NodeShape) -> bool:
    """Tell whether a DaemonSet's pods may be on the node, as its controller judges."""
    pod = spec_of((spec_of(daemonset)).get("template") or {})
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


def _matches_term(term: JsonObject, node: NodeShape) -> bool:
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
    present = _required_terms(spec_of(spec_of(daemonset).get("template") or {}))
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


def selects(selector: JsonObject, labels: Mapping[str, str]) -> bool:
    """Tell whether a LabelSelector selects labels; an empty one selects all."""
    wanted = selector.get("matchLabels") or {}
    return all(labels.get(key) == value for key, value in wanted.items()) and all(
        matches(one, labels) for one in selector.get("matchExpressions") or ()
    )


# -- what selects mirrors --------------------------------------------------------------------------


def judge_budgets(
    budgets: Iterable[JsonObject], mirrors: Sequence[JsonObject]
) -> tuple[Finding, ...]:
    """Find budgets that select mirrors and need to know their controller (C23).

    Mirrors have none that scales, so with maxUnavailable or a percentage the disruption controller
    lets none of the selected pods be evicted.
    """
    found = []
    for budget in budgets:
        spec = spec_of(budget)
        needs_scale = "maxUnavailable" in spec or str(spec.get("minAvailable", "")).endswith("%")
        selector = spec.get("selector")
        count = 0 if selector is None else _count(budget, mirrors, selector)
        if needs_scale and count:
            found.append(
                Finding(
                    id=FindingId.BUDGET_COUNTS_MIRRORS,
                    what=f"PodDisruptionBudget {key_of(budget)} selects {count} mirrors, whose "
                    "controller the target does not know: with maxUnavailable or a percentage "
                    "none of its pods can be evicted, so drains hang",
                    fix="let its selector exclude mirrors (federate.dev/hub DoesNotExist), or give "
                    "it minAvailable as a number",
                )
            )
    return tuple(found)


def judge_services(
    services: Iterable[JsonObject], mirrors: Sequence[JsonObject]
) -> tuple[Finding, ...]:
    """Find Services of the target that send their traffic to mirrors (C23)."""
    found = []
    for service in services:
        selector = spec_of(service).get("selector") or {}
        count = _count(service, mirrors, {"matchLabels": selector}) if selector else 0
        if count:
            found.append(
                Finding(
                    id=FindingId.SERVICE_SELECTS_MIRRORS,
                    what=f"Service {key_of(service)} of the target sends traffic to {count} "
                    "mirrors",
                    fix="intended? Then nothing. Else change its selector, or the labels of the "
                    "hub pods",
                )
            )
    return tuple(found)


def _count(selecting: JsonObject, mirrors: Sequence[JsonObject], selector: JsonObject) -> int:
    namespace = key_of(selecting).namespace
    return sum(
        1
        for mirror in mirrors
        if key_of(mirror).namespace == namespace and selects(selector, labels_of(mirror))
    )


# -- namespaces ------------------------------------------------------------------------------------


def judge_target_namespaces(
    namespaces: Iterable[JsonObject], *, missing: Iterable[str] = ()
) -> tuple[Finding, ...]:
    """Judge the target namespaces where mirrors are to run; `missing` were given and are not there.

    A namespace that ends takes no new pods, and PodSecurity `restricted` refuses most.
    """
    found = [
        Finding(
            id=FindingId.NAMESPACE_NOT_USABLE,
            what=f"namespace {name} does not exist in the target",
            fix=f"create it there (kubectl create namespace {name}), or name another",
        )
        for name in missing
    ]
    for namespace in namespaces:
        name = key_of(namespace).name
        is_ending = status_of(namespace).get("phase") == "Terminating"
        # One that federate made is given back, and made again when it is needed.
        if is_ending and not annotations_of(namespace).get(HUB_NAMESPACE_ANNOTATION):
            found.append(
                Finding(
                    id=FindingId.NAMESPACE_NOT_USABLE,
                    what=f"namespace {name} of the target is being deleted",
                    fix="wait until it is gone, or see what its conditions say keeps it",
                )
            )
        level = labels_of(namespace).get(POD_SECURITY)
        if level == "restricted":
            found.append(
                Finding(
                    id=FindingId.POD_SECURITY_STRICT,
                    what=f"namespace {name} of the target has PodSecurity {level}: pods that ask "
                    "for more wait with PodSecurityRefused",
                    fix="let the pods comply, or: kubectl label namespace "
                    f"{name} --overwrite {POD_SECURITY}=baseline",
                )
            )
    return tuple(found)
