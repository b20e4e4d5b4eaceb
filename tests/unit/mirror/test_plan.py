"""The decision about one pod: each line of the road, each clause of the contract, and its laws."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from federate.cluster.store import Store
from federate.companions.holding import Hold
from federate.companions.keys import Kind
from federate.companions.steps import Blocked
from federate.mirror.plan import plan_pod
from federate.mirror.ports import ORIGIN_INDEX, origin_index
from federate.mirror.render import RenderRules, render_spec
from federate.mirror.steps import (
    AnchorState,
    Created,
    CreateMirror,
    DeleteHubPod,
    DeleteMirror,
    Lane,
    LookUpAnchor,
    LookUpHubPod,
    LookUpMirror,
    Nothing,
    PatchMirror,
    PodView,
    PrepareGround,
    Step,
    UngateMirror,
    WriteHubPod,
    is_found,
    lane_of,
    touches_target,
)
from federate.model.marks import (
    RECORD_ANNOTATION,
    RECORDED_GATE,
    TARGET_ANNOTATION,
    TARGET_NODE_ANNOTATION,
    origin_of,
    record_of,
)
from federate.model.objects import (
    JsonDict,
    JsonObject,
    ObjectKey,
    annotations_of,
    condition_of,
    is_terminating,
    key_of,
    status_of,
    uid_of,
)
from federate.model.pods import is_terminal
from federate.model.reasons import PodReason
from federate.patch.document import STRATEGIC
from federate.status.project import MIRRORED
from tests.support.builders import PodBuilder, pod
from tests.support.companions import key_for, target_name
from tests.support.views import (
    NOW,
    OTHER_SCOPE,
    RULES,
    SCOPE,
    condition_status,
    hub_pod,
    intending,
    made_as,
    mirror,
    mirror_key,
    outcome,
    record_text,
    recording,
    sure,
    view,
)


def plan(seen: PodView) -> Step:
    """Decide twice: the same view gives the same step."""
    step = plan_pod(seen, RULES)
    assert plan_pod(seen, RULES) == step
    return step


def refusal_reason(step: Step) -> str:
    assert isinstance(step, WriteHubPod), step
    assert step.refusal is not None
    return step.refusal.reason


def settled(hub: PodBuilder, *mirrors: PodBuilder) -> JsonDict:
    """Return the hub pod once its mirror's status is written."""
    built = hub.build()
    return outcome(built, plan(view(built, *(m.build() for m in mirrors))))


# -- no hub pod: its mirrors are orphans (C51) -----------------------------------------------------


def test_nothing_is_left_to_do_without_pods() -> None:
    """A key without a hub pod and without mirrors is done."""
    assert isinstance(plan(view(None)), Nothing)


def test_c51_an_orphan_is_confirmed_before_it_is_deleted() -> None:
    """The absence of a hub pod is believed only after a direct read."""
    step = plan(view(None, mirror().running().build()))
    assert isinstance(step, LookUpHubPod)
    assert lane_of(step) is Lane.DELETE


def test_c51_a_confirmed_orphan_is_deleted_with_its_own_grace() -> None:
    """A mirror whose hub pod is gone goes too, gracefully."""
    orphan = mirror().running().build()
    step = plan(sure(None, orphan))
    assert isinstance(step, DeleteMirror)
    assert step.mirror is orphan
    assert step.grace_seconds is None
    assert lane_of(step) is Lane.DELETE


def test_c51_an_orphan_that_is_ending_is_left_alone() -> None:
    """A mirror that is on its way out is not deleted again."""
    assert isinstance(plan(sure(None, mirror().terminating().build())), Nothing)


def test_c51_every_orphan_of_a_key_goes() -> None:
    """One that is ending does not hide another."""
    ending = mirror(of_uid="uid-old", uid="mirror-old").terminating().build()
    live = mirror().running().build()
    step = plan(sure(None, ending, live))
    assert isinstance(step, DeleteMirror)
    assert step.mirror is live


# -- a mirror of an earlier pod of the name (C20) --------------------------------------------------


def predecessor() -> PodBuilder:
    return mirror(of_uid="uid-of-yesterday", uid="mirror-of-yesterday").running()


def test_c20_a_predecessors_mirror_is_deleted_only_after_the_hub_pod_was_read() -> None:
    """Which of two uids of one name is the newer one is asked of the hub."""
    hub = hub_pod().build()
    old = predecessor().build()
    assert isinstance(plan(view(hub, old)), LookUpHubPod)
    step = plan(sure(hub, old))
    assert isinstance(step, DeleteMirror)
    assert uid_of(step.mirror) == "mirror-of-yesterday"


def test_c20_a_successor_waits_while_its_predecessor_ends() -> None:
    """A StatefulSet's next pod stays Pending until the old mirror is gone."""
    hub = hub_pod().build()
    step = plan(view(hub, predecessor().terminating().build()))
    assert refusal_reason(step) == "PredecessorTerminating"
    told = outcome(hub, step)
    assert status_of(told)["phase"] == "Pending"
    assert record_of(told) is None
    assert isinstance(plan(view(told, predecessor().terminating().build())), Nothing)


def test_c20_a_successor_starts_when_its_predecessor_is_gone() -> None:
    """Nothing of the wait is left over when the way is free."""
    hub = hub_pod().build()
    told = outcome(hub, plan(view(hub, predecessor().terminating().build())))
    step = plan(view(told))
    assert isinstance(step, WriteHubPod)
    assert step.reason == "intent before deed"


def test_c20_a_predecessor_goes_before_an_ending_successor_does() -> None:
    """A pod deleted while its predecessor's mirror still runs takes that along."""
    hub = hub_pod().terminating().build()
    step = plan(sure(hub, predecessor().build()))
    assert isinstance(step, DeleteMirror)
    assert uid_of(step.mirror) == "mirror-of-yesterday"


def test_c20_a_live_predecessor_is_found_behind_an_ending_one() -> None:
    """Of two mirrors of earlier pods the live one is dealt with."""
    ending = mirror(of_uid="uid-oldest", uid="mirror-oldest").terminating().build()
    step = plan(sure(hub_pod().build(), ending, predecessor().build()))
    assert isinstance(step, DeleteMirror)
    assert uid_of(step.mirror) == "mirror-of-yesterday"
    step = plan(sure(hub_pod().build(), predecessor().build(), ending))
    assert isinstance(step, DeleteMirror)
    assert uid_of(step.mirror) == "mirror-of-yesterday"


# -- intent before deed (C20) ----------------------------------------------------------------------


def test_c20_the_intent_is_recorded_before_the_first_create() -> None:
    """Where the mirror will be stands on the hub pod before anything is created."""
    hub = hub_pod().build()
    step = plan(view(hub))
    assert isinstance(step, WriteHubPod)
    assert step.lane is Lane.SYNC
    assert json.loads(record_text(outcome(hub, step))) == {
        "podUID": "uid-web",
        "namespace": mirror_key(ObjectKey("default", "web")).namespace,
        "name": "web",
        "intendedAt": "2026-01-01T01:00:00Z",
    }


def test_c20_the_intent_carries_uid_and_version_as_preconditions() -> None:
    """A late intent meets a hub pod of another uid or version, and does nothing."""
    step = plan(view(hub_pod().build()))
    assert isinstance(step, WriteHubPod)
    assert step.write.patch.media_type == STRATEGIC
    metadata = step.write.patch.body["metadata"]
    assert (metadata["uid"], metadata["resourceVersion"]) == ("uid-web", "1")
    assert "status" not in step.write.patch.body


