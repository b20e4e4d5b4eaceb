"""Command line: `python -m e2e.bench`."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.table import Table

from e2e.testbed.errors import TestbedError
from e2e.testbed.progress import Progress

from .plan import Part, Plan
from .results import Result, lines_of, write_document
from .run import run_plan
from .streams import rows_of
from .updown import Arm

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

COLUMNS = (
    "pods, nodes, phase", "seconds", "to target", "to both", "CPU s/1000",
    "hub writes/pod", "target writes/pod",
)  # fmt: skip


@app.command()
def bench(
    only: Annotated[
        list[Part] | None, typer.Option(help="Only this part; may be repeated.")
    ] = None,
    n: Annotated[
        list[int] | None, typer.Option("--n", help="Pods of the Deployment; may be repeated.")
    ] = None,
    pairs: Annotated[int, typer.Option(min=1, help="How often each arm is run.")] = 7,
    arms: Annotated[str, typer.Option(help="Arms, joined by commas.")] = "federate,target,both",
    nodes: Annotated[
        Literal["plain", "lifelike", "both"], typer.Option(help="How kwok plays pods.")
    ] = "both",
    standing: Annotated[int, typer.Option(min=20, help="Pods of the part `standing`.")] = 1000,
    standing_from: Annotated[
        int, typer.Option(min=1, help="The fewer pods, of which memory is told as the slope.")
    ] = 100,
    idle_seconds: Annotated[float, typer.Option(min=1.0, help="How long nothing happens.")] = 300,
    samples: Annotated[int, typer.Option(min=2, help="Single creates and statuses.")] = 200,
    profile: Annotated[
        Path | None, typer.Option(help="Folder for profiles of federate (needs py-spy).")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Results: this name with .json and .svg.")
    ] = None,
) -> None:
    """Measure one Deployment through federate against the same without it."""
    plan = Plan(
        parts=only or tuple(Part),
        sizes=n or (10, 100, 1000),
        pairs=pairs,
        arms=[Arm(name) for name in arms.split(",")],
        plays=("plain", "lifelike") if nodes == "both" else (nodes,),
        standing_pods=standing,
        standing_from=standing_from,
        idle_seconds=idle_seconds,
        samples=samples,
        profile_folder=profile,
        output=output,
    )
    result = run_plan(plan, Progress(), keep=keep)
    tell(result)


def keep(result: Result) -> None:
    """Write what there is so far."""
    output = result.plan.output
    if output is None:
        return
    # Takes a second, and only who draws has to have it.
    from .plot import draw

    document = result.document()
    write_document(output.with_suffix(".json"), document)
    draw(document, output.with_suffix(".svg"))


def tell(result: Result) -> None:
    """Print what counts."""
    console = Console(highlight=False, width=120)
    if result.measured:
        arms = " / ".join(map(str, result.measured[0].arms))
        table = Table(
            *COLUMNS, title=f"Medians; seconds are those of {arms}; ratios with quartiles"
        )
        for series in result.measured:
            for row in lines_of(series):
                table.add_row(*row)
        console.print(table)
    for play, found in result.standing.items():
        console.print(f"standing, {play} nodes:", found, markup=False)
    if result.streams is not None:
        table = Table("", "through the hub", "directly", "compared", title="Streams; medians")
        for row in rows_of(result.streams):
            table.add_row(*row)
        console.print(table)


def end(number: int, _frame: object) -> None:
    """Turn a wish to end into an exception, so that clusters and processes end too."""
    raise SystemExit(128 + number)


def main() -> None:
    """Run the command line."""
    signal.signal(signal.SIGTERM, end)
    try:
        app(prog_name="python -m e2e.bench")
    except TestbedError as error:
        Progress().say(f"Error: {error}")
        sys.exit(2)


if __name__ == "__main__":
    main()
