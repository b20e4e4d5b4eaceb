"""A kubelet server on loopback TLS; access, pods, pages and target behind it are played."""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import h11

from e2e.testbed.pki import Authority, KeyPair
from federate.kubelet.limits import Limits
from federate.kubelet.ports import (
    Caller,
    Located,
    NodeAccess,
    Page,
    PeerCertificate,
    Reply,
    Unauthenticated,
    UpstreamCall,
)
from federate.kubelet.server import KubeletServer, listen
from federate.model.objects import JsonObject, ObjectKey, key_of, uid_of
from tests.support.builders import pod

API_SERVER = "kube-apiserver-kubelet-client"
END = b"\0end"
"""What a played stream understands as: the other side ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """Certificates of one client CA, and of one that nobody trusts."""

    authority: KeyPair
    server: KeyPair
    api_server: KeyPair
    wrong: KeyPair

    @classmethod
    def make(cls, folder: Path) -> Keys:
        authority = Authority(folder, "hub-ca")
        return cls(
            authority=authority.files,
            server=authority.issue_server("node", addresses=["127.0.0.1"], names=["node"]),
            api_server=authority.issue_client("api", user=API_SERVER, groups=["system:masters"]),
            wrong=Authority(folder, "wrong-ca").issue_client("wrong", user=API_SERVER),
        )

    def serving(self) -> ssl.SSLContext:
        context = ssl.create_default_context(
            ssl.Purpose.CLIENT_AUTH, cafile=str(self.authority.certificate)
        )
        context.load_cert_chain(self.server.certificate, self.server.key)
        context.verify_mode = ssl.CERT_OPTIONAL
        return context

    def client(self, pair: KeyPair | None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.authority.certificate))
        if pair is not None:
            context.load_cert_chain(pair.certificate, pair.key)
        return context


class PlayedAccess:
    """Knows the tokens `metrics` (usage only), `nobody` (no rights) and `admin`."""

    def __init__(self) -> None:
        self.fails: Exception | None = None
        self.questions = 0
        self.hangs = False

    async def authenticate(self, certificate: PeerCertificate | None, bearer: str) -> Caller:
        self.questions += 1
        if self.fails is not None:
            raise self.fails
        if self.hangs:
            await asyncio.Event().wait()
        if certificate is not None:
            return Caller(user=certificate.common_name, groups=certificate.organizations)
        if bearer in ("metrics", "nobody", "admin"):
            return Caller(user=bearer)
        raise Unauthenticated

    async def may(self, caller: Caller, alternatives: Sequence[NodeAccess]) -> bool:
        if caller.user in (API_SERVER, "admin"):
            return True
        return caller.user == "metrics" and NodeAccess("get", "metrics") in alternatives


class PlayedPods:
    """The pods of the node."""

    def __init__(self, *located: Located) -> None:
        self.held = {key_of(one.hub_pod): one for one in located}
        self.waiting: dict[ObjectKey, JsonObject] = {}
        """Hub pods without a mirror."""

    def find(self, key: ObjectKey, uid: str = "") -> Located | None:
        found = self.held.get(key)
        return found if found is not None and uid in ("", uid_of(found.hub_pod)) else None

    def hub_pod(self, key: ObjectKey) -> JsonObject | None:
        found = self.held.get(key)
        return found.hub_pod if found is not None else self.waiting.get(key)

    def all(self) -> Sequence[JsonObject]:
        return [one.hub_pod for one in self.held.values()]

    def located(self) -> Sequence[Located]:
        return list(self.held.values())


class PlayedPages:
    """Every page is its own path, but one that does not exist."""

    def __init__(self) -> None:
        self.fails: Exception | None = None
        self.waits: asyncio.Event | None = None
        self.size = 0

    async def page(
        self, path: str, query: Mapping[str, str], headers: Mapping[str, str]
    ) -> Page | None:
        if self.waits is not None:
            await self.waits.wait()
        if self.fails is not None:
            raise self.fails
        if path == "/configz":
            return None
        json = path in ("/pods", "/stats/summary")
        body = path.encode() + b"x" * self.size
        return Page(content_type="application/json" if json else "text/plain", body=body)


class Played:
    """The target's side of an upgraded connection: gives back what it gets."""

    def __init__(self) -> None:
        self.got = bytearray()
        self.closed = asyncio.Event()
        self._back: asyncio.Queue[bytes] = asyncio.Queue()

    def say(self, data: bytes) -> None:
        self._back.put_nowait(data)

    async def read(self, limit: int = 65536) -> bytes:
        if self.closed.is_set():
            return b""
        data = await self._back.get()
        return b"" if data == END else data

    async def write(self, data: bytes) -> None:
        self.got += data
        self._back.put_nowait(data)

    async def finish(self) -> None:
        self.close()

    def close(self) -> None:
        if not self.closed.is_set():
            self.closed.set()
            self._back.put_nowait(END)


