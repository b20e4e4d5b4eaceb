"""`federate storage-class`: print the hub's class for claims with storage in targets."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer
import yaml

from federate.claims.protocol import DELETE, RETAIN
from federate.claims.render import render_storage_class
from federate.cli.options import Complaints
from federate.config.values import node_name, object_name
from federate.errors import ConfigError

EXAMPLE = "Example: federate storage-class federate --node berlin | kubectl apply -f -"


class Reclaim(StrEnum):
    """What becomes of the data when its claim is gone."""

    RETAIN = RETAIN
    DELETE = DELETE


def storage_class(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the class is called.")],
    node: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A virtual node with `volumes.claims: target`. Repeatable. Without it the "
            "scheduler offers the class on every node, and pods wait where nobody makes storage.",
        ),
    ] = None,
    reclaim: Annotated[
        Reclaim, typer.Option(help="What becomes of the data when its claim is deleted.")
    ] = Reclaim.RETAIN,
) -> None:
    """Print a StorageClass for the hub, whose claims have their storage in targets."""
    complaints = Complaints()
    for what, texts, read in (("NAME", [name], object_name), ("--node", node or [], node_name)):
        with complaints.about(what):
            for text in texts:
                try:
                    read(text)
                except ValueError as error:
                    raise ConfigError(str(error)) from error
    complaints.raise_any()
    rendered = render_storage_class(name, node_names=node or (), reclaim=str(reclaim))
    typer.echo(yaml.safe_dump(rendered, sort_keys=False), nl=False)
