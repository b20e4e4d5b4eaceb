"""Keys, certificates and requests for them: how they are made, and what the hub said. No I/O.

A request is what the hub's signer kubernetes.io/kubelet-serving takes: organization system:nodes,
name system:node:NODE, the node's addresses, the usages of a server.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from federate.model.expiry import Expiry
from federate.model.objects import JsonDict, JsonObject, status_of
from federate.model.resources import CERTIFICATE_REQUESTS

SIGNER = "kubernetes.io/kubelet-serving"
USAGES = ("digital signature", "server auth")
"""Those of a key on a curve; "key encipherment" is for RSA."""

SELF_SIGNED_LIFE = timedelta(days=365)
CLOCK_SLACK = timedelta(hours=1)
"""How long before its making a certificate of our own is good: clocks differ."""

MOST_CERTIFICATE_BYTES = 262_144
"""A chain has a few thousand."""

APPROVED = "Approved"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A key and the certificate for it, with what it is good for."""

    certificate: bytes
    key: bytes = field(repr=False)
    names: frozenset[str]
    """Addresses and host names, as written by `named`."""
    begins_at: float
    ends_at: float

    def covers(self, names: Iterable[str]) -> bool:
        """Tell whether it stands for all of these."""
        return self.names.issuperset(names)

    def renew_at(self, share: float) -> float:
        """Return when that share of its life is over."""
        return self.begins_at + share * (self.ends_at - self.begins_at)

    def expiry(self, *, is_renewed: bool) -> Expiry:
        """Return its end, and when to warn of it."""
        notice = 0.1 if is_renewed else 1 / 3
        warn_at = self.ends_at - notice * (self.ends_at - self.begins_at)
        return Expiry(at=self.ends_at, warn_at=warn_at, what="serving certificate")


class NotUsable(ValueError):
    """A certificate or key that cannot be served with, and why."""


def new_key() -> bytes:
    """Make a private key, in PEM."""
    return ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def named(addresses: Iterable[str]) -> frozenset[str]:
    """Write addresses one way, and leave out what is none."""
    return frozenset(_written(address) for address in addresses if address)


def _written(address: str) -> str:
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        return address.lower()


def _alternatives(names: Iterable[str]) -> x509.SubjectAlternativeName:
    found: list[x509.GeneralName] = []
    for name in sorted(names):
        try:
            found.append(x509.IPAddress(ipaddress.ip_address(name)))
        except ValueError:
            found.append(x509.DNSName(name))
    return x509.SubjectAlternativeName(found)


def _subject(node_name: str) -> x509.Name:
    name = f"system:node:{node_name}"
    with warnings.catch_warnings():
        # A Node's name may be longer than the 64 characters X.509 has for one; nobody minds.
        warnings.simplefilter("ignore", UserWarning)
        common = x509.NameAttribute(NameOID.COMMON_NAME, name, _validate=False)
    return x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:nodes"), common])


def signing_request(*, node_name: str, key: bytes, names: frozenset[str]) -> bytes:
    """Make a request for a serving certificate, in PEM."""
    request = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(_subject(node_name))
        .add_extension(_alternatives(names), critical=False)
        .sign(_private(key), hashes.SHA256())
    )
    return request.public_bytes(serialization.Encoding.PEM)


def request_object(*, name: str, request: bytes) -> JsonDict:
    """Render the CertificateSigningRequest."""
    return {
        "apiVersion": CERTIFICATE_REQUESTS.group_version,
        "kind": CERTIFICATE_REQUESTS.kind,
        "metadata": {"name": name},
        "spec": {
            "request": base64.b64encode(request).decode(),
            "signerName": SIGNER,
            "usages": list(USAGES),
        },
    }


def approved(request: JsonObject, *, now: str) -> JsonDict:
    """Return the request as it is when we approve it."""
    status = dict(status_of(request))
    condition = {
        "type": APPROVED,
        "status": "True",
        "reason": "FederateSelfApproval",
        "message": "federate asks for itself, and its configuration says that it may approve",
        "lastUpdateTime": now,
    }
    conditions = [*(status.get("conditions") or ()), condition]
    return {**request, "status": {**status, "conditions": conditions}}


