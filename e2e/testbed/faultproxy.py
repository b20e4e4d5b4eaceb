"""A proxy in front of one or several API servers that fails as networks and servers do.

It ends TLS with a certificate of its own and asks the API servers as the cluster's admin, so that
whoever is given `FaultProxy.kubeconfig` goes through it and needs to know nothing. Requests are
read whole and sent on; watches are passed on line by line. It lives in a thread with an event loop
of its own; every method may be called from any thread and has taken effect when it returns.

A request that was read is carried out even when its client goes away meanwhile, as a server would;
only a watch ends with its client. Nothing is repeated here.
"""

import asyncio
import json
import selectors
import socket
import ssl
import struct
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from itertools import count
from typing import Any, NoReturn, Self, TypeVar

import aiohttp
from aiohttp import web
from multidict import CIMultiDict

from .errors import TestbedError
from .faults import (
    Answer,
    Call,
    Delay,
    Events,
    Fault,
    Hold,
    Kind,
    LoseReply,
    Requests,
    Route,
    Swallow,
)
from .kubeconfigs import render_kubeconfig, write_kubeconfig
from .ports import free_ports
from .provider import TestCluster
from .proxy_keys import ProxyKeys, keys_before

T = TypeVar("T")
F = TypeVar("F", bound=Fault)

ORDER_SECONDS = 10.0
"""How long an order to the proxy's thread may take on a busy machine."""

BACKLOG = 512
LARGEST_BODY_BYTES = 64 * 1024 * 1024
KEEP_ALIVE_SECONDS = 3600.0
"""Longer than any client keeps an idle connection: the proxy hangs up on nobody by itself."""

PORT_ATTEMPTS = 5

CLOSING_SECONDS = 5.0
CLOSING_LOOKS = 1000
"""How long connections may take to close, and how often that is looked at."""

OF_THE_LOOP = 1
"""The socket by which other threads wake a loop."""

HANGS_UP_AT_ONCE = struct.pack("ii", 1, 0)
"""SO_LINGER with no time: closing sends a reset."""

OF_THE_CONNECTION = frozenset(
    {"connection", "keep-alive", "transfer-encoding", "content-length", "host", "upgrade"}
)
"""Headers that belong to one connection and are made anew for the next."""

ADDED_BY_AIOHTTP = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    """A request that reached an API server; watches are not noted."""

    at: float
    """When the answer came, on the monotonic clock."""
    method: str
    path: str
    status: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What an API server answered, read whole."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes


@dataclass(slots=True, kw_only=True, eq=False)
class Exchange:
    """A request in the proxy's hands, and the connection it came by."""

    call: Call
    request: web.BaseRequest
    is_dead: bool = False
    """Nothing more is passed on, and the connection stays open."""


class LostUpstream(ConnectionError):
    """An API server did not answer, or broke off: the proxy does to its client the same."""


