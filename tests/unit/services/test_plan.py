"""The next step for one followed Service."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from federate.companions.steps import Ground
from federate.model.marks import Scope
from federate.model.naming import anchor_name
from federate.model.objects import JsonDict
from federate.services.following import ServiceKey, render_service
from federate.services.plan import plan_service
from federate.services.rules import FollowMode
from federate.services.steps import (
    ConfirmUnwanted,
    CreateService,
    DeleteService,
    LookUpCompanion,
    LookUpHubService,
    PatchService,
    Rest,
    ServiceReason,
    ServiceView,
    Standing,
)
from tests.support.scene import SCOPE

KEY = ServiceKey("there", "default", "web")
ANCHOR: JsonDict = {"metadata": {"name": anchor_name(SCOPE), "uid": "anchor-uid"}}
OTHER = Scope(hub_id=SCOPE.hub_id, node_name="edge-2")
OTHERS_ANCHOR: JsonDict = {"metadata": {"name": anchor_name(OTHER), "uid": "others-uid"}}


def hub_service(**spec: Any) -> JsonDict:
    return {
        "metadata": {"namespace": "default", "name": "web", "resourceVersion": "3"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}], **spec},
    }


def companion(*, anchor: JsonDict = ANCHOR, scope: Scope = SCOPE, **metadata: Any) -> JsonDict:
    body = render_service(KEY, hub_service(), scope=scope, anchor=anchor)
    body["metadata"] |= {"uid": "uid", "resourceVersion": "5", **metadata}
    return body


STRANGER: JsonDict = {"metadata": {"namespace": "there", "name": "web", "uid": "s"}, "spec": {}}

WANTED = ServiceView(
    key=KEY,
    scope=SCOPE,
    mode=FollowMode.ALL,
    target_name="edge-1",
    is_wanted=True,
    hub_service=hub_service(),
    hub_fresh=True,
    companion=None,
    companion_fresh=True,
    ground=Ground.READY,
    anchor=ANCHOR,
)
THERE = replace(WANTED, companion=companion())
UNWANTED = replace(THERE, is_wanted=False, unwanted_fresh=True)


def resting(view: ServiceView) -> Rest:
    step = plan_service(view)
    assert isinstance(step, Rest), step
    return step


def blocked(view: ServiceView) -> str:
    rest = resting(view)
    assert rest.standing is Standing.BLOCKED
    assert rest.blocked is not None
    return rest.blocked.reason


def test_both_sides_are_read_before_anything_is_done() -> None:
    assert isinstance(plan_service(replace(WANTED, hub_fresh=False)), LookUpHubService)
    assert isinstance(plan_service(replace(WANTED, companion_fresh=False)), LookUpCompanion)


def test_what_is_missing_is_made_and_what_is_the_same_rests() -> None:
    step = plan_service(WANTED)
    assert isinstance(step, CreateService)
    assert step.body["metadata"]["ownerReferences"][0]["uid"] == "anchor-uid"
    assert resting(THERE).standing is Standing.FOLLOWED


def test_what_differs_is_changed() -> None:
    view = replace(THERE, hub_service=hub_service(ports=[{"port": 81}]))
    assert isinstance(plan_service(view), PatchService)


def test_without_a_mirror_there_nothing_is_made() -> None:
    """The mirrors make namespace and anchor: no pod that is refused brings anything about."""
    waiting = replace(WANTED, ground=Ground.NOT_YET, anchor=None, hub_fresh=False)
    rest = resting(waiting)
    assert rest.standing is Standing.WAITING
    uninstalled = replace(WANTED, ground=Ground.UNINSTALLED, anchor=None)
    assert blocked(uninstalled) == ServiceReason.UNINSTALLED


def test_a_strangers_service_of_the_name_stays_untouched() -> None:
    assert blocked(replace(WANTED, companion=STRANGER)) == ServiceReason.NAME_TAKEN
    gone = replace(WANTED, hub_service=None, companion=STRANGER)
    assert resting(gone).standing is Standing.ABSENT
    assert resting(replace(UNWANTED, companion=STRANGER)).standing is Standing.ABSENT


def test_what_is_ending_is_waited_for() -> None:
    ending = companion(deletionTimestamp="2026-01-01T00:00:00Z")
    assert blocked(replace(WANTED, companion=ending)) == ServiceReason.SERVICE_ENDING
    for view in (replace(WANTED, hub_service=None), UNWANTED):
        assert resting(replace(view, companion=ending)).standing is Standing.ABSENT


@pytest.mark.parametrize("is_now_headless", [True, False])
def test_whether_it_has_an_address_cannot_be_changed(is_now_headless: bool) -> None:
    old = companion()
    old["spec"]["clusterIP"] = "10.43.0.9" if is_now_headless else "None"
    wanted = hub_service(clusterIP="None" if is_now_headless else "10.96.0.7")
    step = plan_service(replace(WANTED, companion=old, hub_service=wanted))
    assert isinstance(step, DeleteService)
    assert (step.uid, step.resource_version) == ("uid", "5")


def test_a_service_that_the_hub_has_no_more_goes_at_once() -> None:
    view = replace(THERE, hub_service=None)
    assert isinstance(plan_service(replace(view, companion_fresh=False)), LookUpCompanion)
    assert isinstance(plan_service(view), DeleteService)
    shared = companion()
    shared["metadata"]["ownerReferences"].append({"name": anchor_name(OTHER), "uid": "others-uid"})
    assert isinstance(plan_service(replace(view, companion=shared)), DeleteService)
    assert resting(replace(view, companion=None)).standing is Standing.ABSENT


def test_one_that_does_not_follow_any_more_is_taken_back() -> None:
    step = plan_service(replace(THERE, mode=FollowMode.LABELLED))
    assert isinstance(step, DeleteService)


def test_without_pods_it_goes_after_a_while_and_once_that_is_sure() -> None:
    assert resting(replace(UNWANTED, lingers=True)).standing is Standing.ABSENT
    assert isinstance(plan_service(replace(UNWANTED, companion_fresh=False)), LookUpCompanion)
    assert isinstance(plan_service(replace(UNWANTED, unwanted_fresh=False)), ConfirmUnwanted)
    assert isinstance(plan_service(UNWANTED), DeleteService)
    assert resting(replace(UNWANTED, companion=None)).standing is Standing.ABSENT


def test_others_keep_what_they_want() -> None:
    shared = companion()
    shared["metadata"]["ownerReferences"].append({"name": anchor_name(OTHER), "uid": "others-uid"})
    step = plan_service(replace(UNWANTED, companion=shared))
    assert isinstance(step, PatchService)
    [left] = step.patch.body["metadata"]["ownerReferences"]
    assert left["uid"] == "others-uid"
    theirs = companion(scope=OTHER, anchor=OTHERS_ANCHOR)
    assert resting(replace(UNWANTED, companion=theirs)).standing is Standing.ABSENT


def test_what_nobody_owns_is_removed_by_whoever_finds_it() -> None:
    orphan = companion()
    del orphan["metadata"]["ownerReferences"]
    assert isinstance(plan_service(replace(UNWANTED, companion=orphan)), DeleteService)
