"""Say the mirror's status in the hub's terms. Pure: same input, same status.

Input: hub pod and mirror; output: the status the hub pod ought to have, as far as it is ours to
say. Nothing is invented: what the mirror does not say, the hub pod does not say. Everything flows
but a deny list, so that fields of newer versions come along.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from federate.model.marks import HUB_GENERATION_ANNOTATION, RECORDED_GATE
from federate.model.objects import (
    JsonDict,
    JsonObject,
    annotations_of,
    condition_of,
    metadata_of,
    spec_of,
    status_of,
)
from federate.model.pods import scheduling_gates_of
from federate.model.reasons import PodReason
from federate.services.addresses import UNDECIDED, AddressDecision, with_shown_addresses
from federate.status.scheduling import UNSCHEDULABLE, unscheduled_reason

MIRROR_SCHEDULED = "federate.dev/MirrorScheduled"
"""The target scheduler's words; present only while it has not found a node."""
MIRRORED = "federate.dev/Mirrored"
"""Why there is no mirror yet; present only while there is none."""
FIELDS_DROPPED = "federate.dev/FieldsDropped"
"""What the target did not keep of the pod's spec; written once, when the mirror is recorded."""

UPDATE_REJECTED = "federate.dev/UpdateRejected"
"""Which change of the pod the target refuses, and why; present only while it does (C25)."""

NEVER_PROJECTED = frozenset(
    {
        "qosClass",  # the hub's API server sets it at creation, and it is immutable
        "nominatedNodeName",  # the target scheduler's preemption is not the hub's
        "resourceClaimStatuses",  # names of the target's claims
        "extendedResourceClaimStatus",
    }
)

KUBELET_CONDITIONS = (
    "PodReadyToStartContainers",
    "Initialized",
    "ContainersReady",
    "Ready",
    "DisruptionTarget",
    "PodResizePending",
    "PodResizeInProgress",
)
"""Condition types a kubelet writes (pkg/kubelet/types/pod_status.go and DisruptionTarget)."""

OWNED_CONDITIONS = frozenset({*KUBELET_CONDITIONS, MIRROR_SCHEDULED, MIRRORED, UPDATE_REJECTED})
# A DisruptionTarget the hub's own eviction wrote is not ours to remove; see derive_base.
_SHARED_CONDITIONS = frozenset({"DisruptionTarget"})

GENERATION_DIGITS = 19
"""An int64 has no more; whoever may edit a mirror may write anything into its annotations."""

LOST_EXIT_CODE = 137
"""What a kubelet reports for a container it can no longer find (killed, 128 + SIGKILL)."""

_STATUS_LISTS = (
    ("containers", "containerStatuses"),
    ("initContainers", "initContainerStatuses"),
    ("ephemeralContainers", "ephemeralContainerStatuses"),
)


Words: TypeAlias = Callable[[str], str]
"""Puts what the target says about a mirror into the hub's words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses:
    """Which addresses a hub pod shows: the virtual node's own, and (C47) the mirror's or none."""

    node_address: str
    decision: AddressDecision = UNDECIDED


def project_status(
    hub_pod: JsonObject, mirror: JsonObject, addresses: Addresses, words: Words | None = None
) -> JsonDict:
    """Project the mirror's status onto the hub pod (C40)."""
    theirs = status_of(mirror)
    status: JsonDict = {k: v for k, v in theirs.items() if k not in NEVER_PROJECTED}
    status.setdefault("phase", "Pending")
    status = with_shown_addresses(status, hub_pod, addresses.decision)
    _project_host_address(status, addresses)
    _project_observed_generation(status, hub_pod, mirror)
    _hide_injected_containers(status, spec_of(hub_pod))
    conditions = _project_conditions(hub_pod, mirror)
    if conditions:
        status["conditions"] = conditions
    else:
        status.pop("conditions", None)
    if words is not None:
        _put_into_words(status, words)
    return status


def _put_into_words(status: JsonDict, words: Words) -> None:
    """Say in the hub's words what is said *about* the pod; a container's own last words stay."""
    if status.get("message"):
        status["message"] = words(status["message"])
    if "conditions" in status:
        status["conditions"] = [_told(c, words) for c in status["conditions"]]
    for _, name in _STATUS_LISTS:
        if name in status:
            status[name] = [_waiting_told(s, words) for s in status[name]]


def _told(holder: JsonDict, words: Words) -> JsonDict:
    message = holder.get("message") or ""
    told = words(message) if message else message
    return holder if told == message else {**holder, "message": told}


