"""Histories of two clusters: acts of users, admins, controllers, networks and federate's own end.

A history is a list of acts with pauses. `live` lives through one and asserts what must hold at
every step and at rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from federate.errors import (
    ClusterError,
    Conflict,
    Expired,
    Forbidden,
    ServerFault,
    Throttled,
    Unauthorized,
)
from federate.model.marks import (
    HUB_LABEL,
    HUB_POD_NAME_ANNOTATION,
    HUB_POD_UID_LABEL,
    NODE_NAME_ANNOTATION,
    RECORD_ANNOTATION,
    VIRTUAL_NODE_LABEL,
    origin_of,
)
from federate.model.objects import JsonDict, ObjectKey, condition_of, is_terminating
from federate.model.pods import is_terminal
from federate.model.resources import CONFIGMAPS, NAMESPACES, PODS
from federate.patch.document import STRATEGIC, PatchBody
from tests.support.builders import pod
from tests.support.clock import VirtualLoop
from tests.support.fakeclient import (
    CrashAfter,
    CrashBefore,
    Delay,
    Freeze,
    LostReply,
    LostRequest,
    Refuse,
    RefuseAfter,
)
from tests.support.process import Zombie
from tests.support.scene import ANCHOR, TARGET_NAMESPACE
from tests.support.worlds import Late, Planned, Stop, World

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


def hub_update(world: World, act: Act) -> None:
    """A user changes what may change in a pod: `image`, `toleration` or `debug`."""
    key = ObjectKey("default", act.name)
    found = world.hub_pod(key)
    if found is None:
        return
    number = world.next_update()
    spec: JsonDict = {"containers": [{"name": "main", "image": f"app:{number}"}]}
    subresource = ""
    if act.detail == "toleration":
        new = {"key": f"t{number}", "operator": "Exists"}
        spec = {"tolerations": [*found["spec"].get("tolerations", []), new]}
    if act.detail == "debug":
        spec = {"ephemeralContainers": [{"name": f"debug-{number}", "image": "busybox"}]}
        subresource = "ephemeralcontainers"
    with world.others():
        patch = PatchBody(media_type=STRATEGIC, body={"spec": spec})
        world.hub.patch(PODS, key, patch, subresource=subresource)


def target_mutates(world: World, act: Act) -> None:
    """Admission, or somebody, in the target puts another image into a mirror."""
    key = world.mirror_key(ObjectKey("default", act.name))
    mirror = world.target.find(PODS, key)
    if mirror is None or origin_of(mirror) is None:
        return
    image = mirror["spec"]["containers"][0]["image"].rsplit("/", 1)[-1]
    spec = {"containers": [{"name": "main", "image": f"cache.example/{image}"}]}
    with world.others():
        world.target.patch(PODS, key, PatchBody(media_type=STRATEGIC, body={"spec": spec}))


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


def hub_not_ready(world: World, act: Act) -> None:
    """The node controller lost sight of the node for a while."""
    key = ObjectKey("default", act.name)
    found = world.hub_pod(key)
    if found is None or is_terminal(found) or condition_of(found, "Ready") is None:
        return

    def mark(hub_pod: JsonDict) -> None:
        for condition in hub_pod["status"]["conditions"]:
            if condition["type"] == "Ready":
                condition.update(status="False", reason="NodeNotReady")

    with world.others():
        world.hub.edit(PODS, key, mark)


def hub_forget(world: World, act: Act) -> None:
    """Somebody takes the record off a hub pod."""
    key = ObjectKey("default", act.name)
    if world.hub_pod(key) is None:
        return
    with world.others():
        world.hub.edit(
            PODS, key, lambda p: p["metadata"].get("annotations", {}).pop(RECORD_ANNOTATION, None)
        )
    world.witness.hub_forgot()


def target_unmark(world: World, act: Act) -> None:
    """An admin takes one of our marks off a mirror."""
    key = world.mirror_key(ObjectKey("default", act.name))
    mirror = world.target.find(PODS, key)
    if mirror is None or origin_of(mirror) is None:
        return
    kind = "annotations" if act.detail in mirror["metadata"]["annotations"] else "labels"
    world.witness.unmarked(mirror)
    with world.others():
        world.target.edit(PODS, key, lambda p: p["metadata"][kind].pop(act.detail))


def target_uninstall(world: World, act: Act) -> None:
    """An admin deletes the anchor; the garbage collector does the rest (`controllers`)."""
    with world.others():
        if world.target.find(CONFIGMAPS, ANCHOR) is not None:
            world.target.delete_by_user(CONFIGMAPS, ANCHOR)


def namespace_goes(world: World, act: Act) -> None:
    """Somebody deletes the namespace, here or there; `controllers` empty it."""
    cluster, name = (world.hub, "default") if act.name == "a" else (world.target, TARGET_NAMESPACE)
    key = ObjectKey("", name)
    found = cluster.find(NAMESPACES, key)
    if found is not None and not is_terminating(found):
        with world.others():
            cluster.delete_by_user(NAMESPACES, key)


def controllers(world: World, act: Act) -> None:
    world.controllers_act()


def back_up(world: World, act: Act) -> None:
    world.back_up("hub" if act.name == "a" else "target")


def restore(world: World, act: Act) -> None:
    world.restore("hub" if act.name == "a" else "target")


def fault(world: World, act: Act) -> None:
    cluster = "hub" if act.name == "a" else "target"
    world.plan_fault(cluster, FAULTS[act.detail], after=act.number)


def watches(world: World, act: Act) -> None:
    """What happens to the watches, and to reads that may be stale."""
    world.witness.sees_sharply = False
    cluster = world.hub if act.name == "a" else world.target
    match act.detail:
        case "stall":
            cluster.stall()
        case "catch up":
            cluster.catch_up()
        case "swallow":
            cluster.swallows = 2
        case "slow":
            world.slow_down(0.2)
        case "tell twice":
            cluster.doubles = 3
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


def _status(kind: type[ClusterError], status: int, reason: str) -> ClusterError:
    return kind("no", reason=reason, status=status)


FAULTS: dict[str, Planned] = {
    "lost request": LostRequest(),
    "lost reply": LostReply(),
    "conflict": Refuse(_status(Conflict, 409, "Conflict")),
    "fault": Refuse(_status(ServerFault, 500, "InternalError")),
    "fault after": RefuseAfter(_status(ServerFault, 504, "Timeout")),
    "throttled": Refuse(_status(Throttled, 429, "TooManyRequests")),
    "gone": Refuse(_status(Expired, 410, "Expired")),
    "forbidden": Refuse(_status(Forbidden, 403, "Forbidden")),
    "unauthorized": Refuse(_status(Unauthorized, 401, "Unauthorized")),
    "crash before": CrashBefore(),
    "crash after": CrashAfter(),
    "delay": Delay(3.0),
    "hang": Delay(3600.0),
    "late": Late(2.0),
    "very late": Late(20.0),
    "stop": Stop(Freeze(), Zombie()),
    "stop on the way": Stop(Freeze(arrives_after=18.0), Zombie()),
    "stop after": Stop(Freeze(arrives_after=0.0), Zombie(thaws_after=40.0)),
    "stop unnoticed": Stop(Freeze(), Zombie(blind_for=10.0)),
    "stop on the way unnoticed": Stop(Freeze(arrives_after=18.0), Zombie(blind_for=10.0)),
    "stop after unnoticed": Stop(Freeze(arrives_after=0.0), Zombie(blind_for=10.0)),
}
"""What a request to either cluster may meet; after a stop, another process leads (C70)."""
STOPS = tuple(name for name in FAULTS if name.startswith("stop"))
MARKS = (
    HUB_LABEL,
    VIRTUAL_NODE_LABEL,
    HUB_POD_UID_LABEL,
    NODE_NAME_ANNOTATION,
    HUB_POD_NAME_ANNOTATION,
)
WATCHES = (
    "close",
    "break",
    "compact",
    "bookmark",
    "lose",
    "double",
    "lag",
    "stall",
    "catch up",
    "swallow",
    "tell twice",
    "slow",
    "slow",
)
ACTS = {
    f.__name__: f
    for f in (
        hub_create,
        hub_delete,
        hub_relabel,
        hub_update,
        target_mutates,
        play,
        target_delete,
        target_evict,
        target_vanish,
        hub_fail,
        hub_not_ready,
        hub_forget,
        target_unmark,
        target_uninstall,
        namespace_goes,
        controllers,
        back_up,
        restore,
        target_finish,
        target_foreign,
        fault,
        watches,
        outage,
        kill,
    )
}
NAME = st.sampled_from(["a", "a", "b"])
AFTER = st.integers(0, 9)
PAUSE = st.sampled_from([0.0, 0.0, 0.0, 0.02, 0.3, 2.0, 12.0, 45.0])


def _act(what: str, **details: st.SearchStrategy[object]) -> st.SearchStrategy[Act]:
    drawn = {"name": NAME, **details}
    return st.builds(Act, st.just(what), **drawn)


@st.composite
def _one_of(draw: st.DrawFn, *kinds: st.SearchStrategy[Act]) -> Act:
    """Draw a kind, then an act of it: so each kind keeps its weight (`st.one_of` flattens)."""
    return draw(kinds[draw(st.integers(0, len(kinds) - 1))])


CREATE = _act("hub_create", detail=st.sampled_from(["Never", "Never", "Always", "OnFailure"]))
PLAY = _act("play", detail=st.sampled_from(["Running", "Running", "Succeeded", "Failed"]))
DELETE = _act("hub_delete", number=st.sampled_from([0, 1, 30]))
FAULT = _act("fault", detail=st.sampled_from(sorted(set(FAULTS) - set(STOPS))), number=AFTER)
STOP = _act("fault", detail=st.sampled_from(STOPS), number=AFTER)
UPDATE = st.sampled_from(["image", "image", "toleration", "debug"])
WATCH = _act("watches", detail=st.sampled_from(WATCHES))
EVERYDAY = _one_of(
    _act("hub_relabel", number=st.integers(1, 3)),
    _act("hub_update", detail=UPDATE),
    _act("hub_update", detail=UPDATE),
    _act("target_mutates"),
    _act("target_delete", number=st.sampled_from([0, 5, 30])),
    _act("target_evict"),
    _act("target_vanish"),
    _act("target_finish"),
    _act("target_foreign"),
    _act("hub_fail"),
    _act("hub_not_ready"),
    _act("controllers"),
    _act("outage"),
    _act("kill"),
)
CALAMITY = _one_of(
    _act("hub_update", detail=UPDATE),
    _act("hub_forget"),
    _act("target_unmark", detail=st.sampled_from(MARKS)),
    _act("target_uninstall"),
    _act("namespace_goes"),
    _act("back_up"),
    _act("restore"),
    _act("restore"),
)


def histories(*seldom: st.SearchStrategy[Act]) -> st.SearchStrategy[list[tuple[Act, float]]]:
    """Draw histories of users and faults, in which something of `seldom` happens too."""
    often = (CREATE, CREATE, PLAY, PLAY, DELETE, FAULT, FAULT, FAULT)
    return st.lists(st.tuples(_one_of(*often, *seldom), PAUSE), min_size=3, max_size=16)


def run(main: Coroutine[None, None, None]) -> None:
    """Run in virtual time; asyncio's debug mode would take four times as long."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main)


async def live(
    history: Sequence[tuple[Act, float]],
    *,
    with_nets: bool = True,
    is_brisk: bool = False,
    ends: Callable[[World], bool] | None = None,
) -> None:
    """Live through the history, then come to rest; assert what must hold.

    `ends` says how this very history must end.
    """
    world = World(with_nets=with_nets, is_brisk=is_brisk)
    await world.start()
    try:
        await asyncio.sleep(1.0)
        for act, pause in history:
            ACTS[act.what](world, act)
            await asyncio.sleep(pause)
            assert not world.broken, world.broken
        await world.settle()
        assert not world.broken, world.broken
        differences = world.differences()
        assert not differences, differences
        assert ends is None or ends(world), "the history did not end as it must"
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
    assert not world.broken, world.broken
