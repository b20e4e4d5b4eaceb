"""What the fault proxy can do to requests: each fault is a handle that says what it is and counts.

A fault is set by a method of `FaultProxy` and stays until it is lifted. The proxy's thread reads
these objects, tests read and lift them from theirs.
"""

import re
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol, Self


class Kind(StrEnum):
    """How the network or a server lets its clients down."""

    DROP = "drop"
    REFUSE = "refuse"
    RESET = "reset"
    HALF_OPEN = "half-open"
    DELAY = "delay"
    ANSWER = "answer"
    LOSE_REPLY = "lose-reply"
    BUFFER_WATCH = "buffer-watch"
    SWALLOW = "swallow"
    HOLD = "hold"
    ROUTE = "route"
    """No fault: which of several API servers gets a request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request, read whole."""

    method: str
    path: str
    query: str
    body: bytes

    @property
    def is_watch(self) -> bool:
        """Tell whether the answer is a stream without an end."""
        return "watch=true" in self.query or "watch=1" in self.query


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """Select requests; the empty expression selects all, and connections too."""

    line: str = ""
    """Regular expression that fits all of `METHOD /path` or `METHOD /path?query`."""
    body: str = ""
    """Regular expression found anywhere in the body."""

    @property
    def is_everything(self) -> bool:
        """Tell whether nothing is left out, connections without a request included."""
        return not self.line and not self.body

    def match(self, call: Call) -> bool:
        """Tell whether a request is selected."""
        if self.line:
            short, pattern = f"{call.method} {call.path}", re.compile(self.line)
            if not pattern.fullmatch(short) and not pattern.fullmatch(f"{short}?{call.query}"):
                return False
        return not self.body or re.search(self.body, call.body.decode()) is not None


class Proxy(Protocol):
    """Where a fault is set."""

    def lift(self, fault: "Fault") -> None:
        """Take a fault away; has taken effect on return."""


class Fault:
    """A fault that is set on a proxy, and how often it struck. Lifting it twice does no harm."""

    def __init__(self, kind: Kind, requests: Requests, proxy: Proxy) -> None:
        self.kind = kind
        self.requests = requests
        self.inflicted = 0
        self._proxy = proxy

    def lift(self) -> None:
        """Take the fault away."""
        self._proxy.lift(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.lift()


class Delay(Fault):
    """Latency on the way to the server, and on each line of a stream on the way back."""

    def __init__(self, seconds: float, requests: Requests, proxy: Proxy) -> None:
        super().__init__(Kind.DELAY, requests, proxy)
        self.seconds = seconds


class Answer(Fault):
    """Answer instead of the server, as an API server does that is overloaded or broken."""

    def __init__(
        self,
        status: int,
        requests: Requests,
        proxy: Proxy,
        *,
        retry_after: int | None,
        body: dict[str, Any] | None,
    ) -> None:
        super().__init__(Kind.ANSWER, requests, proxy)
        self.status = status
        self.retry_after = retry_after
        self.body = body


class LoseReply(Fault):
    """Let requests through and lose what was answered."""

    def __init__(self, times: int | None, requests: Requests, proxy: Proxy, *, mute: bool) -> None:
        super().__init__(Kind.LOSE_REPLY, requests, proxy)
        self.mute = mute
        self._times = times

    @property
    def is_spent(self) -> bool:
        """Tell whether it struck as often as it was meant to."""
        return self._times is not None and self.inflicted >= self._times


class Route(Fault):
    """Send requests to one of the API servers."""

    def __init__(self, upstream: int, requests: Requests, proxy: Proxy) -> None:
        super().__init__(Kind.ROUTE, requests, proxy)
        self.upstream = upstream


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """Select watch events."""

    type: str = ""
    """Regular expression that fits all of the type: ADDED, MODIFIED, DELETED, BOOKMARK."""
    name: str = ""
    """Regular expression that fits all of the object's name."""
    where: Callable[[dict[str, Any]], bool] | None = None
    """Asked last, in the proxy's thread."""

    def match(self, event: dict[str, Any]) -> bool:
        """Tell whether an event is selected."""
        name = event["object"].get("metadata", {}).get("name", "")
        if self.type and not re.fullmatch(self.type, event["type"]):
            return False
        if self.name and not re.fullmatch(self.name, name):
            return False
        return self.where is None or self.where(event)


class Swallow(Fault):
    """Keep some watch events from being passed on; the stream goes on without them."""

    def __init__(self, times: int, events: Events, requests: Requests, proxy: Proxy) -> None:
        super().__init__(Kind.SWALLOW, requests, proxy)
        self.done = threading.Event()
        """Set when as many were swallowed as were meant to be."""
        self._times = times
        self._events = events

    def takes(self, event: dict[str, Any]) -> bool:
        """Tell whether an event is to be swallowed."""
        return self.inflicted < self._times and self._events.match(event)

    def note(self) -> None:
        """Count one that was swallowed."""
        if self.inflicted >= self._times:
            self.done.set()

    def wait_done(self, seconds: float = 30.0) -> None:
        """Wait until as many were swallowed as were meant to be."""
        assert self.done.wait(seconds), f"{self.inflicted} events of {self._times} were swallowed"


class Hold(Fault):
    """Keep one request back and send it on much later, whether or not its client still lives."""

    def __init__(self, requests: Requests, proxy: Proxy) -> None:
        super().__init__(Kind.HOLD, requests, proxy)
        self.call: Call | None = None
        """The request that was caught."""
        self.caught = threading.Event()
        self.answered: Future[int] = Future()
        self._let_go: Callable[[], None] = lambda: None

    def catch(self, call: Call, let_go: Callable[[], None]) -> None:
        """Take the request; `let_go` sends it on, called from any thread."""
        self.call, self._let_go = call, let_go
        self.caught.set()

    def wait_caught(self, seconds: float = 30.0) -> Call:
        """Wait until a request was caught, and return it."""
        assert self.caught.wait(seconds), f"No request was caught: {self.requests}"
        assert self.call is not None
        return self.call

    def release(self, seconds: float = 30.0) -> int:
        """Send the request on now; returns the status it was answered with."""
        self.wait_caught(0.0)
        self._let_go()
        return self.answered.result(seconds)
