"""Addresses are decided at the start and again now and then; outages change nothing."""

from __future__ import annotations

import asyncio

import pytest

from federate.errors import Forbidden, Unreachable
from federate.model.objects import ObjectKey
from federate.model.reasons import NodeReason
from federate.model.resources import CONFIGMAPS, NODES, SERVICE_RANGES
from federate.services.addresses import Showing
from federate.services.addressing import LOOK_SECONDS, RETRY_SECONDS, SETTLE_SECONDS
from federate.services.reading import GOOD_FOR_SECONDS, SharedRanges
from federate.services.rules import AddressMode, NetworkRules
from tests.support.clock import virtual_time
from tests.support.fakeclient import Call, Fault, Refuse
from tests.support.networkstage import NetworkStage


def stage_of(hub_pods: str = "10.244.0.0/24", target_pods: str = "10.42.0.0/24") -> NetworkStage:
    stage = NetworkStage()
    stage.add_node(stage.hub, "hub-1", pods=hub_pods, address="192.168.0.1")
    stage.add_node(stage.target, "edge-a", pods=target_pods, address="192.168.0.2")
    for cluster, cidr in ((stage.hub, "10.96.0.0/12"), (stage.target, "10.43.0.0/16")):
        cluster.add(SERVICE_RANGES, {"metadata": {"name": "kubernetes"}, "spec": {"cidrs": [cidr]}})
    return stage


@virtual_time
async def test_c47_ranges_that_are_apart_are_reflected() -> None:
    stage = stage_of()
    node = stage.virtual_node(NetworkRules())
    assert node.network.decision.showing is Showing.KEEP
    async with node.running() as network:
        took = await stage.until(lambda: network.decision.showing is Showing.REFLECT)
        assert took < 1.0
        assert node.decisions == 1
        assert network.decision.shows("10.42.7.7")
        assert not network.addressing.is_settled
        await asyncio.sleep(SETTLE_SECONDS + 1.0)
        assert network.addressing.is_settled


@virtual_time
async def test_c47_equal_ranges_are_hidden_and_so_are_different_parts_of_one() -> None:
    for pods in ("10.244.0.0/24", "10.244.9.0/24"):
        stage = stage_of(target_pods=pods)
        node = stage.virtual_node(NetworkRules())
        async with node.running() as network:
            await stage.until(lambda: network.decision.showing is Showing.HIDE)
            assert network.decision.reason is NodeReason.RANGES_OVERLAP
            assert network.addressing.is_settled


@virtual_time
async def test_a_range_that_comes_to_be_shared_is_noticed() -> None:
    stage = stage_of()
    node = stage.virtual_node(NetworkRules())
    async with node.running() as network:
        await stage.until(lambda: network.decision.showing is Showing.REFLECT)
        stage.add_node(stage.hub, "hub-2", pods="10.42.3.0/24", address="192.168.0.3")
        took = await stage.until(
            lambda: network.decision.showing is Showing.HIDE, seconds=LOOK_SECONDS + 10
        )
        print(f"noticed after {took:.0f} virtual seconds")
        assert node.decisions == 2
        await asyncio.sleep(3 * LOOK_SECONDS)
        assert node.decisions == 2  # the same again is no news


@pytest.mark.parametrize("side", ["hub", "target"])
@pytest.mark.parametrize("is_shared", [False, True])
@virtual_time
async def test_a_node_that_has_no_range_yet_takes_no_address_back(
    side: str, is_shared: bool
) -> None:
    """A new node is given its range a moment after it joined; one that has none for good is seen.

    Also where the virtual nodes of a hub share what was read of it.
    """
    stage = stage_of()
    node = stage.virtual_node(NetworkRules(), shares_hub=is_shared)
    cluster = stage.hub if side == "hub" else stage.target
    async with node.running() as network:
        await stage.until(lambda: network.decision.showing is Showing.REFLECT)
        before = network.decision
        stage.add_node(cluster, "new", address="192.168.0.9")
        looked = len(stage.target.calls)
        await stage.until(lambda: len(stage.target.calls) > looked, seconds=LOOK_SECONDS + 10)
        await asyncio.sleep(1.0)
        assert network.decision == before
        cluster.store.remove(NODES, ObjectKey("", "new"))
        await asyncio.sleep(2 * LOOK_SECONDS)
        assert node.decisions == 1
        stage.add_node(cluster, "odd", address="192.168.0.9")
        looked = len(stage.target.calls)
        await stage.until(lambda: len(stage.target.calls) > looked, seconds=LOOK_SECONDS + 10)
        took = await stage.until(lambda: network.decision.showing is Showing.HIDE)
        assert 5.0 < took <= RETRY_SECONDS + 1.0
        assert network.decision.reason is NodeReason.RANGES_UNKNOWN


