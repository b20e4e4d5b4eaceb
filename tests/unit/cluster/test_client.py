"""The client against a scripted server on the loopback: what it asks, and what it makes of it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import orjson
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer, unused_port

from federate.cluster.client import ClusterClient
from federate.cluster.port import ClusterPort, WatchEvent
from federate.cluster.sessions import Access, SessionPools
from federate.errors import (
    LONGEST_DETAIL,
    AlreadyExists,
    ClusterError,
    Conflict,
    Expired,
    Forbidden,
    NotFound,
    Rejected,
    ServerFault,
    Throttled,
    Unauthorized,
    Unreachable,
)
from federate.model.expiry import Expiry
from federate.model.objects import JsonDict, ObjectKey
from federate.model.resources import (
    CONFIGMAPS,
    NODES,
    PODS,
    SECRETS,
    SERVICEACCOUNTS,
    Resource,
)
from federate.patch.document import MERGE, STRATEGIC, PatchBody

KEY = ObjectKey("ns", "a")
Reply = Callable[[web.Request], Awaitable[web.StreamResponse]]


def answer(body: Any = None, *, status: int = 200, **headers: str) -> Reply:
    async def reply(request: web.Request) -> web.StreamResponse:
        text = body if isinstance(body, bytes) else orjson.dumps(body or {})
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.Response(body=text, status=status, headers=named)

    return reply


def failure(status: int, reason: str = "", message: str = "no", **details: Any) -> Reply:
    body = {"kind": "Status", "reason": reason, "message": message, "details": details}
    return answer(body, status=status)


def stream(*chunks: bytes | float) -> Reply:
    """Send chunks one by one; a number is a pause, which a test may cut short."""

    async def reply(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for chunk in chunks:
            if isinstance(chunk, bytes):
                await response.write(chunk)
            else:
                await asyncio.sleep(chunk)
        return response

    return reply


@dataclass
class Seen:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


@dataclass
class FixedCredentials:
    """Hands out `access`, and after a 401 the next of `renewals`."""

    access: Access
    renewals: list[Access] = field(default_factory=list)
    renewed: int = 0
    is_closed: bool = False

    def known(self) -> Access:
        return self.access

    async def current(self) -> Access:
        return self.access

    async def aclose(self) -> None:
        self.is_closed = True

    async def renew(self, refused: Access) -> Access:
        self.renewed += 1
        if self.renewals:
            self.access = self.renewals.pop(0)
        return self.access


@dataclass
class Bench:
    client: ClusterClient
    credentials: FixedCredentials
    seen: list[Seen]
    observed: list[tuple[str, str, str]]

    @property
    def last(self) -> Seen:
        return self.seen[-1]


@asynccontextmanager
async def bench(*replies: Reply, **options: Any) -> AsyncIterator[Bench]:
    """A server that gives these replies in turn, the last one for ever, and a client of it."""
    seen: list[Seen] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        body = orjson.loads(raw) if raw else None
        seen.append(
            Seen(request.method, request.path, dict(request.query), dict(request.headers), body)
        )
        return await replies[min(len(seen), len(replies)) - 1](request)

    app = web.Application(client_max_size=2**26)
    app.router.add_route("*", "/{path:.*}", handle)
    server = TestServer(app)
    await server.start_server(shutdown_timeout=0.1)
    observed: list[tuple[str, str, str]] = []

    def observe(*, verb: str, resource: str, outcome: str, seconds: float) -> None:
        assert seconds >= 0
        observed.append((verb, resource, outcome))

    credentials = FixedCredentials(
        Access(
            server=str(server.make_url("")).rstrip("/"), headers=(("Authorization", "Bearer one"),)
        )
    )
    client = ClusterClient(name="east", credentials=credentials, observer=observe, **options)
    try:
        yield Bench(client, credentials, seen, observed)
    finally:
        await client.aclose()
        await server.close()


async def events_of(client: ClusterClient, **options: Any) -> list[WatchEvent]:
    async with aclosing(client.watch(PODS, resource_version="5", **options)) as events:
        return [event async for event in events]


def line(kind: str, obj: JsonDict) -> bytes:
    return orjson.dumps({"type": kind, "object": obj}) + b"\n"


def is_a_port(client: ClusterClient) -> ClusterPort:
    return client


# --- requests ----------------------------------------------------------------------------------


async def test_get_reads_from_the_quorum() -> None:
    """A read names no resourceVersion, so it is never answered from a cache."""
    async with bench(answer({"kind": "Pod"})) as b:
        assert await b.client.get(PODS, KEY, subresource="status") == {"kind": "Pod"}
    assert (b.last.method, b.last.path) == ("GET", "/api/v1/namespaces/ns/pods/a/status")
    assert b.last.query == {}
    assert b.last.headers["Authorization"] == "Bearer one"
    assert b.observed == [("get", "pods/status", "ok")]


async def test_raw_get() -> None:
    """Documents that are no resources can be read, query included."""
    async with bench(answer({"major": "1"})) as b:
        assert await b.client.raw_get("/openapi/v3?hash=x") == {"major": "1"}
    assert (b.last.path, b.last.query) == ("/openapi/v3", {"hash": "x"})


async def test_create() -> None:
    """A create asks for warnings about unknown fields and names the field manager."""
    async with bench(answer({"metadata": {"uid": "u"}}, status=201)) as b:
        body = {"metadata": {"name": "a"}, "spec": {"list": (1, 2)}}
        await b.client.create(PODS, body, namespace="ns")
        await b.client.create(NODES, body, dry_run=True)
    first, second = b.seen
    assert (first.method, first.path) == ("POST", "/api/v1/namespaces/ns/pods")
    assert first.query == {"fieldValidation": "Warn", "fieldManager": "federate"}
    assert first.body == {"metadata": {"name": "a"}, "spec": {"list": [1, 2]}}
    assert (second.path, second.query["dryRun"]) == ("/api/v1/nodes", "All")


async def test_large_objects_are_sent_whole_also_a_second_time() -> None:
    """A Secret may have a megabyte; it is sent again after a 401, and the HTTP library is quiet."""
    made = answer({"metadata": {"uid": "u"}}, status=201)
    async with bench(failure(401, "Unauthorized"), made) as b:
        server = b.credentials.access.server
        b.credentials.renewals = [Access(server=server, headers=(("Authorization", "Bearer two"),))]
        body = {"data": {"a": "x" * 1_500_000}}
        await b.client.create(CONFIGMAPS, body, namespace="ns")
    assert [seen.body for seen in b.seen] == [body, body]
    assert b.last.headers["Content-Type"] == "application/json"


@pytest.mark.parametrize("media_type", [STRATEGIC, MERGE])
async def test_patch(media_type: str) -> None:
    """A patch travels with its media type and never forces."""
    async with bench(answer({})) as b:
        patch = PatchBody(media_type=media_type, body={"status": {"phase": "Running"}})
        await b.client.patch(PODS, KEY, patch, subresource="status", dry_run=True)
    assert (b.last.method, b.last.path) == ("PATCH", "/api/v1/namespaces/ns/pods/a/status")
    assert b.last.headers["Content-Type"] == media_type
    assert b.last.query == {"fieldManager": "federate", "dryRun": "All"}


async def test_replace() -> None:
    """A replace is a PUT of the whole object."""
    async with bench(answer({})) as b:
        await b.client.replace(PODS, KEY, {"metadata": {"resourceVersion": "7"}})
    assert (b.last.method, b.last.query) == ("PUT", {"fieldManager": "federate"})
    assert b.last.body == {"metadata": {"resourceVersion": "7"}}


async def test_delete_names_the_uid_it_means() -> None:
    """A delete always carries the uid, and the version and grace period when given."""
    async with bench(answer({"kind": "Pod"})) as b:
        assert await b.client.delete(PODS, KEY, uid="u") == {"kind": "Pod"}
        await b.client.delete(PODS, KEY, uid="u", resource_version="7", grace_seconds=0)
    first, second = b.seen
    assert first.method == "DELETE"
    assert first.body["preconditions"] == {"uid": "u"}
    assert first.body["propagationPolicy"] == "Background"
    assert "gracePeriodSeconds" not in first.body
    assert second.body["preconditions"] == {"uid": "u", "resourceVersion": "7"}
    assert second.body["gracePeriodSeconds"] == 0


async def test_delete_of_what_is_gone() -> None:
    """Deleting what does not exist is no error; deleting another uid is."""
    async with bench(failure(404, "NotFound"), failure(409, "Conflict")) as b:
        assert await b.client.delete(PODS, KEY, uid="u") is None
        with pytest.raises(Conflict):
            await b.client.delete(PODS, KEY, uid="u")


async def test_a_token_is_asked_of_its_service_account() -> None:
    """The request goes to a subresource; the reply is handed on as it is."""
    async with bench(answer({"status": {"token": "t"}}), failure(404, "NotFound")) as b:
        assert await b.client.request_token(KEY, {"spec": {}}) == {"status": {"token": "t"}}
        with pytest.raises(NotFound):
            await b.client.request_token(KEY, {"spec": {}})
    sent = b.seen[0]
    assert sent.method == "POST"
    assert sent.path == f"/api/v1/namespaces/{KEY.namespace}/serviceaccounts/{KEY.name}/token"
    assert sent.body == {"spec": {}}


async def test_an_eviction_names_the_uid_it_means() -> None:
    """It is a delete that budgets may forbid; one of a pod that is gone is no error."""
    forbidden = failure(429, "TooManyRequests")
    async with bench(answer({}), failure(404, "NotFound"), forbidden) as b:
        await b.client.evict(KEY, uid="u", grace_seconds=5)
        assert await b.client.evict(KEY, uid="u") is None
        with pytest.raises(Throttled):
            await b.client.evict(KEY, uid="u")
    sent = b.seen[0]
    assert (sent.method, sent.path) == (
        "POST",
        f"/api/v1/namespaces/{KEY.namespace}/pods/{KEY.name}/eviction",
    )
    assert sent.body["kind"] == "Eviction"
    assert sent.body["deleteOptions"]["preconditions"] == {"uid": "u"}
    assert sent.body["deleteOptions"]["gracePeriodSeconds"] == 5


async def test_warnings_are_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    """A warning of the server is logged once, however often it comes."""
    async with bench(answer({}, Warning='299 - "unknown field spec.x"')) as b:
        await b.client.get(PODS, KEY)
        await b.client.get(PODS, KEY)
    assert capsys.readouterr().out.count("unknown field spec.x") == 1


async def test_c73_what_a_server_warns_of_a_secret_is_not_logged(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """An admission webhook may quote a value there as well as in a refusal."""
    quoting = answer({}, Warning='299 - "password: hunter2 is weak"')
    async with bench(quoting) as b:
        await b.client.create(SECRETS, {"metadata": {"name": "x", "namespace": "default"}})
        await b.client.patch(SECRETS, KEY, PatchBody(media_type=MERGE, body={}))
        await b.client.request_token(KEY, {"spec": {}})
    assert "hunter2" not in capsys.readouterr().out


# --- what came back ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "reason", "kind"),
    [
        (400, "BadRequest", Rejected),
        (401, "Unauthorized", Unauthorized),
        (403, "Forbidden", Forbidden),
        (404, "NotFound", NotFound),
        (405, "MethodNotAllowed", Rejected),
        (409, "Conflict", Conflict),
        (409, "AlreadyExists", Conflict),
        (410, "Expired", Expired),
        (422, "Invalid", Rejected),
        (429, "TooManyRequests", Throttled),
        (302, "", ServerFault),
        (500, "InternalError", ServerFault),
        (503, "ServiceUnavailable", ServerFault),
        (504, "Timeout", ServerFault),
    ],
)
async def test_statuses(status: int, reason: str, kind: type[ClusterError]) -> None:
    """Each status has one meaning, and the message says what was attempted, where, on what."""
    async with bench(failure(status, reason, "etcdserver: request timed out " * 99)) as b:
        with pytest.raises(ClusterError) as caught:
            await b.client.get(PODS, KEY)
    error = caught.value
    assert type(error) is kind
    assert (error.reason, error.status, error.cluster) == (reason, status, "east")
    assert str(error).startswith("get Pod ns/a at east: etcdserver: request timed out")
    assert len(error.detail) == LONGEST_DETAIL
    assert "Bearer" not in str(error)
    assert b.observed == [("get", "pods", kind.__name__)]


async def test_conflicts_on_create() -> None:
    """A create that finds the name taken is told from one that lost a race."""
    async with bench(failure(409, "AlreadyExists"), failure(409, "Conflict")) as b:
        with pytest.raises(AlreadyExists):
            await b.client.create(PODS, {"metadata": {"name": "a"}}, namespace="ns")
        with pytest.raises(Conflict):
            await b.client.create(PODS, {"metadata": {"name": "a"}}, namespace="ns")


@pytest.mark.parametrize(
    ("reply", "seconds"),
    [
        (answer({}, status=429, Retry_After="7"), 7.0),
        (answer({}, status=503, Retry_After="2"), 2.0),
        (failure(429, "TooManyRequests", retryAfterSeconds=4), 4.0),
        (answer({}, status=429), 1.0),
        (answer({}, status=429, Retry_After="soon"), 1.0),
        (answer({}, status=429, Retry_After="Mon, 01 Jan 2001 00:00:00 GMT"), 0.0),
        (answer({}, status=429, Retry_After="99999"), 300.0),
    ],
)
async def test_throttling_carries_the_servers_wish(reply: Reply, seconds: float) -> None:
    """What the server asks to wait is known to the caller, within reason."""
    async with bench(reply) as b:
        with pytest.raises(Throttled) as caught:
            await b.client.get(PODS, KEY)
    assert caught.value.retry_after_seconds == seconds


async def test_a_version_from_the_future_has_expired() -> None:
    """After a restore from a backup our version is unknown: it is listed again, not waited for."""
    causes = [{"reason": "ResourceVersionTooLarge"}]
    async with bench(failure(504, "Timeout", causes=causes)) as b:
        with pytest.raises(Expired):
            await b.client.list(PODS, resource_version="99")


@pytest.mark.parametrize("body", [b"<html>login</html>", b"[1]", b""])
async def test_a_reply_that_is_no_json_object(body: bytes) -> None:
    """A proxy's page is a fault of the server, not a crash."""
    async with bench(answer(body)) as b:
        with pytest.raises(ServerFault, match="not a JSON object"):
            await b.client.raw_get("/version")


