"""A certificate to serve with at every time, the newest client CA, and a word on what is amiss."""

from __future__ import annotations

import asyncio
import base64
import datetime
import socket
import ssl
import stat
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from structlog.testing import capture_logs

from federate.errors import ClusterError, ConfigError, Forbidden, Rejected, Unreachable
from federate.kubelet import csr, serving
from federate.kubelet.clientca import (
    ClientAuthority,
    ServingContext,
    peer_certificate,
    read_bundle,
    read_certificate,
)
from federate.kubelet.csr import (
    MOST_CERTIFICATE_BYTES,
    NotUsable,
    Pair,
    Verdict,
    answer_of,
    named,
    new_key,
    read_pair,
    self_signed,
    signing_request,
)
from federate.kubelet.ports import PeerCertificate
from federate.kubelet.rules import CertificateMode, ServingRules
from federate.kubelet.serving import ServingTls, build_context
from federate.model.objects import JsonDict, ObjectKey
from federate.model.reasons import NodeReason
from federate.model.resources import CERTIFICATE_REQUESTS, CONFIGMAPS
from tests.support.clock import ManualClock, virtual_loop, virtual_time
from tests.support.credentials import BEGINS, ENDS, Authority, Issued, issue
from tests.support.fakeclient import Refuse
from tests.support.fakecluster import FakeCluster
from tests.support.kubelethub import KubeletHub, signed

HOUR, DAY = 3600.0, 86_400.0
START = 1_800_000_000.0
WHEN = datetime.datetime.fromtimestamp(START, tz=datetime.UTC)


def wall() -> float:
    """What the wall clock says in virtual time."""
    return START - 1000.0 + asyncio.get_running_loop().time()


class Stage:
    """A keeper that runs, in virtual time, beside its hub."""

    def __init__(self, rules: ServingRules, *, hub: KubeletHub, addresses: tuple[str, ...]) -> None:
        self.hub = hub
        self.changes = 0
        self.tls = ServingTls(
            node_name="edge",
            addresses=addresses,
            rules=rules,
            hub=hub,
            on_change=self._changed,
            wall_clock=wall,
            jitter=lambda: 0.5,
        )

    def _changed(self) -> None:
        self.changes += 1

    @property
    def served(self) -> x509.Certificate:
        pair = self.tls._served()
        assert pair is not None
        return x509.load_pem_x509_certificates(pair.certificate)[0]

    @property
    def is_self_signed(self) -> bool:
        return self.served.issuer == self.served.subject

    @property
    def names(self) -> set[str]:
        pair = self.tls._served()
        assert pair is not None
        return set(pair.names)

    @property
    def reason(self) -> NodeReason:
        return self.tls.word.reason


@asynccontextmanager
async def staged(
    rules: ServingRules,
    *,
    hub: KubeletHub | None = None,
    addresses: tuple[str, ...] = ("10.0.0.9",),
) -> AsyncIterator[Stage]:
    if hub is None:
        hub = new_hub()
    stage = Stage(rules, hub=hub, addresses=addresses)
    running = asyncio.create_task(stage.tls.run())
    await asyncio.sleep(0.5)
    try:
        yield stage
        assert not running.done(), "the keeper never ends by itself"
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


CA = Authority()


def new_hub() -> KubeletHub:
    hub = KubeletHub(FakeCluster("hub", asyncio.get_running_loop().time))
    hub.publish(CA.ca.pem)
    return hub


CSR = ServingRules(mode=CertificateMode.CSR)
APPROVING = ServingRules(mode=CertificateMode.CSR, approves=True)


def sign_it(stage: Stage, request: JsonDict, *, hours: float = 1, **more: Any) -> None:
    begins = datetime.datetime.fromtimestamp(wall(), tz=datetime.UTC)
    life = datetime.timedelta(hours=hours)
    pem = signed(request, CA, begins=begins, life=life, **more)
    stage.hub.say(request, "Approved", certificate=pem)


# -- asked for at the hub --------------------------------------------------------------------------


