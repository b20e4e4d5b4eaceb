"""A living mirror follows its hub pod: the order of steps, and what no refusal holds up (C25)."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from federate.companions.holding import Hold
from federate.companions.keys import CompanionKey, Kind
from federate.companions.steps import Blocked
from federate.mirror.plan import plan_pod
from federate.mirror.refusal import Refusal
from federate.mirror.render import RenderRules
from federate.mirror.steps import (
    Created,
    Lane,
    LookUpHubPod,
    Nothing,
    PatchMirror,
    PodView,
    RefusedChange,
    Step,
    UngateMirror,
    UpdateMirror,
    WriteHubPod,
    belongs,
    lane_of,
    touches_target,
)
from federate.mirror.upkeep import METADATA
from federate.model.marks import RECORDED_GATE
from federate.model.objects import JsonDict, ObjectKey, condition_of
from federate.model.reasons import PodReason
from federate.status.project import UPDATE_REJECTED
from tests.support.builders import PodBuilder
from tests.support.views import (
    NOW,
    RULES,
    SCOPE,
    hub_pod,
    mirror,
    mirror_key,
    outcome,
    recording,
    sure,
    view,
)

NO = Refusal(reason=PodReason.UPDATE_REJECTED, message="berlin answered: no")
LATER = NOW + timedelta(seconds=30)
IMAGE_CHANGE = '["images",{"containers":[{"image":"app:2","name":"main"}]}]'


MADE_HERE = Created(uid="mirror-web", spec={})


def told(builder: PodBuilder, seen: PodBuilder) -> JsonDict:
    """Return the hub pod as it is once its mirror's status is written."""
    hub = recording(builder).build()
    step = plan_pod(view(hub, seen.build(), created=MADE_HERE), RULES)
    return outcome(hub, step) if isinstance(step, WriteHubPod) else hub


def changed(seen: PodBuilder, **spec: Any) -> JsonDict:
    """Return the hub pod with another image, of the next generation."""
    hub = told(hub_pod(), seen)
    hub["spec"]["containers"][0]["image"] = "app:2"
    hub["spec"] |= spec
    hub["metadata"]["generation"] = 2
    return hub


def refused(refusal: Refusal = NO, **fields: Any) -> dict[str, RefusedChange]:
    change = RefusedChange(fingerprint=IMAGE_CHANGE, refusal=refusal, again_at=LATER)
    return {"images": replace(change, **fields)}


def plan(seen: PodView) -> Step:
    step = plan_pod(seen, RULES)
    assert plan_pod(seen, RULES) == step
    return step


def test_a_spec_is_taken_over_from_a_hub_pod_that_was_read_directly() -> None:
    """One from a cache that is behind would take the mirror back, and restart it twice."""
    running = mirror().running()
    hub = changed(running)
    look = plan(view(hub, running.build()))
    assert isinstance(look, LookUpHubPod)
    assert lane_of(look) is Lane.SYNC
    step = plan(sure(hub, running.build()))
    assert isinstance(step, UpdateMirror)
    assert step.update.spec == {"containers": [{"name": "main", "image": "app:2"}]}
    assert lane_of(step) is Lane.SYNC


def test_c2_updates_have_their_own_lane() -> None:
    """A target that hangs on them holds up neither deletes nor statuses."""
    step = plan(sure(changed(mirror().running()), mirror().running().build()))
    look = plan(view(changed(mirror().running()), mirror().running().build()))
    assert touches_target(step)
    for lane in Lane:
        for first in (True, False):
            assert belongs(step, lane, first=first) is (lane is Lane.SYNC)
            assert belongs(look, lane, first=first) is (lane is Lane.SYNC)


def test_a_status_comes_before_an_update() -> None:
    """Whatever becomes of the update."""
    hub = changed(mirror())
    step = plan(sure(hub, mirror().running().build()))
    assert isinstance(step, WriteHubPod)


def test_a_mirror_starts_with_the_newest_spec_but_not_late() -> None:
    """An update comes before the gate is lifted; one that is refused does not hold it."""
    gated = mirror().with_spec(schedulingGates=[{"name": RECORDED_GATE}])
    ours = {"created": MADE_HERE}
    hub = changed(gated)
    assert isinstance(plan(sure(hub, gated.build(), **ours)), UpdateMirror)
    said = outcome(hub, plan(sure(hub, gated.build(), refused=refused(), **ours)))
    assert isinstance(plan(sure(said, gated.build(), refused=refused(), **ours)), UngateMirror)
    labelled = told(hub_pod().with_labels({"app": "web"}), gated)
    assert isinstance(plan(sure(labelled, gated.build(), **ours)), UngateMirror)


