"""One HTTP exchange on a connection of its own, as values and bytes. Pure.

`streaming` sends what `request` builds and reads what comes with `Head` and a `Frame`. h11 builds
and judges the heads. The bodies are taken apart here: API servers send a log in chunks of a line or
two, and h11 takes ten times as long for each.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import quote, urlencode, urlsplit

import h11

from federate.cluster.sessions import Access
from federate.cluster.upstream import UpstreamCall

MOST_HEAD = 65_536
"""Bytes of a reply's head."""

MOST_CHUNK_LINE = 4096
"""Bytes of the line before a chunk, and of all trailers."""

MOST_INFORMATIONAL = 8
"""Informational replies before the one that counts."""

_TRAVELLING = frozenset(
    {
        "accept",
        "content-type",
        "sec-websocket-extensions",
        "sec-websocket-key",
        "sec-websocket-protocol",
        "sec-websocket-version",
        "upgrade",
        "x-stream-protocol-version",
    }
)
"""The only headers of a client that go on to a target, whoever built the call."""

_BEARER_PROTOCOL = "base64url.bearer.authorization.k8s.io."

_PATH = re.compile(r"/[!$&-.0-9:;=@A-Z_a-z~/]*")
"""No percent sign: the names of objects need none, and what it hides is decoded further on."""

_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?\r\n")


class Malformed(Exception):
    """What came is no HTTP, or what is to go is none."""


class Frame(Protocol):
    """Takes a body out of the bytes that carry it."""

    def feed(self, data: bytes) -> bytes:
        """Return what of the body these bytes hold.

        Raises:
            Malformed: they are no such body.
        """

    @property
    def is_whole(self) -> bool:
        """Tell whether the body has ended."""

    @property
    def may_end(self) -> bool:
        """Tell whether the connection may end now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The head of a reply."""

    status: int
    headers: Sequence[tuple[str, str]]
    frame: Frame


class Exchange:
    """Builds the request of a call, and reads the head of its reply."""

    def __init__(self, call: UpstreamCall, access: Access) -> None:
        self._connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=MOST_HEAD)
        self._method = call.method
        self._pending = b""
        self._informational = 0
        self.request = self._build(call, access)

    def feed(self, data: bytes) -> tuple[Head, bytes] | None:
        """Take bytes of the reply; returns its head, and what came after it.

        Raises:
            Malformed: it is none.
        """
        self._pending += data
        while (end := _end_of_head(self._pending)) >= 0:
            head, self._pending = self._pending[:end], self._pending[end:]
            event = self._read(head)
            if isinstance(event, h11.Response) or event.status_code == 101:
                return self._head_of(event), self._pending
            self._informational += 1
            if self._informational > MOST_INFORMATIONAL:
                raise Malformed("it sends informational replies without end")
        if len(self._pending) > MOST_HEAD:
            raise Malformed("the head of the reply is too long")
        return None

    def _build(self, call: UpstreamCall, access: Access) -> bytes:
        base = urlsplit(access.server)
        target = base.path.rstrip("/") + _checked(call.path)
        if call.query:
            target += "?" + urlencode(call.query, quote_via=quote)
        headers = [("Host", base.netloc.rpartition("@")[2]), ("User-Agent", "federate")]
        headers += (pair for pair in access.headers if pair[0].lower() != "proxy-authorization")
        travelling = list(_travelling(call.headers))
        headers += travelling
        is_upgrade = any(name.lower() == "upgrade" for name, _ in travelling)
        headers.append(("Connection", "Upgrade" if is_upgrade else "close"))
        if call.body or call.method != "GET":
            headers.append(("Content-Length", str(len(call.body))))
        try:
            request = h11.Request(method=call.method, target=target, headers=headers)
            sent = self._connection.send(request) or b""
            if call.body:
                sent += self._connection.send(h11.Data(data=call.body)) or b""
            return sent + (self._connection.send(h11.EndOfMessage()) or b"")
        except (h11.LocalProtocolError, UnicodeError):
            # Not its words: they may quote a header, and so a token.
            raise Malformed("the request is no HTTP") from None

    def _read(self, head: bytes) -> h11.Response | h11.InformationalResponse:
        try:
            self._connection.receive_data(head)
            event = self._connection.next_event()
        except h11.RemoteProtocolError as error:
            raise Malformed(f"the reply is no HTTP: {error}") from None
        if not isinstance(event, h11.Response | h11.InformationalResponse):
            raise Malformed("the reply is no HTTP")
        return event

    def _head_of(self, event: h11.Response | h11.InformationalResponse) -> Head:
        headers = [(k.decode("latin-1"), v.decode("latin-1")) for k, v in event.headers]
        frame = _frame_of(self._method, event.status_code, headers)
        return Head(status=event.status_code, headers=headers, frame=frame)


