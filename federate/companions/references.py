"""What a pod refers to beside itself, required or optional, and what cannot come along. Pure.

The admission-made token volume does not count: it is dropped from the mirror. With `brings_tokens`
(identity `hub`) it stays, and so it counts.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from federate.companions.keys import CompanionKey, Kind
from federate.companions.places import UNSUPPORTED, Place, Use, named_in, stray_places
from federate.model.objects import JsonDict, JsonObject, metadata_of, spec_of
from federate.model.pods import admission_token_volumes, is_terminal


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """An object that a pod names, once for each place where it does."""

    kind: Kind
    name: str
    use: Use
    is_optional: bool
    keys: frozenset[str] | None = None
    """Of its keys those that are asked for by name; None where all are taken as they come."""


def references_of(spec: JsonObject, *, brings_tokens: bool = False) -> tuple[Reference, ...]:
    """List what the spec names, as often as it does."""
    kept = without_dropped_volumes(spec, brings_tokens=brings_tokens)
    return tuple(_reference(*named) for named in named_in(kept))


def _reference(place: Place, holder: JsonObject) -> Reference:
    return Reference(
        kind=place.kind,
        name=str(holder[place.name_field]),
        use=place.use,
        is_optional=place.use is Use.PULL or bool(holder.get("optional")),
        keys=_keys(holder),
    )


def _keys(holder: JsonObject) -> frozenset[str] | None:
    if holder.get("key"):
        return frozenset({str(holder["key"])})
    items = holder.get("items")
    return frozenset(str(item.get("key", "")) for item in items) if items else None


def wants_of(
    hub_pod: JsonObject,
    target_namespace: str,
    shared: Collection[tuple[Kind, str]] = (),
    *,
    brings_tokens: bool = False,
) -> frozenset[CompanionKey]:
    """Name the companions that a hub pod needs where its mirror stands, or shall stand.

    A terminal pod needs none: nothing of it is ever started again (C42). Nor do objects that the
    target's operator shares need any.
    """
    if is_terminal(hub_pod):
        return frozenset()
    namespace: str = metadata_of(hub_pod).get("namespace") or ""
    return frozenset(
        CompanionKey(target_namespace, reference.kind, namespace, reference.name)
        for reference in references_of(spec_of(hub_pod), brings_tokens=brings_tokens)
        if (reference.kind, reference.name) not in shared
    )


def names_used(mirror: JsonObject) -> frozenset[tuple[Kind, str]]:
    """Name what a mirror refers to in the target: its companions, by their names there.

    An orphan's hub pod is gone, but while the mirror lives they are in use.
    """
    if is_terminal(mirror):
        return frozenset()
    return frozenset((r.kind, r.name) for r in references_of(spec_of(mirror)))


def unsupported_of(
    spec: JsonObject,
    *,
    brings_tokens: bool = False,
    travelling_tokens: bool = False,
    travelling_claims: bool = False,
) -> tuple[str, ...]:
    """Say in words what the pod leans on that does not come along, sorted and without repeats.

    With `travelling_tokens` the tokens of its projected volumes do: identity sees to them. With
    `travelling_claims` its claims do.
    """
    kept = without_dropped_volumes(spec, brings_tokens=brings_tokens)
    refused = [
        place
        for place in UNSUPPORTED
        if not (travelling_tokens and place.is_token) and not (travelling_claims and place.is_claim)
    ]
    found = {words for place in refused for words in place.found(kept)}
    found.update(f"what {path} points at" for path in stray_places(kept))
    return tuple(sorted(found))


def without_dropped_volumes(spec: JsonObject, *, brings_tokens: bool = False) -> JsonObject:
    """Leave out the admission-made token volumes, which name objects and stay behind."""
    dropped = admission_token_volumes(spec)
    if brings_tokens or not dropped:
        return spec
    kept: JsonDict = {
        **spec,
        "volumes": [v for v in spec.get("volumes") or () if v.get("name") not in dropped],
    }
    return kept
