"""Pods that need something beside themselves, from their submission to their end: what waits, in
whose words, and at what cost in requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import pytest

from federate.companions.keys import Kind, name_of
from federate.model.objects import (
    JsonDict,
    ObjectKey,
    annotations_of,
    condition_of,
    key_of,
    spec_of,
    status_of,
)
from federate.model.pods import is_gated
from federate.model.resources import PODS, SECRETS
from federate.patch.document import STRATEGIC, PatchBody
from federate.status.project import MIRRORED, UPDATE_REJECTED
from tests.support.builders import PodBuilder, pod
from tests.support.clock import virtual_time
from tests.support.companions import encoded
from tests.support.companionworlds import CompanionWorld, needing
from tests.support.fakeclient import Call, CrashAfter, CrashBefore, Delay, Fault
from tests.support.scene import SCOPE

A = ObjectKey("default", "a")


def said_of(world: CompanionWorld, kind: str = MIRRORED) -> JsonDict:
    found = world.hub_pod(A)
    assert found is not None
    return dict(condition_of(found, kind) or {})


def slow_secrets(seconds: float) -> Callable[[Call], Fault | None]:
    """The hub takes that long to hand out a Secret."""

    def fault_of(call: Call) -> Fault | None:
        is_read = call.client == "hub" and call.verb == "get" and call.resource == SECRETS
        return Delay(seconds) if is_read else None

    return fault_of


def writes(world: CompanionWorld, cluster: str) -> list[str]:
    """What was written of pods in a cluster."""
    return [
        f"{call.verb} {call.subresource}".strip()
        for call in world.cluster(cluster).calls
        if call.is_write and call.resource == PODS
    ]


def sound(world: CompanionWorld) -> None:
    assert not world.witness.broken, world.witness.broken
    assert not world.differences(), world.differences()


async def cost_of(builder: PodBuilder) -> tuple[list[str], list[str]]:
    """What is written of a pod on both sides until its mirror is let go."""
    world = CompanionWorld()
    world.give(Kind.SECRET, "db", password="hunter2")
    world.fault_of = slow_secrets(3.0)
    async with world.running():
        world.submit(builder)
        await world.until(lambda: world.mirror(A) is not None)
        await asyncio.sleep(2.0)
        sound(world)
        return writes(world, "hub"), writes(world, "target")


@virtual_time
async def test_c30_what_comes_within_seconds_is_not_told() -> None:
    """The intent is written meanwhile; the pod costs the requests that any other costs."""
    assert await cost_of(needing("a", (Kind.SECRET, "db"))) == await cost_of(pod("a"))


@virtual_time
async def test_c30_a_pod_whose_companion_is_long_in_coming_says_so_once() -> None:
    """After five seconds, in a condition and an Event; when it is there, both are over."""
    world = CompanionWorld()
    world.give(Kind.SECRET, "db", password="hunter2")
    world.fault_of = slow_secrets(12.0)
    async with world.running():
        world.submit(needing("a", (Kind.SECRET, "db")))
        took = await world.until(lambda: bool(said_of(world)))
        assert 4.0 < took < 8.0
        assert said_of(world)["reason"] == "CompanionComing"
        assert "Secret default/db is not in target yet" in said_of(world)["message"]
        await world.until(lambda: world.mirror(A) is not None)
        await asyncio.sleep(2.0)
        assert not said_of(world)
        assert world.process.events.reasons.count("CompanionComing") == 1
        sound(world)


@virtual_time
async def test_c30_a_pod_that_goes_while_it_waits_leaves_nothing() -> None:
    """It is finished at once, and no mirror comes later."""
    world = CompanionWorld()
    world.give(Kind.SECRET, "db", password="hunter2")
    world.fault_of = slow_secrets(12.0)
    async with world.running():
        world.submit(needing("a", (Kind.SECRET, "db")))
        await asyncio.sleep(7.0)
        world.delete(A)
        await world.until(lambda: world.hub_pod(A) is None, seconds=5.0)
        await asyncio.sleep(60.0)
        assert world.mirror(A) is None
        assert "create" not in writes(world, "target")


@virtual_time
async def test_c40_what_the_hub_lacks_is_told_by_the_targets_kubelet_in_the_hubs_words() -> None:
    """The mirror is made; what its kubelet says of it stands on the hub pod."""
    world = CompanionWorld()
    async with world.running():
        world.submit(needing("a", (Kind.SECRET, "db")))
        await world.until(lambda: _is_let_go(world))
        name = name_of(SCOPE, world.key_of(Kind.SECRET, "db")).name
        message = f'secret "{name}" not found'
        waiting = {"reason": "CreateContainerConfigError", "message": message}
        statuses = [{"name": "main", "state": {"waiting": waiting}}]
        with world.others():
            world.target.edit(
                PODS, world.mirror_key(A), lambda p: p["status"].update(containerStatuses=statuses)
            )
        await asyncio.sleep(2.0)
        found = world.hub_pod(A)
        assert found is not None
        [container] = status_of(found)["containerStatuses"]
        assert container["state"]["waiting"] == {**waiting, "message": 'secret "db" not found'}
        hub_writes = len(writes(world, "hub"))
        await asyncio.sleep(120.0)
        assert len(writes(world, "hub")) == hub_writes


@virtual_time
async def test_c30_a_debug_container_waits_for_what_it_reads() -> None:
    """It is added when its Secret is in the target, and says so only where that takes long."""
    world = CompanionWorld()
    world.give(Kind.SECRET, "db", password="hunter2")
    async with world.running():
        world.submit(pod("a"))
        await asyncio.sleep(2.0)
        world.play(A, "Running")
        await asyncio.sleep(1.0)
        world.fault_of = slow_secrets(12.0)
        env = [{"name": "P", "valueFrom": {"secretKeyRef": {"name": "db", "key": "password"}}}]
        debug = {"ephemeralContainers": [{"name": "d", "image": "busybox", "env": env}]}
        with world.others():
            patch = PatchBody(media_type=STRATEGIC, body={"spec": debug})
            world.hub.patch(PODS, A, patch, subresource="ephemeralcontainers")
        await asyncio.sleep(3.0)
        assert not said_of(world, UPDATE_REJECTED)
        await world.until(lambda: bool(said_of(world, UPDATE_REJECTED)))
        assert said_of(world, UPDATE_REJECTED)["reason"] == "CompanionComing"
        await world.until(lambda: bool(spec_of(world.mirror(A) or {}).get("ephemeralContainers")))
        await asyncio.sleep(2.0)
        assert not said_of(world, UPDATE_REJECTED)
        [added] = spec_of(world.mirror(A) or {})["ephemeralContainers"]
        reference = added["env"][0]["valueFrom"]["secretKeyRef"]
        assert reference["name"] == name_of(SCOPE, world.key_of(Kind.SECRET, "db")).name
        sound(world)


@virtual_time
async def test_c32_files_of_labels_follow_in_one_write() -> None:
    """A kubelet of the target rewrites them as soon as the mirror changes."""
    world = CompanionWorld()
    item = {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}
    volume = {"name": "v", "downwardAPI": {"items": [item]}}
    async with world.running():
        world.submit(pod("a").with_labels({"app": "web"}).with_spec(volumes=[volume]))
        await asyncio.sleep(2.0)
        world.play(A, "Running")
        await asyncio.sleep(1.0)
        before = len(writes(world, "target"))
        with world.others():
            patch = PatchBody(media_type=STRATEGIC, body={"metadata": {"labels": {"app": "api"}}})
            world.hub.patch(PODS, A, patch)
        await asyncio.sleep(90.0)
        assert writes(world, "target")[before:] == ["patch"]
        found = world.mirror(A)
        assert found is not None
        assert annotations_of(found)["federate.dev/hub-labels"] == 'app="api"'
        assert key_of(found) == world.mirror_key(A)
        sound(world)


@pytest.mark.parametrize(
    ("cluster", "last", "fault"), [("hub", 7, CrashBefore()), ("target", 10, CrashAfter())]
)
@virtual_time
async def test_c71_a_crash_at_any_request_changes_nothing_in_the_end(
    cluster: str, last: int, fault: Fault
) -> None:
    """Whoever goes on brings along what is missing, and the pod runs once."""
    crashes = 0
    for number in range(1, last + 1):
        world = CompanionWorld()
        world.give(Kind.SECRET, "db", password="hunter2")
        async with world.running():
            world.plan_fault(cluster, fault, after=number)
            world.submit(needing("a", (Kind.SECRET, "db")))
            await world.until(partial(_is_let_go, world), seconds=600.0)
            await asyncio.sleep(60.0)
            assert world.values(Kind.SECRET, "db") == {"password": encoded("hunter2")}
            assert world.listed() == {"Secret default/db"}
            sound(world)
            crashes += world.processes - 1
    # A read that finds nothing has no reply to die after.
    assert crashes >= last - 3


def _is_let_go(world: CompanionWorld) -> bool:
    found = world.mirror(A)
    return found is not None and not is_gated(found)