class Verdict(StrEnum):
    """What became of a request."""

    PENDING = "pending"
    APPROVED = "approved"
    """The signer's turn."""
    ISSUED = "issued"
    DENIED = "denied"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a request says, and in which words."""

    verdict: Verdict
    said: str = ""
    certificate: bytes = b""


def answer_of(request: JsonObject) -> Answer:
    """Read what became of a request."""
    conditions = {
        str(condition.get("type")): condition
        for condition in status_of(request).get("conditions") or ()
        if condition.get("status", "True") == "True"
    }
    for kind, verdict in (("Denied", Verdict.DENIED), ("Failed", Verdict.FAILED)):
        if (condition := conditions.get(kind)) is not None:
            said = str(condition.get("message") or condition.get("reason") or "")
            return Answer(verdict=verdict, said=said[:256])
    text = status_of(request).get("certificate")
    if APPROVED in conditions and text:
        try:
            issued = base64.b64decode(str(text), validate=True)
        except (binascii.Error, ValueError):
            return Answer(verdict=Verdict.FAILED, said="the certificate is no base64")
        return Answer(verdict=Verdict.ISSUED, certificate=issued)
    return Answer(verdict=Verdict.APPROVED if APPROVED in conditions else Verdict.PENDING)


def self_signed(*, node_name: str, names: frozenset[str], now: float) -> Pair:
    """Make a key and a certificate that nobody but we vouch for."""
    key = new_key()
    private = _private(key)
    begins = datetime.fromtimestamp(now, tz=UTC) - CLOCK_SLACK
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(_subject(node_name))
        .issuer_name(_subject(node_name))
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(begins + SELF_SIGNED_LIFE)
        .add_extension(_alternatives(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage, critical=False)
        .sign(private, hashes.SHA256())
    )
    return read_pair(certificate.public_bytes(serialization.Encoding.PEM), key)


def read_pair(certificate: bytes, key: bytes) -> Pair:
    """Put a certificate chain and its key together.

    Raises:
        NotUsable: one of them cannot be read, they do not belong together, or it is no server's.
    """
    if len(certificate) > MOST_CERTIFICATE_BYTES:
        raise NotUsable("the certificate is too large")
    try:
        leaf = x509.load_pem_x509_certificates(certificate)[0]
        names = _names_of(leaf)
        public = leaf.public_key()
    except ValueError:
        raise NotUsable("the certificate is no PEM certificate") from None
    try:
        private = serialization.load_pem_private_key(key, None)
    except (ValueError, TypeError):
        raise NotUsable("the key is no unencrypted PEM key") from None
    if _raw(private.public_key()) != _raw(public):
        raise NotUsable("the certificate is one of another key")
    if not _is_for_servers(leaf):
        raise NotUsable("the certificate is not for servers (extended key usage)")
    return Pair(
        certificate=certificate,
        key=key,
        names=names,
        begins_at=leaf.not_valid_before_utc.timestamp(),
        ends_at=leaf.not_valid_after_utc.timestamp(),
    )


def check_issued(pair: Pair, *, names: frozenset[str], now: float) -> None:
    """Check what a signer gave.

    Raises:
        NotUsable: it is not what was asked for.
    """
    if not pair.covers(names):
        raise NotUsable("the certificate is not for this node's addresses")
    if pair.ends_at <= max(now, pair.begins_at):
        raise NotUsable("the certificate has ended already")


def _names_of(certificate: x509.Certificate) -> frozenset[str]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return frozenset()
    addresses = [str(address) for address in found.get_values_for_type(x509.IPAddress)]
    return named([*addresses, *found.get_values_for_type(x509.DNSName)])


def _is_for_servers(certificate: x509.Certificate) -> bool:
    try:
        found = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return True
    allowed = {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE}
    return bool(allowed & set(found))


def _private(key: bytes) -> ec.EllipticCurvePrivateKey:
    private = serialization.load_pem_private_key(key, None)
    if not isinstance(private, ec.EllipticCurvePrivateKey):
        raise NotUsable("the key is on no curve")
    return private


def _raw(public: PublicKeyTypes) -> bytes:
    return public.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
