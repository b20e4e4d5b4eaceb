"""What attackers send to the kubelet API is refused, nothing leaks, and the process stays well."""

from __future__ import annotations

import asyncio
import random

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from federate.errors import Unreachable
from federate.kubelet.answers import Refused
from federate.kubelet.http import Gone, HttpConnection
from federate.kubelet.limits import Admission, Limits
from tests.support.kubeletstage import API_SERVER, Keys, kubelet, switching, until

LOGS = "/containerLogs/shop/web/app"
EXEC = "/exec/shop/web/app?input=1&output=1&command=sh"
SPDY = [("Connection", "Upgrade"), ("Upgrade", "SPDY/3.1")]
HEAD = b"GET /healthz HTTP/1.1\r\nHost: node\r\n"

QUICK = Limits(
    handshake_seconds=0.5,
    header_seconds=0.3,
    first_seconds=0.3,
    idle_seconds=0.5,
    linger_seconds=0.02,
)

BRIEF = Limits(linger_seconds=0.02)
"""Clients here never close after a refusal; a test each would wait for it."""


# -- who is nobody ---------------------------------------------------------------------------------


async def test_a_certificate_of_another_ca_is_nobody(keys: Keys) -> None:
    """The name in it is the API server's own; TLS ends it, or it gets no answer."""
    async with kubelet(keys) as stage:
        with pytest.raises(OSError):
            client = await stage.connect(keys.wrong)
            client.send(HEAD + b"\r\n")
            raise OSError if (await client.hear()).status in (0, 401) else AssertionError
        assert await stage.is_well()


async def test_without_tls_there_is_no_answer(keys: Keys) -> None:
    async with kubelet(keys) as stage:
        for said in (HEAD + b"\r\n", b"\x16\x03\x01\xff\xff" + b"\0" * 100, b"\0" * 1000):
            client = await stage.connect_raw()
            client.send(said)
            assert b"HTTP" not in await client.reader.read()
        assert await stage.is_well()


async def test_a_large_body_of_nobody_is_not_read(keys: Keys) -> None:
    """The answer arrives nevertheless."""
    async with kubelet(keys) as stage:
        client = await stage.connect(anonymous=True)
        client.send(b"POST /pods HTTP/1.1\r\nHost: node\r\nContent-Length: 99999999\r\n\r\n")
        client.send(b"x" * 300_000)
        assert (await client.hear()).status == 401
        assert await client.is_ended()


