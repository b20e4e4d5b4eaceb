"""Whatever users, targets and the network do: nothing forbidden happens, and it comes to rest.

Random acts and faults meet the real reconciler between two clusters in memory, in virtual time. A
witness judges every single change; at the end, without faults, desired is actual and all is quiet.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import dataclass

import pytest
import structlog
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from federate.errors import Conflict, ServerFault, Throttled
from federate.model.objects import JsonDict, ObjectKey, condition_of
from federate.model.pods import is_terminal
from federate.model.resources import PODS
from tests.support.builders import pod
from tests.support.clock import VirtualLoop
from tests.support.fakeclient import (
    CrashAfter,
    CrashBefore,
    Delay,
    Fault,
    LostReply,
    LostRequest,
    Refuse,
)
from tests.support.worlds import TARGET_NAMESPACE, Late, World

EXAMPLES = int(os.environ.get("FEDERATE_LAW_EXAMPLES", "60"))


@pytest.fixture(autouse=True, scope="module")
def quiet_logs() -> Iterator[None]:
    """Thousands of lives would write millions of lines."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()


LAW = settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True
)
NAMES = ("a", "b")


@dataclass(frozen=True, slots=True)
class Act:
    """One thing that happens: `what` to the pod `name`, with a detail where it needs one."""

    what: str
    name: str = "a"
    detail: str = ""
    number: int = 0


# --- what may happen ------------------------------------------------------------------------------


def hub_create(world: World, act: Act) -> None:
    world.submit(pod(act.name).with_restart_policy(act.detail).with_labels({"v": "1"}))


def hub_delete(world: World, act: Act) -> None:
    key = ObjectKey("default", act.name)
    found = world.hub_pod(key)
    if found is None:
        return
    with world.others():
        world.hub.delete_by_user(PODS, key, grace_seconds=act.number)


def hub_relabel(world: World, act: Act) -> None:
    key = ObjectKey("default", act.name)
    if world.hub_pod(key) is None:
        return

    def relabel(found: JsonDict) -> None:
        found["metadata"]["labels"] = {"v": str(act.number)}

    with world.others():
        world.hub.edit(PODS, key, relabel)


def play(world: World, act: Act) -> None:
    world.play(ObjectKey("default", act.name), act.detail)


def target_delete(world: World, act: Act) -> None:
    """An admin deletes what has the mirror's name; number 0 is by force."""
    key = world.mirror_key(ObjectKey("default", act.name))
    if world.target.find(PODS, key) is None:
        return
    with world.others():
        world.target.delete_by_user(PODS, key, grace_seconds=act.number)


def target_vanish(world: World, act: Act) -> None:
    """The mirror is gone without a deletion, as when a target is restored from a backup."""
    key = world.mirror_key(ObjectKey("default", act.name))
    if world.target.find(PODS, key) is not None:
        with world.others():
            world.target.store.remove(PODS, key)


def hub_fail(world: World, act: Act) -> None:
    """A controller of the hub fails a pod that still runs (pod GC does)."""
    key = ObjectKey("default", act.name)
    mirror = world.mirror(key)
    if world.hub_pod(key) is None or mirror is None or is_terminal(mirror):
        return
    with world.others():
        world.hub.edit(PODS, key, lambda found: found["status"].update(phase="Failed"))


def target_evict(world: World, act: Act) -> None:
    key = world.mirror_key(ObjectKey("default", act.name))
    if world.target.find(PODS, key) is None:
        return

    def mark(found: JsonDict) -> None:
        others = [
            c for c in found["status"].get("conditions", []) if c["type"] != "DisruptionTarget"
        ]
        told = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "EvictionByEvictionAPI",
            "lastTransitionTime": world.target.now(),
        }
        found["status"]["conditions"] = [*others, told]

    with world.others():
        world.target.edit(PODS, key, mark)
        world.target.delete_by_user(PODS, key, grace_seconds=30)


def target_finish(world: World, act: Act) -> None:
    world.kubelets_finish()


def target_foreign(world: World, act: Act) -> None:
    """Somebody runs a pod of their own under the mirror's name."""
    key = world.mirror_key(ObjectKey("default", act.name))
    with world.others():
        if world.target.find(PODS, key) is None:
            foreign = pod(act.name, namespace=TARGET_NAMESPACE).with_uid(f"foreign-{act.name}")
            world.target.add(PODS, foreign.bound_to("worker").running().build())


def fault(world: World, act: Act) -> None:
    cluster = "hub" if act.name == "a" else "target"
    world.plan_fault(cluster, FAULTS[act.detail], after=act.number)


