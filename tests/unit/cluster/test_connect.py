"""Kubeconfig files and service accounts against a TLS server that says who is calling."""

from __future__ import annotations

import base64
import datetime
import ipaddress
import json
import ssl
import stat
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from federate.cluster.client import ClusterClient
from federate.cluster.connect import (
    RELOAD_SECONDS,
    RENEW_SECONDS,
    KubeconfigSource,
    ReloadingCredentials,
    connect,
)
from federate.cluster.kubeconfig import load_identity
from federate.cluster.sessions import Access
from federate.errors import ConfigError, Unauthorized, Unreachable

ENDS = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)
BEGINS = ENDS - datetime.timedelta(days=2)


@dataclass
class Issued:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        return self.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )


def issue(name: str, by: Issued | None = None) -> Issued:
    """Issue a certificate, as plain as clusters have them: no key identifiers."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    names = [x509.DNSName(name), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    if name == "elsewhere":
        names = names[:1]
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(by.certificate.subject if by else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(BEGINS)
        .not_valid_after(ENDS)
        .add_extension(x509.BasicConstraints(ca=by is None, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
    )
    return Issued(builder.sign(by.key if by else key, hashes.SHA256()), key)


@dataclass
class Authority:
    ca: Issued = field(default_factory=lambda: issue("ca"))

    def server_tls(self, folder: Path, name: str) -> ssl.SSLContext:
        pair = issue(name, self.ca)
        file = folder / f"{name}.pem"
        file.write_bytes(pair.pem + pair.key_pem)
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=self.ca.pem.decode())
        tls.load_cert_chain(file)
        tls.verify_mode = ssl.CERT_OPTIONAL
        return tls


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(autouse=True)
def no_files_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing may remain where temporary files go."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    yield
    assert list(scratch.iterdir()) == []


@asynccontextmanager
async def server_of(
    authority: Authority, folder: Path, *, name: str = "kubernetes", good: str = ""
) -> AsyncIterator[str]:
    """Echo who calls: the certificate's name and the Authorization header.

    With `good`, any other token is refused.
    """

    async def echo(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        peer = request.transport.get_extra_info("peercert") or {}
        subject = {k: v for part in peer.get("subject", ()) for k, v in part}
        token = request.headers.get("Authorization", "")
        if good and token != good:
            return web.json_response({"kind": "Status", "message": "who?"}, status=401)
        return web.json_response({"name": subject.get("commonName", ""), "token": token})

    app = web.Application()
    app.router.add_get("/version", echo)
    server = TestServer(app, scheme="https")
    tls = authority.server_tls(folder, name)
    await server.start_server(ssl=tls, shutdown_timeout=0.1)
    try:
        yield f"https://127.0.0.1:{server.port}"
    finally:
        await server.close()


def embed(content: bytes) -> str:
    return base64.b64encode(content).decode()


def kubeconfig(
    folder: Path, server: str, *, user: dict[str, Any] | None = None, **cluster: Any
) -> Path:
    users = [] if user is None else [{"name": "u", "user": user}]
    context = {"cluster": "c"} if user is None else {"cluster": "c", "user": "u"}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
        "users": users,
        "contexts": [{"name": "x", "context": context}],
        "current-context": "x",
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(content))
    return path


async def who_am_i(client: ClusterClient) -> tuple[str, str]:
    try:
        reply = await client.raw_get("/version")
    finally:
        await client.aclose()
    return reply["name"], reply["token"]


def ca_of(authority: Authority) -> dict[str, Any]:
    return {"certificate-authority-data": embed(authority.ca.pem)}


# --- identities --------------------------------------------------------------------------------


async def test_embedded_certificates(authority: Authority, tmp_path: Path) -> None:
    """A client certificate in the kubeconfig is presented, and no copy of its key stays."""
    alice = issue("alice", authority.ca)
    user = {
        "client-certificate-data": embed(alice.pem),
        "client-key-data": embed(alice.key_pem),
    }
    async with server_of(authority, tmp_path) as server:
        path = kubeconfig(tmp_path, server, user=user, **ca_of(authority))
        assert await who_am_i(await connect(path, name="east")) == ("alice", "")


async def test_certificates_in_files(authority: Authority, tmp_path: Path) -> None:
    """Files are found beside the kubeconfig that names them."""
    alice = issue("alice", authority.ca)
    (tmp_path / "ca.crt").write_bytes(authority.ca.pem)
    (tmp_path / "alice.crt").write_bytes(alice.pem)
    (tmp_path / "alice.key").write_bytes(alice.key_pem)
    user = {"client-certificate": "alice.crt", "client-key": str(tmp_path / "alice.key")}
    async with server_of(authority, tmp_path) as server:
        path = kubeconfig(tmp_path, server, user=user, **{"certificate-authority": "ca.crt"})
        assert await who_am_i(await connect(path, name="east")) == ("alice", "")


async def test_tokens(authority: Authority, tmp_path: Path) -> None:
    """Tokens and passwords become the Authorization header, without the newline of a file."""
    (tmp_path / "token").write_text("from-file\n")
    async with server_of(authority, tmp_path) as server:
        for user, expected in (
            ({"token": "abc"}, "Bearer abc"),
            ({"tokenFile": "token"}, "Bearer from-file"),
            ({"username": "a", "password": "b"}, "Basic YTpi"),
            ({}, ""),
            (None, ""),
        ):
            path = kubeconfig(tmp_path, server, user=user, **ca_of(authority))
            assert await who_am_i(await connect(path, name="east")) == ("", expected)


def plugin(folder: Path, status: dict[str, Any], *, code: int = 0) -> dict[str, Any]:
    """A credential plugin that counts its calls in a file."""
    version = "client.authentication.k8s.io/v1"
    said = {"apiVersion": version, "kind": "ExecCredential", "status": status}
    script = folder / "plugin.py"
    script.write_text(
        f"open({str(folder / 'calls')!r}, 'a').write('x')\n"
        f"print({json.dumps(said)!r})\n"
        f"raise SystemExit({code})\n"
    )
    return {"exec": {"apiVersion": version, "command": sys.executable, "args": [str(script)]}}


async def test_a_plugins_token(authority: Authority, tmp_path: Path) -> None:
    """A credential plugin is asked for a token."""
    async with server_of(authority, tmp_path) as server:
        user = plugin(tmp_path, {"token": "t"})
        path = kubeconfig(tmp_path, server, user=user, **ca_of(authority))
        assert await who_am_i(await connect(path, name="east")) == ("", "Bearer t")


async def test_a_plugins_certificate(authority: Authority, tmp_path: Path) -> None:
    """A credential plugin may give a certificate instead."""
    alice = issue("alice", authority.ca)
    said = {"clientCertificateData": alice.pem.decode(), "clientKeyData": alice.key_pem.decode()}
    async with server_of(authority, tmp_path) as server:
        path = kubeconfig(tmp_path, server, user=plugin(tmp_path, said), **ca_of(authority))
        assert await who_am_i(await connect(path, name="east")) == ("alice", "")


async def test_another_context(authority: Authority, tmp_path: Path) -> None:
    """A context can be named instead of the current one."""
    async with server_of(authority, tmp_path) as server:
        path = kubeconfig(tmp_path, server, user={"token": "t"}, **ca_of(authority))
        content = yaml.safe_load(path.read_text())
        content["current-context"] = "gone"
        path.write_text(yaml.safe_dump(content))
        assert await who_am_i(await connect(path, name="east", context="x")) == ("", "Bearer t")


# --- trust -------------------------------------------------------------------------------------


async def test_an_unknown_authority(authority: Authority, tmp_path: Path) -> None:
    """A server whose certificate nobody we trust has signed is unreachable, and gets no token."""
    async with server_of(authority, tmp_path) as server:
        strangers: list[dict[str, Any]] = [ca_of(Authority()), {}]
        for trust in strangers:
            path = kubeconfig(tmp_path, server, user={"token": "abc"}, **trust)
            with pytest.raises(Unreachable):
                await who_am_i(await connect(path, name="east"))


async def test_skipping_verification(authority: Authority, tmp_path: Path) -> None:
    """`insecure-skip-tls-verify` is honoured."""
    async with server_of(authority, tmp_path, name="elsewhere") as server:
        path = kubeconfig(tmp_path, server, user={}, **{"insecure-skip-tls-verify": True})
        assert await who_am_i(await connect(path, name="east")) == ("", "")


async def test_the_servers_name(authority: Authority, tmp_path: Path) -> None:
    """`tls-server-name` says whose certificate to expect behind an address."""
    async with server_of(authority, tmp_path, name="elsewhere") as server:
        trust = ca_of(authority)
        with pytest.raises(Unreachable):
            await who_am_i(await connect(kubeconfig(tmp_path, server, **trust), name="east"))
        trust["tls-server-name"] = "elsewhere"
        path = kubeconfig(tmp_path, server, **trust)
        assert await who_am_i(await connect(path, name="east")) == ("", "")


async def test_proxies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kubeconfig's proxy is used, else the environment's, as kubectl does."""

    async def proxy_of(**cluster: Any) -> str | None:
        source = KubeconfigSource(kubeconfig(tmp_path, "https://10.0.0.1", **cluster), None)
        access, _ = await source.load(force=False)
        return access.proxy

    for name in ("https_proxy", "HTTPS_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    assert await proxy_of() is None
    monkeypatch.setenv("https_proxy", "http://env:3128")
    assert await proxy_of() == "http://env:3128"
    assert await proxy_of(**{"proxy-url": "http://own:3128"}) == "http://own:3128"
    monkeypatch.setenv("no_proxy", "10.0.0.1")
    assert await proxy_of() is None
    with pytest.raises(ConfigError, match="proxy-url: expected"):
        await proxy_of(**{"proxy-url": "socks5://own:1080"})


def test_the_key_is_never_readable_by_others(authority: Authority) -> None:
    """While OpenSSL reads the key, only we could."""
    modes: list[int] = []

    class Spy(ssl.SSLContext):
        def load_cert_chain(self, certfile: Any, *args: Any, **options: Any) -> None:
            modes.append(stat.S_IMODE(Path(certfile).stat().st_mode))
            modes.append(stat.S_IMODE(Path(certfile).parent.stat().st_mode))

    load_identity(Spy(ssl.PROTOCOL_TLS_CLIENT), b"certificate", b"key", where="x")
    assert modes == [0o600, 0o700]


# --- mistakes ----------------------------------------------------------------------------------

SECRET = "c2VjcmV0LXRva2Vu"


@pytest.mark.parametrize(
    ("cluster", "user", "said"),
    [
        ({"server": "10.0.0.1"}, {}, "server: expected an https:// address"),
        ({"certificate-authority": "none.crt"}, {}, "certificate-authority: cannot read"),
        ({"certificate-authority-data": "§"}, {}, "certificate-authority-data: expected base64"),
        ({"certificate-authority-data": SECRET}, {}, "certificate-authority: expected PEM"),
        ({}, {"client-certificate-data": SECRET}, "both a client certificate and its key"),
        (
            {},
            {"client-certificate-data": SECRET, "client-key-data": SECRET},
            "client-key: expected a PEM certificate",
        ),
        ({}, {"tokenFile": "none"}, "user: no usable credentials"),
        ({}, {"token": "secret\u00fctoken"}, "characters that no HTTP header may hold"),
        ({}, {"auth-provider": {"name": "oidc"}}, "user: no usable credentials"),
        ({}, {"exec": {"command": "x"}}, "user.exec: expected command and apiVersion"),
        ({}, {"exec": SECRET}, "user.exec: expected command and apiVersion"),
        (
            {},
            {"exec": {"command": "x", "apiVersion": "v1", "args": SECRET}},
            "user.exec: the plugin x failed",
        ),
        (
            {},
            {"exec": {"command": "no-such-plugin", "apiVersion": "v1"}},
            "no-such-plugin is not installed",
        ),
    ],
)
async def test_mistakes(
    tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any], said: str
) -> None:
    """A mistake is told with its file and key, and never with its value."""
    path = kubeconfig(tmp_path, "https://10.0.0.1", user=user)
    content = yaml.safe_load(path.read_text())
    content["clusters"][0]["cluster"] |= cluster
    path.write_text(yaml.safe_dump(content))
    with pytest.raises(ConfigError) as caught:
        await connect(path, name="east")
    text = str(caught.value)
    assert said in text
    assert str(path) in text
    values = text.replace(str(path), "")
    assert SECRET not in values
    assert "secret" not in values


