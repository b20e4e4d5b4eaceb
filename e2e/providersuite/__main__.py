"""Command line: `python -m e2e.providersuite`; writes results.json and its part of the page."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

import typer
import yaml

from e2e.conformance.keeping import Keeping as Pages
from e2e.conformance.origin import origin_now
from e2e.conformance.record import answers, with_direct, with_origin, with_through
from e2e.conformance.results import Result
from e2e.support.worlds import Worlds
from e2e.testbed.binaries import Binaries
from e2e.testbed.errors import TestbedError
from e2e.testbed.kind import KindProvider, RealCluster
from e2e.testbed.places import Places
from e2e.testbed.progress import Progress
from e2e.testbed.provider import ClusterSpec, start_all

from .keeping import Keeping
from .place import federation, image_of, new_namespace
from .program import PROGRAM, Wish, run_specs

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)

NODE = "edge"
HUB = ClusterSpec(name="hub")
TARGET = ClusterSpec(name="target", service_range="10.97.0.0/16")


@dataclass(frozen=True, slots=True, kw_only=True)
class Clusters:
    """A hub with a virtual node, and its target."""

    hub: RealCluster
    target: RealCluster
    folder: Path


@app.command()
def provider_suite() -> None:
    """Run the suite on a real kubelet's node and through a virtual node (kind); ten minutes."""
    places, progress = Places(), Progress()
    binaries = Binaries(places, progress)
    program = binaries.find(PROGRAM)
    keeping = Keeping()
    with clusters(binaries, progress) as found:
        origin = origin_now(kubernetes=found.target.version, images="", procs=1)
        image = image_of(found.target)

        def run(cluster: RealCluster, node: str) -> dict[str, Result]:
            wish = Wish(
                kubeconfig=cluster.kubeconfig,
                namespace=new_namespace(cluster),
                node=node,
                image=image,
            )
            with progress.long_step(f"Running the suite on {node} of {cluster.name}"):
                folder = Path(mkdtemp(dir=found.folder, prefix=f"{cluster.name}-"))
                return run_specs(program, wish, folder=folder, places=places)

        direct = run(found.target, found.target.node_name)
        record = with_direct({}, with_origin(direct, origin), of_slice=direct)
        through = run(found.hub, NODE)
        keeping.write(with_through(record, answers(through, direct, origin=origin, is_over=True)))
    Pages().write_pages()


@contextmanager
def clusters(binaries: Binaries, progress: Progress) -> Iterator[Clusters]:
    """Start all that the run needs; it ends with the run."""
    folder = Path(mkdtemp(prefix="federate-providersuite-"))
    progress.say(f"Logs: {folder}", always=True)
    with ExitStack() as stack:
        provider = KindProvider(binaries)
        stack.callback(provider.close)
        with progress.long_step("Starting hub and target"):
            hub, target = (
                one for one in start_all(provider, [HUB, TARGET]) if isinstance(one, RealCluster)
            )
        worlds = Worlds(folder)
        stack.callback(worlds.close)
        file = folder / "federation.yaml"
        document = federation(NODE, hub=hub, target=target, places=binaries.places)
        file.write_text(yaml.safe_dump(document))
        stack.enter_context(worlds.world(node=NODE, hub=hub, target=target, config=file))
        yield Clusters(hub=hub, target=target, folder=folder)


def main() -> None:
    try:
        app(prog_name="python -m e2e.providersuite")
    except TestbedError as error:
        print(f"Error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
