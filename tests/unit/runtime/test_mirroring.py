"""The nets under the events, as a leader runs them."""

from __future__ import annotations

import asyncio

import pytest

from federate.cluster.port import WatchEvent
from federate.cluster.store import Change
from federate.model.marks import HUB_POD_UID_LABEL, RECORD_ANNOTATION, MirrorRecord
from federate.model.objects import ObjectKey
from federate.model.pods import phase_of
from federate.model.resources import CONFIGMAPS, PODS
from tests.support.builders import pod
from tests.support.clock import virtual_time
from tests.support.fakeclient import Call, Delay, Fault
from tests.support.scene import ANCHOR, TARGET_NAMESPACE
from tests.support.worlds import World

A = ObjectKey("default", "a")


def swallow(world: World) -> None:
    """What was told to the target's watches and not read yet never arrives."""
    for watching in world.target.store.watches:
        if watching.client == "target":
            while not watching.messages.empty():
                watching.messages.get_nowait()


@virtual_time
async def test_a_comparison_that_hung_is_made_again_at_the_usual_pace() -> None:
    """Half a minute spent waiting for a mute server does not put the next one off for minutes."""
    world = World()
    hung: list[Call] = []

    def hang_once(call: Call) -> Fault | None:
        if hung or (call.client, call.verb, call.resource) != ("target", "list", PODS):
            return None
        hung.append(call)
        return Delay(3600.0)

    async with world.running():
        world.submit(pod("a").with_restart_policy("Never"))
        await asyncio.sleep(2.0)
        world.play(A, "Running")
        await asyncio.sleep(1.0)
        world.fault_of = hang_once
        await asyncio.sleep(40.0)
        assert hung
        world.play(A, "Succeeded")
        swallow(world)
        await asyncio.sleep(10.0)
        found = world.hub_pod(A)
        assert found is not None
        assert phase_of(found) == "Succeeded"


@pytest.mark.parametrize(
    ("namespace", "woken"),
    [(TARGET_NAMESPACE, {"a", "b"}), ("before", {"b"}), ("befor", set()), ("elsewhere", set())],
)
@virtual_time
async def test_c23_an_anchor_wakes_the_pods_that_stand_or_would_stand_by_it(
    namespace: str, woken: set[str]
) -> None:
    """By today's rules, or by those of before, as their record says."""
    world = World(with_nets=False)
    async with world.running():
        mirroring = world.process.mirroring
        for name in ("a", "b"):
            body = pod(name).with_uid(f"uid-{name}").bound_to("edge")
            if name == "b":
                record = MirrorRecord(pod_uid="uid-b", mirror=ObjectKey("before", "b"))
                body = body.with_annotations({RECORD_ANNOTATION: record.format()})
            mirroring.hub_pods.apply(WatchEvent(type="ADDED", object=body.build()))
        seen: list[str] = []
        mirroring.enqueue = lambda key: seen.append(key.name)  # type: ignore[method-assign]
        key = ObjectKey(namespace, ANCHOR.name)
        mirroring._on_anchor(Change(key=key, old=None, new=None))
        assert set(seen) == woken


@virtual_time
async def test_c23_the_anchor_in_use_is_the_one_that_stands() -> None:
    """A mirror that still ends names an anchor that was given up: it is not to be remembered."""
    world = World()
    async with world.running():
        world.submit(pod("a"))
        await asyncio.sleep(2.0)
        standing = world.target.read(CONFIGMAPS, ANCHOR)["metadata"]["uid"]
        ending = world.target.read(PODS, world.mirror_key(A))
        ending["metadata"].update(name="z", uid="z", deletionTimestamp=world.target.now())
        ending["metadata"]["ownerReferences"][0]["uid"] = "given-up"
        with world.others():
            world.target.add(PODS, ending)
        await asyncio.sleep(1.0)
        in_use = world.process.mirroring.anchors_in_use
        assert in_use() == {TARGET_NAMESPACE: standing}
        with world.others():
            world.target.store.remove(PODS, world.mirror_key(A))
        await asyncio.sleep(1.0)
        assert in_use() == {}


@virtual_time
async def test_c44_a_mirror_speaks_for_the_hub_pod_it_names() -> None:
    """The mirror on record stands for its hub pod, and one that names another uid for none."""
    world = World()
    async with world.running():
        world.submit(pod("a"))
        await asyncio.sleep(2.0)
        mirror = world.target.read(PODS, world.mirror_key(A))
        uid = mirror["metadata"]["uid"]
        mirroring = world.process.mirroring
        assert mirroring.hub_pod_of(uid) == world.hub_pod(A)
        assert mirroring.hub_pod_of("foreign") is None
        mirror["metadata"]["labels"][HUB_POD_UID_LABEL] = "a predecessor's"
        mirror["metadata"]["resourceVersion"] = "1"
        mirroring.mirrors.apply(WatchEvent(type="MODIFIED", object=mirror))
        assert mirroring.hub_pod_of(uid) is None
