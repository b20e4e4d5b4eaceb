"""What of the desired is not actual between the two clusters of a world, in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from federate.mirror.render import metadata_changes
from federate.model.marks import HUB_GENERATION_ANNOTATION, record_of
from federate.model.objects import (
    JsonObject,
    annotations_of,
    condition_of,
    is_terminating,
    key_of,
    metadata_of,
    spec_of,
    status_of,
    uid_of,
)
from federate.model.pods import is_gated, is_terminal, node_name_of, phase_of
from federate.model.resources import CONFIGMAPS, NAMESPACES, NODES, PODS
from federate.node.anchors import parse_anchors
from federate.status.project import MIRRORED
from tests.support.scene import ANCHOR, RULES, SCOPE, TARGET_NAMESPACE
from tests.support.witness import image_number, image_of, origin_uid

if TYPE_CHECKING:
    from tests.support.worlds import World


def differences(world: World) -> Iterator[str]:
    """Say what is not as it should be; nothing where all is."""
    for resource, pod in world.hub.store.all():
        if resource == PODS and node_name_of(pod) == SCOPE.node_name:
            yield from _unmet(world, pod)
    for mirror in world.witness.target_pods():
        uid = origin_uid(mirror)
        if uid and world.witness.hub_pod(uid) is None:
            yield f"orphan mirror {key_of(mirror)} of {uid}"
    if world.keeps_namespace_in_vain():
        yield f"namespace {TARGET_NAMESPACE} was not given back"


def is_uninstalled(world: World) -> bool:
    """Tell whether the target's people removed the anchor that is on record."""
    node = next(obj for resource, obj in world.hub.store.all() if resource == NODES)
    recorded = parse_anchors(node).get(TARGET_NAMESPACE) or world.recorded_anchor()
    anchor = world.target.store.get(CONFIGMAPS, ANCHOR)
    namespace = world.target.store.get(NAMESPACES, key_of({"metadata": {"name": TARGET_NAMESPACE}}))
    if not recorded:
        return False
    stands = anchor is not None and uid_of(anchor) == recorded and not is_terminating(anchor)
    return not stands or namespace is None or is_terminating(namespace)


def _unmet(world: World, hub_pod: JsonObject) -> Iterator[str]:
    key, mirrors = key_of(hub_pod), world.witness.mirrors_of(uid_of(hub_pod))
    if world.is_taken_away(key):
        return  # it stays as it is
    if is_terminating(hub_pod):
        if not metadata_of(hub_pod).get("finalizers") and not _is_in_doubt(world, hub_pod):
            yield f"{key} still terminates"
    elif is_terminal(hub_pod):
        for mirror in mirrors:
            if not is_terminal(mirror):
                yield f"terminal {key} has a live mirror"
    elif mirrors:
        yield from _untold(hub_pod, mirrors[0])
    elif not is_uninstalled(world) and not _says_why(world, hub_pod):
        yield f"{key} has no mirror and says nothing"


def _is_in_doubt(world: World, hub_pod: JsonObject) -> bool:
    """Tell whether the mirror went in an uninstall that nobody saw: it had lost its marks, or
    another process led by then. The targets of histories do not say which cluster they are, so
    absence proves nothing there (C5): the hub pod stays."""
    record = record_of(hub_pod)
    if record is None or not record.mirror_uid or not is_uninstalled(world):
        return False
    return world.processes > 1 or world.witness.is_unmarked(record.mirror_uid)


def _says_why(world: World, hub_pod: JsonObject) -> bool:
    reason = (condition_of(hub_pod, MIRRORED) or {}).get("reason")
    occupant = world.mirror(key_of(hub_pod))
    is_taken = occupant is not None and origin_uid(occupant) != uid_of(hub_pod)
    return reason == "PolicyRefused" or (reason == "NameTaken" and is_taken)


def _untold(hub_pod: JsonObject, mirror: JsonObject) -> Iterator[str]:
    key = key_of(hub_pod)
    record = record_of(hub_pod)
    if record is None or record.mirror_uid != uid_of(mirror):
        yield f"{key} does not remember its mirror"
    if is_gated(mirror):
        yield f"the mirror of {key} was not let go"
    if phase_of(hub_pod) != phase_of(mirror):
        yield f"{key} is {phase_of(hub_pod)}, its mirror {phase_of(mirror)}"
    for name in ("containerStatuses", "startTime"):
        if status_of(hub_pod).get(name) != status_of(mirror).get(name):
            yield f"{name} of {key} differ"
    ready, wanted = (condition_of(pod, "Ready") or {} for pod in (hub_pod, mirror))
    if wanted and ready.get("status") != wanted.get("status"):
        yield f"{key} is ready: {ready.get('status')}, its mirror: {wanted.get('status')}"
    if condition_of(hub_pod, MIRRORED) is not None:
        yield f"{key} says why it has no mirror, and has one"
    if not is_terminal(mirror):
        yield from _unapplied(hub_pod, mirror)
    if metadata_changes(hub_pod, mirror, RULES.render) is not None:
        yield f"labels or annotations of {key} differ"


def _unapplied(hub_pod: JsonObject, mirror: JsonObject) -> Iterator[str]:
    """What of the spec did not come to the mirror; it may have more, and images of its own."""
    key = key_of(hub_pod)
    if image_number(hub_pod) != image_number(mirror):
        yield f"{key} has the image {image_of(hub_pod)}, its mirror {image_of(mirror)}"
    for name in ("tolerations", "ephemeralContainers"):
        there = [item.get("name", item.get("key")) for item in spec_of(mirror).get(name) or ()]
        for item in spec_of(hub_pod).get(name) or ():
            if item.get("name", item.get("key")) not in there:
                yield f"{name} of {key} are not its mirror's"
    generation = str(metadata_of(hub_pod).get("generation"))
    if annotations_of(mirror).get(HUB_GENERATION_ANNOTATION) != generation:
        yield f"the mirror of {key} does not say that generation {generation} is applied"