@virtual_time
async def test_a_request_is_what_the_hubs_signer_takes() -> None:
    async with staged(CSR, addresses=("10.0.0.9", "fd00::9", "Edge.example.org")) as stage:
        [request] = stage.hub.requests()
    spec = request["spec"]
    assert spec["signerName"] == "kubernetes.io/kubelet-serving"
    assert set(spec["usages"]) == {"digital signature", "server auth"}
    asked = x509.load_pem_x509_csr(base64.b64decode(spec["request"]))
    assert asked.is_signature_valid
    subject = {one.oid: one.value for one in asked.subject}
    assert subject == {
        NameOID.ORGANIZATION_NAME: "system:nodes",
        NameOID.COMMON_NAME: "system:node:edge",
    }
    names = asked.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {str(one) for one in names.get_values_for_type(x509.IPAddress)} == {
        "10.0.0.9",
        "fd00::9",
    }
    assert names.get_values_for_type(x509.DNSName) == ["edge.example.org"]


@virtual_time
async def test_until_somebody_approves_a_self_signed_one_serves_and_the_command_is_told() -> None:
    async with staged(CSR) as stage:
        assert stage.served.issuer == stage.served.subject
        assert stage.names == {"10.0.0.9"}
        [request] = stage.hub.requests()
        word = stage.tls.word
        assert word.is_good
        assert word.reason is NodeReason.KUBELET_CERTIFICATE_PENDING
        assert f"kubectl certificate approve {request['metadata']['name']}" in word.message
        await asyncio.sleep(HOUR / 2)
        assert len(stage.hub.requests()) == 1
        changes = stage.changes
        sign_it(stage, request)
        await asyncio.sleep(15)
        assert not stage.is_self_signed
        assert stage.reason is NodeReason.KUBELET_SERVING
        assert stage.changes - changes == 1


@virtual_time
async def test_an_approval_in_the_first_minute_is_noticed_within_two_seconds() -> None:
    async with staged(CSR) as stage:
        [request] = stage.hub.requests()
        await asyncio.sleep(30)
        sign_it(stage, request)
        await asyncio.sleep(2)
        assert not stage.is_self_signed


@virtual_time
async def test_the_word_says_that_the_signer_is_late() -> None:
    async with staged(CSR) as stage:
        [request] = stage.hub.requests()
        stage.hub.say(request, "Approved")
        await asyncio.sleep(2)
        assert "its signer did not answer yet" in stage.tls.word.message


@virtual_time
async def test_a_certificate_is_renewed_before_it_ends_with_a_new_key() -> None:
    async with staged(CSR) as stage:
        [request] = stage.hub.requests()
        sign_it(stage, request)
        await asyncio.sleep(2)
        first = stage.served
        await asyncio.sleep(0.74 * HOUR)
        assert len(stage.hub.requests()) == 1
        await asyncio.sleep(0.02 * HOUR)
        [_, second] = stage.hub.requests()
        assert stage.served == first
        assert "until 2027" in stage.tls.word.message
        sign_it(stage, second)
        await asyncio.sleep(15)
        assert stage.served != first
        assert stage.served.public_key() != first.public_key()


@virtual_time
async def test_a_certificate_that_ended_gives_way_to_a_self_signed_one() -> None:
    async with staged(CSR) as stage:
        [request] = stage.hub.requests()
        sign_it(stage, request)
        await asyncio.sleep(2)
        await asyncio.sleep(1.1 * HOUR)
        assert stage.is_self_signed
        assert stage.served.not_valid_after_utc.timestamp() > wall()


@virtual_time
@pytest.mark.parametrize("kind", ["Denied", "Failed"])
async def test_a_no_is_told_and_asked_again_within_the_hour(kind: str) -> None:
    async with staged(CSR) as stage:
        [request] = stage.hub.requests()
        stage.hub.say(request, kind, message="no node of ours")
        await asyncio.sleep(2)
        word = stage.tls.word
        assert not word.is_good
        assert word.reason is NodeReason.KUBELET_CERTIFICATE_DENIED
        assert "no node of ours" in word.message
        assert stage.is_self_signed
        await asyncio.sleep(3000)
        assert len(stage.hub.requests()) == 1
        await asyncio.sleep(700)
        assert len(stage.hub.requests()) == 2


@virtual_time
async def test_a_request_the_hub_forgot_is_made_again() -> None:
    """Hubs remove requests that nobody approved after a day."""
    async with staged(CSR) as stage:
        [request] = stage.hub.requests()
        name = request["metadata"]["name"]
        stage.hub.cluster.delete_by_user(CERTIFICATE_REQUESTS, ObjectKey("", name))
        await asyncio.sleep(5)
        [other] = stage.hub.requests()
        assert other["metadata"]["name"] != name