async def test_an_error_that_is_no_status() -> None:
    """The beginning of a proxy's page is the message, where there is nothing better."""
    async with bench(answer(b"upstream gone", status=502)) as b:
        with pytest.raises(ServerFault, match="upstream gone"):
            await b.client.get(PODS, KEY)


NOT_FOUND_ELSEWHERE: dict[str, Reply] = {
    "html": answer(b"<html>404</html>", status=404),
    "plain text": answer(b"404 page not found", status=404),
    "empty": answer(b"", status=404),
    "a status without a reason": failure(404),
    "a status with another reason": failure(404, "NoSuchRoute"),
}


@pytest.mark.parametrize("said", NOT_FOUND_ELSEWHERE)
async def test_a_404_that_is_not_the_api_servers_is_no_absence(said: str) -> None:
    """A proxy's 404 decides about no object: neither a read nor a delete takes it for gone."""
    async with bench(NOT_FOUND_ELSEWHERE[said]) as b:
        with pytest.raises(ServerFault):
            await b.client.get(PODS, KEY)
        with pytest.raises(ServerFault):
            await b.client.delete(PODS, KEY, uid="u")
        with pytest.raises(ServerFault):
            await b.client.list(PODS)


# --- the transport -----------------------------------------------------------------------------


def client_of(server: str, **options: Any) -> ClusterClient:
    return ClusterClient(
        name="east", credentials=FixedCredentials(Access(server=server)), **options
    )


