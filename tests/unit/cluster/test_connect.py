"""Kubeconfig files and service accounts against a TLS server that says who is calling."""

from __future__ import annotations

import asyncio
import datetime
import json
import ssl
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from structlog.testing import capture_logs

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
from federate.model.expiry import FIXED_NOTICE_SECONDS, Expiry
from tests.support.credentials import (
    Authority,
    embed,
    exec_credential,
    issue,
    jwt,
    kubeconfig,
    plugin,
    plugin_of,
    server_of,
)


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
        return access.proxy.url if access.proxy is not None else None

    for name in ("https_proxy", "HTTPS_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    assert await proxy_of() is None
    monkeypatch.setenv("https_proxy", "http://env:3128")
    assert await proxy_of() == "http://env:3128"
    assert await proxy_of(**{"proxy-url": "http://own:3128"}) == "http://own:3128"
    monkeypatch.setenv("no_proxy", "10.0.0.1")
    assert await proxy_of() is None
    assert await proxy_of(**{"proxy-url": "socks5://own:1080"}) == "socks5://own:1080"
    for wrong in ("own:3128", "ftp://own", "http://", "http://own:secret"):
        with pytest.raises(ConfigError, match="proxy-url: expected") as caught:
            await proxy_of(**{"proxy-url": wrong})
        assert "secret" not in str(caught.value)
    with pytest.raises(ConfigError, match="tls-server-name: cannot be used"):
        await proxy_of(**{"proxy-url": "socks5://own:1080", "tls-server-name": "x"})


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
UNUSED_CA = {"certificate-authority-data": SECRET}


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
        ({}, {"tokenFile": "none"}, "tokenFile: cannot read the file: No such file"),
        ({}, {"token": "secret\u00fctoken"}, "characters that no HTTP header may hold"),
        ({}, {"auth-provider": {"name": "oidc"}}, "user.auth-provider: the id-token is missing"),
        ({}, {"auth-provider": {"name": "gcp"}}, "user.auth-provider: expected oidc"),
        ({"insecure-skip-tls-verify": True, **UNUSED_CA}, {}, "either this or a certificate-auth"),
        ({"server": "https://me:secret@10.0.0.1"}, {}, "without user and password"),
        ({"server": "https://10.0.0.1:secret"}, {}, "server: expected an https:// address"),
        ({"proxy-url": "http://me:secret@[x"}, {}, "proxy-url: expected"),
        ({}, {"client-key": "/x/" + SECRET, "client-certificate-data": SECRET}, "client-key: cann"),
        ({}, {"as-groups": ["secret"]}, "as: expected a user beside"),
        ({}, {"as": "secret\n"}, "as: expected names that fit"),
        ({}, {"as": "x", "as-groups": "secret"}, "as-groups: expected a list"),
        ({}, {"as": "x", "as-user-extra": {"a": "secret"}}, "as-user-extra: expected lists"),
        (
            {},
            {"exec": {"command": "x", "apiVersion": "v1", "env": [{"name": "a"}]}},
            "user.exec.env: expected a list",
        ),
        (
            {},
            {"exec": {"command": "x", "apiVersion": "v1", "interactiveMode": "Always"}},
            "must ask a person",
        ),
        ({}, {"exec": {"command": "/", "apiVersion": "v1"}}, "cannot be started"),
        ({}, {"exec": {"command": "x"}}, "user.exec: expected command and apiVersion"),
        ({}, {"exec": SECRET}, "user.exec: expected command and apiVersion"),
        (
            {},
            {"exec": {"command": "x", "apiVersion": "v1", "args": SECRET}},
            "user.exec.args: expected a list of texts",
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
        ({"token": "secret"}, 1, "failed with exit code 1; run it by hand"),
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
    credentials = ReloadingCredentials(
        source, name="east", clock=clock, wall_clock=lambda: time.time() + clock.now
    )
    await credentials.start()
    return credentials


def token_of(access: Access) -> str:
    return dict(access.headers)["Authorization"].removeprefix("Bearer ")


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


# --- plugins -----------------------------------------------------------------------------------


def said_info(folder: Path) -> dict[str, Any]:
    said: dict[str, Any] = json.loads((folder / "info").read_text())
    return said


def note_info(folder: Path) -> str:
    return (
        f"import os; open({str(folder / 'info')!r}, 'w').write(os.environ['KUBERNETES_EXEC_INFO'])"
    )


@pytest.mark.parametrize("wants_cluster", [False, True])
async def test_what_a_plugin_is_told(
    authority: Authority, tmp_path: Path, wants_cluster: bool
) -> None:
    """A plugin learns that nobody sits there, and about the cluster where it asks for that."""
    user = plugin_of(
        tmp_path,
        note_info(tmp_path),
        f"print({exec_credential(token='t')!r})",
        provideClusterInfo=wants_cluster,
    )
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a"}}
    path = kubeconfig(
        tmp_path,
        "https://10.0.0.1",
        user=user,
        extensions=[extension, {"name": "other", "extension": {}}],
        **ca_of(authority),
    )
    await KubeconfigSource(path, None).load(force=False)
    cluster = {
        "server": "https://10.0.0.1",
        "certificate-authority-data": embed(authority.ca.pem),
        "config": {"audience": "a"},
    }
    expected: dict[str, Any] = {"interactive": False}
    assert said_info(tmp_path)["spec"] == expected | ({"cluster": cluster} if wants_cluster else {})


async def test_a_plugin_beside_the_kubeconfig(tmp_path: Path) -> None:
    """A command with a slash is found beside the kubeconfig; its environment gets what is set."""
    script = tmp_path / "bin" / "plugin"
    script.parent.mkdir()
    script.write_text(
        f"#!{sys.executable}\nimport os, sys\n"
        f"print({exec_credential(token='@')!r}.replace('@', os.environ['ONE'] + sys.argv[1]))\n"
    )
    script.chmod(0o700)
    settings = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "./bin/plugin",
        "args": ["two"],
        "env": [{"name": "ONE", "value": "one"}],
        "interactiveMode": "Never",
    }
    path = kubeconfig(tmp_path, "https://10.0.0.1", user={"exec": settings})
    access, _ = await KubeconfigSource(path, None).load(force=False)
    assert token_of(access) == "onetwo"


async def test_a_plugin_that_complains_at_length(tmp_path: Path) -> None:
    """What it writes to stderr neither holds it up nor is read."""
    user = plugin_of(
        tmp_path,
        "import sys; sys.stderr.write('x' * 1_000_000)",
        f"print({exec_credential(token='t')!r})",
    )
    path = kubeconfig(tmp_path, "https://10.0.0.1", user=user)
    access, _ = await KubeconfigSource(path, None).load(force=False)
    assert token_of(access) == "t"


def slow_plugin(folder: Path, **status: Any) -> dict[str, Any]:
    """A plugin that waits for a file before it ends, from its second call on; so does its child."""
    gate = str(folder / "gate")
    return plugin_of(
        folder,
        "import os, pathlib, subprocess, sys, time",
        f"if pathlib.Path({str(folder / 'calls')!r}).exists():",
        "    child = subprocess.Popen(['sleep', '60'], stdout=1)",
        f"    open({str(folder / 'pids')!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}')",
        f"    while not pathlib.Path({gate!r}).exists(): time.sleep(0.02)",
        "    child.kill()",
        f"open({str(folder / 'calls')!r}, 'a').write('x')",
        f"print({exec_credential(**status)!r})",
    )


def soon(seconds: float) -> str:
    instant = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)
    return instant.strftime("%Y-%m-%dT%H:%M:%SZ")