@virtual_time
async def test_a_certificate_that_is_not_the_one_asked_for_is_not_served() -> None:
    """Neither one of another key, nor one of other addresses, nor one that ended."""
    other = issue("other")
    elsewhere = x509.SubjectAlternativeName([x509.DNSName("elsewhere")])
    for more in ({"by": other}, {"names": elsewhere}, {"hours": 0.0001}):
        async with staged(CSR) as stage:
            [request] = stage.hub.requests()
            sign_it(stage, request, **more)
            await asyncio.sleep(2)
            assert stage.is_self_signed
            assert stage.reason is NodeReason.KUBELET_CERTIFICATE_DENIED


@virtual_time
async def test_own_requests_are_approved_only_where_the_user_says_so() -> None:
    async with staged(APPROVING) as stage:
        await asyncio.sleep(1)
        [request] = stage.hub.requests()
        assert answer_of(request).verdict is Verdict.APPROVED
        [condition] = request["status"]["conditions"]
        assert condition["reason"] == "FederateSelfApproval"
        sign_it(stage, request)
        await asyncio.sleep(2)
        assert not stage.is_self_signed


@virtual_time
async def test_a_strangers_request_is_never_approved() -> None:
    """Not even one that takes the name of ours."""
    hub = new_hub()
    hub.refuses = {"certificatesigningrequests/approval": Unreachable("no")}
    async with staged(APPROVING, hub=hub) as stage:
        [request] = hub.requests()
        key = ObjectKey("", request["metadata"]["name"])
        hub.cluster.delete_by_user(CERTIFICATE_REQUESTS, key)
        hub.cluster.add(
            CERTIFICATE_REQUESTS, {"metadata": {"name": key.name}, "spec": {"request": "theirs"}}
        )
        hub.refuses = {}
        await asyncio.sleep(10)
        [theirs] = [one for one in hub.requests() if one["spec"]["request"] == "theirs"]
        assert answer_of(theirs).verdict is Verdict.PENDING
        assert stage.is_self_signed


@virtual_time
async def test_a_missing_right_to_approve_is_told_with_both_ways_out() -> None:
    hub = new_hub()
    hub.refuses = {"certificatesigningrequests/approval": Forbidden("not you")}
    async with staged(APPROVING, hub=hub) as stage:
        word = stage.tls.word
        assert not word.is_good
        assert "--with approve" in word.message
        assert "kubectl certificate approve federate-edge-" in word.message
        [request] = hub.requests()
        sign_it(stage, request)
        await asyncio.sleep(2)
        assert stage.tls.word.is_good


@virtual_time
@pytest.mark.parametrize(
    ("error", "reason", "is_good"),
    [
        (Forbidden("no"), NodeReason.KUBELET_CERTIFICATE_REFUSED, False),
        (Rejected("no"), NodeReason.KUBELET_CERTIFICATE_REFUSED, False),
        (Unreachable("no"), NodeReason.KUBELET_CERTIFICATE_PENDING, True),
    ],
)
async def test_a_hub_that_takes_no_request_costs_only_the_certificate(
    error: ClusterError, reason: NodeReason, is_good: bool
) -> None:
    hub = new_hub()
    hub.refuses = {CERTIFICATE_REQUESTS.plural: error}
    async with staged(CSR, hub=hub) as stage:
        assert stage.is_self_signed
        assert stage.tls.context() is not None
        assert (stage.reason, stage.tls.word.is_good) == (reason, is_good)
        await asyncio.sleep(HOUR)
        hub.refuses = {}
        await asyncio.sleep(serving.MOST_BACK_OFF_SECONDS + 1)
        [request] = hub.requests()
        sign_it(stage, request)
        await asyncio.sleep(15)
        assert stage.tls.word.is_good
        assert not stage.is_self_signed


@virtual_time
async def test_keys_are_told_nowhere() -> None:
    with capture_logs() as logs:
        async with staged(CSR) as stage:
            [request] = stage.hub.requests()
            sign_it(stage, request)
            await asyncio.sleep(2)
            said = repr((logs, stage.tls._good, stage.tls._makeshift, stage.tls._request))
            said += repr((stage.hub.cluster.calls, stage.tls.word))
    assert logs
    assert "PRIVATE KEY" not in said


