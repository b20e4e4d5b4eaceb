"""C73: whatever goes wrong on the way to a cluster, no secret is told.

Canaries stand for every secret there is; all that is logged at debug level and every error with its
whole traceback is searched for them.
"""

from __future__ import annotations

import asyncio
import base64
import copy
import io
import logging
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
import structlog
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer

from federate.cluster.client import ClusterClient
from federate.cluster.connect import (
    RELOAD_SECONDS,
    KubeconfigSource,
    ReloadingCredentials,
    connect,
)
from federate.errors import ClusterError, ConfigError
from federate.model.objects import ObjectKey
from federate.model.resources import PODS
from federate.runtime.telemetry import LogFormat, LogLevel, start_logging
from tests.support.canaries import Canaries
from tests.support.credentials import Authority, embed, exec_credential, issue, kubeconfig


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture
def canaries() -> Canaries:
    return Canaries()


@pytest.fixture
def logs() -> Iterator[io.StringIO]:
    """Everything that is logged, at debug level."""
    root, stream = logging.getLogger(), io.StringIO()
    before = (list(root.handlers), root.level)
    start_logging(level=LogLevel.DEBUG, log_format=LogFormat.JSON, stream=stream)
    yield stream
    root.handlers[:], root.level = before
    structlog.reset_defaults()


def told_by(error: BaseException) -> str:
    """All that a log could show of an error: its traceback with causes, and its representation."""
    seen = "".join(traceback.format_exception(error))
    shown: BaseException | None = error
    while shown is not None:
        seen += f"{shown!r} {shown}"
        shown = shown.__cause__ or (None if shown.__suppress_context__ else shown.__context__)
    return seen


# --- kubeconfig files --------------------------------------------------------------------------


def styles(canaries: Canaries, folder: Path) -> dict[str, dict[str, Any]]:
    """A user of each kind, with canaries for secrets."""
    (folder / "token").write_text(canaries.plant("token in a file"))
    script = folder / "plugin"
    noise = canaries.word("stderr of a plugin")
    said = exec_credential(token=canaries.word("token of a plugin"))
    script.write_text(f"#!/bin/sh\necho {noise} >&2\necho '{said}'\n")
    script.chmod(0o700)
    return {
        "token": {"token": canaries.plant("token")},
        "file": {"tokenFile": "token"},
        "basic": {"username": "me", "password": canaries.plant("password")},
        "certificate": {
            "client-certificate-data": embed(canaries.plant("certificate").encode()),
            "client-key-data": embed(canaries.plant("key").encode()),
        },
        "exec": {
            "exec": {
                "apiVersion": "client.authentication.k8s.io/v1",
                "command": "./plugin",
                "args": [canaries.plant("argument of a plugin")],
                "env": [{"name": "PLUGIN", "value": canaries.plant("variable of a plugin")}],
            }
        },
        "oidc": {
            "auth-provider": {
                "name": "oidc",
                "config": {
                    "client-id": "c",
                    "client-secret": canaries.plant("client secret"),
                    "id-token": canaries.plant("id token"),
                    "refresh-token": canaries.plant("refresh token"),
                    "idp-issuer-url": "https://127.0.0.1:1",
                },
            }
        },
        "as": {"token": canaries.word("another token"), "as": "jane", "as-groups": ["a"]},
    }


