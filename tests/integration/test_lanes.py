"""Creates that hang hold up neither deletes nor statuses (C2), against real API servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from e2e.testbed.local import LocalCluster
from federate.cluster.client import ClusterClient
from federate.cluster.connect import connect
from federate.cluster.port import Listing, WatchEvent
from federate.errors import Unreachable
from federate.model.objects import JsonDict, JsonObject, ObjectKey, uid_of
from federate.model.resources import PODS, Resource
from federate.patch.document import PatchBody
from tests.support.realworld import RealWorld

pytestmark = pytest.mark.integration

HANG_SECONDS = 30.0
MORE_THAN_WORKERS = 60
QUICK_SECONDS = 3.0
"""Generous for two shared cores; a delete behind a hanging create would take thirty."""


class HangingCreates:
    """A port that sends everything on, but creates of pods hang while `hangs` is set."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client
        self.name = client.name
        self.hangs = False
        self.hanging = 0

    async def create(
        self, resource: Resource, body: JsonObject, *, namespace: str = "", dry_run: bool = False
    ) -> JsonDict:
        if self.hangs and resource == PODS:
            self.hanging += 1
            await asyncio.sleep(HANG_SECONDS)
            raise Unreachable("no answer", cluster=self.name)
        return await self._client.create(resource, body, namespace=namespace, dry_run=dry_run)

    async def get(
        self,
        resource: Resource,
        key: ObjectKey,
        *,
        subresource: str = "",
        metadata_only: bool = False,
    ) -> JsonDict:
        return await self._client.get(
            resource, key, subresource=subresource, metadata_only=metadata_only
        )

    async def list(
        self,
        resource: Resource,
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        resource_version: str | None = None,
        metadata_only: bool = False,
        bare: bool = False,
        shrink: Callable[[JsonDict], JsonDict] | None = None,
    ) -> Listing:
        return await self._client.list(
            resource,
            namespace=namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            resource_version=resource_version,
            metadata_only=metadata_only,
            bare=bare,
            shrink=shrink,
        )

    def watch(
        self,
        resource: Resource,
        *,
        resource_version: str,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        timeout_seconds: float = 300,
        metadata_only: bool = False,
    ) -> AsyncIterator[WatchEvent]:
        return self._client.watch(
            resource,
            resource_version=resource_version,
            namespace=namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            timeout_seconds=timeout_seconds,
            metadata_only=metadata_only,
        )

    async def patch(
        self,
        resource: Resource,
        key: ObjectKey,
        patch: PatchBody,
        *,
        subresource: str = "",
        dry_run: bool = False,
    ) -> JsonDict:
        return await self._client.patch(
            resource, key, patch, subresource=subresource, dry_run=dry_run
        )

    async def replace(
        self, resource: Resource, key: ObjectKey, body: JsonObject, *, subresource: str = ""
    ) -> JsonDict:
        return await self._client.replace(resource, key, body, subresource=subresource)

    async def delete(
        self,
        resource: Resource,
        key: ObjectKey,
        *,
        uid: str,
        resource_version: str | None = None,
        grace_seconds: int | None = None,
    ) -> JsonDict | None:
        return await self._client.delete(
            resource, key, uid=uid, resource_version=resource_version, grace_seconds=grace_seconds
        )

    async def request_token(self, account: ObjectKey, body: JsonObject) -> JsonDict:
        return await self._client.request_token(account, body)

    async def raw_get(self, path: str) -> JsonDict:
        return await self._client.raw_get(path)


async def test_hanging_creates_hold_up_nothing_else(
    light_hub: LocalCluster, light_target: LocalCluster
) -> None:
    """With more hanging creates than workers, deletes and statuses keep their latency."""
    hub = await connect(light_hub.kubeconfig, name="hub")
    target = await connect(light_target.kubeconfig, name="target")
    try:
        port = HangingCreates(target)
        world = RealWorld(hub, port)
        await world.prepare()
        async with world.leading():
            uids = {}
            for name in ("told", "deleted"):
                uids[name] = uid_of(await world.submit(name))
                await world.mirrored(name)
            port.hangs = True
            for number in range(MORE_THAN_WORKERS):
                await world.submit(f"stuck-{number}")
            async with asyncio.timeout(10.0):
                while port.hanging < 24:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            async with asyncio.timeout(QUICK_SECONDS):
                await world.report("told", {"phase": "Running"})
                await world.in_phase("told", "Running")
            async with asyncio.timeout(QUICK_SECONDS):
                await world.hub.delete(PODS, world.key("deleted"), uid=uids["deleted"])
                await world.gone("deleted")
            async with asyncio.timeout(QUICK_SECONDS):
                waiting = await world.hub_pod(f"stuck-{MORE_THAN_WORKERS - 1}")
                await world.hub.delete(
                    PODS, world.key(f"stuck-{MORE_THAN_WORKERS - 1}"), uid=uid_of(waiting or {})
                )
                await world.gone(f"stuck-{MORE_THAN_WORKERS - 1}")
    finally:
        await hub.aclose()
        await target.aclose()
