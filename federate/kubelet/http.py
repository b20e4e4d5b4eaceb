"""HTTP/1.1 on one accepted connection, read strictly and written in bounded pieces.

`h11` knows the grammar, a `Channel` carries the bytes with back-pressure, `server` decides.
Whatever two readers might understand in two ways ends the connection, and so does everything after
which the next request could begin at a doubtful place: a body that was not read, an upgrade that
was refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import h11

from federate.cluster.tunnel import Channel
from federate.kubelet.answers import REASONS, Answer, Refused, text
from federate.kubelet.limits import Limits

READ_BYTES = 16_384
"""At once, of a header: no more than this is read beyond a limit."""

PIECE_BYTES = 65_536
"""Of an answer that is whole: encrypted at once, and others wait for it."""

MOST_READS = 1024
"""Pieces of a header: one in packets of the smallest usual size has half as many. All that came is
looked through with each, so one that comes byte by byte would cost seconds."""

LINGER_BYTES = 1024 * 1024
"""What is taken of a client after its refusal: more of it is not worth a good answer."""

_SWITCHES = frozenset({"spdy/3.1", "websocket"})

_PROTOCOL_BEARER = "base64url.bearer.authorization.k8s.io."
"""A browser's way to send a token: as a WebSocket protocol. It must never reach the target."""

_TRAVELS_UP = ("upgrade", "x-stream-protocol-version")
_TRAVELS_DOWN = frozenset(
    {
        "upgrade",
        "x-stream-protocol-version",
        "x-accepted-stream-protocol-versions",
        "sec-websocket-accept",
        "sec-websocket-protocol",
        "sec-websocket-extensions",
    }
)


Event = h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]


class Gone(Exception):
    """The client ended the connection, or sent what it may not: nobody waits for an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """A request's head. Names of headers are in lower case."""

    method: str
    target: str
    version: str
    headers: Sequence[tuple[str, str]]

    def values(self, name: str) -> list[str]:
        """Return what all lines of that name say."""
        return [value for known, value in self.headers if known == name]

    @property
    def switch(self) -> str:
        """The protocol that an upgrade is wanted to, in lower case; "" where none is."""
        tokens = ",".join(self.values("connection")).lower().split(",")
        if "upgrade" not in (token.strip() for token in tokens):
            return ""
        return ",".join(self.values("upgrade")).strip().lower()

    @property
    def is_known_switch(self) -> bool:
        """Tell whether it is one that clients of kubelets speak."""
        return self.version == "1.1" and self.switch in _SWITCHES


def travelling(request: HttpRequest) -> tuple[tuple[str, str], ...]:
    """Choose the headers of an upgrade that may reach the target: no credentials among them."""
    chosen = []
    for name, value in request.headers:
        if name == "sec-websocket-protocol":
            kept = [word for word in _words(value) if not word.lower().startswith(_PROTOCOL_BEARER)]
            if kept:
                chosen.append((name, ", ".join(kept)))
        elif name in _TRAVELS_UP or name.startswith("sec-websocket-"):
            chosen.append((name, value))
    return tuple(chosen)


def protocol_bearers(request: HttpRequest) -> list[str]:
    """Return the tokens that stand among the WebSocket protocols, still encoded."""
    words = _words(",".join(request.values("sec-websocket-protocol")))
    return [word[len(_PROTOCOL_BEARER) :] for word in words if word.startswith(_PROTOCOL_BEARER)]


