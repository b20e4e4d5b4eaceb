"""One virtual node's network between two clusters in memory: pods live there, Services follow.

The stage plays what mirroring does: it tells of hub pods with their records, and lays the ground.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

from federate.cluster.store import Change
from federate.companions.environment import Advertised
from federate.companions.steps import Ground
from federate.errors import FederateError
from federate.flow.controller import Outcome
from federate.flow.ratebound import RateBound
from federate.model.marks import RECORD_ANNOTATION, MirrorRecord, Scope
from federate.model.naming import anchor_name, prefixed_namespace
from federate.model.objects import JsonDict, JsonObject, ObjectKey
from federate.model.pods import NODE_TYPE_LABEL, VIRTUAL_NODE_TYPE
from federate.model.resources import CONFIGMAPS, NAMESPACES, NODES, PODS, SERVICES
from federate.runtime.together import run_together
from federate.services.addressing import AddressPorts
from federate.services.network import Network
from federate.services.ports import ServicePorts
from federate.services.reading import SharedRanges, read_range_sources
from federate.services.rules import NetworkRules
from federate.services.watched import hub_services
from tests.support.builders import pod
from tests.support.fakeclient import Call, Crash, Fault
from tests.support.fakecluster import FakeCluster
from tests.support.scene import SCOPE, TARGET_NAMESPACE, Told

WEB = ObjectKey("default", "web")
THERE = ObjectKey(TARGET_NAMESPACE, "web")
WEB_LABELS = {"app": "web"}


class StageGround:
    """Anchors as they are in the target; a namespace may be uninstalled."""

    def __init__(self, target: FakeCluster, scope: Scope) -> None:
        self._target = target
        self._scope = scope
        self.uninstalled: set[str] = set()

    def state(self, namespace: str) -> Ground:
        if namespace in self.uninstalled:
            return Ground.UNINSTALLED
        return Ground.READY if self.anchor(namespace) is not None else Ground.NOT_YET

    def anchor(self, namespace: str) -> JsonObject | None:
        if namespace in self.uninstalled:
            return None
        return self._target.find(CONFIGMAPS, ObjectKey(namespace, anchor_name(self._scope)))


class VirtualNodeStage:
    """What one virtual node, in one process, knows and does."""

    def __init__(
        self,
        stage: NetworkStage,
        scope: Scope,
        rules: NetworkRules,
        *,
        shares_hub: bool = False,
        advertised: Advertised | None = None,
    ) -> None:
        self.stage, self.scope, self.told = stage, scope, Told()
        self.ground = StageGround(stage.target, scope)
        self.woken: list[ObjectKey] = []
        self.decisions = 0
        self.fenced: FederateError | None = None
        clock, chance = stage.clock, random.Random(7)
        client = stage.client_name(scope)
        hub, target = stage.hub.client(f"hub-{client}"), stage.target.client(f"target-{client}")
        self.network = Network(
            rules,
            ServicePorts(
                scope=scope,
                target_name="edge-1",
                hub=hub,
                target=target,
                ground=self.ground,
                events=self.told,
                target_namespace=lambda name: prefixed_namespace(scope.hub_id, name),
                watched=lambda: ("",),
                wake=self.woken.append,
                admit=_nothing_instead,
                target_reachable=lambda: stage.target_reachable,
                leaving=lambda: stage.is_leaving,
                confirm_hub=stage.confirm,
                confirm_target=stage.confirm,
                fence=self._fence,
                fence_target=lambda: None,
                delete_bound=RateBound(per_second=50.0, burst=100, clock=clock),
                clock=clock,
                random=chance,
                resolve=stage.resolve,
            ),
            AddressPorts(
                read_hub=SharedRanges(hub, clock=clock).read
                if shares_hub
                else partial(read_range_sources, hub),
                read_target=partial(read_range_sources, target),
                node_name=scope.node_name,
                target_name="edge-1",
                target_identity=lambda: "target-uid",
                target_reachable=lambda: stage.target_reachable,
                changed=self._decided,
                clock=clock,
                random=chance,
            ),
            services=hub_services(hub, clock=clock, random=chance),
            advertised=advertised,
        )

    def _decided(self) -> None:
        self.decisions += 1

    def _fence(self) -> None:
        if self.fenced is not None:
            raise self.fenced

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Network]:
        """Run as a leader does; what ends it is raised."""
        self.stage.nodes.append(self)
        for key, hub_pod in self.stage.pods_on(self.scope.node_name).items():
            self.network.on_hub_pod(Change(key=key, old=None, new=hub_pod))
        parts = [*self.network.parts().values()]
        if self.network.reads_services:
            parts.append(self.network.services.run)
        task = asyncio.create_task(run_together(*parts))
        try:
            await asyncio.sleep(0)
            yield self.network
            if task.done():
                task.result()
        finally:
            self.stage.nodes.remove(self)
            task.cancel()
            with suppress(asyncio.CancelledError, Exception, Crash):
                await task


def _nothing_instead() -> Outcome | None:
    return None


class NetworkStage:
    """Hub and target, and what a user or an admin does there."""

    def __init__(self) -> None:
        self.clock = asyncio.get_running_loop().time
        self.hub = FakeCluster("hub", self.clock)
        self.target = FakeCluster("target", self.clock)
        self.target_reachable, self.is_leaving = True, False
        self.nodes: list[VirtualNodeStage] = []
        self.dns: dict[str, tuple[str, ...]] = {}
        self.resolved: list[str] = []
        self.fault_of: Callable[[Call], Fault | None] = lambda _call: None
        for cluster in (self.hub, self.target):
            cluster.faults = self._fault
            cluster.latency_seconds = 0.01
        self.target.add(NAMESPACES, {"metadata": {"name": TARGET_NAMESPACE}})

    def _fault(self, call: Call) -> Fault | None:
        return self.fault_of(call)

    async def confirm(self) -> None:
        """The clusters are those they were."""

    def client_name(self, scope: Scope) -> str:
        return scope.node_name

    async def resolve(self, host: str) -> tuple[str, ...]:
        """The DNS of where federate runs."""
        self.resolved.append(host)
        if host not in self.dns:
            raise OSError("Name or service not known")
        return self.dns[host]

    def virtual_node(
        self,
        rules: NetworkRules,
        scope: Scope = SCOPE,
        *,
        shares_hub: bool = False,
        advertised: Advertised | None = None,
    ) -> VirtualNodeStage:
        return VirtualNodeStage(self, scope, rules, shares_hub=shares_hub, advertised=advertised)

    # -- the ground and the pods -----------------------------------------------------------------

    def lay_ground(self, scope: Scope = SCOPE) -> JsonDict:
        """The first mirror makes its anchor."""
        anchor = {
            "metadata": {
                "namespace": TARGET_NAMESPACE,
                "name": anchor_name(scope),
                "labels": scope.labels(),
            }
        }
        return self.target.add(CONFIGMAPS, anchor)

    def pods_on(self, node: str) -> dict[ObjectKey, JsonDict]:
        found = {}
        for resource, obj in self.hub.store.all():
            if resource == PODS and obj["spec"].get("nodeName") == node:
                found[ObjectKey("default", obj["metadata"]["name"])] = obj
        return found

    def pod_lives(
        self,
        name: str,
        *,
        labels: Mapping[str, str] | None = None,
        scope: Scope = SCOPE,
        target_namespace: str = TARGET_NAMESPACE,
        phase: str = "Pending",
        address: str = "",
    ) -> ObjectKey:
        """A hub pod has its intent on record; again changes it."""
        key = ObjectKey("default", name)
        self.hub.store.remove(PODS, key) if self.hub.find(PODS, key) else None
        uid = f"uid-{name}"
        record = MirrorRecord(pod_uid=uid, mirror=ObjectKey(target_namespace, name))
        body = (
            pod(name)
            .bound_to(scope.node_name)
            .with_uid(uid)
            .with_labels(dict(WEB_LABELS if labels is None else labels))
            .with_annotations({RECORD_ANNOTATION: record.format()})
            .build()
        )
        body["status"]["phase"] = phase
        if address:
            body["status"] |= {"podIP": address, "podIPs": [{"ip": address}]}
        self.hub.add(PODS, body)
        self._tell(scope, key)
        return key

    def pod_goes(self, name: str, scope: Scope = SCOPE) -> None:
        key = ObjectKey("default", name)
        self.hub.store.remove(PODS, key)
        self._tell(scope, key)

    def _tell(self, scope: Scope, key: ObjectKey) -> None:
        for node in self.nodes:
            if node.scope == scope:
                change = Change(key=key, old=None, new=self.hub.find(PODS, key))
                node.network.on_hub_pod(change)

    # -- Services --------------------------------------------------------------------------------

    def give_service(self, name: str = "web", **spec: Any) -> JsonDict:
        """A user makes a Service on the hub; the API server fills in what it does."""
        labels = spec.pop("labels", {})
        is_headless = spec.pop("headless", False)
        body = {
            "metadata": {"namespace": "default", "name": name, "labels": labels},
            "spec": {
                "type": "ClusterIP",
                "clusterIP": "None" if is_headless else "10.96.7.7",
                "selector": dict(WEB_LABELS),
                "ports": [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": 8080}],
                "sessionAffinity": "None",
                "internalTrafficPolicy": "Cluster",
                **spec,
            },
        }
        return self.hub.add(SERVICES, body)

    def take_service(self, name: str = "web") -> None:
        self.hub.delete_by_user(SERVICES, ObjectKey("default", name))

    def there(self, key: ObjectKey = THERE) -> JsonDict | None:
        """What stands in the target."""
        return self.target.find(SERVICES, key)

    def add_node(
        self,
        cluster: FakeCluster,
        name: str,
        *,
        pods: str = "",
        address: str = "",
        is_virtual: bool = False,
        **annotations: str,
    ) -> None:
        """A node joins; `annotations` without our prefix."""
        labels = {NODE_TYPE_LABEL: VIRTUAL_NODE_TYPE} if is_virtual else {}
        cluster.add(
            NODES,
            {
                "metadata": {
                    "name": name,
                    "labels": labels,
                    "annotations": {f"federate.dev/{k}": v for k, v in annotations.items()},
                },
                "spec": {"podCIDR": pods, "podCIDRs": [pods]} if pods else {},
                "status": {
                    "addresses": [{"type": "InternalIP", "address": address}] if address else []
                },
            },
        )

    async def until(self, condition: Callable[[], object], *, seconds: float = 30.0) -> float:
        """Wait in virtual time; returns how long it took."""
        began_at = self.clock()
        async with asyncio.timeout(seconds):
            while not condition():
                waited = self.clock() - began_at
                await asyncio.sleep(min(1.0, max(0.02, waited / 50)))
        return self.clock() - began_at
