"""The first stations: the pod, the hub's scheduler, the node, and who looks after it. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from federate.explain.advice import advised
from federate.explain.facts import Listed, NodeRoadFacts, PodFacts, Unread, listed, seen
from federate.explain.stations import Standing, Station, age, quoted
from federate.model.instants import parse_instant
from federate.model.marks import LEAVING_ANNOTATION, LEFT_ANNOTATION, NODE_HUB_ANNOTATION
from federate.model.objects import (
    JsonObject,
    annotations_of,
    condition_of,
    is_terminating,
    key_of,
    metadata_of,
    spec_of,
    status_of,
)
from federate.model.pods import (
    VIRTUAL_NODE_TAINT_KEY,
    is_terminal,
    node_name_of,
    phase_of,
    scheduling_gates_of,
)
from federate.model.quantities import format_amounts, parse_amounts, pod_requests
from federate.model.reasons import PodReason
from federate.model.taints import TaintEffect

MOST_NAMED = 5

REJECTED = (PodReason.NODE_PORTS, PodReason.POLICY_REFUSED)
"""Why a pod fails that never ran: another like it would fail again."""


def is_virtual(node: JsonObject) -> bool:
    """Tell whether federate registered that Node."""
    return NODE_HUB_ANNOTATION in annotations_of(node)


# -- the pod ---------------------------------------------------------------------------------------


def pod_station(facts: PodFacts, pod: JsonObject) -> Station:
    """Say what the hub has of the pod."""
    phase, created = phase_of(pod), parse_instant(metadata_of(pod).get("creationTimestamp") or "")
    lasts = f", made {age((facts.now - created).total_seconds())} ago" if created else ""
    if is_terminal(pod):
        reason = str(status_of(pod).get("reason") or "")
        was_rejected = phase == "Failed" and reason in REJECTED
        return Station(
            id="pod",
            standing=Standing.STOPPED if was_rejected else Standing.OK,
            said=f"{phase}: it has ended, and is never started again{lasts}{_own_words(pod)}",
            todo=advised(facts, reason) if was_rejected else "",
        )
    if is_terminating(pod):
        return Station(
            id="pod",
            standing=Standing.WAITING,
            said=f"{phase}, being deleted since {metadata_of(pod)['deletionTimestamp']}: what runs "
            "in the target ends first, then the hub lets go of it",
        )
    return Station(id="pod", standing=Standing.OK, said=f"{phase}{lasts}")


def _own_words(pod: JsonObject) -> str:
    status = status_of(pod)
    parts = [status[name] for name in ("reason", "message") if status.get(name)]
    return f" ({quoted(': '.join(parts))})" if parts else ""


# -- the hub's scheduler ---------------------------------------------------------------------------


def bound_station(facts: PodFacts, pod: JsonObject) -> Station:
    """Say whether the hub has chosen a node."""
    if node := node_name_of(pod):
        return Station(id="bound", standing=Standing.OK, said=f"to node {node}")
    if gates := scheduling_gates_of(pod):
        return Station(
            id="bound",
            standing=Standing.STOPPED,
            said=f"to no node: its scheduling gates are closed ({', '.join(sorted(gates))})",
            todo="whoever put the gates there must open them",
        )
    said = condition_of(pod, "PodScheduled") or {}
    words = quoted(said.get("message") or "it has said nothing yet")
    scheduler = spec_of(pod).get("schedulerName") or "default-scheduler"
    hints = list(_hints(pod, facts.virtual_nodes))
    return Station(
        id="bound",
        standing=Standing.STOPPED,
        said="; ".join([f"to no node: the hub's {scheduler}: {words}", *hints]),
        todo=_todo_unbound(pod, facts.virtual_nodes, is_silent=not said.get("message")),
    )


def _todo_unbound(pod: JsonObject, nodes: Listed, *, is_silent: bool) -> str:
    if _is_kept_off(pod, nodes):
        return (
            "to have it run in a target, let it tolerate the taint "
            f"{VIRTUAL_NODE_TAINT_KEY} (operator Exists)"
        )
    if is_silent:
        return "is the hub's scheduler running? kubectl get pods -n kube-system"
    return "do as the scheduler's words say: federate takes over when the pod is bound"


def _is_kept_off(pod: JsonObject, nodes: Listed) -> bool:
    """Tell whether the taint that tells virtual nodes keeps the pod off all of them."""
    tolerates = any(
        not toleration.get("key") or toleration["key"] == VIRTUAL_NODE_TAINT_KEY
        for toleration in spec_of(pod).get("tolerations") or ()
    )
    virtual_nodes = [node for node in listed(nodes) if is_virtual(node)]
    return not tolerates and all(map(_is_tainted, virtual_nodes))


def _is_tainted(node: JsonObject) -> bool:
    return any(
        taint.get("key") == VIRTUAL_NODE_TAINT_KEY
        and taint.get("effect") != TaintEffect.PREFER_NO_SCHEDULE
        for taint in spec_of(node).get("taints") or ()
    )


def _hints(pod: JsonObject, nodes: Listed) -> Iterator[str]:
    """Say what of virtual nodes the scheduler's words leave open."""
    virtual_nodes = [node for node in listed(nodes) if is_virtual(node)]
    if not virtual_nodes and not isinstance(nodes, Unread):
        yield "the hub has no virtual node"
        return
    if _is_kept_off(pod, nodes):
        yield f"the pod does not tolerate virtual nodes (taint {VIRTUAL_NODE_TAINT_KEY})"
        return
    asked = pod_requests(pod)
    for node in virtual_nodes[:MOST_NAMED]:
        offered = parse_amounts(status_of(node).get("allocatable"))
        lacking = {n: a for n, a in asked.items() if a and a > offered.get(n, a - a)}
        shown = (
            format_amounts(lacking),
            format_amounts({n: offered.get(n, a - a) for n, a in lacking.items()}),
        )
        for name in sorted(lacking):
            yield (
                f"the pod asks for {name} {shown[0][name]}, and virtual node {key_of(node).name} "
                f"offers {shown[1].get(name, '0')} in all"
            )
        if spec_of(node).get("unschedulable"):
            yield f"virtual node {key_of(node).name} is cordoned"


