"""Pods learn where the names of the hub's API server lead, and whatever happens they start."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from federate.cluster.store import Change
from federate.companions.environment import Advertised
from federate.companions.holding import Hold
from federate.errors import (
    ClusterError,
    Conflict,
    Forbidden,
    LeadershipLost,
    Rejected,
    ServerFault,
    Unauthorized,
    Unreachable,
)
from federate.model.marks import COMPANION_LABEL, HUB_LABEL, Scope
from federate.model.naming import anchor_name, prefixed_namespace
from federate.model.objects import JsonDict, ObjectKey, spec_of, uid_of
from federate.model.reasons import PodReason
from federate.model.resources import CONFIGMAPS, ENDPOINT_SLICES, SERVICES, Resource
from federate.services.door import DoorReason, door_name
from federate.services.doors import (
    BLOCKED_SECONDS,
    ISSUER_PATH,
    LOOK_SECONDS,
    PATIENCE_SECONDS,
    RESOLVE_SECONDS,
    SETTLE_SECONDS,
    TRIES,
)
from federate.services.hubnames import UNLED, USUAL_DOMAIN, HubApi
from federate.services.rules import AddressMode, FollowMode, NetworkPolicyMode, NetworkRules
from tests.support.clock import virtual_time
from tests.support.fakeclient import Call, Crash, CrashAfter, CrashBefore, Fault, LostReply, Refuse
from tests.support.networkstage import NetworkStage, VirtualNodeStage
from tests.support.scene import ANCHOR, SCOPE, TARGET_NAMESPACE

RULES = NetworkRules(addresses=AddressMode.REFLECT, network_policies=NetworkPolicyMode.IGNORE)
BY_ADDRESS = Advertised(host="192.0.2.1", port=6443)
BY_NAME = Advertised(host="hub.example.org", port=6443)
STRAIGHT = Advertised(host="192.0.2.1", port=443)
DOOR = ObjectKey(TARGET_NAMESPACE, door_name(SCOPE))
BOTH = (SERVICES, ENDPOINT_SLICES)
MADE = ["create EndpointSlice", "create Service", "patch EndpointSlice"]


def node_of(stage: NetworkStage, advertised: Advertised = BY_ADDRESS) -> VirtualNodeStage:
    return stage.virtual_node(RULES, advertised=advertised)


def asks(node: VirtualNodeStage, name: str, namespace: str = TARGET_NAMESPACE) -> Hold | None:
    """A pod that is about to have its mirror asks."""
    return node.network.hold(hub_pod_of(name), namespace)


async def led(stage: NetworkStage, node: VirtualNodeStage, name: str = "a") -> HubApi:
    """A pod asks until it need not wait any more; returns where its names lead."""
    await stage.until(lambda: asks(node, name) is None, seconds=120.0)
    api = node.network.hub_api(TARGET_NAMESPACE)
    assert api is not None
    node.network.on_made(hub_pod_of(name), TARGET_NAMESPACE)
    return api


def hub_pod_of(name: str) -> JsonDict:
    return {"metadata": {"namespace": "default", "name": name, "uid": f"uid-{name}"}}


def address(stage: NetworkStage) -> str:
    return str(spec_of(stage.target.read(SERVICES, DOOR))["clusterIP"])


def leads_to(stage: NetworkStage) -> list[str]:
    endpoints = stage.target.read(ENDPOINT_SLICES, DOOR)["endpoints"]
    return [one for each in endpoints for one in each["addresses"]]


def writes(stage: NetworkStage) -> list[str]:
    return [f"{c.verb} {c.resource.kind}" for c in stage.target.writes() if c.resource in BOTH]


def told(node: VirtualNodeStage) -> list[str]:
    missing = PodReason.HUB_NAMES_MISSING
    return [note.partition(":")[0] for r, _, note in node.told.events if r == missing]


def refusing(error: ClusterError, *resources: Resource, verb: str = "") -> object:
    def fault(call: Call) -> Fault | None:
        is_meant = call.resource in resources and verb in ("", call.verb)
        return Refuse(error) if is_meant else None

    return fault


FORBIDDEN = Forbidden('services is forbidden: User "federate" cannot create', status=403)


# -- how it comes ----------------------------------------------------------------------------------


@virtual_time
async def test_the_first_pod_waits_for_the_door_and_is_woken() -> None:
    stage = NetworkStage()
    anchor = stage.lay_ground()
    node = node_of(stage)
    async with node.running():
        await asyncio.sleep(0.1)
        hold = asks(node, "a")
        assert hold is not None
        assert [str(one) for one in hold.coming] == [
            f"the Service of namespace {TARGET_NAMESPACE} for the hub's API server"
        ]
        assert node.network.hub_api(TARGET_NAMESPACE) is None
        took = await stage.until(lambda: node.woken == [ObjectKey("default", "a")])
        print(f"there after {took:.2f} virtual seconds")
        assert SETTLE_SECONDS <= took < SETTLE_SECONDS + 1.0
        assert asks(node, "a") is None
        assert node.network.hub_api(TARGET_NAMESPACE) == HubApi(address(stage))
        assert leads_to(stage) == ["192.0.2.1"]
        for resource in BOTH:
            owners = stage.target.read(resource, DOOR)["metadata"]["ownerReferences"]
            assert [owner["uid"] for owner in owners] == [uid_of(anchor)]
        assert writes(stage) == MADE
        assert told(node) == []


@pytest.mark.parametrize("change", [{"endpoints": []}, {"ports": []}])
@virtual_time
async def test_c31_no_pod_is_led_to_a_door_before_the_nodes_know_it(change: JsonDict) -> None:
    """A packet to a Service that they do not know goes to a stranger; one that stood is known."""
    stage = NetworkStage()
    stage.lay_ground()
    node = node_of(stage)
    async with node.running() as network:
        await stage.until(lambda: asks(node, "a") is not None and stage.target.find(SERVICES, DOOR))
        made_at = stage.clock()
        while asks(node, "a") is not None:
            assert stage.clock() < made_at + SETTLE_SECONDS + 1.0
            assert network.hub_api(TARGET_NAMESPACE) is None
            await asyncio.sleep(0.05)
        assert stage.clock() >= made_at + SETTLE_SECONDS - 0.1
        reads = [c for c in stage.target.calls if c.resource in BOTH and not c.is_write]
        assert len(reads) <= 6
        stage.pod_lives("a")
        stage.target.edit(ENDPOINT_SLICES, DOOR, lambda obj: obj.update(change))
        network.wake_all()
        await stage.until(lambda: leads_to(stage) == ["192.0.2.1"] and asks(node, "b") is not None)
        mended_at = stage.clock()
        await led(stage, node, "b")
        assert stage.clock() >= mended_at + SETTLE_SECONDS - 0.2
    node = node_of(stage)
    async with node.running():
        await asyncio.sleep(0.1)
        began_at = stage.clock()
        await led(stage, node, "c")
        assert stage.clock() < began_at + 1.0


@virtual_time
async def test_more_pods_cost_nothing_more() -> None:
    stage = NetworkStage()
    stage.lay_ground()
    node = node_of(stage)
    async with node.running():
        await led(stage, node)
        for number in range(100):
            stage.pod_lives(f"p{number}")
            assert asks(node, f"p{number}") is None
        await asyncio.sleep(10 * LOOK_SECONDS)
        assert writes(stage) == MADE
        reads = [c for c in stage.target.calls if c.resource in BOTH and not c.is_write]
        print([round(c.sent_at) for c in reads])
        assert len(reads) <= 2 * 15


@virtual_time
async def test_an_address_that_is_dialled_as_it_is_takes_no_request_at_all() -> None:
    stage = NetworkStage()
    node = node_of(stage, STRAIGHT)
    async with node.running():
        await asyncio.sleep(0.1)
        assert asks(node, "a") is None
        assert node.network.hub_api("anywhere") == HubApi("192.0.2.1")
        await asyncio.sleep(LOOK_SECONDS)
        assert [call for call in stage.target.calls if call.resource in BOTH] == []


@virtual_time
async def test_without_identity_hub_nothing_is_led_anywhere() -> None:
    stage = NetworkStage()
    stage.lay_ground()
    node = stage.virtual_node(RULES)
    async with node.running() as network:
        stage.pod_lives("a")
        await asyncio.sleep(LOOK_SECONDS)
        assert asks(node, "a") is None
        assert network.hub_api(TARGET_NAMESPACE) == UNLED
        assert [call for call in stage.target.calls if call.resource in BOTH] == []
        assert not [call for call in stage.hub.calls if call.resource.plural == ISSUER_PATH]


@virtual_time
async def test_nothing_is_made_before_the_first_mirror_made_the_ground() -> None:
    stage = NetworkStage()
    node = node_of(stage)
    async with node.running() as network:
        await asyncio.sleep(0.1)
        assert asks(node, "a") is not None
        await asyncio.sleep(LOOK_SECONDS)
        assert [call for call in stage.target.calls if call.resource in BOTH] == []
        assert network.hub_api(TARGET_NAMESPACE) is None
        stage.lay_ground()
        assert await led(stage, node) == HubApi(address(stage))


@virtual_time
async def test_c22_a_forged_record_leads_nowhere() -> None:
    """Who may annotate a pod could name any namespace of the target."""
    stage = NetworkStage()
    stage.lay_ground()
    elsewhere = prefixed_namespace(SCOPE.hub_id, "other")
    stage.target.add_namespace(elsewhere)
    anchor = {"metadata": {"namespace": elsewhere, "name": anchor_name(SCOPE), "uid": "there"}}
    stage.target.add(CONFIGMAPS, anchor)
    node = node_of(stage)
    async with node.running():
        stage.pod_lives("a", target_namespace=elsewhere)
        stage.pod_lives("b", target_namespace="kube-system")
        await asyncio.sleep(2 * LOOK_SECONDS)
        assert [call for call in stage.target.calls if call.resource in BOTH] == []


@virtual_time
async def test_pods_that_run_have_their_door_looked_after_by_the_next_process() -> None:
    stage = NetworkStage()
    stage.lay_ground()
    first = node_of(stage)
    async with first.running():
        before = await led(stage, first)
        stage.pod_lives("a")
    stage.target.delete_by_user(ENDPOINT_SLICES, DOOR)
    async with node_of(stage).running():
        await stage.until(lambda: stage.target.find(ENDPOINT_SLICES, DOOR))
        assert address(stage) == before.address


@virtual_time
async def test_it_stays_while_nobody_uses_it() -> None:
    """Mirrors that come later have the same address, and a late delete cannot hit them."""
    stage = NetworkStage()
    stage.lay_ground()
    node = node_of(stage)
    async with node.running() as network:
        before = await led(stage, node)
        stage.pod_lives("a")
        await asyncio.sleep(LOOK_SECONDS)
        stage.pod_goes("a")
        await asyncio.sleep(10 * LOOK_SECONDS)
        assert network.hub_api(TARGET_NAMESPACE) is None  # to be looked at again
        assert await led(stage, node, "b") == before
        assert writes(stage) == MADE


@virtual_time
async def test_who_leaves_makes_none() -> None:
    stage = NetworkStage()
    stage.lay_ground()
    stage.is_leaving = True
    node = node_of(stage)
    async with node.running():
        asks(node, "a")
        await asyncio.sleep(LOOK_SECONDS)
        assert writes(stage) == []


# -- what goes wrong -------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["get", "create"])
@pytest.mark.parametrize("resource", BOTH)
@pytest.mark.parametrize(
    "error", [FORBIDDEN, Rejected("no", status=422), ServerFault("webhook", status=500)]
)
@virtual_time
async def test_a_pod_starts_where_the_target_refuses_and_one_event_tells_of_it(
    error: ClusterError, resource: Resource, verb: str
) -> None:
    stage = NetworkStage()
    stage.lay_ground()
    stage.fault_of = refusing(error, resource, verb=verb)  # type: ignore[assignment]
    node = node_of(stage)
    async with node.running():
        for name in ("a", "b"):
            assert await led(stage, node, name) == UNLED
            stage.pod_lives(name)
        assert told(node) == [DoorReason.SERVICE_REFUSED]
        [(_, about, note)] = node.told.events
        assert about == "Pod a"
        assert error.detail in note
        assert "edge-1" in note
        stage.fault_of = lambda _call: None
        await asyncio.sleep(2 * BLOCKED_SECONDS)
        assert (await led(stage, node, "c")).address == address(stage)
        assert told(node) == [DoorReason.SERVICE_REFUSED]


@virtual_time
async def test_what_may_pass_is_waited_for() -> None:
    stage = NetworkStage()
    stage.lay_ground()
    stage.fault_of = refusing(ServerFault("later", status=503), SERVICES)  # type: ignore[assignment]
    node = node_of(stage)
    async with node.running():
        await asyncio.sleep(0.1)
        for _ in range(30):
            assert asks(node, "a") is not None
            await asyncio.sleep(1.0)
        stage.fault_of = lambda _call: None
        assert (await led(stage, node)).address == address(stage)
        assert told(node) == []


@pytest.mark.parametrize("resource", BOTH)
@pytest.mark.parametrize("labels", [{}, {HUB_LABEL: "other-hub", COMPANION_LABEL: "hub-api"}])
@virtual_time
async def test_c20_a_stranger_of_that_name_stays_untouched(
    resource: Resource, labels: dict[str, str]
) -> None:
    stage = NetworkStage()
    stage.lay_ground()
    body = {"metadata": {**DOOR._asdict(), "labels": labels}, "spec": {"clusterIP": "10.97.9.9"}}
    stranger = stage.target.add(resource, body)
    node = node_of(stage)
    async with node.running():
        assert await led(stage, node) == UNLED
        stage.pod_lives("a")
        await asyncio.sleep(10 * LOOK_SECONDS)
        assert stage.target.read(resource, DOOR) == stranger
        assert told(node) == [DoorReason.NAME_TAKEN]
        assert writes(stage) == []
        stage.target.delete_by_user(resource, DOOR)
        await asyncio.sleep(2 * BLOCKED_SECONDS)
        assert (await led(stage, node, "b")).address == address(stage)


@virtual_time
async def test_what_somebody_deletes_comes_back_with_the_address_that_mirrors_have() -> None:
    stage = NetworkStage()
    stage.lay_ground()
    node = node_of(stage)
    async with node.running():
        before = await led(stage, node)
        stage.pod_lives("a")
        for resource in BOTH:
            stage.target.delete_by_user(resource, DOOR)
        took = await stage.until(
            lambda: stage.target.find(SERVICES, DOOR), seconds=2 * LOOK_SECONDS
        )
        print(f"back after {took:.0f} virtual seconds")
        assert address(stage) == before.address


@pytest.mark.parametrize("times", [1, 3])
@virtual_time
async def test_c70_what_changed_under_a_write_is_looked_at_anew(times: int) -> None:
    """More than once in a round, it is tried again a moment later."""
    stage = NetworkStage()
    stage.lay_ground()
    node = node_of(stage)
    async with node.running() as network:
        before = await led(stage, node)
        stage.pod_lives("a")
        stage.target.edit(ENDPOINT_SLICES, DOOR, lambda obj: obj.update(endpoints=[]))
        struck: list[Call] = []

        def fault(call: Call) -> Fault | None:
            is_meant = call.verb == "patch" and call.resource == ENDPOINT_SLICES
            if not is_meant or len(struck) == times:
                return None
            struck.append(call)
            return Refuse(Conflict("the object has been modified", status=409))

        stage.fault_of = fault
        network.wake_all()
        await stage.until(lambda: leads_to(stage) == ["192.0.2.1"])
        assert len(struck) == times
        assert await led(stage, node, "b") == before
        assert told(node) == []


@virtual_time
async def test_an_anchor_that_comes_back_has_its_door_looked_at_at_once() -> None:
    stage = NetworkStage()
    stage.lay_ground()
    node = node_of(stage)
    async with node.running() as network:
        await led(stage, node)
        stage.pod_lives("a")
        stage.target.delete_by_user(CONFIGMAPS, ANCHOR)
        stage.target.collect_garbage()
        anchor = stage.lay_ground()
        for old, new in ((anchor, anchor), (None, anchor)):  # the first is no news
            network.on_anchor(Change(key=ANCHOR, old=old, new=new))
        network.on_anchor(Change(key=ObjectKey("elsewhere", ANCHOR.name), old=None, new=anchor))
        assert await stage.until(lambda: stage.target.find(SERVICES, DOOR)) < 1.0


@virtual_time
async def test_c31_the_next_process_asks_for_the_address_that_mirrors_have() -> None:
    """The EndpointSlice outlives the Service, and says it."""
    stage = NetworkStage()
    stage.lay_ground()
    async with node_of(stage).running():
        before = await led(stage, stage.nodes[0])
        stage.pod_lives("a")
    stage.target.delete_by_user(SERVICES, DOOR)
    for name in ("x", "y"):
        metadata = {"namespace": TARGET_NAMESPACE, "name": name}
        free = {"clusterIP": f"10.97.0.9{len(name)}"}
        stage.target.add(SERVICES, {"metadata": metadata, "spec": free})
    async with node_of(stage).running():
        await stage.until(lambda: stage.target.find(SERVICES, DOOR), seconds=2 * LOOK_SECONDS)
        assert address(stage) == before.address


@virtual_time
async def test_what_is_ending_is_waited_for_a_while() -> None:
    """A moment, as a rule; who holds it for ever is told."""
    stage = NetworkStage()
    stage.lay_ground()
    async with node_of(stage).running():
        before = await led(stage, stage.nodes[0])
    holding = {"finalizers": ["example.com/hold"]}
    stage.target.edit(SERVICES, DOOR, lambda obj: obj["metadata"].update(holding))
    stage.target.delete_by_user(SERVICES, DOOR)
    node = node_of(stage)
    async with node.running():
        await asyncio.sleep(10.0)
        assert asks(node, "a") is not None
        stage.target.store.remove(SERVICES, DOOR)  # whoever held it lets it go
        assert await led(stage, node) == before
        assert told(node) == []
        stage.pod_lives("a")
        stage.target.edit(SERVICES, DOOR, lambda obj: obj["metadata"].update(holding))
        stage.target.delete_by_user(SERVICES, DOOR)
        await asyncio.sleep(10.0)
        assert asks(node, "b") is not None
        assert await led(stage, node, "b") == UNLED
        assert told(node) == [DoorReason.SERVICE_ENDING]


@virtual_time
async def test_c30_a_followed_service_cannot_take_the_name() -> None:
    """A user of the hub could else keep the door out, for all tenants of the namespace."""
    stage = NetworkStage()
    stage.lay_ground()
    following = NetworkRules(addresses=AddressMode.REFLECT, follow=FollowMode.ALL)
    stage.give_service(DOOR.name)
    async with stage.virtual_node(following).running():
        stage.pod_lives("a")
        await asyncio.sleep(LOOK_SECONDS)
        assert stage.target.find(SERVICES, DOOR) is None
    node = stage.virtual_node(following, advertised=BY_ADDRESS)
    async with node.running():
        assert await led(stage, node) == HubApi(address(stage))


@pytest.mark.parametrize("resource", BOTH)
@virtual_time
async def test_a_right_to_look_that_is_taken_away_leads_nobody_astray(resource: Resource) -> None:
    """The door stands; only nobody puts it right."""
    stage = NetworkStage()
    stage.lay_ground()
    node = node_of(stage)
    async with node.running():
        before = await led(stage, node)
        stage.pod_lives("a")
        stage.fault_of = refusing(FORBIDDEN, resource)  # type: ignore[assignment]
        await asyncio.sleep(5 * LOOK_SECONDS)
        assert await led(stage, node, "b") == before
        assert told(node) == []


@virtual_time
async def test_pods_that_wait_do_not_defeat_the_back_off() -> None:
    stage = NetworkStage()
    stage.lay_ground()
    stage.fault_of = refusing(ServerFault("later", status=503), SERVICES)  # type: ignore[assignment]
    node = node_of(stage)
    async with node.running():
        await asyncio.sleep(0.1)
        for number in range(3000):
            asks(node, f"p{number % 300}")
            await asyncio.sleep(0.2)
        calls = [call for call in stage.target.calls if call.resource in BOTH]
        print(f"{len(calls)} requests in 600 s")
        assert len(calls) < 60


@virtual_time
async def test_only_a_pod_that_got_its_mirror_is_told() -> None:
    stage = NetworkStage()
    stage.lay_ground()
    stage.fault_of = refusing(FORBIDDEN, SERVICES)  # type: ignore[assignment]
    node = node_of(stage)
    async with node.running() as network:
        await stage.until(lambda: asks(node, "refused") is None)
        assert told(node) == []
        network.on_made(hub_pod_of("a"), TARGET_NAMESPACE)
        network.on_made(hub_pod_of("b"), TARGET_NAMESPACE)
        assert node.told.about(PodReason.HUB_NAMES_MISSING) == ["Pod a"]


@virtual_time
async def test_c13_who_leads_no_more_takes_nothing_back() -> None:
    stage = NetworkStage()
    stage.lay_ground()
    create = stage.target.create
    node = node_of(stage)

    def stripping(which: Resource, body: JsonDict, key: ObjectKey | None = None) -> JsonDict:
        node.fenced = LeadershipLost("another leads")
        return create(which, {**body, "metadata": {**body["metadata"], "labels": {}}}, key)

    stage.target.create = stripping  # type: ignore[assignment, method-assign]
    with pytest.raises(LeadershipLost):
        async with node.running():
            await asyncio.sleep(0.1)
            asks(node, "a")
            await asyncio.sleep(5.0)
    assert writes(stage) == ["create EndpointSlice"]


@virtual_time
async def test_an_address_that_was_given_away_is_let_go_and_told() -> None:
    stage = NetworkStage()
    stage.lay_ground()
    node = node_of(stage)
    async with node.running():
        before = await led(stage, node)
        stage.pod_lives("a")
        stage.target.delete_by_user(SERVICES, DOOR)
        taking = {"namespace": TARGET_NAMESPACE, "name": "other"}
        stage.target.add(SERVICES, {"metadata": taking, "spec": {"clusterIP": before.address}})
        await stage.until(lambda: stage.target.find(SERVICES, DOOR), seconds=2 * LOOK_SECONDS)
        assert address(stage) != before.address
        await asyncio.sleep(1.0)
        assert (await led(stage, node, "b")).address == address(stage)
        assert told(node) == [DoorReason.ADDRESS_LOST]
        [(_, about, note)] = node.told.events
        assert about == "Pod b"
        assert before.address in note
        assert (await led(stage, node, "c")).address == address(stage)
        assert len(told(node)) == 1


@pytest.mark.parametrize("resource", BOTH)
@virtual_time
async def test_what_comes_back_without_marks_is_taken_back(resource: Resource) -> None:
    stage = NetworkStage()
    stage.lay_ground()
    create = stage.target.create

    def stripping(which: Resource, body: JsonDict, key: ObjectKey | None = None) -> JsonDict:
        if which == resource:
            body = {**body, "metadata": {**body["metadata"], "labels": {}}}
        return create(which, body, key)

    stage.target.create = stripping  # type: ignore[assignment, method-assign]
    node = node_of(stage)
    async with node.running():
        assert await led(stage, node) == UNLED
        assert told(node) == [DoorReason.MARKS_REMOVED]
        assert stage.target.find(resource, DOOR) is None


@virtual_time
async def test_who_undoes_what_is_written_is_not_written_against_for_ever() -> None:
    stage = NetworkStage()
    stage.lay_ground()
    patch = stage.target.patch

    def undone(which: Resource, key: ObjectKey, *args: object, **more: object) -> JsonDict:
        made = patch(which, key, *args, **more)  # type: ignore[arg-type]
        if which == ENDPOINT_SLICES:
            return stage.target.edit(which, key, lambda obj: obj.update(endpoints=[]))
        return made

    node = node_of(stage)
    async with node.running():
        await led(stage, node)
        stage.pod_lives("a")
        stage.target.patch = undone  # type: ignore[assignment, method-assign]
        stage.target.edit(ENDPOINT_SLICES, DOOR, lambda obj: obj.update(endpoints=[]))
        before = len(writes(stage))
        await asyncio.sleep(LOOK_SECONDS + 10 * BLOCKED_SECONDS)
        assert 1 <= len(writes(stage)) - before <= 12 * 15
        assert await led(stage, node, "b") == UNLED
        assert told(node) == [DoorReason.SERVICE_REFUSED]


@pytest.mark.parametrize("resource", BOTH)
@pytest.mark.parametrize("how", [CrashBefore(), CrashAfter(), LostReply()])
@virtual_time
async def test_c70_whoever_dies_over_a_create_the_next_one_finds_it(
    how: Fault, resource: Resource
) -> None:
    stage = NetworkStage()
    stage.lay_ground()
    struck: list[Call] = []

    def fault(call: Call) -> Fault | None:
        if call.verb == "create" and call.resource == resource and not struck:
            struck.append(call)
            return how
        return None

    stage.fault_of = fault
    with suppress(Crash, BaseExceptionGroup, TimeoutError):
        node = node_of(stage)
        async with node.running():
            await led(stage, node)
    assert struck
    node = node_of(stage)
    async with node.running():
        assert (await led(stage, node)).address == address(stage)
        assert leads_to(stage) == ["192.0.2.1"]
        made = [one for which, one in stage.target.store.all() if which in BOTH]
        assert len(made) == 2


@virtual_time
async def test_another_virtual_node_has_a_door_of_its_own() -> None:
    stage = NetworkStage()
    other = Scope(hub_id=SCOPE.hub_id, node_name="edge-2")
    first, second = node_of(stage), stage.virtual_node(RULES, other, advertised=BY_ADDRESS)
    for scope in (SCOPE, other):
        stage.lay_ground(scope)
    async with first.running(), second.running():
        assert await led(stage, first) != await led(stage, second)


@virtual_time
async def test_a_new_anchor_takes_the_door_over() -> None:
    stage = NetworkStage()
    stage.lay_ground()
    node = node_of(stage)
    async with node.running():
        await led(stage, node)
        stage.pod_lives("a")
        stage.target.delete_by_user(CONFIGMAPS, ANCHOR)
        stage.target.collect_garbage()
        assert stage.target.find(SERVICES, DOOR) is None
        anchor = stage.lay_ground()
        await stage.until(lambda: stage.target.find(SERVICES, DOOR), seconds=2 * LOOK_SECONDS)
        owners = stage.target.read(SERVICES, DOOR)["metadata"]["ownerReferences"]
        assert [owner["uid"] for owner in owners] == [uid_of(anchor)]


# -- a hub that has a name -------------------------------------------------------------------------


@virtual_time
async def test_a_name_is_resolved_and_where_it_leads_is_followed() -> None:
    stage = NetworkStage()
    stage.lay_ground()
    stage.dns["hub.example.org"] = ("203.0.113.8", "203.0.113.7", "2001:db8::7")
    node = node_of(stage, BY_NAME)
    async with node.running():
        before = await led(stage, node)
        assert leads_to(stage) == ["203.0.113.7", "203.0.113.8"]
        stage.pod_lives("a")
        stage.dns["hub.example.org"] = ("203.0.113.9",)
        took = await stage.until(
            lambda: leads_to(stage) == ["203.0.113.9"], seconds=2 * RESOLVE_SECONDS
        )
        print(f"followed after {took:.0f} virtual seconds")
        del stage.dns["hub.example.org"]
        await asyncio.sleep(5 * RESOLVE_SECONDS)
        assert leads_to(stage) == ["203.0.113.9"]
        assert await led(stage, node, "b") == before
        assert told(node) == []


@virtual_time
async def test_c31_a_lost_answer_of_the_dns_takes_no_address_of_running_mirrors() -> None:
    """Where only the other family is left, for a while or for good, the door stays as it is."""
    stage = NetworkStage()
    stage.lay_ground()
    stage.dns["hub.example.org"] = ("203.0.113.7", "2001:db8::7")
    node = node_of(stage, BY_NAME)
    async with node.running():
        before = await led(stage, node)
        stage.pod_lives("a")
        stage.dns["hub.example.org"] = ("2001:db8::7",)
        await asyncio.sleep(3 * RESOLVE_SECONDS)
        assert leads_to(stage) == ["203.0.113.7"]
        stage.dns["hub.example.org"] = ("203.0.113.8", "2001:db8::7")
        await asyncio.sleep(3 * RESOLVE_SECONDS)
        assert leads_to(stage) == ["203.0.113.8"]
        assert await led(stage, node, "b") == before
        assert "delete Service" not in writes(stage)


@virtual_time
async def test_another_family_that_is_written_down_has_another_door() -> None:
    """Neither a Service nor an EndpointSlice can change its family."""
    stage = NetworkStage()
    stage.lay_ground()
    async with node_of(stage).running():
        await led(stage, stage.nodes[0])
        stage.pod_lives("a")
    node = node_of(stage, Advertised(host="2001:db8::7", port=6443))
    async with node.running():
        api = await led(stage, node)
        assert leads_to(stage) == ["2001:db8::7"]
        assert api == HubApi(address(stage))
        assert address(stage).startswith("fd97::")
        assert told(node) == []


@virtual_time
async def test_a_dns_that_does_not_answer_holds_up_no_namespace_for_long() -> None:
    """One question for all who ask, each with an end."""
    stage = NetworkStage()
    spaces = [prefixed_namespace(SCOPE.hub_id, f"ns{number}") for number in range(20)]
    for name in spaces:
        stage.target.add_namespace(name)
        metadata = {"namespace": name, "name": ANCHOR.name, "labels": SCOPE.labels()}
        stage.target.add(CONFIGMAPS, {"metadata": metadata})

    async def silent(host: str) -> tuple[str, ...]:
        stage.resolved.append(host)
        await asyncio.sleep(3600.0)
        return ()

    stage.resolve = silent  # type: ignore[method-assign]
    node = node_of(stage, BY_NAME)
    async with node.running():
        await asyncio.sleep(0.1)
        took = await stage.until(
            lambda: sum(asks(node, "a", name) is not None for name in spaces) == 0, seconds=60.0
        )
        print(f"all may start after {took:.0f} virtual seconds")
        assert len(stage.resolved) == TRIES


@virtual_time
async def test_where_a_door_stands_nobody_waits_for_the_dns() -> None:
    stage = NetworkStage()
    stage.lay_ground()
    stage.dns["hub.example.org"] = ("203.0.113.7",)
    async with node_of(stage, BY_NAME).running():
        before = await led(stage, stage.nodes[0])
        stage.pod_lives("a")
    stage.dns.clear()
    stage.resolved.clear()
    node = node_of(stage, BY_NAME)
    async with node.running():
        assert await led(stage, node, "b") == before
        assert stage.resolved == []
        stage.dns["hub.example.org"] = ("203.0.113.9",)
        await stage.until(lambda: leads_to(stage) == ["203.0.113.9"], seconds=2 * RESOLVE_SECONDS)


@virtual_time
async def test_pods_start_where_the_name_does_not_resolve() -> None:
    stage = NetworkStage()
    stage.lay_ground()
    node = node_of(stage, BY_NAME)
    async with node.running():
        assert await led(stage, node) == UNLED
        assert len(stage.resolved) == TRIES
        assert told(node) == [DoorReason.ADDRESS_UNKNOWN]
        assert writes(stage) == []
        stage.pod_lives("a")
        stage.dns["hub.example.org"] = ("203.0.113.7",)
        await asyncio.sleep(2 * BLOCKED_SECONDS)
        assert (await led(stage, node, "b")).address == address(stage)


@virtual_time
async def test_nobody_asks_the_dns_for_no_pods() -> None:
    stage = NetworkStage()
    node = node_of(stage, BY_NAME)
    async with node.running():
        await asyncio.sleep(20 * RESOLVE_SECONDS)
        assert stage.resolved == []


# -- the hub's cluster domain ----------------------------------------------------------------------


@pytest.mark.parametrize("advertised", [BY_ADDRESS, STRAIGHT])
@virtual_time
async def test_the_hub_tells_its_domain(advertised: Advertised) -> None:
    stage = NetworkStage()
    stage.lay_ground()
    stage.hub.documents[ISSUER_PATH] = {"issuer": "https://kubernetes.default.svc.corp.example"}
    node = node_of(stage, advertised)
    async with node.running():
        assert (await led(stage, node)).domain == "corp.example"


@virtual_time
async def test_a_hub_that_does_not_let_us_ask_has_the_usual_one() -> None:
    stage = NetworkStage()
    stage.fault_of = lambda call: (
        Refuse(Forbidden("no", status=403)) if call.resource.plural == ISSUER_PATH else None
    )
    node = node_of(stage, STRAIGHT)
    async with node.running():
        assert await led(stage, node) == HubApi("192.0.2.1", USUAL_DOMAIN)


@pytest.mark.parametrize(
    "error",
    [Unreachable("down"), ServerFault("starting", status=500), Unauthorized("who?", status=401)],
)
@virtual_time
async def test_a_hub_that_does_not_answer_is_waited_for(error: ClusterError) -> None:
    """It may be starting; the usual domain is taken after a while, and its own as soon as told."""
    stage = NetworkStage()
    stage.hub.documents[ISSUER_PATH] = {"issuer": "https://kubernetes.default.svc.corp.example"}
    stage.fault_of = lambda call: Refuse(error) if call.resource.plural == ISSUER_PATH else None
    node = node_of(stage, STRAIGHT)
    async with node.running():
        await asyncio.sleep(5.0)
        hold = asks(node, "a")
        assert hold is not None
        assert [str(one) for one in hold.coming] == ["the cluster domain of the hub"]
        assert node.network.hub_api(TARGET_NAMESPACE) is None
        await stage.until(
            lambda: node.woken == [ObjectKey("default", "a")], seconds=2 * PATIENCE_SECONDS
        )
        assert await led(stage, node) == HubApi("192.0.2.1", USUAL_DOMAIN)
        stage.fault_of = lambda _call: None
        await asyncio.sleep(2 * BLOCKED_SECONDS)
        assert await led(stage, node) == HubApi("192.0.2.1", "corp.example")
