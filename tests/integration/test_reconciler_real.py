"""A real leader between two real API servers: the roads of a pod, as the servers allow them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from e2e.testbed.local import LocalCluster
from federate.cluster.connect import connect
from federate.model.objects import (
    condition_of,
    is_terminating,
    labels_of,
    metadata_of,
    status_of,
    uid_of,
)
from federate.model.resources import PODS
from federate.patch.document import MERGE, PatchBody
from federate.status.project import MIRRORED
from tests.support.realworld import RealWorld

pytestmark = pytest.mark.integration

RUNNING = {
    "phase": "Running",
    "startTime": "2026-01-01T00:00:00Z",
    "conditions": [{"type": "Ready", "status": "True"}],
    "containerStatuses": [
        {
            "name": "main",
            "image": "busybox",
            "imageID": "x",
            "ready": True,
            "restartCount": 0,
            "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
        }
    ],
}
SUCCEEDED = {
    "phase": "Succeeded",
    "containerStatuses": [
        {
            "name": "main",
            "image": "busybox",
            "imageID": "x",
            "ready": False,
            "restartCount": 0,
            "state": {"terminated": {"exitCode": 0, "reason": "Completed"}},
        }
    ],
}


@asynccontextmanager
async def world_of(hub: LocalCluster, target: LocalCluster) -> AsyncIterator[RealWorld]:
    hub_client = await connect(hub.kubeconfig, name="hub")
    target_client = await connect(target.kubeconfig, name="target")
    try:
        world = RealWorld(hub_client, target_client)
        await world.prepare()
        yield world
    finally:
        await hub_client.aclose()
        await target_client.aclose()


async def bind(cluster: LocalCluster, world: RealWorld, name: str) -> None:
    """Play the target's scheduler."""
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "worker"},
    }
    path = f"/api/v1/namespaces/{world.target_namespace}/pods/{name}/binding"
    await asyncio.to_thread(cluster.api.post, path, body)


async def test_a_pod_runs_and_ends(light_hub: LocalCluster, light_target: LocalCluster) -> None:
    """Mirror, status, labels, success, deletion: one mirror from first to last."""
    async with world_of(light_hub, light_target) as world, world.leading():
        await world.submit("a", restartPolicy="Never")
        mirror = await world.mirrored("a")
        await world.report("a", RUNNING)
        running = await world.in_phase("a", "Running")
        told = status_of(await world.mirror("a") or {})["containerStatuses"]
        assert status_of(running)["containerStatuses"] == told
        patch = PatchBody(media_type=MERGE, body={"metadata": {"labels": {"app": "web"}}})
        await world.hub.patch(PODS, world.key("a"), patch)
        while labels_of(await world.mirror("a") or {}).get("app") != "web":  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        await world.report("a", SUCCEEDED)
        await world.in_phase("a", "Succeeded")
        last = await world.mirror("a")
        assert last is not None
        assert uid_of(last) == uid_of(mirror)
        await world.hub.delete(PODS, world.key("a"), uid=uid_of(running))
        await world.gone("a")


async def test_a_graceful_end_waits_for_the_mirror(
    light_hub: LocalCluster, light_target: LocalCluster
) -> None:
    """The hub pod stays until the mirror's kubelet has confirmed, with the same grace."""
    async with world_of(light_hub, light_target) as world, world.leading():
        made = await world.submit("a")
        await world.mirrored("a")
        await bind(light_target, world, "a")
        await world.report("a", RUNNING)
        await world.in_phase("a", "Running")
        await world.hub.delete(PODS, world.key("a"), uid=uid_of(made), grace_seconds=17)
        while not is_terminating(await world.mirror("a") or {}):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        mirror = await world.mirror("a")
        assert mirror is not None
        assert metadata_of(mirror)["deletionGracePeriodSeconds"] == 17
        assert await world.hub_pod("a") is not None
        await world.target.delete(PODS, world.mirror_key("a"), uid=uid_of(mirror), grace_seconds=0)
        await world.gone("a")


