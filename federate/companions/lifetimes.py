"""How long a token lives, and when it is renewed. Pure.

What a token says of itself counts, never what was asked for: API servers shorten a wish, and
stretch one of exactly 3607 seconds to a year (C31). Nothing is verified here: a token comes from
the hub, or from a Secret that federate wrote.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from dataclasses import dataclass
from typing import Any

import orjson

RENEW_SHARE = 0.8
"""The part of its life after which a kubelet renews a token."""
KUBELET_LAG_SECONDS = 180.0
"""A kubelet looks at a changed Secret within about ninety seconds: twice that is kept in hand."""
SHORT_SECONDS = 600.0
"""The shortest life that can be asked for. Of a shorter one the share alone is looked at."""
SPREAD = 0.1
"""Share of the life by which tokens are renewed earlier, so that those of one burst spread out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenFacts:
    """What a token says of itself; instants in seconds since the epoch, by the hub's clock."""

    issued_at: float
    expires_at: float
    audiences: tuple[str, ...]
    pod_uid: str

    @property
    def life_seconds(self) -> float:
        """How long it is good for in all."""
        return self.expires_at - self.issued_at


def facts_of(token: str) -> TokenFacts | None:
    """Read a token; None where it is none that an API server would issue."""
    claims = _claims_of(token)
    issued_at, expires_at = claims.get("iat"), claims.get("exp")
    if not (isinstance(issued_at, int) and isinstance(expires_at, int) and issued_at < expires_at):
        return None
    said = claims.get("aud") or []
    return TokenFacts(
        issued_at=float(issued_at),
        expires_at=float(expires_at),
        audiences=tuple(map(str, said)) if isinstance(said, list) else (str(said),),
        pod_uid=_pod_uid(claims),
    )


def _claims_of(token: str) -> dict[str, Any]:
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        padded = parts[1] + "=" * (-len(parts[1]) % 4)
        claims = orjson.loads(base64.urlsafe_b64decode(padded.encode()))
    except (binascii.Error, ValueError):
        return {}
    return claims if isinstance(claims, dict) else {}


def _pod_uid(claims: dict[str, Any]) -> str:
    bound: Any = claims.get("kubernetes.io")
    for step in ("pod", "uid"):
        bound = bound.get(step) if isinstance(bound, dict) else None
    return str(bound or "")


def renewed_after_seconds(facts: TokenFacts, uid: str, *, share: float = RENEW_SHARE) -> float:
    """Say how old a token of that pod is when it is to be renewed; always within its life.

    Before a kubelet would, because the kubelet that shows it needs its time as well.
    """
    life = facts.life_seconds
    latest = life * share
    if life >= SHORT_SECONDS:
        latest = min(latest, life - KUBELET_LAG_SECONDS)
    return latest * (1.0 - SPREAD * _spread_of(uid))


def overdue_after_seconds(facts: TokenFacts) -> float:
    """Say how old a token is when somebody should be told that it is not renewed."""
    return facts.life_seconds * RENEW_SHARE


def _spread_of(uid: str) -> float:
    """Give each pod its own share, the same after each restart: from 0 to 1."""
    return int.from_bytes(hashlib.sha256(uid.encode()).digest()[:4]) / 2**32