def _travelling(headers: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield what may go on. WebSocket clients may hide a token among the protocols they speak."""
    for name, value in headers:
        if name.lower() == "sec-websocket-protocol":
            words = [word.strip() for word in value.split(",")]
            value = ", ".join(word for word in words if not word.startswith(_BEARER_PROTOCOL))
        if name.lower() in _TRAVELLING and value:
            yield name, value


def _checked(path: str) -> str:
    """Return the path; a second fence, whoever built it."""
    *between, last = path.split("/")[1:] or [""]
    is_odd = last in (".", "..") or any(segment in ("", ".", "..") for segment in between)
    if is_odd or not _PATH.fullmatch(path):
        raise Malformed("the path of the request cannot be used")
    return path


def _end_of_head(data: bytes) -> int:
    found = data.find(b"\r\n\r\n")
    return found + 4 if found >= 0 else -1


def _frame_of(method: str, status: int, headers: Iterable[tuple[str, str]]) -> Frame:
    """Choose as RFC 9112 6.3 has it; h11 has refused lengths that contradict each other."""
    by_name = {name.lower(): value for name, value in headers}
    if method == "HEAD" or status in (204, 304) or status < 200:
        return Counted(0)
    if (coding := by_name.get("transfer-encoding")) is not None:
        if coding.strip().lower() != "chunked":
            raise Malformed("the reply comes in an encoding that was not asked for")
        return Chunked()
    if (length := by_name.get("content-length")) is not None:
        return Counted(int(length))
    return UntilTheEnd()


class Counted:
    """A body of a known length."""

    def __init__(self, length: int) -> None:
        self._left = length

    def feed(self, data: bytes) -> bytes:
        """Return the body's part of `data`."""
        part = data[: self._left]
        self._left -= len(part)
        return part

    @property
    def is_whole(self) -> bool:
        """Tell whether all of it came."""
        return not self._left

    @property
    def may_end(self) -> bool:
        """Tell the same."""
        return not self._left


class UntilTheEnd:
    """A body that ends with its connection, as of HTTP/1.0."""

    is_whole = False
    may_end = True

    def feed(self, data: bytes) -> bytes:
        """Return all."""
        return data


class Chunked:
    """A body in chunks; those that came together are returned together."""

    def __init__(self) -> None:
        self._pending = b""
        self._left = 0
        """Bytes of the current chunk that are still to come."""
        self._in_chunk = False
        self._in_trailers = False
        self._trailers = 0
        self.is_whole = False

    @property
    def may_end(self) -> bool:
        """Tell whether the last chunk and its trailers came."""
        return self.is_whole

    def feed(self, data: bytes) -> bytes:
        """Return the body's part of `data`.

        Raises:
            Malformed: these are no chunks.
        """
        data, self._pending = self._pending + data if self._pending else data, b""
        parts: list[bytes] = []
        at = 0 if self._in_chunk or self._in_trailers else _whole_chunks(data, parts)
        while at < len(data) and not self.is_whole:
            step = self._chunk(data, at, parts) if self._in_chunk else self._line(data, at)
            if step == at:
                self._pending = data[at:]
                break
            at = step
        return b"".join(parts)

    def _chunk(self, data: bytes, at: int, parts: list[bytes]) -> int:
        """Take what is there of the chunk, then the line end after it; returns where to go on."""
        if self._left:
            part = data[at : at + self._left]
            parts.append(part)
            self._left -= len(part)
            return at + len(part)
        end = data[at : at + 2]
        if end == b"\r\n":
            self._in_chunk = False
            return at + 2
        if end != b"\r":
            raise Malformed("a chunk of the reply is longer than it says")
        return at

    def _line(self, data: bytes, at: int) -> int:
        """Take the line before a chunk, or a trailer; returns where to go on."""
        end = data.find(b"\r\n", at, at + MOST_CHUNK_LINE + 2)
        if end < 0:
            if len(data) - at > MOST_CHUNK_LINE:
                raise Malformed("a chunk of the reply has no size")
            return at
        if self._in_trailers:
            self._trailers += end - at
            if self._trailers > MOST_CHUNK_LINE:
                raise Malformed("the reply has trailers without end")
            self.is_whole = end == at
            return end + 2
        match = _SIZE.match(data, at)
        if match is None:
            raise Malformed("a chunk of the reply has no size")
        self._left = int(match[1], 16)
        self._in_chunk, self._in_trailers = self._left > 0, self._left == 0
        return end + 2


def _whole_chunks(data: bytes, parts: list[bytes]) -> int:
    """Take the chunks at the start of `data` that are there as a whole, the common case, at a
    third of the cost; returns where to go on with care.
    """
    at = 0
    while match := _SIZE.match(data, at):
        start = match.end()
        end = start + int(match[1], 16)
        if end == start or data[end : end + 2] != b"\r\n":
            break
        parts.append(data[start:end])
        at = end + 2
    return at
