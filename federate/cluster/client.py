"""Ask one API server: get, list, watch, create, patch, replace, delete on plain JSON.

The one place where requests leave for a cluster. Every request is bounded in time, carries fresh
credentials, and ends either with JSON or with an error of `federate.errors`; a watch that falls
silent ends too. Nothing is retried here but a read on a dead kept connection, and once after a 401.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from io import BytesIO
from typing import Protocol

import aiohttp
import structlog
from cachetools import LRUCache
from multidict import CIMultiDict

from federate.cluster.conceal import conceal
from federate.cluster.failures import Attempt, refused, unreachable
from federate.cluster.port import PAGE_SIZE, Listing, WatchEvent
from federate.cluster.sessions import Access, Credentials, Purpose, SessionPools
from federate.cluster.streaming import Streams
from federate.cluster.upstream import Reply, UpstreamCall
from federate.cluster.wire import (
    Call,
    LineSplitter,
    Parse,
    collection_call,
    create_call,
    delete_options,
    eviction,
    object_call,
    parse_bare_list,
    parse_event,
    parse_list,
    parse_object,
    selectors,
    stream_call,
    without_contents,
    write_query,
)
from federate.errors import (
    ClusterError,
    Expired,
    NotFound,
    ServerFault,
    Unauthorized,
    Unreachable,
)
from federate.model.expiry import Expiry
from federate.model.objects import JsonDict, JsonObject, ObjectKey, key_of
from federate.model.resources import CONFIGMAPS, PODS, SECRETS, SERVICEACCOUNTS, Resource
from federate.patch.document import PatchBody

log = structlog.get_logger()

LARGE_BODY_BYTES = 256 * 1024
"""Most bodies are a few kB; those of ConfigMaps and Secrets may have megabytes."""

CONNECT_SECONDS = 5.0
"""TCP and TLS. Shorter fails across continents, longer hides a target that drops packets."""

REQUEST_TIMEOUT_SECONDS = 30.0
"""One request with its whole reply. API servers give up after 60 s; a page of 500 fits in 5."""

SILENCE_SECONDS = 90.0
"""A watch without a byte for so long is dead: bookmarks come about once a minute."""

LEAST_WATCH_SECONDS = 10.0
"""A watch is not made shorter than that because its credentials end: without better ones the next
request tells, and a storm of watches would not help."""

_UNTOLD = frozenset({SECRETS.plural, f"{SERVICEACCOUNTS.plural}/token"})
"""What the server warns of here may show contents (C73): admission webhooks put in their words."""

# TimeoutError is an OSError; RuntimeError is how aiohttp refuses a session or connection that was
# closed in the meantime.
_TRANSPORT_FAILURES = (aiohttp.ClientError, OSError, RuntimeError)


_BESIDE = frozenset({CONFIGMAPS.plural, SECRETS.plural, f"{SERVICEACCOUNTS.plural}/token"})


class Observer(Protocol):
    """Counts requests. `outcome` is "ok", "Cancelled" or the name of the error class."""

    def __call__(self, *, verb: str, resource: str, outcome: str, seconds: float) -> None:
        """Take note of one ended request; for a watch `seconds` is how long it lasted."""


def ignore_requests(*, verb: str, resource: str, outcome: str, seconds: float) -> None:
    """Observe nothing."""


class ClusterClient:
    """One API server, one identity. Raises only `ClusterError` and its children.

    `silence_seconds` bounds the pauses of a watch, `request_timeout_seconds` everything else.
    `aclose` it in the event loop that used it.
    """

    def __init__(
        self,
        *,
        name: str,
        credentials: Credentials,
        request_timeout_seconds: float = REQUEST_TIMEOUT_SECONDS,
        silence_seconds: float = SILENCE_SECONDS,
        observer: Observer = ignore_requests,
        pools: SessionPools | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.name = name
        self._credentials = credentials
        self._request_timeout_seconds = request_timeout_seconds
        self._silence_seconds = silence_seconds
        self._observer = observer
        self._pools = pools if pools is not None else SessionPools()
        self._clock = clock
        self._wall_clock = wall_clock
        self._streams = Streams(name=name, credentials=credentials)
        self._concealed: tuple[str, ...] = ()
        self._warnings_seen: LRUCache[str, bool] = LRUCache(maxsize=256)

    async def server_url(self) -> str:
        """Return the API server's URL, as the kubeconfig has it now."""
        return (await self._credentials.current()).server

    async def access(self) -> Access:
        """Return how the API server is reached now, for checks that look below HTTP."""
        return await self._credentials.current()

    async def get(
        self,
        resource: Resource,
        key: ObjectKey,
        *,
        subresource: str = "",
        metadata_only: bool = False,
    ) -> JsonDict:
        """Read one object from the quorum."""
        call = object_call("get", "GET", resource, key, subresource=subresource)
        return await self._json(without_contents(call) if metadata_only else call)

    @asynccontextmanager
    async def stream(self, call: UpstreamCall) -> AsyncIterator[Reply]:
        """Send a request whose reply is a stream; it ends with the context.

        A reply of any status is a reply, but for 401 and redirects. Where it says 101, bytes go
        both ways from then on. Nothing but the opening is bounded in time.

        Raises:
            Unauthorized: no credentials we have are accepted.
            Unreachable: no reply came, or (out of its body) it broke off.
            ServerFault: what came is no reply of an API server.
            Rejected: the call cannot be sent.
        """
        async with self._observed(stream_call(call)), self._streams.open(call) as reply:
            yield reply

    async def raw_get(self, path: str) -> JsonDict:
        """Read a document that is no resource: `/version`, `/openapi/v3`."""
        call = Call(verb="get", method="GET", path=path, resource="", subject=path)
        return await self._json(call)

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
        """Read all pages; starts again once when the continue token expires on the way."""
        query = selectors(label_selector, field_selector) | {"limit": str(PAGE_SIZE)}
        if resource_version is not None:
            query["resourceVersion"] = resource_version
        call = collection_call(
            "list", resource, namespace, query=query, metadata_only=metadata_only or bare
        )
        parse = parse_bare_list if bare else parse_list
        try:
            return await self._all_pages(call, parse, shrink)
        except Expired:
            return await self._all_pages(call, parse, shrink)

    async def watch(
        self,
        resource: Resource,
        *,
        resource_version: str,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        timeout_seconds: float = 300,
        metadata_only: bool = False,
    ) -> AsyncGenerator[WatchEvent, None]:
        """Follow changes after `resource_version`. `aclose` the iterator where you stop early.

        Raises:
            Expired: list again.
            Unreachable: the connection broke or fell silent; watch again from the last version.
        """
        query = selectors(label_selector, field_selector) | {
            "watch": "true",
            "resourceVersion": resource_version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(max(1, int(self._before_the_end(timeout_seconds)))),
        }
        call = collection_call(
            "watch", resource, namespace, query=query, metadata_only=metadata_only
        )
        lines = LineSplitter()
        async with self._observed(call), self._opened(call, watching=True) as response:
            attempt = self._attempt(call)
            while chunk := await self._next_chunk(response, attempt):
                for line in lines.feed(chunk):
                    yield parse_event(line, attempt)

    async def create(
        self, resource: Resource, body: JsonObject, *, namespace: str = "", dry_run: bool = False
    ) -> JsonDict:
        """Create; fields the server does not know are dropped, and warned about."""
        key = ObjectKey(namespace or key_of(body).namespace, key_of(body).name)
        return await self._json(create_call(resource, key, body, dry_run=dry_run))

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
        call = object_call(
            "patch",
            "PATCH",
            resource,
            key,
            subresource=subresource,
            body=patch.body,
            content_type=patch.media_type,
            query=write_query(dry_run=dry_run),
        )
        return await self._json(call)

    async def replace(
        self, resource: Resource, key: ObjectKey, body: JsonObject, *, subresource: str = ""
    ) -> JsonDict:
        """Replace; the body's resourceVersion is the precondition."""
        call = object_call(
            "replace",
            "PUT",
            resource,
            key,
            subresource=subresource,
            body=body,
            query=write_query(dry_run=False),
        )
        return await self._json(call)

    async def delete(
        self,
        resource: Resource,
        key: ObjectKey,
        *,
        uid: str,
        resource_version: str | None = None,
        grace_seconds: int | None = None,
    ) -> JsonDict | None:
        """Delete that very uid; None where it was gone.

        The reply is the object as it stands, or a `Status` where the server says no more than that
        it is done.

        Raises:
            Conflict: the name belongs to another uid, or the version is another.
        """
        options = delete_options(
            uid=uid, resource_version=resource_version, grace_seconds=grace_seconds
        )
        try:
            return await self._json(object_call("delete", "DELETE", resource, key, body=options))
        except NotFound:
            return None

    async def evict(
        self, key: ObjectKey, *, uid: str, grace_seconds: int | None = None
    ) -> JsonDict | None:
        """Delete that very pod unless a PodDisruptionBudget forbids it; None where it was gone.

        Raises:
            Throttled: a budget forbids it at the moment.
            Conflict: the name belongs to another uid.
        """
        body = eviction(key, uid=uid, grace_seconds=grace_seconds)
        call = object_call("create", "POST", PODS, key, subresource="eviction", body=body)
        try:
            return await self._json(call)
        except NotFound:
            return None

    async def request_token(self, account: ObjectKey, body: JsonObject) -> JsonDict:
        """Have a token issued for a service account; `body` is a TokenRequest, and so is the reply.

        Raises:
            NotFound: no such account, or no such object as the token shall be bound to.
            Conflict: that object has another uid.
        """
        call = object_call(
            "create", "POST", SERVICEACCOUNTS, account, subresource="token", body=body
        )
        return await self._json(call)

    def _before_the_end(self, seconds: float) -> float:
        """Bound a watch by the end of the credentials it is opened with.

        API servers do not end it then, but the next one may: the new identity is to be tried while
        the old one still holds.
        """
        expiry = self.credential_expiry()
        left = expiry.at - self._wall_clock() if expiry is not None else seconds
        return min(seconds, left) if left > LEAST_WATCH_SECONDS else seconds

    def credential_expiry(self) -> Expiry | None:
        """Return when the credentials end, as far as that is known; None: it is not."""
        return self._credentials.known().expiry

    async def aclose(self) -> None:
        """Close all connections; whatever is in flight fails as `Unreachable`."""
        await self._credentials.aclose()
        await self._streams.aclose()
        await self._pools.aclose()

    async def _all_pages(
        self, call: Call, parse: Parse, shrink: Callable[[JsonDict], JsonDict] | None
    ) -> Listing:
        items: list[JsonDict] = []
        query = dict(call.query)
        while True:
            page = await self._json(replace(call, query=query), parse)
            if not str(page.get("kind", "")).endswith("List"):
                raise self._attempt(call).failure(ServerFault, "the reply to a list is no list")
            found = page.get("items") or ()
            items.extend(map(shrink, found) if shrink is not None else found)
            metadata = page.get("metadata") or {}
            token = metadata.get("continue")
            if not token:
                return Listing(items=items, resource_version=metadata.get("resourceVersion") or "")
            query.pop("resourceVersion", None)  # the token stands for the version too
            query["continue"] = token

    async def _json(self, call: Call, parse: Parse = parse_object) -> JsonDict:
        async with self._observed(call):
            async with self._opened(call, watching=False) as response:
                attempt = self._attempt(call)
                try:
                    body = await response.read()
                except _TRANSPORT_FAILURES as error:
                    raise unreachable(attempt, error) from error
            return parse(body, attempt)

    async def _next_chunk(self, response: aiohttp.ClientResponse, attempt: Attempt) -> bytes:
        try:
            return await response.content.readany()
        except TimeoutError as error:
            detail = f"the watch was silent for {self._silence_seconds:g} s"
            raise attempt.failure(Unreachable, detail) from error
        except _TRANSPORT_FAILURES as error:
            raise unreachable(attempt, error) from error

    @asynccontextmanager
    async def _observed(self, call: Call) -> AsyncIterator[None]:
        started = self._clock()
        outcome = "Cancelled"
        try:
            yield
            outcome = "ok"
        except ClusterError as error:
            outcome = type(error).__name__
            raise
        finally:
            seconds = self._clock() - started
            self._observer(verb=call.verb, resource=call.resource, outcome=outcome, seconds=seconds)

    @asynccontextmanager
    async def _opened(self, call: Call, *, watching: bool) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send the request; yields a success whose body is still to be read."""
        access = await self._credentials.current()
        async with AsyncExitStack() as held:
            try:
                response = await self._send(held, call, access, watching=watching)
            except Unauthorized:
                await held.aclose()
                renewed = await self._credentials.renew(access)
                if renewed is access:
                    raise
                response = await self._send(held, call, renewed, watching=watching)
            yield response

    async def _send(
        self, held: AsyncExitStack, call: Call, access: Access, *, watching: bool
    ) -> aiohttp.ClientResponse:
        """Return a success; what must be released afterwards is pushed on `held`."""
        self._concealed = access.concealed
        attempt = self._attempt(call)
        if self._pools.closed:
            raise attempt.failure(Unreachable, "the client is closed")
        purpose = _purpose_of(call, watching=watching)
        session = await held.enter_async_context(self._pools.lend(access, purpose))
        bound = self._request_timeout_seconds
        try:
            async with asyncio.timeout(bound if watching else None):
                response = await session.request(
                    call.method,
                    access.server + call.path,
                    params=call.query,
                    data=_sendable(call.body),
                    headers=_headers_of(call, access),
                    timeout=self._timeout(watching=watching),
                    server_hostname=access.server_hostname,
                    allow_redirects=False,
                    **access.through(),
                )
                held.callback(response.close)
                self._note_warnings(call, response)
                if response.ok and response.status < 300:
                    return response
                body = await response.read()
        except aiohttp.ClientResponseError as error:
            # A proxy's words: as a cause they would be logged as it wrote them.
            raise unreachable(attempt, error) from None
        except _TRANSPORT_FAILURES as error:
            raise unreachable(attempt, error) from error
        raise refused(attempt, status=response.status, body=body, headers=response.headers)

    def _timeout(self, *, watching: bool) -> aiohttp.ClientTimeout:
        if watching:
            return aiohttp.ClientTimeout(
                sock_connect=CONNECT_SECONDS, sock_read=self._silence_seconds
            )
        return aiohttp.ClientTimeout(
            total=self._request_timeout_seconds, sock_connect=CONNECT_SECONDS
        )

    def _note_warnings(self, call: Call, response: aiohttp.ClientResponse) -> None:
        if call.resource in _UNTOLD:
            return
        for text in response.headers.getall("Warning", ()):
            if text not in self._warnings_seen:
                self._warnings_seen[text] = True
                said = conceal(text, self._concealed)[:256]
                log.debug("api server warns", cluster=self.name, warning=said)

    def _attempt(self, call: Call) -> Attempt:
        return Attempt(
            cluster=self.name, verb=call.verb, subject=call.subject, concealed=self._concealed
        )


def _purpose_of(call: Call, *, watching: bool) -> Purpose:
    if watching:
        return Purpose.WATCHES
    return Purpose.BESIDE if call.resource in _BESIDE else Purpose.REQUESTS


def _sendable(body: bytes | None) -> bytes | BytesIO | None:
    """Let a large body be sent piece by piece: in one it would hold up everything else."""
    return BytesIO(body) if body is not None and len(body) > LARGE_BODY_BYTES else body


def _headers_of(call: Call, access: Access) -> CIMultiDict[str]:
    headers = CIMultiDict(access.headers)
    headers["Accept"], headers["User-Agent"] = call.accept, "federate"
    if call.body is not None:
        headers["Content-Type"] = call.content_type
    return headers
