"""What a federate process is told to do: validated values, read at the edge by the CLI."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from federate.model.naming import NamespaceRules
from federate.node.capacity import CapacityRules


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetSettings:
    """One target and the virtual node that stands for it; the node has the target's name."""

    name: str
    kubeconfig: Path
    context: str | None = None
    capacity: CapacityRules = field(default_factory=CapacityRules)
    namespaces: NamespaceRules = field(default_factory=NamespaceRules)
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The whole process."""

    hub_kubeconfig: Path | None
    """None: the service account of the pod that federate runs in."""
    hub_context: str | None = None
    targets: tuple[TargetSettings, ...]
    identity: str
    """Holder identity in leader leases: unique per process."""
    listen_host: str = "127.0.0.1"
    listen_port: int = 8080
    """Port of /healthz, /readyz and /metrics; 0 picks a free one, which is logged."""
    node_address: str | None = None
    """The InternalIP of the virtual nodes; None: this host's address towards the hub."""
    leader_lease_namespace: str = "kube-system"
