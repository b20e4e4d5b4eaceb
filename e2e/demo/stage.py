"""What the story is played on: a hub, a target and federate between them; gone afterwards or kept.

Fresh: clusters of this process alone, which the kernel ends with it whatever happens. Kept: the
pair of `clusters-up`, which is started unless it runs, and federate beside it.
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from e2e.support.witness import Witness
from e2e.testbed.beds import Bed, Beds
from e2e.testbed.binaries import Binaries
from e2e.testbed.errors import TestbedError
from e2e.testbed.fixtures import HUB, TARGET
from e2e.testbed.kept import BED_NAME, KeptPair, Wish
from e2e.testbed.local import LocalProvider, programs_of
from e2e.testbed.places import PROVIDER_VARIABLE, Places
from e2e.testbed.processes import Launcher
from e2e.testbed.progress import Progress
from e2e.testbed.provider import start_all

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
    """For a person who looks around; only a kept stage has one."""

    def save_logs(self) -> Path:
        """Copy all logs to a folder that outlives the clusters, and return it."""
        folder = Path(tempfile.mkdtemp(prefix="federate-demo-"))
        for log in sorted(self.bed.folder.glob("*/logs/*.log")):
            shutil.copy(log, folder / f"{log.parent.parent.name}-{log.name}")
        return folder


@contextmanager
def fresh_stage(narrator: Narrator) -> Iterator[Stage]:
    """Start clusters that end with the story."""
    places, progress = _local_places(), _progress(narrator)
    binaries = Binaries(places, progress)
    _find_programs(binaries)
    with ExitStack() as stack:
        provider = LocalProvider(binaries)
        stack.callback(provider.close)
        stack.callback(narrator.tell, ENDING)
        with progress.long_step("Starting hub and target"):
            hub, target = start_all(provider, (HUB, TARGET))
        yield stack.enter_context(
            _staged(
                bed=provider.bed,
                shown=(
                    Shown(
                        name="hub",
                        version=hub.version,
                        api_url=hub.api_url,
                        kubeconfig=hub.kubeconfig,
                    ),
                    Shown(
                        name="target",
                        version=target.version,
                        api_url=target.api_url,
                        kubeconfig=target.kubeconfig,
                    ),
                ),
                tied=True,
            )
        )


@contextmanager
def kept_stage(narrator: Narrator) -> Iterator[Stage]:
    """Start the pair of `clusters-up` unless it runs; nothing ends unless the story is interrupted.

    An interrupted story ends federate, and the pair if it was started for the story.
    """
    places, progress = _local_places(), _progress(narrator)
    pair = KeptPair(places, progress)
    _find_programs(pair.binaries)
    kubectl = pair.kubectl()
    was_up = all(state.is_healthy for state in pair.states()) and bool(pair.states())
    if was_up:
        narrator.say("The clusters of `make clusters-up` run already; the story is played there.")
    with progress.long_step("Starting hub and target"):
        states = pair.up(Wish(provider="local", hub=HUB, target=TARGET))
    bed = Beds(places).named(BED_NAME)
    assert bed is not None, "the pair is up"
    hub, target = (
        Shown(
            name=state.name,
            version=state.version,
            api_url=state.api_url,
            kubeconfig=state.kubeconfig,
        )
        for state in states
    )
    with _staged(bed=bed, shown=(hub, target), tied=False, kubectl=kubectl) as stage:
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


@contextmanager
def _staged(
    *, bed: Bed, shown: tuple[Shown, Shown], tied: bool, kubectl: Path | None = None
) -> Iterator[Stage]:
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
        )


def _local_places() -> Places:
    places = Places()
    if places.provider != "local":
        raise TestbedError(
            f"The demo is played on clusters of the test bed's own; unset {PROVIDER_VARIABLE}, "
            f"which is {places.provider!r}."
        )
    return places


def _progress(narrator: Narrator) -> Progress:
    """Let the test bed report into the story; it keeps plain facts back."""
    progress = Progress(quiet=True)
    progress.console = narrator.console
    return progress


def _find_programs(binaries: Binaries) -> None:
    """Find or build everything first: a failed build then fails before anything runs."""
    for spec in (HUB, TARGET):
        binaries.find_all(programs_of(spec), spec.minor)
