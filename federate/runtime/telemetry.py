"""What an operator sees of a running process: logs, metrics and the health page.

Beside the flow: the CLI starts it, the runtime hands its observers to clients, controllers and
virtual nodes, and serves the health page. Every metric stands in the one table below. Gauges are
read when a scrape asks, on the event loop, so a callback may look at anything that lives there.
Log lines go to one stream; nothing logs local variables, which may hold credentials.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any, Self, TextIO

import structlog
from aiohttp import web
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Histogram,
    Metric,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from federate.cluster.client import Observer
from federate.errors import ConfigError
from federate.flow.controller import ReconcileObserver
from federate.flow.workqueue import Lane
from federate.model.expiry import Expiry
from federate.runtime.lags import PodLags

log = structlog.get_logger()

LATENCY_BUCKETS_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 120, 300)
"""From a read on the same host to a whole watch."""

SHUTDOWN_SECONDS = 1.0
"""How long an open scrape may hold up the end of the process, which has 5 s in all."""


class LogFormat(StrEnum):
    """How log lines look. `auto`: for people on a terminal, logfmt elsewhere."""

    AUTO = "auto"
    CONSOLE = "console"
    JSON = "json"


class LogLevel(StrEnum):
    """The least severe line that is written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Kind(StrEnum):
    """What kind of number a metric is."""

    COUNTER = "counter"
    HISTOGRAM = "histogram"
    GAUGE = "gauge"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricRow:
    """One line of the table; `unit` is "" for plain counts and yes-or-no."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str
    unit: str = ""


def _row(kind: Kind, name: str, labels: str, help_text: str, unit: str = "") -> MetricRow:
    return MetricRow(name=name, kind=kind, labels=tuple(labels.split()), help=help_text, unit=unit)


METRICS: tuple[MetricRow, ...] = (
    _row(
        Kind.COUNTER,
        "federate_requests_total",
        "cluster verb resource outcome",
        "Requests to API servers; outcome is ok, Cancelled or the class of the error.",
    ),
    _row(
        Kind.HISTOGRAM,
        "federate_request_duration_seconds",
        "cluster verb",
        "Time from sending a request to its end; for verbs watch and stream, how long it lasted.",
        "seconds",
    ),
    _row(
        Kind.COUNTER,
        "federate_reconciles_total",
        "node lane result",
        "Reconciles of pods; result is done, again, elsewhere or the class of the error.",
    ),
    _row(
        Kind.HISTOGRAM,
        "federate_reconcile_duration_seconds",
        "node lane",
        "Time that one reconcile of a pod took.",
        "seconds",
    ),
    _row(
        Kind.HISTOGRAM,
        "federate_mirror_lag_seconds",
        "node",
        "Time from a hub pod first seen on the virtual node to its mirror in the target.",
        "seconds",
    ),
    _row(
        Kind.HISTOGRAM,
        "federate_status_lag_seconds",
        "node",
        "Time from a mirror's changed status seen to its hub pod written.",
        "seconds",
    ),
    _row(Kind.GAUGE, "federate_queue_depth", "node lane", "Pods ready that wait for a worker."),
    _row(
        Kind.GAUGE,
        "federate_queue_oldest_wait_seconds",
        "node lane",
        "How long the pod that waits longest for a worker has been ready.",
        "seconds",
    ),
    _row(Kind.GAUGE, "federate_hub_pods", "node", "Hub pods bound to the virtual node."),
    _row(Kind.GAUGE, "federate_mirrors", "node", "Mirrors of the virtual node in its target."),
    _row(
        Kind.GAUGE,
        "federate_target_reachable",
        "node",
        "1 while the target answers the node's ping, else 0.",
    ),
    _row(
        Kind.GAUGE,
        "federate_leader",
        "node",
        "1 while this process leads the virtual node, 0 while it stands by.",
    ),
    _row(Kind.COUNTER, "federate_orphans_deleted_total", "node", "Orphans deleted in the target."),
    _row(
        Kind.GAUGE,
        "federate_companions",
        "node standing",
        "ConfigMaps and Secrets that pods refer to; standing is settled (as on the hub), absent "
        "(the hub has none), blocked or coming.",
    ),
    _row(
        Kind.GAUGE,
        "federate_companion_watches",
        "node",
        "Watches of the hub's ConfigMaps and Secrets, each a connection.",
    ),
    _row(
        Kind.GAUGE,
        "federate_companions_asked",
        "node",
        "ConfigMaps and Secrets of the hub that are asked for, since no watch tells of them.",
    ),
    _row(
        Kind.COUNTER,
        "federate_companion_reads_total",
        "node side",
        "Reads of single ConfigMaps and Secrets; side is hub or target.",
    ),
    _row(
        Kind.GAUGE,
        "federate_issued",
        "node standing",
        "Tokens and news of Services, by where they stand; overdue: past 80 % of life and not "
        "renewed.",
    ),
    _row(
        Kind.GAUGE,
        "federate_claims",
        "node standing",
        "Claims of the hub with storage in the target, or to have some, by where they stand.",
    ),
    _row(
        Kind.GAUGE,
        "federate_followed_services",
        "node standing",
        "Services of the hub that follow into the target, by where they stand.",
    ),
    _row(
        Kind.COUNTER,
        "federate_watch_gaps_total",
        "cluster resource",
        "Watches that broke off so that the collection was listed again.",
    ),
    _row(
        Kind.COUNTER,
        "federate_target_events_total",
        "node outcome",
        "Events of the target about mirrors; outcome is told, or dropped where there were too many "
        "or the hub did not take one.",
    ),
    _row(
        Kind.GAUGE,
        "federate_target_events_open",
        "node",
        "1 while the target lets us watch its Events, else 0: hub pods go without them.",
    ),
    _row(
        Kind.COUNTER,
        "federate_kubelet_requests_total",
        "node kind status",
        "Requests to the virtual node's kubelet API; kind is logs, exec, metrics and the like.",
    ),
    _row(
        Kind.COUNTER,
        "federate_kubelet_bytes_total",
        "node kind direction",
        "Bytes of logs and streams; direction is in (towards the container) or out.",
    ),
    _row(
        Kind.GAUGE,
        "federate_kubelet_streams",
        "node",
        "Streams (logs, exec, attach, port-forward) that are open through the virtual node.",
    ),
    _row(
        Kind.GAUGE,
        "federate_kubelet_serving",
        "node",
        "1 while the virtual node answers as a kubelet, else 0.",
    ),
    _row(
        Kind.GAUGE,
        "federate_kubelet_certificate_expiry_timestamp_seconds",
        "node",
        "When the serving certificate of the kubelet API ends, in Unix time.",
        "seconds",
    ),
    _row(
        Kind.GAUGE,
        "federate_unknown_mirrors",
        "target",
        "Mirrors of other virtual nodes of this hub in the target; nothing here deletes them.",
    ),
    _row(
        Kind.GAUGE,
        "federate_config_valid",
        "",
        "1 while the virtual nodes are those of the configuration file as it is, 0 while the file "
        "is wrong, or waits for a start.",
    ),
    _row(
        Kind.GAUGE,
        "federate_credential_expiry_timestamp_seconds",
        "cluster",
        "When the credentials for the cluster end, in Unix time; absent where that is not known.",
        "seconds",
    ),
    _row(Kind.GAUGE, "federate_build_info", "version", "Always 1; the version is in the label."),
)

_NODE_LABELS = frozenset({"node", "target", "cluster"})


Reading = Callable[[], float | None]
"""Reads a gauge; None: it has no value, and is absent."""


class _WatchedGauges(Collector):
    """Gauges that are read at scrape time."""

    def __init__(self, rows: Iterable[MetricRow]) -> None:
        self._rows = {row.name: row for row in rows}
        self._reads: dict[str, dict[tuple[str, ...], Reading]] = {name: {} for name in self._rows}

    def watch(self, name: str, labels: Mapping[str, str], read: Reading) -> None:
        row = self._rows.get(name)
        if row is None or set(labels) != set(row.labels):
            raise ValueError(f"{name} with labels {sorted(labels)} is not in the metrics table")
        self._reads[name][tuple(labels[label] for label in row.labels)] = read

    def forget(self, node: str) -> None:
        for name, row in self._rows.items():
            at = [i for i, label in enumerate(row.labels) if label in _NODE_LABELS]
            for values in [v for v in self._reads[name] if any(v[i] == node for i in at)]:
                del self._reads[name][values]

    def collect(self) -> Iterable[Metric]:
        for name, row in self._rows.items():
            family = GaugeMetricFamily(name, row.help, labels=row.labels, unit=row.unit)
            for values, read in list(self._reads[name].items()):
                try:
                    if (value := read()) is not None:
                        family.add_metric(values, float(value))
                except Exception as error:  # noqa: BLE001 - one broken gauge must not hide the others
                    log.warning("gauge not readable", metric=name, labels=values, error=str(error))
            yield family


class Metrics:
    """The metrics of one process, in a registry of its own."""

    def __init__(self, *, version: str) -> None:
        # They double the series of every counter.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._counters: dict[str, Counter] = {}
        self._histograms: dict[str, Histogram] = {}
        for row in METRICS:
            if row.kind is Kind.COUNTER:
                self._counters[row.name] = Counter(
                    row.name, row.help, row.labels, registry=self.registry
                )
            elif row.kind is Kind.HISTOGRAM:
                self._histograms[row.name] = Histogram(
                    row.name,
                    row.help,
                    row.labels,
                    unit=row.unit,
                    buckets=LATENCY_BUCKETS_SECONDS,
                    registry=self.registry,
                )
        self._gauges = _WatchedGauges(row for row in METRICS if row.kind is Kind.GAUGE)
        self.registry.register(self._gauges)
        self.watch_gauge("federate_build_info", {"version": version}, lambda: 1.0)

    def request_observer(self, cluster: str) -> Observer:
        """Count the requests of one client; give it to `cluster.connect`."""
        total = self._counters["federate_requests_total"]
        duration = self._histograms["federate_request_duration_seconds"]

        # Finding a child by its labels costs more than all else here; there are few.
        @cache
        def count_of(verb: str, resource: str, outcome: str) -> Counter:
            return total.labels(cluster, verb, resource or "none", outcome)

        @cache
        def duration_of(verb: str) -> Histogram:
            return duration.labels(cluster, verb)

        def observe(*, verb: str, resource: str, outcome: str, seconds: float) -> None:
            count_of(verb, resource, outcome).inc()
            duration_of(verb).observe(seconds)

        return observe

    def reconcile_observer(self, node: str) -> ReconcileObserver:
        """Count the reconciles of one virtual node; give it to its controller."""
        return _ReconcileCounts(
            node,
            total=self._counters["federate_reconciles_total"],
            duration=self._histograms["federate_reconcile_duration_seconds"],
        )

    def pod_lags(self, node: str, *, clock: Callable[[], float]) -> PodLags:
        """Measure how far the two sides of a virtual node's pods lie behind each other."""
        mirrored = self._histograms["federate_mirror_lag_seconds"].labels(node)
        told = self._histograms["federate_status_lag_seconds"].labels(node)
        return PodLags(mirrored=mirrored.observe, told=told.observe, clock=clock)

    def watch_gauge(self, name: str, labels: Mapping[str, str], read: Reading) -> None:
        """Let scrapes call `read`; the same labels again replace the earlier callback.

        Raises:
            ValueError: the table has no such gauge, or other labels.
        """
        self._gauges.watch(name, labels, read)

    def watch_credentials(self, cluster: str, expiry: Callable[[], Expiry | None]) -> None:
        """Let scrapes tell when the credentials for a cluster end; `expiry` says it, or nothing."""

        def ends_at() -> float | None:
            found = expiry()
            return found.at if found is not None else None

        name = "federate_credential_expiry_timestamp_seconds"
        self.watch_gauge(name, {"cluster": cluster}, ends_at)

    def forget_node(self, node: str) -> None:
        """Drop the gauges of a virtual node; its counters stay, they only ever grow."""
        self._gauges.forget(node)

    def watch_gap(self, *, cluster: str, resource: str) -> None:
        """Count a watch whose collection had to be listed again."""
        self._counters["federate_watch_gaps_total"].labels(cluster, resource).inc()

    def orphan_deleted(self, node: str) -> None:
        """Count an orphan deleted in the target."""
        self._counters["federate_orphans_deleted_total"].labels(node).inc()

    def companion_read(self, node: str, cluster: str) -> None:
        """Count a read by name of what a pod refers to."""
        side = "hub" if cluster == "hub" else "target"
        self._counters["federate_companion_reads_total"].labels(node, side).inc()

    def target_event(self, node: str, outcome: str) -> None:
        """Count an Event of the target that was told on the hub, or dropped."""
        self._counters["federate_target_events_total"].labels(node, outcome).inc()

    def kubelet_counts(self, node: str) -> KubeletCounts:
        """Count what goes through the kubelet API of one virtual node."""
        return KubeletCounts(
            node,
            requests=self._counters["federate_kubelet_requests_total"],
            moved=self._counters["federate_kubelet_bytes_total"],
        )

    def exposition(self) -> bytes:
        """Render the /metrics page."""
        return generate_latest(self.registry)


