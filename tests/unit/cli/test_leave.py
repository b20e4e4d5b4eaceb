"""`federate leave`: what is read, shown and asked before, and told meanwhile."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from rich.console import Console

from federate.cli import main
from federate.cli.leave import Lines, Request, abandon_target, leave_target, prepare
from federate.errors import ConfigError, FederateError, Forbidden, TargetChanged
from federate.leave.drain import DrainRules
from federate.model.instants import format_micro_instant
from federate.model.marks import Scope
from federate.model.objects import JsonDict, ObjectKey, key_of, uid_of
from federate.model.resources import LEASES, NAMESPACES, NODES, PODS
from tests.support.clock import ManualClock, virtual_time
from tests.support.fakeclient import Call, Fault, Refuse
from tests.support.leavestage import COMMAND, LEASE, NODE, LeaveStage

Captured = pytest.CaptureFixture[str]

LEAVE = Request(node_name="edge", rules=DrainRules())
ABANDON = replace(LEAVE, abandon=True)
ELSEWHERE = replace(LEAVE, yes=True, lease_namespace="other", timeout_seconds=60.0)
"""The leader lease is looked for where it is not."""


async def run(stage: LeaveStage, request: Request, *, with_target: bool = True) -> None:
    """Carry the command out as the CLI does, behind its options."""
    hub = stage.hub.client(f"{COMMAND}-hub")
    ports = replace(await prepare(hub, request, stage.said), now=stage.now)
    target = stage.target_client() if with_target else None
    if request.abandon:
        await abandon_target(ports, target, request)
    else:
        assert target is not None
        await leave_target(ports, target, request)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "--target: missing"),
        (["--target", "west={file}"], "west is not edge; expected edge=PATH"),
        (["--target", "edge={file}", "--confirm", "abandon edge"], "without --abandon"),
        (["--target", "edge={file}", "--confirm", "this hub is x"], "expected --hub-identity"),
        (
            ["--target", "edge={file}", "--confirm", "this hub", "--hub-identity", "prod"],
            'expected "this hub is prod"',
        ),
        (["--abandon", "--confirm", "yes"], 'expected "abandon edge"'),
        (["--abandon", "--target", "edge=nowhere"], "is no file"),
    ],
)
def test_wrong_options_are_told(
    tmp_path: Path, capsys: Captured, arguments: list[str], told: str
) -> None:
    """Exit code 2, the option, and what was expected; nothing is asked of a cluster."""
    file = tmp_path / "file.yaml"
    file.write_text("{}")
    given = [argument.format(file=file) for argument in arguments]
    assert main(["leave", "edge", "--hub", str(file), *given]) == 2
    assert told in " ".join(capsys.readouterr().err.split())


@virtual_time
async def test_a_dry_run_shows_all_and_changes_nothing(capsys: Captured) -> None:
    """The pods, the mirrors, the namespaces; and not one write on either side."""
    stage = LeaveStage()
    async with stage.alive():
        await stage.used("a", "b")
        writes = len(stage.hub.writes()), len(stage.target.writes())
        await run(stage, replace(LEAVE, dry_run=True))
        assert (len(stage.hub.writes()), len(stage.target.writes())) == writes
    shown = capsys.readouterr().out
    assert "2 hub pods evicted" in shown
    assert "2 mirrors in edge removed" in shown
    assert stage.namespace in shown
    assert "a dry run" in shown


@virtual_time
async def test_somebody_has_to_say_yes(capsys: Captured) -> None:
    """Without a terminal nothing is done unless --yes is given; then all of it is."""
    stage = LeaveStage()
    async with stage.alive():
        await stage.used("a")
        writes = len(stage.hub.writes())
        with pytest.raises(ConfigError, match="expected --yes"):
            await run(stage, LEAVE)
        assert len(stage.hub.writes()) == writes
        await run(stage, replace(LEAVE, yes=True))
        assert stage.left_behind() == []
        assert "remove it from federate's configuration" in capsys.readouterr().out
        await run(stage, LEAVE)
        assert "Nothing to do" in capsys.readouterr().out


@virtual_time
async def test_bare_pods_are_told_before_anything_is_done() -> None:
    """The node is not even cordoned."""
    stage = LeaveStage()
    async with stage.alive():
        await stage.used("a")
        stage.submit("bare", owner="")
        with pytest.raises(FederateError, match="1 bare pods"):
            await run(stage, replace(LEAVE, yes=True))
        assert not (stage.node() or {})["spec"].get("unschedulable")


@virtual_time
async def test_a_target_that_is_away_is_not_left() -> None:
    """Nothing is changed, and the way out is named."""
    stage = LeaveStage()
    async with stage.alive():
        await stage.used("a")
        stage.target.go_down()
        writes = len(stage.hub.writes())
        with pytest.raises(FederateError, match=r"(?s)Nothing is changed.*--abandon"):
            await run(stage, replace(LEAVE, yes=True))
        assert len(stage.hub.writes()) == writes


@virtual_time
async def test_namespaces_that_nobody_knows_can_be_named(capsys: Captured) -> None:
    """Where the Node is gone, and only single namespaces of the target may be read."""
    stage = LeaveStage()

    def confined(call: Call) -> Fault | None:
        is_wide = call.verb == "list" and not call.key.namespace
        return Refuse(Forbidden("not allowed", status=403)) if is_wide else None

    async with stage.alive():
        await stage.used("a")
        stage.hub.delete_by_user(NODES, NODE)
        stage.hub.store.remove(PODS, ObjectKey("default", "a"))
        stage.target.faults = confined
        with pytest.raises(Forbidden):
            await run(stage, replace(LEAVE, yes=True))
        await run(stage, replace(LEAVE, yes=True, namespaces=(stage.namespace,)))
        assert stage.left_behind() == []
    assert "its Node is gone already" in capsys.readouterr().out


@virtual_time
async def test_a_strangers_node_is_refused() -> None:
    """A Node without our mark is nobody's to leave."""
    stage = LeaveStage()
    with pytest.raises(ConfigError, match="worker is no virtual node"):
        await run(stage, replace(LEAVE, node_name="worker", yes=True))


