"""Storage in the target, with the real schedulers and volume controllers of both sides.

The hub has a virtual node and one of its own. The test plays who writes the virtual node's
heartbeat, and mirroring: it makes the pods that the target's scheduler binds claims for.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from random import Random
from typing import Any
from uuid import uuid4

import pytest

from e2e.testbed.fixtures import TestbedFactory
from e2e.testbed.local import LocalCluster
from e2e.testbed.provider import ClusterSpec
from federate.claims.keys import claim_key, handle_of, origin_of_claim
from federate.claims.places import with_claims
from federate.claims.ports import ClaimTools
from federate.claims.reasons import ClaimReason
from federate.claims.reconciler import Claims
from federate.claims.render import render_storage_class
from federate.claims.rules import ClaimMode, ClaimRules
from federate.cluster.client import ClusterClient
from federate.cluster.connect import connect
from federate.cluster.store import Store
from federate.companions.ports import CompanionPorts
from federate.errors import AlreadyExists, NotFound
from federate.flow.ratebound import RateBound
from federate.mirror.ground import Ground, GroundRules
from federate.model.marks import Scope
from federate.model.naming import NamespaceRules, prefixed_namespace
from federate.model.objects import (
    JsonDict,
    JsonObject,
    ObjectKey,
    key_of,
    metadata_of,
    spec_of,
    status_of,
    uid_of,
)
from federate.model.reasons import PodReason
from federate.model.resources import (
    CLAIMS,
    CORE_EVENTS,
    NAMESPACES,
    NODES,
    PODS,
    STORAGE_CLASSES,
    VOLUMES,
    Resource,
)
from federate.patch.document import MERGE, PatchBody
from federate.runtime.companions import CompanionGround
from tests.support.claimstage import Told
from tests.support.scene import agreed

pytestmark = pytest.mark.integration

Clusters = tuple[LocalCluster, LocalCluster]

ATTACHMENTS = Resource(
    group_version="storage.k8s.io/v1",
    plural="volumeattachments",
    kind="VolumeAttachment",
    namespaced=False,
)
STATEFUL_SETS = Resource(
    group_version="apps/v1", plural="statefulsets", kind="StatefulSet", namespaced=True
)
STANDS_FOR = {"late": "late", "fast": "fast", "fast-delete": "fast", "fixed": "fixed"}
"""Class of the hub -> class of the target."""
WAIT_SECONDS = 120.0
"""Five times of what the slowest takes on a busy machine."""
BEAT_SECONDS = 5.0


@pytest.fixture(scope="module")
def claim_clusters(testbed_factory: TestbedFactory) -> Clusters:
    hub, target = testbed_factory.clusters(
        ClusterSpec(name="claims-hub", nodes=1), ClusterSpec(name="claims-target", nodes=1)
    )
    return hub, target


class _Register:
    """Keeps which namespaces have their anchor; satisfies `AnchorRegister`."""

    def __init__(self) -> None:
        self.kept: dict[str, str] = {}

    def recorded(self) -> dict[str, str]:
        return self.kept

    async def record(self, namespace: str, uid: str) -> None:
        self.kept[namespace] = uid


@dataclass
class World:
    """One virtual node of its own between the two clusters."""

    hub: ClusterClient
    target: ClusterClient
    suffix: str = field(default_factory=lambda: uuid4().hex[:6])

    def __post_init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.scope = Scope(hub_id=f"hub-{self.suffix}", node_name=f"edge-{self.suffix}")
        self.namespace = f"ns-{self.suffix}"
        self.target_namespace = prefixed_namespace(self.scope.hub_id, self.namespace)
        self.told = Told()
        anchors = Store()
        ground = Ground(
            rules=GroundRules(scope=self.scope, namespaces=NamespaceRules()),
            target=self.target,
            anchors=anchors,
            register=_Register(),
            confirm_target=agreed,
            fence=lambda: None,
            now=lambda: datetime.now(UTC),
        )
        ports = CompanionPorts(
            scope=self.scope,
            target_name="target",
            hub=self.hub,
            target=self.target,
            hub_pods=Store(),
            anchors=anchors,
            ground=CompanionGround(ground),
            shared=frozenset(),
            brings_tokens=False,
            target_namespace=lambda _pod: self.target_namespace,
            has_mirror=lambda _pod: False,
            is_refused=lambda pod: "refused" in key_of(pod).name,
            watched=lambda: ("",),
            wake=lambda _key: None,
            admit=lambda: None,
            target_reachable=lambda: True,
            leaving=lambda: False,
            confirm_hub=agreed,
            confirm_target=agreed,
            fence=lambda: None,
            fence_target=lambda: None,
            count_read=lambda _cluster: None,
            delete_bound=RateBound(per_second=50, burst=100, clock=loop.time),
            clock=loop.time,
            random=Random(1),
        )
        self.claims = Claims(
            ClaimTools(
                ports=ports,
                rules=ClaimRules(
                    mode=ClaimMode.TARGET,
                    storage_classes={self.hub_class(k): v for k, v in STANDS_FOR.items()},
                ),
                events=self.told,
                namespace_of=lambda name: prefixed_namespace(self.scope.hub_id, name),
            )
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Let the virtual node live and its claims be served inside."""
        await self._prepare()
        jobs = [self._beat(), *(r.run() for r in self.claims.open())]
        tasks = [asyncio.create_task(job) for job in jobs]
        tasks += [asyncio.create_task(part()) for part in self.claims.parts().values()]
        try:
            yield
            assert not [task for task in tasks if task.done()], tasks
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _prepare(self) -> None:
        labels = {"kubernetes.io/hostname": self.scope.node_name, "type": "virtual-kubelet"}
        node = {"metadata": {"name": self.scope.node_name, "labels": labels}}
        await self.hub.create(NODES, node)
        await self.hub.create(NAMESPACES, {"metadata": {"name": self.namespace}})
        for name, reclaim in (
            ("late", "Retain"),
            ("fast", "Retain"),
            ("fast-delete", "Delete"),
            ("fixed", "Retain"),
            ("unknown", "Retain"),
        ):
            rendered = render_storage_class(
                self.hub_class(name), node_names=[self.scope.node_name], reclaim=reclaim
            )
            await self.hub.create(STORAGE_CLASSES, rendered)

    def hub_class(self, name: str) -> str:
        """Classes of the hub are the test's own: each names its virtual node."""
        return f"{name}-{self.suffix}"

    async def _beat(self) -> None:
        sizes = {"cpu": "8", "memory": "8Gi", "pods": "100"}
        while True:
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            ready = {
                "type": "Ready",
                "status": "True",
                "reason": "Test",
                "message": "",
                "lastHeartbeatTime": now,
                "lastTransitionTime": now,
            }
            status = {"capacity": sizes, "allocatable": sizes, "conditions": [ready]}
            patch = PatchBody(media_type=MERGE, body={"status": status})
            await self.hub.patch(
                NODES, ObjectKey("", self.scope.node_name), patch, subresource="status"
            )
            await asyncio.sleep(BEAT_SECONDS)

    # -- users and administrators ------------------------------------------------------------------

    def key(self, name: str) -> ObjectKey:
        return ObjectKey(self.namespace, name)

    def claim_spec(self, storage_class: str, size: str = "1Gi", **fields: Any) -> JsonDict:
        return {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": self.hub_class(storage_class),
            "resources": {"requests": {"storage": size}},
            **fields,
        }

    async def ask(self, name: str, storage_class: str, **fields: Any) -> JsonDict:
        spec = self.claim_spec(storage_class, **fields)
        body = {"metadata": {"name": name}, "spec": spec}
        return await self.hub.create(CLAIMS, body, namespace=self.namespace)

    async def submit(self, name: str, *volumes: JsonDict, claim: str = "") -> JsonDict:
        """A user's pod, for the scheduler to place."""
        own = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}] if claim else []
        spec = {
            "containers": [{"name": "main", "image": "busybox"}],
            "volumes": [*own, *volumes],
            "terminationGracePeriodSeconds": 0,
        }
        body = {"metadata": {"name": name}, "spec": spec}
        for _ in range(100):
            try:
                return await self.hub.create(PODS, body, namespace=self.namespace)
            except Exception as error:
                if "serviceaccount" not in str(error).lower():
                    raise
                await asyncio.sleep(0.2)  # the namespace is new
        raise AssertionError("no service account")

    async def give_disk(self, storage_class: str, size: str) -> None:
        """Lay out storage in the target, for its own controllers to bind."""
        name = f"disk-{uuid4().hex[:8]}"
        spec = {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage_class,
            "hostPath": {"path": f"/tmp/{name}"},
            "persistentVolumeReclaimPolicy": "Retain",
        }
        await self.target.create(VOLUMES, {"metadata": {"name": name}, "spec": spec})

    async def mirror(self, name: str) -> JsonDict:
        """Play mirroring for a hub pod that nothing holds back."""
        hub_pod = await self.hub.get(PODS, self.key(name))
        names = self.claims.names(hub_pod, self.target_namespace)
        assert names is not None
        spec = with_claims(
            {
                "containers": [{"name": "main", "image": "busybox"}],
                "volumes": [v for v in spec_of(hub_pod)["volumes"] if "projected" not in v],
            },
            names,
        )
        body = {"metadata": {"name": name}, "spec": spec}
        return await self.target.create(PODS, body, namespace=self.target_namespace)

    # -- what there is -----------------------------------------------------------------------------

    async def hub_claim(self, name: str) -> JsonDict:
        return await self.hub.get(CLAIMS, self.key(name))

    async def is_bound(self, name: str) -> bool:
        return status_of(await self.hub_claim(name)).get("phase") == "Bound"

    async def node_of(self, name: str) -> str:
        found = spec_of(await self.hub.get(PODS, self.key(name))).get("nodeName")
        return str(found or "")

    async def is_free(self, name: str) -> bool:
        """Tell whether nothing holds back the mirror of a hub pod."""
        hub_pod = await self.hub.get(PODS, self.key(name))
        return self.claims.hold(hub_pod, self.target_namespace) is None

    async def volume_of(self, name: str) -> JsonDict:
        volume = spec_of(await self.hub_claim(name))["volumeName"]
        return await self.hub.get(VOLUMES, ObjectKey("", volume))

    async def claims_there(self) -> list[JsonDict]:
        listing = await self.target.list(CLAIMS, label_selector=self.scope.selector)
        return listing.items

    async def claim_for(self, name: str) -> JsonDict:
        """The target's claim that the hub's leads to."""
        handle = handle_of(self.scope, await self.volume_of(name))
        assert handle is not None
        return await self.target.get(CLAIMS, handle.key)

    async def events_of(self, obj: JsonObject) -> list[JsonDict]:
        selector = f"involvedObject.uid={uid_of(obj)}"
        listing = await self.hub.list(
            CORE_EVENTS, namespace=key_of(obj).namespace, field_selector=selector
        )
        return listing.items


