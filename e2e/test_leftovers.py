"""federate starts, and finds what an earlier life left half done (C10, C20, C22, C23, C50, C71).

Most states are made by hand while federate is down, all in one namespace and one absence; each
test looks at what became of one of them.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from e2e.support.manifests import pod, pod_spec, run_once
from e2e.support.measuring import Measurements
from e2e.support.pods import (
    annotations_of,
    condition_of,
    is_ready,
    is_terminating,
    name_of,
    phase_of,
    uid_of,
    version_of,
)
from e2e.support.recorder import Change
from e2e.support.replicas import leader_of
from e2e.support.witness import Json
from e2e.support.world import Space, World
from federate.mirror.ground import POD_SECURITY_LABEL
from federate.mirror.render import RenderRules, render_mirror
from federate.model.instants import format_instant, format_micro_instant
from federate.model.leases import NODE_LEASE_NAMESPACE
from federate.model.marks import (
    HUB_LABEL,
    HUB_NAMESPACE_ANNOTATION,
    NODE_NAME_ANNOTATION,
    RECORD_ANNOTATION,
    REINSTALL_ANNOTATION,
    MirrorRecord,
    Origin,
    Scope,
    record_of,
)
from federate.model.naming import anchor_name, leader_lease_name
from federate.model.objects import ObjectKey
from federate.model.reasons import NodeReason, PodReason
from federate.node.anchors import parse_anchors
from federate.policy.level import PodSecurityLevel
from federate.runtime.election import DURATION_SECONDS

pytest_plugins = ["e2e.support.fixtures"]
pytestmark = pytest.mark.e2e

LONG_AGO = timedelta(hours=1)

NO_UID = "00000000-0000-4000-8000-000000000000"
"""The uid of nothing that is there."""

REGISTERED_SECONDS = 5.0
"""From federate's start until the Node is back."""

POD_GC_SECONDS = 40.0 + 2 * 20.0
"""How long the hub's pod GC spares pods of a Node that is gone, and how rarely it looks."""


# -- making leftovers ------------------------------------------------------------------------------


def scope_of(world: World) -> Scope:
    system = world.hub.get("Namespace", "", "kube-system")
    assert system is not None
    return Scope(hub_id=uid_of(system), node_name=world.node)


def read_pod(space: Space, name: str) -> Json:
    found = space.pod(name)
    assert found is not None, space.explain()
    return found


def read_anchor(space: Space) -> Json:
    name = anchor_name(scope_of(space.world))
    found = space.target.get("ConfigMap", space.target_namespace, name)
    assert found is not None, space.explain()
    return found


def submit(space: Space, body: Json) -> Json:
    """Create a pod that nobody mirrors, and return it as the hub's scheduler bound it."""
    name = name_of(space.create(body))

    def bound() -> Json | None:
        found = read_pod(space, name)
        return found if found["spec"].get("nodeName") == space.node else None

    return space.wait(f"{name} is bound to the virtual node", bound)


def put_on_record(space: Space, hub_pod: Json, *, mirror_uid: str = "", age: timedelta) -> None:
    """Write a record, or an intent of some age, as a process that died wrote it."""
    record = MirrorRecord(
        pod_uid=uid_of(hub_pod),
        mirror=ObjectKey(space.target_namespace, name_of(hub_pod)),
        mirror_uid=mirror_uid,
        intended_at=format_instant(datetime.now(UTC) - age),
    )
    annotations = {RECORD_ANNOTATION: record.format()}
    space.hub.patch(
        "Pod", space.namespace, name_of(hub_pod), {"metadata": {"annotations": annotations}}
    )


def make_mirror(space: Space, hub_pod: Json) -> Json:
    """Create the mirror, as a process that died right after that did."""
    key = ObjectKey(space.namespace, name_of(hub_pod))
    body = render_mirror(
        hub_pod,
        origin=Origin(scope=scope_of(space.world), pod=key, pod_uid=uid_of(hub_pod)),
        mirror=ObjectKey(space.target_namespace, key.name),
        anchor=read_anchor(space),
        rules=RenderRules(),
    )
    return space.target.create(body, space.target_namespace)


