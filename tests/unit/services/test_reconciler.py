"""Hub Services in the target: they come, change and go with their originals and their pods."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from federate.cluster.store import Change
from federate.errors import ClusterError, Forbidden, LeadershipLost, Rejected, Unreachable
from federate.model.marks import (
    COMPANION_LABEL,
    FOLLOW_LABEL,
    HUB_LABEL,
    HUB_POD_NAMESPACE_LABEL,
    Scope,
)
from federate.model.naming import prefixed_namespace
from federate.model.objects import (
    JsonDict,
    JsonObject,
    ObjectKey,
    key_of,
    labels_of,
    spec_of,
    uid_of,
)
from federate.model.resources import CONFIGMAPS, SERVICES, Resource
from federate.services.following import HEADLESS
from federate.services.reconciler import LINGER_SECONDS, NOT_FOLLOWED, PASS_SECONDS
from federate.services.round import GROUND_SECONDS
from federate.services.rules import AddressMode, FollowMode, NetworkRules
from federate.services.steps import ServiceReason
from tests.support.clock import virtual_time
from tests.support.fakeclient import Call, Crash, CrashAfter, CrashBefore, Fault, LostReply, Refuse
from tests.support.networkstage import THERE, WEB, WEB_LABELS, NetworkStage, VirtualNodeStage
from tests.support.scene import SCOPE, TARGET_NAMESPACE

ALL = NetworkRules(addresses=AddressMode.REFLECT, follow=FollowMode.ALL)
LABELLED = NetworkRules(addresses=AddressMode.REFLECT, follow=FollowMode.LABELLED)
SECOND = Scope(hub_id=SCOPE.hub_id, node_name="edge-2")


def writes(stage: NetworkStage) -> list[str]:
    return [call.verb for call in stage.target.writes() if call.resource == SERVICES]


def reads(stage: NetworkStage) -> int:
    calls = [*stage.hub.calls, *stage.target.calls]
    return sum(call.verb == "get" and call.resource == SERVICES for call in calls)


def blocked_by(node: VirtualNodeStage) -> list[str]:
    return [note.partition(":")[0] for r, _, note in node.told.events if r == NOT_FOLLOWED]


@virtual_time
async def test_a_service_follows_the_first_pod_of_its_namespace() -> None:
    stage = NetworkStage()
    stage.give_service()
    node = stage.virtual_node(ALL)
    async with node.running() as network:
        await asyncio.sleep(30.0)
        assert writes(stage) == []
        anchor = stage.lay_ground()
        stage.pod_lives("a")
        took = await stage.until(stage.there)
        print(f"there after {took:.2f} virtual seconds")
        assert took < 1.0
        there = stage.there()
        assert there is not None
        assert there["metadata"]["ownerReferences"][0]["uid"] == uid_of(anchor)
        assert spec_of(there)["selector"] == {
            **WEB_LABELS,
            HUB_LABEL: SCOPE.hub_id,
            HUB_POD_NAMESPACE_LABEL: "default",
        }
        await asyncio.sleep(600.0)
        assert writes(stage) == ["create"]
        assert reads(stage) <= 4
        assert dict(network.counts()) == {"followed": 1}


@virtual_time
async def test_pods_cost_nothing_more() -> None:
    stage = NetworkStage()
    stage.give_service()
    stage.lay_ground()
    async with stage.virtual_node(ALL).running():
        for number in range(200):
            stage.pod_lives(f"p{number}")
        await stage.until(stage.there)
        await asyncio.sleep(120.0)
        assert writes(stage) == ["create"]
        assert reads(stage) <= 4


@virtual_time
async def test_nothing_is_made_before_the_first_mirror_made_the_ground() -> None:
    """Whatever a user writes into a pod's annotations: a refused pod brings nothing about."""
    stage = NetworkStage()
    stage.give_service()
    node = stage.virtual_node(ALL)
    async with node.running():
        stage.pod_lives("a")
        await asyncio.sleep(60.0)
        assert stage.target.writes() == []
        assert reads(stage) == 0
        stage.lay_ground()
        assert await stage.until(stage.there) < GROUND_SECONDS + 1.0


