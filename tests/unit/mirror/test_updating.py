"""Updates between two clusters in memory: requests counted, refused, cut short (C25)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from federate.errors import Conflict, Forbidden, NotFound, Rejected, ServerFault
from federate.model.marks import LAST_APPLIED_SPEC_ANNOTATION
from federate.model.objects import (
    JsonDict,
    ObjectKey,
    annotations_of,
    condition_of,
    metadata_of,
    spec_of,
    uid_of,
)
from federate.model.pods import phase_of
from federate.model.resources import PODS
from federate.patch.document import MERGE, STRATEGIC, PatchBody
from federate.status.project import UPDATE_REJECTED
from tests.support.builders import pod
from tests.support.clock import virtual_time
from tests.support.fakeclient import Call, CrashAfter, Fault, Refuse
from tests.support.worlds import World

A = ObjectKey("default", "a")
IMAGE: JsonDict = {"containers": [{"name": "main", "image": "app:2"}]}
DEBUG: JsonDict = {"ephemeralContainers": [{"name": "debug", "image": "busybox"}]}
MORE: JsonDict = {"containers": [{"name": "main", "resources": {"requests": {"cpu": "2"}}}]}


def hub_pod_of(world: World) -> JsonDict:
    found = world.hub_pod(A)
    assert found is not None
    return found


def mirror_of(world: World) -> JsonDict:
    found = world.mirror(A)
    assert found is not None
    return found


def image_of_mirror(world: World) -> str:
    image: str = spec_of(mirror_of(world))["containers"][0]["image"]
    return image


async def running(world: World) -> None:
    """Pod `a` runs, with requests, and everything is quiet."""
    world.submit(pod("a").with_requests(cpu="1", memory="1Gi"))
    await asyncio.sleep(2.0)
    world.play(A, "Running")
    await asyncio.sleep(1.0)
    assert phase_of(hub_pod_of(world)) == "Running"


def change(world: World, spec: JsonDict, *, subresource: str = "") -> None:
    """A user changes the hub pod."""
    with world.others():
        patch = PatchBody(media_type=STRATEGIC, body={"spec": spec})
        world.hub.patch(PODS, A, patch, subresource=subresource)


def patches(world: World) -> list[Call]:
    return [c for c in world.target.calls if c.verb == "patch" and c.resource == PODS]


def refuse_spec(error: Exception, *, name: str) -> Callable[[Call], Fault | None]:
    """Every patch in the target that changes that part of a spec is refused."""

    def fault_of(call: Call) -> Fault | None:
        is_patch = call.client == "target" and call.verb == "patch" and call.resource == PODS
        hit = is_patch and name in str((call.body or {}).get("spec"))
        return Refuse(error) if hit else None  # type: ignore[arg-type]

    return fault_of


def told(world: World) -> JsonDict:
    return dict(condition_of(hub_pod_of(world), UPDATE_REJECTED) or {})


def sound(world: World) -> None:
    assert not world.witness.broken, world.witness.broken
    assert not world.differences(), world.differences()


@virtual_time
async def test_an_image_costs_one_read_and_one_write() -> None:
    """The hub pod is read directly, and change and record travel in one request."""
    world = World()
    async with world.running():
        await running(world)
        reads, writes = len(world.hub.calls), len(patches(world))
        change(world, IMAGE)
        await asyncio.sleep(90.0)
        made = patches(world)[writes:]
        assert [c.subresource for c in made] == [""]
        assert image_of_mirror(world) == "app:2"
        gets = [c for c in world.hub.calls[reads:] if c.verb == "get" and c.resource == PODS]
        assert len(gets) == 1
        sound(world)


@virtual_time
async def test_a_subresource_costs_two_writes() -> None:
    """First the change, then the record, each for that very version of the mirror."""
    for spec, subresource in ((DEBUG, "ephemeralcontainers"), (MORE, "resize")):
        world = World()
        async with world.running():
            await running(world)
            writes = len(patches(world))
            change(world, spec, subresource=subresource)
            await asyncio.sleep(90.0)
            made = patches(world)[writes:]
            assert [c.subresource for c in made] == [subresource, ""]
            for call in made:
                assert call.body is not None
                assert call.body["metadata"]["uid"] == uid_of(mirror_of(world))
                assert call.body["metadata"]["resourceVersion"]
            sound(world)


@virtual_time
async def test_a_change_before_the_mirror_starts_is_in_it_from_the_first() -> None:
    """What the user changed in the meantime does not cost the mirror a restart."""
    world = World()
    async with world.running():
        started: list[str] = []

        def see(call: Call) -> Fault | None:
            if call.client == "target" and call.verb == "create" and call.resource == PODS:
                change(world, IMAGE)
            if call.client == "target" and "schedulingGates" in (call.body or {}).get("spec", {}):
                started.append(image_of_mirror(world) if call.verb == "patch" else "made")
            return None

        world.fault_of = see
        world.submit(pod("a"))
        await asyncio.sleep(5.0)
        assert started == ["made", "app:2"]
        sound(world)


@virtual_time
async def test_a_refused_update_is_told_and_status_flows_on() -> None:
    """One Event and a condition; the mirror's status comes up; when it is taken all is quiet."""
    world = World()
    async with world.running():
        await running(world)
        error = Rejected("image not allowed", reason="Invalid", status=422)
        world.fault_of = refuse_spec(error, name="app:2")
        writes = len(patches(world))
        change(world, IMAGE)
        await asyncio.sleep(4.0)
        assert told(world)["reason"] == "UpdateRejected"
        assert "image not allowed" in told(world)["message"]
        with world.others():
            world.target.set_pod_status(world.mirror_key(A), phase="Running", ready=False)
        await asyncio.sleep(1.0)
        assert (condition_of(hub_pod_of(world), "Ready") or {})["status"] == "False"
        change(world, {"activeDeadlineSeconds": 900})
        await asyncio.sleep(1.0)
        assert spec_of(mirror_of(world))["activeDeadlineSeconds"] == 900
        await asyncio.sleep(600.0)
        assert 3 <= len(patches(world)) - writes <= 12
        assert world.process.events.reasons.count("UpdateRejected") == 1
        world.fault_of = None
        await asyncio.sleep(400.0)
        assert image_of_mirror(world) == "app:2"
        assert told(world) == {}
        sound(world)


