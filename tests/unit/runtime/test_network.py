"""The hub's network beside mirrored pods, between two clusters in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from federate.companions.environment import Advertised
from federate.companions.rules import CompanionRules, IdentityMode
from federate.errors import Forbidden
from federate.model.marks import RECORD_ANNOTATION, MirrorRecord
from federate.model.objects import JsonDict, ObjectKey, condition_of, status_of
from federate.model.pods import NODE_TYPE_LABEL, VIRTUAL_NODE_TYPE
from federate.model.resources import (
    CONFIGMAPS,
    ENDPOINT_SLICES,
    NETWORK_POLICIES,
    NODES,
    PODS,
    SERVICE_RANGES,
    SERVICEACCOUNTS,
    SERVICES,
)
from federate.services.addressing import LOOK_SECONDS
from federate.services.door import door_name
from federate.services.reconciler import LINGER_SECONDS
from federate.services.rules import AddressMode, FollowMode, NetworkPolicyMode, NetworkRules
from tests.support.builders import PodBuilder, pod
from tests.support.clock import virtual_time
from tests.support.fakeclient import Refuse
from tests.support.fakecluster import POD_IP, FakeCluster
from tests.support.scene import SCOPE, TARGET_NAMESPACE
from tests.support.worlds import World

WEB = ObjectKey("default", "web")
THERE = ObjectKey(TARGET_NAMESPACE, "web")

FOLLOWING = NetworkRules(
    addresses=AddressMode.HIDE,
    follow=FollowMode.ALL,
    network_policies=NetworkPolicyMode.IGNORE,
)
AUTO = NetworkRules(addresses=AddressMode.AUTO, network_policies=NetworkPolicyMode.IGNORE)
AS_ON_HUB = CompanionRules(
    identity=IdentityMode.HUB, advertised=Advertised(host="192.0.2.1", port=6443)
)
ROOT_CA = "kube-root-ca.crt"
QUIET = NetworkRules(addresses=AddressMode.HIDE, network_policies=NetworkPolicyMode.IGNORE)
REFUSING = NetworkRules(addresses=AddressMode.HIDE, network_policies=NetworkPolicyMode.REFUSE)


class NetworkWorld(World):
    """A user's Services and policies, and the nodes of both clusters."""

    def __init__(self, network: NetworkRules, **how: Any) -> None:
        super().__init__(network=network, **how)
        with self.others():
            self.hub.edit(
                NODES,
                ObjectKey("", SCOPE.node_name),
                lambda node: node["metadata"].update(labels={NODE_TYPE_LABEL: VIRTUAL_NODE_TYPE}),
            )

    def give_service(self) -> None:
        with self.others():
            spec = {"selector": {"app": "web"}, "ports": [{"port": 80}], "clusterIP": "10.96.0.7"}
            metadata = {"namespace": "default", "name": "web"}
            self.hub.add(SERVICES, {"metadata": metadata, "spec": spec})

    def give_policy(self) -> None:
        with self.others():
            metadata = {"namespace": "default", "name": "wall"}
            spec = {"podSelector": {"matchLabels": {"app": "web"}}}
            self.hub.add(NETWORK_POLICIES, {"metadata": metadata, "spec": spec})

    def give_node(self, cluster: FakeCluster, name: str, pods: str, address: str) -> None:
        with self.others():
            cluster.add(
                NODES,
                {
                    "metadata": {"name": name},
                    "spec": {"podCIDR": pods, "podCIDRs": [pods]},
                    "status": {"addresses": [{"type": "InternalIP", "address": address}]},
                },
            )

    def give_ranges(self, cluster: FakeCluster, services: str) -> None:
        with self.others():
            spec = {"cidrs": [services]}
            cluster.add(SERVICE_RANGES, {"metadata": {"name": "kubernetes"}, "spec": spec})

    def service(self) -> JsonDict | None:
        return self.target.find(SERVICES, THERE)

    def address(self) -> str | None:
        return status_of(self.hub_pod(WEB) or {}).get("podIP")

    def waits_with(self) -> str:
        found = condition_of(self.hub_pod(WEB) or {}, "federate.dev/Mirrored") or {}
        return str(found.get("reason", ""))

    async def until(self, condition: Callable[[], object], *, seconds: float = 60.0) -> float:
        began_at = self.clock()
        async with asyncio.timeout(seconds):
            while not condition():
                waited = self.clock() - began_at
                await asyncio.sleep(min(1.0, max(0.05, waited / 50)))
        return self.clock() - began_at


