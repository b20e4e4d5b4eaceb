"""The nets under the events, as a leader runs them."""

from __future__ import annotations

import asyncio

from federate.cluster.port import WatchEvent
from federate.model.marks import HUB_POD_UID_LABEL
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
