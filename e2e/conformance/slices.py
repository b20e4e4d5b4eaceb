"""Which of Kubernetes' specs are run: slices by label, so that a run fits an evening.

The figure is of the slices that count; the others are told each on a line of its own. No spec is in
two slices.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

PARALLEL = "Conformance && !Serial && !Disruptive"
"""What every conformant cluster passes and what may run beside other specs."""

FURTHER = "!Conformance && !Serial && !Disruptive && !Slow && !Flaky && !Alpha && !BetaOffByDefault"
"""What nobody has to pass: of features that are on in a cluster as it comes."""

KUBELETS = (
    "Feature: isSubsetOf {SidecarContainers, UserNamespacesSupport, SupplementalGroupsPolicy, "
    "PodObservedGenerationTracking, PodLevelResources, HostAccess, Example}"
)
"""Features that every node has; others need a node with a device, a driver or a handler of its own,
or a shell on it."""

COUNTED_GROUPS = ("sig-node", "sig-storage", "sig-apps", "sig-auth", "sig-cli")

PLAIN_VOLUMES = (
    r"\] (ConfigMap|Secrets|Projected|Downward API|EmptyDir|HostPath|Ephemeralstorage|Subpath) "
    r"|\] PVC? Protection "
    r"|\[Driver: (emptydir|hostPath)\] \[Testpattern: Inline-volume \(default fs\)\]"
)
"""Volumes that a kubelet makes itself, and claims as such; hundreds of specs are of drivers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """Some of Kubernetes' specs."""

    about: str
    """What it is, for a person."""
    label_filter: str
    """In ginkgo's words."""
    names: str = ""
    """Regular expression: of what the filter chooses, only specs with such names."""
    counts: bool = False
    """Whether it is part of the figure."""
    is_further: bool = False
    """Whether it is run only when named."""
    has_same_namespaces: bool = False
    """Whether namespaces have the hub's names in the target, as names in DNS have a namespace."""


SLICES: Mapping[str, Slice] = {
    "node": Slice(
        about="conformance: what a kubelet does",
        label_filter=f"{PARALLEL} && sig-node",
        counts=True,
    ),
    "storage": Slice(
        about="conformance: volumes",
        label_filter=f"{PARALLEL} && sig-storage",
        counts=True,
    ),
    "apps": Slice(
        about="conformance: workloads",
        label_filter=f"{PARALLEL} && sig-apps",
        counts=True,
    ),
    "auth-cli": Slice(
        about="conformance: service accounts, kubectl",
        label_filter=f"{PARALLEL} && (sig-auth || sig-cli)",
        counts=True,
    ),
    # The virtual node bridges pods, not networks.
    "network": Slice(
        about="conformance: Services, DNS, the way from pod to pod",
        label_filter=f"{PARALLEL} && sig-network",
        has_same_namespaces=True,
    ),
    "node-conformance": Slice(
        about="what a kubelet does as every node should",
        label_filter=f"NodeConformance && {FURTHER}",
        # These ask registries of their own, which a cluster without one waits for in vain.
        names="^(?!.*be able to pull)",
        is_further=True,
    ),
    "node-further": Slice(
        about="what a kubelet does besides: sidecars, resize in place, user namespaces",
        label_filter=f"sig-node && !NodeConformance && !DRA && {FURTHER} && {KUBELETS}",
        is_further=True,
    ),
    "storage-further": Slice(
        about="volumes that a kubelet makes itself",
        label_filter=f"sig-storage && !NodeConformance && {FURTHER} && Feature: isEmpty",
        names=PLAIN_VOLUMES,
        is_further=True,
    ),
    "apps-further": Slice(
        about="workloads, besides",
        label_filter=f"sig-apps && {FURTHER} && Feature: isEmpty",
        is_further=True,
    ),
    "auth-cli-further": Slice(
        about="kubectl exec, attach, cp, debug, port-forward; service accounts",
        label_filter=f"(sig-auth || sig-cli) && {FURTHER} && Feature: isEmpty",
        is_further=True,
    ),
    "api": Slice(
        about="conformance: the API server and what is left; webhooks run in pods",
        label_filter=" && ".join(
            (PARALLEL, "!sig-network", *(f"!{group}" for group in COUNTED_GROUPS))
        ),
        is_further=True,
    ),
    # DaemonSets, the scheduler, evictions by taint: each has the cluster for itself.
    "serial": Slice(
        about="conformance: what must run alone",
        label_filter="Conformance && (Serial || Disruptive) && !sig-api-machinery",
        is_further=True,
    ),
}
"""By name, in the order in which they are run and told."""

BY_DEFAULT = tuple(name for name, one in SLICES.items() if not one.is_further)
ALL = "all"
"""Stands for every slice where one is named."""


def slices_named(names: list[str]) -> list[str]:
    """Say which slices are meant, each once, in order.

    Raises:
        KeyError: there is no such slice; the argument names it.
    """
    if unknown := sorted(set(names) - SLICES.keys() - {ALL}):
        raise KeyError(", ".join(unknown))
    if ALL in names:
        return list(SLICES)
    return [name for name in SLICES if name in names] or list(BY_DEFAULT)


def by_setting(names: Iterable[str]) -> dict[bool, list[str]]:
    """Put slices together that one federate serves: whether it gives namespaces the hub's names."""
    found: dict[bool, list[str]] = {}
    for name in names:
        found.setdefault(SLICES[name].has_same_namespaces, []).append(name)
    return found