async def test_tokens_are_never_told(keys: Keys, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither in a log nor in an answer: not of good requests, nor of broken ones."""
    token = "very-secret-token"
    told = b""
    with structlog.testing.capture_logs() as lines:
        async with kubelet(keys, limits=BRIEF) as stage:
            for header in (
                f"Authorization: Bearer {token}",
                f"Authorization : Bearer {token}",
                f"Authorization: Bearer {token}\r\nAuthorization: Bearer {token}",
                f"Authorization: Bearer {token}\0",
                f"{token}",
                f"Authorization: Bearer {token}\r\nContent-Length: {token}",
            ):
                client = await stage.connect()
                client.send(HEAD + header.encode() + b"\r\n\r\n")
                told += (await client.hear()).body
            stage.access.fails = Unreachable("the hub is away")
            client = await stage.connect(anonymous=True)
            told += (await client.ask("/pods", headers=[("Authorization", f"Bearer {token}")])).body
            await stage.access_breaks(token)
    assert token.encode() not in told
    assert token not in repr(lines)
    assert token not in "".join(capsys.readouterr())


# -- headers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("anonymous", [True, False])
@pytest.mark.parametrize(
    "flood",
    [
        b"X: " + b"x" * 2_000_000,
        b"x" * 2_000_000,
        b"X: y\r\n" * 300_000,
        b"X: y\n" * 300_000,
        b"\r\n".join(b"X%d: y" % number for number in range(150)) + b"\r\n\r\n",
    ],
    ids=["long-value", "long-name", "many-lines", "bare-lines", "too-many-lines"],
)
async def test_a_large_header_is_431(keys: Keys, flood: bytes, anonymous: bool) -> None:
    """For those without a certificate sooner; nobody's is held as a whole."""
    async with kubelet(keys, limits=BRIEF) as stage:
        client = await stage.connect(anonymous=anonymous)
        client.send(HEAD + flood)
        heard = await client.hear()
        assert heard.status in (431, 400)
        assert await client.is_ended()
        assert await stage.is_well()


async def test_a_long_command_passes(keys: Keys) -> None:
    """The longest argument that Linux takes."""
    async with kubelet(keys) as stage:
        stage.target.reply = switching()
        target = f"{EXEC}&command={'%20' * 131_071}"
        assert (await stage.ask(target, "POST", headers=SPDY)).status == 101
        assert stage.target.calls[0].query[-1] == ("command", " " * 131_071)


# -- slow clients ----------------------------------------------------------------------------------


async def test_slow_clients_are_cut(keys: Keys) -> None:
    """In the handshake, before the first byte, within a header, within a body, between requests."""
    async with kubelet(keys, limits=QUICK) as stage:
        handshake = await stage.connect_raw()
        handshake.send(b"\x16\x03\x01")
        silent = await stage.connect()
        nobody = await stage.connect(anonymous=True)
        header = await stage.connect()
        body = await stage.connect()
        body.send(HEAD + b"Content-Length: 10\r\n\r\n1")
        idle = await stage.connect()
        assert (await idle.ask("/healthz")).status == 200

        async def drip() -> None:
            for letter in HEAD:
                header.send(bytes([letter]))
                await asyncio.sleep(0.05)

        dripping = asyncio.create_task(drip())
        assert (await header.hear()).status == 408
        assert (await body.hear()).status == 408
        for client in (handshake, silent, nobody, header, body, idle):
            assert await client.is_ended()
        await dripping


async def test_a_crowd_of_strangers_keeps_nobody_out(keys: Keys) -> None:
    """Slow connections share a few places; the API server gets its answers among them."""
    async with kubelet(keys, limits=Limits(strangers=8)) as stage:
        for number in range(60):
            if number % 2:
                client = await stage.connect_raw()
                client.send(b"\x16\x03")
            else:
                client = await stage.connect(anonymous=True)
                client.send(HEAD)
            if number % 10 == 0:
                assert await stage.is_well()
        await until(lambda: stage.server.admission.connections <= 9)
        assert await stage.is_well()


async def test_a_client_that_takes_no_answer_is_cut(keys: Keys) -> None:
    async with kubelet(keys, limits=Limits(write_seconds=0.3)) as stage:
        stage.pages.size = 30_000_000
        client = await stage.connect()
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        client.send(b"GET /pods HTTP/1.1\r\nHost: node\r\n\r\n")
        await until(lambda: stage.server.admission.connections == 1)
        await until(lambda: stage.server.admission.connections == 0)


# -- floods ----------------------------------------------------------------------------------------


async def test_streams_are_bounded_for_each_caller(keys: Keys) -> None:
    """Who has as many as may be is asked to wait, others are served; free places are free."""
    async with kubelet(keys, limits=Limits(streams=3, streams_of_caller=2)) as stage:
        stage.target.reply = switching()
        held = [await stage.connect() for _turn in range(3)]
        assert [(await one.ask(EXEC, "POST", headers=SPDY)).status for one in held[:2]] == [101] * 2
        heard = await held[2].ask(EXEC, "POST", headers=SPDY)
        assert (heard.status, heard.headers["retry-after"]) == (429, "1")
        admin = ("Authorization", "Bearer admin")
        other = await stage.connect(anonymous=True)
        assert (await other.ask(EXEC, "POST", headers=[*SPDY, admin])).status == 101
        another = await stage.connect(anonymous=True)
        assert (await another.ask(EXEC, "POST", headers=[*SPDY, admin])).status == 429
        assert await stage.is_well()
        held[0].close()
        await until(lambda: stage.server.admission.streams == 2)
        assert (await stage.ask(EXEC, "POST", headers=SPDY)).status == 101


async def test_a_flood_of_streams_leaves_nothing(keys: Keys) -> None:
    async with kubelet(keys, limits=Limits(streams=20)) as stage:
        stage.target.reply = switching()
        heard = await asyncio.gather(
            *(stage.ask(EXEC, "POST", headers=SPDY) for _turn in range(100))
        )
        assert {one.status for one in heard} <= {101, 429}
        await until(lambda: stage.server.admission.connections == 0 and stage.target.open == 0)
        assert stage.server.admission.streams == 0
        assert sum(stage.server.streams.values()) == 0


async def test_connections_are_bounded(keys: Keys) -> None:
    """In all, and for a caller that was allowed something."""
    async with kubelet(keys, limits=Limits(connections=4, connections_of_caller=2)) as stage:
        clients = [await stage.connect() for _turn in range(3)]
        heard = [(await one.ask("/healthz")).status for one in clients]
        assert heard == [200, 200, 429]
        admin = [("Authorization", "Bearer admin")]
        other = await stage.connect(anonymous=True)
        assert (await other.ask("/healthz", headers=admin)).status == 200
        with pytest.raises(OSError):
            await stage.connect()
        clients[0].close()
        await until(lambda: stage.server.admission.connections < 4)
        assert (await clients[2].ask("/healthz")).status == 200


async def test_what_is_sent_ahead_is_bounded(keys: Keys) -> None:
    """Behind a request that is being answered."""
    async with kubelet(keys) as stage:
        stage.target.waits = asyncio.Event()
        client = await stage.connect()
        client.send(f"GET {LOGS} HTTP/1.1\r\nHost: node\r\n\r\n".encode())
        client.send(b"x" * 1_000_000)
        assert await client.is_ended()
        await until(lambda: stage.target.open == 0)


async def test_a_body_is_bounded(keys: Keys) -> None:
    """Whether its length is told, or comes in chunks."""
    async with kubelet(keys, limits=BRIEF) as stage:
        told = await stage.connect()
        told.send(HEAD + b"Content-Length: 70000\r\n\r\n" + b"x" * 70_000)
        assert (await told.hear()).status == 413
        chunked = await stage.connect()
        chunked.send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        chunked.send((b"2710\r\n" + b"x" * 10_000 + b"\r\n") * 100)
        assert (await chunked.hear()).status == 413
        expected = await stage.connect()
        expected.send(HEAD + b"Content-Length: 70000\r\nExpect: 100-continue\r\n\r\n")
        assert b"413" in await expected.reader.readline()
        for client in (told, chunked):
            assert await client.is_ended()


# -- smuggling -------------------------------------------------------------------------------------

HIDDEN = b"GET /containerLogs/shop/web/app HTTP/1.1\r\nHost: node\r\n\r\n"


@pytest.mark.parametrize(
    "request_",
    [
        HEAD + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n0\r\n\r\n",
        HEAD + b"Content-Length: 5\r\nContent-Length: 0\r\n\r\n",
        HEAD + b"Content-Length: 0, 5\r\n\r\n",
        HEAD + b"Content-Length: +5\r\n\r\n",
        HEAD + b"Content-Length: 0x5\r\n\r\n",
        HEAD + b"Content-Length: -1\r\n\r\n",
        HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        HEAD + b"Transfer-Encoding: identity\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        HEAD + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        HEAD + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhelloXX0\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffffffffff\r\n",
        b"GET /healthz HTTP/1.0\r\nHost: node\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n\r\n",
        HEAD + b"Host: other\r\n\r\n",
        b"GET http://node/healthz HTTP/1.1\r\nHost: node\r\n\r\n",
        b"CONNECT 10.0.0.1:443 HTTP/1.1\r\nHost: node\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nHost: node\r\n\r\n",
        b"GET /healthz#x HTTP/1.1\r\nHost: node\r\n\r\n",
        b"GET /healthz HTTP/2.0\r\nHost: node\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET  /healthz HTTP/1.1\r\nHost: node\r\n\r\n",
        b"GET /health z HTTP/1.1\r\nHost: node\r\n\r\n",
        b"GET /healthz\r\n\r\n",
        b" GET /healthz HTTP/1.1\r\nHost: node\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n Host: node\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: node\r\nX: a\0b\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: node\r\nX: a\rb\r\n\r\n",
        HEAD + b"Expect: the-worst\r\n\r\n",
        HEAD + b"Authorization: Bearer a\r\nAuthorization: Bearer b\r\n\r\n",
        b"\xff\xfe\x00\x01" * 10 + b"\r\n\r\n",
    ],
)
async def test_what_two_might_read_in_two_ways_ends_the_connection(
    keys: Keys, request_: bytes
) -> None:
    """A request hidden behind it is never answered, though the connection was good."""
    async with kubelet(keys, limits=BRIEF) as stage:
        client = await stage.connect()
        assert (await client.ask("/healthz")).status == 200
        client.send(request_ + HIDDEN)
        heard = await client.hear()
        assert heard.status in (400, 417, 501), heard
        assert await client.is_ended()
        assert not stage.target.calls


async def test_a_body_is_no_request(keys: Keys) -> None:
    """Not with GET either, where a body means nothing."""
    async with kubelet(keys) as stage:
        client = await stage.connect()
        client.send(HEAD + b"Content-Length: %d\r\n\r\n" % len(HIDDEN) + HIDDEN)
        assert (await client.hear()).status == 200
        assert (await client.ask("/pods")).text == "/pods"
        assert not stage.target.calls


@pytest.mark.parametrize("target", [EXEC, "/exec/shop/other/app?output=1&command=ls", "/pods"])
async def test_what_follows_an_upgrade_that_was_refused_is_not_read(
    keys: Keys, target: str
) -> None:
    """A client may have meant it for the container; it would be a request with others' rights."""
    async with kubelet(keys) as stage:
        stage.target.fails = Unreachable("away")
        client = await stage.connect()
        client.send(f"POST {target} HTTP/1.1\r\nHost: node\r\n".encode())
        client.send(b"Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n" + HIDDEN)
        heard = await client.hear("POST")
        assert heard.status >= 400
        assert heard.headers["connection"] == "close"
        assert await client.is_ended()
        assert not [call for call in stage.target.calls if call.path.endswith("/log")]


async def test_what_follows_an_upgrade_is_the_containers(keys: Keys) -> None:
    """HTTP within a stream stays within it, also when it ends."""
    async with kubelet(keys) as stage:
        stage.target.reply = switching()
        client = await stage.connect()
        await client.ask(EXEC, "POST", headers=SPDY)
        client.send(HIDDEN)
        assert await client.after_switch(len(HIDDEN)) == HIDDEN
        assert len(stage.target.calls) == 1
        stage.target.stream.close()
        assert await client.is_ended()


async def test_requests_in_one_breath_are_answered_in_order(keys: Keys) -> None:
    """And each is judged for itself."""
    async with kubelet(keys) as stage:
        client = await stage.connect(anonymous=True)
        lines = b"Host: node\r\nAuthorization: Bearer metrics\r\n\r\n"
        client.send(b"GET /metrics HTTP/1.1\r\n" + lines + b"GET /pods HTTP/1.1\r\n" + lines)
        first = await client.reader.readuntil(b"/metrics")
        assert first.startswith(b"HTTP/1.1 200")
        assert (await client.reader.readline()).startswith(b"HTTP/1.1 403")


async def test_a_token_of_one_request_is_not_the_nexts(keys: Keys) -> None:
    async with kubelet(keys) as stage:
        client = await stage.connect(anonymous=True)
        admin = [("Authorization", "Bearer admin")]
        assert (await client.ask("/pods", headers=admin)).status == 200
        assert (await client.ask("/pods")).status == 401


# -- nonsense --------------------------------------------------------------------------------------


async def test_random_bytes_do_no_harm(keys: Keys) -> None:
    """Whole nonsense, good requests with bytes changed, and clients that go in the middle."""
    chance = random.Random(7)
    good = f"GET {LOGS}?tailLines=1 HTTP/1.1\r\nHost: node\r\nContent-Length: 0\r\n\r\n".encode()
    async with kubelet(keys, limits=QUICK) as stage:
        for turn in range(30):
            said = bytearray(good * 2)
            for _change in range(chance.randint(1, 8)):
                said[chance.randrange(len(said))] = chance.randrange(256)
            client = await stage.connect(anonymous=turn % 3 == 0)
            client.send(bytes(said) if turn % 2 else chance.randbytes(200))
            if turn % 5:
                await client.hear()
            client.close()
        assert await stage.is_well()
        await until(lambda: stage.server.admission.connections == 0)


class Told:
    """A channel that gives what a client said, and forgets what it is told."""

    def __init__(self, pieces: list[bytes]) -> None:
        self.pieces = pieces

    async def read(self, limit: int = 65536) -> bytes:
        return self.pieces.pop(0) if self.pieces else b""

    async def write(self, data: bytes) -> None:
        """Forget it."""


@given(
    st.lists(
        st.one_of(
            st.binary(min_size=1, max_size=50),
            st.sampled_from([b"GET / HTTP/1.1\r\n", b"Host: a\r\n", b"\r\n", b"0\r\n\r\n", b"\n"]),
            st.sampled_from([b"Content-Length: 3\r\n", b"Transfer-Encoding: chunked\r\n"]),
        ),
        max_size=12,
    )
)
def test_any_bytes_are_a_request_or_refused(pieces: list[bytes]) -> None:
    """Nothing else is raised, whatever comes in whichever pieces."""

    async def read() -> None:
        channel = Told(pieces)
        connection = HttpConnection(channel, Limits(stranger_header_bytes=4096), is_known=False)  # type: ignore[arg-type]
        try:
            while (request := await connection.next_request()) is not None:
                assert request.target.startswith("/")
                await connection.read_body()
                await connection.begin(200, [("Content-Length", "0")])
                await connection.end()
        except (Refused, Gone):
            pass

    asyncio.run(read())


async def test_a_fault_of_ours_is_500_without_words(keys: Keys) -> None:
    async with kubelet(keys) as stage:
        with structlog.testing.capture_logs():
            heard = await stage.access_breaks("secret")
        assert (heard.status, heard.text) == (500, "internal error")
        assert await stage.is_well()


# -- who is in -------------------------------------------------------------------------------------


def test_a_crowd_does_not_push_out_who_has_a_certificate() -> None:
    """It has places of its own while the hub is asked what it may."""
    admission = Admission(Limits(strangers=1))
    gone: list[str] = []
    with (
        admission.connection("api server", lambda: gone.append("api server")),
        admission.connection("other", lambda: gone.append("other")),
    ):
        assert gone == ["api server"]
        admission.recognise("api server")
        admission.recognise("other")
        with admission.connection("crowd", lambda: gone.append("crowd")):
            assert (gone, admission.strangers) == (["api server"], 2)
            admission.recognise("crowd")
            assert gone == ["api server", "other"]
    assert admission.strangers == 0


def test_places_are_given_back() -> None:
    """Whatever happens inside."""
    admission = Admission(Limits(strangers=1, streams=2, streams_of_caller=1))
    gone: list[str] = []
    with (
        admission.connection("a", lambda: gone.append("a")),
        admission.connection("b", lambda: gone.append("b")),
    ):
        assert (gone, admission.strangers, admission.connections) == (["a"], 1, 2)
        admission.prove("b", API_SERVER)
        admission.prove("b", "another")
        with (
            pytest.raises(RuntimeError),
            admission.stream(API_SERVER, "one"),
            admission.stream("other", "two"),
        ):
            assert admission.streams == 2
            with pytest.raises(Refused), admission.stream("third", "three"):
                pass
            raise RuntimeError
        assert admission.streams == 0
    assert (admission.connections, admission.strangers) == (0, 0)
