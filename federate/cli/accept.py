"""`federate accept`: let another cluster take the place of the one a virtual node stood for (C5).

Shows what it means, asks, and writes the operator's word on the Node. The running federate carries
it out (`node.anchors`); nothing happens before it does, and nothing in either target by this
command.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from federate.cli.clusters import opened, run_once
from federate.cli.options import Complaints
from federate.cli.places import CONFIG_HELP, read_places
from federate.cli.sources import Typed
from federate.cli.view import is_virtual_node
from federate.errors import ConfigError
from federate.model.marks import ACCEPT_TARGET_ANNOTATION, NODE_HUB_ANNOTATION, Scope, record_of
from federate.model.objects import (
    JsonObject,
    ObjectKey,
    annotations_of,
    condition_of,
    resource_version_of,
    uid_of,
)
from federate.model.pods import is_terminal
from federate.model.reasons import NodeReason
from federate.model.resources import NODES, PODS
from federate.node.anchors import parse_accepted, parse_identity
from federate.node.probe import offered_identity
from federate.node.render import TARGET_REACHABLE
from federate.patch.document import MERGE, PatchBody

if TYPE_CHECKING:
    from federate.cluster.port import ClusterPort

EXAMPLE = "Example: federate accept edge --hub hub.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Offered:
    """What there is to accept. `accepted` is what an operator accepted already, or ""."""

    recorded: str
    found: str
    accepted: str
    mirrors: int
    """Pods that have a mirror on record, and have not ended."""


def accept(
    node: Annotated[str, typer.Argument(metavar="NODE", help="The virtual node.")],
    config: Annotated[str | None, typer.Option(metavar="FILE", help=CONFIG_HELP)] = None,
    hub: Annotated[str | None, typer.Option(metavar="PATH", help="The hub's kubeconfig.")] = None,
    hub_context: Annotated[
        str | None, typer.Option(metavar="NAME", help="A context other than the current one.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Accept without asking.")] = False,
) -> None:
    """Accept the cluster that answers now as the target of a virtual node.

    For a node that says TargetChanged. The running federate carries it out.
    """
    complaints = Complaints()
    typed = Typed(
        environ=os.environ, home=Path.home(), config=config, hub=hub, hub_context=hub_context
    )
    places = read_places(complaints, typed)
    if config is not None:
        with complaints.about("NODE"):
            places.require(node)
    complaints.raise_any()
    found = places.settings
    may_accept = (lambda: True) if yes else _confirmed
    run_once(_accept(found.hub_kubeconfig, found.hub_context, node, may_accept))


def _confirmed() -> bool:
    if not sys.stdin.isatty():
        raise ConfigError("nothing is accepted: no terminal to confirm at; expected --yes")
    return typer.confirm("Accept the present cluster?")


async def _accept(
    file: Path | None, context: str | None, node_name: str, may_accept: Callable[[], bool]
) -> None:
    async with opened(file, name="hub", context=context) as hub:
        await accept_offered(hub, node_name, may_accept=may_accept)


async def accept_offered(
    hub: ClusterPort, node_name: str, *, may_accept: Callable[[], bool]
) -> None:
    """Show what a virtual node offers to accept, ask, and write the word under its version.

    Raises:
        ConfigError: it is no virtual node.
        ClusterError: whatever the hub answered; `Conflict` where the Node changed meanwhile.
    """
    key = ObjectKey("", node_name)
    node = await hub.get(NODES, key)
    if not is_virtual_node(node):
        raise ConfigError(f"{node_name} is no virtual node of federate; see federate status")
    pods = await hub.list(PODS, field_selector=f"spec.nodeName={node_name}")
    offered = offered_by(node, pods.items)
    if not offered.found:
        typer.echo(
            f"Nothing to accept: {node_name} does not say {NodeReason.TARGET_CHANGED}. "
            f"The cluster on record is {offered.recorded or 'not known yet'}."
        )
        return
    scope = Scope(hub_id=annotations_of(node)[NODE_HUB_ANNOTATION], node_name=node_name)
    typer.echo(describe(scope, offered))
    if offered.accepted == offered.found:
        typer.echo("It is accepted already, and waits for a running federate to carry it out.")
        return
    if not may_accept():
        typer.echo("Nothing is accepted.")
        return
    await hub.patch(NODES, key, render_word(node, offered.found))
    typer.echo("Accepted. A running federate carries it out within seconds; see federate status.")


def offered_by(node: JsonObject, pods: Iterable[JsonObject]) -> Offered:
    """Read from the Node what can be accepted, and count the pods that pay for it."""
    told = condition_of(node, TARGET_REACHABLE) or {}
    is_changed = told.get("reason") == NodeReason.TARGET_CHANGED
    records = [record_of(pod) for pod in pods if not is_terminal(pod)]
    return Offered(
        recorded=parse_identity(node),
        found=offered_identity(told.get("message") or "") if is_changed else "",
        accepted=parse_accepted(node),
        mirrors=sum(1 for record in records if record is not None and record.mirror_uid),
    )


def describe(scope: Scope, offered: Offered) -> str:
    """Say what it means to accept, and how to clean up the cluster of before."""
    return "\n".join(
        (
            f"Virtual node {scope.node_name}",
            f"  cluster on record   {offered.recorded}",
            f"  present cluster     {offered.found}",
            f"  pods with a mirror in the cluster on record: {offered.mirrors}",
            "If the present cluster is accepted, each of these pods is Failed with MirrorLost and",
            "replaced by its owner, to run in the present cluster. The mirrors in the cluster on",
            "record stay, and go on running. To remove them there, before or afterwards:",
            f"  kubectl --kubeconfig OLD delete configmap -A -l {scope.selector}",
        )
    )


def render_word(node: JsonObject, found: str) -> PatchBody:
    """Render the operator's word on the Node as it was looked at."""
    metadata = {
        "uid": uid_of(node),
        "resourceVersion": resource_version_of(node),
        "annotations": {ACCEPT_TARGET_ANNOTATION: found},
    }
    return PatchBody(media_type=MERGE, body={"metadata": metadata})
