"""Ask a target what the mirrors of one virtual node use: metrics.k8s.io first, its kubelets else.

Every fetch is bounded in time, size and requests under way. Whoever is asked may be missing, closed
or broken: what answers is told, the rest is left out. A kubelet's page is about all of its pods and
has megabytes: what is not about ours is dropped as it comes, and nothing is read in one go, for
pods are mirrored by the same thread.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar
from urllib.parse import quote

import structlog

from federate.cluster.port import ClusterPort
from federate.errors import (
    ClusterError,
    Forbidden,
    NotFound,
    ServerFault,
    Throttled,
    Unauthorized,
    Unreachable,
)
from federate.kubelet.exposition import LONGEST_LINE
from federate.kubelet.ports import Located, OpenCall, UpstreamCall
from federate.kubelet.usage import PodReadings, Reading, ResourcePage, read_pod_metrics
from federate.model.objects import ObjectKey
from federate.model.pods import node_name_of
from federate.model.resources import POD_METRICS

log = structlog.stdlib.get_logger(__name__)

T = TypeVar("T")

FETCH_SECONDS = 8.0
"""One fetch with all its requests: metrics-server waits 10 s for a kubelet's page."""

REFUSED_SECONDS = 60.0
"""How long a source that is not there, or closed to us, is not asked again."""

AT_ONCE = 8
"""Requests of one fetch that are under way together."""

MOST_PAGE_BYTES = 16 * 1024 * 1024
"""A kubelet's page about 250 pods has some megabytes at most; more is not read."""

MOST_KEPT_BYTES = 32 * 1024 * 1024
"""Of all pages of one fetch: lines about our pods. A thousand pods have some megabytes."""

MOST_HEADINGS = 20_000
"""Lines of one fetch that begin a family: a kubelet has two for each of a hundred."""

SIEVED_AT_ONCE = 500
LINES_AT_ONCE = 50
"""Lines that are read between two looks at other work: a few milliseconds."""

_NOT_THERE = (NotFound, Forbidden, ServerFault, Throttled)
"""How API servers say that there is no metrics.k8s.io: unknown, closed, its server down or busy."""


class Sources:
    """Where a target tells usage: metrics.k8s.io first, its kubelets else."""

    def __init__(
        self,
        *,
        target: ClusterPort,
        open_call: OpenCall,
        selector: str,
        namespaces: Callable[[], Sequence[str]],
    ) -> None:
        self._target = target
        self._open_call = open_call
        self._selector = selector
        self._namespaces = namespaces
        self._closed_until = -1.0
        self._told = ""

    async def readings(
        self, clock: float, located: Callable[[], Iterable[Located]]
    ) -> PodReadings | None:
        """Fetch all; None where neither source is open to us.

        Raises:
            ClusterError: the target did not answer.
        """
        async with _bounded():
            if clock >= self._closed_until:
                try:
                    return await self._from_metrics_api()
                except _NOT_THERE as error:
                    self._closed_until = clock + REFUSED_SECONDS
                    self._tell("no usage from the target's metrics.k8s.io", error)
            try:
                return await self._from_kubelets(located())
            except _NOT_THERE as error:
                self._tell("no usage from the target: kubectl top and HPAs lack it", error)
                return None

    async def pages(self, path: str, located: Iterable[Located]) -> list[list[str]]:
        """Fetch a page of each kubelet that runs mirrors, as the lines that may be about them.

        Kubelets that fail are left out.

        Raises:
            ClusterError: all of them failed.
        """
        async with _bounded():
            return await self._ask_kubelets(path, located)

    async def _from_metrics_api(self) -> PodReadings:
        listings = await _each(
            [
                partial(
                    self._target.list,
                    POD_METRICS,
                    namespace=namespace,
                    label_selector=self._selector,
                )
                for namespace in self._namespaces()
            ]
        )
        return read_pod_metrics(item for listing in listings for item in listing.items)

    async def _from_kubelets(self, located: Iterable[Located]) -> PodReadings:
        found: dict[ObjectKey, Mapping[str, Reading]] = {}
        for lines in await self._ask_kubelets("/metrics/resource", located):
            page = ResourcePage()
            await in_turns(lines, page.take)
            found.update(page.readings())
        return found

    async def _ask_kubelets(self, path: str, located: Iterable[Located]) -> list[list[str]]:
        nodes: set[str] = set()
        names: set[str] = set()

        def take(place: Located) -> None:
            nodes.add(node_name_of(place.mirror_pod or {}))
            names.add(place.mirror.name)

        await in_turns(located, take)
        sieve = _Sieve(names)
        asks = [partial(self._ask_kubelet, node, path, sieve) for node in sorted(nodes - {""})]
        return await _each(asks)

    async def _ask_kubelet(self, node: str, path: str, sieve: _Sieve) -> list[str]:
        call = UpstreamCall(
            method="GET",
            path=f"/api/v1/nodes/{quote(node, safe='')}/proxy{path}",
            headers=(("Accept", "text/plain"),),
        )
        async with self._open_call(call) as reply:
            if reply.status != 200 or reply.body is None:
                raise _refusal(reply.status, node)
            return await sieve.lines(reply.body, node)

    def _tell(self, what: str, error: ClusterError) -> None:
        """Log what is wrong once, not at each scrape."""
        if what != self._told:
            self._told = what
            log.info(what, error=str(error))


