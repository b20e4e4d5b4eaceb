"""Provider `local`: bare control planes on this machine, without containers.

A cluster is a handful of processes in one folder: storage, API server and, if wanted, controller
manager, scheduler and kwok. Pods are only played: nothing runs in them.
"""

import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
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
from .provider import ClusterSpec, KubectlFinder, TestCluster
from .snapshots import Snapshot, put_back, take_snapshot

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
        """By name: storage, apiserver, controller-manager, scheduler, kwok; in start order. A
        second API server is the last, while there is one."""
        self.api = Api(
            port=layout.apiserver_port, authority=pki.authority.certificate, user=pki.admin
        )
        self._launcher = launcher
        self._snapshots = count(1)
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

    @contextmanager
    def second_apiserver(self, *, storage_port: int) -> Iterator["SecondApiServer"]:
        """Run one more API server on the same storage, reached at `storage_port`.

        That port may be of a relay in front of the storage. The cluster's own controllers keep to
        the first API server.
        """
        (port,) = free_ports(1)
        name = f"apiserver-{port}"
        layout = replace(self.layout, storage_port=storage_port, apiserver_port=port)
        program = Path(self.servers["apiserver"].command[0])
        command = control_plane.apiserver_command(program, self.spec, layout, self.pki)
        server = Server(name, command, folder=self.layout.folder, launcher=self._launcher)
        second = SecondApiServer(
            name=self.name,
            server=server,
            api=replace(self.api, port=port),
            kubeconfig=self.layout.folder / f"{name}.kubeconfig.yaml",
            version=self.version,
            find_kubectl=self._find_kubectl,
        )
        content = render_kubeconfig(
            name=self.name,
            server=second.api_url,
            authority=self.ca_certificate,
            user=self.pki.admin,
        )
        write_kubeconfig(second.kubeconfig, content)
        self.servers[name] = server
        try:
            second.start()
            yield second
        finally:
            del self.servers[name]
            second.stop()

    def snapshot(self) -> Snapshot:
        """Copy the storage as it is at one instant; the cluster goes on."""
        return take_snapshot(
            self.name,
            server=self.servers["storage"],
            storage=self.layout.storage,
            folder=self.layout.folder / "snapshots" / str(next(self._snapshots)),
        )

    def restore(self, snapshot: Snapshot) -> float:
        """Stop every server, put the storage back to a snapshot, start all and wait.

        What happened since is forgotten, and versions of that time are given out again. Returns
        when the API server served again, on the monotonic clock.
        """
        assert snapshot.cluster == self.name
        self._kill_servers()
        put_back(snapshot, storage=self.layout.storage)
        self._start_storage()
        self.start_apiserver()
        served_at = time.monotonic()
        for node in range(self.spec.nodes):
            # Or the new kwok waits until the lease of the old one has run out.
            self.api.delete(fake_nodes.lease_path(self.spec, node))
        self._start_others()
        return served_at

    def rebuild(self) -> None:
        """Stop every server and start all with an empty storage: another cluster, same address."""
        self._kill_servers()
        shutil.rmtree(self.layout.storage)
        self.layout.storage.mkdir(mode=0o700)
        self.start()

    def stop(self) -> None:
        """End all servers, the storage last; twice does no harm. Logs stay in the bed."""
        self._kill_servers()
        self._launcher.close()

    def _kill_servers(self) -> None:
        for server in reversed(self.servers.values()):
            # Nobody has to finish anything: the storage is as safe from kill -9 as from a stop.
            server.kill()

    def start(self) -> None:
        """Start everything the spec asks for and wait until the cluster is usable."""
        self._start_storage()
        self.start_apiserver()
        for node in range(self.spec.nodes):
            self.api.post("/api/v1/nodes", fake_nodes.render_fake_node(self.spec, node))
        self._start_others()
        self.version = str(self.api.get("/version")["gitVersion"])

    def _start_storage(self) -> None:
        storage = self.servers["storage"]
        storage.start()
        storage.wait_ready(
            lambda: listens(self.storage_port), timeout_seconds=STORAGE_TIMEOUT_SECONDS
        )

    def _start_others(self) -> None:
        for server in self.servers.values():
            server.start()
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


class SecondApiServer(TestCluster):
    """One more API server of a cluster: the same cluster, seen through it."""

    def __init__(
        self,
        *,
        name: str,
        server: Server,
        api: Api,
        kubeconfig: Path,
        version: str,
        find_kubectl: KubectlFinder,
    ) -> None:
        self.server = server
        self.api = api
        super().__init__(
            name=name,
            kubeconfig=kubeconfig,
            api_url=f"https://127.0.0.1:{api.port}",
            version=version,
            find_kubectl=find_kubectl,
        )

    def start(self) -> None:
        """Start it and wait until it serves."""
        self.server.start()
        self.server.wait_ready(self.api.is_ready, timeout_seconds=READY_TIMEOUT_SECONDS)

    def stop(self) -> None:
        """End it at once, and leave the cluster as it is."""
        self.server.kill()


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

    # SQLite makes its file, but not the folder.
    layout.storage.mkdir(mode=0o700)
    kubeconfig(layout.kubeconfig, pki.admin)
    kubeconfig(layout.component_kubeconfig("controller-manager"), pki.controller_manager)
    kubeconfig(layout.component_kubeconfig("scheduler"), pki.scheduler)
    scheduler = control_plane.render_scheduler_configuration(layout)
    (layout.folder / "scheduler.yaml").write_text(yaml.safe_dump(scheduler))
    (layout.folder / "kwok.yaml").write_text(fake_nodes.render_kwok_configuration(spec))
