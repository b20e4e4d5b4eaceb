"""The client, the reflector and the recorder against a real kube-apiserver."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from uuid import uuid4

import pytest

from e2e.testbed.fixtures import TestbedFactory
from e2e.testbed.local import LocalCluster
from e2e.testbed.provider import ClusterSpec
from federate.cluster.client import ClusterClient
from federate.cluster.connect import connect
from federate.cluster.recorder import Recorder, ref_to
from federate.cluster.reflector import Reflector
from federate.cluster.store import Change, Store
from federate.errors import AlreadyExists, Conflict, Expired, NotFound, Rejected, Unreachable
from federate.model.objects import JsonDict, ObjectKey, key_of, resource_version_of, uid_of
from federate.model.resources import CONFIGMAPS, EVENTS, NAMESPACES
from federate.patch.document import MERGE, PatchBody

pytestmark = pytest.mark.integration


@asynccontextmanager
async def connected(cluster: LocalCluster) -> AsyncIterator[tuple[ClusterClient, str]]:
    """A client, and a namespace of its own."""
    client = await connect(cluster.kubeconfig, name=cluster.name)
    namespace = f"client-{uuid4().hex[:8]}"
    try:
        await client.create(NAMESPACES, {"metadata": {"name": namespace}})
        yield client, namespace
    finally:
        await client.aclose()


def config_map(name: str, **data: str) -> JsonDict:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


async def until(condition: Callable[[], bool], *, seconds: float = 15.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110  a store has no event to wait for
            await asyncio.sleep(0.02)


async def test_the_life_of_an_object(light_target: LocalCluster) -> None:
    """Create, read, patch, replace and delete do what they say, with their preconditions."""
    async with connected(light_target) as (client, namespace):
        key = ObjectKey(namespace, "a")
        dry = await client.create(CONFIGMAPS, config_map("a"), namespace=namespace, dry_run=True)
        assert uid_of(dry)
        with pytest.raises(NotFound):
            await client.get(CONFIGMAPS, key)
        made = await client.create(CONFIGMAPS, config_map("a", x="1"), namespace=namespace)
        with pytest.raises(AlreadyExists):
            await client.create(CONFIGMAPS, config_map("a"), namespace=namespace)
        stale = {"metadata": {"resourceVersion": resource_version_of(made)}, "data": {"x": "2"}}
        patch = PatchBody(media_type=MERGE, body=stale)
        patched = await client.patch(CONFIGMAPS, key, patch)
        assert patched["data"] == {"x": "2"}
        with pytest.raises(Conflict):
            await client.patch(CONFIGMAPS, key, patch)
        with pytest.raises(Conflict):
            await client.replace(CONFIGMAPS, key, made)
        await client.replace(CONFIGMAPS, key, {**patched, "data": {"y": "3"}})
        assert (await client.get(CONFIGMAPS, key))["data"] == {"y": "3"}
        with pytest.raises(Conflict):
            await client.delete(CONFIGMAPS, key, uid=str(uuid4()))
        with pytest.raises(Conflict):
            await client.delete(CONFIGMAPS, key, uid=uid_of(made), resource_version="1")
        assert await client.delete(CONFIGMAPS, key, uid=uid_of(made), grace_seconds=0) is not None
        assert await client.delete(CONFIGMAPS, key, uid=uid_of(made)) is None


async def test_refusals(light_target: LocalCluster) -> None:
    """An invalid object is rejected; a field that the server does not know is not."""
    async with connected(light_target) as (client, namespace):
        with pytest.raises(Rejected):
            await client.create(CONFIGMAPS, config_map("Not Valid"), namespace=namespace)
        odd = config_map("odd") | {"oddity": 1}
        made = await client.create(CONFIGMAPS, odd, namespace=namespace)
        assert "oddity" not in made
        version = await client.raw_get("/version")
        assert version["gitVersion"] == light_target.version


async def test_pages_and_metadata(light_target: LocalCluster) -> None:
    """A list of more than a page is whole, from the quorum and from the cache alike."""
    async with connected(light_target) as (client, namespace):
        gate = asyncio.Semaphore(5)  # each may open a connection, on a machine that is busy

        async def make(number: int) -> None:
            async with gate:
                body = config_map(f"c{number}", x="1")
                await client.create(CONFIGMAPS, body, namespace=namespace)

        await asyncio.gather(*(make(i) for i in range(620)))
        listing = await client.list(CONFIGMAPS, namespace=namespace)
        assert len({key_of(item) for item in listing.items}) == 620
        one = await client.list(
            CONFIGMAPS, namespace=namespace, field_selector="metadata.name=c7", metadata_only=True
        )
        (item,) = one.items
        assert item["metadata"]["name"] == "c7"
        assert "data" not in item
        cached = await client.list(CONFIGMAPS, namespace=namespace, resource_version="0")
        assert len(cached.items) >= 1


async def test_watch(light_target: LocalCluster) -> None:
    """A watch brings what happened after its version, and ends in time."""
    async with connected(light_target) as (client, namespace):
        listing = await client.list(CONFIGMAPS, namespace=namespace)
        made = await client.create(CONFIGMAPS, config_map("a"), namespace=namespace)
        await client.delete(CONFIGMAPS, ObjectKey(namespace, "a"), uid=uid_of(made))
        watch = client.watch(
            CONFIGMAPS,
            resource_version=listing.resource_version,
            namespace=namespace,
            timeout_seconds=3,
            metadata_only=True,
        )
        async with aclosing(watch) as events:
            seen = [event async for event in events]
        kinds = [event.type for event in seen]
        assert kinds[:2] == ["ADDED", "DELETED"]
        assert set(kinds[2:]) <= {"BOOKMARK"}
        assert "data" not in seen[0].object


async def test_a_reflector_lives_through_a_restart(testbed_factory: TestbedFactory) -> None:
    """A reflector follows, survives a restart of the API server, and finds itself in order."""
    spec = ClusterSpec(name="restarts", with_controller_manager=False, with_scheduler=False)
    cluster = testbed_factory.cluster(spec)
    async with connected(cluster) as (client, namespace):
        store, changes = Store(), list[Change]()
        reflector = Reflector(
            client, CONFIGMAPS, store, on_change=changes.append, name="c", namespace=namespace
        )
        running = asyncio.create_task(reflector.run())
        try:
            await until(reflector.synced.is_set)
            old = (await client.list(CONFIGMAPS)).resource_version
            await client.create(CONFIGMAPS, config_map("a"), namespace=namespace)
            await until(lambda: ObjectKey(namespace, "a") in store)
            await asyncio.to_thread(cluster.kill_apiserver)
            await until(lambda: isinstance(reflector.last_error, Unreachable))
            await asyncio.to_thread(cluster.start_apiserver)
            await client.create(CONFIGMAPS, config_map("b"), namespace=namespace)
            await until(lambda: ObjectKey(namespace, "b") in store, seconds=30)
            assert await reflector.verify() == 0
            assert reflector.relists <= 2
            with pytest.raises(Expired):
                async for _ in client.watch(CONFIGMAPS, resource_version=old, timeout_seconds=3):
                    pass
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def test_events(light_target: LocalCluster) -> None:
    """The API server takes our Events and their series."""
    async with connected(light_target) as (client, namespace):
        made = await client.create(CONFIGMAPS, config_map("a"), namespace=namespace)
        clock = [0.0]
        recorder = Recorder(client, instance="federate-0", clock=lambda: clock[0])
        about = ref_to(CONFIGMAPS, made)
        whole = ref_to(NAMESPACES, await client.get(NAMESPACES, ObjectKey("", namespace)))
        recorder.event(about, reason="Tried", note="x" * 2000, action="Try", type="Warning")
        recorder.event(whole, reason="Tried", note="note", action="Try")
        await recorder.flush()
        recorder.event(about, reason="Tried", note="x" * 2000, action="Try", type="Warning")
        clock[0] = 61.0
        await recorder.flush()
        assert recorder.dropped == 0
        (event,) = (await client.list(EVENTS, namespace=namespace)).items
        assert event["series"]["count"] == 2
        assert event["regarding"]["uid"] == uid_of(made)
