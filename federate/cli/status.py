"""`federate status`: read the hub, show its virtual nodes and the pods that wait there."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from federate.cli.clusters import opened, run_once
from federate.cli.options import Complaints, OutputFormat, find_hub
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
    hub: Annotated[str | None, typer.Option(metavar="PATH", help="The hub's kubeconfig.")] = None,
    hub_context: Annotated[
        str | None, typer.Option(metavar="NAME", help="A context other than the current one.")
    ] = None,
    leader_lease_namespace: Annotated[
        str,
        typer.Option(
            metavar="NAMESPACE",
            envvar="FEDERATE_LEADER_LEASE_NAMESPACE",
            help="Where the leader leases are.",
        ),
    ] = LEASE_NAMESPACE,
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
    file: Path | None = None
    with complaints.about("--hub"):
        file = find_hub(hub, environ=os.environ, home=Path.home())
    complaints.raise_any()
    from rich.console import Console

    console = Console(highlight=False)
    if watch:
        try:
            run_once(_watch(file, hub_context, leader_lease_namespace, console))
        except KeyboardInterrupt:
            return
    view = run_once(_look(file, hub_context, leader_lease_namespace))
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
    leases = await asyncio.gather(*(_lease_of(hub, lease_namespace, name) for name in names))
    return view_of(
        nodes,
        {name: found.items for name, found in zip(names, listings, strict=True)},
        {name: lease for name, lease in zip(names, leases, strict=True) if lease is not None},
        now=now,
    )


async def _lease_of(hub: ClusterPort, namespace: str, node_name: str) -> JsonDict | None:
    key = ObjectKey(namespace, leader_lease_name(node_name))
    try:
        return await hub.get(LEASES, key)
    except (NotFound, Forbidden):
        return None


def draw(view: HubView) -> RenderableType:
    """Draw the tables, or say how to begin where there is no virtual node."""
    from rich.console import Group

    if not view.nodes:
        return _plain(
            "This hub has no virtual node of federate. Begin: "
            "federate run --hub hub.yaml --target edge=target.yaml"
        )
    parts: list[RenderableType] = [_table(_NODE_HEADS, (node_row(node) for node in view.nodes))]
    # Under the table: there a message has the width of the terminal, and can be copied.
    parts += [_plain(f"{node.name}: {node.message}") for node in view.nodes if node.message]
    if view.waiting:
        shown = view.waiting[:SHOWN_WAITING]
        parts += [_plain(""), _table(_WAITING_HEADS, (waiting_row(pod) for pod in shown))]
        if more := len(view.waiting) - len(shown):
            parts.append(_plain(f"and {more} more that wait"))
    return Group(*parts)


_NODE_HEADS = ("NODE", "READY", "TARGET", "AGE", "PODS", "CPU", "MEMORY", "LEADER")
_WAITING_HEADS = ("WAITING POD", "NODE", "AGE", "WHY")


def node_row(node: NodeView) -> tuple[str, ...]:
    """Return the cells of a virtual node."""
    target = {"True": "reachable", "False": "unreachable"}.get(node.target_reachable, "unknown")
    if node.reason == NodeReason.TARGET_CHANGED:
        target = "another cluster"
    counts = ", ".join(f"{count} {phase.lower()}" for phase, count in node.pods.items())
    return (
        node.name,
        node.ready,
        f"{target} ({node.reason})" if node.reason else target,
        format_age(node.age_seconds),
        f"{counts or '0'} / {node.allocatable.get('pods', '?')}",
        _share(node, "cpu"),
        _share(node, "memory"),
        _leader(node),
    )


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
        table.add_column(head, no_wrap=head in ("NODE", "READY", "AGE"), overflow="fold")
    for row in rows:
        table.add_row(*(_plain(cell) for cell in row))
    return table


def _plain(text: str) -> RenderableType:
    """Show text as it is: messages of servers may hold what rich takes for markup."""
    from rich.text import Text

    return Text(text)
