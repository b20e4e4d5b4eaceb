"""The way into the target: does it answer, has the mirror ground, is the mirror there? Pure."""

from __future__ import annotations

from federate.explain.advice import WAITED_FOR, advice_for, advised
from federate.explain.facts import NodeRoadFacts, PodFacts, TargetRules, Unread, seen
from federate.explain.stations import Standing, Station, age, quoted
from federate.mirror.refusal import (
    name_taken_refusal,
    predecessor_refusal,
    uninstalled_refusal,
)
from federate.model.instants import parse_instant
from federate.model.marks import MirrorRecord, origin_of, record_of
from federate.model.naming import anchor_name, confined_to
from federate.model.objects import (
    JsonObject,
    ObjectKey,
    condition_of,
    is_terminating,
    uid_of,
)
from federate.model.pods import is_gated, phase_of
from federate.model.reasons import NodeReason, PodReason
from federate.node.render import TARGET_REACHABLE
from federate.status.project import MIRRORED

# -- the target ------------------------------------------------------------------------------------


def target_station(facts: PodFacts | NodeRoadFacts) -> Station:
    """Say whether the target answers: to us now, and to the federate that leads."""
    node, side = facts.node, facts.target
    heard = condition_of(seen(node.node) or {}, TARGET_REACHABLE) or {}
    if heard.get("status") == "False":
        reason = str(heard.get("reason") or PodReason.TARGET_UNREACHABLE)
        said = f"as federate last said: {quoted(heard.get('message') or reason)}"
        if side.trouble:
            said += f"; from here: {side.trouble}"
        elif side.is_asked:
            said += "; from here it does answer"
        return Station(
            id="target",
            standing=Standing.STOPPED,
            reason=reason,
            said=said,
            todo=_todo(reason, node.name),
        )
    changed = _changed(facts)
    if changed is not None:
        return changed
    if not side.is_asked:
        return Station(
            id="target",
            standing=Standing.UNKNOWN,
            said=f"federate says that it answers; it was not looked at from here: {side.trouble}"
            if heard
            else f"not looked at: {side.trouble}",
            todo=f"give --config FILE, or --target {node.name}=KUBECONFIG",
        )
    if side.trouble:
        return _not_from_here(facts, heard)
    return Station(id="target", standing=Standing.OK, said=f"{node.name} answers")


def _not_from_here(facts: PodFacts | NodeRoadFacts, heard: JsonObject) -> Station:
    """Say that the target was not to be asked: that is our way to it, and maybe ours alone.

    Whoever may not read the Node cannot tell; where it is read, and says nothing good of the
    target, two do not reach it.
    """
    node, said = facts.node, f"from here: {facts.target.trouble}"
    if heard.get("status") == "True":
        said += "; federate says that it answers"
    is_ours_alone = facts.target.is_refused or heard.get("status") == "True" or not seen(node.node)
    if is_ours_alone:
        return Station(
            id="target",
            standing=Standing.UNKNOWN,
            said=said,
            todo=f"to have more explained, give credentials of {node.name} that work from here: "
            f"--config FILE, or --target {node.name}=KUBECONFIG",
        )
    return Station(
        id="target",
        standing=Standing.STOPPED,
        reason=PodReason.TARGET_UNREACHABLE,
        said=said,
        todo=_todo(PodReason.TARGET_UNREACHABLE, node.name),
    )


def _changed(facts: PodFacts | NodeRoadFacts) -> Station | None:
    recorded, found = facts.node.recorded_identity, facts.target.identity
    if not recorded or not found or recorded in (found, "unknown"):
        return None
    return Station(
        id="target",
        standing=Standing.STOPPED,
        reason=NodeReason.TARGET_CHANGED,
        said=f"another cluster answers than the one on record ({found}, not {recorded}): nothing "
        "is written there",
        todo=_todo(NodeReason.TARGET_CHANGED, facts.node.name),
    )


def _todo(reason: str, name: str) -> str:
    if reason == NodeReason.TARGET_CHANGED:
        return (
            f"let the kubeconfig lead to the cluster of before; or, if this one shall take its "
            f"place: federate accept {name}"
        )
    if reason == NodeReason.TARGET_REFUSES:
        return f"renew the credentials of {name}'s kubeconfig, or its rights: federate check"
    return advice_for(PodReason.TARGET_UNREACHABLE, target=name)


# -- the ground ------------------------------------------------------------------------------------


def ground_station(facts: PodFacts) -> Station | None:
    """Say whether the target has a namespace for the mirror, and federate's anchor in it."""
    place = facts.mirror_key
    if place is None or facts.rules is None or facts.target.trouble:
        return None
    namespace, anchor = facts.namespace, facts.anchor
    recorded = facts.node.recorded_anchors.get(place.namespace)
    if namespace is None:
        return _no_namespace(facts, place.namespace, is_recorded=recorded is not None)
    if isinstance(anchor, Unread):
        said = f"{place.namespace}: {anchor.why}"
        return Station(id="namespace", standing=Standing.UNKNOWN, said=said)
    if not isinstance(namespace, Unread) and is_terminating(namespace):
        said = f"{place.namespace} of {facts.rules.name} ends"
        return _stop(facts, PodReason.NAMESPACE_TERMINATING, said)
    is_there = anchor is not None and not is_terminating(anchor)
    if recorded is not None and (not is_there or uid_of(anchor or {}) != recorded):
        return _uninstalled(facts, place.namespace)
    return _anchored(facts, facts.rules, place.namespace, anchor)


