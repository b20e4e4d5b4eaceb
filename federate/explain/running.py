"""What the target does with the mirror, and what the hub pod shows of it. Pure.

The target's words are put into the hub's, as in the status: a user never sees a companion's name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from federate.claims.steps import Rest
from federate.claims.words import as_on_hub, latest_warning
from federate.companions.words import Words
from federate.explain.advice import ADVICE, SCHEDULER_SILENT, advised, container_advice
from federate.explain.facts import PodFacts, listed, seen
from federate.explain.mirrored import mirror_of
from federate.explain.stations import Standing, Station, age, quoted
from federate.model.instants import parse_instant
from federate.model.objects import JsonObject, ObjectKey, condition_of, metadata_of, status_of
from federate.model.pods import (
    container_statuses_of,
    has_started,
    is_gated,
    node_name_of,
    phase_of,
    scheduling_gates_of,
)
from federate.model.reasons import PodReason
from federate.services.addresses import ADDRESSES_REFLECTED
from federate.status.project import FIELDS_DROPPED, MIRROR_SCHEDULED, UPDATE_REJECTED

SILENT_SECONDS = 60.0
"""A scheduler that is there speaks within seconds, unless thousands of pods are before this one."""

_BEGINNING = ("ContainerCreating", "PodInitializing")


def words_of(facts: PodFacts, pod: JsonObject) -> Words:
    """Return what puts the target's words into the hub's."""
    if facts.rules is None or facts.mirror_key is None:
        return quoted
    companions = facts.rules.render.words(pod, facts.mirror_key.namespace)
    claims = _claim_names(facts)
    return lambda text: quoted(as_on_hub(companions(text), claims))


def _claim_names(facts: PodFacts) -> Mapping[ObjectKey, ObjectKey]:
    return {
        claim.step.handle.key: claim.use.claim
        for claim in facts.claims
        if isinstance(claim.step, Rest) and claim.step.handle is not None
    }


# -- the target's scheduler ------------------------------------------------------------------------


def scheduler_station(facts: PodFacts, pod: JsonObject) -> Station | None:
    """Say where the target runs the mirror, or its scheduler's words; None: it has not begun."""
    mirror, target, words = mirror_of(facts, pod), facts.node.name, words_of(facts, pod)
    if mirror is not None and (node := node_name_of(mirror)):
        return Station(id="scheduler", standing=Standing.OK, said=f"node {node} of {target}")
    if mirror is not None and is_gated(mirror):
        return Station(
            id="scheduler", standing=Standing.AHEAD, said="it does not look before the gate opens"
        )
    # What was told on the hub stands in for a target that we may not ask.
    said = condition_of(pod, MIRROR_SCHEDULED)
    if mirror is not None:
        said = condition_of(mirror, "PodScheduled")
        if said is None or said.get("reason") == "SchedulingGated":
            return _silent(facts, mirror)
    if said is None or said.get("status") != "False":
        return None
    reason = _why_unscheduled(pod)
    return Station(
        id="scheduler",
        standing=Standing.STOPPED,
        reason=reason,
        said=f"{target} finds no node: {words(str(said.get('message') or ''))}",
        todo=advised(facts, reason),
    )


def _silent(facts: PodFacts, mirror: JsonObject) -> Station:
    """Say that our gate is open, and what is known of the target's scheduler's silence since.

    It is silent while it waits for storage, too, for up to ten minutes at a time.
    """
    target, gates = facts.node.name, scheduling_gates_of(mirror)
    if gates:
        return Station(
            id="scheduler",
            standing=Standing.STOPPED,
            said=f"the scheduler of {target} does not look at it as long as gates that somebody "
            f"put there are closed: {', '.join(sorted(gates))}",
            todo=f"ask the people of {target}: whoever put the gates there opens them",
        )
    made = parse_instant(metadata_of(mirror).get("creationTimestamp") or "")
    lasts = (facts.now - made).total_seconds() if made else 0.0
    waits = _waits_for_storage(facts)
    is_long = lasts > SILENT_SECONDS and not waits
    return Station(
        id="scheduler",
        standing=Standing.STOPPED if is_long else Standing.WAITING,
        reason=SCHEDULER_SILENT if is_long else "",
        said=f"the scheduler of {target} has said nothing yet"
        + (", as long as the claim has no storage" if waits else ""),
        since=age(lasts) if made else "",
        todo=advised(facts, SCHEDULER_SILENT) if is_long else "",
    )


def _waits_for_storage(facts: PodFacts) -> bool:
    return any(isinstance(c.step, Rest) and not c.step.is_bound_there for c in facts.claims)


def _why_unscheduled(pod: JsonObject) -> str:
    """Return the reason that federate told, which may be a narrower one."""
    told = str((condition_of(pod, MIRROR_SCHEDULED) or {}).get("reason") or "")
    return told if told in ADVICE else PodReason.MIRROR_UNSCHEDULABLE


# -- its kubelet -----------------------------------------------------------------------------------


