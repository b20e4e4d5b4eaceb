"""Turn readings into what a kubelet tells: counters that only grow, with honest times. Pure.

Whoever scrapes twice divides the growth of a counter by the time between the samples, so a jump
would be read as a burst of thousands of cores. Therefore each series is counted here from its first
reading on, whatever its source: by the growth of a kubelet's counter, or by a rate times the time
it stands for. Losing this book (a restart, another leader) begins all series anew and lower, which
every reader takes for what it is: a counter that began again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from federate.kubelet.ports import Located
from federate.kubelet.usage import WHOLE_POD, PodReadings, Reading
from federate.model.instants import parse_instant
from federate.model.objects import (
    JsonObject,
    ObjectKey,
    metadata_of,
    spec_of,
    status_of,
    uid_of,
)
from federate.model.pods import container_statuses_of, containers_of, is_terminal

STALE_SECONDS = 180.0
"""A sample that did not change for so long, by our own clock, is left out. Three rounds of a
metrics-server that measures once a minute; much longer, and a HPA would go by the past."""

YOUNG_SECONDS = 60.0
"""What a container used since it began is counted whole only when it is no older than this at its
first reading: an old one's past would look like a burst of the node."""

BEGINNING = 1e-6
"""Seconds of CPU that each series begins with: who began has used some, and metrics-server drops a
whole pod for one counter that is exactly zero."""

_IDENTITY = ("namespace", "name", "uid", "creationTimestamp")

START_SLACK_SECONDS = 1.0
"""Starts are told to the second, cut off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The usage of a container, a pod or the node: measured `at`, by the target's clock."""

    at: float
    cpu_seconds: float
    cores: float
    memory_bytes: float
    started_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningPod:
    """What counting needs of a hub pod that runs: as little as can be, for there may be many."""

    identity: JsonObject
    containers: frozenset[str]
    """Its own: the target may inject others."""
    mirror: ObjectKey
    starts: Mapping[str, float]
    """Since when each container of the mirror runs, and the pod."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodUsage:
    """The usage of a hub pod: by container of its own, and of all that runs in it."""

    hub_pod: JsonObject
    """Of its metadata only what tells which it is, and since when it exists."""
    containers: Mapping[str, Usage]
    whole: Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeUsage:
    """The usage of a virtual node: that of its own pods, and nothing else of the target."""

    pods: Sequence[PodUsage]
    whole: Usage | None
    """None: there are pods, but nobody says what they use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One counter: the last reading, and what was counted until then."""

    reading: Reading
    cpu_seconds: float
    cores: float
    seen_at: float
    """Our clock, when this reading was first seen."""


SeriesKey = tuple[str, str, float | None]
"""Hub pod's uid, container, and when it began: a restarted one counts anew."""


@dataclass(slots=True)
class UsageBook:
    """All counters of one virtual node: as many as its pods have containers, and no more."""

    series: dict[SeriesKey, Series] = field(default_factory=dict)
    node_seconds: float = BEGINNING
    node_last: Usage | None = None

    def take(
        self, readings: PodReadings, pods: Iterable[RunningPod], *, clock: float, now: float
    ) -> NodeUsage:
        """Count new readings and return all that is fresh.

        `clock` is monotonic, `now` the time of day, for a node without
        pods, which nobody measures. Readings of pods that are not ours are not looked at.
        """
        kept: dict[SeriesKey, Series] = {}
        told: list[PodUsage] = []
        running: dict[str, Mapping[str, float]] = {}
        for pod in pods:
            running[uid_of(pod.identity)] = pod.starts
            usage = self._take_pod(readings.get(pod.mirror, {}), pod, kept, clock)
            if usage is not None:
                told.append(usage)
        self._keep_unread(kept, running)
        is_told = bool(told) or not running
        return NodeUsage(pods=told, whole=self._whole(told, now) if is_told else None)

    def _take_pod(
        self,
        readings: Mapping[str, Reading],
        pod: RunningPod,
        kept: dict[SeriesKey, Series],
        clock: float,
    ) -> PodUsage | None:
        fresh: dict[str, Usage] = {}
        uid = uid_of(pod.identity)
        for name, reading in readings.items():
            start = pod.starts.get(name)
            if start is None or reading.at + START_SLACK_SECONDS < start:
                continue  # it does not run, or the reading is of the one before
            key = (uid, name, start)
            series = advanced(self.series.get(key), reading, start=start, clock=clock)
            if name == WHOLE_POD:
                before = self.series.get(key)
                self.node_seconds += series.cpu_seconds - (before.cpu_seconds if before else 0.0)
            kept[key] = series
            if clock - series.seen_at <= STALE_SECONDS:
                fresh[name] = _usage_of(series, start)
        return _pod_usage(pod, fresh)

    def _keep_unread(
        self, kept: dict[SeriesKey, Series], running: Mapping[str, Mapping[str, float]]
    ) -> None:
        """Keep the counters of what still runs but was not told of this time."""
        for key, series in self.series.items():
            uid, name, start = key
            if key not in kept and running.get(uid, {}).get(name) == start:
                kept[key] = series
        self.series = kept

    def _whole(self, pods: Sequence[PodUsage], now: float) -> Usage:
        """Add up the pods at the time of the newest reading.

        Pods are measured at different times: each is carried on to that time at its last rate, or
        the sum would grow in steps. It never sinks.
        """
        last = self.node_last
        at = max((pod.whole.at for pod in pods), default=now)
        if last is not None and at < last.at <= at + STALE_SECONDS:
            at = last.at
        # Bounded, for one of the target's clocks may be far from the others.
        ahead = math.fsum(pod.whole.cores * min(at - pod.whole.at, STALE_SECONDS) for pod in pods)
        seconds = self.node_seconds + ahead
        self.node_last = Usage(
            at=at,
            cpu_seconds=max(seconds, last.cpu_seconds) if last is not None else seconds,
            cores=math.fsum(pod.whole.cores for pod in pods),
            memory_bytes=math.fsum(pod.whole.memory_bytes for pod in pods),
        )
        return self.node_last