async def test_a_slow_plugin_holds_up_no_request(tmp_path: Path) -> None:
    """While the old token holds, requests go on with it, and the plugin goes on behind them."""
    clock = Clock()
    user = slow_plugin(tmp_path, token="t", expirationTimestamp=soon(100))
    credentials = await credentials_of(kubeconfig(tmp_path, "https://10.0.0.1", user=user), clock)
    calls = tmp_path / "calls"
    clock.now = 80.0
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):  # a ping that gives up does not end the plugin
            await credentials.current()
    started = time.monotonic()
    first = await credentials.current()
    assert time.monotonic() - started < 5.0
    assert calls.read_text() == "x"
    (tmp_path / "gate").touch()
    async with asyncio.timeout(20.0):
        while credentials.known() is first or calls.read_text() == "x":
            await asyncio.sleep(0.02)
            clock.now += 0.02
    assert calls.read_text() == "xx"
    await credentials.aclose()


async def test_a_plugin_is_killed_with_its_children(tmp_path: Path) -> None:
    """A client that is closed leaves no plugin behind, nor what that started."""
    clock = Clock()
    user = slow_plugin(tmp_path, token="t", expirationTimestamp=soon(100))
    credentials = await credentials_of(kubeconfig(tmp_path, "https://10.0.0.1", user=user), clock)
    clock.now = 80.0
    credentials.known()
    pids = tmp_path / "pids"
    async with asyncio.timeout(20.0):
        while not (pids.exists() and len(pids.read_text().split()) == 2):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        await credentials.aclose()
        while any(lives(int(pid)) for pid in pids.read_text().split()):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    assert credentials.known() is await credentials.current()


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


