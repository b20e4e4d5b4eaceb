"""What the kubelet API is written against: who asks, what may be asked, and where it leads.

The hub's API server talks to a virtual node as to a kubelet. `paths` says what a request asks for,
`access` who asks and whether they may, `server` answers, `relay` carries the bytes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from federate.model.objects import JsonObject, ObjectKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks, as the hub knows them. `groups` never holds system:unauthenticated."""

    user: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerCertificate:
    """The client's certificate, verified against the hub's client CA by TLS already."""

    common_name: str
    organizations: tuple[str, ...] = ()
    uid: str = ""
    """RDN 1.3.6.1.4.1.57683.2, as API servers since 1.34 read it."""


class Unauthenticated(Exception):  # noqa: N818 (a verdict, answered with 401)
    """Nobody we know: 401."""


@dataclass(frozen=True, slots=True)
class NodeAccess:
    """One question to the hub's authorizer: may `verb` be done to nodes/`subresource` of the node.

    `subresource` is proxy, log, stats, metrics, or one of the fine-grained ones of KEP-2862
    (healthz, pods, configz).
    """

    verb: str
    subresource: str


class AccessPort(Protocol):
    """Authentication and authorization by the hub; decisions are cached for a time."""

    async def authenticate(self, certificate: PeerCertificate | None, bearer: str) -> Caller:
        """Tell who asks; a verified certificate goes first, then the token.

        Raises:
            Unauthenticated: neither tells.
            ClusterError: the hub did not answer (503).
        """

    async def may(self, caller: Caller, alternatives: Sequence[NodeAccess]) -> bool:
        """Tell whether one of the alternatives is allowed, asked in their order.

        Raises:
            ClusterError: the hub did not answer (503).
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """A hub pod of this virtual node and where its mirror runs."""

    hub_pod: JsonObject
    mirror: ObjectKey
    mirror_uid: str
    mirror_pod: JsonObject | None
    """As last seen; None where it is not in sight."""


class PodsPort(Protocol):
    """The pods of this virtual node: no other's is ever found."""

    def find(self, key: ObjectKey, uid: str = "") -> Located | None:
        """Find a hub pod whose mirror is on record; with `uid` only that very hub pod."""

    def all(self) -> Sequence[JsonObject]:
        """Return all hub pods of this virtual node, as last seen."""

    def located(self) -> Sequence[Located]:
        """Return all that have a mirror on record."""


class Upgraded(Protocol):
    """A connection that stopped speaking HTTP (after 101): raw bytes both ways."""

    async def read(self, limit: int = 65536) -> bytes:
        """Return what came, at most `limit` bytes; b"" at the end."""

    async def write(self, data: bytes) -> None:
        """Send; waits while the other side is slow (back-pressure)."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamCall:
    """A request to the target: the path of the API, the query as pairs in order."""

    method: str
    path: str
    query: Sequence[tuple[str, str]] = ()
    headers: Sequence[tuple[str, str]] = ()
    """Of the client's headers only those that may travel (Upgrade, X-Stream-Protocol-Version,
    Sec-WebSocket-*, Content-Type, Accept): never its Authorization or Impersonate-*."""
    body: bytes = b""