@virtual_time
async def test_a_folder_keeps_the_certificate_across_restarts(tmp_path: Path) -> None:
    """Key and certificate are there for nobody but us; one that is not good any more is not."""
    rules = ServingRules(mode=CertificateMode.CSR, folder=tmp_path)
    async with staged(rules) as stage:
        [request] = stage.hub.requests()
        sign_it(stage, request)
        await asyncio.sleep(2)
        served = stage.served
    [file] = tmp_path.iterdir()  # noqa: ASYNC240
    assert file.name == "edge.pem"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    async with staged(rules) as stage:
        assert stage.served == served
        assert stage.tls.word.is_good
        assert not stage.hub.requests()
    async with staged(rules, addresses=("10.0.0.10",)) as stage:
        assert stage.is_self_signed
    file.write_bytes(b"nonsense")
    async with staged(rules) as stage:
        assert stage.is_self_signed
        assert len(stage.hub.requests()) == 1


@virtual_time
async def test_a_folder_that_cannot_be_written_costs_nothing_else(tmp_path: Path) -> None:
    rules = ServingRules(mode=CertificateMode.CSR, folder=tmp_path / "missing")
    async with staged(rules) as stage:
        [request] = stage.hub.requests()
        sign_it(stage, request)
        await asyncio.sleep(2)
        assert not stage.is_self_signed


# -- from files, and by ourselves ------------------------------------------------------------------


def write_pair(folder: Path, pair: Issued) -> ServingRules:
    certificate, key = folder / "tls.crt", folder / "tls.key"
    certificate.write_bytes(pair.pem)
    key.write_bytes(pair.key_pem)
    mode = CertificateMode.FILES
    return ServingRules(mode=mode, certificate_file=certificate, key_file=key)


def lasting(name: str, *, days: float = 1) -> Issued:
    return issue(name, CA.ca, life=(WHEN, WHEN + datetime.timedelta(days=days)))


@virtual_time
async def test_files_are_served_and_followed(tmp_path: Path) -> None:
    first, second = lasting("first"), lasting("second")
    rules = write_pair(tmp_path, first)
    async with staged(rules, addresses=("127.0.0.1",)) as stage:
        assert stage.served == first.certificate
        assert stage.reason is NodeReason.KUBELET_SERVING
        before = stage.tls.context()
        write_pair(tmp_path, second)
        await asyncio.sleep(6)
        assert stage.served == second.certificate
        assert stage.tls.context() is not before
        assert not stage.hub.requests()


@virtual_time
async def test_half_written_files_leave_the_pair_of_before(tmp_path: Path) -> None:
    first, second = lasting("first"), lasting("second")
    rules = write_pair(tmp_path, first)
    async with staged(rules, addresses=("127.0.0.1",)) as stage:
        (tmp_path / "tls.crt").write_bytes(second.pem)
        await asyncio.sleep(6)
        assert stage.served == first.certificate
        assert stage.reason is NodeReason.KUBELET_CERTIFICATE_UNUSABLE
        assert "another key" in stage.tls.word.message
        (tmp_path / "tls.key").write_bytes(second.key_pem)
        await asyncio.sleep(6)
        assert stage.served == second.certificate
        assert stage.tls.word.is_good


@virtual_time
async def test_files_that_cannot_be_read_or_ended_are_told_and_made_up_for(tmp_path: Path) -> None:
    rules = ServingRules(
        mode=CertificateMode.FILES,
        certificate_file=tmp_path / "none.crt",
        key_file=tmp_path / "none.key",
    )
    async with staged(rules) as stage:
        assert stage.is_self_signed
        assert stage.reason is NodeReason.KUBELET_CERTIFICATE_UNUSABLE
        assert "No such file" in stage.tls.word.message
    async with staged(ServingRules(mode=CertificateMode.FILES)) as stage:
        assert "not both named" in stage.tls.word.message
    rules = write_pair(tmp_path, lasting("brief", days=0.01))
    async with staged(rules, addresses=("127.0.0.1",)) as stage:
        await asyncio.sleep(0.011 * DAY)
        assert stage.is_self_signed
        assert "ended at" in stage.tls.word.message
        assert not stage.tls.word.is_good


@virtual_time
async def test_files_for_other_addresses_serve_and_are_told(tmp_path: Path) -> None:
    rules = write_pair(tmp_path, lasting("first"))
    async with staged(rules, addresses=("10.9.9.9",)) as stage:
        assert not stage.is_self_signed
        assert "does not name 10.9.9.9" in stage.tls.word.message