def _anchored(
    facts: PodFacts, rules: TargetRules, namespace: str, anchor: JsonObject | None
) -> Station:
    if anchor is None:
        return Station(
            id="namespace",
            standing=Standing.AHEAD,
            said=f"{namespace} of {rules.name} is there; federate's anchor is not made yet",
        )
    if not rules.scope.owns(anchor):
        return _stop(
            facts,
            PodReason.NAME_TAKEN,
            f"ConfigMap {namespace}/{anchor_name(rules.scope)} of {rules.name} has the anchor's "
            "name but not its marks: it stays untouched",
        )
    return Station(id="namespace", standing=Standing.OK, said=f"{namespace} of {rules.name}")


def _no_namespace(facts: PodFacts, namespace: str, *, is_recorded: bool) -> Station:
    if is_recorded:
        return _uninstalled(facts, namespace)
    rules = facts.rules
    if rules is not None and confined_to(rules.namespaces) is not None:
        return _stop(
            facts,
            PodReason.NAMESPACE_MISSING,
            f"namespace {namespace} of {rules.name} is missing, and not federate's to make",
        )
    return Station(
        id="namespace",
        standing=Standing.AHEAD,
        said=f"{namespace} is not made yet: federate makes it for the first pod",
    )


def _uninstalled(facts: PodFacts, namespace: str) -> Station:
    refusal = uninstalled_refusal(facts.node.name, namespace)
    return _stop(facts, refusal.reason, refusal.message)


def _stop(facts: PodFacts, reason: str, said: str) -> Station:
    return Station(
        id="namespace",
        standing=Standing.WAITING if reason in WAITED_FOR else Standing.STOPPED,
        reason=reason,
        said=said,
        todo=advised(facts, reason),
    )


# -- what federate told ----------------------------------------------------------------------------


def told_station(facts: PodFacts, pod: JsonObject) -> Station | None:
    """Repeat why federate has not made the mirror, as it last said on the pod itself."""
    told = condition_of(pod, MIRRORED)
    if told is None or told.get("status") == "True":
        return None
    reason, at = str(told.get("reason") or ""), parse_instant(told.get("lastTransitionTime") or "")
    return Station(
        id="told",
        standing=Standing.WAITING if reason in WAITED_FOR else Standing.STOPPED,
        reason=reason,
        said=quoted(told.get("message") or ""),
        since=age((facts.now - at).total_seconds()) if at else "",
        todo=advised(facts, reason),
    )


# -- the mirror ------------------------------------------------------------------------------------


def mirror_of(facts: PodFacts, pod: JsonObject) -> JsonObject | None:
    """Return the pod of the target that stands for this very hub pod."""
    found = seen(facts.at_key)
    origin = origin_of(found) if found is not None else None
    if origin is None or origin.pod_uid != uid_of(pod) or origin.pod != facts.key:
        return None
    return found


def mirror_station(facts: PodFacts, pod: JsonObject) -> Station:
    """Say whether the mirror is made, on record, and let go."""
    record, target = record_of(pod), facts.node.name
    place = record.mirror if record is not None else facts.mirror_key
    if facts.target.trouble or isinstance(facts.at_key, Unread):
        return _unseen(facts, record)
    mirror = mirror_of(facts, pod)
    if mirror is not None:
        return _made(facts, mirror, record)
    if facts.at_key is not None:
        return _occupied(facts, facts.at_key, place)
    if record is not None and record.mirror_uid:
        return Station(
            id="mirror",
            standing=Standing.STOPPED,
            reason=PodReason.MIRROR_LOST,
            said=f"the mirror pod {record.mirror}, on record, is not in {target} any more",
            todo=advised(facts, PodReason.MIRROR_LOST),
        )
    if record is not None:
        return Station(
            id="mirror",
            standing=Standing.AHEAD,
            said=f"not made yet: it is to be {record.mirror} of {target}",
        )
    return Station(id="mirror", standing=Standing.AHEAD, said="not begun")


def _unseen(facts: PodFacts, record: MirrorRecord | None) -> Station:
    why = facts.target.trouble or (
        facts.at_key.why if isinstance(facts.at_key, Unread) else "it was not looked at"
    )
    if record is None:
        return Station(id="mirror", standing=Standing.AHEAD, said="none is on record")
    on_record = f"{record.mirror} of {facts.node.name} is on record"
    if not record.mirror_uid:
        on_record = f"{record.mirror} of {facts.node.name} is intended"
    return Station(id="mirror", standing=Standing.UNKNOWN, said=f"{on_record}; {why}")


def _occupied(facts: PodFacts, found: JsonObject, place: ObjectKey | None) -> Station:
    target, origin = facts.node.name, origin_of(found)
    is_earlier = (
        origin is not None
        and origin.pod == facts.key
        and facts.rules is not None
        and origin.scope == facts.rules.scope
    )
    refusal = name_taken_refusal(target, place or facts.key)
    if is_earlier:
        refusal = predecessor_refusal(target)
    return Station(
        id="mirror",
        standing=Standing.WAITING if is_earlier else Standing.STOPPED,
        reason=refusal.reason,
        said=refusal.message,
        todo=advised(facts, refusal.reason),
    )


def _made(facts: PodFacts, mirror: JsonObject, record: MirrorRecord | None) -> Station:
    target = facts.node.name
    place = f"{facts.mirror_key} of {target}"
    if record is None or record.mirror_uid != uid_of(mirror):
        return Station(
            id="mirror",
            standing=Standing.WAITING,
            said=f"{place} is made, and not on record yet: it does not start before",
        )
    if is_terminating(mirror):
        return Station(
            id="mirror",
            standing=Standing.WAITING,
            reason=PodReason.DELETED_IN_TARGET,
            said=f"{place} is being deleted",
        )
    if is_gated(mirror):
        return Station(
            id="mirror",
            standing=Standing.WAITING,
            said=f"{place} is made and on record; federate opens its gate next",
        )
    return Station(id="mirror", standing=Standing.OK, said=f"{place}, {phase_of(mirror)}")
