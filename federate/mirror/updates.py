"""What changed in a hub pod since it was last applied to its mirror, as requests. Pure.

An API server lets little of a pod change, some of it only through subresources, and those take no
annotations (tried on 1.34 and 1.36). So the record of what was applied travels in the very request
that changes images, the deadline or tolerations; after a change of resources or debug containers it
follows in a second one. Who dies between the two sends the same change again, which is no change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from federate.companions.holding import Hold
from federate.companions.references import wants_of
from federate.mirror.applied import (
    CONTAINER_LISTS,
    Applied,
    Part,
    changeable,
    generation_of,
    is_readable,
    parse_applied,
    record_annotations,
)
from federate.mirror.dropped import dropped_fields
from federate.mirror.refusal import (
    Refusal,
    debugger_refusal,
    needs_of,
    policy_refusal,
    weakened_debugger_refusal,
)
from federate.mirror.render import RenderRules, applicable, rendered_debugger
from federate.model.marks import HUB_GENERATION_ANNOTATION
from federate.model.objects import (
    JsonDict,
    JsonObject,
    annotations_of,
    fingerprint_of,
    key_of,
    metadata_of,
    resource_version_of,
    spec_of,
    uid_of,
)
from federate.patch.document import STRATEGIC, PatchBody
from federate.policy.images import rewritten
from federate.policy.verdict import judge_debugger

SUBRESOURCES: Mapping[Part, str] = {
    Part.RESOURCES: "resize",
    Part.DEBUGGERS: "ephemeralcontainers",
}
"""Where a part is changed; the others are in the pod itself."""

RECORD_ONLY = "record"
"""What an update is called that changes nothing but the record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """One change of a mirror: `spec` for a strategic merge patch, and the record after it."""

    what: str
    """The part, for people and to tell refusals of several parts apart."""
    spec: JsonDict = field(default_factory=dict)
    subresource: str = ""
    applied: Applied = field(default_factory=dict)
    generation: str = ""
    """The hub pod's, where this is the last change that was missing of it."""
    refusal: Refusal | None = None
    """Why federate itself does not send it."""
    holds: Mapping[str, Hold] = field(default_factory=dict)
    """What debug containers wait for, by their names; until then it is not sent."""

    @property
    def is_kept_back(self) -> bool:
        """Tell whether there is nothing to send."""
        return self.refusal is not None or bool(self.holds)

    @property
    def fingerprint(self) -> str:
        """Tells one change from another, whatever else is recorded beside it."""
        return fingerprint_of([self.what, self.spec])

    @property
    def record(self) -> dict[str, str]:
        """The annotations that say it was applied."""
        return record_annotations(self.applied, self.generation)


def pending_updates(
    hub_pod: JsonObject, mirror: JsonObject, rules: RenderRules, hold: Hold | None = None
) -> tuple[Update, ...]:
    """List what the mirror still lacks; empty where nothing changed since it was last applied.

    Each is built on the mirror as it is: when one is carried out, ask again for the next. `hold` is
    what the hub pod waits for.
    """
    generation = generation_of(hub_pod)
    if generation and generation == _applied_generation(mirror) and is_readable(mirror):
        return ()
    recorded = parse_applied(mirror)
    wanted = applicable(hub_pod, rules)
    applied = recorded if recorded is not None else _assumed(hub_pod, mirror, wanted)
    changes = (
        *_changes(applied, wanted, mirror, rules),
        *_debuggers(applied, hub_pod, mirror, rules, hold),
    )
    if not changes:
        return _unrecorded({**wanted, Part.DEBUGGERS: applied[Part.DEBUGGERS]}, generation, mirror)
    if len(changes) == 1 and not changes[0].is_kept_back:
        # After it the mirror is as the hub pod of this generation wants it.
        return (replace(changes[0], generation=generation),)
    return changes


def _unrecorded(applied: Applied, generation: str, mirror: JsonObject) -> tuple[Update, ...]:
    """Nothing of the mirror is to be changed; its record may be behind, or missing."""
    update = Update(what=RECORD_ONLY, applied=applied, generation=generation)
    return () if is_recorded(update, mirror) else (update,)


def is_recorded(update: Update, mirror: JsonObject) -> bool:
    """Tell whether the mirror says that the change was applied."""
    return update.record.items() <= annotations_of(mirror).items()


def update_patch(update: Update, mirror: JsonObject) -> PatchBody:
    """Express the change for that very version of the mirror: a late one must not undo a newer."""
    return _patch(mirror, update.spec, {} if update.subresource else update.record)


def record_patch(update: Update, mirror: JsonObject) -> PatchBody:
    """Express the record alone, for after a change through a subresource."""
    return _patch(mirror, {}, update.record)


