"""Whatever stands beside our own in a target: no list, sweep or delete of ours meets another's.

A scope is one virtual node of one hub (C3). Its neighbours here are another node of the same hub, a
node of the same name of another hub, and things that carry marks only in part. They stand in one
target, in the same namespaces and under the same names as our own.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from federate.garbage.plan import plan_sweep
from federate.garbage.sweeper import remove_orphan, survey
from federate.model.marks import (
    HUB_LABEL,
    HUB_NAMESPACE_ANNOTATION,
    NODE_NAME_ANNOTATION,
    VIRTUAL_NODE_LABEL,
    Origin,
    Scope,
)
from federate.model.naming import NamespaceRules, NamespaceStrategy, anchor_name
from federate.model.objects import JsonDict, ObjectKey, key_of, uid_of
from federate.model.resources import CONFIGMAPS, NAMESPACES, PODS, Resource
from tests.support.builders import pod
from tests.support.clock import ManualClock, run_virtual
from tests.support.fakecluster import FakeCluster
from tests.support.quiet import quiet
from tests.support.rights import role_in
from tests.support.scene import ANCHOR, SCOPE, TARGET_NAMESPACE
from tests.support.selectors import select
from tests.support.worlds import World

LAW = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
LIVED_LAW = settings(LAW, max_examples=25)

SAME_HUB = Scope(hub_id=SCOPE.hub_id, node_name="attic")
SAME_NAME = Scope(hub_id="other-hub", node_name=SCOPE.node_name)
STRANGER = Scope(hub_id="other-hub", node_name="attic")
NEIGHBOURS = (SAME_HUB, SAME_NAME, STRANGER)

NAMES = ("a", "b", "c")


@pytest.fixture(autouse=True, scope="module")
def quiet_logs() -> Iterator[None]:
    with quiet():
        yield


# --- what may stand in a target -------------------------------------------------------------------


def whole(_mirror: JsonDict) -> None:
    """All marks are there, and agree."""


def without_annotations(mirror: JsonDict) -> None:
    """Selected on like a mirror, and nobody can say whose."""
    mirror["metadata"]["annotations"] = {}


def without_the_hub(mirror: JsonDict) -> None:
    del mirror["metadata"]["labels"][HUB_LABEL]


def without_the_node(mirror: JsonDict) -> None:
    del mirror["metadata"]["labels"][VIRTUAL_NODE_LABEL]


def naming_our_node(mirror: JsonDict) -> None:
    """The name in the annotation says it is ours; the labels say it is not."""
    mirror["metadata"]["annotations"][NODE_NAME_ANNOTATION] = SCOPE.node_name


def naming_our_hub(mirror: JsonDict) -> None:
    """The hub in the label is ours; the node's hash is not."""
    mirror["metadata"]["labels"][HUB_LABEL] = SCOPE.hub_id


Twist = Callable[[JsonDict], None]
MAIMING: Sequence[Twist] = (without_annotations, without_the_hub, without_the_node)
TWISTS: Sequence[Twist] = (*MAIMING, whole, naming_our_node, naming_our_hub)


def mirror_of(scope: Scope, key: ObjectKey, *, pod_uid: str, uid: str) -> JsonDict:
    """Render a running mirror of the hub pod `default/NAME`."""
    origin = Origin(scope=scope, pod=ObjectKey("default", key.name), pod_uid=pod_uid)
    marked = pod(key.name, namespace=key.namespace).with_uid(uid).bound_to("worker")
    return (
        marked.with_labels(origin.labels()).with_annotations(origin.annotations()).running().build()
    )


@st.composite
def neighbouring_pods(draw: st.DrawFn) -> JsonDict:
    """Draw a pod of the target that is somebody else's, or that nobody can say is ours."""
    scope = draw(st.sampled_from((*NEIGHBOURS, SCOPE)))
    key = ObjectKey(draw(st.sampled_from((TARGET_NAMESPACE, "elsewhere"))), draw(names))
    uid = f"uid-in-target-of-{key}"
    found = mirror_of(scope, key, pod_uid=draw(st.sampled_from(("1", "2"))), uid=uid)
    draw(st.sampled_from(MAIMING if scope == SCOPE else TWISTS))(found)
    return found


names = st.sampled_from(NAMES)
neighbourhoods = st.lists(
    neighbouring_pods(), max_size=4, unique_by=lambda found: str(key_of(found))
)
scopes = st.builds(
    Scope,
    hub_id=st.sampled_from(("hub", "hub-2", "other-hub")),
    node_name=st.from_regex(r"[a-c]{1,2}(-[0-9])?", fullmatch=True),
)


