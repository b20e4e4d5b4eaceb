"""Streams of a client over real connections: TLS, proxies, renewal, and how they end."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from federate.cluster import tunnel
from federate.cluster.client import ClusterClient
from federate.cluster.connect import connect
from federate.cluster.sessions import Access
from federate.cluster.streaming import Streams
from federate.cluster.tunnel import MOST_HELD, TLS_READ_BYTES, Channel
from federate.cluster.upstream import Reply, Upgraded, UpstreamCall
from federate.errors import ClusterError, Rejected, ServerFault, Unauthorized, Unreachable
from tests.support.credentials import Authority, embed, issue, kubeconfig
from tests.support.relays import PASSWORD, QUOTED_PASSWORD, USER, http_relay, socks_relay
from tests.support.upstream import SWITCH, Conversation, Script, Upstream, says, status, upstream

LOG = UpstreamCall(method="GET", path="/api/v1/namespaces/ns/pods/a/log")
EXEC = UpstreamCall(
    method="POST",
    path="/api/v1/namespaces/ns/pods/a/exec",
    query=(("command", "a-secret-word"),),
    headers=(("Upgrade", "SPDY/3.1"),),
)
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


class Fixed:
    """Credentials that a test sets; `renewals` are what follows a refusal."""

    def __init__(self, access: Access, *renewals: Access) -> None:
        self.access, self.renewals = access, list(renewals)

    def known(self) -> Access:
        return self.access

    async def current(self) -> Access:
        return self.access

    async def renew(self, refused: Access) -> Access:
        if self.renewals:
            self.access = self.renewals.pop(0)
        return self.access

    async def aclose(self) -> None:
        pass


def as_user(server: Upstream, token: str) -> Access:
    header = ("Authorization", f"Bearer {token}")
    return Access(server=f"http://127.0.0.1:{server.port}", headers=(header,), concealed=(token,))


@asynccontextmanager
async def bench(
    *scripts: Script, tokens: tuple[str, ...] = ("one",), **options: Any
) -> AsyncIterator[tuple[Upstream, Streams]]:
    async with upstream(*scripts) as server:
        first, *more = (as_user(server, token) for token in tokens)
        streams = Streams(name="east", credentials=Fixed(first, *more), **options)
        try:
            yield server, streams
        finally:
            await streams.aclose()


async def body_of(reply: Reply) -> bytes:
    assert reply.body is not None and reply.upgraded is None
    return b"".join([part async for part in reply.body])


def upgraded_of(reply: Reply) -> Upgraded:
    assert reply.status == 101 and reply.body is None
    assert reply.upgraded is not None
    return reply.upgraded


async def echo(talk: Conversation) -> None:
    """Switch, and say once more what is said."""
    await talk.send(SWITCH)
    while data := await talk.reader.read(65_536):
        await talk.send(data)


async def hang(talk: Conversation) -> None:
    await asyncio.sleep(60.0)


async def gone(server: Upstream) -> None:
    """Wait until the server's connections have ended."""
    while server.open:  # noqa: ASYNC110
        await asyncio.sleep(0.01)


# --- plain replies -------------------------------------------------------------------------------


async def test_c60_a_log_comes_as_it_is_written() -> None:
    """Each part is here before the next is sent; the end is the end."""
    told = asyncio.Event()

    async def script(talk: Conversation) -> None:
        await talk.send(CHUNKED, b"6\r\nfirst\n\r\n")
        await told.wait()
        await talk.send(b"7\r\nsecond\n\r\n0\r\n\r\n")

    async with bench(script) as (server, streams), streams.open(LOG) as reply:
        assert reply.status == 200 and reply.body is not None
        assert await anext(reply.body) == b"first\n"
        told.set()
        assert await anext(reply.body) == b"second\n"
        assert await anext(reply.body, b"end") == b"end"
    assert server.seen[0].line == "GET /api/v1/namespaces/ns/pods/a/log HTTP/1.1"
    assert server.seen[0].all("Authorization") == ["Bearer one"]


