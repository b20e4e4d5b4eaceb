"""Objects of the target that its people share with hub pods, by a label on them (C30)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from federate.companions.consents import GOOD_FOR_SECONDS
from federate.companions.keys import Kind, name_of
from federate.companions.rules import CompanionRules
from federate.errors import Forbidden, ServerFault
from federate.mirror.plan import plan_pod
from federate.mirror.render import RenderRules, render_mirror
from federate.mirror.steps import (
    AnchorState,
    CreateMirror,
    Lane,
    LookUpShared,
    UpdateMirror,
    WriteHubPod,
    belongs,
    lane_of,
    touches_target,
)
from federate.model.marks import SHARED_LABEL, Origin
from federate.model.objects import JsonDict, JsonObject, ObjectKey, condition_of, key_of, spec_of
from federate.model.pods import phase_of
from federate.model.resources import CONFIGMAPS, PODS, SECRETS
from federate.patch.document import STRATEGIC, PatchBody
from federate.status.project import MIRRORED
from tests.support.builders import pod
from tests.support.clock import virtual_time
from tests.support.companions import ANCHOR
from tests.support.companionworlds import CompanionWorld, needing
from tests.support.fakeclient import Call, CrashAfter, Fault, Refuse
from tests.support.scene import SCOPE as WORLD_SCOPE
from tests.support.scene import TARGET_NAMESPACE
from tests.support.views import (
    RULES,
    SCOPE,
    hub_pod,
    intending,
    mirror,
    mirror_key,
    outcome,
    recording,
    sure,
    view,
)

WITH = replace(RULES, render=RenderRules(scope=SCOPE))
PULL = (Kind.SECRET, "pull")
PLACE = mirror_key(ObjectKey("default", "web")).namespace
A, B = ObjectKey("default", "a"), ObjectKey("default", "b")

# -- the decision ----------------------------------------------------------------------------------


def naming(name: str = "pull") -> dict[str, Any]:
    return {"imagePullSecrets": [{"name": name}], "containers": [{"name": "app", "image": "i"}]}


def test_it_is_asked_just_before_the_mirror_is_made() -> None:
    """In the lane of creates, and only for a pod that names something."""
    hub = intending(hub_pod().with_spec(**naming())).build()
    seen = view(hub, attempt_open=True)
    step = plan_pod(seen, WITH)
    assert isinstance(step, LookUpShared)
    assert step.namespace == PLACE
    assert lane_of(step) is Lane.SYNC
    assert touches_target(step)
    assert not belongs(step, Lane.STATUS, first=False)
    assert not belongs(step, Lane.DELETE, first=False)
    for shared in (frozenset(), frozenset({PULL})):
        assert isinstance(plan_pod(replace(seen, shared={PLACE: shared}), WITH), CreateMirror)
    elsewhere = replace(seen, shared={"elsewhere": frozenset({PULL})})
    assert isinstance(plan_pod(elsewhere, WITH), LookUpShared)
    plain = intending(hub_pod()).build()
    assert isinstance(plan_pod(view(plain, attempt_open=True), WITH), CreateMirror)
    known = replace(WITH, render=RenderRules(scope=SCOPE, shared=frozenset({PULL})))
    assert isinstance(plan_pod(seen, known), CreateMirror)


def test_nothing_is_asked_for_a_pod_that_gets_no_mirror() -> None:
    """Nor before there is ground to stand on."""
    for fields in ({"leaving": True}, {"anchor": AnchorState.GONE}, {"target_reachable": False}):
        hub = intending(hub_pod().with_spec(**naming())).build()
        step = plan_pod(view(hub, attempt_open=True, **fields), WITH)
        assert not isinstance(step, LookUpShared)


def rendered(hub: JsonObject, shared: frozenset[tuple[Kind, str]]) -> JsonDict:
    return render_mirror(
        hub,
        origin=Origin(scope=SCOPE, pod=ObjectKey("default", "web"), pod_uid="uid-web"),
        mirror=mirror_key(ObjectKey("default", "web")),
        anchor=ANCHOR,
        rules=WITH.render.sharing(shared),
    )


def test_a_mirror_that_names_what_was_shared_lost_no_field() -> None:
    """Whoever records it, of another process too, takes it for what was sent, if it still is."""
    hub = intending(hub_pod().with_spec(**naming())).build()
    made = rendered(hub, frozenset({PULL}))
    assert made["spec"]["imagePullSecrets"] == [{"name": "pull"}]
    made["metadata"] |= {"uid": "mirror-web", "resourceVersion": "1"}
    step = plan_pod(sure(hub, made, shared={PLACE: frozenset({PULL})}), WITH)
    assert isinstance(step, WriteHubPod)
    assert step.reason == "record the mirror"
    assert step.refusal is None


def test_a_debug_container_asks_too_once_its_status_is_told() -> None:
    """A hanging target holds up no status; what needs no name is added without a question."""
    running = mirror().running()
    hub = recording(hub_pod(), uid="mirror-web").build()
    hub["spec"]["ephemeralContainers"] = [
        {"name": "d", "image": "i", "envFrom": [{"secretRef": {"name": "pull"}}]}
    ]
    hub["metadata"]["generation"] = 2
    written = plan_pod(sure(hub, running.build(), shared={}), WITH)
    assert isinstance(written, WriteHubPod)
    seen = sure(hub, running.build(), shared={})
    told = replace(seen, hub_pod=outcome(hub, written))
    asked = plan_pod(told, WITH)
    assert isinstance(asked, LookUpShared)
    assert asked.namespace == key_of(running.build()).namespace == PLACE
    for shared, name in ((frozenset({PULL}), "pull"), (frozenset(), None)):
        step = plan_pod(replace(told, shared={PLACE: shared}), WITH)
        assert isinstance(step, UpdateMirror)
        [container] = step.update.spec["ephemeralContainers"]
        named = container["envFrom"][0]["secretRef"]["name"]
        assert (named == "pull") is (name == "pull")


# -- from end to end -------------------------------------------------------------------------------


def share(world: CompanionWorld, name: str, kind: Kind = Kind.SECRET, value: str = "true") -> None:
    """People of the target put an object there, with the label."""
    with world.others():
        world.target.add(
            kind.resource,
            {
                "metadata": {
                    "namespace": TARGET_NAMESPACE,
                    "name": name,
                    "labels": {SHARED_LABEL: value},
                },
                "data": {},
            },
        )


def named(world: CompanionWorld, key: ObjectKey) -> list[str]:
    """What the mirror takes its environment from."""
    found = world.mirror(key)
    assert found is not None
    sources = spec_of(found)["containers"][0]["envFrom"]
    return [next(iter(source.values()))["name"] for source in sources]


def generated(world: CompanionWorld, kind: Kind, name: str) -> str:
    return name_of(WORLD_SCOPE, world.key_of(kind, name)).name


@virtual_time
async def test_c30_a_labelled_object_is_named_as_it_is() -> None:
    """One without the label is not, whether the hub has one of the name or none."""
    world = CompanionWorld()
    world.give(Kind.SECRET, "db", password="x")
    async with world.running():
        world.submit(needing("first", (Kind.SECRET, "nothing")))
        await world.until(lambda: world.mirror(ObjectKey("default", "first")) is not None)
        share(world, "pull")
        share(world, "settings", Kind.CONFIGMAP)
        share(world, "db", value="no")
        world.submit(
            needing(
                "a",
                PULL,
                (Kind.CONFIGMAP, "settings"),
                (Kind.SECRET, "db"),
                (Kind.CONFIGMAP, "pull"),
            )
        )
        await world.until(lambda: world.mirror(A) is not None)
        assert named(world, A) == [
            "pull",
            "settings",
            generated(world, Kind.SECRET, "db"),
            generated(world, Kind.CONFIGMAP, "pull"),
        ]
        await asyncio.sleep(100.0)
        asked = {
            call.key
            for call in world.target.calls
            if call.verb == "get" and call.resource in (SECRETS, CONFIGMAPS)
        }
        assert {key.namespace for key in asked} == {TARGET_NAMESPACE}
        assert not world.broken


@virtual_time
async def test_c30_a_label_that_is_taken_off_counts_for_the_next_pods() -> None:
    """Those that run keep what they name: a pod cannot be changed."""
    world = CompanionWorld()
    async with world.running():
        world.submit(needing("first", (Kind.SECRET, "nothing")))
        await world.until(lambda: world.mirror(ObjectKey("default", "first")) is not None)
        share(world, "pull")
        world.submit(needing("a", PULL))
        await world.until(lambda: world.mirror(A) is not None)
        with world.others():
            world.target.edit(
                SECRETS,
                ObjectKey(TARGET_NAMESPACE, "pull"),
                lambda obj: obj["metadata"].update(labels={}),
            )
        await asyncio.sleep(GOOD_FOR_SECONDS + 0.1)
        world.submit(needing("b", PULL))
        await world.until(lambda: world.mirror(B) is not None)
        assert named(world, A) == ["pull"]
        assert named(world, B) == [generated(world, Kind.SECRET, "pull")]


@virtual_time
async def test_c30_a_hub_user_shares_nothing_by_labels_of_his_own() -> None:
    """Neither on his Secret nor on his pod; nor by calling what another namespace has by name."""
    world = CompanionWorld()
    world.give(Kind.SECRET, "db", password="x")
    with world.others():
        world.hub.edit(
            SECRETS,
            ObjectKey("default", "db"),
            lambda obj: obj["metadata"].update(labels={SHARED_LABEL: "true"}),
        )
    async with world.running():
        world.submit(needing("a", (Kind.SECRET, "db")).with_labels({SHARED_LABEL: "true"}))
        await world.until(lambda: world.mirror(A) is not None)
        assert named(world, A) == [generated(world, Kind.SECRET, "db")]
        made, running = world.companion(Kind.SECRET, "db"), world.mirror(A)
        assert made is not None
        assert running is not None
        for obj in (made, running):
            assert SHARED_LABEL not in obj["metadata"]["labels"]
        world.admin_edits(
            Kind.SECRET, "db", lambda obj: obj["metadata"]["labels"].update({SHARED_LABEL: "true"})
        )
        name = generated(world, Kind.SECRET, "db")
        world.submit(needing("b", (Kind.SECRET, name)))
        await world.until(lambda: world.mirror(B) is not None)
        assert named(world, B) == [generated(world, Kind.SECRET, name)]


@pytest.mark.parametrize("error", [Forbidden("no", status=403), ServerFault("etcd", status=500)])
@virtual_time
async def test_what_the_target_does_not_say_is_not_shared(error: Forbidden | ServerFault) -> None:
    """Where it is closed to federate the pod starts with what it has; on a fault it waits."""
    world = CompanionWorld()

    def refuse(call: Call) -> Fault | None:
        is_asked = call.client == "target" and call.verb == "get" and call.key.name == "pull"
        return Refuse(error) if is_asked else None

    world.fault_of = refuse
    async with world.running():
        world.submit(needing("a", PULL))
        await asyncio.sleep(5.0)
        if isinstance(error, Forbidden):
            assert named(world, A) == [generated(world, Kind.SECRET, "pull")]
            return
        assert world.mirror(A) is None
        found = world.hub_pod(A)
        assert found is not None
        assert (condition_of(found, MIRRORED) or {})["reason"] == "TargetError"
        world.fault_of = None
        await world.until(lambda: world.mirror(A) is not None)


@virtual_time
async def test_c40_a_debug_container_that_is_not_answered_about_changes_no_status() -> None:
    """The pod runs: what it waits for with a debug container does not make it Pending again."""
    world = CompanionWorld()
    async with world.running():
        world.submit(needing("a"))
        await world.until(lambda: world.mirror(A) is not None)
        world.play(A, "Running")
        await world.until(lambda: phase_of(world.hub_pod(A) or {}) == "Running")

        def refuse(call: Call) -> Fault | None:
            is_asked = call.client == "target" and call.verb == "get" and call.key.name == "pull"
            return Refuse(ServerFault("etcd", status=500)) if is_asked else None

        world.fault_of = refuse
        debug = {"name": "d", "image": "busybox", "envFrom": [{"secretRef": {"name": "pull"}}]}
        with world.others():
            patch = PatchBody(media_type=STRATEGIC, body={"spec": {"ephemeralContainers": [debug]}})
            world.hub.patch(PODS, A, patch, subresource="ephemeralcontainers")
        phases = set()
        for _ in range(100):
            await asyncio.sleep(0.2)
            phases.add(phase_of(world.hub_pod(A) or {}))
        assert phases == {"Running"}
        world.fault_of = None
        await world.until(lambda: bool(spec_of(world.mirror(A) or {}).get("ephemeralContainers")))


@virtual_time
async def test_what_the_configuration_shares_is_not_asked_for() -> None:
    world = CompanionWorld(companions=CompanionRules(shared=frozenset({PULL})))
    async with world.running():
        world.submit(needing("a", PULL))
        world.submit(pod("b"))
        await world.until(lambda: world.mirror(A) is not None)
        assert named(world, A) == ["pull"]
        assert not [call for call in world.target.calls if call.key.name == "pull"]


@virtual_time
async def test_a_process_that_dies_over_the_create_says_of_no_field_that_it_was_dropped() -> None:
    world = CompanionWorld(with_nets=False)
    async with world.running():
        world.submit(needing("first", (Kind.SECRET, "nothing")))
        await world.until(lambda: world.mirror(ObjectKey("default", "first")) is not None)
        share(world, "pull")
        died: list[Call] = []

        def die(call: Call) -> Fault | None:
            if call.verb == "create" and call.resource == PODS and not died:
                died.append(call)
                return CrashAfter()
            return None

        world.fault_of = die
        world.submit(needing("a", PULL))
        await world.until(lambda: world.mirror(A) is not None)
        await asyncio.sleep(10.0)
        assert died
        assert named(world, A) == ["pull"]
        assert "FieldsDropped" not in world.process.events.reasons
