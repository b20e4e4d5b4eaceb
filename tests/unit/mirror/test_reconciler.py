"""The steps of the reconciler, between two clusters in memory and in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from federate.errors import (
    ClusterError,
    Conflict,
    Forbidden,
    LeadershipLost,
    NotFound,
    Rejected,
    ServerFault,
    Throttled,
    Unreachable,
)
from federate.flow.controller import SLOW_CAP_SECONDS
from federate.mirror.reconciler import PodReconciler
from federate.mirror.steps import Lane
from federate.model.marks import (
    HUB_LABEL,
    HUB_NAMESPACE_ANNOTATION,
    HUB_POD_UID_LABEL,
    RECORD_ANNOTATION,
    record_of,
)
from federate.model.objects import (
    JsonDict,
    ObjectKey,
    annotations_of,
    condition_of,
    is_terminating,
    labels_of,
    metadata_of,
    status_of,
    uid_of,
)
from federate.model.pods import is_gated, phase_of
from federate.model.resources import CONFIGMAPS, NAMESPACES, PODS
from federate.status.project import FIELDS_DROPPED, MIRRORED
from tests.support.builders import pod
from tests.support.clock import virtual_time
from tests.support.fakeclient import Call, Delay, Fault, LostReply, LostRequest, Refuse
from tests.support.fakecluster import FakeCluster
from tests.support.fakestore import Signal
from tests.support.scene import ANCHOR, RULES, SCOPE, TARGET_NAMESPACE, agreed
from tests.support.worlds import World

A = ObjectKey("default", "a")


def hub_pod_of(world: World, key: ObjectKey = A) -> JsonDict:
    found = world.hub_pod(key)
    assert found is not None
    return found


def mirror_of(world: World, key: ObjectKey = A) -> JsonDict:
    found = world.mirror(key)
    assert found is not None
    return found


def waits_for(world: World, key: ObjectKey = A) -> str:
    """The reason why there is no mirror, "" where none is given."""
    return (condition_of(hub_pod_of(world, key), MIRRORED) or {}).get("reason") or ""


def calls(cluster: FakeCluster, verb: str, name: str = "a") -> list[Call]:
    return [
        c for c in cluster.calls if c.verb == verb and c.resource == PODS and c.key.name == name
    ]


def sound(world: World) -> None:
    assert not world.witness.broken, world.witness.broken
    assert not world.differences(), world.differences()


async def submitted(world: World, *, policy: str = "Never", phase: str = "Running") -> None:
    """Pod `a` is mirrored and its mirror plays."""
    world.submit(pod("a").with_restart_policy(policy))
    await asyncio.sleep(2.0)
    world.play(A, phase)
    await asyncio.sleep(1.0)
    assert phase_of(hub_pod_of(world)) == phase


def make_ours(namespace: JsonDict) -> None:
    """Give a namespace the marks that federate would have given it."""
    namespace["metadata"]["labels"][HUB_LABEL] = SCOPE.hub_id
    namespace["metadata"]["annotations"] = {HUB_NAMESPACE_ANNOTATION: "default"}


def vanish_in(world: World) -> None:
    """The mirror is gone without having been deleted, as after a lost etcd."""
    with world.others():
        world.target.store.remove(PODS, world.mirror_key(A))


def silence(world: World) -> Callable[[], None]:
    """The mirrors' watch says nothing more; what is returned lets it tell all that it missed."""
    store = world.target.store
    silenced = [w for w in store.watches if w.client == "target" and w.resource == PODS]
    for watching in silenced:
        store.close_watch(watching)

    def speak() -> None:
        for watching in silenced:
            watching.messages.put_nowait(Signal.BREAK)  # it is opened anew where it stopped

    return speak


def once(verb: str, fault: Fault, *, client: str = "target") -> Callable[[Call], Fault | None]:
    """The first such request about pods meets the fault."""
    left = [fault]

    def fault_of(call: Call) -> Fault | None:
        hit = call.client == client and call.verb == verb and call.resource == PODS
        return left.pop() if hit and left else None

    return fault_of


def unmark(world: World) -> None:
    """Somebody in the target takes federate's labels off the mirror."""
    with world.others():
        world.target.edit(PODS, world.mirror_key(A), lambda p: p["metadata"].pop("labels"))


def refuse(verb: str, error: ClusterError) -> Callable[[Call], Fault | None]:
    """Every such request about pods in the target is refused."""

    def fault_of(call: Call) -> Fault | None:
        hit = call.client == "target" and call.verb == verb and call.resource == PODS
        return Refuse(error) if hit else None

    return fault_of


# --- from pod to mirror ---------------------------------------------------------------------------


@virtual_time
async def test_a_pod_gets_its_mirror_and_its_status() -> None:
    """Intent, ground, create, record: four hub and target writes, then silence."""
    world = World()
    async with world.running():
        await submitted(world)
        record = record_of(hub_pod_of(world))
        assert record is not None
        assert record.mirror_uid == uid_of(mirror_of(world))
        assert len(calls(world.target, "create")) == 1
        assert len(calls(world.hub, "patch")) == 3
        sound(world)


@virtual_time
async def test_a_create_whose_reply_is_lost_is_adopted() -> None:
    """AlreadyExists with our mark for this very hub pod is adopted; nothing is made twice."""
    world = World(with_nets=False)
    async with world.running():
        world.fault_of = lambda call: (
            LostReply() if (call.verb, call.resource) == ("create", PODS) else None
        )
        # The watch must not tell of it first.
        world.submit(pod("a").with_restart_policy("Never"))
        await asyncio.sleep(5.0)
        world.fault_of = None
        await asyncio.sleep(90.0)
        assert world.witness.mirrors_made == {uid_of(hub_pod_of(world)): 1}
        sound(world)


@virtual_time
async def test_an_intent_of_a_dead_process_is_settled_by_a_direct_read() -> None:
    """A fresh process finds the mirror that the dead one created without learning of it."""
    world = World()
    async with world.running():

        def die_after_create(call: Call) -> Fault | None:
            if (call.verb, call.resource) != ("create", PODS):
                return None
            world.fault_of = None
            world.kill()
            return LostReply()

        world.fault_of = die_after_create
        world.submit(pod("a").with_restart_policy("Never"))
        await asyncio.sleep(10.0)
        assert world.processes == 2
        assert len(calls(world.target, "create")) == 1
        sound(world)


