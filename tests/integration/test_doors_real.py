"""The names of the hub's API server, as real API servers take the Service that leads there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from e2e.testbed.local import LocalCluster
from federate.companions.environment import Advertised
from federate.model.marks import Scope
from federate.model.objects import JsonDict, ObjectKey, metadata_of, spec_of, uid_of
from federate.model.reasons import PodReason
from federate.model.resources import ENDPOINT_SLICES, PODS, SERVICES, Resource
from federate.patch.document import MERGE, PatchBody
from federate.services.clearing import followed_services, take_back_service
from federate.services.door import DoorReason, Rest, door_name
from federate.services.doorround import DoorRound
from federate.services.hubnames import ThroughDoor, with_hub_names
from federate.services.ports import ServicePorts
from tests.integration.test_services_real import Anchored, Pair, pair_of, running, wait_for
from tests.support.scene import Told

pytestmark = pytest.mark.integration

HUB = Advertised(host="192.0.2.1", port=6443)
BOTH = (SERVICES, ENDPOINT_SLICES)


class Doorway:
    """One virtual node that leads pods of one target namespace to the hub's API server."""

    def __init__(self, pair: Pair, scope: Scope, ports: ServicePorts, told: Told) -> None:
        self.pair, self.scope, self.ports, self.told = pair, scope, ports, told
        self.network = pair.network(ports, HUB)
        self.key = ObjectKey(pair.there, door_name(scope))

    async def look(
        self, *addresses: str, port: int = 6443, former: str = "", host: str = "192.0.2.1"
    ) -> Rest:
        """Carry out one round."""
        return await DoorRound(
            self.pair.there,
            way=ThroughDoor(host=host, port=port),
            addresses=addresses,
            former=(former,) if former else (),
            ports=self.ports,
        ).run()

    async def versions(self) -> list[str]:
        return [
            metadata_of(await self.pair.target.get(resource, self.key))["resourceVersion"]
            for resource in BOTH
        ]

    async def change(self, resource: Resource, body: JsonDict) -> None:
        await self.pair.target.patch(resource, self.key, PatchBody(media_type=MERGE, body=body))

    async def delete(self, resource: Resource) -> None:
        there = await self.pair.target.get(resource, self.key)
        await self.pair.target.delete(resource, self.key, uid=uid_of(there))


@asynccontextmanager
async def doorway(hub: LocalCluster, target: LocalCluster) -> AsyncIterator[Doorway]:
    async with pair_of(hub, target) as pair:
        scope, told = pair.scope(), Told()
        ground = Anchored({pair.there: await pair.anchor(scope)})
        yield Doorway(pair, scope, pair.ports(scope, ground, told, is_leaving=False), told)


CHANGES: tuple[tuple[Resource, JsonDict], ...] = (
    (SERVICES, {"spec": {"selector": {"app": "thief"}}}),
    (SERVICES, {"spec": {"ports": [{"port": 80}]}}),
    (SERVICES, {"spec": {"internalTrafficPolicy": "Local"}}),
    (SERVICES, {"spec": {"type": "NodePort"}}),
    (SERVICES, {"metadata": {"ownerReferences": []}}),
    (SERVICES, {"metadata": {"annotations": {"federate.dev/companion-of": None}}}),
    (ENDPOINT_SLICES, {"endpoints": [{"addresses": ["203.0.113.6"]}]}),
    (ENDPOINT_SLICES, {"endpoints": []}),
    (ENDPOINT_SLICES, {"ports": [{"name": "https", "port": 1}]}),
    (ENDPOINT_SLICES, {"metadata": {"labels": {"kubernetes.io/service-name": "other"}}}),
    (ENDPOINT_SLICES, {"metadata": {"ownerReferences": []}}),
)


async def test_c31_a_door_is_made_and_whatever_is_changed_is_put_back(
    light_hub: LocalCluster, light_target: LocalCluster
) -> None:
    """What the target's API server fills in is left alone: a second look writes nothing."""
    async with doorway(light_hub, light_target) as door:
        made = await door.look("192.0.2.1")
        assert made.address
        before = await door.versions()
        assert await door.look("192.0.2.1") == made
        assert await door.versions() == before
        for resource, body in CHANGES:
            await door.change(resource, body)
            assert await door.look("192.0.2.1") == made, body
            after = await door.versions()
            assert after != before, body
            assert await door.look("192.0.2.1") == made
            assert await door.versions() == after, body
            before = after
        slice_ = await door.pair.target.get(ENDPOINT_SLICES, door.key)
        assert [one["addresses"] for one in slice_["endpoints"]] == [["192.0.2.1"]]
        service = await door.pair.target.get(SERVICES, door.key)
        assert "selector" not in spec_of(service)
        assert spec_of(service)["type"] == "ClusterIP"


