"""Run a command for `/run`: the one stream whose bytes are read here, for its reply is plain text.

`server` opens an exec over WebSocket for it. In that protocol each message begins with the number
of its channel: 1 is stdout, 2 stderr, and 3 tells at the end, as a Status, how it went.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import secrets
import struct
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from itertools import count

import orjson

from federate.errors import ServerFault
from federate.kubelet.ports import Upgraded

PROTOCOL = "v4.channel.k8s.io"
MOST_OUTPUT = 1024 * 1024
"""Bytes of output: it is held until the command has ended. More is what exec is for."""

FRAMES_AT_ONCE = 100
"""Frames that are read between two looks at other work: a target may send empty ones."""

_ACCEPT_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_CONTINUATION, _CLOSE, _PING, _PONG = 0x0, 0x8, 0x9, 0xA
_OUTPUT, _ERRORS, _STATUS = 1, 2, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """The headers that ask for the stream, and what must come back."""

    headers: tuple[tuple[str, str], ...]
    expected: str

    @classmethod
    def new(cls) -> Opening:
        """Make one with a key of its own."""
        key = base64.b64encode(secrets.token_bytes(16)).decode()
        digest = hashlib.sha1((key + _ACCEPT_GUID).encode(), usedforsecurity=False).digest()
        return cls(
            headers=(
                ("Upgrade", "websocket"),
                ("Sec-WebSocket-Version", "13"),
                ("Sec-WebSocket-Key", key),
                ("Sec-WebSocket-Protocol", PROTOCOL),
            ),
            expected=base64.b64encode(digest).decode(),
        )

    def is_met(self, headers: Sequence[tuple[str, str]]) -> bool:
        """Tell whether the other side speaks as we do."""
        said = {name.lower(): value for name, value in headers}
        accepted = said.get("sec-websocket-accept"), said.get("sec-websocket-protocol")
        return accepted == (self.expected, PROTOCOL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a command wrote, and why it failed; "" where it did not."""

    output: bytes
    failure: str


async def outcome_of(stream: Upgraded) -> Outcome:
    """Read a command's output to its end.

    Raises:
        ServerFault: it broke off, is too long, or is no such stream.
    """
    output = bytearray()
    try:
        async for message in _messages(stream):
            channel, data = message[:1], message[1:]
            if channel == bytes([_STATUS]):
                return Outcome(output=bytes(output), failure=_failure_in(data))
            if channel in (bytes([_OUTPUT]), bytes([_ERRORS])):
                output += data
            if len(output) > MOST_OUTPUT:
                raise ServerFault("the command wrote too much for /run")
    except OSError as error:
        raise ServerFault("the command's output broke off") from error
    raise ServerFault("the command's output broke off")


def _failure_in(data: bytes) -> str:
    try:
        status = orjson.loads(data)
    except orjson.JSONDecodeError:
        return "the command's end was not told"
    if not isinstance(status, dict) or status.get("status") != "Success":
        message = status.get("message") if isinstance(status, dict) else ""
        return str(message or "the command failed")
    return ""


async def _messages(stream: Upgraded) -> AsyncIterator[bytes]:
    """Yield whole messages, until the other side closes."""
    held = bytearray()
    message = b""
    for number in count():
        if number % FRAMES_AT_ONCE == 0:
            await asyncio.sleep(0)
        frame = await _frame(stream, held)
        if frame is None or frame.opcode == _CLOSE:
            return
        if frame.opcode == _PING:
            await stream.write(_masked(_PONG, frame.payload))
        elif frame.opcode < _CLOSE:
            message = (message if frame.opcode == _CONTINUATION else b"") + frame.payload
            if len(message) > MOST_OUTPUT:
                raise ServerFault("the command wrote too much for /run")
            if frame.is_last:
                yield message
                message = b""


@dataclass(frozen=True, slots=True)
class _Frame:
    opcode: int
    is_last: bool
    payload: bytes


async def _frame(stream: Upgraded, held: bytearray) -> _Frame | None:
    """Take the next frame out of `held`, which keeps what was read beyond it; None at the end."""
    while (end := _end_of_frame(held)) is None or len(held) < end[1]:
        data = await stream.read()
        if not data:
            return None
        held += data
    start, stop = end
    frame = _Frame(held[0] & 0x0F, bool(held[0] & 0x80), bytes(held[start:stop]))
    del held[:stop]
    return frame


def _end_of_frame(held: bytearray) -> tuple[int, int] | None:
    """Return where the payload begins and ends; None where that is not known yet."""
    if len(held) < 2:
        return None
    if held[1] & 0x80:
        raise ServerFault("a server does not mask its frames")
    start, length = 2, held[1]
    if length in (126, 127):
        width, form = (2, "!H") if length == 126 else (8, "!Q")
        if len(held) < 2 + width:
            return None
        start, length = 2 + width, struct.unpack_from(form, held, 2)[0]
    if length > MOST_OUTPUT:
        raise ServerFault("the command wrote too much for /run")
    return start, start + length


def _masked(opcode: int, payload: bytes) -> bytes:
    """Make a short frame as a client sends it."""
    payload = payload[:125]
    mask = secrets.token_bytes(4)
    body = bytes(byte ^ mask[index % 4] for index, byte in enumerate(payload))
    return bytes([0x80 | opcode, 0x80 | len(payload)]) + mask + body