def _raw(headers: Iterable[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    """Write headers as they were read: what a target sends need not be ASCII."""
    return [(name.encode("ascii"), value.encode("latin-1")) for name, value in headers]


def _words(value: str) -> list[str]:
    return [word for part in value.split(",") if (word := part.strip())]


async def _at_once() -> None:
    """Wait for nobody."""


class HttpConnection:
    """One request after the other, until one of them makes an end.

    The order is: `next_request`, then perhaps `read_body`, then `answer` or `begin`, `send` and
    `end`, or `switch`.
    """

    def __init__(
        self,
        channel: Channel,
        limits: Limits,
        *,
        is_known: bool,
        turn: Callable[[], Awaitable[None]] = _at_once,
    ) -> None:
        """`is_known`: TLS verified a certificate of the hub's client CA.

        `turn` is waited for when a request has begun.
        """
        self._channel = channel
        self._turn = turn
        self._limits = limits
        # An API server may open a connection that it needs later only.
        self._first_seconds = limits.idle_seconds if is_known else limits.first_seconds
        most = limits.header_bytes if is_known else limits.stranger_header_bytes
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=most)
        self._is_first = True
        self._has_begun = False
        self._method = ""
        self._length = 0

    @property
    def has_begun(self) -> bool:
        """Tell whether a reply is under way: no other can be sent."""
        return self._has_begun

    @property
    def ahead(self) -> int:
        """Count the bytes that a client sent ahead."""
        return len(self._http.trailing_data[0])

    async def next_request(self) -> HttpRequest | None:
        """Wait for a request; None where the client wants nothing more.

        Raises:
            Refused: it is malformed, too large or too slow; `answer` and close.
        """
        if not self._is_first and not self._start_next():
            return None
        limits = self._limits
        wait = self._first_seconds if self._is_first else limits.idle_seconds
        if not await self._first_byte(wait):
            return None
        self._is_first = False
        await self._turn()
        try:
            async with asyncio.timeout(limits.header_seconds):
                event = await self._head()
        except TimeoutError:
            raise Refused(text(408, "the request's header took too long")) from None
        if not isinstance(event, h11.Request):
            return None
        request = _checked(event)
        self._method = request.method
        self._length = max((int(length) for length in request.values("content-length")), default=0)
        if not self._length and not request.values("transfer-encoding"):
            self._event_at_hand()  # the end of the message
        return request

    async def read_body(self) -> None:
        """Throw the body away, so that the next request can begin.

        Raises:
            Refused: it is too long or too slow.
        """
        most = self._limits.body_bytes
        if not self._is_unread():
            return
        if self._length > most:
            raise Refused(text(413, f"a body may have {most} bytes"))
        if self._http.they_are_waiting_for_100_continue:
            await self._write(h11.InformationalResponse(status_code=100, headers=[]))
        size = 0
        try:
            async with asyncio.timeout(self._limits.header_seconds):
                while self._http.their_state is h11.SEND_BODY:
                    event = await self._next_event()
                    size += len(event.data) if isinstance(event, h11.Data) else 0
                    if size > most:
                        raise Refused(text(413, f"a body may have {most} bytes"))
        except TimeoutError:
            raise Refused(text(408, "the request's body took too long")) from None

    async def answer(self, answer: Answer, *, last: bool = False) -> None:
        """Send a whole reply; `last` announces the end of the connection."""
        body = answer.body
        headers = [("Content-Type", answer.content_type), ("Content-Length", str(len(body)))]
        # A browser must not take a log for a page.
        headers += [("X-Content-Type-Options", "nosniff"), *answer.headers]
        is_doubtful = self._http.their_state in (h11.IDLE, h11.SEND_BODY, h11.ERROR)
        try:
            async with asyncio.timeout(self._limits.write_seconds):
                await self.begin(answer.status, headers, last=last or is_doubtful)
                if self._method != "HEAD":
                    for start in range(0, len(body), PIECE_BYTES):
                        await self.send(body[start : start + PIECE_BYTES])
                await self.end()
        except TimeoutError:
            raise Gone from None
        if is_doubtful:
            await self._linger()

    async def begin(
        self, status: int, headers: Sequence[tuple[str, str]], *, last: bool = False
    ) -> None:
        """Send the head of a reply."""
        said = _raw([*headers, *((("Connection", "close"),) if last else ())])
        self._has_begun = True
        await self._write(
            h11.Response(status_code=status, headers=said, reason=REASONS.get(status, ""))
        )

    async def send(self, data: bytes) -> None:
        """Send a piece of the body; waits while the client is slow."""
        await self._write(h11.Data(data=data))

    async def end(self) -> None:
        """Say that the body is complete."""
        await self._write(h11.EndOfMessage())

    async def switch(self, headers: Sequence[tuple[str, str]]) -> Channel:
        """Send 101; the raw connection is the caller's from here on."""
        said = _raw((name, value) for name, value in headers if name.lower() in _TRAVELS_DOWN)
        self._has_begun = True
        await self._write(
            h11.InformationalResponse(
                status_code=101,
                headers=[(b"Connection", b"Upgrade"), *said],
                reason="Switching Protocols",
            )
        )
        self._channel.unread(self._http.trailing_data[0])
        return self._channel

    def watched(self) -> Watch:
        """Notice inside of this context that the client goes, and end what is done for it."""
        return Watch(self)

    async def hear(self) -> None:
        """Return when the client has gone, or sent more ahead than it may."""
        while self.ahead <= self._limits.watched_bytes or self._is_unread():
            if self.ahead > self._limits.watched_bytes:
                await asyncio.Event().wait()  # its body is long, and will be read, or refused
            try:
                data = await self._channel.read(READ_BYTES)
            except OSError:
                return
            if not data:
                return
            self._http.receive_data(data)

    def _start_next(self) -> bool:
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        self._has_begun = False
        return True

    async def _first_byte(self, seconds: float) -> bool:
        """Wait for the beginning of a request; a client that goes, or never begins, is no fault."""
        if self.ahead:
            return True
        try:
            async with asyncio.timeout(seconds):
                data = await self._channel.read(READ_BYTES)
        except (TimeoutError, OSError):
            return False
        self._http.receive_data(data)
        return bool(data)

    async def _head(self) -> Event:
        for _ in range(MOST_READS):
            if self._lines_ahead() > self._limits.header_lines:
                break
            event = self._event_at_hand()
            if event is not h11.NEED_DATA:
                return event
            await self._receive()
        raise Refused(text(431, REASONS[431]))

    async def _next_event(self) -> Event:
        while (event := self._event_at_hand()) is h11.NEED_DATA:
            await self._receive()
        return event

    async def _receive(self) -> None:
        try:
            data = await self._channel.read(READ_BYTES)
        except OSError as error:
            raise Gone from error
        if not data:
            raise Gone
        self._http.receive_data(data)

    def _event_at_hand(self) -> Event:
        try:
            return self._http.next_event()
        except h11.RemoteProtocolError as error:
            status = error.error_status_hint if error.error_status_hint in REASONS else 400
            # h11's words may repeat the client's header, a token with it.
            raise Refused(text(status, REASONS[status])) from None

    def _lines_ahead(self) -> int:
        held = self._http.trailing_data[0]
        end = held.find(b"\r\n\r\n")
        return held.count(b"\n", 0, end if end >= 0 else len(held))

    def _is_unread(self) -> bool:
        return self._http.their_state is h11.SEND_BODY

    async def _write(self, event: h11.Event) -> None:
        data = self._http.send(event)
        if not data:
            return
        try:
            await self._channel.write(data)
        except OSError as error:
            raise Gone from error

    async def _linger(self) -> None:
        taken = 0
        try:
            async with asyncio.timeout(self._limits.linger_seconds):
                while taken < LINGER_BYTES and (data := await self._channel.read()):
                    taken += len(data)
        except (TimeoutError, OSError):
            return


class Watch:
    """See `HttpConnection.watched`.

    Leaving it raises `Gone` where the client was gone before.
    """

    def __init__(self, connection: HttpConnection) -> None:
        self._connection = connection
        self._scope = asyncio.timeout(None)
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._scope.__aenter__()
        self.begin()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()
        try:
            await self._scope.__aexit__(kind, error, trace)
        except TimeoutError:
            if self._scope.expired():
                raise Gone from None
            raise

    def begin(self) -> None:
        """Watch from here on."""
        self._task = asyncio.create_task(self._hear())

    async def stop(self) -> None:
        """Let the connection be read by somebody else."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _hear(self) -> None:
        await self._connection.hear()
        self._scope.reschedule(asyncio.get_running_loop().time())


def _checked(event: h11.Request) -> HttpRequest:
    request = HttpRequest(
        method=event.method.decode("ascii"),
        target=event.target.decode("ascii"),
        version=event.http_version.decode("ascii"),
        headers=tuple(
            (name.decode("ascii"), value.decode("latin-1")) for name, value in event.headers
        ),
    )
    if request.version not in ("1.0", "1.1"):
        raise Refused(text(400, "HTTP/1.1 is spoken here"))
    if not request.target.startswith("/") or "#" in request.target:
        raise Refused(text(400, "malformed request target"))
    framings = request.values("transfer-encoding")
    if framings and (request.values("content-length") or request.version != "1.1"):
        raise Refused(text(400, "a request's length is said once"))
    if len(request.values("authorization")) > 1:
        raise Refused(text(400, "more than one Authorization header"))
    if any(value.lower() != "100-continue" for value in request.values("expect")):
        raise Refused(text(417, REASONS[417]))
    return request
