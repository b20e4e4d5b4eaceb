"""The kubelet API answers over TLS as a kubelet does, and leads to the mirror's container."""

from __future__ import annotations

import asyncio
import base64
import errno
import hashlib
import json
import socket
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import orjson
import pytest

from federate.errors import (
    ClusterError,
    Forbidden,
    NotFound,
    Rejected,
    ServerFault,
    Throttled,
    Unauthorized,
    Unreachable,
)
from federate.kubelet import answers
from federate.kubelet.limits import Limits
from federate.kubelet.ports import Reply, UpstreamCall
from federate.kubelet.server import KubeletServer, listen
from federate.model.objects import JsonDict, ObjectKey
from tests.support.kubeletstage import (
    END,
    Heard,
    Keys,
    Played,
    PlayedAccess,
    PlayedPages,
    PlayedPods,
    PlayedTarget,
    kubelet,
    saying,
    switching,
    until,
    web,
)

LOGS = "/containerLogs/shop/web/app"
EXEC = "/exec/shop/web/app?input=1&output=1&error=1&command=sh"
SPDY = [("Connection", "Upgrade"), ("Upgrade", "SPDY/3.1")]
WEBSOCKET = [
    ("Connection", "keep-alive, Upgrade"),
    ("Upgrade", "websocket"),
    ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ("Sec-WebSocket-Version", "13"),
]


def failed(kind: type[ClusterError], message: str = "secret-address 10.0.0.9") -> ClusterError:
    return kind(message, cluster="edge", verb="get", subject="pods/log")


def words_of(heard: Heard) -> str:
    """Return what a person is shown."""
    if heard.headers["content-type"] == "application/json":
        return str(json.loads(heard.body)["message"])
    return heard.text


def status_body(message: str, code: int) -> bytes:
    status = {"kind": "Status", "status": "Failure", "message": message, "code": code}
    return orjson.dumps(status)


# -- who asks --------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["/healthz", "/pods", LOGS, EXEC, "/nothing", "/..", "/%zz"])
async def test_nobody_is_answered_nothing(keys: Keys, target: str) -> None:
    """Without certificate and token every path is 401, and the connection ends."""
    async with kubelet(keys) as stage:
        client = await stage.connect(anonymous=True)
        heard = await client.ask(target)
        assert (heard.status, heard.text.strip()) == (401, "Unauthorized")
        assert await client.is_ended()
        assert stage.access.questions == 0


@pytest.mark.parametrize(
    "value",
    ["Bearer wrong", "Bearer", "Bearer ", "Basic YWRtaW46YWRtaW4=", "admin", "bearer\tadmin"],
)
async def test_a_token_that_the_hub_does_not_know_is_401(keys: Keys, value: str) -> None:
    async with kubelet(keys) as stage:
        client = await stage.connect(anonymous=True)
        assert (await client.ask("/pods", headers=[("Authorization", value)])).status == 401


@pytest.mark.parametrize("value", ["Bearer admin", "bearer admin", "BEARER admin"])
async def test_a_token_opens(keys: Keys, value: str) -> None:
    async with kubelet(keys) as stage:
        client = await stage.connect(anonymous=True)
        assert (await client.ask("/pods", headers=[("Authorization", value)])).status == 200


async def test_rights_are_asked_for_by_path(keys: Keys) -> None:
    """Who may read usage may read usage, and nothing else; what is nowhere is 403 as well."""
    async with kubelet(keys) as stage:
        client = await stage.connect(anonymous=True)
        token = [("Authorization", "Bearer metrics")]
        assert (await client.ask("/metrics/resource", headers=token)).status == 200
        for target in (LOGS, EXEC, "/pods", "/healthz", "/nothing", "/metrics/../pods"):
            heard = await client.ask(target, headers=token)
            assert heard.status == 403, target
            assert heard.text.startswith("Forbidden (user=metrics, verb=")
        assert not stage.target.calls


@pytest.mark.parametrize("kind", [Unreachable, Forbidden, NotFound, Unauthorized])
async def test_a_hub_that_does_not_say_is_503(keys: Keys, kind: type[ClusterError]) -> None:
    """Whatever fails between federate and the hub lets nobody in, and tells nobody why."""
    async with kubelet(keys) as stage:
        stage.access.fails = failed(kind)
        heard = await stage.ask("/pods")
        assert heard.status == 503
        assert "secret" not in heard.text
        assert heard.headers["retry-after"] == "1"


