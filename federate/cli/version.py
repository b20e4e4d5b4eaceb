"""`federate version`."""

from __future__ import annotations

import json
import platform
from typing import Annotated

import typer

from federate import __version__
from federate.cli.options import OutputFormat

EXAMPLE = "Example: federate version -o json"


def version(
    output: Annotated[
        OutputFormat, typer.Option("-o", "--output", help="A line, or JSON.")
    ] = OutputFormat.TEXT,
) -> None:
    """Print the version of federate and of Python."""
    facts = {"federate": __version__, "python": platform.python_version()}
    if output is OutputFormat.JSON:
        typer.echo(json.dumps(facts))
    else:
        typer.echo(f"federate {facts['federate']} (Python {facts['python']})")
