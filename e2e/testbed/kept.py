"""The hub and target a person works with: `up` starts them, `down` ends them.

They outlive the command that starts them and belong to the checkout: there is one pair. Until
everything runs, the pair belongs to the command, so that one that is killed half-way leaves
nothing the next start would not remove.
"""

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .api import Api
from .beds import Bed, Beds
from .binaries import Binaries
from .components import DEFAULT_MINOR
from .docker import Docker
from .errors import TestbedError
from .existing import ExistingProvider
from .kind import (
    ImageArchives,
    KindProvider,
    RealCluster,
    delete_kept,
    remove_leftovers,
    require_docker,
)
from .kubeconfigs import MARK, is_marked, read_kubeconfig, write_kubeconfig
from .local import LocalProvider, programs_of
from .locks import held
from .metrics_server import install
from .pki import KeyPair
from .places import Places
from .processes import Record
from .progress import Progress
from .provider import ClusterSpec, TestCluster, start_all

BED_NAME = "up"
STATE_FILE = "up.json"
NAMES = ("hub", "target")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What `up` was asked for. Asking twice for the same is answered with what is there."""

    provider: str
    hub: ClusterSpec
    target: ClusterSpec
    with_metrics_server: bool = False
    """Only kind has containers that it could run in."""

    def as_json(self) -> dict[str, Any]:
        # Through JSON and back, because tuples come back as lists.
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return plain


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterState:
    """How one cluster of the pair is."""

    name: str
    kubeconfig: Path
    version: str
    api_url: str
    dead: tuple[str, ...]
    """Servers that ended by themselves or were killed."""
    is_ready: bool

    @property
    def is_healthy(self) -> bool:
        return self.is_ready and not self.dead


class KeptPair:
    """The checkout's hub and target."""

    def __init__(
        self, places: Places, progress: Progress, *, images: ImageArchives = tuple
    ) -> None:
        """`images` are put into the nodes of kind clusters."""
        self.places = places
        self.progress = progress
        self.binaries = Binaries(places, progress)
        self._beds = Beds(places)
        self._images = images

    def up(self, wish: Wish) -> list[ClusterState]:
        """Make sure that the pair runs; returns how it is.

        Raises:
            TestbedError: it cannot be started, or another pair runs; nothing new is left behind.
        """
        with held(self._lock, on_wait=self._say_waiting):
            if (bed := self._beds.named(BED_NAME)) and bed.is_kept:
                if self._read_state(bed).get("wish") != wish.as_json():
                    raise TestbedError(
                        "Clusters of another kind are up already (see `status`); run `down` "
                        "first, which deletes what is in them."
                    )
                states = self._states(bed)
                if all(state.is_healthy for state in states):
                    self.progress.say("Hub and target are up already.")
                    self._restore_kubeconfigs(bed)
                    return states
                self.progress.say("A cluster has ended; starting anew with empty clusters.")
                self._end(bed)
            self._refuse_foreign_kubeconfigs()
            return self._start(wish)

    def down(self) -> int:
        """End the pair and remove its files; returns how many servers, or nodes, it had."""
        with held(self._lock, on_wait=self._say_waiting):
            ended = self._end(self._beds.named(BED_NAME))
            for name in NAMES:
                if is_marked(path := self.kubeconfig(name)):
                    path.unlink()
            return ended + self._beds.remove_leftovers().servers

    def states(self) -> list[ClusterState]:
        """Tell how the pair is; empty when it is not up."""
        bed = self._beds.named(BED_NAME)
        return self._states(bed) if bed and bed.is_kept else []

    def kubeconfig(self, name: str) -> Path:
        return self.places.kubeconfigs / f"{name}.yaml"

    def kubectl(self) -> Path:
        """Find a kubectl for the pair; local clusters get one of their own version."""
        provider = self._provider(self._beds.named(BED_NAME))
        if provider in ("kind", "existing"):
            return self.binaries.find_users_kubectl()
        return self.binaries.find("kubectl")

    @property
    def _lock(self) -> Path:
        return self.places.state / "up.lock"

    def _start(self, wish: Wish) -> list[ClusterState]:
        if wish.with_metrics_server and wish.provider != "kind":
            raise TestbedError(
                f"The provider {wish.provider} cannot have metrics-server; kind can."
            )
        if wish.provider == "existing":
            existing = ExistingProvider(self.binaries)
            clusters = start_all(existing, (wish.hub, wish.target))
            bed = self._beds.create(BED_NAME)
            return self._keep(bed, wish, clusters)
        if wish.provider == "kind":
            return self._start_kind(wish)
        self._find_programs(wish)
        provider = LocalProvider(self.binaries, bed_name=BED_NAME, tied=False)
        try:
            with self.progress.long_step("Starting hub and target"):
                clusters = start_all(provider, (wish.hub, wish.target))
            return self._keep(provider.bed, wish, clusters)
        except BaseException:
            provider.close()
            raise

    def _start_kind(self, wish: Wish) -> list[ClusterState]:
        provider = KindProvider(self.binaries, images=self._images, bed_name=BED_NAME)
        try:
            provider.prepare()
            with self.progress.long_step("Creating hub and target with kind"):
                clusters = start_all(provider, (wish.hub, wish.target))
            if wish.with_metrics_server:
                with self.progress.long_step("Installing metrics-server in both"):
                    install(self.binaries, *(c for c in clusters if isinstance(c, RealCluster)))
            provider.keep()
            return self._keep(provider.bed, wish, clusters)
        except BaseException:
            provider.close()
            raise

    def _end(self, bed: Bed | None) -> int:
        nodes = self._delete_kept(bed)
        return nodes + (bed.remove() if bed else 0)

    def _delete_kept(self, bed: Bed | None) -> int:
        """Delete the checkout's kind clusters; an `up` that was killed left them without a bed."""
        docker = Docker(places=self.places)
        if self._provider(bed) == "kind":
            require_docker(docker)
        elif not docker.answers():
            return 0
        remove_leftovers(self.binaries, docker)
        return delete_kept(self.binaries, docker)

    def _find_programs(self, wish: Wish) -> None:
        """Find everything first: a build that fails then fails before anything runs."""
        origins: dict[str, list[str]] = {}
        for spec in (wish.hub, wish.target):
            for found in self.binaries.find_all(programs_of(spec), spec.minor):
                program = found.path.name
                if program.startswith("kube"):
                    program = f"{program} {spec.minor}"
                origins.setdefault(found.origin, []).append(program)
        kubectl = self.binaries.find_all(["kubectl"], DEFAULT_MINOR)[0]
        origins.setdefault(kubectl.origin, []).append("kubectl")
        for origin, programs in origins.items():
            self.progress.say(f"Programs {origin}: {', '.join(dict.fromkeys(programs))}.")

    def _keep(self, bed: Bed, wish: Wish, clusters: Sequence[TestCluster]) -> list[ClusterState]:
        for cluster in clusters:
            content = read_kubeconfig(cluster.kubeconfig)
            write_kubeconfig(spare_kubeconfig(bed, cluster.name), content)
            write_kubeconfig(self.kubeconfig(cluster.name), content, mark=MARK)
        state = {
            "wish": wish.as_json(),
            "clusters": [
                {"name": cluster.name, "version": cluster.version, "api_url": cluster.api_url}
                for cluster in clusters
            ],
        }
        (bed.folder / STATE_FILE).write_text(json.dumps(state, indent=2))
        bed.keep()
        return self._states(bed)

    def _states(self, bed: Bed) -> list[ClusterState]:
        clusters = self._read_state(bed).get("clusters", [])
        return [self._state(bed, entry) for entry in clusters]

    def _state(self, bed: Bed, entry: Mapping[str, str]) -> ClusterState:
        folder = bed.cluster_folder(entry["name"])
        return ClusterState(
            name=entry["name"],
            kubeconfig=self.kubeconfig(entry["name"]),
            version=entry["version"],
            api_url=entry["api_url"],
            dead=tuple(dead_servers(folder)),
            is_ready=self._is_ready(bed, folder, entry),
        )

    def _is_ready(self, bed: Bed, folder: Path, entry: Mapping[str, str]) -> bool:
        provider = self._provider(bed)
        if provider == "local":
            return is_local_ready(folder, entry["api_url"])
        # Clusters of somebody else are not watched over: they were asked at `up`.
        return provider != "kind" or is_answering(
            self.kubectl(), spare_kubeconfig(bed, entry["name"])
        )

    def _provider(self, bed: Bed | None) -> str:
        """Name the provider of the pair that is up; empty where none is."""
        return str(self._read_state(bed).get("wish", {}).get("provider", "")) if bed else ""

    def _read_state(self, bed: Bed) -> dict[str, Any]:
        try:
            state: dict[str, Any] = json.loads((bed.folder / STATE_FILE).read_text())
        except (FileNotFoundError, ValueError):
            return {}
        return state

    def _restore_kubeconfigs(self, bed: Bed) -> None:
        """Write the kubeconfigs a person has deleted meanwhile."""
        for name in NAMES:
            if not self.kubeconfig(name).exists():
                content = read_kubeconfig(spare_kubeconfig(bed, name))
                write_kubeconfig(self.kubeconfig(name), content, mark=MARK)

    def _refuse_foreign_kubeconfigs(self) -> None:
        for path in map(self.kubeconfig, NAMES):
            if path.exists() and not is_marked(path):
                raise TestbedError(
                    f"{path} was not written by the test bed; move it away, it would be lost."
                )

    def _say_waiting(self) -> None:
        self.progress.say("Another `up` or `down` is at work in this checkout; waiting for it.")


def spare_kubeconfig(bed: Bed, name: str) -> Path:
    return bed.folder / f"{name}.kubeconfig.yaml"


def dead_servers(folder: Path) -> list[str]:
    paths = sorted(folder.glob("processes/*.json"))
    records = {path.stem: Record.read(path) for path in paths}
    return [name for name, record in records.items() if record is None or not record.is_alive]


def is_answering(kubectl: Path, kubeconfig: Path) -> bool:
    """Ask an API server for its own word."""
    command = [str(kubectl), f"--kubeconfig={kubeconfig}", "--request-timeout=5s"]
    finished = subprocess.run([*command, "get", "--raw=/readyz"], capture_output=True, check=False)
    return finished.returncode == 0


def is_local_ready(folder: Path, api_url: str) -> bool:
    pki = folder / "pki"
    user = KeyPair(certificate=pki / "admin.crt", key=pki / "admin.key")
    port = int(api_url.rpartition(":")[2])
    return Api(port=port, authority=pki / "ca.crt", user=user).is_ready()
