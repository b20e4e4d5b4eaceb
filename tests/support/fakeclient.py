"""The in-memory twin of `cluster.client.ClusterClient`, with a door for faults.

Every request is written down before anything happens to it, then meets the fault that the test's
hook gives it, if any: so a test can count writes and can break any single call, on its way there or
back. Each request gives way to other tasks at least once, as a real one does.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from federate.cluster.port import Listing, WatchEvent
from federate.cluster.upstream import Reply, UpstreamCall
from federate.cluster.wire import eviction
from federate.errors import ClusterError, Expired, NotFound, Throttled, Unreachable
from federate.model.objects import JsonDict, JsonObject, ObjectKey, key_of
from federate.model.resources import PODS, SERVICEACCOUNTS, Resource
from federate.patch.document import PatchBody
from tests.support.fakestore import Signal, event_of
from tests.support.selectors import Selection, select

if TYPE_CHECKING:
    from tests.support.fakecluster import FakeCluster

T = TypeVar("T")

REQUEST_TIMEOUT_SECONDS = 30.0
WRITES = frozenset({"create", "patch", "replace", "delete"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request as it left. `number` counts the requests to the cluster, from 0.

    `body` is what was sent: the object, the patch (of that `media_type`), or the DeleteOptions.
    """

    number: int
    client: str
    verb: str
    resource: Resource
    key: ObjectKey
    subresource: str = ""
    body: JsonObject | None = None
    media_type: str = ""
    dry_run: bool = False
    sent_at: float = 0.0
    is_unlawful: bool = False
    """Sent by a process that knew that it leads no more."""

    @property
    def is_write(self) -> bool:
        return self.verb in WRITES and not self.dry_run

    def __str__(self) -> str:
        sub = f"/{self.subresource}" if self.subresource else ""
        return f"{self.verb} {self.resource.plural}{sub} {self.key}"


class Crash(BaseException):
    """The process dies here. No `except Exception` may stop it."""


@dataclass(frozen=True, slots=True)
class LostRequest:
    """The request never arrives."""


@dataclass(frozen=True, slots=True)
class LostReply:
    """The request is carried out, and its reply never arrives."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """The server answers with that error and does nothing."""

    error: ClusterError


@dataclass(frozen=True, slots=True)
class RefuseAfter:
    """The server carries the request out, and answers with that error all the same."""

    error: ClusterError


@dataclass(frozen=True, slots=True)
class CrashBefore:
    """The process dies before the request leaves."""


@dataclass(frozen=True, slots=True)
class CrashAfter:
    """The process dies after the request is carried out, before it sees the reply."""


@dataclass(frozen=True, slots=True)
class Delay:
    """The request takes that long to arrive; beyond the client's patience it is lost."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Freeze:
    """The process is stopped (SIGSTOP) with this request in its hands.

    Nothing of it goes on until somebody thaws it. The request leaves then; or, where
    `arrives_after` is given, it was on its way already and arrives so many seconds later. The reply
    is read after the thaw, where the client's patience has lasted.
    """

    arrives_after: float | None = None


class Ice:
    """What holds a stopped process: shared by all its clients."""

    def __init__(self) -> None:
        self._running = asyncio.Event()
        self._running.set()
        self.frozen = asyncio.Event()

    def freeze(self) -> None:
        self._running.clear()
        self.frozen.set()

    def thaw(self) -> None:
        self._running.set()

    async def passage(self) -> None:
        """Wait until the process runs."""
        await self._running.wait()


Fault: TypeAlias = (
    LostRequest | LostReply | Refuse | RefuseAfter | CrashBefore | CrashAfter | Delay | Freeze
)
Faults: TypeAlias = Callable[[Call], Fault | None]