@pytest.mark.parametrize(
    ("status", "code", "said"),
    [
        ({"token": "secret"}, 1, "failed; run it by hand"),
        ({}, 0, "gave no token"),
        ({"clientCertificateData": "secret"}, 0, "a certificate without its key"),
        ({"token": "secret", "expirationTimestamp": "soon"}, 0, "is no time"),
    ],
)
async def test_mistakes_of_plugins(
    tmp_path: Path, status: dict[str, Any], code: int, said: str
) -> None:
    """A plugin that fails is told from one that answers nonsense; its output stays unsaid."""
    user = plugin(tmp_path, status, code=code)
    with pytest.raises(ConfigError) as caught:
        await connect(kubeconfig(tmp_path, "https://10.0.0.1", user=user), name="east")
    assert said in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "no such file"),
        ("a: [secret", r"not YAML \(line 1\)"),
        ("- secret", "expected a mapping"),
        ("clusters: []", "no current-context"),
        ("current-context: x\ncontexts: 7", "no context named 'x'; contexts there: none"),
        (
            "current-context: x\ncontexts: [{name: y, context: {}}, secret]",
            "no context named 'x'; contexts there: y",
        ),
        (
            "current-context: x\ncontexts: [{name: x, context: {cluster: c}}]",
            "no cluster named 'c'",
        ),
        (
            "current-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\n"
            "clusters: [{name: c, cluster: {server: 'https://x'}}]",
            "no user named 'u'",
        ),
    ],
)
async def test_broken_files(tmp_path: Path, text: str | None, said: str) -> None:
    """A kubeconfig that cannot be used is told from one that is not there."""
    path = tmp_path / "kubeconfig"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=said) as caught:
        await connect(path, name="east")
    assert "secret" not in str(caught.value).replace(str(path), "")


