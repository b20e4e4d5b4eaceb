"""The hub and target a person works with: `up` starts them, `down` ends them.

They outlive the command that starts them and belong to the checkout: there is one pair. Until
everything runs, the pair belongs to the command, so that one that is killed half-way leaves
nothing the next start would not remove.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .api import Api
from .beds import Bed, Beds
from .binaries import Binaries
from .choose import no_such_provider
from .components import DEFAULT_MINOR
from .errors import TestbedError
from .existing import ExistingProvider
from .kubeconfigs import MARK, is_marked, read_kubeconfig, write_kubeconfig
from .local import LocalProvider, programs_of
from .locks import held
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

    def __init__(self, places: Places, progress: Progress) -> None:
        self.places = places
        self.progress = progress
        self.binaries = Binaries(places, progress)
        self._beds = Beds(places)

    def up(self, wish: Wish) -> list[ClusterState]:
        """Make sure that the pair runs; returns how it is.

        Raises:
            TestbedError: it cannot be started, or another pair runs; nothing new is left behind.
        """
        if wish.provider not in ("local", "existing"):
            raise no_such_provider(wish.provider)
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
                self.progress.say("Some servers have ended; starting anew with empty clusters.")
                bed.remove()
            self._refuse_foreign_kubeconfigs()
            return self._start(wish)

    def down(self) -> int:
        """End the pair and remove its files; returns how many servers were running."""
        with held(self._lock, on_wait=self._say_waiting):
            bed = self._beds.named(BED_NAME)
            ended = bed.remove() if bed else 0
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
        return self.binaries.find("kubectl")

    @property
    def _lock(self) -> Path:
        return self.places.state / "up.lock"

    def _start(self, wish: Wish) -> list[ClusterState]:
        if wish.provider == "existing":
            existing = ExistingProvider(self.binaries)
            clusters = start_all(existing, (wish.hub, wish.target))
            bed = self._beds.create(BED_NAME)
            return self._keep(bed, wish, clusters)
        self._find_programs(wish)
        self.progress.say("Starting hub and target ...")
        provider = LocalProvider(self.binaries, bed_name=BED_NAME, tied=False)
        try:
            clusters = start_all(provider, (wish.hub, wish.target))
            return self._keep(provider.bed, wish, clusters)
        except BaseException:
            provider.close()
            raise

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
        return [self._state(bed.cluster_folder(entry["name"]), entry) for entry in clusters]

    def _state(self, folder: Path, entry: Mapping[str, str]) -> ClusterState:
        return ClusterState(
            name=entry["name"],
            kubeconfig=self.kubeconfig(entry["name"]),
            version=entry["version"],
            api_url=entry["api_url"],
            dead=tuple(dead_servers(folder)),
            # Clusters of somebody else are not watched over: they were asked at `up`.
            is_ready=not folder.is_dir() or is_local_ready(folder, entry["api_url"]),
        )

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


def is_local_ready(folder: Path, api_url: str) -> bool:
    pki = folder / "pki"
    user = KeyPair(certificate=pki / "admin.crt", key=pki / "admin.key")
    port = int(api_url.rpartition(":")[2])
    return Api(port=port, authority=pki / "ca.crt", user=user).is_ready()