@virtual_time
async def test_an_old_intent_without_a_mirror_is_carried_out() -> None:
    """However old: a mirror that is not on record was never let go, so the pod never ran."""
    world = World()
    old = '{"podUID":"%s","namespace":"%s","name":"%s","intendedAt":"2025-01-01T00:00:00Z"}'
    keys = {name: ObjectKey("default", name) for name in ("a", "b")}
    for name, policy in (("a", "Never"), ("b", "Always")):
        marked = pod(name).with_restart_policy(policy).bound_to("edge")
        text = old % (f"uid-{name}", TARGET_NAMESPACE, name)
        with world.others():
            world.hub.add(PODS, marked.with_annotations({RECORD_ANNOTATION: text}).build())
    async with world.running():
        await asyncio.sleep(5.0)
        for key in keys.values():
            assert not is_gated(mirror_of(world, key))
        sound(world)


@virtual_time
async def test_a_predecessor_ends_before_the_successor_starts() -> None:
    """A pod of the same name waits, and says so, until its predecessor's mirror is gone."""
    world = World()
    async with world.running():
        await submitted(world, policy="Always")
        first = uid_of(mirror_of(world))
        with world.others():
            world.hub.delete_by_user(PODS, A, grace_seconds=0)
        world.submit(pod("a"))
        await asyncio.sleep(3.0)
        assert is_terminating(mirror_of(world))
        assert waits_for(world) == "PredecessorTerminating"
        world.kubelets_finish()
        await asyncio.sleep(3.0)
        assert uid_of(mirror_of(world)) != first
        sound(world)


@virtual_time
async def test_a_foreign_pod_of_our_name_is_left_alone() -> None:
    """The hub pod says NameTaken, keeps no intent, is tried again slowly, and starts when free."""
    world = World()
    async with world.running():
        with world.others():
            foreign = pod("a", namespace=TARGET_NAMESPACE).with_uid("foreign").running().build()
            world.target.add(PODS, foreign)
            before = mirror_of(world)
            world.target.edit(NAMESPACES, ObjectKey("", TARGET_NAMESPACE), make_ours)
        world.submit(pod("a"))
        await asyncio.sleep(3.0)
        assert waits_for(world) == "NameTaken"
        assert mirror_of(world) == before
        await asyncio.sleep(600.0)
        assert len(calls(world.target, "create")) <= 12
        with world.others():
            world.target.delete_by_user(PODS, world.mirror_key(A), grace_seconds=0)
        await asyncio.sleep(420.0)  # the slowest pace, with its jitter
        sound(world)
        assert waits_for(world) == ""


@virtual_time
async def test_labels_follow_the_hub_and_foreign_ones_stay() -> None:
    """A changed label travels in one patch; what the target added stays."""
    world = World()
    async with world.running():
        await submitted(world)
        with world.others():
            world.target.edit(
                PODS, world.mirror_key(A), lambda p: p["metadata"]["labels"].update(theirs="1")
            )
            world.hub.edit(PODS, A, lambda p: p["metadata"].update(labels={"app": "web"}))
        await asyncio.sleep(2.0)
        assert labels_of(mirror_of(world)).items() >= {"app": "web", "theirs": "1"}.items()
        assert len(calls(world.target, "patch")) == 1 + 1  # the first let it start
        sound(world)


@virtual_time
async def test_a_mirror_that_vanishes_under_a_patch_is_looked_up() -> None:
    """A patch that meets nothing ends in a direct read, not in an error loop."""
    world = World()
    async with world.running():
        await submitted(world)

        def vanish(call: Call) -> Fault | None:
            if (call.client, call.verb) != ("target", "patch"):
                return None
            world.fault_of = None
            vanish_in(world)
            return None

        world.fault_of = vanish
        with world.others():
            world.hub.edit(PODS, A, lambda p: p["metadata"].update(labels={"app": "web"}))
        await asyncio.sleep(2.0)
        assert status_of(hub_pod_of(world))["reason"] == "MirrorLost"
        sound(world)


# --- create failures ----------------------------------------------------------------------------


def forbidden(text: str) -> Forbidden:
    return Forbidden(text, reason="Forbidden", status=403)


FAILURES: dict[str, tuple[ClusterError, str, bool]] = {
    "quota": (forbidden('pods "a" is forbidden: exceeded quota: q'), "QuotaExceeded", True),
    "podsecurity": (
        forbidden('violates PodSecurity "baseline:latest"'),
        "PodSecurityRefused",
        True,
    ),
    "limits": (forbidden("maximum cpu usage per Container is 1"), "LimitRangeRefused", True),
    "plugin": (forbidden('pods "a" is forbidden: no such team'), "AdmissionDenied", True),
    "class": (forbidden("no PriorityClass with name high was found"), "ClassMissing", True),
    "webhook": (
        ServerFault('admission webhook "w" denied the request: no', status=500),
        "AdmissionDenied",
        True,
    ),
    "webhook away": (
        ServerFault('failed calling webhook "w": refused', reason="InternalError", status=500),
        "AdmissionFailed",
        False,
    ),
    "quota in use": (Conflict("modified", reason="Conflict", status=409), "TargetBusy", False),
    "rbac": (forbidden('User "f" cannot create resource "pods"'), "Forbidden", False),
    "invalid": (Rejected("bad", reason="Invalid", status=422), "MirrorInvalid", True),
    "throttled": (Throttled("wait", reason="TooManyRequests", status=429), "TargetBusy", False),
    "gone": (NotFound("no namespace", reason="NotFound", status=404), "NamespaceMissing", False),
    "fault": (ServerFault("etcd", reason="InternalError", status=500), "TargetError", False),
}