@virtual_time
async def test_a_target_that_answers_is_abandoned_only_in_words(capsys: Captured) -> None:
    """--yes does not do; the words do, and they are all that is asked for."""
    stage = LeaveStage()
    async with stage.alive():
        await stage.used("a")
        for with_target in (True, False):
            with pytest.raises(ConfigError, match='--confirm "abandon edge"'):
                await run(stage, replace(ABANDON, yes=True), with_target=with_target)
        assert stage.hub.find(PODS, ObjectKey("default", "a")) is not None
        await run(stage, replace(ABANDON, words="abandon edge"))
    assert stage.hub.find(NODES, NODE) is None
    assert f"mirrors: {stage.namespace}/a" in capsys.readouterr().out


@virtual_time
async def test_a_target_that_is_gone_is_abandoned_with_yes(capsys: Captured) -> None:
    """It is shown what stays there; without a yes nothing happens; the second time neither."""
    stage = LeaveStage()
    async with stage.alive():
        await stage.used("a")
        stage.target.go_down()
        say_unreachable(stage)
        await run(stage, replace(ABANDON, dry_run=True))
        with pytest.raises(ConfigError, match="expected --yes"):
            await run(stage, ABANDON)
        assert stage.hub.find(PODS, ObjectKey("default", "a")) is not None
        await run(stage, replace(ABANDON, yes=True))
        assert stage.hub.find(NODES, NODE) is None
        capsys.readouterr()
        await run(stage, ABANDON, with_target=False)
        assert "Nothing to do" in capsys.readouterr().out


def say_unreachable(stage: LeaveStage) -> None:
    """Let the Node say what a federate, or the hub's node controller, says of a silent target."""

    def change(node: JsonDict) -> None:
        for condition in node["status"]["conditions"]:
            condition["status"] = "Unknown"

    stage.hub.edit(NODES, NODE, change)