@virtual_time
async def test_a_forged_record_leads_nowhere() -> None:
    """Who may annotate a pod could name any namespace of the target."""
    stage = NetworkStage()
    stage.give_service()
    stage.lay_ground()
    async with stage.virtual_node(ALL).running():
        stage.pod_lives("a", target_namespace="kube-system")
        await asyncio.sleep(2 * PASS_SECONDS)
        stage.give_service("later")
        await asyncio.sleep(2 * PASS_SECONDS)
        assert writes(stage) == []
        asked = [call for call in stage.target.calls if call.key.namespace == "kube-system"]
        assert [call for call in asked if call.resource == SERVICES] == []


@virtual_time
async def test_a_forged_record_leads_to_no_other_namespace_of_this_hub_either() -> None:
    """Where mirrors of somebody else's pods have made the ground."""
    stage = NetworkStage()
    stage.give_service()
    elsewhere = prefixed_namespace(SCOPE.hub_id, "other")
    anchor = stage.lay_ground()
    anchor["metadata"] |= {"namespace": elsewhere, "uid": "elsewhere"}
    stage.target.add(CONFIGMAPS, anchor)
    async with stage.virtual_node(ALL).running():
        stage.pod_lives("a", target_namespace=elsewhere)
        await asyncio.sleep(2 * PASS_SECONDS)
        stage.give_service("later")
        await asyncio.sleep(2 * PASS_SECONDS)
        assert writes(stage) == []


@virtual_time
async def test_headless_services_stay_headless() -> None:
    stage = NetworkStage()
    stage.give_service(headless=True, publishNotReadyAddresses=True)
    stage.lay_ground()
    async with stage.virtual_node(ALL).running():
        stage.pod_lives("a")
        await stage.until(stage.there)
        there = stage.there()
        assert there is not None
        assert spec_of(there)["clusterIP"] == HEADLESS
        assert spec_of(there)["publishNotReadyAddresses"] is True


@virtual_time
async def test_a_label_says_which_follow() -> None:
    stage = NetworkStage()
    stage.give_service()
    stage.lay_ground()
    node = stage.virtual_node(LABELLED)
    async with node.running():
        stage.pod_lives("a")
        await asyncio.sleep(10.0)
        assert writes(stage) == []
        stage.hub.edit(SERVICES, WEB, lambda s: s["metadata"].update(labels={FOLLOW_LABEL: "true"}))
        assert await stage.until(stage.there) < 1.0
        stage.hub.edit(SERVICES, WEB, lambda s: s["metadata"].update(labels={}))
        assert await stage.until(lambda: stage.there() is None) < 1.0


@virtual_time
async def test_a_change_on_the_hub_arrives_by_one_write() -> None:
    stage = NetworkStage()
    stage.give_service()
    stage.lay_ground()
    async with stage.virtual_node(ALL).running():
        stage.pod_lives("a")
        await stage.until(stage.there)
        await asyncio.sleep(5.0)

        def change(service: JsonDict) -> None:
            service["spec"]["ports"][0]["port"] = 81

        stage.hub.edit(SERVICES, WEB, change)
        took = await stage.until(lambda: spec_of(stage.there() or {})["ports"][0]["port"] == 81)
        assert took < 1.0
        await asyncio.sleep(60.0)
        assert writes(stage) == ["create", "patch"]


@virtual_time
async def test_a_service_deleted_on_the_hub_goes_at_once_and_may_come_back() -> None:
    stage = NetworkStage()
    stage.give_service()
    stage.lay_ground()
    async with stage.virtual_node(ALL).running():
        stage.pod_lives("a")
        await stage.until(stage.there)
        stage.take_service()
        assert await stage.until(lambda: stage.there() is None) < 1.0
        stage.give_service(headless=True)
        assert await stage.until(stage.there) < 1.0


@virtual_time
async def test_the_last_pod_takes_it_along_after_a_while() -> None:
    stage = NetworkStage()
    stage.give_service()
    stage.lay_ground()
    async with stage.virtual_node(ALL).running() as network:
        stage.pod_lives("a")
        await stage.until(stage.there)
        stage.pod_goes("a")
        await asyncio.sleep(LINGER_SECONDS / 2)
        stage.pod_lives("b")
        await asyncio.sleep(2 * LINGER_SECONDS)
        assert writes(stage) == ["create"]
        stage.pod_lives("b", phase="Succeeded")
        took = await stage.until(lambda: stage.there() is None, seconds=3 * LINGER_SECONDS)
        assert took >= LINGER_SECONDS
        assert dict(network.counts()) == {}
        await asyncio.sleep(300.0)
        assert writes(stage) == ["create", "delete"]


