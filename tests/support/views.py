"""What a plan looks at, said in words: hub pods, their mirrors, views and rules for tests.

`view(hub_pod, mirror)` is what a reconcile sees first; `sure(...)` the same after it has read
everything directly. `outcome(hub_pod, step)` is the hub pod after the step's write.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from federate.mirror.applied import record_annotations
from federate.mirror.render import RenderRules, applicable, format_managed_keys, looks_of
from federate.mirror.steps import (
    AnchorState,
    PlanRules,
    PodView,
    Step,
    WriteHubPod,
)
from federate.model.marks import (
    HUB_POD_NAMESPACE_LABEL,
    MADE_AS_ANNOTATION,
    MANAGED_KEYS_ANNOTATION,
    RECORD_ANNOTATION,
    MirrorRecord,
    Origin,
    Scope,
)
from federate.model.naming import prefixed_namespace
from federate.model.objects import (
    JsonDict,
    JsonObject,
    ObjectKey,
    annotations_of,
    condition_of,
    key_of,
    uid_of,
)
from federate.services.addresses import decide_addresses
from federate.services.ranges import Ranges
from federate.services.rules import AddressMode
from federate.status.project import Addresses
from federate.status.writing import HubWrite
from tests.support.builders import PodBuilder, pod
from tests.support.strategic import apply_strategic_patch

NOW = datetime(2026, 1, 1, 1, 0, 0, tzinfo=UTC)
SCOPE = Scope(hub_id="11111111-2222-3333-4444-555555555555", node_name="edge")
OTHER_SCOPE = Scope(hub_id="11111111-2222-3333-4444-555555555555", node_name="attic")
SHOWN = decide_addresses(AddressMode.REFLECT, hub=Ranges(), target=Ranges(), target_name="berlin")
ADDRESSES = Addresses(node_address="192.0.2.10", decision=SHOWN)
RULES = PlanRules(render=RenderRules(), addresses=ADDRESSES, target_name="berlin")


def hub_pod(name: str = "web", *, namespace: str = "default") -> PodBuilder:
    """Begin a hub pod that the scheduler bound to the virtual node."""
    return pod(name, namespace=namespace).bound_to(SCOPE.node_name)


def mirror_key(hub_key: ObjectKey) -> ObjectKey:
    """Name the mirror of a hub pod."""
    namespace = prefixed_namespace(SCOPE.hub_id, hub_key.namespace)
    return ObjectKey(namespace, hub_key.name)


def mirror(
    name: str = "web", *, of_uid: str = "", uid: str = "", scope: Scope = SCOPE
) -> PodBuilder:
    """Begin the mirror of the hub pod `default/NAME`, with the marks and records of a real one."""
    hub_key = ObjectKey("default", name)
    origin = Origin(scope=scope, pod=hub_key, pod_uid=of_uid or f"uid-{name}")
    annotations = {
        **origin.annotations(),
        MANAGED_KEYS_ANNOTATION: format_managed_keys({}, {}),
        **record_annotations(applicable(hub_pod(name).build(), RULES.render), "1"),
    }
    key = mirror_key(hub_key)
    return (
        pod(key.name, namespace=key.namespace)
        .with_uid(uid or f"mirror-{name}")
        .with_labels({**origin.labels(), HUB_POD_NAMESPACE_LABEL: hub_key.namespace})
        .with_annotations(annotations)
        .owned_by("ConfigMap", "federate-anchor")
    )


def made_as(
    hub: JsonObject, rules: RenderRules = RULES.render, *, scope: Scope = SCOPE
) -> dict[str, str]:
    """Return what a mirror says of what it was made as: by those rules, of that hub pod."""
    origin = Origin(scope=scope, pod=key_of(hub), pod_uid=uid_of(hub))
    return {MADE_AS_ANNOTATION: looks_of(hub, origin=origin, rules=rules).fingerprint}


def intending(builder: PodBuilder, *, at: str = "2026-01-01T00:59:50Z") -> PodBuilder:
    """Let the hub pod have an intent on record: ten seconds old, unless said otherwise."""
    return _recording(builder, uid="", at=at)


def recording(builder: PodBuilder, *, uid: str = "mirror-web") -> PodBuilder:
    """Let the hub pod know its mirror's uid, as after the first status write."""
    return _recording(builder, uid=uid, at="")


def _recording(builder: PodBuilder, *, uid: str, at: str) -> PodBuilder:
    key = key_of(builder.pod)
    record = MirrorRecord(
        pod_uid=uid_of(builder.pod), mirror=mirror_key(key), mirror_uid=uid, intended_at=at
    )
    return builder.with_annotations({RECORD_ANNOTATION: record.format()})


def view(hub: JsonObject | None, *mirrors: JsonObject, **fields: Any) -> PodView:
    """What a reconcile of the hub pod sees first: stores, nothing read directly yet."""
    key = key_of(hub) if hub is not None else ObjectKey("default", "web")
    values: JsonDict = {
        "key": key,
        "mirror_key": mirror_key(key),
        "hub_pod": hub,
        "mirrors": mirrors,
        "anchor": AnchorState.PRESENT,
        "now": NOW,
        **fields,
    }
    return PodView(**values)


def sure(hub: JsonObject | None, *mirrors: JsonObject, **fields: Any) -> PodView:
    """What it sees after it has read hub pod, mirrors and anchor directly; nothing is shared."""
    places = {key_of(each).namespace for each in mirrors}
    seen = view(hub, *mirrors, **{"shared": {place: frozenset() for place in places}, **fields})
    return replace(seen, hub_pod_fresh=True, mirrors_fresh=True, anchor_fresh=True)


def patched(hub: JsonObject, write: HubWrite | None) -> JsonDict:
    """Return the hub pod after a write, as an API server merges it."""
    assert write is not None
    return apply_strategic_patch(dict(hub), write.patch.body, kind="Pod")


def outcome(hub: JsonObject, step: Step) -> JsonDict:
    """Return the hub pod after the step's write; other steps fail the test."""
    assert isinstance(step, WriteHubPod), step
    return patched(hub, step.write)


def condition_status(obj: JsonObject, kind: str) -> str | None:
    """Return a condition's status, None where there is no such condition."""
    condition = condition_of(obj, kind)
    return condition["status"] if condition is not None else None


def record_text(obj: JsonObject) -> str:
    """Return the hub pod's record as it is written, "" where there is none."""
    return annotations_of(obj).get(RECORD_ANNOTATION, "")