# -- the node --------------------------------------------------------------------------------------


def node_station(facts: PodFacts | NodeRoadFacts) -> Station:
    """Say whether the node is a virtual one, and how the hub sees it."""
    name, node = facts.node.name, facts.node.node
    if isinstance(node, Unread):
        return Station(id="node", standing=Standing.UNKNOWN, said=f"{name}: {node.why}")
    names = [key_of(n).name for n in listed(facts.virtual_nodes) if is_virtual(n)]
    known = f"; virtual nodes are: {', '.join(names[:MOST_NAMED])}" if names else ""
    if node is None:
        return Station(
            id="node",
            standing=Standing.STOPPED,
            said=f"the hub has no node {name}{known}",
            todo=f"is the name right? Then start the federate that serves {name}: it registers the "
            "node again. The hub removes pods of a node that stays away",
        )
    if not is_virtual(node):
        return Station(
            id="node",
            standing=Standing.STOPPED,
            said=f"{name} is a node of the hub, and none of federate's{known}",
            todo=f"kubectl describe node {name}: its own kubelet runs what is bound there",
        )
    return _virtual_node(name, node)


def _virtual_node(name: str, node: JsonObject) -> Station:
    ready = condition_of(node, "Ready") or {}
    if leaving := annotations_of(node).get(LEAVING_ANNOTATION):
        return Station(
            id="node",
            standing=Standing.STOPPED,
            reason="NodeLeaving",
            said=f"virtual node {name} is being left since {leaving}: nothing new is started there",
            todo=f"federate leave {name} goes on; or call it off: kubectl annotate node {name} "
            f"{LEAVING_ANNOTATION}-; kubectl uncordon {name}",
        )
    status = {"True": "Ready", "False": "NotReady"}.get(str(ready.get("status")), "Ready unknown")
    cordoned = ", cordoned: no new pod is bound there" if spec_of(node).get("unschedulable") else ""
    if ready.get("status") != "True":
        return Station(
            id="node",
            standing=Standing.STOPPED,
            reason=str(ready.get("reason") or ""),
            said=f"virtual node {name} is {status}{cordoned}: "
            f"{quoted(ready.get('message') or 'nobody says why')}",
            todo="see the stations below: who leads the node, and does its target answer?",
        )
    is_well = ready.get("reason") == "FederateReady"
    words = "" if is_well else f": {quoted(ready.get('message') or '')}"
    return Station(
        id="node",
        standing=Standing.OK if is_well and not cordoned else Standing.NOTE,
        reason="" if is_well else str(ready.get("reason") or ""),
        said=f"virtual node {name} is {status}{cordoned}{words}",
    )


