"""Decide the next step for one hub pod and its mirror. Pure.

Input: what the hub wants, what the target has, and how sure we are; output: one step with its
reason. A round executes it, looks again, and asks for the next: so it may be killed between
any two steps, and deciding twice on the same input gives the same step. Mirroring, status and
deletion are planned here together, because for one pod they exclude each other (C71).

The road of a hub pod, each line a function below:

    no hub pod           its mirrors are orphans: confirm, then delete
    a predecessor's      the mirror belongs to an earlier pod of this name: delete it, wait
    terminating          delete the mirror, follow it, write the last word, let the hub pod go
    terminal             a mirror that still runs is stopped; nothing is ever started again
    living, mirrored     record the mirror, let it start, follow its deletion in the target,
                         project its status, take over what changed (`upkeep`)
    living, no mirror    was there one on record? then it is lost. Else: refused, or not admitted?
                         Ground, intent, wait for what comes along with it, create

A mirror is created gated, and let go only when its uid is on record. So one that is not on record
never ran: an intent that came to nothing is simply carried out again, and a create that arrives
late starts nothing (C20, C70). A gated one that this process did not make is let go only where it
is what would be made now: else it is taken back, which loses nothing (C26, C30).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta

from federate.companions.holding import Hold
from federate.mirror.admission import Claim, PortClash
from federate.mirror.dropped import dropped_fields
from federate.mirror.refusal import (
    Refusal,
    coming_refusal,
    companion_refusal,
    name_taken_refusal,
    names_objects,
    ports_refusal,
    predecessor_refusal,
    refusal_of,
    rejected,
    uninstalled_refusal,
    unmapped_refusal,
    weakened_refusal,
)
from federate.mirror.render import looks_of
from federate.mirror.steps import (
    AnchorState,
    CreateMirror,
    DeleteHubPod,
    DeleteMirror,
    Lane,
    LookUpAnchor,
    LookUpHubPod,
    LookUpMirror,
    LookUpRival,
    LookUpRivalMirror,
    LookUpShared,
    Nothing,
    PlanRules,
    PodView,
    PrepareGround,
    Step,
    UngateMirror,
    UpdateMirror,
    WriteHubPod,
    is_found,
)
from federate.mirror.upkeep import (
    is_news,
    next_change,
    next_try_at,
    pending_changes,
    refusal_to_tell,
)
from federate.model.instants import format_instant
from federate.model.marks import LEAVING_ANNOTATION, MirrorRecord, origin_of, record_of
from federate.model.objects import (
    JsonDict,
    JsonObject,
    ObjectKey,
    condition_of,
    is_terminating,
    key_of,
    resource_version_of,
    spec_of,
    uid_of,
)
from federate.model.pods import (
    ended_before_deletion,
    grace_seconds_of,
    has_started,
    is_gated,
    is_terminal,
    node_name_of,
    phase_of,
)
from federate.model.reasons import PodReason
from federate.policy.images import with_hub_images
from federate.policy.rules import OnRefusal
from federate.policy.verdict import travelling_pod
from federate.status.project import (
    MIRRORED,
    Addresses,
    disruption_marked_status,
    final_status,
    lost_status,
    project_status,
    still_update_rejected,
    waiting_status,
    with_dropped_fields,
    with_update_rejected,
)
from federate.status.storing import with_claim_words
from federate.status.unmirrored import failed_status, pretended_status
from federate.status.writing import HubWrite, plan_hub_write

HELD_AGAIN = timedelta(seconds=60)
"""How long a wake-up that was lost may keep a pod waiting."""

PORTS_AGAIN = timedelta(seconds=5)
"""When a pod looks again that another comes before, or may: what becomes of that one wakes nobody
until it has ended, for any number of pods may wait for one port."""

_SILENT = "the target does not answer: what was heard of its pods is old"
"""Said again, it would undo what the hub's node controller says meanwhile (C45)."""

# -- the decision ----------------------------------------------------------------------------------


def plan_pod(view: PodView, rules: PlanRules) -> Step:
    """Decide the next step."""
    hub_pod = view.hub_pod
    if hub_pod is None:
        return _plan_orphans(view)
    mirror, predecessor = _sort_mirrors(view, hub_pod)
    if predecessor is not None and not is_terminating(predecessor):
        return _plan_predecessor(view, predecessor)
    if is_terminating(hub_pod):
        return _plan_ending(view, rules, hub_pod, mirror)
    if is_terminal(hub_pod):
        return _plan_terminal(view, mirror)
    return _plan_living(view, rules, hub_pod, mirror, predecessor)


