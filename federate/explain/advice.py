"""What to do next, by the reason that a condition names. Pure.

Messages say what is wrong; here stands what helps, with the command that shows more. `{target}`,
`{node}`, `{place}` (the mirror's namespace) and `{pod}` are filled in. docs/operations.md says the
same at more length.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from federate.explain.facts import PodFacts
from federate.model.reasons import PodReason

SCHEDULER_SILENT = "SchedulerSilent"
"""Told by nobody but here."""

_THERE = "In {target}: kubectl -n {place}"
_WAIT = "nothing: it is tried again by itself"
_COMPANION = (
    "do in {target} what the words ask for (its namespace there is {place}); the copy is tried "
    "again by itself, ever more seldom"
)

ADVICE: Mapping[str, str] = MappingProxyType(
    {
        PodReason.MIRROR_OF_MIRROR: "take the labels federate.dev/… off the pod or its template",
        PodReason.DAEMONSET_NOT_MIRRORED: "keep the DaemonSet off virtual nodes: node affinity "
        "`type NotIn virtual-kubelet` (federate check prints the patch)",
        PodReason.SYSTEM_NAMESPACE_REFUSED: "run the pod in another namespace, or let the operator "
        "of {target} choose other namespace rules",
        PodReason.NAMESPACE_NOT_MAPPED: "have the operator of {target} add the namespace to its "
        "map, or run the pod elsewhere",
        PodReason.COMPANION_MISSING: "take the reference out, or run the pod elsewhere",
        PodReason.COMPANION_UNREADABLE: "grant federate `get` on it: federate rbac --side hub",
        PodReason.COMPANION_TOO_LARGE: "make it smaller than 1 MiB",
        PodReason.UNINSTALLED: "where federate shall go on there: kubectl annotate node {node} "
        "federate.dev/reinstall={place}",
        PodReason.NODE_LEAVING: "nothing where the node is to be left; else call it off as the "
        "message says",
        PodReason.NODE_PORTS: "give it another hostPort, or none, or bind it to no node by name: "
        "a scheduler finds one that has the port",
        PodReason.NAME_TAKEN: "remove or rename what has the name in {target} (in namespace "
        "{place} there), or rename the pod",
        PodReason.MARKS_REMOVED: "let federate.dev/ keys pass in {target}; an admission webhook or "
        "policy there takes them off",
        PodReason.MIRROR_OUT_OF_SIGHT: "let the namespace rules of {target} be as before; or "
        "delete the pod by force, and its mirror in {target}",
        PodReason.PREDECESSOR_TERMINATING: "nothing: it starts when the one before has ended; look "
        "at that one in {target} if it takes long",
        PodReason.COMPANION_COMING: "nothing: it is on its way; if it lasts, see federate's log",
        PodReason.COMPANION_ENDING: "see to the finalizer that holds the copy in {target}",
        PodReason.TARGET_UNREACHABLE: "bring {target} back, or its network: `federate check` "
        "says where the way ends. Nothing is lost meanwhile",
        PodReason.TARGET_BUSY: _WAIT,
        PodReason.TARGET_ERROR: "look at the API server of {target}; it is tried again by itself",
        PodReason.NAMESPACE_MISSING: "nothing where federate makes the namespace; with `map` and "
        "`single` create it in {target}",
        PodReason.NAMESPACE_TERMINATING: "nothing: it is made anew when it is gone",
        PodReason.SERVICE_ACCOUNT_MISSING: "is the controller-manager of {target} running, and the "
        "service account there that mirrors run as?",
        PodReason.COMPANION_REFUSED: _COMPANION,
        PodReason.TOKEN_REFUSED: "see the words: the right `create` on serviceaccounts/token, the "
        "service account, the audience",
        PodReason.QUOTA_EXCEEDED: "free some of the quota, have it raised, or ask for less; it is "
        f"tried again every few minutes. {_THERE} describe resourcequota",
        PodReason.POD_SECURITY_REFUSED: "change the pod as the words say, or have the PodSecurity "
        "level of namespace {place} in {target} changed",
        PodReason.LIMIT_RANGE_REFUSED: "change what the pod asks for, or the range. "
        f"{_THERE} describe limitrange",
        PodReason.ADMISSION_DENIED: "do as the words say, or ask the people of {target} who run "
        "that webhook or policy; it is tried again every few minutes",
        PodReason.FORBIDDEN: "grant federate the right in {target}: federate rbac --side target",
        PodReason.MIRROR_INVALID: "see the words of {target}'s API server: a difference between "
        "the versions of the clusters, as a rule",
        PodReason.MIRROR_WEAKENED: "upgrade {target}, or leave the fields out",
        PodReason.FIELDS_DROPPED: "upgrade {target}, or accept it",
        PodReason.UPDATE_REJECTED: "do in {target} what the words say, or take the change back",
        PodReason.UPDATE_NOT_SUPPORTED: "upgrade {target}, or replace the pod",
        PodReason.TOKEN_OVERDUE: "see federate's log: hub or target do not answer, or refuse",
        PodReason.HUB_NAMES_MISSING: "do in {target} what the message says (rights: federate rbac "
        "--side target --with pod-identity), then restart the pod",
        PodReason.MIRROR_UNSCHEDULABLE: "do as the words of {target}'s scheduler say: ask for "
        "less, or have nodes, taints or room changed. In {target}: kubectl describe nodes",
        PodReason.DELETED_IN_TARGET: "nothing: its owner replaces it",
        PodReason.MIRROR_LOST: "nothing: its owner replaces it; a pod is never run twice",
        PodReason.POLICY_REFUSED: "leave it out; or, as operator of {target}, change what stands "
        "in brackets in federate's file (docs/policy.md)",
        PodReason.NOT_RUN_HERE: "nothing: DaemonSets count as running here, and do not run",
        PodReason.CLASS_MISSING: "make the class in {target}; or, as its operator, map it to one "
        "that is there (policy.priorityClasses, policy.runtimeClasses)",
        PodReason.ADMISSION_FAILED: "bring that webhook of {target} back, and it is tried again by "
        "itself. In {target}: kubectl get validatingwebhookconfigurations,"
        "mutatingwebhookconfigurations",
        PodReason.TARGET_LACKS_ROOM: "ask for less, or make room: it is placed by itself then. In "
        "{target}: kubectl describe nodes",
        PodReason.TARGET_NODES_TAINTED: "tolerate those taints (policy.tolerations says which "
        "travel), or have them taken off. In {target}: kubectl describe nodes",
        PodReason.TARGET_NODES_DO_NOT_MATCH: "see selectors and affinity of the pod, and which "
        "node labels travel (policy.nodeKeys). In {target}: kubectl get nodes --show-labels",
        PodReason.TARGET_HAS_NO_NODES: "add nodes to {target}, or make some schedulable: kubectl "
        "uncordon, there",
        SCHEDULER_SILENT: "is the scheduler of {target} running, and is it the one that the mirror "
        f"names (policy.schedulers)? {_THERE} get pods -o wide",
        PodReason.CLAIM_REFUSED: "do as the message says, or run the pod elsewhere",
        PodReason.VOLUME_REFUSED: "leave the volume out, or ask the operator of {target}",
        PodReason.CLAIM_PENDING: "see the Events of the claim: kubectl describe pvc",
        PodReason.CLAIM_LOST: "restore the data in {target}, or take a new claim; none is made "
        "in its place",
        "NetworkPolicyNotEnforced": "run the pod on a node of the hub, or ask the "
        "operator of {target}",
        "NetworkPoliciesUnknown": "federate rbac --side hub prints the right",
    }
)

WAITED_FOR = frozenset(
    {
        PodReason.PREDECESSOR_TERMINATING,
        PodReason.COMPANION_COMING,
        PodReason.TARGET_BUSY,
        PodReason.NAMESPACE_TERMINATING,
    }
)
"""What ends by itself, as a rule soon."""

_IMAGE = (
    "is the image's name right, can nodes of {target} reach its registry, and has the pod a pull "
    "secret for it? The nodes of the hub may have had the image; those of {target} pull it anew. "
    "What they tried: kubectl describe pod {pod}"
)
CONTAINER_ADVICE: Mapping[str, str] = MappingProxyType(
    {
        "ErrImagePull": _IMAGE,
        "ImagePullBackOff": _IMAGE,
        "ErrImageNeverPull": "the nodes of {target} do not have the image, and the pod forbids to "
        "pull it (imagePullPolicy)",
        "InvalidImageName": "correct the image's name",
        "CrashLoopBackOff": "kubectl logs {pod} --previous",
        "CreateContainerConfigError": "make what the words name, on the hub: it comes along",
        "CreateContainerError": "see the words of the container runtime",
        "RunContainerError": "see the words of the container runtime",
    }
)


def advice_for(reason: str, *, target: str, node: str = "", place: str = "") -> str:
    """Say what to do about a reason; "" where it is none of ours."""
    return ADVICE.get(reason, "").format(
        target=target, node=node or target, place=place or "NAMESPACE", pod=""
    )


def advised(facts: PodFacts, reason: str) -> str:
    """Say what to do about a reason that holds up this pod."""
    place = facts.mirror_key.namespace if facts.mirror_key is not None else ""
    return advice_for(reason, target=facts.node.name, place=place)


def container_advice(reason: str, *, target: str, pod: str) -> str:
    """Say what to do about a container that waits."""
    return CONTAINER_ADVICE.get(reason, "").format(target=target, pod=pod)