def make_target_namespace(space: Space) -> str:
    """Create the target namespace as federate does, and nothing in it; returns its uid."""
    metadata = {
        "name": space.target_namespace,
        "labels": {
            HUB_LABEL: scope_of(space.world).hub_id,
            POD_SECURITY_LABEL: PodSecurityLevel.BASELINE,
        },
        "annotations": {HUB_NAMESPACE_ANNOTATION: space.namespace},
    }
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    return uid_of(space.target.create(body))


def make_anchor(space: Space) -> str:
    """Create the anchor as federate does; returns its uid."""
    scope = scope_of(space.world)
    metadata = {
        "name": anchor_name(scope),
        "labels": scope.labels(),
        "annotations": {NODE_NAME_ANNOTATION: scope.node_name},
    }
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    return uid_of(space.target.create(body, space.target_namespace))


def show_started(space: Space, name: str) -> None:
    """Let the hub pod's status say that its container runs."""
    status = {
        "phase": "Running",
        "containerStatuses": [
            {
                "name": "main",
                "image": "",
                "imageID": "",
                "ready": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": format_instant(datetime.now(UTC))}},
            }
        ],
    }
    space.hub.patch("Pod", space.namespace, name, {"status": status}, subresource="status")


MIRRORED_BEFORE = ("model", "ends", "ended-there", "ends-on-both-sides")


def leave_ending_pods(space: Space) -> None:
    """Delete hub pods, and some of their mirrors, that nobody lets go."""
    space.delete_pod("ends", grace_seconds=20)
    space.delete_pod("ended-there")
    space.target.delete("Pod", space.target_namespace, "ended-there", grace_seconds=0)
    space.hold_mirror(space.read_mirror("ends-on-both-sides"))
    space.delete_pod("ends-on-both-sides")
    space.target.delete("Pod", space.target_namespace, "ends-on-both-sides")
    submit(space, pod("never-began", pod_spec(space.node)))
    space.delete_pod("never-began")


def leave_intents(space: Space) -> None:
    """Put intents on record that came to nothing."""
    always = submit(space, pod("meant", pod_spec(space.node)))
    put_on_record(space, always, age=LONG_AGO)
    for name, age in (("meant-once", timedelta()), ("meant-once-long-ago", LONG_AGO)):
        put_on_record(space, submit(space, run_once(name, space.node)), age=age)
    started = submit(space, run_once("meant-and-started", space.node))
    put_on_record(space, started, age=LONG_AGO)
    show_started(space, "meant-and-started")


def leave_mirrors(space: Space) -> None:
    """Create mirrors of which their hub pods do not know, or not yet enough."""
    for body in (pod("made", pod_spec(space.node)), run_once("made-once", space.node)):
        hub_pod = submit(space, body)
        put_on_record(space, hub_pod, age=timedelta())
        make_mirror(space, hub_pod)
    make_mirror(space, submit(space, pod("unrecorded", pod_spec(space.node))))
    recorded = submit(space, run_once("recorded-once", space.node))
    mirror = make_mirror(space, recorded)
    put_on_record(space, recorded, mirror_uid=uid_of(mirror), age=timedelta())
    late = submit(space, run_once("came-late", space.node))
    put_on_record(space, late, mirror_uid=NO_UID, age=timedelta())
    make_mirror(space, late)


def leave_a_copied_record(space: Space) -> None:
    """Make a pod of another's manifest, record and all."""
    copied = annotations_of(read_pod(space, "model"))
    submit(space, pod("copy", pod_spec(space.node), annotations=copied))


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftovers:
    """What stood there when federate started."""

    space: Space
    mirrors: dict[str, str]
    """Uids of the mirrors by name."""
    bare: Space
    """Its target namespace was made, its anchor was not."""
    bare_uid: str
    anchored: Space
    """Its anchor was made too, and is not on record on the Node."""
    anchor_uid: str