def paths_in(value: object, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield before
    pairs: Any = ()
    if isinstance(value, dict):
        pairs = value.items()
    elif isinstance(value, list):
        pairs = enumerate(value)
    for key, inner in pairs:
        yield from paths_in(inner, (*before, key))


def replaced(content: Any, path: tuple[Any, ...], value: object) -> Any:
    if not path:
        return value
    changed = copy.deepcopy(content)
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return changed


def may_be_named(where: tuple[Any, ...]) -> bool:
    """Tell whether a text there is the name of something, which messages have to say."""
    in_a_context = where[-2:-1] == ("context",) and where[-1] in ("cluster", "user")
    return in_a_context or where[-1:] in (("name",), ("current-context",), ("command",))


async def test_c73_a_kubeconfig_with_any_mistake(
    canaries: Canaries, logs: io.StringIO, tmp_path: Path
) -> None:
    """Whatever stands in the wrong place, the error is a ConfigError and repeats no value."""
    proxy = f"http://me:{canaries.word('password of a proxy')}@127.0.0.1:1"
    stray = canaries.plant("a secret in the wrong place")
    tried = 0
    for style, user in styles(canaries, tmp_path).items():
        path = kubeconfig(tmp_path, "https://127.0.0.1:1", user=user, **{"proxy-url": proxy})
        content = yaml.safe_load(path.read_text())
        for where in paths_in(content):
            if where[:1] != ("users",) and style != "token":
                continue  # the rest of the file is the same
            for value in (stray, [stray], {stray: stray}, 7, None):
                if value is stray and may_be_named(where):
                    continue
                path.write_text(yaml.safe_dump(replaced(content, where, value)))
                tried += 1
                try:
                    await KubeconfigSource(path, None).load(force=False)
                except ConfigError as error:
                    assert canaries.found_in(told_by(error)) == [], (style, where)
    assert tried > 200
    assert canaries.found_in(logs.getvalue()) == []


@pytest.mark.parametrize("text", ["token: [{}", "{}: {{", "{}", "- {}", "a: *{}", "!!{} x"])
async def test_c73_a_kubeconfig_that_is_no_yaml(
    canaries: Canaries, tmp_path: Path, text: str
) -> None:
    """A parser quotes what it cannot read: nothing of that is told."""
    path = tmp_path / "kubeconfig"
    path.write_text(text.format(canaries.word("content")))
    with pytest.raises(ConfigError) as caught:
        await connect(path, name="east")
    assert canaries.found_in(told_by(caught.value)) == []


@pytest.mark.parametrize(
    "script",
    [
        "echo '{secret}' >&2; exit 1",
        "echo '{secret}'",
        'echo \'{{"apiVersion": "{secret}", "kind": "ExecCredential", "status": {{}}}}\'',
        'echo \'{{"status": "{secret}"}}\'',
        "kill -9 $$",
    ],
)
async def test_c73_a_plugin_that_tells_its_secret(
    canaries: Canaries,
    logs: io.StringIO,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    script: str,
) -> None:
    """What a plugin prints, on either stream, goes nowhere; nor does what it was started with."""
    secret = canaries.word("output of a plugin")
    settings = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "/bin/sh",
        "args": ["-c", script.format(secret=secret), canaries.plant("argument")],
        "env": [{"name": "A", "value": canaries.plant("variable")}],
    }
    path = kubeconfig(tmp_path, "https://127.0.0.1:1", user={"exec": settings})
    with pytest.raises(ConfigError) as caught:
        await connect(path, name="east")
    written = "".join(capfd.readouterr())
    assert canaries.found_in(told_by(caught.value) + logs.getvalue() + written) == []


async def test_c73_credentials_that_are_not_renewed(
    canaries: Canaries, logs: io.StringIO, tmp_path: Path
) -> None:
    """The log says that they were not, and in which file, and no more."""
    now = [0.0]
    path = kubeconfig(tmp_path, "https://127.0.0.1:1", user={"token": canaries.word("one")})
    credentials = ReloadingCredentials(
        KubeconfigSource(path, None), name="east", clock=lambda: now[0]
    )
    await credentials.start()
    for text in (f"a: [{canaries.word('two')}", f"users: {canaries.plant('three')}"):
        path.write_text(text)
        now[0] += 2 * RELOAD_SECONDS
        await credentials.renew(await credentials.current())
    assert "credentials not renewed" in logs.getvalue()
    assert canaries.found_in(logs.getvalue()) == []


# --- what servers and proxies repeat -----------------------------------------------------------


def echoes(request: web.Request) -> dict[str, Callable[[], web.Response]]:
    """Ways to repeat the headers of a request."""
    heard = "; ".join(f"{k}: {v}" for k, v in request.headers.items())
    status = {"kind": "Status", "reason": heard, "message": f"{'x' * 100} {heard}", "code": 403}
    event = {"type": "ERROR", "object": status}
    shouted = {"Warning": f'299 - "{heard}"', "X-Heard": heard}
    coded = base64.b64encode(heard.encode()).decode()
    parts = " ".join(base64.b64encode(p.encode()).decode() for p in heard.split())
    return {
        "status": lambda: web.json_response(status, status=403),
        "text": lambda: web.Response(text=heard, status=500),
        "long": lambda: web.Response(text=f"{'y' * 200}{heard}", status=502),
        "base64": lambda: web.Response(text=f"{parts} {coded}", status=400),
        "header": lambda: web.Response(status=401, headers=shouted),
        "reason": lambda: web.Response(status=503, reason=heard[:500]),
        "redirect": lambda: web.Response(status=307, headers={"Location": f"https://{heard}"}),
        "event": lambda: web.Response(body=orjson.dumps(event) + b"\n"),
        "no json": lambda: web.Response(text=heard),
        "no list": lambda: web.json_response({"kind": heard}),
    }


@asynccontextmanager
async def echoing(authority: Authority, folder: Path) -> AsyncIterator[str]:
    """An API server that repeats what it hears; the path of a request's name says how."""

    async def answer(request: web.Request) -> web.Response:
        return echoes(request)[request.query["fieldSelector"]]()

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    server = TestServer(app, scheme="https")
    tls = authority.server_tls(folder, "kubernetes")
    await server.start_server(ssl=tls, shutdown_timeout=0.1)
    try:
        yield f"https://127.0.0.1:{server.port}"
    finally:
        await server.close()