@virtual_time
async def test_every_kind_of_refusal_is_told() -> None:
    """403 and a failing webhook too; the words are the target's."""
    answers = (
        (Forbidden("exceeded quota: q", reason="Forbidden", status=403), "UpdateRejected"),
        (ServerFault("failed calling webhook", status=500), "TargetError"),
    )
    for error, reason in answers:
        world = World()
        async with world.running():
            await running(world)
            world.fault_of = refuse_spec(error, name="resources")
            change(world, MORE, subresource="resize")
            await asyncio.sleep(4.0)
            assert told(world)["reason"] == reason
            assert error.detail in told(world)["message"]


@virtual_time
async def test_a_target_without_the_subresource_is_told() -> None:
    """pods/resize is not found before 1.33, though the pod is there: nothing is lost."""
    world = World()
    async with world.running():
        await running(world)
        detail = "the server could not find the requested resource"
        error = NotFound(detail, reason="NotFound", status=404)
        world.fault_of = refuse_spec(error, name="resources")
        change(world, MORE, subresource="resize")
        await asyncio.sleep(60.0)
        assert told(world)["reason"] == "UpdateNotSupported"
        assert phase_of(hub_pod_of(world)) == "Running"
        change(world, IMAGE)
        await asyncio.sleep(5.0)
        assert image_of_mirror(world) == "app:2"


@virtual_time
async def test_a_passing_fault_is_no_refusal() -> None:
    """An overloaded target is asked again, and nobody is told."""
    world = World()
    async with world.running():
        await running(world)
        world.fault_of = refuse_spec(ServerFault("bad gateway", status=502), name="app:2")
        change(world, IMAGE)
        await asyncio.sleep(20.0)
        assert told(world) == {}
        world.fault_of = None
        await asyncio.sleep(60.0)
        sound(world)


@virtual_time
async def test_c71_a_crash_between_a_change_and_its_record() -> None:
    """Even where the target changed the debug container: it is not refused as another one."""
    world = World()
    async with world.running():
        await running(world)

        def die(call: Call) -> Fault | None:
            if call.client != "target" or call.subresource != "ephemeralcontainers":
                return None
            world.fault_of = None
            return CrashAfter()

        world.fault_of = die
        change(world, DEBUG, subresource="ephemeralcontainers")
        await asyncio.sleep(0.1)
        with world.others():
            world.target.edit(
                PODS,
                world.mirror_key(A),
                lambda p: p["spec"]["ephemeralContainers"][0].update(image="cache/busybox"),
            )
        await asyncio.sleep(60.0)
        assert world.processes == 2
        made = [c for c in patches(world) if c.subresource == "ephemeralcontainers"]
        assert len(made) == 1
        assert told(world) == {}
        sound(world)


@virtual_time
async def test_a_target_that_rewrites_images_is_not_written_to_again() -> None:
    """Admission that changes what we send: one write for each change of the user."""
    world = World()

    def rewrite(call: Call) -> Fault | None:
        if (call.client, call.verb, call.resource) == ("target", "patch", PODS):
            for container in ((call.body or {}).get("spec") or {}).get("containers", ()):
                container["image"] = "cache.example/" + container["image"]
        return None

    async with world.running():
        await running(world)
        world.fault_of = rewrite
        writes = len(patches(world))
        change(world, IMAGE)
        await asyncio.sleep(300.0)
        assert image_of_mirror(world) == "cache.example/app:2"
        assert len(patches(world)) - writes == 1
        change(world, DEBUG, subresource="ephemeralcontainers")
        await asyncio.sleep(300.0)
        assert image_of_mirror(world) == "cache.example/app:2"
        assert len(patches(world)) - writes == 3
        sound(world)


