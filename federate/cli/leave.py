"""`federate leave`: leave a target for good, or abandon one that is gone.

Shows what it means, asks, and carries it out step by step with what it is at; the steps stand in
`leave`. It may be stopped at any time: the same command goes on from there.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from federate.cli.clusters import opened, run_once
from federate.cli.options import Complaints, TargetOption, parse_targets
from federate.cli.places import CONFIG_HELP, Places, read_places
from federate.cli.sources import Typed
from federate.errors import ConfigError, FederateError, TargetChanged, Unreachable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status

    from federate.cluster.client import ClusterClient
    from federate.cluster.port import ClusterPort
    from federate.companions.rules import CompanionRules
    from federate.leave.drain import DrainRules, Hub
    from federate.leave.leaving import LeavePorts
    from federate.leave.plan import Found
    from federate.leave.progress import Progress

EXAMPLE = "Example: federate leave edge --hub hub.yaml --target edge=target.yaml --dry-run"

LEASE_NAMESPACE = "kube-system"

SHOWN_AFTER_SECONDS = 2.0
"""Shorter steps are told when they are done."""
TOLD_EVERY_SECONDS = 5.0
"""Where no line can be drawn anew: how often one that changed is written at most."""


def leave(  # noqa: PLR0913 - one parameter for each option
    node: Annotated[str, typer.Argument(metavar="NODE", help="The virtual node.")],
    hub: Annotated[str | None, typer.Option(metavar="PATH", help="The hub's kubeconfig.")] = None,
    hub_context: Annotated[
        str | None, typer.Option(metavar="NAME", help="A context other than the current one.")
    ] = None,
    target: Annotated[
        str | None, typer.Option(metavar="NODE=PATH[@CONTEXT]", help="The node and its target.")
    ] = None,
    config: Annotated[str | None, typer.Option(metavar="FILE", help=CONFIG_HELP)] = None,
    namespaces: Annotated[
        str,
        typer.Option(
            metavar="NAME,NAME",
            help="More target namespaces to look in, for a kubeconfig with rights there alone: "
            "once the Node is gone, nobody else knows them.",
        ),
    ] = "",
    hub_identity: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", help="As federate runs with it; needed once the Node is gone."
        ),
    ] = None,
    leader_lease_namespace: Annotated[
        str | None,
        typer.Option(metavar="NAMESPACE", help="As federate runs with it. Without it kube-system."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Delete bare pods too, which nobody replaces.")
    ] = False,
    grace_period: Annotated[
        int, typer.Option(metavar="SECONDS", help="Grace of the pods; -1: each pod's own.")
    ] = -1,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", min=0, help="How long to wait in all; 0: for ever.")
    ] = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show; change nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Leave without asking.")] = False,
    abandon: Annotated[
        bool, typer.Option("--abandon", help="The target is gone for good, and stays as it is.")
    ] = False,
    confirm: Annotated[
        str | None,
        typer.Option(
            metavar="WORDS",
            help='"abandon NODE": though its target answers. "this hub is NAME": though no Node '
            "tells that --hub-identity is right.",
        ),
    ] = None,
) -> None:
    """Leave a target for good: drain the node, clean the target, remove the Node last.

    It may be stopped at any time, and goes on when it is given again. Whether a federate runs
    meanwhile makes no difference; afterwards remove the node from its configuration.
    """
    complaints = Complaints()
    typed = Typed(
        environ=os.environ,
        home=Path.home(),
        config=config,
        hub=hub,
        hub_context=hub_context,
        hub_identity=hub_identity,
        leader_lease_namespace=leader_lease_namespace,
    )
    places = read_places(complaints, typed)
    given = places.settings
    option: TargetOption | None = None
    with complaints.about("--target" if target or places.file is None else "NODE"):
        if config is not None and target is None:
            places.require(node)
        option = _choose(places, node, target, abandon=abandon)
    with complaints.about("--confirm"):
        _check_words(confirm, node, given.hub_identity, abandon=abandon)
    complaints.raise_any()
    from federate.leave.drain import DrainRules

    request = Request(
        node_name=node,
        abandon=abandon,
        dry_run=dry_run,
        yes=yes,
        words=confirm or "",
        namespaces=tuple(name.strip() for name in namespaces.split(",") if name.strip()),
        hub_identity=given.hub_identity or "",
        lease_namespace=given.leader_lease_namespace,
        config=places.file.path if places.file is not None and places.has(node) else None,
        timeout_seconds=timeout,
        companions=places.companions(node),
        rules=DrainRules(force=force, grace_seconds=None if grace_period < 0 else grace_period),
    )
    may_be_gone = abandon and target is None
    run_once(
        _leave(given.hub_kubeconfig, given.hub_context, option, request, may_be_gone=may_be_gone)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the user asked for."""

    node_name: str
    rules: DrainRules
    abandon: bool = False
    dry_run: bool = False
    yes: bool = False
    words: str = ""
    namespaces: tuple[str, ...] = ()
    """Target namespaces to look in besides those that the hub knows of."""
    hub_identity: str = ""
    """What the hub is called in marks; "": the uid of its kube-system namespace."""
    lease_namespace: str = LEASE_NAMESPACE
    timeout_seconds: float = 0
    config: Path | None = None
    """The file that has the virtual node."""
    companions: CompanionRules | None = None
    """What it says of companions."""

    @property
    def hub_words(self) -> str:
        """What a person says for whom a hub goes by a name that nothing there tells."""
        return f"this hub is {self.hub_identity}"

    @property
    def spoken(self) -> str:
        """What a person says who abandons a target that answers."""
        return f"abandon {self.node_name}"


