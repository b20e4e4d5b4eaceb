"""Hub Services and NetworkPolicies are told, once, and policies may refuse pods."""

from __future__ import annotations

import asyncio

import pytest

from federate.cluster.reflector import MOST_BACK_OFF_SECONDS, WATCH_SECONDS
from federate.errors import ClusterError, Forbidden, Unreachable
from federate.model.objects import ObjectKey
from federate.model.reasons import PodReason
from federate.model.resources import NETWORK_POLICIES, SERVICE_RANGES, SERVICES, Resource
from federate.services.addressing import SETTLE_SECONDS
from federate.services.network import ADDRESS_HIDDEN, LOOK_SECONDS
from federate.services.rules import AddressMode, FollowMode, NetworkPolicyMode, NetworkRules
from federate.services.telling import TOLD_AT_ONCE
from tests.support.builders import pod
from tests.support.clock import virtual_time
from tests.support.fakeclient import Refuse
from tests.support.networkstage import WEB_LABELS, NetworkStage

HIDING = NetworkRules(addresses=AddressMode.HIDE, network_policies=NetworkPolicyMode.WARN)
REFUSING = NetworkRules(addresses=AddressMode.HIDE, network_policies=NetworkPolicyMode.REFUSE)
NOT_ENFORCED = PodReason.NETWORK_POLICY_NOT_ENFORCED


def give_policy(stage: NetworkStage, name: str = "p", **labels: str) -> None:
    selector = {"matchLabels": labels} if labels else {}
    body = {"metadata": {"namespace": "default", "name": name}, "spec": {"podSelector": selector}}
    stage.hub.add(NETWORK_POLICIES, body)


# -- hidden addresses ------------------------------------------------------------------------------


@virtual_time
async def test_c47_a_service_that_selects_a_hidden_pod_is_told_once() -> None:
    stage = NetworkStage()
    stage.give_service()
    stage.give_service("db", selector={"app": "db"})
    stage.give_service("by-hand", selector=None)
    node = stage.virtual_node(HIDING)
    async with node.running():
        stage.pod_lives("a")
        await asyncio.sleep(20.0)
        assert node.told.about(ADDRESS_HIDDEN) == []  # nothing runs yet
        stage.pod_lives("a", phase="Running")
        took = await stage.until(lambda: node.told.about(ADDRESS_HIDDEN))
        print(f"told after {took:.1f} virtual seconds")
        for number in range(30):
            stage.pod_lives(f"b{number}", phase="Running")
        await asyncio.sleep(5 * LOOK_SECONDS)
        assert node.told.about(ADDRESS_HIDDEN) == ["Service web"]
        [(_, _, note)] = [each for each in node.told.events if each[0] == ADDRESS_HIDDEN]
        assert "edge-1" in note
        assert "hidden by the configuration" in note


@virtual_time
async def test_a_service_that_comes_later_and_one_that_is_made_anew_are_told() -> None:
    stage = NetworkStage()
    node = stage.virtual_node(HIDING)
    async with node.running():
        stage.pod_lives("a", phase="Running")
        await asyncio.sleep(30.0)
        stage.give_service()
        await stage.until(lambda: len(node.told.about(ADDRESS_HIDDEN)) == 1)
        stage.take_service()
        stage.give_service()
        await stage.until(lambda: len(node.told.about(ADDRESS_HIDDEN)) == 2)


@virtual_time
async def test_a_pod_that_shows_its_address_is_not_hidden() -> None:
    stage = NetworkStage()
    stage.give_service()
    node = stage.virtual_node(NetworkRules(addresses=AddressMode.HIDE))
    async with node.running():
        stage.pod_lives("a", phase="Running", address="10.42.0.7")
        await asyncio.sleep(3 * LOOK_SECONDS)
        assert node.told.about(ADDRESS_HIDDEN) == []


@virtual_time
async def test_before_anything_is_decided_nothing_is_told() -> None:
    stage = NetworkStage()
    stage.give_service()
    stage.target_reachable = False
    node = stage.virtual_node(NetworkRules())
    async with node.running():
        stage.pod_lives("a", phase="Running")
        await asyncio.sleep(3 * LOOK_SECONDS)
        assert node.told.about(ADDRESS_HIDDEN) == []
        stage.target_reachable = True  # nobody tells any range: hidden
        await stage.until(lambda: node.told.about(ADDRESS_HIDDEN), seconds=2 * LOOK_SECONDS)