def test_c20_the_mirror_is_created_once_the_intent_stands() -> None:
    """In the process that wrote the intent the create follows at once."""
    hub = hub_pod().build()
    intended = outcome(hub, plan(view(hub)))
    step = plan(view(intended, attempt_open=True))
    assert isinstance(step, CreateMirror)
    assert lane_of(step) is Lane.SYNC


def test_c45_a_silent_targets_old_word_does_not_undo_the_hubs() -> None:
    """The node controller says not ready while the target is away; its last word waits."""
    running = rendered(mirror()).running().build()
    hub = settled(recording(hub_pod()), rendered(mirror()).running())
    given_up = dict(
        hub, status=dict(hub["status"], conditions=[{"type": "Ready", "status": "False"}])
    )
    assert isinstance(plan(view(given_up, running, target_reachable=False)), Nothing)
    restored = outcome(given_up, plan(view(given_up, running)))
    assert condition_status(restored, "Ready") == "True"


def test_c45_a_pod_that_ends_while_its_target_is_silent_waits_for_its_last_word() -> None:
    """Nor is anything old said of a terminating pod; a shorter grace is still passed on."""
    hub = recording(hub_pod()).running().terminating(grace=30).build()
    ending = mirror().running().terminating(grace=30).build()
    assert isinstance(plan(view(hub, ending, target_reachable=False)), Nothing)
    longer = mirror().running().terminating(grace=60).build()
    assert isinstance(plan(view(hub, longer, target_reachable=False)), DeleteMirror)


DB, TLS = (key_for(Kind.SECRET, name) for name in ("db", "tls"))
TOO_LARGE = Blocked(reason="CompanionTooLarge", message="Secret default/db is larger than that")


def test_c30_the_intent_is_written_while_companions_come() -> None:
    """Then nothing is created, nor told, until they are there; each wait ends by itself."""
    hold = Hold(coming=(DB, TLS))
    hub = hub_pod().build()
    step = plan(view(hub, hold=hold, held_since=NOW))
    assert isinstance(step, WriteHubPod)
    assert step.intent is not None
    intended = view(intending(hub_pod()).build(), attempt_open=True, hold=hold, held_since=NOW)
    waiting = plan(intended)
    assert isinstance(waiting, Nothing)
    assert waiting.again_at == NOW + timedelta(seconds=5)
    assert plan(replace(intended, hold=None)) == CreateMirror(reason="the hub pod has no mirror")


def test_c30_companions_that_are_long_in_coming_are_told_once() -> None:
    """The first of them, and one Event, whichever of them it is in the end."""
    hub = intending(hub_pod()).build()
    seen = view(hub, attempt_open=True, hold=Hold(coming=(DB, TLS)))
    seen = replace(seen, held_since=NOW - timedelta(seconds=5))
    step = plan(seen)
    assert refusal_reason(step) == "CompanionComing"
    said = outcome(hub, step)
    assert "Secret default/db is not in berlin yet" in status_of(said)["message"]
    waiting = plan(replace(seen, hub_pod=said))
    assert isinstance(waiting, Nothing)
    assert waiting.again_at == NOW + timedelta(seconds=60)
    later = plan(replace(seen, hub_pod=said, hold=Hold(coming=(TLS,))))
    assert isinstance(later, WriteHubPod)
    assert later.refusal is None
    assert "Secret default/tls" in status_of(outcome(said, later))["message"]


def test_c30_a_companion_that_cannot_come_is_told_at_once() -> None:
    """In its words; it wakes the pod when it can."""
    hub = hub_pod().build()
    seen = view(hub, hold=Hold(coming=(TLS,), stuck=((DB, TOO_LARGE),)), held_since=NOW)
    step = plan(seen)
    assert refusal_reason(step) == "CompanionTooLarge"
    said = outcome(hub, step)
    assert status_of(said)["message"] == TOO_LARGE.message
    waiting = plan(replace(seen, hub_pod=said))
    assert isinstance(waiting, Nothing)
    assert waiting.again_at == NOW + timedelta(seconds=60)


def test_c30_companions_wait_for_the_ground_and_hold_no_mirror_that_is_there() -> None:
    """They stand in the same namespace; and what runs is not taken back."""
    hold = Hold(coming=(TLS,), stuck=((DB, TOO_LARGE),))
    assert isinstance(plan(view(hub_pod().build(), hold=hold, anchor=AnchorState.NEVER)),
                      PrepareGround)  # fmt: skip
    running = mirror().running()
    told = settled(recording(hub_pod()), running)
    assert plan(view(told, running.build(), hold=hold)) == Nothing(reason="mirrored")


def test_c30_a_pod_that_waits_for_companions_ends_at_once() -> None:
    """Nothing was made of it."""
    hub = hub_pod().terminating().build()
    assert isinstance(plan(view(hub, hold=Hold(coming=(DB,)))), DeleteHubPod)


def test_the_ground_comes_before_the_intent() -> None:
    """Without namespace and anchor nothing is promised on the hub pod."""
    step = plan(view(hub_pod().build(), anchor=AnchorState.NEVER))
    assert isinstance(step, PrepareGround)
    assert lane_of(step) is Lane.SYNC


def test_c20_an_intent_of_another_process_is_looked_up_first() -> None:
    """After a restart nobody knows whether the create was carried out."""
    step = plan(view(intending(hub_pod()).build()))
    assert isinstance(step, LookUpMirror)
    assert lane_of(step) is Lane.SYNC


def test_c20_an_intent_of_another_process_is_looked_up_once_nothing_is_waited_for() -> None:
    """A thousand pods that wait for their companions would list the target each minute."""
    hold = Hold(coming=(DB,))
    seen = view(intending(hub_pod()).build(), hold=hold, held_since=NOW)
    waiting = plan(seen)
    assert isinstance(waiting, Nothing)
    assert waiting.again_at is not None
    assert isinstance(plan(replace(seen, hold=None)), LookUpMirror)
    elsewhere = replace(seen, mirror_key=ObjectKey("elsewhere", "web"))
    assert isinstance(plan(elsewhere), LookUpMirror)
    assert isinstance(plan(replace(seen, anchor=AnchorState.NEVER)), LookUpMirror)


@pytest.mark.parametrize("policy", ["Never", "OnFailure", "Always"])
@pytest.mark.parametrize("at", ["2026-01-01T00:59:31Z", "2025-12-31T00:00:00Z", "yesterday", ""])
def test_c20_an_intent_that_came_to_nothing_is_carried_out(policy: str, at: str) -> None:
    """However old: a mirror that is not on record was never let go, so none ever ran."""
    hub = intending(hub_pod().with_restart_policy(policy), at=at).build()
    assert isinstance(plan(view(hub)), LookUpMirror)
    assert isinstance(plan(sure(hub)), CreateMirror)


def test_c20_an_intent_without_an_instant_is_nobodys_own() -> None:
    """A record that somebody cut short is looked up as any other."""
    hub = intending(hub_pod(), at="").build()
    assert isinstance(plan(view(hub)), LookUpMirror)


# -- recorded before it may run (C20, C70) ---------------------------------------------------------


def gated() -> PodBuilder:
    return held(rendered(mirror()))


def held(builder: PodBuilder) -> PodBuilder:
    """Let the mirror be as it was born."""
    return builder.with_spec(schedulingGates=[{"name": RECORDED_GATE}])


def rendered(builder: PodBuilder, hub: JsonObject | None = None) -> PodBuilder:
    """Let the mirror have all that was asked for, and say so."""
    asking = hub or hub_pod().build()
    spec = render_spec(asking, RULES.render)
    return builder.with_spec(**spec).with_annotations(made_as(asking))


