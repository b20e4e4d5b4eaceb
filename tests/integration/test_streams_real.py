"""Streams through a real kube-apiserver to a node that is a stub of ours: what a kubelet is asked.

The API server checks who asks, finds the pod's node, and speaks to it as to any kubelet.
"""

from __future__ import annotations

import asyncio
import dataclasses
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import parse_qsl, urlsplit
from uuid import uuid4

import pytest
import yaml

from e2e.testbed.local import LocalCluster
from federate.cluster.client import ClusterClient
from federate.cluster.connect import connect
from federate.cluster.tunnel import Channel
from federate.cluster.upstream import Reply, Upgraded, UpstreamCall
from federate.errors import Unauthorized
from federate.kubelet.relay import Direction, relay
from federate.model.objects import ObjectKey
from federate.model.resources import NODES
from tests.support.credentials import issue
from tests.support.playednode import pod_on_a_node
from tests.support.upstream import SWITCH, Conversation, Script, Upstream, says, upstream

pytestmark = pytest.mark.integration

CHUNKED = b"HTTP/1.1 200 OK\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
SPDY = (("Upgrade", "SPDY/3.1"), ("X-Stream-Protocol-Version", "v4.channel.k8s.io"))


@dataclass
class Stage:
    """A pod on a node that a stub answers for."""

    cluster: LocalCluster
    client: ClusterClient
    kubelet: Upstream
    namespace: str

    def call(self, subresource: str, *query: tuple[str, str], upgrades: bool) -> UpstreamCall:
        return UpstreamCall(
            method="POST" if upgrades else "GET",
            path=f"/api/v1/namespaces/{self.namespace}/pods/a/{subresource}",
            query=query,
            headers=SPDY if upgrades else (),
        )

    def asked(self, number: int = -1) -> tuple[str, str, list[tuple[str, str]]]:
        method, target, _ = self.kubelet.seen[number].line.split()
        url = urlsplit(target)
        return method, url.path, parse_qsl(url.query)


def kubelet_tls(cluster: LocalCluster) -> ssl.SSLContext:
    """A certificate of our own, as kubelets sign theirs; only the API server may come."""
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(cluster.ca_certificate))
    with TemporaryDirectory() as folder:
        pair, file = issue("kubelet"), Path(folder, "kubelet.pem")
        file.write_bytes(pair.pem + pair.key_pem)
        tls.load_cert_chain(file)
    tls.verify_mode = ssl.CERT_REQUIRED
    return tls


async def serve(talk: Conversation) -> None:
    """Answer as a kubelet: a log of two parts, an exec that says everything once more."""
    if "Upgrade" in talk.all("Connection"):
        await talk.send(SWITCH)
        while data := await talk.reader.read(262_144):
            await talk.send(data)
    else:
        await talk.send(CHUNKED, b"6\r\nfirst\n\r\n")
        await asyncio.sleep(0.2)
        await talk.send(b"7\r\nsecond\n\r\n0\r\n\r\n")


@asynccontextmanager
async def staged(cluster: LocalCluster, script: Script = serve) -> AsyncIterator[Stage]:
    name = f"streams-{uuid4().hex[:8]}"
    async with AsyncExitStack() as held:
        kubelet = await held.enter_async_context(upstream(script, tls=kubelet_tls(cluster)))
        client = await connect(cluster.kubeconfig, name=cluster.name)
        held.push_async_callback(client.aclose)
        async with pod_on_a_node(client, name, port=kubelet.port):
            yield Stage(cluster, client, kubelet, name)


def upgraded_of(reply: Reply) -> Upgraded:
    assert reply.status == 101, reply
    assert reply.upgraded is not None
    return reply.upgraded


async def body_of(reply: Reply) -> bytes:
    assert reply.body is not None
    return b"".join([part async for part in reply.body])


async def exactly(connection: Upgraded, count: int) -> bytes:
    came = bytearray()
    while len(came) < count and (part := await connection.read(262_144)):
        came += part
    return bytes(came)


