"""`federate check`: look at both ends step by step, and say what is wrong and how to mend it.

Takes the settings of `federate run`, so that what is checked is what would be run. Writes nothing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from federate.check.findings import Severity, Status, StepResult
from federate.cli.clusters import opened, run_once
from federate.cli.options import SWITCH_WORDS, OutputFormat
from federate.cli.sources import Typed

if TYPE_CHECKING:
    from rich.console import Console

    from federate.check.checkup import EndPoint
    from federate.runtime.settings import Settings, TargetSettings

EXAMPLE = "Example: federate check --hub hub.yaml --target edge=target.yaml"

_COLOURS = {
    Status.OK: "green",
    Status.NOTE: "cyan",
    Status.WARN: "yellow",
    Status.FAIL: "bold red",
    Status.SKIP: "dim",
}


def check(  # noqa: PLR0913 - one parameter for each option
    targets: Annotated[
        list[str] | None,
        typer.Option(
            "--target",
            metavar="NAME=PATH[@CONTEXT]",
            help="A target's kubeconfig, and its virtual node's name. Repeatable.",
        ),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="A file of kind Federation, as of federate run."),
    ] = None,
    hub: Annotated[str | None, typer.Option(metavar="PATH", help="The hub's kubeconfig.")] = None,
    hub_context: Annotated[
        str | None, typer.Option(metavar="NAME", help="A context other than the current one.")
    ] = None,
    capacity: Annotated[
        list[str] | None,
        typer.Option(metavar="[NAME:]SIZE", help="As of federate run: decides about rights."),
    ] = None,
    namespaces: Annotated[
        str | None,
        typer.Option(metavar="STRATEGY", help="As of federate run: decides about rights."),
    ] = None,
    companions: Annotated[
        str | None,
        typer.Option(
            metavar="|".join(SWITCH_WORDS), help="As of federate run: decides about rights."
        ),
    ] = None,
    hub_address: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="As of federate run: decides about rights, and is asked as a pod would.",
        ),
    ] = None,
    leader_lease_namespace: Annotated[
        str | None, typer.Option(metavar="NAMESPACE", help="As of federate run.")
    ] = None,
    output: Annotated[
        OutputFormat, typer.Option("-o", "--output", help="Lines, or everything as JSON.")
    ] = OutputFormat.TEXT,
) -> None:
    """Check hub and targets: the way there, rights, versions, and what stands in the way.

    Ends with 1 where something keeps federate from working; each finding says what to do.
    """
    from federate.cli.run import read_settings

    settings, _ = read_settings(
        Typed(
            environ=os.environ,
            home=Path.home(),
            config=config,
            hub=hub,
            hub_context=hub_context,
            targets=targets or (),
            capacity=capacity or (),
            namespaces=namespaces,
            companions=companions,
            hub_address=hub_address,
            leader_lease_namespace=leader_lease_namespace,
        )
    )
    results = run_once(_check(settings, output))
    if output is OutputFormat.JSON:
        typer.echo(json.dumps(as_json(results), indent=2))
    else:
        typer.echo(summary(results))
    if any(result.status is Status.FAIL for result in results):
        raise SystemExit(1)


async def _check(settings: Settings, output: OutputFormat) -> list[StepResult]:
    from rich.console import Console

    from federate.check.checkup import check_all

    console = Console(highlight=False, soft_wrap=True)
    width = max(len(name) for name in ("hub", *(target.name for target in settings.targets)))
    results: list[StepResult] = []
    ends = {one.name: _target_end(one) for one in settings.targets}
    with console.status("asking") if output is OutputFormat.TEXT else nullcontext():
        async for result in check_all(settings, hub=_hub_end(settings), targets=ends):
            results.append(result)
            if output is OutputFormat.TEXT:
                show(result, console, width=width)
    return results


def _hub_end(settings: Settings) -> EndPoint:
    file = settings.hub_kubeconfig
    return _end("hub", file, settings.hub_context)


def _target_end(target: TargetSettings) -> EndPoint:
    return _end(target.name, target.kubeconfig, target.context)


def _end(name: str, file: Path | None, context: str | None) -> EndPoint:
    from federate.check.checkup import EndPoint

    where = "this pod's service account"
    if file is not None:
        where = f"kubeconfig {file}" + (f", context {context}" if context else "")
    return EndPoint(name=name, where=where, open=lambda: opened(file, name=name, context=context))


def show(result: StepResult, console: Console, *, width: int) -> None:
    """Print a step on one line, and what is wrong below it."""
    from rich.text import Text

    line = Text(f"{result.end:<{width}}  ")
    line.append(f"{result.status:<4}", style=_COLOURS[result.status])
    line.append(f"  {result.step}")
    if result.said:
        line.append(f": {result.said}")
    console.print(line)
    indent = " " * (width + 8)
    for finding in result.findings:
        head = Text(indent)
        head.append(str(finding.id), style=_COLOURS[Status(finding.severity)])
        console.print(head.append(f": {finding.what}"))
        console.print(Text(f"{indent}  -> {finding.fix}"))


def summary(results: Sequence[StepResult]) -> str:
    """Say in one line how it went."""
    found = [finding.severity for result in results for finding in result.findings]
    fails, warnings = found.count(Severity.FAIL), found.count(Severity.WARN)
    if fails:
        failed, warned = _counted(fails, "failure"), _counted(warnings, "warning")
        return f"federate cannot work: {failed}, {warned}."
    if warnings:
        return f"federate can work; {_counted(warnings, 'warning')}."
    return "All is well."


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def as_json(results: Sequence[StepResult]) -> dict[str, Any]:
    """Return what `-o json` prints."""
    return {
        "ok": not any(result.status is Status.FAIL for result in results),
        "steps": [result.as_json() for result in results],
    }