@pytest.fixture(scope="module")
def leftovers(often_stopped: World) -> Iterator[Leftovers]:
    """Leave everything half done at once, and start federate."""
    world = often_stopped
    if not world.federate.is_running:
        world.start_federate()
    space, bare, anchored = (Space(world, name) for name in ("leftovers", "bare", "anchored"))
    for each in (space, bare, anchored):
        each.open()
    for name in MIRRORED_BEFORE:
        space.create(pod(name, pod_spec(space.node)))
    space.wait_ready_pods(len(MIRRORED_BEFORE))
    world.federate.kill()
    for leave in (leave_ending_pods, leave_intents, leave_mirrors, leave_a_copied_record):
        leave(space)
    bare_uid = make_target_namespace(bare)
    make_target_namespace(anchored)
    anchor_uid = make_anchor(anchored)
    for each in (bare, anchored):
        submit(each, pod("waits", pod_spec(each.node)))
    mirrors = {name_of(mirror): uid_of(mirror) for mirror in space.mirrors()}
    world.start_federate()
    yield Leftovers(
        space=space,
        mirrors=mirrors,
        bare=bare,
        bare_uid=bare_uid,
        anchored=anchored,
        anchor_uid=anchor_uid,
    )
    for each in (space, bare, anchored):
        each.close()


def mirror_uids(space: Space, hub_pod_uid: str) -> set[str]:
    """Return all mirrors that a hub pod ever had."""
    return space.world.target_record.mirror_uids(space.target_namespace)[hub_pod_uid]


def last_phase(space: Space, name: str) -> str:
    """Return the last phase of a hub pod that is gone."""
    events = space.world.hub_record.events(namespace=space.namespace)
    return [event.phase for event in events if event.name == name][-1]


# -- hub pods that were ending ---------------------------------------------------------------------


def test_a_pod_that_was_ending_takes_its_mirror_along(leftovers: Leftovers) -> None:
    """A hub pod deleted in federate's absence ends after its mirror, with the same grace."""
    space = leftovers.space
    space.wait_pod_gone("ends")
    assert space.mirror("ends") is None
    asked = space.world.target_record.find(
        lambda e: e.uid == leftovers.mirrors["ends"] and e.change is Change.DELETING
    )
    assert asked is not None and asked.grace_seconds == 20
    assert last_phase(space, "ends") in ("Succeeded", "Failed")


def test_a_pod_that_was_ending_and_had_lost_its_mirror_is_let_go(leftovers: Leftovers) -> None:
    """A hub pod whose mirror ended in federate's absence gets its last word, and is let go."""
    space = leftovers.space
    space.wait_pod_gone("ended-there")
    assert last_phase(space, "ended-there") in ("Succeeded", "Failed")


def test_a_pod_that_was_ending_and_never_had_a_mirror_is_let_go(leftovers: Leftovers) -> None:
    """A hub pod created and deleted in federate's absence goes, and is never mirrored."""
    space = leftovers.space
    space.wait_pod_gone("never-began")
    created = space.world.target_record.find(
        lambda e: e.name == "never-began", namespace=space.target_namespace
    )
    assert created is None


def test_a_pod_whose_mirror_was_ending_too_waits_for_it(leftovers: Leftovers) -> None:
    """A hub pod that ends on both sides stays until its mirror is gone."""
    space, name = leftovers.space, "ends-on-both-sides"

    def stays() -> bool:
        found, mirror = space.pod(name), space.mirror(name)
        assert mirror is not None, space.explain()
        # On a real node the containers of a held mirror end all the same, and the hub may show it.
        shown = ("Running", phase_of(mirror))
        return found is not None and is_terminating(found) and phase_of(found) in shown

    try:
        space.hold("the hub pod waits", stays, seconds=1.0)
    finally:
        space.release_mirror(space.read_mirror(name))
    space.wait_pod_gone(name)
    assert space.mirror(name) is None
    assert last_phase(space, name) in ("Succeeded", "Failed")


# -- mirrors half made -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "phase"),
    [("meant", "Running"), ("meant-once", "Succeeded"), ("meant-once-long-ago", "Succeeded")],
)
def test_an_intent_that_came_to_nothing_is_carried_out(
    leftovers: Leftovers, name: str, phase: str
) -> None:
    """A pod with an intent on record and no mirror runs, once, however old the intent is."""
    space = leftovers.space
    hub_pod = space.wait_phase(name, phase)
    assert mirror_uids(space, uid_of(hub_pod)) == {uid_of(space.read_mirror(name))}


