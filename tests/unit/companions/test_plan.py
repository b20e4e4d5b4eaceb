"""The next step for one companion, case by case."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from federate.companions.keys import Kind
from federate.companions.plan import companion_patch, plan_companion
from federate.companions.steps import (
    CompanionView,
    ConfirmUnwanted,
    CreateCompanion,
    DeleteCompanion,
    Enlist,
    Ground,
    LookUpCompanion,
    LookUpHubObject,
    PatchCompanion,
    PrepareGround,
    Rest,
    Standing,
    Step,
    Strike,
)
from federate.model.objects import JsonDict
from tests.support.companions import companion, encoded, entry_for, hub_object, key_for, view
from tests.support.strategic import apply_merge_patch
from tests.support.views import OTHER_SCOPE

SECRET, CONFIGMAP = key_for(Kind.SECRET), key_for(Kind.CONFIGMAP)
BOTH = pytest.mark.parametrize("key", [SECRET, CONFIGMAP], ids=lambda key: str(key.kind))
DELETED: dict[str, Any] = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


def planned(seen: CompanionView) -> Step:
    """Deciding twice on the same input gives the same step, and changes nothing."""
    before = copy.deepcopy(seen)
    step = plan_companion(seen)
    assert plan_companion(seen) == step
    assert seen == before
    return step


def rest(seen: CompanionView) -> tuple[Standing, str]:
    step = planned(seen)
    assert isinstance(step, Rest), step
    return step.standing, step.blocked.reason if step.blocked else ""


def made(key: Any, /, of: JsonDict | None = None, **metadata: Any) -> JsonDict:
    """The companion of the hub's object, with more metadata."""
    found = companion(key, hub_object(key) if of is None else of)
    found["metadata"] |= metadata
    return found


# -- wanted, and the hub has it --------------------------------------------------------------------


def test_the_hub_is_asked_first() -> None:
    """Contents are read when they are needed."""
    assert isinstance(planned(view(SECRET, hub_fresh=False)), LookUpHubObject)


def test_the_ground_is_made_before() -> None:
    """Namespace and anchor: what shall own it."""
    seen = view(SECRET, ground=Ground.NOT_YET, anchor=None, companion_fresh=False)
    assert isinstance(planned(seen), PrepareGround)
    assert isinstance(planned(view(SECRET, anchor=None)), PrepareGround)


def test_c23_nothing_is_made_where_federate_was_uninstalled() -> None:
    """An operator must confirm first."""
    seen = view(SECRET, ground=Ground.UNINSTALLED, anchor=None)
    assert rest(seen) == (Standing.BLOCKED, "Uninstalled")


def test_the_target_is_asked_next() -> None:
    """What a store shows may be old."""
    assert isinstance(planned(view(SECRET, companion_fresh=False)), LookUpCompanion)


def test_a_secret_is_on_record_before_it_is_there() -> None:
    """Whoever dies right after the create leaves nothing that nobody can find."""
    assert isinstance(planned(view(SECRET, entry=None, entry_fresh=False)), Enlist)
    step = planned(view(SECRET))
    assert isinstance(step, CreateCompanion)
    assert [o["uid"] for o in step.body["metadata"]["ownerReferences"]] == ["uid-entry"]
    step = planned(view(CONFIGMAP))
    assert isinstance(step, CreateCompanion)
    assert [o["uid"] for o in step.body["metadata"]["ownerReferences"]] == ["anchor-1"]


def test_c70_an_entry_that_was_there_is_taken_up_before_a_create() -> None:
    """Whoever led before may be about to strike it: then he must find another version."""
    assert isinstance(planned(view(SECRET, entry_fresh=False)), Enlist)
    kept = view(SECRET, entry_fresh=False, companion=made(SECRET))
    assert rest(kept) == (Standing.SETTLED, "")


@BOTH
def test_what_is_missing_is_created(key: Any) -> None:
    """With the hub's contents."""
    step = planned(view(key))
    assert isinstance(step, CreateCompanion)
    assert step.body["data"] == hub_object(key)["data"]


