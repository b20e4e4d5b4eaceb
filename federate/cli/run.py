"""`federate run`: check what was typed, then start the process.

Between the user and `runtime.manager`. Every option is checked before anything is started.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from federate import __version__
from federate.cli.options import (
    Complaints,
    TargetOption,
    find_hub,
    parse_capacities,
    parse_labels,
    parse_listen,
    parse_node_address,
    parse_targets,
    quoted,
)
from federate.errors import ConfigError
from federate.model.naming import NamespaceRules, NamespaceStrategy
from federate.model.pods import VIRTUAL_NODE_TAINT_KEY
from federate.node.capacity import CapacityRules
from federate.node.render import TAINT_VALUE
from federate.runtime.identity import own_identity
from federate.runtime.settings import Settings, TargetSettings

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Coroutine

    from federate.runtime.telemetry import LogFormat, LogLevel

E = TypeVar("E", bound=StrEnum)

EXAMPLE = "Example: federate run --hub hub.yaml --target edge=target.yaml"


def run(  # noqa: PLR0913 - one parameter for each option
    targets: Annotated[
        list[str],
        typer.Option(
            "--target",
            metavar="NAME=PATH[@CONTEXT]",
            help="A target's kubeconfig; the virtual node gets that name. Repeatable.",
        ),
    ],
    hub: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="The hub's kubeconfig. Without it: $FEDERATE_HUB_KUBECONFIG, $KUBECONFIG, "
            "~/.kube/config, or the service account of this pod.",
        ),
    ] = None,
    hub_context: Annotated[
        str | None, typer.Option(metavar="NAME", help="A context other than the current one.")
    ] = None,
    capacity: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME:]SIZE",
            help="Fixed size of all nodes, or of one, as in cpu=100,memory=200Gi,pods=50. "
            "Without it a node is as large as its target.",
        ),
    ] = None,
    namespaces: Annotated[
        str,
        typer.Option(
            metavar="prefixed|same",
            help="Target namespaces: own ones for each hub, or the same names as in the hub.",
        ),
    ] = NamespaceStrategy.PREFIXED,
    label: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="A label for the nodes. Repeatable."),
    ] = None,
    node_address: Annotated[
        str | None,
        typer.Option(metavar="IP", help="InternalIP of the nodes. Without it: this host's."),
    ] = None,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where /healthz, /readyz, /metrics are.")
    ] = "127.0.0.1:8080",
    log_level: Annotated[str, typer.Option(metavar="debug|info|warning|error")] = "info",
    log_format: Annotated[
        str, typer.Option(metavar="auto|console|json", help="auto: logfmt where no terminal is.")
    ] = "auto",
    identity: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="This process in leader leases; unique to it."),
    ] = None,
) -> None:
    """Run a virtual node in the hub for each target, until SIGTERM or Ctrl-C.

    Stopping deletes nothing: nodes and mirrors stay.
    """
    complaints = Complaints()
    settings = read_settings(
        complaints,
        targets=targets,
        hub=hub,
        hub_context=hub_context,
        capacity=capacity or [],
        namespaces=namespaces,
        labels=label or [],
        listen=listen,
        node_address=node_address,
        identity=identity,
        environ=os.environ,
    )
    from federate.runtime.telemetry import LogFormat, LogLevel

    level = _choice(complaints, "--log-level", log_level, LogLevel.INFO)
    wanted = _choice(complaints, "--log-format", log_format, LogFormat.AUTO)
    complaints.raise_any()
    _start(settings, level=level, log_format=wanted)


def _start(settings: Settings, *, level: LogLevel, log_format: LogFormat) -> None:
    from federate.cli.process import run_until_signal
    from federate.runtime.manager import run_process
    from federate.runtime.telemetry import Metrics, Telemetry, start_logging

    start_logging(level=level, log_format=log_format, stream=sys.stderr)
    telemetry = Telemetry(metrics=Metrics(version=__version__))
    typer.echo(how_to_use(settings))

    def work(stop: asyncio.Event) -> Coroutine[None, None, None]:
        return run_process(settings, telemetry=telemetry, stop=stop)

    run_until_signal(work)
    typer.echo(how_to_leave(settings))


def read_settings(  # noqa: PLR0913 - one parameter for each option
    complaints: Complaints,
    *,
    targets: Sequence[str],
    hub: str | None,
    hub_context: str | None,
    capacity: Sequence[str],
    namespaces: str,
    labels: Sequence[str],
    listen: str,
    node_address: str | None,
    identity: str | None,
    environ: Mapping[str, str],
) -> Settings:
    """Make settings of option texts; what is wrong is left with `complaints`, who must be asked."""
    options: tuple[TargetOption, ...] = ()
    capacities: Mapping[str, Mapping[str, str]] = {}
    node_labels: Mapping[str, str] = {}
    hub_file: Path | None = None
    host, port, address = "", 0, None
    with complaints.about("--hub"):
        hub_file = find_hub(hub, environ=environ, home=Path.home())
        if hub_file is None and hub_context:
            raise ConfigError("no kubeconfig is found in which --hub-context could be; give --hub")
    with complaints.about("--target"):
        options = parse_targets(targets)
    with complaints.about("--capacity"):
        capacities = parse_capacities(capacity, [option.name for option in options])
    with complaints.about("--label"):
        node_labels = parse_labels(labels)
    with complaints.about("--listen"):
        host, port = parse_listen(listen)
    with complaints.about("--node-address"):
        address = None if node_address is None else parse_node_address(node_address)
    if identity is not None and not identity.strip():
        with complaints.about("--identity"):
            raise ConfigError(f"{quoted(identity)}: expected a name unique to this process")
    strategy = _choice(complaints, "--namespaces", namespaces, NamespaceStrategy.PREFIXED)
    return Settings(
        hub_kubeconfig=hub_file,
        hub_context=hub_context,
        targets=tuple(
            TargetSettings(
                name=option.name,
                kubeconfig=option.kubeconfig,
                context=option.context,
                capacity=CapacityRules.fixed(capacities[option.name])
                if option.name in capacities
                else CapacityRules(),
                namespaces=NamespaceRules(strategy=strategy),
                labels=node_labels,
            )
            for option in options
        ),
        identity=identity or own_identity(),
        listen_host=host,
        listen_port=port,
        node_address=address,
    )


def _choice(complaints: Complaints, option: str, text: str, default: E) -> E:
    """Read one of the words of `default`'s kind; `default` where the text is none of them."""
    words = {str(word): word for word in type(default)}
    with complaints.about(option):
        if text not in words:
            raise ConfigError(f"{quoted(text)}: expected {', '.join(words)}")
    return words.get(text, default)