def switching(
    *headers: tuple[str, str], upgrade: str = "SPDY/3.1", status: int = 101
) -> Callable[[UpstreamCall], Reply]:
    """Play a target that switches; the stream is the reply's."""

    def reply(_call: UpstreamCall) -> Reply:
        return Reply(
            status=status,
            headers=[("Upgrade", upgrade), ("Connection", "Upgrade"), *headers],
            upgraded=Played(),
        )

    return reply


def saying(
    *chunks: bytes, status: int = 200, headers: Sequence[tuple[str, str]] = ()
) -> Callable[[UpstreamCall], Reply]:
    """Play a target that answers with a body."""

    async def body() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    return lambda _call: Reply(status=status, headers=headers, body=body())


class PlayedTarget:
    """Opens whatever `reply` plays, and notes what was asked."""

    def __init__(self) -> None:
        self.calls: list[UpstreamCall] = []
        self.replies: list[Reply] = []
        self.open = 0
        self.reply: Callable[[UpstreamCall], Reply] = saying(b"one\n", b"two\n")
        self.fails: Exception | None = None
        self.waits: asyncio.Event | None = None

    @asynccontextmanager
    async def open_call(self, call: UpstreamCall) -> AsyncIterator[Reply]:
        self.calls.append(call)
        self.open += 1
        try:
            if self.waits is not None:
                await self.waits.wait()
            if self.fails is not None:
                raise self.fails
            reply = self.reply(call)
            self.replies.append(reply)
            yield reply
        finally:
            self.open -= 1

    @property
    def stream(self) -> Played:
        """The last upgraded connection."""
        stream = self.replies[-1].upgraded
        assert isinstance(stream, Played)
        return stream


class Counts:
    """An observer that remembers."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, int]] = []
        self.open: Counter[str] = Counter()
        self.bytes: Counter[tuple[str, str]] = Counter()

    def request(self, *, kind: str, code: int) -> None:
        self.requests.append((kind, code))

    def stream_began(self, kind: str) -> None:
        self.open[kind] += 1

    def stream_ended(self, kind: str) -> None:
        self.open[kind] -= 1

    def moved(self, kind: str, direction: str, count: int) -> None:
        self.bytes[kind, str(direction)] += count


@dataclass(slots=True, kw_only=True)
class Heard:
    """A reply as a client got it. `is_cut`: the connection ended within it."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    is_cut: bool = False

    @property
    def text(self) -> str:
        return self.body.decode()


class RawClient:
    """A client's connection: raw bytes out, replies in."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._http = h11.Connection(h11.CLIENT)

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def ask(
        self, target: str, method: str = "GET", *, headers: Sequence[tuple[str, str]] = ()
    ) -> Heard:
        """Ask as a well-behaved client does, and read the whole reply."""
        lines = [f"{method} {target} HTTP/1.1", "Host: node"]
        lines += [f"{name}: {value}" for name, value in headers]
        self.send(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
        return await self.hear(method)

    async def hear(self, method: str = "GET") -> Heard:
        """Read one reply; after 101 the rest is `reader`'s."""
        self._http = h11.Connection(h11.CLIENT)
        self._http.send(
            h11.Request(
                method=method,
                target="/",
                headers=[("Host", "x"), ("Upgrade", "x"), ("Connection", "upgrade")],
            )
        )
        self._http.send(h11.EndOfMessage())
        heard = Heard(status=0)
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                try:
                    data = await self.reader.read(65536)
                except OSError:
                    data = b""
                if not data:
                    return Heard(status=heard.status, body=heard.body, is_cut=True)
                self._http.receive_data(data)
            elif isinstance(event, (h11.Response, h11.InformationalResponse)):
                if event.status_code == 100:
                    continue
                heard.status = event.status_code
                heard.headers = {
                    name.decode().lower(): value.decode() for name, value in event.headers
                }
                if event.status_code == 101:
                    return heard
            elif isinstance(event, h11.Data):
                heard.body += event.data
            else:
                return heard

    async def after_switch(self, count: int) -> bytes:
        """Read exactly so many of the raw bytes."""
        early = self._http.trailing_data[0]
        return early + await self.reader.readexactly(count - len(early))

    async def is_ended(self, seconds: float = 20.0) -> bool:
        """Tell whether the server ends the connection, and says nothing more."""
        try:
            async with asyncio.timeout(seconds):
                return await self.reader.read(1) == b""
        except TimeoutError:
            return False
        except OSError:
            return True

    def close(self) -> None:
        self.writer.transport.abort()


