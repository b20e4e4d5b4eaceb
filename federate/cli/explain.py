"""`federate explain`: say in plain words why a pod does not run, or how a virtual node stands.

Reads the hub and, where it is told where that is, the target; writes nothing, and needs no federate
that runs. What these credentials may not read is said, and the rest is explained all the same.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from federate.cli.clusters import opened, run_once
from federate.cli.options import SWITCH_WORDS, Complaints, OutputFormat
from federate.cli.places import CONFIG_HELP, read_places
from federate.cli.sources import Typed
from federate.errors import ConfigError
from federate.explain.stations import Road, Standing, printable, told
from federate.model.objects import ObjectKey, is_object_name

if TYPE_CHECKING:
    from rich.console import Console

    from federate.explain.reader import TargetAccess
    from federate.runtime.settings import Settings, TargetSettings

EXAMPLE = "Example: federate explain pod shop/web-0 --config federate.yaml"

_COLOURS = {
    Standing.OK: "green",
    Standing.NOTE: "cyan",
    Standing.WAITING: "yellow",
    Standing.STOPPED: "bold red",
    Standing.UNKNOWN: "magenta",
    Standing.AHEAD: "dim",
}
_WIDTH = max(len(standing) for standing in Standing)
_ID_WIDTH = len("credentials")


class Subject(StrEnum):
    """What is explained."""

    POD = "pod"
    NODE = "node"


def explain(  # noqa: PLR0913 - one parameter for each option
    subject: Annotated[
        Subject, typer.Argument(metavar="pod|node", help="A pod of the hub, or a virtual node.")
    ],
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of a pod also NAMESPACE/NAME.")],
    namespace: Annotated[
        str, typer.Option("-n", "--namespace", metavar="NS", help="The pod's. Without it default.")
    ] = "",
    targets: Annotated[
        list[str] | None,
        typer.Option(
            "--target",
            metavar="NAME=PATH[@CONTEXT]",
            help="As of federate run: the target's kubeconfig. Repeatable.",
        ),
    ] = None,
    config: Annotated[str | None, typer.Option(metavar="FILE", help=CONFIG_HELP)] = None,
    hub: Annotated[str | None, typer.Option(metavar="PATH", help="The hub's kubeconfig.")] = None,
    hub_context: Annotated[
        str | None, typer.Option(metavar="NAME", help="A context other than the current one.")
    ] = None,
    namespaces: Annotated[
        str | None, typer.Option(metavar="STRATEGY", help="As of federate run.")
    ] = None,
    companions: Annotated[
        str | None, typer.Option(metavar="|".join(SWITCH_WORDS), help="As of federate run.")
    ] = None,
    hub_address: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="As of federate run.")
    ] = None,
    leader_lease_namespace: Annotated[
        str | None,
        typer.Option(
            metavar="NAMESPACE", help="Where the leader leases are. Without it kube-system."
        ),
    ] = None,
    output: Annotated[
        OutputFormat, typer.Option("-o", "--output", help="Lines, or everything as JSON.")
    ] = OutputFormat.TEXT,
) -> None:
    """Say in plain words why a pod does not run, or how a virtual node stands.

    Goes the whole road from the hub's scheduler to the target's kubelet, with what federate, both
    clusters and the configuration say, and what to do next. Works when no federate runs. Ends with
    1 where something is in the way.
    """
    complaints = Complaints()
    typed = Typed(
        environ=os.environ,
        home=Path.home(),
        config=config,
        hub=hub,
        hub_context=hub_context,
        targets=targets or (),
        namespaces=namespaces,
        companions=companions,
        hub_address=hub_address,
        leader_lease_namespace=leader_lease_namespace,
    )
    settings = read_places(complaints, typed).settings
    key = ObjectKey("", name)
    with complaints.about("NAME"):
        key = read_name(subject, name, namespace)
    complaints.raise_any()
    road = run_once(_road(settings, subject, key))
    if output is OutputFormat.JSON:
        typer.echo(json.dumps(road.as_json(), indent=2))
    else:
        _show(road)
    if not road.is_well:
        raise SystemExit(1)


def read_name(subject: Subject, name: str, namespace: str) -> ObjectKey:
    """Read what is to be explained.

    Raises:
        ConfigError: no object can be called so, or two namespaces are given.
    """
    before, slash, last = name.rpartition("/")
    if subject is Subject.NODE:
        if slash or namespace or not is_object_name(name):
            raise ConfigError(f"{name!r} is no node; expected its name alone")
        return ObjectKey("", name)
    if slash and namespace and before != namespace:
        raise ConfigError(f"{name!r} and --namespace {namespace} are two namespaces")
    key = ObjectKey(before if slash else namespace or "default", last)
    if not key.can_exist:
        raise ConfigError(f"{name!r} is no pod; expected NAMESPACE/NAME")
    return key


async def _road(settings: Settings, subject: Subject, key: ObjectKey) -> Road:
    from federate.explain.noderoad import node_road_of
    from federate.explain.reader import HubSide, read_node, read_pod
    from federate.explain.road import road_of

    accesses = {target.name: _access(target) for target in settings.targets}
    async with opened(settings.hub_kubeconfig, name="hub", context=settings.hub_context) as client:
        hub = HubSide(
            client=client,
            lease_namespace=settings.leader_lease_namespace,
            identity=settings.hub_identity or "",
            ours=settings.identity,
        )
        now = datetime.now(UTC)
        if subject is Subject.NODE:
            found = await read_node(hub, key.name, target_of=accesses.get, now=now)
            return node_road_of(found)
        return road_of(await read_pod(hub, key, target_of=accesses.get, now=now))


def _access(target: TargetSettings) -> TargetAccess:
    from federate.explain.reader import TargetAccess

    return TargetAccess(
        settings=target,
        open=lambda: opened(target.kubeconfig, name=target.name, context=target.context),
    )


def _show(road: Road) -> None:
    from rich.console import Console

    draw(road, Console(highlight=False, soft_wrap=True))


def draw(road: Road, console: Console) -> None:
    """Print what it comes to, then one line for each station, then what to do next."""
    from rich.text import Text

    console.print(Text(printable(f"{road.about}: {road.verdict}")))
    for station in road.stations:
        line = Text("  ")
        line.append(f"{station.standing:<{_WIDTH}}", style=_COLOURS[station.standing])
        line.append(f"  {station.id:<{_ID_WIDTH}}  ")
        since = f" (for {station.since})" if station.since else ""
        console.print(line.append(printable(f"{told(station)}{since}")))
        if station.todo and station.standing is not Standing.STOPPED:
            console.print(Text(f"{' ' * (_WIDTH + _ID_WIDTH + 6)}-> {station.todo}"))
    for number, todo in enumerate(road.todo):
        console.print(Text(f"{'Next: ' if not number else '      '}{todo}"))
