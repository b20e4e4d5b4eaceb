"""What a pod waits for, and what its mirror names."""

from __future__ import annotations

from federate.claims.holding import hold_of, names_of, verdict_of_name
from federate.claims.keys import Handle
from federate.claims.places import claims_used
from federate.claims.steps import Rest, Standing
from federate.companions.steps import Blocked
from federate.model.objects import ObjectKey
from federate.model.reasons import PodReason
from tests.support.claimstage import claiming, hub_claim
from tests.support.scene import TARGET_NAMESPACE

USES = claims_used(claiming("web", "a", "b"))
A, B = (use.claim for use in USES)


def settled(name: str, namespace: str = TARGET_NAMESPACE) -> Rest:
    handle = Handle(namespace, name, "u")
    return Rest(reason="", standing=Standing.SETTLED, handle=handle)


WHY = Blocked(reason=PodReason.CLAIM_LOST, message="gone")
LOST = Rest(reason="", standing=Standing.BLOCKED, blocked=WHY)
COMING = Rest(reason="", standing=Standing.COMING)


def test_nothing_holds_a_pod_whose_claims_are_there() -> None:
    known = {A: settled("a-1"), B: settled("b-1")}
    assert hold_of(USES, known, TARGET_NAMESPACE) is None
    assert names_of(USES, known, TARGET_NAMESPACE) == {"v0": "a-1", "v1": "b-1"}


def test_what_is_on_its_way_is_waited_for() -> None:
    for known in ({A: settled("a-1")}, {A: settled("a-1"), B: COMING}):
        hold = hold_of(USES, known, TARGET_NAMESPACE)
        assert hold is not None
        assert [str(each) for each in hold.coming] == ["PersistentVolumeClaim default/b"]
        assert hold.blocked is None


def test_what_cannot_come_is_told() -> None:
    hold = hold_of(USES, {A: LOST, B: WHY}, TARGET_NAMESPACE)
    assert hold is not None
    assert hold.blocked == WHY
    assert len(hold.stuck) == 2


def test_data_in_another_namespace_of_the_target_cannot_be_named() -> None:
    """A claim is named within its own namespace: another's of that name would be somebody's."""
    known = {A: settled("a-1"), B: settled("b-1", "hub-elsewhere")}
    hold = hold_of(USES, known, TARGET_NAMESPACE)
    assert hold is not None
    assert hold.blocked is not None
    assert hold.blocked.reason == PodReason.CLAIM_REFUSED
    assert names_of(USES, known, TARGET_NAMESPACE) is None


def test_the_hubs_claim_of_the_name_must_be_there_and_stay() -> None:
    use = USES[0]
    missing = verdict_of_name(use, None, is_new=True)
    assert missing is not None
    assert missing.reason == PodReason.CLAIM_PENDING
    claim = hub_claim("a")
    assert verdict_of_name(use, claim, is_new=True) is None
    claim["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert verdict_of_name(use, claim, is_new=True) is not None
    assert verdict_of_name(use, claim, is_new=False) is None


def test_a_claim_laid_out_for_an_ephemeral_volume_is_refused() -> None:
    pod = claiming("web")
    pod["spec"]["volumes"] = [{"name": "s", "ephemeral": {}}]
    (use,) = claims_used(pod)
    assert use.claim == ObjectKey("default", "web-s")
    why = verdict_of_name(use, hub_claim("web-s"), is_new=True)
    assert why is not None
    assert why.reason == PodReason.CLAIM_REFUSED