def test_a_pod_that_started_and_whose_mirror_is_gone_is_lost(leftovers: Leftovers) -> None:
    """A pod that showed a started container is not run again, although no mirror is on record."""
    space = leftovers.space
    failed = space.wait_phase("meant-and-started", "Failed")
    assert failed["status"]["reason"] == PodReason.MIRROR_LOST
    assert not mirror_uids(space, uid_of(failed))


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        ("made", "Running"),
        ("made-once", "Succeeded"),
        ("unrecorded", "Running"),
        ("recorded-once", "Succeeded"),
    ],
)
def test_a_mirror_that_was_made_is_used(leftovers: Leftovers, name: str, phase: str) -> None:
    """A mirror that is not on record yet, or has not been let start yet, is the pod's mirror."""
    space = leftovers.space
    hub_pod = space.wait_phase(name, phase)
    assert mirror_uids(space, uid_of(hub_pod)) == {leftovers.mirrors[name]}
    record = record_of(hub_pod)
    assert record is not None and record.mirror_uid == leftovers.mirrors[name]


def test_a_mirror_other_than_the_one_on_record_is_removed(leftovers: Leftovers) -> None:
    """A pod whose record names a mirror that is gone is lost; one that came late never runs."""
    space, name = leftovers.space, "came-late"
    failed = space.wait_phase(name, "Failed")
    assert failed["status"]["reason"] == PodReason.MIRROR_LOST
    space.wait_mirror_gone(name)
    events = space.world.target_record.events(uid=leftovers.mirrors[name])
    assert {event.phase for event in events} == {"Pending"}
    assert {event.node for event in events} == {""}


def test_a_copied_record_is_no_record(leftovers: Leftovers) -> None:
    """A pod made from another's manifest, record and all, gets a mirror of its own."""
    space = leftovers.space
    copy = space.wait_phase("copy", "Running")
    assert mirror_uids(space, uid_of(copy)) == {uid_of(space.read_mirror("copy"))}
    assert uid_of(space.read_mirror("model")) == leftovers.mirrors["model"]
    assert is_ready(read_pod(space, "model"))


# -- ground half made ------------------------------------------------------------------------------


def recorded_anchors(world: World) -> dict[str, str]:
    return parse_anchors(world.read_node())


def test_a_namespace_without_an_anchor_is_used(leftovers: Leftovers) -> None:
    """A target namespace that was made before its anchor is completed, not made again."""
    space = leftovers.bare
    space.wait_phase("waits", "Running")
    namespace = space.target.get("Namespace", "", space.target_namespace)
    assert namespace is not None and uid_of(namespace) == leftovers.bare_uid
    assert recorded_anchors(space.world)[space.target_namespace] == uid_of(read_anchor(space))


def test_an_anchor_that_is_not_on_record_is_used(leftovers: Leftovers) -> None:
    """An anchor that was made and not recorded is recorded, not made again."""
    space = leftovers.anchored
    space.wait_phase("waits", "Running")
    assert uid_of(read_anchor(space)) == leftovers.anchor_uid
    assert recorded_anchors(space.world)[space.target_namespace] == leftovers.anchor_uid
    (owner,) = space.read_mirror("waits")["metadata"]["ownerReferences"]
    assert owner["uid"] == leftovers.anchor_uid


# -- the Node and its leases -----------------------------------------------------------------------


def lose_node(world: World) -> str:
    """Kill federate and delete its Node, whose lease stays; returns the uid that is no more."""
    world.federate.kill()
    uid = uid_of(world.read_node())
    assert world.hub.delete("Node", "", world.node)
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": world.node,
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Node", "name": world.node, "uid": uid}
            ],
        },
        "spec": {"holderIdentity": world.node, "leaseDurationSeconds": 40},
    }
    world.hub.create_if_absent(lease, NODE_LEASE_NAMESPACE)
    return uid


def survivors(space: Space) -> Callable[[], bool]:
    """Return a probe: are hub pods and mirrors the very same as now?"""

    def state() -> dict[str, str]:
        hub_pods = {f"hub pod {name_of(p)}": uid_of(p) for p in space.pods() if is_ready(p)}
        return hub_pods | {f"mirror {name_of(m)}": version_of(m) for m in space.mirrors()}

    before = state()
    return lambda: state() == before


