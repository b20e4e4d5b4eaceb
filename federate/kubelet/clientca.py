"""Whose client certificates are believed: the hub's client CA, followed while we run.

It stands where API servers publish it for extension API servers, in the ConfigMap
kube-system/extension-apiserver-authentication, or in a file. As there, a bundle that cannot be read
or is gone leaves the last good one in force; only the front proxy's CA, which stands beside it, is
never believed: whoever has a certificate of that one may say to be anybody.
"""

from __future__ import annotations

import asyncio
import hashlib
import ssl
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import structlog
from cachetools import LRUCache
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import NameOID, ObjectIdentifier

from federate.cluster.port import ClusterPort
from federate.cluster.reflector import Reflector
from federate.cluster.store import Change, Store
from federate.kubelet.ports import PeerCertificate
from federate.model.objects import JsonObject, ObjectKey
from federate.model.resources import CONFIGMAPS

log = structlog.get_logger()

AUTHENTICATION = ObjectKey("kube-system", "extension-apiserver-authentication")
BUNDLE_KEY = "client-ca-file"

USER_ID = ObjectIdentifier("1.3.6.1.4.1.57683.2")

MOST_BUNDLE_BYTES = 1_048_576
"""As much as a ConfigMap holds."""

RELOAD_SECONDS = 5.0
"""How often a file is looked at."""

