"""What the Node says of the credentials for its target."""

from __future__ import annotations

import pytest

from federate.model.expiry import Expiry
from federate.model.reasons import NodeReason
from federate.node.credentials import credentials_word

EXPIRY = Expiry(at=2_000_000_000.0, warn_at=1_999_000_000.0, what="client certificate")


@pytest.mark.parametrize(
    ("expiry", "now", "is_valid", "reason"),
    [
        (None, 0.0, True, NodeReason.CREDENTIALS_VALID),
        (EXPIRY, 1_998_999_999.0, True, NodeReason.CREDENTIALS_VALID),
        (EXPIRY, 1_999_000_000.0, True, NodeReason.CREDENTIALS_EXPIRE_SOON),
        (EXPIRY, 2_000_000_000.0, False, NodeReason.CREDENTIALS_EXPIRED),
    ],
)
def test_c72_the_end_is_told_before_it_comes(
    expiry: Expiry | None, now: float, is_valid: bool, reason: NodeReason
) -> None:
    """Soon, and then over: the reason says which."""
    word = credentials_word(expiry, now=now)
    assert (word.is_valid, word.reason) == (is_valid, reason)


def test_what_to_replace_is_named() -> None:
    """The message says what ends and when."""
    word = credentials_word(EXPIRY, now=1_999_500_000.0)
    assert "client certificate for the target ends at 2033-05-18T03:33:20Z" in word.message


def test_a_renewal_changes_no_word() -> None:
    """A token that is replaced each hour costs no write of the Node's status."""
    later = Expiry(at=EXPIRY.at + 3600, warn_at=EXPIRY.warn_at + 3600, what="plugin x")
    assert credentials_word(EXPIRY, now=0.0) == credentials_word(later, now=0.0)