@pytest.mark.parametrize(
    ("reply", "body"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", b"abc"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcdef", b"abc"),
        (b"HTTP/1.0 200 OK\r\n\r\nabc", b"abc"),
        (CHUNKED + b"3\r\nabc\r\n0\r\n\r\nrest", b"abc"),
        (b"HTTP/1.1 204 X\r\n\r\n", b""),
    ],
)
async def test_every_framing(reply: bytes, body: bytes) -> None:
    """A body ends where it says so; what follows is nobody's."""
    async with bench(says(reply)) as (_, streams), streams.open(LOG) as found:
        assert await body_of(found) == body


@pytest.mark.parametrize(
    "reply",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc",
        CHUNKED + b"3\r\nabc\r\n",
        CHUNKED + b"9\r\nabc",
        CHUNKED + b"3\r\nabc\r\n0\r\n",
        CHUNKED + b"3\r\nabc\r\nnonsense\r\n",
    ],
)
async def test_a_part_is_not_taken_for_the_whole(reply: bytes) -> None:
    """A log that breaks off says so, after what had come."""
    async with bench(says(reply)) as (_, streams), streams.open(LOG) as found:
        assert found.body is not None
        came = b""
        with pytest.raises(Unreachable, match="stream /api/v1/namespaces/ns/pods/a/log at east"):
            async for part in found.body:
                came += part
        assert came in (b"abc", b"")


@pytest.mark.parametrize("code", [400, 403, 404, 409, 429, 500, 503])
async def test_a_refusal_is_a_reply(code: int) -> None:
    """What the target says goes on to who asked, for an upgrade as for a log."""
    script = status(code, b'{"kind":"Status","message":"container not found"}', "Retry-After: 7")
    async with bench(script) as (_, streams):
        for call in (LOG, EXEC):
            async with streams.open(call) as reply:
                assert (reply.status, dict(reply.headers)["retry-after"]) == (code, "7")
                assert b"container not found" in await body_of(reply)


async def test_a_slow_reader_holds_up_the_sender() -> None:
    """Of a gigantic log only what the buffers hold is under way; nothing of it is lost."""
    total, sent = 32 * 2**20, 0
    piece = b"%X\r\n%s\r\n" % (65_536, b"x" * 65_536)

    async def script(talk: Conversation) -> None:
        nonlocal sent
        await talk.send(CHUNKED)
        while sent < total:
            await talk.send(piece)
            sent += 65_536
        await talk.send(b"0\r\n\r\n")

    async with bench(script) as (_, streams), streams.open(LOG) as reply:
        assert reply.body is not None
        first = await anext(reply.body)
        before = -1
        while sent != before:
            before = sent
            await asyncio.sleep(0.2)
        print(f"sent {sent / 2**20:.1f} of {total / 2**20:.0f} MB to a reader that stalls")
        assert sent < total / 2  # mostly the kernel's buffers
        assert len(first) + len(await body_of(reply)) == total


async def test_a_silent_log_is_waited_for() -> None:
    """API servers send the head with the first byte, which may take hours."""

    async def script(talk: Conversation) -> None:
        await asyncio.sleep(0.3)
        await talk.send(CHUNKED, b"0\r\n\r\n")

    async with bench(script, upgrade_seconds=0.05) as (_, streams):
        async with streams.open(LOG) as reply:
            assert await body_of(reply) == b""
        with pytest.raises(Unreachable, match="TimeoutError"):
            await streams.open(EXEC).__aenter__()


async def test_who_waits_no_more_ends_the_request() -> None:
    """Given up before the head, or in the middle: the server sees the end either way."""
    async with bench(hang, says(CHUNKED, b"1\r\na\r\n")) as (server, streams):
        waiting = asyncio.create_task(streams.open(LOG).__aenter__())
        while not server.seen:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        talk = server.seen[0]
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert await talk.reader.read() == b""
        async with streams.open(LOG) as reply:
            assert reply.body is not None
            assert await anext(reply.body) == b"a"
        assert await server.seen[1].reader.read() == b""


