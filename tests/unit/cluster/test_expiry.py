"""When credentials end."""

from __future__ import annotations

import base64
import datetime
import json

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from federate.cluster.expiry import expiry_of_certificate, expiry_of_token
from federate.model.expiry import Expiry

DAY = 86_400.0
BEGINS = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def certificate(days: float) -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([])
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(BEGINS)
        .not_valid_after(BEGINS + datetime.timedelta(days=days))
        .sign(key, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )


def jwt(claims: object) -> str:
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"e30.{body}.c2ln"


def test_a_certificate_ends() -> None:
    """The end of a chain is that of its certificate which ends first; text around is no matter."""
    chain = b"Subject: me\n" + certificate(90) + certificate(30) + certificate(365)
    expiry = expiry_of_certificate(chain, what="client certificate", is_renewed=False)
    assert expiry is not None
    assert expiry.at == BEGINS.timestamp() + 30 * DAY
    assert (expiry.what, expiry.instant) == ("client certificate", "2026-01-31T00:00:00Z")


@pytest.mark.parametrize("pem", [b"", b"x", b"-----BEGIN CERTIFICATE-----\nAAAA\n"])
def test_what_is_no_certificate_has_no_end(pem: bytes) -> None:
    """Nonsense is left to the TLS library to complain of."""
    assert expiry_of_certificate(pem, what="x", is_renewed=False) is None


def test_a_token_ends() -> None:
    """The `exp` of a JWT is read, though nobody verifies it."""
    token = jwt({"iat": 1000, "exp": 4600})
    assert expiry_of_token(token, what="t", is_renewed=True) == Expiry(
        at=4600.0, warn_at=4240.0, what="t"
    )


@pytest.mark.parametrize(
    "token",
    [
        "",
        "abc",
        "a.b",
        "a.!.c",
        "a.bm90IGpzb24.c",
        jwt([]),
        jwt({}),
        jwt({"exp": "soon"}),
        jwt({"exp": True}),
        jwt({"exp": -1}),
        jwt({"exp": 1e300}),
    ],
)
def test_a_token_without_an_end(token: str) -> None:
    """Any other token has no known end, whatever it looks like."""
    assert expiry_of_token(token, what="t", is_renewed=False) is None
