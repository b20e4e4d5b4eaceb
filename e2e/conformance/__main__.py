"""Command line: `python -m e2e.conformance [--slice NAME]`, which `make conformance` runs."""

import re
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from e2e.support.process import FederateProcess
from e2e.testbed.binaries import Binaries
from e2e.testbed.components import component_of
from e2e.testbed.errors import TestbedError
from e2e.testbed.kind import RealCluster
from e2e.testbed.places import Places
from e2e.testbed.progress import Progress

from .folders import require_space, run_folder
from .images import image_bundle, read_image_list, repository_list
from .keeping import Keeping
from .leftovers import wait_for_empty
from .origin import PACKAGE, digest_of, origin_now
from .runner import Chosen, Runner
from .slices import ALL, BY_DEFAULT, SLICES, by_setting, slices_named
from .stage import Stage, stage
from .suite import Programs, Suite
from .telling import tell
from .watch import Watch, look_at_cluster, look_at_process

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)

INTERRUPTED = 130
FAILED = 2


class Side(StrEnum):
    """Which side is run."""

    BOTH = "both"
    DIRECT = "direct"
    THROUGH = "through"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What somebody wants to be run, and how."""

    slices: Sequence[str]
    side: Side
    focus: str
    procs: int
    again: int
    only_differing: bool
    pull: bool

    @property
    def images(self) -> str:
        """Say whose images the tests use."""
        return "originals" if self.pull else "stand-ins"


@app.command()
def conformance(
    slices: Annotated[
        list[str] | None,
        typer.Option(
            "--slice",
            help=f"One of {', '.join(SLICES)}, or {ALL}. Repeatable; without it "
            f"{', '.join(BY_DEFAULT)}.",
        ),
    ] = None,
    side: Annotated[
        Side, typer.Option(help="through: on the target only slices of which nothing is known.")
    ] = Side.BOTH,
    focus: Annotated[
        str, typer.Option(help="Only specs with names like this regular expression.")
    ] = "",
    differing: Annotated[
        bool,
        typer.Option(
            "--differing", help="Through the node only what is known to differ, or was not run."
        ),
    ] = False,
    procs: Annotated[int, typer.Option(min=1, help="How many specs run side by side.")] = 4,
    again: Annotated[
        int, typer.Option(min=0, help="How often at most what differs is run again.")
    ] = 5,
    pull: Annotated[
        bool, typer.Option("--pull", help="Let nodes pull the tests' own images.")
    ] = False,
    page_only: Annotated[
        bool,
        typer.Option("--page", help="Run nothing; write the pages and print the figure."),
    ] = False,
    list_only: Annotated[
        bool, typer.Option("--list", help="Run nothing; name the specs that would be run.")
    ] = False,
) -> None:
    """Run Kubernetes' conformance tests on a target, and on a hub through a virtual node."""
    wish = Wish(
        slices=read_slices(slices or []),
        side=side,
        focus=read_focus(focus),
        procs=procs,
        again=again,
        only_differing=differing,
        pull=pull,
    )
    if list_only:
        list_specs(wish)
        return
    keeping = Keeping()
    try:
        if not page_only:
            run_all(keeping, wish)
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    finally:
        keeping.write_pages()
        print(figure_in_words(keeping))


def read_slices(names: list[str]) -> list[str]:
    """Check which slices are meant."""
    try:
        return slices_named(names)
    except KeyError as error:
        raise typer.BadParameter(
            f"There is no slice {error.args[0]}; there are {', '.join(SLICES)} and {ALL}."
        ) from error


def read_focus(focus: str) -> str:
    """Check a regular expression."""
    try:
        re.compile(focus)
    except re.error as error:
        raise typer.BadParameter(
            f"--focus {focus!r} is no regular expression: {error}. Names have brackets, which "
            r"stand for themselves as \[ and \]."
        ) from error
    return focus


def figure_in_words(keeping: Keeping) -> str:
    """Say how things stand."""
    return tell(keeping.compared(), keeping.exemptions(), present_source=digest_of(PACKAGE))


def list_specs(wish: Wish) -> None:
    """Name the specs of each slice."""
    progress = Progress(quiet=True)
    programs = find_programs(Binaries(Places(), progress))
    for name, chosen in choose(programs, wish, progress).items():
        print(f"{name}: {len(chosen.wanted)} specs, {SLICES[name].about}")
        for spec in chosen.wanted:
            print(f"  {spec}")


def run_all(keeping: Keeping, wish: Wish) -> None:
    """Start clusters, run the slices one after another, and delete all."""
    places, progress = Places(), Progress()
    places.cache.mkdir(parents=True, exist_ok=True)
    require_space(places.cache)
    binaries = Binaries(places, progress)
    kubernetes = component_of("e2e.test").version
    with ExitStack() as stack:
        folder = stack.enter_context(run_folder(places, datetime.now(UTC), on_wait=told(progress)))
        progress.say(f"Logs and reports: {folder}", always=True)
        programs, images = prepare(binaries, folder, progress, pull=wish.pull)
        chosen = choose(programs, wish, progress)
        say_plan(chosen, progress)
        suite = Suite(programs, folder=folder, progress=progress)
        stack.callback(suite.close)
        runner = Runner(
            suite=suite,
            keeping=keeping,
            progress=progress,
            chosen=chosen,
            origin=partial(origin_now, kubernetes=kubernetes, images=wish.images, procs=wish.procs),
            procs=wish.procs,
            only_differing=wish.only_differing,
        )
        scene = stack.enter_context(stage(binaries, images, progress))
        require_space(scene.docker_folder)
        run_both(scene, runner, wish, folder)


