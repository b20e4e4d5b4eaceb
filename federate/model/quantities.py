"""Kubernetes quantities, exactly: `100m`, `1536Mi`, `2`; and lists of them by resource name.

Amounts are Decimal, so that nothing is rounded on the way. What a pod requests is counted as the
scheduler counts it, because the headroom of a node has to agree with the scheduler's view of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from functools import lru_cache
from typing import Any, TypeAlias

from federate.model.objects import JsonObject, condition_of, spec_of, status_of

Amounts: TypeAlias = dict[str, Decimal]

PODS = "pods"
"""The resource that a node has so many of as it may run pods."""

_SHAPE = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:([eE][+-]?[0-9]+)|([A-Za-z]*))")
_SCALES: Mapping[str, Decimal] = {
    "": Decimal(1),
    **{s: Decimal(10) ** (3 * n) for n, s in enumerate(["n", "u", "m"], start=-3)},
    **{s: Decimal(10) ** (3 * n) for n, s in enumerate(["k", "M", "G", "T", "P", "E"], start=1)},
    **{f"{s}i": Decimal(1024) ** n for n, s in enumerate("KMGTPE", start=1)},
}
_DECIMAL = tuple((s, _SCALES[s]) for s in ("n", "u", "m", "", "k", "M", "G", "T", "P", "E"))
_BINARY = tuple((f"{s}i", _SCALES[f"{s}i"]) for s in "KMGTPE")
_NANO = Decimal("1e-9")
_EXACT = Context(prec=60)
"""Enough digits for 2^63 Ei in nano units: sums and products of real amounts stay exact."""

_MILLI = Decimal("0.001")
_ONE = Decimal(1)
_POD_LEVEL = ("cpu", "memory")
_HUGEPAGES = "hugepages-"


@lru_cache(maxsize=8192)
def parse_quantity(text: str) -> Decimal:
    """Return the exact amount; below a nano it is rounded up, as the API server does.

    Raises ValueError for what is no quantity.
    """
    found = _SHAPE.fullmatch(text)
    if found is None or (found[3] or "") not in _SCALES:
        raise ValueError(f"not a quantity: {text!r}")
    digits, exponent, suffix = found.groups()
    if exponent:
        amount = Decimal(digits + exponent)
    else:
        amount = _EXACT.multiply(Decimal(digits), _SCALES[suffix or ""])
    return _to_nano(amount)


def _to_nano(amount: Decimal) -> Decimal:
    exponent = amount.as_tuple().exponent
    if isinstance(exponent, int) and exponent >= -9:
        return amount
    sign = -1 if amount < 0 else 1
    return abs(amount).quantize(_NANO, rounding=ROUND_CEILING, context=_EXACT) * sign


def quantity_of(value: Any) -> Decimal:
    """Return the amount of a JSON value: quantities may travel as numbers."""
    return parse_quantity(value if isinstance(value, str) else str(value))


def format_quantity(amount: Decimal, *, binary: bool = False) -> str:
    """Write an amount in its canonical form: no fraction, the largest suffix that allows it.

    `binary` prefers Ki, Mi, ... where the amount is at least 1Ki and whole.
    """
    amount = _to_nano(amount)
    whole = amount == amount.to_integral_value()
    as_binary = binary and whole and abs(amount) >= 1024 and amount % 1024 == 0
    return _with_suffix(amount, _BINARY if as_binary else _DECIMAL)


def _with_suffix(amount: Decimal, suffixes: Iterable[tuple[str, Decimal]]) -> str:
    if amount == 0:
        return "0"
    best = f"{amount:f}"
    for suffix, scale in suffixes:
        units = _EXACT.divide(amount, scale)
        if units != units.to_integral_value():
            break
        best = f"{units:f}".partition(".")[0] + suffix
    return best


# --- lists --------------------------------------------------------------------------------------


def parse_amounts(resources: JsonObject | None) -> Amounts:
    """Read a resource list of an object: capacity, allocatable, requests, limits, hard."""
    return {name: quantity_of(value) for name, value in (resources or {}).items()}


def format_amounts(amounts: Mapping[str, Decimal]) -> dict[str, str]:
    """Write a resource list for an object; amounts of bytes in binary units."""
    return {n: format_quantity(a, binary=_is_bytes(n)) for n, a in amounts.items()}


def _is_bytes(name: str) -> bool:
    resource = name.rpartition(".")[2]
    return resource in ("memory", "storage", "ephemeral-storage") or resource.startswith(_HUGEPAGES)


def add(a: Mapping[str, Decimal], b: Mapping[str, Decimal]) -> Amounts:
    """Return the sums; a resource that one list lacks counts as zero there."""
    total = dict(a)
    for name, amount in b.items():
        total[name] = _EXACT.add(total[name], amount) if name in total else amount
    return total


def subtract(
    a: Mapping[str, Decimal], b: Mapping[str, Decimal], *, floor_at_zero: bool = False
) -> Amounts:
    """Return what of `a` is left after `b`, for the resources of `a`."""
    zero = Decimal(0)
    left = {name: _EXACT.subtract(amount, b.get(name, zero)) for name, amount in a.items()}
    return {name: max(zero, amount) for name, amount in left.items()} if floor_at_zero else left


def largest(a: Mapping[str, Decimal], b: Mapping[str, Decimal]) -> Amounts:
    """Return the larger amount of each resource."""
    return {**a, **{n: max(amount, a.get(n, amount)) for n, amount in b.items()}}


def scale(amounts: Mapping[str, Decimal], share: Decimal) -> Amounts:
    """Return a share of each resource, rounded down: cpu to milli, all else to whole units."""
    return {
        name: _EXACT.multiply(amount, share).quantize(
            _MILLI if name == "cpu" else _ONE, rounding=ROUND_FLOOR, context=_EXACT
        )
        for name, amount in amounts.items()
    }


# --- pods ---------------------------------------------------------------------------------------


def pod_requests(pod: JsonObject) -> Amounts:
    """Return what the scheduler takes from a node for this pod, the pod itself counting as one.

    Containers add up; an init container needs its own and those of the sidecars before it, and the
    pod needs the larger of both. Requests at pod level stand in for those of cpu, memory and huge
    pages; overhead comes on top. A resize in progress holds the larger of old and new.
    https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/#resource-sharing-within-containers
    """
    spec, held, refused = spec_of(pod), _held_by_container(pod), _is_resize_refused(pod)
    requests: Amounts = {}
    for container in spec.get("containers") or ():
        requests = add(requests, _container_requests(container, held, refused=refused))
    sidecars: Amounts = {}
    at_start: Amounts = {}
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            own = _container_requests(container, held, refused=refused)
            requests, sidecars = add(requests, own), add(sidecars, own)
            at_start = largest(at_start, sidecars)
        else:
            own = _container_requests(container, {}, refused=False)
            at_start = largest(at_start, add(sidecars, own))
    requests = largest(requests, at_start)
    requests.update(_pod_level_requests(pod, refused=refused))
    requests = add(requests, parse_amounts(spec.get("overhead")))
    requests[PODS] = Decimal(1)
    return requests


def _container_requests(
    container: JsonObject, held: Mapping[str, Amounts], *, refused: bool
) -> Amounts:
    wanted = parse_amounts((container.get("resources") or {}).get("requests"))
    found = held.get(container.get("name") or "")
    if found is None:
        return wanted
    return found if refused else largest(wanted, found)


def _pod_level_requests(pod: JsonObject, *, refused: bool) -> Amounts:
    wanted = parse_amounts((spec_of(pod).get("resources") or {}).get("requests"))
    level = {n: a for n, a in wanted.items() if n in _POD_LEVEL or n.startswith(_HUGEPAGES)}
    status = status_of(pod)
    if (resources := status.get("resources")) is None:
        return level
    held = _held(resources, status)
    effective = held if refused else largest(level, held)
    return {name: effective.get(name, Decimal(0)) for name in level}


def _held_by_container(pod: JsonObject) -> Mapping[str, Amounts]:
    """What containers hold, by name, for those that the kubelet says something about."""
    status = status_of(pod)
    return {
        container.get("name") or "": _held(container["resources"], container)
        for name in ("containerStatuses", "initContainerStatuses")
        for container in status.get(name) or ()
        if container.get("resources") is not None
    }


def _held(resources: JsonObject, beside: JsonObject) -> Amounts:
    """What the kubelet has set (`resources`) or promised (`allocatedResources` beside it)."""
    promised = parse_amounts(beside.get("allocatedResources"))
    return largest(parse_amounts(resources.get("requests")), promised)


def _is_resize_refused(pod: JsonObject) -> bool:
    pending = condition_of(pod, "PodResizePending") or {}
    return pending.get("reason") == "Infeasible"