async def test_a_hub_that_asks_to_wait_is_429(keys: Keys) -> None:
    async with kubelet(keys) as stage:
        stage.access.fails = failed(Throttled)
        assert (await stage.ask("/pods")).status == 429


async def test_a_hub_that_is_silent_is_503(keys: Keys) -> None:
    async with kubelet(keys, limits=Limits(decide_seconds=0.05)) as stage:
        stage.access.hangs = True
        assert (await stage.ask("/pods")).status == 503


async def test_browser_tokens_are_read_and_never_travel(keys: Keys) -> None:
    """As on a kubelet, a token may be a WebSocket protocol; the target does not see it."""
    encoded = base64.urlsafe_b64encode(b"admin").decode().rstrip("=")
    protocols = f"v4.channel.k8s.io, base64url.bearer.authorization.k8s.io.{encoded}"
    async with kubelet(keys) as stage:
        stage.target.reply = switching(upgrade="websocket")
        client = await stage.connect(anonymous=True)
        headers = [*WEBSOCKET, ("Sec-WebSocket-Protocol", protocols)]
        assert (await client.ask(EXEC, headers=headers)).status == 101
        sent = dict(stage.target.calls[0].headers)
        assert sent["sec-websocket-protocol"] == "v4.channel.k8s.io"
        other = await stage.connect(anonymous=True)
        headers[-1] = ("Sec-WebSocket-Protocol", protocols.replace(encoded, "*"))
        assert (await other.ask(EXEC, headers=headers)).status == 401


# -- pages -----------------------------------------------------------------------------------------


async def test_pages_are_answered_on_one_connection(keys: Keys) -> None:
    """An API server re-uses connections: each request on one is read for itself."""
    async with kubelet(keys) as stage:
        client = await stage.connect()
        assert (await client.ask("/healthz")).text == "ok"
        assert (await client.ask("/pods")).text == "/pods"
        assert (await client.ask("/nothing")).status == 404
        assert (await client.ask(LOGS)).text == "one\ntwo\n"
        assert (await client.ask("/configz")).status == 404
        heard = await client.ask("/metrics/resource")
        assert (heard.text, heard.headers["content-type"]) == ("/metrics/resource", "text/plain")
        assert [code for _kind, code in stage.counts.requests] == [200, 200, 404, 200, 404, 200]


async def test_head_is_get_without_the_body(keys: Keys) -> None:
    async with kubelet(keys) as stage:
        client = await stage.connect()
        heard = await client.ask("/pods", "HEAD")
        assert (heard.status, heard.body, heard.headers["content-length"]) == (200, b"", "5")
        assert (await client.ask("/healthz")).status == 200


async def test_a_method_that_does_not_fit_is_told(keys: Keys) -> None:
    async with kubelet(keys) as stage:
        heard = await stage.ask("/pods", "DELETE")
        assert (heard.status, heard.headers["allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize(
    ("accept", "status"),
    [
        ("application/json, */*", 200),
        ("application/*;q=0.1", 200),
        ("APPLICATION/JSON", 200),
        ("application/vnd.kubernetes.protobuf", 406),
    ],
)
async def test_json_that_is_not_wanted_is_406(keys: Keys, accept: str, status: int) -> None:
    async with kubelet(keys) as stage:
        assert (await stage.ask("/pods", headers=[("Accept", accept)])).status == status
        assert (await stage.ask("/metrics", headers=[("Accept", accept)])).status == 200


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (failed(Unreachable), 502),
        (TimeoutError("secret"), 504),
        (failed(Throttled), 429),
        (RuntimeError("secret"), 500),
    ],
)
async def test_a_page_that_fails_is_told_in_our_words(
    keys: Keys, error: Exception, status: int
) -> None:
    async with kubelet(keys) as stage:
        stage.pages.fails = error
        client = await stage.connect()
        heard = await client.ask("/stats/summary")
        assert heard.status == status
        assert "secret" not in heard.text
        assert (await client.ask("/healthz")).status == 200


async def test_bodies_are_read_and_thrown_away(keys: Keys) -> None:
    """Also one that waits to be asked for, and one in chunks; the next request begins behind it."""
    async with kubelet(keys) as stage:
        client = await stage.connect()
        head = "GET /pods HTTP/1.1\r\nHost: node\r\n"
        client.send(f"{head}Content-Length: 5\r\n\r\nhello".encode())
        assert (await client.hear()).status == 200
        client.send(f"{head}Content-Length: 5\r\nExpect: 100-continue\r\n\r\n".encode())
        assert b"100" in await client.reader.readuntil(b"\r\n\r\n")
        client.send(b"hello")
        assert (await client.hear()).status == 200
        client.send(f"{head}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n".encode())
        assert (await client.hear()).status == 200
        assert (await client.ask("/healthz")).status == 200