def _choose(places: Places, node: str, text: str | None, *, abandon: bool) -> TargetOption | None:
    """Find the target: by the flag, else in the file. One that is abandoned may be gone."""
    if text is None and abandon:
        with suppress(ConfigError):
            return places.target(node) if places.has(node) else None
        return None
    if text is None:
        if places.file is not None:
            return places.target(node)
        raise ConfigError(
            "missing; expected NODE=PATH, or --config FILE, for what is in the target is removed. "
            "If the target is gone for good: --abandon"
        )
    (option,) = parse_targets([text])
    if option.name != node:
        raise ConfigError(f"{option.name} is not {node}; expected {node}=PATH")
    return option


def _check_words(words: str | None, node: str, hub: str | None, *, abandon: bool) -> None:
    if words is None:
        return
    if abandon:
        if words != f"abandon {node}":
            raise ConfigError(f'expected "abandon {node}"')
    elif not hub:
        raise ConfigError("nothing to confirm without --abandon; expected --hub-identity beside it")
    elif words != f"this hub is {hub}":
        raise ConfigError(f'expected "this hub is {hub}"')


async def _leave(
    file: Path | None,
    context: str | None,
    option: TargetOption | None,
    request: Request,
    *,
    may_be_gone: bool,
) -> None:
    from rich.console import Console

    from federate.leave.waiting import looking

    async with (
        opened(file, name="hub", context=context) as hub,
        _target(option, may_be_gone=may_be_gone) as target,
    ):
        with closing(Lines(Console(highlight=False))) as progress:
            async with looking(progress, "looking at the hub"):
                ports = await prepare(hub, request, progress)
            if request.abandon:
                await abandon_target(ports, target, request)
            elif target is not None:
                await leave_target(ports, target, request)


@asynccontextmanager
async def _target(
    option: TargetOption | None, *, may_be_gone: bool
) -> AsyncIterator[ClusterClient | None]:
    """Open the target; None where none is given, or where it is of no use and nobody asked for it.

    `may_be_gone`: the file has it, and it is to be abandoned.
    """
    async with AsyncExitStack() as stack:
        target: ClusterClient | None = None
        if option is not None:
            place = opened(option.kubeconfig, name=option.name, context=option.context)
            try:
                target = await stack.enter_async_context(place)
            except ConfigError as error:
                if not may_be_gone:
                    raise
                typer.echo(f"Whether {option.name} answers is not asked: {error}")
        yield target


async def prepare(hub: Hub, request: Request, progress: Progress) -> LeavePorts:
    """Make what a leaving acts through; reads which cluster the hub is."""
    from federate.cluster.identity import IdentityGuard, cluster_identity
    from federate.leave.leaving import LeavePorts
    from federate.model.naming import leader_lease_name
    from federate.model.objects import ObjectKey
    from federate.runtime.identity import own_identity

    identity = await cluster_identity(hub)
    return LeavePorts(
        hub=hub,
        hub_id=request.hub_identity or identity,
        is_hub_only_said=request.hub_identity not in ("", identity),
        lease_key=ObjectKey(request.lease_namespace, leader_lease_name(request.node_name)),
        confirm_hub=IdentityGuard(hub, identity).confirm,
        identity=own_identity(),
        progress=progress,
    )


