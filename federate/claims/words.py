"""What a target says about a claim, in the hub's names. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import partial

from federate.claims.keys import origin_of_claim
from federate.claims.places import claims_used, names_in_mirror
from federate.claims.protocol import size_of
from federate.companions.keys import in_hub_words
from federate.model.instants import parse_instant
from federate.model.marks import Scope
from federate.model.objects import JsonObject, ObjectKey, key_of, metadata_of


def latest_warning(events: Iterable[JsonObject]) -> str:
    """Return the last warning among the Events about one object, "" where there is none."""
    return _latest(event for event in events if event.get("type") == "Warning")


def latest_words(events: Iterable[JsonObject]) -> str:
    """Return the last warning; where nobody warns, the last words.

    That nobody provisions a claim is never a warning: each looks after its own classes, and knows
    nothing of the others.
    """
    found = list(events)
    return latest_warning(found) or _latest(found)


def _latest(events: Iterable[JsonObject]) -> str:
    last = max(events, key=_seen_at, default=None)
    return str((last or {}).get("message") or "")


def _seen_at(event: JsonObject) -> tuple[bool, datetime]:
    series: JsonObject = event.get("series") or {}
    texts: tuple[str, ...] = (
        series.get("lastObservedTime") or "",
        event.get("lastTimestamp") or "",
        event.get("eventTime") or "",
        metadata_of(event).get("creationTimestamp") or "",
    )
    found = next((at for text in texts if (at := parse_instant(text)) is not None), None)
    return (found is not None, found or datetime.min)


def as_on_hub(text: str, names: Mapping[ObjectKey, ObjectKey]) -> str:
    """Put the hub's names for those of claims in the target."""
    return in_hub_words(text, names) if names else text


def kept_words(scope: Scope, claims: Iterable[JsonObject]) -> list[str]:
    """Say of each claim what it holds, and how it is removed in the target."""
    lines = []
    for claim in claims:
        origin, place = origin_of_claim(scope, claim), key_of(claim)
        if origin is not None:
            size = size_of(claim) or "without storage"
            lines.append(
                f"{place} ({size}, of {origin}): kubectl --namespace {place.namespace} delete "
                f"persistentvolumeclaim {place.name}"
            )
    return lines


def mirror_words(hub_pod: JsonObject, mirror: JsonObject) -> Callable[[str], str]:
    """Return what puts the hub's names for those of claims, in words about a mirror."""
    uses = claims_used(hub_pod)
    if not uses:
        return _as_said
    namespace, there = key_of(mirror).namespace, names_in_mirror(hub_pod, mirror)
    names = {
        ObjectKey(namespace, there[use.volume]): use.claim for use in uses if there[use.volume]
    }
    return partial(as_on_hub, names=names)


def _as_said(text: str) -> str:
    return text
