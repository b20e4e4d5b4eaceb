"""Which claim of the target a mirror may name, and sizes that follow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from federate.claims.keys import Handle
from federate.claims.plan import plan_claim
from federate.claims.steps import Change, Look, LookUp, Rest, Seen, Standing, Step, Wish
from federate.model.objects import JsonDict
from federate.model.reasons import PodReason
from tests.support.claimviews import (
    CLAIM,
    HUB_CLAIM,
    NOTHING,
    PLACE,
    VOLUME,
    bound_hub_claim,
    claim_there,
    led,
    view,
    volume_of,
)


def planned(seen: Mapping[Look, Seen], **fields: Any) -> Step:
    return plan_claim(view(seen, **fields))


def blocked(step: Step) -> tuple[str, str]:
    assert isinstance(step, Rest)
    assert step.standing is Standing.BLOCKED
    assert step.handle is None
    assert step.blocked is not None
    return step.blocked.reason, step.blocked.message


def test_all_that_it_rests_on_is_read() -> None:
    everything = led()
    seen: dict[Look, Seen] = {}
    while isinstance(step := planned(seen), LookUp):
        seen[step.look] = everything[step.look]
    assert list(seen) == [HUB_CLAIM, VOLUME, CLAIM]
    assert isinstance(step, Rest)


def test_a_claim_whose_volume_leads_to_ours_may_be_named() -> None:
    step = planned(led())
    assert step == Rest(
        reason="the hub's volume leads to our claim",
        standing=Standing.SETTLED,
        handle=Handle(*PLACE, "uid-there"),
    )


def test_it_may_be_named_while_the_target_waits_for_the_mirror() -> None:
    there = claim_there(phase="Pending")
    step = planned(led(there=there))
    assert isinstance(step, Rest)
    assert step.standing is Standing.SETTLED
    assert not step.is_bound_there


def _edited(obj: JsonDict, **metadata: Any) -> JsonDict:
    obj["metadata"].update(metadata)
    return obj


def test_a_claim_that_the_hub_stores_is_refused() -> None:
    """Containers in a target do not reach it."""
    volume = volume_of()
    volume["spec"] = {**volume["spec"], "csi": {"driver": "disk", "volumeHandle": "x"}}
    reason, message = blocked(planned(led(volume=volume)))
    assert reason == PodReason.CLAIM_REFUSED
    assert "stored on the hub" in message


def test_a_claim_of_another_virtual_node_is_refused() -> None:
    volume = _edited(volume_of(), labels={})
    volume["metadata"]["annotations"]["federate.dev/node-name"] = "edge-2"
    reason, message = blocked(planned(led(volume=volume)))
    assert reason == PodReason.CLAIM_REFUSED
    assert "virtual node edge-2" in message


@pytest.mark.parametrize(
    ("there", "reason"),
    [
        (NOTHING, PodReason.CLAIM_LOST),
        (Seen(obj=_edited(claim_there(), uid="uid-anew")), PodReason.CLAIM_LOST),
        (Seen(obj=_edited(claim_there(), deletionTimestamp="2026-01-01T00:00:00Z")),
         PodReason.CLAIM_LOST),
        (Seen(obj=claim_there(phase="Lost")), PodReason.CLAIM_LOST),
        (Seen(obj=_edited(claim_there(), labels={})), PodReason.MARKS_REMOVED),
        (Seen(forbids="no right"), PodReason.CLAIM_PENDING),
    ],
    ids=["gone", "made anew", "ending", "lost", "stripped", "forbidden"],
)  # fmt: skip
def test_a_mirror_names_no_claim_that_is_not_ours_and_whole(there: Seen, reason: str) -> None:
    """By uid and marks, whatever the volume of the hub says (C30)."""
    assert blocked(planned({**led(), CLAIM: there}))[0] == reason


def test_the_volume_may_be_gone_or_unreadable() -> None:
    assert blocked(planned({**led(), VOLUME: NOTHING}))[0] == PodReason.CLAIM_LOST
    forbidden = {**led(), VOLUME: Seen(forbids="no right")}
    assert blocked(planned(forbidden))[0] == PodReason.CLAIM_PENDING


def test_until_the_hub_has_bound_it_it_is_waited_for() -> None:
    pending = bound_hub_claim()
    pending["status"] = {"phase": "Pending"}
    other = volume_of()
    other["spec"]["claimRef"] = {"namespace": "default", "name": "data"}
    for seen in (led(pending), led(volume=other)):
        step = planned(seen)
        assert isinstance(step, Rest)
        assert step.standing is Standing.COMING
        assert step.handle is None
        assert step.blocked is not None, "a pod that names its node itself is told"
        assert step.blocked.reason == PodReason.CLAIM_PENDING


def test_a_kept_claim_serves_the_hub_claim_that_its_volume_is_given_to() -> None:
    """Its marks name the claim that it was made for; the volume's word counts."""
    after = bound_hub_claim()
    volume = volume_of()
    for obj in (after["metadata"], volume["spec"]["claimRef"]):
        obj["uid"] = "uid-after"
    key = view({}).key._replace(uid="uid-after")
    there = claim_there()
    mark = {"federate.dev/taken-up": "uid-after"}
    step = planned(led(after, volume=volume, there=there), key=key)
    assert isinstance(step, Change), "it gets another version than who led before has seen"
    assert step.look == CLAIM
    assert step.patch.body == {
        "metadata": {"uid": "uid-there", "resourceVersion": "3", "annotations": mark}
    }
    kept = planned(led(after, volume=volume, there=there), key=key, keeps={Wish.MARK})
    there["metadata"]["annotations"] |= mark
    for step in (kept, planned(led(after, volume=volume, there=there), key=key)):
        assert isinstance(step, Rest)
        assert step.handle == Handle(*PLACE, "uid-there")


