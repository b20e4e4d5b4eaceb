"""The tokens of very many pods in one namespace of the target, between real API servers (C31)."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from e2e.testbed.local import LocalCluster
from federate.cluster.client import ClusterClient
from federate.cluster.connect import connect
from federate.cluster.port import WatchEvent
from federate.cluster.store import Change, Store
from federate.model.marks import COMPANION_LABEL
from federate.model.objects import JsonDict, key_of, uid_of
from federate.model.resources import CONFIGMAPS, NAMESPACES, PODS, SECRETS, SERVICEACCOUNTS
from federate.runtime.companions import Comers, build_comers
from federate.services.watched import HubObjects, hub_services
from tests.integration.test_companions_real import Crowd, Requests
from tests.integration.test_identity_real import RULES
from tests.support.issuestage import token_volume
from tests.support.quiet import quiet
from tests.support.scene import NoEvents

pytestmark = pytest.mark.integration

T = TypeVar("T")

SECONDS_EACH = 0.25
"""What each pod's tokens may take from end to end: five times what they take on two cores."""
LEAST_SECONDS = 60.0
TOKENS = "serviceaccounts/token"
WRITES_EACH = 2
"""Of the target, for each pod: its Secret, and the entry that tells of it."""
MORE_WRITES = 20
"""Whatever they share: the anchor, news of Services."""

SIDE_BY_SIDE = 20
"""Requests of the test's own."""
POLL_SECONDS = 0.5
"""More seldom than elsewhere: to count ten thousand is some work by itself."""


async def side_by_side(work: Callable[[T], Awaitable[Any]], items: Iterable[T]) -> list[Any]:
    """Do the same for all, some at a time; the results keep their order."""
    gate = asyncio.Semaphore(SIDE_BY_SIDE)

    async def within(item: T) -> Any:
        async with gate:
            return await work(item)

    return await asyncio.gather(*map(within, items))


class Bearers:
    """Pods with a token each, in one namespace of the hub, and what is issued for them."""

    def __init__(self, crowd: Crowd, *, eyes: ClusterClient) -> None:
        self.crowd = crowd
        self._eyes = eyes
        self.hub_pods = Store()

    @property
    def hub_namespace(self) -> str:
        return f"{self.crowd.namespace}-hub"

    async def make(self, count: int) -> None:
        """Users make so many pods."""
        hub, namespace = self.crowd.hub, self.hub_namespace
        await hub.create(NAMESPACES, {"metadata": {"name": namespace}})
        account = {"metadata": {"name": "default"}}
        await hub.create(SERVICEACCOUNTS, account, namespace=namespace)
        spec = {
            "nodeName": "edge",
            "automountServiceAccountToken": False,
            "containers": [{"name": "main", "image": "busybox"}],
            "volumes": [token_volume(audience="vault")],
        }

        async def make(number: int) -> JsonDict:
            body = {"metadata": {"name": f"bearer-{number}"}, "spec": spec}
            return await hub.create(PODS, body, namespace=namespace)

        for pod in await side_by_side(make, range(count)):
            self.hub_pods.apply(WatchEvent(type="ADDED", object=pod))

    def comers(self, services: HubObjects) -> Comers:
        """Build what a process has that begins to lead now."""
        ports = replace(self.crowd.companions._ports, brings_tokens=True, hub_pods=self.hub_pods)
        return build_comers(
            RULES, ports, events=NoEvents(), services=services, wall_clock=time.time
        )

    @asynccontextmanager
    async def leading(self) -> AsyncIterator[Comers]:
        """Let it run inside; each pod asks for what it waits for, as its own reconcile does."""
        ports = self.crowd.companions._ports
        services = hub_services(self.crowd.hub, clock=ports.clock, random=ports.random)
        comers = self.comers(services)
        reflectors = comers.open()
        tasks = [asyncio.create_task(reflector.run()) for reflector in reflectors]
        for reflector in reflectors:
            await reflector.synced.wait()
        for pod in self.hub_pods.values():
            comers.on_hub_pod(Change(key=key_of(pod), old=None, new=pod))
            comers.hold(pod, self.crowd.namespace)
        parts = [*comers.parts().values(), services.run]
        tasks += [asyncio.create_task(part()) for part in parts]
        try:
            yield comers
            assert not [task for task in tasks if task.done()], tasks
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def unmake(self, comers: Comers) -> None:
        """Users delete them all, and their events come."""

        async def unmake(pod: JsonDict) -> None:
            await self.crowd.hub.delete(PODS, key_of(pod), uid=uid_of(pod), grace_seconds=0)

        pods: list[Any] = list(self.hub_pods.values())
        await side_by_side(unmake, pods)
        for pod in pods:
            self.hub_pods.apply(WatchEvent(type="DELETED", object=pod))
            comers.on_hub_pod(Change(key=key_of(pod), old=pod, new=None))

    async def counted(self) -> Counter[str]:
        """Count what stands in the target, with the test's own eyes."""
        found: Counter[str] = Counter()
        for resource in (SECRETS, CONFIGMAPS):
            listing = await self._eyes.list(
                resource,
                namespace=self.crowd.namespace,
                label_selector=COMPANION_LABEL,
                metadata_only=True,
            )
            for each in listing.items:
                found[each["metadata"]["labels"][COMPANION_LABEL]] += 1
        return found


