"""How a virtual node stands: who leads it, does its target answer, and what it offers. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from federate.explain.bound import is_virtual, leader_station, node_station
from federate.explain.facts import NodeRoadFacts, Unread, seen
from federate.explain.mirrored import target_station
from federate.explain.stations import Road, Standing, Station, first, quoted, told
from federate.model.objects import JsonObject, condition_of, status_of
from federate.model.pods import is_terminal, phase_of
from federate.model.quantities import PODS, add, format_amounts, parse_amounts, pod_requests
from federate.node.render import CREDENTIALS_VALID, KUBELET_SERVING
from federate.services.addresses import ADDRESSES_REFLECTED

_MEASURED = ("cpu", "memory", PODS)


def node_road_of(facts: NodeRoadFacts) -> Road:
    """Explain one virtual node."""
    stations = tuple(_stations(facts))
    stopped = first(stations, Standing.STOPPED)
    if stopped is not None:
        verdict, is_well = told(stopped), False
    elif isinstance(facts.node.node, Unread):
        verdict, is_well = f"nobody knows here: {told(stations[0])}", False
    elif any(s.standing is Standing.UNKNOWN for s in stations):
        verdict, is_well = "nothing that can be seen with these credentials is wrong", True
    else:
        verdict, is_well = "all is well", True
    return Road(
        about=f"node {facts.node.name}", verdict=verdict, is_well=is_well, stations=stations
    )


def _stations(facts: NodeRoadFacts) -> Iterator[Station]:
    yield node_station(facts)
    node = seen(facts.node.node)
    if node is not None and not is_virtual(node):
        return
    if facts.node.node is None and facts.node.lease is None:
        return  # nobody has ever heard of it
    yield leader_station(facts)
    yield target_station(facts)
    if node is None:
        return
    yield from _conditions(node, facts.node.name)
    yield _room(facts, node)


def _conditions(node: JsonObject, name: str) -> Iterator[Station]:
    for station, kind, bad, todo in (
        (
            "credentials",
            CREDENTIALS_VALID,
            Standing.STOPPED,
            f"renew the credentials of {name}'s kubeconfig; no restart is needed",
        ),
        (
            "kubelet",
            KUBELET_SERVING,
            Standing.NOTE,
            "kubectl logs, exec and metrics of its pods wait for that: docs/kubelet.md",
        ),
        (
            "addresses",
            ADDRESSES_REFLECTED,
            Standing.NOTE,
            "its pods show no address to Services of the hub: docs/networking.md",
        ),
    ):
        said = condition_of(node, kind)
        if said is None:
            continue
        is_well = said.get("status") == "True"
        yield Station(
            id=station,
            standing=Standing.OK if is_well else bad,
            reason="" if is_well else str(said.get("reason") or ""),
            said=quoted(said.get("message") or said.get("reason") or ""),
            todo="" if is_well else todo,
        )


def _room(facts: NodeRoadFacts, node: JsonObject) -> Station:
    """Say how much of what the node offers is taken; the hub's scheduler places pods by it."""
    offered = parse_amounts(status_of(node).get("allocatable"))
    if isinstance(facts.pods, Unread):
        shown = ", ".join(f"{n} {a}" for n, a in format_amounts(offered).items() if n in _MEASURED)
        return Station(
            id="room", standing=Standing.UNKNOWN, said=f"offers {shown}; {facts.pods.why}"
        )
    taken = {name: offered[name] - offered[name] for name in _MEASURED if name in offered}
    for pod in facts.pods:
        if not is_terminal(pod):
            taken = add(taken, pod_requests(pod))
    had, of = format_amounts(taken), format_amounts(offered)
    shown = ", ".join(f"{n} {had.get(n, '0')} of {of[n]}" for n in _MEASURED if n in of)
    phases = Counter(phase_of(pod) for pod in facts.pods)
    counted = ", ".join(f"{count} {phase}" for phase, count in sorted(phases.items())) or "no pods"
    full = [n for n in _MEASURED if n in offered and taken.get(n, offered[n]) >= offered[n]]
    return Station(
        id="room",
        standing=Standing.NOTE if full else Standing.OK,
        said=f"{counted}; taken: {shown}" + (f"; full: {', '.join(full)}" if full else ""),
        todo="docs/operations.md, How large a virtual node is" if full else "",
    )