# --- who we ask to be, and until when ----------------------------------------------------------


async def access_of(path: Path) -> Access:
    access, _ = await KubeconfigSource(path, None).load(force=False)
    return access


async def test_impersonation(tmp_path: Path) -> None:
    """`as` and what goes with it become headers, a group each in a line of its own."""
    user = {
        "token": "t",
        "as": "jane",
        "as-uid": "7",
        "as-groups": ["devs", "ops"],
        "as-user-extra": {"example.org/scope": ["a", "b"]},
    }
    access = await access_of(kubeconfig(tmp_path, "https://10.0.0.1", user=user))
    assert access.headers == (
        ("Authorization", "Bearer t"),
        ("Impersonate-User", "jane"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "devs"),
        ("Impersonate-Group", "ops"),
        ("Impersonate-Extra-example.org%2Fscope", "a"),
        ("Impersonate-Extra-example.org%2Fscope", "b"),
    )


async def test_a_token_file_outranks_a_token(tmp_path: Path) -> None:
    """The file is what rotates; the token beside it is for the time when there is no file yet."""
    user = {"token": "old", "tokenFile": "token"}
    path = kubeconfig(tmp_path, "https://10.0.0.1", user=user)
    assert token_of(await access_of(path)) == "old"
    (tmp_path / "token").write_text("new\n")
    assert token_of(await access_of(path)) == "new"


async def test_a_proxys_password_is_a_header(tmp_path: Path) -> None:
    """A server without TLS is asked through the proxy itself, which has to know us."""
    proxy = {"proxy-url": "http://me:secret-word@proxy:3128"}
    path = kubeconfig(tmp_path, "http://10.0.0.1", user={"token": "t"}, **proxy)
    access = await access_of(path)
    assert dict(access.headers)["Proxy-Authorization"] == "Basic bWU6c2VjcmV0LXdvcmQ="
    assert "secret-word" in access.concealed
    path = kubeconfig(tmp_path, "https://10.0.0.1", user={"token": "t"}, **proxy)
    access = await access_of(path)
    assert "Proxy-Authorization" not in dict(access.headers)
    assert access.through()["proxy_headers"]["Proxy-Authorization"].startswith("Basic ")


async def test_c72_when_credentials_end(authority: Authority, tmp_path: Path) -> None:
    """The end is known of certificates, JWTs and what a plugin says; the earliest one counts."""
    alice = issue("alice", authority.ca)
    pair = {"client-certificate-data": embed(alice.pem), "client-key-data": embed(alice.key_pem)}
    ends = alice.certificate.not_valid_after_utc.timestamp()
    now = float(int(time.time()))
    token = jwt(iat=now, exp=now + 600)
    (tmp_path / "token").write_text(token)

    def saying(**status: Any) -> dict[str, Any]:
        return plugin(Path(tempfile.mkdtemp(dir=tmp_path)), status)

    cases: list[tuple[dict[str, Any], str, float | None]] = [
        ({"token": "opaque"}, "", None),
        (pair, "client certificate", ends),
        ({"token": token}, "token", now + 600),
        ({"tokenFile": "token"}, "tokenFile", now + 600),
        ({**pair, "token": token}, "token", now + 600),
        (saying(token="t"), "", None),
        (saying(token=token), "plugin python", now + 600),
        (
            saying(token=token, expirationTimestamp="2020-01-01T00:00:00Z"),
            "plugin python",
            1577836800.0,
        ),
        (
            saying(clientCertificateData=alice.pem.decode(), clientKeyData=alice.key_pem.decode()),
            "plugin python",
            ends,
        ),
        (
            {"auth-provider": {"name": "oidc", "config": {"id-token": token}}},
            "OpenID token",
            now + 600,
        ),
    ]
    for user, what, at in cases:
        expiry = (await access_of(kubeconfig(tmp_path, "https://10.0.0.1", user=user))).expiry
        found = ("", None) if expiry is None else (expiry.what.rstrip("3.1"), expiry.at)
        assert found == (what, at)


async def test_c72_the_log_warns_before_the_end(tmp_path: Path) -> None:
    """It says what ends and when, once a day, and never the token."""
    token = jwt(exp=time.time() + 3600)
    clock = Clock()
    with capture_logs() as logs:
        path = kubeconfig(tmp_path, "https://10.0.0.1", user={"token": token})
        credentials = await credentials_of(path, clock)
        for clock.now in (RELOAD_SECONDS, 86_399.0, 86_410.0):
            await credentials.current()
    warnings = [line for line in logs if line["event"].startswith("credentials end")]
    assert [(w["cluster"], w["what"]) for w in warnings] == [("east", "token")] * 2
    assert token not in str(logs)