@virtual_time
async def test_what_may_not_be_read_is_unknown() -> None:
    stage = stage_of()
    for resource in (NODES, SERVICE_RANGES, CONFIGMAPS):

        def refuse(call: Call, resource: object = resource) -> Fault | None:
            is_meant = call.client.startswith("target") and call.resource == resource
            return Refuse(Forbidden("no", status=403)) if is_meant else None

        stage.fault_of = refuse
        node = stage.virtual_node(NetworkRules())
        async with node.running() as network:
            await stage.until(lambda: network.decision.showing is not Showing.KEEP)
            is_hidden = network.decision.reason is NodeReason.RANGES_UNKNOWN
            assert is_hidden is (resource != CONFIGMAPS)


@virtual_time
async def test_what_was_decided_stands_while_a_side_does_not_answer() -> None:
    stage = stage_of()
    node = stage.virtual_node(NetworkRules())
    async with node.running() as network:
        await stage.until(lambda: network.decision.showing is Showing.REFLECT)
        stage.fault_of = lambda _call: Refuse(Unreachable("no answer"))
        await asyncio.sleep(3 * LOOK_SECONDS)
        assert network.decision.showing is Showing.REFLECT
        stage.fault_of, stage.target_reachable = (lambda _call: None), False
        asked = len(stage.target.calls)
        await asyncio.sleep(3 * LOOK_SECONDS)
        assert network.decision.showing is Showing.REFLECT
        assert [c for c in stage.target.calls[asked:] if c.resource == NODES] == []


@virtual_time
async def test_nothing_is_decided_from_half_an_answer() -> None:
    stage = stage_of()
    stage.fault_of = lambda call: (
        Refuse(Unreachable("no answer")) if call.resource == SERVICE_RANGES else None
    )
    node = stage.virtual_node(NetworkRules())
    async with node.running() as network:
        await asyncio.sleep(60.0)
        assert network.decision.showing is Showing.KEEP
        stage.fault_of = lambda _call: None
        await stage.until(lambda: network.decision.showing is Showing.REFLECT)


@virtual_time
async def test_who_hides_all_asks_nothing() -> None:
    stage = stage_of()
    node = stage.virtual_node(NetworkRules(addresses=AddressMode.HIDE))
    assert node.network.decision.showing is Showing.HIDE
    async with node.running():
        await asyncio.sleep(3 * LOOK_SECONDS)
    assert [c for c in stage.hub.calls if c.resource == NODES] == []


@virtual_time
async def test_an_elder_virtual_node_of_another_target_shows_its_addresses_alone() -> None:
    stage = stage_of()
    told = {"shown-ranges": "10.42.0.0/16", "target-identity": "another"}
    stage.add_node(stage.hub, "elder", is_virtual=True, **told)
    node = stage.virtual_node(NetworkRules())
    async with node.running() as network:
        await stage.until(lambda: network.decision.showing is Showing.HIDE)
        assert "virtual node elder" in network.decision.message


@virtual_time
async def test_many_virtual_nodes_read_the_hub_once() -> None:
    stage = stage_of()
    shared = SharedRanges(stage.hub.client(), clock=stage.clock)
    answers = await asyncio.gather(*(shared.read() for _ in range(50)))
    assert all(answer is answers[0] for answer in answers)
    asked = [call for call in stage.hub.calls if call.resource == NODES]
    assert len(asked) == 1
    await asyncio.sleep(GOOD_FOR_SECONDS + 1.0)
    assert await shared.read() is not answers[0]


@virtual_time
async def test_a_reading_that_failed_is_not_shared() -> None:
    stage = stage_of()
    shared = SharedRanges(stage.hub.client(), clock=stage.clock)
    stage.fault_of = lambda _call: Refuse(Unreachable("no answer"))
    with pytest.raises(Unreachable):
        await shared.read()
    stage.fault_of = lambda _call: None
    assert (await shared.read()).nodes
