"""Nodes without machines: kwok plays them and the pods on them.

kwok owns exactly the nodes that carry `FAKE_NODE_ANNOTATION`. A virtual node that federate
registers does not carry it, so kwok never touches it or its pods.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .control_plane import Command, Layout
from .places import STAGES
from .provider import ClusterSpec

FAKE_NODE_ANNOTATION = "kwok.x-k8s.io/node"
FAKE_NODE_VALUE = "fake"

LEASE_SECONDS = 40
"""How long a node counts as alive after its last heartbeat; a kubelet's own default."""

POD_RANGE = "10.244.0.1/16"


def kwok_command(program: Path, layout: Layout) -> Command:
    return [
        program,
        f"--kubeconfig={layout.kubeconfig}",
        f"--config={layout.folder / 'kwok.yaml'}",
        "--manage-all-nodes=false",
        f"--manage-nodes-with-annotation-selector={FAKE_NODE_ANNOTATION}={FAKE_NODE_VALUE}",
        f"--node-lease-duration-seconds={LEASE_SECONDS}",
        f"--cidr={POD_RANGE}",
        "--node-ip=127.0.0.1",
        "--enable-crds=",
    ]


def render_kwok_configuration(spec: ClusterSpec) -> str:
    """Join the stages into the one configuration file kwok reads."""
    pods = {"plain": "pod.yaml", "lifelike": "pod-lifelike.yaml"}[spec.node_play]
    return "\n---\n".join((STAGES / name).read_text() for name in ("node.yaml", pods))


def fake_node_name(spec: ClusterSpec, number: int) -> str:
    return f"{spec.name}-node-{number}"


def lease_path(spec: ClusterSpec, number: int) -> str:
    """Return the path of a fake node's lease, by which kwok processes agree on who plays it."""
    leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
    return f"{leases}/{fake_node_name(spec, number)}"


def render_fake_node(spec: ClusterSpec, number: int) -> Mapping[str, Any]:
    name = fake_node_name(spec, number)
    resources = {"cpu": spec.node_cpu, "memory": spec.node_memory, "pods": str(spec.node_pods)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {FAKE_NODE_ANNOTATION: FAKE_NODE_VALUE},
            "labels": {
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "type": "kwok",
            },
        },
        "status": {
            "allocatable": resources,
            "capacity": resources,
            "nodeInfo": {
                "architecture": "amd64",
                "bootID": "",
                "containerRuntimeVersion": "kwok",
                "kernelVersion": "kwok",
                "kubeProxyVersion": "kwok",
                "kubeletVersion": "kwok",
                "machineID": "",
                "operatingSystem": "linux",
                "osImage": "",
                "systemUUID": "",
            },
        },
    }


def is_usable(node: Mapping[str, Any]) -> bool:
    """Tell whether the scheduler would put a pod on the node."""
    conditions = node.get("status", {}).get("conditions", [])
    is_ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
    return is_ready and not node.get("spec", {}).get("taints")
