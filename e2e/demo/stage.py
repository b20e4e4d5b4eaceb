"""What the story is played on: a hub, a target and federate between them; gone afterwards or kept.

Fresh: clusters of this process alone; if it is killed, the kernel ends local ones with it, and the
next start deletes kind ones. Kept: the pair of `clusters-up`, which is started unless it runs, and
federate beside it.
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from e2e.images.build import app_archives
from e2e.support.desk import address_for_containers
from e2e.support.witness import Witness
from e2e.testbed.beds import Bed, Beds
from e2e.testbed.binaries import Binaries
from e2e.testbed.choose import in_words, provider_name
from e2e.testbed.errors import TestbedError
from e2e.testbed.fixtures import HUB, TARGET
from e2e.testbed.kept import BED_NAME, ClusterState, KeptPair, Wish
from e2e.testbed.kind import KindProvider
from e2e.testbed.local import LocalProvider, programs_of
from e2e.testbed.places import PROVIDER_VARIABLE, Places
from e2e.testbed.processes import Launcher
from e2e.testbed.progress import Progress
from e2e.testbed.provider import TestCluster, start_all

from .federate import Federate
from .narrator import Narrator

NODE = "edge"
NAMESPACE = "demo"
APP = "web"

ENDING = "\nEnding federate and the clusters ..."


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """One cluster as step 1 shows it."""

    name: str
    version: str
    api_url: str
    kubeconfig: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Everything the story needs."""

    bed: Bed
    clusters: tuple[Shown, Shown]
    hub: Witness
    target: Witness
    federate: Federate
    kubectl: Path | None = None
    """For a person who looks around; a fresh stage of fake nodes has none."""
    runs_containers: bool = False
    """Whether there is something to look into with `kubectl logs`."""

    def save_logs(self) -> Path:
        """Copy all logs to a folder that outlives the clusters, and return it."""
        folder = Path(tempfile.mkdtemp(prefix="federate-demo-"))
        for log in sorted(self.bed.folder.glob("*/logs/*.log")):
            shutil.copy(log, folder / f"{log.parent.parent.name}-{log.name}")
        return folder


@contextmanager
def fresh_stage(narrator: Narrator) -> Iterator[Stage]:
    """Start clusters that end with the story."""
    name, places, progress = _setting(narrator)
    binaries = Binaries(places, progress)
    with ExitStack() as stack:
        provider: LocalProvider | KindProvider
        if name == "kind":
            provider = KindProvider(binaries, images=lambda: app_archives(places, progress))
            provider.prepare()
        else:
            _find_programs(binaries)
            provider = LocalProvider(binaries)
        stack.callback(provider.close)
        stack.callback(narrator.tell, ENDING)
        with progress.long_step("Starting hub and target"):
            hub, target = start_all(provider, (HUB, TARGET))
        address, kubectl = "", None
        if name == "kind":
            address, kubectl = address_for_containers(places), binaries.find_users_kubectl()
        yield stack.enter_context(
            _staged(
                bed=provider.bed,
                shown=(_shown(hub), _shown(target)),
                tied=True,
                kubectl=kubectl,
                node_address=address,
            )
        )


@contextmanager
def kept_stage(narrator: Narrator) -> Iterator[Stage]:
    """Start the pair of `clusters-up` unless it runs; nothing ends unless the story is interrupted.

    An interrupted story ends federate, and the pair if it was started for the story.
    """
    name, places, progress = _setting(narrator)
    pair = KeptPair(places, progress, images=lambda: app_archives(places, progress))
    if name == "local":
        _find_programs(pair.binaries)
    kubectl = pair.kubectl()
    was_up = all(state.is_healthy for state in pair.states()) and bool(pair.states())
    if was_up:
        narrator.say("The clusters of `make clusters-up` run already; the story is played there.")
    states = pair.up(Wish(provider=name, hub=HUB, target=TARGET))
    bed = Beds(places).named(BED_NAME)
    assert bed is not None, "the pair is up"
    hub, target = map(_shown, states)
    address = address_for_containers(places) if name == "kind" else ""
    with _staged(
        bed=bed, shown=(hub, target), tied=False, kubectl=kubectl, node_address=address
    ) as stage:
        try:
            if stage.federate.end_predecessor():
                narrator.say("Ended the federate that an earlier demo kept.")
            yield stage
        except (KeyboardInterrupt, SystemExit):
            if was_up:
                narrator.tell(f"\nEnding federate; the clusters run on, with Deployment {APP}.")
                stage.federate.stop()
            else:
                narrator.tell(ENDING)
                stage.federate.stop()
                pair.down()
            raise


def _shown(cluster: TestCluster | ClusterState) -> Shown:
    return Shown(
        name=cluster.name,
        version=cluster.version,
        api_url=cluster.api_url,
        kubeconfig=cluster.kubeconfig,
    )


@contextmanager
def _staged(
    *,
    bed: Bed,
    shown: tuple[Shown, Shown],
    tied: bool,
    kubectl: Path | None = None,
    node_address: str = "",
) -> Iterator[Stage]:
    """`node_address` is this host's, as a hub in a container reaches it; "" where none is."""
    hub, target = shown
    with ExitStack() as stack:
        launcher = Launcher(tied=tied)
        stack.callback(launcher.close)
        federate = Federate(
            node=NODE,
            hub=hub.kubeconfig,
            target=target.kubeconfig,
            folder=bed.cluster_folder("federate"),
            launcher=launcher,
            more=("--node-address", node_address) if node_address else (),
        )
        if tied:
            stack.callback(federate.kill)
        witnesses = [Witness(cluster.name, cluster.kubeconfig) for cluster in shown]
        for witness in witnesses:
            stack.callback(witness.close)
        yield Stage(
            bed=bed,
            clusters=shown,
            hub=witnesses[0],
            target=witnesses[1],
            federate=federate,
            kubectl=kubectl,
            runs_containers=bool(node_address),
        )


def _setting(narrator: Narrator) -> tuple[str, Places, Progress]:
    """Choose where the clusters come from, and say so; the test bed reports into the story."""
    places = Places()
    name = provider_name(places)
    if name == "existing":
        raise TestbedError(
            f"The demo is played on clusters of the test bed's own; unset {PROVIDER_VARIABLE}, "
            "which is 'existing'."
        )
    narrator.say(in_words(name, places))
    # It keeps plain facts back.
    progress = Progress(quiet=True)
    progress.console = narrator.console
    return name, places, progress


def _find_programs(binaries: Binaries) -> None:
    """Find or build everything first: a failed build then fails before anything runs."""
    for spec in (HUB, TARGET):
        binaries.find_all(programs_of(spec), spec.minor)
