"""The road of a pod, from the hub's scheduler to the target's kubelet and back. Pure.

Input: what was read (`facts`); output: stations in the order of the road, and what they come to.
Every station stands for itself: what one cannot tell, the next may.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from federate.explain.bound import (
    bound_station,
    is_virtual,
    leader_station,
    node_station,
    pod_station,
)
from federate.explain.facts import PodFacts, Unread, is_ready, seen
from federate.explain.mirrored import (
    ground_station,
    mirror_station,
    target_station,
    told_station,
)
from federate.explain.needed import claim_stations, companion_stations
from federate.explain.ruled import rules_stations
from federate.explain.running import kubelet_stations, scheduler_station, status_stations
from federate.explain.stations import Road, Standing, Station, first, once, quoted, told
from federate.model.objects import JsonObject, is_terminating, status_of
from federate.model.pods import is_terminal, node_name_of, phase_of
from federate.model.reasons import PodReason


def road_of(facts: PodFacts) -> Road:
    """Explain one pod."""
    about, pod = f"pod {facts.key}", facts.hub_pod
    if pod is None or isinstance(pod, Unread):
        said = pod.why if isinstance(pod, Unread) else f"the hub has no pod {facts.key}"
        unread = Standing.UNKNOWN if isinstance(pod, Unread) else Standing.STOPPED
        todo = "" if pod else f"is the name right? kubectl -n {facts.key.namespace} get pods"
        only = Station(id="pod", standing=unread, said=said, todo=todo)
        return Road(about=about, verdict=said, is_well=False, stations=(only,))
    stations = tuple(once(_stations(facts, pod)))
    verdict, is_well = _verdict(facts, pod, stations)
    return Road(about=about, verdict=verdict, is_well=is_well, stations=stations)


def _stations(facts: PodFacts, pod: JsonObject) -> Iterator[Station]:
    yield pod_station(facts, pod)
    yield bound_station(facts, pod)
    if not node_name_of(pod):
        yield from claim_stations(facts, pod)
        return
    node = node_station(facts)
    if _is_elsewhere(facts):
        yield _elsewhere(pod, node)
        return
    yield node
    if is_terminal(pod):
        return
    yield leader_station(facts)
    yield target_station(facts)
    yield from _towards(facts, pod)
    yield mirror_station(facts, pod)
    yield from _there(facts, pod)


def _towards(facts: PodFacts, pod: JsonObject) -> Iterator[Station]:
    """What a mirror needs before it is made."""
    if not is_terminating(pod):
        yield from rules_stations(facts, pod)
        if (ground := ground_station(facts)) is not None:
            yield ground
        yield from companion_stations(facts, pod)
        yield from claim_stations(facts, pod)
        if (said := told_station(facts, pod)) is not None:
            yield said


def _there(facts: PodFacts, pod: JsonObject) -> Iterator[Station]:
    if (scheduler := scheduler_station(facts, pod)) is not None:
        yield scheduler
    yield from kubelet_stations(facts, pod)
    yield from status_stations(facts, pod)


def _is_elsewhere(facts: PodFacts) -> bool:
    node = seen(facts.node.node)
    return node is not None and not is_virtual(node)


def _elsewhere(pod: JsonObject, node: Station) -> Station:
    """A node of the hub's own runs it, or does not: that is no business of federate."""
    if phase_of(pod) != "Running":
        return node
    return Station(id="node", standing=Standing.NOTE, said=node.said)


# -- what it comes to ------------------------------------------------------------------------------


def _verdict(facts: PodFacts, pod: JsonObject, stations: Sequence[Station]) -> tuple[str, bool]:
    if is_terminal(pod):
        reason = status_of(pod).get("reason") or ""
        ended = f"it has ended: {phase_of(pod)}" + (f" ({reason})" if reason else "")
        return ended, phase_of(pod) == "Succeeded"
    if status_of(pod).get("reason") == PodReason.NOT_RUN_HERE:
        return (
            f"it runs nowhere, and counts as ready: {quoted(status_of(pod).get('message'))}",
            True,
        )
    stopped = first(stations, Standing.STOPPED)
    if not is_ready(pod):
        return _why_not(pod, stations, stopped), False
    where = f"it runs on {node_name_of(pod)}" + ("" if _is_elsewhere(facts) else ", a virtual node")
    return (
        (where, True) if stopped is None else (f"{where}, as last told; but {told(stopped)}", False)
    )


def _why_not(pod: JsonObject, stations: Sequence[Station], stopped: Station | None) -> str:
    if stopped is not None:
        word = "is not ready" if phase_of(pod) == "Running" else "does not run"
        return f"it {word}: {told(stopped)}"
    waiting = first(stations, Standing.WAITING)
    if waiting is not None:
        return f"it is on its way: {told(waiting)}"
    if any(s.standing is Standing.UNKNOWN for s in stations):
        return "nothing that can be seen with these credentials is in its way"
    return "nothing is in its way: federate is about to go on"
