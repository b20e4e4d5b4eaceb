"""Logs, metrics and the health page."""

from __future__ import annotations

import io
import json
import logging
import re
import socket
from collections.abc import Callable, Iterator

import aiohttp
import pytest
import structlog
from prometheus_client.parser import text_string_to_metric_families

from federate.errors import ConfigError
from federate.model.expiry import Expiry
from federate.runtime.telemetry import (
    METRICS,
    HealthServer,
    Kind,
    LogFormat,
    LogLevel,
    Metrics,
    start_logging,
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def log_to() -> Iterator[Callable[..., io.StringIO]]:
    """Start logging into a stream; what was configured before comes back afterwards."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers = []  # else they would be closed

    def start(
        log_format: LogFormat = LogFormat.AUTO,
        level: LogLevel = LogLevel.INFO,
        stream: io.StringIO | None = None,
    ) -> io.StringIO:
        stream = stream or io.StringIO()
        start_logging(level=level, log_format=log_format, stream=stream)
        return stream

    yield start
    root.handlers = handlers
    root.setLevel(level)
    structlog.reset_defaults()


Start = Callable[..., io.StringIO]


def sample(metrics: Metrics, name: str, **labels: str) -> float | None:
    value: float | None = metrics.registry.get_sample_value(name, labels)
    return value


# --- logs ------------------------------------------------------------------------------------


def test_json_lines_carry_context(log_to: Start) -> None:
    """A JSON line has time, level, event, its own values and the bound context."""
    stream = log_to(LogFormat.JSON)
    with structlog.contextvars.bound_contextvars(key="default/web"):
        structlog.get_logger().info("mirror created", uid="u")
    line = json.loads(stream.getvalue())
    assert line.pop("timestamp").endswith("Z")
    assert line == {"level": "info", "event": "mirror created", "key": "default/web", "uid": "u"}


def test_without_a_terminal_lines_are_logfmt(log_to: Start) -> None:
    """One line an event, whatever the values hold; absent values are left out."""
    stream = log_to()
    structlog.get_logger().info("node is up", ready=True, reason=None, text="two\nlines")
    (line,) = stream.getvalue().splitlines()
    assert 'level=info event="node is up"' in line
    assert "ready=true" in line
    assert "reason" not in line


def test_a_terminal_gets_lines_for_people(log_to: Start) -> None:
    """On a terminal lines are coloured; asked for without one they are plain."""
    coloured = log_to(stream=Terminal())
    structlog.get_logger().info("up")
    assert "\x1b[" in coloured.getvalue()
    plain = log_to(LogFormat.CONSOLE)
    structlog.get_logger().info("up")
    assert "\x1b[" not in plain.getvalue()


def test_the_level_holds_back_lines(log_to: Start) -> None:
    """Less severe lines are not written."""
    stream = log_to(LogFormat.JSON, LogLevel.WARNING)
    structlog.get_logger().info("quiet")
    structlog.get_logger().warning("loud")
    assert json.loads(stream.getvalue())["event"] == "loud"


def test_other_libraries_log_alike_and_not_in_detail(log_to: Start) -> None:
    """Lines of the standard library look the same; their details may hold tokens and stay out."""
    stream = log_to(LogFormat.JSON, LogLevel.DEBUG)
    logging.getLogger("aiohttp.client").debug("Authorization: Bearer secret")
    logging.getLogger("aiohttp.client").warning("slow")
    line = json.loads(stream.getvalue())
    assert (line["event"], line["logger"], line["level"]) == ("slow", "aiohttp.client", "warning")


@pytest.mark.parametrize("log_format", list(LogFormat))
def test_tracebacks_show_no_local_variables(log_to: Start, log_format: LogFormat) -> None:
    """A traceback is logged without values, which may be credentials."""

    def fail() -> None:
        hidden = "-".join(("top", "secret"))
        raise RuntimeError(f"{len(hidden)}")

    stream = log_to(log_format)
    try:
        fail()
    except RuntimeError as error:
        structlog.get_logger().error("failed", exc_info=error)
    assert "RuntimeError" in stream.getvalue()
    assert "top-secret" not in stream.getvalue()


# --- metrics -----------------------------------------------------------------------------------


def test_what_goes_through_the_kubelet_api_is_counted() -> None:
    """Answers by kind and status, bytes by direction, streams while they are open."""
    metrics = Metrics(version="0")
    counts = metrics.kubelet_counts("edge")
    counts.request(kind="logs", code=200)
    counts.request(kind="logs", code=404)
    counts.stream_began("exec")
    counts.moved("exec", "out", 10)
    counts.moved("exec", "out", 5)
    assert counts.open_streams == 1
    counts.stream_ended("exec")
    assert counts.open_streams == 0
    requests, moved = "federate_kubelet_requests_total", "federate_kubelet_bytes_total"
    assert sample(metrics, requests, node="edge", kind="logs", status="404") == 1.0
    assert sample(metrics, moved, node="edge", kind="exec", direction="out") == 15.0


def test_the_table_is_what_is_served() -> None:
    """Every metric of the table is on the page with its help, and none beside it."""
    metrics = Metrics(version="1")
    families = {f.name: f for f in text_string_to_metric_families(metrics.exposition().decode())}
    served = {name: f for name, f in families.items() if name.startswith("federate_")}
    assert {row.name.removesuffix("_total") for row in METRICS} == set(served)
    for row in METRICS:
        family = served[row.name.removesuffix("_total")]
        assert (family.type, family.documentation) == (row.kind, row.help)


def test_names_follow_the_rules_of_prometheus() -> None:
    """Counters end in _total, a unit ends the name, and every help is a sentence."""
    assert len({row.name for row in METRICS}) == len(METRICS)
    for row in METRICS:
        assert row.name.endswith("_total") == (row.kind is Kind.COUNTER)
        assert row.name.endswith(f"_{row.unit}") or not row.unit
        assert row.name.endswith("_seconds") == (row.unit == "seconds")
        assert row.help.endswith(".")


def test_requests_are_counted_and_timed() -> None:
    """A client's observer counts by outcome and times by verb."""
    metrics = Metrics(version="1")
    observe = metrics.request_observer("edge")
    observe(verb="get", resource="pods", outcome="ok", seconds=0.2)
    observe(verb="get", resource="", outcome="Unreachable", seconds=5)
    total, at = "federate_requests_total", {"cluster": "edge", "verb": "get"}
    assert sample(metrics, total, **at, resource="pods", outcome="ok") == 1
    assert sample(metrics, total, **at, resource="none", outcome="Unreachable") == 1
    assert sample(metrics, "federate_request_duration_seconds_sum", **at) == 5.2


def test_reconciles_are_counted_and_timed() -> None:
    """A node's observer counts by lane and result."""
    metrics = Metrics(version="1")
    observer = metrics.reconcile_observer("edge")
    observer.reconciled(controller="pods", lane="sync", result="done", duration_seconds=0.5)
    labels = {"node": "edge", "lane": "sync"}
    assert sample(metrics, "federate_reconciles_total", **labels, result="done") == 1
    assert sample(metrics, "federate_reconcile_duration_seconds_count", **labels) == 1


def test_single_events_are_counted() -> None:
    """Gaps of watches and deleted orphans have counters of their own."""
    metrics = Metrics(version="1")
    metrics.watch_gap(cluster="hub", resource="pods")
    metrics.orphan_deleted("edge")
    assert sample(metrics, "federate_watch_gaps_total", cluster="hub", resource="pods") == 1
    assert sample(metrics, "federate_orphans_deleted_total", node="edge") == 1


def test_gauges_are_read_when_asked() -> None:
    """A gauge shows what its callback says at the scrape; the latest callback counts."""
    metrics = Metrics(version="7")
    pods = [1]
    metrics.watch_gauge("federate_hub_pods", {"node": "edge"}, lambda: len(pods))
    pods.append(2)
    assert sample(metrics, "federate_hub_pods", node="edge") == 2
    metrics.watch_gauge("federate_hub_pods", {"node": "edge"}, lambda: 9)
    assert sample(metrics, "federate_hub_pods", node="edge") == 9
    assert sample(metrics, "federate_build_info", version="7") == 1


def test_a_forgotten_node_leaves_no_gauge() -> None:
    """The gauges of one node go, those of others and its counters stay."""
    metrics = Metrics(version="1")
    for node in ("a", "b"):
        metrics.watch_gauge("federate_queue_depth", {"node": node, "lane": "sync"}, lambda: 1)
        metrics.watch_gauge("federate_unknown_mirrors", {"target": node}, lambda: 1)
        metrics.orphan_deleted(node)
    metrics.forget_node("a")
    metrics.forget_node("a")
    assert sample(metrics, "federate_queue_depth", node="a", lane="sync") is None
    assert sample(metrics, "federate_unknown_mirrors", target="a") is None
    assert sample(metrics, "federate_queue_depth", node="b", lane="sync") == 1
    assert sample(metrics, "federate_orphans_deleted_total", node="a") == 1


def test_one_broken_gauge_does_not_hide_the_others() -> None:
    """A callback that fails costs its own sample only, and is logged."""
    metrics = Metrics(version="1")
    metrics.watch_gauge("federate_mirrors", {"node": "a"}, lambda: 1 / 0)
    metrics.watch_gauge("federate_mirrors", {"node": "b"}, lambda: 2)
    with structlog.testing.capture_logs() as logs:
        assert b'federate_mirrors{node="b"} 2.0' in metrics.exposition()
    assert [line["metric"] for line in logs] == ["federate_mirrors"]


def test_c72_the_end_of_credentials_is_told_where_it_is_known() -> None:
    """A cluster whose credentials have no known end has no such series; nor one that is no more."""
    metrics = Metrics(version="1")
    known: dict[str, Expiry | None] = {
        "hub": None,
        "edge": Expiry(at=2e9, warn_at=1e9, what="token"),
    }
    for cluster in known:
        metrics.watch_credentials(cluster, lambda cluster=cluster: known[cluster])  # type: ignore[misc]
    name = "federate_credential_expiry_timestamp_seconds"
    assert re.findall(rf"^{name}{{(.*)}} (.*)$", metrics.exposition().decode(), re.M) == [
        ('cluster="edge"', "2e+09")
    ]
    metrics.forget_node("edge")
    assert f"{name}{{" not in metrics.exposition().decode()


@pytest.mark.parametrize(
    ("name", "labels"),
    [("federate_nonsense", {"node": "a"}), ("federate_mirrors", {"pod": "a"})],
)
def test_only_gauges_of_the_table_exist(name: str, labels: dict[str, str]) -> None:
    """A gauge that is not in the table is a mistake of ours that shows at once."""
    with pytest.raises(ValueError, match="not in the metrics table"):
        Metrics(version="1").watch_gauge(name, labels, lambda: 0)


def test_two_processes_worth_of_metrics_do_not_meet() -> None:
    """Each Metrics has a registry of its own."""
    one, other = Metrics(version="1"), Metrics(version="1")
    one.orphan_deleted("edge")
    assert sample(other, "federate_orphans_deleted_total", node="edge") is None


# --- the health page -----------------------------------------------------------------------------


async def fetch(server: HealthServer, path: str) -> tuple[int, str]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{server.port}{path}") as response,
    ):
        return response.status, await response.text()