async def wait_for(condition: Callable[[], Awaitable[object]], what: str = "") -> float:
    """Wait until it holds; return how long that took."""
    begun_at = time.monotonic()
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            try:
                if await condition():
                    break
            except NotFound:
                pass
            await asyncio.sleep(0.1)
    took = time.monotonic() - begun_at
    if what:
        print(f"{what}: {took:.2f} s")
    return took


@asynccontextmanager
async def world_of(clusters: Clusters) -> AsyncIterator[World]:
    hub, target = clusters
    hub_client = await connect(hub.kubeconfig, name="hub")
    target_client = await connect(target.kubeconfig, name="target")
    try:
        for name, mode, expands in (
            ("late", "WaitForFirstConsumer", True),
            ("fast", "Immediate", True),
            ("fixed", "Immediate", False),
        ):
            body = {
                "metadata": {"name": name},
                "provisioner": "kubernetes.io/no-provisioner",
                "volumeBindingMode": mode,
                "allowVolumeExpansion": expands,
            }
            with suppress(AlreadyExists):
                await target_client.create(STORAGE_CLASSES, body)
        world = World(hub_client, target_client)
        async with world.running():
            yield world
    finally:
        await hub_client.aclose()
        await target_client.aclose()


async def test_a_stateful_set_has_its_data_in_the_target(claim_clusters: Clusters) -> None:
    """Its pods come to the virtual node and stay there; the target's sizes are the hub's."""
    async with world_of(claim_clusters) as world:
        for _ in range(2):
            await world.give_disk("late", "2Gi")
        spec = {
            "replicas": 2,
            "serviceName": "web",
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {
                    "terminationGracePeriodSeconds": 0,
                    "containers": [{"name": "main", "image": "busybox"}],
                },
            },
            "podManagementPolicy": "Parallel",
            "volumeClaimTemplates": [
                {"metadata": {"name": "data"}, "spec": world.claim_spec("late")}
            ],
        }
        body = {"metadata": {"name": "web"}, "spec": spec}
        await world.hub.create(STATEFUL_SETS, body, namespace=world.namespace)
        for name in ("web-0", "web-1"):
            await wait_for(partial(world.node_of, name), f"{name} is bound")
            assert await world.node_of(name) == world.scope.node_name
            await wait_for(partial(world.is_free, name))
            mirror = await world.mirror(name)
            place = ObjectKey(world.target_namespace, key_of(mirror).name)

            async def is_placed(place: ObjectKey = place) -> bool:
                return bool(spec_of(await world.target.get(PODS, place)).get("nodeName"))

            await wait_for(is_placed, f"the mirror of {name} has its storage")

            async def has_grown(name: str = name) -> bool:
                claim = await world.hub_claim(f"data-{name}")
                return status_of(claim).get("capacity") == {"storage": "2Gi"}

            await wait_for(has_grown, f"the hub knows the size of {name}")
        await _is_left_alone(world, "web-0")
        # Another pod of the claim comes to the same node, though the hub has one of its own.
        await world.submit("reader", claim="data-web-0")
        await wait_for(lambda: world.node_of("reader"), "a later pod is bound")
        assert await world.node_of("reader") == world.scope.node_name


