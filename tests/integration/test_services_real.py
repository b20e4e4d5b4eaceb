"""Services that follow, and addresses that are taken back, as real API servers allow them."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import uuid4

import pytest

from e2e.testbed.local import LocalCluster
from federate.cluster.client import ClusterClient
from federate.cluster.connect import connect
from federate.cluster.store import Change
from federate.companions.environment import Advertised
from federate.companions.steps import Ground
from federate.errors import NotFound
from federate.flow.ratebound import RateBound
from federate.model.marks import (
    HUB_LABEL,
    HUB_POD_NAMESPACE_LABEL,
    RECORD_ANNOTATION,
    MirrorRecord,
    Scope,
)
from federate.model.naming import anchor_name
from federate.model.objects import (
    JsonDict,
    JsonObject,
    ObjectKey,
    labels_of,
    metadata_of,
    spec_of,
    status_of,
    uid_of,
)
from federate.model.resources import (
    CONFIGMAPS,
    NAMESPACES,
    NETWORK_POLICIES,
    PODS,
    SERVICEACCOUNTS,
    SERVICES,
)
from federate.patch.document import MERGE, PatchBody
from federate.runtime.together import run_together
from federate.services.addresses import (
    UNDECIDED,
    AddressDecision,
    decide_addresses,
    with_shown_addresses,
)
from federate.services.addressing import AddressPorts
from federate.services.network import Network
from federate.services.ports import ServicePorts
from federate.services.ranges import Ranges, parse_networks
from federate.services.reading import read_range_sources
from federate.services.rules import AddressMode, FollowMode, NetworkPolicyMode, NetworkRules
from federate.services.watched import hub_services
from federate.status.writing import plan_hub_write
from tests.support.scene import Told, agreed

pytestmark = pytest.mark.integration

RULES = NetworkRules(
    addresses=AddressMode.HIDE,
    follow=FollowMode.ALL,
    network_policies=NetworkPolicyMode.WARN,
)


@dataclass
class Anchored:
    """The ground of a virtual node whose mirrors have made it."""

    anchors: dict[str, JsonObject]

    def state(self, namespace: str) -> Ground:
        return Ground.READY if namespace in self.anchors else Ground.NOT_YET

    def anchor(self, namespace: str) -> JsonObject | None:
        return self.anchors.get(namespace)


class Pair:
    """A hub namespace and its target namespace on real API servers; the test plays mirroring."""

    def __init__(self, hub: ClusterClient, target: ClusterClient) -> None:
        self.hub, self.target = hub, target
        suffix = uuid4().hex[:6]
        self.hub_id, self.namespace, self.there = f"hub-{suffix}", f"ns-{suffix}", f"there-{suffix}"

    async def prepare(self) -> None:
        for client, name in ((self.hub, self.namespace), (self.target, self.there)):
            await client.create(NAMESPACES, {"metadata": {"name": name}})
            account = {"metadata": {"name": "default"}}
            await client.create(SERVICEACCOUNTS, account, namespace=name)

    def scope(self, node: str = "edge") -> Scope:
        return Scope(hub_id=self.hub_id, node_name=f"{node}-{self.hub_id}")

    async def anchor(self, scope: Scope) -> JsonDict:
        body = {"metadata": {"name": anchor_name(scope), "labels": scope.labels()}}
        return await self.target.create(CONFIGMAPS, body, namespace=self.there)

    async def pod(self, name: str, scope: Scope, **status: Any) -> JsonDict:
        """A user's pod lands on the virtual node, and its record stands on it."""
        body = {
            "metadata": {"name": name, "labels": {"app": "web"}},
            "spec": {
                "nodeName": scope.node_name,
                "containers": [{"name": "main", "image": "busybox"}],
            },
        }
        made = await self.hub.create(PODS, body, namespace=self.namespace)
        record = MirrorRecord(pod_uid=uid_of(made), mirror=ObjectKey(self.there, name))
        told = {"metadata": {"annotations": {RECORD_ANNOTATION: record.format()}}}
        patch = PatchBody(media_type=MERGE, body={**told, "status": status})
        key = ObjectKey(self.namespace, name)
        return await self.hub.patch(PODS, key, patch, subresource="status")

    async def give(self, name: str = "web", **spec: Any) -> JsonDict:
        wanted = {
            "selector": {"app": "web"},
            "ports": [{"name": "http", "port": 80, "targetPort": 8080}],
            **spec,
        }
        body = {"metadata": {"name": name}, "spec": wanted}
        return await self.hub.create(SERVICES, body, namespace=self.namespace)

    async def change(self, name: str = "web", **spec: Any) -> None:
        patch = PatchBody(media_type=MERGE, body={"spec": spec})
        await self.hub.patch(SERVICES, ObjectKey(self.namespace, name), patch)

    async def take(self, name: str = "web") -> None:
        key = ObjectKey(self.namespace, name)
        await self.hub.delete(SERVICES, key, uid=uid_of(await self.hub.get(SERVICES, key)))

    async def found(self, name: str = "web") -> JsonDict | None:
        with suppress(NotFound):
            return await self.target.get(SERVICES, ObjectKey(self.there, name))
        return None

    def ports(
        self, scope: Scope, ground: Anchored, told: Told, *, is_leaving: bool = True
    ) -> ServicePorts:
        """What a virtual node acts through; one that is left lets nothing linger."""
        loop = asyncio.get_running_loop()
        return ServicePorts(
            scope=scope,
            target_name="edge-1",
            hub=self.hub,
            target=self.target,
            ground=ground,
            events=told,
            target_namespace=lambda name: self.there if name == self.namespace else None,
            watched=lambda: ("",),
            wake=lambda _key: None,
            admit=lambda: None,
            target_reachable=lambda: True,
            leaving=lambda: is_leaving,
            confirm_hub=agreed,
            confirm_target=agreed,
            fence=lambda: None,
            fence_target=lambda: None,
            delete_bound=RateBound(per_second=50.0, burst=100, clock=loop.time),
            clock=loop.time,
            random=random.Random(1),
        )

    def network(self, ports: ServicePorts, advertised: Advertised | None = None) -> Network:
        loop, chance = asyncio.get_running_loop(), random.Random(1)
        return Network(
            RULES,
            ports,
            AddressPorts(
                read_hub=partial(read_range_sources, self.hub),
                read_target=partial(read_range_sources, self.target),
                node_name=ports.scope.node_name,
                target_name="edge-1",
                target_identity=lambda: "",
                target_reachable=lambda: True,
                changed=lambda: None,
                clock=loop.time,
                random=chance,
            ),
            services=hub_services(self.hub, clock=loop.time, random=chance),
            advertised=advertised,
        )