@pytest.mark.parametrize("case", FAILURES)
def test_a_refused_create_is_told_and_tried_again(case: str) -> None:
    """The pod stays Pending with the target's words, is retried at the right pace, and heals."""
    error, reason, slow = FAILURES[case]

    @virtual_time
    async def check() -> None:
        world = World()
        async with world.running():
            world.fault_of = refuse("create", error)
            world.submit(pod("a").with_restart_policy("Never"))
            await asyncio.sleep(3.0)
            assert waits_for(world) == reason
            assert phase_of(hub_pod_of(world)) == "Pending"
            assert status_of(hub_pod_of(world))["reason"] == reason
            told = status_of(hub_pod_of(world))["message"]
            assert error.detail in told or reason in ("TargetBusy",)
            assert record_of(hub_pod_of(world)) is not None
            assert reason in world.process.events.reasons
            await asyncio.sleep(120.0)
            tries = len(calls(world.target, "create"))
            assert (2 <= tries <= 7) if slow else (6 <= tries <= 14), tries
            world.fault_of = None
            await asyncio.sleep(320.0)
            assert waits_for(world) == ""
            assert "reason" not in status_of(hub_pod_of(world))
            sound(world)

    check()


@virtual_time
async def test_what_was_refused_for_hours_runs_two_minutes_after_the_cause_is_gone() -> None:
    """However often it was refused, and though nothing tells of the change."""
    world = World()
    async with world.running():
        world.fault_of = refuse("create", forbidden('pods "a" is forbidden: exceeded quota: q'))
        world.submit(pod("a"))
        await asyncio.sleep(7200.0)
        assert waits_for(world) == "QuotaExceeded"
        world.fault_of = None
        await asyncio.sleep(1.25 * SLOW_CAP_SECONDS)
        assert waits_for(world) == ""
        sound(world)


@virtual_time
async def test_a_create_that_cannot_connect_backs_off_and_writes_nothing_more() -> None:
    """Its own words on the hub pod must not wake it again: two writes, however many tries."""
    world = World()
    refused = Unreachable("connection refused")
    async with world.running():
        world.fault_of = refuse("create", refused)
        world.submit(pod("a"))
        await asyncio.sleep(60.0)
        assert 4 <= len(calls(world.target, "create")) <= 14
        assert len(calls(world.hub, "patch")) == 2
        assert waits_for(world) == "TargetUnreachable"


@virtual_time
async def test_an_unreachable_target_keeps_the_intent() -> None:
    """Nobody knows whether the create arrived: the intent stays, the pod says TargetUnreachable."""
    world = World()
    async with world.running():
        world.fault_of = lambda call: (
            LostRequest() if (call.verb, call.resource) == ("create", PODS) else None
        )
        world.submit(pod("a").with_restart_policy("Never"))
        await asyncio.sleep(3.0)
        assert waits_for(world) == "TargetUnreachable"
        assert record_of(hub_pod_of(world)) is not None
        world.fault_of = None
        await asyncio.sleep(120.0)
        sound(world)


@virtual_time
async def test_nothing_is_created_in_a_target_known_to_be_dead() -> None:
    """No request goes out while the target does not answer; the pod says why and starts later."""
    world = World()
    async with world.running():
        world.target_reachable = False
        world.submit(pod("a"))
        await asyncio.sleep(60.0)
        assert waits_for(world) == "TargetUnreachable"
        assert not calls(world.target, "create")
        world.heal()
        await asyncio.sleep(2.0)
        sound(world)
        assert waits_for(world) == ""


@virtual_time
async def test_a_missing_service_account_is_waited_for_and_told() -> None:
    """The pod waits for the namespace's default account without hammering, and says so."""
    world = World()
    world.target.provisions_namespaces = False
    async with world.running():
        world.submit(pod("a"))
        await asyncio.sleep(60.0)
        assert not calls(world.target, "create")
        assert waits_for(world) == "ServiceAccountMissing"
        assert len(world.target.calls) < 200
        world.target.provisions_namespaces = True
        with world.others():
            world.target._provision(TARGET_NAMESPACE)
        await asyncio.sleep(70.0)
        sound(world)


# --- absence is believed only after a direct read -------------------------------------------------


@virtual_time
async def test_a_vanished_mirror_is_lost_only_after_a_direct_read() -> None:
    """MirrorLost, exit code 137 and DisruptionTarget, and a GET before any of it."""
    world = World()
    async with world.running():
        await submitted(world)
        vanish_in(world)
        await asyncio.sleep(1.0)
        lost = hub_pod_of(world)
        assert (phase_of(lost), status_of(lost)["reason"]) == ("Failed", "MirrorLost")
        (container,) = status_of(lost)["containerStatuses"]
        assert container["state"]["terminated"]["exitCode"] == 137
        told = condition_of(lost, "DisruptionTarget")
        assert told is not None
        assert told["status"] == "True"
        assert calls(world.target, "get")
        sound(world)


@virtual_time
async def test_a_forced_deletion_in_the_target_takes_the_hub_pod_along() -> None:
    """A force-deleted mirror went through a deletion: the hub pod ends as disrupted, and goes."""
    world = World()
    async with world.running():
        await submitted(world)
        with world.others():
            world.target.delete_by_user(PODS, world.mirror_key(A), grace_seconds=0)
        await asyncio.sleep(2.0)
        assert world.hub_pod(A) is None
        told = [c for c in calls(world.hub, "patch") if "DisruptionTarget" in str(c.body)]
        assert told
        sound(world)


@virtual_time
async def test_a_mirror_the_store_lost_is_found_again() -> None:
    """An empty store is no proof: a direct read brings the mirror back, the pod runs on."""
    world = World(with_nets=False)
    async with world.running():
        await submitted(world)
        for change in world.process.mirrors.replace([]):
            world.process.mirroring._on_mirror(change)
        await asyncio.sleep(2.0)
        assert calls(world.target, "get")
        assert phase_of(hub_pod_of(world)) == "Running"
        sound(world)


@virtual_time
async def test_a_hub_pod_the_store_lost_keeps_its_mirror() -> None:
    """A mirror is an orphan only if a direct read of the hub says so."""
    world = World(with_nets=False)
    async with world.running():
        await submitted(world)
        for change in world.process.hub_pods.replace([]):
            world.process.mirroring._on_hub_pod(change)
        await asyncio.sleep(2.0)
        assert calls(world.hub, "get")
        assert not is_terminating(mirror_of(world))
        sound(world)