@BOTH
def test_what_is_the_same_rests(key: Any) -> None:
    """And costs no write."""
    assert rest(view(key, companion=made(key))) == (Standing.SETTLED, "")


def test_a_secret_without_an_entry_gets_one_that_owns_it() -> None:
    """Somebody removed the entry, or an earlier version had it on the list in the anchor."""
    there = made(SECRET)
    lacking = {"entry": None, "entry_fresh": False}
    assert isinstance(planned(view(SECRET, companion=there, **lacking)), Enlist)
    there["metadata"]["ownerReferences"][0]["uid"] = "anchor-1"
    step = planned(view(SECRET, companion=there))
    assert isinstance(step, PatchCompanion)
    (owner,) = step.patch.body["metadata"]["ownerReferences"]
    assert owner["uid"] == "uid-entry"


@BOTH
def test_what_differs_is_changed_under_its_uid_and_version(key: Any) -> None:
    """A late patch must not undo a newer one."""
    there = made(key, hub_object(key, {"password": "old", "gone": "x"}))
    step = planned(view(key, companion=there))
    assert isinstance(step, PatchCompanion)
    value = hub_object(key)["data"]["password"]
    assert step.patch.body == {
        "metadata": {"uid": "uid-target", "resourceVersion": "3"},
        "data": {"password": value, "gone": None},
    }
    after = apply_merge_patch(there, step.patch.body)
    assert rest(view(key, companion=after)) == (Standing.SETTLED, "")


@BOTH
def test_c70_what_a_process_before_us_made_is_taken_up_before_it_is_used(key: Any) -> None:
    """He may be about to delete it under the version that he saw: it must not fit any more."""
    there = made(key)
    for times in ("1", "2"):
        step = planned(view(key, companion=there, is_held=False))
        assert isinstance(step, PatchCompanion)
        assert step.patch.body["metadata"]["resourceVersion"] == "3"
        there = apply_merge_patch(there, step.patch.body)
        assert there["metadata"]["annotations"]["federate.dev/taken-up"] == times
    there["metadata"]["annotations"]["federate.dev/taken-up"] = "many"
    step = planned(view(key, companion=there, is_held=False))
    assert isinstance(step, PatchCompanion)
    assert step.patch.body["metadata"]["annotations"] == {"federate.dev/taken-up": "1"}
    assert rest(view(key, companion=there)) == (Standing.SETTLED, "")
    changed = made(key, hub_object(key, {"password": "old"}))
    step = planned(view(key, companion=changed, is_held=False))
    assert isinstance(step, PatchCompanion) and "data" in step.patch.body


@pytest.mark.parametrize(
    "mark",
    [{"labels": {}}, {"annotations": {}}, {"name": "another"}, {"namespace": "another"}],
)
@BOTH
def test_what_is_not_ours_is_not_touched(key: Any, mark: JsonDict) -> None:
    """An object of our name without our marks: told, and left alone (C30)."""
    stranger = made(key, **mark, ownerReferences=[])
    assert rest(view(key, companion=stranger)) == (Standing.BLOCKED, "NameTaken")
    assert rest(view(key, companion=stranger, hub_object=None)) == (Standing.BLOCKED, "NameTaken")


def test_a_secret_that_lost_its_marks_is_known_by_its_owner() -> None:
    """The target's admission takes marks off, and the process died before it took it back."""
    stripped = made(SECRET, labels={}, annotations={})
    assert isinstance(planned(view(SECRET, companion=stripped)), DeleteCompanion)
    assert isinstance(planned(view(SECRET, companion=stripped, hub_object=None)), DeleteCompanion)
    seen = view(SECRET, companion=stripped, is_wanted=False, unwanted_fresh=True)
    assert isinstance(planned(seen), DeleteCompanion)


def test_another_virtual_nodes_companion_is_not_touched() -> None:
    """Not even where hub and object are the same."""
    theirs = companion(SECRET, hub_object(SECRET), scope=OTHER_SCOPE)
    assert rest(view(SECRET, companion=theirs)) == (Standing.BLOCKED, "NameTaken")


