"""Updates between real API servers: what they take, what they refuse, and what becomes of it (C25).

There are no kubelets: the test speaks as one where it is needed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from e2e.testbed.fixtures import LIGHT_TARGET, TestbedFactory
from e2e.testbed.local import LocalCluster
from federate.model.marks import HUB_GENERATION_ANNOTATION, LAST_APPLIED_SPEC_ANNOTATION
from federate.model.objects import (
    JsonDict,
    JsonObject,
    annotations_of,
    condition_of,
    metadata_of,
    spec_of,
    status_of,
    uid_of,
)
from federate.model.resources import PODS
from federate.patch.document import MERGE, STRATEGIC, PatchBody
from federate.status.project import UPDATE_REJECTED
from tests.integration.test_reconciler_real import world_of
from tests.support.realworld import RealWorld

pytestmark = pytest.mark.integration

RESOURCES = {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "1"}}
CONTAINERS: list[JsonDict] = [
    {"name": "main", "image": "app:1", "resources": RESOURCES},
    {"name": "side", "image": "side:1"},
]
SIDECAR = [{"name": "log", "image": "log:1", "restartPolicy": "Always", "resources": RESOURCES}]


async def change(world: RealWorld, spec: JsonDict, *, subresource: str = "") -> None:
    """A user changes the hub pod."""
    patch = PatchBody(media_type=STRATEGIC, body={"spec": spec})
    await world.hub.patch(PODS, world.key("a"), patch, subresource=subresource)


async def seen(world: RealWorld, what: Callable[[JsonObject], object]) -> JsonDict:
    """Wait until the mirror is as it should be, and return it."""
    while not what(found := await world.mirror("a") or {}):  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    return found


async def applied(world: RealWorld) -> JsonDict:
    """Wait until all of the hub pod's spec is said to be applied, and return the mirror."""
    while True:
        hub_pod, mirror = await world.hub_pod("a") or {}, await world.mirror("a") or {}
        generation = str(metadata_of(hub_pod).get("generation"))
        if annotations_of(mirror).get(HUB_GENERATION_ANNOTATION) == generation:
            return mirror
        await asyncio.sleep(0.05)


async def change_everything(world: RealWorld) -> JsonDict:
    """Change each field once, all at the same time, and return the mirror when it followed."""
    more = {**RESOURCES, "requests": {"cpu": "200m", "memory": "64Mi"}}
    found = await world.hub_pod("a") or {}
    tolerations = [*spec_of(found)["tolerations"], {"key": "x", "operator": "Exists"}]
    await change(
        world,
        {
            "containers": [{"name": "main", "image": "app:2"}],
            "initContainers": [{"name": "log", "image": "log:2"}],
            "activeDeadlineSeconds": 900,
            "tolerations": tolerations,
        },
    )
    debug = {"ephemeralContainers": [{"name": "debug", "image": "busybox", "stdin": True}]}
    await change(world, debug, subresource="ephemeralcontainers")
    resized = {
        "containers": [{"name": "main", "resources": more}],
        "initContainers": [{"name": "log", "resources": more}],
    }
    await change(world, resized, subresource="resize")
    await applied(world)
    second = {"ephemeralContainers": [{"name": "second", "image": "busybox"}]}
    await change(world, second, subresource="ephemeralcontainers")
    mirror = await applied(world)
    spec = spec_of(mirror)
    assert [c["image"] for c in spec["containers"]] == ["app:2", "side:1"]
    assert spec["initContainers"][0]["image"] == "log:2"
    assert spec["containers"][0]["resources"] == more
    assert spec["initContainers"][0]["resources"] == more
    assert spec["activeDeadlineSeconds"] == 900
    assert {t["key"] for t in spec["tolerations"]} >= {"x", "node.kubernetes.io/not-ready"}
    assert {c["name"] for c in spec["ephemeralContainers"]} == {"debug", "second"}
    return mirror


