"""What is read of two clusters to explain a pod, said in few words: `facts(web().build())`."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from federate.explain.facts import NodeFacts, PodFacts, TargetRules, TargetSide
from federate.explain.stations import Road, Station, told
from federate.mirror.refusal import Refusal
from federate.mirror.render import RenderRules
from federate.model.marks import (
    HUB_POD_NAMESPACE_LABEL,
    NODE_HUB_ANNOTATION,
    RECORD_ANNOTATION,
    MirrorRecord,
    Origin,
    Scope,
)
from federate.model.naming import NamespaceRules, anchor_name, mirror_key
from federate.model.objects import JsonDict, JsonObject, ObjectKey
from federate.status.project import waiting_status
from tests.support.builders import PodBuilder, pod

NOW = datetime(2026, 1, 1, 0, 5, tzinfo=UTC)
"""Five minutes after pods of the builders are made."""
HUB = "hub-uid"
SCOPE = Scope(hub_id=HUB, node_name="edge")
KEY = ObjectKey("shop", "web-0")
PLACE = mirror_key(NamespaceRules(), HUB, KEY) or KEY
TOLERATION = {"key": "virtual-kubelet.io/provider", "operator": "Exists"}
RULES = TargetRules(
    name="edge",
    scope=SCOPE,
    namespaces=NamespaceRules(),
    render=RenderRules(scope=SCOPE),
)


def web() -> PodBuilder:
    """A pod of the hub, bound to the virtual node."""
    return unbound().bound_to("edge")


def unbound() -> PodBuilder:
    return pod("web-0", namespace="shop").with_spec(tolerations=[TOLERATION])


def recorded(builder: PodBuilder, *, uid: str = "m-1") -> PodBuilder:
    """The same with its mirror on record; uid "": intended."""
    record = MirrorRecord(pod_uid=builder.pod["metadata"]["uid"], mirror=PLACE, mirror_uid=uid)
    return builder.with_annotations({RECORD_ANNOTATION: record.format()})


def refused(builder: PodBuilder, refusal: Refusal) -> PodBuilder:
    """The same as federate leaves it that cannot make the mirror."""
    status = waiting_status(
        builder.build(),
        reason=refusal.reason,
        message=refusal.message,
        now="2026-01-01T00:01:00Z",
    )
    return builder.with_status(**status)


def mirror(*, pod_uid: str = "uid-web-0", uid: str = "m-1") -> PodBuilder:
    """The mirror of `web`, not bound yet."""
    origin = Origin(scope=SCOPE, pod=KEY, pod_uid=pod_uid)
    there = pod(PLACE.name, namespace=PLACE.namespace).with_uid(uid)
    labels = {**origin.labels(), HUB_POD_NAMESPACE_LABEL: KEY.namespace}
    return there.with_labels(labels).with_annotations(origin.annotations())


def anchor(*, uid: str = "a-1") -> JsonDict:
    return {
        "metadata": {
            "namespace": PLACE.namespace,
            "name": anchor_name(SCOPE),
            "uid": uid,
            "labels": SCOPE.labels(),
        }
    }


def node(*conditions: JsonDict, **fields: Any) -> JsonDict:
    """The Node `edge` as federate registers it, well but for these conditions."""
    changed = {c["type"] for c in conditions}
    well = [
        {"type": "Ready", "status": "True", "reason": "FederateReady", "message": "well"},
        {"type": "federate.dev/TargetReachable", "status": "True", "reason": "TargetAnswers"},
    ]
    return {
        "metadata": {"name": "edge", "annotations": {NODE_HUB_ANNOTATION: HUB}},
        "spec": {"taints": [{"key": TOLERATION["key"], "effect": "NoSchedule"}]},
        "status": {
            "allocatable": {"cpu": "8", "memory": "32Gi", "pods": "50"},
            "conditions": [*(c for c in well if c["type"] not in changed), *conditions],
        },
        **fields,
    }


def led(**changes: Any) -> NodeFacts:
    """The virtual node with a federate that renewed its lease two seconds ago."""
    lease = {
        "metadata": {},
        "spec": {
            "holderIdentity": "host-1",
            "leaseDurationSeconds": 15,
            "renewTime": "2026-01-01T00:04:58.000000Z",
        },
    }
    fields: dict[str, Any] = {
        "name": "edge",
        "node": node(),
        "lease": lease,
        "holder": "host-1",
        "recorded_identity": "target-uid",
    }
    return NodeFacts(**{**fields, **changes})


def facts(hub_pod: JsonObject | None, **changes: Any) -> PodFacts:
    """What is read where all is as it ought to be, but for the changes."""
    fields: dict[str, Any] = {
        "hub_pod": hub_pod,
        "node": led(recorded_anchors={PLACE.namespace: "a-1"}),
        "virtual_nodes": [node()],
        "rules": RULES,
        "target": TargetSide(identity="target-uid"),
        "mirror_key": PLACE,
        "namespace": {"metadata": {"name": PLACE.namespace}},
        "anchor": anchor(),
    }
    return PodFacts(now=NOW, key=KEY, **{**fields, **changes})


def with_rules(**changes: Any) -> TargetRules:
    return replace(RULES, **changes)


def line(station: Station) -> str:
    since = f" (for {station.since})" if station.since else ""
    return f"{station.standing} {station.id}: {told(station)}{since}"


def lines(road: Road) -> list[str]:
    """The road as the command draws it, without what to do."""
    return [line(station) for station in road.stations]
