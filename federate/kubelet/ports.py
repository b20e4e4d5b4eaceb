"""What the kubelet API is written against: who asks, what may be asked, and where it leads.

The hub's API server talks to a virtual node as to a kubelet. `paths` says what a request asks for,
`access` who asks and whether they may, `server` answers, `relay` carries the bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from federate.cluster.upstream import OpenCall, Reply, Upgraded, UpstreamCall
from federate.model.objects import JsonObject, ObjectKey

__all__ = [
    "AccessPort",
    "Caller",
    "Located",
    "NodeAccess",
    "OpenCall",
    "Page",
    "PagesPort",
    "PeerCertificate",
    "PodsPort",
    "Reply",
    "Unauthenticated",
    "Upgraded",
    "UpstreamCall",
]


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
    fingerprint: str = ""
    """SHA-256 of the certificate, in hex."""
    ends_at: float | None = None
    """Unix time; connections outlive certificates, so every request asks again."""
    authority: str = ""
    """Fingerprint of the bundle that TLS verified it against."""
    der: bytes = field(default=b"", repr=False)


class Unauthenticated(Exception):
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

    def hub_pod(self, key: ObjectKey) -> JsonObject | None:
        """Return a hub pod of this virtual node, whether it has a mirror or not."""

    def all(self) -> Iterable[JsonObject]:
        """Return all hub pods of this virtual node, as they are now: once, and best in turns."""

    def located(self) -> Iterable[Located]:
        """Return all that have a mirror on record, in the same way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A whole document, as it is answered with 200."""

    content_type: str
    body: bytes


class PagesPort(Protocol):
    """The documents of one virtual node: about its own pods, in the hub's names."""

    async def page(
        self, path: str, query: Mapping[str, str], headers: Mapping[str, str]
    ) -> Page | None:
        """Make the document a kubelet has under that path; None: there is none (404).

        `query` holds the last value of each name, `headers` only `accept`. Documents that are asked
        for at once share the target's answers.

        Raises:
            ClusterError: the target did not tell what it needs.
        """
