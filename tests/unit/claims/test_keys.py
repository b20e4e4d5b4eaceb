"""Names and marks of claims in the target, and of the hub's volumes that lead to them."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from federate.claims.keys import (
    ClaimKey,
    Handle,
    handle_of,
    node_named_by,
    origin_of_claim,
    target_claim_name,
)
from federate.model.objects import JsonDict
from tests.support.claimviews import KEY, PLACE, claim_there, volume_of
from tests.support.scene import SCOPE

DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@pytest.mark.parametrize("name", ["data", "www-web-0", "a.b.c", "x" * 253, "9"])
def test_a_name_in_the_target_is_a_dns_label(name: str) -> None:
    assert DNS_LABEL.fullmatch(target_claim_name(SCOPE, ClaimKey("default", name, "u")))


def test_no_two_claims_share_a_name_in_the_target() -> None:
    """Another namespace, name, uid, hub or virtual node is another claim."""
    scopes = [SCOPE, replace(SCOPE, hub_id="other"), replace(SCOPE, node_name="other")]
    keys = [ClaimKey(n, c, u) for n in ("a", "a-b") for c in ("c", "b-c") for u in ("1", "2")]
    names = {target_claim_name(scope, key) for scope in scopes for key in keys}
    assert len(names) == len(scopes) * len(keys)


def test_the_rule_of_names_does_not_change() -> None:
    """Claims that stand in targets are found by it."""
    assert target_claim_name(SCOPE, KEY) == "data-e4wzsvmsdetqfzxw"


def test_a_claim_is_ours_where_all_marks_agree_with_its_name() -> None:
    assert origin_of_claim(SCOPE, claim_there()) == KEY


def _strip(claim: JsonDict, field: str) -> JsonDict:
    claim["metadata"][field] = {}
    return claim


def test_a_claim_is_not_ours_where_a_mark_or_its_name_says_no() -> None:
    """Somebody edited labels or annotations, renamed a copy, or it is of another virtual node."""
    copy = claim_there()
    copy["metadata"]["name"] = "data-copy"
    garbled = claim_there()
    garbled["metadata"]["annotations"]["federate.dev/claim-of"] = '["a"]'
    hollow = claim_there()
    hollow["metadata"]["annotations"]["federate.dev/claim-of"] = (
        '{"namespace":"","name":"data","uid":"u"}'
    )
    for claim in (
        _strip(claim_there(), "labels"),
        _strip(claim_there(), "annotations"),
        copy,
        garbled,
        hollow,
    ):
        assert origin_of_claim(SCOPE, claim) is None
    assert origin_of_claim(replace(SCOPE, node_name="other"), claim_there()) is None


def test_a_volume_leads_where_its_handle_says() -> None:
    assert handle_of(SCOPE, volume_of()) == Handle(*PLACE, "uid-there")
    assert node_named_by(volume_of()) == SCOPE.node_name


@pytest.mark.parametrize("handle", ["", "a/b", "a/b/c/d", "//", "a//c"])
def test_a_volume_with_another_handle_leads_nowhere(handle: str) -> None:
    volume = volume_of()
    volume["spec"]["csi"]["volumeHandle"] = handle
    assert handle_of(SCOPE, volume) is None


def test_a_volume_of_somebody_else_leads_nowhere() -> None:
    other = volume_of()
    other["spec"]["csi"]["driver"] = "disk.example.org"
    assert handle_of(SCOPE, other) is None
    assert handle_of(replace(SCOPE, node_name="other"), volume_of()) is None
    assert handle_of(SCOPE, {"spec": {"nfs": {}}, "metadata": {"labels": SCOPE.labels()}}) is None
