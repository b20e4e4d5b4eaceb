"""A hub and a target with a virtual node that has been used, for tests that leave it.

The target's kubelets and both clusters' controllers act by themselves. There is much that is not
this virtual node's: `foreign` remembers it, and says what became of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeAlias

from federate import __version__
from federate.cluster.identity import IdentityGuard
from federate.companions.demand import listing_entry
from federate.companions.entries import render_entry
from federate.companions.keys import CompanionKey, Kind, name_of
from federate.companions.render import render_companion
from federate.companions.rules import CompanionRules
from federate.errors import ClusterError, LeadershipLost, VirtualNodeLeft
from federate.leave.abandoning import Abandoning
from federate.leave.drain import DrainRules
from federate.leave.leaving import LeavePorts, Leaving
from federate.leave.plan import Found
from federate.leave.survey import survey_hub, survey_of
from federate.leave.waiting import Patience
from federate.model.marks import HUB_LABEL, Origin, Scope, origin_of
from federate.model.naming import anchor_name, leader_lease_name, prefixed_namespace
from federate.model.objects import (
    JsonDict,
    JsonObject,
    ObjectKey,
    is_terminating,
    key_of,
    spec_of,
    uid_of,
)
from federate.model.pods import is_gated, node_name_of, phase_of
from federate.model.resources import (
    CONFIGMAPS,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    SECRETS,
    SERVICEACCOUNTS,
)
from federate.node.capacity import CapacityRules
from federate.runtime.election import Election
from federate.runtime.leading import Leading, LeadingPorts
from federate.runtime.settings import TargetSettings
from federate.runtime.telemetry import Metrics
from tests.support.builders import PodBuilder, pod
from tests.support.clock import virtual_loop
from tests.support.fakeclient import FakeClient
from tests.support.fakecluster import FakeCluster
from tests.support.scene import NoEvents

Image: TypeAlias = dict[tuple[str, str, ObjectKey], JsonObject]

NODE = ObjectKey("", "edge")
LEASE = ObjectKey("kube-system", leader_lease_name("edge"))
NODE_LEASE = ObjectKey("kube-node-lease", "edge")
COMMAND = "command"
"""What the command's clients begin with: faults are for them alone."""


class Said:
    """Keeps what a command says of its progress."""

    def __init__(self) -> None:
        self.clock = virtual_loop().time
        self.at: list[tuple[float, str, int]] = []
        """When what was said, with the seconds that were left."""
        self.steps: list[str] = []
        self.states: list[str] = []
        self.notes: list[str] = []

    def begin(self, step: str) -> None:
        self.steps.append(step)

    def now(self, state: str, *, left_seconds: int = 0) -> None:
        self.states.append(state)
        self.at.append((self.clock(), state, left_seconds))

    def close(self) -> None:
        pass

    def done(self) -> None:
        pass

    def note(self, text: str) -> None:
        self.notes.append(text)


