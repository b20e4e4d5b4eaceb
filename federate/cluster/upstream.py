"""A request whose reply is a stream: bytes that go on for hours, or a connection in both ways.

What `ClusterClient.stream` takes and gives. Plain values and ports; `streaming` makes them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias


class Upgraded(Protocol):
    """A connection that stopped speaking HTTP (after 101): raw bytes both ways.

    `read`, `write` and `finish` raise OSError where the connection broke.
    """

    async def read(self, limit: int = 65536) -> bytes:
        """Return what came, at most `limit` bytes; b"" at the end."""

    async def write(self, data: bytes) -> None:
        """Send; waits while the other side is slow (back-pressure)."""

    async def finish(self) -> None:
        """Send all that was written, for as long as the other side takes; then end in order."""

    def close(self) -> None:
        """End it at once; idempotent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A reply of the target's API server to a streaming or upgrading request.

    Exactly one of the two ways goes on: `upgraded` after 101, else `body`, chunk by chunk under
    back-pressure. Used as an async context: leaving it ends the request.
    """

    status: int
    headers: Sequence[tuple[str, str]]
    upgraded: Upgraded | None = None
    body: AsyncIterator[bytes] | None = None
    """Raises `Unreachable` where the reply broke off: a part is never taken for the whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamCall:
    """A request to the target: the path of the API, the query as pairs in order."""

    method: str
    path: str
    query: Sequence[tuple[str, str]] = field(default=(), repr=False)
    """Not shown: the command of an exec may hold passwords."""
    headers: Sequence[tuple[str, str]] = field(default=(), repr=False)
    """Of the client's headers only those that may travel (Upgrade, X-Stream-Protocol-Version,
    Sec-WebSocket-*, Content-Type, Accept): never its Authorization or Impersonate-*."""
    body: bytes = field(default=b"", repr=False)


OpenCall: TypeAlias = Callable[[UpstreamCall], AbstractAsyncContextManager[Reply]]
"""What sends such a request: `ClusterClient.stream`, or something that watches over it."""