# --- upgrades ------------------------------------------------------------------------------------


async def test_c60_an_upgraded_connection_is_ours() -> None:
    """What came with the 101 is kept, and bytes go both ways."""

    async def script(talk: Conversation) -> None:
        await talk.send(SWITCH + b"\x80\x03")
        assert await talk.reader.readexactly(3) == b"abc"
        await talk.send(b"def")

    async with bench(script) as (server, streams), streams.open(EXEC) as reply:
        assert dict(reply.headers)["x-stream-protocol-version"] == "v4.channel.k8s.io"
        connection = upgraded_of(reply)
        assert await connection.read() == b"\x80\x03"
        await connection.write(b"abc")
        assert await connection.read(2) == b"de"
        assert await connection.read() == b"f"
        assert await connection.read() == b""
    assert server.seen[0].line.startswith("POST /api/v1/namespaces/ns/pods/a/exec?command=a-secret")
    assert server.seen[0].all("Connection") == ["Upgrade"]


async def test_leaving_ends_it() -> None:
    """And so does the end of the client, which opens no more."""
    async with bench(echo) as (server, streams):
        async with streams.open(EXEC) as reply:
            upgraded_of(reply)
        await gone(server)
        async with streams.open(EXEC) as reply:
            connection = upgraded_of(reply)
            reading = asyncio.create_task(connection.read())
            await asyncio.sleep(0)
            await streams.aclose()
            assert await reading == b""
            with pytest.raises(OSError, match="has ended"):
                await connection.write(b"x")
        await gone(server)
        with pytest.raises(Unreachable, match="the client is closed"):
            await streams.open(EXEC).__aenter__()
    assert len(server.seen) == 2


async def test_keepalive_watches_over_silent_streams() -> None:
    """The kernel asks whether the other side is there, and small writes leave at once."""
    async with bench(echo) as (_, streams), streams.open(EXEC) as reply:
        connection = upgraded_of(reply)
        assert isinstance(connection, Channel)
        found = connection.transport.get_extra_info("socket")
        assert found.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert found.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert 0 < found.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) <= 60


# --- who we are ----------------------------------------------------------------------------------


async def test_new_credentials_after_a_401() -> None:
    """Once, and with the whole request again; the refused one is closed."""
    no = status(401, b'{"kind":"Status","message":"who?"}')
    async with bench(no, echo, tokens=("first-one", "second-one")) as (server, streams):
        async with streams.open(EXEC) as reply:
            upgraded_of(reply)
        assert [talk.all("Authorization") for talk in server.seen] == [
            ["Bearer first-one"],
            ["Bearer second-one"],
        ]


@pytest.mark.parametrize("tokens", [("first-one",), ("first-one", "second-one")])
async def test_a_401_that_stays(tokens: tuple[str, ...]) -> None:
    """It is no reply to who asked (they are not who was refused), and repeats no token."""
    no = status(401, b"no: first-one second-one " + b"x" * 100_000)
    async with bench(no, tokens=tokens) as (server, streams):
        with pytest.raises(Unauthorized) as caught:
            await streams.open(EXEC).__aenter__()
        assert len(server.seen) == len(tokens)
        assert tokens[-1] not in str(caught.value) and "secret" not in str(caught.value)
        assert caught.value.status == 401


# --- no reply ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "kind", "words"),
    [
        (says(), Unreachable, "ended before a reply"),
        (says(b"HTTP/1.1 200"), Unreachable, "ended before a reply"),
        (says(b"nonsense\r\n\r\n"), ServerFault, "no HTTP"),
        (says(b"\0" * 100_000), ServerFault, "too long"),
        (status(302, b"", "Location: https://elsewhere/"), ServerFault, "no API server redirects"),
    ],
)
async def test_what_is_no_reply(script: Script, kind: type[ClusterError], words: str) -> None:
    """Errors name what was attempted, never what an exec runs."""
    async with bench(script) as (_, streams):
        with pytest.raises(kind, match=words) as caught:
            await streams.open(EXEC).__aenter__()
        assert "stream /api/v1/namespaces/ns/pods/a/exec at east" in str(caught.value)
        assert "a-secret-word" not in str(caught.value) + repr(EXEC)


