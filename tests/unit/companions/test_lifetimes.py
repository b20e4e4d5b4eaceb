"""When a token is renewed, by what it says of itself."""

from __future__ import annotations

import pytest

from federate.companions.lifetimes import (
    TokenFacts,
    facts_of,
    overdue_after_seconds,
    renewed_after_seconds,
)
from tests.support.faketokens import API_AUDIENCE, encoded_claims, token_for


def facts(life: float) -> TokenFacts:
    return TokenFacts(issued_at=1000.0, expires_at=1000.0 + life, audiences=(), pod_uid="u")


def test_a_token_says_what_it_is() -> None:
    """Life, audiences and pod are read from its claims."""
    found = facts_of(token_for(issued_at=1000, seconds=600, pod_uid="pod-1"))
    assert found == TokenFacts(
        issued_at=1000.0, expires_at=1600.0, audiences=(API_AUDIENCE,), pod_uid="pod-1"
    )
    assert found.life_seconds == 600


def test_claims_in_unusual_forms_are_read_too() -> None:
    """One audience may stand alone, and a token need not be bound."""
    found = facts_of(encoded_claims({"aud": "vault", "iat": 1, "exp": 2}))
    assert found is not None
    assert (found.audiences, found.pod_uid) == (("vault",), "")
    unbound = facts_of(encoded_claims({"iat": 1, "exp": 2, "kubernetes.io": {"pod": "x"}}))
    assert unbound is not None and unbound.audiences == () and unbound.pod_uid == ""


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no token",
        "a.b",
        "a.%%%.c",
        "a.bm9uZQ.c",
        encoded_claims({"iat": "1", "exp": 2}),
        encoded_claims({"iat": 2, "exp": 2}),
        encoded_claims({"exp": 2}),
        "a.W10.c",
    ],
)
def test_what_is_no_token_says_nothing(text: str) -> None:
    """Nothing is guessed from it."""
    assert facts_of(text) is None


@pytest.mark.parametrize("life", [600.0, 3600.0, 86400.0, 365 * 86400.0])
@pytest.mark.parametrize("uid", ["a", "b", "c", "d"])
def test_a_token_is_renewed_before_a_kubelet_would(life: float, uid: str) -> None:
    """Before 80 % of its life, with time for the kubelet that shows it; spread over a tenth."""
    after = renewed_after_seconds(facts(life), uid)
    latest = min(0.8 * life, life - 180)
    assert 0.9 * latest <= after <= latest
    assert after < overdue_after_seconds(facts(life)) == 0.8 * life


def test_a_very_short_life_is_renewed_in_time_as_well() -> None:
    """Where the kubelet's time is longer than the life, the share alone counts."""
    assert 0 < renewed_after_seconds(facts(60.0), "u") <= 48.0


def test_pods_of_one_burst_are_renewed_one_after_the_other() -> None:
    """The same pod at the same time after each restart, different ones at different times."""
    times = {renewed_after_seconds(facts(3600.0), f"pod-{n}") for n in range(100)}
    assert len(times) == 100
    assert max(times) - min(times) > 200
    assert renewed_after_seconds(facts(3600.0), "x") == renewed_after_seconds(facts(3600.0), "x")


def test_the_share_can_be_smaller() -> None:
    """An operator may have tokens renewed more often."""
    assert renewed_after_seconds(facts(600.0), "u", share=0.02) <= 12.0
