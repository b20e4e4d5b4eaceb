"""Make the documents of a virtual node: fetch what the target measured, and render it.

The usage of mirrors comes from the target's metrics.k8s.io; where that is not to be had, from its
kubelets through the node proxy. Nothing is fetched unless somebody asks, and who asks at once, or
again within moments, shares one fetch. Which pods there are needs no fetch, and is told as of now.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Generic, TypeVar, cast

from federate.errors import ClusterError
from federate.kubelet.counters import NodeUsage, RunningPod, UsageBook, running_pod
from federate.kubelet.exposition import (
    CONTENT_TYPE,
    Family,
    Sample,
    gather,
    parse_families,
    render,
)
from federate.kubelet.listing import pod_list, running_pods
from federate.kubelet.ports import Located, Page, PodsPort
from federate.kubelet.sources import Sources, in_turns
from federate.kubelet.summary import resource_families, summary_of
from federate.model.objects import JsonObject, ObjectKey, key_of, spec_of, uid_of
from federate.model.pods import container_statuses_of, containers_of, is_terminal

T = TypeVar("T")

FRESH_SECONDS = 5.0
"""Who asks again within this gets the same: scrapers come every 10 s or less often, and one that
asks in a loop costs the target no more than this."""

YIELD_EVERY = 20
"""Pods written between two looks at other work: some 5 ms."""

JSON = "application/json"
Clock = Callable[[], float]


class MetricsPages:
    """The documents of one virtual node; satisfies `ports.PagesPort`.

    One object for as long as the node is led: it holds the counters, which must not begin anew.
    """

    def __init__(
        self,
        *,
        node_name: str,
        pods: PodsPort,
        sources: Sources,
        started_at: float,
        clock: Clock = time.monotonic,
        wall_clock: Clock = time.time,
    ) -> None:
        """`started_at` is the time of day since which the node is served."""
        self._node_name = node_name
        self._pods = pods
        self._sources = sources
        self._started_at = started_at
        self._clock = clock
        self._wall_clock = wall_clock
        self._book = UsageBook()
        self._usage = Shared(self._measure, clock=clock)
        self._resources = Rendered(self._resource)
        makers: Mapping[str, Callable[[], Awaitable[Page]]] = {
            "/metrics": self._own,
            "/metrics/cadvisor": partial(self._relayed, "/metrics/cadvisor"),
            "/metrics/probes": partial(self._relayed, "/metrics/probes"),
        }
        listings: Mapping[str, Callable[[], Awaitable[Page]]] = {
            "/pods": lambda: _listed(pods.all()),
            "/runningpods": lambda: _listed(running_pods(pods.all())),
            "/stats/summary": self._summary,
        }
        self._makers: Mapping[str, Callable[[], Awaitable[Page]]] = {
            **{path: Shared(make, clock=clock).get for path, make in makers.items()},
            **{path: AsOfNow(make).get for path, make in listings.items()},
            "/metrics/resource": self._resource_page,
        }

    async def page(
        self, path: str, query: Mapping[str, str], headers: Mapping[str, str]
    ) -> Page | None:
        """Make the document a kubelet has under that path; None: there is none.

        A kubelet's parameters only leave parts out, and all is served in the form that all read.

        Raises:
            ClusterError: the target did not tell what it needs.
        """
        make = self._makers.get(path.rstrip("/"))
        return await make() if make is not None else None

    async def _resource_page(self) -> Page:
        return await self._resources.of(await self._usage.get())

    async def _resource(self, usage: NodeUsage | None) -> Page:
        return await _text(resource_families(usage))

    async def _summary(self) -> Page:
        usage = await self._usage.get()
        running = await self._running()
        parts = summary_of(running, usage, node_name=self._node_name, started_at=self._started_at)
        return await _pieced(parts)

    async def _own(self) -> Page:
        states: Counter[str] = Counter()
        running = 0

        def take(pod: JsonObject) -> None:
            nonlocal running
            if not is_terminal(pod):
                states.update(_states_of(pod))
                running += len(list(running_pods((pod,))))

        await in_turns(self._pods.all(), take)
        return await _text(self._own_families(running, states))

    def _own_families(self, running: int, states: Mapping[str, int]) -> Iterable[Family]:
        yield _gauge("kubelet_node_name", "The node's name", [({"node": self._node_name}, 1)])
        yield _gauge("kubelet_running_pods", "Pods of which something runs", [({}, running)])
        yield _gauge(
            "kubelet_running_containers",
            "Containers by state",
            [({"container_state": state}, states[state]) for state in sorted(states)],
        )

    async def _measure(self) -> NodeUsage | None:
        """Fetch and count; None: the target lets nobody see what its pods use."""
        # Those of now: while the fetch is under way pods come and go.
        readings = await self._sources.readings(self._clock(), self._pods.located)
        if readings is None:
            return None
        running = await self._running()
        return self._book.take(readings, running, clock=self._clock(), now=self._wall_clock())

    async def _running(self) -> list[RunningPod]:
        running: list[RunningPod] = []

        def take(place: Located) -> None:
            pod = running_pod(place)
            if pod is not None:
                running.append(pod)

        await in_turns(self._pods.located(), take)
        return running

    async def _relayed(self, path: str) -> Page:
        names = Names()
        await in_turns(self._pods.located(), names.add)
        gathered: dict[str, Family] = {}
        for lines in await self._sources.pages(path, self._pods.located()):
            for family in parse_families(lines):
                if family.samples:
                    gather(gathered, family, names)
                    await asyncio.sleep(0)
        return await _text(gathered.values())


class Names:
    """Translate the labels of a target's kubelets; lines that are not about our pods are none."""

    def __init__(self) -> None:
        self._pods: dict[ObjectKey, tuple[ObjectKey, str]] = {}
        """Mirror key -> hub pod key and uid."""
        self._own: dict[ObjectKey, frozenset[str]] = {}

    def add(self, place: Located) -> None:
        """Know a pod and its containers by what they are called in the target."""
        self._pods[place.mirror] = key_of(place.hub_pod), uid_of(place.hub_pod)
        own = containers_of(spec_of(place.hub_pod))
        self._own[place.mirror] = frozenset(container["name"] for container in own)

    def __call__(self, labels: Mapping[str, str]) -> Mapping[str, str] | None:
        """Return the labels in the hub's names; None: not ours, or a container of the target's."""
        mirror = ObjectKey(labels.get("namespace", ""), labels.get("pod", ""))
        pod = self._pods.get(mirror)
        if pod is None:
            return None
        container = labels.get("container", "")
        if container not in ("", "POD") and container not in self._own[mirror]:
            return None
        key, uid = pod
        named = {**labels, "namespace": key.namespace, "pod": key.name}
        if "pod_uid" in labels:
            named["pod_uid"] = uid
        return named