async def test_what_cannot_be_sent() -> None:
    """Refused before anything leaves."""
    async with bench(echo) as (server, streams):
        with pytest.raises(Rejected):
            await streams.open(UpstreamCall(method="GET", path="/api/../x")).__aenter__()
        assert not server.seen


async def test_nobody_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """A closed port, a name that is none, and a server that accepts and says no word."""
    monkeypatch.setattr(tunnel, "OPEN_SECONDS", 0.2)
    for server in ("http://127.0.0.1:1", "https://no-such-host.invalid"):
        streams = Streams(name="east", credentials=Fixed(Access(server=server)))
        with pytest.raises(Unreachable, match="no answer"):
            await streams.open(LOG).__aenter__()
    async with upstream(hang) as silent:
        access = Access(server=f"https://127.0.0.1:{silent.port}")
        streams = Streams(name="east", credentials=Fixed(access))
        with pytest.raises(Unreachable, match="TimeoutError"):
            await streams.open(LOG).__aenter__()


# --- ways to a server ----------------------------------------------------------------------------


async def exchange_with(client: ClusterClient) -> None:
    """Exec through it, and read a log of some size."""
    async with client.stream(EXEC) as reply:
        connection = upgraded_of(reply)
        await connection.write(b"hello")
        assert await connection.read() == b"hello"
    async with client.stream(LOG) as reply:
        assert len(await body_of(reply)) == 2**20


async def both(talk: Conversation) -> None:
    """Answer either call."""
    if talk.line.startswith("POST"):
        await echo(talk)
    else:
        await talk.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % 2**20, b"x" * 2**20)


async def test_c72_tls_as_the_kubeconfig_says(tmp_path: Path) -> None:
    """The client's certificate, another name for the server's, the base path, impersonation."""
    authority = Authority()
    pair = issue("me", authority.ca)
    user = {
        "client-certificate-data": embed(pair.pem),
        "client-key-data": embed(pair.key_pem),
        "as": "somebody",
        "as-groups": ["a", "b"],
    }
    cluster = {
        "tls-server-name": "elsewhere",
        "certificate-authority-data": embed(authority.ca.pem),
    }
    async with upstream(both, tls=authority.server_tls(tmp_path, "elsewhere")) as server:
        url = f"https://127.0.0.1:{server.port}/k8s/c-1"
        client = await connect(kubeconfig(tmp_path, url, user=user, **cluster), name="east")
        await exchange_with(client)
        await client.aclose()
        talk = server.seen[0]
        assert talk.line.startswith("POST /k8s/c-1/api/v1/")
        assert (talk.all("Impersonate-User"), talk.all("Impersonate-Group")) == (
            ["somebody"],
            ["a", "b"],
        )
        peer = talk.writer.get_extra_info("peercert")
        assert peer["subject"] == ((("commonName", "me"),),)
        cluster.pop("tls-server-name")
        client = await connect(kubeconfig(tmp_path, url, user=user, **cluster), name="east")
        with pytest.raises(Unreachable, match="certificate"):
            await client.stream(EXEC).__aenter__()
        await client.aclose()