def test_one_that_is_ending_is_waited_for() -> None:
    """Somebody's finalizer holds it; it is made anew when it is gone."""
    seen = view(SECRET, companion=made(SECRET, **DELETED))
    assert rest(seen) == (Standing.BLOCKED, "CompanionEnding")


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ({"type": "Opaque"}, {"type": "kubernetes.io/tls"}),
        ({"immutable": True}, {"data": {"password": encoded("new")}, "immutable": True}),
        ({"immutable": True}, {"immutable": False}),
        ({"immutable": True}, {}),
    ],
)
def test_what_cannot_change_is_made_anew(was: JsonDict, now: JsonDict) -> None:
    """A type, or values of an immutable object: that very version is deleted first (C30)."""
    there = made(SECRET, hub_object(SECRET, **was))
    step = planned(view(SECRET, companion=there, hub_object=hub_object(SECRET, **now)))
    assert isinstance(step, DeleteCompanion)
    assert (step.uid, step.resource_version) == ("uid-target", "3")
    gone = view(SECRET, hub_object=hub_object(SECRET, **now))
    assert isinstance(planned(gone), CreateCompanion)


def test_an_immutable_configmap_with_other_binary_values_is_made_anew() -> None:
    """Both kinds of values count."""
    there = made(CONFIGMAP, hub_object(CONFIGMAP, immutable=True, binaryData={"a": "AA=="}))
    now = hub_object(CONFIGMAP, immutable=True, binaryData={"a": "AQ=="})
    assert isinstance(planned(view(CONFIGMAP, companion=there, hub_object=now)), DeleteCompanion)


def test_an_immutable_one_that_is_the_same_rests() -> None:
    """Its marks may still be put right."""
    now = hub_object(SECRET, immutable=True)
    assert rest(view(SECRET, companion=made(SECRET, now), hub_object=now))[0] is Standing.SETTLED


def test_an_object_that_becomes_immutable_is_changed_in_place() -> None:
    """With its last values in the same request."""
    now = hub_object(SECRET, immutable=True)
    step = planned(view(SECRET, companion=made(SECRET), hub_object=now))
    assert isinstance(step, PatchCompanion)
    assert step.patch.body.keys() == {"metadata", "immutable"}


def test_an_object_that_is_too_large_is_told() -> None:
    """No API server takes it."""
    huge = hub_object(CONFIGMAP, {"a": "x" * (1024 * 1024 + 1)})
    assert rest(view(CONFIGMAP, hub_object=huge)) == (Standing.BLOCKED, "CompanionTooLarge")
    just = hub_object(CONFIGMAP, {"a": "x" * 1024 * 1024})
    assert isinstance(planned(view(CONFIGMAP, hub_object=just)), CreateCompanion)


def test_an_object_that_may_not_be_read_is_told_in_the_hubs_words() -> None:
    """It may be there: the pod must not start as if it were not."""
    seen = view(SECRET, hub_fresh=False, hub_forbids="secrets is forbidden")
    step = planned(seen)
    assert isinstance(step, Rest)
    assert step.blocked is not None
    assert step.blocked.reason == "CompanionUnreadable"
    assert "Secret default/db: secrets is forbidden" in step.blocked.message


# -- what stands beside ours -----------------------------------------------------------------------


def test_what_the_target_added_to_metadata_stays() -> None:
    """Labels, annotations, owners and finalizers of others are theirs (C24)."""
    there = made(SECRET, finalizers=["example.com/x"])
    there["metadata"]["labels"]["theirs"] = "1"
    there["metadata"]["annotations"]["theirs"] = "1"
    other = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}
    there["metadata"]["ownerReferences"].append({**other, "blockOwnerDeletion": True})
    assert rest(view(SECRET, companion=there)) == (Standing.SETTLED, "")