class _ReconcileCounts:
    def __init__(self, node: str, *, total: Counter, duration: Histogram) -> None:
        self._total_of = cache(lambda lane, result: total.labels(node, lane, result))
        self._duration_of = cache(lambda lane: duration.labels(node, lane))

    def reconciled(
        self, *, controller: str, lane: Lane, result: str, duration_seconds: float
    ) -> None:
        self._total_of(lane, result).inc()
        self._duration_of(lane).observe(duration_seconds)


class KubeletCounts:
    """Told by the kubelet server of each answer and of what streams carry; its `Observer`."""

    def __init__(self, node: str, *, requests: Counter, moved: Counter) -> None:
        self.open_streams = 0
        # Finding a child by its labels costs more than a chunk that is passed on.
        self._request_of = cache(lambda kind, status: requests.labels(node, kind, status))
        self._moved_of = cache(lambda kind, direction: moved.labels(node, kind, direction))

    def request(self, *, kind: str, code: int) -> None:
        """Count a request that was answered."""
        self._request_of(str(kind), str(code)).inc()

    def stream_began(self, kind: str) -> None:
        """Count a stream from here on."""
        self.open_streams += 1

    def stream_ended(self, kind: str) -> None:
        """Count it no more."""
        self.open_streams -= 1

    def moved(self, kind: str, direction: str, count: int) -> None:
        """Count bytes; direction is in (towards the container) or out."""
        self._moved_of(str(kind), str(direction)).inc(count)