@pytest.mark.parametrize("kind", ["http", "https", "socks5"])
@pytest.mark.parametrize("password", [QUOTED_PASSWORD, "wrong%2Fword"])
async def test_c72_a_proxy_leads_to_the_server(tmp_path: Path, kind: str, password: str) -> None:
    """Streams take the way that requests take; one who is refused gets no tunnel."""
    authority = Authority()
    async with AsyncExitStack() as held:
        tls = authority.server_tls(tmp_path, "kubernetes")
        server = await held.enter_async_context(upstream(both, tls=tls))
        proxies = {
            "http": http_relay,
            "https": lambda: http_relay(authority.server_tls(tmp_path, "proxy")),
            "socks5": socks_relay,
        }
        proxy = await held.enter_async_context(proxies[kind]())
        cluster = {
            "certificate-authority-data": embed(authority.ca.pem),
            "proxy-url": f"{kind}://{USER}:{password}@127.0.0.1:{proxy.port}",
        }
        path = kubeconfig(
            tmp_path, f"https://127.0.0.1:{server.port}", user={"token": "t"}, **cluster
        )
        client = await connect(path, name="east")
        held.push_async_callback(client.aclose)
        if password == QUOTED_PASSWORD:
            await exchange_with(client)
            assert (proxy.tunnels, proxy.refused) == (2, 0)
            assert not server.seen[0].all("Proxy-Authorization")
        else:
            with pytest.raises(Unreachable) as caught:
                await client.stream(EXEC).__aenter__()
            assert (proxy.tunnels, proxy.refused, len(server.seen)) == (0, 1, 0)
            for word in (PASSWORD, "wrong/word", "wrong%2Fword"):
                assert word not in str(caught.value)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0\r\n\r\n",
        b"HTTP/1.1 200 OK",
        b"HTTP/1.1 407 X\r\n\r\nyou said let me/pass",
        b"HTTP/1.1 200 OK\r\n\r\nmore",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"\0" * 20_000,
    ],
    ids=lambda value: repr(value[:20]),
)
async def test_proxies_that_make_no_tunnel(tmp_path: Path, answer: bytes) -> None:
    """No tunnel is taken for one, and no word of theirs is repeated."""
    async with upstream(says(answer)) as proxy:
        url = f"http://{USER}:{QUOTED_PASSWORD}@127.0.0.1:{proxy.port}"
        path = kubeconfig(tmp_path, "https://10.0.0.1", user={"token": "t"}, **{"proxy-url": url})
        client = await connect(path, name="east")
        with pytest.raises(Unreachable, match="proxy") as caught:
            await client.stream(EXEC).__aenter__()
        assert PASSWORD not in str(caught.value)
        await client.aclose()


# --- a client's streams --------------------------------------------------------------------------


async def test_c2_streams_take_no_places_of_requests() -> None:
    """With more streams open than a pool has places, a request does not wait."""

    async def script(talk: Conversation) -> None:
        await (echo(talk) if "/exec" in talk.line else status(200, b"{}")(talk))

    seen: list[tuple[str, str, str]] = []

    def observe(*, verb: str, resource: str, outcome: str, seconds: float) -> None:
        seen.append((verb, resource, outcome))

    async with upstream(script) as server:
        credentials = Fixed(as_user(server, "one"))
        client = ClusterClient(name="east", credentials=credentials, observer=observe)
        async with AsyncExitStack() as held:
            for _ in range(120):
                await held.enter_async_context(client.stream(EXEC))
            async with asyncio.timeout(10.0):
                await client.raw_get("/version")
            assert seen == [("get", "", "ok")]
        assert seen[1:] == [("stream", "pods/exec", "ok")] * 120
        await client.aclose()
        await gone(server)


async def test_streams_are_observed() -> None:
    """By what they ask for, never by whose it is."""
    seen: list[tuple[str, str, str]] = []

    def observe(*, verb: str, resource: str, outcome: str, seconds: float) -> None:
        seen.append((verb, resource, outcome))

    async with upstream(says()) as server:
        credentials = Fixed(as_user(server, "one"))
        client = ClusterClient(name="east", credentials=credentials, observer=observe)
        for path in (LOG.path, "/api/v1/nodes/n/proxy/metrics/resource", "/version"):
            with pytest.raises(Unreachable):
                await client.stream(UpstreamCall(method="GET", path=path)).__aenter__()
        await client.aclose()
    assert seen == [
        ("stream", resource, "Unreachable") for resource in ("pods/log", "nodes/proxy", "")
    ]


