"""Command line: `python -m e2e.testbed up | down | status`."""

import sys
from typing import Annotated, Literal

import typer

from e2e.images.build import app_archives

from .choose import in_words, provider_name
from .components import DEFAULT_MINOR, MINORS
from .errors import TestbedError
from .kept import ClusterState, KeptPair, Wish
from .places import Places
from .progress import Progress
from .provider import ClusterSpec

app = typer.Typer(
    help="Run a hub and a target cluster to try federate on.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

VERSIONS = f"Kubernetes minor: {', '.join(MINORS)}."


@app.command()
def up(
    provider: Annotated[
        str,
        typer.Option(
            help="kind, local, or existing for two clusters of your own; kind if Docker answers."
        ),
    ] = "",
    storage: Annotated[
        Literal["etcd", "kine"], typer.Option(help="kine keeps everything in SQLite, like K3s.")
    ] = "etcd",
    hub_version: Annotated[str, typer.Option(help=VERSIONS)] = DEFAULT_MINOR,
    target_version: Annotated[str, typer.Option(help=VERSIONS)] = DEFAULT_MINOR,
    nodes: Annotated[int, typer.Option(min=0, help="Fake nodes of the target.")] = 3,
    metrics_server: Annotated[
        bool, typer.Option("--metrics-server", help="Install metrics-server in both (kind).")
    ] = False,
) -> None:
    """Start hub and target and write kubeconfigs/hub.yaml and kubeconfigs/target.yaml."""
    places, progress = Places(), Progress()
    wish = Wish(
        provider=provider_name(places, provider),
        hub=ClusterSpec(
            name="hub", minor=hub_version, storage=storage, service_range="10.96.0.0/16"
        ),
        target=ClusterSpec(
            name="target",
            minor=target_version,
            storage=storage,
            service_range="10.97.0.0/16",
            nodes=nodes,
        ),
        with_metrics_server=metrics_server,
    )
    progress.say(in_words(wish.provider, places, named=provider))
    pair = KeptPair(places, progress, images=lambda: app_archives(places, progress))
    states = pair.up(wish)
    tell(states, progress)
    progress.say(
        f"\nGo on with:\n  {pair.kubectl()} --kubeconfig kubeconfigs/hub.yaml get nodes\n"
        f"  {sys.executable} -m e2e.testbed status\n  make clusters-down"
    )


@app.command()
def down() -> None:
    """End hub and target, delete what is in them and remove their kubeconfigs."""
    progress = Progress()
    ended = KeptPair(Places(), progress).down()
    progress.say(f"Down; {ended or 'no'} servers or nodes were running.")


@app.command()
def status() -> None:
    """Tell how hub and target are; ends with 1 unless both are usable."""
    progress = Progress()
    states = KeptPair(Places(), progress).states()
    tell(states, progress)
    if not states:
        progress.say("Not up.")
    if not states or not all(state.is_healthy for state in states):
        raise typer.Exit(1)


@app.command()
def provider() -> None:
    """Say where tests and demo get their clusters from, on this machine."""
    places = Places()
    print(in_words(provider_name(places), places))


def tell(states: list[ClusterState], progress: Progress) -> None:
    for state in states:
        condition = "ready" if state.is_ready else "not ready"
        if state.dead:
            condition += f", ended: {', '.join(state.dead)}"
        progress.say(
            f"{state.name}: Kubernetes {state.version} at {state.api_url}, {condition}; "
            f"kubeconfig {state.kubeconfig}"
        )


def main() -> None:
    try:
        app(prog_name="python -m e2e.testbed")
    except TestbedError as error:
        Progress().say(f"Error: {error}")
        sys.exit(2)


if __name__ == "__main__":
    main()
