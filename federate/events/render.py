"""The Event that a hub pod gets for a target's Event about its mirror. Pure.

Rendering the same target Event again, after more repeats or in another process, gives an Event of
the same name: to tell it twice is to tell it once. It is a core Event of the older form, with
count and times, whatever form the target's has: that is what kubelets write, it can carry times
that are past, and both of kubectl's views read it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeAlias

from federate.model.events import cut_note, cut_word, event_name
from federate.model.instants import format_instant, parse_instant
from federate.model.objects import (
    JsonDict,
    JsonObject,
    ObjectKey,
    key_of,
    metadata_of,
    uid_of,
)
from federate.model.resources import CORE_EVENTS, PODS
from federate.patch.document import MERGE, PatchBody

POD_EVENTS = f"involvedObject.kind={PODS.kind}"
"""Field selector of the Events about pods, as far as an API server can narrow it."""

KUBELET = "kubelet"

Progress: TypeAlias = tuple[int, datetime]
"""Count, and when it was last seen: later words about the same Event have more of it."""

WordsOf: TypeAlias = Callable[[JsonObject, str], Callable[[str], str]]
"""Asked for a hub pod and the namespace of its mirror: puts texts into the hub's words (C30)."""

_NEVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class HubEvent:
    """An Event as it is to stand on the hub."""

    key: ObjectKey
    mirror_uid: str
    pod_uid: str
    body: JsonDict
    progress: Progress

    def change(self) -> PatchBody:
        """Return what brings an earlier telling of it up to date."""
        moving = ("count", "lastTimestamp", "message")
        body = {name: self.body[name] for name in moving}
        return PatchBody(media_type=MERGE, body=body)


def mirror_uid_of(event: JsonObject) -> str:
    """Return the uid of the pod that a target's Event is about, "" where there is none."""
    uid: str = (event.get("involvedObject") or {}).get("uid") or ""
    return uid


def mirror_key_of(event: JsonObject) -> ObjectKey:
    """Return where the pod is that a target's Event is about, by the Event's own word."""
    involved = event.get("involvedObject") or {}
    return ObjectKey(str(involved.get("namespace", "")), str(involved.get("name", "")))


def last_seen_at(event: JsonObject) -> datetime:
    """Return when it happened last, by the clock of the target."""
    series = event.get("series") or {}
    repeats = _instants(series.get("lastObservedTime"), event.get("lastTimestamp"))
    return max(repeats, default=first_seen_at(event))


def first_seen_at(event: JsonObject) -> datetime:
    """Return when it happened first, by the clock of the target."""
    created = metadata_of(event).get("creationTimestamp")
    found = _instants(event.get("firstTimestamp"), event.get("eventTime"), created)
    return found[0] if found else _NEVER


def count_of(event: JsonObject) -> int:
    """Return how often it happened: in the older form a count, in the newer one a series."""
    series = event.get("series") or {}
    return max(int(event.get("count") or 0), int(series.get("count") or 0), 1)


def render_event(
    event: JsonObject,
    hub_pod: JsonObject,
    *,
    target_name: str,
    words: WordsOf = lambda hub_pod, target_namespace: str,
) -> HubEvent:
    """Render what the hub pod is told: the target's words, count and times."""
    pod = key_of(hub_pod)
    key = ObjectKey(pod.namespace, event_name(pod.name, _digest(event, hub_pod)))
    count, last_at = count_of(event), last_seen_at(event)
    said = words(hub_pod, mirror_key_of(event).namespace)
    regarding: JsonDict = {
        "apiVersion": PODS.group_version,
        "kind": PODS.kind,
        "namespace": pod.namespace,
        "name": pod.name,
        "uid": uid_of(hub_pod),
    }
    if field_path := (event.get("involvedObject") or {}).get("fieldPath"):
        regarding["fieldPath"] = cut_word(field_path)
    body: JsonDict = {
        "apiVersion": CORE_EVENTS.group_version,
        "kind": CORE_EVENTS.kind,
        "metadata": {"name": key.name, "namespace": key.namespace},
        "involvedObject": regarding,
        "type": "Warning" if event.get("type") == "Warning" else "Normal",
        "reason": cut_word(event.get("reason") or ""),
        "message": cut_note(said(event.get("message") or "")),
        "count": count,
        "firstTimestamp": format_instant(first_seen_at(event)),
        "lastTimestamp": format_instant(last_at),
        **_source(event, target_name),
    }
    if action := event.get("action"):
        body["action"] = cut_word(action)
    return HubEvent(
        key=key,
        mirror_uid=mirror_uid_of(event),
        pod_uid=uid_of(hub_pod),
        body=body,
        progress=(count, last_at),
    )


def _source(event: JsonObject, target_name: str) -> JsonDict:
    """Say who speaks. `kubectl describe` shows `source.component` only, as FROM.

    The kubelet's name stays: it does here what the kubelet of the virtual node would do. The hub
    has a scheduler and controllers of its own, so the target's carry the target's name. Who selects
    on the reporting component finds the target's own word.
    """
    source = event.get("source") or {}
    component = cut_word(source.get("component") or event.get("reportingComponent") or "unknown")
    instance = cut_word(source.get("host") or event.get("reportingInstance") or "")
    if component == KUBELET:
        host = f"{target_name}/{instance}" if instance else target_name
        told = {"component": component, "host": host}
    else:
        told = {"component": f"{component}, {target_name}"}
    return {"source": told, "reportingComponent": component, "reportingInstance": instance}


def _digest(event: JsonObject, hub_pod: JsonObject) -> str:
    return hashlib.sha256(f"{uid_of(event)} {uid_of(hub_pod)}".encode()).hexdigest()[:16]


def _instants(*texts: str | None) -> list[datetime]:
    read = (parse_instant(text) for text in texts if text)
    return [at for at in read if at is not None]