def _sort_mirrors(
    view: PodView, hub_pod: JsonObject
) -> tuple[JsonObject | None, JsonObject | None]:
    """Find the hub pod's own mirror, and one that belongs to another pod of its name.

    Of several own mirrors (a changed namespace strategy, a late create) the one to act on comes
    first: a live one that is not on record, then any live one.
    """
    recorded = _recorded_uid(hub_pod)
    own: list[JsonObject] = []
    predecessors: list[JsonObject] = []
    for mirror in sorted(view.mirrors, key=key_of):
        origin = origin_of(mirror)
        mine = origin is not None and origin.pod_uid == uid_of(hub_pod)
        (own if mine else predecessors).append(mirror)
    own.sort(key=lambda m: (not _is_live(m), bool(recorded) and uid_of(m) == recorded))
    predecessors.sort(key=is_terminating)
    return (own[0] if own else None), (predecessors[0] if predecessors else None)


def _is_live(mirror: JsonObject) -> bool:
    return not is_terminal(mirror) and not is_terminating(mirror)


def _plan_orphans(view: PodView) -> Step:
    """No hub pod wants these mirrors (C51)."""
    orphan = next((m for m in view.mirrors if not is_terminating(m)), None)
    if orphan is None:
        return Nothing(reason="no hub pod, no mirror")
    if not view.hub_pod_fresh:
        return LookUpHubPod(reason="a mirror without its hub pod: is the hub pod really gone?")
    return DeleteMirror(reason="orphan: its hub pod is gone", mirror=orphan, grace_seconds=None)


def _plan_predecessor(view: PodView, predecessor: JsonObject) -> Step:
    """The name was used by an earlier hub pod whose mirror is still here (C20)."""
    if not view.hub_pod_fresh:
        return LookUpHubPod(reason="a mirror of another hub pod uid: which of both is newer?")
    return DeleteMirror(
        reason="its hub pod was replaced by another of the same name",
        mirror=predecessor,
        grace_seconds=None,
    )


def _plan_ending(
    view: PodView, rules: PlanRules, hub_pod: JsonObject, mirror: JsonObject | None
) -> Step:
    """The hub pod terminates: its mirror first, then its last word, then itself (C50)."""
    if mirror is not None:
        return _plan_ending_mirror(view, rules, hub_pod, mirror)
    record = record_of(hub_pod)
    if record is not None and not view.mirrors_fresh:
        return LookUpMirror(reason="is the mirror really gone?", lane=Lane.DELETE)
    doubt = _plan_absence_in_doubt(view, record)
    return doubt if doubt is not None else _plan_last_word(view, rules, hub_pod, record)


def _plan_last_word(
    view: PodView, rules: PlanRules, hub_pod: JsonObject, record: MirrorRecord | None
) -> Step:
    """The mirror is surely gone, or never was: say how the pod ended, and let it go."""
    ran = record is not None and (
        record.mirror_uid or view.last_state is not None or has_started(hub_pod)
    )
    if ran and not is_terminal(hub_pod):
        status = _final(view, rules, hub_pod)
        write = _write(view, hub_pod, status=status)
        if write is not None:
            return WriteHubPod(
                reason="the mirror is gone: its last state", lane=Lane.DELETE, write=write
            )
    if grace_seconds_of(hub_pod) == 0 and (hub_pod.get("metadata") or {}).get("finalizers"):
        return Nothing(reason="the hub pod waits for the finalizers of others")
    return DeleteHubPod(
        reason="the mirror is gone" if record else "there never was a mirror",
        uid=uid_of(hub_pod),
        resource_version=resource_version_of(hub_pod),
        grace_seconds=0,
    )


def _plan_absence_in_doubt(view: PodView, record: MirrorRecord | None) -> Step | None:
    """An absent mirror is not always gone: it may have lost its marks, or run elsewhere (C5)."""
    if view.unmarked:
        return Nothing(reason="the mirror on record lost its marks: only a person may end it")
    was_there = record is not None and record.mirror_uid
    if view.target_known or not was_there or view.last_state is not None:
        return None
    if not view.anchor_fresh:
        return LookUpAnchor(reason="the mirror is absent: is it still the same cluster?")
    if view.anchor is AnchorState.GONE:
        return Nothing(reason="the anchor is absent too: uninstalled unseen, or another cluster")
    return None