@virtual_time
async def test_a_mirror_that_ended_before_it_vanished_ended() -> None:
    """Succeeded, seen only in the DELETED event, outranks MirrorLost."""
    world = World()
    async with world.running():
        await submitted(world)
        world.play(A, "Succeeded")
        with world.others():
            world.target.delete_by_user(PODS, world.mirror_key(A), grace_seconds=0)
        await asyncio.sleep(2.0)
        assert phase_of(hub_pod_of(world)) == "Succeeded"
        sound(world)


# --- the mirror's end -----------------------------------------------------------------------------


@virtual_time
async def test_an_uninstall_leaves_hub_pods_as_they_are() -> None:
    """Who deletes the anchor ends all mirrors; nothing is made anew, hub pods stay and say why."""
    world = World()
    async with world.running():
        await submitted(world)
        with world.others():
            world.target.delete_by_user(CONFIGMAPS, ANCHOR)
            world.target.collect_garbage()
        await asyncio.sleep(2.0)
        world.kubelets_finish()
        await asyncio.sleep(5.0)
        assert phase_of(hub_pod_of(world)) == "Running"
        assert not is_terminating(hub_pod_of(world))
        world.submit(pod("b"))
        await asyncio.sleep(5.0)
        assert waits_for(world, ObjectKey("default", "b")) == "Uninstalled"
        assert not calls(world.target, "create", "b")
        assert not world.witness.broken


@virtual_time
async def test_a_process_started_after_an_uninstall_knows_of_it() -> None:
    """The memory of the anchor is on the hub's Node, so a new process makes nothing either."""
    world = World()
    async with world.running():
        await submitted(world)
        world.fault_of = lambda call: LostRequest() if call.verb == "watch" else None
        world.kill()
        with world.others():
            world.target.delete_by_user(CONFIGMAPS, ANCHOR)
            world.target.collect_garbage()
        world.kubelets_finish()
        world.fault_of = None
        await asyncio.sleep(60.0)
        assert world.processes == 2
        assert phase_of(hub_pod_of(world)) == "Running"
        assert len(calls(world.target, "create")) == 1


@virtual_time
async def test_a_drain_in_the_target_takes_the_hub_pod_along() -> None:
    """DisruptionTarget, deletion of the hub pod, and the last state when the mirror is gone."""
    world = World()
    async with world.running():
        await submitted(world)
        with world.others():
            world.target.delete_by_user(PODS, world.mirror_key(A), grace_seconds=30)
        await asyncio.sleep(2.0)
        leaving = hub_pod_of(world)
        assert is_terminating(leaving)
        told = condition_of(leaving, "DisruptionTarget")
        assert told is not None
        assert told["status"] == "True"
        assert not calls(world.target, "delete")  # the mirror's grace is its own
        world.kubelets_finish()
        await asyncio.sleep(2.0)
        assert world.hub_pod(A) is None
        sound(world)


@virtual_time
async def test_a_drain_noticed_late_does_not_shorten_the_mirrors_grace() -> None:
    """A process that starts in the middle of a mirror's grace leaves the rest of it alone."""
    world = World()
    async with world.running():
        await submitted(world)
    with world.others():
        world.target.delete_by_user(PODS, world.mirror_key(A), grace_seconds=60)
    ends_at = metadata_of(mirror_of(world))["deletionTimestamp"]
    await asyncio.sleep(40.0)
    async with world.running():
        await asyncio.sleep(5.0)
        assert is_terminating(hub_pod_of(world))
        assert metadata_of(mirror_of(world))["deletionTimestamp"] == ends_at


@virtual_time
async def test_a_graceful_end_is_followed_to_the_last_word() -> None:
    """Same grace, status while ending, a terminal word, then the hub pod goes: never before."""
    world = World()
    async with world.running():
        await submitted(world)
        with world.others():
            world.hub.delete_by_user(PODS, A, grace_seconds=40)
        await asyncio.sleep(2.0)
        assert metadata_of(mirror_of(world))["deletionGracePeriodSeconds"] == 40
        with world.others():
            world.hub.delete_by_user(PODS, A, grace_seconds=10)
        await asyncio.sleep(2.0)
        assert metadata_of(mirror_of(world))["deletionGracePeriodSeconds"] == 10
        world.play(A, "Failed")
        await asyncio.sleep(2.0)
        assert phase_of(hub_pod_of(world)) == "Failed"
        world.kubelets_finish()
        await asyncio.sleep(2.0)
        assert world.hub_pod(A) is None
        sound(world)


@virtual_time
async def test_a_pod_without_a_mirror_is_finished_at_once() -> None:
    """A refused pod has no mirror and no intent: its deletion waits for nobody."""
    world = World()
    async with world.running():
        world.fault_of = refuse("create", forbidden("exceeded quota"))
        world.submit(pod("a"))
        await asyncio.sleep(3.0)
        with world.others():
            world.hub.delete_by_user(PODS, A)
        await asyncio.sleep(1.0)
        assert world.hub_pod(A) is None


@virtual_time
async def test_others_finalizers_cause_no_busy_loop() -> None:
    """A hub pod that waits for somebody's finalizer is let alone, whatever it was."""
    world = World()
    async with world.running():
        world.submit(pod("a").with_finalizers("example.com/theirs"))
        world.submit(pod("b").with_finalizers("example.com/theirs"))
        await asyncio.sleep(2.0)
        world.play(A, "Running")
        await asyncio.sleep(1.0)
        with world.others():
            for name in ("a", "b"):
                world.hub.delete_by_user(PODS, ObjectKey("default", name))
        await asyncio.sleep(2.0)
        world.kubelets_finish()
        await asyncio.sleep(30.0)
        assert metadata_of(hub_pod_of(world))["finalizers"] == ["example.com/theirs"]
        assert phase_of(hub_pod_of(world)) in ("Failed", "Succeeded")
        before = len(world.hub.calls) + len(world.target.calls)
        await asyncio.sleep(60.0)
        assert len(world.hub.calls) + len(world.target.calls) - before < 40
        assert not world.witness.broken