# -- logs ------------------------------------------------------------------------------------------


async def test_logs_are_the_mirrors(keys: Keys) -> None:
    async with kubelet(keys) as stage:
        heard = await stage.ask(f"{LOGS}?tailLines=5&follow=true")
        assert (heard.status, heard.text) == (200, "one\ntwo\n")
        assert heard.headers["content-type"] == "text/plain; charset=utf-8"
        assert heard.headers["transfer-encoding"] == "chunked"
        call = stage.target.calls[0]
        assert (call.method, call.path) == (
            "GET",
            "/api/v1/namespaces/hub-shop/pods/web-mirror/log",
        )
        assert call.query == (("container", "app"), ("follow", "true"), ("tailLines", "5"))
        assert call.headers == ()
        assert stage.counts.bytes == {("logs", "out"): 8}
        assert stage.counts.open["logs"] == 0


@pytest.mark.parametrize("container", ["init", "app", "debugger"])
async def test_every_kind_of_container_has_logs(keys: Keys, container: str) -> None:
    async with kubelet(keys) as stage:
        assert (await stage.ask(f"/containerLogs/shop/web/{container}")).status == 200


async def test_what_comes_is_passed_on_at_once(keys: Keys) -> None:
    """A follower sees a line when it is written, not when the next one is."""
    goes_on = asyncio.Event()

    async def body() -> AsyncIterator[bytes]:
        yield b"first\n"
        await goes_on.wait()
        yield b""
        yield b"second\n"

    async with kubelet(keys) as stage:
        stage.target.reply = lambda _call: Reply(status=200, headers=(), body=body())
        client = await stage.connect()
        client.send(f"GET {LOGS}?follow=true HTTP/1.1\r\nHost: node\r\n\r\n".encode())
        await client.reader.readuntil(b"first\n")
        assert stage.server.streams["logs"] == 1
        goes_on.set()
        await client.reader.readuntil(b"0\r\n\r\n")
        assert (await client.ask("/healthz")).status == 200


@pytest.mark.parametrize("has_head", [True, False])
async def test_a_follower_that_goes_is_not_waited_for(keys: Keys, has_head: bool) -> None:
    """Its request to the target ends, before and after the first byte."""

    async def silent() -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""

    async with kubelet(keys) as stage:
        if has_head:
            stage.target.reply = lambda _call: Reply(status=200, headers=(), body=silent())
        else:
            stage.target.waits = asyncio.Event()
        client = await stage.connect()
        client.send(f"GET {LOGS}?follow=true HTTP/1.1\r\nHost: node\r\n\r\n".encode())
        await until(lambda: stage.target.open == 1)
        client.close()
        await until(lambda: stage.target.open == 0 and stage.server.admission.streams == 0)


async def test_a_log_that_breaks_off_does_not_look_whole(keys: Keys) -> None:
    async def breaking() -> AsyncIterator[bytes]:
        yield b"one\n"
        raise failed(Unreachable)

    async with kubelet(keys) as stage:
        stage.target.reply = lambda _call: Reply(status=200, headers=(), body=breaking())
        heard = await stage.ask(LOGS)
        assert (heard.status, heard.body, heard.is_cut) == (200, b"one\n", True)


async def test_a_stalled_reader_holds_up_the_target(keys: Keys) -> None:
    """Nothing piles up: what the client does not take is not read from the target."""
    given = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal given
        while True:
            given += 65_536
            yield bytes(65_536)

    async with kubelet(keys) as stage:
        stage.target.reply = lambda _call: Reply(status=200, headers=(), body=endless())
        client = await stage.connect()
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        client.send(f"GET {LOGS} HTTP/1.1\r\nHost: node\r\n\r\n".encode())
        before = -1
        while given != before:
            before = given
            await asyncio.sleep(0.3)
        print(f"held for a reader that stalls: {given / 1e6:.1f} MB")
        assert 0 < given < 32e6


