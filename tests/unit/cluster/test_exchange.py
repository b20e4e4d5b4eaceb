"""Requests for streams and their replies as bytes: what travels, and what is no HTTP."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federate.cluster.exchange import Chunked, Counted, Exchange, Head, Malformed, UntilTheEnd
from federate.cluster.proxies import Proxy
from federate.cluster.sessions import Access
from federate.cluster.upstream import UpstreamCall

LOG = "/api/v1/namespaces/ns/pods/a/log"


def access(server: str = "https://east:6443", *headers: tuple[str, str]) -> Access:
    return Access(server=server, headers=headers)


def sent(call: UpstreamCall, by: Access | None = None) -> tuple[str, list[tuple[str, str]], str]:
    """Return the request line, the headers with names in lower case, and the body."""
    head, _, body = Exchange(call, by or access()).request.decode().partition("\r\n\r\n")
    line, *rest = head.split("\r\n")
    pairs = [entry.partition(": ") for entry in rest]
    return line, [(name.lower(), value) for name, _, value in pairs], body


def get(**more: object) -> Exchange:
    return Exchange(UpstreamCall(method="GET", path=LOG, **more), access())  # type: ignore[arg-type]


UPGRADE = {"headers": (("Upgrade", "SPDY/3.1"),)}


def whole(exchange: Exchange, reply: bytes) -> tuple[Head, bytes]:
    found = exchange.feed(reply)
    assert found is not None
    return found


def test_a_plain_request() -> None:
    """Query in order and escaped, our credentials, and a connection that nobody uses again."""
    query = [("container", "a b&c"), ("command", "sh"), ("command", "-c")]
    line, headers, body = sent(
        UpstreamCall(method="GET", path=LOG, query=query),
        access("https://east:6443/k8s/clusters/c-1/", ("Authorization", "Bearer t")),
    )
    path = f"/k8s/clusters/c-1{LOG}?container=a%20b%26c&command=sh&command=-c"
    assert line == f"GET {path} HTTP/1.1"
    assert headers == [
        ("host", "east:6443"),
        ("user-agent", "federate"),
        ("authorization", "Bearer t"),
        ("connection", "close"),
    ]
    assert body == ""


def test_an_upgrade() -> None:
    """It says what the client speaks; repeated headers stay apart, groups of ours too."""
    by = access("https://e", ("Impersonate-Group", "a"), ("Impersonate-Group", "b"))
    travelling = [
        ("Upgrade", "SPDY/3.1"),
        ("X-Stream-Protocol-Version", "v4.channel.k8s.io"),
        ("X-Stream-Protocol-Version", "v3.channel.k8s.io"),
    ]
    _, headers, _ = sent(UpstreamCall(method="POST", path=LOG, headers=travelling), by)
    assert [value for name, value in headers if name == "impersonate-group"] == ["a", "b"]
    assert ("connection", "Upgrade") in headers and ("content-length", "0") in headers
    versions = [value for name, value in headers if name == "x-stream-protocol-version"]
    assert versions == ["v4.channel.k8s.io", "v3.channel.k8s.io"]


def test_c60_only_what_may_travel_does() -> None:
    """Whoever built the call: the client is nobody in the target, and frames nothing there."""
    evil = [
        ("Authorization", "Bearer theirs"),
        ("Impersonate-User", "admin"),
        ("Proxy-Authorization", "Basic x"),
        ("Cookie", "c"),
        ("Host", "elsewhere"),
        ("Transfer-Encoding", "chunked"),
        ("Content-Length", "7"),
        ("Connection", "close, X-Remote-User"),
        ("X-Remote-User", "admin"),
        ("X-Forwarded-For", "1.2.3.4"),
        ("Accept", "text/plain"),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Protocol", "v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.dG9r"),
    ]
    ours = access("https://e", ("Authorization", "Bearer ours"))
    call = UpstreamCall(method="POST", path=LOG, headers=evil, body=b"{}")
    line, headers, body = sent(call, ours)
    assert headers == [
        ("host", "e"),
        ("user-agent", "federate"),
        ("authorization", "Bearer ours"),
        ("accept", "text/plain"),
        ("upgrade", "websocket"),
        ("sec-websocket-protocol", "v5.channel.k8s.io"),
        ("connection", "Upgrade"),
        ("content-length", "2"),
    ]
    assert (line, body) == (f"POST {LOG} HTTP/1.1", "{}")


def test_what_is_for_the_proxy_stays_out() -> None:
    """A tunnel leads to the server, which must not learn who we are at the proxy."""
    headers = (("Authorization", "Bearer t"), ("Proxy-Authorization", "Basic x"))
    by = Access(server="http://e", proxy=Proxy(url="http://p"), headers=headers)
    _, found, _ = sent(UpstreamCall(method="GET", path=LOG), by)
    assert "proxy-authorization" not in dict(found)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "api",
        "/api/../secrets",
        "/api/..",
        "/api/.",
        "/api/./x",
        "/api//x",
        "//evil/x",
        "/api/%2e%2e/x",
        "/api/a%2fb",
        "/api?x=y",
        "/api#x",
        "/api x",
        "/api\r\nX: y",
        "/api\0",
        "/ä",
        "http://elsewhere/api",
    ],
)
def test_odd_paths_are_not_sent(path: str) -> None:
    """The last fence: what a server further on might read as another path."""
    with pytest.raises(Malformed, match="the path of the request cannot be used"):
        Exchange(UpstreamCall(method="GET", path=path), access())


@pytest.mark.parametrize(
    ("method", "headers"),
    [
        ("GET", (("Accept", "x\r\nImpersonate-User: admin"),)),
        ("GET", (("Upgrade", "x\0"),)),
        ("GET", (("Accept", "ä"),)),
        ("GET / HTTP/1.1\r\nX: y\r\n\r\nGET", ()),
        ("G T", ()),
    ],
)
def test_nothing_is_smuggled_into_a_request(
    method: str, headers: tuple[tuple[str, str], ...]
) -> None:
    """The verdict does not repeat what was wrong: it may be a token."""
    call = UpstreamCall(method=method, path=LOG, headers=headers)
    with pytest.raises(Malformed, match=r"^the request is no HTTP$"):
        Exchange(call, access())


def test_the_head_and_what_came_with_it() -> None:
    """Bytes behind a 101 belong to what is spoken from then on; informational replies do not."""
    exchange = get(**UPGRADE)
    reply = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 101 S\r\nUpgrade: SPDY/3.1\r\n\r\n\x80\x03"
    for at in range(len(reply) - 3):
        assert exchange.feed(reply[at : at + 1]) is None
    head, rest = whole(exchange, reply[-3:])
    assert (head.status, dict(head.headers), rest) == (101, {"upgrade": "SPDY/3.1"}, b"\x80\x03")


@pytest.mark.parametrize(
    ("head", "frame"),
    [
        (b"200 OK\r\nTransfer-Encoding: chunked", Chunked),
        (b"200 OK\r\nTransfer-Encoding: CHUNKED\r\nContent-Length: 5", Chunked),
        (b"200 OK\r\nContent-Length: 5", Counted),
        (b"500 X\r\nContent-Length: 5, 5", Counted),
        (b"200 OK", UntilTheEnd),
        (b"204 X\r\nContent-Length: 5", Counted),
        (b"304 X", Counted),
    ],
)
def test_how_a_body_ends(head: bytes, frame: type) -> None:
    """As RFC 9112 has it, for a reply without an upgrade too where one was asked for."""
    for exchange in (get(), get(**UPGRADE)):
        found, _ = whole(exchange, b"HTTP/1.1 " + head + b"\r\n\r\n")
        assert type(found.frame) is frame
        assert found.frame.is_whole == (found.status in (204, 304))


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (b"SSH-2.0-OpenSSH\r\n\r\n", "no HTTP"),
        (b"HTTP/2 200 OK\r\n\r\n", "no HTTP"),
        (b"HTTP/1.1 abc\r\n\r\n", "no HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", "no HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "no HTTP"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", "no HTTP"),
        (b"HTTP/1.1 200 OK\r\nbad header\r\n\r\n", "no HTTP"),
        (b"HTTP/1.1 101 X\r\nUpgrade: SPDY/3.1\r\n\r\n", "no HTTP"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000, "too long"),
        (b"HTTP/1.1 100 X\r\n\r\n" * 9, "without end"),
        (b"\0" * 70_000, "too long"),
    ],
    ids=lambda value: repr(value[:60]),
)
def test_replies_that_are_none(reply: bytes, words: str) -> None:
    """Nothing is guessed, and nothing is kept without bound. No 101 that nobody asked for."""
    with pytest.raises(Malformed, match=words):
        get().feed(reply)


@given(
    st.lists(st.binary(min_size=1, max_size=50)),
    st.lists(st.integers(min_value=1, max_value=9), min_size=1),
    st.sampled_from([b"", b";ext=1", b" "]),
    st.sampled_from([b"", b"Trailer: x\r\n"]),
)
def test_chunks_come_out_as_they_went_in(
    chunks: list[bytes], cuts: list[int], extension: bytes, trailer: bytes
) -> None:
    """However the network cuts them; what follows the body is no part of it."""
    wire = b"".join(b"%X%s\r\n%s\r\n" % (len(c), extension, c) for c in chunks)
    wire += b"000\r\n" + trailer + b"\r\n"
    for data in (wire, wire + b"HTTP/1.1 200 OK\r\n"):
        frame, out, at, turn = Chunked(), b"", 0, 0
        while at < len(data):
            assert frame.is_whole == (at >= len(wire))
            step = cuts[turn % len(cuts)]
            out += frame.feed(data[at : at + step])
            at, turn = at + step, turn + 1
        assert out == b"".join(chunks)
        assert frame.is_whole and frame.may_end
    together = Chunked()
    assert together.feed(wire) == b"".join(chunks) and together.is_whole


@pytest.mark.parametrize(
    "data",
    [
        b"g\r\n",
        b"-1\r\n",
        b"+5\r\nhello\r\n",
        b"0x5\r\nhello\r\n",
        b"5_0\r\n",
        b"\r\n",
        b" 5\r\nhello\r\n",
        b"5\r\nhello!\r\n",
        b"5\r\nhello\n",
        b"5\r\nhello\rX",
        b"5\nhello\n",
        b"F" * 16 + b"\r\n",
        b"1" * 5000,
        b"5;" + b"x" * 5000,
        b"0\r\n" + b"X: y\r\n" * 2000,
        b"0\r\nX" + b"y" * 5000,
    ],
    ids=lambda data: repr(data[:12]),
)
def test_chunks_that_are_none(data: bytes) -> None:
    """Refused, at once or byte by byte; "5\\n" waits for an end of line that never comes."""
    if data == b"5\nhello\n":
        data += b"x" * 5000
    with pytest.raises(Malformed):
        Chunked().feed(data)
    frame = Chunked()
    with pytest.raises(Malformed):
        for at in range(len(data)):
            frame.feed(data[at : at + 1])


@given(st.binary(max_size=200))
def test_no_bytes_make_it_fail_otherwise(data: bytes) -> None:
    """Whatever comes is a reply, a part of one, or `Malformed`."""
    for feed in (get().feed, Chunked().feed, Counted(7).feed, UntilTheEnd().feed):
        with suppress(Malformed):
            feed(data)
    with suppress(Malformed):
        get().feed(b"HTTP/1.1 200 OK\r\n" + data + b"\r\n\r\n")


def test_a_counted_body() -> None:
    """It takes its own bytes and no others."""
    frame = Counted(5)
    assert (frame.feed(b"abc"), frame.may_end) == (b"abc", False)
    assert (frame.feed(b"defg"), frame.is_whole, frame.may_end) == (b"de", True, True)
    assert UntilTheEnd().may_end