def test_c20_a_new_mirror_is_recorded_before_it_may_start() -> None:
    """First the uid on the hub pod, then the gate; in between a crash leaves one that never ran."""
    hub = intending(hub_pod()).build()
    recorded = plan(view(hub, gated().build()))
    assert isinstance(recorded, WriteHubPod)
    assert recorded.refusal is None
    known = outcome(hub, recorded)
    assert "mirror-web" in record_text(known)
    assert condition_of(known, "federate.dev/MirrorScheduled") is None
    step = plan(view(known, gated().build()))
    assert isinstance(step, UngateMirror)
    assert lane_of(step) is Lane.SYNC
    assert touches_target(step)
    assert isinstance(plan(view(known, rendered(mirror()).build())), Nothing)


def test_c20_a_mirror_may_not_start_where_the_hub_does_not_keep_its_record() -> None:
    """Without a record a second mirror could not be told from the first."""
    hub = intending(hub_pod()).build()
    recorded = plan(view(hub, gated().build()))
    assert isinstance(recorded, WriteHubPod)
    step = plan(view(hub, gated().build(), futile=recorded.write.fingerprint))
    assert isinstance(step, Nothing)


def test_c70_a_create_that_arrives_late_never_starts() -> None:
    """The record names another mirror: this one is removed, gated as it was born."""
    hub = recording(hub_pod(), uid="mirror-first").build()
    late = gated().build()
    assert isinstance(plan(view(hub, late)), LookUpHubPod)
    step = plan(sure(hub, late))
    assert isinstance(step, DeleteMirror)
    assert step.mirror is late


def test_c20_a_gated_mirror_that_somebody_removes_is_made_again() -> None:
    """It never ran and is on no record: nothing is lost, and the hub pod stays."""
    hub = intending(hub_pod().with_restart_policy("Never")).build()
    assert isinstance(plan(sure(hub, gated().terminating().build())), Nothing)
    assert isinstance(plan(sure(hub)), CreateMirror)


def test_c43_a_gated_mirror_on_record_that_somebody_removes_takes_its_hub_pod_along() -> None:
    """Whether its gate was lifted in time is not known: it counts as a run."""
    hub = recording(hub_pod().with_restart_policy("Never")).build()
    assert isinstance(plan(view(hub, gated().terminating().build())), LookUpAnchor)
    assert refusal_reason(plan(sure(hub))) == "MirrorLost"


# -- what the target dropped (C4) ------------------------------------------------------------------


def test_c4_a_dropped_field_is_told_and_the_mirror_starts() -> None:
    """An older target does not know a field: the pod runs, with a condition and an Event."""
    hub = intending(hub_pod()).build()
    new = gated().build()
    del new["spec"]["hostname"]
    step = plan(view(hub, new))
    assert refusal_reason(step) == "FieldsDropped"
    told = outcome(hub, step)
    assert condition_status(told, "federate.dev/FieldsDropped") == "True"
    assert "hostname" in (condition_of(told, "federate.dev/FieldsDropped") or {})["message"]
    assert isinstance(plan(view(told, new)), UngateMirror)


def test_c4_the_word_on_dropped_fields_stays_with_the_pod() -> None:
    """Later statuses do not know it any more, and leave it alone."""
    hub = intending(hub_pod()).build()
    new = gated().build()
    del new["spec"]["hostname"]
    told = outcome(hub, plan(view(hub, new)))
    running = rendered(mirror()).running().build()
    del running["spec"]["hostname"]
    after = outcome(told, plan(view(told, running)))
    assert status_of(after)["phase"] == "Running"
    assert condition_status(after, "federate.dev/FieldsDropped") == "True"


def test_c4_a_mirror_that_may_have_run_is_adopted_as_it_is() -> None:
    """Its record was lost with a restored hub: it was judged when it was made."""
    hub = intending(hub_pod().with_spec(securityContext={"runAsNonRoot": True})).build()
    found = rendered(mirror(), hub).bound_to("worker").running().build()
    del found["spec"]["securityContext"]
    assert isinstance(plan(view(hub, found)), WriteHubPod)


def test_c5_an_absence_that_cannot_be_confirmed_ends_no_pod() -> None:
    """Who the target is cannot be told, and its anchor is gone with the mirror: who knows where."""
    hub = recording(hub_pod()).running().terminating().build()
    unsure = view(hub, mirrors_fresh=True, target_known=False)
    assert isinstance(plan(unsure), LookUpAnchor)
    gone = replace(unsure, anchor_fresh=True, anchor=AnchorState.GONE)
    assert isinstance(plan(gone), Nothing)
    assert isinstance(plan(replace(gone, anchor=AnchorState.PRESENT)), WriteHubPod)
    assert isinstance(plan(replace(gone, target_known=True)), WriteHubPod)
    seen = replace(gone, last_state=mirror().running().terminating().build())
    assert isinstance(plan(seen), WriteHubPod)


def test_c4_a_mirror_that_would_run_weaker_is_removed_before_it_starts() -> None:
    """Without its security context the pod would have more rights than asked."""
    secured = hub_pod().with_spec(securityContext={"runAsNonRoot": True})
    hub = intending(secured).build()
    new = held(rendered(mirror(), hub)).build()
    del new["spec"]["securityContext"]
    step = plan(view(hub, new))
    assert isinstance(step, DeleteMirror)
    assert step.weakened_by == "securityContext"
    refused = plan(view(hub, weakened_by=step.weakened_by, attempt_open=True))
    assert refusal_reason(refused) == "MirrorWeakened"
    told = outcome(hub, refused)
    assert isinstance(plan(sure(told, weakened_by=step.weakened_by)), Nothing)


@pytest.mark.parametrize("ending", [True, False])
def test_c43_an_unmarked_mirror_is_neither_lost_nor_let_go(ending: bool) -> None:
    """Somebody took the marks off: the hub pod stays as it is, living or terminating."""
    hub = recording(hub_pod().running())
    seen = sure((hub.terminating() if ending else hub).build(), unmarked=True)
    assert isinstance(plan(seen), Nothing)
    assert not isinstance(plan(replace(seen, unmarked=False)), Nothing)


def test_c20_a_pod_that_was_seen_started_is_never_created_again() -> None:
    """Whatever the restart policy: a started container was a run."""
    hub = intending(hub_pod().running()).build()
    assert refusal_reason(plan(sure(hub))) == "MirrorLost"


def test_c20_a_copied_record_of_another_pod_is_no_record() -> None:
    """People copy manifests with their annotations: the record names the pod it is of."""
    original = recording(hub_pod()).build()
    copied = hub_pod("web").with_uid("uid-copy").with_annotations(dict(annotations_of(original)))
    step = plan(view(copied.build()))
    assert isinstance(step, WriteHubPod)
    assert step.reason == "intent before deed"


def test_c20_no_create_without_an_intent_even_where_the_hub_drops_it() -> None:
    """Where the hub answers an intent without keeping it, nothing is created."""
    hub = hub_pod().build()
    intent = plan(view(hub))
    assert isinstance(intent, WriteHubPod)
    step = plan(view(hub, futile=intent.write.fingerprint))
    assert not isinstance(step, CreateMirror)