async def test_a_folder_instead_of_a_file(tmp_path: Path) -> None:
    """A path that is no file is told as such."""
    with pytest.raises(ConfigError, match="cannot be read"):
        await connect(tmp_path, name="east")


# --- freshness ---------------------------------------------------------------------------------


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


async def credentials_of(path: Path, clock: Clock) -> ReloadingCredentials:
    source = KubeconfigSource(path, None, wall_clock=lambda: time.time() + clock.now)
    credentials = ReloadingCredentials(source, name="east", clock=clock)
    await credentials.start()
    return credentials


def token_of(access: Access) -> str:
    return access.headers["Authorization"].removeprefix("Bearer ")


async def test_rotated_tokens_are_noticed(tmp_path: Path) -> None:
    """A token file is read again every few seconds, and the TLS identity stays the same."""
    token = tmp_path / "token"
    token.write_text("one")
    clock = Clock()
    path = kubeconfig(tmp_path, "https://10.0.0.1", user={"tokenFile": "token"})
    credentials = await credentials_of(path, clock)
    first = await credentials.current()
    token.write_text("two")
    assert await credentials.current() is first
    clock.now = RELOAD_SECONDS
    second = await credentials.current()
    assert (token_of(first), token_of(second)) == ("one", "two")
    assert first.tls is second.tls


