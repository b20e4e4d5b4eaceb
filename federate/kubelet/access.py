"""Who asks, and may they: the hub decides, as it does for a kubelet (C60).

Between `server` and the hub's API server. Answers are kept for as long as a kubelet keeps them;
equal questions at one time are one request; how many wait is bounded, and what strangers ask never
pushes out what is known of others. Tokens are kept as keyed hashes.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Generic, TypeVar

import structlog
from cachetools import TLRUCache, TTLCache

from federate.cluster.expiry import expiry_of_token
from federate.cluster.port import ClusterPort
from federate.errors import ClusterError, ServerFault, Throttled, Unreachable
from federate.kubelet.ports import Caller, NodeAccess, PeerCertificate, Unauthenticated
from federate.kubelet.reviews import (
    access_review,
    caller_of_certificate,
    caller_of_review,
    digest_of,
    is_allowed,
    token_review,
)
from federate.model.objects import JsonDict, JsonObject
from federate.model.resources import SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS, Resource

log = structlog.get_logger()

KNOWN_SECONDS = 120.0
"""How long a token that the hub accepted is believed, as a kubelet does: a revoked one works so
much longer."""

UNKNOWN_SECONDS = 30.0
"""How long a token that it refused is. A kubelet says two minutes; who comes with a token that is
accepted a moment later waits less."""

ALLOWED_SECONDS = 300.0
DENIED_SECONDS = 30.0
"""As a kubelet: a right that is taken away works five minutes longer, one that is given is seen
after half a minute."""

MOST_KEPT = 4096
"""Answers of each kind. Fewer: the hub is asked again sooner."""

MOST_WAITING = 640
"""Questions of each kind that wait or are under way: more than strangers have places, so that who
is real waits a moment behind them. More are refused at once."""

AT_ONCE = 8
"""Questions of each kind under way. They go over the connections that mirroring uses too, 100 in
all: what strangers ask is not to fill them, and the hub is not to feel it (C2)."""

MOST_TOKEN_CHARACTERS = 16_384
"""A service account's token has about 1,000."""

ANSWER_SECONDS = 10.0
"""How long a caller waits for the hub, with a second try."""

K = TypeVar("K")
V = TypeVar("V")