def test_c20_a_mirror_found_is_adopted_and_its_uid_recorded() -> None:
    """The mirror of a crashed attempt is taken over, with its status, in one write."""
    hub = intending(hub_pod()).build()
    found = mirror().running().build()
    step = plan(view(hub, found))
    assert isinstance(step, WriteHubPod)
    assert step.lane is Lane.STATUS
    told = outcome(hub, step)
    record = record_of(told)
    assert record is not None
    assert (record.mirror, record.mirror_uid) == (key_of(found), "mirror-web")
    assert annotations_of(told)[TARGET_ANNOTATION] == "berlin"
    assert status_of(told)["phase"] == "Running"
    assert isinstance(plan(view(told, found)), Nothing)


def test_c20_a_mirror_that_is_not_the_recorded_one_is_a_second_run() -> None:
    """Two mirrors of one hub pod: the one on record stays."""
    hub = recording(hub_pod().running(), uid="mirror-first").build()
    second = mirror(uid="mirror-second").running().build()
    assert isinstance(plan(view(hub, second)), LookUpHubPod)
    step = plan(sure(hub, second))
    assert isinstance(step, DeleteMirror)
    assert step.mirror is second
    ending = mirror(uid="mirror-second").terminating().build()
    assert isinstance(plan(sure(hub, ending)), Nothing)


@pytest.mark.parametrize("recorded_first", [True, False])
def test_c20_a_second_mirror_goes_in_whatever_order_they_are_listed(recorded_first: bool) -> None:
    """Which mirror stays does not depend on the order of a store."""
    hub = recording(hub_pod()).build()
    first = mirror().running().build()
    second = mirror(uid="mirror-second").running().build()
    second["metadata"]["namespace"] = "elsewhere"
    mirrors = (first, second) if recorded_first else (second, first)
    hub = outcome(hub, plan(view(hub, first)))
    step = plan(sure(hub, *mirrors))
    assert isinstance(step, DeleteMirror)
    assert uid_of(step.mirror) == "mirror-second"


def test_c20_an_occupant_that_is_not_ours_is_told_and_not_touched() -> None:
    """A stranger has the name: refuse, tell, and touch nothing."""
    hub = intending(hub_pod()).build()
    step = plan(sure(hub, occupant=True))
    assert refusal_reason(step) == "NameTaken"
    told = outcome(hub, step)
    assert status_of(told)["phase"] == "Pending"
    assert "does not touch it" in status_of(told)["message"]
    assert isinstance(plan(sure(told, occupant=True)), Nothing)


# -- refusals and waits (C26, C27) -----------------------------------------------------------------


def test_c26_a_refused_pod_stays_pending_and_says_why_once() -> None:
    """A refusal is told on the pod, with one Event; then there is silence."""
    hub = hub_pod().owned_by("DaemonSet", "agent").build()
    step = plan(view(hub))
    assert refusal_reason(step) == "DaemonSetNotMirrored"
    assert lane_of(step) is Lane.STATUS
    told = outcome(hub, step)
    assert status_of(told)["phase"] == "Pending"
    assert condition_status(told, "federate.dev/Mirrored") == "False"
    assert isinstance(plan(replace(view(told), now=NOW + timedelta(hours=1))), Nothing)


def test_c3_a_pod_with_marks_is_never_mirrored() -> None:
    """Mirrors of mirrors cannot arise, whatever hub they name."""
    hub = hub_pod().with_labels({"federate.dev/hub-pod-uid": "x"}).build()
    assert refusal_reason(plan(view(hub))) == "MirrorOfMirror"


def test_c27_an_unreachable_target_keeps_the_pod_pending() -> None:
    """A Job's pod waits for a dead target; nothing transient makes it Failed."""
    hub = hub_pod().with_restart_policy("Never").build()
    step = plan(view(hub, target_reachable=False))
    assert refusal_reason(step) == "TargetUnreachable"
    told = outcome(hub, step)
    assert status_of(told)["phase"] == "Pending"
    assert record_of(told) is None
    assert isinstance(plan(view(told, target_reachable=False)), Nothing)
    assert isinstance(plan(view(told)), WriteHubPod)


def test_c27_an_unreachable_target_keeps_the_intent() -> None:
    """What may have been created is not forgotten while nobody can be asked."""
    hub = intending(hub_pod()).build()
    step = plan(view(hub, attempt_open=True, target_reachable=False))
    told = outcome(hub, step)
    assert record_of(told) is not None


def test_the_waiting_reason_leaves_with_the_first_status() -> None:
    """What a waiting pod said is replaced by what its mirror says."""
    hub = hub_pod().build()
    told = outcome(hub, plan(view(hub, target_reachable=False)))
    assert status_of(told)["reason"] == "TargetUnreachable"
    mirrored = outcome(told, plan(view(told, mirror().running().build())))
    assert "reason" not in status_of(mirrored)
    assert "message" not in status_of(mirrored)
    assert condition_status(mirrored, "federate.dev/Mirrored") is None
    assert condition_status(mirrored, "Ready") == "True"


# -- uninstalled (C23) -----------------------------------------------------------------------------


def test_c23_nothing_is_created_where_the_anchor_was_removed() -> None:
    """Who deletes the anchor uninstalls: new pods wait for an operator's word."""
    hub = hub_pod().build()
    step = plan(sure(hub, anchor=AnchorState.GONE))
    assert refusal_reason(step) == "Uninstalled"
    assert isinstance(plan(sure(outcome(hub, step), anchor=AnchorState.GONE)), Nothing)


def test_c23_hub_pods_stay_as_they_are_after_an_uninstall() -> None:
    """Mirrors that go with the anchor take no hub pod with them."""
    hub = recording(hub_pod().running()).build()
    gone = sure(hub, anchor=AnchorState.GONE)
    assert isinstance(plan(gone), Nothing)
    ending = sure(hub, mirror().running().terminating().build(), anchor=AnchorState.GONE)
    assert isinstance(plan(ending), Nothing)


def test_c23_an_uninstall_is_told_from_a_loss_by_reading_the_anchor() -> None:
    """Before a loss or a disruption is believed, the anchor is read."""
    hub = recording(hub_pod().running()).build()
    step = plan(view(hub, mirrors_fresh=True))
    assert isinstance(step, LookUpAnchor)
    assert lane_of(step) is Lane.DELETE
    assert isinstance(plan(view(hub, mirror().running().terminating().build())), LookUpAnchor)


# -- living and mirrored (C24, C40-C42) ------------------------------------------------------------


def test_c40_a_status_is_written_once() -> None:
    """Nothing changed, nothing written."""
    running = mirror().running()
    told = settled(recording(hub_pod()), running)
    assert status_of(told)["phase"] == "Running"
    assert isinstance(plan(view(told, running.build())), Nothing)


def starved() -> PodBuilder:
    """A mirror whose kubelet lacks a Secret."""
    said = f'secret "{target_name(Kind.SECRET, "db")}" not found'
    waiting = {"reason": "CreateContainerConfigError", "message": said}
    statuses = [{"name": "main", "state": {"waiting": waiting}}]
    return mirror().with_status(phase="Pending", message=said, containerStatuses=statuses)


@pytest.mark.parametrize("is_lost", [False, True])
def test_c40_what_the_targets_kubelet_lacks_is_told_in_the_hubs_words(is_lost: bool) -> None:
    """While the mirror lives, and of its last state when it is gone."""
    rules = replace(RULES, render=RenderRules(scope=SCOPE))
    sources = [{"secretRef": {"name": "db"}}]
    needy = recording(hub_pod().with_spec(containers=[{"name": "main", "envFrom": sources}]))
    if is_lost:
        gone = sure(needy.terminating().build(), last_state=starved().build(), target_known=True)
        told = outcome(needy.terminating().build(), plan_pod(gone, rules))
        [container] = status_of(told)["containerStatuses"]
        assert container["state"]["terminated"]["exitCode"] == 137
        assert status_of(told)["message"] == 'secret "db" not found'
    else:
        hub = needy.build()
        told = outcome(hub, plan_pod(view(hub, starved().build()), rules))
        [container] = status_of(told)["containerStatuses"]
        assert container["state"]["waiting"]["message"] == 'secret "db" not found'