# -- who leads it ----------------------------------------------------------------------------------


def leader_station(facts: PodFacts | NodeRoadFacts) -> Station:
    """Say whether a federate looks after the virtual node."""
    name, lease = facts.node.name, facts.node.lease
    if isinstance(lease, Unread):
        return _unseen(facts, lease.why)
    if lease is None and _is_heard_of(facts):
        why = f"there is no leader lease of {name} where it was looked for"
        return _unseen(facts, why, todo="give --leader-lease-namespace as federate runs with it")
    if left := annotations_of(lease or {}).get(LEFT_ANNOTATION):
        return Station(
            id="leader",
            standing=Standing.STOPPED,
            said=f"{name} is retired since {left}: no federate leads it any more",
            todo=f"federate leave {name} again finishes it",
        )
    gone = _why_gone(facts)
    if not gone:
        heard = age(_silent_seconds(facts) or 0)
        said = f"{facts.node.holder}, heard of {heard} ago"
        return Station(id="leader", standing=Standing.OK, said=said)
    return Station(
        id="leader",
        standing=Standing.STOPPED,
        said=f"{gone}: nothing is started, ended or told",
        todo=f"start federate run for {name}, or see its log; running pods go on meanwhile",
    )


def _why_gone(facts: PodFacts | NodeRoadFacts) -> str:
    """Say how it is known that nobody leads; "" where somebody does."""
    node, silent = facts.node, _silent_seconds(facts)
    if not node.holder or silent is None:
        return f"no federate leads {node.name}"
    if node.is_holder_dead:
        return f"{node.holder} led {node.name} and is no more, silent for {age(silent)}"
    lasts = float(spec_of(seen(node.lease) or {}).get("leaseDurationSeconds") or 0)
    if silent > lasts:
        return f"{node.holder} led {node.name}, and is silent for {age(silent)}"
    return ""


def _unseen(facts: PodFacts | NodeRoadFacts, why: str, *, todo: str = "") -> Station:
    """Fall back on the hub's own view of the node's heartbeat."""
    said = why
    if _is_heard_of(facts):
        said += "; the hub hears of the node, so some federate leads it"
    elif seen(facts.node.node) is not None:
        said += "; the hub does not hear of the node"
    return Station(id="leader", standing=Standing.UNKNOWN, said=said, todo=todo)


def _is_heard_of(facts: PodFacts | NodeRoadFacts) -> bool:
    ready = condition_of(seen(facts.node.node) or {}, "Ready") or {}
    return ready.get("status") == "True"


def _silent_seconds(facts: PodFacts | NodeRoadFacts) -> float | None:
    renewed = parse_instant(str(spec_of(seen(facts.node.lease) or {}).get("renewTime") or ""))
    return None if renewed is None else (facts.now - renewed).total_seconds()
