"""`federate sweep`: one pass over a target's orphans, by hand.

Shows what a sweep would delete, and deletes it when asked to. What is an orphan, and the checks
right before each delete, stand in `garbage`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from federate.cli.clusters import opened, run_once
from federate.cli.options import Complaints, TargetOption, parse_targets
from federate.cli.places import CONFIG_HELP, Places, read_places
from federate.cli.sources import Typed
from federate.errors import ClusterError, ConfigError, FederateError

if TYPE_CHECKING:
    from rich.table import Table

    from federate.cluster.port import ClusterPort
    from federate.garbage.brought import Brought
    from federate.garbage.companions import BroughtSurvey, Sighting
    from federate.garbage.plan import Orphan, Survey
    from federate.model.marks import Scope

EXAMPLE = "Example: federate sweep --hub hub.yaml --target edge=target.yaml --dry-run"


def sweep(  # noqa: PLR0913 - one parameter for each option
    node: Annotated[
        str | None,
        typer.Argument(
            metavar="[NODE]", help="The virtual node, where neither --target nor the file tells."
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(metavar="NAME=PATH[@CONTEXT]", help="The virtual node and its target."),
    ] = None,
    config: Annotated[str | None, typer.Option(metavar="FILE", help=CONFIG_HELP)] = None,
    hub: Annotated[str | None, typer.Option(metavar="PATH", help="The hub's kubeconfig.")] = None,
    hub_context: Annotated[
        str | None, typer.Option(metavar="NAME", help="A context other than the current one.")
    ] = None,
    hub_identity: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="What marks call the hub, where federate was given another name than its uid.",
        ),
    ] = None,
    namespaces: Annotated[
        str,
        typer.Option(
            metavar="NAME,NAME",
            help="Look only in these target namespaces: for a kubeconfig with rights there alone.",
        ),
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show; delete nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Delete without asking.")] = False,
) -> None:
    """Show mirrors whose hub pod is gone and what came along that nobody wants, and delete it.

    A running federate does this by itself.
    """
    complaints = Complaints()
    typed = Typed(
        environ=os.environ,
        home=Path.home(),
        config=config,
        hub=hub,
        hub_context=hub_context,
        hub_identity=hub_identity,
    )
    places = read_places(complaints, typed)
    options: list[TargetOption] = []
    with complaints.about("--target" if target or places.file is None else "NODE"):
        options.append(_choose(places, node, target))
    complaints.raise_any()
    found = places.settings
    may_delete = None if dry_run else (lambda count: yes or _confirmed(count))
    names = tuple(name.strip() for name in namespaces.split(",") if name.strip())
    rules = places.companions(options[0].name)
    run_once(
        _sweep(
            found.hub_kubeconfig,
            found.hub_context,
            options[0],
            may_delete,
            names or ("",),
            found.hub_identity,
            are_made=rules is None or rules.are_made,
        )
    )


def _choose(places: Places, node: str | None, target: str | None) -> TargetOption:
    if target is not None:
        (option,) = parse_targets([target])
        if node not in (None, option.name):
            raise ConfigError(f"{option.name} is not {node}; expected {node}=PATH")
        return option
    if places.file is None:
        raise ConfigError("missing; expected NAME=PATH, or --config FILE")
    return places.target(node or places.only_node())


def _confirmed(count: int) -> bool:
    if not sys.stdin.isatty():
        raise ConfigError("nothing is deleted: no terminal to confirm at; expected --yes")
    return typer.confirm(f"Delete {count} in the target?")


async def _sweep(
    file: Path | None,
    context: str | None,
    option: TargetOption,
    may_delete: Callable[[int], bool] | None,
    namespaces: Sequence[str],
    hub_identity: str | None,
    *,
    are_made: bool,
) -> None:
    from federate.cluster.identity import IdentityGuard, cluster_identity
    from federate.garbage.companions import survey_brought
    from federate.garbage.sweeper import survey
    from federate.model.marks import Scope

    async with (
        opened(file, name="hub", context=context) as hub,
        opened(option.kubeconfig, name=option.name, context=option.context) as target,
    ):
        identity = await cluster_identity(hub)
        guard = IdentityGuard(hub, identity)
        scope = Scope(hub_id=hub_identity or identity, node_name=option.name)

        async def look() -> BroughtSurvey:
            return await survey_brought(
                hub,
                target,
                scope,
                confirm_hub=guard.confirm,
                namespaces=namespaces,
                are_made=are_made,
            )

        found = await survey(
            hub,
            target,
            node_name=option.name,
            namespaces=namespaces,
            hub_identity=hub_identity,
        )
        # After the survey that tells whether this is the hub: another wants none of it.
        along = await look()
        show(found, node_name=option.name)
        show_brought(along, node_name=option.name)
        count = len(found.orphans) + len(along.unwanted)
        if may_delete is None or not count:
            return
        if not may_delete(count):
            typer.echo("Nothing is deleted.")
            return
        await remove_all(hub, target, found.orphans, confirm_hub=guard.confirm)
        if along.unwanted:
            await remove_unwanted(target, scope, along.unwanted, look)


def show(found: Survey, *, node_name: str) -> None:
    """Print the orphans, and apart from them what a sweep of this node leaves alone."""
    from rich.console import Console

    console = Console(highlight=False)
    if found.orphans:
        console.print(_table(f"Orphans of {node_name}", found.orphans))
    else:
        typer.echo(f"No orphans of {node_name}.")
    if found.unknown:
        console.print(_table("Not touched", found.unknown))


def show_brought(along: BroughtSurvey, *, node_name: str) -> None:
    """Print what came along with pods and nobody wants; of other virtual nodes only how much."""
    for one in along.unwanted:
        typer.echo(f"Nobody wants {one}.")
    if along.found and not along.unwanted:
        typer.echo(f"All that came along with pods of {node_name} is wanted ({len(along.found)}).")
    for name, number in along.unknown.items():
        typer.echo(
            f"Not touched: {number} ConfigMaps and Secrets that came along with pods of {name}, "
            "another virtual node of this hub. federate leave removes them with it."
        )


async def remove_all(
    hub: ClusterPort,
    target: ClusterPort,
    orphans: Sequence[Orphan],
    *,
    confirm_hub: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Remove one after the other; one that fails does not keep the others.

    Raises:
        FederateError: some could not be removed.
    """
    from federate.garbage.sweeper import remove_orphan

    failed = 0
    for number, orphan in enumerate(orphans, start=1):
        try:
            outcome = await remove_orphan(hub, target, orphan, confirm_hub=confirm_hub)
        except ClusterError as error:
            failed += 1
            outcome = f"failed: {error}"
        typer.echo(f"[{number}/{len(orphans)}] {orphan.mirror}: {outcome}")
    if failed:
        raise FederateError(f"{failed} of {len(orphans)} orphans stay; sweep again to retry")


