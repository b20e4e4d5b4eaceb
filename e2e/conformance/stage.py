"""Two kind clusters for the tests: a target, and a hub whose only usable node is virtual.

Between them the pods' networks are joined, as where somebody made them flat: federate bridges
pods, and Kubernetes' tests take it that every pod is reached from every node. The hub's own node is
tainted as control planes are, and the virtual one is not: the suite uses no node that has a taint,
whatever its pods tolerate.
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from e2e.containers.reports import ADDRESS
from e2e.support.identity import federation
from e2e.support.process import FederateProcess
from e2e.support.worlds import Worlds
from e2e.testbed.binaries import Binaries
from e2e.testbed.docker import Docker
from e2e.testbed.kind import KindProvider, RealCluster
from e2e.testbed.places import Places
from e2e.testbed.progress import Progress
from e2e.testbed.provider import ClusterSpec

NODE = "edge"
FILES = Path(__file__).resolve().parent / "files"
OWN_TAINT = "node-role.kubernetes.io/control-plane"

HUB = ClusterSpec(name="hub")
TARGET = ClusterSpec(name="target", service_range="10.97.0.0/16", pod_range="10.245.0.0/16")

STATIC_NETWORK = "/etc/cni/net.d/10-kindnet.conflist"
OTHER_SUBNET = ("10.244.0.0/24", "10.245.0.0/24")
"""What the test bed's own node image has in that file, and what the target has instead."""

KEEP_OFF = {
    "spec": {
        "template": {
            "spec": {
                "affinity": {
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [
                                {
                                    "matchExpressions": [
                                        {
                                            "key": "type",
                                            "operator": "NotIn",
                                            "values": ["virtual-kubelet"],
                                        }
                                    ]
                                }
                            ]
                        }
                    }
                }
            }
        }
    }
}
"""What `federate check` tells to do with DaemonSets of the hub's own nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Where clusters come from, and what they are given."""

    places: Places
    binaries: Binaries
    provider: KindProvider
    images: Path | None
    """None: nodes pull the originals."""

    def start_target(self) -> RealCluster:
        """Start the cluster that pods run in, with the tests' images."""
        target = self.provider.start(TARGET)
        move_pods(self.docker, target)
        if self.images is not None:
            target.load_archive(self.images)
        return target

    def start_hub(self, target: RealCluster) -> RealCluster:
        """Start the cluster that tests talk to, joined to the target's network."""
        hub = self.provider.start(HUB)
        join(self.docker, hub, target)
        # Before the virtual node is there, which they would go to.
        hub.kubectl(
            "-n", "kube-system", "patch", "daemonset", "kube-proxy", "-p", json.dumps(KEEP_OFF)
        )
        hub.kubectl("taint", "node", hub.node_name, f"{OWN_TAINT}=:NoSchedule")
        return hub

    @property
    def docker(self) -> Docker:
        """The daemon that nodes run in."""
        return Docker(places=self.places)

    @property
    def docker_folder(self) -> Path:
        """Where the daemon keeps nodes and images, as it calls that; it may be elsewhere."""
        return Path(self.docker.run("info", "--format", "{{.DockerRootDir}}").strip())

    @contextmanager
    def federated(
        self, hub: RealCluster, target: RealCluster, folder: Path, *, has_same_namespaces: bool
    ) -> Iterator[FederateProcess]:
        """Run federate between the two."""
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "federation.yaml"
        more = yaml.safe_load((FILES / "virtual-node.yaml").read_text())
        if has_same_namespaces:
            more["namespaces"] = {"strategy": "same"}
        kubelet = {"certificate": "csr", "approve": True}
        document = federation(
            NODE, hub=hub, target=target, places=self.places, kubelet=kubelet, **more
        )
        file.write_text(yaml.safe_dump(document))
        with ExitStack() as stack:
            worlds = Worlds(folder)
            stack.callback(worlds.close)
            world = stack.enter_context(
                worlds.world(node=NODE, hub=hub, target=target, config=file)
            )
            yield world.federate


@contextmanager
def stage(binaries: Binaries, images: Path | None, progress: Progress) -> Iterator[Stage]:
    """Hold everything that ends with the run, however that ends."""
    provider = KindProvider(binaries)
    try:
        yield Stage(places=binaries.places, binaries=binaries, provider=provider, images=images)
    finally:
        with progress.long_step("Deleting the clusters"):
            provider.close()


def move_pods(docker: Docker, target: RealCluster) -> None:
    """Give pods addresses of the target's own range where the node has a static network."""
    inside = ("exec", target.node_name)
    script = f"test ! -f {STATIC_NETWORK} || sed -i s,{OTHER_SUBNET[0]},{OTHER_SUBNET[1]}, "
    docker.run(*inside, "sh", "-c", f"{script}{STATIC_NETWORK}")
    # Those that have an address of the other range already.
    target.kubectl("-n", "kube-system", "delete", "pods", "-l", "k8s-app=kube-dns", "--wait=false")
    target.kubectl(
        *("-n", "kube-system", "rollout", "status", "deployment/coredns", "--timeout=120s"),
        timeout_seconds=150,
    )


def join(docker: Docker, hub: RealCluster, target: RealCluster) -> None:
    """Let each node know the way to the other's pods."""
    ranges = {hub: "10.244.0.0/24", target: OTHER_SUBNET[1]}
    addresses = {one: address_of(docker, one) for one in ranges}
    for here, there in ((hub, target), (target, hub)):
        way = ("ip", "route", "replace", ranges[there], "via", addresses[there])
        docker.run("exec", here.node_name, *way)


def address_of(docker: Docker, cluster: RealCluster) -> str:
    """Say where a node is in Docker's network."""
    return docker.run("inspect", "--format", ADDRESS, cluster.node_name).strip()
