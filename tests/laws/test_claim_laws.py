"""Laws of claims: nothing foreign is named or touched, and no data goes unasked."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from federate.claims.keys import handle_of, origin_of_claim, target_claim_name
from federate.claims.plan import plan_claim
from federate.claims.protocol import (
    PROVISIONED_BY_ANNOTATION,
    PROVISIONER,
    claims_it,
    is_chosen,
    is_for,
)
from federate.claims.steps import (
    Change,
    CreateClaim,
    CreateVolume,
    Delete,
    GiveUp,
    Look,
    LookUp,
    Rest,
    Seen,
    Sought,
    Standing,
    Step,
    Users,
    Wish,
)
from federate.companions.steps import Ground
from federate.model.objects import JsonDict, JsonObject, ObjectKey, uid_of
from tests.support.claimstage import RULES, chosen, hub_claim
from tests.support.claimviews import (
    CLAIM,
    HUB_CLAIM,
    KEY,
    VOLUME,
    claim_there,
    hub_class,
    target_class,
    view,
    volume_of,
)
from tests.support.scene import SCOPE, TARGET_NAMESPACE

LAW = settings(max_examples=200, deadline=None)
TERMINATING = "2026-01-01T00:00:00Z"
MOST_LOOKS = 8

sometimes = st.booleans()


@st.composite
def hub_claims(draw: st.DrawFn) -> JsonDict | None:
    if draw(st.integers(0, 4)) == 0:
        return None
    claim = hub_claim(uid=draw(st.sampled_from([KEY.uid, KEY.uid, KEY.uid, "uid-other"])))
    spec, metadata = claim["spec"], claim["metadata"]
    spec["storageClassName"] = draw(st.sampled_from(["fed", "fed", "gold"]))
    spec["resources"] = {"requests": {"storage": draw(st.sampled_from(["1Gi", "2Gi"]))}}
    if draw(sometimes):
        metadata["annotations"] = draw(st.sampled_from([{}, chosen(), chosen("edge-2")]))
    if draw(sometimes):
        spec["volumeName"] = VOLUME.key.name
        claim["status"] = {
            "phase": draw(st.sampled_from(["Bound", "Bound", "Pending", "Lost"])),
            "capacity": {"storage": "1Gi"},
        }
    if draw(st.integers(0, 6)) == 0:
        metadata["deletionTimestamp"] = TERMINATING
    return claim


@st.composite
def volumes(draw: st.DrawFn) -> JsonDict | None:
    if draw(sometimes):
        return None
    volume = volume_of(
        phase=draw(st.sampled_from(["Bound", "Released", "Available"])),
        reclaim=draw(st.sampled_from(["Retain", "Delete"])),
    )
    spec, metadata = volume["spec"], volume["metadata"]
    match draw(st.integers(0, 9)):
        case 0:
            metadata["labels"] = {}
        case 1:
            spec["csi"]["driver"] = "disk.example.org"
        case 2:
            spec["claimRef"]["uid"] = "uid-other"
        case 3:
            spec["claimRef"] = None
        case 4:
            metadata["annotations"] = {}
        case 5:
            spec["csi"]["volumeHandle"] = f"{TARGET_NAMESPACE}/treasure/uid-there"
        case 6:
            metadata["deletionTimestamp"] = TERMINATING
    return volume


@st.composite
def claims_there(draw: st.DrawFn) -> JsonDict | None:
    if draw(st.integers(0, 3)) == 0:
        return None
    claim = claim_there(phase=draw(st.sampled_from(["Bound", "Pending", "Lost"])))
    metadata = claim["metadata"]
    match draw(st.integers(0, 6)):
        case 0:
            metadata["labels"] = {}
        case 1:
            metadata["uid"] = "uid-stranger"
        case 2:
            metadata["annotations"] = {}
        case 3:
            metadata["deletionTimestamp"] = TERMINATING
    return claim


@st.composite
def worlds(draw: st.DrawFn) -> dict[Sought, Seen]:
    forbidden = Seen(forbids="no right")
    found = {
        Sought.HUB_CLAIM: Seen(obj=draw(hub_claims())),
        Sought.VOLUME: Seen(obj=draw(volumes())),
        Sought.HUB_CLASS: draw(st.sampled_from([hub_class(), hub_class("Delete"), Seen()])),
        Sought.CLAIM: Seen(obj=draw(claims_there())),
        Sought.TARGET_CLASS: draw(
            st.sampled_from([target_class(), target_class("WaitForFirstConsumer"), Seen()])
        ),
    }
    if draw(st.integers(0, 9)) == 0:
        found[draw(st.sampled_from(Sought))] = forbidden
    return found


@st.composite
def circumstances(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "target_namespace": draw(st.sampled_from([TARGET_NAMESPACE] * 3 + [None])),
        "ground": draw(st.sampled_from([Ground.READY, Ground.READY, Ground.UNINSTALLED])),
        "users": draw(st.sampled_from([Users.NONE, Users.WELCOME, Users.REFUSED])),
        "is_leaving": draw(st.sampled_from([False, False, True])),
        "keeps": draw(st.frozensets(st.sampled_from(Wish))),
        "is_unreferenced": draw(st.sampled_from([True, False])),
    }


def decided(world: dict[Sought, Seen], fields: dict[str, Any]) -> tuple[Step, dict[Look, Seen]]:
    """Look until something else is decided; deciding twice must give the same."""
    seen: dict[Look, Seen] = {}
    for _ in range(MOST_LOOKS):
        step = plan_claim(view(seen, **fields))
        assert step == plan_claim(view(seen, **fields))
        if not isinstance(step, LookUp):
            return step, seen
        assert step.look not in seen
        found = world[step.look.sought]
        # A read by another name finds what has that name.
        name = (found.obj or {}).get("metadata", {}).get("name")
        is_it = step.look.sought in (Sought.HUB_CLASS, Sought.TARGET_CLASS) or not name
        seen[step.look] = found if is_it or name == step.look.key.name else Seen()
    raise AssertionError("it looks for ever")


def obj_of(seen: dict[Look, Seen], sought: Sought) -> JsonObject:
    """What was found of it, {} for nothing."""
    return next((s.obj or {} for look, s in seen.items() if look.sought is sought), {})


@LAW
@given(worlds(), circumstances())
def test_a_mirror_is_given_no_name_but_of_a_claim_that_is_ours_in_every_respect(
    world: dict[Sought, Seen], fields: dict[str, Any]
) -> None:
    step, seen = decided(world, fields)
    if not isinstance(step, Rest) or step.handle is None:
        return
    assert step.standing is Standing.SETTLED
    claim, volume, there = (
        obj_of(seen, each) for each in (Sought.HUB_CLAIM, Sought.VOLUME, Sought.CLAIM)
    )
    assert is_for(volume, claim)
    assert uid_of(claim) == KEY.uid
    assert handle_of(SCOPE, volume) == step.handle
    assert uid_of(there) == step.handle.uid
    assert origin_of_claim(SCOPE, there) is not None
    assert "deletionTimestamp" not in there["metadata"]


@LAW
@given(worlds(), circumstances())
def test_data_is_deleted_only_where_its_class_asked_and_the_hub_released_it(
    world: dict[Sought, Seen], fields: dict[str, Any]
) -> None:
    step, seen = decided(world, fields)
    if not isinstance(step, Delete):
        return
    claim, volume, there = (
        obj_of(seen, each) for each in (Sought.HUB_CLAIM, Sought.VOLUME, Sought.CLAIM)
    )
    assert uid_of(claim) != KEY.uid
    if not volume:
        assert step.look == CLAIM
        assert not there["spec"].get("volumeName")
        assert fields["is_unreferenced"]
        assert origin_of_claim(SCOPE, there) == KEY
        return
    assert volume["spec"]["persistentVolumeReclaimPolicy"] == "Delete"
    assert volume["status"]["phase"] == "Released"
    assert volume["metadata"]["annotations"][PROVISIONED_BY_ANNOTATION] == PROVISIONER
    assert claims_it(volume, KEY.uid)
    if step.look.sought is Sought.CLAIM:
        assert uid_of(there) == step.uid
        assert handle_of(SCOPE, volume) is not None
        assert origin_of_claim(SCOPE, there) is not None


@LAW
@given(worlds(), circumstances())
def test_nothing_without_our_marks_is_written(
    world: dict[Sought, Seen], fields: dict[str, Any]
) -> None:
    """And of the hub's claim only what a provisioner writes."""
    step, seen = decided(world, fields)
    if isinstance(step, (Change, Delete)) and step.look.sought is Sought.CLAIM:
        assert origin_of_claim(SCOPE, obj_of(seen, Sought.CLAIM)) is not None
    if isinstance(step, (Change, Delete)) and step.look.sought is Sought.VOLUME:
        assert handle_of(SCOPE, obj_of(seen, Sought.VOLUME)) is not None
    if isinstance(step, Change):
        body = step.patch.body
        assert body["metadata"].keys() == {"uid", "resourceVersion"}
        assert (step.subresource == "status") == (step.look == HUB_CLAIM)


@LAW
@given(worlds(), circumstances())
def test_storage_is_made_only_for_a_claim_that_was_given_to_us(
    world: dict[Sought, Seen], fields: dict[str, Any]
) -> None:
    step, seen = decided(world, fields)
    if not isinstance(step, (CreateClaim, CreateVolume, GiveUp)):
        return
    claim = obj_of(seen, Sought.HUB_CLAIM)
    assert is_chosen(claim, SCOPE.node_name)
    assert uid_of(claim) == KEY.uid
    if isinstance(step, GiveUp):
        return
    assert fields["users"] is not Users.REFUSED or isinstance(step, CreateVolume)
    assert not fields["is_leaving"]
    assert claim["spec"]["storageClassName"] in RULES.storage_classes
    if isinstance(step, CreateClaim):
        place = ObjectKey(TARGET_NAMESPACE, target_claim_name(SCOPE, KEY))
        assert (step.body["metadata"]["namespace"], step.body["metadata"]["name"]) == place
    else:
        assert origin_of_claim(SCOPE, obj_of(seen, Sought.CLAIM)) == KEY