# -- which pod -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("/containerLogs/shop/other/app", 'pod "other" does not exist'),
        ("/containerLogs/hub-shop/web-mirror/app", 'pod "web-mirror" does not exist'),
        ("/containerLogs/kube-system/etcd/etcd", 'pod "etcd" does not exist'),
        ("/containerLogs/shop/web/injected", 'container "injected" not found in pod "web"'),
        ("/containerLogs/shop/web/%20", 'container " " not found'),
        ("/exec/shop/web/other-uid/app?output=1&command=ls", 'pod "web" does not exist'),
        ("/portForward/shop/other", 'pod "other" does not exist'),
    ],
)
async def test_who_is_not_on_the_node_is_not_there(keys: Keys, target: str, words: str) -> None:
    """Strangers' pods, mirrors by their own names, containers that the target injected."""
    async with kubelet(keys) as stage:
        heard = await stage.ask(target, headers=SPDY)
        assert heard.status == 404
        assert words in heard.text
        assert not stage.target.calls


@pytest.mark.parametrize(
    ("target", "status", "words"),
    [
        (
            LOGS,
            {},
            'container "app" in pod "web" is waiting to start: it is not in the target cluster',
        ),
        (
            LOGS,
            {"phase": "Pending", "reason": "CompanionMissing"},
            'container "app" in pod "web" is waiting to start: CompanionMissing',
        ),
        (
            "/exec/shop/web/app?output=1&command=ls",
            {
                "phase": "Pending",
                "reason": "Other",
                "containerStatuses": [
                    {"name": "beside", "state": {"waiting": {"reason": "Another"}}},
                    {"name": "app", "state": {"waiting": {"reason": "Held\x1b[2J"}}},
                ],
            },
            'container "app" in pod "web" is waiting to start: Held [2J',
        ),
        (
            "/portForward/shop/web",
            {"phase": "Failed", "reason": "MirrorLost"},
            'pod "web" is not available: MirrorLost',
        ),
    ],
)
async def test_a_pod_without_a_mirror_says_why(
    keys: Keys, target: str, status: JsonDict, words: str
) -> None:
    """Not as if it were not there: kubectl shows the words of a 400, and hides those of a 404."""
    async with kubelet(keys) as stage:
        located = stage.pods.held.pop(ObjectKey("shop", "web"))
        stage.pods.waiting[ObjectKey("shop", "web")] = {**located.hub_pod, "status": status}
        heard = await stage.ask(target, headers=SPDY)
        assert (heard.status, words_of(heard)) == (400, words)
        assert (await stage.ask("/containerLogs/shop/web/injected")).status == 404
        assert (await stage.ask("/exec/shop/web/other-uid/app?output=1&command=ls")).status == 404
        assert not stage.target.calls


async def test_a_container_that_the_target_refused_says_so(keys: Keys) -> None:
    """A debug container stays in the hub pod for good, and `logs --all-containers` asks for it."""
    async with kubelet(keys) as stage:
        located = stage.pods.held[ObjectKey("shop", "web")]
        assert located.mirror_pod is not None
        spec = {**located.mirror_pod["spec"], "ephemeralContainers": []}
        stage.pods.held[ObjectKey("shop", "web")] = replace(
            located, mirror_pod={**located.mirror_pod, "spec": spec}
        )
        heard = await stage.ask("/containerLogs/shop/web/debugger")
        assert heard.status == 400
        assert heard.text.startswith('container "debugger" in pod "web"')
        assert heard.text.endswith("it is not in the target cluster")
        assert not stage.target.calls


@pytest.mark.parametrize("is_seen", [True, False])
async def test_a_mirror_that_is_another_now_is_not_asked(keys: Keys, is_seen: bool) -> None:
    """A pod that took the mirror's name in the target is a stranger's."""
    async with kubelet(keys) as stage:
        located = web(mirror_uid="somebody-elses")
        stage.pods.held[ObjectKey("shop", "web")] = (
            located if is_seen else replace(located, mirror_pod=None)
        )
        assert (await stage.ask(LOGS)).status == 404
        assert not stage.target.calls