class Shared(Generic[T]):
    """One result, or one failure, for all who ask at once or again within moments."""

    def __init__(self, make: Callable[[], Awaitable[T]], *, clock: Clock) -> None:
        self._make = make
        self._clock = clock
        self._lock = asyncio.Lock()
        self._result: T | ClusterError | None = None
        self._fresh_until: float | None = None

    async def get(self) -> T:
        """Return the result, made now unless there is a fresh one.

        Raises:
            ClusterError: as the making did.
        """
        async with self._lock:
            if self._fresh_until is None or self._clock() >= self._fresh_until:
                # Whoever is cancelled here leaves it to the next in line.
                self._result = await self._outcome()
                self._fresh_until = self._clock() + FRESH_SECONDS
            if isinstance(self._result, ClusterError):
                raise self._result
            return cast(T, self._result)

    async def _outcome(self) -> T | ClusterError:
        try:
            return await self._make()
        except ClusterError as error:
            return error


class AsOfNow:
    """A page that was begun after it was asked for, made once for all who wait for it."""

    def __init__(self, make: Callable[[], Awaitable[Page]]) -> None:
        self._make = make
        self._lock = asyncio.Lock()
        self._asked = 0
        self._made: tuple[int, Page] | None = None
        """How many had asked when the last page was begun, and that page."""

    async def get(self) -> Page:
        """Return the page.

        Raises:
            ClusterError: as the making did.
        """
        self._asked += 1
        mine = self._asked
        async with self._lock:
            if self._made is None or self._made[0] < mine:
                await asyncio.sleep(0)  # Whoever asks at once is in it.
                asked = self._asked
                self._made = asked, await self._make()
            return self._made[1]


class Rendered:
    """The last page that was made of what was measured: for all who ask until the next measure."""

    def __init__(self, make: Callable[[NodeUsage | None], Awaitable[Page]]) -> None:
        self._make = make
        self._lock = asyncio.Lock()
        self._made: tuple[NodeUsage | None, Page] | None = None

    async def of(self, usage: NodeUsage | None) -> Page:
        """Return the page about that measure."""
        async with self._lock:
            if self._made is None or self._made[0] is not usage:
                self._made = usage, await self._make(usage)
            return self._made[1]


def _states_of(pod: JsonObject) -> Iterator[str]:
    for status in container_statuses_of(pod):
        yield next(iter(status.get("state") or {"waiting": {}}), "waiting")


async def _listed(pods: Iterable[JsonObject]) -> Page:
    return await _pieced(pod_list(pods))


async def _pieced(parts: Iterable[bytes]) -> Page:
    body = bytearray()
    for number, part in enumerate(parts):
        body += part
        if number % YIELD_EVERY == 0:
            await asyncio.sleep(0)
    return Page(content_type=JSON, body=bytes(body))


async def _text(families: Iterable[Family]) -> Page:
    lines: list[str] = []
    await in_turns(render(families), lines.append)
    return Page(content_type=CONTENT_TYPE, body="".join(lines).encode())


def _gauge(name: str, help_text: str, told: Iterable[tuple[dict[str, str], int]]) -> Family:
    samples = [Sample(name=name, labels=labels, value=value) for labels, value in told]
    return Family(name=name, kind="gauge", help=help_text, samples=samples)
