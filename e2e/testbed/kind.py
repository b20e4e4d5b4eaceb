"""Provider `kind`: real clusters in Docker containers, with real kubelets and containers.

On a user's machine kind pulls its own node image. Where no image registry is reached,
`FEDERATE_TESTBED_NODE_IMAGE` names one that the daemon has, like the one `nodeimage` builds.
"""

import json
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from secrets import token_hex
from typing import Any

import yaml
from pytest_kind import KindCluster

from .beds import Beds
from .binaries import Binaries
from .components import DEFAULT_MINOR
from .docker import Docker, Owner
from .errors import TestbedError
from .existing import parse_version
from .kind_claims import Claims
from .kubeconfigs import read_kubeconfig, server_of
from .locks import held
from .nodeimage.recipe import node_image_reference
from .places import NODE_IMAGE_VARIABLE, PROVIDER_VARIABLE
from .processes import LAUNCHER, wait_until
from .provider import ClusterSpec, TestCluster

ImageArchives = Callable[[], Sequence[Path]]

READY_TIMEOUT_SECONDS = 180.0
"""From a created cluster to a ready node: 10 s on an idle machine with two cores."""

INOTIFY_LIMIT = Path("/proc/sys/fs/inotify/max_user_instances")
ENOUGH_INOTIFY = 1024

API_SECONDS = 20.0
LOG_LINES = 25

ACCOUNT = ("get", "serviceaccount", "default", "--namespace=default", "--output=name")
NODES = ("get", "nodes", "--output=json")


class RealCluster(TestCluster):
    """A kind cluster: one node, which is a container."""

    def __init__(
        self,
        *,
        spec: ClusterSpec,
        kind: KindCluster,
        folder: Path,
        binaries: Binaries,
        claims: Claims,
    ) -> None:
        self.kind = kind
        self.folder = folder
        self._claims = claims
        super().__init__(
            name=spec.name,
            kubeconfig=kind.kubeconfig_path,
            api_url="",
            version="",
            find_kubectl=binaries.find_users_kubectl,
        )

    @property
    def cluster_name(self) -> str:
        """What kind calls the cluster."""
        return str(self.kind.name)

    @property
    def node_name(self) -> str:
        """The node's name, and that of its container in Docker."""
        return f"{self.cluster_name}-control-plane"

    @property
    def internal_kubeconfig(self) -> Path:
        """A kubeconfig that works inside Docker's network `kind`, from pods too."""
        return self.folder / "internal.kubeconfig.yaml"

    @property
    def log(self) -> Path:
        """What kind said."""
        return self.folder / "logs" / "kind.log"

    def start(self, configuration: Path) -> None:
        """Create the cluster and wait until it runs pods."""
        try:
            self.kind.create(configuration)
        except subprocess.CalledProcessError as error:
            raise TestbedError(
                f"kind could not create the cluster {self.cluster_name}. If it cannot get its "
                f"node image, name one that Docker has in {NODE_IMAGE_VARIABLE}, or set "
                f"{PROVIDER_VARIABLE}=local, which needs no images.{inotify_hint()} kind said:\n"
                f"{self.log_tail()}"
            ) from error
        self.internal_kubeconfig.touch(mode=0o600)
        self.internal_kubeconfig.write_text(self._ask_kind("get", "kubeconfig", "--internal"))
        self.api_url = server_of(read_kubeconfig(self.kubeconfig))
        self.version = parse_version(self.kubectl("get", "--raw", "/version"))
        if not wait_until(self._is_usable, READY_TIMEOUT_SECONDS):
            raise TestbedError(
                f"The cluster {self.cluster_name} was not usable after "
                f"{READY_TIMEOUT_SECONDS:.0f} s.{inotify_hint()}\n{self._explain()}"
            )

    def load_archive(self, archive: Path) -> None:
        """Put the images of an archive into the node; pods use them with IfNotPresent."""
        self._ask_kind("load", "image-archive", str(archive))

    def stop(self) -> None:
        """Delete the cluster; twice does no harm."""
        try:
            self.kind.delete()
        except subprocess.CalledProcessError as error:
            raise TestbedError(
                f"kind could not delete the cluster {self.cluster_name}: {self.log_tail()}"
            ) from error
        self._claims.drop(self.cluster_name)

    def log_tail(self) -> str:
        try:
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-LOG_LINES:])
        except FileNotFoundError:
            return ""

    def _is_usable(self) -> bool:
        try:
            nodes = json.loads(self.kubectl(*NODES, timeout_seconds=API_SECONDS))["items"]
            self.kubectl(*ACCOUNT, timeout_seconds=API_SECONDS)
        except TestbedError:
            time.sleep(0.5)
            return False
        return bool(nodes) and all(map(is_schedulable, nodes))

    def _explain(self) -> str:
        """Show what there is in the cluster, or why that cannot be had either."""
        try:
            return self.kubectl("get", "nodes,pods", "--all-namespaces")
        except TestbedError as error:
            return str(error)

    def _ask_kind(self, *arguments: str) -> str:
        command = [str(self.kind.kind_path), *arguments, f"--name={self.cluster_name}"]
        finished = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if finished.returncode != 0:
            raise TestbedError(f"kind {' '.join(arguments)} failed: {self.log_tail()}")
        return finished.stdout