# -- what the target says --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "body", "expected", "words"),
    [
        (
            400,
            status_body('container "app" in pod "web-mirror" is waiting to start', 400),
            400,
            'container "app" in pod "web" is waiting to start',
        ),
        (
            404,
            status_body("pods web-mirror-2 not in hub-shop.", 404),
            404,
            "web-mirror-2 not in shop.",
        ),
        (500, status_body("container runtime is down", 500), 500, "container runtime is down"),
        (503, b"<html>10.0.0.9</html>", 503, "HTTP status 503"),
        (503, b"[]", 503, "HTTP status 503"),
        (401, status_body("secret", 401), 502, "does not accept federate's credentials"),
        (403, status_body("secret", 403), 502, "does not let federate do this"),
        (302, status_body("secret", 302), 502, "HTTP status 302"),
        (418, status_body("secret", 418), 502, "HTTP status 418"),
        (400, status_body("x\x1b[2J" + "y" * 9000, 400), 400, "x [2Jyyy"),
    ],
)
@pytest.mark.parametrize("target", [LOGS, EXEC])
async def test_the_targets_words_about_the_pod_pass(
    keys: Keys, status: int, body: bytes, expected: int, words: str, target: str
) -> None:
    """In the hub's names, cut, without what a terminal obeys; what is about federate does not."""
    async with kubelet(keys) as stage:
        stage.target.reply = saying(body, status=status)
        heard = await stage.ask(target, headers=SPDY if target == EXEC else ())
        assert heard.status == expected
        assert words in heard.text
        assert "secret" not in heard.text
        assert "10.0.0.9" not in heard.text
        assert len(heard.body) < 1100


@pytest.mark.parametrize(
    ("kind", "body", "words"),
    [
        (
            "text/plain; charset=utf-8",
            b'container not found ("app")\n',
            'container not found ("app")',
        ),
        ("TEXT/PLAIN", b"web-mirror is\x1b[2J no more", "web is [2J no more"),
        ("text/plain", b"dial tcp 10.0.0.9: refused", "does not reach the pod's kubelet"),
        ("text/html", b"<html>10.0.0.9</html>", "HTTP status 500"),
    ],
)
async def test_a_kubelets_own_sentence_passes(
    keys: Keys, kind: str, body: bytes, words: str
) -> None:
    """What a kubelet refuses comes through its API server as plain text."""
    async with kubelet(keys) as stage:
        stage.target.reply = saying(body, status=500, headers=[("Content-Type", kind)])
        heard = await stage.ask(EXEC, headers=SPDY)
        assert (heard.status, heard.headers["content-type"]) == (500, answers.TEXT)
        assert words in heard.text
        assert "10.0.0.9" not in heard.text


@pytest.mark.parametrize("message", ["it waits: for a mirror", "why:", '{"a":1}', "a:\n b"])
async def test_a_refused_stream_is_told_so_that_clients_read_it(keys: Keys, message: str) -> None:
    """Their YAML reader takes such words for an empty Status; a real one is shown."""
    async with kubelet(keys) as stage:
        stage.target.reply = saying(status_body(message, 400), status=400)
        heard = await stage.ask(EXEC, headers=SPDY)
        assert json.loads(heard.body) == {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message.replace("\n", " "),
            "reason": "BadRequest",
            "code": 400,
        }
        heard = await stage.ask(LOGS)
        assert heard.text == message.replace("\n", " ")


async def test_a_target_that_asks_to_wait_is_heard(keys: Keys) -> None:
    async with kubelet(keys) as stage:
        stage.target.reply = saying(status=429, headers=[("Retry-After", "7")])
        heard = await stage.ask(LOGS)
        assert (heard.status, heard.headers["retry-after"]) == (429, "7")


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (Unreachable, 502),
        (Unauthorized, 502),
        (Forbidden, 502),
        (ServerFault, 502),
        (NotFound, 404),
        (Rejected, 400),
        (Throttled, 429),
    ],
)
async def test_a_target_that_fails_is_told_in_our_words(
    keys: Keys, kind: type[ClusterError], status: int
) -> None:
    async with kubelet(keys) as stage:
        stage.target.fails = failed(kind)
        heard = await stage.ask(LOGS)
        assert heard.status == status
        assert "secret" not in heard.text


async def test_a_target_that_talks_without_end_is_cut(keys: Keys) -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 1000

    async with kubelet(keys) as stage:
        stage.target.reply = lambda _call: Reply(status=500, headers=(), body=endless())
        assert (await stage.ask(LOGS)).status == 500