@BOTH
def test_a_key_that_somebody_added_goes(key: Any) -> None:
    """The pod would see it: values are the hub's alone."""
    there = made(key)
    there["data"]["LD_PRELOAD"] = encoded("/evil.so")
    step = planned(view(key, companion=there))
    assert isinstance(step, PatchCompanion)
    assert step.patch.body["data"] == {"LD_PRELOAD": None}


def test_a_key_moves_between_text_and_binary() -> None:
    """In one request: a key may not stand in both."""
    there = made(CONFIGMAP, hub_object(CONFIGMAP, {"a": "x"}))
    now = hub_object(CONFIGMAP, {}, binaryData={"a": "AA=="})
    step = planned(view(CONFIGMAP, companion=there, hub_object=now))
    assert isinstance(step, PatchCompanion)
    assert (step.patch.body["data"], step.patch.body["binaryData"]) == ({"a": None}, {"a": "AA=="})


@pytest.mark.parametrize("owners", [[], None])
def test_a_lost_owner_is_put_back(owners: Any) -> None:
    """Else it would outlive an uninstall."""
    there = made(SECRET, ownerReferences=owners)
    step = planned(view(SECRET, companion=there))
    assert isinstance(step, PatchCompanion)
    (owner,) = step.patch.body["metadata"]["ownerReferences"]
    assert owner["uid"] == "uid-entry"


def test_a_former_anchor_gives_way_and_other_owners_stay() -> None:
    """After an uninstall that was taken back the anchor has another uid."""
    there = made(SECRET)
    former = {**there["metadata"]["ownerReferences"][0], "uid": "anchor-0"}
    usurper = {"kind": "Pod", "name": "q", "uid": "v", "controller": True}
    other = {"kind": "Pod", "name": "p", "uid": "u"}
    there["metadata"]["ownerReferences"] = [former, other, usurper]
    step = planned(view(SECRET, companion=there))
    assert isinstance(step, PatchCompanion)
    owners = step.patch.body["metadata"]["ownerReferences"]
    assert [o["uid"] for o in owners] == ["uid-entry", "u"]


def test_marks_that_are_still_enough_are_completed() -> None:
    """The name of the virtual node is for people; it comes back."""
    there = made(SECRET)
    wanted = copy.deepcopy(there)
    there["metadata"]["annotations"]["federate.dev/node-name"] = "another"
    there["metadata"]["labels"]["federate.dev/virtual-node"] = "another"
    patch = companion_patch(Kind.SECRET, wanted, there)
    assert patch is not None
    assert patch.body["metadata"]["annotations"] == {"federate.dev/node-name": "edge"}
    assert patch.body["metadata"]["labels"].keys() == {"federate.dev/virtual-node"}


# -- wanted, and the hub has none ------------------------------------------------------------------


def test_what_is_revoked_on_the_hub_is_revoked_in_the_target() -> None:
    """Though a pod still refers to it: then it cannot read it any more, as on the hub."""
    seen = view(SECRET, hub_object=None, companion=made(SECRET))
    assert isinstance(planned(seen), DeleteCompanion)
    struck = planned(view(SECRET, hub_object=None))
    assert isinstance(struck, Strike) and struck.entry == entry_for(SECRET)
    gone = view(SECRET, hub_object=None, entry=None)
    assert rest(gone) == (Standing.ABSENT, "")
    line = planned(view(SECRET, hub_object=None, entry=None, has_line=True))
    assert isinstance(line, Strike) and line.entry is None


def test_its_absence_is_looked_up_on_both_sides() -> None:
    """A companion that outlived its hub object is found."""
    seen = view(SECRET, hub_object=None, companion_fresh=False)
    assert isinstance(planned(seen), LookUpCompanion)


def test_one_that_is_revoked_and_ending_rests() -> None:
    """Its finalizer is somebody else's business."""
    seen = view(SECRET, hub_object=None, companion=made(SECRET, **DELETED))
    assert rest(seen) == (Standing.ABSENT, "")


