"""What of a pod's volumes is a claim, and what a target does not lend."""

from __future__ import annotations

import pytest

from federate.claims.places import ClaimUse, claims_used, volume_refusals, with_claims
from federate.claims.rules import ClaimMode, ClaimRules
from federate.model.objects import JsonDict, ObjectKey, spec_of
from federate.model.reasons import PodReason
from tests.support.builders import pod
from tests.support.claimstage import RULES, hub_claim

CLAIM = {"name": "d", "persistentVolumeClaim": {"claimName": "data", "readOnly": True}}
SCRATCH = {"name": "s", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}
EMPTY = {"name": "e", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}
INLINE = {"name": "i", "csi": {"driver": "certs.example.org", "volumeAttributes": {"a": "b"}}}
EVERY_KIND = {"name": "k", "configMap": {"name": "settings"}}


def of(*volumes: JsonDict) -> JsonDict:
    return pod("web").with_uid("uid-web").with_spec(volumes=list(volumes)).build()


def test_a_pod_without_volumes_needs_no_claim() -> None:
    assert claims_used(pod("web").build()) == ()


def test_a_claim_is_used_by_its_name_and_an_ephemeral_one_by_the_name_it_is_given() -> None:
    assert claims_used(of(EMPTY, CLAIM, SCRATCH, INLINE)) == (
        ClaimUse(volume="d", claim=ObjectKey("default", "data")),
        ClaimUse(volume="s", claim=ObjectKey("default", "web-s"), owner_uid="uid-web"),
    )


def test_an_ephemeral_volume_takes_no_claim_but_its_pods_own() -> None:
    """A user of the namespace could lay one out under its name."""
    (use,) = claims_used(of(SCRATCH))
    claim = hub_claim("web-s")
    assert not use.fits(claim)
    owner = {"kind": "Pod", "name": "web", "uid": "uid-web", "controller": True}
    claim["metadata"]["ownerReferences"] = [owner]
    assert use.fits(claim)
    claim["metadata"]["ownerReferences"] = [{**owner, "uid": "uid-before"}]
    assert not use.fits(claim)


def test_a_mirror_names_the_targets_claims() -> None:
    """Nothing else changes, and the hub pod's spec does not."""
    hub_pod = of(EMPTY, CLAIM, SCRATCH, EVERY_KIND)
    told = with_claims(spec_of(hub_pod), {"d": "data-x", "s": "web-s-x"})
    assert told["volumes"][:4] == [
        EMPTY,
        {"name": "d", "persistentVolumeClaim": {"claimName": "data-x", "readOnly": True}},
        {"name": "s", "persistentVolumeClaim": {"claimName": "web-s-x"}},
        EVERY_KIND,
    ]
    assert spec_of(hub_pod)["volumes"][:4] == [EMPTY, CLAIM, SCRATCH, EVERY_KIND]
    assert told["volumes"][4:] == spec_of(hub_pod)["volumes"][4:]


@pytest.mark.parametrize("volume", [CLAIM, SCRATCH])
def test_a_claim_without_a_name_in_the_target_is_never_passed_on(volume: JsonDict) -> None:
    """It would lead to whatever has that name there."""
    with pytest.raises(KeyError):
        with_claims(spec_of(of(volume)), {})


@pytest.mark.parametrize(
    ("volume", "field"), [(CLAIM, "persistentVolumeClaim"), (SCRATCH, "ephemeral")]
)
def test_claims_are_refused_by_default(volume: JsonDict, field: str) -> None:
    """With the field, the rule, and what to do."""
    (refused,) = volume_refusals(of(EMPTY, volume), ClaimRules(), target_name="berlin")
    assert refused.reason == PodReason.CLAIM_REFUSED
    for part in (f"spec.volumes[1].{field}", "berlin", "volumes.claims", "ask its operator"):
        assert part in refused.message
    assert volume_refusals(of(EMPTY, volume), RULES, target_name="berlin") == []


def test_a_driver_of_the_target_is_refused_unless_it_is_named() -> None:
    """It acts there with its own rights, on what a hub user writes."""
    for mode in ClaimMode:
        rules = ClaimRules(mode=mode)
        (refused,) = volume_refusals(of(INLINE), rules, target_name="berlin")
        assert refused.reason == PodReason.VOLUME_REFUSED
        assert "certs.example.org" in refused.message
        assert "volumes.csiDrivers" in refused.message
    lent = ClaimRules(csi_drivers=frozenset({"certs.example.org"}))
    assert volume_refusals(of(INLINE, EMPTY), lent, target_name="berlin") == []