def test_the_target_node_stands_on_the_hub_pod() -> None:
    """Where the mirror runs can be read on the hub pod."""
    told = settled(recording(hub_pod()), mirror().bound_to("berlin-7").running())
    assert annotations_of(told)[TARGET_NODE_ANNOTATION] == "berlin-7"


def test_c41_an_outage_of_the_hubs_node_controller_is_repaired() -> None:
    """Ready=False, written while the node was silent, is put right by the live mirror."""
    running = mirror().running()
    told = settled(recording(hub_pod()), running)
    for condition in told["status"]["conditions"]:
        if condition["type"] == "Ready":
            condition["status"] = "False"
    repaired = outcome(told, plan(view(told, running.build())))
    assert condition_status(repaired, "Ready") == "True"


def test_c24_labels_and_annotations_flow_after_the_status() -> None:
    """What the user changed on the hub pod reaches the mirror."""
    running = mirror().running()
    told = settled(recording(hub_pod()).with_labels({"app": "web"}), running)
    step = plan(view(told, running.build()))
    assert isinstance(step, PatchMirror)
    assert lane_of(step) is Lane.SYNC
    assert step.metadata["labels"] == {"app": "web"}


@pytest.mark.parametrize("end", ["succeeded", "failed"])
def test_c40_the_end_of_the_mirror_is_the_end_of_the_hub_pod(end: str) -> None:
    """A terminal phase and exit codes come up."""
    ended: PodBuilder = getattr(mirror(), end)()
    hub = recording(hub_pod().with_restart_policy("Never").running()).build()
    told = outcome(hub, plan(view(hub, ended.build())))
    assert is_terminal(told)
    assert isinstance(plan(view(told, ended.build())), Nothing)


def test_c42_a_terminal_pod_is_never_mirrored_again() -> None:
    """Whatever vanishes in the target: ended is ended."""
    for ended in (hub_pod().succeeded(), hub_pod().failed(), recording(hub_pod().failed())):
        assert isinstance(plan(sure(ended.build())), Nothing)
        assert isinstance(plan(sure(ended.build(), anchor=AnchorState.NEVER)), Nothing)


def test_c42_a_terminal_phase_is_never_rewritten() -> None:
    """A mirror that says something else changes nothing but its own end."""
    hub = recording(hub_pod().failed()).build()
    running = mirror().running().build()
    assert isinstance(plan(view(hub, running)), LookUpHubPod)
    step = plan(sure(hub, running))
    assert isinstance(step, DeleteMirror)
    assert step.grace_seconds is None
    assert isinstance(plan(sure(hub, mirror().running().terminating().build())), Nothing)
    assert isinstance(plan(sure(hub, mirror().succeeded().build())), Nothing)


def test_c42_a_terminal_state_last_seen_outranks_the_loss() -> None:
    """A Job's pod that ended, then vanished, has ended."""
    hub = recording(hub_pod().with_restart_policy("Never").running()).build()
    last = mirror().failed(exit_code=7).build()
    step = plan(view(hub, last_state=last))
    assert lane_of(step) is Lane.DELETE
    told = outcome(hub, step)
    assert status_of(told)["phase"] == "Failed"
    [container] = status_of(told)["containerStatuses"]
    assert container["state"]["terminated"]["exitCode"] == 7
    assert condition_of(told, "DisruptionTarget") is None


def test_c42_success_outranks_a_deletion_in_the_target() -> None:
    """A mirror that succeeded while it was being deleted has succeeded."""
    hub = recording(hub_pod().with_restart_policy("Never").running()).build()
    last = mirror().with_restart_policy("Never").succeeded().terminating().build()
    assert status_of(outcome(hub, plan(view(hub, last_state=last))))["phase"] == "Succeeded"
    live = outcome(hub, plan(view(hub, last)))
    assert status_of(live)["phase"] == "Succeeded"


def test_c43_a_server_that_exits_with_0_when_told_to_end_was_disrupted() -> None:
    """Its pod is Succeeded, as a kubelet has it; but its owner wants it to run for ever."""
    hub = recording(hub_pod().running()).build()
    killed = mirror().succeeded().terminating().build()
    step = plan(view(hub, killed, anchor=AnchorState.PRESENT, anchor_fresh=True))
    assert condition_of(outcome(hub, step), "DisruptionTarget") is not None
    gone = plan(view(hub, last_state=killed, mirrors_fresh=True, anchor_fresh=True))
    assert condition_of(outcome(hub, gone), "DisruptionTarget") is not None


@pytest.mark.parametrize("restart_policy", ["Always", "Never"])
def test_c23_who_exits_with_0_when_an_uninstall_ends_it_has_not_succeeded(
    restart_policy: str,
) -> None:
    """An anchor that is gone leaves the hub pod as it is, killed mirror or vanished one."""
    hub = recording(hub_pod().with_restart_policy(restart_policy).running()).build()
    killed = mirror().with_restart_policy(restart_policy).succeeded().terminating().build()
    [container] = killed["status"]["containerStatuses"]
    container["state"]["terminated"]["finishedAt"] = "2026-01-01T00:59:30Z"
    uninstalled = {"anchor": AnchorState.GONE, "anchor_fresh": True, "mirrors_fresh": True}
    assert isinstance(plan(view(hub, killed, **uninstalled)), Nothing)
    assert isinstance(plan(view(hub, last_state=killed, **uninstalled)), Nothing)
    assert isinstance(plan(view(hub, killed)), LookUpAnchor)
    assert isinstance(plan(view(hub, last_state=killed, mirrors_fresh=True)), LookUpAnchor)


def test_an_end_the_hub_does_not_take_is_a_loss() -> None:
    """A last state that cannot be written does not stop the way."""
    hub = recording(hub_pod().running()).build()
    last = mirror().failed().build()
    first = plan(sure(hub, last_state=last))
    assert isinstance(first, WriteHubPod)
    again = plan(sure(hub, last_state=last, futile=first.write.fingerprint))
    assert refusal_reason(again) == "MirrorLost"


# -- deleted in the target (C43) -------------------------------------------------------------------


def disrupted(*, grace: int = 30) -> PodBuilder:
    return mirror().running().terminating(grace=grace)


def test_c43_a_deletion_in_the_target_is_told_first() -> None:
    """The hub pod says DisruptionTarget and Ready=False, at once, and stays Running."""
    hub = recording(hub_pod().running()).build()
    told = outcome(hub, plan(sure(hub, disrupted().build())))
    assert condition_status(told, "DisruptionTarget") == "True"
    assert condition_status(told, "Ready") == "False"
    assert status_of(told)["phase"] == "Running"


def test_c43_the_disruption_of_the_target_is_copied() -> None:
    """Why a mirror is evicted is said in the target's own words."""
    hub = recording(hub_pod().running()).build()
    evicted = disrupted().with_condition("DisruptionTarget", "True", reason="EvictionByEvictionAPI")
    told = outcome(hub, plan(sure(hub, evicted.build())))
    condition = condition_of(told, "DisruptionTarget")
    assert condition is not None
    assert condition["reason"] == "EvictionByEvictionAPI"