def _plan_ending_mirror(
    view: PodView, rules: PlanRules, hub_pod: JsonObject, mirror: JsonObject
) -> Step:
    grace = _mirror_grace(hub_pod)
    mirror_grace = grace_seconds_of(mirror)
    if not is_terminating(mirror):
        return DeleteMirror(reason="the hub pod is terminating", mirror=mirror, grace_seconds=grace)
    if grace is not None and mirror_grace is not None and mirror_grace > grace:
        return DeleteMirror(
            reason="the hub pod's grace was shortened", mirror=mirror, grace_seconds=grace
        )
    if not view.target_reachable:
        return Nothing(reason=_SILENT)
    if not is_terminal(hub_pod):
        status = _projected(view, rules, hub_pod, mirror)
        write = _write(view, hub_pod, status=status)
        if write is not None:
            return WriteHubPod(reason="status while ending", lane=Lane.STATUS, write=write)
    return Nothing(reason="the mirror is ending")


def _mirror_grace(hub_pod: JsonObject) -> int | None:
    """The grace of a terminating hub pod, for its mirror: never 0, which would abandon containers.

    A hub pod with grace 0 is still there only because of somebody's finalizer.
    """
    grace = grace_seconds_of(hub_pod)
    return None if grace is None else max(1, grace)


def _plan_terminal(view: PodView, mirror: JsonObject | None) -> Step:
    """A terminal pod is terminal for ever (C42): no status, no start; a live mirror is stopped."""
    if mirror is None or not _is_live(mirror):
        return Nothing(reason="the hub pod is terminal")
    if not view.hub_pod_fresh:
        return LookUpHubPod(reason="a terminal hub pod with a live mirror")
    return DeleteMirror(reason="its hub pod is terminal", mirror=mirror, grace_seconds=None)


def _plan_living(
    view: PodView,
    rules: PlanRules,
    hub_pod: JsonObject,
    mirror: JsonObject | None,
    predecessor: JsonObject | None,
) -> Step:
    record = record_of(hub_pod)
    if record is not None and record.mirror_uid and record.mirror_uid == view.taken_back:
        return _plan_off_record(view, hub_pod, record)
    if mirror is not None:
        return _plan_mirrored(view, rules, hub_pod, mirror, predecessor)
    return _plan_missing(view, rules, hub_pod, predecessor)


def _recorded_uid(hub_pod: JsonObject) -> str:
    record = record_of(hub_pod)
    return record.mirror_uid if record is not None else ""


def _plan_mirrored(
    view: PodView,
    rules: PlanRules,
    hub_pod: JsonObject,
    mirror: JsonObject,
    predecessor: JsonObject | None,
) -> Step:
    recorded = _recorded_uid(hub_pod)
    if recorded and recorded != uid_of(mirror):
        return _plan_second_run(view, mirror)
    if is_terminating(mirror) and not recorded and is_gated(mirror):
        return Nothing(reason="a mirror that never ran is ending; another follows")
    ending = (
        _plan_disrupted(view, rules, hub_pod, mirror)
        if _is_disrupted(mirror)
        else _plan_end_in_doubt(view, mirror)
    )
    if ending is not None:
        return ending
    if not view.target_reachable:
        return Nothing(reason=_SILENT)
    if is_found(mirror, view.created):
        doubt = _plan_found(view, rules, hub_pod, mirror, predecessor)
        if doubt is not None:
            return doubt
    plan_known = _plan_recorded if recorded else _plan_recording
    return plan_known(view, rules, hub_pod, mirror)


def _plan_recorded(
    view: PodView, rules: PlanRules, hub_pod: JsonObject, mirror: JsonObject
) -> Step:
    pending = pending_changes(view, rules, hub_pod, mirror)
    told = refusal_to_tell(view, pending)
    write = _mirrored_write(view, rules, hub_pod, mirror, refused=bool(pending), told=told)
    if write is not None:
        return WriteHubPod(
            reason="the mirror's status",
            lane=Lane.STATUS,
            write=write,
            refusal=told if is_news(hub_pod, told) else None,
        )
    change = next_change(view, rules, pending)
    # A mirror starts with the newest spec; its labels can follow.
    if is_gated(mirror) and not isinstance(change, (LookUpHubPod, LookUpShared, UpdateMirror)):
        return UngateMirror(reason="the mirror is on record: it may start", mirror=mirror)
    if change is not None:
        return change
    return Nothing(reason="mirrored", again_at=next_try_at(view, pending))


