"""Provider `local`: bare control planes on this machine, without containers.

A cluster is a handful of processes in one folder: storage, API server and, if wanted, controller
manager, scheduler and kwok. Pods are only played: nothing runs in them.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path

import yaml

from . import control_plane, fake_nodes
from .api import Api
from .beds import Beds
from .binaries import Binaries
from .control_plane import Layout
from .errors import TestbedError
from .kubeconfigs import render_kubeconfig, write_kubeconfig
from .pki import KeyPair, Pki, create_pki
from .ports import free_ports, listens
from .processes import AddressTakenError, Launcher, Server
from .provider import ClusterSpec, TestCluster

STORAGE_TIMEOUT_SECONDS = 30.0
READY_TIMEOUT_SECONDS = 120.0
"""An idle machine needs 5 s; one that compiles on all cores can need a minute."""

START_ATTEMPTS = 4
"""How often a cluster is tried on other ports when somebody was faster."""


class LocalCluster(TestCluster):
    """A running local cluster, and ways to hurt it."""

    def __init__(
        self,
        *,
        spec: ClusterSpec,
        layout: Layout,
        pki: Pki,
        servers: dict[str, Server],
        launcher: Launcher,
        binaries: Binaries,
    ) -> None:
        self.spec = spec
        self.layout = layout
        self.pki = pki
        self.servers = servers
        """By name: storage, apiserver, controller-manager, scheduler, kwok; in start order."""
        self.api = Api(
            port=layout.apiserver_port, authority=pki.authority.certificate, user=pki.admin
        )
        self._launcher = launcher
        super().__init__(
            name=spec.name,
            kubeconfig=layout.kubeconfig,
            api_url=layout.apiserver_url,
            version="",
            find_kubectl=lambda: binaries.find("kubectl", spec.minor),
        )

    @property
    def apiserver_port(self) -> int:
        return self.layout.apiserver_port

    @property
    def storage_port(self) -> int:
        return self.layout.storage_port

    @property
    def logs(self) -> Path:
        """The folder with one log file per server."""
        return self.layout.folder / "logs"

    @property
    def ca_certificate(self) -> Path:
        """The authority that signed the API server's and the users' certificates."""
        return self.pki.authority.certificate

    def pause_apiserver(self) -> None:
        """Freeze the API server: connections stay open and nothing answers."""
        self.servers["apiserver"].pause()

    def resume_apiserver(self) -> None:
        self.servers["apiserver"].resume()

    def kill_apiserver(self) -> None:
        """End the API server at once: its port refuses connections afterwards."""
        self.servers["apiserver"].kill()

    def start_apiserver(self) -> None:
        """Start the API server again, on the same port, and wait until it serves."""
        server = self.servers["apiserver"]
        server.start()
        server.wait_ready(self.api.is_ready, timeout_seconds=READY_TIMEOUT_SECONDS)

    def restart_apiserver(self) -> None:
        """Stop the API server in good order and start it again."""
        self.servers["apiserver"].stop()
        self.start_apiserver()

    def stop(self) -> None:
        """End all servers, the storage last; twice does no harm. Logs stay in the bed."""
        for server in reversed(self.servers.values()):
            # Nothing of the cluster is kept, so nobody has to finish anything.
            server.kill()
        self._launcher.close()

    def start(self) -> None:
        """Start everything the spec asks for and wait until the cluster is usable."""
        storage = self.servers["storage"]
        storage.start()
        storage.wait_ready(
            lambda: listens(self.storage_port), timeout_seconds=STORAGE_TIMEOUT_SECONDS
        )
        self.start_apiserver()
        for node in range(self.spec.nodes):
            self.api.post("/api/v1/nodes", fake_nodes.render_fake_node(self.spec, node))
        for server in self.servers.values():
            server.start()
        self.version = str(self.api.get("/version")["gitVersion"])
        self._wait_usable()

    def _wait_usable(self) -> None:
        if self.spec.with_controller_manager:
            # Pods are refused until their namespace has its ServiceAccount.
            account = "/api/v1/namespaces/default/serviceaccounts/default"
            self.servers["controller-manager"].wait_ready(
                lambda: self.api.has(account), timeout_seconds=READY_TIMEOUT_SECONDS
            )
        if self.spec.nodes and self.spec.with_controller_manager:
            self.servers["kwok"].wait_ready(
                self._are_nodes_usable, timeout_seconds=READY_TIMEOUT_SECONDS
            )
        # Those that nobody waited for may have ended meanwhile.
        for server in self.servers.values():
            server.wait_ready(lambda: True, timeout_seconds=0.0)

    def _are_nodes_usable(self) -> bool:
        nodes = self.api.get("/api/v1/nodes")["items"]
        return sum(map(fake_nodes.is_usable, nodes)) >= self.spec.nodes


class LocalProvider:
    """Start local clusters in one bed, which dies with this process unless it is kept."""

    name = "local"

    def __init__(
        self, binaries: Binaries, *, bed_name: str | None = None, tied: bool = True
    ) -> None:
        """`tied=False` is for clusters that outlive the command: the caller keeps the bed."""
        self.binaries = binaries
        self.bed = Beds(binaries.places).create(bed_name)
        self._tied = tied
        self._clusters: list[LocalCluster] = []

    def start(self, spec: ClusterSpec) -> LocalCluster:
        """Start a cluster; a name is used once per bed.

        Raises:
            TestbedError: it did not come up; its logs stay in the bed until `close`.
        """
        programs = self._find_programs(spec)
        folder = self.bed.cluster_folder(spec.name)
        if folder.exists():
            raise TestbedError(f"This bed has had a cluster {spec.name} already.")
        for attempt in range(1, START_ATTEMPTS + 1):
            cluster = self._assemble(spec, folder, programs)
            try:
                cluster.start()
            except AddressTakenError:
                cluster.stop()
                if attempt == START_ATTEMPTS:
                    raise
                shutil.rmtree(folder)
            except BaseException:
                cluster.stop()
                raise
            else:
                self._clusters.append(cluster)
                return cluster
        raise AssertionError("the last attempt returns or raises")

    def close(self) -> None:
        """Stop all clusters of the bed and delete it, logs included."""
        for cluster in self._clusters:
            cluster.stop()
        self.bed.remove()

    def _find_programs(self, spec: ClusterSpec) -> dict[str, Path]:
        names = programs_of(spec)
        return {
            name: found.path
            for name, found in zip(names, self.binaries.find_all(names, spec.minor), strict=True)
        }

    def _assemble(self, spec: ClusterSpec, folder: Path, programs: dict[str, Path]) -> LocalCluster:
        """Write a cluster's files and describe its servers; nothing runs yet."""
        storage_port, peer_port, apiserver_port = free_ports(3)
        layout = Layout(
            folder=folder,
            storage_port=storage_port,
            peer_port=peer_port,
            apiserver_port=apiserver_port,
        )
        pki = create_pki(folder / "pki", service_address=control_plane.service_address(spec))
        write_configuration(spec, layout, pki)
        launcher = Launcher(tied=self._tied)
        commands = render_commands(spec, layout, pki, programs)
        return LocalCluster(
            spec=spec,
            layout=layout,
            pki=pki,
            servers={
                name: Server(name, command, folder=folder, launcher=launcher)
                for name, command in commands.items()
            },
            launcher=launcher,
            binaries=self.binaries,
        )