def kubelet_stations(facts: PodFacts, pod: JsonObject) -> Iterator[Station]:
    """Say of each container that does not run what the kubelet there says."""
    mirror = mirror_of(facts, pod)
    shown = mirror if mirror is not None else pod
    found = [
        station
        for status in container_statuses_of(shown)
        if (station := _container(facts, pod, status)) is not None
    ]
    yield from found
    ready = condition_of(shown, "Ready") or {}
    running = [s for s in container_statuses_of(shown) if "running" in (s.get("state") or {})]
    if running and not found:
        is_ready = (condition_of(pod, "Ready") or ready).get("status") == "True"
        why = (condition_of(pod, "Ready") or ready).get(
            "message"
        ) or "its probe does not say so yet"
        yield Station(
            id="kubelet",
            standing=Standing.OK if is_ready else Standing.WAITING,
            said=f"{len(running)} of {len(list(container_statuses_of(shown)))} containers run"
            + ("" if is_ready else f", and the pod is not ready: {quoted(why)}"),
            todo="" if is_ready else "see its readiness: kubectl describe pod",
        )


def _container(facts: PodFacts, pod: JsonObject, status: JsonObject) -> Station | None:
    """Return None where the container runs, or has ended well."""
    state, name = status.get("state") or {}, status.get("name", "")
    if terminated := state.get("terminated"):
        return _ended(facts, name, terminated)
    waiting = state.get("waiting")
    if not waiting:
        return None
    reason = str(waiting.get("reason") or "")
    said = words_of(facts, pod)(str(waiting.get("message") or ""))
    if reason in _BEGINNING:
        return _beginning(facts, pod, name, reason)
    if reason == "CrashLoopBackOff" and (last := _last_end(status)):
        said = f"{said}; {last}" if said else last
    return Station(
        id="kubelet",
        standing=Standing.STOPPED,
        reason=reason,
        said=f"container {name} waits" + (f": {said}" if said else ""),
        todo=container_advice(
            reason, target=facts.node.name, pod=f"-n {facts.key.namespace} {facts.key.name}"
        ),
    )


def _beginning(facts: PodFacts, pod: JsonObject, name: str, reason: str) -> Station:
    events = listed(facts.mirror_events) or listed(facts.hub_events)
    warning = words_of(facts, pod)(latest_warning(events))
    if not warning:
        return Station(
            id="kubelet",
            standing=Standing.WAITING,
            reason=reason,
            said=f"container {name} is about to start",
        )
    return Station(
        id="kubelet",
        standing=Standing.STOPPED,
        reason=reason,
        said=f"container {name} cannot start: {warning}",
        todo=f"see the kubelet's words; what is missing on the hub comes to {facts.node.name} by "
        "itself once it is made",
    )


def _last_end(status: JsonObject) -> str:
    last = (status.get("lastState") or {}).get("terminated") or {}
    return f"it last ended with {last['exitCode']}" if "exitCode" in last else ""


def _ended(facts: PodFacts, name: str, terminated: JsonObject) -> Station | None:
    code = terminated.get("exitCode", 0)
    if not code:
        return None
    reason = str(terminated.get("reason") or "Error")
    return Station(
        id="kubelet",
        standing=Standing.NOTE,
        reason=reason,
        said=f"container {name} ended with {code}: {quoted(terminated.get('message') or reason)}",
        todo=f"kubectl logs -n {facts.key.namespace} {facts.key.name} -c {name}",
    )


# -- what the hub pod shows ------------------------------------------------------------------------


def status_stations(facts: PodFacts, pod: JsonObject) -> Iterator[Station]:
    """Say what the hub pod shows otherwise than one of the hub would."""
    for kind in (UPDATE_REJECTED, FIELDS_DROPPED):
        told = condition_of(pod, kind)
        if told is not None and told.get("status") == "True":
            reason = str(told.get("reason") or "")
            yield Station(
                id="status",
                standing=Standing.NOTE,
                reason=reason,
                said=quoted(told.get("message") or ""),
                todo=advised(facts, reason),
            )
    is_running = phase_of(pod) == "Running" and has_started(pod)
    if is_running and not status_of(pod).get("podIP"):
        decided = condition_of(seen(facts.node.node) or {}, ADDRESSES_REFLECTED) or {}
        why = quoted(decided.get("message") or "hidden by the virtual node")
        yield Station(
            id="status",
            standing=Standing.NOTE,
            reason=str(decided.get("reason") or ""),
            said=f"it shows no address, so Services of the hub do not reach it: {why}",
            todo=f"docs/networking.md; to have Services in {facts.node.name}: `services`",
        )
    mirror = mirror_of(facts, pod)
    if mirror is not None and phase_of(mirror) != phase_of(pod):
        yield Station(
            id="status",
            standing=Standing.NOTE,
            said=f"the hub shows {phase_of(pod)}, the mirror is {phase_of(mirror)}: it is told by "
            "the federate that leads",
        )
