"""Judge what stands beside federate in both clusters: DaemonSets, budgets, Services, namespaces.

Pure. Selectors are read as Kubernetes reads them, in full.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from federate.check.findings import Finding, FindingId
from federate.model.marks import COMPANION_LABEL, HUB_NAMESPACE_ANNOTATION
from federate.model.objects import (
    JsonObject,
    annotations_of,
    key_of,
    labels_of,
    spec_of,
    status_of,
)
from federate.model.pods import NODE_TYPE_LABEL, VIRTUAL_NODE_TYPE
from federate.model.taints import Taint
from federate.node.daemonsets import (
    NodeTraits,
    affinity_patch_command,
    is_kept_by_taint,
    matches,
    wants_node,
)
from federate.policy.rules import DaemonSetMode

POD_SECURITY = "pod-security.kubernetes.io/enforce"


def expected_traits(name: str, *, labels: Mapping[str, str], taints: Iterable[Taint]) -> NodeTraits:
    """Say what a virtual node will be like that is not registered yet."""
    own = {
        NODE_TYPE_LABEL: VIRTUAL_NODE_TYPE,
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/role": "agent",
    }
    return NodeTraits(
        name=name, labels={**labels, **own}, taints=[taint.as_json() for taint in taints]
    )


def judge_taints(name: str, taints: Iterable[Taint]) -> tuple[Finding, ...]:
    """Say that any pod of the hub may come where no taint keeps it off."""
    if any(taint.effect.is_hard for taint in taints):
        return ()
    return (
        Finding(
            id=FindingId.NODE_NOT_TAINTED,
            what=f"virtual node {name} has no taint that keeps pods off: any pod of the hub may be "
            "placed there, and every DaemonSet puts one there that does not select other nodes",
            fix="intended? Then keep DaemonSets of the hub's own nodes (network, kube-proxy) off: "
            "the commands are told with the DaemonSets. Else taintEffect: NoSchedule",
        ),
    )


# -- DaemonSets ------------------------------------------------------------------------------------


_CONSEQUENCES = {
    DaemonSetMode.PENDING: (
        FindingId.DAEMONSET_TOLERATES_NODE,
        "its pod there stays Pending, and its roll-outs never finish",
    ),
    DaemonSetMode.PRETEND: (
        FindingId.DAEMONSET_PRETENDED,
        "its pod there says Ready and runs nowhere (policy.daemonSets is pretend)",
    ),
    DaemonSetMode.MIRROR: (
        FindingId.DAEMONSET_MIRRORED,
        "nothing there keeps it off, and its pod runs in the target (policy.daemonSets is mirror)",
    ),
}


def judge_daemonsets(
    daemonsets: Iterable[JsonObject], node: NodeTraits, mode: DaemonSetMode
) -> tuple[Finding, ...]:
    """Find the DaemonSets that put a pod on the virtual node which does no good there (C26).

    Where they are mirrored, one that tolerates the node's taint means it; one that did not have to
    may not.
    """
    if mode is DaemonSetMode.MIRROR and is_kept_by_taint(node):
        return ()
    finding, consequence = _CONSEQUENCES[mode]
    return tuple(
        Finding(
            id=finding,
            what=f"DaemonSet {key_of(one)} tolerates {node.name}: {consequence}",
            fix=affinity_patch_command(one),
        )
        for one in daemonsets
        if wants_node(one, node)
    )


# -- selectors -------------------------------------------------------------------------------------


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
    """Find Services of the target that send their traffic to mirrors (C23).

    Those that followed from the hub shall.
    """
    found = []
    for service in services:
        if COMPANION_LABEL in labels_of(service):
            continue
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