@virtual_time
async def test_a_terminal_hub_pod_stops_its_mirror_and_is_never_rewritten() -> None:
    """The hub's own controllers may fail a pod: the mirror goes, the phase stays."""
    world = World()
    async with world.running():
        await submitted(world, policy="Always")
        with world.others():
            world.hub.edit(PODS, A, lambda p: p["status"].update(phase="Failed"))
        await asyncio.sleep(2.0)
        assert is_terminating(mirror_of(world))
        world.kubelets_finish()
        await asyncio.sleep(5.0)
        assert phase_of(hub_pod_of(world)) == "Failed"
        assert len(calls(world.target, "create")) == 1
        sound(world)


# --- conflicts, fences, lanes ---------------------------------------------------------------------


@pytest.mark.parametrize("number", range(3))
def test_a_conflict_is_answered_by_one_fresh_read(number: int) -> None:
    """Each hub write survives a conflict: read anew, decided anew, written, and nothing is lost."""

    @virtual_time
    async def check() -> None:
        world = World(with_nets=False)
        async with world.running():
            left = [number]

            def conflict(call: Call) -> Fault | None:
                if (call.client, call.verb, call.resource) != ("hub", "patch", PODS):
                    return None
                left[0] -= 1
                return Refuse(Conflict("modified", status=409)) if left[0] == -1 else None

            world.fault_of = conflict
            await submitted(world)
            assert len(calls(world.hub, "get")) == 1
            sound(world)

    check()


@virtual_time
async def test_endless_conflicts_back_off() -> None:
    """A hub that always answers Conflict is not hammered, and no mirror comes without intent."""
    world = World(with_nets=False)
    async with world.running():
        world.fault_of = lambda call: (
            Refuse(Conflict("modified", status=409))
            if (call.client, call.verb, call.resource) == ("hub", "patch", PODS)
            else None
        )
        world.submit(pod("a"))
        await asyncio.sleep(60.0)
        assert not calls(world.target, "create")
        assert len(calls(world.hub, "patch")) < 40
        world.fault_of = None
        await asyncio.sleep(70.0)
        sound(world)


class OldHub(FakeCluster):
    """A hub of an older version: it drops a status field it does not know."""

    def patch(self, *args: object, **kwargs: object) -> JsonDict:
        before = len(self.calls)
        reply = super().patch(*args, **kwargs)  # type: ignore[arg-type]
        if "novelty" in status_of(reply):
            resource, key = args[0], args[1]
            reply = self.edit(resource, key, lambda p: p["status"].pop("novelty"))  # type: ignore[arg-type]
        assert len(self.calls) == before
        return reply


@virtual_time
async def test_a_field_the_hub_drops_is_not_written_for_ever() -> None:
    """The rest of the status arrives; the dropped field is asked for once and then let be."""
    world = World(hub_type=OldHub)
    async with world.running():
        await submitted(world)
        with world.others():
            world.target.edit(
                PODS, world.mirror_key(A), lambda p: p["status"].update(novelty="1", message="m")
            )
        await asyncio.sleep(5.0)
        assert status_of(hub_pod_of(world))["message"] == "m"
        before = len(world.hub.writes())
        await asyncio.sleep(120.0)
        assert len(world.hub.writes()) - before <= 1


@virtual_time
async def test_a_lost_lease_stops_every_write_at_once() -> None:
    """The fence is asked before each write; the process ends, and nothing was written."""
    world = World()
    await world.start()
    await asyncio.sleep(0.5)

    def lost() -> None:
        raise LeadershipLost("not ours")

    world.process.fence = lost
    ended = world.lives.task
    assert ended is not None
    world.submit(pod("a"))
    await asyncio.sleep(0.05)
    assert ended.done()
    assert isinstance(ended.exception(), BaseExceptionGroup)
    assert not world.target.writes()
    assert not world.hub.writes()
    await world.stop()


@virtual_time
async def test_hanging_creates_do_not_hold_up_deletes_or_statuses() -> None:
    """With every sync worker stuck in a create, other pods are deleted and told of as ever."""
    world = World(workers=2)
    async with world.running():
        await submitted(world)
        world.submit(pod("b"))
        await asyncio.sleep(2.0)
        world.fault_of = _hang_creates
        for number in range(8):
            world.submit(pod(f"stuck-{number}"))
        await asyncio.sleep(1.0)
        world.play(A, "Succeeded")
        with world.others():
            world.hub.delete_by_user(PODS, ObjectKey("default", "b"))
        await asyncio.sleep(1.0)
        assert phase_of(hub_pod_of(world)) == "Succeeded"
        assert world.hub_pod(ObjectKey("default", "b")) is None
        world.fault_of = None
        await world.settle()
        sound(world)


@virtual_time
async def test_hanging_creates_of_successors_do_not_hold_up_deletes() -> None:
    """A delete that makes way for a successor hands the successor's create to its own budget."""
    world = World(workers=2)
    async with world.running():
        names = [f"s-{number}" for number in range(6)]
        for name in (*names, "b"):
            world.submit(pod(name))
        await asyncio.sleep(3.0)
        world.fault_of = _hang_creates
        for name in names:  # unscheduled mirrors are gone at once
            with world.others():
                world.hub.delete_by_user(PODS, ObjectKey("default", name), grace_seconds=0)
            world.submit(pod(name))
        await asyncio.sleep(2.0)
        with world.others():
            world.hub.delete_by_user(PODS, ObjectKey("default", "b"))
        await asyncio.sleep(1.0)
        assert world.hub_pod(ObjectKey("default", "b")) is None
        world.fault_of = None
        await world.settle()
        sound(world)


def _hang_creates(call: Call) -> Fault | None:
    hit = call.client == "target" and call.verb == "create" and call.resource == PODS
    return Delay(3600.0) if hit else None


@virtual_time
async def test_keys_are_woken_in_the_lane_of_their_next_step() -> None:
    """New pods go to sync, mirrored ones to status, what ends to delete."""
    world = World()
    async with world.running():
        reconciler = world.process.pods
        await submitted(world)
        assert reconciler.lane_of_key(A) == Lane.STATUS
        assert reconciler.lane_of_key(ObjectKey("default", "new")) == Lane.DELETE
        with world.others():
            world.hub.delete_by_user(PODS, A)
        await asyncio.sleep(1.0)
        assert reconciler.lane_of_key(A) == Lane.DELETE
        assert not reconciler.unsettled_keys()