def watches(world: World, act: Act) -> None:
    cluster = world.hub if act.name == "a" else world.target
    match act.detail:
        case "close":
            cluster.close_watches()
        case "break":
            cluster.break_watches()
        case "compact":
            cluster.break_watches()
            cluster.compact()
        case "bookmark":
            cluster.bookmark()
        case "lose":  # a silent watch: what was not read yet never arrives
            for watching in cluster.store.watches:
                while not watching.messages.empty():
                    watching.messages.get_nowait()
        case "double":
            for watching in cluster.store.watches:
                last = [watching.messages.get_nowait() for _ in range(watching.messages.qsize())]
                for message in last + last[-1:]:
                    watching.messages.put_nowait(message)
        case "lag":
            cluster.cache_lag = 2


def outage(world: World, act: Act) -> None:
    cluster = world.hub if act.name == "a" else world.target
    if cluster.is_down:
        cluster.come_up()
        world.target_reachable = not world.target.is_down
        world.process.wake_all()
    else:
        cluster.go_down()
        world.target_reachable = not world.target.is_down


def kill(world: World, act: Act) -> None:
    world.kill()


FAULTS: dict[str, Fault | Late] = {
    "lost request": LostRequest(),
    "lost reply": LostReply(),
    "conflict": Refuse(Conflict("modified", reason="Conflict", status=409)),
    "fault": Refuse(ServerFault("etcd", reason="InternalError", status=500)),
    "throttled": Refuse(Throttled("wait", reason="TooManyRequests", status=429)),
    "crash before": CrashBefore(),
    "crash after": CrashAfter(),
    "delay": Delay(3.0),
    "hang": Delay(3600.0),
    "late": Late(2.0),
    "very late": Late(20.0),
}
ACTS = {
    f.__name__: f
    for f in (
        hub_create,
        hub_delete,
        hub_relabel,
        play,
        target_delete,
        target_evict,
        target_vanish,
        hub_fail,
        target_finish,
        target_foreign,
        fault,
        watches,
        outage,
        kill,
    )
}
NAME = st.sampled_from(NAMES)
PAUSE = st.sampled_from([0.0, 0.0, 0.0, 0.02, 0.3, 2.0, 12.0, 45.0])


def acts() -> st.SearchStrategy[Act]:
    policy = st.sampled_from(["Never", "Never", "Always", "OnFailure"])
    fault_name = st.sampled_from(sorted(FAULTS))
    return st.one_of(
        st.builds(Act, st.just("hub_create"), NAME, policy),
        st.builds(Act, st.just("hub_create"), NAME, policy),
        st.builds(Act, st.just("hub_delete"), NAME, number=st.sampled_from([0, 1, 30])),
        st.builds(Act, st.just("hub_relabel"), NAME, number=st.integers(1, 3)),
        st.builds(
            Act,
            st.just("play"),
            NAME,
            st.sampled_from(["Running", "Running", "Succeeded", "Failed"]),
        ),
        st.builds(Act, st.just("target_delete"), NAME, number=st.sampled_from([0, 5, 30])),
        st.builds(Act, st.just("target_evict"), NAME),
        st.builds(Act, st.just("target_vanish"), NAME),
        st.builds(Act, st.just("hub_fail"), NAME),
        st.builds(Act, st.just("target_finish")),
        st.builds(Act, st.just("target_foreign"), NAME),
        st.builds(Act, st.just("fault"), NAME, fault_name, st.integers(0, 4)),
        st.builds(Act, st.just("fault"), NAME, fault_name, st.integers(0, 4)),
        st.builds(
            Act,
            st.just("watches"),
            NAME,
            st.sampled_from(["close", "break", "compact", "bookmark", "lose", "double", "lag"]),
        ),
        st.builds(Act, st.just("outage"), NAME),
        st.builds(Act, st.just("kill")),
    )