async def test_every_change_comes_to_the_mirror(
    light_hub: LocalCluster, light_target: LocalCluster
) -> None:
    """Through the right subresources, and then nothing more is written."""
    async with world_of(light_hub, light_target) as world, world.leading():
        await world.submit("a", containers=CONTAINERS, initContainers=SIDECAR)
        made = await world.mirrored("a")
        mirror = await change_everything(world)
        assert uid_of(mirror) == uid_of(made)
        hub_pod = await world.hub_pod("a") or {}
        assert condition_of(hub_pod, UPDATE_REJECTED) is None
        await asyncio.sleep(2.0)
        assert await world.mirror("a") == mirror
        assert await world.hub_pod("a") == hub_pod


async def test_every_change_comes_to_the_mirror_on_a_newer_target(
    testbed_factory: TestbedFactory, light_hub: LocalCluster
) -> None:
    """The same on the newest minor that the test bed has."""
    newer = testbed_factory.cluster(replace(LIGHT_TARGET, name="light-newer", minor="1.36"))
    async with world_of(light_hub, newer) as world, world.leading():
        await world.submit("a", containers=CONTAINERS, initContainers=SIDECAR)
        await world.mirrored("a")
        await change_everything(world)


async def test_a_pod_that_is_debugged_and_changed_before_it_has_a_mirror(
    light_hub: LocalCluster, light_target: LocalCluster
) -> None:
    """What came before the mirror is in it, or follows at once."""
    async with world_of(light_hub, light_target) as world:
        await world.submit("a", containers=CONTAINERS)
        debug = {"ephemeralContainers": [{"name": "debug", "image": "busybox"}]}
        await change(world, debug, subresource="ephemeralcontainers")
        await change(world, {"containers": [{"name": "main", "image": "app:2"}]})
        async with world.leading():
            mirror = await applied(world)
            assert spec_of(mirror)["containers"][0]["image"] == "app:2"
            assert [c["name"] for c in spec_of(mirror)["ephemeralContainers"]] == ["debug"]


async def test_a_refused_update_is_told_and_taken_when_it_is_allowed(
    light_hub: LocalCluster, light_target: LocalCluster
) -> None:
    """A policy of the target forbids an image: told with its words, while the status flows."""
    async with world_of(light_hub, light_target) as world, world.leading():
        await world.submit("a", containers=CONTAINERS)
        await world.mirrored("a")
        policy = f"images-{world.namespace}"
        forbid(light_target, policy, namespace=world.target_namespace)
        try:
            await refused_while_the_policy_stands(world, light_target)
        finally:
            light_target.kubectl("delete", "validatingadmissionpolicybinding", policy)
            light_target.kubectl("delete", "validatingadmissionpolicy", policy)
        # The user takes back what was refused; the next change is taken.
        await change(world, {"containers": [{"name": "main", "image": "app:3"}]})
        await seen(world, lambda p: spec_of(p)["containers"][0]["image"] == "app:3")
        await applied(world)
        while condition_of(await world.hub_pod("a") or {}, UPDATE_REJECTED):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        assert world.events.reasons.count("UpdateRejected") == 1


async def refused_while_the_policy_stands(world: RealWorld, target: LocalCluster) -> None:
    """Change the image, see it refused, and see everything else go on."""
    await until_forbidden(world)
    await change(world, {"containers": [{"name": "main", "image": "forbidden:2"}]})
    while not (told := condition_of(await world.hub_pod("a") or {}, UPDATE_REJECTED)):  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    assert told["reason"] == "UpdateRejected"
    assert "no such images here" in told["message"]
    await world.report("a", {"phase": "Running", "message": "as the kubelet says"})
    running = await world.in_phase("a", "Running")
    assert status_of(running)["message"] == "as the kubelet says"
    assert condition_of(running, UPDATE_REJECTED)
    await change(world, {"activeDeadlineSeconds": 900})
    mirror = await seen(world, lambda p: spec_of(p).get("activeDeadlineSeconds") == 900)
    assert spec_of(mirror)["containers"][0]["image"] == "app:1"


async def until_forbidden(world: RealWorld) -> None:
    """A policy takes a moment to be in force."""
    image = {"spec": {"containers": [{"name": "main", "image": "forbidden:1"}]}}
    patch = PatchBody(media_type=STRATEGIC, body=image)
    while True:
        try:
            await world.target.patch(PODS, world.mirror_key("a"), patch, dry_run=True)
        except Exception as error:
            if "no such images" in str(error):
                return
            raise
        await asyncio.sleep(0.2)