@asynccontextmanager
async def _bounded() -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(FETCH_SECONDS):
            yield
    except TimeoutError as error:
        raise Unreachable(f"the target did not tell usage within {FETCH_SECONDS:g} s") from error


async def _each(asks: Sequence[Callable[[], Awaitable[T]]]) -> list[T]:
    """Ask all, some at a time, and return the answers; what fails is left out.

    Raises:
        ClusterError: all failed; the first failure.
    """
    gate = asyncio.Semaphore(AT_ONCE)
    answers: list[T] = []
    failures: list[ClusterError] = []

    async def ask_one(ask: Callable[[], Awaitable[T]]) -> None:
        async with gate:
            try:
                answers.append(await ask())
            except ClusterError as error:
                failures.append(error)

    async with asyncio.TaskGroup() as group:
        for ask in asks:
            group.create_task(ask_one(ask))
    if failures and not answers:
        raise failures[0]
    return answers


_POD = re.compile(rb'[{,] *pod="([^"]*)"')


class _Sieve:
    """Keeps of kubelets' pages what begins a family, or may be about one of our mirrors."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = frozenset(name.encode() for name in names)
        self._left = MOST_KEPT_BYTES
        self._headings = MOST_HEADINGS

    async def lines(self, body: AsyncIterator[bytes], node: str) -> list[str]:
        """Return the lines of one page that are kept.

        Raises:
            ServerFault: the page is too large.
            ClusterError: it broke off.
        """
        kept: list[str] = []
        size = 0
        rest = b""
        async for chunk in body:
            size += len(chunk)
            if size > MOST_PAGE_BYTES:
                raise ServerFault(f"the page of node {node} is larger than {MOST_PAGE_BYTES} bytes")
            *whole, rest = (rest + chunk).split(b"\n")
            if len(rest) > LONGEST_LINE:
                raise ServerFault(f"the page of node {node} has a line without end")
            await in_turns(whole, partial(self._keep, kept), at_once=SIEVED_AT_ONCE)
            if self._left < 0:
                raise ServerFault(f"the page of node {node} says too much of our pods")
        self._keep(kept, rest)
        return kept

    def _keep(self, kept: list[str], line: bytes) -> None:
        if self._is_ours(line) and self._left >= 0:
            self._left -= len(line)
            kept.append(line.decode(errors="replace"))

    def _is_ours(self, line: bytes) -> bool:
        if line.startswith((b"# TYPE ", b"# HELP ")):
            self._headings -= 1
            return self._headings >= 0
        found = _POD.search(line)
        return found is not None and found[1] in self._names


async def in_turns(
    items: Iterable[T], take: Callable[[T], object], *, at_once: int = LINES_AT_ONCE
) -> None:
    """Take all items, with a look at other work after each so many."""
    for number, item in enumerate(items):
        if number % at_once == 0:
            await asyncio.sleep(0)
        take(item)


def _refusal(status: int, node: str) -> ClusterError:
    kind = {401: Unauthorized, 403: Forbidden, 404: NotFound}.get(status, ServerFault)
    return kind(f"the kubelet of node {node} answered {status}", status=status)