# -- sizes -----------------------------------------------------------------------------------------


def change(step: Step, look: Look) -> Mapping[str, Any]:
    assert isinstance(step, Change)
    assert step.look == look
    body = dict(step.patch.body)
    metadata = body.pop("metadata")
    assert metadata["uid"]
    assert metadata["resourceVersion"]
    return body


def test_a_larger_request_goes_down_and_the_larger_size_comes_up() -> None:
    """Claim in the target, volume, status of the hub's claim: one after the other."""
    asked = bound_hub_claim(size="2Gi")
    wish = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
    assert change(planned(led(asked)), CLAIM) == wish
    there = claim_there(size="2Gi")
    there["spec"]["resources"]["requests"]["storage"] = "2Gi"
    grown = {"spec": {"capacity": {"storage": "2Gi"}}}
    assert change(planned(led(asked, there=there)), VOLUME) == grown
    volume = volume_of(claim_there(size="2Gi"))
    step = planned(led(asked, volume=volume, there=there))
    assert change(step, HUB_CLAIM) == {"status": {"capacity": {"storage": "2Gi"}}}
    assert isinstance(step, Change)
    assert step.subresource == "status"
    told = bound_hub_claim(size="2Gi", has="2Gi")
    assert isinstance(planned(led(told, volume=volume, there=there)), Rest)


def test_what_the_target_refused_is_not_asked_for_again_at_once() -> None:
    step = planned(led(bound_hub_claim(size="2Gi")), keeps={Wish.SIZE})
    assert isinstance(step, Rest)
    assert step.standing is Standing.SETTLED


def test_what_the_hub_did_not_keep_is_not_told_again_at_once() -> None:
    """The one says nothing of the other."""
    there = claim_there(size="2Gi")
    step = planned(led(there=there), keeps={Wish.VOLUME_SIZE})
    assert change(step, HUB_CLAIM) == {"status": {"capacity": {"storage": "2Gi"}}}
    step = planned(led(there=there), keeps={Wish.CLAIM_SIZE})
    assert change(step, VOLUME) == {"spec": {"capacity": {"storage": "2Gi"}}}
    step = planned(led(there=there), keeps={Wish.VOLUME_SIZE, Wish.CLAIM_SIZE})
    assert isinstance(step, Rest)


@pytest.mark.parametrize("size", ["1Gi", "1024Mi", "512Mi"])
def test_the_same_or_less_than_there_is_is_not_asked_for(size: str) -> None:
    assert isinstance(planned(led(bound_hub_claim(size=size))), Rest)


def test_a_wish_that_failed_is_taken_back_as_far_as_there_is_nothing_of_it() -> None:
    """Kubernetes lets a request shrink towards the size that there is."""
    there = claim_there()
    there["spec"]["resources"]["requests"]["storage"] = "8Gi"
    wish = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
    assert change(planned(led(bound_hub_claim(size="2Gi"), there=there)), CLAIM) == wish


def test_a_claim_without_storage_does_not_grow() -> None:
    """API servers let only bound ones."""
    there = claim_there(phase="Pending")
    assert isinstance(planned(led(bound_hub_claim(size="2Gi"), there=there)), Rest)
