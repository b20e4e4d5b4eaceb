"""How much the kubelet API takes from anybody, and who holds how much of it.

A client that has not been allowed anything yet is a stranger: strangers share a few places, and
when these are taken the one that has been there longest goes, so that a crowd of idle or slow
connections never keeps the hub's API server out. Those that showed a certificate of the hub have
places of their own. Streams are counted in all, for each caller and for each namespace. Of the
files that the process may open, mirroring keeps some for itself (C2).
"""

from __future__ import annotations

import asyncio
import os
import resource
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from federate.kubelet.answers import Refused, busy


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Numbers of one virtual node's kubelet API."""

    connections: int = 2048
    """Each costs about 100 KB with TLS. Fewer than the streams that one wants would cut them."""

    connections_of_caller: int = 1600
    """More than its streams: an API server keeps some that are idle."""

    strangers: int = 256
    """Connections in the handshake, or that were not allowed anything yet; and again as many of
    those with a certificate, which wait for the hub's word while a crowd is in the handshake."""

    streams: int = 1500
    """Logs, exec, attach and port-forwards at once; each has a connection to the target too."""

    streams_of_caller: int = 1200
    """All API servers of a hub are one caller mostly, so it is close to the whole: it keeps room
    for others beside one that took all."""

    streams_of_namespace: int = 400
    """Who may read logs in one namespace comes as the API server, like everybody: this keeps room
    for other namespaces beside one that took all, and memory: a stream whose reader stalls holds
    about a megabyte."""

    header_bytes: int = 512 * 1024
    """A command travels in the request line, and one argument may have 128 KB on Linux, each byte
    of which may take three."""

    stranger_header_bytes: int = 64 * 1024
    """Without a certificate of the hub's client CA: enough for a token."""

    header_lines: int = 128
    """An API server sends a dozen. Each costs time on the event loop."""

    body_bytes: int = 64 * 1024
    """No request needs one; what comes is thrown away, so that the connection can go on."""

    handshake_seconds: float = 10.0
    header_seconds: float = 10.0
    """From a request's first byte to the end of its header, and again for a body."""

    first_seconds: float = 10.0
    """From the handshake to the first byte of a client without a certificate."""

    idle_seconds: float = 120.0
    """Between two requests. Longer than an API server keeps one (90 s): it closes first, and never
    sends a request into a connection that is being closed."""

    write_seconds: float = 60.0
    """To take an answer that is whole. A stream may stall for as long as its client lives."""

    decide_seconds: float = 20.0
    """For the hub to tell who asks and whether they may."""

    reply_seconds: float = 30.0
    """For the target to begin its reply."""

    page_seconds: float = 30.0
    """For a document about all pods. A scraper waits 10 to 15 s."""

    finish_seconds: float = 600.0
    """To take the last bytes of a stream, or of an answer, before the connection is cut."""

    linger_seconds: float = 1.0
    """How long we take what a client goes on to send after its refusal: to close before would make
    the kernel reset the connection, and the client might not see why."""

    told_bytes: int = 64 * 1024
    """Read of a target's reply that is no stream."""

    watched_bytes: int = 64 * 1024
    """What a client may send ahead while it is being answered."""

    grace_seconds: float = 5.0
    """For answers under way when the server stops; streams are ended at once."""


KEPT_FILES = 1024
"""Open files that are left to mirroring: of each of two clusters two pools of a hundred connections
and two hundred watches, and some more. Where a process may open few, half of them."""