async def test_health_is_served_on_a_free_port() -> None:
    """Probes get 200 or 503 with a sentence, scrapers get the metrics."""
    ready = [False]
    server = HealthServer(
        "127.0.0.1",
        0,
        metrics=Metrics(version="1"),
        ready=lambda: (ready[0], "ready" if ready[0] else "edge: caches are filling"),
        alive=lambda: (True, "alive"),
    )
    async with server:
        assert server.port > 0
        assert await fetch(server, "/healthz") == (200, "alive\n")
        assert await fetch(server, "/readyz") == (503, "edge: caches are filling\n")
        ready[0] = True
        assert await fetch(server, "/readyz") == (200, "ready\n")
        status, page = await fetch(server, "/metrics")
        assert status == 200
        assert 'federate_build_info{version="1"} 1.0' in page
        assert (await fetch(server, "/"))[0] == 404


def health(host: str, port: int) -> HealthServer:
    good = (True, "")
    return HealthServer(
        host, port, metrics=Metrics(version="1"), ready=lambda: good, alive=lambda: good
    )


async def test_a_taken_port_says_what_to_do() -> None:
    """The user learns that the port is taken and how to choose another."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"127\.0\.0\.1:{port} is taken .* another port"):
            async with health("127.0.0.1", port):
                pass


async def test_a_foreign_address_says_what_to_do() -> None:
    """An address that this host does not have is told as such."""
    with pytest.raises(ConfigError, match=r"cannot listen on 192\.0\.2\.1:0: .*an address of this"):
        async with health("192.0.2.1", 0):
            pass


async def test_the_port_is_free_again_afterwards() -> None:
    """Leaving closes the port."""
    async with health("127.0.0.1", 0) as first:
        port = first.port
    async with health("127.0.0.1", port) as second:
        assert second.port == port