@pytest.mark.parametrize("server", ["http://127.0.0.1:{port}", "http://no-such-host.invalid"])
async def test_a_request_that_never_left(server: str) -> None:
    """Refused connections and unknown names are no answer, not a crash."""
    client = client_of(server.format(port=unused_port()))
    with pytest.raises(Unreachable):
        await client.create(PODS, {"metadata": {"name": "a"}}, namespace="ns")
    await client.aclose()


async def test_tls_to_a_server_without() -> None:
    """A failed TLS handshake means that nothing was sent."""
    async with bench(answer({})) as b:
        server = b.credentials.access.server.replace("http:", "https:")
        access = Access(server=server, tls=ssl.create_default_context())
        client = ClusterClient(name="east", credentials=FixedCredentials(access))
        with pytest.raises(Unreachable):
            await client.get(PODS, KEY)
        await client.aclose()
        assert not b.seen


async def test_a_reply_that_takes_too_long() -> None:
    """A request is bounded in time; whether the server acted is then unknown."""
    async with bench(stream(b"{", 5.0), request_timeout_seconds=0.05) as b:
        with pytest.raises(Unreachable):
            await b.client.get(PODS, KEY)


async def test_a_watch_that_is_not_answered() -> None:
    """A watch whose reply does not even begin is bounded like any request."""

    async def never(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(5.0)
        return web.Response()

    async with bench(never, request_timeout_seconds=0.05) as b:
        with pytest.raises(Unreachable):
            await events_of(b.client)


@asynccontextmanager
async def flaky_server(*, drops: int) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A server that answers the first request, and drops the `drops` connections after it."""
    requests: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                requests.append(head.split(b" ")[0])
                if 1 < len(requests) <= 1 + drops:
                    break
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    try:
        yield f"http://{host}:{port}", requests
    finally:
        server.close()


async def test_a_read_on_a_dead_connection_is_repeated() -> None:
    """A kept connection that the server closed costs a read one more try, unseen by the caller."""
    async with flaky_server(drops=1) as (server, requests):
        client = client_of(server)
        await client.get(PODS, KEY)
        assert await client.get(PODS, KEY) == {}
        assert requests == [b"GET"] * 3
        await client.aclose()


async def test_a_read_is_repeated_once_only() -> None:
    """A server that keeps dropping connections is unreachable."""
    async with flaky_server(drops=9) as (server, _):
        client = client_of(server)
        await client.get(PODS, KEY)
        with pytest.raises(Unreachable):
            await client.get(PODS, KEY)
        await client.aclose()


async def test_a_write_is_never_repeated() -> None:
    """A write whose reply was lost is told to the caller, who must look before trying again."""
    async with flaky_server(drops=9) as (server, requests):
        client = client_of(server)
        await client.get(PODS, KEY)
        with pytest.raises(Unreachable):
            await client.delete(PODS, KEY, uid="u")
        assert requests == [b"GET", b"DELETE"]
        await client.aclose()


async def test_after_closing() -> None:
    """A closed client answers with an error of ours."""
    async with bench(answer({})) as b:
        await b.client.aclose()
        with pytest.raises(Unreachable, match="closed"):
            await b.client.get(PODS, KEY)


# --- credentials -------------------------------------------------------------------------------


async def test_a_refused_token_is_renewed_once() -> None:
    """After a 401 the credentials are read again and the request repeated."""
    async with bench(failure(401), answer({"kind": "Pod"})) as b:
        server = b.credentials.access.server
        b.credentials.renewals = [Access(server=server, headers=(("Authorization", "Bearer two"),))]
        assert await b.client.get(PODS, KEY) == {"kind": "Pod"}
    assert [s.headers["Authorization"] for s in b.seen] == ["Bearer one", "Bearer two"]
    assert b.observed == [("get", "pods", "ok")]


async def test_a_token_that_stays_refused() -> None:
    """Credentials that are no better after renewal end in Unauthorized, without a loop."""
    async with bench(failure(401)) as b:
        with pytest.raises(Unauthorized):
            await b.client.get(PODS, KEY)
        assert (len(b.seen), b.credentials.renewed) == (1, 1)
        b.credentials.renewals = [Access(server=b.credentials.access.server)] * 2
        with pytest.raises(Unauthorized):
            await b.client.get(PODS, KEY)
        assert (len(b.seen), b.credentials.renewed) == (3, 2)


# --- lists -------------------------------------------------------------------------------------


def page(*names: str, token: str = "", version: str = "9") -> Reply:
    items = [{"metadata": {"name": name}} for name in names]
    return answer(
        {
            "kind": "PodList",
            "metadata": {"continue": token, "resourceVersion": version},
            "items": items,
        }
    )


def names_of(items: list[JsonDict]) -> list[str]:
    return [item["metadata"]["name"] for item in items]


async def test_a_list_reads_all_pages() -> None:
    """A list is read page by page; the token of a page replaces the version asked for."""
    async with bench(page("a", token="t1"), page("b", token="t2"), page("c", version="12")) as b:
        listing = await b.client.list(
            PODS, label_selector="app=x", field_selector="spec.nodeName=n", resource_version="0"
        )
    assert names_of(listing.items) == ["a", "b", "c"]
    assert listing.resource_version == "12"
    common = {"limit": "500", "labelSelector": "app=x", "fieldSelector": "spec.nodeName=n"}
    assert [s.query for s in b.seen] == [
        common | {"resourceVersion": "0"},
        common | {"continue": "t1"},
        common | {"continue": "t2"},
    ]
    assert {s.path for s in b.seen} == {"/api/v1/pods"}


@pytest.mark.parametrize("kind", [None, "", "Pod", "Status", "PodListing"])
async def test_a_reply_that_is_no_list_is_no_empty_list(kind: str | None) -> None:
    """JSON from somewhere on the way, without the kind of a list, must not look like absence."""
    said = {"metadata": {"resourceVersion": "9"}, "items": []} | ({"kind": kind} if kind else {})
    async with bench(answer(said)) as b:
        with pytest.raises(ServerFault, match="no list"):
            await b.client.list(PODS)
    async with bench(page("a", token="t"), answer(said)) as b:
        with pytest.raises(ServerFault, match="no list"):
            await b.client.list(PODS)


async def test_an_expired_page_starts_the_list_again() -> None:
    """A continue token that expires costs one fresh start, a second one is an error."""
    pages = (page("a", token="t"), failure(410), page("a", token="t"), page("b"))
    async with bench(*pages) as b:
        listing = await b.client.list(PODS, namespace="ns")
        assert names_of(listing.items) == ["a", "b"]
    async with bench(page("a", token="t"), failure(410), page("a", token="t"), failure(410)) as b:
        with pytest.raises(Expired):
            await b.client.list(PODS)


async def test_an_empty_list() -> None:
    """A null list of items is an empty one."""
    async with bench(
        answer({"kind": "PodList", "metadata": {"resourceVersion": "1"}, "items": None})
    ) as b:
        assert (await b.client.list(PODS)).items == []


async def test_metadata_only() -> None:
    """Lists and watches can do without spec and status."""
    async with bench(page("a"), stream()) as b:
        await b.client.list(PODS, metadata_only=True)
        await events_of(b.client, metadata_only=True)
    partial = "application/json;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1"
    accepts = [s.headers["Accept"] for s in b.seen]
    assert accepts == [partial.format("List"), partial.format("")]


async def test_bare_lists() -> None:
    """They are read page by page as others, and come without the rest of the objects."""
    async with bench(page("a", token="t"), page("b", version="12")) as b:
        listing = await b.client.list(PODS, bare=True)
    assert names_of(listing.items) == ["a", "b"]
    assert listing.resource_version == "12"
    partial = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
    assert [s.headers["Accept"] for s in b.seen] == [partial, partial]


async def test_a_list_is_shrunk_page_by_page() -> None:
    """What is not wanted of a page is let go before the next one comes."""
    shrunk: list[tuple[str, int]] = []
    async with bench(page("a", token="t"), page("b")) as b:

        def shrink(item: JsonDict) -> JsonDict:
            shrunk.append((item["metadata"]["name"], len(b.seen)))
            return {"metadata": {"name": "small " + item["metadata"]["name"]}}

        listing = await b.client.list(PODS, shrink=shrink)
    assert names_of(listing.items) == ["small a", "small b"]
    assert shrunk == [("a", 1), ("b", 2)]


# --- watches -----------------------------------------------------------------------------------


async def test_a_watch_asks_for_bookmarks() -> None:
    """A watch resumes after a version, wants bookmarks, and is bounded by the server."""
    async with bench(stream(line("BOOKMARK", {"metadata": {"resourceVersion": "8"}}))) as b:
        events = await events_of(b.client, namespace="ns", timeout_seconds=120.7)
    assert [e.type for e in events] == ["BOOKMARK"]
    assert b.last.path == "/api/v1/namespaces/ns/pods"
    assert b.last.query == {
        "watch": "true",
        "resourceVersion": "5",
        "allowWatchBookmarks": "true",
        "timeoutSeconds": "120",
    }
    assert b.observed == [("watch", "pods", "ok")]


async def test_events_split_anywhere() -> None:
    """Events arrive whole, wherever the network cut them."""
    text = line("ADDED", {"n": 1}) + b"\n" + line("MODIFIED", {"n": 2}) + line("DELETED", {"n": 3})
    pieces = [text[i : i + 7] for i in range(0, len(text), 7)]
    async with bench(stream(*pieces)) as b:
        events = await events_of(b.client)
    assert [(e.type, e.object["n"]) for e in events] == [
        ("ADDED", 1),
        ("MODIFIED", 2),
        ("DELETED", 3),
    ]


async def test_an_event_of_many_megabytes() -> None:
    """No size of an object breaks a watch."""
    big = "x" * 20_000_000
    async with bench(stream(line("ADDED", {"big": big}), line("ADDED", {}))) as b:
        events = await events_of(b.client)
    assert [len(e.object.get("big", "")) for e in events] == [len(big), 0]


@pytest.mark.parametrize(
    ("left", "seconds"), [(1000.0, "300"), (60.0, "60"), (9.0, "300"), (-5.0, "300")]
)
async def test_c72_a_watch_ends_with_the_credentials_it_began_with(
    left: float, seconds: str
) -> None:
    """The next one tries the newer ones; where there are none, watches do not get short."""
    async with bench(stream(b""), wall_clock=lambda: 1000.0) as b:
        expiry = Expiry(at=1000.0 + left, warn_at=0.0, what="token")
        b.credentials.access = replace(b.credentials.access, expiry=expiry)
        await events_of(b.client)
        assert b.last.query["timeoutSeconds"] == seconds
        assert b.client.credential_expiry() == expiry


async def test_a_silent_watch_ends() -> None:
    """A watch without a byte for too long is taken for dead, and says so."""
    async with bench(stream(line("ADDED", {}), 5.0), silence_seconds=0.1) as b:
        got: list[WatchEvent] = []
        with pytest.raises(Unreachable, match=r"silent for 0\.1 s"):
            async for event in b.client.watch(PODS, resource_version="5"):
                got.append(event)
        assert len(got) == 1
    assert b.observed == [("watch", "pods", "Unreachable")]


async def test_a_cut_watch() -> None:
    """A watch that breaks in the middle of a line brings what was whole, then an error."""

    async def cut(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(line("ADDED", {}) + b'{"type":')
        assert request.transport is not None
        request.transport.abort()
        return response

    async with bench(cut) as b:
        got: list[WatchEvent] = []
        with pytest.raises(Unreachable):
            async for event in b.client.watch(PODS, resource_version="5"):
                got.append(event)
    assert [e.type for e in got] in ([], ["ADDED"])


@pytest.mark.parametrize(
    ("code", "kind"), [(410, Expired), (500, ServerFault), (None, ServerFault), (403, Forbidden)]
)
async def test_errors_inside_a_watch(code: int | None, kind: type[ClusterError]) -> None:
    """An error that arrives as an event is raised as what it is."""
    status = {"kind": "Status", "code": code, "reason": "R", "message": "too old"}
    async with bench(stream(line("ERROR", status))) as b:
        with pytest.raises(kind, match="watch Pod at east: too old"):
            await events_of(b.client)


async def test_a_watch_refused_at_once() -> None:
    """A watch that is refused is mapped like any request."""
    async with bench(failure(410, "Expired")) as b:
        with pytest.raises(Expired):
            await events_of(b.client)


@pytest.mark.parametrize("text", [b"oops\n", b"[]\n", b'{"type":"ADDED"}\n'])
async def test_nonsense_inside_a_watch(text: bytes) -> None:
    """A line that is no event is a fault of the server."""
    async with bench(stream(text)) as b:
        with pytest.raises(ServerFault):
            await events_of(b.client)


async def test_leaving_a_watch_early_frees_its_connection() -> None:
    """Whoever stops reading and closes the watch leaks nothing."""
    replies, pools = stream(line("ADDED", {}), 5.0), SessionPools()
    async with bench(replies, pools=pools) as b:
        for _ in range(3):
            async with aclosing(b.client.watch(PODS, resource_version="5")) as events:
                async for event in events:
                    assert event.type == "ADDED"
                    break
            connectors = [pool.session.connector for pool in pools._pools]
            assert not any(each._acquired for each in connectors if each is not None)
    assert b.observed == [("watch", "pods", "Cancelled")] * 3


async def test_watches_do_not_take_the_connections_of_requests() -> None:
    """However many are open: each keeps its own for minutes."""
    replies = stream(line("ADDED", {}), 5.0)
    async with bench(replies, pools=SessionPools(connections=1)) as b, AsyncExitStack() as held:
        for _ in range(3):
            events = b.client.watch(PODS, resource_version="5")
            await held.enter_async_context(aclosing(events))
            assert (await anext(events)).type == "ADDED"


@pytest.mark.parametrize("resource", [CONFIGMAPS, SECRETS, SERVICEACCOUNTS])
async def test_c2_what_hangs_beside_pods_does_not_take_their_connections(
    resource: Resource,
) -> None:
    """A server that cannot read its Secrets, say: pods, statuses and leases are asked for still."""

    async def hang(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(0.0 if "/pods/" in request.path else 5.0)
        return await answer({"kind": "Pod"})(request)

    async with bench(hang, pools=SessionPools(connections=1)) as b, asyncio.TaskGroup() as group:
        is_token = resource is SERVICEACCOUNTS
        hanging = [
            group.create_task(
                b.client.request_token(KEY, {}) if is_token else b.client.get(resource, KEY)
            )
            for _ in range(3)
        ]
        while not b.seen:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        async with asyncio.timeout(2.0):
            await b.client.get(PODS, KEY)
        for task in hanging:
            task.cancel()


async def test_closing_the_client_ends_its_watches() -> None:
    """A watch on a closed client ends with an error, not with silence."""
    async with bench(stream(line("ADDED", {}), 5.0)) as b:
        with pytest.raises(Unreachable):
            async for _ in b.client.watch(PODS, resource_version="5"):
                await b.client.aclose()
