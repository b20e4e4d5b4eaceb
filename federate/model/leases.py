"""Leader leases and node leases: the records, and what to do about a leader lease.

Whether a lease has run out is judged by our own monotonic clock, from the moment we saw its record
change last; clocks of different machines are never compared, so a replica with a wrong clock
neither steals nor loses a lease. The price: a fresh replica waits a whole duration before it takes
over a dead one. The instants in the record are for people. A lease is no fencing token: two holders
may overlap for a request in flight, which is why every write has a precondition of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from federate.model.instants import format_micro_instant
from federate.model.objects import JsonDict, JsonObject, metadata_of, spec_of, uid_of

NODE_LEASE_NAMESPACE = "kube-node-lease"
"""Where the node controller looks for node leases."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The record as it was last seen to change, and when, by the local monotonic clock."""

    lease: JsonObject
    seen_at_monotonic: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Acquire:
    """Write the lease with us as the holder: create it, or replace the very version seen."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Renew:
    """We hold it; write a fresh renewTime over the very version seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Another replica holds it; look again, at the latest after `seconds`."""

    seconds: float
    holder: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """We led and lead no more: stop acting at once."""

    reason: str


LeaseDecision: TypeAlias = Acquire | Renew | Wait | Lost


def observe(
    lease: JsonObject, previous: Observation | None, *, now_monotonic: float
) -> Observation:
    """Return what is known after reading `lease`; the time moves only if the record changed."""
    if previous is not None and _record(previous.lease) == _record(lease):
        return Observation(lease=lease, seen_at_monotonic=previous.seen_at_monotonic)
    return Observation(lease=lease, seen_at_monotonic=now_monotonic)


def decide(
    lease: JsonObject | None,
    *,
    identity: str,
    observed: Observation | None,
    now_monotonic: float,
    duration_seconds: float,
    renew_deadline_seconds: float,
    renewed_at_monotonic: float | None = None,
    last_held: Observation | None = None,
) -> LeaseDecision:
    """Say what to do about a leader lease as it was just read; `lease` is None where there is none.

    `observed` is the last result of `observe`. `renewed_at_monotonic` is None unless this replica
    leads; then it is the time just *before* the last write that is known to have succeeded was
    sent, because others count from when they saw it, which is later. `renew_deadline_seconds` must
    be shorter than `duration_seconds`: a leader stops before anyone else may start. `last_held` is
    the lease as another was last seen to hold it: where it was deleted since, that one acts on
    until it renews.
    """
    if renewed_at_monotonic is not None:
        silent_seconds = now_monotonic - renewed_at_monotonic
        if silent_seconds >= renew_deadline_seconds:
            return Lost(reason=f"not renewed for {silent_seconds:.1f} s")
        return _decide_as_leader(lease, identity)
    holder = holder_of(lease)
    if lease is not None and holder in ("", identity):
        return Acquire(reason="it is ours from an earlier request" if holder else "it is released")
    held = last_held if lease is None else observe(lease, observed, now_monotonic=now_monotonic)
    if held is None:
        return Acquire(reason="there is no lease")
    return _decide_as_candidate(held, now_monotonic, duration_seconds)


def _decide_as_candidate(
    held: Observation, now_monotonic: float, duration_seconds: float
) -> LeaseDecision:
    """Another holds the lease, or held it when it was deleted."""
    holder = holder_of(held.lease)
    silent_seconds = now_monotonic - held.seen_at_monotonic
    left_seconds = _duration_of(held.lease, duration_seconds) - silent_seconds
    if left_seconds <= 0:
        return Acquire(reason=f"{holder} has been silent for {silent_seconds:.1f} s")
    return Wait(seconds=left_seconds, holder=holder)


def _decide_as_leader(lease: JsonObject | None, identity: str) -> LeaseDecision:
    if lease is None:
        return Acquire(reason="there is no lease")
    holder = holder_of(lease)
    if holder == identity:
        return Renew()
    return Lost(reason=f"{holder} holds the lease" if holder else "someone released the lease")


def holder_of(lease: JsonObject | None) -> str:
    """Return who holds the lease, "" where nobody does."""
    holder: str = spec_of(lease or {}).get("holderIdentity") or ""
    return holder


def render_leader_lease(
    *,
    namespace: str,
    name: str,
    identity: str,
    duration_seconds: int,
    now: datetime,
    previous: JsonObject | None = None,
) -> JsonDict:
    """Return the lease with us as the holder, to create or to replace `previous` with.

    What else is in `previous` stays, its resourceVersion with it: that is the precondition.
    """
    old = spec_of(previous or {})
    spec = {
        **old,
        "holderIdentity": identity,
        "leaseDurationSeconds": duration_seconds,
        "renewTime": format_micro_instant(now),
    }
    if holder_of(previous) != identity:
        transitions = old.get("leaseTransitions") or 0
        spec["acquireTime"] = spec["renewTime"]
        spec["leaseTransitions"] = transitions + 1 if previous else 0
    return _with_spec(previous, spec, namespace=namespace, name=name)


def render_released_lease(previous: JsonObject, *, now: datetime) -> JsonDict:
    """Return our lease without a holder: others take it at once instead of waiting it out."""
    instant = format_micro_instant(now)
    spec = {
        **spec_of(previous),
        "leaseDurationSeconds": 1,
        "acquireTime": instant,
        "renewTime": instant,
    }
    spec.pop("holderIdentity", None)
    return {**previous, "spec": spec}


def render_node_lease(
    *,
    node_name: str,
    node_uid: str,
    duration_seconds: int,
    now: datetime,
    previous: JsonObject | None = None,
) -> JsonDict:
    """Return the lease that says the node is alive, owned by its Node so that it goes with it.

    A Node registered again has another uid; the owner follows it, or the garbage collector would
    take the lease of a living node.
    """
    spec = {
        **spec_of(previous or {}),
        "holderIdentity": node_name,
        "leaseDurationSeconds": duration_seconds,
        "renewTime": format_micro_instant(now),
    }
    lease = _with_spec(previous, spec, namespace=NODE_LEASE_NAMESPACE, name=node_name)
    owner = {"apiVersion": "v1", "kind": "Node", "name": node_name, "uid": node_uid}
    references = metadata_of(lease).get("ownerReferences") or ()
    foreign = [r for r in references if r.get("kind") != "Node"]
    lease["metadata"] = {**lease["metadata"], "ownerReferences": [owner, *foreign]}
    return lease


def _with_spec(
    previous: JsonObject | None, spec: JsonDict, *, namespace: str, name: str
) -> JsonDict:
    metadata = {**metadata_of(previous or {}), "namespace": namespace, "name": name}
    return {
        **(previous or {}),
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": metadata,
        "spec": spec,
    }


def _record(lease: JsonObject) -> tuple[str, JsonObject]:
    """What a living holder changes; labels and other writes say nothing about it."""
    return uid_of(lease), spec_of(lease)


def _duration_of(lease: JsonObject, default_seconds: float) -> float:
    """The holder promised to renew within the record's own duration, not within ours."""
    return float(spec_of(lease).get("leaseDurationSeconds") or default_seconds)