def _mirrored_write(
    view: PodView,
    rules: PlanRules,
    hub_pod: JsonObject,
    mirror: JsonObject,
    *,
    dropped: Sequence[str] = (),
    refused: bool = False,
    told: Refusal | None = None,
) -> HubWrite | None:
    """Write the mirror's status, and what `told` says of changes that are `refused`."""
    status, now = _projected(view, rules, hub_pod, mirror), format_instant(view.now)
    if dropped:
        status = with_dropped_fields(status, message=_told_dropped(rules, dropped), now=now)
    if told is not None:
        status = with_update_rejected(
            status, hub_pod, reason=told.reason, message=told.message, now=now
        )
    elif refused:
        status = still_update_rejected(status, hub_pod)
    known = MirrorRecord(pod_uid=uid_of(hub_pod), mirror=key_of(mirror), mirror_uid=uid_of(mirror))
    return _write(
        view,
        hub_pod,
        status=status,
        record=known,
        target=rules.target_name,
        target_node=node_name_of(mirror),
    )


def _projected(
    view: PodView, rules: PlanRules, hub_pod: JsonObject, mirror: JsonObject
) -> JsonDict:
    words = rules.render.words_of(hub_pod, mirror)
    status = project_status(hub_pod, mirror, _addresses(view, rules), words)
    now = format_instant(view.now)
    status = with_claim_words(status, hub_pod, mirror, said=view.claim_words, now=now)
    return with_hub_images(status, spec_of(hub_pod), rules.render.policy.images)


def _final(view: PodView, rules: PlanRules, hub_pod: JsonObject) -> JsonDict:
    last_state = view.last_state
    words = rules.render.words(hub_pod, "")
    if last_state is not None:
        words = rules.render.words_of(hub_pod, last_state)
    status = final_status(
        hub_pod,
        last_state,
        _addresses(view, rules),
        now=format_instant(view.now),
        words=words,
    )
    return with_hub_images(status, spec_of(hub_pod), rules.render.policy.images)


def _addresses(view: PodView, rules: PlanRules) -> Addresses:
    if view.addresses is None:
        return rules.addresses
    return replace(rules.addresses, decision=view.addresses)


def _told_dropped(rules: PlanRules, dropped: Sequence[str]) -> str:
    return f"{rules.target_name} did not keep of the pod: {', '.join(dropped)}"


def _plan_recording(
    view: PodView, rules: PlanRules, hub_pod: JsonObject, mirror: JsonObject
) -> Step:
    """A mirror that is not on record: made just now, or by a process that died (C20)."""
    sent = _sent_for(view, rules, hub_pod, mirror)
    lost = dropped_fields(sent, spec_of(mirror)) if sent is not None else ()
    dropped = [field.path for field in lost]
    weaker = [field.path for field in lost if field.weakens]
    # One that has a node may have run: of a process that died, or from before the hub's restore.
    if weaker and not node_name_of(mirror):
        return DeleteMirror(
            reason="it would run weaker than asked",
            mirror=mirror,
            grace_seconds=None,
            weakened_by=", ".join(weaker),
        )
    write = _mirrored_write(view, rules, hub_pod, mirror, dropped=dropped)
    if write is None:
        return Nothing(reason="the hub does not keep the record: the mirror may not start")
    return WriteHubPod(
        reason="record the mirror",
        lane=Lane.STATUS,
        write=write,
        refusal=Refusal(reason=PodReason.FIELDS_DROPPED, message=_told_dropped(rules, dropped))
        if dropped
        else None,
    )


def _sent_for(
    view: PodView, rules: PlanRules, hub_pod: JsonObject, mirror: JsonObject
) -> JsonObject | None:
    """Return the spec that was sent for a mirror; None where it is not what would be sent now."""
    if view.created is not None and view.created.uid == uid_of(mirror):
        return view.created.spec
    origin = origin_of(mirror)
    if origin is None or view.claim_names is None or view.hub_api is None:
        return None
    shared = view.shared.get(key_of(mirror).namespace)
    looks = looks_of(
        hub_pod,
        origin=origin,
        rules=rules.render.sharing(shared).leading(view.hub_api),
        claim_names=view.claim_names,
    )
    return looks.spec if looks.are_those_of(mirror) else None


