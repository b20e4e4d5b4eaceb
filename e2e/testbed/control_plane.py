"""The command lines of a bare control plane. Pure: paths and ports in, arguments out.

Flags here exist, with one meaning, in every Kubernetes minor the test bed knows.
"""

from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path

from .pki import FRONT_PROXY_NAME, Pki
from .provider import ClusterSpec

Command = list[str | Path]

CLIENT_QPS, CLIENT_BURST = 2000, 4000
"""What the controllers may ask of the API server. Lower, and a measurement of many pods measures
the controllers' own throttling."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where one cluster keeps its files and listens."""

    folder: Path
    storage_port: int
    peer_port: int
    apiserver_port: int

    @property
    def apiserver_url(self) -> str:
        return f"https://127.0.0.1:{self.apiserver_port}"

    @property
    def storage_url(self) -> str:
        return f"http://127.0.0.1:{self.storage_port}"

    @property
    def storage(self) -> Path:
        """Everything the cluster remembers: what a snapshot copies and a restore replaces."""
        return self.folder / "storage"

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig.yaml"

    def component_kubeconfig(self, component: str) -> Path:
        return self.folder / "pki" / f"{component}.kubeconfig.yaml"


def service_address(spec: ClusterSpec) -> str:
    """Return the address the Service `kubernetes` gets: the first of the range."""
    return str(ip_network(spec.service_range)[1])


def etcd_command(program: Path, layout: Layout) -> Command:
    peer_url = f"http://127.0.0.1:{layout.peer_port}"
    return [
        program,
        f"--data-dir={layout.storage}",
        f"--listen-client-urls={layout.storage_url}",
        f"--advertise-client-urls={layout.storage_url}",
        f"--listen-peer-urls={peer_url}",
        f"--initial-advertise-peer-urls={peer_url}",
        f"--initial-cluster=default={peer_url}",
        # A test bed survives no power cut anyway, and disks of CI machines are slow.
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def kine_command(program: Path, layout: Layout) -> Command:
    database = layout.storage / "kine.db"
    options = "_journal=WAL&cache=shared&_busy_timeout=30000&_txlock=immediate"
    return [
        program,
        f"--endpoint=sqlite://{database}?{options}",
        f"--listen-address=127.0.0.1:{layout.storage_port}",
        "--metrics-bind-address=0",
    ]


def apiserver_command(program: Path, spec: ClusterSpec, layout: Layout, pki: Pki) -> Command:
    """Render the API server of a layout: another port or storage is another layout."""
    verification = f"--kubelet-certificate-authority={pki.authority.certificate}"
    return [
        program,
        f"--etcd-servers={layout.storage_url}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        f"--secure-port={layout.apiserver_port}",
        f"--tls-cert-file={pki.server.certificate}",
        f"--tls-private-key-file={pki.server.key}",
        f"--client-ca-file={pki.authority.certificate}",
        "--authorization-mode=Node,RBAC",
        "--allow-privileged=true",
        f"--service-cluster-ip-range={spec.service_range}",
        # Loopback addresses may not be endpoints of a Service.
        "--endpoint-reconciler-type=none",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-signing-key-file={pki.service_account.key}",
        f"--service-account-key-file={pki.service_account.certificate}",
        f"--kubelet-client-certificate={pki.kubelet_client.certificate}",
        f"--kubelet-client-key={pki.kubelet_client.key}",
        "--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname",
        # The aggregation layer, which metrics-server needs.
        f"--requestheader-client-ca-file={pki.front_proxy_authority.certificate}",
        f"--requestheader-allowed-names={FRONT_PROXY_NAME}",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={pki.front_proxy.certificate}",
        f"--proxy-client-key-file={pki.front_proxy.key}",
        "--enable-aggregator-routing=true",
        "--event-ttl=1h",
        "--profiling=false",
        *([verification] if spec.verifies_kubelets else []),
        *spec.apiserver_arguments,
    ]


def controller_manager_command(
    program: Path, spec: ClusterSpec, layout: Layout, pki: Pki
) -> Command:
    return [
        program,
        f"--kubeconfig={layout.component_kubeconfig('controller-manager')}",
        "--leader-elect=false",
        "--secure-port=0",
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={pki.service_account.key}",
        f"--root-ca-file={pki.authority.certificate}",
        f"--cluster-signing-cert-file={pki.authority.certificate}",
        f"--cluster-signing-key-file={pki.authority.key}",
        f"--kube-api-qps={CLIENT_QPS}",
        f"--kube-api-burst={CLIENT_BURST}",
        "--profiling=false",
        *spec.controller_manager_arguments,
    ]


def scheduler_command(program: Path, spec: ClusterSpec, layout: Layout) -> Command:
    return [
        program,
        f"--config={layout.folder / 'scheduler.yaml'}",
        "--secure-port=0",
        *spec.scheduler_arguments,
    ]


def render_scheduler_configuration(layout: Layout) -> dict[str, object]:
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "enableProfiling": False,
        "clientConnection": {
            "kubeconfig": str(layout.component_kubeconfig("scheduler")),
            "qps": CLIENT_QPS,
            "burst": CLIENT_BURST,
        },
    }