def _patch(mirror: JsonObject, spec: JsonDict, annotations: Mapping[str, str]) -> PatchBody:
    metadata: JsonDict = {"uid": uid_of(mirror), "resourceVersion": resource_version_of(mirror)}
    if annotations:
        metadata["annotations"] = dict(annotations)
    body: JsonDict = {"metadata": metadata}
    if spec:
        body["spec"] = spec
    return PatchBody(media_type=STRATEGIC, body=body)


def _applied_generation(mirror: JsonObject) -> str:
    return annotations_of(mirror).get(HUB_GENERATION_ANNOTATION, "")


def _assumed(hub_pod: JsonObject, mirror: JsonObject, wanted: Applied) -> dict[Part, Any]:
    """What was applied to a mirror that has no record: made by an older federate, or edited.

    Where the hub pod's spec is the one it was made from, or that cannot be told, nothing changed.
    Else the mirror's own values are all there is to compare with, in what the hub pod speaks of:
    what the target put there beside it stays. But images count as applied: where the target rewrote
    one, setting it back would run the container a second time.
    """
    known, generation = _applied_generation(mirror), generation_of(hub_pod)
    if not known or not generation or known == generation:
        present = {c.get("name") for c in spec_of(mirror).get("ephemeralContainers") or ()}
        return {**wanted, Part.DEBUGGERS: [n for n in wanted[Part.DEBUGGERS] if n in present]}
    spec = spec_of(mirror)
    there = changeable(spec, tolerations=spec.get("tolerations") or ())
    spoken = {part: _spoken_of(there[part], wanted[part]) for part in Part}
    return {**spoken, Part.IMAGES: wanted[Part.IMAGES]}


def _spoken_of(there: Any, wanted: Any) -> Any:
    if not (isinstance(there, Mapping) and isinstance(wanted, Mapping)):
        return there
    return {k: _spoken_of(there[k], value) for k, value in wanted.items() if k in there}


# -- one part after the other ----------------------------------------------------------------------


def _changes(
    applied: Applied, wanted: Applied, mirror: JsonObject, rules: RenderRules
) -> Iterator[Update]:
    """Yield what changed; after each, that part is applied as wanted and the others as before.

    The record has the hub's names of images: another rule for them restarts nothing.
    """
    specs: Mapping[Part, JsonDict | None] = {
        Part.IMAGES: _images(applied[Part.IMAGES], wanted[Part.IMAGES], rules),
        Part.DEADLINE: _deadline(applied[Part.DEADLINE], wanted[Part.DEADLINE]),
        Part.TOLERATIONS: _tolerations(
            applied[Part.TOLERATIONS],
            wanted[Part.TOLERATIONS],
            spec_of(mirror).get("tolerations") or (),
        ),
        Part.RESOURCES: _resources(applied[Part.RESOURCES], wanted[Part.RESOURCES]),
    }
    for part, spec in specs.items():
        if spec is not None:
            yield _update(part, spec, {**applied, part: wanted[part]})


def _update(part: Part, spec: JsonDict, applied: Applied) -> Update:
    return Update(
        what=part,
        spec=spec,
        # Where the mirror has it already, only the record is left to write.
        subresource=SUBRESOURCES.get(part, "") if spec else "",
        applied=applied,
    )


def _images(before: JsonObject, now: JsonObject, rules: RenderRules) -> JsonDict | None:
    rewrites = rules.policy.images
    spec = {
        kind: [{"name": n, "image": rewritten(image, rewrites)} for n, image in changed.items()]
        for kind in CONTAINER_LISTS
        if (changed := _set(before.get(kind) or {}, now.get(kind) or {}))
    }
    return spec or None


def _set(before: JsonObject, now: JsonObject) -> JsonDict:
    return {name: value for name, value in now.items() if before.get(name) != value}


def _deadline(before: Any, now: Any) -> JsonDict | None:
    """A deadline can be set and shortened, never taken away."""
    return None if now in (None, before) else {"activeDeadlineSeconds": now}


def _resources(before: JsonObject, now: JsonObject) -> JsonDict | None:
    spec: JsonDict = {}
    for kind in CONTAINER_LISTS:
        was = before.get(kind) or {}
        changed = {n: _difference(was.get(n), r) for n, r in (now.get(kind) or {}).items()}
        if any(changed.values()):
            spec[kind] = [{"name": n, "resources": value} for n, value in changed.items() if value]
    pod = _difference(before.get("pod"), now.get("pod") or {})
    if pod:
        spec["resources"] = pod
    return spec or None