async def test_a_scrape_has_them_read_again(tmp_path: Path) -> None:
    """A client that asks for nothing, as one that stands by, still knows what the file says."""
    clock = Clock()
    path = kubeconfig(tmp_path, "https://10.0.0.1", user={"token": jwt(exp=1000)})
    credentials = await credentials_of(path, clock)
    kubeconfig(tmp_path, "https://10.0.0.1", user={"token": jwt(exp=2000)})
    clock.now = RELOAD_SECONDS
    async with asyncio.timeout(10.0):
        while credentials.known().expiry != Expiry(  # noqa: ASYNC110
            at=2000.0, warn_at=2000.0 - FIXED_NOTICE_SECONDS, what="token"
        ):
            await asyncio.sleep(0.01)


async def test_files_replaced_one_after_the_other(authority: Authority, tmp_path: Path) -> None:
    """A new certificate beside the old key changes nothing, nor the old one when it is back."""
    alice, bob = issue("alice", authority.ca), issue("bob", authority.ca)
    files = {"client-certificate": "me.crt", "client-key": "me.key"}
    (tmp_path / "me.crt").write_bytes(alice.pem)
    (tmp_path / "me.key").write_bytes(alice.key_pem)
    clock = Clock()
    credentials = await credentials_of(
        kubeconfig(tmp_path, "https://10.0.0.1", user=files, **ca_of(authority)), clock
    )
    first = await credentials.current()
    (tmp_path / "me.crt").write_bytes(bob.pem)
    clock.now += RENEW_SECONDS
    assert await credentials.current() is first
    (tmp_path / "me.crt").write_bytes(alice.pem)
    clock.now += RENEW_SECONDS
    assert (await credentials.current()).tls is first.tls
    (tmp_path / "me.crt").write_bytes(bob.pem)
    (tmp_path / "me.key").write_bytes(bob.key_pem)
    clock.now += RENEW_SECONDS
    second = await credentials.current()
    assert second.tls not in (None, first.tls)


async def test_an_unchanged_file_changes_nothing(tmp_path: Path) -> None:
    """What is read again and found the same is the same, so that a 401 knows what was refused."""
    clock = Clock()
    path = kubeconfig(tmp_path, "https://10.0.0.1", user={"token": "t"})
    credentials = await credentials_of(path, clock)
    first = await credentials.current()
    clock.now = RELOAD_SECONDS
    assert await credentials.current() is first


async def test_many_refusals_wait_for_one_renewal(tmp_path: Path) -> None:
    """Requests that are refused together are repeated together, with the new token."""
    clock = Clock()
    path = kubeconfig(tmp_path, "https://10.0.0.1", user={"token": "one"})
    credentials = await credentials_of(path, clock)
    first = await credentials.current()
    kubeconfig(tmp_path, "https://10.0.0.1", user={"token": "two"})
    renewed = await asyncio.gather(*(credentials.renew(first) for _ in range(5)))
    assert {token_of(access) for access in renewed} == {"two"}
    assert len({id(access) for access in renewed}) == 1


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


@pytest.mark.parametrize(
    ("token", "environ", "said"),
    [
        ("t", {}, "Service host/port is not set"),
        (
            "",
            {"KUBERNETES_SERVICE_HOST": "h", "KUBERNETES_SERVICE_PORT": "1"},
            "Token file exists but empty",
        ),
    ],
)
async def test_a_service_account_that_cannot_be_used(
    tmp_path: Path, token: str, environ: dict[str, str], said: str
) -> None:
    """What is missing is named."""
    (tmp_path / "token").write_text(token)
    (tmp_path / "ca.crt").write_text("ca")
    with pytest.raises(ConfigError, match=said):
        await connect(None, name="hub", service_account=tmp_path, environ=environ)


async def test_a_service_account_at_an_address_with_colons(
    authority: Authority, tmp_path: Path
) -> None:
    """An IPv6 address stands in brackets; the token's end is known, and it renews itself."""
    (tmp_path / "token").write_text(jwt(iat=1000, exp=4600))
    (tmp_path / "ca.crt").write_bytes(authority.ca.pem)
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    client = await connect(None, name="hub", service_account=tmp_path, environ=environ)
    assert await client.server_url() == "https://[fd00::1]:443"
    expiry = client.credential_expiry()
    assert expiry == Expiry(at=4600.0, warn_at=4240.0, what="service account token")
    await client.aclose()