async def leave_target(ports: LeavePorts, target: ClusterPort, request: Request) -> None:
    """Show, ask, and leave with the target at hand.

    Raises:
        ConfigError: it is no virtual node, or nobody confirms.
        FederateError: it could not go on.
    """
    from federate.leave.leaving import Leaving
    from federate.leave.plan import describe
    from federate.leave.survey import TargetGuard, survey_hub, survey_of
    from federate.leave.waiting import Patience, looking

    name = request.node_name
    async with looking(ports.progress, "looking at the hub"):
        found = await survey_hub(ports.hub, name, ports.lease_key, hub_id=ports.hub_id)
    found = replace(found, recorded=(*found.recorded, *request.namespaces))
    try:
        async with looking(ports.progress, f"looking at {target.name}"):
            await TargetGuard(ports.hub, target, found).confirm()
            survey = survey_of(target, found)
            found = replace(found, mirrors=await survey.mirrors(), anchors=await survey.anchors())
            brought = await survey.brought(found.anchors)
            found = replace(
                found,
                brought=brought,
                claims=await survey.claims(),
                services=await survey.services(),
            )
    except TargetChanged:
        raise  # it answers: no reason to abandon it
    except Unreachable as error:
        raise FederateError(
            f"{error}\nNothing is changed. If the target is gone for good: "
            f"federate leave {name} --abandon"
        ) from error
    for words in survey.unseen_words():
        ports.progress.note(words)
    if found.is_nothing:
        typer.echo(f"Nothing to do: {name} is left already.")
        return
    _refuse_a_hub_only_said(ports, found, request)
    _print(describe(found, target_name=name))
    if not request.rules.force and (bare := found.bare_pods()):
        raise FederateError(
            f"{len(bare)} bare pods are there, which nobody replaces: delete them yourself, "
            "or give --force"
        )
    await _refuse_a_second_leader(ports, found, request)
    if not _goes_on(request, f"Leave {name}?"):
        return
    leaving = Leaving(
        found,
        target=target,
        rules=request.rules,
        ports=ports,
        patience=Patience(request.timeout_seconds, ports.progress),
        companions=request.companions,
    )
    await leaving.run()
    typer.echo(how_it_ended(name, request.config))


async def abandon_target(ports: LeavePorts, target: ClusterPort | None, request: Request) -> None:
    """Show, ask, and leave a target that is gone for good.

    Raises:
        ConfigError: it is no virtual node, or nobody confirms, or the target answers.
        FederateError: it could not go on.
    """
    from federate.leave.abandoning import Abandoning, answers, says_reachable
    from federate.leave.plan import describe_abandoned
    from federate.leave.survey import survey_hub
    from federate.leave.waiting import Patience, looking

    name = request.node_name
    async with looking(ports.progress, "looking at the hub"):
        found = await survey_hub(ports.hub, name, ports.lease_key, hub_id=ports.hub_id)
    if found.is_nothing:
        typer.echo(f"Nothing to do: {name} is left already.")
        return
    _print(describe_abandoned(found, target_name=name))
    is_alive = says_reachable(found.node)
    if target is not None and not is_alive:
        async with looking(ports.progress, f"looking whether {target.name} answers"):
            is_alive = await answers(ports.hub, target, found)
    if not request.dry_run and is_alive and not _spoken(request):
        raise ConfigError(
            f"the target of {name} answers: federate leave {name} --target {name}=PATH cleans it. "
            f'To abandon it all the same: --confirm "{request.spoken}"'
        )
    await _refuse_a_second_leader(ports, found, request)
    if not _goes_on(request, f"Abandon what runs in {name}?", is_said=bool(request.words)):
        return
    patience = Patience(request.timeout_seconds, ports.progress)
    await Abandoning(found, ports, patience).run()
    typer.echo(how_it_ended(name, request.config))