@asynccontextmanager
async def bearers_between(
    hub: LocalCluster, target: LocalCluster
) -> AsyncIterator[tuple[Bearers, Requests, Requests]]:
    """Yield them with what is asked of both sides."""
    of_hub, of_target = Requests(), Requests()
    hub_client = await connect(hub.kubeconfig, name="hub", observer=of_hub)
    target_client = await connect(target.kubeconfig, name="target", observer=of_target)
    eyes = await connect(target.kubeconfig, name="target")
    namespace = f"bearers-{random.randrange(16**6):06x}"
    try:
        await eyes.create(NAMESPACES, {"metadata": {"name": namespace}})
        account = {"metadata": {"name": "default"}}
        await eyes.create(SERVICEACCOUNTS, account, namespace=namespace)
        yield Bearers(Crowd(hub_client, target_client, namespace), eyes=eyes), of_hub, of_target
    finally:
        for client in (hub_client, target_client, eyes):
            await client.aclose()


@pytest.mark.parametrize(
    "count", [200, pytest.param(10_000, marks=pytest.mark.long)], ids=["some", "very many"]
)
async def test_tokens_of_very_many_pods_stand_in_one_namespace(
    light_hub: LocalCluster, light_target: LocalCluster, count: int
) -> None:
    """Each is issued once, by whoever leads; each costs the same; and all go with their pods."""
    seconds = max(LEAST_SECONDS, SECONDS_EACH * count)
    async with bearers_between(light_hub, light_target) as (bearers, hub, target):
        await bearers.make(count)
        with quiet():
            async with bearers.leading() as comers:
                await come_to_rest(comers, count, seconds=seconds, asked=(hub, target))
            assert hub.done(TOKENS, "create") == count
            written = (target.of(kind, "create", "patch") for kind in ("secrets", "configmaps"))
            assert sum(written) <= WRITES_EACH * count + MORE_WRITES
            assert (await bearers.counted())["tokens"] == count

            async with bearers.leading() as comers:
                await come_to_rest(comers, count, seconds=seconds, asked=(hub, target))
                assert hub.of(TOKENS, "create") == 0, "they are good for some time to come"
                await bearers.unmake(comers)
                took = await wait_gone(bearers, seconds=seconds)
        print(f"all gone {took:.1f} s after the last pod")
        assert target.of("secrets", "list", "watch") == 0


async def come_to_rest(
    comers: Comers, count: int, *, seconds: float, asked: tuple[Requests, Requests]
) -> None:
    """Wait until so many pods have tokens, and tell what that cost."""
    for requests in asked:
        requests.counts.clear()
    began, busy = time.monotonic(), time.process_time()
    async with asyncio.timeout(seconds):
        # The news of Services is one for all.
        while comers.issuer.counts()["settled"] < count + 1:  # noqa: ASYNC110
            await asyncio.sleep(POLL_SECONDS)
    took, busy = time.monotonic() - began, time.process_time() - busy
    print(f"{count} pods have tokens after {took:.1f} s, {busy:.1f} s of a core, by requests of")
    for side, requests in zip(("hub", "target"), asked, strict=True):
        print(f"  the {side}: {dict(requests.counts)}")


async def wait_gone(bearers: Bearers, *, seconds: float) -> float:
    """Wait until neither a token nor a word of one is left; returns how long it took."""
    began = time.monotonic()
    async with asyncio.timeout(seconds):
        while {"tokens", "entry"} & (await bearers.counted()).keys():  # noqa: ASYNC110
            await asyncio.sleep(POLL_SECONDS)
    return time.monotonic() - began
