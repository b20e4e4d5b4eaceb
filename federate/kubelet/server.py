"""The kubelet API of one virtual node: accepts connections, and takes each request step by step.

The hub's API server is on one side, the target's on the other. Who asks and whether they may comes
before anything that a request says is looked at; then `paths` reads it, the pod is found among the
node's own, and the target is asked. What runs in the target and not on the hub (a stranger's pod, a
container that was injected there) is as if it were not there.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import errno
import socket
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, TypeVar, assert_never

import structlog

from federate.cluster.tunnel import Channel
from federate.errors import ClusterError, Throttled
from federate.kubelet import answers, paths
from federate.kubelet.answers import Answer, Refused
from federate.kubelet.clientca import peer_certificate
from federate.kubelet.http import (
    Gone,
    HttpConnection,
    HttpRequest,
    Watch,
    protocol_bearers,
    travelling,
)
from federate.kubelet.limits import Admission, Limits
from federate.kubelet.paths import HealthRequest, Kind, PageRequest, PodRequest, Refusal
from federate.kubelet.ports import (
    AccessPort,
    Caller,
    Located,
    OpenCall,
    PagesPort,
    PeerCertificate,
    PodsPort,
    Reply,
    Unauthenticated,
    Upgraded,
)
from federate.kubelet.relay import Direction, relay
from federate.kubelet.running import Opening, outcome_of
from federate.model.objects import spec_of, uid_of
from federate.model.pods import containers_of

log = structlog.stdlib.get_logger(__name__)

T = TypeVar("T")

BACKLOG = 512
"""Connections that the kernel holds until they are accepted."""

NO_ROOM_SECONDS = 0.5
"""How long accepting waits when the process has no file descriptor left."""

_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

TlsProvider = Callable[[], ssl.SSLContext | None]


class Observer(Protocol):
    """Is told what goes on. `direction` is in (towards the container) or out."""

    def request(self, *, kind: str, code: int) -> None:
        """A request was answered."""

    def stream_began(self, kind: str) -> None:
        """A stream was asked for."""

    def stream_ended(self, kind: str) -> None:
        """It has ended."""

    def moved(self, kind: str, direction: str, count: int) -> None:
        """A stream carried bytes."""


class _Nobody:
    def request(self, *, kind: str, code: int) -> None:
        """Ignore it."""

    def stream_began(self, kind: str) -> None:
        """Ignore it."""

    def stream_ended(self, kind: str) -> None:
        """Ignore it."""

    def moved(self, kind: str, direction: str, count: int) -> None:
        """Ignore it."""


@dataclass(slots=True, kw_only=True, eq=False)
class _Client:
    """One connection, and how far it is."""

    task: asyncio.Task[None] | None = None
    tls: ssl.SSLContext | None = None
    certificate: PeerCertificate | None = None
    is_answering: bool = False
    """A whole answer is being made: worth waiting for when the server stops."""

    def evict(self) -> None:
        """End it: others want its place, and it was allowed nothing yet."""
        if self.task is not None:
            self.task.cancel()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Exchange:
    """One request on its connection."""

    client: _Client = field(repr=False)
    connection: HttpConnection = field(repr=False)
    request: HttpRequest = field(repr=False)
    watch: Watch = field(repr=False)
    kind: Kind


def listen(host: str, port: int) -> socket.socket:
    """Open the socket that `serve` takes; port 0 picks a free port.

    Raises:
        OSError: the port is taken, or the address is not this host's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # "::" serves both families, whatever the system's default is.
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind((host, port))
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


