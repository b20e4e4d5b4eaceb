"""`federate status`: read the hub, show its virtual nodes and the pods that wait there."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from federate.cli.clusters import opened, run_once
from federate.cli.options import Complaints, OutputFormat
from federate.cli.places import CONFIG_HELP, read_places
from federate.cli.sources import Typed
from federate.cli.view import (
    SHOWN_WAITING,
    HubView,
    NodeView,
    WaitingPod,
    format_age,
    is_virtual_node,
    view_of,
)
from federate.errors import ClusterError, ConfigError, Forbidden, NotFound
from federate.model.marks import LEAVING_ANNOTATION, LEFT_ANNOTATION
from federate.model.naming import leader_lease_name
from federate.model.objects import JsonDict, ObjectKey, key_of
from federate.model.pods import NODE_TYPE_LABEL, VIRTUAL_NODE_TYPE
from federate.model.reasons import NodeReason
from federate.model.resources import LEASES, NODES, PODS
from federate.runtime.identity import describe_holder

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

    from federate.cluster.port import ClusterPort

EXAMPLE = "Example: federate status --hub hub.yaml --watch"

REDRAW_SECONDS = 2.0
"""Fast enough to watch a rollout; each redraw reads the nodes, their pods and their leases."""

LEASE_NAMESPACE = "kube-system"

VIRTUAL_NODES = f"{NODE_TYPE_LABEL}={VIRTUAL_NODE_TYPE}"
"""Label selector: a hub may have thousands of other nodes."""


def status(
    config: Annotated[str | None, typer.Option(metavar="FILE", help=CONFIG_HELP)] = None,
    hub: Annotated[str | None, typer.Option(metavar="PATH", help="The hub's kubeconfig.")] = None,
    hub_context: Annotated[
        str | None, typer.Option(metavar="NAME", help="A context other than the current one.")
    ] = None,
    leader_lease_namespace: Annotated[
        str | None,
        typer.Option(
            metavar="NAMESPACE", help="Where the leader leases are. Without it kube-system."
        ),
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Draw again every 2 s until Ctrl-C.")
    ] = False,
    output: Annotated[
        OutputFormat, typer.Option("-o", "--output", help="A table, or everything as JSON.")
    ] = OutputFormat.TEXT,
) -> None:
    """Show the hub's virtual nodes, and the pods that wait there with the reason.

    Reads only the hub.
    """
    if watch and output is OutputFormat.JSON:
        raise ConfigError("--watch draws tables; expected it without -o json")
    complaints = Complaints()
    typed = Typed(
        environ=os.environ,
        home=Path.home(),
        config=config,
        hub=hub,
        hub_context=hub_context,
        leader_lease_namespace=leader_lease_namespace,
    )
    found = read_places(complaints, typed).settings
    complaints.raise_any()
    file, context, leases = found.hub_kubeconfig, found.hub_context, found.leader_lease_namespace
    from rich.console import Console

    console = Console(highlight=False)
    if watch:
        try:
            run_once(_watch(file, context, leases, console))
        except KeyboardInterrupt:
            return
    view = run_once(_look(file, context, leases))
    if output is OutputFormat.JSON:
        typer.echo(json.dumps(view.as_json(), indent=2))
    else:
        console.print(draw(view))


async def _look(file: Path | None, context: str | None, leases: str) -> HubView:
    async with opened(file, name="hub", context=context) as hub:
        return await read_hub(hub, now=datetime.now(UTC), lease_namespace=leases)


async def _watch(file: Path | None, context: str | None, leases: str, console: Console) -> None:
    from rich.console import Group
    from rich.live import Live

    async with opened(file, name="hub", context=context) as hub:
        view = await read_hub(hub, now=datetime.now(UTC), lease_namespace=leases)
        shown = draw(view)
        with Live(shown, console=console, auto_refresh=False) as live:
            while True:
                await asyncio.sleep(REDRAW_SECONDS)
                try:
                    view = await read_hub(hub, now=datetime.now(UTC), lease_namespace=leases)
                    shown = draw(view)
                    live.update(shown, refresh=True)
                except ClusterError as error:
                    told = f"not up to date, trying again: {error}"
                    live.update(Group(shown, _plain(told)), refresh=True)


async def read_hub(
    hub: ClusterPort, *, now: datetime, lease_namespace: str = LEASE_NAMESPACE
) -> HubView:
    """Read the virtual nodes, the pods bound to them and their leader leases.

    Raises:
        ClusterError: nodes or pods cannot be read; an unreadable lease only leaves the leader open.
    """
    nodes = (await hub.list(NODES, label_selector=VIRTUAL_NODES)).items
    names = [key_of(node).name for node in nodes if is_virtual_node(node)]
    listings = await asyncio.gather(
        *(hub.list(PODS, field_selector=f"spec.nodeName={name}") for name in names)
    )
    return view_of(
        nodes,
        {name: found.items for name, found in zip(names, listings, strict=True)},
        await _leases(hub, lease_namespace, names),
        now=now,
    )


async def _leases(hub: ClusterPort, namespace: str, names: Sequence[str]) -> dict[str, JsonDict]:
    """Read leader leases by node name, also of those that have no Node any more.

    Who may not list them sees those of the virtual nodes.
    """
    prefix = leader_lease_name("")
    try:
        listed = await hub.list(LEASES, namespace=namespace)
    except (NotFound, Forbidden):
        leases = await asyncio.gather(*(_lease_of(hub, namespace, name) for name in names))
        return {name: one for name, one in zip(names, leases, strict=True) if one is not None}
    return {
        key_of(lease).name.removeprefix(prefix): lease
        for lease in listed.items
        if key_of(lease).name.startswith(prefix)
    }


async def _lease_of(hub: ClusterPort, namespace: str, node_name: str) -> JsonDict | None:
    key = ObjectKey(namespace, leader_lease_name(node_name))
    try:
        return await hub.get(LEASES, key)
    except (NotFound, Forbidden):
        return None


def draw(view: HubView) -> RenderableType:
    """Draw the tables, or say how to begin where there is no virtual node."""
    from rich.console import Group

    if not view.nodes and view.left:
        return Group(*_told_of_leaving(view))
    if not view.nodes:
        return _plain(
            "This hub has no virtual node of federate. Begin: "
            "federate run --hub hub.yaml --target edge=target.yaml"
        )
    parts: list[RenderableType] = [_table(_NODE_HEADS, (node_row(node) for node in view.nodes))]
    # Under the table: there a message has the width of the terminal, and can be copied.
    parts += [_plain(f"{node.name}: {_word(node)}") for node in view.nodes if node.message]
    parts += [_plain(said) for said in map(how_hidden, view.nodes) if said]
    parts += _told_of_leaving(view)
    if view.waiting:
        shown = view.waiting[:SHOWN_WAITING]
        parts += [_plain(""), _table(_WAITING_HEADS, (waiting_row(pod) for pod in shown))]
        if more := len(view.waiting) - len(shown):
            parts.append(_plain(f"and {more} more that wait"))
    return Group(*parts)


def how_hidden(node: NodeView) -> str:
    """Say why pods have no addresses, where no configuration asks for that; else ""."""
    is_hidden = node.addresses_reason in (NodeReason.RANGES_OVERLAP, NodeReason.RANGES_UNKNOWN)
    return f"{node.name}: addresses of pods are {node.addresses}" if is_hidden else ""


def _told_of_leaving(view: HubView) -> list[RenderableType]:
    told = [(node.name, how_left(node)) for node in view.nodes]
    told += [(name, how_gone(name)) for name in view.left]
    return [_plain(f"{name} {said}") for name, said in told if said]


def how_left(node: NodeView) -> str:
    """Say how far a virtual node is left, and the next step; "" where nobody leaves it."""
    name = node.name
    if node.left_since:
        is_led = node.leader and node.leader_silent_seconds is None
        if is_led:
            return f"is being left since {node.left_since}: {describe_holder(node.leader)} is at it"
        return (
            f"is retired since {node.left_since}, and nobody leads it: federate leave {name} again "
            f"goes on. {_use_again(name)}"
        )
    if node.leaving_since:
        return (
            f"is being left since {node.leaving_since}: nothing new is mirrored. federate leave "
            f"{name} goes on, should nobody be at it. To call it off, stop that, then kubectl "
            f"uncordon {name}; kubectl annotate node {name} {LEAVING_ANNOTATION}-"
        )
    return ""


def how_gone(name: str) -> str:
    """Say the next step where a Node is gone; what is left in the target, nobody here can tell."""
    return (
        f"has no Node any more, and its leader lease is marked as left: federate leave {name} "
        "again removes what is still there of it, and says that all is done. Until then no "
        "federate serves that name"
    )


def _use_again(name: str) -> str:
    return (
        "To use it again: kubectl "
        f"annotate lease -n NAMESPACE {leader_lease_name(name)} {LEFT_ANNOTATION}-; kubectl "
        f"annotate node {name} {LEAVING_ANNOTATION}-; kubectl uncordon {name}; start federate anew"
    )


_NODE_HEADS = (
    *("NODE", "READY", "TARGET", "AGE", "PODS", "CPU", "MEMORY"),
    *("BROUGHT", "LEADER"),
)
_LEAST = {"TARGET": len("reachable"), "BROUGHT": len("BROUGHT")}
"""Columns whose words are short enough to stay whole on a terminal of eighty columns."""
_WAITING_HEADS = ("WAITING POD", "NODE", "AGE", "WHY")


def node_row(node: NodeView) -> tuple[str, ...]:
    """Return the cells of a virtual node."""
    target = {"True": "reachable", "False": "unreachable"}.get(node.target_reachable, "unknown")
    if node.reason == NodeReason.TARGET_CHANGED:
        target = "another cluster"
    counts = ", ".join(f"{count} {phase.lower()}" for phase, count in node.pods.items())
    return (
        node.name,
        _ready(node),
        f"{target} ({node.reason})" if node.reason and not _is_well(node) else target,
        format_age(node.age_seconds),
        f"{counts or '0'} / {node.allocatable.get('pods', '?')}",
        _share(node, "cpu"),
        _share(node, "memory"),
        str(node.companions),
        _leader(node),
    )


def _is_well(node: NodeView) -> bool:
    """Tell whether its word is one for operators, and no trouble of node or target."""
    return node.ready.startswith("Ready") and node.target_reachable == "True"


def _word(node: NodeView) -> str:
    return f"{node.reason}: {node.message}" if _is_well(node) else node.message


def _ready(node: NodeView) -> str:
    if node.left_since:
        return f"{node.ready},retired"
    return f"{node.ready},leaving" if node.leaving_since else node.ready


def _share(node: NodeView, resource: str) -> str:
    return f"{node.requested.get(resource, '0')} / {node.allocatable.get(resource, '?')}"


def _leader(node: NodeView) -> str:
    if not node.leader:
        return "none"
    leader = describe_holder(node.leader)
    if node.leader_silent_seconds is None:
        return leader
    return f"none ({leader} silent for {format_age(node.leader_silent_seconds)})"


def waiting_row(pod: WaitingPod) -> tuple[str, ...]:
    """Return the cells of a waiting pod."""
    why = ": ".join(part for part in (pod.reason, pod.message) if part)
    age = format_age(pod.age_seconds)
    return (f"{pod.namespace}/{pod.name}", pod.node, age, why or "no reason given yet")


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for head in heads:
        # What people copy stays on one line as long as anything else can give way.
        no_wrap = head in ("NODE", "READY", "AGE")
        table.add_column(head, no_wrap=no_wrap, min_width=_LEAST.get(head), overflow="fold")
    for row in rows:
        table.add_row(*(_plain(cell) for cell in row))
    return table


def _plain(text: str) -> RenderableType:
    """Show text as it is: messages of servers may hold what rich takes for markup."""
    from rich.text import Text

    return Text(text)