def programs_of(spec: ClusterSpec) -> list[str]:
    """Name the programs a cluster needs to run; kubectl is left to who calls it."""
    names = [spec.storage, "kube-apiserver"]
    if spec.with_controller_manager:
        names.append("kube-controller-manager")
    if spec.with_scheduler:
        names.append("kube-scheduler")
    if spec.nodes:
        names.append("kwok")
    return names


def render_commands(
    spec: ClusterSpec, layout: Layout, pki: Pki, programs: Mapping[str, Path]
) -> dict[str, control_plane.Command]:
    """Render the command line of every server, in start order."""
    apiserver = programs["kube-apiserver"]
    storage = control_plane.etcd_command if spec.storage == "etcd" else control_plane.kine_command
    commands = {
        "storage": storage(programs[spec.storage], layout),
        "apiserver": control_plane.apiserver_command(apiserver, spec, layout, pki),
    }
    if program := programs.get("kube-controller-manager"):
        commands["controller-manager"] = control_plane.controller_manager_command(
            program, spec, layout, pki
        )
    if program := programs.get("kube-scheduler"):
        commands["scheduler"] = control_plane.scheduler_command(program, spec, layout)
    if program := programs.get("kwok"):
        commands["kwok"] = fake_nodes.kwok_command(program, layout)
    return commands


def write_configuration(spec: ClusterSpec, layout: Layout, pki: Pki) -> None:
    """Write the files the command lines refer to."""

    def kubeconfig(path: Path, user: KeyPair) -> None:
        content = render_kubeconfig(
            name=spec.name,
            server=layout.apiserver_url,
            authority=pki.authority.certificate,
            user=user,
        )
        write_kubeconfig(path, content)

    kubeconfig(layout.kubeconfig, pki.admin)
    kubeconfig(layout.component_kubeconfig("controller-manager"), pki.controller_manager)
    kubeconfig(layout.component_kubeconfig("scheduler"), pki.scheduler)
    scheduler = control_plane.render_scheduler_configuration(layout)
    (layout.folder / "scheduler.yaml").write_text(yaml.safe_dump(scheduler))
    (layout.folder / "kwok.yaml").write_text(fake_nodes.render_kwok_configuration())