async def test_rotated_certificates_are_noticed(authority: Authority, tmp_path: Path) -> None:
    """Another certificate makes another TLS identity."""
    clock = Clock()

    def written(name: str) -> Path:
        pair = issue(name, authority.ca)
        user = {
            "client-certificate-data": embed(pair.pem),
            "client-key-data": embed(pair.key_pem),
        }
        return kubeconfig(tmp_path, "https://10.0.0.1", user=user)

    credentials = await credentials_of(written("alice"), clock)
    first = await credentials.current()
    written("bob")
    second = await credentials.renew(first)
    assert second.tls is not first.tls


async def test_a_broken_file_keeps_what_worked(tmp_path: Path) -> None:
    """A kubeconfig that is broken for a moment does not cut the connection."""
    clock = Clock()
    path = kubeconfig(tmp_path, "https://10.0.0.1", user={"token": "one"})
    credentials = await credentials_of(path, clock)
    first = await credentials.current()
    path.write_text("oops: [")
    clock.now = RELOAD_SECONDS
    assert await credentials.current() is first
    kubeconfig(tmp_path, "https://10.0.0.1", user={"token": "two"})
    clock.now += RENEW_SECONDS
    assert token_of(await credentials.current()) == "two"


@pytest.mark.parametrize("what", ["server", "authority"])
async def test_c5_a_client_that_must_not_move_tells_of_a_file_that_leads_elsewhere(
    authority: Authority, tmp_path: Path, what: str
) -> None:
    """It stays with the address and authority it began with, and with what it last could log in."""
    clock, moved = Clock(), []
    path = kubeconfig(tmp_path, "https://10.0.0.1", user={"token": "one"})
    credentials = ReloadingCredentials(
        KubeconfigSource(path, None),
        name="east",
        clock=clock,
        on_moved=lambda: moved.append(clock.now),
    )
    await credentials.start()
    kubeconfig(tmp_path, "https://10.0.0.1", user={"token": "two"})
    clock.now = RELOAD_SECONDS
    rotated = await credentials.current()
    assert (token_of(rotated), moved) == ("two", [])
    content = yaml.safe_load(path.read_text())
    if what == "server":
        content["clusters"][0]["cluster"]["server"] = "https://10.0.0.2"
    else:
        content["clusters"][0]["cluster"]["certificate-authority-data"] = embed(authority.ca.pem)
    content["users"][0]["user"]["token"] = "three"
    path.write_text(yaml.safe_dump(content))
    clock.now += RELOAD_SECONDS
    assert await credentials.current() is rotated
    assert await credentials.renew(rotated) is rotated
    assert len(moved) == 2