@virtual_time
async def test_self_signed_is_renewed_and_asks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csr, "SELF_SIGNED_LIFE", datetime.timedelta(days=10))
    async with staged(ServingRules(mode=CertificateMode.SELF_SIGNED)) as stage:
        first = stage.served
        assert stage.reason is NodeReason.KUBELET_CERTIFICATE_SELF_SIGNED
        assert stage.tls.word.is_good
        expiry = stage.tls.expiry
        assert expiry is not None and expiry.at > wall() + 9 * DAY
        await asyncio.sleep(9 * DAY)
        assert stage.served != first
        assert not stage.hub.requests()


# -- the client CA ---------------------------------------------------------------------------------

SELF_SIGNED = ServingRules(mode=CertificateMode.SELF_SIGNED)


@virtual_time
async def test_the_client_ca_is_followed() -> None:
    other = Authority()
    async with staged(SELF_SIGNED) as stage:
        first = stage.tls.context()
        assert isinstance(first, ServingContext)
        assert len(first.get_ca_certs()) == 1
        stage.hub.publish(CA.ca.pem + other.ca.pem)
        await asyncio.sleep(1)
        second = stage.tls.context()
        assert isinstance(second, ServingContext)
        assert second is not first
        assert len(second.get_ca_certs()) == 2


@virtual_time
@pytest.mark.parametrize("text", [b"", b"nonsense", None])
async def test_a_client_ca_that_is_gone_or_broken_leaves_the_last_one(text: bytes | None) -> None:
    async with staged(SELF_SIGNED) as stage:
        before = stage.tls.context()
        stage.hub.publish(text)
        await asyncio.sleep(1)
        assert stage.tls.context() is before
        assert "holds no client CA" in stage.tls.authority.trouble
        key = ObjectKey("kube-system", "extension-apiserver-authentication")
        stage.hub.cluster.delete_by_user(CONFIGMAPS, key)
        await asyncio.sleep(1)
        assert "is gone" in stage.tls.authority.trouble
        assert stage.tls.context() is before
        stage.hub.publish(CA.ca.pem)
        await asyncio.sleep(1)
        assert not stage.tls.authority.trouble


@virtual_time
async def test_without_a_client_ca_nobody_is_asked_for_a_certificate_and_the_node_says_so() -> None:
    """The front proxy's CA, which stands beside it, is none: its bearer may be anybody."""
    hub = KubeletHub(FakeCluster("hub", asyncio.get_running_loop().time))
    hub.publish(None, **{"requestheader-client-ca-file": CA.ca.pem.decode()})
    async with staged(SELF_SIGNED, hub=hub) as stage:
        context = stage.tls.context()
        assert isinstance(context, ServingContext)
        assert context.verify_mode is ssl.CERT_NONE
        assert not context.get_ca_certs()
        word = stage.tls.word
        assert (word.is_good, word.reason) == (False, NodeReason.KUBELET_CLIENT_AUTHORITY_UNKNOWN)
        hub.publish(CA.ca.pem)
        await asyncio.sleep(1)
        assert stage.tls.word.is_good


@virtual_time
async def test_a_client_ca_that_may_not_be_read_is_told() -> None:
    hub = new_hub()
    hub.cluster.faults = lambda call: (
        Refuse(Forbidden("not you")) if call.resource == CONFIGMAPS else None
    )
    async with staged(SELF_SIGNED, hub=hub) as stage:
        assert stage.reason is NodeReason.KUBELET_STARTING
        await asyncio.sleep(6)
        word = stage.tls.word
        assert word.reason is NodeReason.KUBELET_CLIENT_AUTHORITY_UNKNOWN
        assert "not you" in word.message


@virtual_time
async def test_a_hub_without_the_config_map_is_told() -> None:
    hub = KubeletHub(FakeCluster("hub", asyncio.get_running_loop().time))
    async with staged(SELF_SIGNED, hub=hub) as stage:
        await asyncio.sleep(6)
        assert "the hub has no ConfigMap" in stage.tls.word.message


async def test_a_client_ca_file_is_followed(tmp_path: Path) -> None:
    file = tmp_path / "ca.crt"
    told = asyncio.Event()
    hub: Any = None
    authority = ClientAuthority(hub=hub, file=file, on_change=told.set, reload_seconds=0.02)
    running = asyncio.create_task(authority.run())
    try:
        await told.wait()
        assert "No such file" in authority.trouble
        told.clear()
        file.write_bytes(CA.ca.pem)
        await told.wait()
        assert authority.bundle is not None and not authority.trouble
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