async def _is_left_alone(world: World, pod: str) -> None:
    """The hub's attach-detach controller has no business with our volumes."""
    await asyncio.sleep(5.0)
    attachments = await world.hub.list(ATTACHMENTS)
    mine = [a for a in attachments.items if spec_of(a)["nodeName"] == world.scope.node_name]
    assert not mine
    events = await world.events_of(await world.hub.get(PODS, world.key(pod)))
    assert not [event for event in events if "Attach" in event["reason"]]


async def test_an_ephemeral_volume_comes_and_goes_with_its_pod(claim_clusters: Clusters) -> None:
    """Its claim is the hub's own controller's; its class asks for the end of the data."""
    async with world_of(claim_clusters) as world:
        await world.give_disk("fast", "1Gi")
        template = {"spec": world.claim_spec("fast-delete")}
        await world.submit("web", {"name": "s", "ephemeral": {"volumeClaimTemplate": template}})
        await wait_for(lambda: world.node_of("web"), "the pod is bound")
        await wait_for(lambda: world.is_free("web"))
        claim = await world.claim_for("web-s")
        hub_pod = await world.hub.get(PODS, world.key("web"))
        names = world.claims.names(hub_pod, world.target_namespace)
        assert names == {"s": key_of(claim).name}
        await world.hub.delete(PODS, world.key("web"), uid=uid_of(hub_pod), grace_seconds=0)

        async def is_gone() -> bool:
            volumes = await world.hub.list(VOLUMES, label_selector=world.scope.selector)
            return not volumes.items and not await world.claims_there()

        await wait_for(is_gone, "volume and data are gone")


