"""The fault proxy, between plain sockets and a tiny HTTPS server."""

import asyncio
import http.client
import json
import os
import socket
import ssl
import threading
import time
from base64 import b64decode
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from e2e.testbed.errors import TestbedError
from e2e.testbed.faultproxy import FaultProxy
from e2e.testbed.faults import Call, Events, Requests
from e2e.testbed.kubeconfigs import (
    chosen_by_context,
    read_kubeconfig,
    render_kubeconfig,
    write_kubeconfig,
)
from e2e.testbed.pki import Pki, create_pki
from e2e.testbed.ports import listens
from e2e.testbed.processes import wait_until
from e2e.testbed.proxy_keys import ProxyKeys, keys_from_kubeconfig

MUTE_SECONDS = 0.3
"""How long a test listens to be sure that nothing comes."""
PATIENCE_SECONDS = 10.0
DELAY_SECONDS = 0.2
EVENTS = 20

WATCH = "/things?watch=true"


class TinyServer:
    """Answers GET and POST of /things, and streams what `tell` is given to those that watch."""

    def __init__(self, pki: Pki, name: str) -> None:
        self.name = name
        self.posted: list[str] = []
        self.watchers: set[asyncio.Queue[bytes]] = set()
        self._loop = asyncio.new_event_loop()
        self._tls = ssl.create_default_context(
            ssl.Purpose.CLIENT_AUTH, cafile=str(pki.authority.certificate)
        )
        self._tls.load_cert_chain(pki.server.certificate, pki.server.key)
        self._tls.verify_mode = ssl.CERT_REQUIRED
        self._started: Future[int] = Future()
        self._stopping = asyncio.Event()
        self._thread = threading.Thread(target=self._live, name=name)
        self._thread.start()
        self.port = self._started.result(PATIENCE_SECONDS)

    @property
    def url(self) -> str:
        return f"https://localhost:{self.port}"

    def tell(self, *events: dict[str, Any]) -> None:
        """Send events to all that watch."""

        def put() -> None:
            for queue in self.watchers:
                for event in events:
                    queue.put_nowait(json.dumps(event).encode() + b"\n")

        self._loop.call_soon_threadsafe(put)

    def end_watches(self) -> None:
        def put() -> None:
            for queue in self.watchers:
                queue.put_nowait(b"")

        self._loop.call_soon_threadsafe(put)

    def stop(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join()
            self._loop.close()

    def _live(self) -> None:
        self._loop.run_until_complete(self._run())

    async def _run(self) -> None:
        app = web.Application()
        app.router.add_get("/things", self._get)
        app.router.add_post("/things", self._post)
        runner = web.AppRunner(app, shutdown_timeout=0.0, handler_cancellation=True)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=self._tls)
        await site.start()
        self._started.set_result(runner.addresses[0][1])
        await self._stopping.wait()
        assert runner.server is not None
        for connection in runner.server.connections:
            if connection.transport is not None:
                connection.transport.abort()
        await runner.cleanup()

    async def _get(self, request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            return await self._watch(request)
        return web.json_response({"from": self.name, "agent": request.headers["User-Agent"]})

    async def _post(self, request: web.Request) -> web.Response:
        self.posted.append(await request.text())
        return web.json_response({"posted": len(self.posted)}, status=201)

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        queue: asyncio.Queue[bytes] = asyncio.Queue()
        self.watchers.add(queue)
        try:
            while line := await queue.get():
                await response.write(line)
        finally:
            self.watchers.discard(queue)
        return response


class Client:
    """One connection to the proxy."""

    def __init__(self, authority: Path, port: int) -> None:
        context = ssl.create_default_context(cafile=str(authority))
        self.connection = http.client.HTTPSConnection(
            "127.0.0.1", port, timeout=PATIENCE_SECONDS, context=context
        )

    def ask(self, method: str = "GET", path: str = "/things", body: str | None = None) -> Any:
        answer = self.send(method, path, body).getresponse()
        return answer.status, json.loads(answer.read())

    def send(
        self, method: str = "GET", path: str = "/things", body: str | None = None
    ) -> http.client.HTTPSConnection:
        self.connection.request(method, path, body, {"User-Agent": "a test"})
        return self.connection

    def hears_nothing(self) -> bool:
        """Tell whether nothing comes for a while, and the connection is open all the same."""
        found: socket.socket = self.connection.sock
        found.settimeout(MUTE_SECONDS)
        try:
            said = found.recv(1)
        except TimeoutError:
            return True
        finally:
            found.settimeout(PATIENCE_SECONDS)
        raise AssertionError(f"It said {said!r}.")

    def is_reset(self) -> bool:
        """Tell whether the connection ends with a reset: the TLS layer would hide it."""
        with socket.socket(fileno=os.dup(self.connection.sock.fileno())) as raw:
            raw.settimeout(PATIENCE_SECONDS)
            try:
                # Session tickets of the handshake may still lie there.
                while raw.recv(65536):
                    pass
            except ConnectionResetError:
                return True
            return False

    def close(self) -> None:
        self.connection.close()


class Watcher:
    """One open watch through the proxy."""

    def __init__(self, server: TinyServer, client: Client) -> None:
        before = len(server.watchers)
        self.answer = client.send("GET", WATCH).getresponse()
        assert wait_until(lambda: len(server.watchers) > before, PATIENCE_SECONDS)
        self._client = client

    def next(self) -> dict[str, Any]:
        event: dict[str, Any] = json.loads(self.answer.readline())
        return event

    def hears_nothing(self) -> bool:
        return self._client.hears_nothing()


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return create_pki(tmp_path_factory.mktemp("pki"), service_address="10.96.0.1")


@pytest.fixture(scope="module")
def tiny(pki: Pki) -> Iterator[TinyServer]:
    server = TinyServer(pki, "tiny")
    yield server
    server.stop()


def proxy_before(pki: Pki, folder: Path, *servers: TinyServer) -> FaultProxy:
    return FaultProxy(
        name="tiny",
        upstreams=[server.url for server in servers],
        keys=ProxyKeys(
            upstream_authority=pki.authority.certificate,
            user=pki.admin,
            authority=pki.authority.certificate,
            server=pki.server,
            folder=folder,
        ),
    )


@pytest.fixture
def proxy(pki: Pki, tiny: TinyServer, tmp_path: Path) -> Iterator[FaultProxy]:
    with proxy_before(pki, tmp_path, tiny) as found:
        yield found


@pytest.fixture
def client(pki: Pki, proxy: FaultProxy) -> Iterator[Client]:
    with closing(Client(pki.authority.certificate, proxy.port)) as found:
        yield found


@pytest.fixture
def new_client(pki: Pki, proxy: FaultProxy) -> Iterator[Callable[[], Client]]:
    clients: list[Client] = []

    def make() -> Client:
        clients.append(Client(pki.authority.certificate, proxy.port))
        return clients[-1]

    yield make
    for found in clients:
        found.close()


def event(type: str, name: str, **more: object) -> dict[str, Any]:
    return {"type": type, "object": {"metadata": {"name": name}, **more}}


# -- without a fault --


def test_a_kubeconfig_is_all_that_a_proxy_needs(pki: Pki, tiny: TinyServer, tmp_path: Path) -> None:
    """Whom to trust and who to be is read from the cluster's kubeconfig; the copies go."""
    content = render_kubeconfig(
        name="tiny", server=tiny.url, authority=pki.authority.certificate, user=pki.admin
    )
    keys = keys_from_kubeconfig(write_kubeconfig(tmp_path / "tiny.yaml", content))
    with FaultProxy(name="tiny", upstreams=[tiny.url], keys=keys) as found:
        settings = chosen_by_context(read_kubeconfig(found.kubeconfig))
        authority = tmp_path / "proxy-ca.crt"
        authority.write_bytes(b64decode(settings["certificate-authority-data"]))
        with closing(Client(authority, found.port)) as client:
            assert client.ask() == (200, {"from": "tiny", "agent": "a test"})
    assert not keys.folder.exists()


def test_a_kubeconfig_without_a_certificate_is_refused(pki: Pki, tmp_path: Path) -> None:
    """A user who proves who he is in another way cannot be asked for."""
    content = render_kubeconfig(
        name="tiny", server="https://127.0.0.1", authority=pki.authority.certificate, user=pki.admin
    )
    content["users"][0]["user"] = {"token": "of-an-admin"}
    with pytest.raises(TestbedError, match="client-certificate"):
        keys_from_kubeconfig(write_kubeconfig(tmp_path / "tiny.yaml", content))


def test_requests_and_their_headers_pass(client: Client, tiny: TinyServer) -> None:
    """A proxy without a fault cannot be told from the server, whose admin it is."""
    assert client.ask() == (200, {"from": "tiny", "agent": "a test"})
    before = len(tiny.posted)
    assert client.ask("POST", "/things", "one") == (201, {"posted": before + 1})
    assert tiny.posted[-1] == "one"
    assert client.ask()[0] == 200, "the connection is kept"


def test_what_passed_is_noted(client: Client, proxy: FaultProxy) -> None:
    """A test can ask which requests reached the server, and what it answered."""
    client.ask("POST", "/things", "one")
    client.ask()
    assert [(p.method, p.path, p.status) for p in proxy.passed()] == [
        ("POST", "/things", 201),
        ("GET", "/things", 200),
    ]
    assert len(proxy.passed("POST .*")) == 1


def test_watches_pass_line_by_line(tiny: TinyServer, client: Client) -> None:
    """An event is passed on as soon as it is whole, and the end of a watch too."""
    watcher = Watcher(tiny, client)
    for name in ("a", "b"):
        tiny.tell(event("ADDED", name))
        assert watcher.next() == event("ADDED", name)
    tiny.end_watches()
    assert watcher.answer.read() == b""


def test_a_watch_ends_at_the_server_when_its_client_goes(tiny: TinyServer, client: Client) -> None:
    """No watch stays open behind a client that is gone."""
    Watcher(tiny, client).answer.close()
    client.close()
    assert wait_until(lambda: not tiny.watchers, PATIENCE_SECONDS)


def test_the_kubeconfig_leads_to_the_proxy(proxy: FaultProxy, client: Client) -> None:
    """Whoever is given the kubeconfig goes through the proxy."""
    content = yaml.safe_load(proxy.kubeconfig.read_text())
    assert content["clusters"][0]["cluster"]["server"] == f"https://127.0.0.1:{proxy.port}"
    assert client.ask()[0] == 200


def test_a_server_that_is_gone_looks_gone(pki: Pki, tmp_path: Path) -> None:
    """Behind a proxy, a server that does not listen resets connections."""
    server = TinyServer(pki, "gone")
    with (
        proxy_before(pki, tmp_path, server) as proxy,
        closing(Client(pki.authority.certificate, proxy.port)) as client,
    ):
        assert client.ask()[0] == 200
        server.stop()
        client.send()
        assert client.is_reset()


def test_several_servers_take_turns_and_stand_in_for_each_other(
    pki: Pki, tiny: TinyServer, tmp_path: Path
) -> None:
    """Each request goes to the next server, to a certain one if a test says so, never to none."""
    other = TinyServer(pki, "other")
    with (
        proxy_before(pki, tmp_path, tiny, other) as proxy,
        closing(Client(pki.authority.certificate, proxy.port)) as client,
    ):
        assert [client.ask()[1]["from"] for _ in range(4)] == ["tiny", "other"] * 2
        with proxy.send_to(1, "GET .*"):
            assert [client.ask()[1]["from"] for _ in range(3)] == ["other"] * 3
        other.stop()
        assert {client.ask()[1]["from"] for _ in range(3)} == {"tiny"}


# -- drop --


def test_drop_is_mute_and_lets_streams_go_on_afterwards(
    tiny: TinyServer, proxy: FaultProxy, new_client: Callable[[], Client]
) -> None:
    """Nothing gets through a drop; afterwards only streams that stood still go on."""
    kept, watching, fresh = new_client(), new_client(), new_client()
    kept.ask()
    watcher = Watcher(tiny, watching)
    with proxy.drop() as drop:
        posted = len(tiny.posted)
        kept.send("POST", "/things", "lost")
        assert kept.hears_nothing()
        tiny.tell(event("ADDED", "late"))
        assert watcher.hears_nothing()
        with socket.create_connection(("127.0.0.1", proxy.port), PATIENCE_SECONDS) as mute:
            mute.sendall(b"hello?")
            mute.settimeout(MUTE_SECONDS)
            with pytest.raises(TimeoutError):
                mute.recv(1)
        assert drop.inflicted == proxy.inflicted["drop"] == 3
    assert watcher.next() == event("ADDED", "late")
    assert kept.hears_nothing(), "what was dropped never comes back"
    assert len(tiny.posted) == posted
    assert fresh.ask()[0] == 200


def test_drop_of_some_requests_lets_the_others_pass(
    proxy: FaultProxy, new_client: Callable[[], Client]
) -> None:
    """A matcher narrows a fault to requests; connections are left alone."""
    proxy.drop("POST .*")
    posting, asking = new_client(), new_client()
    posting.send("POST", "/things", "lost")
    assert posting.hears_nothing()
    assert asking.ask()[0] == 200


# -- refuse, reset, half-open --


def test_refuse_ends_connections_and_keeps_the_port(
    pki: Pki, tiny: TinyServer, proxy: FaultProxy, new_client: Callable[[], Client]
) -> None:
    """Nobody listens, and nobody else gets the port; afterwards it is as before."""
    kept, fresh = new_client(), new_client()
    watcher = Watcher(tiny, kept)
    with proxy.refuse():
        assert not listens(proxy.port)
        with pytest.raises(http.client.IncompleteRead):
            watcher.answer.read()
        with socket.socket() as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with pytest.raises(OSError, match="in use"):
                other.bind(("127.0.0.1", proxy.port))
        with pytest.raises(ConnectionRefusedError):
            fresh.ask()
    assert new_client().ask()[0] == 200


def test_reset_resets_open_and_new_connections(
    tiny: TinyServer, proxy: FaultProxy, new_client: Callable[[], Client]
) -> None:
    """A reset is one: not a mere end of the connection."""
    kept, fresh = new_client(), new_client()
    Watcher(tiny, kept)
    with proxy.reset() as reset:
        assert kept.is_reset()
        with pytest.raises(ConnectionResetError):
            fresh.ask()
        assert reset.inflicted == 2
    assert new_client().ask()[0] == 200


def test_reset_frees_those_that_a_drop_left_waiting(
    proxy: FaultProxy, new_client: Callable[[], Client]
) -> None:
    """Who was dropped learns of it by a reset, on connections from before and from during it."""
    kept = new_client()
    kept.ask()
    with proxy.drop():
        kept.send()
        mute = socket.create_connection(("127.0.0.1", proxy.port), PATIENCE_SECONDS)
        assert wait_until(lambda: proxy.inflicted["drop"] == 2, PATIENCE_SECONDS)
    with proxy.reset(), mute, pytest.raises(ConnectionResetError):
        mute.recv(1)
    assert kept.is_reset()


def test_reset_of_some_requests(
    tiny: TinyServer, proxy: FaultProxy, new_client: Callable[[], Client]
) -> None:
    """Requests that match are reset before they reach the server; open watches that match too."""
    watching, posting = new_client(), new_client()
    Watcher(tiny, watching)
    proxy.reset(r"POST .*|GET .*watch=true")
    assert watching.is_reset()
    posted = len(tiny.posted)
    posting.send("POST", "/things", "lost")
    assert posting.is_reset()
    assert len(tiny.posted) == posted
    assert new_client().ask()[0] == 200


def test_half_open_is_mute_for_ever(
    tiny: TinyServer, proxy: FaultProxy, new_client: Callable[[], Client]
) -> None:
    """Open streams fall silent, new ones begin and do so too, and answers end in their middle."""
    old, new, asking = new_client(), new_client(), new_client()
    watcher = Watcher(tiny, old)
    with proxy.half_open() as half_open:
        later = Watcher(tiny, new)
        answer = asking.send("POST", "/things", "done").getresponse()
        assert answer.status == 201 and tiny.posted[-1] == "done"
        assert answer.read(5) == b'{"pos'
        assert half_open.inflicted == 3
    tiny.tell(event("ADDED", "unheard"))
    assert watcher.hears_nothing()
    assert later.hears_nothing()
    assert new_client().ask()[0] == 200


# -- slow, overloaded, broken --


def test_delay_makes_requests_and_events_late_but_not_one_after_the_other(
    tiny: TinyServer, proxy: FaultProxy, new_client: Callable[[], Client]
) -> None:
    """Latency does not add up: events sent together arrive together."""
    asking, watcher = new_client(), Watcher(tiny, new_client())
    asking.ask()
    with proxy.delay(DELAY_SECONDS):
        started = time.monotonic()
        asking.ask()
        assert time.monotonic() - started >= DELAY_SECONDS
        started = time.monotonic()
        tiny.tell(*(event("ADDED", str(number)) for number in range(EVENTS)))
        for _ in range(EVENTS):
            watcher.next()
        assert DELAY_SECONDS <= time.monotonic() - started < EVENTS * DELAY_SECONDS / 2


def test_answers_instead_of_the_server(client: Client, proxy: FaultProxy, tiny: TinyServer) -> None:
    """An overloaded server says when to come back, as a Status."""
    with proxy.answer(429, "POST .*", retry_after=2) as answer:
        posted = len(tiny.posted)
        found = client.send("POST", "/things", "no").getresponse()
        status = json.loads(found.read())
        assert (found.status, found.headers["Retry-After"]) == (429, "2")
        assert (status["kind"], status["code"], status["reason"]) == (
            "Status",
            429,
            "TooManyRequests",
        )
        assert client.ask()[0] == 200
        assert answer.inflicted == 1 and len(tiny.posted) == posted
    assert client.ask("POST", "/things", "yes")[0] == 201


def test_answers_wrongly_with_a_body(client: Client, proxy: FaultProxy) -> None:
    """A server that is wrong is played with any body at all."""
    with proxy.answer(200, "GET .*", body={"kind": "PodList", "items": []}):
        assert client.ask() == (200, {"kind": "PodList", "items": []})


@pytest.mark.parametrize("mute", [False, True])
def test_a_lost_reply_is_of_a_deed_that_was_done(
    client: Client, proxy: FaultProxy, tiny: TinyServer, mute: bool
) -> None:
    """The server carries it out, the client never learns; so often as is wanted."""
    proxy.lose_reply("POST .*", times=1, mute=mute)
    client.send("POST", "/things", "done")
    if mute:
        assert client.hears_nothing()
    else:
        assert client.is_reset()
    client.close()
    assert tiny.posted[-1] == "done"
    assert client.ask("POST", "/things", "again")[0] == 201


# -- watches --


def test_buffered_watches_bring_nothing_until_it_is_lifted(
    tiny: TinyServer, proxy: FaultProxy, new_client: Callable[[], Client]
) -> None:
    """A buffering proxy holds events back, and even the headers of a new watch."""
    old, new = new_client(), new_client()
    watcher = Watcher(tiny, old)
    with proxy.buffer_watch():
        new.send("GET", WATCH)
        assert wait_until(lambda: len(tiny.watchers) == 2, PATIENCE_SECONDS)
        tiny.tell(event("ADDED", "a"), event("ADDED", "b"))
        assert watcher.hears_nothing()
        assert new.hears_nothing()
        assert new_client().ask()[0] == 200
    for answer in (watcher.answer, new.connection.getresponse()):
        assert [json.loads(answer.readline())["object"]["metadata"]["name"] for _ in "ab"] == [
            "a",
            "b",
        ]


def test_one_event_is_swallowed(tiny: TinyServer, proxy: FaultProxy, client: Client) -> None:
    """The first event that fits is lost, the others arrive, in their order."""
    watcher = Watcher(tiny, client)
    swallow = proxy.swallow(
        type="MODIFIED", name="a.*", where=lambda found: found["object"].get("phase") == "Running"
    )
    others = (event("ADDED", "ab"), event("MODIFIED", "b", phase="Running"), event("MODIFIED", "a"))
    tiny.tell(*others)
    assert [watcher.next() for _ in others] == list(others)
    assert not swallow.done.is_set()
    lost = event("MODIFIED", "ab", phase="Running")
    tiny.tell(lost, event("ADDED", "next"), lost)
    assert watcher.next() == event("ADDED", "next")
    assert watcher.next() == lost, "only one was to be swallowed"
    swallow.wait_done(0.0)
    assert proxy.inflicted["swallow"] == 1


# -- late requests --


def test_a_held_request_is_carried_out_when_it_is_released(
    client: Client, proxy: FaultProxy, tiny: TinyServer
) -> None:
    """A request that is held reaches the server only when it is released, and is answered then."""
    hold = proxy.hold("POST /things", body="late")
    client.ask("POST", "/things", "early")
    client.send("POST", "/things", "too late")
    assert hold.wait_caught().body == b"too late"
    assert tiny.posted[-1] == "early"
    assert client.hears_nothing()
    assert hold.release() == 201
    assert client.connection.getresponse().status == 201
    assert tiny.posted[-1] == "too late"


def test_a_held_request_outlives_its_client(
    client: Client, proxy: FaultProxy, tiny: TinyServer
) -> None:
    """A request that is released after its client went is carried out all the same."""
    hold = proxy.hold("POST .*")
    client.send("POST", "/things", "of a dead client")
    hold.wait_caught()
    client.close()
    assert client.ask("POST", "/things", "next")[0] == 201, "only one is held"
    assert hold.release() == 201
    assert tiny.posted[-1] == "of a dead client"


def test_lifting_all_makes_whole_again(client: Client, proxy: FaultProxy) -> None:
    """A test that forgot what it set can start anew."""
    proxy.refuse()
    proxy.answer(500)
    proxy.drop("GET .*")
    proxy.lift_all()
    assert client.ask()[0] == 200


# -- selecting --


@pytest.mark.parametrize(
    ("line", "fits"),
    [
        ("", True),
        ("POST .*/pods", True),
        ("POST .*", True),
        ("GET .*", False),
        ("POST .*/pod", False),
        (r".*\?fieldManager=federate", True),
    ],
)
def test_requests_are_selected_with_or_without_their_query(line: str, fits: bool) -> None:
    """An expression fits all of a request's line, whose query may be left out."""
    call = Call(
        method="POST", path="/api/v1/namespaces/a/pods", query="fieldManager=federate", body=b"{}"
    )
    assert Requests(line=line).match(call) is fits


def test_requests_are_selected_by_their_body() -> None:
    """A part of the body is enough, and no connection fits without one."""
    call = Call(method="POST", path="/", query="", body=b'{"name":"a"}')
    assert Requests(body='"name":"a"').match(call)
    assert not Requests(body='"name":"b"').match(call)
    assert not Requests(body="a").is_everything


def test_events_without_a_name_are_no_match() -> None:
    """A bookmark has no name."""
    bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "7"}}}
    assert not Events(name=".+").match(bookmark)
    assert Events(type="BOOKMARK").match(bookmark)