def _plan_found(
    view: PodView,
    rules: PlanRules,
    hub_pod: JsonObject,
    mirror: JsonObject,
    predecessor: JsonObject | None,
) -> Step | None:
    """Judge a mirror that never ran, made by nobody knows whom, as if it were to be made now.

    Whoever led before made it, or sent its create, however late that arrives. Since then the policy
    may have become stricter, or an object that was shared was taken back (C26, C30, C70). None
    where it may be let go.
    """
    key = key_of(mirror)
    if key != view.mirror_key:
        return _plan_taking_back(view, mirror, "its place is another by today's rules")
    refusal = _why_not(view, rules, hub_pod, key, predecessor)
    if refusal is None and view.hold is not None and view.hold.blocked is not None:
        refusal = companion_refusal(view.hold.blocked)
    if refusal is not None:
        return _plan_taking_back(view, mirror, f"its pod gets none now: {refusal.reason}")
    if view.anchor is not AnchorState.PRESENT:
        return PrepareGround(reason="the anchor is not known yet")
    needs = _plan_needs(view, rules, hub_pod, key)
    if needs is not None:
        return needs
    if _sent_for(view, rules, hub_pod, mirror) is None:
        return _plan_taking_back(view, mirror, "it would be made otherwise now")
    return None


def _plan_taking_back(view: PodView, mirror: JsonObject, why: str) -> Step:
    """Delete a mirror as it was looked at: where that succeeds, it never ran.

    If a late request of a former leader lets it go before, it runs, and is left alone.
    """
    if not view.hub_pod_fresh:
        return LookUpHubPod(reason=f"a mirror that never ran; {why}: by the newest hub pod too?")
    return DeleteMirror(
        reason=f"it never ran, and {why}", mirror=mirror, grace_seconds=None, as_seen=True
    )


def _plan_off_record(view: PodView, hub_pod: JsonObject, record: MirrorRecord) -> Step:
    """The mirror on record was taken back, and surely never ran: what is left is an intent.

    A process that dies before this write leaves a record whose mirror is gone. Nobody can tell then
    whether it ran, and the hub pod is lost: its owner replaces it.
    """
    intent = replace(record, mirror_uid="", intended_at=format_instant(view.now))
    write = _write(view, hub_pod, record=intent)
    if write is None:
        return Nothing(reason="the hub does not let the record go: no other mirror may be made")
    return WriteHubPod(reason="its mirror was taken back unused", lane=Lane.DELETE, write=write)


def _plan_second_run(view: PodView, mirror: JsonObject) -> Step:
    """The record names another mirror: this one would be a second run of the same hub pod."""
    if is_terminating(mirror):
        return Nothing(reason="a second mirror is ending")
    if not view.hub_pod_fresh:
        return LookUpHubPod(reason="a mirror that is not the recorded one")
    return DeleteMirror(
        reason="not the mirror on record: a pod runs once", mirror=mirror, grace_seconds=None
    )


def _is_disrupted(mirror: JsonObject) -> bool:
    """Tell whether a deletion ends the mirror, and not the mirror itself (C43)."""
    ended_by_itself = phase_of(mirror) == "Succeeded" and ended_before_deletion(mirror) is not False
    return is_terminating(mirror) and not ended_by_itself


def _plan_end_in_doubt(view: PodView, mirror: JsonObject) -> Step | None:
    """A Succeeded mirror may have been killed just then; by an uninstall, that is no end (C23)."""
    if ended_before_deletion(mirror):
        return None
    if not view.anchor_fresh:
        return LookUpAnchor(reason="a mirror ended while it was deleted: is it an uninstall?")
    if view.anchor is AnchorState.GONE:
        return Nothing(reason="uninstalled: hub pods stay as they are")
    return None


def _plan_disrupted(
    view: PodView, rules: PlanRules, hub_pod: JsonObject, mirror: JsonObject
) -> Step:
    """Somebody in the target deletes the mirror: the hub pod follows, its owner replaces it (C43).

    First the hub pod says why, then it is deleted; its terminal status is written at the end, by
    `_plan_ending`, so that a crash in between leaves nothing half said.
    """
    if not view.anchor_fresh:
        return LookUpAnchor(reason="a mirror is being deleted: is it an uninstall?")
    if view.anchor is AnchorState.GONE:
        return Nothing(reason="uninstalled: hub pods stay as they are")
    if (condition_of(hub_pod, "DisruptionTarget") or {}).get("status") != "True":
        status = disruption_marked_status(hub_pod, mirror, now=format_instant(view.now))
        write = _write(view, hub_pod, status=status)
        if write is not None:
            return WriteHubPod(
                reason="the mirror is being deleted in the target", lane=Lane.STATUS, write=write
            )
    return DeleteHubPod(
        reason="its mirror was deleted in the target",
        uid=uid_of(hub_pod),
        resource_version=resource_version_of(hub_pod),
        # The mirror's own grace, whole: the hub pod is let go when the mirror is gone, however much
        # is left. A shorter one would read as a user's wish to shorten the mirror's. Never 0, which
        # would remove the hub pod at once.
        grace_seconds=max(1, grace_seconds_of(mirror) or 0),
    )