def inotify_hint() -> str:
    """Name the limit that a node's kubelet and kube-proxy run into first, where it is low."""
    try:
        limit = int(INOTIFY_LIMIT.read_text())
    except (OSError, ValueError):
        return ""
    if limit >= ENOUGH_INOTIFY:
        return ""
    return (
        f" Linux gives a user {limit} inotify instances here, which kind nodes and local clusters "
        f"of root share: `sysctl fs.inotify.max_user_instances={ENOUGH_INOTIFY}` gives more."
    )


def is_schedulable(node: dict[str, Any]) -> bool:
    """Tell whether the scheduler would use a node."""
    conditions = {c["type"]: c["status"] for c in node["status"].get("conditions", ())}
    return conditions.get("Ready") == "True" and not node["spec"].get("taints")


class KindProvider:
    """Start kind clusters, which are deleted by `close`, or by a later start if we are killed."""

    name = "kind"

    def __init__(
        self,
        binaries: Binaries,
        *,
        images: ImageArchives = tuple,
        bed_name: str | None = None,
    ) -> None:
        """`images` are put into every node; it is asked before a cluster is created."""
        self.binaries = binaries
        self.docker = Docker(places=binaries.places)
        self.claims = Claims(self.docker)
        require_docker(self.docker)
        remove_leftovers(binaries, self.docker)
        self.bed = Beds(binaries.places).create(bed_name)
        self._images = images
        self._clusters: list[RealCluster] = []

    def prepare(self) -> Sequence[Path]:
        """Find or build all that a start needs, and return the images' archives; twice is quick."""
        self.binaries.find("kind")
        self.binaries.find_users_kubectl()
        return self._images()

    def start(self, spec: ClusterSpec) -> RealCluster:
        """Create a cluster.

        Raises:
            TestbedError: it did not come up; it is deleted, kind's log stays until `close`.
        """
        if spec.storage != "etcd" or spec.minor != DEFAULT_MINOR:
            raise TestbedError(
                f"The provider kind has neither {spec.storage} nor a choice of Kubernetes "
                "versions; tests that need those need the provider local."
            )
        images = self.prepare()
        cluster = self._assemble(spec)
        self.claims.make(cluster.cluster_name, Owner.own())
        try:
            cluster.start(write_configuration(spec, cluster.folder))
            for archive in images:
                cluster.load_archive(archive)
        except BaseException:
            cluster.stop()
            raise
        self._clusters.append(cluster)
        return cluster

    def keep(self) -> None:
        """Let the clusters outlive this process, until `down` in this checkout."""
        for cluster in self._clusters:
            self.claims.hand_over(cluster.cluster_name, Owner.kept(self.binaries.places.state))

    def close(self) -> None:
        """Delete all clusters and the bed, logs included; one that fails saves no other."""
        with ExitStack() as stack:
            stack.callback(self.bed.remove)
            stack.callback(self._remove_own_containers)
            for cluster in self._clusters:
                stack.callback(cluster.stop)

    def _remove_own_containers(self) -> None:
        self.docker.remove_containers(
            container
            for container, label in self.docker.labelled_containers().items()
            if label == Owner.own().format()
        )

    def _node_image(self) -> str | None:
        """The image the user named, the one `nodeimage` made here, or else kind's own choice."""
        if named := self.binaries.places.node_image:
            return named
        built = node_image_reference()
        return built if self.docker.has_image(built) else None

    def _assemble(self, spec: ClusterSpec) -> RealCluster:
        folder = self.bed.cluster_folder(spec.name)
        (folder / "logs").mkdir(parents=True, exist_ok=True)
        image, talker = self._node_image(), write_talker(self.binaries, folder)
        kubectl = self.binaries.find_users_kubectl()
        # One that tidies up would delete a folder that another is about to use.
        with held(self.binaries.places.cache / "pytest-kind.lock"):
            kind = KindCluster(
                f"federate-{spec.name}-{token_hex(3)}",
                kubeconfig=folder / "kubeconfig.yaml",
                image=image,
                kind_path=talker,
                kubectl_path=kubectl,
            )
            tidy_up_after(kind)
        return RealCluster(
            spec=spec, kind=kind, folder=folder, binaries=self.binaries, claims=self.claims
        )