@virtual_time
async def test_a_target_that_keeps_no_record_is_not_written_to_in_a_loop() -> None:
    """It is told, and tried again slowly."""
    world = World()

    def strip(call: Call) -> Fault | None:
        if (call.client, call.verb, call.resource) == ("target", "patch", PODS):
            (call.body or {})["metadata"].pop("annotations", None)
        return None

    async with world.running():
        await running(world)
        world.fault_of = strip
        writes = len(patches(world))
        change(world, IMAGE)
        await asyncio.sleep(600.0)
        assert len(patches(world)) - writes <= 9
        assert told(world)["reason"] == "UpdateNotSupported"


@virtual_time
async def test_c4_a_target_that_takes_the_record_off_afterwards_is_no_loop() -> None:
    """What the target took, and took again at once, is undone by somebody: told, and slow."""
    world = World()
    async with world.running():
        await running(world)
        writes = len(patches(world))
        for _ in range(100):
            with world.others():
                gone = {"metadata": {"annotations": {LAST_APPLIED_SPEC_ANNOTATION: None}}}
                key = world.mirror_key(A)
                world.target.patch(PODS, key, PatchBody(media_type=MERGE, body=gone))
            await asyncio.sleep(3.0)
        assert len(patches(world)) - writes - 100 <= 9
        assert told(world)["reason"] == "UpdateNotSupported"


@virtual_time
async def test_a_policy_that_answers_409_is_not_asked_in_a_loop() -> None:
    """One conflict is a mirror that moved; more of them back off like any other failure."""
    world = World()
    async with world.running():
        await running(world)
        world.fault_of = refuse_spec(Conflict("a policy says so", subject="pod a"), name="app:2")
        writes = len(patches(world))
        change(world, IMAGE)
        await asyncio.sleep(60.0)
        assert 2 <= len(patches(world)) - writes <= 40


@virtual_time
async def test_a_target_that_drops_a_resize_is_told() -> None:
    """A server that does not know a field takes the request, and keeps nothing of it."""
    world = World()

    def drop(call: Call) -> Fault | None:
        if call.client == "target" and call.subresource == "resize":
            assert isinstance(call.body, dict)
            del call.body["spec"]
        return None

    async with world.running():
        world.submit(pod("a").with_requests(cpu="1"))
        await asyncio.sleep(2.0)
        world.play(A, "Running")
        await asyncio.sleep(1.0)
        world.fault_of = drop
        limits = {"containers": [{"name": "main", "resources": {"limits": {"memory": "1Gi"}}}]}
        change(world, limits, subresource="resize")
        await asyncio.sleep(4.0)
        assert told(world)["reason"] == "UpdateNotSupported"
        assert "containers[main].resources.limits" in told(world)["message"]
        assert "1Gi" not in annotations_of(mirror_of(world))[LAST_APPLIED_SPEC_ANNOTATION]


@virtual_time
async def test_a_hub_pod_from_a_cache_that_is_behind_takes_nothing_back() -> None:
    """The store shows an older hub pod than was applied: the direct read says so."""
    world = World(with_nets=False)
    async with world.running():
        await running(world)
        old = hub_pod_of(world)
        change(world, IMAGE)
        await asyncio.sleep(2.0)
        assert image_of_mirror(world) == "app:2"
        writes = len(patches(world))
        for event in world.process.hub_pods.replace([old]):
            world.process.mirroring._on_hub_pod(event)
        await asyncio.sleep(5.0)
        assert len(patches(world)) == writes
        assert image_of_mirror(world) == "app:2"
        sound(world)


@virtual_time
async def test_c40_the_generation_the_kubelet_saw_is_told_when_it_saw_it() -> None:
    """Who waits for observedGeneration after a change waits for the target's kubelet."""
    world = World()
    async with world.running():
        await running(world)

        def observe() -> None:
            with world.others():
                world.target.edit(
                    PODS,
                    world.mirror_key(A),
                    lambda p: p["status"].update(observedGeneration=p["metadata"]["generation"]),
                )

        observe()
        await asyncio.sleep(1.0)
        before = metadata_of(hub_pod_of(world))["generation"]
        assert hub_pod_of(world)["status"]["observedGeneration"] == before
        change(world, IMAGE)
        await asyncio.sleep(2.0)
        assert image_of_mirror(world) == "app:2"
        assert hub_pod_of(world)["status"]["observedGeneration"] == before
        observe()
        await asyncio.sleep(1.0)
        assert hub_pod_of(world)["status"]["observedGeneration"] == before + 1
        sound(world)