# --- the connection itself -----------------------------------------------------------------------


@asynccontextmanager
async def pair(tmp_path: Path, *, tls: bool) -> AsyncIterator[tuple[Channel, Channel]]:
    """Two channels that are one connection."""
    authority = Authority()
    arrived: asyncio.Future[Channel] = asyncio.get_running_loop().create_future()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Channel(connected=arrived.set_result), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    channel = Channel()
    await loop.create_connection(lambda: channel, "127.0.0.1", port)
    other = await arrived
    if tls:
        ours = ssl.create_default_context(cadata=authority.ca.pem.decode())
        ours.verify_flags &= ~ssl.VERIFY_X509_STRICT
        theirs = authority.server_tls(tmp_path, "kubernetes")
        await asyncio.gather(
            other.begin_tls(theirs, server_side=True),
            channel.begin_tls(ours, server_hostname="kubernetes"),
        )
    try:
        yield channel, other
    finally:
        channel.close()
        other.close()
        server.close()
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("tls", [False, True])
async def test_nothing_is_lost_at_the_end(tmp_path: Path, tls: bool) -> None:
    """`finish` waits for a reader that takes its time, and then ends in order."""
    async with pair(tmp_path, tls=tls) as (near, far):
        data = bytes(range(256)) * 4096 * 12

        async def send() -> None:
            await near.write(data)
            await near.finish()

        sending = asyncio.create_task(send())
        await asyncio.sleep(0.3)
        assert not sending.done()  # its reader has not begun
        came = bytearray()
        while part := await far.read(100_000):
            assert len(part) <= 100_000
            came += part
        assert bytes(came) == data
        far.close()
        await sending
        with pytest.raises(OSError, match="has ended"):
            await near.write(b"x")


async def test_the_kernel_holds_nothing_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who stalls for longer than an end may take gets the tail as well, whatever they sent."""
    monkeypatch.setattr(tunnel, "END_SECONDS", 0.01)
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
        near = Channel()
        await loop.create_connection(lambda: near, *listener.getsockname())
        far, _ = await loop.sock_accept(listener)
    with far:
        data = bytes(range(256)) * 1100
        await near.write(data)
        await loop.sock_sendall(far, b"in vain" * 1000)
        await asyncio.sleep(0.05)
        finishing = asyncio.create_task(near.finish())
        await asyncio.sleep(0.3)
        assert not finishing.done()
        came = bytearray()
        while part := await loop.sock_recv(far, 65_536):
            came += part
            await asyncio.sleep(0.001)
        assert bytes(came) == data
        await finishing


@pytest.mark.parametrize("tls", [False, True])
async def test_a_connection_that_breaks(tmp_path: Path, tls: bool) -> None:
    """What had come is still read; writers that wait are told, `finish` too."""
    async with pair(tmp_path, tls=tls) as (near, far):
        await far.write(b"last words")
        await asyncio.sleep(0.05)

        async def write() -> None:
            while True:
                await near.write(b"x" * MOST_HELD)

        writing = asyncio.create_task(write())
        await asyncio.sleep(0.3)
        assert not writing.done()
        far.close()  # with unread bytes: a reset
        with pytest.raises(OSError):
            await writing
        assert await near.read() == b"last words"
        with pytest.raises(OSError):
            while await near.read():
                pass
        with pytest.raises(OSError):
            await near.finish()
        near.close()
        near.close()


async def test_a_connection_costs_little(tmp_path: Path) -> None:
    """Of what asyncio sets aside for TLS only what is needed: hundreds of streams add up."""
    async with pair(tmp_path, tls=True) as (near, _):
        assert vars(near.transport)["_ssl_protocol"].max_size == TLS_READ_BYTES
        assert len(vars(near.transport)["_ssl_protocol"]._ssl_buffer) == TLS_READ_BYTES
