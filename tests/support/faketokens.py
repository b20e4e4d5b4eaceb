"""Tokens as an API server issues them, but that nobody could have signed."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence

from federate.model.objects import JsonDict

API_AUDIENCE = "https://kubernetes.default.svc"


def encoded_claims(claims: JsonDict) -> str:
    """Write claims as a JWT; its signature is a word."""
    return ".".join((_encoded({"alg": "none"}), _encoded(claims), "unsigned"))


def _encoded(part: JsonDict) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")


def token_for(
    *,
    issued_at: float,
    seconds: int = 3600,
    audiences: Sequence[str] = (),
    pod_uid: str = "",
    serial: int = 0,
) -> str:
    """Issue one; `serial` tells one from another."""
    return encoded_claims(
        {
            "aud": list(audiences) or [API_AUDIENCE],
            "iat": int(issued_at),
            "exp": int(issued_at) + seconds,
            "jti": str(serial),
            "kubernetes.io": {"pod": {"uid": pod_uid}},
        }
    )