def _plan_missing(
    view: PodView, rules: PlanRules, hub_pod: JsonObject, predecessor: JsonObject | None
) -> Step:
    """A living hub pod without a mirror: lost, or not made yet."""
    if view.last_state is not None and is_terminal(view.last_state):
        ended = _plan_ended_unseen(view, rules, hub_pod, view.last_state)
        if ended is not None:
            return ended
    record = record_of(hub_pod)
    recorded = record is not None and record.mirror_uid
    if recorded or has_started(hub_pod) or view.last_state is not None:
        return _plan_lost(view, rules, hub_pod)
    is_sure = record is None or view.attempt_open or view.mirrors_fresh
    if not is_sure and not _only_waits(view, record):
        return LookUpMirror(reason="an intent on record: was it carried out?", lane=Lane.SYNC)
    return _plan_create(view, rules, hub_pod, predecessor, record)


def _only_waits(view: PodView, record: MirrorRecord | None) -> bool:
    """Tell whether companions are waited for, so that nothing is made, nor promised anew.

    A look for the mirror lists pods in the target: not for each pod and each time that it waits.
    """
    is_intended = record is not None and record.mirror == view.mirror_key
    return view.hold is not None and is_intended and view.anchor is AnchorState.PRESENT


def _plan_ended_unseen(
    view: PodView, rules: PlanRules, hub_pod: JsonObject, last_state: JsonObject
) -> Step | None:
    """The mirror had ended by itself before it vanished: that outranks its loss (C43)."""
    if _is_disrupted(last_state):
        return None
    doubt = _plan_end_in_doubt(view, last_state)
    if doubt is not None:
        return doubt
    status = _projected(view, rules, hub_pod, last_state)
    write = _write(view, hub_pod, status=status)
    if write is None:
        return None
    return WriteHubPod(reason="the mirror ended, then vanished", lane=Lane.DELETE, write=write)


def _plan_lost(view: PodView, rules: PlanRules, hub_pod: JsonObject) -> Step:
    if not view.mirrors_fresh:
        return LookUpMirror(reason="the mirror is not in sight", lane=Lane.DELETE)
    if not view.anchor_fresh:
        return LookUpAnchor(reason="the mirror is gone: is it an uninstall?")
    if view.unmarked or view.anchor is AnchorState.GONE:
        return Nothing(reason="uninstalled, or unmarked by somebody: hub pods stay as they are")
    if view.last_state is not None and is_terminating(view.last_state):
        return _plan_disrupted(view, rules, hub_pod, view.last_state)
    record = record_of(hub_pod)
    key = record.mirror if record is not None else view.mirror_key
    message = (
        f"the mirror pod {key} vanished from {rules.target_name}; "
        "federate does not run a pod twice, its owner replaces it"
    )
    status = lost_status(hub_pod, message=message, now=format_instant(view.now))
    write = _write(view, hub_pod, status=status)
    if write is None:
        return Nothing(reason="lost, and said so")
    return WriteHubPod(
        reason="the mirror is lost",
        lane=Lane.DELETE,
        write=write,
        refusal=Refusal(reason=PodReason.MIRROR_LOST, message=message),
    )


def _plan_create(
    view: PodView,
    rules: PlanRules,
    hub_pod: JsonObject,
    predecessor: JsonObject | None,
    record: MirrorRecord | None,
) -> Step:
    key = view.mirror_key
    if key is None:
        unmapped = unmapped_refusal(rules.target_name, view.key.namespace)
        return _plan_waiting(view, hub_pod, unmapped)
    refusal = _why_not(view, rules, hub_pod, key, predecessor)
    if refusal is not None:
        return _plan_refused(view, rules, hub_pod, refusal)
    if view.port_clash is not None and record is None:
        return _plan_not_admitted(view, hub_pod, view.port_clash)
    if view.anchor is not AnchorState.PRESENT:
        return PrepareGround(reason="the target namespace or its anchor is not there yet")
    return _plan_on_ground(view, rules, hub_pod, key, record)