@dataclass(slots=True, kw_only=True)
class Stage:
    """The server and all that plays around it."""

    keys: Keys
    access: PlayedAccess = field(default_factory=PlayedAccess)
    pods: PlayedPods = field(default_factory=lambda: PlayedPods(web()))
    pages: PlayedPages = field(default_factory=PlayedPages)
    target: PlayedTarget = field(default_factory=PlayedTarget)
    counts: Counts = field(default_factory=Counts)
    tls: ssl.SSLContext | None = None
    port: int = 0
    server: KubeletServer
    task: asyncio.Task[None]
    clients: list[RawClient] = field(default_factory=list)

    async def connect(self, pair: KeyPair | None = None, *, anonymous: bool = False) -> RawClient:
        """Connect; as the hub's API server, unless told otherwise."""
        chosen = None if anonymous else pair or self.keys.api_server
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.port, ssl=self.keys.client(chosen)
        )
        self.clients.append(RawClient(reader, writer))
        return self.clients[-1]

    async def connect_raw(self) -> RawClient:
        """Connect without TLS."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.clients.append(RawClient(reader, writer))
        return self.clients[-1]

    async def ask(
        self, target: str, method: str = "GET", *, headers: Sequence[tuple[str, str]] = ()
    ) -> Heard:
        """Ask on a connection of its own, as the hub's API server."""
        client = await self.connect()
        try:
            return await client.ask(target, method, headers=headers)
        finally:
            client.close()

    async def access_breaks(self, token: str) -> Heard:
        """Ask with a token while there is a fault of ours."""
        before, self.access.fails = self.access.fails, RuntimeError("a fault")
        heard = await self.ask("/pods", headers=[("Authorization", f"Bearer {token}")])
        self.access.fails = before
        return heard

    async def is_well(self) -> bool:
        """Tell whether the API server is still served."""
        return (await self.ask("/healthz")).status == 200


def web(name: str = "web", *, mirror: ObjectKey | None = None, mirror_uid: str = "m-1") -> Located:
    """A hub pod with an init container, a container, and one that is debugged with."""
    hub_pod = (
        pod(name, namespace="shop")
        .with_uid("hub-uid")
        .with_spec(
            initContainers=[{"name": "init", "image": "x"}],
            containers=[{"name": "app", "image": "x"}],
            ephemeralContainers=[{"name": "debugger", "image": "x"}],
        )
        .build()
    )
    there = mirror or ObjectKey("hub-shop", "web-mirror")
    mirror_pod = pod(there.name, namespace=there.namespace).with_uid(mirror_uid)
    mirror_pod = mirror_pod.with_spec(
        initContainers=[{"name": "init", "image": "x"}],
        containers=[{"name": "app", "image": "x"}, {"name": "injected", "image": "x"}],
        ephemeralContainers=[{"name": "debugger", "image": "x"}],
    )
    return Located(hub_pod=hub_pod, mirror=there, mirror_uid="m-1", mirror_pod=mirror_pod.build())


@asynccontextmanager
async def kubelet(keys: Keys, *, limits: Limits | None = None) -> AsyncIterator[Stage]:
    """Serve on a free port of loopback."""
    access, pods, pages = PlayedAccess(), PlayedPods(web()), PlayedPages()
    target, counts = PlayedTarget(), Counts()
    serving: list[ssl.SSLContext | None] = [keys.serving()]
    stage: Stage | None = None
    server = KubeletServer(
        access=access,
        pods=pods,
        open_call=target.open_call,
        pages=pages,
        tls=lambda: stage.tls if stage is not None else serving[0],
        observer=counts,
        limits=limits,
    )
    listener = listen("127.0.0.1", 0)
    port = listener.getsockname()[1]
    task = asyncio.create_task(server.serve(listener))
    stage = Stage(
        keys=keys,
        access=access,
        pods=pods,
        pages=pages,
        target=target,
        counts=counts,
        tls=serving[0],
        port=port,
        server=server,
        task=task,
    )
    try:
        yield stage
    finally:
        for client in stage.clients:
            client.close()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait for a condition."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 (what is waited for knows no event)
            await asyncio.sleep(0.01)