def run(main: Coroutine[None, None, None]) -> None:
    """Run in virtual time; asyncio's debug mode would take four times as long."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main)


async def live(history: Sequence[tuple[Act, float]], *, with_nets: bool = True) -> None:
    """Live through the history, then come to rest; assert what must hold."""
    world = World(with_nets=with_nets)
    await world.start()
    try:
        await asyncio.sleep(1.0)
        for act, pause in history:
            ACTS[act.what](world, act)
            await asyncio.sleep(pause)
            assert not world.witness.broken, world.witness.broken
        await world.settle()
        assert not world.witness.broken, world.witness.broken
        differences = world.differences()
        assert not differences, differences
        await assert_quiet(world)
    finally:
        await world.stop()


async def assert_quiet(world: World) -> None:
    """A further minute changes nothing; a taken name is looked at again, slowly."""
    waits_for_name = any(
        (condition_of(found, "Ready") or {}).get("reason") == "NameTaken"
        for resource, found in world.hub.store.all()
        if resource == PODS
    )
    before = len(world.hub.writes()) + len(world.target.writes())
    calls = len(world.hub.calls) + len(world.target.calls)
    await asyncio.sleep(60.0)
    written = len(world.hub.writes()) + len(world.target.writes()) - before
    called = len(world.hub.calls) + len(world.target.calls) - calls
    assert written <= (3 * 2 * len(NAMES) if waits_for_name else 0), world.hub.writes()[-10:]
    assert called <= 60, "a busy loop"
    assert not world.witness.broken, world.witness.broken


# --- the laws -------------------------------------------------------------------------------------


@LAW
@given(st.lists(st.tuples(acts(), PAUSE), min_size=2, max_size=14))
def test_any_history_is_lawful_and_comes_to_rest(history: list[tuple[Act, float]]) -> None:
    """Random users, targets, faults and crashes break no promise, and desired becomes actual."""
    note("\n".join(f"{act} {pause}" for act, pause in history))
    run(live([(Act("hub_create", "a", "Never"), 0.3), *history]))


ROADS: dict[str, list[tuple[Act, float]]] = {
    "a job runs and is deleted": [
        (Act("hub_create", "a", "Never"), 2.0),
        (Act("play", "a", "Running"), 1.0),
        (Act("play", "a", "Succeeded"), 1.0),
        (Act("hub_delete", "a", number=30), 1.0),
    ],
    "a server is deleted": [
        (Act("hub_create", "a", "Always"), 2.0),
        (Act("play", "a", "Running"), 1.0),
        (Act("hub_relabel", "a", number=2), 1.0),
        (Act("hub_delete", "a", number=30), 2.0),
        (Act("target_finish"), 2.0),
    ],
    "a drain in the target": [
        (Act("hub_create", "a", "Never"), 2.0),
        (Act("play", "a", "Running"), 1.0),
        (Act("target_evict", "a"), 2.0),
        (Act("target_finish"), 2.0),
    ],
    "a successor of the same name": [
        (Act("hub_create", "a", "Always"), 2.0),
        (Act("play", "a", "Running"), 1.0),
        (Act("hub_delete", "a", number=0), 0.0),
        (Act("hub_create", "a", "Always"), 3.0),
        (Act("target_finish"), 2.0),
    ],
}


@pytest.mark.parametrize("road", ROADS)
@pytest.mark.parametrize("cluster", ["hub", "target"])
@pytest.mark.parametrize(
    "kind",
    ["crash before", "crash after", "late", "lost request", "lost reply", "conflict", "fault"],
)
def test_a_fault_at_every_call_of_a_road(road: str, cluster: str, kind: str) -> None:
    """Each of the usual roads survives each fault at each of its calls."""
    for number in range(7):
        place = Act("fault", "a" if cluster == "hub" else "b", kind, number)
        run(live([(place, 0.0), *ROADS[road]]))


EXAMPLES_FOUND: dict[str, list[tuple[Act, float]]] = {
    "a whole run between two processes": [
        (Act("fault", "b", "crash after", 4), 0.0),  # the create of the mirror
        (Act("hub_create", "a", "Never"), 0.05),
        (Act("outage", "a"), 1.0),
        (Act("play", "a", "Running"), 1.0),
        (Act("target_vanish", "a"), 45.0),
        (Act("outage", "a"), 40.0),
        (Act("play", "a", "Running"), 1.0),
    ],
    "a mirror vanishes after its end": [
        (Act("hub_create", "a", "Never"), 2.0),
        (Act("play", "a", "Running"), 1.0),
        (Act("play", "a", "Succeeded"), 1.0),
        (Act("target_vanish", "a"), 5.0),
        (Act("kill"), 5.0),
    ],
    "a server's mirror vanishes": [
        (Act("hub_create", "a", "Always"), 2.0),
        (Act("play", "a", "Running"), 1.0),
        (Act("target_vanish", "a"), 5.0),
    ],
    "a hub controller fails a pod": [
        (Act("hub_create", "a", "Always"), 2.0),
        (Act("play", "a", "Running"), 1.0),
        (Act("hub_fail", "a"), 1.0),
        (Act("play", "a", "Running"), 1.0),
    ],
    "a new process lists while the target hangs": [
        (Act("hub_create", "a", "Never"), 0.3),
        (Act("outage", "a"), 12.0),
        (Act("hub_delete", "a", number=0), 0.0),
        (Act("fault", "b", "hang"), 0.0),
        (Act("kill"), 0.3),
    ],
}


@pytest.mark.parametrize("name", EXAMPLES_FOUND)
def test_a_history_that_once_went_wrong(name: str) -> None:
    """What a search or a broken variant of federate was caught by stays found."""
    run(live(EXAMPLES_FOUND[name]))


@pytest.mark.parametrize("road", ROADS)
def test_without_the_nets(road: str) -> None:
    """The usual roads need neither comparisons nor the sweeper."""
    run(live(ROADS[road], with_nets=False))