# -- streams ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "path"),
    [
        (EXEC, "exec"),
        ("/attach/shop/web/app?output=1", "attach"),
        ("/portForward/shop/web", "portforward"),
        ("/exec/shop/web/hub-uid/app?output=1&command=ls", "exec"),
    ],
)
async def test_streams_are_carried_untouched(keys: Keys, target: str, path: str) -> None:
    """After the target's 101 each byte passes, and the end of one side is the other's."""
    async with kubelet(keys) as stage:
        stage.target.reply = switching(("X-Stream-Protocol-Version", "v4.channel.k8s.io"))
        client = await stage.connect()
        headers = [*SPDY, ("X-Stream-Protocol-Version", "v4.channel.k8s.io")]
        heard = await client.ask(target, "POST", headers=headers)
        assert (heard.status, heard.headers["upgrade"]) == (101, "SPDY/3.1")
        assert heard.headers["x-stream-protocol-version"] == "v4.channel.k8s.io"
        data = bytes(range(256)) * 1000
        client.send(data)
        assert await client.after_switch(len(data)) == data
        assert stage.target.calls[0].path.endswith(f"/pods/web-mirror/{path}")
        assert stage.server.streams[path] == 1
        client.close()
        await until(lambda: stage.target.open == 0)
        assert stage.target.stream.closed.is_set()
        assert stage.counts.bytes == {(path, "in"): len(data), (path, "out"): len(data)}
        assert stage.counts.requests == [(path, 101)]


async def test_the_targets_last_words_arrive(keys: Keys) -> None:
    async with kubelet(keys) as stage:
        stage.target.reply = switching()
        client = await stage.connect()
        await client.ask(EXEC, "POST", headers=SPDY)
        stage.target.stream.say(b"exit code 3")
        stage.target.stream.say(END)
        assert await client.after_switch(11) == b"exit code 3"
        assert await client.is_ended()


async def test_bytes_sent_ahead_are_the_streams(keys: Keys) -> None:
    """A client may begin before it has read the 101."""
    async with kubelet(keys) as stage:
        stage.target.waits = asyncio.Event()
        stage.target.reply = switching()
        client = await stage.connect()
        client.send(f"POST {EXEC} HTTP/1.1\r\nHost: node\r\nUpgrade: SPDY/3.1\r\n".encode())
        client.send(b"Connection: upgrade\r\n\r\nahead")
        await until(lambda: stage.target.open == 1)
        client.send(b" and more")
        await asyncio.sleep(0.05)
        stage.target.waits.set()
        assert (await client.hear("POST")).status == 101
        assert await client.after_switch(14) == b"ahead and more"


async def test_websockets_are_carried_as_they_come(keys: Keys) -> None:
    """Only the headers of the upgrade travel, either way."""
    async with kubelet(keys) as stage:
        stage.target.reply = switching(
            ("Sec-WebSocket-Accept", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="),
            ("Set-Cookie", "secret"),
            upgrade="websocket",
        )
        client = await stage.connect()
        extra = [("Cookie", "secret"), ("Impersonate-User", "admin"), ("X-Remote-User", "admin")]
        heard = await client.ask(EXEC, headers=[*WEBSOCKET, *extra, ("Authorization", "Bearer x")])
        assert heard.status == 101
        assert heard.headers["sec-websocket-accept"] == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
        assert "set-cookie" not in heard.headers
        assert {name for name, _value in stage.target.calls[0].headers} == {
            "upgrade",
            "sec-websocket-key",
            "sec-websocket-version",
        }


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("Upgrade", "SPDY/3.1")],
        [("Connection", "Upgrade")],
        [("Connection", "Upgrade"), ("Upgrade", "h2c")],
        [("Connection", "Upgrade"), ("Upgrade", "SPDY/3.1, websocket")],
        [*SPDY, ("Upgrade", "websocket")],
    ],
)
async def test_a_stream_begins_with_one_known_upgrade(
    keys: Keys, headers: list[tuple[str, str]]
) -> None:
    async with kubelet(keys) as stage:
        heard = await stage.ask(EXEC, "POST", headers=headers)
        assert (heard.status, heard.text) == (400, "Upgrade request required")
        assert not stage.target.calls


async def test_a_target_that_switches_to_something_else_is_not_believed(keys: Keys) -> None:
    async with kubelet(keys) as stage:
        stage.target.reply = switching(upgrade="websocket")
        assert (await stage.ask(EXEC, "POST", headers=SPDY)).status == 502
        stage.target.reply = saying(b"{}", status=200)
        assert (await stage.ask(EXEC, "POST", headers=SPDY)).status == 502


# -- run -------------------------------------------------------------------------------------------


