"""What followed is taken back by hand."""

from __future__ import annotations

import pytest

from federate.errors import Forbidden, LeadershipLost
from federate.model.marks import Scope
from federate.model.objects import ObjectKey, key_of
from federate.model.resources import ENDPOINT_SLICES, SERVICES
from federate.services.clearing import followed_services, take_back_service
from federate.services.door import door_name, render_door
from federate.services.rules import AddressMode, FollowMode, NetworkRules
from tests.support.clock import virtual_time
from tests.support.fakeclient import Refuse
from tests.support.networkstage import THERE, NetworkStage
from tests.support.scene import SCOPE, TARGET_NAMESPACE

ALL = NetworkRules(addresses=AddressMode.REFLECT, follow=FollowMode.ALL)
SECOND = Scope(hub_id=SCOPE.hub_id, node_name="edge-2")


async def followed(stage: NetworkStage, *scopes: Scope) -> None:
    """Let virtual nodes bring the Service, and end."""
    stage.give_service()
    stage.target.add(
        SERVICES, {"metadata": {"namespace": TARGET_NAMESPACE, "name": "own"}, "spec": {}}
    )
    for number, scope in enumerate(scopes):
        stage.lay_ground(scope)
        stage.pod_lives(f"p{number}", scope=scope)
        async with stage.virtual_node(ALL, scope).running():

            def is_owned(count: int = number + 1) -> bool:
                there = stage.there()
                return there is not None and len(there["metadata"]["ownerReferences"]) == count

            await stage.until(is_owned)


def nothing() -> None:
    pass


@virtual_time
async def test_the_last_virtual_node_deletes_it() -> None:
    stage = NetworkStage()
    await followed(stage, SCOPE, SECOND)
    target = stage.target.client()
    for scope, said in ((SCOPE, ""), (SECOND, "asked to go")):
        [service] = await followed_services(target, scope)
        assert key_of(service) == THERE
        assert await take_back_service(target, scope, service, fence=nothing) == said
        assert await followed_services(target, scope) == []
    assert stage.there() is None
    assert stage.target.find(SERVICES, THERE._replace(name="own")) is not None


@virtual_time
async def test_what_changed_meanwhile_is_for_the_next_look() -> None:
    stage = NetworkStage()
    await followed(stage, SCOPE)
    target = stage.target.client()
    [service] = await followed_services(target, SCOPE, namespaces=[TARGET_NAMESPACE])
    stage.target.edit(SERVICES, THERE, lambda s: s["metadata"]["labels"].update(a="b"))
    said = await take_back_service(target, SCOPE, service, fence=nothing)
    assert said == "changed meanwhile"
    [service] = await followed_services(target, SCOPE)
    for _ in range(2):  # a second time does no harm
        assert await take_back_service(target, SCOPE, service, fence=nothing) == "asked to go"


@virtual_time
async def test_what_is_ending_is_let_end() -> None:
    stage = NetworkStage()
    await followed(stage, SCOPE)
    target = stage.target.client()
    stage.target.edit(
        SERVICES, THERE, lambda s: s["metadata"].update(deletionTimestamp="2026-01-01T00:00:00Z")
    )
    [service] = await followed_services(target, SCOPE)
    assert await take_back_service(target, SCOPE, service, fence=nothing) == "ending"


@virtual_time
async def test_who_may_not_act_does_not() -> None:
    stage = NetworkStage()
    await followed(stage, SCOPE)
    target = stage.target.client()
    [service] = await followed_services(target, SCOPE)

    def fence() -> None:
        raise LeadershipLost("another one leads")

    with pytest.raises(LeadershipLost):
        await take_back_service(target, SCOPE, service, fence=fence)
    assert stage.there() is not None


@pytest.mark.parametrize("is_closed", [False, True])
@virtual_time
async def test_a_door_goes_with_its_endpoints(is_closed: bool) -> None:
    """Where these may not be deleted they go with the anchor."""
    stage = NetworkStage()
    anchor = stage.lay_ground()
    key = ObjectKey(TARGET_NAMESPACE, door_name(SCOPE))
    both = render_door(SCOPE, key.namespace, addresses=["192.0.2.1"], port=6443, anchor=anchor)
    for resource, body in zip((SERVICES, ENDPOINT_SLICES), both, strict=True):
        stage.target.add(resource, body)
    target = stage.target.client()
    assert await followed_services(target, SECOND) == []
    [service] = await followed_services(target, SCOPE)
    assert key_of(service) == key
    if is_closed:
        stage.fault_of = lambda call: (
            Refuse(Forbidden("no", status=403)) if call.resource == ENDPOINT_SLICES else None
        )
    assert await take_back_service(target, SCOPE, service, fence=nothing) == "asked to go"
    assert stage.target.find(SERVICES, key) is None
    assert (stage.target.find(ENDPOINT_SLICES, key) is not None) is is_closed