def _waiting_told(container_status: JsonDict, words: Words) -> JsonDict:
    state = container_status.get("state") or {}
    waiting = state.get("waiting")
    if not waiting:
        return container_status
    return {**container_status, "state": {**state, "waiting": _told(waiting, words)}}


def _project_host_address(status: JsonDict, addresses: Addresses) -> None:
    if status.pop("hostIP", None) is not None and addresses.node_address:
        status["hostIP"] = addresses.node_address
        status["hostIPs"] = [{"ip": addresses.node_address}]
    else:
        status.pop("hostIPs", None)


def _project_observed_generation(status: JsonDict, hub_pod: JsonObject, mirror: JsonObject) -> None:
    if "observedGeneration" in status:
        before = status_of(hub_pod).get("observedGeneration")
        _translate_generation(status, mirror, before)


def _translate_generation(told: JsonDict, mirror: JsonObject, before: int | None) -> None:
    """Say which generation of the *hub pod* was observed, in place; nothing where it is unknown.

    A kubelet that has not seen the mirror's newest spec may not have seen the hub pod's either:
    then what was said before stays.
    """
    newest = metadata_of(mirror).get("generation") or 0
    is_up_to_date = told.pop("observedGeneration") >= newest
    generation = _hub_generation(mirror) if is_up_to_date else before
    if generation is not None:
        told["observedGeneration"] = generation


def _hub_generation(mirror: JsonObject) -> int | None:
    text = annotations_of(mirror).get(HUB_GENERATION_ANNOTATION, "")
    readable = text.isascii() and text.isdigit() and len(text) < GENERATION_DIGITS
    return int(text) if readable else None


def _hide_injected_containers(status: JsonDict, hub_spec: JsonObject) -> None:
    for spec_field, status_field in _STATUS_LISTS:
        if status_field not in status:
            continue
        known = {container.get("name") for container in hub_spec.get(spec_field) or ()}
        status[status_field] = [s for s in status[status_field] if s.get("name") in known]
        if not status[status_field]:
            del status[status_field]


def _project_conditions(hub_pod: JsonObject, mirror: JsonObject) -> list[JsonDict]:
    conditions = []
    for kind in KUBELET_CONDITIONS:
        condition = condition_of(mirror, kind)
        if condition is not None:
            conditions.append(_translated(condition, kind, hub_pod, mirror))
    _honour_readiness_gates(conditions, hub_pod)
    scheduled = condition_of(mirror, "PodScheduled")
    if scheduled is not None and scheduled.get("status") == "False" and not _is_held(mirror):
        others = [c for c in conditions if c["type"] != "Ready"]
        told = _translated(scheduled, MIRROR_SCHEDULED, hub_pod, mirror)
        return [*others, *_unscheduled(hub_pod, _with_gates(told, mirror))]
    return conditions


def _with_gates(told: JsonDict, mirror: JsonObject) -> JsonDict:
    """Name the gates that somebody in the target put there: the scheduler only says that some are.

    A queueing system there, say, holds pods back until it is their turn.
    """
    gates = scheduling_gates_of(mirror) - {RECORDED_GATE}
    if told.get("reason") != "SchedulingGated" or not gates:
        return told
    return {**told, "message": f"{told.get('message') or ''}: {', '.join(sorted(gates))}"}


def _is_held(mirror: JsonObject) -> bool:
    """Tell whether nothing but our own gate kept the target's scheduler from looking yet."""
    gated = (condition_of(mirror, "PodScheduled") or {}).get("reason") == "SchedulingGated"
    return gated and scheduling_gates_of(mirror) <= {RECORDED_GATE}


def _translated(
    condition: JsonObject, kind: str, hub_pod: JsonObject, mirror: JsonObject
) -> JsonDict:
    """Return the condition as the hub pod's condition of that type."""
    fresh = {**condition, "type": kind}
    if fresh.get("observedGeneration"):
        before = (condition_of(hub_pod, kind) or {}).get("observedGeneration")
        _translate_generation(fresh, mirror, before)
    return fresh


def _unscheduled(hub_pod: JsonObject, scheduled: JsonDict) -> Iterable[JsonDict]:
    """The target scheduler's words, in a condition of our own and in Ready's message (C40).

    Its one reason for all causes is put more precisely where its words tell (C46).
    """
    told = scheduled.get("message") or ""
    why = unscheduled_reason(told) if scheduled.get("reason") == UNSCHEDULABLE else None
    yield scheduled if why is None else {**scheduled, "reason": why}
    ready = {
        "type": "Ready",
        "status": "False",
        "reason": PodReason.MIRROR_UNSCHEDULABLE,
        "message": told,
        "lastTransitionTime": scheduled.get("lastTransitionTime"),
    }
    yield keep_transition_time(ready, hub_pod)