def frame(payload: bytes, opcode: int = 2, *, is_last: bool = True) -> bytes:
    head = bytes([(0x80 if is_last else 0) | opcode])
    if len(payload) < 126:
        return head + bytes([len(payload)]) + payload
    return head + bytes([126]) + len(payload).to_bytes(2, "big") + payload


def running(*frames: bytes, is_true: bool = True) -> Any:
    """Play an exec over WebSocket that says these."""

    def reply(call: UpstreamCall) -> Reply:
        key = dict(call.headers)["Sec-WebSocket-Key"] if is_true else ""
        guid = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(hashlib.sha1((key + guid).encode()).digest()).decode()
        stream = Played()
        for one in frames:
            stream.say(one)
        stream.say(END)
        headers = [
            ("Sec-WebSocket-Accept", accept),
            ("Sec-WebSocket-Protocol", "v4.channel.k8s.io"),
        ]
        return Reply(status=101, headers=headers, upgraded=stream)

    return reply


GOOD = frame(b'\x03{"status":"Success"}')


async def test_run_answers_with_the_output(keys: Keys) -> None:
    async with kubelet(keys) as stage:
        said = frame(b"\x01" + b"o" * 300) + frame(b"\x02err", is_last=False) + frame(b"ors", 0)
        stage.target.reply = running(said[:100], said[100:] + frame(b"", 9), GOOD)
        heard = await stage.ask("/run/shop/web/app?cmd=ls+-l", "POST")
        assert (heard.status, heard.text) == (200, "o" * 300 + "errors")
        assert ("command", "-l") in stage.target.calls[0].query
        assert stage.target.stream.got[:2] == b"\x8a\x80"  # the answer to the ping
        assert stage.target.stream.closed.is_set()


@pytest.mark.parametrize(
    ("frames", "status", "words"),
    [
        (
            [frame(b"\x01no"), frame(b'\x03{"status":"Failure","message":"exit code 2"}')],
            500,
            "exit code 2: no",
        ),
        ([frame(b"\x03nonsense")], 500, "not told"),
        ([frame(b"\x03[]")], 500, "the command failed"),
        ([frame(b"\x01half")], 502, "target cluster failed"),
        ([frame(b"\x01half"), frame(b"", 8), GOOD], 502, "target cluster failed"),
        ([b"\x82\xff" + b"x" * 20], 502, "target cluster failed"),
        ([b"\x82\x7f" + (2**40).to_bytes(8, "big")], 502, "target cluster failed"),
        ([frame(b"\x01" + b"x" * 60_000)] * 20, 502, "target cluster failed"),
        ([frame(b"\x01" + b"x" * 60_000, 0, is_last=False)] * 20, 502, "target cluster failed"),
    ],
)
async def test_run_tells_what_failed(
    keys: Keys, frames: list[bytes], status: int, words: str
) -> None:
    async with kubelet(keys) as stage:
        stage.target.reply = running(*frames)
        heard = await stage.ask("/run/shop/web/app?cmd=ls", "POST")
        assert heard.status == status
        assert words in heard.text


async def test_run_wants_an_honest_websocket(keys: Keys) -> None:
    async with kubelet(keys) as stage:
        stage.target.reply = running(GOOD, is_true=False)
        assert (await stage.ask("/run/shop/web/app?cmd=ls", "POST")).status == 502


# -- life ------------------------------------------------------------------------------------------


async def test_a_new_certificate_counts_from_the_next_connection_on(keys: Keys) -> None:
    """Older connections end after their next answer."""
    async with kubelet(keys) as stage:
        client = await stage.connect()
        assert (await client.ask("/healthz")).status == 200
        stage.tls = keys.serving()
        heard = await client.ask("/healthz")
        assert (heard.status, heard.headers["connection"]) == (200, "close")
        assert await client.is_ended()
        assert await stage.is_well()


async def test_without_a_certificate_nobody_is_answered(keys: Keys) -> None:
    async with kubelet(keys) as stage:
        stage.tls = None
        with pytest.raises(OSError):
            await stage.connect()


async def test_connections_that_ended_are_forgotten(keys: Keys) -> None:
    async with kubelet(keys) as stage:
        for _turn in range(5):
            assert (await stage.ask("/pods", headers=[("Connection", "close")])).status == 200
        await until(lambda: stage.server.admission.connections == 0)
        assert stage.server.admission.strangers == 0