def test_a_refused_update_is_told_once_and_tried_again_later() -> None:
    """A condition with the target's words, one Event, and a time for the next try."""
    running = mirror().running()
    hub = changed(running)
    step = plan(sure(hub, running.build(), refused=refused()))
    assert isinstance(step, WriteHubPod)
    assert step.refusal == NO
    said = outcome(hub, step)
    condition = condition_of(said, UPDATE_REJECTED)
    assert condition is not None
    assert (condition["status"], condition["reason"]) == ("True", "UpdateRejected")
    assert condition["message"] == NO.message
    waiting = plan(sure(said, running.build(), refused=refused()))
    assert waiting == Nothing(reason="mirrored", again_at=LATER)
    due = sure(said, running.build(), refused=refused(again_at=NOW))
    assert isinstance(plan(due), UpdateMirror)


def test_a_status_is_written_beside_a_refusal_without_another_event() -> None:
    """A refused update never blocks status (C25)."""
    running = mirror().running()
    hub = changed(running)
    said = outcome(hub, plan(sure(hub, running.build(), refused=refused())))
    ended = mirror().running(ready=False)
    step = plan(sure(said, ended.build(), refused=refused()))
    assert isinstance(step, WriteHubPod)
    assert step.refusal is None
    now = outcome(said, step)
    assert (condition_of(now, "Ready") or {})["status"] == "False"
    assert condition_of(now, UPDATE_REJECTED) == condition_of(said, UPDATE_REJECTED)


def test_other_changes_do_not_wait_for_a_refused_one() -> None:
    """Each part is taken, or refused, by itself; labels too."""
    running = mirror().running()
    hub = changed(running, activeDeadlineSeconds=60)
    hub["metadata"]["labels"] = {"app": "web"}
    said = outcome(hub, plan(sure(hub, running.build(), refused=refused())))
    step = plan(sure(said, running.build(), refused=refused()))
    assert isinstance(step, UpdateMirror)
    assert step.update.what == "activeDeadlineSeconds"
    del said["spec"]["activeDeadlineSeconds"]
    assert isinstance(plan(sure(said, running.build(), refused=refused())), PatchMirror)


def test_another_change_of_a_refused_part_is_tried_at_once() -> None:
    """A user who mends the image waits for nothing."""
    running = mirror().running()
    hub = changed(running)
    hub["spec"]["containers"][0]["image"] = "app:3"
    assert isinstance(plan(sure(hub, running.build(), refused=refused())), UpdateMirror)


def test_a_refusal_that_is_withdrawn_is_no_longer_told() -> None:
    """The user took the change back: the condition goes, and then the record follows."""
    running = mirror().running()
    hub = changed(running)
    said = outcome(hub, plan(sure(hub, running.build(), refused=refused())))
    said["spec"]["containers"][0]["image"] = "busybox"
    said["metadata"]["generation"] = 3
    step = plan(sure(said, running.build(), refused=refused()))
    assert isinstance(step, UpdateMirror)
    assert step.update.spec == {}
    current = running.with_annotations(step.update.record)
    after = outcome(said, plan(sure(said, current.build(), refused=refused())))
    assert condition_of(after, UPDATE_REJECTED) is None
    assert isinstance(plan(sure(after, current.build(), refused=refused())), Nothing)


def test_a_new_process_lets_stand_what_was_told_until_it_knows_better() -> None:
    """Who remembers no refusal tries again, and does not take the condition back before."""
    running = mirror().running()
    hub = changed(running)
    said = outcome(hub, plan(sure(hub, running.build(), refused=refused())))
    assert isinstance(plan(sure(said, running.build())), UpdateMirror)