def web() -> PodBuilder:
    return pod("web").with_labels({"app": "web"})


@virtual_time
async def test_c33_a_service_comes_beside_the_mirror_and_goes_after_it() -> None:
    """It is owned by the anchor, which the mirror brought."""
    world = NetworkWorld(FOLLOWING)
    world.give_service()
    async with world.running():
        await asyncio.sleep(5.0)
        assert world.service() is None
        world.submit(web())
        took = await world.until(world.service)
        print(f"there {took:.2f} virtual seconds after the pod")
        assert world.mirror(WEB) is not None
        await asyncio.sleep(5.0)
        with world.others():
            world.hub.delete_by_user(PODS, WEB, grace_seconds=0)
        await world.until(lambda: world.service() is None, seconds=3 * LINGER_SECONDS)
        assert not world.broken


@virtual_time
async def test_c26_a_refused_pod_brings_no_service_about() -> None:
    """Nor does what its user writes into its annotations."""
    world = NetworkWorld(FOLLOWING)
    world.give_service()
    refused = web().with_spec(
        containers=[{"name": "c", "image": "i", "securityContext": {"privileged": True}}]
    )
    async with world.running():
        world.submit(refused)
        await world.until(lambda: world.waits_with() == "PolicyRefused")
        uid = (world.hub_pod(WEB) or {})["metadata"]["uid"]
        record = MirrorRecord(pod_uid=uid, mirror=ObjectKey(TARGET_NAMESPACE, "web"))
        with world.others():
            world.hub.edit(
                PODS,
                WEB,
                lambda p: p["metadata"].update(annotations={RECORD_ANNOTATION: record.format()}),
            )
        await asyncio.sleep(200.0)
        assert world.target.writes() == []


@virtual_time
async def test_c47_addresses_are_shown_where_that_is_safe_and_taken_back_where_it_ends() -> None:
    """By the decision of the moment: each pod follows it by itself."""
    world = NetworkWorld(AUTO, is_brisk=True)
    world.give_node(world.hub, "hub-1", "10.244.0.0/24", "192.168.0.1")
    world.give_node(world.target, "edge-1", "10.1.0.0/24", "192.168.0.2")
    world.give_ranges(world.hub, "10.96.0.0/12")
    world.give_ranges(world.target, "10.43.0.0/16")
    async with world.running():
        world.submit(web())
        await world.until(lambda: world.address() == POD_IP)
        world.kill()
        await asyncio.sleep(20.0)
        assert world.address() == POD_IP  # another leader took it over
        world.give_node(world.hub, "hub-2", "10.1.7.0/24", "192.168.0.3")
        took = await world.until(lambda: world.address() is None, seconds=LOOK_SECONDS + 60)
        print(f"taken back {took:.0f} virtual seconds after the ranges met")
        assert status_of(world.hub_pod(WEB) or {})["phase"] == "Running"
        assert not world.broken


@virtual_time
async def test_c33_a_pod_that_a_policy_selects_waits_and_runs_once_it_is_gone() -> None:
    """Until then nothing of it is in the target, not even its namespace."""
    world = NetworkWorld(REFUSING)
    world.give_policy()
    async with world.running():
        world.submit(web())
        await world.until(lambda: world.waits_with() == "NetworkPolicyNotEnforced")
        await asyncio.sleep(30.0)
        assert world.target.writes() == []
        with world.others():
            world.hub.delete_by_user(NETWORK_POLICIES, ObjectKey("default", "wall"))
        await world.until(lambda: world.mirror(WEB) is not None)
        world.give_policy()
        await world.until(
            lambda: world.process.object_events.about("NetworkPolicyNotEnforced"), seconds=90.0
        )
        assert world.mirror(WEB) is not None