class LeaveStage:
    """Everything around a leaving."""

    def __init__(self) -> None:
        self.clock = virtual_loop().time
        self.hub = FakeCluster("hub", self.clock)
        self.target = FakeCluster("target", self.clock)
        self.hub.add_namespace("kube-node-lease")
        served = [
            {"name": r.plural, "kind": r.kind, "namespaced": True, "verbs": ["list"]}
            for r in (PODS, CONFIGMAPS, SECRETS, SERVICEACCOUNTS)
        ]
        self.target.documents |= {
            "/version": {"gitVersion": "v1.34.4"},
            "/apis": {"groups": []},
            "/api/v1": {"resources": served},
        }
        self.hub_id = uid_of(self.hub.read(NAMESPACES, ObjectKey("", "kube-system")))
        self.scope = Scope(hub_id=self.hub_id, node_name="edge")
        self.namespace = prefixed_namespace(self.hub_id, "default")
        self.shared = prefixed_namespace(self.hub_id, "shared")
        self.said = Said()
        self.companions = CompanionRules()
        """Those of `federate run`."""
        self.commands = 0
        self.retired = 0
        """Replicas that gave up for good."""
        self._add_foreigners()

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.clock())

    # -- what is not ours ------------------------------------------------------------------------

    def _add_foreigners(self) -> None:
        """Strangers with and without names like ours, and another virtual node beside this one."""
        other = Scope(hub_id=self.hub_id, node_name="west")
        self.target.create(
            NAMESPACES,
            {
                "metadata": {
                    "name": self.shared,
                    "labels": {HUB_LABEL: self.hub_id},
                    "annotations": {"federate.dev/hub-namespace": "shared"},
                }
            },
        )
        anchor = {
            "metadata": {
                "name": anchor_name(other),
                "namespace": self.shared,
                "labels": other.labels(),
            }
        }
        self.target.add(CONFIGMAPS, anchor)
        origin = Origin(scope=other, pod=ObjectKey("shared", "westerner"), pod_uid="w")
        self._add_to_target(
            pod("westerner", namespace=self.shared)
            .with_labels(origin.labels())
            .with_annotations(origin.annotations())
        )
        self._add_to_target(pod("a", namespace="default"))
        name = {"name": anchor_name(self.scope), "namespace": "default"}
        self.target.add(CONFIGMAPS, {"metadata": name})
        self.hub.add(NODES, {"metadata": {"name": "worker"}})
        self.hub.add(PODS, pod("elsewhere").bound_to("worker").running().build())
        self.hub.add(LEASES, {"metadata": {"name": "worker", "namespace": "kube-node-lease"}})

    def _add_to_target(self, builder: PodBuilder) -> None:
        self.target.add(PODS, builder.bound_to("somewhere").running().build())

    def foreign(self) -> Image:
        """Remember all that is not this virtual node's, on both sides."""
        return {
            (cluster.name, resource.plural, key_of(obj)): obj
            for cluster in (self.hub, self.target)
            for resource, obj in cluster.store.all()
            if not self._is_ours(cluster, resource.kind, obj)
        }

    def _is_ours(self, cluster: FakeCluster, kind: str, obj: JsonObject) -> bool:
        key = key_of(obj)
        if cluster is self.target:
            in_ours = self.namespace in (key.namespace, key.name)
            return in_ours or self.scope.owns(obj)
        is_lease = kind == "Lease" and key in (LEASE, NODE_LEASE)
        is_node = kind == "Node" and key == NODE
        return is_lease or is_node or (kind == "Pod" and spec_of(obj).get("nodeName") != "worker")

    # -- everybody else --------------------------------------------------------------------------

    @asynccontextmanager
    async def alive(self) -> AsyncIterator[None]:
        """Let kubelets and controllers act inside."""
        task = asyncio.create_task(self._controllers())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _controllers(self) -> None:
        while True:
            await asyncio.sleep(0.3)
            for _, obj in list(self.target.store.all()):
                if obj["kind"] == "Pod":
                    self._kubelet(obj)
            for cluster in (self.hub, self.target):
                cluster.collect_garbage()
                for resource, obj in list(cluster.store.all()):
                    if resource == NAMESPACES and is_terminating(obj):
                        cluster.finish_namespace(key_of(obj).name)

    def _kubelet(self, found: JsonDict) -> None:
        if origin_of(found) is None or is_gated(found):
            return
        key = key_of(found)
        if is_terminating(found):
            self.target.finish_termination(key)
        elif phase_of(found) == "Pending":
            if not node_name_of(found):
                self.target.schedule(key, "worker")
            self.target.set_pod_status(key, phase="Running")

    def submit(
        self,
        name: str,
        *,
        owner: str = "ReplicaSet",
        namespace: str = "default",
        finalizers: tuple[str, ...] = (),
        volumes: Sequence[JsonDict] = (),
    ) -> ObjectKey:
        """A pod of a controller is bound to the virtual node; without `owner` a bare one."""
        builder = pod(name, namespace=namespace).bound_to("edge").with_finalizers(*finalizers)
        if owner:
            builder = builder.owned_by(owner, f"{owner.lower()}-1")
        body = builder.build()
        body["spec"]["volumes"] = list(volumes)
        del body["metadata"]["uid"]
        return key_of(self.hub.add(PODS, body))

    def bring(self, *keys: CompanionKey, **metadata: object) -> None:
        """What came along with pods stands in the target, Secrets with their entries."""
        place = ObjectKey(self.namespace, anchor_name(self.scope))
        for key in keys:
            anchor = self.target.read(CONFIGMAPS, place)
            hub_object = {"metadata": {"name": key.name, "namespace": key.namespace}}
            owner = anchor
            if key.kind is Kind.SECRET:
                said = listing_entry(key)
                there = name_of(self.scope, key)
                entry = render_entry(there, said, scope=self.scope, anchor=anchor)
                owner = self.target.add(CONFIGMAPS, entry)
            body = render_companion(key, hub_object, scope=self.scope, owner=owner)
            body["metadata"].update(metadata)
            self.target.add(key.kind.resource, body)

    def hub_pod(self, name: str) -> JsonDict | None:
        return self.hub.find(PODS, ObjectKey("default", name))

    def node(self) -> JsonDict | None:
        return self.hub.find(NODES, NODE)

    # -- federate --------------------------------------------------------------------------------

    @asynccontextmanager
    async def federate(self, name: str = "one") -> AsyncIterator[None]:
        """Run a replica as `federate run` does, until it is retired or the block ends."""
        task = asyncio.create_task(self._replica(name))
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _replica(self, name: str) -> None:
        hub, target = self.hub.client(f"hub-{name}"), self.target.client(f"target-{name}")
        guard = IdentityGuard(hub, self.hub_id)
        while True:
            election = Election(
                hub=hub,
                key=LEASE,
                identity=name,
                confirm_hub=guard.confirm,
                now=self.now,
                clock=self.clock,
            )
            try:
                await election.lead(self._leading(hub, target, guard, election).run)
            except VirtualNodeLeft:
                self.retired += 1
                return
            except (ClusterError, LeadershipLost):
                await asyncio.sleep(1.0)

    def _leading(
        self, hub: FakeClient, target: FakeClient, guard: IdentityGuard, election: Election
    ) -> Leading:
        is_distinct = asyncio.Event()
        is_distinct.set()
        return Leading(
            TargetSettings(
                name="edge",
                kubeconfig=Path("x"),
                capacity=CapacityRules.fixed({"cpu": "4", "pods": "10"}),
                labels={"zone": "north"},
                companions=self.companions,
            ),
            scope=self.scope,
            ports=LeadingPorts(
                hub=hub,
                target=target,
                events=NoEvents(),
                fence=election.fence,
                confirm_hub=guard.confirm,
                metrics=Metrics(version="0"),
                is_distinct=is_distinct,
            ),
            node_address="10.0.0.9",
            federate_version=__version__,
        )

    async def used(self, *names: str) -> None:
        """Let the virtual node be used for a while: these pods of a ReplicaSet run."""
        async with self.federate("before"):
            await asyncio.sleep(3.0)
            for name in names:
                self.submit(name)
            await asyncio.sleep(6.0)
        for name in names:
            assert phase_of(self.hub.read(PODS, ObjectKey("default", name))) == "Running"

    # -- the command -----------------------------------------------------------------------------

    def ports(self) -> LeavePorts:
        """What a new command acts through."""
        self.commands += 1
        hub = self.hub.client(f"{COMMAND}-hub")
        return LeavePorts(
            hub=hub,
            hub_id=self.hub_id,
            lease_key=LEASE,
            confirm_hub=IdentityGuard(hub, self.hub_id).confirm,
            identity=f"{COMMAND}-{self.commands}",
            progress=self.said,
            now=self.now,
        )

    async def look(self, ports: LeavePorts, *, with_target: bool = True) -> Found:
        found = await survey_hub(ports.hub, "edge", LEASE, hub_id=self.hub_id)
        if not with_target:
            return found
        survey = survey_of(self.target_client(), found)
        found = replace(found, mirrors=await survey.mirrors(), anchors=await survey.anchors())
        return replace(found, brought=await survey.brought(found.anchors))

    def target_client(self) -> FakeClient:
        return self.target.client(f"{COMMAND}-target")

    async def leave(self, *, force: bool = False, timeout_seconds: float = 600.0) -> Found:
        """Run the command once; returns what it found at its start."""
        ports = self.ports()
        found = await self.look(ports)
        if found.is_nothing:
            return found
        await self.run_leaving(found, ports, force=force, timeout_seconds=timeout_seconds)
        return found

    async def run_leaving(
        self,
        found: Found,
        ports: LeavePorts,
        *,
        force: bool = False,
        timeout_seconds: float = 600.0,
    ) -> None:
        """Carry out a leaving that was looked at already."""
        leaving = Leaving(
            found,
            target=self.target_client(),
            rules=DrainRules(force=force),
            ports=ports,
            patience=Patience(timeout_seconds, self.said),
        )
        await leaving.run()

    async def abandon(self, *, timeout_seconds: float = 600.0) -> Found:
        """Run the command with --abandon once."""
        ports = self.ports()
        found = await self.look(ports, with_target=False)
        if not found.is_nothing:
            await Abandoning(found, ports, Patience(timeout_seconds, self.said)).run()
        return found

    def left_behind(self) -> list[str]:
        """What of the virtual node is still there, on both sides, in words."""
        left = [
            f"target {obj['kind']} {key_of(obj)}"
            for _, obj in self.target.store.all()
            if self.scope.owns(obj) or key_of(obj).name == self.namespace
        ]
        for resource, key in ((NODES, NODE), (LEASES, LEASE), (LEASES, NODE_LEASE)):
            if self.hub.find(resource, key) is not None:
                left.append(f"hub {resource.kind} {key}")
        left += [
            f"hub pod {key_of(obj)}"
            for resource, obj in self.hub.store.all()
            if resource == PODS and node_name_of(obj) == "edge"
        ]
        return left