def require_docker(docker: Docker) -> None:
    if complaint := docker.complaint():
        raise TestbedError(
            f"The provider kind needs Docker, which does not answer ({complaint}): start Docker, "
            f"or set {PROVIDER_VARIABLE}=local, which needs no containers."
        )


def remove_leftovers(binaries: Binaries, docker: Docker) -> int:
    """Delete the clusters and containers whose owners are dead; returns how many clusters.

    One that cannot be deleted keeps its claim, for a later start, and stops nobody.
    """
    claims = Claims(docker)
    failures: list[str] = []
    with held(binaries.places.cache / "kind-leftovers.lock"):
        docker.remove_leftover_containers()
        leftovers = claims.leftovers()
        for cluster in leftovers:
            try:
                delete_cluster(binaries, cluster)
                claims.drop_settled(cluster)
            except TestbedError as error:
                failures.append(str(error).strip())
    if failures:
        said = "\n".join(failures)
        binaries.progress.say(f"Left over from dead runs, for a later start:\n{said}", always=True)
    return len(leftovers) - len(failures)


def delete_kept(binaries: Binaries, docker: Docker) -> int:
    """Delete the clusters that this checkout keeps; returns how many there were."""
    claims = Claims(docker)
    kept = claims.owned_by(Owner.kept(binaries.places.state))
    for cluster in kept:
        delete_cluster(binaries, cluster)
        claims.drop(cluster)
    return len(kept)


def delete_cluster(binaries: Binaries, cluster: str) -> None:
    """Delete a cluster of whatever state."""
    finished = subprocess.run(
        [binaries.find("kind"), "delete", "cluster", f"--name={cluster}", "--kubeconfig=/dev/null"],
        env=dict(binaries.places.environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if finished.returncode != 0:
        raise TestbedError(f"kind could not delete the cluster {cluster}: {finished.stderr}")


def write_talker(binaries: Binaries, folder: Path) -> Path:
    """Write a program that is kind, says to a log what kind says to a person, and dies with us."""
    launcher = [sys.executable, "-I", "-S", str(LAUNCHER), str(folder / "kind.json")]
    log = shlex.quote(str(folder / "logs" / "kind.log"))
    kind = shlex.quote(str(binaries.find("kind")))
    path = folder / "kind"
    path.write_text(f'#!/bin/sh\nexec {shlex.join(launcher)} "$PPID" {kind} "$@" 2>>{log}\n')
    path.chmod(0o700)
    return path


def tidy_up_after(kind: KindCluster) -> None:
    """Remove the folders that KindCluster makes where the tests run; ours are in the bed."""
    for folder in (kind.path, kind.path.parent):
        try:
            folder.rmdir()
        except OSError:
            return


def write_configuration(spec: ClusterSpec, folder: Path) -> Path:
    path = folder / "kind.yaml"
    path.write_text(yaml.safe_dump(render_configuration(spec)))
    return path


def render_configuration(spec: ClusterSpec) -> dict[str, Any]:
    """Render kind's configuration: one node, and control planes that bear a busy machine.

    kubeadm changed the shape of extra arguments with v1beta4; kind leaves out the patch whose
    version is not that of its node image.
    """
    patches = [
        yaml.safe_dump(control_plane_patch(spec, "v1beta3", lambda pairs: pairs)),
        yaml.safe_dump(control_plane_patch(spec, "v1beta4", as_named_values)),
    ]
    if spec.kubelet_settings:
        patches.append(yaml.safe_dump(kubelet_patch(dict(spec.kubelet_settings))))
    return {
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "networking": {"serviceSubnet": spec.service_range, "podSubnet": spec.pod_range},
        "nodes": [{"role": "control-plane"}],
        "kubeadmConfigPatches": patches,
    }


def control_plane_patch(
    spec: ClusterSpec, version: str, shaped: Callable[[dict[str, str]], object]
) -> dict[str, object]:
    """Leave out what only costs time where one control plane lives for minutes."""
    no_election = {"extraArgs": shaped({"leader-elect": "false"})}
    wished = [argument.lstrip("-").partition("=") for argument in spec.apiserver_arguments]
    api_server = {"extraArgs": shaped({name: value for name, _, value in wished})}
    return {
        "apiVersion": f"kubeadm.k8s.io/{version}",
        "kind": "ClusterConfiguration",
        **({"apiServer": api_server} if wished else {}),
        "controllerManager": no_election,
        "scheduler": no_election,
        "etcd": {"local": {"extraArgs": shaped({"unsafe-no-fsync": "true"})}},
    }


def kubelet_patch(settings: dict[str, str]) -> dict[str, str]:
    """Set fields of the kubelets' configuration."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        **settings,
    }


def as_named_values(pairs: dict[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in pairs.items()]