def forbid(target: LocalCluster, name: str, *, namespace: str) -> None:
    """Make the target refuse images called `forbidden` in one namespace."""
    path = "/apis/admissionregistration.k8s.io/v1"
    kind = "admissionregistration.k8s.io/v1"
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["UPDATE"],
        "resources": ["pods"],
    }
    expression = "object.spec.containers.all(c, !c.image.startsWith('forbidden'))"
    policy = {
        "apiVersion": kind,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": expression, "message": "no such images here"}],
        },
    }
    selector = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    binding = {
        "apiVersion": kind,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {
            "policyName": name,
            "validationActions": ["Deny"],
            "matchResources": {"namespaceSelector": selector},
        },
    }
    target.api.post(f"{path}/validatingadmissionpolicies", policy)
    target.api.post(f"{path}/validatingadmissionpolicybindings", binding)


async def test_what_a_resize_comes_to_is_told_on_the_hub(
    light_hub: LocalCluster, light_target: LocalCluster
) -> None:
    """The kubelet's resources, conditions and observed generation, in the hub's count."""
    async with world_of(light_hub, light_target) as world, world.leading():
        await world.submit("a", containers=CONTAINERS)
        mirror = await world.mirrored("a")
        status: JsonDict = {"phase": "Running", "observedGeneration": 2, "containerStatuses": []}
        for container in CONTAINERS:
            told = {**container, "imageID": "x", "ready": True, "restartCount": 0}
            running = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
            resources = container.get("resources", {})
            status["containerStatuses"].append({**told, "state": running, "resources": resources})
        await world.report("a", status)
        await world.in_phase("a", "Running")
        more = {**RESOURCES, "requests": {"cpu": "300m", "memory": "64Mi"}}
        await change(
            world, {"containers": [{"name": "main", "resources": more}]}, subresource="resize"
        )
        mirror = await applied(world)
        hub_pod = await world.hub_pod("a") or {}
        assert status_of(hub_pod)["observedGeneration"] == 1
        generation = metadata_of(mirror)["generation"]
        status["observedGeneration"] = generation
        status["containerStatuses"][0] |= {
            "resources": more,
            "allocatedResources": more["requests"],
        }
        kind = {"type": "PodResizeInProgress", "status": "True", "observedGeneration": generation}
        await world.report("a", {**status, "conditions": [kind], "resize": "InProgress"})
        while status_of(hub_pod).get("observedGeneration") != 2:
            await asyncio.sleep(0.05)
            hub_pod = await world.hub_pod("a") or {}
        main = status_of(hub_pod)["containerStatuses"][0]
        assert main["resources"] == more
        assert main["allocatedResources"] == more["requests"]
        assert (condition_of(hub_pod, "PodResizeInProgress") or {})["observedGeneration"] == 2
        before = metadata_of(hub_pod)["resourceVersion"]
        await asyncio.sleep(1.0)
        assert metadata_of(await world.hub_pod("a") or {})["resourceVersion"] == before


async def test_a_mirror_of_an_older_federate_is_taken_on(
    light_hub: LocalCluster, light_target: LocalCluster
) -> None:
    """Without a record: what the hub pod is now counts as applied, unless its generation moved."""
    async with world_of(light_hub, light_target) as world:
        async with world.leading():
            await world.submit("a", containers=CONTAINERS)
            await world.mirrored("a")
        bare = {"metadata": {"annotations": {LAST_APPLIED_SPEC_ANNOTATION: None}}}
        patch = PatchBody(media_type=MERGE, body=bare)
        await world.target.patch(PODS, world.mirror_key("a"), patch)
        theirs = {"containers": [{"name": "side", "image": "cache.example/side:1"}]}
        patch = PatchBody(media_type=STRATEGIC, body={"spec": theirs})
        await world.target.patch(PODS, world.mirror_key("a"), patch)
        async with world.leading():
            await seen(world, lambda p: LAST_APPLIED_SPEC_ANNOTATION in annotations_of(p))
            await change(world, {"containers": [{"name": "main", "image": "app:2"}]})
            mirror = await applied(world)
            images = [c["image"] for c in spec_of(mirror)["containers"]]
            assert images == ["app:2", "cache.example/side:1"]