def _refuse_a_hub_only_said(ports: LeavePorts, found: Found, request: Request) -> None:
    """Make sure, where no Node says it, that this is the hub whose name was given.

    Under the name of another hub all of that one's mirrors would look unwanted here.
    """
    is_told = found.node is not None or not ports.is_hub_only_said
    if not is_told and request.words != request.hub_words:
        raise ConfigError(
            f"there is no Node {request.node_name} on this hub, so nothing tells that it is the "
            f"one called {ports.hub_id}. If it were another, the mirrors of all pods that run by "
            f"{request.node_name} would be deleted. Check --hub; if it is right: "
            f'--confirm "{request.hub_words}"'
        )


async def _refuse_a_second_leader(ports: LeavePorts, found: Found, request: Request) -> None:
    """Find out whether a federate leads by a lease in another namespace: we would not see it."""
    from federate.leave.survey import leads_elsewhere
    from federate.leave.waiting import looking

    if request.dry_run:
        return
    async with looking(
        ports.progress, f"looking whether somebody keeps {found.scope.node_name} alive"
    ):
        is_led = await leads_elsewhere(ports.hub, found, ports.lease_key, now=ports.now)
    if is_led:
        raise FederateError(
            f"there is no leader lease {ports.lease_key}, but somebody keeps "
            f"{request.node_name} alive: by a lease in another namespace. Give "
            "--leader-lease-namespace as federate runs with it. If none runs any more, wait 40 s "
            "and repeat the command"
        )


def _spoken(request: Request) -> bool:
    if request.words:
        return request.words == request.spoken
    if not sys.stdin.isatty():
        return False
    said: str = typer.prompt(
        f'The target of {request.node_name} answers. To abandon it, type "{request.spoken}"'
    )
    return said == request.spoken


def _goes_on(request: Request, question: str, *, is_said: bool = False) -> bool:
    if request.dry_run:
        typer.echo("Nothing is changed: a dry run.")
        return False
    if request.yes or is_said:
        return True
    if not sys.stdin.isatty():
        raise ConfigError("nothing is changed: no terminal to confirm at; expected --yes")
    if typer.confirm(question):
        return True
    typer.echo("Nothing is changed.")
    return False


def how_it_ended(node_name: str, config: Path | None) -> str:
    """Say that all is done, and what is left to a person; `config` is the file that has it."""
    where = "federate's configuration" if config is None else str(config)
    return (
        f"Left {node_name}. Now remove it from {where}: a federate that is started with it "
        "registers the node again."
    )


def _print(lines: Sequence[str]) -> None:
    for line in lines:
        typer.echo(line)


class Lines:
    """Tells how far the steps are: a line for each that is done, and what the present one is at.

    At a terminal that line is drawn anew; elsewhere it is written when it changed, not too often.
    """

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._drawn: Status | None = None
        self._step = ""
        self._said = ""
        self._began_at = 0.0
        self._told_at = 0.0

    def begin(self, step: str) -> None:
        """Say what is done from now on."""
        self._step, self._said = step, ""
        self._began_at = self._told_at = self._clock()
        if self._console.is_terminal:
            self._drawn = self._console.status(step)
            self._drawn.start()

    def now(self, state: str, *, left_seconds: int = 0) -> None:
        """Say how far that is; a wait of known length is counted down at a terminal."""
        from rich.markup import escape

        said = f"{state} ({left_seconds} s left)" if left_seconds else state
        if self._drawn is not None:
            self._drawn.update(escape(f"{self._step}: {said}"))
            return
        waited = self._clock() - self._told_at
        is_first = not self._said and waited >= SHOWN_AFTER_SECONDS
        if is_first or (state != self._said and waited >= TOLD_EVERY_SECONDS):
            typer.echo(f"  {self._step}: {said}")
            self._said, self._told_at = state, self._clock()

    def done(self) -> None:
        """Say that the step is done, and how long it took where that was long."""
        self.close()
        seconds = self._clock() - self._began_at
        took = f" ({seconds:.0f} s)" if seconds >= SHOWN_AFTER_SECONDS else ""
        typer.echo(f"  {self._step}: done{took}")

    def note(self, text: str) -> None:
        """Say what stays true beyond the step."""
        typer.echo(f"  {text}")

    def close(self) -> None:
        """Leave the terminal as it was; twice does no harm."""
        if self._drawn is not None:
            self._drawn.stop()
            self._drawn = None
