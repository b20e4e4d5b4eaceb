"""A leader of the product between two real API servers that have no kubelets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from uuid import uuid4

from federate.cluster.client import ClusterClient
from federate.cluster.port import ClusterPort
from federate.companions.rules import CompanionRules
from federate.errors import NotFound
from federate.model.marks import HUB_LABEL, HUB_NAMESPACE_ANNOTATION, Scope, record_of
from federate.model.naming import prefixed_namespace
from federate.model.objects import JsonDict, JsonObject, ObjectKey
from federate.model.pods import phase_of
from federate.model.resources import NAMESPACES, PODS, SERVICEACCOUNTS
from federate.node.capacity import CapacityRules
from federate.patch.document import MERGE, PatchBody
from federate.runtime.leading import Leading, LeadingPorts
from federate.runtime.settings import TargetSettings
from federate.runtime.telemetry import Metrics
from tests.support.scene import NoEvents, agreed


class RealWorld:
    """A real leader between two real API servers without kubelets; the test plays the rest.

    Each has a virtual node, and so target namespaces, of its own.
    """

    def __init__(self, hub: ClusterClient, target: ClusterPort) -> None:
        self.hub, self.target = hub, target
        suffix = uuid4().hex[:6]
        self.scope = Scope(hub_id=f"hub-{suffix}", node_name=f"edge-{suffix}")
        self.namespace = f"ns-{suffix}"
        self.target_namespace = prefixed_namespace(self.scope.hub_id, self.namespace)
        self.events = NoEvents()

    async def prepare(self) -> None:
        """Make what controllers make in a whole cluster: namespaces and service accounts."""
        await self.hub.create(NAMESPACES, {"metadata": {"name": self.namespace}})
        labels = {HUB_LABEL: self.scope.hub_id}
        marks = {HUB_NAMESPACE_ANNOTATION: self.namespace}
        meta = {"name": self.target_namespace, "labels": labels, "annotations": marks}
        body = {"metadata": meta}
        await self.target.create(NAMESPACES, body)
        for client, namespace in (
            (self.hub, self.namespace),
            (self.target, self.target_namespace),
        ):
            account = {"metadata": {"name": "default"}}
            await client.create(SERVICEACCOUNTS, account, namespace=namespace)

    @asynccontextmanager
    async def leading(self, companions: CompanionRules | None = None) -> AsyncIterator[Leading]:
        """Let a leader run inside, announced when it is entered."""
        settings = TargetSettings(
            name=self.scope.node_name,
            kubeconfig=Path("unused"),
            capacity=CapacityRules.fixed({"cpu": "4"}),
            companions=companions or CompanionRules(),
        )
        is_distinct = asyncio.Event()
        is_distinct.set()
        leading = Leading(
            settings,
            scope=self.scope,
            ports=LeadingPorts(
                hub=self.hub,
                target=self.target,
                events=self.events,
                fence=lambda: None,
                confirm_hub=agreed,
                metrics=Metrics(version="0"),
                is_distinct=is_distinct,
            ),
            node_address="10.0.0.9",
            federate_version="0",
        )
        running = asyncio.create_task(leading.run())
        try:
            await until(lambda: leading.is_announced or running.done())
            assert not running.done(), running.exception()
            yield leading
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running

    def key(self, name: str) -> ObjectKey:
        return ObjectKey(self.namespace, name)

    def mirror_key(self, name: str) -> ObjectKey:
        return ObjectKey(self.target_namespace, name)

    async def submit(self, name: str, **spec: object) -> JsonDict:
        """A user's pod lands on the virtual node."""
        body = {
            "metadata": {"name": name},
            "spec": {
                "nodeName": self.scope.node_name,
                "containers": [{"name": "main", "image": "busybox"}],
                "terminationGracePeriodSeconds": 20,
                **spec,
            },
        }
        return await self.hub.create(PODS, body, namespace=self.namespace)

    async def hub_pod(self, name: str) -> JsonDict | None:
        return await read(self.hub, self.key(name))

    async def mirror(self, name: str) -> JsonDict | None:
        return await read(self.target, self.mirror_key(name))

    async def mirrored(self, name: str) -> JsonDict:
        """Wait until the hub pod remembers its mirror, and return the mirror."""
        while True:
            found = await self.hub_pod(name)
            record = record_of(found) if found is not None else None
            if record is not None and record.mirror_uid:
                mirror = await self.mirror(name)
                assert mirror is not None
                return mirror
            await asyncio.sleep(0.05)

    async def report(self, name: str, status: JsonObject) -> None:
        """Speak as the target's kubelet."""
        patch = PatchBody(media_type=MERGE, body={"status": dict(status)})
        await self.target.patch(PODS, self.mirror_key(name), patch, subresource="status")

    async def in_phase(self, name: str, phase: str) -> JsonDict:
        """Wait until the hub pod is in the phase, and return it."""
        while True:
            found = await self.hub_pod(name)
            if found is not None and phase_of(found) == phase:
                return found
            await asyncio.sleep(0.05)

    async def gone(self, name: str) -> None:
        """Wait until neither hub pod nor mirror is there."""
        while await self.hub_pod(name) is not None or await self.mirror(name) is not None:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def read(client: ClusterPort, key: ObjectKey) -> JsonDict | None:
    """Read a pod, None where there is none."""
    try:
        return await client.get(PODS, key)
    except NotFound:
        return None


async def until(condition: Callable[[], bool], *, seconds: float = 60.0) -> None:
    """Wait in real time until the condition holds."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.02)