async def test_c60_a_log_as_it_is_written(light_target: LocalCluster) -> None:
    """Options arrive at the kubelet in its own words, parts come as they are sent."""
    async with staged(light_target) as stage:
        query = (("container", "c"), ("follow", "true"), ("tailLines", "5"))
        async with stage.client.stream(stage.call("log", *query, upgrades=False)) as reply:
            assert reply.status == 200 and reply.body is not None
            assert await anext(reply.body) == b"first\n"
            started = time.monotonic()
            assert await anext(reply.body) == b"second\n"
            assert time.monotonic() - started > 0.1
            assert await anext(reply.body, None) is None
        method, path, asked = stage.asked()
        assert (method, path) == ("GET", f"/containerLogs/{stage.namespace}/a/c")
        assert {("follow", "true"), ("tailLines", "5")} <= set(asked)


@pytest.mark.parametrize(
    ("subresource", "query", "path", "words"),
    [
        (
            "exec",
            (("container", "c"), ("command", "a b"), ("command", "é&"), ("stdin", "true")),
            "/exec/{}/a/c",
            [("command", "a b"), ("command", "é&"), ("input", "1")],
        ),
        ("attach", (("container", "c"), ("stdout", "true")), "/attach/{}/a/c", [("output", "1")]),
        ("portforward", (), "/portForward/{}/a", []),
    ],
)
async def test_c60_upgrades(
    light_target: LocalCluster,
    subresource: str,
    query: tuple[tuple[str, str], ...],
    path: str,
    words: list[tuple[str, str]],
) -> None:
    """The bytes behind the 101 go through untouched; leaving ends them at the kubelet."""
    async with staged(light_target) as stage:
        async with stage.client.stream(stage.call(subresource, *query, upgrades=True)) as reply:
            connection = upgraded_of(reply)
            assert dict(reply.headers)["upgrade"] == "SPDY/3.1"
            await connection.write(b"\x80\x03\x00\xff")
            assert await exactly(connection, 4) == b"\x80\x03\x00\xff"
        async with asyncio.timeout(10.0):
            while stage.kubelet.open:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        method, asked, found = stage.asked()
        assert (method, asked) == ("POST", path.format(stage.namespace))
        assert [pair for pair in found if pair in words] == words


async def test_c60_websockets(light_target: LocalCluster) -> None:
    """A client that speaks WebSocket is led through as well, in the words it chose."""
    switch = SWITCH.replace(b"SPDY/3.1", b"websocket")

    async def script(talk: Conversation) -> None:
        await talk.send(switch, b"\x82\x01\x00")

    async with staged(light_target, script) as stage:
        headers = (
            ("Upgrade", "websocket"),
            ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
            ("Sec-WebSocket-Version", "13"),
            ("Sec-WebSocket-Protocol", "v4.channel.k8s.io"),
        )
        call = stage.call("attach", ("container", "c"), ("stdout", "true"), upgrades=True)
        call = dataclasses.replace(call, method="GET", headers=headers)
        async with stage.client.stream(call) as reply:
            connection = upgraded_of(reply)
            assert await exactly(connection, 3) == b"\x82\x01\x00"
            assert await connection.read() == b""
        talk = stage.kubelet.seen[-1]
        assert talk.all("Sec-WebSocket-Protocol") == ["v4.channel.k8s.io"]
        assert talk.all("Upgrade") == ["websocket"] and not talk.all("Authorization")


async def test_c60_a_hundred_at_once(light_target: LocalCluster) -> None:
    """Each has its own bytes, and short requests find their way meanwhile."""
    async with staged(light_target) as stage, AsyncExitStack() as held:
        call = stage.call("portforward", upgrades=True)
        started = time.monotonic()
        entered = [held.enter_async_context(stage.client.stream(call)) for _ in range(100)]
        streams = [upgraded_of(reply) for reply in await asyncio.gather(*entered)]
        print(f"100 streams opened in {time.monotonic() - started:.2f} s")

        async def talk(number: int, connection: Upgraded) -> None:
            words = b"%03d" % number * 10_000
            await connection.write(words)
            assert await exactly(connection, len(words)) == words

        await asyncio.gather(*(talk(n, connection) for n, connection in enumerate(streams)))
        await stage.client.get(NODES, ObjectKey("", stage.namespace))