def _honour_readiness_gates(conditions: list[JsonDict], hub_pod: JsonObject) -> None:
    """A gate is evaluated where its condition is written: on the hub."""
    gates = [gate.get("conditionType", "") for gate in spec_of(hub_pod).get("readinessGates") or ()]
    missing = [g for g in gates if (condition_of(hub_pod, g) or {}).get("status") != "True"]
    for condition in conditions:
        if missing and condition["type"] == "Ready" and condition.get("status") == "True":
            condition["status"] = "False"
            condition["reason"] = "ReadinessGatesNotReady"
            condition["message"] = (
                "the status of pod readiness gate "
                + ", ".join(f'"{gate}"' for gate in missing)
                + " is not True"
            )


def keep_transition_time(condition: JsonDict, hub_pod: JsonObject) -> JsonDict:
    """Keep the hub pod's lastTransitionTime where the status did not change."""
    present = condition_of(hub_pod, condition["type"])
    if present is not None and present.get("status") == condition["status"]:
        return {**condition, "lastTransitionTime": present.get("lastTransitionTime")}
    return condition


def with_dropped_fields(status: JsonObject, *, message: str, now: str) -> JsonDict:
    """Add to a projected status that the target dropped fields of the spec (C4)."""
    condition = {
        "type": FIELDS_DROPPED,
        "status": "True",
        "reason": PodReason.FIELDS_DROPPED,
        "message": message,
        "lastTransitionTime": now,
    }
    return {**status, "conditions": [*(status.get("conditions") or ()), condition]}


def with_update_rejected(
    status: JsonObject, hub_pod: JsonObject, *, reason: str, message: str, now: str
) -> JsonDict:
    """Add to a projected status that the target refuses a change of the pod (C25)."""
    condition = {
        "type": UPDATE_REJECTED,
        "status": "True",
        "reason": reason,
        "message": message,
        "lastTransitionTime": now,
    }
    kept = keep_transition_time(condition, hub_pod)
    return {**status, "conditions": [*(status.get("conditions") or ()), kept]}


def still_update_rejected(status: JsonDict, hub_pod: JsonObject) -> JsonDict:
    """Let stand what was told of a refused change, until it is tried again."""
    said = condition_of(hub_pod, UPDATE_REJECTED)
    if said is None:
        return status
    return {**status, "conditions": [*(status.get("conditions") or ()), said]}


def waiting_status(hub_pod: JsonObject, *, reason: str, message: str, now: str) -> JsonDict:
    """Status of a hub pod that has no mirror yet: Pending, with the reason (C26, C27).

    `kubectl get pods` prints `reason` in its STATUS column.
    """
    condition = {
        "status": "False",
        "reason": reason,
        "message": message,
        "lastTransitionTime": now,
    }
    return {
        "phase": "Pending",
        "reason": reason,
        "message": message,
        "conditions": [
            keep_transition_time({"type": kind, **condition}, hub_pod)
            for kind in ("Ready", MIRRORED)
        ],
    }


def lost_status(hub_pod: JsonObject, *, message: str, now: str) -> JsonDict:
    """Status of a hub pod whose mirror vanished without a trace (C43)."""
    status = _ended_status(owned_part(hub_pod), hub_pod, message=message, now=now)
    status["reason"] = PodReason.MIRROR_LOST
    status["message"] = message
    lost = disruption_condition(hub_pod, reason=PodReason.MIRROR_LOST, message=message, now=now)
    others = [c for c in status["conditions"] if c["type"] != "DisruptionTarget"]
    status["conditions"] = [*others, lost]
    return status


def final_status(
    hub_pod: JsonObject,
    last_state: JsonObject | None,
    addresses: Addresses,
    *,
    now: str,
    words: Words | None = None,
) -> JsonDict:
    """Status of a hub pod whose mirror is gone after a deletion that somebody asked for (C50).

    The mirror's last state is projected; where it was not terminal (the object went before its
    containers' end was told), the containers ended with a status unknown, as a kubelet says it.
    """
    if last_state is not None:
        status = project_status(hub_pod, last_state, addresses, words)
    else:
        status = owned_part(hub_pod)
    if status.get("phase") in ("Succeeded", "Failed"):
        return status
    message = "The pod was deleted in the target before the end of its containers was told"
    return _ended_status(status, hub_pod, message=message, now=now)