def selects(selector: str, obj: JsonDict) -> bool:
    """Ask the fake API server's own reading of selectors."""
    return select(PODS, namespace="", label_selector=selector, field_selector="").matches(obj)


# --- lists ----------------------------------------------------------------------------------------


@LAW
@given(scopes, scopes, st.sampled_from(TWISTS))
def test_law_a_scopes_selector_finds_its_own_and_nothing_else(
    ours: Scope, theirs: Scope, twist: Twist
) -> None:
    """What one selector finds, `owns` confirms and the other selector leaves out."""
    found = mirror_of(theirs, ObjectKey("x", "a"), pod_uid="1", uid="2")
    assert ours.owns(found) == selects(ours.selector, found) == (ours == theirs)
    assert selects(ours.others_selector, found) == (ours != theirs)
    twist(found)
    assert ours.owns(found) == selects(ours.selector, found)
    assert not (selects(ours.selector, found) and selects(ours.others_selector, found))


# --- sweeps ---------------------------------------------------------------------------------------


@LAW
@given(neighbourhoods, st.sets(names), st.sets(names))
def test_law_a_sweep_plans_for_its_own_scope_alone(
    neighbours: list[JsonDict], ours: set[str], wanted: set[str]
) -> None:
    """Orphans are ours and unwanted; what is told as unknown is of our hub; others do not count."""
    own = [mirror_of(SCOPE, ObjectKey("own", n), pod_uid=n, uid=f"own-{n}") for n in ours]
    hub_pods: list[JsonDict] = [{"metadata": {"uid": name}} for name in wanted]
    found = plan_sweep(scope=SCOPE, hub_pods=hub_pods, mirrors=[*neighbours, *own])
    assert {orphan.uid for orphan in found.orphans} == {f"own-{n}" for n in ours - wanted}
    of_our_hub = {
        uid_of(n) for n in neighbours if n["metadata"]["labels"].get(HUB_LABEL) == SCOPE.hub_id
    }
    assert {unknown.uid for unknown in found.unknown} <= of_our_hub


def everything(cluster: FakeCluster) -> dict[tuple[Resource, ObjectKey], JsonDict]:
    return {(resource, key_of(obj)): copy.deepcopy(obj) for resource, obj in cluster.store.all()}


@LAW
@given(neighbourhoods, st.sets(names), st.sets(names))
def test_law_a_sweep_by_hand_removes_its_own_orphans_alone(
    neighbours: list[JsonDict], ours: set[str], wanted: set[str]
) -> None:
    """Survey and removal end what is ours and unwanted, and leave every other object as it was."""

    async def sweep() -> None:
        hub, target = FakeCluster("hub", ManualClock()), FakeCluster("target", ManualClock())
        hub.add(NAMESPACES, {"metadata": {"name": "kube-system", "uid": SCOPE.hub_id}})
        for name in wanted:
            hub.add(PODS, pod(name).with_uid(name).bound_to(SCOPE.node_name).build())
        for name in ours:
            key = ObjectKey("own", name)
            target.add(PODS, mirror_of(SCOPE, key, pod_uid=name, uid=f"own-{name}"))
        for found in neighbours:
            target.add(PODS, found)
        before = everything(target), everything(hub)
        surveyed = await survey(hub.client(), target.client(), node_name=SCOPE.node_name)
        for orphan in surveyed.orphans:
            await remove_orphan(hub.client(), target.client(), orphan)
        after = everything(target)
        changed = {uid_of(obj) for key, obj in before[0].items() if after.get(key) != obj}
        assert changed == {f"own-{name}" for name in ours - wanted}
        assert everything(hub) == before[1]

    asyncio.run(sweep())


# --- a whole life ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Act:
    """One thing that happens to our own side; then some time passes."""

    what: Callable[[World, str], None]
    name: str
    pause_seconds: float


def submit(world: World, name: str) -> None:
    world.submit(pod(name))


def delete(world: World, name: str) -> None:
    _delete_hub_pod(world, name, grace_seconds=30)


def delete_by_force(world: World, name: str) -> None:
    _delete_hub_pod(world, name, grace_seconds=0)


def _delete_hub_pod(world: World, name: str, *, grace_seconds: int) -> None:
    key = ObjectKey("default", name)
    if world.hub_pod(key) is not None:
        with world.others():
            world.hub.delete_by_user(PODS, key, grace_seconds=grace_seconds)


def kill(world: World, _name: str) -> None:
    world.kill()


def uninstall(world: World, _name: str) -> None:
    """An admin of the target deletes our anchor."""
    key = ObjectKey(world.mirror_key(ObjectKey("default", "")).namespace, ANCHOR.name)
    if world.target.find(CONFIGMAPS, key) is not None:
        with world.others():
            world.target.delete_by_user(CONFIGMAPS, key)