@virtual_time
async def test_another_targets_kubeconfig_does_not_speak_for_the_one_on_record() -> None:
    """A Node that says that its target answers is abandoned only in words; nor is it offered."""
    stage = LeaveStage()
    async with stage.alive():
        await stage.used("a")
        stage.target.edit(
            NAMESPACES, ObjectKey("", "kube-system"), lambda n: n["metadata"].update(uid="another")
        )
        with pytest.raises(ConfigError, match='--confirm "abandon edge"'):
            await run(stage, replace(ABANDON, yes=True))
        with pytest.raises(TargetChanged) as refused:
            await run(stage, replace(LEAVE, yes=True))
        assert "--abandon" not in str(refused.value)
        assert stage.hub.find(PODS, ObjectKey("default", "a")) is not None


@virtual_time
async def test_a_hub_that_knows_no_such_node_is_not_taken_at_a_given_word() -> None:
    """One hub's name with another's kubeconfig: all mirrors of the first would look unwanted."""
    stage = LeaveStage()
    named = replace(LEAVE, hub_identity="prod", yes=True)
    async with stage.alive():
        await stage.used("a")
        stage.hub.delete_by_user(NODES, NODE)
        stage.hub.store.remove(PODS, ObjectKey("default", "a"))
        stage.hub.store.remove(LEASES, LEASE)
        name_hub(stage, "prod")
        with pytest.raises(ConfigError, match='--confirm "this hub is prod"'):
            await run(stage, named)
        assert stage.target.find(PODS, ObjectKey(stage.namespace, "a")) is not None
        await run(stage, replace(named, words="this hub is prod"))
        await run(stage, named)  # nothing is left to be asked for
        assert stage.target.find(PODS, ObjectKey(stage.namespace, "a")) is None


def name_hub(stage: LeaveStage, hub_id: str) -> None:
    """Let all mirrors and anchors of the virtual node bear another name of the hub."""
    labels = Scope(hub_id=hub_id, node_name="edge").labels()
    for resource, obj in list(stage.target.store.all()):
        if stage.scope.owns(obj):
            stage.target.edit(
                resource, key_of(obj), lambda o: o["metadata"]["labels"].update(labels)
            )


@virtual_time
@pytest.mark.parametrize("request_", [LEAVE, replace(ABANDON, words="abandon edge")])
async def test_who_leads_by_another_lease_is_found_out(request_: Request) -> None:
    """Without the namespace of the leader leases there would be two leaders."""
    stage = LeaveStage()
    elsewhere = replace(request_, yes=True, lease_namespace="other", timeout_seconds=60.0)
    async with stage.alive(), stage.federate():
        await asyncio.sleep(3.0)
        stage.submit("a")
        await asyncio.sleep(6.0)
        with pytest.raises(FederateError, match="--leader-lease-namespace"):
            await run(stage, elsewhere)
        writes = [c for c in stage.hub.writes() if c.client.startswith(COMMAND)]
        assert writes == []
        await run(stage, replace(elsewhere, dry_run=True))


@virtual_time
async def test_a_federate_that_renewed_lately_may_still_live() -> None:
    """It may hang for a moment: it is taken for dead when its node lease has run out."""
    stage = LeaveStage()

    def renew(lease: JsonDict) -> None:
        lease["spec"]["renewTime"] = format_micro_instant(stage.now() - timedelta(seconds=30))

    async with stage.alive():
        await stage.used("a")
        stage.hub.edit(LEASES, ObjectKey("kube-node-lease", "edge"), renew)
        with pytest.raises(FederateError, match="--leader-lease-namespace"):
            await run(stage, ELSEWHERE)


