"""What a federate process is told to do: validated values, read at the edge by the CLI."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from federate.claims.rules import ClaimRules
from federate.companions.rules import CompanionRules
from federate.kubelet.rules import ServingRules
from federate.model.naming import NamespaceRules
from federate.model.taints import Taint, TaintEffect
from federate.node.capacity import CapacityRules
from federate.policy.rules import PolicyRules
from federate.services.rules import NetworkRules


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletSettings:
    """How a virtual node answers the hub's API server: logs, exec, metrics (C60-C62)."""

    is_served: bool = True
    address: str | None = None
    """Where it listens; None: the node's address, or all where that is not this host's."""
    port: int = 0
    """0: a free one, which the Node tells."""
    serving: ServingRules = field(default_factory=ServingRules)


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetSettings:
    """One target and the virtual node that stands for it; the node has the target's name."""

    name: str
    kubeconfig: Path
    context: str | None = None
    capacity: CapacityRules = field(default_factory=CapacityRules)
    namespaces: NamespaceRules = field(default_factory=NamespaceRules)
    labels: Mapping[str, str] = field(default_factory=dict)
    taint_value: str = "federate"
    """Value of the taint `virtual-kubelet.io/provider`."""
    taint_effect: TaintEffect | None = TaintEffect.NO_SCHEDULE
    """Its effect; None: the Node has no such taint."""
    taints: tuple[Taint, ...] = ()
    """More taints, beside that one."""
    provider_id: str | None = None
    """None: `federate://` and the node's name."""
    node_address: str | None = None
    """Its InternalIP; None: this host's address towards the hub."""
    kubelet: KubeletSettings = field(default_factory=KubeletSettings)
    companions: CompanionRules = field(default_factory=CompanionRules)
    policy: PolicyRules = field(default_factory=PolicyRules)
    claims: ClaimRules = field(default_factory=ClaimRules)
    network: NetworkRules = field(default_factory=NetworkRules)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The whole process."""

    hub_kubeconfig: Path | None
    """None: the service account of the pod that federate runs in."""
    hub_context: str | None = None
    hub_identity: str | None = None
    """What the hub is called in marks; None: the uid of its kube-system namespace (C3)."""
    targets: tuple[TargetSettings, ...]
    identity: str
    """Holder identity in leader leases: unique per process."""
    listen_host: str = "127.0.0.1"
    listen_port: int = 8080
    """Port of /healthz, /readyz and /metrics; 0 picks a free one, which is logged."""
    leader_lease_namespace: str = "kube-system"
    log_level: str = "info"
    log_format: str = "auto"