def test_a_node_that_was_deleted_is_registered_before_its_pods_go(
    fragile_space: Space, measured: Measurements
) -> None:
    """A Node deleted in federate's absence is back at once, with its lease; pods never notice."""
    space, world = fragile_space, fragile_space.world
    space.run_pods("one", "two")
    are_unharmed = survivors(space)
    lost = lose_node(world)
    started = time.monotonic()
    world.federate.start()
    space.wait("the Node is back", lambda: world.hub.get("Node", "", world.node))
    measured.seconds(
        "from the start to the Node", time.monotonic() - started, promise=REGISTERED_SECONDS
    )
    world.federate.wait_ready()
    world.wait_node_ready()
    node = uid_of(world.read_node())
    assert node != lost

    def is_owned() -> bool:
        lease = world.hub.get("Lease", NODE_LEASE_NAMESPACE, world.node)
        owners = (lease or {"metadata": {}})["metadata"].get("ownerReferences", [])
        return [owner["uid"] for owner in owners] == [node]

    space.wait("the node lease is the new Node's", is_owned)
    space.hold("all is as it was", lambda: are_unharmed() and is_owned(), seconds=2.0)


def test_a_node_that_was_deleted_knows_its_anchors_again(fragile_space: Space) -> None:
    """Who deletes an anchor after the Node was deleted uninstalls federate all the same (C23)."""
    space, world = fragile_space, fragile_space.world
    space.run_pods("one", "two")
    lose_node(world)
    world.start_federate()
    hub_pods = {uid_of(found) for found in space.pods()}
    anchor = name_of(read_anchor(space))
    space.target.delete("ConfigMap", space.target_namespace, anchor)
    space.wait("the target removes the mirrors", lambda: not space.mirrors())
    space.wait(
        "the node says that it is uninstalled there",
        lambda: condition_of(world.read_node(), "Ready")["reason"] == NodeReason.UNINSTALLED,
    )
    assert {uid_of(p) for p in space.pods() if not is_terminating(p)} == hub_pods, space.explain()
    word = {"annotations": {REINSTALL_ANNOTATION: space.target_namespace}}
    world.hub.patch("Node", "", world.node, {"metadata": word})
    space.wait(
        "the node is whole again",
        lambda: condition_of(world.read_node(), "Ready")["reason"] == NodeReason.READY,
    )


@pytest.mark.long
def test_pods_of_a_node_that_was_deleted_outlive_the_hubs_garbage_collection(
    fragile_space: Space,
) -> None:
    """Pods of a Node deleted in federate's absence are left alone by the hub's pod GC later on."""
    space, world = fragile_space, fragile_space.world
    space.run_pods("one", "two")
    are_unharmed = survivors(space)
    lose_node(world)
    world.start_federate()
    space.hold("all is as it was", are_unharmed, seconds=POD_GC_SECONDS)


def test_the_leader_lease_of_a_dead_process_here_is_taken_at_once(
    fragile_space: Space, measured: Measurements
) -> None:
    """A federate that was killed leads again at its start, without waiting out its old lease."""
    space, world = fragile_space, fragile_space.world
    dead = leader_of(world)
    world.federate.kill()
    assert leader_of(world) == dead, "a killed process gives nothing back"
    started = time.monotonic()
    world.federate.start()
    space.wait("the new process leads", lambda: leader_of(world) not in ("", dead))
    seconds = time.monotonic() - started
    measured.note("from the start to leading", f"{seconds:.2f} s")
    assert seconds < DURATION_SECONDS
    world.federate.wait_ready()


@pytest.mark.long
def test_the_leader_lease_of_an_unknown_process_is_waited_out(
    fragile_space: Space, measured: Measurements
) -> None:
    """The lease of a process that cannot be seen from here is taken when it has run out."""
    space, world = fragile_space, fragile_space.world
    world.federate.stop()
    spec = {
        "holderIdentity": "elsewhere_01234567_4026531836_4711_815",
        "leaseDurationSeconds": DURATION_SECONDS,
        "renewTime": format_micro_instant(datetime.now(UTC)),
    }
    lease = leader_lease_name(world.node)
    world.hub.patch("Lease", "kube-system", lease, {"spec": spec})
    hub_pod = submit(space, pod("waits", pod_spec(space.node)))
    started = time.monotonic()
    world.federate.start()
    space.wait(
        "federate leads",
        lambda: leader_of(world) != spec["holderIdentity"],
        timeout_seconds=5.0 * DURATION_SECONDS,
    )
    seconds = time.monotonic() - started
    measured.seconds("from the start to leading", seconds, promise=DURATION_SECONDS + 5.0)
    assert seconds >= DURATION_SECONDS
    running = space.wait_phase("waits", "Running")
    assert uid_of(running) == uid_of(hub_pod)