async def remove_unwanted(
    target: ClusterPort,
    scope: Scope,
    unwanted: Sequence[Brought],
    look: Callable[[], Awaitable[BroughtSurvey]],
) -> None:
    """Remove what a second look says nobody wants either: pods may have come while a person read.

    Each goes as it was before that look: what is taken up after it has another version.

    Raises:
        FederateError: some could not be removed.
    """
    seen = [await _sight(target, scope, one) for one in unwanted]
    still = set((await look()).unwanted)
    failed = 0
    for number, (one, sighting) in enumerate(zip(unwanted, seen, strict=True), start=1):
        outcome = "kept: it is wanted again"
        if one in still:
            try:
                outcome = await _remove(target, scope, one, sighting)
            except ClusterError as error:
                failed += 1
                outcome = f"failed: {error}"
        typer.echo(f"[{number}/{len(unwanted)}] {one.kind} {one.place}: {outcome}")
    if failed:
        raise FederateError(f"{failed} of {len(unwanted)} stay; sweep again to retry")


async def _sight(target: ClusterPort, scope: Scope, one: Brought) -> Sighting | ClusterError:
    """Look at one; where that fails, it is its own failure and keeps nothing else."""
    from federate.garbage.companions import sight

    try:
        return await sight(target, scope, one)
    except ClusterError as error:
        return error


async def _remove(
    target: ClusterPort, scope: Scope, one: Brought, seen: Sighting | ClusterError
) -> str:
    from federate.garbage.companions import remove_brought

    if isinstance(seen, ClusterError):
        raise seen
    return await remove_brought(target, scope, one, fence=_nobody_leads, seen=seen) or "gone"


def _nobody_leads() -> None:
    """A sweep by hand is a person's word: it needs no lease, and deletes by uid and version."""


def _table(title: str, orphans: Iterable[Orphan]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for head in ("MIRROR", "HUB POD", "NODE", "PHASE", "WHY"):
        table.add_column(head, overflow="fold")
    for orphan in orphans:
        cells = (orphan.mirror, orphan.hub_pod, orphan.node_name, orphan.phase, orphan.reason)
        table.add_row(*(Text(str(cell)) for cell in cells))
    return table
