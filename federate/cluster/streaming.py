"""Requests to an API server whose replies are streams: logs, exec, attach, port-forward.

Each has a connection of its own, so that none waits for a place in the pools of short requests and
none takes one there. Only the opening is bounded in time; what follows ends with its context, with
the connection, or with the client.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from federate.cluster.exchange import Exchange, Frame, Head, Malformed
from federate.cluster.failures import MOST_READ, Attempt, refused, unreachable
from federate.cluster.sessions import Access, Credentials
from federate.cluster.tunnel import MOST_HELD, Channel, open_tunnel
from federate.cluster.upstream import Reply, UpstreamCall
from federate.errors import ClusterError, Rejected, ServerFault, Unauthorized, Unreachable

UPGRADE_SECONDS = 30.0
"""From a request to upgrade to its 101: the target's API server reaches the kubelet meanwhile, and
that the runtime. The head of any other reply is waited for as long as the caller waits: API servers
send it with the first byte of a log, and a container may be silent for hours."""

MOST_AT_ONCE = 65_536
"""Bytes of a body that are read at once. A target may send each in a chunk of its own, and the
process does nothing else meanwhile."""

REFUSAL_SECONDS = 10.0
"""For the words that come with a 401."""


class Streams:
    """Opens streaming requests with the credentials of a client. `aclose` cuts all of them."""

    def __init__(
        self,
        *,
        name: str,
        credentials: Credentials,
        dial: Callable[[Access], Awaitable[Channel]] = open_tunnel,
        upgrade_seconds: float = UPGRADE_SECONDS,
    ) -> None:
        self._name = name
        self._credentials = credentials
        self._dial = dial
        self._upgrade_seconds = upgrade_seconds
        self._channels: set[Channel] = set()
        self._is_closed = False

    @asynccontextmanager
    async def open(self, call: UpstreamCall) -> AsyncIterator[Reply]:
        """Send the request; once more with new credentials where the first are not accepted.

        Raises:
            Unauthorized: no credentials we have are accepted.
            Unreachable: no reply came, or (out of its body) it broke off.
            ServerFault: what came is no reply of an API server.
            Rejected: the call cannot be sent.
        """
        access = await self._credentials.current()
        async with AsyncExitStack() as held:
            try:
                reply = await self._ask(held, call, access)
            except Unauthorized:
                await held.aclose()
                renewed = await self._credentials.renew(access)
                if renewed is access:
                    raise
                reply = await self._ask(held, call, renewed)
            yield reply

    async def aclose(self) -> None:
        """End all streams; none is opened any more."""
        self._is_closed = True
        for channel in list(self._channels):
            channel.close()
        await asyncio.sleep(0)  # a transport tells its end in the next round of the loop

    async def _ask(self, held: AsyncExitStack, call: UpstreamCall, access: Access) -> Reply:
        attempt = self._attempt(call, access)
        try:
            exchange = Exchange(call, access)
        except Malformed as error:
            raise attempt.failure(Rejected, str(error)) from error
        channel = await self._connected(held, access, attempt)
        arrived = _Arrived(channel=channel, attempt=attempt)
        is_upgrade = any(name.lower() == "upgrade" for name, _ in call.headers)
        try:
            async with asyncio.timeout(self._upgrade_seconds if is_upgrade else None):
                await channel.write(exchange.request)
                head = await arrived.head(exchange)
        except OSError as error:  # TimeoutError is one
            raise unreachable(attempt, error) from error
        if head.status == 401:
            raise await arrived.refusal(head)
        if 300 <= head.status < 400:
            raise attempt.failure(
                ServerFault, f"HTTP status {head.status}: no API server redirects"
            )
        if head.status == 101:
            return Reply(status=101, headers=head.headers, upgraded=channel)
        return Reply(status=head.status, headers=head.headers, body=arrived.body(head.frame))

    async def _connected(self, held: AsyncExitStack, access: Access, attempt: Attempt) -> Channel:
        if self._is_closed:
            raise attempt.failure(Unreachable, "the client is closed")
        try:
            channel = await self._dial(access)
        except OSError as error:
            raise unreachable(attempt, error) from error
        held.callback(self._end, channel)
        self._channels.add(channel)
        if self._is_closed:
            raise attempt.failure(Unreachable, "the client is closed")
        return channel

    def _end(self, channel: Channel) -> None:
        self._channels.discard(channel)
        channel.close()

    def _attempt(self, call: UpstreamCall, access: Access) -> Attempt:
        """Describe the call by its path alone: what an exec runs is nobody's business."""
        return Attempt(
            cluster=self._name,
            verb="stream",
            subject=call.path,
            concealed=access.concealed,
        )


@dataclass(slots=True, kw_only=True, eq=False)
class _Arrived:
    """What comes as the reply to one request."""

    channel: Channel
    attempt: Attempt

    async def head(self, exchange: Exchange) -> Head:
        """Read the head; what came after it stays in the channel.

        Raises:
            OSError: no answer.
            ClusterError: no HTTP.
        """
        while data := await self.channel.read(MOST_HELD):
            try:
                found = exchange.feed(data)
            except Malformed as error:
                raise self.attempt.failure(ServerFault, str(error)) from error
            if found is not None:
                head, rest = found
                self.channel.unread(rest)
                return head
        raise ConnectionError("the connection ended before a reply")

    async def body(self, frame: Frame) -> AsyncIterator[bytes]:
        """Yield the body as it comes.

        Raises:
            Unreachable: it broke off.
        """
        while not frame.is_whole:
            try:
                data = await self.channel.read(MOST_AT_ONCE)
                part = frame.feed(data)
            except OSError as error:
                raise unreachable(self.attempt, error) from error
            except Malformed as error:
                raise self.attempt.failure(Unreachable, str(error)) from error
            if part:
                yield part
            if len(data) == MOST_AT_ONCE:
                await asyncio.sleep(0)  # more is at hand, and nobody else would get a turn
            if not data:
                if frame.may_end:
                    return
                raise self.attempt.failure(Unreachable, "the reply broke off")

    async def refusal(self, head: Head) -> ClusterError:
        """Return the error that a 401 is, in the server's words as far as they come."""
        said = b""
        try:
            async with asyncio.timeout(REFUSAL_SECONDS):
                async for part in self.body(head.frame):
                    said += part
                    if len(said) > MOST_READ:
                        break
        except (ClusterError, TimeoutError):
            pass
        headers = dict(head.headers)
        return refused(self.attempt, status=head.status, body=said[:MOST_READ], headers=headers)