@pytest.mark.parametrize("name", ["db", "../../kube-system/secrets/x"])
def test_c30_a_strangers_object_does_not_stand_in_for_one_that_the_hub_lacks(name: str) -> None:
    """Somebody in the target made one of the generated name: a mirror must not read it."""
    key = key_for(name=name)
    seen = view(key, hub_object=None, companion=made(key, labels={}), entry=None)
    assert rest(seen) == (Standing.BLOCKED, "NameTaken")


def test_a_name_that_cannot_exist_is_never_asked_for() -> None:
    """The attack: a path in a name. It is missing, as a kubelet would say."""
    key = key_for(name="../../kube-system/secrets/x")
    assert rest(view(key, hub_fresh=False, entry=None)) == (Standing.ABSENT, "")
    assert rest(view(key, is_wanted=False, companion_fresh=False)) == (Standing.ABSENT, "")


def test_what_only_a_mirror_refers_to_stays_as_it_is() -> None:
    """Who may write mirrors could have any object of the hub copied: the hub is not even asked."""
    for fields in ({"hub_fresh": False}, {"companion": made(SECRET, labels={})}, {}):
        seen = view(SECRET, has_hub_pod=False, **fields)
        assert rest(seen) == (Standing.ABSENT, "")


# -- not wanted ------------------------------------------------------------------------------------


def unwanted(**fields: Any) -> CompanionView:
    return view(SECRET, **{"is_wanted": False, "companion": made(SECRET), **fields})


def test_what_nobody_wants_just_now_stays_for_a_while() -> None:
    """The next pod of a Job or a roll-out wants it again."""
    assert rest(unwanted(lingers=True)) == (Standing.ABSENT, "")


def test_what_nobody_wants_is_deleted_once_that_is_sure() -> None:
    """Looked up, confirmed, deleted under uid and version, struck off the list."""
    assert isinstance(planned(unwanted(companion_fresh=False)), LookUpCompanion)
    assert isinstance(planned(unwanted()), ConfirmUnwanted)
    step = planned(unwanted(unwanted_fresh=True))
    assert isinstance(step, DeleteCompanion)
    assert (step.uid, step.resource_version) == ("uid-target", "3")
    assert isinstance(planned(unwanted(companion=None)), Strike)
    assert rest(unwanted(companion=None, entry=None)) == (Standing.ABSENT, "")


def test_what_nobody_wants_goes_where_federate_was_uninstalled_too() -> None:
    """And where the hub cannot be read: ending needs neither."""
    seen = unwanted(ground=Ground.UNINSTALLED, hub_forbids="no", unwanted_fresh=True)
    assert isinstance(planned(seen), DeleteCompanion)


def test_one_that_is_not_wanted_and_ending_rests() -> None:
    """Nothing is left to do."""
    seen = unwanted(companion=made(SECRET, **DELETED), unwanted_fresh=True)
    assert rest(seen) == (Standing.ABSENT, "")


def test_a_strangers_object_is_not_deleted() -> None:
    """As long as it is there it stays on record, which may be the only trace of one of ours."""
    stranger = made(SECRET, labels={}, ownerReferences=[])
    assert rest(unwanted(companion=stranger)) == (Standing.BLOCKED, "NameTaken")
    assert rest(unwanted(companion=stranger, entry=None)) == (Standing.ABSENT, "")
    listed = unwanted(companion=stranger, entry=None, has_line=True)
    assert rest(listed) == (Standing.BLOCKED, "NameTaken")


# -- C73 -------------------------------------------------------------------------------------------


def test_c73_no_view_or_step_shows_contents() -> None:
    """Whatever prints or logs one: values are not in it."""
    there = made(SECRET, hub_object(SECRET, {"password": "old"}))
    seen = view(SECRET, companion=there)
    shown = [seen, planned(seen), planned(view(SECRET))]
    assert [type(value) for value in shown] == [CompanionView, PatchCompanion, CreateCompanion]
    for value in shown:
        assert not any(secret in f"{value!r} {value}" for secret in ("hunter2", encoded("hunter2")))
        assert encoded("old") not in repr(value)