@pytest.mark.parametrize(("grace", "expected"), [(30, 30), (5, 5), (0, 1)])
def test_c43_then_the_hub_pod_is_deleted_with_the_mirrors_grace(grace: int, expected: int) -> None:
    """Its owner replaces it; uid and version guard the deletion, and it is never a force."""
    hub = recording(hub_pod().running()).with_condition("DisruptionTarget", "True").build()
    step = plan(sure(hub, disrupted(grace=grace).build()))
    assert isinstance(step, DeleteHubPod)
    assert (step.uid, step.resource_version, step.grace_seconds) == ("uid-web", "1", expected)
    assert lane_of(step) is Lane.DELETE


def test_c43_a_disruption_the_hub_does_not_take_is_carried_out_all_the_same() -> None:
    """Where the words cannot be written, the deed follows."""
    hub = recording(hub_pod().running()).build()
    first = plan(sure(hub, disrupted().build()))
    assert isinstance(first, WriteHubPod)
    again = plan(sure(hub, disrupted().build(), futile=first.write.fingerprint))
    assert isinstance(again, DeleteHubPod)


def test_c43_a_mirror_that_was_deleted_and_is_gone_was_disrupted() -> None:
    """A deletion too quick to be seen alive is still a deletion, not a loss."""
    hub = recording(hub_pod().running()).build()
    seen = sure(hub, last_state=disrupted().build())
    told = outcome(hub, plan(seen))
    assert condition_status(told, "DisruptionTarget") == "True"
    assert isinstance(plan(replace(seen, hub_pod=told)), DeleteHubPod)


def test_c43_a_mirror_that_failed_while_it_was_deleted_was_disrupted() -> None:
    """Containers killed by a drain are not a failure of the pod's own."""
    hub = recording(hub_pod().running()).build()
    seen = sure(hub, last_state=mirror().failed(exit_code=143).terminating().build())
    told = outcome(hub, plan(seen))
    assert condition_status(told, "DisruptionTarget") == "True"
    assert status_of(told)["phase"] == "Running"


def test_c43_absence_is_believed_only_after_a_direct_read() -> None:
    """A mirror that is not in the store is asked for before anything is said."""
    step = plan(view(recording(hub_pod().running()).build()))
    assert isinstance(step, LookUpMirror)
    assert lane_of(step) is Lane.DELETE


def test_c43_a_vanished_mirror_ends_its_hub_pod() -> None:
    """Failed, MirrorLost, 137, DisruptionTarget: the owner replaces it, nothing runs twice."""
    hub = recording(hub_pod().running()).build()
    step = plan(sure(hub))
    assert refusal_reason(step) == "MirrorLost"
    assert lane_of(step) is Lane.DELETE
    told = outcome(hub, step)
    assert status_of(told)["phase"] == "Failed"
    assert status_of(told)["reason"] == "MirrorLost"
    [container] = status_of(told)["containerStatuses"]
    assert container["state"]["terminated"]["exitCode"] == 137
    assert condition_status(told, "DisruptionTarget") == "True"
    assert isinstance(plan(sure(told)), Nothing)


def test_c43_a_mirror_seen_by_this_process_is_lost_even_without_a_record() -> None:
    """A mirror that was created and vanished before its uid was recorded was a run."""
    hub = intending(hub_pod()).build()
    assert refusal_reason(plan(sure(hub, last_state=mirror().build()))) == "MirrorLost"


def test_a_loss_the_hub_does_not_take_is_left() -> None:
    """A hub that refuses the last word is not asked again and again."""
    hub = recording(hub_pod().running()).build()
    first = plan(sure(hub))
    assert isinstance(first, WriteHubPod)
    again = plan(sure(hub, futile=first.write.fingerprint))
    assert isinstance(again, Nothing)


# -- the hub pod terminates (C50, C53, C54) --------------------------------------------------------


def ending_hub(*, grace: int = 30) -> PodBuilder:
    return recording(hub_pod().running()).terminating(grace=grace)


@pytest.mark.parametrize(("grace", "expected"), [(30, 30), (5, 5), (1, 1), (0, 1)])
def test_c50_the_mirror_is_deleted_with_the_hub_pods_grace(grace: int, expected: int) -> None:
    """The grace travels; 0 becomes a second, since 0 would abandon containers."""
    step = plan(view(ending_hub(grace=grace).build(), mirror().running().build()))
    assert isinstance(step, DeleteMirror)
    assert step.grace_seconds == expected


def test_c50_a_deletion_without_a_grace_leaves_the_mirrors_own() -> None:
    """Where no grace is known none is sent."""
    hub = ending_hub().build()
    del hub["metadata"]["deletionGracePeriodSeconds"]
    step = plan(view(hub, mirror().running().build()))
    assert isinstance(step, DeleteMirror)
    assert step.grace_seconds is None
    assert not isinstance(plan(view(hub, disrupted().build())), DeleteMirror)


def test_c50_a_grace_shortened_later_travels_too() -> None:
    """`kubectl delete --grace-period=5` after a plain delete reaches the mirror."""
    step = plan(view(ending_hub(grace=5).build(), disrupted(grace=30).build()))
    assert isinstance(step, DeleteMirror)
    assert step.grace_seconds == 5
    same = plan(view(ending_hub(grace=30).build(), disrupted(grace=30).build()))
    assert not isinstance(same, DeleteMirror)
    longer = plan(view(ending_hub(grace=60).build(), disrupted(grace=30).build()))
    assert not isinstance(longer, DeleteMirror)


def test_c50_status_keeps_flowing_while_the_mirror_ends() -> None:
    """Not ready, exit codes: told while the containers stop."""
    hub = ending_hub().build()
    not_ready = mirror().running(ready=False).terminating().build()
    step = plan(view(hub, not_ready))
    assert lane_of(step) is Lane.STATUS
    told = outcome(hub, step)
    assert condition_status(told, "Ready") == "False"
    assert isinstance(plan(view(told, not_ready)), Nothing)


def test_c50_the_hub_pod_stays_until_its_mirror_is_gone() -> None:
    """Never before: also not when both have ended."""
    hub = recording(hub_pod().failed()).terminating().build()
    assert isinstance(plan(sure(hub, mirror().failed().terminating().build())), Nothing)


def test_c50_the_mirrors_end_is_confirmed() -> None:
    """A mirror that is not in the store is read directly before the hub pod goes."""
    step = plan(view(ending_hub().build()))
    assert isinstance(step, LookUpMirror)
    assert lane_of(step) is Lane.DELETE


def test_c50_the_last_word_comes_before_the_end() -> None:
    """The mirror's last state is projected, terminal, then the hub pod is removed."""
    hub = ending_hub().build()
    last = mirror().failed(exit_code=3).terminating().build()
    seen = sure(hub, last_state=last)
    step = plan(seen)
    assert lane_of(step) is Lane.DELETE
    told = outcome(hub, step)
    [container] = status_of(told)["containerStatuses"]
    assert container["state"]["terminated"]["exitCode"] == 3
    end = plan(replace(seen, hub_pod=told))
    assert isinstance(end, DeleteHubPod)
    assert (end.uid, end.grace_seconds) == ("uid-web", 0)


def test_c50_a_last_word_nobody_heard_is_failed() -> None:
    """Without a last state the containers ended unknown, and the phase is terminal."""
    hub = ending_hub().build()
    told = outcome(hub, plan(sure(hub)))
    assert status_of(told)["phase"] == "Failed"
    assert isinstance(plan(sure(told)), DeleteHubPod)