@pytest.mark.parametrize("is_refused", [True, False])
async def test_another_current_context_moves_nobody(tmp_path: Path, is_refused: bool) -> None:
    """`kubectl config use-context` on the file later does not lead to another cluster."""
    clock = Clock()
    path = kubeconfig(tmp_path, "https://10.0.0.1", user={"token": "one"})
    credentials = await credentials_of(path, clock)
    first = await credentials.current()
    content = yaml.safe_load(path.read_text())
    content["clusters"].append({"name": "d", "cluster": {"server": "https://10.0.0.2"}})
    content["contexts"].append({"name": "y", "context": {"cluster": "d", "user": "u"}})
    content["current-context"] = "y"
    content["users"][0]["user"]["token"] = "two"
    path.write_text(yaml.safe_dump(content))
    clock.now = RELOAD_SECONDS
    second = await (credentials.renew(first) if is_refused else credentials.current())
    assert second.server == first.server == "https://10.0.0.1"
    assert token_of(second) == "two"


async def test_renewals_are_rare(tmp_path: Path) -> None:
    """Many refusals at once lead to one run of the plugin, and one more only after a while."""
    clock = Clock()
    user = plugin(tmp_path, {"token": "t"})
    credentials = await credentials_of(kubeconfig(tmp_path, "https://10.0.0.1", user=user), clock)
    calls = tmp_path / "calls"
    first = await credentials.current()
    second = await credentials.renew(first)
    assert second is not first
    assert await credentials.renew(first) is second
    assert await credentials.renew(second) is second
    assert calls.read_text() == "xx"
    clock.now = 10.0
    assert await credentials.renew(second) is not second
    assert calls.read_text() == "xxx"


async def test_a_plugin_runs_when_its_token_nears_its_end(tmp_path: Path) -> None:
    """A token is replaced before it expires, and not asked for again while it holds."""
    clock = Clock()
    expires = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=100)
    stamp = expires.strftime("%Y-%m-%dT%H:%M:%SZ")
    user = plugin(tmp_path, {"token": "t", "expirationTimestamp": stamp})
    credentials = await credentials_of(kubeconfig(tmp_path, "https://10.0.0.1", user=user), clock)
    calls = tmp_path / "calls"
    clock.now = 60.0
    await credentials.current()
    assert calls.read_text() == "x"
    clock.now = 71.0
    await credentials.current()
    assert calls.read_text() == "xx"


async def test_a_refused_token_is_replaced(authority: Authority, tmp_path: Path) -> None:
    """A client whose token is refused reads its kubeconfig again and goes on."""
    async with server_of(authority, tmp_path, good="Bearer two") as server:
        trust = ca_of(authority)
        path = kubeconfig(tmp_path, server, user={"token": "one"}, **trust)
        client = await connect(path, name="east")
        kubeconfig(tmp_path, server, user={"token": "two"}, **trust)
        assert await who_am_i(client) == ("", "Bearer two")
        path = kubeconfig(tmp_path, server, user={"token": "three"}, **trust)
        with pytest.raises(Unauthorized):
            await who_am_i(await connect(path, name="east"))


# --- in a pod ----------------------------------------------------------------------------------


async def test_in_a_pod(authority: Authority, tmp_path: Path) -> None:
    """Without a kubeconfig the pod's service account is used."""
    (tmp_path / "token").write_text("pod-token\n")
    (tmp_path / "ca.crt").write_bytes(authority.ca.pem)
    async with server_of(authority, tmp_path) as server:
        port = server.rpartition(":")[2]
        environ = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": port}
        client = await connect(None, name="hub", service_account=tmp_path, environ=environ)
        assert await who_am_i(client) == ("", "Bearer pod-token")


@pytest.mark.parametrize(
    "environ", [{}, {"KUBERNETES_SERVICE_HOST": "h", "KUBERNETES_SERVICE_PORT": "1"}]
)
async def test_outside_of_a_pod(tmp_path: Path, environ: dict[str, str]) -> None:
    """Without a kubeconfig and outside of a pod the user learns what to do."""
    with pytest.raises(ConfigError, match="name a kubeconfig file, or run in a pod"):
        await connect(None, name="hub", service_account=tmp_path, environ=environ)