def _plan_refused(view: PodView, rules: PlanRules, hub_pod: JsonObject, refusal: Refusal) -> Step:
    """Wait and say why, but where the target's operator wants it otherwise (C26)."""
    fails = rules.render.policy.on_refusal is OnRefusal.FAIL
    if refusal.reason == PodReason.NOT_RUN_HERE:
        return _plan_told(view, hub_pod, refusal, pretended_status)
    if refusal.reason != PodReason.POLICY_REFUSED or not fails:
        return _plan_waiting(view, hub_pod, refusal)
    if view.fail_wait_seconds > 0:
        return _plan_waiting_again(view, hub_pod, refusal, _turn(view))
    return _plan_failing(view, hub_pod, refusal)


def _turn(view: PodView) -> timedelta:
    return timedelta(seconds=view.fail_wait_seconds)


def _plan_failing(view: PodView, hub_pod: JsonObject, refusal: Refusal) -> Step:
    step = _plan_told(view, hub_pod, refusal, failed_status)
    return replace(step, fails=True) if isinstance(step, WriteHubPod) else step


def _plan_not_admitted(view: PodView, hub_pod: JsonObject, clash: PortClash) -> Step:
    """Fail a pod whose host port another's living mirror has, as a kubelet does; wait for all else.

    What ends soon, or was not decided yet, fails nobody (C27), and what is believed is read anew
    from both clusters, the target last (decision 0026).
    One of an owner's pods fails in each back-off, so that none replaces them without end (C26).
    """
    refusal = ports_refusal(clash.port)
    if clash.claim is not Claim.HOLDS:
        after = HELD_AGAIN if clash.claim is Claim.ENDS else PORTS_AGAIN
        return _plan_waiting_again(view, hub_pod, refusal, after)
    if view.fail_wait_seconds > 0:
        return _plan_waiting_again(view, hub_pod, refusal, _turn(view))
    return _plan_doubt(view, clash) or _plan_failing(view, hub_pod, rejected(refusal))


def _plan_doubt(view: PodView, clash: PortClash) -> Step | None:
    """Read what was not read yet of the pod, of whoever has its port, and of that one's mirror."""
    if not view.hub_pod_fresh:
        reason = "another pod has its host port: is it still to be admitted?"
        return LookUpHubPod(reason=reason, lane=Lane.SYNC)
    if not clash.is_sure:
        reason = "has the other pod really its host port?"
        return LookUpRival(reason=reason, rival=clash.rival, uid=clash.rival_uid)
    if not clash.is_mirror_sure and clash.mirror is not None:
        reason = "does the other pod's mirror really live?"
        return LookUpRivalMirror(reason=reason, mirror=clash.mirror, uid=clash.rival_uid)
    return None


def _plan_on_ground(
    view: PodView,
    rules: PlanRules,
    hub_pod: JsonObject,
    key: ObjectKey,
    record: MirrorRecord | None,
) -> Step:
    hold = view.hold
    if hold is not None and hold.blocked is not None:
        return _plan_held(view, hub_pod, companion_refusal(hold.blocked))
    if record is None or record.mirror != key:
        # An intent by other rules than today's came to nothing: where a mirror is made is decided
        # here alone, for people can write the record too.
        intent = MirrorRecord(
            pod_uid=uid_of(hub_pod), mirror=key, intended_at=format_instant(view.now)
        )
        write = _write(view, hub_pod, record=intent)
        if write is None:
            return Nothing(reason="the hub does not keep the intent: nothing may be created")
        return WriteHubPod(reason="intent before deed", lane=Lane.SYNC, write=write, intent=intent)
    # Only now: the intent is written while companions come.
    needs = _plan_needs(view, rules, hub_pod, key)
    return needs if needs is not None else CreateMirror(reason="the hub pod has no mirror")


def _plan_needs(
    view: PodView, rules: PlanRules, hub_pod: JsonObject, key: ObjectKey
) -> Step | None:
    """Wait for what a new mirror names, and ask how; None where both are done."""
    if view.hold is not None:
        return _plan_coming(view, rules, hub_pod, view.hold)
    travelling = travelling_pod(hub_pod, rules.render.policy)
    if key.namespace not in view.shared and names_objects(spec_of(travelling), rules.render):
        reason = "does the target share what the pod names?"
        return LookUpShared(reason=reason, namespace=key.namespace)
    return None


