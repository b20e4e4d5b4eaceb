"""From a claim for which our node was chosen to a claim in the target and a volume on the hub."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from federate.claims.plan import plan_claim
from federate.claims.rules import ClaimMode, ClaimRules
from federate.claims.steps import (
    CreateClaim,
    CreateVolume,
    GiveUp,
    Look,
    LookForUsers,
    LookUp,
    PrepareGround,
    Rest,
    Seen,
    Sought,
    Standing,
    Step,
    Users,
)
from federate.companions.steps import Ground
from federate.model.objects import ObjectKey
from federate.model.reasons import PodReason
from tests.support.claimstage import chosen, hub_claim
from tests.support.claimviews import (
    CLAIM,
    HUB_CLAIM,
    HUB_CLASS,
    NOTHING,
    TARGET_CLASS,
    VOLUME,
    asked,
    claim_there,
    target_class,
    view,
    volume_of,
)


def planned(seen: Mapping[Look, Seen], **fields: Any) -> Step:
    return plan_claim(view(seen, **fields))


def refused(step: Step) -> str:
    """The words of a claim that is handed back."""
    assert isinstance(step, GiveUp)
    assert step.blocked.reason == PodReason.CLAIM_REFUSED
    body = step.patch.body["metadata"]
    assert body["annotations"] == {"volume.kubernetes.io/selected-node": None}
    assert (body["uid"], body["resourceVersion"]) == ("uid-data", "7")
    return step.blocked.message


def rest(step: Step) -> Rest:
    assert isinstance(step, Rest)
    return step


def test_everything_is_read_before_anything_is_made() -> None:
    """In this order, each by its name and once."""
    everything = asked()
    seen: dict[Look, Seen] = {}
    looks: list[Look] = []
    while isinstance(step := planned(seen), LookUp):
        looks.append(step.look)
        seen[step.look] = everything[step.look]
    assert looks == [HUB_CLAIM, VOLUME, HUB_CLASS, TARGET_CLASS, CLAIM]
    assert isinstance(step, CreateClaim)


def test_the_ground_comes_first() -> None:
    assert isinstance(planned(asked(), ground=Ground.NOT_YET), PrepareGround)


@pytest.mark.parametrize("annotations", [{}, chosen("another")])
def test_a_claim_that_waits_for_another_node_is_none_of_our_business(
    annotations: dict[str, str],
) -> None:
    claim = hub_claim()
    claim["metadata"]["annotations"] = annotations
    settled = rest(planned(asked(claim)))
    assert settled.standing is Standing.ELSEWHERE
    assert settled.blocked is not None  # for a pod that went past the scheduler
    assert settled.blocked.reason == PodReason.CLAIM_PENDING


def test_nothing_is_made_for_a_claim_that_is_being_deleted() -> None:
    claim = hub_claim()
    claim["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert rest(planned(asked(claim))).standing is Standing.ELSEWHERE


# -- when the hub is answered ----------------------------------------------------------------------


def test_the_hub_gets_its_volume_when_the_target_has_storage() -> None:
    step = planned(asked(there=Seen(obj=claim_there(size="2Gi"))))
    assert isinstance(step, CreateVolume)
    assert step.body["spec"]["capacity"] == {"storage": "2Gi"}
    assert step.body["spec"]["persistentVolumeReclaimPolicy"] == "Retain"


def test_while_the_target_makes_storage_the_hub_waits() -> None:
    """Should that fail, the pod is not bound here, and its user sees the words on the claim."""
    settled = rest(planned(asked(there=Seen(obj=claim_there(phase="Pending")))))
    assert settled.standing is Standing.COMING
    assert not settled.is_bound_there


@pytest.mark.parametrize(
    "found", [target_class("WaitForFirstConsumer"), Seen(forbids="no right on storageclasses")]
)
def test_where_the_target_waits_for_the_mirror_the_hub_is_answered_at_once(found: Seen) -> None:
    """Each would wait for the other else; and so it is where we may not look."""
    there = Seen(obj=claim_there(phase="Pending"))
    assert isinstance(planned(asked(target_class=found, there=there)), CreateVolume)


def test_a_claim_that_the_target_gave_no_class_waits_for_one() -> None:
    claim = claim_there(phase="Pending")
    del claim["spec"]["storageClassName"]
    rules = ClaimRules(mode=ClaimMode.TARGET, storage_classes={"fed": ""})
    seen = asked(there=Seen(obj=claim))
    del seen[TARGET_CLASS]
    assert rest(planned(seen, rules=rules)).standing is Standing.COMING


def test_the_targets_default_class_is_asked_when_it_is_known() -> None:
    rules = ClaimRules(mode=ClaimMode.TARGET, storage_classes={"fed": ""})
    seen = asked(there=Seen(obj=claim_there(phase="Pending")))
    del seen[TARGET_CLASS]
    step = planned(seen, rules=rules)
    assert step == LookUp(reason="when does the target bind?", look=TARGET_CLASS)


def test_a_volume_from_a_life_before_is_waited_for() -> None:
    settled = rest(planned(asked(volume=Seen(obj=volume_of()))))
    assert settled.standing is Standing.COMING


# -- what stands in the way ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "part"),
    [
        ({"storageClassName": "gold"}, "gold"),
        ({"dataSource": {"kind": "VolumeSnapshot", "name": "s"}}, "spec.dataSource"),
        ({"dataSourceRef": {"kind": "Restore", "name": "r"}}, "spec.dataSourceRef"),
        ({"selector": {"matchLabels": {"a": "b"}}}, "spec.selector"),
        ({"volumeAttributesClassName": "quick"}, "spec.volumeAttributesClassName"),
    ],
)
def test_what_cannot_be_had_is_handed_back_to_the_scheduler(
    fields: dict[str, Any], part: str
) -> None:
    """Before anything is asked of the target."""
    seen = {HUB_CLAIM: Seen(obj=hub_claim(**fields)), VOLUME: NOTHING}
    assert part in refused(planned(seen))


def test_so_is_a_claim_whose_namespace_has_no_place_or_whose_node_is_left() -> None:
    seen = {HUB_CLAIM: Seen(obj=hub_claim()), VOLUME: NOTHING}
    assert "namespace default" in refused(planned(seen, target_namespace=None))
    assert "being left" in refused(planned(seen, is_leaving=True))


def test_so_is_one_for_a_namespace_from_which_federate_was_uninstalled() -> None:
    step = planned(asked(), ground=Ground.UNINSTALLED)
    assert isinstance(step, GiveUp)
    assert step.blocked.reason == PodReason.UNINSTALLED


def test_so_is_a_class_that_the_target_does_not_have() -> None:
    assert "no storage class fast" in refused(planned(asked(target_class=NOTHING)))


def test_for_pods_that_the_target_refuses_no_storage_is_made() -> None:
    """Who waits for it is looked for before the target is asked for anything, its ground too."""
    for ground in (Ground.NOT_YET, Ground.READY):
        step = planned(asked(), users=Users.UNKNOWN, ground=ground)
        assert isinstance(step, LookForUsers)
        step = planned(asked(), users=Users.REFUSED, ground=ground)
        assert "refuses the pods" in refused(step)
    for users in (Users.NONE, Users.WELCOME):
        assert isinstance(planned(asked(), users=users), CreateClaim)


def test_who_waits_for_what_is_made_is_not_looked_for_again() -> None:
    there = Seen(obj=claim_there())
    assert isinstance(planned(asked(there=there), users=Users.UNKNOWN), CreateVolume)


@pytest.mark.parametrize("found", [NOTHING, Seen(obj={"provisioner": "disk.example.org"})])
def test_a_class_that_is_not_ours_is_not_served(found: Seen) -> None:
    """Whatever annotations a user writes on a claim."""
    settled = rest(planned(asked(hub_class=found)))
    assert settled.standing is Standing.BLOCKED


def test_a_claim_in_the_target_without_our_marks_is_left_alone() -> None:
    foreign = claim_there()
    foreign["metadata"]["labels"] = {}
    settled = rest(planned(asked(there=Seen(obj=foreign))))
    assert settled.blocked is not None
    assert settled.blocked.reason == PodReason.NAME_TAKEN


def test_a_volume_of_the_hub_that_is_for_another_claim_is_left_alone() -> None:
    foreign = volume_of()
    foreign["spec"]["claimRef"]["uid"] = "uid-other"
    settled = rest(planned(asked(volume=Seen(obj=foreign))))
    assert settled.blocked is not None
    assert settled.blocked.reason == PodReason.NAME_TAKEN


def test_a_claim_that_is_ending_or_lost_in_the_target_leads_nowhere() -> None:
    ending = claim_there()
    ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    for claim in (ending, claim_there(phase="Lost")):
        settled = rest(planned(asked(there=Seen(obj=claim))))
        assert settled.blocked is not None
        assert settled.blocked.reason == PodReason.CLAIM_LOST


@pytest.mark.parametrize("look", [HUB_CLAIM, VOLUME, HUB_CLASS, CLAIM])
def test_a_right_that_is_missing_is_told(look: Look) -> None:
    seen = {**asked(), look: Seen(forbids="no right")}
    settled = rest(planned(seen))
    assert settled.blocked is not None
    assert "no right" in settled.blocked.message


def test_a_class_of_the_target_that_may_not_be_read_stops_nothing() -> None:
    assert isinstance(planned(asked(target_class=Seen(forbids="no right"))), CreateClaim)
    assert Look(Sought.TARGET_CLASS, ObjectKey("", "fast")) == TARGET_CLASS
