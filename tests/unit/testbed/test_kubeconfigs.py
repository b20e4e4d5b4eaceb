"""Certificates and kubeconfigs of local clusters."""

import base64
import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtensionOID, NameOID

from e2e.testbed.errors import TestbedError
from e2e.testbed.kubeconfigs import (
    MARK,
    is_marked,
    read_kubeconfig,
    render_kubeconfig,
    server_of,
    write_kubeconfig,
)
from e2e.testbed.pki import Pki, create_pki


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return create_pki(tmp_path_factory.mktemp("pki"), service_address="10.96.0.1")


def load(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_a_written_kubeconfig_embeds_everything_and_is_private(pki: Pki, tmp_path: Path) -> None:
    """A kubeconfig works from anywhere, and only its owner can read the key in it."""
    content = render_kubeconfig(
        name="hub",
        server="https://127.0.0.1:1",
        authority=pki.authority.certificate,
        user=pki.admin,
    )
    path = write_kubeconfig(tmp_path / "kubeconfigs" / "hub.yaml", content, mark=MARK)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert is_marked(path)
    read = read_kubeconfig(path)
    assert server_of(read) == "https://127.0.0.1:1"
    user = read["users"][0]["user"]
    assert base64.b64decode(user["client-key-data"]) == pki.admin.key.read_bytes()
    assert list(path.parent.iterdir()) == [path]


def test_a_foreign_kubeconfig_is_not_marked(tmp_path: Path) -> None:
    """A file the test bed did not write is not taken for its own."""
    path = tmp_path / "hub.yaml"
    assert not is_marked(path)
    path.write_text("apiVersion: v1\n")
    assert not is_marked(path)


def test_relative_paths_in_a_kubeconfig_become_absolute(tmp_path: Path) -> None:
    """A user's kubeconfig goes on working after it was copied elsewhere."""
    path = tmp_path / "config"
    path.write_text("clusters: [{name: a, cluster: {certificate-authority: ca.crt}}]\n")
    cluster = read_kubeconfig(path)["clusters"][0]["cluster"]
    assert cluster["certificate-authority"] == str(tmp_path / "ca.crt")


@pytest.mark.parametrize("text", ["", "[]", "a: b", "{", "clusters: []"])
def test_what_is_no_kubeconfig_is_refused(tmp_path: Path, text: str) -> None:
    """A file that is something else is named in the error."""
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(TestbedError, match="config"):
        read_kubeconfig(path)


def test_an_incomplete_context_is_refused() -> None:
    """A kubeconfig whose current context leads nowhere is refused."""
    with pytest.raises(TestbedError, match="incomplete"):
        server_of({"current-context": "a", "clusters": [{"name": "a", "cluster": {}}]})


def test_the_admin_is_a_master_by_certificate(pki: Pki) -> None:
    """Kubernetes reads user and groups from a client certificate's subject."""
    owner = load(pki.admin.certificate).subject
    groups = [a.value for a in owner.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
    assert groups == ["system:masters"]


def test_the_server_certificate_covers_this_machine_and_the_service(pki: Pki) -> None:
    """Clients reach the API server by loopback, pods by the Service's name and address."""
    extension = load(pki.server.certificate).extensions.get_extension_for_oid(
        ExtensionOID.SUBJECT_ALTERNATIVE_NAME
    )
    alternatives = extension.value
    assert isinstance(alternatives, x509.SubjectAlternativeName)
    addresses = [str(address) for address in alternatives.get_values_for_type(x509.IPAddress)]
    assert {"127.0.0.1", "10.96.0.1"} <= set(addresses)
    assert "kubernetes.default.svc" in alternatives.get_values_for_type(x509.DNSName)


def test_certificates_verify_against_their_authority(pki: Pki) -> None:
    """Every certificate was signed by the authority its users are told to trust."""
    authority = load(pki.authority.certificate)
    for pair in (pki.server, pki.admin, pki.controller_manager, pki.scheduler):
        load(pair.certificate).verify_directly_issued_by(authority)
    front_proxy = load(pki.front_proxy_authority.certificate)
    load(pki.front_proxy.certificate).verify_directly_issued_by(front_proxy)


def test_keys_are_private(pki: Pki) -> None:
    """Only the owner can read a key."""
    for path in (pki.authority.key, pki.admin.key, pki.service_account.key):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