async def test_what_the_kubelet_refuses(light_target: LocalCluster) -> None:
    """A refusal goes on as it is, and a container that is not there is the API server's to tell."""
    refusal = says(
        b"HTTP/1.1 500 X\r\nConnection: close\r\nContent-Type: text/plain\r\n"
        b"Content-Length: 13\r\n\r\nno such thing"
    )
    async with staged(light_target, refusal) as stage:
        call = stage.call("exec", ("command", "x"), ("stdout", "1"), upgrades=True)
        async with stage.client.stream(call) as reply:
            assert (reply.status, await body_of(reply)) == (500, b"no such thing")
        call = stage.call("log", ("container", "other"), upgrades=False)
        async with stage.client.stream(call) as reply:
            assert reply.status == 400
            assert b"container other is not valid for pod a" in await body_of(reply)


async def test_who_has_no_rights(light_target: LocalCluster, tmp_path: Path) -> None:
    """403 is a reply in the target's words; 401 is not, and says no token."""
    async with staged(light_target) as stage:
        config = yaml.safe_load(light_target.kubeconfig.read_text())
        user = config["users"][0]["user"]
        file = tmp_path / "kubeconfig"
        file.write_text(
            yaml.safe_dump(
                config
                | {"users": [config["users"][0] | {"user": user | {"as": "nobody-in-particular"}}]}
            )
        )
        client = await connect(file, name="target")
        call = stage.call("exec", ("command", "x"), ("stdout", "1"), upgrades=True)
        async with client.stream(call) as reply:
            assert reply.status == 403
            assert b'User \\"nobody-in-particular\\" cannot' in await body_of(reply)
        await client.aclose()
        file.write_text(
            yaml.safe_dump(
                config | {"users": [config["users"][0] | {"user": {"token": "not-a-good-token"}}]}
            )
        )
        client = await connect(file, name="target")
        with pytest.raises(Unauthorized) as caught:
            await client.stream(call).__aenter__()
        assert "not-a-good-token" not in str(caught.value)
        await client.aclose()
        assert not stage.kubelet.seen


async def test_how_fast_a_relay_is(light_target: LocalCluster, tmp_path: Path) -> None:
    """32 MB there and back through an exec, at once and through a relay; printed."""
    total = 32 * 2**20

    async def there_and_back(connection: Upgraded) -> float:
        started = time.monotonic()

        async def send() -> None:
            piece = b"x" * 32_768
            for _ in range(total // len(piece)):
                await connection.write(piece)

        sending = asyncio.create_task(send())
        assert len(await exactly(connection, total)) == total
        await sending
        return time.monotonic() - started

    moved = {Direction.IN: 0, Direction.OUT: 0}

    def count(direction: Direction, size: int) -> None:
        moved[direction] += size

    async with staged(light_target) as stage:
        call = stage.call("exec", ("command", "x"), ("stdin", "1"), upgrades=True)
        async with stage.client.stream(call) as reply:
            direct = await there_and_back(upgraded_of(reply))
        async with stage.client.stream(call) as reply:
            loop = asyncio.get_running_loop()
            arrived: asyncio.Future[Channel] = loop.create_future()
            server = await loop.create_server(
                lambda: Channel(connected=arrived.set_result), "127.0.0.1", 0
            )
            near = Channel()
            port = server.sockets[0].getsockname()[1]
            await loop.create_connection(lambda: near, "127.0.0.1", port)
            relaying = asyncio.create_task(relay(await arrived, upgraded_of(reply), moved=count))
            through = await there_and_back(near)
            near.close()
            await relaying
            server.close()
    assert moved == {Direction.IN: total, Direction.OUT: total}
    rates = (f"{2 * total / 2**20 / seconds:.0f} MB/s" for seconds in (direct, through))
    print("32 MB there and back: direct {}, through a relay {}".format(*rates))
