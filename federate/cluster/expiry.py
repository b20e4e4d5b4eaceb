"""When credentials end, read from certificates and tokens. Pure; nothing is verified here.

`sessions` carries what is found, the metric and the Node's condition tell of it. What cannot be
read has no known end: the API server judges, not we.
"""

from __future__ import annotations

import base64
import binascii

import orjson
from cryptography import x509

from federate.model.expiry import Expiry, earliest, expiry_between

LAST_INSTANT = 253_402_300_799.0
"""The end of the year 9999, beyond which no calendar goes."""


def expiry_of_certificate(pem: bytes, *, what: str, is_renewed: bool) -> Expiry | None:
    """Return the earliest end in a chain; None where it is no certificate we can read."""
    try:
        chain = x509.load_pem_x509_certificates(pem)
    except ValueError:
        return None
    return earliest(
        expiry_between(
            one.not_valid_before_utc.timestamp(),
            one.not_valid_after_utc.timestamp(),
            what=what,
            is_renewed=is_renewed,
        )
        for one in chain
    )


def expiry_of_token(token: str, *, what: str, is_renewed: bool) -> Expiry | None:
    """Return the `exp` of a JWT; None for any other token."""
    claims = _claims_of(token)
    ends_at = _instant(claims.get("exp"))
    if ends_at is None:
        return None
    return expiry_between(_instant(claims.get("iat")), ends_at, what=what, is_renewed=is_renewed)


def _claims_of(token: str) -> dict[str, object]:
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    padded = parts[1] + "=" * (-len(parts[1]) % 4)
    try:
        claims = orjson.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (binascii.Error, ValueError):
        return {}
    return claims if isinstance(claims, dict) else {}


def _instant(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if 0 < value <= LAST_INSTANT else None
