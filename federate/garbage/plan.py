"""Say which mirrors in a target nobody wants any more. Pure.

Input: a *complete, quorum-read* listing of the hub's pods on the virtual node, and the mirrors this
hub made in the target; output: who is an orphan, and who belongs to another virtual node. Nothing
may be deleted on this word alone: each orphan is confirmed by a direct read first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from federate.model.marks import ORIGIN_ANNOTATIONS, ORIGIN_LABELS, Scope, origin_of
from federate.model.objects import (
    JsonDict,
    JsonObject,
    ObjectKey,
    annotations_of,
    is_terminating,
    key_of,
    labels_of,
    metadata_of,
    uid_of,
)
from federate.model.pods import phase_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphan:
    """A mirror without its hub pod, or of an unknown virtual node."""

    mirror: ObjectKey
    uid: str
    hub_id: str
    hub_pod: ObjectKey
    hub_pod_uid: str
    node_name: str
    phase: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What a sweep found: `orphans` may be removed, `unknown` only by a person's word (C51)."""

    orphans: tuple[Orphan, ...]
    unknown: tuple[Orphan, ...]
    mirrors: int
    hub_pods: int


def outline_of(mirror: JsonDict) -> JsonDict:
    """Keep of a mirror what is read below: there may be very many."""
    metadata = metadata_of(mirror)
    kept = ("namespace", "name", "uid", "deletionTimestamp")
    outline: JsonDict = {name: metadata[name] for name in kept if name in metadata}
    outline["labels"] = {k: v for k, v in labels_of(mirror).items() if k in ORIGIN_LABELS}
    outline["annotations"] = {
        k: v for k, v in annotations_of(mirror).items() if k in ORIGIN_ANNOTATIONS
    }
    return {"metadata": outline, "status": {"phase": phase_of(mirror)}}


def plan_sweep(
    *, scope: Scope, hub_pods: Iterable[JsonObject], mirrors: Iterable[JsonObject]
) -> Survey:
    """Compare; `mirrors` are all of this hub in the target, whatever their virtual node."""
    wanted = {uid_of(pod) for pod in hub_pods}
    orphans: list[Orphan] = []
    unknown: list[Orphan] = []
    seen = 0
    for mirror in mirrors:
        origin = origin_of(mirror)
        if origin is None or origin.scope.hub_id != scope.hub_id:
            continue
        seen += 1
        if origin.scope != scope:
            unknown.append(_orphan(mirror, "another virtual node of this hub"))
        elif origin.pod_uid not in wanted:
            ending = "already ending" if is_terminating(mirror) else "its hub pod is gone"
            orphans.append(_orphan(mirror, ending))
    return Survey(
        orphans=tuple(orphans), unknown=tuple(unknown), mirrors=seen, hub_pods=len(wanted)
    )


def _orphan(mirror: JsonObject, reason: str) -> Orphan:
    origin = origin_of(mirror)
    assert origin is not None  # noqa: S101 (plan_sweep reads it first)
    return Orphan(
        mirror=key_of(mirror),
        uid=uid_of(mirror),
        hub_id=origin.scope.hub_id,
        hub_pod=origin.pod,
        hub_pod_uid=origin.pod_uid,
        node_name=origin.scope.node_name,
        phase=phase_of(mirror),
        reason=reason,
    )
