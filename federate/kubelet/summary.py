"""Usage as a kubelet's documents: /stats/summary and /metrics/resource. Pure.

Each number stands beside the time it was measured. What nobody measured is absent, not zero.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from federate.kubelet.counters import NodeUsage, PodUsage, RunningPod, Usage
from federate.kubelet.exposition import Family, Sample
from federate.kubelet.usage import WHOLE_POD
from federate.model.instants import format_instant
from federate.model.objects import JsonDict, key_of, uid_of

NANO = 1_000_000_000


def summary_of(
    running: Iterable[RunningPod], usage: NodeUsage | None, *, node_name: str, started_at: float
) -> Iterator[bytes]:
    """Write /stats/summary piece by piece, a pod at a time.

    Every pod and container that runs is there, as on a kubelet, with numbers where it was measured.
    """
    node: JsonDict = {"nodeName": node_name, "startTime": _instant(started_at)}
    if usage is not None and usage.whole is not None:
        node |= _stats(usage.whole)
    yield b'{"node":' + _written(node) + b',"pods":['
    measured = {uid_of(pod.hub_pod): pod for pod in usage.pods} if usage is not None else {}
    separator = b""
    for pod in running:
        yield separator + _written(_pod(pod, measured.get(uid_of(pod.identity))))
        separator = b","
    yield b"]}\n"


def _written(part: JsonDict) -> bytes:
    return json.dumps(part, separators=(",", ":")).encode()


def _pod(pod: RunningPod, usage: PodUsage | None) -> JsonDict:
    key = key_of(pod.identity)
    whole = usage.whole if usage is not None else None
    measured = usage.containers if usage is not None else {}
    return {
        "podRef": {"name": key.name, "namespace": key.namespace, "uid": uid_of(pod.identity)},
        "containers": [
            {"name": name, **_told(start, measured.get(name))}
            for name, start in pod.starts.items()
            if name in pod.containers
        ],
        **_told(pod.starts[WHOLE_POD], whole),
    }


def _told(start: float, usage: Usage | None) -> JsonDict:
    if usage is None:
        return {"startTime": _instant(start)}
    began = usage.started_at if usage.started_at is not None else start
    return {"startTime": _instant(began), **_stats(usage)}


def _stats(usage: Usage) -> JsonDict:
    at = _instant(usage.at)
    return {
        "cpu": {
            "time": at,
            "usageNanoCores": int(usage.cores * NANO),
            "usageCoreNanoSeconds": int(usage.cpu_seconds * NANO),
        },
        "memory": {"time": at, "workingSetBytes": int(usage.memory_bytes)},
    }


def _instant(seconds: float) -> str:
    return format_instant(datetime.fromtimestamp(seconds, UTC))


def resource_families(usage: NodeUsage | None) -> Iterator[Family]:
    """Yield /metrics/resource; None: the target does not let anybody measure."""
    pods = usage.pods if usage is not None else ()
    node = usage.whole if usage is not None else None
    containers = [
        ({"container": name, **_labels(pod)}, container)
        for pod in pods
        for name, container in pod.containers.items()
    ]
    wholes = [(_labels(pod), pod.whole) for pod in pods]
    nodes: list[tuple[dict[str, str], Usage]] = [({}, node)] if node is not None else []
    for scope, told in (("container", containers), ("node", nodes), ("pod", wholes)):
        yield Family(
            name=f"{scope}_cpu_usage_seconds_total",
            kind="counter",
            help=f"CPU time the {scope} has used, in core-seconds",
            samples=[_sample(f"{scope}_cpu_usage_seconds_total", *t, "cpu") for t in told],
        )
        yield Family(
            name=f"{scope}_memory_working_set_bytes",
            kind="gauge",
            help=f"Memory the {scope} is using, in bytes",
            samples=[_sample(f"{scope}_memory_working_set_bytes", *t, "memory") for t in told],
        )
    yield Family(
        name="container_start_time_seconds",
        kind="gauge",
        help="When the container started, in seconds since 1970",
        samples=[
            Sample(name="container_start_time_seconds", labels=labels, value=container.started_at)
            for labels, container in containers
            if container.started_at is not None
        ],
    )
    yield Family(
        name="resource_scrape_error",
        kind="gauge",
        help="1 if the usage of containers could not be had, 0 otherwise",
        samples=[Sample(name="resource_scrape_error", value=float(usage is None))],
    )


def _labels(pod: PodUsage) -> dict[str, str]:
    key = key_of(pod.hub_pod)
    return {"namespace": key.namespace, "pod": key.name}


def _sample(name: str, labels: dict[str, str], usage: Usage, what: str) -> Sample:
    value = usage.cpu_seconds if what == "cpu" else usage.memory_bytes
    return Sample(name=name, labels=labels, value=value, at_ms=round(usage.at * 1000))