# --- a create that went unanswered ----------------------------------------------------------------


@virtual_time
async def test_c20_a_mirror_that_vanished_before_its_record_is_made_again() -> None:
    """The reply was lost, the watch is quiet, and the gated mirror goes: it never ran."""
    world = World(with_nets=False)
    async with world.running():
        speak = silence(world)

        def lose_and_vanish(call: Call) -> Fault | None:
            fault = lose(call)
            if fault is not None:
                loop = asyncio.get_running_loop()
                loop.call_soon(loop.call_soon, vanish_in, world)
            return fault

        lose = once("create", LostReply())
        world.fault_of = lose_and_vanish
        world.submit(pod("a").with_restart_policy("Never"))
        await asyncio.sleep(30.0)
        assert len(calls(world.target, "create")) == 2
        speak()
        world.play(A, "Running")
        await asyncio.sleep(30.0)
        assert [len(runs) for runs in world.witness.runs.values()] == [1]
        assert phase_of(hub_pod_of(world)) == "Running"
        sound(world)


@virtual_time
@pytest.mark.parametrize("policy", ["Never", "Always"])
async def test_c20_a_create_that_was_lost_is_sent_again(policy: str) -> None:
    """At the queue's pace, without waiting for the watch: a second one could not run."""
    world = World(with_nets=False)
    async with world.running():
        world.fault_of = once("create", LostRequest())
        world.submit(pod("a").with_restart_policy(policy))
        await asyncio.sleep(10.0)
        assert len(calls(world.target, "create")) == 2
        assert world.witness.mirrors_made == {uid_of(hub_pod_of(world)): 1}
        world.play(A, "Running")
        await asyncio.sleep(1.0)
        sound(world)


@virtual_time
async def test_c70_a_create_that_arrives_after_the_pods_life_starts_nothing() -> None:
    """The mirror ran and is gone; a late copy of its create makes one that never runs."""
    world = World(with_nets=False)
    async with world.running():
        await submitted(world)
        body = calls(world.target, "create")[0].body
        assert body is not None
        vanish_in(world)
        await asyncio.sleep(5.0)
        assert status_of(hub_pod_of(world))["reason"] == "MirrorLost"
        late = world.target.create(PODS, body, world.mirror_key(A))
        assert is_gated(late)
        await asyncio.sleep(5.0)
        assert world.mirror(A) is None
        assert [len(runs) for runs in world.witness.runs.values()] == [1]


@virtual_time
async def test_c70_a_gate_is_lifted_only_from_the_mirror_on_record() -> None:
    """Between record and gate the mirror is replaced: the patch names the uid, and is refused."""
    world = World(with_nets=False)

    def replace_it(call: Call) -> Fault | None:
        if (call.client, call.verb, call.resource) == ("target", "patch", PODS):
            world.fault_of = None
            body = calls(world.target, "create")[0].body
            assert body is not None
            with world.others():
                world.target.store.remove(PODS, world.mirror_key(A))
                world.target.create(PODS, body, world.mirror_key(A))
        return None

    async with world.running():
        world.fault_of = replace_it
        world.submit(pod("a").with_restart_policy("Never"))
        await asyncio.sleep(10.0)
        assert world.mirror(A) is None
        assert status_of(hub_pod_of(world))["reason"] == "MirrorLost"
        assert not any(world.witness.runs.values())


@virtual_time
async def test_c4_a_target_that_drops_a_security_field_runs_nothing() -> None:
    """The mirror is removed while it is gated, the hub pod says why, and it is not made again."""
    world = World()

    def drop(call: Call) -> Fault | None:
        if (call.client, call.verb, call.resource) == ("target", "create", PODS):
            assert call.body is not None
            del call.body["spec"]["hostUsers"]  # the server gets this very body
        return None

    async with world.running():
        world.fault_of = drop
        world.submit(pod("a").with_spec(hostUsers=False))
        await asyncio.sleep(300.0)
        assert waits_for(world) == "MirrorWeakened"
        assert "hostUsers" in status_of(hub_pod_of(world))["message"]
        assert world.mirror(A) is None
        assert len(calls(world.target, "create")) == 1
        assert not any(world.witness.runs.values())
        world.fault_of = None
        world.kill()
        await asyncio.sleep(30.0)
        assert not is_gated(mirror_of(world))
        sound(world)


@virtual_time
async def test_c26_a_weakened_pod_stays_pending_where_gates_are_dropped_too() -> None:
    """Its removal is our own doing: Failed would have a ReplicaSet replace it without a pause."""
    world = World()

    def drop(call: Call) -> Fault | None:
        if (call.client, call.verb, call.resource) == ("target", "create", PODS):
            assert call.body is not None
            for field in ("hostUsers", "schedulingGates"):
                del call.body["spec"][field]
        return None

    async with world.running():
        world.fault_of = drop
        world.submit(pod("a").with_spec(hostUsers=False))
        await asyncio.sleep(300.0)
        assert phase_of(hub_pod_of(world)) == "Pending"
        assert waits_for(world) == "MirrorWeakened"
        assert len(calls(world.target, "create")) == 1


@virtual_time
async def test_c4_a_target_that_drops_another_field_is_told_of() -> None:
    """The pod runs without it, and says so: once."""
    world = World()

    def drop(call: Call) -> Fault | None:
        if (call.client, call.verb, call.resource) == ("target", "create", PODS):
            assert call.body is not None
            del call.body["spec"]["hostname"]
        return None

    async with world.running():
        world.fault_of = drop
        await submitted(world)
        await asyncio.sleep(60.0)
        told = condition_of(hub_pod_of(world), FIELDS_DROPPED)
        assert told is not None
        assert "hostname" in told["message"]
        assert world.process.events.reasons == ["FieldsDropped"]
        sound(world)


