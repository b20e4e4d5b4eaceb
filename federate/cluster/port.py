"""What the rest of federate may ask of an API server, and what comes back.

The one port that reconcilers, reflectors and the node's heartbeat are written against. Two things
satisfy it: `cluster.client.ClusterClient`, and the in-memory cluster of the tests, which a contract
suite keeps honest. Every method raises only `errors.ClusterError` and its children.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Protocol

from federate.model.objects import JsonDict, JsonObject, ObjectKey
from federate.model.resources import Resource
from federate.patch.document import PatchBody

PAGE_SIZE = 500
"""Objects a page: the API server's memory is bounded by it, and a page fits one reply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """All items of a collection, and the version to watch from."""

    items: list[JsonDict]
    resource_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchEvent:
    """One line of a watch. `type` is ADDED, MODIFIED, DELETED or BOOKMARK."""

    type: str
    object: JsonDict


class ClusterPort(Protocol):
    """One API server, one identity."""

    @property
    def name(self) -> str:
        """`hub`, or the target's name: for errors, logs and metrics."""

    async def get(
        self,
        resource: Resource,
        key: ObjectKey,
        *,
        subresource: str = "",
        metadata_only: bool = False,
    ) -> JsonDict:
        """Read one object from the quorum (resourceVersion unset), never from a cache."""

    async def list(
        self,
        resource: Resource,
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        resource_version: str | None = None,
        metadata_only: bool = False,
        bare: bool = False,
        shrink: Callable[[JsonDict], JsonDict] | None = None,
    ) -> Listing:
        """Read all pages. resourceVersion unset is a quorum read, "0" any cached state.

        `bare` leaves of each object its namespace, name, uid and resourceVersion: what tells
        whether it is known costs a tenth of the time and memory. managedFields never come.
        `shrink` is called for each item as its page comes, and what it returns is listed instead.
        """

    def watch(
        self,
        resource: Resource,
        *,
        resource_version: str,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        timeout_seconds: float = 300,
        metadata_only: bool = False,
    ) -> AsyncIterator[WatchEvent]:
        """Follow changes after `resource_version`; ends when the server closes the stream.

        Raises `Expired` where the version is too old.
        """

    async def create(
        self, resource: Resource, body: JsonObject, *, namespace: str = "", dry_run: bool = False
    ) -> JsonDict:
        """Create with fieldValidation=Warn; unknown fields are dropped, not refused."""

    async def patch(
        self,
        resource: Resource,
        key: ObjectKey,
        patch: PatchBody,
        *,
        subresource: str = "",
        dry_run: bool = False,
    ) -> JsonDict:
        """Patch; a `metadata.uid` or `metadata.resourceVersion` in the body is a precondition."""

    async def replace(
        self, resource: Resource, key: ObjectKey, body: JsonObject, *, subresource: str = ""
    ) -> JsonDict:
        """Replace; the body's resourceVersion is the precondition."""

    async def delete(
        self,
        resource: Resource,
        key: ObjectKey,
        *,
        uid: str,
        resource_version: str | None = None,
        grace_seconds: int | None = None,
    ) -> JsonDict | None:
        """Delete that very uid; None where it was gone, `Conflict` where the uid is another.

        The reply is the object as it stands (terminating), or its last state.
        """

    async def request_token(self, account: ObjectKey, body: JsonObject) -> JsonDict:
        """Have a token issued for a service account; `body` is a TokenRequest, and so is the reply.

        Raises:
            NotFound: no such account, or no such object as the token shall be bound to.
            Conflict: that object has another uid.
        """

    async def raw_get(self, path: str) -> JsonDict:
        """Read a document that is no resource: `/version`."""
