"""What becomes of the data when the hub's claim is gone: nothing, unless its class asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from federate.claims.plan import plan_claim
from federate.claims.steps import (
    ConfirmUnreferenced,
    Delete,
    Look,
    LookUp,
    Rest,
    Seen,
    Standing,
    Step,
)
from federate.model.objects import JsonDict
from tests.support.claimstage import hub_claim
from tests.support.claimviews import CLAIM, HUB_CLAIM, NOTHING, VOLUME, claim_there, view, volume_of

GONE = {HUB_CLAIM: NOTHING}


def planned(seen: Mapping[Look, Seen], **fields: Any) -> Step:
    return plan_claim(view(seen, **fields))


def released(reclaim: str = "Delete", **fields: Any) -> JsonDict:
    volume = volume_of(phase="Released", reclaim=reclaim)
    volume["metadata"].update(fields)
    return volume


def kept(step: Step) -> bool:
    return isinstance(step, Rest) and step.standing is Standing.ELSEWHERE


def test_released_data_goes_where_its_class_asks_for_it() -> None:
    """First the claim in the target, under its uid and version, then the hub's volume."""
    seen = {**GONE, VOLUME: Seen(obj=released())}
    assert planned(seen) == LookUp(reason="its class asks for its end: is it there?", look=CLAIM)
    step = planned({**seen, CLAIM: Seen(obj=claim_there())})
    assert isinstance(step, Delete)
    assert (step.look, step.uid, step.resource_version) == (CLAIM, "uid-there", "3")
    step = planned({**seen, CLAIM: NOTHING})
    assert isinstance(step, Delete)
    assert (step.look, step.uid, step.resource_version) == (VOLUME, "uid-volume", "5")


def test_a_claim_that_is_made_anew_under_the_name_is_another_one() -> None:
    """The hub claim of the old uid is gone all the same."""
    seen = {
        HUB_CLAIM: Seen(obj=hub_claim(uid="uid-anew")),
        VOLUME: Seen(obj=released()),
        CLAIM: Seen(obj=claim_there()),
    }
    assert isinstance(planned(seen), Delete)


def _provisioned_by_hand() -> JsonDict:
    return released(annotations={})


def _for_another() -> JsonDict:
    volume = released()
    volume["spec"]["claimRef"]["uid"] = "uid-after"
    return volume


@pytest.mark.parametrize(
    "volume",
    [
        released("Retain"),
        volume_of(phase="Bound", reclaim="Delete"),
        released(deletionTimestamp="2026-01-01T00:00:00Z"),
        _provisioned_by_hand(),
        released(labels={}),
        _for_another(),
    ],
    ids=["retained", "not released", "ending", "made by hand", "another node's", "given on"],
)
def test_else_data_is_kept(volume: JsonDict) -> None:
    seen = {**GONE, VOLUME: Seen(obj=volume), CLAIM: Seen(obj=claim_there())}
    assert kept(planned(seen))


def test_a_claim_that_is_ending_is_waited_for() -> None:
    """A mirror may still use it: its finalizer holds it."""
    there = claim_there()
    there["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert kept(planned({**GONE, VOLUME: Seen(obj=released()), CLAIM: Seen(obj=there)}))


def test_a_claim_that_lost_our_marks_is_not_deleted() -> None:
    there = claim_there()
    there["metadata"]["labels"] = {}
    assert kept(planned({**GONE, VOLUME: Seen(obj=released()), CLAIM: Seen(obj=there)}))


def test_a_stranger_under_the_name_is_not_deleted() -> None:
    """What the volume led to is gone; so is the volume then."""
    there = claim_there()
    there["metadata"]["uid"] = "uid-stranger"
    step = planned({**GONE, VOLUME: Seen(obj=released()), CLAIM: Seen(obj=there)})
    assert isinstance(step, Delete)
    assert step.look == VOLUME


# -- without a volume ------------------------------------------------------------------------------


def test_a_claim_that_never_had_storage_goes() -> None:
    """Made, and the hub's claim deleted before it was answered; once that is sure."""
    seen = {**GONE, VOLUME: NOTHING, CLAIM: Seen(obj=claim_there(phase="Pending"))}
    assert isinstance(planned(seen), ConfirmUnreferenced)
    assert isinstance(planned(seen, is_unreferenced=True), Delete)
    assert kept(planned(seen, is_unreferenced=False))


def test_storage_without_a_volume_is_kept() -> None:
    """The hub may have been put back to an older state: nobody asks for the end of the data."""
    seen = {**GONE, VOLUME: NOTHING, CLAIM: Seen(obj=claim_there())}
    assert kept(planned(seen, is_unreferenced=True))


def test_where_there_is_nothing_there_is_nothing_to_do() -> None:
    foreign = claim_there()
    foreign["metadata"]["annotations"] = {}
    for there in (NOTHING, Seen(obj=foreign), Seen(forbids="no right")):
        assert kept(planned({**GONE, VOLUME: NOTHING, CLAIM: there}))
    assert kept(planned({**GONE, VOLUME: NOTHING}, target_namespace=None))


@pytest.mark.parametrize("look", [VOLUME, CLAIM])
def test_what_may_not_be_read_ends_nothing(look: Look) -> None:
    seen = {**GONE, VOLUME: Seen(obj=released()), CLAIM: Seen(obj=claim_there())}
    assert isinstance(planned({**seen, look: Seen(forbids="no right")}), Rest)