async def test_a_drain_in_the_target_takes_the_hub_pod_along(
    light_hub: LocalCluster, light_target: LocalCluster
) -> None:
    """Deleted in the target: DisruptionTarget on the hub pod, which goes with its mirror."""
    async with world_of(light_hub, light_target) as world, world.leading():
        await world.submit("a")
        mirror = await world.mirrored("a")
        await bind(light_target, world, "a")
        await world.report("a", RUNNING)
        await world.in_phase("a", "Running")
        await world.target.delete(PODS, world.mirror_key("a"), uid=uid_of(mirror), grace_seconds=25)
        while not is_terminating(found := await world.hub_pod("a") or {}):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        assert (condition_of(found, "DisruptionTarget") or {})["status"] == "True"
        await asyncio.sleep(1.0)
        left = await world.mirror("a")
        assert left is not None
        assert metadata_of(left)["deletionGracePeriodSeconds"] == 25
        await world.target.delete(PODS, world.mirror_key("a"), uid=uid_of(mirror), grace_seconds=0)
        await world.gone("a")


async def test_a_restart_in_the_middle_makes_nothing_twice(
    light_hub: LocalCluster, light_target: LocalCluster
) -> None:
    """Sixty pods, a leader killed again and again: one mirror each, and none is left at the end."""
    async with world_of(light_hub, light_target) as world:
        names = [f"p-{number}" for number in range(60)]
        seen: dict[str, set[str]] = {name: set() for name in names}
        uids = {name: uid_of(await world.submit(name, restartPolicy="Never")) for name in names}
        for seconds in (0.05, 0.15, 0.3, 0.5):
            async with world.leading():
                await asyncio.sleep(seconds)
        async with world.leading():
            for name in names:
                seen[name].add(uid_of(await world.mirrored(name)))
            for name in names:
                await world.hub.delete(PODS, world.key(name), uid=uids[name])
            for name in names:
                await world.gone(name)
        assert all(len(found) == 1 for found in seen.values())


async def test_a_foreign_pod_of_our_name_is_left_alone(
    light_hub: LocalCluster, light_target: LocalCluster
) -> None:
    """The hub pod says NameTaken; the stranger is not touched."""
    async with world_of(light_hub, light_target) as world, world.leading():
        body = {
            "metadata": {"name": "a"},
            "spec": {"containers": [{"name": "x", "image": "busybox"}]},
        }
        foreign = await world.target.create(PODS, body, namespace=world.target_namespace)
        await world.submit("a")
        while True:
            found = await world.hub_pod("a") or {}
            if (condition_of(found, MIRRORED) or {}).get("reason") == "NameTaken":
                break
            await asyncio.sleep(0.05)
        assert await world.mirror("a") == foreign
        assert "NameTaken" in world.events.reasons


async def test_a_successor_waits_for_its_predecessor(
    light_hub: LocalCluster, light_target: LocalCluster
) -> None:
    """Forced away on the hub and made anew: the old mirror ends first, then the new one starts."""
    async with world_of(light_hub, light_target) as world, world.leading():
        first = await world.submit("a")
        old = await world.mirrored("a")
        await bind(light_target, world, "a")
        await world.report("a", RUNNING)
        await world.in_phase("a", "Running")
        await world.hub.delete(PODS, world.key("a"), uid=uid_of(first), grace_seconds=0)
        await world.submit("a")
        while True:
            found = await world.hub_pod("a") or {}
            if (condition_of(found, MIRRORED) or {}).get("reason") == "PredecessorTerminating":
                break
            await asyncio.sleep(0.05)
        await world.target.delete(PODS, world.mirror_key("a"), uid=uid_of(old), grace_seconds=0)
        new = await world.mirrored("a")
        assert uid_of(new) != uid_of(old)