@dataclass(frozen=True, slots=True, kw_only=True)
class Telemetry:
    """What the CLI hands to the process; logging is global and started before."""

    metrics: Metrics


def start_logging(*, level: LogLevel, log_format: LogFormat, stream: TextIO) -> None:
    """Send structlog's and the standard library's lines to `stream`; calling again replaces."""
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    rendering = _rendering(log_format, stream)
    number = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[*shared, *rendering],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(stream),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.add_logger_name],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *rendering],
        )
    )
    # Other libraries at WARNING at least: their debug lines show headers, with tokens in them.
    logging.basicConfig(handlers=[handler], level=max(number, logging.WARNING), force=True)


def _rendering(log_format: LogFormat, stream: TextIO) -> list[structlog.typing.Processor]:
    """Return the last processors; none of them shows the local variables of a traceback."""
    on_terminal = stream.isatty()
    if log_format is LogFormat.CONSOLE or (log_format is LogFormat.AUTO and on_terminal):
        plain = structlog.dev.plain_traceback
        return [structlog.dev.ConsoleRenderer(colors=on_terminal, exception_formatter=plain)]
    if log_format is LogFormat.JSON:
        return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    order = ["timestamp", "level", "event"]
    logfmt = structlog.processors.LogfmtRenderer(key_order=order, bool_as_flag=False)
    return [structlog.processors.format_exc_info, _without_absent, logfmt]