def has_room_for_files() -> bool:
    """Tell whether this process may open files for the kubelet API's purposes.

    A system gives the lowest number that is free. As long as none is used here near the limit,
    those are free for others.
    """
    most, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most == resource.RLIM_INFINITY:
        return True
    try:
        lowest = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    os.close(lowest)
    return lowest < most - min(KEPT_FILES, most // 2)


class Turnstile:
    """Lets one through in each round of the event loop, in the order in which they came.

    A handshake or a request takes a millisecond or so. When hundreds come at once, what mirrors
    pods gets its turn after each of them, not after all (C2).
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def pass_through(self) -> None:
        """Wait for one's turn."""
        async with self._lock:
            await asyncio.sleep(0)


class Admission:
    """Who is in. Not safe for threads: one event loop."""

    def __init__(
        self, limits: Limits, *, has_files: Callable[[], bool] = has_room_for_files
    ) -> None:
        self._limits = limits
        self._has_files = has_files
        self._strangers: dict[object, Callable[[], None]] = {}
        self._recognised: dict[object, Callable[[], None]] = {}
        self._streams: Counter[str] = Counter()
        self._namespaces: Counter[str] = Counter()
        self._callers: dict[object, str] = {}
        self._held: Counter[str] = Counter()
        self._turns_of_strangers = Turnstile()
        self._turns_of_recognised = Turnstile()
        self._turns = Turnstile()
        self.connections = 0

    @contextmanager
    def connection(self, holder: object, evict: Callable[[], None]) -> Iterator[None]:
        """Hold a stranger's place inside; `evict` must end the connection soon.

        Raises:
            Refused: all places are taken.
        """
        if self.connections >= self._limits.connections:
            raise Refused(busy("connections"))
        if not self._has_files() and not self._evict_one():
            raise Refused(busy("open files"))
        self._make_room(self._strangers)
        self.connections += 1
        self._strangers[holder] = evict
        try:
            yield
        finally:
            self.connections -= 1
            self._forget(holder)
            if (caller := self._callers.pop(holder, None)) is not None:
                _less(self._held, caller)

    def recognise(self, holder: object) -> None:
        """Note that the stranger has a certificate of the hub's client CA."""
        if (evict := self._strangers.pop(holder, None)) is not None:
            self._make_room(self._recognised)
            self._recognised[holder] = evict

    def prove(self, holder: object, caller: str) -> None:
        """Give the stranger's place back: something was allowed to it, for this caller first.

        Raises:
            Refused: the caller has as many connections as there may be.
        """
        if holder in self._callers:
            return
        if self._held[caller] >= self._limits.connections_of_caller:
            raise Refused(busy("connections"))
        self._held[caller] += 1
        self._callers[holder] = caller
        self._forget(holder)

    async def turn(self, holder: object) -> None:
        """Wait for one's turn, behind those only who are known as well, or as little."""
        for places, turns in (
            (self._strangers, self._turns_of_strangers),
            (self._recognised, self._turns_of_recognised),
        ):
            if holder in places:
                await turns.pass_through()
                return
        await self._turns.pass_through()

    @contextmanager
    def stream(self, caller: str, namespace: str) -> Iterator[None]:
        """Hold a stream to a pod of that namespace inside.

        Raises:
            Refused: the caller, the namespace, or all have as many as there may be.
        """
        if (
            self._streams.total() >= self._limits.streams
            or self._streams[caller] >= self._limits.streams_of_caller
        ):
            raise Refused(busy("streams"))
        if self._namespaces[namespace] >= self._limits.streams_of_namespace:
            raise Refused(busy("streams in this namespace"))
        if not self._has_files():
            raise Refused(busy("open files"))
        self._streams[caller] += 1
        self._namespaces[namespace] += 1
        try:
            yield
        finally:
            _less(self._streams, caller)
            _less(self._namespaces, namespace)

    @property
    def strangers(self) -> int:
        """Count the connections that were not allowed anything yet."""
        return len(self._strangers) + len(self._recognised)

    @property
    def streams(self) -> int:
        """Count the streams of all callers."""
        return self._streams.total()

    def _evict_one(self) -> bool:
        """Let the stranger go that has been there longest; False where there is none."""
        places = self._strangers or self._recognised
        if not places:
            return False
        places.pop(next(iter(places)))()
        return True

    def _make_room(self, places: dict[object, Callable[[], None]]) -> None:
        while len(places) >= max(self._limits.strangers, 1):
            places.pop(next(iter(places)))()

    def _forget(self, holder: object) -> None:
        self._strangers.pop(holder, None)
        self._recognised.pop(holder, None)


def _less(counts: Counter[str], caller: str) -> None:
    counts[caller] -= 1
    if not counts[caller]:
        del counts[caller]