@virtual_time
async def test_an_address_that_nobody_told_of_is_said_to_be_one() -> None:
    """Where addresses are shown, one that is not is told after a while, with its own reason."""
    stage = NetworkStage()
    stage.give_service()
    node = stage.virtual_node(NetworkRules())
    stage.add_node(stage.hub, "hub-1", pods="10.244.0.0/24", address="192.168.0.1")
    stage.add_node(stage.target, "edge-a", pods="10.42.0.0/24", address="192.168.0.2")
    for cluster, cidr in ((stage.hub, "10.96.0.0/12"), (stage.target, "10.43.0.0/16")):
        cluster.add(SERVICE_RANGES, {"metadata": {"name": "kubernetes"}, "spec": {"cidrs": [cidr]}})
    async with node.running():
        stage.pod_lives("a", phase="Running")
        await asyncio.sleep(SETTLE_SECONDS / 2)
        assert node.told.about(ADDRESS_HIDDEN) == []
        await stage.until(lambda: node.told.about(ADDRESS_HIDDEN), seconds=3 * LOOK_SECONDS)
        assert "none that edge-1 tells of" in node.told.events[0][2]


@virtual_time
async def test_many_services_are_told_a_few_at_a_time() -> None:
    stage = NetworkStage()
    for number in range(3 * TOLD_AT_ONCE):
        stage.give_service(f"web-{number}")
    node = stage.virtual_node(HIDING)
    async with node.running():
        await asyncio.sleep(0.5)
        stage.pod_lives("a", phase="Running")
        await stage.until(lambda: node.told.about(ADDRESS_HIDDEN))
        assert len(node.told.about(ADDRESS_HIDDEN)) <= TOLD_AT_ONCE
        await stage.until(lambda: len(node.told.about(ADDRESS_HIDDEN)) == 3 * TOLD_AT_ONCE)
        await asyncio.sleep(5 * LOOK_SECONDS)
        assert len(set(node.told.about(ADDRESS_HIDDEN))) == 3 * TOLD_AT_ONCE


@virtual_time
async def test_who_reflects_all_and_follows_nothing_watches_no_services() -> None:
    stage = NetworkStage()
    rules = NetworkRules(addresses=AddressMode.REFLECT, network_policies=NetworkPolicyMode.IGNORE)
    async with stage.virtual_node(rules).running():
        await asyncio.sleep(60.0)
    watched = {call.resource for call in stage.hub.calls if call.verb in ("list", "watch")}
    assert not watched & {SERVICES, NETWORK_POLICIES}


@virtual_time
async def test_what_is_only_told_of_is_watched_once_there_is_a_pod_to_tell_of() -> None:
    """An idle virtual node watches neither, and one that shows all addresses no Services."""
    stage = NetworkStage()

    def watched() -> set[Resource]:
        found = {call.resource for call in stage.hub.calls if call.verb in ("list", "watch")}
        return found & {SERVICES, NETWORK_POLICIES}

    async with stage.virtual_node(HIDING).running():
        await asyncio.sleep(3 * LOOK_SECONDS)
        assert watched() == set()
        stage.pod_lives("a", phase="Running", address="10.42.0.7")
        await asyncio.sleep(3 * LOOK_SECONDS)
        assert watched() == {NETWORK_POLICIES}
        stage.pod_lives("b", phase="Running")
        await stage.until(lambda: watched() == {NETWORK_POLICIES, SERVICES})


@pytest.mark.parametrize(
    "rules",
    [
        NetworkRules(network_policies=NetworkPolicyMode.REFUSE),
        NetworkRules(follow=FollowMode.LABELLED),
    ],
)
@virtual_time
async def test_what_pods_wait_for_is_watched_from_the_start(rules: NetworkRules) -> None:
    stage = NetworkStage()
    wanted = NETWORK_POLICIES if rules.follow is FollowMode.IGNORE else SERVICES
    async with stage.virtual_node(rules).running():
        await asyncio.sleep(5.0)
        assert wanted in {call.resource for call in stage.hub.calls if call.verb == "watch"}


# -- policies --------------------------------------------------------------------------------------


@virtual_time
async def test_c33_a_policy_that_selects_a_mirrored_pod_is_told_once() -> None:
    stage = NetworkStage()
    give_policy(stage, "web", app="web")
    give_policy(stage, "db", app="db")
    node = stage.virtual_node(HIDING)
    async with node.running() as network:
        for number in range(5):
            stage.pod_lives(f"a{number}")
        await stage.until(lambda: node.told.about(NOT_ENFORCED))
        await asyncio.sleep(3 * LOOK_SECONDS)
        assert node.told.about(NOT_ENFORCED) == ["NetworkPolicy web"]
        assert network.refusal(pod("a0").with_labels(WEB_LABELS).build()) is None