def test_c50_a_last_word_the_hub_does_not_take_holds_nothing_up() -> None:
    """A refused last status does not keep the pod Terminating for ever."""
    hub = ending_hub().build()
    word = plan(sure(hub))
    assert isinstance(word, WriteHubPod)
    assert isinstance(plan(sure(hub, futile=word.write.fingerprint)), DeleteHubPod)


def test_c50_a_pod_without_mirror_and_intent_is_finished_at_once() -> None:
    """Nothing was promised, nothing is asked."""
    step = plan(view(hub_pod().terminating().build()))
    assert isinstance(step, DeleteHubPod)
    assert (step.uid, step.resource_version, step.grace_seconds) == ("uid-web", "1", 0)


def test_c50_an_intent_without_a_mirror_ends_without_a_status() -> None:
    """A pod that never ran says nothing about its end."""
    hub = intending(hub_pod()).terminating().build()
    assert isinstance(plan(view(hub)), LookUpMirror)
    assert isinstance(plan(sure(hub)), DeleteHubPod)


@pytest.mark.parametrize("reachable", [True, False])
def test_c54_a_pod_that_could_not_be_built_is_deleted_all_the_same(reachable: bool) -> None:
    """What would be refused, or waits for the target, or was uninstalled, goes."""
    hub = (
        recording(hub_pod().running())
        .owned_by("DaemonSet", "agent")
        .with_labels({"federate.dev/hub": "forged"})
        .terminating()
        .build()
    )
    running = mirror().running().build()
    seen = view(hub, running, anchor=AnchorState.GONE, target_reachable=reachable, occupant=True)
    assert isinstance(plan(seen), DeleteMirror)


def test_a_foreign_finalizer_is_waited_for_in_silence() -> None:
    """With grace 0 only a finalizer holds the pod: federate's part is done."""
    hub = hub_pod().terminating(grace=0).with_finalizers("example.com/audit").build()
    assert isinstance(plan(view(hub)), Nothing)
    first = hub_pod().terminating().with_finalizers("example.com/audit").build()
    assert isinstance(plan(view(first)), DeleteHubPod)


def test_c53_a_create_under_way_is_looked_for_before_the_pod_goes() -> None:
    """Deleted two seconds after its creation: an open attempt is no proof of absence."""
    hub = intending(hub_pod()).terminating().build()
    assert isinstance(plan(view(hub, attempt_open=True)), LookUpMirror)
    found = mirror().build()
    assert isinstance(plan(sure(hub, found, attempt_open=True)), DeleteMirror)


def test_the_lane_of_nothing_is_the_cheapest() -> None:
    """Every step has a budget, nothing has one too."""
    assert lane_of(Nothing(reason="")) is Lane.STATUS


# -- laws on random views --------------------------------------------------------------------------

LAW = settings(max_examples=40, deadline=None)
"""Three thousand views each were run when the laws were written."""

PHASES = st.sampled_from(["", "running", "succeeded", "failed"])
GRACES = st.sampled_from([None, None, 0, 1, 30])
RECORDS = st.sampled_from(["", "intent", "mirror-web", "mirror-second"])
KINDS = st.sampled_from(["ours", "ours", "gated", "other node", "half", "stranger"])


@cache
def a_hub_pod(phase: str, policy: str, record: str, grace: int | None, told: bool) -> JsonDict:
    builder = in_phase(hub_pod(), phase, grace).with_restart_policy(policy)
    if record == "intent":
        builder = intending(builder)
    elif record:
        builder = recording(builder, uid=record)
    if told:
        builder = builder.with_condition("DisruptionTarget", "True")
    return builder.build()


@cache
def a_target_pod(kind: str, phase: str, name: str, of_uid: str, grace: int | None) -> JsonDict:
    """A pod of the target: a mirror of ours, of others, a half-marked one, or a stranger."""
    uid = f"mirror-{name}" if of_uid == "uid-web" else f"mirror-of-yesterday-{name}"
    scope = OTHER_SCOPE if kind == "other node" else SCOPE
    builder = mirror(of_uid=of_uid, uid=uid, scope=scope)
    if kind == "stranger":
        builder = pod("web", namespace=key_of(builder.pod).namespace).with_uid(uid)
    if kind == "gated":
        builder, phase = held(builder), ""
    built = in_phase(builder, phase, grace).build()
    if kind == "half":
        del built["metadata"]["annotations"]["federate.dev/hub-pod-name"]
    built["metadata"]["name"] = name
    return built


def in_phase(builder: PodBuilder, phase: str, grace: int | None) -> PodBuilder:
    result: PodBuilder = getattr(builder, phase)() if phase else builder
    return result if grace is None else result.terminating(grace=grace)


hub_pods = st.builds(
    a_hub_pod, PHASES, st.sampled_from(["Always", "Never"]), RECORDS, GRACES, st.booleans()
)
target_pods = st.builds(
    a_target_pod,
    KINDS,
    PHASES,
    st.sampled_from(["web", "second"]),
    st.sampled_from(["uid-web", "uid-web", "uid-of-yesterday"]),
    GRACES,
)


@st.composite
def views(draw: st.DrawFn) -> PodView:
    """Views as the reconciler builds them: mirrors are selected by scope, indexed by origin."""
    hub = draw(st.one_of(st.none(), hub_pods, hub_pods, hub_pods))
    store = Store(indexers={ORIGIN_INDEX: origin_index})
    found = draw(st.lists(target_pods, max_size=3))
    store.replace(p for p in found if SCOPE.owns(p))
    last = draw(st.none() | target_pods)
    is_ours = last is not None and hub is not None and SCOPE.owns(last)
    flags: dict[str, Any] = {
        name: draw(st.booleans())
        for name in (
            "hub_pod_fresh",
            "mirrors_fresh",
            "anchor_fresh",
            "attempt_open",
            "occupant",
            "target_reachable",
        )
    }
    made = draw(st.sampled_from(["", "mirror-web", "mirror-second"]))
    return view(
        hub,
        *store.by_index(ORIGIN_INDEX, "default/web"),
        created=Created(uid=made, spec={}) if made else None,
        anchor=draw(st.sampled_from(AnchorState)),
        last_state=last if is_ours else None,
        **flags,
    )


def own_mirrors(seen: PodView) -> list[JsonObject]:
    assert seen.hub_pod is not None
    uid = uid_of(seen.hub_pod)
    return [m for m in seen.mirrors if (o := origin_of(m)) is not None and o.pod_uid == uid]


@LAW
@given(views())
def test_law_deciding_twice_gives_the_same_step(seen: PodView) -> None:
    """A plan depends on its view alone, and leaves it as it was."""
    before = json.dumps([seen.hub_pod, seen.mirrors, seen.last_state], sort_keys=True)
    plan(seen)
    assert json.dumps([seen.hub_pod, seen.mirrors, seen.last_state], sort_keys=True) == before


@LAW
@given(views())
def test_law_only_mirrors_with_our_marks_are_deleted(seen: PodView) -> None:
    """C3: no pod of a stranger, and of no other virtual node, is ever deleted or changed."""
    step = plan(seen)
    if isinstance(step, (DeleteMirror, PatchMirror, UngateMirror)):
        origin = origin_of(step.mirror)
        assert origin is not None
        assert origin.scope == SCOPE
        assert origin.pod == seen.key


