"""`federate run`: check what was typed, then start the process.

Between the user and `runtime.manager`. Every option is checked before anything is started.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from federate import __version__
from federate.cli.options import KUBELET_WORDS, SWITCH_WORDS, Complaints
from federate.cli.sources import (
    Overrides,
    Typed,
    combine,
    find_config,
    read_bytes,
    read_config,
    read_overrides,
)
from federate.config.values import DEFAULT_LISTEN, LOG_FORMATS, LOG_LEVELS
from federate.errors import ConfigError
from federate.model.pods import VIRTUAL_NODE_TAINT_KEY
from federate.runtime.settings import Settings, TargetSettings

if TYPE_CHECKING:
    import asyncio

    from federate.config.load import Configuration
    from federate.runtime.following import Following

EXAMPLE = "Example: federate run --hub hub.yaml --target edge=target.yaml"


def run(  # noqa: PLR0913 - one parameter for each option
    targets: Annotated[
        list[str] | None,
        typer.Option(
            "--target",
            metavar="NAME=PATH[@CONTEXT]",
            help="A target's kubeconfig; the virtual node gets that name. Repeatable.",
        ),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="A file of kind Federation, followed while federate runs. Flags go over it. "
            "Without it: $FEDERATE_CONFIG.",
        ),
    ] = None,
    hub: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="The hub's kubeconfig. Without it: $FEDERATE_HUB_KUBECONFIG, the file's, "
            "$KUBECONFIG, ~/.kube/config, or the service account of this pod.",
        ),
    ] = None,
    hub_context: Annotated[
        str | None, typer.Option(metavar="NAME", help="A context other than the current one.")
    ] = None,
    hub_identity: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The hub in marks of mirrors. Without it the uid of its kube-system namespace.",
        ),
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
        str | None,
        typer.Option(
            metavar="prefixed|suffixed|same|single=NAME",
            help="Target namespaces: own ones for each hub (prefixed), the hub's names, or one "
            "for all.",
        ),
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="A label for the nodes. Repeatable."),
    ] = None,
    node_address: Annotated[
        str | None,
        typer.Option(metavar="IP", help="InternalIP of the nodes. Without it: this host's."),
    ] = None,
    kubelet: Annotated[
        str | None,
        typer.Option(
            metavar="|".join(KUBELET_WORDS),
            help="Answer kubectl logs, exec and the like, with a certificate by CSR (approve: by "
            "ourselves) or a self-signed one. Without it csr.",
        ),
    ] = None,
    companions: Annotated[
        str | None,
        typer.Option(
            metavar="|".join(SWITCH_WORDS),
            help="Whether the ConfigMaps and Secrets that pods name come along. Without it on.",
        ),
    ] = None,
    hub_address: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Where pods in the target reach the hub's API server: with it they are there as "
            "their own service accounts (identity hub).",
        ),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help=f"Where /healthz, /readyz, /metrics are. Without it {DEFAULT_LISTEN}.",
        ),
    ] = None,
    log_level: Annotated[
        str | None, typer.Option(metavar="|".join(LOG_LEVELS), help="Without it info.")
    ] = None,
    log_format: Annotated[
        str | None,
        typer.Option(
            metavar="|".join(LOG_FORMATS),
            help="auto, as without it: logfmt where no terminal is.",
        ),
    ] = None,
    identity: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="This process in leader leases; unique to it."),
    ] = None,
    leader_lease_namespace: Annotated[
        str | None,
        typer.Option(
            metavar="NAMESPACE", help="Where the leader leases are. Without it kube-system."
        ),
    ] = None,
) -> None:
    """Run a virtual node in the hub for each target, until SIGTERM or Ctrl-C.

    Stopping deletes nothing: nodes and mirrors stay.
    """
    typed = Typed(
        environ=os.environ,
        home=Path.home(),
        config=config,
        hub=hub,
        hub_context=hub_context,
        hub_identity=hub_identity,
        targets=targets or (),
        capacity=capacity or (),
        namespaces=namespaces,
        labels=label or (),
        node_address=node_address,
        kubelet=kubelet,
        companions=companions,
        hub_address=hub_address,
        listen=listen,
        log_level=log_level,
        log_format=log_format,
        identity=identity,
        leader_lease_namespace=leader_lease_namespace,
    )
    settings, following = read_settings(typed)
    _start(settings, following)


def _start(settings: Settings, following: Following | None) -> None:
    import asyncio

    from federate.cli.process import raise_file_limit, run_until_signal
    from federate.runtime.manager import Process, run_process
    from federate.runtime.telemetry import LogFormat, LogLevel, Metrics, Telemetry, start_logging

    start_logging(
        level=LogLevel(settings.log_level),
        log_format=LogFormat(settings.log_format),
        stream=sys.stderr,
    )
    process = Process(
        settings,
        telemetry=Telemetry(metrics=Metrics(version=__version__)),
        following=following,
        on_removed=lambda target: _tell_removed(settings, target),
    )
    typer.echo(how_to_use(settings))

    async def work(stop: asyncio.Event) -> None:
        if following is not None:
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, following.look_now)
        await run_process(process, stop=stop)

    raise_file_limit()
    run_until_signal(work)
    typer.echo(how_to_leave(process.settings))


def read_settings(typed: Typed) -> tuple[Settings, Following | None]:
    """Read flags, environment and file; all that is wrong anywhere is told at once.

    Raises:
        ConfigError: something is.
    """
    complaints = Complaints()
    over = read_overrides(complaints, typed)
    path: Path | None = None
    file: Configuration | None = None
    content = b""
    try:
        path = find_config(typed)
        if path is not None:
            content = read_bytes(path)
            file = read_config(path, content)
            _check_files(file, over)
    except ConfigError as error:
        complaints.note(error)
        complaints.raise_any()
    if path is None and not typed.targets:
        with complaints.about("--target"):
            raise ConfigError("nothing to run; expected --target NAME=PATH, or --config FILE")
    complaints.raise_any()
    settings = combine(over, file)
    return settings, None if path is None else _follow(path, content, over)


def _check_files(file: Configuration, over: Overrides) -> None:
    """Refuse kubeconfigs that are not there, at the start.

    Later a missing one is the trouble of its virtual node: a Secret may be mounted late.
    """
    skipped = frozenset(option.name for option in over.targets)
    missing = file.missing_files(but_hub=over.hub_file is not None, but_nodes=skipped)
    if missing:
        raise ConfigError("\n".join(missing))


def _follow(path: Path, content: bytes, over: Overrides) -> Following:
    from federate.runtime.following import Following

    return Following(path, content, lambda found: combine(over, read_config(path, found)))


def _tell_removed(settings: Settings, target: TargetSettings) -> None:
    said = f"Virtual node {target.name} is removed from the configuration."
    one = replace(settings, targets=(target,))
    typer.echo(how_to_leave(one, said=said, go_on="put it back"))


def how_to_use(settings: Settings) -> str:
    """Say what a pod needs to run in a target, to be copied into its spec."""
    if not settings.targets:
        return "The configuration has no virtual node; one that is added to it starts at once."
    shown, *others = settings.targets
    or_others = f"    # or: {', '.join(other.name for other in others)}" if others else ""
    return "\n".join(
        (
            "A pod runs in a target when its spec has:",
            "  nodeSelector:",
            f"    kubernetes.io/hostname: {shown.name}{or_others}",
            *_toleration(shown),
        )
    )


def _toleration(target: TargetSettings) -> tuple[str, ...]:
    if target.taint_effect is None or not target.taint_effect.is_hard:
        return ()
    return (
        "  tolerations:",
        f"  - key: {VIRTUAL_NODE_TAINT_KEY}",
        "    operator: Equal",
        f"    value: {target.taint_value}",
        f"    effect: {target.taint_effect}",
    )


def how_to_leave(
    settings: Settings, *, said: str = "Stopped.", go_on: str = "start federate again"
) -> str:
    """Say what stays after `said`, how to go on, and how to leave for good."""
    if not settings.targets:
        return f"{said} Nothing is deleted."
    names = ", ".join(target.name for target in settings.targets)
    return "\n".join(
        (
            f"{said} Nothing is deleted: Node {names} and the mirrors stay, pods in the target go "
            "on running.",
            f"To go on, {go_on}. To leave for good, whether it runs or not:",
            *(f"  {_leave_command(settings, target)}" for target in settings.targets),
        )
    )


def _leave_command(settings: Settings, target: TargetSettings) -> str:
    place = str(target.kubeconfig) + (f"@{target.context}" if target.context else "")
    words = ["federate", "leave", target.name, "--target", f"{target.name}={place}"]
    if settings.hub_kubeconfig:
        words += ["--hub", str(settings.hub_kubeconfig)]
    if settings.hub_context:
        words += ["--hub-context", settings.hub_context]
    if settings.hub_identity:
        words += ["--hub-identity", settings.hub_identity]
    if settings.leader_lease_namespace != "kube-system":
        words += ["--leader-lease-namespace", settings.leader_lease_namespace]
    return shlex.join(words)