def client_certificate(
    by: Authority, name: str = "jane", *, ends: datetime.datetime = ENDS
) -> bytes:
    pem = issue(name, by.ca, life=(BEGINS, ends)).pem
    return ssl.PEM_cert_to_DER_cert(pem.decode())


def authority_of(*authorities: Authority, clock: ManualClock | None = None) -> ClientAuthority:
    hub: Any = None
    found = ClientAuthority(hub=hub, wall_clock=clock or ManualClock(ENDS.timestamp() - 60))
    found._take(b"".join(one.ca.pem for one in authorities))
    return found


def peer_of(der: bytes, authority: ClientAuthority) -> PeerCertificate:
    assert authority.bundle is not None
    found = read_certificate(der, authority=authority.bundle.fingerprint)
    assert found is not None
    return found


def test_a_connection_that_outlives_its_certificate_is_nobodys() -> None:
    clock = ManualClock(ENDS.timestamp() - 60)
    authority = authority_of(CA, clock=clock)
    peer = peer_of(client_certificate(CA), authority)
    assert authority.vouches(peer)
    clock.advance(61)
    assert not authority.vouches(peer)


def test_a_connection_that_outlives_its_ca_is_nobodys() -> None:
    """Where a CA was added, or another one was removed, it stays whose it was."""
    other = Authority()
    authority = authority_of(CA)
    mine = peer_of(client_certificate(CA), authority)
    authority._take(CA.ca.pem + other.ca.pem)
    assert authority.vouches(mine)
    theirs = peer_of(client_certificate(other), authority)
    authority._take(other.ca.pem)
    assert not authority.vouches(mine)
    assert authority.vouches(theirs)


def test_without_a_client_ca_nobody_is_vouched_for() -> None:
    hub: Any = None
    peer = peer_of(client_certificate(CA), authority_of(CA))
    assert not ClientAuthority(hub=hub).vouches(peer)


def named_certificate(*attributes: x509.NameAttribute[str]) -> bytes:
    key = issue("x")
    subject = x509.Name(list(attributes))
    found = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.key.public_key())
        .serial_number(1)
        .not_valid_before(BEGINS)
        .not_valid_after(ENDS)
    )
    return found.sign(key.key, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


USER_ID = x509.ObjectIdentifier("1.3.6.1.4.1.57683.2")


def test_a_certificate_is_read_as_api_servers_read_it() -> None:
    """The last name is the user, all organizations are groups, the uid has a number of its own."""
    found = read_certificate(
        named_certificate(
            x509.NameAttribute(NameOID.COMMON_NAME, "first"),
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "crew"),
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "deck"),
            x509.NameAttribute(NameOID.COMMON_NAME, "jane"),
            x509.NameAttribute(USER_ID, "7"),
        )
    )
    assert found is not None
    assert (found.common_name, found.organizations, found.uid) == ("jane", ("crew", "deck"), "7")
    assert found.ends_at == int(ENDS.timestamp())
    assert len(found.fingerprint) == 64
    assert "der=" not in repr(found)


def test_a_certificate_that_tells_nobody_clearly_is_nobodys() -> None:
    assert read_certificate(named_certificate()) is None
    assert read_certificate(b"nonsense") is None
    two = [x509.NameAttribute(USER_ID, uid) for uid in "78"]
    assert (
        read_certificate(named_certificate(x509.NameAttribute(NameOID.COMMON_NAME, "j"), *two))
        is None
    )
    assert peer_certificate(None) is None