def test_refused_labels_are_told_too() -> None:
    """They wait for their next try like everything else."""
    running = mirror().running()
    hub = told(hub_pod().with_labels({"app": "web"}), running)
    step = plan(sure(hub, running.build()))
    assert isinstance(step, PatchMirror)
    change = RefusedChange(fingerprint=step.fingerprint, refusal=NO, again_at=LATER)
    told_step = plan(sure(hub, running.build(), refused={METADATA: change}))
    assert isinstance(told_step, WriteHubPod)
    said = outcome(hub, told_step)
    waiting = plan(sure(said, running.build(), refused={METADATA: change}))
    assert waiting == Nothing(reason="mirrored", again_at=LATER)


def test_c50_a_refused_update_does_not_hold_up_a_deletion() -> None:
    """What is ending is not changed any more."""
    running = mirror().running()
    hub = changed(running)
    hub["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    hub["metadata"]["deletionGracePeriodSeconds"] = 5
    step = plan(sure(hub, running.build(), refused=refused()))
    assert type(step).__name__ == "DeleteMirror"


def test_c30_what_federate_itself_refuses_is_told_and_never_sent() -> None:
    """A debug container that reads a Secret of the target's own."""
    running = mirror().running()
    hub = told(hub_pod(), running)
    secret = {"secretRef": {"name": "theirs"}}
    hub["spec"]["ephemeralContainers"] = [{"name": "d", "image": "i", "envFrom": [secret]}]
    hub["metadata"]["generation"] = 2
    step = plan(sure(hub, running.build()))
    assert isinstance(step, WriteHubPod)
    said = outcome(hub, step)
    assert (condition_of(said, UPDATE_REJECTED) or {})["reason"] == "CompanionMissing"
    assert plan(sure(said, running.build())) == Nothing(reason="mirrored")


WITH = replace(RULES, render=RenderRules(scope=SCOPE))
DB = CompanionKey(mirror_key(ObjectKey("default", "web")).namespace, Kind.SECRET, "default", "db")
TOO_LARGE = Blocked(reason="CompanionTooLarge", message="Secret default/db is larger than that")


def debugged(running: PodBuilder) -> JsonDict:
    """A hub pod to which a debug container was added that reads Secret `db`."""
    hub = told(hub_pod(), running)
    secret = {"secretRef": {"name": "db"}}
    hub["spec"]["ephemeralContainers"] = [{"name": "d", "image": "i", "envFrom": [secret]}]
    hub["metadata"]["generation"] = 2
    return hub


def test_c30_a_debug_container_waits_in_silence_while_its_companion_comes() -> None:
    """For a few seconds; nothing is written, and what was said before stays."""
    running = mirror().running()
    hub = debugged(running)
    seen = sure(hub, running.build(), hold=Hold(coming=(DB,)), held_since=NOW)
    assert plan_pod(seen, WITH) == Nothing(reason="mirrored", again_at=NOW + timedelta(seconds=5))
    assert type(plan_pod(replace(seen, hold=None), WITH)) is UpdateMirror


def test_c30_a_debug_container_whose_companion_is_long_in_coming_says_so() -> None:
    """In the condition for changes; the status flows on."""
    running = mirror().running()
    hub = debugged(running)
    seen = sure(hub, running.build(), hold=Hold(coming=(DB,)))
    seen = replace(seen, held_since=NOW - timedelta(seconds=5))
    step = plan_pod(seen, WITH)
    assert isinstance(step, WriteHubPod)
    said = outcome(hub, step)
    condition = condition_of(said, UPDATE_REJECTED) or {}
    assert condition["reason"] == "CompanionComing"
    assert "d: Secret default/db is not in berlin yet" in condition["message"]
    assert plan_pod(replace(seen, hub_pod=said), WITH) == Nothing(reason="mirrored")


def test_c30_a_debug_container_whose_companion_cannot_come_says_so_at_once() -> None:
    """In the companion's own words; when it comes, the condition goes."""
    running = mirror().running()
    hub = debugged(running)
    seen = sure(hub, running.build(), hold=Hold(stuck=((DB, TOO_LARGE),)))
    step = plan_pod(seen, WITH)
    assert isinstance(step, WriteHubPod)
    said = outcome(hub, step)
    condition = condition_of(said, UPDATE_REJECTED) or {}
    assert condition["reason"] == "CompanionTooLarge"
    assert f"d: {TOO_LARGE.message}" in condition["message"]
    assert plan_pod(replace(seen, hub_pod=said), WITH) == Nothing(reason="mirrored")
    assert type(plan_pod(replace(seen, hub_pod=said, hold=None), WITH)) is UpdateMirror