MOST_JUDGED = 1024
"""Certificates whose issuer was looked for in a newer bundle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """Certificates of authorities. Equal fingerprints are equal bundles."""

    pem: str
    fingerprint: str
    certificates: tuple[x509.Certificate, ...] = field(repr=False)


def read_bundle(text: bytes) -> Bundle | None:
    """Read a bundle; None where it holds no certificate, or one that cannot be read."""
    if len(text) > MOST_BUNDLE_BYTES:
        return None
    try:
        found = x509.load_pem_x509_certificates(text)
    except ValueError:
        return None
    pem = "".join(one.public_bytes(serialization.Encoding.PEM).decode() for one in found)
    fingerprint = hashlib.sha256(pem.encode()).hexdigest()
    return Bundle(pem=pem, fingerprint=fingerprint, certificates=tuple(found))


class ServingContext(ssl.SSLContext):
    """A TLS context that knows which bundle its clients are verified against."""

    authority: str = ""


def peer_certificate(tls: ssl.SSLObject | ssl.SSLSocket | None) -> PeerCertificate | None:
    """Read the certificate a client was verified by; None where it sent none, or one of nobody."""
    der = tls.getpeercert(binary_form=True) if tls is not None else None
    if tls is None or not der:
        return None
    authority = tls.context.authority if isinstance(tls.context, ServingContext) else ""
    return read_certificate(der, authority=authority)


def read_certificate(der: bytes, *, authority: str = "") -> PeerCertificate | None:
    """Read user, groups and uid as API servers do; None where it says none of it clearly."""
    try:
        certificate = x509.load_der_x509_certificate(der)
        with warnings.catch_warnings():
            # Of names longer than X.509 has them: API servers take those.
            warnings.simplefilter("ignore", UserWarning)
            subject = certificate.subject
        names = _texts(subject, NameOID.COMMON_NAME)
        organizations = _texts(subject, NameOID.ORGANIZATION_NAME)
        uids = _texts(subject, USER_ID)
        ends_at = certificate.not_valid_after_utc.timestamp()
    except ValueError:
        return None
    if not names or not names[-1] or len(uids) > 1:
        return None
    return PeerCertificate(
        common_name=names[-1],
        organizations=tuple(organizations),
        uid="".join(uids),
        fingerprint=hashlib.sha256(der).hexdigest(),
        ends_at=ends_at,
        authority=authority,
        der=der,
    )


def _texts(subject: x509.Name, oid: ObjectIdentifier) -> list[str]:
    found = (one.value for one in subject.get_attributes_for_oid(oid))
    return [value for value in found if isinstance(value, str)]


class ClientAuthority:
    """The bundle of now. `run` follows it; `on_change` is called when another one counts.

    `trouble` says what keeps us from knowing it, "" where nothing does, or nothing was asked yet.
    """

    def __init__(
        self,
        *,
        hub: ClusterPort,
        file: Path | None = None,
        on_change: Callable[[], None] = lambda: None,
        wall_clock: Callable[[], float] = time.time,
        reload_seconds: float = RELOAD_SECONDS,
    ) -> None:
        self.bundle: Bundle | None = None
        self.trouble = ""
        self._hub = hub
        self._file = file
        self._on_change = on_change
        self._wall_clock = wall_clock
        self._reload_seconds = reload_seconds
        self._judged: LRUCache[tuple[str, str], bool] = LRUCache(maxsize=MOST_JUDGED)

    def vouches(self, certificate: PeerCertificate) -> bool:
        """Tell whether a certificate that TLS verified, perhaps long ago, is good now."""
        bundle = self.bundle
        if bundle is None:
            return False
        if certificate.ends_at is not None and certificate.ends_at <= self._wall_clock():
            return False
        if certificate.authority == bundle.fingerprint:
            return True
        key = (certificate.fingerprint, bundle.fingerprint)
        known = self._judged.get(key)
        if known is None:
            known = self._judged[key] = _is_issued_by(certificate.der, bundle)
        return known

    async def run(self) -> None:
        """Follow file or ConfigMap until cancelled; failures are `trouble`, and tried again."""
        if self._file is not None:
            await self._follow_file(self._file)
        else:
            await self._follow_hub()

    async def _follow_file(self, file: Path) -> None:
        while True:
            try:
                self._take(await asyncio.to_thread(file.read_bytes))
            except OSError as error:
                self._keep(f"{file} cannot be read: {error.strerror or type(error).__name__}")
            await asyncio.sleep(self._reload_seconds)

    async def _follow_hub(self) -> None:
        store = Store()
        reflector = Reflector(
            self._hub,
            CONFIGMAPS,
            store,
            on_change=self._changed,
            name="client-ca",
            namespace=AUTHENTICATION.namespace,
            field_selector=f"metadata.name={AUTHENTICATION.name}",
        )
        following = asyncio.ensure_future(reflector.run())
        try:
            while self.bundle is None:
                await asyncio.wait({following}, timeout=self._reload_seconds)
                if following.done():
                    break
                if self.bundle is None:
                    self._explain(reflector, store)
            await following
        finally:
            following.cancel()
            await asyncio.wait({following})

    def _explain(self, reflector: Reflector, store: Store) -> None:
        if reflector.last_error is not None:
            self._keep(f"{self._place(None)} cannot be read: {reflector.last_error}")
        elif reflector.synced.is_set() and AUTHENTICATION not in store:
            self._keep(f"the hub has no {self._place(None)}")

    def _changed(self, change: Change) -> None:
        if change.key != AUTHENTICATION:
            return
        if change.new is None:
            self._keep(f"{self._place(None)} is gone")
            return
        self._take(_bundle_in(change.new))

    def _take(self, text: bytes) -> None:
        bundle = read_bundle(text)
        if bundle is None:
            self._keep(f"{self._place(self._file)} holds no client CA that can be read")
            return
        is_new = self.bundle is None or bundle.fingerprint != self.bundle.fingerprint
        was_troubled, self.trouble = bool(self.trouble), ""
        self.bundle = bundle
        if is_new:
            log.info("client CA taken over", certificates=len(bundle.certificates))
        if is_new or was_troubled:
            self._on_change()

    def _keep(self, trouble: str) -> None:
        """Stay with the last good bundle."""
        if trouble == self.trouble:
            return
        self.trouble = trouble
        log.warning("client CA not read", error=trouble, keeps=self.bundle is not None)
        self._on_change()

    @staticmethod
    def _place(file: Path | None) -> str:
        return str(file) if file is not None else f"ConfigMap {AUTHENTICATION} ({BUNDLE_KEY})"


def _bundle_in(config_map: JsonObject) -> bytes:
    data = config_map.get("data") or {}
    return str(data.get(BUNDLE_KEY) or "").encode("utf-8", "replace")


def _is_issued_by(der: bytes, bundle: Bundle) -> bool:
    """Tell whether an authority of the bundle signed it; one between the two has to come again.

    TLS judged all the rest, and judges it anew at the next connection.
    """
    try:
        certificate = x509.load_der_x509_certificate(der)
    except ValueError:
        return False
    return any(_signed(certificate, authority) for authority in bundle.certificates)


def _signed(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True