def test_bundles_are_bounded_and_read_whole() -> None:
    assert read_bundle(b"") is None
    assert (
        read_bundle(CA.ca.pem + b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
        is None
    )
    assert read_bundle(CA.ca.pem * 5000) is None
    bundle = read_bundle("# ä comment\n".encode() + CA.ca.pem)
    assert bundle is not None and len(bundle.certificates) == 1


# -- pairs -----------------------------------------------------------------------------------------


def test_names_are_written_one_way() -> None:
    assert named(["", "FD00:0::9", "10.0.0.9", "Edge"]) == {"fd00::9", "10.0.0.9", "edge"}


def test_a_long_node_name_fits() -> None:
    """Node names have up to 253 characters, a common name 64 by the book."""
    name = ".".join(["n" * 60] * 4)
    names = frozenset({"10.0.0.9"})
    asked = x509.load_pem_x509_csr(signing_request(node_name=name, key=new_key(), names=names))
    assert f"system:node:{name}".encode() in asked.public_bytes(serialization.Encoding.DER)
    pair = self_signed(node_name=name, names=names, now=START)
    build_context(pair, "")
    read = read_certificate(ssl.PEM_cert_to_DER_cert(pair.certificate.decode()))
    assert read is not None and read.common_name == f"system:node:{name}"


def pair_of(issued: Issued) -> Pair:
    return read_pair(issued.pem, issued.key_pem)


def test_what_is_no_pair_is_refused_with_the_reason() -> None:
    one, other = issue("one"), issue("other")
    for certificate, key, why in (
        (b"", one.key_pem, "no PEM certificate"),
        (one.pem, b"", "no unencrypted PEM key"),
        (one.pem, other.key_pem, "another key"),
        (b"x" * (MOST_CERTIFICATE_BYTES + 1), one.key_pem, "too large"),
        (client_only(one), one.key_pem, "not for servers"),
    ):
        with pytest.raises(NotUsable, match=why):
            read_pair(certificate, key)


def client_only(issued: Issued) -> bytes:
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([]))
        .issuer_name(x509.Name([]))
        .public_key(issued.key.public_key())
        .serial_number(1)
        .not_valid_before(BEGINS)
        .not_valid_after(ENDS)
        .add_extension(usage, critical=False)
    )
    return certificate.sign(issued.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def test_a_broken_answer_of_a_signer_is_a_failure() -> None:
    conditions = [{"type": "Approved"}]
    broken = {"status": {"conditions": conditions, "certificate": "ä"}}
    assert answer_of(broken).verdict is Verdict.FAILED
    unsaid = {"status": {"conditions": [{"type": "Approved", "status": "False"}]}}
    assert answer_of(unsaid).verdict is Verdict.PENDING
    unapproved = {"status": {"certificate": "AAAA"}}
    assert answer_of(unapproved).verdict is Verdict.PENDING


def test_openssl_has_the_last_word_about_a_pair_and_a_bundle() -> None:
    pair = pair_of(issue("one"))
    broken = Pair(certificate=b"x", key=pair.key, names=pair.names, begins_at=0.0, ends_at=1.0)
    with pytest.raises(ConfigError):
        build_context(broken, "")
    with pytest.raises(ConfigError):
        build_context(pair, "nonsense")


# -- on the wire -----------------------------------------------------------------------------------


class Met:
    """What one handshake came to, on both sides."""

    def __init__(self) -> None:
        self.peer: PeerCertificate | None = None
        self.error: Exception | None = None
        self.version = ""
        self.reused: bool | None = None


def meet(context: ssl.SSLContext, client: ssl.SSLContext, session: Any = None) -> tuple[Met, Any]:
    """Let a client come to a server, as far as it gets; say something, so that TLS 1.3 is done."""
    ours, theirs = socket.socketpair()
    met = Met()

    def serve() -> None:
        try:
            with context.wrap_socket(ours, server_side=True) as tls:
                met.peer, met.version = peer_certificate(tls), tls.version() or ""
                tls.recv(1)
                tls.send(b"y")
        except OSError as error:
            met.error = error
            ours.close()

    server = threading.Thread(target=serve)
    server.start()
    kept = None
    with suppress(OSError), client.wrap_socket(theirs, session=session) as tls:
        tls.send(b"x")
        tls.recv(1)
        kept, met.reused = tls.session, tls.session_reused
    server.join(10)
    return met, kept


def client_of(issued: Issued | None, folder: Path) -> ssl.SSLContext:
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    if issued is not None:
        file = folder / "client.pem"
        file.write_bytes(issued.pem + issued.key_pem)
        client.load_cert_chain(file)
    return client


def serving_context(*authorities: Authority) -> ServingContext:
    pem = "".join(one.ca.pem.decode() for one in authorities)
    pair = self_signed(node_name="edge", names=frozenset({"127.0.0.1"}), now=BEGINS.timestamp())
    context = build_context(pair, pem)
    context.authority = "this one"
    return context


def test_a_good_certificate_is_read_from_the_connection(tmp_path: Path) -> None:
    met, _ = meet(serving_context(CA), client_of(issue("jane", CA.ca), tmp_path))
    assert met.peer is not None
    assert (met.peer.common_name, met.peer.authority) == ("jane", "this one")
    assert met.version == "TLSv1.3"


def test_none_is_nobody_but_may_come(tmp_path: Path) -> None:
    met, _ = meet(serving_context(CA), client_of(None, tmp_path))
    assert met.peer is None and met.error is None
    met, _ = meet(serving_context(), client_of(issue("jane", CA.ca), tmp_path))
    assert met.peer is None and met.error is None


@pytest.mark.parametrize("what", ["another CA", "ended", "itself"])
def test_a_bad_certificate_is_refused_by_tls(what: str, tmp_path: Path) -> None:
    past = (BEGINS - datetime.timedelta(days=2), BEGINS)
    issued = {
        "another CA": lambda: issue("jane", Authority().ca),
        "ended": lambda: issue("jane", CA.ca, life=past),
        "itself": lambda: issue("jane"),
    }[what]()
    met, _ = meet(serving_context(CA), client_of(issued, tmp_path))
    assert isinstance(met.error, ssl.SSLError)
    assert met.peer is None


def issued_for(usage: x509.ObjectIdentifier, by: Issued) -> Issued:
    """A certificate for one usage alone."""
    key = issue("key").key
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "jane")]))
        .issuer_name(by.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(BEGINS)
        .not_valid_after(ENDS)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
    )
    return Issued(certificate.sign(by.key, hashes.SHA256()), key)