async def test_c31_where_it_leads_follows_and_its_own_address_stays(
    light_hub: LocalCluster, light_target: LocalCluster
) -> None:
    """Mirrors carry it for good: made anew it has the same one, unless that is given away."""
    async with doorway(light_hub, light_target) as door:
        made = await door.look("192.0.2.1")
        assert await door.look("192.0.2.7", "192.0.2.8", port=443) == made
        slice_ = await door.pair.target.get(ENDPOINT_SLICES, door.key)
        assert [one["addresses"] for one in slice_["endpoints"]] == [["192.0.2.7"], ["192.0.2.8"]]
        assert [port["port"] for port in slice_["ports"]] == [443]
        for resource in BOTH:
            await door.delete(resource)
        assert await door.look("192.0.2.7", former=made.address) == made
        await door.delete(SERVICES)
        assert await door.look("192.0.2.7") == made, "the EndpointSlice says it"
        await door.delete(SERVICES)
        taking: JsonDict = {
            "metadata": {"name": "other"},
            "spec": {"clusterIP": made.address, "ports": [{"port": 80}]},
        }
        await door.pair.target.create(SERVICES, taking, namespace=door.pair.there)
        other = await door.look("192.0.2.7", former=made.address)
        assert other.address not in ("", made.address)
        assert other.lost == made.address
        assert await door.look("192.0.2.7") == Rest(address=other.address)
        name = "hub.example.org"
        assert await door.look("2001:db8::1", host=name) == Rest(address=other.address)


@pytest.mark.parametrize("address", ["127.0.0.1", "169.254.1.1", "2001:db8::1"])
async def test_c31_an_address_that_no_service_leads_to_is_told(
    address: str, light_hub: LocalCluster, light_target: LocalCluster
) -> None:
    """Loopback, link-local, or of a family that the target has not: pods start all the same."""
    async with doorway(light_hub, light_target) as door:
        rest = await door.look(address)
        print(rest.blocked)
        assert rest.blocked is not None
        assert rest.blocked.reason == DoorReason.SERVICE_REFUSED


async def test_c31_pods_wait_for_the_door_alone(
    light_hub: LocalCluster, light_target: LocalCluster
) -> None:
    """And a mirror with its address beside the names is one that the target takes."""
    async with doorway(light_hub, light_target) as door:
        pod = await door.pair.pod("a", door.scope)
        async with running(door.network):

            async def may_start() -> bool:
                return door.network.hold(pod, door.pair.there) is None

            await wait_for(may_start, "the pod may start")
            api = door.network.hub_api(door.pair.there)
            assert api is not None
            service = await door.pair.target.get(SERVICES, door.key)
            assert api.address == spec_of(service)["clusterIP"]
            # These API servers name their issuer as programs in the cluster reach it.
            assert api.domain == "cluster.local"
            spec: JsonDict = {
                "containers": [{"name": "main", "image": "busybox"}],
                "hostAliases": [{"ip": api.address, "hostnames": ["own"]}],
            }
            for name, own in (("a", spec), ("b", {"containers": spec["containers"]})):
                body = {"metadata": {"name": name}, "spec": with_hub_names(own, "default", api)}
                made = await door.pair.target.create(PODS, body, namespace=door.pair.there)
                assert spec_of(made)["hostAliases"] == spec_of(body)["hostAliases"]
        assert door.told.about(PodReason.HUB_NAMES_MISSING) == []


async def test_c20_a_strangers_service_stays_untouched(
    light_hub: LocalCluster, light_target: LocalCluster
) -> None:
    async with doorway(light_hub, light_target) as door:
        body: JsonDict = {"metadata": {"name": door.key.name}, "spec": {"ports": [{"port": 80}]}}
        stranger = await door.pair.target.create(SERVICES, body, namespace=door.pair.there)
        rest = await door.look("192.0.2.1")
        assert rest.blocked is not None
        assert rest.blocked.reason == DoorReason.NAME_TAKEN
        assert await door.pair.target.get(SERVICES, door.key) == stranger


async def test_who_leaves_takes_the_door_back(
    light_hub: LocalCluster, light_target: LocalCluster
) -> None:
    """Its own, with the EndpointSlice, and nobody else's."""
    async with doorway(light_hub, light_target) as door:
        other: dict[str, Any] = {"metadata": {"name": "own"}, "spec": {"ports": [{"port": 80}]}}
        target = door.pair.target
        await target.create(SERVICES, other, namespace=door.pair.there)
        await door.look("192.0.2.1")
        assert await followed_services(target, door.pair.scope("other")) == []
        [service] = await followed_services(target, door.scope)
        said = await take_back_service(target, door.scope, service, fence=lambda: None)
        assert said == "asked to go"
        assert await followed_services(target, door.scope) == []
        left = [
            metadata_of(one)["name"]
            for resource in BOTH
            for one in (await target.list(resource, namespace=door.pair.there)).items
        ]
        assert left == ["own"]
