"""Say how the credentials for the target stand. Pure.

The Node tells of it in a condition (C72). Its words stay the same from one renewal to the next, so
that a token that is replaced every hour costs no write.
"""

from __future__ import annotations

from dataclasses import dataclass

from federate.model.expiry import Expiry
from federate.model.reasons import NodeReason


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialsWord:
    """What the condition says."""

    is_valid: bool
    reason: NodeReason
    message: str


def credentials_word(expiry: Expiry | None, *, now: float) -> CredentialsWord:
    """Judge when the credentials end; `now` in Unix time."""
    if expiry is None or now < expiry.warn_at:
        message = "no end of the credentials for the target is known, or near"
        return CredentialsWord(is_valid=True, reason=NodeReason.CREDENTIALS_VALID, message=message)
    if now < expiry.at:
        message = (
            f"{expiry.what} for the target ends at {expiry.instant}: replace it in the kubeconfig, "
            "or where that takes it from. No restart is needed"
        )
        return CredentialsWord(
            is_valid=True, reason=NodeReason.CREDENTIALS_EXPIRE_SOON, message=message
        )
    message = (
        f"{expiry.what} for the target ended at {expiry.instant}: replace it in the kubeconfig, or "
        "where that takes it from. No restart is needed"
    )
    return CredentialsWord(is_valid=False, reason=NodeReason.CREDENTIALS_EXPIRED, message=message)