def _without_absent(
    _logger: Any, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Drop what is None, and make keys of other libraries fit for logfmt."""
    return {key.replace(" ", "_"): value for key, value in event.items() if value is not None}


Verdict = Callable[[], tuple[bool, str]]
"""Says whether, and in a sentence why (not)."""


class HealthServer:
    """Serves /healthz, /readyz and /metrics while it is entered; port 0 picks a free port."""

    def __init__(
        self, host: str, port: int, *, metrics: Metrics, ready: Verdict, alive: Verdict
    ) -> None:
        self._host = host
        self._metrics = metrics
        self._verdicts = {"/healthz": alive, "/readyz": ready}
        self._held = AsyncExitStack()
        self.port = port
        """The port asked for, and once entered the port it listens on."""

    async def __aenter__(self) -> Self:
        application = web.Application()
        for path, verdict in self._verdicts.items():
            application.router.add_get(path, _page_of(verdict))
        application.router.add_get("/metrics", self._scrape)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=SHUTDOWN_SECONDS)
        await runner.setup()
        async with AsyncExitStack() as starting:
            starting.push_async_callback(runner.cleanup)
            try:
                await web.TCPSite(runner, self._host, self.port).start()
            except OSError as error:
                raise _cannot_listen(self._host, self.port, error) from error
            self._held = starting.pop_all()
        self.port = runner.addresses[0][1]
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self._held.aclose()

    async def _scrape(self, _request: web.Request) -> web.Response:
        headers = {"Content-Type": CONTENT_TYPE_LATEST}
        return web.Response(body=self._metrics.exposition(), headers=headers)


def _page_of(verdict: Verdict) -> Callable[[web.Request], Any]:
    async def page(_request: web.Request) -> web.Response:
        good, why = verdict()
        return web.Response(text=f"{why}\n", status=200 if good else 503)

    return page


def _cannot_listen(host: str, port: int, error: OSError) -> ConfigError:
    if error.errno == errno.EADDRINUSE:
        return ConfigError(
            f"--listen: {host}:{port} is taken by another process (federate already runs?); "
            f"choose another port, or port 0 for a free one"
        )
    return ConfigError(
        f"--listen: cannot listen on {host}:{port}: {error.strerror or error}; "
        f"expected an address of this host and a port this user may open"
    )