@asynccontextmanager
async def pair_of(hub: LocalCluster, target: LocalCluster) -> AsyncIterator[Pair]:
    clients = [await connect(c.kubeconfig, name=c.name) for c in (hub, target)]
    try:
        pair = Pair(*clients)
        await pair.prepare()
        yield pair
    finally:
        for client in clients:
            await client.aclose()


@asynccontextmanager
async def running(network: Network) -> AsyncIterator[None]:
    parts = [*network.parts().values(), network.services.run]
    task = asyncio.create_task(run_together(*parts))
    try:
        yield
        if task.done():
            task.result()
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def tell(network: Network, pod: JsonDict | None, key: ObjectKey) -> None:
    network.on_hub_pod(Change(key=key, old=None, new=pod))


async def wait_for(
    condition: Callable[[], Awaitable[object]], what: str, *, seconds: float = 60.0
) -> float:
    began_at = time.monotonic()
    async with asyncio.timeout(seconds):
        while not await condition():  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    took = time.monotonic() - began_at
    print(f"{what} after {took * 1000:.0f} ms")
    return took


CHANGES: tuple[dict[str, Any], ...] = (
    {"selector": {"app": None, "tier": "front"}},
    {"ports": [{"name": "a", "port": 81, "targetPort": "x"}, {"name": "b", "port": 82}]},
    {"ports": [{"name": "udp", "port": 82, "protocol": "UDP", "appProtocol": "example.com/x"}]},
    {"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 99}}},
    {"sessionAffinity": "None", "sessionAffinityConfig": None},
    {"publishNotReadyAddresses": True},
    {"publishNotReadyAddresses": False, "internalTrafficPolicy": "Local"},
    {"type": "NodePort"},
    {"type": "LoadBalancer", "externalIPs": ["203.0.113.9"]},
    {"type": "ClusterIP", "externalIPs": None, "ports": [{"port": 80}]},
)


async def test_c33_a_service_follows_every_change_of_its_original(
    light_hub: LocalCluster, light_target: LocalCluster
) -> None:
    """Whatever the hub's API server lets change; nothing is written that is the same already."""
    async with pair_of(light_hub, light_target) as pair:
        scope, told = pair.scope(), Told()
        ground = Anchored({pair.there: await pair.anchor(scope)})
        network = pair.network(pair.ports(scope, ground, told))
        await pair.give()
        pod = await pair.pod("a", scope)
        async with running(network):
            tell(network, pod, ObjectKey(pair.namespace, "a"))
            await wait_for(pair.found, "the Service was there")
            for change in CHANGES:
                await pair.change(**change)

                async def is_the_same() -> bool:
                    ours, original = await pair.found(), await original_of(pair)
                    if ours is None:
                        return False
                    told = pair.namespace
                    return gist(ours, scope, told) == gist(original, scope, told)

                await wait_for(is_the_same, f"{'+'.join(change)} changed")
                there = await pair.found() or {}
                spec = spec_of(there)
                assert spec["type"] == "ClusterIP"
                assert "externalIPs" not in spec
                assert not any("nodePort" in port for port in spec["ports"])
                assert spec["selector"][HUB_LABEL] == scope.hub_id
            version = metadata_of(await pair.found() or {})["resourceVersion"]
            network.follower.sweep()  # type: ignore[union-attr]
            await asyncio.sleep(1.0)
            assert metadata_of(await pair.found() or {})["resourceVersion"] == version
            assert [event for event in told.events if event[0] == "ServiceNotFollowed"] == []


async def original_of(pair: Pair) -> JsonDict:
    return await pair.hub.get(SERVICES, ObjectKey(pair.namespace, "web"))


def gist(service: JsonObject, scope: Scope, hub_namespace: str) -> JsonObject:
    """What of a Service says who answers, on either side."""
    spec = spec_of(service)
    kept = ("name", "port", "targetPort", "protocol", "appProtocol")
    return {
        "selector": {
            **spec["selector"],
            HUB_LABEL: scope.hub_id,
            HUB_POD_NAMESPACE_LABEL: hub_namespace,
        },
        "ports": [{k: p[k] for k in kept if k in p} for p in spec["ports"]],
        **{
            name: spec.get(name)
            for name in ("sessionAffinity", "sessionAffinityConfig", "internalTrafficPolicy")
        },
        "publishNotReadyAddresses": bool(spec.get("publishNotReadyAddresses")),
    }


async def test_a_service_made_anew_as_a_headless_one_is_made_anew_in_the_target(
    light_hub: LocalCluster, light_target: LocalCluster
) -> None:
    """As a StatefulSet needs it; and with the last pod it goes."""
    async with pair_of(light_hub, light_target) as pair:
        scope = pair.scope()
        ground = Anchored({pair.there: await pair.anchor(scope)})
        network = pair.network(pair.ports(scope, ground, Told()))
        await pair.give()
        key = ObjectKey(pair.namespace, "a")
        pod = await pair.pod("a", scope)
        async with running(network):
            tell(network, pod, key)
            await wait_for(pair.found, "the Service was there")
            await pair.take()
            await pair.give(clusterIP="None", publishNotReadyAddresses=True)

            async def is_headless() -> bool:
                return spec_of(await pair.found() or {}).get("clusterIP") == "None"

            await wait_for(is_headless, "it was headless")
            await pair.hub.delete(PODS, key, uid=uid_of(pod), grace_seconds=0)
            tell(network, None, key)

            async def is_gone() -> bool:
                return await pair.found() is None

            await wait_for(is_gone, "it was gone")


async def test_two_virtual_nodes_share_a_service_and_the_last_one_takes_it_along(
    light_hub: LocalCluster, light_target: LocalCluster
) -> None:
    """Its address stays while one of them has pods."""
    async with pair_of(light_hub, light_target) as pair:
        networks, pods = [], []
        await pair.give()
        for node in ("one", "two"):
            scope = pair.scope(node)
            ground = Anchored({pair.there: await pair.anchor(scope)})
            networks.append(pair.network(pair.ports(scope, ground, Told())))
            pods.append(await pair.pod(node, scope))

        async def owners() -> int:
            return len(metadata_of(await pair.found() or {}).get("ownerReferences") or ())

        async with running(networks[0]), running(networks[1]):
            for network, pod, name in zip(networks, pods, ("one", "two"), strict=True):
                tell(network, pod, ObjectKey(pair.namespace, name))

            async def is_shared() -> bool:
                return await owners() == 2

            await wait_for(is_shared, "both owned it")
            address = spec_of(await pair.found() or {})["clusterIP"]
            await let_go(pair, networks[0], pods[0])

            async def is_left_to_one() -> bool:
                return await owners() == 1

            await wait_for(is_left_to_one, "one owned it")
            assert spec_of(await pair.found() or {})["clusterIP"] == address
            await let_go(pair, networks[1], pods[1])

            async def is_gone() -> bool:
                return await pair.found() is None

            await wait_for(is_gone, "it was gone")


async def let_go(pair: Pair, network: Network, pod: JsonDict) -> None:
    key = ObjectKey(pair.namespace, metadata_of(pod)["name"])
    await pair.hub.delete(PODS, key, uid=uid_of(pod), grace_seconds=0)
    tell(network, None, key)


async def test_a_strangers_service_stays_as_it_is(
    light_hub: LocalCluster, light_target: LocalCluster
) -> None:
    """And the hub's Service is told."""
    async with pair_of(light_hub, light_target) as pair:
        scope, told = pair.scope(), Told()
        ground = Anchored({pair.there: await pair.anchor(scope)})
        network = pair.network(pair.ports(scope, ground, told))
        body = {"metadata": {"name": "web"}, "spec": {"ports": [{"port": 9}]}}
        stranger = await pair.target.create(SERVICES, body, namespace=pair.there)
        await pair.give()
        async with running(network):
            tell(network, await pair.pod("a", scope), ObjectKey(pair.namespace, "a"))

            async def is_told() -> bool:
                return bool(told.about("ServiceNotFollowed"))

            await wait_for(is_told, "the Service was told")
        assert await pair.found() == stranger


async def test_c33_c47_services_and_policies_that_select_pods_are_told(
    light_hub: LocalCluster, light_target: LocalCluster
) -> None:
    """By watches of real servers."""
    async with pair_of(light_hub, light_target) as pair:
        scope, told = pair.scope(), Told()
        network = pair.network(pair.ports(scope, Anchored({}), told))
        await pair.give()
        policy = {"metadata": {"name": "p"}, "spec": {"podSelector": {}}}
        await pair.hub.create(NETWORK_POLICIES, policy, namespace=pair.namespace)
        pod = await pair.pod("a", scope, phase="Running")
        async with running(network):
            tell(network, pod, ObjectKey(pair.namespace, "a"))

            async def are_told() -> bool:
                return {"AddressHidden", "NetworkPolicyNotEnforced"} <= {
                    reason for reason, *_ in told.events
                }

            await wait_for(are_told, "both were told")


# -- addresses -------------------------------------------------------------------------------------


def decided(hub_pods: str, target_pods: str) -> AddressDecision:
    def side(pods: str, services: str, node: str) -> Ranges:
        return Ranges(
            pods=parse_networks(pods),
            services=parse_networks(services),
            nodes=parse_networks(node),
        )

    return decide_addresses(
        AddressMode.AUTO,
        hub=side(hub_pods, "10.96.0.0/12", "192.168.0.1"),
        target=side(target_pods, "10.43.0.0/16", "192.168.0.2"),
        target_name="edge-1",
    )


async def test_c47_an_address_is_shown_kept_and_taken_back(
    light_hub: LocalCluster, light_target: LocalCluster
) -> None:
    """By the same three-way patch that carries the rest of the status; both families."""
    mirror = {
        "phase": "Running",
        "podIP": "10.42.0.7",
        "podIPs": [{"ip": "10.42.0.7"}, {"ip": "fd42::7"}],
    }
    apart = decided("10.244.0.0/16,fd44::/48", "10.42.0.0/16,fd42::/48")
    equal = decided("10.42.0.0/16", "10.42.0.0/16")
    async with pair_of(light_hub, light_target) as pair:
        hub_pod = await pair.pod("a", pair.scope())

        async def project(decision: AddressDecision) -> list[str]:
            nonlocal hub_pod
            status = with_shown_addresses(mirror, hub_pod, decision)
            write = plan_hub_write(hub_pod, status=status)
            if write is not None:
                key = ObjectKey(pair.namespace, "a")
                hub_pod = await pair.hub.patch(PODS, key, write.patch, subresource="status")
            again = plan_hub_write(hub_pod, status=with_shown_addresses(mirror, hub_pod, decision))
            assert again is None, "the same status is no write"
            shown = status_of(hub_pod).get("podIPs") or []
            assert status_of(hub_pod).get("podIP") == (shown[0]["ip"] if shown else None)
            return [one["ip"] for one in shown]

        assert await project(UNDECIDED) == []
        assert await project(apart) == ["10.42.0.7", "fd42::7"]
        assert await project(UNDECIDED) == ["10.42.0.7", "fd42::7"]
        assert await project(equal) == []
        assert status_of(hub_pod)["phase"] == "Running"


async def test_the_ranges_of_a_real_cluster_are_read(light_hub: LocalCluster) -> None:
    """ServiceCIDR objects are there from 1.33 on; what is not there is none."""
    client = await connect(light_hub.kubeconfig, name="hub")
    try:
        sources = await read_range_sources(client)
    finally:
        await client.aclose()
    assert sources.nodes is not None
    assert sources.kubeadm is None
    print(f"service ranges: {[spec_of(s).get('cidrs') for s in sources.service_ranges or ()]}")
    assert sources.service_ranges
    assert labels_of(sources.service_ranges[0]) is not None