def run_both(scene: Stage, runner: Runner, wish: Wish, folder: Path) -> None:
    """Run all slices on one side, and then on the other."""
    progress = runner.progress
    with progress.long_step("Starting the target"):
        target = scene.start_target()
    looks = {"target": look_at_cluster(target, [target.node_name])}
    for name in runner.chosen:
        if wish.side is not Side.THROUGH or not runner.keeping.read(name):
            runner.run_direct(name, target.kubeconfig, partial(Watch, looks))
            wait_for_empty([target], progress)
    if wish.side is Side.DIRECT:
        return
    with progress.long_step("Starting the hub"):
        hub = scene.start_hub(target)
    looks["hub"] = look_at_cluster(hub, [hub.node_name])
    for has_same_namespaces, names in by_setting(runner.chosen).items():
        with ExitStack() as stack:
            with progress.long_step("Starting federate"):
                federate = start_federate(
                    scene, hub, target, folder, stack, has_same_namespaces=has_same_namespaces
                )
            looks["federate"] = look_at_process(federate)
            for name in names:
                runner.run_through(name, hub.kubeconfig, partial(Watch, looks), again=wish.again)
                # federate gives the target's back by itself, two minutes later.
                wait_for_empty([hub], progress)


def start_federate(
    scene: Stage,
    hub: RealCluster,
    target: RealCluster,
    folder: Path,
    stack: ExitStack,
    *,
    has_same_namespaces: bool,
) -> FederateProcess:
    """Start federate, which ends with the stack.

    Raises:
        TestbedError: it does not become ready.
    """
    where = folder / ("federate-same" if has_same_namespaces else "federate")
    try:
        return stack.enter_context(
            scene.federated(hub, target, where, has_same_namespaces=has_same_namespaces)
        )
    except AssertionError as error:
        raise TestbedError(str(error)) from error


def told(progress: Progress) -> partial[None]:
    """Say why nothing happens while somebody else has the checkout."""
    return partial(
        progress.say,
        "Another conformance run of this checkout is going on; waiting for its end.",
        always=True,
    )


def choose(programs: Programs, wish: Wish, progress: Progress) -> dict[str, Chosen]:
    """Ask the suite for the specs of all wanted slices; one without any is left out.

    Raises:
        TestbedError: no spec has such a name.
    """
    with progress.long_step("Asking the suite which specs it has"):
        names = {name: programs.names_of(SLICES[name]) for name in wish.slices}
    chosen = {
        name: Chosen(
            of_slice=frozenset(specs),
            wanted=[spec for spec in specs if re.search(wish.focus, spec)],
        )
        for name, specs in names.items()
    }
    if found := {name: one for name, one in chosen.items() if one.wanted}:
        return found
    raise TestbedError(
        f"None of the {sum(map(len, names.values()))} specs of {', '.join(names)} has a name like "
        f"{wish.focus!r}. `--list` names them all."
    )


def say_plan(chosen: Mapping[str, Chosen], progress: Progress) -> None:
    """Say how much will be run."""
    told_numbers = ", ".join(f"{name} {len(one.wanted)}" for name, one in chosen.items())
    progress.say(f"Specs to run: {told_numbers}.", always=True)


def find_programs(binaries: Binaries) -> Programs:
    """Find or build what the suite is run with."""
    # All that comes from one module, so that it is built in one go.
    ginkgo, suite = (one.path for one in binaries.find_all(["ginkgo", "e2e.test", "agnhost"])[:2])
    return Programs(ginkgo=ginkgo, suite=suite, kubectl=binaries.find("kubectl"))


def prepare(
    binaries: Binaries, folder: Path, progress: Progress, *, pull: bool
) -> tuple[Programs, Path | None]:
    """Find or build all programs, and make the images."""
    found = find_programs(binaries)
    if pull:
        return found, None
    agnhost = binaries.find("agnhost")
    listing = folder / "repositories.yaml"
    listing.write_text(repository_list())
    programs = Programs(
        ginkgo=found.ginkgo, suite=found.suite, kubectl=found.kubectl, repository_list=listing
    )
    tags = read_image_list(programs.list_images())
    with progress.long_step("Making the tests' images"):
        return programs, image_bundle(tags, agnhost=agnhost, places=binaries.places)


def terminate(_number: int, _frame: FrameType | None) -> None:
    """Leave as after an interrupt, so that clusters are deleted and what was over is kept."""
    sys.exit(128 + signal.SIGTERM)


def main() -> None:
    signal.signal(signal.SIGTERM, terminate)
    try:
        app(prog_name="python -m e2e.conformance")
    except TestbedError as error:
        print(f"Error: {error}", file=sys.stderr)
        sys.exit(FAILED)


if __name__ == "__main__":
    main()