@virtual_time
async def test_one_watch_of_services_serves_all_who_ask() -> None:
    """Pods are told of Services in variables while these follow into the target, too."""
    world = NetworkWorld(FOLLOWING, companions=AS_ON_HUB)
    with world.others():
        world.hub.add(SERVICEACCOUNTS, {"metadata": {"namespace": "default", "name": "default"}})
        world.hub.add(CONFIGMAPS, {"metadata": {"namespace": "default", "name": ROOT_CA}})
    world.give_service()
    async with world.running():
        world.submit(web())
        await world.until(lambda: world.mirror(WEB) is not None)
        await world.until(world.service)
        watches = [
            call for call in world.hub.calls if (call.verb, call.resource) == ("watch", SERVICES)
        ]
        assert len(watches) == 1
        assert not world.broken


@virtual_time
async def test_services_that_nobody_asks_for_are_not_read() -> None:
    world = NetworkWorld(NetworkRules(addresses=AddressMode.REFLECT))
    async with world.running():
        world.submit(web())
        await world.until(lambda: world.mirror(WEB) is not None)
        await asyncio.sleep(10.0)
        assert not [call for call in world.hub.calls if call.resource == SERVICES]


def aliases(world: World) -> list[JsonDict]:
    """What a pod's mirror has in its hosts file beside the usual."""
    mirror = world.mirror(WEB)
    assert mirror is not None
    found: list[JsonDict] = mirror["spec"].get("hostAliases") or []
    return found


def as_on_hub(advertised: Advertised) -> NetworkWorld:
    """A world whose pods speak to the hub's API server as themselves."""
    companions = CompanionRules(identity=IdentityMode.HUB, advertised=advertised)
    world = NetworkWorld(QUIET, companions=companions)
    with world.others():
        world.hub.add(SERVICEACCOUNTS, {"metadata": {"namespace": "default", "name": "default"}})
        world.hub.add(CONFIGMAPS, {"metadata": {"namespace": "default", "name": ROOT_CA}})
    return world


@virtual_time
async def test_c31_a_mirror_finds_the_hubs_api_server_by_its_names() -> None:
    """Through a Service of the target; the next process makes no other mirror of it."""
    world = as_on_hub(Advertised(host="192.0.2.1", port=6443))
    door = ObjectKey(TARGET_NAMESPACE, door_name(SCOPE))
    async with world.running():
        world.submit(web())
        await world.until(lambda: world.mirror(WEB) is not None)
        address = world.target.read(SERVICES, door)["spec"]["clusterIP"]
        [alias] = aliases(world)
        assert alias["ip"] == address
        assert "kubernetes.default.svc" in alias["hostnames"]
        assert not world.broken
    async with world.running():
        await asyncio.sleep(300.0)
        assert aliases(world) == [alias]
        created = [c for c in world.target.calls if (c.verb, c.resource) == ("create", PODS)]
        assert len(created) == 1
        assert not world.broken


@virtual_time
async def test_c31_an_address_that_serves_at_443_is_in_the_mirror_itself() -> None:
    world = as_on_hub(Advertised(host="192.0.2.1", port=443))
    async with world.running():
        world.submit(web())
        await world.until(lambda: world.mirror(WEB) is not None)
        assert [alias["ip"] for alias in aliases(world)] == ["192.0.2.1"]
        assert not [c for c in world.target.calls if c.resource in (SERVICES, ENDPOINT_SLICES)]


@virtual_time
async def test_c31_a_pod_starts_without_the_names_where_the_target_refuses() -> None:
    """An Event of the pod says where they lead then."""
    world = as_on_hub(Advertised(host="192.0.2.1", port=6443))
    world.fault_of = lambda call: (
        Refuse(Forbidden("no", status=403)) if call.resource == ENDPOINT_SLICES else None
    )
    async with world.running():
        world.submit(web())
        await world.until(lambda: world.mirror(WEB) is not None)
        assert aliases(world) == []
        assert world.process.object_events.about("HubNamesMissing") == ["Pod web"]
        assert not world.broken