def disruption_condition(hub_pod: JsonObject, *, reason: str, message: str, now: str) -> JsonDict:
    """A DisruptionTarget condition: the pod's end was not its own doing (KEP-3329)."""
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": reason,
        "message": message,
        "lastTransitionTime": now,
    }
    return keep_transition_time(condition, hub_pod)


_ENDED_WITH_THE_POD = frozenset(
    {"Ready", "ContainersReady", MIRROR_SCHEDULED, MIRRORED, UPDATE_REJECTED}
)


def _ended_status(status: JsonObject, hub_pod: JsonObject, *, message: str, now: str) -> JsonDict:
    """Copy a status as Failed, with every container that had not ended as ended unknown."""
    ended: JsonDict = {k: v for k, v in status.items() if k not in NEVER_PROJECTED}
    ended["phase"] = "Failed"
    ended["containerStatuses"] = _ended_containers(
        status.get("containerStatuses") or (),
        spec_of(hub_pod).get("containers") or (),
        message,
        now,
    )
    for kind in ("initContainerStatuses", "ephemeralContainerStatuses"):
        if status.get(kind):
            ended[kind] = [_ended_container(s, message, now) for s in status[kind]]
    kept = [c for c in status.get("conditions") or () if c["type"] not in _ENDED_WITH_THE_POD]
    ended["conditions"] = [
        *kept,
        *(_not_ready_condition(hub_pod, kind, now=now) for kind in ("Ready", "ContainersReady")),
    ]
    return ended


def _not_ready_condition(hub_pod: JsonObject, kind: str, *, now: str) -> JsonDict:
    condition = {
        "type": kind,
        "status": "False",
        "reason": "PodFailed",
        "lastTransitionTime": now,
    }
    return keep_transition_time(condition, hub_pod)


def _ended_containers(
    statuses: Sequence[JsonObject], containers: Sequence[JsonObject], message: str, now: str
) -> list[JsonDict]:
    known = {status["name"]: status for status in statuses}
    return [
        _ended_container(known.get(c["name"]) or _unseen_container(c), message, now)
        for c in containers
    ]


def _unseen_container(container: JsonObject) -> JsonDict:
    return {
        "name": container["name"],
        "image": container.get("image", ""),
        "imageID": "",
        "ready": False,
        "restartCount": 0,
        "state": {},
    }


def _ended_container(status: JsonObject, message: str, now: str) -> JsonDict:
    state = status.get("state") or {}
    if "terminated" in state:
        return dict(status)
    terminated: JsonDict = {
        "exitCode": LOST_EXIT_CODE,
        "reason": "ContainerStatusUnknown",
        "message": message,
        "finishedAt": now,
        "startedAt": (state.get("running") or {}).get("startedAt", now),
    }
    return {**status, "ready": False, "started": False, "state": {"terminated": terminated}}


def owned_part(hub_pod: JsonObject) -> JsonDict:
    """The part of a hub pod's status that is federate's to write."""
    status: JsonDict = {k: v for k, v in status_of(hub_pod).items() if k not in NEVER_PROJECTED}
    conditions = [c for c in status.get("conditions") or () if c.get("type") in OWNED_CONDITIONS]
    if conditions:
        status["conditions"] = conditions
    else:
        status.pop("conditions", None)
    return status


def derive_base(hub_pod: JsonObject) -> JsonDict:
    """The base of the status merge, derived from the fields and condition types we own (C41).

    The kubelet's role on this pod is ours alone, so everything there in our fields came from us.
    A condition that others write too (DisruptionTarget by the hub's eviction) is left out: it may
    be set by us but is never removed.
    """
    base = owned_part(hub_pod)
    if "conditions" in base:
        base["conditions"] = [c for c in base["conditions"] if c["type"] not in _SHARED_CONDITIONS]
    return base


def disruption_marked_status(hub_pod: JsonObject, mirror: JsonObject, *, now: str) -> JsonDict:
    """The hub pod's present status, not ready, with the reason why its mirror is going (C43).

    The phase stays: the terminal word is written when the mirror is gone.
    """
    status = owned_part(hub_pod)
    conditions = {c["type"]: c for c in status.get("conditions") or ()}
    conditions["Ready"] = _not_ready_condition(hub_pod, "Ready", now=now)
    conditions["DisruptionTarget"] = dict(
        condition_of(mirror, "DisruptionTarget")
        or disruption_condition(
            hub_pod,
            reason=PodReason.DELETED_IN_TARGET,
            message="the mirror pod was deleted in the target, not by federate",
            now=now,
        )
    )
    status["conditions"] = list(conditions.values())
    return status