def _difference(before: Any, now: JsonObject) -> JsonDict:
    """Say in a merge patch's terms how one map becomes the other; None removes."""
    changed: JsonDict = {}
    was: JsonObject = before if isinstance(before, Mapping) else {}
    for name in dict.fromkeys((*now, *was)):
        old, new = was.get(name), now.get(name)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            if inner := _difference(old, new):
                changed[name] = inner
        elif old != new:
            changed[name] = new
    return changed


def _tolerations(
    before: Sequence[JsonObject], now: Sequence[JsonObject], there: Sequence[JsonObject]
) -> JsonDict | None:
    """Tolerations are one list to the server, and only grow: keep what others put there.

    Of one that is there only the seconds may change.
    """
    new = [toleration for toleration in now if toleration not in before]
    if not new:
        return None
    merged = list(there)
    for toleration in new:
        place = _place_of(toleration, before, merged)
        if place is not None:
            merged[place] = toleration
        elif toleration not in merged:
            merged.append(toleration)
    return {} if merged == list(there) else {"tolerations": merged}


def _place_of(
    toleration: JsonObject, before: Sequence[JsonObject], there: Sequence[JsonObject]
) -> int | None:
    """Find the one that this one is with other seconds, where the hub pod had it before."""
    identity = _identity(toleration)
    if identity not in [_identity(old) for old in before]:
        return None
    return next((n for n, other in enumerate(there) if _identity(other) == identity), None)


def _identity(toleration: JsonObject) -> JsonDict:
    return {k: value for k, value in toleration.items() if k != "tolerationSeconds"}


def _debuggers(
    applied: Applied, hub_pod: JsonObject, mirror: JsonObject, rules: RenderRules, hold: Hold | None
) -> Iterator[Update]:
    """Debug containers (`kubectl debug`): added one by one, and never changed."""
    known: Sequence[Any] = applied[Part.DEBUGGERS]
    there = {c.get("name"): c for c in spec_of(mirror).get("ephemeralContainers") or ()}
    new = {
        container["name"]: container
        for container in spec_of(hub_pod).get("ephemeralContainers") or ()
        if container.get("name") not in known
    }
    rendered = {name: rendered_debugger(c, hub_pod, rules) for name, c in new.items()}
    needs = {name: needs_of({"ephemeralContainers": [c]}, rules) for name, c in new.items()}
    forbidden = {name: judge_debugger(c, hub_pod, rules.policy) for name, c in new.items()}
    weaker = {name: _weaker(c, there.get(name)) for name, c in rendered.items()}
    holds = {
        name: held
        for name, container in new.items()
        if name not in there
        and not needs[name]
        and not forbidden[name]
        and (held := _held(container, hub_pod, mirror, rules, hold)) is not None
    }
    for name, container in rendered.items():
        if needs[name] or forbidden[name] or weaker[name] or name in holds:
            continue
        # Each by itself: one that the target refuses must not hold up the next `kubectl debug`.
        spec = {} if name in there else {"ephemeralContainers": [container]}
        after = {**applied, Part.DEBUGGERS: [*known, name]}
        yield replace(_update(Part.DEBUGGERS, spec, after), what=f"{Part.DEBUGGERS} {name}")
    refused = tuple(chain.from_iterable(forbidden.values()))
    if refused:
        yield Update(
            what=f"{Part.DEBUGGERS} that are refused", refusal=policy_refusal(refused, "the target")
        )
    needy = {name: needed for name, needed in needs.items() if needed}
    if needy:
        yield Update(what=f"{Part.DEBUGGERS} with needs", refusal=debugger_refusal(needy))
    if holds:
        yield Update(what=f"{Part.DEBUGGERS} that wait", holds=holds)
    weakened = {name: paths for name, paths in weaker.items() if paths}
    if weakened:
        yield Update(
            what=f"{Part.DEBUGGERS} that run weaker", refusal=weakened_debugger_refusal(weakened)
        )


def _held(
    container: JsonObject,
    hub_pod: JsonObject,
    mirror: JsonObject,
    rules: RenderRules,
    hold: Hold | None,
) -> Hold | None:
    """Say what a debug container waits for, of all that its pod does."""
    if hold is None:
        return None
    part = {
        "metadata": {"namespace": metadata_of(hub_pod).get("namespace")},
        "spec": {"ephemeralContainers": [container]},
    }
    return hold.only(wants_of(part, key_of(mirror).namespace, rules.shared))


def _weaker(sent: JsonObject, there: JsonObject | None) -> Sequence[str]:
    """Name what a debug container that is there lacks, and so runs with more rights than asked.

    It cannot be removed any more: it is never taken for applied, so that it is told for as long as
    it is there (C4).
    """
    if there is None:
        return ()
    return [field.path for field in dropped_fields(sent, there) if field.weakens]