@virtual_time
async def test_a_pod_that_no_event_told_of_keeps_it() -> None:
    stage = NetworkStage()
    stage.give_service()
    stage.lay_ground()
    async with stage.virtual_node(ALL).running() as network:
        stage.pod_lives("a")
        await stage.until(stage.there)
        network.population.pod_is(ObjectKey("default", "a"), None)
        follower = network.follower
        assert follower is not None
        follower.sweep()
        await asyncio.sleep(3 * LINGER_SECONDS)
        assert stage.there() is not None


@virtual_time
async def test_while_leaving_nothing_lingers() -> None:
    stage = NetworkStage()
    stage.give_service()
    stage.lay_ground()
    async with stage.virtual_node(ALL).running():
        stage.pod_lives("a")
        await stage.until(stage.there)
        stage.is_leaving = True
        await asyncio.sleep(5.0)
        assert stage.there() is not None
        stage.pod_goes("a")
        assert await stage.until(lambda: stage.there() is None) < 2.0


# -- strangers -------------------------------------------------------------------------------------


@virtual_time
async def test_a_strangers_service_of_the_name_is_told_and_stays_untouched() -> None:
    stage = NetworkStage()
    stage.give_service()
    stage.lay_ground()
    stranger = stage.target.add(
        SERVICES, {"metadata": {"namespace": TARGET_NAMESPACE, "name": "web"}, "spec": {}}
    )
    node = stage.virtual_node(ALL)
    async with node.running() as network:
        stage.pod_lives("a")
        await stage.until(lambda: blocked_by(node))
        await asyncio.sleep(600.0)
        assert blocked_by(node) == [ServiceReason.NAME_TAKEN]
        assert writes(stage) == []
        assert stage.there() == stranger
        assert dict(network.counts()) == {"blocked": 1}
        stage.target.delete_by_user(SERVICES, THERE)
        await stage.until(stage.there, seconds=120.0)
        await stage.until(lambda: dict(network.counts()) == {"followed": 1})


@virtual_time
async def test_what_somebody_in_the_target_changes_or_deletes_is_put_right() -> None:
    stage = NetworkStage()
    stage.give_service()
    stage.lay_ground()
    async with stage.virtual_node(ALL).running():
        stage.pod_lives("a")
        await stage.until(stage.there)
        stage.target.edit(
            SERVICES, THERE, lambda s: s["spec"]["selector"].update(app="somebody-else")
        )
        await stage.until(lambda: spec_of(stage.there() or {})["selector"]["app"] == "web")
        stage.target.delete_by_user(SERVICES, THERE)
        assert await stage.until(stage.there) < 1.0


@virtual_time
async def test_what_is_undone_each_time_is_not_written_without_end() -> None:
    stage = NetworkStage()
    stage.give_service()
    stage.lay_ground()
    node = stage.virtual_node(ALL)
    async with node.running():
        stage.pod_lives("a")
        for _ in range(200):
            await asyncio.sleep(1.0)
            if stage.there() is not None:
                stage.target.delete_by_user(SERVICES, THERE)
        print(f"{len(writes(stage))} writes in 200 s")
        assert len(writes(stage)) < 12
        assert blocked_by(node)[-1] == ServiceReason.SERVICE_REFUSED


@virtual_time
async def test_a_target_that_takes_the_marks_off_keeps_nothing() -> None:
    """What has no marks nobody could find again: it is deleted by the uid of the reply."""
    stage = NetworkStage()
    stage.give_service()
    stage.lay_ground()
    create = stage.target.create

    def stripping(resource: Resource, body: JsonObject, key: ObjectKey | None = None) -> JsonDict:
        if resource == SERVICES:
            body = {**body, "metadata": {**body["metadata"], "labels": {}}}
        return create(resource, body, key)

    stage.target.create = stripping  # type: ignore[method-assign]
    node = stage.virtual_node(ALL)
    async with node.running():
        stage.pod_lives("a")
        await stage.until(lambda: blocked_by(node))
        assert blocked_by(node) == [ServiceReason.MARKS_REMOVED]
        assert stage.there() is None
        await asyncio.sleep(300.0)
        assert writes(stage).count("create") == writes(stage).count("delete") < 10
        stage.target.create = create  # type: ignore[method-assign]
        await stage.until(stage.there, seconds=400.0)


