"""The certificates and keys of one bare control plane.

Everything lives in one folder, is readable by its owner only, and is thrown away with the
cluster. Keys are ECDSA P-256, which take a millisecond to make.
"""

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = datetime.timedelta(days=30)
"""Longer than anybody keeps a test bed up; an expired one refuses every request."""

CLOCK_SLACK = datetime.timedelta(hours=1)
FRONT_PROXY_NAME = "front-proxy-client"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPair:
    """A certificate and its key as PEM files."""

    certificate: Path
    key: Path


class Authority:
    """Sign certificates and write them below `folder`."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._subject = subject(name)
        certificate = (
            unsigned(self._subject, self._subject, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(key_usage(signs_certificates=True), critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False
            )
            .sign(self._key, hashes.SHA256())
        )
        self.files = write_pair(folder, name, certificate, self._key)

    def issue_client(self, file: str, *, user: str, groups: Sequence[str] = ()) -> KeyPair:
        """Issue a certificate that Kubernetes reads as `user` in `groups`."""
        return self._issue(file, subject(user, groups), ExtendedKeyUsageOID.CLIENT_AUTH)

    def issue_server(self, file: str, *, addresses: Sequence[str], names: Sequence[str]) -> KeyPair:
        alternatives: list[x509.GeneralName] = [x509.DNSName(name) for name in names]
        alternatives += [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
        return self._issue(file, subject(file), ExtendedKeyUsageOID.SERVER_AUTH, alternatives)

    def _issue(
        self,
        file: str,
        owner: x509.Name,
        usage: x509.ObjectIdentifier,
        alternatives: Sequence[x509.GeneralName] = (),
    ) -> KeyPair:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            unsigned(owner, self._subject, key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )
        if alternatives:
            builder = builder.add_extension(
                x509.SubjectAlternativeName(alternatives), critical=False
            )
        return write_pair(self._folder, file, builder.sign(self._key, hashes.SHA256()), key)


def issue_client_for(
    seconds: float, *, by: KeyPair, folder: Path, file: str, user: str, groups: Sequence[str] = ()
) -> KeyPair:
    """Issue a client certificate that ends soon, by an authority that was written before.

    It began long enough ago that its end is near from the first moment on.
    """
    now = datetime.datetime.now(datetime.UTC)
    ends = datetime.timedelta(seconds=seconds)
    authority = x509.load_pem_x509_certificate(by.certificate.read_bytes())
    signing = serialization.load_pem_private_key(by.key.read_bytes(), password=None)
    assert isinstance(signing, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject(user, groups))
        .issuer_name(authority.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - max(CLOCK_SLACK, 10 * ends))
        .not_valid_after(now + ends)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
    )
    return write_pair(folder, file, builder.sign(signing, hashes.SHA256()), key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pki:
    """Everything a control plane needs to trust and be trusted."""

    authority: KeyPair
    server: KeyPair
    admin: KeyPair
    controller_manager: KeyPair
    scheduler: KeyPair
    kubelet_client: KeyPair
    front_proxy_authority: KeyPair
    front_proxy: KeyPair
    service_account: KeyPair
    """The token signing key; its `certificate` is the bare public key."""


def create_pki(folder: Path, *, service_address: str) -> Pki:
    """Make all certificates of one control plane below `folder`.

    `service_address` is the address of the Service `kubernetes`, under which pods would reach
    the API server.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    authority = Authority(folder, "ca")
    front_proxy_authority = Authority(folder, "front-proxy-ca")
    kubernetes = ("kubernetes", "kubernetes.default", "kubernetes.default.svc")
    return Pki(
        authority=authority.files,
        server=authority.issue_server(
            "apiserver",
            addresses=("127.0.0.1", "::1", service_address),
            names=("localhost", *kubernetes, "kubernetes.default.svc.cluster.local"),
        ),
        admin=authority.issue_client("admin", user="testbed-admin", groups=["system:masters"]),
        controller_manager=authority.issue_client(
            "controller-manager", user="system:kube-controller-manager"
        ),
        scheduler=authority.issue_client("scheduler", user="system:kube-scheduler"),
        # kubeadm gives the API server this user and group towards kubelets.
        kubelet_client=authority.issue_client(
            "kubelet-client", user="kube-apiserver-kubelet-client", groups=["system:masters"]
        ),
        front_proxy_authority=front_proxy_authority.files,
        front_proxy=front_proxy_authority.issue_client("front-proxy", user=FRONT_PROXY_NAME),
        service_account=write_service_account_keys(folder),
    )


def subject(user: str, groups: Sequence[str] = ()) -> x509.Name:
    organizations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*organizations, x509.NameAttribute(NameOID.COMMON_NAME, user)])


def unsigned(
    owner: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(owner)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SLACK)
        .not_valid_after(now + LIFETIME)
    )


def key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def write_service_account_keys(folder: Path) -> KeyPair:
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return KeyPair(
        certificate=write_private(folder / "service-account.pub", public),
        key=write_private(folder / "service-account.key", pem(key)),
    )


def write_pair(
    folder: Path, file: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey
) -> KeyPair:
    text = certificate.public_bytes(serialization.Encoding.PEM)
    return KeyPair(
        certificate=write_private(folder / f"{file}.crt", text),
        key=write_private(folder / f"{file}.key", pem(key)),
    )


def pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def write_private(path: Path, data: bytes) -> Path:
    path.touch(mode=0o600)
    path.write_bytes(data)
    return path