async def test_data_is_kept_and_may_be_given_to_another_claim(claim_clusters: Clusters) -> None:
    """As an administrator does it with any volume."""
    async with world_of(claim_clusters) as world:
        await world.give_disk("fast", "1Gi")
        hub_claim = await world.ask("data", "fast")
        await world.submit("first", claim="data")
        await wait_for(lambda: world.is_bound("data"), "bound")
        there = await world.claim_for("data")
        assert origin_of_claim(world.scope, there) == claim_key(hub_claim)
        volume = await world.volume_of("data")
        pod = await world.hub.get(PODS, world.key("first"))
        await world.hub.delete(PODS, world.key("first"), uid=uid_of(pod), grace_seconds=0)
        await world.hub.delete(CLAIMS, world.key("data"), uid=uid_of(hub_claim))

        async def is_released() -> bool:
            found = await world.hub.get(VOLUMES, key_of(volume))
            return bool(status_of(found)["phase"] == "Released")

        await wait_for(is_released, "released")
        patch = PatchBody(media_type=MERGE, body={"spec": {"claimRef": None}})
        await world.hub.patch(VOLUMES, key_of(volume), patch)
        await world.ask("again", "fast", volumeName=key_of(volume).name)
        await world.submit("second", claim="again")
        await wait_for(lambda: world.node_of("second"), "the second pod is bound")
        await wait_for(lambda: world.is_free("second"))
        hub_pod = await world.hub.get(PODS, world.key("second"))
        names = world.claims.names(hub_pod, world.target_namespace)
        assert names == {"data": key_of(there).name}
        assert [uid_of(claim) for claim in await world.claims_there()] == [uid_of(there)]