@pytest.mark.parametrize(
    "error",
    [
        Forbidden("exceeded quota: services", status=403),
        Rejected('spec.ports[0].name: Invalid value "x"', status=422),
    ],
)
@virtual_time
async def test_what_the_target_refuses_is_told_and_tried_again(error: Forbidden | Rejected) -> None:
    stage = NetworkStage()
    stage.give_service()
    stage.lay_ground()

    def refuse(call: Call) -> Fault | None:
        is_meant = call.verb == "create" and call.resource == SERVICES
        return Refuse(error) if is_meant else None

    stage.fault_of = refuse
    node = stage.virtual_node(ALL)
    async with node.running():
        stage.pod_lives("a")
        await asyncio.sleep(600.0)
        assert blocked_by(node) == [ServiceReason.SERVICE_REFUSED]
        assert error.detail in node.told.events[0][2]
        assert len(writes(stage)) < 12
        stage.fault_of = lambda _call: None
        took = await stage.until(stage.there, seconds=310.0)
        print(f"there {took:.0f} virtual seconds after the target's mind changed")


@virtual_time
async def test_an_uninstalled_namespace_gets_nothing() -> None:
    stage = NetworkStage()
    stage.give_service()
    stage.lay_ground()
    node = stage.virtual_node(ALL)
    node.ground.uninstalled.add(TARGET_NAMESPACE)
    async with node.running():
        stage.pod_lives("a")
        await stage.until(lambda: blocked_by(node))
        assert blocked_by(node) == [ServiceReason.UNINSTALLED]
        assert writes(stage) == []


@virtual_time
async def test_a_new_anchor_becomes_the_owner() -> None:
    """Or the garbage collector would take the Service along with the former one."""
    stage = NetworkStage()
    stage.give_service()
    former = stage.lay_ground()
    async with stage.virtual_node(ALL).running() as network:
        stage.pod_lives("a")
        await stage.until(stage.there)
        stage.target.delete_by_user(CONFIGMAPS, key_of(former))
        network.on_anchor(Change(key=key_of(former), old=former, new=None))
        await asyncio.sleep(10.0)
        present = stage.lay_ground()
        network.on_anchor(Change(key=key_of(former), old=None, new=present))

        def owner() -> str:
            return str((stage.there() or {})["metadata"]["ownerReferences"][0]["uid"])

        await stage.until(lambda: owner() == uid_of(present))
        assert writes(stage) == ["create", "patch"]
        network.on_anchor(Change(key=key_of(former), old=present, new=present))
        await asyncio.sleep(10.0)
        assert writes(stage) == ["create", "patch"]


# -- several virtual nodes -------------------------------------------------------------------------


@virtual_time
async def test_virtual_nodes_of_one_hub_share_it() -> None:
    """The last one that wants it takes it along; none takes it from another."""
    stage = NetworkStage()
    stage.give_service()
    stage.lay_ground()
    stage.lay_ground(SECOND)
    first, second = stage.virtual_node(ALL), stage.virtual_node(ALL, SECOND)
    async with first.running(), second.running():
        stage.pod_lives("a")
        stage.pod_lives("b", scope=SECOND)

        def owners() -> int:
            return len((stage.there() or {"metadata": {}})["metadata"].get("ownerReferences", ()))

        await stage.until(lambda: owners() == 2)
        uid = uid_of(stage.there() or {})
        assert blocked_by(first) == blocked_by(second) == []
        stage.pod_goes("a")
        await stage.until(lambda: owners() == 1, seconds=3 * LINGER_SECONDS)
        assert uid_of(stage.there() or {}) == uid
        await asyncio.sleep(3 * PASS_SECONDS)
        assert owners() == 1
        stage.pod_goes("b", SECOND)
        await stage.until(lambda: stage.there() is None, seconds=3 * LINGER_SECONDS)
        print(f"{writes(stage)} for two virtual nodes")
        assert len(writes(stage)) <= 5


# -- whatever happens ------------------------------------------------------------------------------


@virtual_time
async def test_what_a_former_process_left_behind_is_found() -> None:
    stage = NetworkStage()
    stage.give_service()
    stage.lay_ground()
    stage.pod_lives("a")
    async with stage.virtual_node(ALL).running():
        await stage.until(stage.there)
    stage.pod_goes("a")
    async with stage.virtual_node(ALL).running():
        await stage.until(lambda: stage.there() is None, seconds=4 * PASS_SECONDS)


@virtual_time
async def test_who_leads_no_more_writes_nothing() -> None:
    stage = NetworkStage()
    stage.give_service()
    stage.lay_ground()
    node = stage.virtual_node(ALL)
    node.fenced = LeadershipLost("another one leads")
    with pytest.raises(LeadershipLost):
        async with node.running():
            stage.pod_lives("a")
            await asyncio.sleep(5.0)
    assert writes(stage) == []