@virtual_time
async def test_c33_a_pod_that_a_policy_selects_may_be_refused() -> None:
    """It is woken when the policy goes, or is known not to be there."""
    stage = NetworkStage()
    node = stage.virtual_node(REFUSING)
    web = pod("a").with_labels(WEB_LABELS).build()
    refused = node.network.refusal(web)
    assert refused is not None
    assert refused.reason == PodReason.NETWORK_POLICIES_UNKNOWN
    async with node.running() as network:
        await stage.until(lambda: ObjectKey("default", "a") in node.woken)
        assert network.refusal(web) is None
        give_policy(stage, "web", app="web")
        await asyncio.sleep(1.0)
        refused = network.refusal(web)
        assert refused is not None
        assert refused.reason == NOT_ENFORCED
        assert network.refusal(pod("b").with_labels({"app": "db"}).build()) is None
        node.woken.clear()
        stage.hub.delete_by_user(NETWORK_POLICIES, ObjectKey("default", "web"))
        await stage.until(lambda: node.woken == [ObjectKey("default", "a")])
        assert network.refusal(web) is None
        node.woken.clear()
        give_policy(stage, "other", app="db")
        await asyncio.sleep(1.0)
        assert node.woken == []  # nobody waits any more


@virtual_time
async def test_policies_that_may_not_be_read_refuse_all_with_the_reason() -> None:
    stage = NetworkStage()
    stage.fault_of = lambda call: (
        Refuse(Forbidden("no", status=403)) if call.resource == NETWORK_POLICIES else None
    )
    node = stage.virtual_node(REFUSING)
    async with node.running() as network:
        await asyncio.sleep(5.0)
        refused = network.refusal(pod("a").build())
        assert refused is not None
        assert "federate rbac" in refused.message


@virtual_time
async def test_policies_that_may_not_be_read_any_more_refuse_all_until_they_may_be() -> None:
    """What was read before says nothing of now; an outage of the hub between changes nothing."""
    stage = NetworkStage()
    node = stage.virtual_node(REFUSING)
    web = pod("a").with_labels(WEB_LABELS).build()

    def refuse(error: ClusterError) -> None:
        stage.fault_of = lambda c: Refuse(error) if c.resource == NETWORK_POLICIES else None

    async with node.running() as network:
        await stage.until(lambda: network.policies.is_known)
        assert network.refusal(web) is None
        refuse(Forbidden("no", status=403))
        await stage.until(lambda: not network.policies.is_known, seconds=2 * WATCH_SECONDS)
        refused = network.refusal(web)
        assert refused is not None
        assert refused.reason == PodReason.NETWORK_POLICIES_UNKNOWN
        assert "federate rbac" in refused.message
        refuse(Unreachable("no answer"))
        await asyncio.sleep(2 * MOST_BACK_OFF_SECONDS)
        assert not network.policies.is_known
        node.woken.clear()
        stage.fault_of = lambda _call: None
        # The watch is taken up again, and heard of at its end; of a real server earlier, by a
        # bookmark.
        await stage.until(
            lambda: ObjectKey("default", "a") in node.woken, seconds=2 * WATCH_SECONDS
        )
        assert network.refusal(web) is None


@virtual_time
async def test_an_outage_leaves_policies_as_they_were_read() -> None:
    stage = NetworkStage()
    node = stage.virtual_node(REFUSING)
    async with node.running() as network:
        await stage.until(lambda: network.policies.is_known)
        stage.fault_of = lambda _call: Refuse(Unreachable("no answer"))
        await stage.until(lambda: network.policies.is_failing, seconds=2 * WATCH_SECONDS)
        assert network.refusal(pod("a").build()) is None


@pytest.mark.parametrize("follow", [FollowMode.IGNORE, FollowMode.ALL])
@virtual_time
async def test_an_event_says_what_may_help(follow: FollowMode) -> None:
    stage = NetworkStage()
    stage.give_service()
    node = stage.virtual_node(NetworkRules(addresses=AddressMode.HIDE, follow=follow))
    async with node.running():
        stage.pod_lives("a", phase="Running")
        await stage.until(lambda: node.told.about(ADDRESS_HIDDEN))
        [note] = [note for reason, _, note in node.told.events if reason == ADDRESS_HIDDEN]
        assert ("where Services follow" in note) is (follow is FollowMode.IGNORE)
