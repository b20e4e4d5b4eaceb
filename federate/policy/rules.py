"""What the operator of a target says of the pods that may run there. Plain values.

A topic is something a pod may ask for; what becomes of it is its outcome. Names that mean something
else in the target are mapped before the outcome counts: it is about the names that no map has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from federate.model.pods import VIRTUAL_NODE_TAINT_KEY


class Outcome(StrEnum):
    """What becomes of something that a pod asks for."""

    ALLOW = "allow"
    """It travels as it is."""
    STRIP = "strip"
    """The mirror is made without it."""
    REFUSE = "refuse"
    """No mirror is made."""


class OnRefusal(StrEnum):
    """What becomes of a pod that is refused (C26)."""

    PENDING = "pending"
    """It waits: its owner has a pod, and makes no other."""
    FAIL = "fail"
    """It fails, so that its owner tries elsewhere: one of an owner's pods in each back-off."""


class DaemonSetMode(StrEnum):
    """What becomes of the pods of the hub's DaemonSets (C26)."""

    PENDING = "pending"
    """They wait, and say so."""
    MIRROR = "mirror"
    """They are mirrored like others."""
    PRETEND = "pretend"
    """They say that they are ready and run nowhere, so that roll-outs go on."""


BASELINE_CAPABILITIES = frozenset(
    {
        "AUDIT_WRITE",
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "KILL",
        "MKNOD",
        "NET_BIND_SERVICE",
        "SETFCAP",
        "SETGID",
        "SETPCAP",
        "SETUID",
        "SYS_CHROOT",
    }
)
"""What PodSecurity `baseline` lets a container add; spelled in any other way, it does not."""

BASELINE_SYSCTLS = frozenset(
    {
        "kernel.shm_rmid_forced",
        "net.ipv4.ip_local_port_range",
        "net.ipv4.ip_local_reserved_ports",
        "net.ipv4.ip_unprivileged_port_start",
        "net.ipv4.ping_group_range",
        "net.ipv4.tcp_fin_timeout",
        "net.ipv4.tcp_keepalive_intvl",
        "net.ipv4.tcp_keepalive_probes",
        "net.ipv4.tcp_keepalive_time",
        "net.ipv4.tcp_rmem",
        "net.ipv4.tcp_syncookies",
        "net.ipv4.tcp_wmem",
    }
)
"""What PodSecurity `baseline` lets a pod set, as of 1.32; older API servers know fewer."""

COMMON_NODE_KEYS: Mapping[str, str] = MappingProxyType(
    {"kubernetes.io/arch": "kubernetes.io/arch", "kubernetes.io/os": "kubernetes.io/os"}
)
"""Node label keys that mean the same in every cluster."""


GRANTING_KEYS = (
    # Identities.
    "aadpodidbinding",
    "azure.workload.identity/",
    "eks.amazonaws.com/",
    "iam.amazonaws.com/",
    "spiffe.io/",
    # Secrets, fetched by whoever puts a container into pods that ask for it.
    "vault.hashicorp.com/",
    "vault.security.banzaicloud.io/",
    # Containers, with volumes and rights of their own, that a webhook puts in.
    "config.linkerd.io/",
    "consul.hashicorp.com/",
    "dapr.io/",
    "gke-gcsfuse/",
    "inject.istio.io/",
    "instrumentation.opentelemetry.io/",
    "istio.io/rev",
    "kuma.io/",
    "linkerd.io/inject",
    "sidecar.istio.io/",
    "sidecar.opentelemetry.io/",
    # Networks, addresses and names.
    "cni.projectcalico.org/",
    "external-dns.alpha.kubernetes.io/",
    "ipam.cilium.io/",
    "k8s.ovn.org/",
    "k8s.v1.cni.cncf.io/",
    "networking.gke.io/",
    "ovn.kubernetes.io/",
    "v1.multus-cni.io/",
    "vpc.amazonaws.com/",
    # Devices, mounts and settings of the container runtime.
    "cdi-devices.nri.io/",
    "cdi.k8s.io/",
    "dev.gvisor.",
    "devices.nri.io/",
    "io.katacontainers.",
    "io.kubernetes.cri-o.",
    "mounts.nri.io/",
    # What says that a pod is a kubelet's own: drains and quotas look at it.
    "kubernetes.io/config.",
)
"""Keys of labels and annotations, and prefixes, by which a pod gets from a target what its spec
does not ask for: the policy would not see it. Not all there are: no list could be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageRewrite:
    """Images below one registry path are pulled from below another.

    Both are a registry with its host, and a path of whole components or none.
    """

    before: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRules:
    """All that the policy of one target says. Defaults equal PodSecurity `baseline`."""

    outcomes: Mapping[str, Outcome] = field(default_factory=dict)
    """By the key of the topic; what is not in it has the topic's default."""
    capabilities: frozenset[str] = BASELINE_CAPABILITIES
    """What containers may add, whatever the outcome of others."""
    sysctls: frozenset[str] = BASELINE_SYSCTLS
    devices: frozenset[str] = frozenset()
    """Devices that pods may ask for, by the name of a class too, whatever the outcome of others."""
    runtime_classes: Mapping[str, str] = field(default_factory=dict)
    """The target's names by the hub's; so with the next two."""
    priority_classes: Mapping[str, str] = field(default_factory=dict)
    schedulers: Mapping[str, str] = field(default_factory=dict)
    toleration_keys: tuple[str, ...] = ()
    """Keys, or prefixes that end in `/`, of tolerations that travel whatever the outcome."""
    own_taint_keys: frozenset[str] = frozenset({VIRTUAL_NODE_TAINT_KEY})
    """Taints of the virtual node: what tolerates them asks nothing of the target."""
    node_keys: Mapping[str, str] = field(default_factory=lambda: COMMON_NODE_KEYS)
    """The target's node label keys by the hub's; selectors on others stay behind."""
    images: tuple[ImageRewrite, ...] = ()
    """The first that fits counts."""
    denied_labels: tuple[str, ...] = ()
    """Keys, or prefixes that end in `/`, that do not travel, beside `GRANTING_KEYS`."""
    denied_annotations: tuple[str, ...] = ()
    allowed_metadata: tuple[str, ...] = ()
    """Those of `GRANTING_KEYS` that travel all the same, as labels and as annotations."""
    namespaces: tuple[str, ...] = ()
    """Hub namespaces whose pods may run, as names with `*` and `?`; empty: all."""
    on_refusal: OnRefusal = OnRefusal.PENDING
    daemon_sets: DaemonSetMode = DaemonSetMode.PENDING