class FaultProxy:
    """One listener, some API servers behind it, and the faults that are set."""

    def __init__(
        self,
        *,
        name: str,
        upstreams: Sequence[str],
        keys: ProxyKeys,
    ) -> None:
        self.name = name
        self.upstreams = list(upstreams)
        self.inflicted: Counter[str] = Counter()
        """How often each kind of fault struck, in the proxy's whole life."""
        self._keys = keys
        self._server_tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._server_tls.load_cert_chain(keys.server.certificate, keys.server.key)
        self._passed: list[Passed] = []
        self._turns = count()
        # Everything below belongs to the loop's thread.
        self._faults: list[Fault] = []
        self._exchanges: set[Exchange] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._mute: dict[socket.socket, asyncio.Task[None]] = {}
        """Connections that were accepted during a drop, and who listens to them."""
        self._accepting: asyncio.Task[None] | None = None
        self._sockets = selectors.DefaultSelector()
        self._loop = asyncio.SelectorEventLoop(self._sockets)
        self._thread = threading.Thread(target=self._live, name=f"proxy-{name}", daemon=True)
        self.port, self._port_holder = reserve_port()
        self.kubeconfig = keys.folder / f"proxy-{self.port}.kubeconfig.yaml"
        """What a client is given instead of the cluster's own."""

    @classmethod
    def before(cls, cluster: TestCluster, *, upstreams: Sequence[str] = ()) -> Self:
        """Make a proxy in front of a cluster's API server, or of several that you name by URL."""
        return cls(
            name=cluster.name,
            upstreams=upstreams or [cluster.api_url],
            keys=keys_before(cluster),
        )

    # -- its life --

    def __enter__(self) -> Self:
        content = render_kubeconfig(
            name=self.name,
            server=f"https://127.0.0.1:{self.port}",
            authority=self._keys.authority,
            user=self._keys.user,
        )
        self._keys.folder.mkdir(parents=True, exist_ok=True)
        write_kubeconfig(self.kubeconfig, content)
        self._thread.start()
        self._order(self._open())
        return self

    def __exit__(self, *_: object) -> None:
        self._order(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._port_holder.close()
        self._keys.remove()

    def _live(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _order(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(ORDER_SECONDS)

    async def _open(self) -> None:
        tls = ssl.create_default_context(cafile=str(self._keys.upstream_authority))
        tls.load_cert_chain(self._keys.user.certificate, self._keys.user.key)
        self._connector = aiohttp.TCPConnector(ssl=tls, limit=0)
        self._session = aiohttp.ClientSession(
            connector=self._connector,
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=ADDED_BY_AIOHTTP,
            middlewares=(nothing_is_repeated,),
        )
        self._changed = asyncio.Event()
        self._server = web.Server(
            self._serve,
            request_factory=new_request,
            handler_cancellation=True,
            keepalive_timeout=KEEP_ALIVE_SECONDS,
            access_log=None,
        )
        self._listen()

    async def _close(self) -> None:
        await self._stop_listening()
        self._hang_up()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.shutdown(0.0)
        await self._connector.close(abort_ssl=True)
        await self._session.close()
        await self._wait_sockets_closed()

    async def _wait_sockets_closed(self) -> None:
        """Wait for what was told to close: an aborted connection a turn, another for its peer."""
        for _ in range(CLOSING_LOOKS):
            if len(self._sockets.get_map()) <= OF_THE_LOOP:
                return
            await asyncio.sleep(CLOSING_SECONDS / CLOSING_LOOKS)

    def _spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # -- faults, from any thread --

    def drop(self, matching: str = "") -> Fault:
        """Swallow everything, as a firewall does that drops packets.

        New connections are accepted and stay mute for ever, and so do requests that come now, which
        never reach a server. Streams and answers under way stand still and go on afterwards.
        """
        return self._set(Fault(Kind.DROP, Requests(line=matching), self))

    def refuse(self) -> Fault:
        """Listen no more, and end all connections, as when a server was killed."""
        return self._set(Fault(Kind.REFUSE, Requests(), self))

    def reset(self, matching: str = "") -> Fault:
        """Answer with a TCP reset, on connections that are open and on new ones."""
        return self._set(Fault(Kind.RESET, Requests(line=matching), self))

    def half_open(self, matching: str = "") -> Fault:
        """Lose the way back for ever: the other side is never heard of again.

        Streams that are open now are mute for ever. New requests reach a server; their answers stop
        after the headers and half of the body.
        """
        return self._set(Fault(Kind.HALF_OPEN, Requests(line=matching), self))

    def delay(self, seconds: float, matching: str = "") -> Fault:
        """Be slow: each request and each line of a stream comes so much later."""
        return self._set(Delay(seconds, Requests(line=matching), self))

    def answer(
        self,
        status: int,
        matching: str = "",
        *,
        retry_after: int | None = None,
        body: dict[str, Any] | None = None,
    ) -> Fault:
        """Answer requests instead of a server, with a Status or the body; open watches go on."""
        requests = Requests(line=matching)
        return self._set(Answer(status, requests, self, retry_after=retry_after, body=body))

    def lose_reply(
        self, matching: str = "", *, body: str = "", mute: bool = False, times: int | None = None
    ) -> Fault:
        """Let requests be carried out and reset the connection instead of answering.

        `mute` keeps it open instead. Watches are left alone.
        """
        requests = Requests(line=matching, body=body)
        return self._set(LoseReply(times, requests, self, mute=mute))

    def buffer_watch(self, matching: str = "") -> Fault:
        """Keep back what watches bring, headers of new ones included, until it is lifted."""
        return self._set(Fault(Kind.BUFFER_WATCH, Requests(line=matching), self))

    def swallow(
        self,
        times: int = 1,
        *,
        type: str = "",
        name: str = "",
        where: Callable[[dict[str, Any]], bool] | None = None,
        matching: str = "",
    ) -> Swallow:
        """Keep so many watch events from being passed on; see `Events` for how to select them."""
        events = Events(type=type, name=name, where=where)
        return self._set(Swallow(times, events, Requests(line=matching), self))

    def hold(self, matching: str, *, body: str = "") -> Hold:
        """Keep the next such request, until it is released and so becomes a late one."""
        return self._set(Hold(Requests(line=matching, body=body), self))

    def send_to(self, upstream: int, matching: str = "") -> Fault:
        """Send requests to one of the API servers instead of each in turn."""
        return self._set(Route(upstream, Requests(line=matching), self))

    def lift(self, fault: Fault) -> None:
        """Take a fault away."""
        self._order(self._lift(fault))

    def lift_all(self) -> None:
        """Take every fault away."""
        for fault in list(self._faults):
            self.lift(fault)

    def passed(self, matching: str = "") -> list[Passed]:
        """Return the requests that reached an API server, by the same expression as faults."""
        requests = Requests(line=matching)
        return [
            passed
            for passed in list(self._passed)
            if requests.match(Call(method=passed.method, path=passed.path, query="", body=b""))
        ]

    def _set(self, fault: F) -> F:
        self._order(self._add(fault))
        return fault

    async def _add(self, fault: Fault) -> None:
        self._faults.append(fault)
        match fault.kind:
            case Kind.REFUSE:
                await self._stop_listening()
                self._strike(fault, self._hang_up())
            case Kind.RESET if fault.requests.is_everything:
                self._strike(fault, self._hang_up(with_reset=True))
            case Kind.RESET:
                for exchange in self._matching(fault):
                    self._strike(fault)
                    reset_connection(exchange.request.transport)
            case Kind.HALF_OPEN:
                for exchange in self._matching(fault):
                    self._strike(fault)
                    exchange.is_dead = True
        self._tell_change()

    async def _lift(self, fault: Fault) -> None:
        if fault not in self._faults:
            return
        self._faults.remove(fault)
        if fault.kind is Kind.REFUSE and self._active(Kind.REFUSE) is None:
            self._listen()
        self._tell_change()

    def _tell_change(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _strike(self, fault: Fault, times: int = 1) -> None:
        fault.inflicted += times
        self.inflicted[fault.kind] += times

    def _matching(self, fault: Fault) -> list[Exchange]:
        return [exchange for exchange in self._exchanges if fault.requests.match(exchange.call)]

    def _active(self, kind: Kind, call: Call | None = None) -> Fault | None:
        """Return a fault that is set for the request; without one, for whole connections."""
        for fault in self._faults:
            if fault.kind is kind:
                fits = fault.requests.is_everything if call is None else fault.requests.match(call)
                if fits:
                    return fault
        return None

    def _all_active(self, kind: type[F], call: Call) -> list[F]:
        return [f for f in self._faults if isinstance(f, kind) and f.requests.match(call)]

    # -- connections --

    def _listen(self) -> None:
        listener = bound_socket(self.port)
        listener.setblocking(False)
        listener.listen(BACKLOG)
        self._accepting = self._spawn(self._accept(listener))

    async def _stop_listening(self) -> None:
        if self._accepting is not None:
            self._accepting.cancel()
            await asyncio.gather(self._accepting, return_exceptions=True)
            self._accepting = None

    async def _accept(self, listener: socket.socket) -> None:
        with listener:
            while True:
                connection, _ = await self._loop.sock_accept(listener)
                self._spawn(self._welcome(connection))

    async def _welcome(self, connection: socket.socket) -> None:
        if fault := self._active(Kind.DROP):
            self._strike(fault)
            self._mute[connection] = self._spawn(self._keep_mute(connection))
        elif fault := self._active(Kind.RESET):
            self._strike(fault)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, HANGS_UP_AT_ONCE)
            connection.close()
        else:
            # A client that gives up during the handshake is no business of the proxy's.
            with suppress(OSError):
                await self._loop.connect_accepted_socket(
                    self._server, connection, ssl=self._server_tls
                )

    async def _keep_mute(self, connection: socket.socket) -> None:
        """Read what comes, and say nothing until the client hangs up."""
        try:
            with connection, suppress(OSError):
                while await self._loop.sock_recv(connection, 65536):
                    pass
        finally:
            del self._mute[connection]

    def _hang_up(self, *, with_reset: bool = False) -> int:
        """End all connections, mute ones too; returns how many there were."""
        mute = list(self._mute.items())
        for connection, listening in mute:
            if with_reset:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, HANGS_UP_AT_ONCE)
            listening.cancel()
        transports = [handler.transport for handler in self._server.connections]
        for transport in transports:
            if with_reset:
                reset_connection(transport)
            elif transport is not None:
                transport.abort()
        return len(transports) + len(mute)

    # -- requests --

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        call = Call(
            method=request.method,
            path=request.rel_url.raw_path,
            query=request.rel_url.raw_query_string,
            body=await request.read(),
        )
        exchange = Exchange(call=call, request=request)
        self._exchanges.add(exchange)
        try:
            return await self._answer(exchange)
        except LostUpstream:
            reset_connection(request.transport)
            await until_cancelled()
        finally:
            self._exchanges.discard(exchange)

    async def _answer(self, exchange: Exchange) -> web.StreamResponse:
        call = exchange.call
        if fault := self._active(Kind.DROP, call):
            self._strike(fault)
            await until_cancelled()
        if fault := self._active(Kind.RESET, call):
            self._strike(fault)
            reset_connection(exchange.request.transport)
            await until_cancelled()
        await self._be_late(call)
        if answers := self._all_active(Answer, call):
            self._strike(answers[0])
            return refusal(answers[0])
        if call.is_watch:
            return await self._stream(exchange)
        return await self._reply(exchange)

    async def _be_late(self, call: Call) -> None:
        for delay in self._all_active(Delay, call):
            self._strike(delay)
            await asyncio.sleep(delay.seconds)

    async def _reply(self, exchange: Exchange) -> web.StreamResponse:
        call = exchange.call
        # Carried out whatever becomes of the client: the server has the request.
        forwarding = self._spawn(self._forward_once_free(exchange))
        forwarding.add_done_callback(lambda done: done.cancelled() or done.exception())
        reply = await asyncio.shield(forwarding)
        for loss in self._all_active(LoseReply, call):
            if not loss.is_spent:
                self._strike(loss)
                if not loss.mute:
                    reset_connection(exchange.request.transport)
                await until_cancelled()
        await self._until_passable(exchange)
        if fault := self._active(Kind.HALF_OPEN, call):
            self._strike(fault)
            return await half_answer(exchange.request, reply)
        return web.Response(
            status=reply.status, body=reply.body, headers=CIMultiDict(reply.headers)
        )

    async def _forward_once_free(self, exchange: Exchange) -> Reply:
        """Forward a request; one that is held waits to be released."""
        call = exchange.call
        hold = next((h for h in self._all_active(Hold, call) if h.call is None), None)
        if hold is None:
            return await self._forward(exchange)
        self._strike(hold)
        free = asyncio.Event()

        def let_go() -> None:
            self._loop.call_soon_threadsafe(free.set)

        hold.catch(call, let_go)
        await free.wait()
        try:
            reply = await self._forward(exchange)
        except LostUpstream as error:
            hold.answered.set_exception(error)
            raise
        hold.answered.set_result(reply.status)
        return reply

    async def _forward(self, exchange: Exchange) -> Reply:
        call = exchange.call
        async with self._asked(exchange) as response:
            reply = Reply(
                status=response.status,
                headers=passed_on(response.headers.items()),
                body=await response.read(),
            )
        self._passed.append(
            Passed(at=time.monotonic(), method=call.method, path=call.path, status=response.status)
        )
        return reply

    @asynccontextmanager
    async def _asked(self, exchange: Exchange) -> AsyncIterator[aiohttp.ClientResponse]:
        """Ask an API server; the next one where nobody listens."""
        call = exchange.call
        for upstream in self._upstreams_for(call):
            try:
                response = await self._session.request(
                    call.method,
                    upstream + str(exchange.request.rel_url),
                    data=call.body or None,
                    headers=passed_on(exchange.request.headers.items()),
                    allow_redirects=False,
                )
            except aiohttp.ClientConnectorError:
                continue
            except aiohttp.ClientError as error:
                raise LostUpstream(str(error)) from error
            try:
                yield response
            except aiohttp.ClientError as error:
                raise LostUpstream(str(error)) from error
            finally:
                if call.is_watch:
                    response.close()
                else:
                    response.release()
            return
        raise LostUpstream(f"no API server of {self.name} takes connections")

    def _upstreams_for(self, call: Call) -> list[str]:
        if routes := self._all_active(Route, call):
            self._strike(routes[-1])
            return [self.upstreams[routes[-1].upstream]]
        first = next(self._turns) % len(self.upstreams)
        return self.upstreams[first:] + self.upstreams[:first]

    # -- watches --

    async def _stream(self, exchange: Exchange) -> web.StreamResponse:
        async with self._asked(exchange) as upstream:
            headers = CIMultiDict(passed_on(upstream.headers.items()))
            response = web.StreamResponse(status=upstream.status, headers=headers)
            await self._until_passable(exchange)
            await response.prepare(exchange.request)
            if fault := self._active(Kind.HALF_OPEN, exchange.call):
                self._strike(fault)
                await until_cancelled()
            lines: asyncio.Queue[Line] = asyncio.Queue()
            # Read at the server's pace: what is held back here is no burden to it.
            reading = self._spawn(read_lines(upstream.content, lines))
            try:
                while (line := await lines.get()).text:
                    await self._pass_on(exchange, response, line)
                await reading
            finally:
                reading.cancel()
            await self._until_passable(exchange)
        await response.write_eof()
        return response

    async def _pass_on(
        self, exchange: Exchange, response: web.StreamResponse, line: "Line"
    ) -> None:
        for delay in self._all_active(Delay, exchange.call):
            self._strike(delay)
            await asyncio.sleep(line.came_at + delay.seconds - time.monotonic())
        await self._until_passable(exchange)
        for swallow in self._all_active(Swallow, exchange.call):
            if swallow.takes(json.loads(line.text)):
                self._strike(swallow)
                swallow.note()
                return
        await response.write(line.text)

    async def _until_passable(self, exchange: Exchange) -> None:
        """Wait while nothing may be passed on to the client: for ever, if it is dead."""
        told: set[Fault] = set()
        while True:
            if exchange.is_dead:
                await until_cancelled()
            fault = self._active(Kind.DROP, exchange.call)
            if fault is None and exchange.call.is_watch:
                fault = self._active(Kind.BUFFER_WATCH, exchange.call)
            if fault is None:
                return
            if fault not in told:
                told.add(fault)
                self._strike(fault)
            await self._changed.wait()


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line of a stream, with its end; an empty one is the stream's end."""

    text: bytes
    came_at: float = field(default_factory=time.monotonic)


async def read_lines(content: aiohttp.StreamReader, lines: asyncio.Queue[Line]) -> None:
    """Put each line on the queue as soon as it is whole, and at the end an empty one.

    Raises:
        aiohttp.ClientError: the stream broke; the empty line stands on the queue all the same.
    """
    rest = b""
    try:
        while chunk := await content.readany():
            *whole, rest = (rest + chunk).split(b"\n")
            for text in whole:
                lines.put_nowait(Line(text=text + b"\n"))
    finally:
        lines.put_nowait(Line(text=b""))


async def until_cancelled() -> NoReturn:
    """Wait for ever: what waits is cancelled when its client goes."""
    while True:
        await asyncio.Event().wait()


async def half_answer(request: web.BaseRequest, reply: Reply) -> web.StreamResponse:
    """Send headers and half of the body, and nothing ever after."""
    response = web.StreamResponse(status=reply.status, headers=CIMultiDict(reply.headers))
    response.content_length = len(reply.body)
    await response.prepare(request)
    await response.write(reply.body[: len(reply.body) // 2])
    await until_cancelled()


def refusal(answer: Answer) -> web.Response:
    """Render what an API server says that does not want to, cannot, or is wrong."""
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": answer.status,
        "reason": "TooManyRequests" if answer.status == 429 else "InternalError",
        "message": f"the fault proxy says {HTTPStatus(answer.status).phrase}",
    }
    body = status if answer.body is None else answer.body
    response = web.json_response(body, status=answer.status)
    if answer.retry_after is not None:
        response.headers["Retry-After"] = str(answer.retry_after)
    return response


def passed_on(headers: Any) -> list[tuple[str, str]]:
    """Leave out the headers that belong to one connection."""
    return [(name, value) for name, value in headers if name.lower() not in OF_THE_CONNECTION]


def new_request(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> Any:
    """Make a request that may be as large as API servers allow."""
    return web.BaseRequest(
        message,
        payload,
        protocol,
        writer,
        task,
        asyncio.get_running_loop(),
        client_max_size=LARGEST_BODY_BYTES,
    )


async def nothing_is_repeated(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Keep aiohttp from sending a request again when a kept connection turns out to be dead."""
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise aiohttp.ClientError(str(error)) from error


def reset_connection(transport: asyncio.BaseTransport | None) -> None:
    """End a connection with a TCP reset, unless its client ends it already."""
    if not isinstance(transport, asyncio.Transport) or transport.is_closing():
        return
    connection = transport.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, HANGS_UP_AT_ONCE)
    transport.abort()


def reserve_port() -> tuple[int, socket.socket]:
    """Take a free port for good: a socket that is bound, and does not listen, keeps others away."""
    for _ in range(PORT_ATTEMPTS):
        (port,) = free_ports(1)
        with suppress(OSError):
            return port, bound_socket(port)
    raise TestbedError("No free port for a proxy.")


def bound_socket(port: int) -> socket.socket:
    """Bind a socket to the port, beside others of this process that are bound to it."""
    found = socket.socket()
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        found.bind(("127.0.0.1", port))
    except OSError:
        found.close()
        raise
    return found