def test_a_servers_certificate_is_no_clients(tmp_path: Path) -> None:
    """A kubelet's serving certificate, say, whose CA is often the same."""
    usages = ExtendedKeyUsageOID
    met, _ = meet(serving_context(CA), client_of(issued_for(usages.CLIENT_AUTH, CA.ca), tmp_path))
    assert met.peer is not None
    met, _ = meet(serving_context(CA), client_of(issued_for(usages.SERVER_AUTH, CA.ca), tmp_path))
    assert met.peer is None
    assert isinstance(met.error, ssl.SSLError)


def test_an_authority_below_another_is_enough(tmp_path: Path) -> None:
    """A bundle may hold the intermediate alone, as Go servers take it."""
    below = Authority(intermediate(CA.ca))
    met, _ = meet(serving_context(below), client_of(issue("jane", below.ca), tmp_path))
    assert met.peer is not None
    met, _ = meet(serving_context(below), client_of(issue("jane", CA.ca), tmp_path))
    assert met.peer is None


def intermediate(by: Issued) -> Issued:
    key = issue("key").key
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "below")]))
        .issuer_name(by.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(BEGINS)
        .not_valid_after(ENDS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    )
    return Issued(certificate.sign(by.key, hashes.SHA256()), key)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_no_session_outlives_a_client_ca(version: ssl.TLSVersion, tmp_path: Path) -> None:
    """A session of before does not bring its client along when another CA counts."""
    client = client_of(issue("jane", CA.ca), tmp_path)
    client.minimum_version = client.maximum_version = version
    met, session = meet(serving_context(CA), client)
    assert met.peer is not None
    met, _ = meet(serving_context(Authority()), client, session)
    assert met.peer is None
    assert isinstance(met.error, ssl.SSLError)


def test_old_tls_is_refused(tmp_path: Path) -> None:
    client = client_of(None, tmp_path)
    with pytest.warns(DeprecationWarning):
        client.minimum_version = ssl.TLSVersion.TLSv1_1
        client.maximum_version = ssl.TLSVersion.TLSv1_1
    met, _ = meet(serving_context(CA), client)
    assert isinstance(met.error, ssl.SSLError)


@virtual_time
async def test_a_keeper_that_stumbles_goes_on() -> None:
    """Whatever it is, it is logged, and only the keeper starts again."""
    hub = new_hub()
    hub.refuses = {CERTIFICATE_REQUESTS.plural: RuntimeError("a bug")}  # type: ignore[dict-item]
    with capture_logs() as logs:
        async with staged(CSR, hub=hub) as stage:
            await asyncio.sleep(5)
            assert stage.tls.context() is not None
            hub.refuses = {}
            await asyncio.sleep(2)
            assert len(hub.requests()) == 1
    assert any("starting it again" in one["event"] for one in logs)
    assert virtual_loop().time() > 0