@LAW
@given(views())
def test_law_only_living_pods_that_nobody_deletes_are_started(seen: PodView) -> None:
    """C20, C42: a create needs a living hub pod, an intent, an anchor, and no mirror in sight."""
    step = plan(seen)
    if isinstance(step, CreateMirror):
        assert seen.hub_pod is not None
        assert not is_terminal(seen.hub_pod)
        assert not is_terminating(seen.hub_pod)
        record = record_of(seen.hub_pod)
        assert record is not None
        assert not record.mirror_uid
        assert seen.attempt_open or seen.mirrors_fresh
        assert seen.anchor is AnchorState.PRESENT
        assert not seen.mirrors
        assert not seen.occupant


@LAW
@given(views())
def test_law_only_the_mirror_on_record_may_start(seen: PodView) -> None:
    """C70: the gate is lifted from that very uid which stands on a living hub pod."""
    step = plan(seen)
    if isinstance(step, UngateMirror):
        assert seen.hub_pod is not None
        assert not is_terminal(seen.hub_pod)
        assert not is_terminating(seen.hub_pod)
        record = record_of(seen.hub_pod)
        assert record is not None
        assert record.mirror_uid == uid_of(step.mirror)
        assert not is_terminating(step.mirror)


@LAW
@given(views())
def test_law_what_nobody_here_made_is_not_let_go_unseen(seen: PodView) -> None:
    """C26: neither recorded nor ungated, where it does not say that it is what would be made."""
    step = plan(seen)
    found = [m for m in own_mirrors(seen) if is_found(m, seen.created)] if seen.hub_pod else []
    for each in found:
        assert not (isinstance(step, UngateMirror) and step.mirror is each)
        if isinstance(step, WriteHubPod):
            written = record_of(outcome(seen.hub_pod or {}, step))
            before = record_of(seen.hub_pod or {})
            assert written == before or written is None or written.mirror_uid != uid_of(each)
    if isinstance(step, DeleteMirror) and step.as_seen:
        assert step.mirror in found


@LAW
@given(views())
def test_law_a_hub_pod_outlives_its_mirror(seen: PodView) -> None:
    """C43, C50: a hub pod is deleted only where no mirror of it is left but an ending one."""
    step = plan(seen)
    if isinstance(step, DeleteHubPod):
        assert seen.hub_pod is not None
        assert (step.uid, step.resource_version) == ("uid-web", "1")
        own = own_mirrors(seen)
        if is_terminating(seen.hub_pod):
            assert own == []
            assert seen.mirrors_fresh or record_of(seen.hub_pod) is None
        else:
            assert all(map(is_terminating, own))
            assert own or seen.mirrors_fresh
            assert step.grace_seconds >= 1


@LAW
@given(views())
def test_law_a_terminal_phase_is_never_rewritten(seen: PodView) -> None:
    """C42: nothing is ever written to the status of a pod that has ended."""
    step = plan(seen)
    if isinstance(step, WriteHubPod):
        assert seen.hub_pod is not None
        assert not is_terminal(seen.hub_pod)
        metadata = step.write.patch.body["metadata"]
        assert (metadata["uid"], metadata["resourceVersion"]) == ("uid-web", "1")


@LAW
@given(views())
def test_law_a_deletion_that_cannot_be_taken_back_rests_on_direct_reads(seen: PodView) -> None:
    """A live mirror goes only for a terminating hub pod, or after the hub was asked."""
    step = plan(seen)
    if isinstance(step, DeleteMirror):
        asked_to = seen.hub_pod is not None and is_terminating(seen.hub_pod)
        assert seen.hub_pod_fresh or (asked_to and step.mirror in own_mirrors(seen))


@LAW
@given(views())
def test_law_a_write_says_something_new(seen: PodView) -> None:
    """Writing the same thing twice is impossible: the plan moves on after each write."""
    step = plan(seen)
    if isinstance(step, WriteHubPod):
        assert seen.hub_pod is not None
        after = plan(replace(seen, hub_pod=outcome(seen.hub_pod, step)))
        if isinstance(after, WriteHubPod):
            assert after.write.fingerprint != step.write.fingerprint


@LAW
@given(views())
def test_law_the_status_lane_never_waits_for_the_target(seen: PodView) -> None:
    """C2: a target that hangs holds up no status."""
    step = plan(seen)
    if lane_of(step) is Lane.STATUS:
        assert not touches_target(step)
    else:
        assert not isinstance(step, Nothing)


@LAW
@given(views())
def test_law_no_finalizer_and_no_spec_is_ever_written(seen: PodView) -> None:
    """C52: a write to a hub pod touches its status and our own annotations alone."""
    step = plan(seen)
    if isinstance(step, WriteHubPod):
        body = step.write.patch.body
        assert set(body) <= {"metadata", "status"}
        assert set(body["metadata"]) <= {"uid", "resourceVersion", "annotations"}
        own = {RECORD_ANNOTATION, TARGET_ANNOTATION, TARGET_NODE_ANNOTATION}
        assert set(body["metadata"].get("annotations") or {}) <= own


# -- a virtual node that is being left -------------------------------------------------------------


def test_nothing_is_started_on_a_node_that_is_being_left() -> None:
    """What has no mirror gets none, an intent on record or not, and says why (decision 0014)."""
    for hub in (hub_pod().build(), intending(hub_pod()).build()):
        step = plan_pod(sure(hub, leaving=True), RULES)
        told = condition_of(outcome(hub, step), MIRRORED)
        assert told is not None
        assert told["reason"] == PodReason.NODE_LEAVING
        for way_back in ("annotate node edge federate.dev/leaving-", "kubectl uncordon edge"):
            assert way_back in told["message"]


def test_what_runs_on_a_node_that_is_being_left_goes_on() -> None:
    """Statuses and deletions are as ever: the plan differs in nothing else."""
    for hub in (recording(hub_pod()), recording(hub_pod()).terminating()):
        for own in (mirror().running(), mirror().running().terminating(), mirror().succeeded()):
            seen = sure(hub.build(), own.build())
            assert plan_pod(replace(seen, leaving=True), RULES) == plan_pod(seen, RULES)


# -- other namespace rules (C22) -------------------------------------------------------------------


def test_c22_a_pod_that_the_rules_have_no_place_for_waits() -> None:
    """It says so once; nothing is made, and it may go."""
    hub = hub_pod().build()
    step = plan(view(hub, mirror_key=None))
    assert refusal_reason(step) == "NamespaceNotMapped"
    assert isinstance(plan(view(outcome(hub, step), mirror_key=None)), Nothing)
    ending = plan(view(hub_pod().terminating().build(), mirror_key=None))
    assert isinstance(ending, DeleteHubPod)


def test_c22_a_mirror_stays_where_rules_of_before_put_it() -> None:
    """What is on record is followed, whatever has a place today."""
    hub, there = recording(hub_pod()), mirror().running()
    for key in (None, ObjectKey("team-a", "web")):
        step = plan(view(hub.build(), there.build(), mirror_key=key))
        assert isinstance(step, WriteHubPod)
        record = record_of(outcome(hub.build(), step))
        assert record is not None
        assert record.mirror == mirror_key(ObjectKey("default", "web"))


def test_c20_an_intent_by_other_rules_is_written_anew_before_the_create() -> None:
    """Where a mirror is made is decided by the rules alone: people can write the record too."""
    hub, key = intending(hub_pod()).build(), ObjectKey("team-a", "web")
    assert isinstance(plan(view(hub, mirror_key=key)), LookUpMirror)
    step = plan(sure(hub, mirror_key=key))
    assert isinstance(step, WriteHubPod)
    assert step.intent is not None
    assert step.intent.mirror == key
    assert isinstance(plan(sure(outcome(hub, step), mirror_key=key)), CreateMirror)
