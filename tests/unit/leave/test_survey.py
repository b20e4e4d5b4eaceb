"""What a survey of a target finds where the rights end at single namespaces."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from federate.errors import Forbidden
from federate.leave.survey import TargetSurvey
from federate.model.marks import Scope
from federate.model.naming import anchor_name
from federate.model.objects import JsonDict, key_of
from federate.model.resources import PODS, SERVICES, Resource
from federate.services.following import ServiceKey, render_service
from tests.support.clock import virtual_time
from tests.support.fakeclient import Call, Fault, Refuse
from tests.support.fakecluster import FakeCluster

SCOPE = Scope(hub_id="hub", node_name="edge")
ANCHOR = {"metadata": {"name": anchor_name(SCOPE), "uid": "anchor"}}


def service_in(namespace: str) -> JsonDict:
    there = {"metadata": {"namespace": "default", "name": "web"}, "spec": {"selector": {"a": "b"}}}
    key = ServiceKey(namespace, "default", "web")
    return render_service(key, there, scope=SCOPE, anchor=ANCHOR)


def confined(*, closed: Callable[[Resource, str], bool]) -> TargetSurvey:
    """Three namespaces that may be looked into each by itself, but for what is closed."""
    target = FakeCluster("target", asyncio.get_running_loop().time)
    for namespace in ("one", "two", "three"):
        target.add(SERVICES, service_in(namespace))

    def fault(call: Call) -> Fault | None:
        namespace = call.key.namespace
        is_closed = not namespace or closed(call.resource, namespace)
        return Refuse(Forbidden("no", status=403)) if is_closed else None

    target.faults = fault
    return TargetSurvey(target.client(), SCOPE, ("one", "two", "three"))


@virtual_time
async def test_a_namespace_that_may_not_be_looked_into_hides_none_of_the_others() -> None:
    survey = confined(closed=lambda resource, name: resource == SERVICES and name == "three")
    await survey.mirrors()
    found = await survey.services()
    assert sorted(key_of(each).namespace for each in found) == ["one", "two"]
    assert await survey.claims() == []
    [words] = survey.unseen_words()
    assert "three" in words
    assert "Service" in words


@virtual_time
async def test_a_right_that_nobody_gave_is_not_spoken_of() -> None:
    survey = confined(closed=lambda asked, _name: asked != PODS)
    await survey.mirrors()
    assert await survey.services() == await survey.claims() == []
    assert survey.unseen_words() == ()