@virtual_time
async def test_a_federate_that_is_slow_to_renew_is_found_out_too() -> None:
    """What its clock says does not matter: the node lease is watched for a while."""
    stage = LeaveStage()
    node_lease = ObjectKey("kube-node-lease", "edge")

    def renew(lease: JsonDict) -> None:
        lease["spec"]["renewTime"] = "2001-01-01T00:00:00.000000Z"

    async with stage.alive():
        await stage.used("a")
        await asyncio.sleep(60.0)
        asyncio.get_running_loop().call_later(
            9.0, lambda: stage.hub.edit(LEASES, node_lease, renew)
        )
        with pytest.raises(FederateError, match="--leader-lease-namespace"):
            await run(stage, ELSEWHERE)


@virtual_time
async def test_a_node_without_a_leader_lease_can_be_left() -> None:
    """As where a command was killed right before it removed the Node."""
    stage = LeaveStage()
    async with stage.alive():
        await stage.used("a")
        stage.hub.store.remove(LEASES, LEASE)
        await asyncio.sleep(60.0)
        await run(stage, replace(LEAVE, yes=True))
        assert stage.left_behind() == []


@virtual_time
async def test_the_hub_may_have_a_name_of_its_own() -> None:
    """Where marks name another hub identity, a Node that is gone is left by that one (C3)."""
    stage = LeaveStage()
    hub = stage.hub.client()
    named = await prepare(hub, replace(LEAVE, hub_identity="ours"), stage.said)
    plain = await prepare(hub, LEAVE, stage.said)
    assert named.hub_id == "ours"
    assert plain.hub_id == stage.hub_id
    await named.confirm_hub()
    assert uid_of(stage.hub.read(NODES, ObjectKey("", "worker")))


def lines(clock: Callable[[], float], *, terminal: bool) -> tuple[Lines, io.StringIO]:
    drawn = io.StringIO()
    return Lines(Console(file=drawn, force_terminal=terminal, width=80), clock), drawn


def test_short_steps_are_a_line_each(capsys: Captured) -> None:
    """What takes no time is told once, when it is done."""
    clock = ManualClock()
    told, _ = lines(clock, terminal=False)
    told.begin("draining edge")
    told.now("1 ending")
    told.done()
    told.note("namespace x stays")
    assert capsys.readouterr().out == "  draining edge: done\n  namespace x stays\n"


def test_what_lasts_is_shown_but_not_all_the_time(capsys: Captured) -> None:
    """After two seconds, then when it changed, five seconds apart at least."""
    clock = ManualClock()
    told, _ = lines(clock, terminal=False)
    told.begin("draining edge")
    for state in ["9 ending"] * 4 + ["8 ending"] * 10 + ["7 ending"] * 4:
        clock.advance(1.0)
        told.now(state)
    told.done()
    assert capsys.readouterr().out.splitlines() == [
        "  draining edge: 9 ending",
        "  draining edge: 8 ending",
        "  draining edge: 7 ending",
        "  draining edge: done (18 s)",
    ]


def test_a_wait_of_known_length_is_one_line_and_counted_down_at_a_terminal(
    capsys: Captured,
) -> None:
    """Where no line can be drawn anew, it is said once how long it takes."""
    for terminal in (False, True):
        clock = ManualClock()
        told, drawn = lines(clock, terminal=terminal)
        told.begin("namespaces in edge")
        for left in range(35, 0, -1):
            told.now("looked at again", left_seconds=left)
            clock.advance(1.0)
        told.close()
        if terminal:
            assert "looked at again (1 s left)" in drawn.getvalue()
            assert capsys.readouterr().out == ""
        else:
            shown = "  namespaces in edge: looked at again (33 s left)\n"
            assert capsys.readouterr().out == shown


def test_at_a_terminal_one_line_is_drawn_anew() -> None:
    """Words of servers are shown as they are, whatever rich takes for markup."""
    clock = ManualClock()
    told, drawn = lines(clock, terminal=True)
    told.begin("draining edge")
    told.now("held by [bold]x[/bold]")
    told.close()
    told.close()
    assert "draining edge" in drawn.getvalue()