def drop_hub_namespace(world: World, _name: str) -> None:
    """The hub namespace goes, so its target namespace may be given back."""
    key = ObjectKey("", "default")
    if world.hub.find(NAMESPACES, key) is not None:
        with world.others():
            world.hub.delete_by_user(NAMESPACES, key)


acts = st.builds(
    Act,
    what=st.sampled_from(
        (submit, submit, submit, delete, delete_by_force, kill, uninstall, drop_hub_namespace)
    ),
    name=names,
    pause_seconds=st.sampled_from((0.01, 3.0, 70.0)),
)


def settle_in(
    world: World, neighbours: list[JsonDict], *, namespace: str = TARGET_NAMESPACE
) -> None:
    """Let the neighbours and their anchors stand in the target, and their pods on the hub."""
    marks = {
        "labels": {HUB_LABEL: SCOPE.hub_id},
        "annotations": {HUB_NAMESPACE_ANNOTATION: "default"},
    }
    with world.others():
        world.target.add_namespace(namespace)
        world.target.edit(
            NAMESPACES,
            ObjectKey("", namespace),
            lambda found: found["metadata"].update(marks),
        )
        for scope in NEIGHBOURS:
            key = {"namespace": namespace, "name": anchor_name(scope)}
            world.target.add(CONFIGMAPS, {"metadata": {**key, "labels": scope.labels()}})
        for found in neighbours:
            world.target.add(PODS, found)
        beside = pod("beside", namespace="kept").bound_to(SAME_HUB.node_name)
        world.hub.add(PODS, beside.build())


GIVEN_BACK = [Act(submit, "a", 3.0), Act(drop_hub_namespace, "", 70.0)]
"""The target namespace would go, were it not for the anchors of others."""


@LIVED_LAW
@given(neighbourhoods, st.lists(acts, min_size=1, max_size=6))
@example([], GIVEN_BACK)
def test_law_a_virtual_node_lives_and_dies_beside_its_neighbours(
    neighbours: list[JsonDict], story: list[Act]
) -> None:
    """Mirrors come and go, federate is killed, uninstalled, sweeps: neighbours never notice."""

    async def live() -> None:
        await live_beside(World(is_brisk=True), neighbours, story)

    run_virtual(live())


TEAM = "team-a"
CONFINED = (
    NamespaceRules(strategy=NamespaceStrategy.SINGLE, single=TEAM),
    NamespaceRules(strategy=NamespaceStrategy.MAP, mapping={"default": TEAM}),
)


@settings(LAW, max_examples=12)
@given(st.sampled_from(CONFINED), neighbourhoods, st.lists(acts, min_size=1, max_size=6))
@example(CONFINED[0], [], GIVEN_BACK)
def test_law_a_confined_virtual_node_never_looks_out_of_its_namespace(
    rules: NamespaceRules, neighbours: list[JsonDict], story: list[Act]
) -> None:
    """The same where only one namespace is granted, in which the neighbours stand too.

    There they have the names of our mirrors; those elsewhere are never seen. The namespace carries
    our mark, and is not given back all the same.
    """

    async def live() -> None:
        world = World(is_brisk=True, namespaces=rules)
        for found in neighbours:
            if key_of(found).namespace == TARGET_NAMESPACE:
                key = world.mirror_key(ObjectKey("default", key_of(found).name))
                found["metadata"].update(namespace=key.namespace, name=key.name)
        await live_beside(world, neighbours, story, namespace=TEAM)
        granted = role_in(TEAM)
        assert [str(call) for call in world.target.calls if granted(call)] == []
        assert world.target.find(NAMESPACES, ObjectKey("", TEAM)) is not None

    run_virtual(live())


async def live_beside(
    world: World, neighbours: list[JsonDict], story: list[Act], *, namespace: str = TARGET_NAMESPACE
) -> None:
    """Let a story happen, and compare what belongs to others before and after it."""
    settle_in(world, neighbours, namespace=namespace)
    theirs = {
        (resource, key): found
        for (resource, key), found in everything(world.target).items()
        if resource in (PODS, CONFIGMAPS)
    }
    beside = world.hub_pod(ObjectKey("kept", "beside"))
    async with world.running():
        for act in story:
            act.what(world, act.name)
            await asyncio.sleep(act.pause_seconds)
        await world.settle(130.0)
    after = everything(world.target)
    assert {key: after.get(key) for key in theirs} == theirs
    assert world.hub_pod(ObjectKey("kept", "beside")) == beside
    assert world.broken == []
