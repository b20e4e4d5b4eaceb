"""What a living mirror still lacks of its hub pod's changes: the next step, and what is told. Pure.

A change that the target refuses is told on the hub pod (a condition, one Event) and tried again
slowly; it keeps neither the status, nor the pod's start, nor its other changes waiting (C25).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from federate.mirror.refusal import Refusal, held_debugger_refusal, names_objects
from federate.mirror.render import metadata_changes
from federate.mirror.steps import (
    Lane,
    LookUpHubPod,
    LookUpShared,
    PatchMirror,
    PlanRules,
    PodView,
    RefusedChange,
    UpdateMirror,
)
from federate.mirror.updates import Update, pending_updates
from federate.model.objects import JsonObject, condition_of, fingerprint_of, key_of
from federate.status.project import UPDATE_REJECTED

METADATA = "metadata"
"""The kind of a change of labels and annotations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """A change that the mirror lacks; without a step it is federate that keeps it back."""

    kind: str
    fingerprint: str
    step: UpdateMirror | PatchMirror | None
    refusal: Refusal | None = None
    again_at: datetime | None = None
    """When a change that waits for companions is to be told, unless they are there by then."""


def pending_changes(
    view: PodView, rules: PlanRules, hub_pod: JsonObject, mirror: JsonObject
) -> tuple[Pending, ...]:
    """List what changed in the hub pod and did not come to its mirror yet, the spec first."""
    render = rules.render.sharing(view.shared.get(key_of(mirror).namespace))
    pending = [
        _waiting(update, view, rules) if update.holds else _pending(update, mirror)
        for update in pending_updates(hub_pod, mirror, render, view.hold)
    ]
    changes = metadata_changes(hub_pod, mirror, render)
    fingerprint = "" if changes is None else fingerprint_of(changes)
    if changes is not None and fingerprint != view.futile_metadata:
        step = PatchMirror(
            reason="labels or annotations changed",
            mirror=mirror,
            metadata=changes,
            fingerprint=fingerprint,
        )
        pending.append(Pending(kind=METADATA, fingerprint=fingerprint, step=step))
    return tuple(pending)


def _pending(update: Update, mirror: JsonObject) -> Pending:
    return Pending(
        kind=update.what,
        fingerprint=update.fingerprint,
        step=UpdateMirror(reason=f"{update.what} changed", mirror=mirror, update=update)
        if update.refusal is None
        else None,
        refusal=update.refusal,
    )


def _waiting(update: Update, view: PodView, rules: PlanRules) -> Pending:
    """What cannot come is told at once, what is on its way only where that takes long."""
    is_long = view.now >= view.hold_told_at
    told = {n: hold for n, hold in update.holds.items() if is_long or hold.blocked is not None}
    is_all_told = len(told) == len(update.holds)
    return Pending(
        kind=update.what,
        fingerprint=update.fingerprint,
        step=None,
        refusal=held_debugger_refusal(rules.target_name, told) if told else None,
        again_at=None if is_all_told else view.hold_told_at,
    )


def next_change(
    view: PodView, rules: PlanRules, pending: Sequence[Pending]
) -> UpdateMirror | PatchMirror | LookUpHubPod | LookUpShared | None:
    """Return the first change that is due; None where all wait.

    A spec is taken over from a hub pod that was read directly: one from a cache that is behind
    would take the mirror back to what it was, and restart its containers twice.
    """
    due = next((p.step for p in pending if p.step is not None and _is_due(view, p)), None)
    if isinstance(due, UpdateMirror) and not view.hub_pod_fresh:
        return LookUpHubPod(reason=f"{due.reason}: is this the newest?", lane=Lane.SYNC)
    if isinstance(due, UpdateMirror) and names_objects(due.update.spec, rules.render):
        namespace = key_of(due.mirror).namespace
        if namespace not in view.shared:
            reason = "does the target share what a debug container names?"
            return LookUpShared(reason=reason, namespace=namespace)
    return due


def _is_due(view: PodView, pending: Pending) -> bool:
    refused = _refused(view, pending)
    return refused is None or refused.again_at <= view.now


def _refused(view: PodView, pending: Pending) -> RefusedChange | None:
    refused = view.refused.get(pending.kind)
    same = refused is not None and refused.fingerprint == pending.fingerprint
    return refused if same else None


def next_try_at(view: PodView, pending: Sequence[Pending]) -> datetime | None:
    """Say when a refused change is to be tried again, or a long wait to be told."""
    refused = [r.again_at for p in pending if (r := _refused(view, p)) is not None]
    waiting = [p.again_at for p in pending if p.again_at is not None]
    return min((*refused, *waiting), default=None)


def refusal_to_tell(view: PodView, pending: Sequence[Pending]) -> Refusal | None:
    """Join the refusals of what is pending; the first one's reason stands for all."""
    refusals = [p.refusal for p in pending if p.refusal is not None]
    refusals += [r.refusal for p in pending if (r := _refused(view, p)) is not None]
    if not refusals:
        return None
    return Refusal(reason=refusals[0].reason, message="; ".join(r.message for r in refusals))


def is_news(hub_pod: JsonObject, refusal: Refusal | None) -> bool:
    """Tell whether the hub pod does not say so yet: then an Event says it too."""
    said = condition_of(hub_pod, UPDATE_REJECTED) or {}
    return refusal is not None and (said.get("reason"), said.get("message")) != (
        refusal.reason,
        refusal.message,
    )