@virtual_time
async def test_an_unreachable_target_is_waited_for() -> None:
    stage = NetworkStage()
    stage.give_service()
    stage.lay_ground()
    node = stage.virtual_node(ALL)
    stage.fault_of = lambda call: (
        Refuse(Unreachable("no answer")) if call.client.startswith("target") else None
    )
    async with node.running() as network:
        stage.pod_lives("a")
        await asyncio.sleep(300.0)
        stage.fault_of = lambda _call: None
        network.wake_all()
        await stage.until(stage.there, seconds=70.0)
        assert blocked_by(node) == []


ROAD = [*range(11)]
"""The story takes ten requests about Services, if nothing goes wrong."""


@pytest.mark.parametrize("where", ["before", "after", "lost"])
@pytest.mark.parametrize("number", ROAD)
@virtual_time
async def test_c71_a_crash_or_a_lost_reply_at_any_request_leaves_no_mess(
    number: int, where: str
) -> None:
    """The way up, a change, and the way down, with one request of it broken."""
    stage = NetworkStage()
    stage.give_service()
    stage.lay_ground()
    faults: dict[str, Fault] = {"before": CrashBefore(), "after": CrashAfter(), "lost": LostReply()}
    seen = 0

    def strike(call: Call) -> Fault | None:
        nonlocal seen
        if call.resource != SERVICES or call.verb in ("list", "watch"):
            return None
        seen += 1
        return faults[where] if seen == number + 1 else None

    stage.fault_of = strike

    async def live(phase: int) -> None:
        """One step of the story, by as many processes as it takes."""
        for _ in range(3):
            try:
                async with stage.virtual_node(ALL).running():
                    await stage.until(lambda: is_done(phase), seconds=400.0)
                    return
            except (Crash, BaseExceptionGroup, TimeoutError):
                continue
        raise AssertionError(f"phase {phase} was never done")

    def is_done(phase: int) -> bool:
        there = stage.there()
        if phase == 2:
            return there is None
        port = 80 if phase == 0 else 81
        return there is not None and spec_of(there)["ports"][0]["port"] == port

    stage.pod_lives("a")
    await live(0)
    stage.hub.edit(SERVICES, WEB, lambda s: s["spec"]["ports"][0].update(port=81))
    await live(1)
    stage.pod_goes("a")
    await live(2)
    left = [obj for resource, obj in stage.target.store.all() if resource == SERVICES]
    assert [obj for obj in left if COMPANION_LABEL in labels_of(obj)] == []


@pytest.mark.parametrize("verb", ["create", "patch", "delete"])
@virtual_time
async def test_c70_what_arrives_long_after_it_was_sent_changes_nothing_that_lasts(
    verb: str,
) -> None:
    """Sent by who led before: what it meets was made again, or has gone with the pods."""
    stage = NetworkStage()
    stage.give_service()
    stage.lay_ground()
    late: list[Call] = []

    def lose(call: Call) -> Fault | None:
        if late or (call.verb, call.resource) != (verb, SERVICES):
            return None
        late.append(call)
        return CrashBefore()

    async def settle(port: int | None) -> None:
        async with stage.virtual_node(ALL).running():
            await stage.until(lambda: port_there(stage) == port, seconds=400.0)
            await asyncio.sleep(3 * PASS_SECONDS)
            assert port_there(stage) == port

    async def live(port: int | None) -> None:
        with suppress(Crash, BaseExceptionGroup, TimeoutError):
            await settle(port)
            return
        await settle(port)

    stage.fault_of = lose
    stage.pod_lives("a")
    await live(80)
    stage.hub.edit(SERVICES, WEB, lambda s: s["spec"]["ports"][0].update(port=81))
    await live(81)
    stage.pod_goes("a")
    await live(None)
    assert late
    stage.pod_lives("b")
    await settle(81)
    arrive(stage, late[0])
    await settle(81)
    stage.pod_goes("b")
    await settle(None)
    arrive(stage, late[0])
    await settle(None)


def port_there(stage: NetworkStage) -> int | None:
    there = stage.there()
    return spec_of(there)["ports"][0]["port"] if there is not None else None


def arrive(stage: NetworkStage, call: Call) -> None:
    with suppress(ClusterError):
        stage.target.carry_out(call)