async def test_stopping_ends_streams_and_finishes_answers(keys: Keys) -> None:
    async with kubelet(keys) as stage:
        stage.target.reply = switching()
        streaming, idle, asking = [await stage.connect() for _turn in range(3)]
        await streaming.ask(EXEC, "POST", headers=SPDY)
        await idle.ask("/healthz")
        stage.pages.waits = asyncio.Event()
        asking.send(b"GET /pods HTTP/1.1\r\nHost: node\r\n\r\n")
        await until(lambda: any(c.is_answering for c in stage.server._clients.values()))
        stage.task.cancel()
        assert await streaming.is_ended()
        assert await idle.is_ended()
        assert stage.target.stream.closed.is_set()
        stage.pages.waits.set()
        heard = await asking.hear()
        assert (heard.text, heard.headers["connection"]) == ("/pods", "close")
        await asyncio.wait([stage.task])
        assert stage.server.admission.connections == 0
        with pytest.raises(OSError, match=r"refused|Connect call failed"):
            await stage.connect()


async def test_stopping_waits_only_so_long(keys: Keys) -> None:
    async with kubelet(keys, limits=Limits(grace_seconds=0.05)) as stage:
        stage.pages.waits = asyncio.Event()
        client = await stage.connect()
        client.send(b"GET /pods HTTP/1.1\r\nHost: node\r\n\r\n")
        await until(lambda: any(c.is_answering for c in stage.server._clients.values()))
        stage.task.cancel()
        assert await client.is_ended()


class Crowded(socket.socket):
    """A listener whose process had no file descriptor left, and whose first client went."""

    errors: tuple[int, ...] = (errno.EMFILE, errno.ECONNABORTED)

    def accept(self) -> tuple[socket.socket, Any]:
        if self.errors:
            number, *rest = self.errors
            self.errors = tuple(rest)
            raise OSError(number, "played")
        return super().accept()


async def test_without_file_descriptors_accepting_waits(keys: Keys) -> None:
    """And goes on when there are some; what no waiting helps against ends the server."""
    async with kubelet(keys) as stage:
        first = listen("127.0.0.1", 0)
        crowded = Crowded(fileno=first.detach())
        crowded.setblocking(False)
        stage.port = crowded.getsockname()[1]
        task = asyncio.create_task(stage.server.serve(crowded))
        assert await stage.is_well()
        crowded.errors = (errno.EINVAL,)
        with suppress(OSError):
            await stage.connect()
        with pytest.raises(OSError, match="played"):
            await task


async def test_a_stream_that_fails_is_cut_not_answered(keys: Keys) -> None:
    """A fault of ours after the head leaves a connection that is no use."""

    async def faulty() -> AsyncIterator[bytes]:
        yield b"one\n"
        raise RuntimeError("a fault")

    async with kubelet(keys) as stage:
        stage.target.reply = lambda _call: Reply(status=200, headers=(), body=faulty())
        assert (await stage.ask(LOGS)).is_cut
        stage.target.reply = lambda _call: Reply(status=200, headers=())
        assert (await stage.ask(LOGS)).status == 502
        assert await stage.is_well()


async def test_a_taken_port_is_told() -> None:
    with listen("127.0.0.1", 0) as first, pytest.raises(OSError, match="in use"):
        listen("127.0.0.1", first.getsockname()[1])


async def test_both_families_are_served_where_all_are_asked_for(keys: Keys) -> None:
    try:
        listener = listen("::", 0)
    except OSError:
        pytest.skip("no IPv6 here")
    server = KubeletServer(
        access=PlayedAccess(),
        pods=PlayedPods(),
        open_call=PlayedTarget().open_call,
        pages=PlayedPages(),
        tls=keys.serving,
    )
    port = listener.getsockname()[1]
    task = asyncio.create_task(server.serve(listener))
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=keys.client(keys.api_server)
    )
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: node\r\n\r\n")
    assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    writer.transport.abort()
    task.cancel()
    await asyncio.wait([task])


async def test_exec_begins_in_milliseconds(keys: Keys) -> None:
    """What the server adds to one request, the TLS handshake included."""
    async with kubelet(keys) as stage:
        stage.target.reply = switching()
        clock = asyncio.get_running_loop().time
        began = clock()
        for _turn in range(20):
            client = await stage.connect()
            assert (await client.ask(EXEC, "POST", headers=SPDY)).status == 101
            client.close()
        took = (clock() - began) / 20
        print(f"connect, upgrade: {took * 1000:.1f} ms")
        assert took < 0.5
