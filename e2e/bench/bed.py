"""What the benchmark runs on: two clusters of its own, a user for federate, and the witness.

Both clusters have nodes that kwok plays: those of the hub are for the arm that runs the Deployment
there directly. Everything dies with this process, also when it is killed; names and ports are
random, so that two benchmarks may run at once (and spoil each other's numbers only).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from e2e.support.manifests import deployment, pod_spec
from e2e.support.process import FederateProcess, RunOptions
from e2e.support.witness import Json
from e2e.support.world import wait_for
from e2e.testbed.binaries import Binaries
from e2e.testbed.kubeconfigs import embed, write_kubeconfig
from e2e.testbed.local import LocalCluster, LocalProvider, programs_of
from e2e.testbed.places import Places
from e2e.testbed.progress import Progress
from e2e.testbed.provider import ClusterSpec, NodePlay, start_all

from .audit import APISERVER_ARGUMENTS, LOG, AuditLog
from .requests import Connection
from .watching import Watching

NODE = "edge"
NAMESPACE = "bench"
USER = "federate"

NODES = 4
PODS_PER_NODE = 5000
"""Room for 20,000 pods in each cluster: it never is what is measured."""

TOKEN_SECONDS = 24 * 3600


def spec_of(name: str, *, play: NodePlay, service_range: str) -> ClusterSpec:
    """Describe one cluster of the benchmark."""
    return ClusterSpec(
        name=name,
        service_range=service_range,
        nodes=NODES,
        node_pods=PODS_PER_NODE,
        node_cpu="1000",
        node_memory="4Ti",
        node_play=play,
        apiserver_arguments=APISERVER_ARGUMENTS,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Bed:
    """Two clusters, federate between them (not started), and who watches both."""

    hub: LocalCluster
    target: LocalCluster
    on_hub: Connection
    on_target: Connection
    watching: Watching
    federate: FederateProcess

    @property
    def clusters(self) -> dict[str, LocalCluster]:
        """Hub and target by their roles."""
        return {"hub": self.hub, "target": self.target}

    def audit_log(self, cluster: LocalCluster) -> AuditLog:
        """Return what a cluster writes down of federate's writes."""
        return AuditLog(cluster.layout.folder / LOG)

    def start_federate(self) -> None:
        """Start federate and wait until the hub's scheduler would use its node."""
        self.federate.start()
        self.federate.wait_ready()
        wait_for(
            f"node {NODE} takes pods",
            lambda: takes_pods(self.on_hub.get(f"/api/v1/nodes/{NODE}")),
            timeout_seconds=120.0,
            explain=self.federate.log_tail,
        )

    def stop_federate(self) -> None:
        """Stop federate; what it mirrored stays."""
        if self.federate.is_running:
            self.federate.stop()

    def check_federate(self) -> None:
        """Fail where federate has ended by itself."""
        assert self.federate.is_running, self.federate.log_tail()

    def server_pids(self) -> dict[str, int]:
        """Name every server of both clusters with its pid."""
        return {
            f"{role} {name}": server.pid
            for role, cluster in self.clusters.items()
            for name, server in cluster.servers.items()
        }


def takes_pods(node: Json) -> bool:
    """Tell whether a node is ready and the node controller holds nothing against it."""
    conditions = node.get("status", {}).get("conditions", [])
    is_ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
    taints = node["spec"].get("taints") or ()
    return is_ready and not any(t["key"].startswith("node.kubernetes.io/") for t in taints)


def deployment_for(name: str, arm_selector: Json, *, replicas: int) -> Json:
    """Render the Deployment of all arms, which differ in the node selector only."""
    return deployment(name, pod_spec(NODE, nodeSelector=arm_selector), replicas=replicas)


@contextmanager
def running_bed(play: NodePlay, progress: Progress) -> Iterator[Bed]:
    """Start clusters and witness; everything is gone afterwards."""
    hub_spec = spec_of("hub", play=play, service_range="10.120.0.0/16")
    target_spec = spec_of("target", play=play, service_range="10.121.0.0/16")
    binaries = Binaries(Places(), progress)
    binaries.find_all(programs_of(hub_spec), hub_spec.minor)
    with ExitStack() as stack:
        provider = LocalProvider(binaries)
        stack.callback(provider.close)
        with progress.long_step(f"Starting hub and target with {play} nodes"):
            hub, target = start_all(provider, (hub_spec, target_spec))
        assert isinstance(hub, LocalCluster) and isinstance(target, LocalCluster)
        on_hub = stack.enter_context(Connection(hub))
        on_target = stack.enter_context(Connection(target))
        folder = provider.bed.cluster_folder("federate")
        options = RunOptions(
            node=NODE,
            hub=prepare(hub, on_hub, folder / "hub.yaml"),
            target=prepare(target, on_target, folder / "target.yaml"),
        )
        federate = FederateProcess(options, folder=folder)
        stack.callback(federate.close)
        watching = stack.enter_context(Watching((hub, target), log=folder / "witness.log"))
        yield Bed(
            hub=hub,
            target=target,
            on_hub=on_hub,
            on_target=on_target,
            watching=watching,
            federate=federate,
        )


def prepare(cluster: LocalCluster, connection: Connection, kubeconfig: Path) -> Path:
    """Make the namespace and federate's own user, by which the audit log tells its writes apart."""
    connection.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    accounts = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"
    connection.create(accounts, {"metadata": {"name": USER}})
    binding = {
        "metadata": {"name": f"{NAMESPACE}-{USER}"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin",
        },
        "subjects": [{"kind": "ServiceAccount", "namespace": NAMESPACE, "name": USER}],
    }  # fmt: skip
    connection.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)
    token = connection.create(
        f"{accounts}/{USER}/token", {"spec": {"expirationSeconds": TOKEN_SECONDS}}
    )
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": cluster.name,
                "cluster": {
                    "server": cluster.api_url,
                    "certificate-authority-data": embed(cluster.ca_certificate),
                },
            }
        ],
        "users": [{"name": USER, "user": {"token": token["status"]["token"]}}],
        "contexts": [{"name": USER, "context": {"cluster": cluster.name, "user": USER}}],
        "current-context": USER,
    }
    return write_kubeconfig(kubeconfig, content)