class FakeClient:
    """One identity at a `FakeCluster`; satisfies `ClusterPort`.

    `ice` is that of the process it belongs to.
    """

    def __init__(self, cluster: FakeCluster, name: str, ice: Ice | None = None) -> None:
        self.name = name
        self._cluster = cluster
        self._ice = ice or Ice()
        self._closed = False
        self.fenced_at = float("inf")
        """From then on its process knows that it leads no more."""

    async def get(
        self,
        resource: Resource,
        key: ObjectKey,
        *,
        subresource: str = "",
        metadata_only: bool = False,
    ) -> JsonDict:
        call = self._call("get", resource, key, subresource=subresource)
        found = await self._send(call, lambda: self._cluster.read(resource, key))
        return _partial(found) if metadata_only else found

    async def raw_get(self, path: str) -> JsonDict:
        resource = Resource(group_version="", plural=path, kind="", namespaced=False)
        call = self._call("get", resource, ObjectKey("", ""))

        def read() -> JsonDict:
            if path not in self._cluster.documents:
                raise NotFound("the server could not find the requested resource", status=404)
            return copy.deepcopy(self._cluster.documents[path])

        return await self._send(call, read)

    def stream(self, call: UpstreamCall) -> AbstractAsyncContextManager[Reply]:
        """Streams lead to containers, and there are none."""
        raise Unreachable(f"nothing runs here: {call.path}")

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
        call = self._call("list", resource, ObjectKey(namespace, ""))

        def read() -> Listing:
            selection = select(
                resource,
                namespace=namespace,
                label_selector=label_selector,
                field_selector=field_selector,
            )
            if int(resource_version or 0) > self._cluster.store.version:
                detail = f"Too large resource version: {resource_version}"
                raise Expired(detail, reason="Timeout", status=504)
            items, version = self._cluster.read_all(selection, cached=resource_version == "0")
            if bare:
                return Listing(items=[_bare(item) for item in items], resource_version=version)
            if metadata_only:
                return Listing(items=[_partial(item) for item in items], resource_version=version)
            # As in a real list, the items do not repeat the kind of the list.
            kept = [{k: v for k, v in i.items() if k not in ("apiVersion", "kind")} for i in items]
            return Listing(items=kept, resource_version=version)

        listing = await self._send(call, read)
        if shrink is not None:
            return replace(listing, items=list(map(shrink, listing.items)))
        return listing

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
    ) -> AsyncIterator[WatchEvent]:
        call = self._call("watch", resource, ObjectKey(namespace, ""))

        def opening() -> Selection:
            return select(
                resource,
                namespace=namespace,
                label_selector=label_selector,
                field_selector=field_selector,
            )

        selection = await self._send(call, opening)
        try:
            following = self._follow(selection, resource_version, timeout_seconds)
            async with aclosing(following):
                async for event in following:
                    yield _partial_event(event) if metadata_only else event
        except ClusterError as error:
            raise self._named(error, call) from error

    async def create(
        self, resource: Resource, body: JsonObject, *, namespace: str = "", dry_run: bool = False
    ) -> JsonDict:
        key = ObjectKey(namespace or key_of(body).namespace, key_of(body).name)
        call = self._call("create", resource, key, body=body, dry_run=dry_run)
        return await self._send(call, lambda: self._cluster.create(resource, call.body or {}, key))

    async def patch(
        self,
        resource: Resource,
        key: ObjectKey,
        patch: PatchBody,
        *,
        subresource: str = "",
        dry_run: bool = False,
    ) -> JsonDict:
        call = self._call(
            "patch",
            resource,
            key,
            subresource=subresource,
            body=patch.body,
            media_type=patch.media_type,
            dry_run=dry_run,
        )
        sent = PatchBody(media_type=patch.media_type, body=call.body or {})
        return await self._send(
            call, lambda: self._cluster.patch(resource, key, sent, subresource=subresource)
        )

    async def replace(
        self, resource: Resource, key: ObjectKey, body: JsonObject, *, subresource: str = ""
    ) -> JsonDict:
        call = self._call("replace", resource, key, subresource=subresource, body=body)
        return await self._send(
            call,
            lambda: self._cluster.replace(resource, key, call.body or {}, subresource=subresource),
        )

    async def delete(
        self,
        resource: Resource,
        key: ObjectKey,
        *,
        uid: str,
        resource_version: str | None = None,
        grace_seconds: int | None = None,
    ) -> JsonDict | None:
        preconditions: JsonDict = {"uid": uid}
        if resource_version is not None:
            preconditions["resourceVersion"] = resource_version
        options: JsonDict = {"preconditions": preconditions}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        call = self._call("delete", resource, key, body=options)
        try:
            return await self._send(call, lambda: self._cluster.delete(resource, key, options))
        except NotFound:
            return None

    async def evict(
        self, key: ObjectKey, *, uid: str, grace_seconds: int | None = None
    ) -> JsonDict | None:
        body = eviction(key, uid=uid, grace_seconds=grace_seconds)
        call = self._call("create", PODS, key, subresource="eviction", body=body)
        try:
            return await self._send(call, lambda: self._cluster.evict(key, call.body or {}))
        except NotFound:
            return None

    async def request_token(self, account: ObjectKey, body: JsonObject) -> JsonDict:
        call = self._call("create", SERVICEACCOUNTS, account, subresource="token", body=body)
        return await self._send(call, lambda: self._cluster.issue_token(account, body))

    async def server_url(self) -> str:
        return "https://127.0.0.1:6443"

    def credential_expiry(self) -> None:
        """Say that no end of the credentials is known."""

    async def aclose(self) -> None:
        self._closed = True
        self._cluster.store.signal(Signal.BREAK, client=self.name)

    def _call(
        self,
        verb: str,
        resource: Resource,
        key: ObjectKey,
        *,
        subresource: str = "",
        body: JsonObject | None = None,
        media_type: str = "",
        dry_run: bool = False,
    ) -> Call:
        now = asyncio.get_running_loop().time()
        return Call(
            number=len(self._cluster.calls),
            client=self.name,
            verb=verb,
            resource=resource,
            key=key,
            subresource=subresource,
            body=copy.deepcopy(dict(body)) if body is not None else None,
            media_type=media_type,
            dry_run=dry_run,
            sent_at=now,
            is_unlawful=now > self.fenced_at,
        )

    async def _send(self, call: Call, execute: Callable[[], T]) -> T:
        """Carry a request to the cluster and its answer back, through whatever fault it meets."""
        self._cluster.calls.append(call)
        self._cluster.under_way += 1
        try:
            return await self._pass(call, execute)
        finally:
            self._cluster.under_way -= 1

    async def _pass(self, call: Call, execute: Callable[[], T]) -> T:
        fault = self._cluster.faults(call) if self._cluster.faults else None
        await asyncio.sleep(self._cluster.latency_seconds)
        if isinstance(fault, CrashBefore):
            raise Crash(str(call))
        await self._travel(fault)
        if self._closed or self._cluster.is_down or _never_arrives(fault):
            raise self._named(Unreachable("no answer"), call)
        try:
            if isinstance(fault, Refuse):
                raise fault.error
            with self._cluster.serving(call):
                answer = execute()
            if isinstance(fault, RefuseAfter):
                raise fault.error
        except ClusterError as error:
            await self._ice.passage()
            raise self._named(error, call) from error
        if isinstance(fault, CrashAfter):
            raise Crash(str(call))
        await self._ice.passage()
        waited = asyncio.get_running_loop().time() - call.sent_at
        if isinstance(fault, LostReply) or waited > REQUEST_TIMEOUT_SECONDS:
            raise self._named(Unreachable("no answer"), call)
        return answer

    async def _travel(self, fault: Fault | None) -> None:
        """Take the time that the request takes to arrive."""
        if isinstance(fault, Freeze):
            self._ice.freeze()
            if fault.arrives_after is not None:
                await asyncio.sleep(fault.arrives_after)
                return
        await self._ice.passage()
        if isinstance(fault, Delay):
            await asyncio.sleep(min(fault.seconds, REQUEST_TIMEOUT_SECONDS))

    async def _follow(
        self, selection: Selection, resource_version: str, timeout_seconds: float
    ) -> AsyncGenerator[WatchEvent, None]:
        store = self._cluster.store
        if resource_version in ("", "0"):
            items, version = self._cluster.read_all(selection, cached=True)
            for item in items:
                yield WatchEvent(type="ADDED", object=item)
            resource_version = version
        watching = store.open_watch(
            selection.resource, client=self.name, version=int(resource_version)
        )
        ends_at = asyncio.get_running_loop().time() + timeout_seconds
        try:
            while True:
                try:
                    async with asyncio.timeout_at(ends_at):
                        message = await watching.messages.get()
                except TimeoutError:
                    return
                await self._ice.passage()
                if message is Signal.CLOSE:
                    return
                if message is Signal.BREAK:
                    raise Unreachable("the connection broke")
                if isinstance(message, Signal):
                    yield WatchEvent(type="BOOKMARK", object=self._bookmark(selection.resource))
                elif event := event_of(message, selection):
                    await self._cluster.shown(message.version)
                    for _ in range(self._cluster.copies(message)):
                        yield event
        finally:
            store.close_watch(watching)

    def _bookmark(self, resource: Resource) -> JsonDict:
        version = str(self._cluster.store.version)
        return {
            "kind": resource.kind,
            "apiVersion": resource.group_version,
            "metadata": {"resourceVersion": version, "creationTimestamp": None},
        }

    def _named(self, error: ClusterError, call: Call) -> ClusterError:
        """Return the error as the real client raises it: with what was attempted, and where."""
        named = type(error)(
            error.detail,
            cluster=self.name,
            verb=call.verb,
            subject=f"{call.resource.kind} {call.key}",
            reason=error.reason,
            status=error.status,
        )
        if isinstance(named, Throttled) and isinstance(error, Throttled):
            named.retry_after_seconds = error.retry_after_seconds
        return named


def _never_arrives(fault: Fault | None) -> bool:
    if isinstance(fault, Delay):
        return fault.seconds >= REQUEST_TIMEOUT_SECONDS
    return isinstance(fault, LostRequest)


def _partial(obj: JsonObject) -> JsonDict:
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": obj["metadata"],
    }


def _bare(obj: JsonObject) -> JsonDict:
    kept = ("namespace", "name", "uid", "resourceVersion")
    return {"metadata": {name: obj["metadata"][name] for name in kept if name in obj["metadata"]}}


def _partial_event(event: WatchEvent) -> WatchEvent:
    return WatchEvent(type=event.type, object=_partial(event.object))