class Once(Generic[K, V]):
    """Let equal questions at one time be one: whoever comes later gets the same answer.

    A caller that goes away ends nothing for the others.
    """

    def __init__(self, *, what: str, most: int = MOST_WAITING) -> None:
        self._what = what
        self._most = most
        self._gate = asyncio.Semaphore(AT_ONCE)
        self._asking: dict[K, asyncio.Task[V]] = {}

    async def ask(self, key: K, question: Callable[[], Coroutine[Any, Any, V]]) -> V:
        """Ask, or join who asks already.

        Raises:
            Throttled: too many other questions are under way.
            Unreachable: closed meanwhile.
        """
        task = self._asking.get(key)
        if task is None:
            if len(self._asking) >= self._most:
                raise Throttled(f"too many {self._what} wait for the hub")
            task = asyncio.ensure_future(self._in_turn(question))
            self._asking[key] = task
            task.add_done_callback(lambda done: self._ended(key, done))
        await asyncio.wait({task})  # a caller that is cancelled here leaves the question alone
        if task.cancelled():
            raise Unreachable(f"{self._what} are not asked about any more")
        return task.result()

    async def _in_turn(self, question: Callable[[], Coroutine[Any, Any, V]]) -> V:
        async with self._gate:
            return await question()

    def _ended(self, key: K, task: asyncio.Task[V]) -> None:
        del self._asking[key]
        if not task.cancelled():
            task.exception()  # taken note of: perhaps nobody waits any more

    async def aclose(self) -> None:
        """End what is under way."""
        tasks = tuple(self._asking.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


class HubAccess:
    """Ask the hub about callers; satisfies `ports.AccessPort`.

    `vouches` says of a verified certificate whether it is still to be believed: a connection may be
    older than the newest client CA.
    """

    def __init__(
        self,
        *,
        hub: ClusterPort,
        node_name: str,
        vouches: Callable[[PeerCertificate], bool],
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._hub = hub
        self._node_name = node_name
        self._vouches = vouches
        self._clock = clock
        self._wall_clock = wall_clock
        self._secret = secrets.token_bytes(32)
        self._known: TLRUCache[bytes, tuple[Caller, float]] = TLRUCache(
            maxsize=MOST_KEPT, ttu=lambda _key, kept, _now: kept[1], timer=clock
        )
        self._unknown = _expiring(UNKNOWN_SECONDS, clock)
        self._allowed = _expiring(ALLOWED_SECONDS, clock)
        self._denied = _expiring(DENIED_SECONDS, clock)
        self._tokens: Once[bytes, Caller | None] = Once(what="tokens")
        self._questions: Once[bytes, bool] = Once(what="questions about rights")

    async def authenticate(self, certificate: PeerCertificate | None, bearer: str) -> Caller:
        """Tell who asks; a verified certificate goes first, then the token."""
        caller = None
        if certificate is not None and self._vouches(certificate):
            caller = caller_of_certificate(certificate)
        if caller is None and bearer and len(bearer) <= MOST_TOKEN_CHARACTERS:
            caller = await self._whose(bearer)
        if caller is None:
            raise Unauthenticated("neither certificate nor token tells who asks")
        return caller

    async def may(self, caller: Caller, alternatives: Sequence[NodeAccess]) -> bool:
        """Tell whether one of the alternatives is allowed, asked in their order."""
        for access in alternatives:
            if await self._is_allowed(caller, access):
                return True
        return False

    async def aclose(self) -> None:
        """End the questions under way."""
        await self._tokens.aclose()
        await self._questions.aclose()

    async def _whose(self, token: str) -> Caller | None:
        sent = token.encode("utf-8", "surrogatepass")
        key = hmac.digest(self._secret, sent, hashlib.sha256)
        kept = self._known.get(key)
        if kept is not None:
            return kept[0]
        if key in self._unknown:
            return None
        return await self._tokens.ask(key, lambda: self._review_token(key, token))

    async def _review_token(self, key: bytes, token: str) -> Caller | None:
        caller = caller_of_review(await self._ask(TOKEN_REVIEWS, token_review(token)))
        if caller is None:
            self._unknown[key] = True
        else:
            self._known[key] = (caller, self._clock() + self._trusted_seconds(token))
        return caller

    def _trusted_seconds(self, token: str) -> float:
        """Bound the trust by the token's own end: the hub accepted it, so what it says is true."""
        expiry = expiry_of_token(token, what="token", is_renewed=True)
        if expiry is None:
            return KNOWN_SECONDS
        return max(0.0, min(KNOWN_SECONDS, expiry.at - self._wall_clock()))

    async def _is_allowed(self, caller: Caller, access: NodeAccess) -> bool:
        review = access_review(caller, access, node_name=self._node_name)
        key = digest_of(review)
        if key in self._allowed:
            return True
        if key in self._denied:
            return False
        return await self._questions.ask(key, lambda: self._review_access(key, review))

    async def _review_access(self, key: bytes, review: JsonDict) -> bool:
        allowed = is_allowed(await self._ask(SUBJECT_ACCESS_REVIEWS, review))
        (self._allowed if allowed else self._denied)[key] = True
        return allowed

    async def _ask(self, resource: Resource, review: JsonObject) -> JsonDict:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await _twice(lambda: self._hub.create(resource, review))
        except TimeoutError:
            raise self._no_answer(resource, Unreachable, "no answer in time") from None
        except (Unreachable, Throttled, ServerFault):
            raise
        except ClusterError as error:
            # Its words may quote what was asked; and to the caller it is no refusal of theirs.
            said = f"{type(error).__name__}: see `federate check` for the rights"
            log.warning("hub refuses a review", resource=resource.plural, error=said)
            raise self._no_answer(resource, ServerFault, said) from None

    def _no_answer(self, resource: Resource, kind: type[ClusterError], detail: str) -> ClusterError:
        return kind(detail, cluster=self._hub.name, verb="create", subject=resource.kind)


async def _twice(ask: Callable[[], Awaitable[JsonDict]]) -> JsonDict:
    """Ask once more where the first request met a connection that was dead: reviews do nothing."""
    try:
        return await ask()
    except Unreachable:
        return await ask()


def _expiring(seconds: float, clock: Callable[[], float]) -> TTLCache[bytes, bool]:
    return TTLCache(maxsize=MOST_KEPT, ttl=seconds, timer=clock)