class KubeletServer:
    """Answers as the kubelet of one virtual node.

    `tls` is asked for each connection; None means that there is no certificate yet, and the client
    is sent away. When it gives another context, older connections end after their next answer.
    """

    def __init__(
        self,
        *,
        access: AccessPort,
        pods: PodsPort,
        open_call: OpenCall,
        pages: PagesPort,
        tls: TlsProvider,
        observer: Observer | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._access = access
        self._pods = pods
        self._open_call = open_call
        self._pages = pages
        self._tls = tls
        self._observer = observer or _Nobody()
        self._limits = limits or Limits()
        self._admission = Admission(self._limits)
        self._clients: dict[asyncio.Task[None], _Client] = {}
        self._streams: Counter[str] = Counter()
        self._is_stopping = False

    @property
    def streams(self) -> Mapping[str, int]:
        """Count the open streams by kind."""
        return self._streams

    @property
    def admission(self) -> Admission:
        """Tell who is in."""
        return self._admission

    async def serve(self, listener: socket.socket) -> None:
        """Answer whoever connects, until cancelled; then end streams, and finish whole answers.

        Closes `listener`.

        Raises:
            OSError: no more connections can be accepted.
        """
        self._is_stopping = False
        try:
            with listener:
                await self._accept(listener)
        finally:
            await self._stop()

    # -- connections -------------------------------------------------------------------------------

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _address = await loop.sock_accept(listener)
            except ConnectionError:
                continue  # it went before we came
            except OSError as error:
                if error.errno not in _NO_ROOM:
                    raise
                log.warning("no room to accept connections to the kubelet API", error=str(error))
                await asyncio.sleep(NO_ROOM_SECONDS)
                continue
            client = _Client()
            task = asyncio.create_task(self._guarded(client, accepted))
            client.task = task
            self._clients[task] = client
            task.add_done_callback(partial(self._forget, accepted))

    def _forget(self, accepted: socket.socket, task: asyncio.Task[None]) -> None:
        del self._clients[task]
        accepted.close()  # where it ended before it began

    async def _stop(self) -> None:
        self._is_stopping = True
        answering = {task for task, client in self._clients.items() if client.is_answering}
        for task in self._clients.keys() - answering:
            task.cancel()
        if answering:
            await asyncio.wait(answering, timeout=self._limits.grace_seconds)
        rest = tuple(self._clients)
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    async def _guarded(self, client: _Client, accepted: socket.socket) -> None:
        """Serve one connection; whatever goes wrong ends it, and nothing else."""
        channel = Channel(connected=_pause)
        try:
            with self._admission.connection(client, client.evict):
                await self._serve_client(client, channel, accepted)
        except (Refused, Gone, OSError):
            return  # no room, or no TLS: nobody to tell it to
        except Exception:
            log.exception("a connection to the kubelet API failed")
        finally:
            channel.close()

    async def _serve_client(
        self, client: _Client, channel: Channel, accepted: socket.socket
    ) -> None:
        client.tls = self._tls()
        if client.tls is None:
            return
        accepted.setblocking(False)
        await asyncio.get_running_loop().connect_accepted_socket(lambda: channel, accepted)
        await self._admission.turn(client)
        await channel.begin_tls(
            client.tls, server_side=True, handshake_seconds=self._limits.handshake_seconds
        )
        client.certificate = peer_certificate(channel.transport.get_extra_info("ssl_object"))
        is_known = client.certificate is not None
        if is_known:
            self._admission.recognise(client)
        connection = HttpConnection(
            channel,
            self._limits,
            is_known=is_known,
            turn=partial(self._admission.turn, client),
        )
        while await self._next(client, connection):
            client.is_answering = False
        async with asyncio.timeout(self._limits.finish_seconds):
            await channel.finish()

    async def _next(self, client: _Client, connection: HttpConnection) -> bool:
        """Answer one request; False where there was none."""
        try:
            request = await connection.next_request()
        except Refused as refused:
            self._observer.request(kind=Kind.OTHER, code=refused.answer.status)
            await connection.answer(refused.answer, last=True)
            return False
        if request is None:
            return False
        kind = paths.kind_of(request.target)
        try:
            async with connection.watched() as watch:
                exchange = _Exchange(
                    client=client, connection=connection, request=request, watch=watch, kind=kind
                )
                answer = await self._answer(exchange)
        except Refused as refused:
            answer = refused.answer
        except Gone:
            raise
        except Exception as error:
            # Not for the client, and no words of the request: there may be a token in them.
            log.exception("a request to the kubelet API failed", request=kind.value)
            if connection.has_begun:
                raise Gone from error
            answer = answers.of_failure(error)
        if answer is not None:
            self._observer.request(kind=kind, code=answer.status)
            if kind in paths.STREAMING:
                answer = answers.for_upgrade(answer)
            await connection.answer(answer, last=self._is_last(client, request, answer))
        return True

    def _is_last(self, client: _Client, request: HttpRequest, answer: Answer) -> bool:
        """Tell whether the connection ends with this answer.

        What follows an upgrade that was refused may be meant for another protocol. And who is
        nobody shakes hands anew: the client CA may have changed.
        """
        return bool(request.values("upgrade")) or answer.status == 401 or self._is_over(client)

    def _is_over(self, client: _Client) -> bool:
        return self._is_stopping or client.tls is not self._tls()

    # -- one request -------------------------------------------------------------------------------

    async def _answer(self, exchange: _Exchange) -> Answer | None:
        """Do what is asked; None where the reply has been sent already.

        Raises:
            Refused: it is not done.
        """
        request = exchange.request
        caller = await self._admitted(exchange)
        self._admission.prove(exchange.client, caller.user)
        is_websocket = request.switch == "websocket"
        asked = paths.read(request.method, request.target, websocket=is_websocket)
        if isinstance(asked, Refusal):
            raise Refused(answers.of_refusal(asked))
        await self._read_body(exchange)
        match asked:
            case HealthRequest():
                return Answer(status=200, body=b"ok")
            case PageRequest():
                return await self._page(exchange, asked)
            case PodRequest():
                with (
                    self._admission.stream(caller.user, asked.pod.namespace),
                    self._counted(exchange.kind),
                ):
                    return await self._lead(exchange, asked, caller)
            case _:
                assert_never(asked)

    async def _read_body(self, exchange: _Exchange) -> None:
        # Two cannot read at once.
        await exchange.watch.stop()
        await exchange.connection.read_body()
        exchange.watch.begin()

    async def _admitted(self, exchange: _Exchange) -> Caller:
        """Tell who asks.

        Raises:
            Refused: nobody we know (401), somebody who may not (403), or the hub does not say.
        """
        request, certificate = exchange.request, exchange.client.certificate
        bearer = _bearer_of(request)
        if certificate is None and not bearer:
            raise Refused(answers.text(401, answers.UNAUTHENTICATED))
        try:
            caller = await self._decided(self._access.authenticate(certificate, bearer))
        except Unauthenticated:
            raise Refused(answers.text(401, answers.UNAUTHENTICATED)) from None
        wanted = paths.access_of(request.method, request.target)
        if not await self._decided(self._access.may(caller, wanted)):
            raise Refused(answers.forbidden(caller, wanted))
        return caller

    async def _decided(self, question: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(self._limits.decide_seconds):
                return await question
        except Throttled:
            raise Refused(answers.busy("requests")) from None
        except (ClusterError, TimeoutError) as error:
            log.warning("the hub does not say who may use the kubelet API", error=str(error))
            raise Refused(answers.of_hub_failure()) from error

    async def _page(self, exchange: _Exchange, asked: PageRequest) -> Answer:
        exchange.client.is_answering = True
        accept = ",".join(exchange.request.values("accept"))
        try:
            async with asyncio.timeout(self._limits.page_seconds):
                page = await self._pages.page(asked.path, asked.query, {"accept": accept})
        except (ClusterError, TimeoutError) as error:
            log.warning("a page of the kubelet API failed", page=asked.path, error=str(error))
            raise Refused(answers.of_failure(error)) from error
        if page is None:
            raise Refused(answers.text(404, "404 page not found"))
        if not _accepts(accept, page.content_type):
            raise Refused(answers.text(406, f"406: only {page.content_type} is to be had"))
        return Answer(status=200, body=page.body, content_type=page.content_type)

    # -- to the container --------------------------------------------------------------------------

    async def _lead(self, exchange: _Exchange, asked: PodRequest, caller: Caller) -> Answer | None:
        located = self._locate(asked)
        opening = Opening.new()
        headers: tuple[tuple[str, str], ...] = ()
        if asked.kind is Kind.RUN:
            headers = opening.headers
        elif asked.kind in paths.STREAMING:
            if not exchange.request.is_known_switch:
                raise Refused(answers.text(400, "Upgrade request required"))
            headers = travelling(exchange.request)
        log.debug(
            "a container is asked for",
            request=asked.kind.value,
            pod=str(asked.pod),
            container=asked.container,
            user=caller.user,
        )
        try:
            async with self._open_call(paths.call_of(asked, located.mirror, headers)) as reply:
                if asked.kind is Kind.RUN and reply.upgraded is not None:
                    return await _run(reply.upgraded, reply, opening)
                if await self._pass_on(exchange, reply, asked):
                    return None
                said = await _beginning(reply, self._limits)
                if reply.status >= 500:
                    log.warning(
                        "the target could not reach a container",
                        request=asked.kind.value,
                        pod=str(asked.pod),
                        status=reply.status,
                        said=answers.message_of(reply.headers, said),
                    )
                return answers.of_target(
                    reply.status, reply.headers, said, request=asked, located=located
                )
        except (ClusterError, TimeoutError) as error:
            log.warning(
                "a container could not be reached",
                request=asked.kind.value,
                pod=str(asked.pod),
                error=str(error),
            )
            if exchange.connection.has_begun:
                raise Gone from error  # a cut log must not look like a whole one
            raise Refused(answers.of_failure(error)) from error

    def _locate(self, asked: PodRequest) -> Located:
        """Find the pod and its container as the hub has them.

        Raises:
            Refused: there is none, or its mirror is not the one on record.
        """
        hub_pod = self._pods.hub_pod(asked.pod)
        if hub_pod is None or asked.uid not in ("", uid_of(hub_pod)):
            raise Refused(answers.text(404, f"pod {paths.shown(asked.pod.name)} does not exist"))
        names = (one.get("name") for one in containers_of(spec_of(hub_pod)))
        if asked.kind is not Kind.PORT_FORWARD and asked.container not in names:
            raise Refused(
                answers.text(
                    404,
                    f"container {paths.shown(asked.container)} not found in pod "
                    f"{paths.shown(asked.pod.name)}",
                )
            )
        located = self._pods.find(asked.pod, asked.uid)
        if located is None:
            raise Refused(answers.not_mirrored(asked, hub_pod))
        # Its name may be another's by now: the target's API takes no uid for these requests.
        if located.mirror_pod is None or uid_of(located.mirror_pod) != located.mirror_uid:
            message = f"pod {paths.shown(asked.pod.name)} is not to be seen in the target cluster"
            raise Refused(answers.text(404, message))
        there = (one.get("name") for one in containers_of(spec_of(located.mirror_pod)))
        if asked.kind is not Kind.PORT_FORWARD and asked.container not in there:
            raise Refused(answers.not_mirrored(asked, hub_pod))  # a debug container was refused
        return located

    async def _pass_on(self, exchange: _Exchange, reply: Reply, asked: PodRequest) -> bool:
        """Pass on what was asked for; False where the target answers something else."""
        if reply.upgraded is not None and asked.kind in paths.STREAMING:
            await self._switch(exchange, reply, reply.upgraded)
            return True
        if reply.body is not None and asked.kind is Kind.LOGS and reply.status == 200:
            await self._stream(exchange, reply.body)
            return True
        return False

    async def _stream(self, exchange: _Exchange, body: AsyncIterator[bytes]) -> None:
        connection, kind = exchange.connection, exchange.kind
        self._observer.request(kind=kind, code=200)
        headers = [("Content-Type", answers.TEXT), ("X-Content-Type-Options", "nosniff")]
        await connection.begin(200, headers, last=self._is_over(exchange.client))
        async for chunk in body:
            if chunk:
                await connection.send(chunk)
                self._observer.moved(kind, Direction.OUT, len(chunk))
        await connection.end()

    async def _switch(self, exchange: _Exchange, reply: Reply, target: Upgraded) -> None:
        said = [value for name, value in reply.headers if name.lower() == "upgrade"]
        if ",".join(said).strip().lower() != exchange.request.switch:
            raise Refused(answers.text(502, "the target cluster switched to another protocol"))
        self._observer.request(kind=exchange.kind, code=101)
        # From here on the relay reads, and notices the end.
        await exchange.watch.stop()
        client = await exchange.connection.switch(reply.headers)
        await relay(
            client,
            target,
            moved=lambda way, count: self._observer.moved(exchange.kind, way, count),
        )
        raise Gone

    @contextmanager
    def _counted(self, kind: Kind) -> Iterator[None]:
        self._streams[kind] += 1
        self._observer.stream_began(kind)
        try:
            yield
        finally:
            self._streams[kind] -= 1
            self._observer.stream_ended(kind)


def _pause(channel: Channel) -> None:
    """Leave the client's first bytes in the kernel: they are TLS's."""
    channel.transport.pause_reading()


def _bearer_of(request: HttpRequest) -> str:
    """Return the token, of whichever kind clients of kubelets send; "" where there is none."""
    for value in request.values("authorization"):
        scheme, _blank, rest = value.strip().partition(" ")
        return rest.split(" ")[0] if scheme.lower() == "bearer" else ""
    encoded = protocol_bearers(request) if request.switch == "websocket" else []
    if len(encoded) != 1:
        return ""
    with suppress(binascii.Error, UnicodeDecodeError):
        padded = encoded[0] + "=" * (-len(encoded[0]) % 4)
        return base64.b64decode(padded, altchars=b"-_", validate=True).decode("utf-8")
    return ""


def _accepts(accept: str, content_type: str) -> bool:
    """Tell whether a client takes JSON; a scraper that asks for another text gets ours anyway."""
    if not accept or not content_type.startswith("application/json"):
        return True
    ranges = {part.partition(";")[0].strip().lower() for part in accept.split(",")}
    return bool(ranges & {"application/json", "application/*", "*/*"})


async def _run(stream: Upgraded, reply: Reply, opening: Opening) -> Answer:
    """Answer with what a command wrote; a kubelet says 500 where it failed."""
    try:
        if not opening.is_met(reply.headers):
            return answers.text(502, "the target cluster switched to another protocol")
        outcome = await outcome_of(stream)
    finally:
        stream.close()
    if outcome.failure:
        return answers.text(500, f"{outcome.failure}: {outcome.output.decode('utf-8', 'replace')}")
    return Answer(status=200, body=outcome.output)


async def _beginning(reply: Reply, limits: Limits) -> bytes:
    """Read what the target says instead of a stream, in bounds."""
    if reply.body is None:
        return b""
    said = bytearray()
    async with asyncio.timeout(limits.reply_seconds):
        async for chunk in reply.body:
            said += chunk
            if len(said) >= limits.told_bytes:
                break
    return bytes(said[: limits.told_bytes])
