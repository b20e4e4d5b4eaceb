"""Abandon a target that is gone: the hub is freed, and the target swept should it come back."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from federate.errors import (
    FederateError,
    Forbidden,
    LeadershipLost,
    ServerFault,
    Throttled,
    Unauthorized,
)
from federate.leave.abandoning import answers, says_reachable
from federate.model.marks import LEAVING_ANNOTATION
from federate.model.objects import JsonDict, ObjectKey, annotations_of, condition_of
from federate.model.pods import phase_of
from federate.model.reasons import PodReason
from federate.model.resources import NAMESPACES, PODS
from federate.runtime.election import Election
from tests.support.clock import run_virtual, virtual_time
from tests.support.fakeclient import Call, Fault, LostRequest, Refuse
from tests.support.fakestore import Change, Eyes
from tests.support.leavestage import COMMAND, LeaveStage


def ends_seen(stage: LeaveStage) -> dict[str, JsonDict]:
    """Keep the last state of each hub pod that goes."""
    seen: dict[str, JsonDict] = {}

    def note(change: Change) -> None:
        if change.resource == PODS and change.new is None and change.old is not None:
            seen[change.key.name] = dict(change.old)

    stage.hub.store.watches.append(Eyes(note))
    return seen


@virtual_time
async def test_hub_pods_are_freed_and_the_node_is_forgotten() -> None:
    """Each says how it ended before it goes; one that had ended keeps its own word (C42)."""
    stage = LeaveStage()
    async with stage.alive():
        await stage.used("a", "done")
        stage.hub.set_pod_status(ObjectKey("default", "done"), phase="Succeeded")
        before, ends = stage.foreign(), ends_seen(stage)
        stage.target.go_down()
        await stage.abandon()
        mirrors = [one for one in stage.left_behind() if one.startswith("target")]
        assert stage.left_behind() == mirrors
        assert f"target Pod {stage.namespace}/a" in mirrors
        assert stage.foreign() == before
    lost = ends["a"]
    assert (phase_of(lost), lost["status"]["reason"]) == ("Failed", PodReason.MIRROR_LOST)
    assert "may still run" in lost["status"]["message"]
    assert (condition_of(lost, "DisruptionTarget") or {})["status"] == "True"
    assert phase_of(ends["done"]) == "Succeeded"
    assert not [call for call in stage.target.writes() if call.client.startswith(COMMAND)]


@virtual_time
async def test_a_running_federate_gives_up_first() -> None:
    """It neither follows the hub pods into the target nor registers the Node again."""
    stage = LeaveStage()
    async with stage.alive(), stage.federate():
        await asyncio.sleep(3.0)
        stage.submit("a")
        await asyncio.sleep(4.0)
        writes = len(stage.target.writes())
        await stage.abandon()
        await asyncio.sleep(60.0)
        assert stage.retired == 1
        assert len(stage.target.writes()) == writes
        assert not [one for one in stage.left_behind() if one.startswith("hub")]


@virtual_time
async def test_a_target_that_comes_back_is_swept() -> None:
    """A federate with the virtual node of before removes the abandoned mirrors: orphans."""
    stage = LeaveStage()
    async with stage.alive():
        await stage.used("a")
        stage.target.go_down()
        await stage.abandon()
        stage.target.come_up()
        async with stage.federate("again"):
            await asyncio.sleep(10.0)
            assert stage.target.find(PODS, ObjectKey(stage.namespace, "a")) is None
            stage.submit("a")
            await asyncio.sleep(10.0)
            assert phase_of(stage.hub.read(PODS, ObjectKey("default", "a"))) == "Running"


@virtual_time
async def test_a_target_that_comes_back_can_be_left_after_all() -> None:
    """With no federate: the command cleans it, by the marks."""
    stage = LeaveStage()
    async with stage.alive():
        await stage.used("a")
        before = stage.foreign()
        stage.target.go_down()
        await stage.abandon()
        stage.target.come_up()
        await stage.leave()
        assert stage.left_behind() == []
        assert stage.foreign() == before


@virtual_time
async def test_finalizers_of_others_are_left_to_them() -> None:
    """A Job counts its pods by a finalizer: the Node does not wait for it."""
    stage = LeaveStage()
    async with stage.alive(), stage.federate():
        await asyncio.sleep(3.0)
        key = stage.submit("job", owner="Job", finalizers=("batch.kubernetes.io/job-tracking",))
        await asyncio.sleep(4.0)
        await stage.abandon()
        held = stage.hub.read(PODS, key)
        assert phase_of(held) == "Failed"
        assert held["metadata"]["deletionTimestamp"]
        assert stage.node() is None
        stage.hub.edit(PODS, key, lambda pod: pod["metadata"].pop("finalizers"))


@virtual_time
async def test_daemonset_pods_do_not_hold_it_up() -> None:
    """They would be made again as long as there is a Node."""
    stage = LeaveStage()
    async with stage.alive(), stage.federate():
        await asyncio.sleep(3.0)
        stage.submit("daemon", owner="DaemonSet")
        await asyncio.sleep(3.0)
        await stage.abandon()
        assert not [one for one in stage.left_behind() if one.startswith("hub")]


@virtual_time
async def test_nothing_is_abandoned_twice() -> None:
    """A second time there is nothing to do."""
    stage = LeaveStage()
    async with stage.alive():
        await stage.used("a")
        await stage.abandon()
        writes = len(stage.hub.writes())
        assert (await stage.abandon()).is_nothing
        assert len(stage.hub.writes()) == writes


@virtual_time
async def test_a_node_that_is_marked_stays_marked() -> None:
    """Until all is done the Node says what goes on."""
    stage = LeaveStage()
    async with stage.alive():
        await stage.used("a")
        stage.hub.faults = lambda c: LostRequest() if c.verb == "delete" else None
        with pytest.raises(FederateError, match="not done within"):
            await stage.abandon(timeout_seconds=60.0)
        stage.hub.faults = None
        assert LEAVING_ANNOTATION in annotations_of(stage.node() or {})
        await stage.abandon()
        assert not [one for one in stage.left_behind() if one.startswith("hub")]


@virtual_time
async def test_whether_the_target_answers() -> None:
    """The Node's word counts while somebody renews it; the target's own counts more."""
    stage = LeaveStage()
    async with stage.alive():
        assert not says_reachable(None)
        await stage.used("a")
        node = stage.node() or {}
        assert says_reachable(node)
        silent = {**node, "status": {**node["status"], "conditions": []}}
        assert not says_reachable(silent)
        target, hub = stage.target_client(), stage.hub.client()
        found = await stage.look(stage.ports(), with_target=False)
        assert await answers(hub, target, found)
        for error in (Forbidden, Unauthorized, Throttled, ServerFault):
            stage.target.faults = lambda _call, error=error: Refuse(error("no"))
            assert await answers(hub, target, found), error
        stage.target.faults = None
        stage.target.edit(
            NAMESPACES,
            ObjectKey("", "kube-system"),
            lambda namespace: namespace["metadata"].update(uid="another"),
        )
        assert not await answers(hub, target, found)
        stage.target.go_down()
        assert not await answers(hub, target, found)


async def killed_and_repeated(number: int) -> int:
    """Kill the command at that request, and give it again; returns its requests."""
    stage, calls, killed = LeaveStage(), 0, asyncio.Event()

    def kill(call: Call) -> Fault | None:
        nonlocal calls
        if not call.client.startswith(COMMAND):
            return None
        calls += 1
        if calls >= number:
            killed.set()
        return LostRequest() if killed.is_set() else None

    async with stage.alive(), stage.federate():
        await asyncio.sleep(3.0)
        stage.submit("a")
        await asyncio.sleep(4.0)
        before = stage.foreign()
        stage.hub.faults = kill
        abandoning = asyncio.create_task(stage.abandon())
        dead = asyncio.create_task(killed.wait())
        await asyncio.wait({abandoning, dead}, return_when=asyncio.FIRST_COMPLETED)
        abandoning.cancel()
        dead.cancel()
        with suppress(asyncio.CancelledError, FederateError):
            await abandoning
        stage.hub.faults = None
        await stage.abandon()
        await asyncio.sleep(20.0)
        assert not [one for one in stage.left_behind() if one.startswith("hub")], number
        assert stage.foreign() == before
    return calls


def test_killed_here_and_there_it_goes_on() -> None:
    """Given again, it comes to the same end."""
    number = 1
    while run_virtual(killed_and_repeated(number)) >= number:
        number += 11


@virtual_time
async def test_no_hub_pod_is_ended_after_the_lease_ran_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that was frozen meanwhile looks at the lease before it goes on (C70)."""
    stage = LeaveStage()
    names = [f"a{number}" for number in range(4)]
    async with stage.alive():
        await stage.used(*names)
        stage.target.go_down()
        is_frozen, late = False, 0

        def freeze(call: Call) -> Fault | None:
            nonlocal is_frozen, late
            if call.client.startswith(COMMAND) and call.resource == PODS and call.verb == "delete":
                late += is_frozen
                is_frozen = True
            return None

        def fence(_election: Election) -> None:
            if is_frozen:
                raise LeadershipLost("ran out")

        monkeypatch.setattr(Election, "fence", fence)
        stage.hub.faults = freeze
        abandoning = asyncio.create_task(stage.abandon())
        while not is_frozen:  # noqa: ASYNC110 (the clock is virtual)
            await asyncio.sleep(0.1)
        await asyncio.sleep(5.0)
        assert late == 0
        stage.hub.faults, is_frozen = None, False
        await abandoning
        assert not [one for one in stage.left_behind() if one.startswith("hub")]