def _plan_coming(view: PodView, rules: PlanRules, hub_pod: JsonObject, hold: Hold) -> Step:
    """Companions are on their way, for milliseconds as a rule: only a long wait is told."""
    if view.now < view.hold_told_at:
        return Nothing(reason="companions are on their way", again_at=view.hold_told_at)
    refusal = coming_refusal(rules.target_name, hold)
    said = (condition_of(hub_pod, MIRRORED) or {}).get("reason")
    step = _plan_held(view, hub_pod, refusal)
    if isinstance(step, WriteHubPod) and said == refusal.reason:
        return replace(step, refusal=None)  # one Event, however many are waited for
    return step


def _plan_held(view: PodView, hub_pod: JsonObject, refusal: Refusal) -> Step:
    """Say what is waited for. Whoever brings it wakes the pod; a look now and then is the net."""
    return _plan_waiting_again(view, hub_pod, refusal, HELD_AGAIN)


def _why_not(
    view: PodView,
    rules: PlanRules,
    hub_pod: JsonObject,
    key: ObjectKey,
    predecessor: JsonObject | None,
) -> Refusal | None:
    refusal = refusal_of(
        hub_pod,
        mirror_key=key,
        rules=rules.render,
        target_name=rules.target_name,
        allow_system_namespaces=rules.allow_system_namespaces,
    )
    if refusal is not None:
        return refusal
    if view.network_refusal is not None:
        blocked = view.network_refusal
        return Refusal(reason=blocked.reason, message=blocked.message)
    if view.leaving:
        node_name = node_name_of(hub_pod)
        return Refusal(
            reason=PodReason.NODE_LEAVING,
            message=f"the virtual node of {rules.target_name} is being left (federate leave): "
            "nothing new is started there. To go on using it, stop the command, then: kubectl "
            f"annotate node {node_name} {LEAVING_ANNOTATION}-, and kubectl uncordon {node_name}",
        )
    if view.anchor is AnchorState.GONE:
        return uninstalled_refusal(rules.target_name, key.namespace)
    if predecessor is not None:
        return predecessor_refusal(rules.target_name)
    return _why_not_now(view, rules, hub_pod)


def _why_not_now(view: PodView, rules: PlanRules, hub_pod: JsonObject) -> Refusal | None:
    """What the target answered before, or does not answer now."""
    if view.occupant and view.mirror_key is not None:
        return name_taken_refusal(rules.target_name, view.mirror_key)
    if view.weakened_by:
        return weakened_refusal(rules.target_name, view.weakened_by)
    if not view.target_reachable:
        return Refusal(
            reason=PodReason.TARGET_UNREACHABLE,
            message=f"{rules.target_name} does not answer; the pod starts when it does",
        )
    return None


def _plan_waiting(view: PodView, hub_pod: JsonObject, refusal: Refusal) -> Nothing | WriteHubPod:
    """Stay Pending and say why: Failed would make a ReplicaSet replace it without delay (C26)."""
    return _plan_told(view, hub_pod, refusal, waiting_status)


def _plan_waiting_again(
    view: PodView, hub_pod: JsonObject, refusal: Refusal, after: timedelta
) -> Nothing | WriteHubPod:
    """Wait, and look again by then at the latest."""
    step = _plan_waiting(view, hub_pod, refusal)
    return replace(step, again_at=view.now + after) if isinstance(step, Nothing) else step


def _plan_told(
    view: PodView, hub_pod: JsonObject, refusal: Refusal, status_of: Callable[..., JsonDict]
) -> Nothing | WriteHubPod:
    status = status_of(
        hub_pod, reason=refusal.reason, message=refusal.message, now=format_instant(view.now)
    )
    write = _write(view, hub_pod, status=status)
    if write is None:
        return Nothing(reason=refusal.reason)
    return WriteHubPod(reason=refusal.reason, lane=Lane.STATUS, write=write, refusal=refusal)


def _write(
    view: PodView,
    hub_pod: JsonObject,
    *,
    status: JsonObject | None = None,
    record: MirrorRecord | None = None,
    target_node: str = "",
    target: str = "",
) -> HubWrite | None:
    return plan_hub_write(
        hub_pod,
        status=status,
        record=record,
        target=target,
        target_node=target_node,
        futile=view.futile,
    )