@virtual_time
async def test_c20_an_intent_whose_reply_was_lost_is_our_own() -> None:
    """The hub took the intent and did not say so: however late, the Never pod is made, not lost."""
    world = World(with_nets=False)
    async with world.running():
        lose = once("patch", LostReply(), client="hub")

        def lose_and_go_away(call: Call) -> Fault | None:
            fault = lose(call)
            if fault is not None:
                world.target_reachable = False
            return fault

        world.fault_of = lose_and_go_away
        world.submit(pod("a").with_restart_policy("Never"))
        await asyncio.sleep(60.0)
        assert record_of(hub_pod_of(world)) is not None
        assert waits_for(world) == "TargetUnreachable"
        world.heal()
        await asyncio.sleep(40.0)
        assert len(calls(world.target, "create")) == 1
        assert "MirrorLost" not in world.process.events.reasons
        assert phase_of(hub_pod_of(world)) == "Pending"
        sound(world)


@virtual_time
async def test_c20_ground_that_cannot_be_made_voids_no_intent() -> None:
    """What the namespace was refused with says nothing of a create that may be under way."""
    world = World(with_nets=False)
    intent = f'{{"podUID":"uid-a","namespace":"{TARGET_NAMESPACE}","name":"a","intendedAt":"%s"}}'
    marked = pod("a").bound_to("edge").with_annotations({RECORD_ANNOTATION: intent % "2026"})
    with world.others():
        world.hub.add(PODS, marked.build())
    world.fault_of = lambda call: (
        Refuse(forbidden("no")) if (call.verb, call.resource) == ("create", NAMESPACES) else None
    )
    async with world.running():
        await asyncio.sleep(5.0)
        assert waits_for(world) == "Forbidden"
        assert record_of(hub_pod_of(world)) is not None


# --- marks that somebody removes ------------------------------------------------------------------


@virtual_time
async def test_c43_a_mirror_that_lost_its_marks_keeps_its_hub_pod() -> None:
    """It still runs: the hub pod stays Running and says MarksRemoved, and follows its end."""
    world = World()
    async with world.running():
        await submitted(world)
        unmark(world)
        await asyncio.sleep(120.0)
        assert phase_of(hub_pod_of(world)) == "Running"
        assert not is_terminating(hub_pod_of(world))
        assert "MarksRemoved" in world.process.events.reasons
        assert not calls(world.target, "delete")
        vanish_in(world)
        await asyncio.sleep(420.0)  # nothing tells of it: the slowest pace, with its jitter
        assert phase_of(hub_pod_of(world)) == "Failed"
        assert len(calls(world.target, "create")) == 1
        sound(world)


@virtual_time
async def test_c50_a_terminating_hub_pod_outlives_its_unmarked_mirror() -> None:
    """Its containers may run: only a person may end them, and then the hub pod goes."""
    world = World()
    async with world.running():
        await submitted(world)
        unmark(world)
        await asyncio.sleep(5.0)
        with world.others():
            world.hub.delete_by_user(PODS, A, grace_seconds=10)
        await asyncio.sleep(120.0)
        assert is_terminating(hub_pod_of(world))
        assert "MarksRemoved" in world.process.events.reasons
        assert not calls(world.target, "delete")
        vanish_in(world)
        await asyncio.sleep(420.0)
        assert world.hub_pod(A) is None
        assert not world.witness.broken


@pytest.mark.parametrize("where", ["labels", "annotations"])
def test_c43_marks_of_either_kind_make_a_mirror(where: str) -> None:
    """One label that nothing selects by, or the annotations: without it nobody can be sure."""

    @virtual_time
    async def check() -> None:
        world = World()
        async with world.running():
            await submitted(world)
            taken = (
                {HUB_POD_UID_LABEL} if where == "labels" else set(annotations_of(mirror_of(world)))
            )

            def take_off(found: JsonDict) -> None:
                for name in taken:
                    del found["metadata"][where][name]

            with world.others():
                world.target.edit(PODS, world.mirror_key(A), take_off)
            await asyncio.sleep(60.0)
            assert phase_of(hub_pod_of(world)) == "Running"
            assert "MarksRemoved" in world.process.events.reasons
            assert not world.witness.broken
            before = len(world.hub.calls) + len(world.target.calls)
            await asyncio.sleep(60.0)
            assert len(world.hub.calls) + len(world.target.calls) - before < 100
            with world.others():
                world.hub.delete_by_user(PODS, A, grace_seconds=10)
            await asyncio.sleep(60.0)
            assert is_terminating(hub_pod_of(world))

    check()


@virtual_time
@pytest.mark.parametrize("policy", ["Never", "Always"])
async def test_c51_a_pod_whose_marks_the_target_strips_is_taken_back(policy: str) -> None:
    """Nobody could find it again: it goes under the uid of the reply, and the hub pod says why."""
    world = World()
    made: list[str] = []

    def strip(call: Call) -> Fault | None:
        if (call.client, call.verb, call.resource) == ("target", "create", PODS):
            assert call.body is not None
            del call.body["metadata"]["labels"]  # the server gets this very body
        if (call.client, call.verb, call.resource) == ("target", "delete", PODS):
            made.append(uid_of(mirror_of(world)))
        return None

    async with world.running():
        world.fault_of = strip
        world.submit(pod("a").with_restart_policy(policy))
        await asyncio.sleep(5.0)
        assert world.mirror(A) is None
        assert made
        named = [(c.body or {})["preconditions"]["uid"] for c in calls(world.target, "delete")]
        assert named == made
        assert waits_for(world) == "MarksRemoved"
        assert "MarksRemoved" in world.process.events.reasons
        await asyncio.sleep(120.0)
        assert 2 <= len(calls(world.target, "create")) <= 7
        world.fault_of = None
        await asyncio.sleep(420.0)
        assert not waits_for(world)
        assert not world.differences()


@virtual_time
async def test_c51_taking_back_a_stripped_pod_is_tried_until_it_is_gone() -> None:
    """One lost request does not leave a pod running that nobody knows of."""
    world = World()
    lose = once("delete", LostRequest())

    def strip(call: Call) -> Fault | None:
        if (call.client, call.verb, call.resource) == ("target", "create", PODS):
            assert call.body is not None
            call.body["metadata"].pop("labels", None)
        return lose(call)

    async with world.running():
        world.fault_of = strip
        world.submit(pod("a"))
        await asyncio.sleep(600.0)
        first = (calls(world.target, "delete")[0].body or {})["preconditions"]["uid"]
        found = world.mirror(A)
        assert found is None or uid_of(found) != first


