"""Which of Kubernetes' specs are run: slices by label, so that a run fits an evening."""

from collections.abc import Mapping

PARALLEL = "Conformance && !Serial && !Disruptive"
"""What every conformant cluster passes and what may run beside other specs."""

SLICES: Mapping[str, str] = {
    "node": f"{PARALLEL} && sig-node",
    "storage": f"{PARALLEL} && sig-storage",
    "apps": f"{PARALLEL} && sig-apps",
    "auth-cli": f"{PARALLEL} && (sig-auth || sig-cli)",
    "network": f"{PARALLEL} && sig-network",
}
"""Name -> ginkgo's label filter."""

APART = frozenset({"network"})
"""Reported, and left out of the figure: the virtual node bridges pods, not networks."""