def users_who_prove_themselves(canaries: Canaries) -> list[dict[str, Any]]:
    return [
        {"token": canaries.word("bearer token") * 20},
        {"token": canaries.word("short bearer token")},
        {"username": "me", "password": canaries.word("password")},
    ]


HOW = ["status", "text", "long", "base64", "header", "reason", "redirect", "no json", "no list"]


@pytest.mark.parametrize("how", [*HOW, "event"])
async def test_c73_a_server_that_repeats_our_headers(
    authority: Authority, canaries: Canaries, logs: io.StringIO, tmp_path: Path, how: str
) -> None:
    """Its words are told, without what it was told; however it wrote that."""
    async with echoing(authority, tmp_path) as server:
        for user in users_who_prove_themselves(canaries):
            path = kubeconfig(tmp_path, server, user=user, **ca_of(authority))
            client = await connect(path, name="east")
            with pytest.raises(ClusterError) as caught:
                await ask(client, how)
            await client.aclose()
            error = caught.value
            told = f"{told_by(error)} {error.detail} {error.reason} {logs.getvalue()}"
            # Three quarters of a canary are one too: a cut in the middle hides nothing.
            parts = Canaries({k: v[:30] for k, v in canaries.planted.items()})
            assert parts.found_in(told) == []


def ca_of(authority: Authority) -> dict[str, Any]:
    return {"certificate-authority-data": embed(authority.ca.pem)}


async def ask(client: ClusterClient, how: str) -> None:
    if how == "event":
        async for _ in client.watch(PODS, resource_version="1", field_selector=how):
            pass
    await client.list(PODS, field_selector=how)


@pytest.mark.parametrize("status", [407, 403, 502, 200])
async def test_c73_a_proxy_that_repeats_our_password(
    authority: Authority, canaries: Canaries, logs: io.StringIO, tmp_path: Path, status: int
) -> None:
    """An error on the way through a proxy names the proxy, never who we are there."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard = (await reader.readuntil(b"\r\n\r\n")).replace(b"\r\n", b" ")
        size = str(len(heard)).encode()
        writer.write(b"HTTP/1.1 %d " % status + heard + b"\r\nX-Heard: " + heard)
        writer.write(b"\r\nContent-Length: " + size + b"\r\n\r\n" + heard)
        await writer.drain()
        writer.close()

    proxy = await asyncio.start_server(refuse, "127.0.0.1", 0)
    port = proxy.sockets[0].getsockname()[1]
    async with proxy:
        for server in ("https://10.0.0.1", "http://10.0.0.1"):
            url = f"http://me:{canaries.word('password of a proxy')}@127.0.0.1:{port}"
            user = {"token": canaries.word("token")}
            path = kubeconfig(tmp_path, server, user=user, **{"proxy-url": url})
            client = await connect(path, name="east")
            with pytest.raises(ClusterError) as caught:
                await client.get(PODS, ObjectKey("ns", "a"))
            await client.aclose()
            assert canaries.found_in(told_by(caught.value) + logs.getvalue()) == []


async def test_c73_keys_never_stand_in_an_error_of_tls(
    authority: Authority, canaries: Canaries, logs: io.StringIO, tmp_path: Path
) -> None:
    """A key that does not belong to its certificate, and a handshake that fails."""
    alice, bob = issue("alice", authority.ca), issue("bob", authority.ca)
    for pair in (alice, bob):
        body = pair.key_pem.decode().splitlines()[1]
        canaries.keep(f"key {body[:8]}", body)
    user = {"client-certificate-data": embed(alice.pem), "client-key-data": embed(bob.key_pem)}
    path = kubeconfig(tmp_path, "https://127.0.0.1:1", user=user)
    with pytest.raises(ConfigError) as mismatch:
        await connect(path, name="east")
    user["client-key-data"] = embed(alice.key_pem)
    async with echoing(Authority(), tmp_path) as server:
        client = await connect(kubeconfig(tmp_path, server, user=user), name="east")
        with pytest.raises(ClusterError) as handshake:
            await ask(client, "status")
        await client.aclose()
    told = told_by(mismatch.value) + told_by(handshake.value) + logs.getvalue()
    assert canaries.found_in(told) == []


def test_c73_canaries_are_found_in_every_form() -> None:
    """The search finds what it is meant to find, also inside of a longer base64."""
    canaries = Canaries()
    secret = canaries.plant("x")
    for text in (
        secret,
        orjson.dumps({"a": secret}).decode(),
        orjson.dumps({"a": orjson.dumps(secret).decode()}).decode(),
        base64.b64encode(secret.encode()).decode(),
        base64.urlsafe_b64encode(f"ab:{secret}:cd".encode()).decode(),
        base64.b64encode(f"user:{secret}".encode()).decode(),
        base64.b64encode(f"user1:{secret}!".encode()).decode(),
    ):
        assert canaries.found_in(f"before {text} after") == ["x"]
    assert canaries.found_in("nothing of it here") == []
