"""What a target says about the usage of mirrors, from either source, in one form. Pure.

metrics.k8s.io tells rates over a window, kubelets tell counters. Both tell when they measured; that
time is kept and never made younger. What is unreadable is left out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from federate.kubelet.exposition import Sample, parse_sample
from federate.model.instants import parse_instant
from federate.model.objects import JsonObject, ObjectKey, key_of
from federate.model.quantities import quantity_of

WHOLE_POD = ""
"""The name under which the sum of a pod stands among its containers; no container is called so."""

_DURATION = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h)")
_DURATIONS = re.compile(rf"(?:{_DURATION.pattern})+")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}

_CPU, _MEMORY, _START = "cpu_usage_seconds_total", "memory_working_set_bytes", "start_time_seconds"
_INTERESTING = tuple(
    f"{scope}_{name}" for scope in ("container", "pod") for name in (_CPU, _MEMORY, _START)
)

MOST_CORES = 1e6
MOST_BYTES = 2.0**60
MOST_CPU_SECONDS = 1e15
"""More than any machine has: a target that says so does not spoil the node's sums."""

MOST_WINDOW_SECONDS = 86_400.0
"""No metrics-server looks back so far."""

LONGEST_AMOUNT = 64
"""Characters of a number of the target's. What is longer is not looked at: it would cost time."""

LAST_INSTANT = 32_503_680_000.0
"""The year 3000: what is measured later has no date that everybody can write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The usage of one container, or of a whole pod, at one time of the target's clock.

    Either `cores` (the mean over `window_seconds`) or `cpu_seconds` (all since its start) is told.
    """

    at: float
    memory_bytes: float
    cores: float | None = None
    window_seconds: float = 0.0
    cpu_seconds: float | None = None
    started_at: float | None = None


PodReadings = Mapping[ObjectKey, Mapping[str, Reading]]
"""By mirror, by container; WHOLE_POD for the sum."""


def parse_duration(text: str) -> float | None:
    """Read Go's way of writing a duration: `15.03s`, `1m0s`; None where it is none."""
    if len(text) > LONGEST_AMOUNT or not _DURATIONS.fullmatch(text):
        return None
    return math.fsum(float(number) * _SECONDS[unit] for number, unit in _DURATION.findall(text))


def read_pod_metrics(items: Iterable[JsonObject]) -> PodReadings:
    """Read the items of a list of metrics.k8s.io/v1beta1 pods."""
    found: dict[ObjectKey, dict[str, Reading]] = {}
    for item in items:
        try:
            key, containers = key_of(item), _read_pod_metrics(item)
        except (AttributeError, TypeError):
            continue  # not the shape that the API promises
        if containers:
            found[key] = containers | {WHOLE_POD: _sum(list(containers.values()))}
    return found


def _read_pod_metrics(item: JsonObject) -> dict[str, Reading]:
    measured = parse_instant(item.get("timestamp") or "")
    window = parse_duration(str(item.get("window") or ""))
    if measured is None or not window or not _is_sane(window, MOST_WINDOW_SECONDS):
        return {}
    if not _is_sane(measured.timestamp(), LAST_INSTANT):
        return {}
    found: dict[str, Reading] = {}
    for container in item.get("containers") or ():
        usage = container.get("usage") or {}
        cores, memory = _amount(usage.get("cpu")), _amount(usage.get("memory"))
        name = container.get("name")
        if name and _is_sane(cores, MOST_CORES) and _is_sane(memory, MOST_BYTES):
            found[str(name)] = Reading(
                at=measured.timestamp(),
                memory_bytes=memory,
                cores=cores,
                window_seconds=window,
            )
    return found


def _amount(value: Any) -> float:
    if isinstance(value, str) and len(value) > LONGEST_AMOUNT:
        return math.nan
    try:
        return float(quantity_of(value))
    except (ValueError, ArithmeticError):
        return math.nan


def _is_sane(value: float, most: float) -> bool:
    return 0 <= value <= most  # never true of NaN


def _sum(containers: list[Reading]) -> Reading:
    """Add the containers of one item of metrics.k8s.io, which share time and window."""
    first = containers[0]
    return Reading(
        at=first.at,
        memory_bytes=math.fsum(reading.memory_bytes for reading in containers),
        cores=math.fsum(reading.cores or 0.0 for reading in containers),
        window_seconds=first.window_seconds,
    )


class ResourcePage:
    """The lines of one kubelet's /metrics/resource, taken one by one."""

    def __init__(self) -> None:
        self._values: dict[ObjectKey, dict[str, dict[str, Sample]]] = {}

    def take(self, line: str) -> None:
        """Note what a line says; one that is of no interest is left out."""
        if not line.startswith(_INTERESTING):
            return
        sample = parse_sample(line)
        if sample is None or not sample.labels.get("pod"):
            return
        scope, _, measure = sample.name.partition("_")
        name = sample.labels.get("container", "") if scope == "container" else WHOLE_POD
        if measure not in (_CPU, _MEMORY, _START) or (scope == "container" and not name):
            return
        key = ObjectKey(sample.labels.get("namespace", ""), sample.labels["pod"])
        self._values.setdefault(key, {}).setdefault(name, {})[measure] = sample

    def readings(self) -> PodReadings:
        """Return what all lines tell together."""
        read = {
            key: {n: r for n, found in pod.items() if (r := _read_measures(found)) is not None}
            for key, pod in self._values.items()
        }
        return {key: pod for key, pod in read.items() if pod}


def _read_measures(measures: Mapping[str, Sample]) -> Reading | None:
    cpu, memory, start = (measures.get(name) for name in (_CPU, _MEMORY, _START))
    if cpu is None or memory is None or cpu.at_ms is None:
        return None
    at = cpu.at_ms / 1000
    told = ((cpu.value, MOST_CPU_SECONDS), (memory.value, MOST_BYTES), (at, LAST_INSTANT))
    if not all(_is_sane(value, most) for value, most in told):
        return None
    return Reading(
        at=at,
        memory_bytes=memory.value,
        cpu_seconds=cpu.value,
        started_at=start.value
        if start is not None and _is_sane(start.value, LAST_INSTANT)
        else None,
    )
