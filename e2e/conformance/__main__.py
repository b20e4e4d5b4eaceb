"""Command line: `python -m e2e.conformance [--slice NAME]`, which `make conformance` runs."""

import signal
import sys
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from tempfile import mkdtemp
from types import FrameType
from typing import Annotated

import typer

from e2e.testbed.binaries import Binaries
from e2e.testbed.components import component_of
from e2e.testbed.errors import TestbedError
from e2e.testbed.places import Places
from e2e.testbed.progress import Progress

from .images import image_bundle, read_image_list, repository_list
from .keeping import Keeping
from .runner import Runner
from .slices import SLICES
from .stage import stage
from .suite import Programs, Suite

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)

INTERRUPTED = 130


class Side(StrEnum):
    """Which side is run."""

    BOTH = "both"
    DIRECT = "direct"
    THROUGH = "through"


@app.command()
def conformance(
    slices: Annotated[
        list[str] | None,
        typer.Option("--slice", help=f"One of {', '.join(SLICES)}. Repeatable; without it all."),
    ] = None,
    side: Annotated[
        Side, typer.Option(help="through: on the target only slices of which nothing is known.")
    ] = Side.BOTH,
    focus: Annotated[
        str, typer.Option(help="Only specs with names like this regular expression.")
    ] = "",
    procs: Annotated[int, typer.Option(min=1, help="How many specs run side by side.")] = 4,
    again: Annotated[
        int, typer.Option(min=0, help="How often at most what differs is run again.")
    ] = 5,
    pull: Annotated[
        bool, typer.Option("--pull", help="Let nodes pull the tests' own images.")
    ] = False,
    page_only: Annotated[
        bool, typer.Option("--page", help="Run nothing; write the page from what is known.")
    ] = False,
) -> None:
    """Run Kubernetes' conformance tests on a target, and on a hub through a virtual node."""
    wanted = slices or list(SLICES)
    if unknown := sorted(set(wanted) - set(SLICES)):
        raise typer.BadParameter(f"There is no slice {', '.join(unknown)}.")
    keeping = Keeping()
    try:
        if not page_only:
            run_all(keeping, wanted, side, focus=focus, procs=procs, again=again, pull=pull)
    except KeyboardInterrupt:
        print("Interrupted; what was over is kept.", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    finally:
        print(keeping.write_page())


def run_all(
    keeping: Keeping,
    wanted: list[str],
    side: Side,
    *,
    focus: str,
    procs: int,
    again: int,
    pull: bool,
) -> None:
    """Start clusters, run the slices one after another, and delete all."""
    places, progress = Places(), Progress()
    binaries = Binaries(places, progress)
    folder = Path(mkdtemp(prefix="federate-conformance-"))
    progress.say(f"Logs and reports: {folder}", always=True)
    programs, images = prepare(binaries, folder, pull=pull)
    version = component_of("e2e.test").version
    with ExitStack() as stack:
        scene = stack.enter_context(stage(binaries, images))
        with progress.long_step("Starting the target"):
            target = scene.start_target()
        suite = Suite(programs, folder=folder, progress=progress)
        stack.callback(suite.close)
        runner = Runner(
            suite=suite,
            keeping=keeping,
            progress=progress,
            version=version,
            focus=focus,
            procs=procs,
        )
        for name in wanted:
            if side is not Side.THROUGH or not keeping.read(name):
                runner.run_direct(name, target.kubeconfig)
        if side is not Side.DIRECT:
            with progress.long_step("Starting the hub"):
                hub = scene.start_hub(target)
            stack.enter_context(scene.federated(hub, target, folder / "federate"))
            for name in wanted:
                runner.run_through(name, hub.kubeconfig, again=again)


def prepare(binaries: Binaries, folder: Path, *, pull: bool) -> tuple[Programs, Path | None]:
    """Find or build all programs, and make the images."""
    ginkgo, suite, agnhost = (
        one.path for one in binaries.find_all(["ginkgo", "e2e.test", "agnhost"])
    )
    kubectl = binaries.find("kubectl")
    if pull:
        return Programs(ginkgo=ginkgo, suite=suite, kubectl=kubectl), None
    listing = folder / "repositories.yaml"
    listing.write_text(repository_list())
    programs = Programs(ginkgo=ginkgo, suite=suite, kubectl=kubectl, repository_list=listing)
    tags = read_image_list(programs.list_images())
    return programs, image_bundle(tags, agnhost=agnhost, places=binaries.places)


def _terminate(_number: int, _frame: FrameType | None) -> None:
    sys.exit(128 + signal.SIGTERM)


def main() -> None:
    signal.signal(signal.SIGTERM, _terminate)
    try:
        app(prog_name="python -m e2e.conformance")
    except TestbedError as error:
        print(f"Error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