def advanced(before: Series | None, reading: Reading, *, start: float, clock: float) -> Series:
    """Count one reading; one that is not newer than the last changes nothing."""
    if before is None:
        first, cores = _first(reading, start)
        return Series(reading=reading, cpu_seconds=first, cores=cores, seen_at=clock)
    if reading.at <= before.reading.at:
        if reading.at < before.reading.at and clock - before.seen_at > STALE_SECONDS:
            # The clock it is measured by was put back: from here on.
            return replace(before, reading=reading, seen_at=clock)
        return before
    seconds = reading.at - before.reading.at
    growth = _growth(before, reading, seconds)
    cores = reading.cores if reading.cores is not None else growth / seconds
    return Series(
        reading=reading, cpu_seconds=before.cpu_seconds + growth, cores=cores, seen_at=clock
    )


def _growth(before: Series, reading: Reading, seconds: float) -> float:
    earlier, later = before.reading.cpu_seconds, reading.cpu_seconds
    if earlier is not None and later is not None:
        return max(0.0, later - earlier)
    # The source has changed to one that counts: until its next reading, as before.
    return (reading.cores if reading.cores is not None else before.cores) * seconds


def _first(reading: Reading, start: float) -> tuple[float, float]:
    """Say with what a counter begins, and the rate until it has grown."""
    age = reading.at - start
    is_young = 0 < age <= YOUNG_SECONDS
    if reading.cpu_seconds is not None:
        used = reading.cpu_seconds if is_young else 0.0
        return used + BEGINNING, reading.cpu_seconds / age if is_young else 0.0
    cores = reading.cores or 0.0
    return cores * (age if is_young else reading.window_seconds) + BEGINNING, cores


def _usage_of(series: Series, start: float) -> Usage:
    reading = series.reading
    told = reading.started_at
    return Usage(
        at=reading.at,
        cpu_seconds=series.cpu_seconds,
        cores=series.cores,
        memory_bytes=reading.memory_bytes,
        # A kubelet's own word is finer; a word about another start is none.
        started_at=told if told is not None and abs(told - start) <= YOUNG_SECONDS else start,
    )


def _pod_usage(pod: RunningPod, fresh: Mapping[str, Usage]) -> PodUsage | None:
    """Show the hub pod's own containers; what the target injected counts in the pod only."""
    containers = {name: usage for name, usage in fresh.items() if name in pod.containers}
    whole = fresh.get(WHOLE_POD) or _sum_of([u for n, u in fresh.items() if n != WHOLE_POD])
    if whole is None:
        return None
    # One without memory is just beginning or ending: metrics-server would drop the whole pod.
    telling = {name: usage for name, usage in containers.items() if usage.memory_bytes > 0}
    return PodUsage(hub_pod=pod.identity, containers=telling, whole=whole)


def _sum_of(containers: Sequence[Usage]) -> Usage | None:
    if not containers:
        return None
    return Usage(
        at=max(usage.at for usage in containers),
        cpu_seconds=math.fsum(usage.cpu_seconds for usage in containers),
        cores=math.fsum(usage.cores for usage in containers),
        memory_bytes=math.fsum(usage.memory_bytes for usage in containers),
    )


def running_pod(place: Located) -> RunningPod | None:
    """Return what counting needs of a pod; None where nothing of it runs."""
    starts = starts_of(place)
    if not starts:
        return None
    metadata = metadata_of(place.hub_pod)
    identity = {field: metadata[field] for field in _IDENTITY if field in metadata}
    own = (container.get("name") for container in containers_of(spec_of(place.hub_pod)))
    return RunningPod(
        identity={"metadata": identity},
        containers=frozenset(str(name) for name in own),
        mirror=place.mirror,
        starts=starts,
    )


def starts_of(place: Located) -> dict[str, float]:
    """Say since when each container runs, and the pod; empty where none does."""
    pod = place.mirror_pod if place.mirror_pod is not None else place.hub_pod
    starts = dict(_running(pod)) if not is_terminal(pod) else {}
    if starts:
        began = parse_instant(status_of(pod).get("startTime") or "")
        starts[WHOLE_POD] = began.timestamp() if began is not None else min(starts.values())
    return starts


def _running(pod: JsonObject) -> Iterator[tuple[str, float]]:
    for status in container_statuses_of(pod):
        running = (status.get("state") or {}).get("running") or {}
        began = parse_instant(running.get("startedAt") or "")
        if began is not None and status.get("name"):
            yield str(status["name"]), began.timestamp()
