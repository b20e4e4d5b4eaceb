"""The Service that leads pods to the hub's API server: how it ought to be, and the next step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from federate.companions.steps import Ground
from federate.model.marks import COMPANION_LABEL, HUB_LABEL, Scope
from federate.model.objects import JsonDict, ObjectKey, copied
from federate.model.resources import ENDPOINT_SLICES, SERVICES, Resource
from federate.services.door import (
    Create,
    Delete,
    DoorReason,
    DoorStep,
    DoorView,
    Look,
    Patch,
    Rest,
    door_name,
    is_door,
    is_door_name,
    one_family,
    plan_door,
    render_door,
)
from tests.support.scene import SCOPE
from tests.support.strategic import apply_merge_patch

NOTED = "federate.dev/hub-api"
ANCHOR = {"metadata": {"name": "federate-anchor", "uid": "anchor-uid"}}
NAMESPACE = "there"
SERVICE, SLICE = render_door(SCOPE, NAMESPACE, addresses=("192.0.2.1",), port=6443, anchor=ANCHOR)


def standing(body: JsonDict, **spec: Any) -> JsonDict:
    """An object as an API server has it."""
    obj = copied(body)
    obj["metadata"] |= {"uid": f"uid-{obj['kind']}", "resourceVersion": "7"}
    if spec:
        obj["spec"] |= spec
    return obj  # type: ignore[no-any-return]


THERE = standing(SERVICE, clusterIP="10.96.0.77", clusterIPs=["10.96.0.77"])
LEADS = standing(SLICE)
LEADS["metadata"]["annotations"] = {**LEADS["metadata"]["annotations"], NOTED: "10.96.0.77"}


def view(**fields: Any) -> DoorView:
    values: JsonDict = {
        "scope": SCOPE,
        "namespace": NAMESPACE,
        "target_name": "berlin",
        "host": "192.0.2.1",
        "port": 6443,
        "addresses": ("192.0.2.1",),
        "ground": Ground.READY,
        "anchor": ANCHOR,
        "service": THERE,
        "endpoints": LEADS,
        "is_fresh": True,
        **fields,
    }
    return DoorView(**values)


def changed(obj: JsonDict, **fields: Any) -> JsonDict:
    return {**copied(obj), **fields}


def reason_of(step: DoorStep) -> str:
    assert isinstance(step, Rest), step
    return step.blocked.reason if step.blocked is not None else ""


def test_the_door_leads_from_443_to_the_advertised_port() -> None:
    assert SERVICE["metadata"]["name"] == SLICE["metadata"]["name"] == door_name(SCOPE)
    assert SERVICE["spec"]["ports"] == [
        {"name": "https", "protocol": "TCP", "port": 443, "targetPort": 6443}
    ]
    assert "selector" not in SERVICE["spec"]
    assert SLICE["metadata"]["labels"]["kubernetes.io/service-name"] == door_name(SCOPE)
    assert SLICE["endpoints"] == [{"addresses": ["192.0.2.1"], "conditions": {"ready": True}}]
    assert SLICE["ports"] == [{"name": "https", "protocol": "TCP", "port": 6443}]
    assert SLICE["addressType"] == "IPv4"


@pytest.mark.parametrize("body", [SERVICE, SLICE])
def test_c23_the_anchor_is_the_controller_of_both(body: JsonDict) -> None:
    assert body["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": "federate-anchor",
            "uid": "anchor-uid",
            "controller": True,
        }
    ]
    assert is_door(SCOPE, body)


def test_each_virtual_node_has_its_own() -> None:
    other = Scope(hub_id=SCOPE.hub_id, node_name="other")
    assert door_name(other) != door_name(SCOPE)
    assert not is_door(other, SERVICE)
    assert len(door_name(SCOPE)) <= 63
    assert not is_door(SCOPE, changed(SERVICE, metadata={**SERVICE["metadata"], "name": "x"}))
    assert is_door_name(door_name(SCOPE))
    assert not is_door_name("hub-api")


def test_of_two_families_the_older_counts() -> None:
    assert one_family(["fd00::5", "10.0.0.9", "10.0.0.10", "10.0.0.9"]) == ("10.0.0.9", "10.0.0.10")
    assert one_family(["fd00::5"]) == ("fd00::5",)
    assert one_family([]) == ()


def test_where_all_is_as_it_ought_to_be_names_lead_to_its_address() -> None:
    assert plan_door(view()) == Rest(address="10.96.0.77")


def test_nothing_is_made_where_mirrors_made_no_ground() -> None:
    for ground in (Ground.NOT_YET, Ground.UNINSTALLED):
        assert plan_door(view(ground=ground, anchor=None, is_fresh=False)) == Rest()


def test_nothing_is_decided_before_a_look() -> None:
    assert plan_door(view(service=None, endpoints=None, is_fresh=False)) == Look()


def test_the_way_is_made_before_the_address_that_leads_to_it() -> None:
    first = plan_door(view(service=None, endpoints=None))
    assert first == Create(resource=ENDPOINT_SLICES, body=SLICE)
    there = standing(SLICE)
    assert plan_door(view(service=None, endpoints=there)) == Create(resource=SERVICES, body=SERVICE)


def test_what_is_made_anew_asks_for_the_address_that_mirrors_have() -> None:
    """As the EndpointSlice says, or this process knows; unless it is known to be given away."""
    for there, former in ((LEADS, ()), (LEADS, ("fd00::77",)), (None, ("10.96.0.77",))):
        step = plan_door(view(service=None, endpoints=there, former=former))
        if there is None:
            assert isinstance(step, Create)
            assert step.resource == ENDPOINT_SLICES
            assert step.body["metadata"]["annotations"][NOTED] == "10.96.0.77"
            step = plan_door(view(service=None, endpoints=standing(step.body), former=former))
        assert isinstance(step, Create), step
        assert step.body["spec"]["clusterIP"] == "10.96.0.77"
    step = plan_door(view(service=None, asks_for_former=False))
    assert step == Create(resource=SERVICES, body=SERVICE)


def test_the_address_is_noted_where_it_outlives_the_service() -> None:
    step = plan_door(view(endpoints=standing(SLICE)))
    assert isinstance(step, Patch)
    assert step.resource == ENDPOINT_SLICES
    assert step.patch.body["metadata"]["annotations"] == {NOTED: "10.96.0.77"}
    wrong = copied(LEADS)
    wrong["metadata"]["annotations"][NOTED] = "somewhere"
    step = plan_door(view(endpoints=wrong, service=None))
    assert step == Create(resource=SERVICES, body=SERVICE)


FOREIGN = {"name": door_name(SCOPE), "namespace": NAMESPACE, "uid": "theirs"}


@pytest.mark.parametrize("field", ["service", "endpoints"])
def test_c20_what_is_not_ours_stays_untouched(field: str) -> None:
    step = plan_door(view(**{field: {"metadata": FOREIGN, "spec": {}}}))
    assert reason_of(step) == DoorReason.NAME_TAKEN
    other_hub = {**FOREIGN, "labels": {HUB_LABEL: "other", COMPANION_LABEL: "hub-api"}}
    assert reason_of(plan_door(view(**{field: {"metadata": other_hub}}))) == DoorReason.NAME_TAKEN


def test_what_is_ending_is_waited_for() -> None:
    metadata = {**THERE["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
    step = plan_door(view(service=changed(THERE, metadata=metadata)))
    assert reason_of(step) == DoorReason.SERVICE_ENDING


@pytest.mark.parametrize(
    ("resource", "there"),
    [
        (SERVICES, standing(SERVICE, clusterIP="10.96.0.77", selector={"app": "thief"})),
        (SERVICES, standing(SERVICE, clusterIP="10.96.0.77", ports=[{"port": 80}])),
        (SERVICES, standing(SERVICE, clusterIP="10.96.0.77", internalTrafficPolicy="Local")),
        (SERVICES, standing(SERVICE, clusterIP="10.96.0.77", type="NodePort")),
        (SERVICES, changed(THERE, metadata={**THERE["metadata"], "ownerReferences": []})),
        (ENDPOINT_SLICES, changed(LEADS, endpoints=[{"addresses": ["203.0.113.6"]}])),
        (ENDPOINT_SLICES, changed(LEADS, endpoints=[])),
        (
            ENDPOINT_SLICES,
            changed(
                LEADS, endpoints=[{"addresses": ["192.0.2.1"], "conditions": {"ready": False}}]
            ),
        ),
        (ENDPOINT_SLICES, changed(LEADS, ports=[{"name": "https", "port": 1, "protocol": "TCP"}])),
        (ENDPOINT_SLICES, changed(LEADS, metadata={**LEADS["metadata"], "ownerReferences": []})),
    ],
)
def test_what_somebody_changed_is_put_back_once(resource: Resource, there: JsonDict) -> None:
    """As a patch of that very version; what it makes of the object needs no other one."""
    field = "service" if resource == SERVICES else "endpoints"
    step = plan_door(view(**{field: there}))
    assert isinstance(step, Patch), step
    assert step.resource == resource
    precondition = step.patch.body["metadata"]
    assert (precondition["uid"], precondition["resourceVersion"]) == (f"uid-{resource.kind}", "7")
    after = apply_merge_patch(there, step.patch.body)
    assert plan_door(view(**{field: after})) == Rest(address="10.96.0.77")


def test_what_others_added_stays() -> None:
    labelled = copied(THERE)
    labelled["metadata"]["labels"]["team"] = "blue"
    labelled["spec"] |= {"sessionAffinity": "ClientIP", "trafficDistribution": "PreferClose"}
    noted = copied(LEADS)
    noted["endpoints"][0]["zone"] = "a"
    assert plan_door(view(service=labelled, endpoints=noted)) == Rest(address="10.96.0.77")


def test_another_address_of_the_hub_changes_where_it_leads_and_not_its_own() -> None:
    step = plan_door(view(addresses=("192.0.2.7", "192.0.2.8")))
    assert isinstance(step, Patch)
    assert step.resource == ENDPOINT_SLICES
    assert [e["addresses"] for e in step.patch.body["endpoints"]] == [["192.0.2.7"], ["192.0.2.8"]]


def test_another_family_takes_another_door() -> None:
    """API servers let neither change."""
    step = plan_door(view(addresses=("fd00::5",)))
    assert step == Delete(resource=ENDPOINT_SLICES, uid="uid-EndpointSlice", resource_version="7")
    _, slice_ = render_door(SCOPE, NAMESPACE, addresses=("fd00::5",), port=6443, anchor=ANCHOR)
    step = plan_door(view(addresses=("fd00::5",), endpoints=standing(slice_)))
    assert step == Delete(resource=SERVICES, uid="uid-Service", resource_version="7")


def test_a_name_that_seems_to_have_lost_a_family_changes_nothing() -> None:
    """One lost answer of a DNS does that; only an address that somebody wrote down is believed."""
    by_name = view(addresses=("2001:db8::7",), is_literal=False, host="hub.example.org")
    assert plan_door(by_name) == Rest(address="10.96.0.77")
    both = replace(by_name, addresses=("192.0.2.1", "2001:db8::7"))
    assert plan_door(both) == Rest(address="10.96.0.77")
    gone = replace(by_name, service=None, endpoints=None, former=("10.96.0.77",))
    step = plan_door(gone)
    assert reason_of(step) == DoorReason.ADDRESS_UNKNOWN
    assert isinstance(step, Rest)
    assert step.blocked is not None
    assert "IPv4" in step.blocked.message
    new = plan_door(replace(gone, former=()))
    assert isinstance(new, Create)
    assert new.body["addressType"] == "IPv6"


def test_a_headless_one_is_made_anew() -> None:
    step = plan_door(view(service=standing(SERVICE, clusterIP="None")))
    assert isinstance(step, Delete)


def test_what_led_there_once_stays_while_the_name_does_not_resolve() -> None:
    unknown = view(addresses=(), host="hub.example.org")
    assert plan_door(unknown) == Rest(address="10.96.0.77")
    step = plan_door(replace(unknown, endpoints=None))
    assert reason_of(step) == DoorReason.ADDRESS_UNKNOWN
    assert isinstance(step, Rest)
    assert step.blocked is not None
    assert "hub.example.org" in step.blocked.message


def test_a_decision_is_the_same_twice() -> None:
    for seen in (view(), view(service=None), view(addresses=())):
        assert plan_door(seen) == plan_door(seen)
    assert ObjectKey(NAMESPACE, door_name(SCOPE)).can_exist