async def test_what_the_target_does_not_have_is_told_on_the_claim(
    claim_clusters: Clusters,
) -> None:
    """The scheduler is asked to choose again, and nothing is made; nor for a refused pod."""
    async with world_of(claim_clusters) as world:
        await world.ask("data", "unknown")
        await world.submit("web", claim="data")
        await world.ask("other", "fast")
        await world.submit("refused", claim="other")

        async def is_told() -> bool:
            told = {key.name for key, reason, _ in world.told.events
                    if reason == PodReason.CLAIM_REFUSED}  # fmt: skip
            return told == {"data", "other"}

        await wait_for(is_told, "told")
        await asyncio.sleep(12.0)
        assert await world.node_of("web") == ""
        assert await world.claims_there() == []
        with pytest.raises(NotFound):
            await world.target.get(NAMESPACES, ObjectKey("", world.target_namespace))
        times = sum(key.name == "data" for key, *_ in world.told.events)
        print(f"chosen and handed back {times} times within about 12 s")
        assert times <= 12
        await world.submit("good", claim="other")
        await world.give_disk("fast", "1Gi")
        await wait_for(lambda: world.node_of("good"), "for another pod it is made")


async def test_sizes_follow_or_their_refusal_is_told(claim_clusters: Clusters) -> None:
    """The API servers' own rules about what may grow."""
    async with world_of(claim_clusters) as world:
        for storage_class in ("fast", "fixed"):
            await world.give_disk(storage_class, "1Gi")
            await world.ask(f"on-{storage_class}", storage_class)
            await world.submit(f"pod-{storage_class}", claim=f"on-{storage_class}")
            await wait_for(partial(world.is_bound, f"on-{storage_class}"))
        larger = PatchBody(
            media_type=MERGE, body={"spec": {"resources": {"requests": {"storage": "3Gi"}}}}
        )
        for name in ("on-fast", "on-fixed"):
            await world.hub.patch(CLAIMS, world.key(name), larger)

        async def is_asked() -> bool:
            there = await world.claim_for("on-fast")
            return bool(spec_of(there)["resources"]["requests"]["storage"] == "3Gi")

        await wait_for(is_asked, "the target is asked")
        there = await world.claim_for("on-fast")
        # Speak as the target's resizer.
        grown = PatchBody(media_type=MERGE, body={"status": {"capacity": {"storage": "3Gi"}}})
        await world.target.patch(CLAIMS, key_of(there), grown, subresource="status")

        async def has_grown() -> bool:
            claim, volume = await world.hub_claim("on-fast"), await world.volume_of("on-fast")
            sizes = {
                status_of(claim)["capacity"]["storage"],
                spec_of(volume)["capacity"]["storage"],
            }
            return sizes == {"3Gi"}

        await wait_for(has_grown, "claim and volume of the hub are as large")

        async def is_refused() -> bool:
            return any(
                key.name == "on-fixed" and reason == ClaimReason.EXPANSION_REFUSED
                for key, reason, _ in world.told.events
            )

        await wait_for(is_refused, "the refusal is told")
        assert await world.is_free("pod-fixed")
        assert metadata_of(await world.claim_for("on-fixed")).get("deletionTimestamp") is None