def how_to_use(settings: Settings) -> str:
    """Say what a pod needs to run in a target, to be copied into its spec."""
    first, *others = [target.name for target in settings.targets]
    or_others = f"    # or: {', '.join(others)}" if others else ""
    return "\n".join(
        (
            "A pod runs in a target when its spec has:",
            "  nodeSelector:",
            f"    kubernetes.io/hostname: {first}{or_others}",
            "  tolerations:",
            f"  - key: {VIRTUAL_NODE_TAINT_KEY}",
            "    operator: Equal",
            f"    value: {TAINT_VALUE}",
            "    effect: NoSchedule",
        )
    )


def how_to_leave(settings: Settings) -> str:
    """Say what stays after a stop, and how to leave for good.

    The nodes go last, while federate does not run: it would register them again.
    """
    file = settings.hub_kubeconfig
    kubectl = f"kubectl --kubeconfig {shlex.quote(str(file))}" if file else "kubectl"
    if settings.hub_context:
        kubectl += f" --context {shlex.quote(settings.hub_context)}"
    names = [target.name for target in settings.targets]
    drain = [
        f"  {kubectl} drain {name} --ignore-daemonsets --delete-emptydir-data --force"
        for name in names
    ]
    delete = [f"  {kubectl} delete node {name}" for name in names]
    return "\n".join(
        (
            f"Stopped. Nothing is deleted: Node {', '.join(names)} and the mirrors stay, pods in "
            "the target go on running.",
            "To go on, start federate again. To leave for good, start it again, and then:",
            *drain,
            "then stop it, and only then:",
            *delete,
        )
    )