@virtual_time
async def test_c43_marks_removed_before_the_record_are_no_loss() -> None:
    """A controller strips labels right after a create whose reply was lost: the pod still runs."""
    world = World()
    lose = once("create", LostReply())

    def lose_and_strip(call: Call) -> Fault | None:
        fault = lose(call)
        if fault is not None:
            asyncio.get_running_loop().call_soon(
                asyncio.get_running_loop().call_soon, unmark, world
            )
        return fault

    async with world.running():
        world.fault_of = lose_and_strip
        world.submit(pod("a").with_restart_policy("Never"))
        await asyncio.sleep(60.0)
        assert world.mirror(A) is not None
        assert "MirrorLost" not in world.process.events.reasons
        assert phase_of(hub_pod_of(world)) != "Failed"


# --- whose word is the last -----------------------------------------------------------------------


@virtual_time
async def test_c43_the_reply_of_a_delete_outranks_the_store() -> None:
    """The mirror had succeeded unseen: its hub pod did too, whatever the watch had told."""
    world = World(with_nets=False)
    async with world.running():
        world.submit(pod("a").with_restart_policy("Never").with_finalizers("example.com/theirs"))
        await asyncio.sleep(2.0)
        world.play(A, "Running")
        await asyncio.sleep(1.0)
        speak = silence(world)
        world.play(A, "Succeeded")
        with world.others():
            world.hub.delete_by_user(PODS, A)
        await asyncio.sleep(5.0)
        assert world.mirror(A) is None
        assert phase_of(hub_pod_of(world)) == "Succeeded"
        speak()
        await asyncio.sleep(5.0)
        assert phase_of(hub_pod_of(world)) == "Succeeded"
        assert not world.witness.broken


@virtual_time
async def test_c20_the_end_of_a_second_mirror_is_not_the_hub_pods() -> None:
    """Only the mirror on record speaks for its hub pod, even after that is gone."""
    world = World(with_nets=False)
    elsewhere = ObjectKey("elsewhere", "a")
    async with world.running():
        await submitted(world)
        second = mirror_of(world)
        second["metadata"].update(namespace="elsewhere", uid="second")
        second["status"]["phase"] = "Succeeded"
        with world.others():
            world.target.add(PODS, second)
            world.target.store.remove(PODS, elsewhere)
        await asyncio.sleep(5.0)
        assert phase_of(hub_pod_of(world)) == "Running"
        with world.others():
            world.target.add(PODS, second)
            vanish_in(world)
            world.target.store.remove(PODS, elsewhere)
        await asyncio.sleep(5.0)
        assert status_of(hub_pod_of(world))["reason"] == "MirrorLost"


@virtual_time
async def test_a_label_the_target_undoes_at_once_is_not_written_for_ever() -> None:
    """An admission that drops our change is asked once for each change, not in a loop."""
    world = World()

    def undo(call: Call) -> Fault | None:
        if (call.client, call.verb, call.resource) == ("target", "patch", PODS):
            assert call.body is not None
            call.body["metadata"].pop("labels", None)
        return None

    async with world.running():
        await submitted(world)
        world.fault_of = undo
        before = len(calls(world.target, "patch"))
        with world.others():
            world.hub.edit(PODS, A, lambda p: p["metadata"].update(labels={"app": "web"}))
        await asyncio.sleep(120.0)
        assert 1 <= len(calls(world.target, "patch")) - before <= 2
        world.fault_of = None
        with world.others():
            world.hub.edit(PODS, A, lambda p: p["metadata"].update(labels={"app": "db"}))
        await asyncio.sleep(5.0)
        assert labels_of(mirror_of(world))["app"] == "db"
        sound(world)


@virtual_time
async def test_c23_a_target_namespace_that_is_deleted_is_an_uninstall() -> None:
    """Pods may go before the anchor does: hub pods stay as they are, and no new one starts."""
    world = World()
    async with world.running():
        await submitted(world)
        with world.others():
            world.target.delete_by_user(NAMESPACES, ObjectKey("", TARGET_NAMESPACE))
            world.target.delete_by_user(PODS, world.mirror_key(A))
        await asyncio.sleep(5.0)
        world.kubelets_finish()
        await asyncio.sleep(5.0)
        assert world.target.find(CONFIGMAPS, ANCHOR) is not None
        assert phase_of(hub_pod_of(world)) == "Running"
        assert not is_terminating(hub_pod_of(world))
        with world.others():
            world.target.finish_namespace(TARGET_NAMESPACE)
        world.submit(pod("b"))
        await asyncio.sleep(30.0)
        assert phase_of(hub_pod_of(world)) == "Running"
        assert waits_for(world, ObjectKey("default", "b")) == "Uninstalled"
        assert not calls(world.target, "create", "b")


# --- which hub is this ----------------------------------------------------------------------------


async def elsewhere_now() -> None:
    """The hub's client speaks to another cluster."""
    raise LeadershipLost("the hub is another cluster")


@pytest.mark.parametrize("confirm", [agreed, elsewhere_now])
def test_c51_an_orphan_goes_only_if_it_is_still_the_same_hub(
    confirm: Callable[[], Awaitable[None]],
) -> None:
    """The hub's NotFound counts for nothing where the hub is another cluster now."""

    @virtual_time
    async def check() -> None:
        world = World(with_nets=False)
        async with world.running():
            await submitted(world)
        process = world.process
        with world.others():
            world.hub.store.remove(PODS, A)
        process.hub_pods.replace([])
        ports = replace(process.pods._ports, confirm_hub=confirm)
        reconciler = PodReconciler(scope=SCOPE, rules=RULES, ports=ports)
        if confirm is agreed:
            await reconciler.reconcile(A, Lane.DELETE)
        else:
            with pytest.raises(LeadershipLost):
                await reconciler.reconcile(A, Lane.DELETE)
        assert calls(world.hub, "get")
        assert is_terminating(mirror_of(world)) is (confirm is agreed)

    check()
