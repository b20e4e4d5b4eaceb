"""Two clusters in memory, federate between them, and a witness who sees every change.

`World` holds hub and target, plays users, admins, controllers, the target's scheduler and kubelets,
and lets faults and stops happen; federate's processes live in `process`, judging is `witness`'s.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import TypeAlias

from federate.claims.rules import ClaimRules
from federate.companions.rules import CompanionRules
from federate.errors import ClusterError
from federate.model.marks import NODE_HUB_ANNOTATION, origin_of
from federate.model.naming import NamespaceRules, confined_to, mirror_key
from federate.model.objects import JsonDict, ObjectKey, is_terminating, key_of, spec_of, uid_of
from federate.model.pods import is_terminal, node_name_of, phase_of
from federate.model.resources import (
    CONFIGMAPS,
    NAMESPACES,
    NODES,
    PODS,
    SERVICEACCOUNTS,
    Resource,
)
from federate.policy.rules import PolicyRules
from federate.runtime.mirroring import NO_NETWORK
from federate.services.rules import NetworkRules
from tests.support.builders import PodBuilder
from tests.support.desired import differences
from tests.support.fakeclient import Call, CrashBefore, Fault, Freeze, Ice
from tests.support.fakecluster import FakeCluster
from tests.support.fakepods import is_gated
from tests.support.fakestore import Backup, Change, Eyes
from tests.support.process import WITHOUT_COMPANIONS, Lives, Process, Zombie
from tests.support.scene import SCOPE, TARGET_NAMESPACE
from tests.support.witness import Witness

LATENCY_SECONDS = 0.02
BRISK_SECONDS = 0.05
"""How soon a brisk kubelet acts."""


@dataclass(frozen=True, slots=True)
class Late:
    """The process dies with the request on the wire, which arrives that much later (C70)."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Stop:
    """The process is stopped with the request in its hands, and comes back as a zombie."""

    freeze: Freeze
    zombie: Zombie


Planned: TypeAlias = Fault | Late | Stop


class World:
    """Hub, target, and everybody in them; federate runs as long as `running` is entered."""

    def __init__(
        self,
        *,
        workers: int = 3,
        with_nets: bool = True,
        hub_type: type[FakeCluster] = FakeCluster,
        is_brisk: bool = False,
        namespaces: NamespaceRules | None = None,
        companions: CompanionRules = WITHOUT_COMPANIONS,
        claims: ClaimRules | None = None,
        network: NetworkRules = NO_NETWORK,
        policy: PolicyRules | None = None,
    ) -> None:
        """`is_brisk`: the target's scheduler and kubelets run and end what they can at once."""
        self.namespaces = namespaces or NamespaceRules()
        self.companions, self._claims, self._network = companions, claims, network
        self.policy = policy or PolicyRules()
        """As `companions`: what the next process goes by; the one that runs has its own."""
        self.clock = asyncio.get_running_loop().time
        self.hub = hub_type("hub", self.clock)
        self.target = FakeCluster("target", self.clock)
        self.target_reachable = True
        self._workers, self._with_nets = workers, with_nets
        self.lives = Lives(self._begin)
        self._supervisor: asyncio.Task[None] | None = None
        self._faults: dict[str, list[tuple[int, Planned]]] = {"hub": [], "target": []}
        self.fault_of: Callable[[Call], Fault | None] | None = None
        self.hub.add(NAMESPACES, {"metadata": {"name": "kube-system", "uid": SCOPE.hub_id}})
        self.hub.add(
            NODES,
            {
                "metadata": {
                    "name": SCOPE.node_name,
                    "annotations": {NODE_HUB_ANNOTATION: SCOPE.hub_id},
                }
            },
        )
        self.target.documents |= {
            "/apis": {"groups": []},
            "/api/v1": {"resources": [_served(resource) for resource in _LISTED]},
        }
        self.witness = Witness(self.hub, self.target, self.clock)
        self.witness.grounds = confined_to(self.namespaces) or self.witness.grounds
        if is_brisk:
            self.target.store.watches.append(Eyes(self._kubelet_sees))
        self._backups: dict[str, Backup] = {}
        self._updates = itertools.count(1)
        self._on_the_wire = 0
        for cluster in (self.hub, self.target):
            cluster.faults = self._next_fault

    # -- federate --------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start federate, and start it again after every crash."""
        self._supervisor = asyncio.create_task(self.lives.run())
        await asyncio.sleep(0)

    async def stop(self) -> None:
        assert self._supervisor is not None
        self._supervisor.cancel()
        with suppress(asyncio.CancelledError):
            await self._supervisor

    def kill(self) -> None:
        """The process dies wherever it stands; the supervisor starts a new one."""
        self.lives.kill()

    @property
    def process(self) -> Process:
        """The process that leads, or did so last."""
        return self.lives.process

    @property
    def processes(self) -> int:
        """How many there were so far."""
        return self.lives.count

    def _begin(self, ice: Ice) -> Process:
        return Process(
            self.hub.client(ice=ice),
            self.target.client(ice=ice),
            clock=self.clock,
            target_reachable=lambda: self.target_reachable,
            workers=self._workers,
            with_nets=self._with_nets,
            namespaces=self.namespaces,
            companions=self.companions,
            claims=self._claims,
            network=self._network,
            policy=self.policy,
        )

    @property
    def broken(self) -> list[str]:
        """What happened that may never happen."""
        return [*self.witness.broken, *self.lives.complaints]

    def recorded_anchor(self) -> str:
        """Return the uid of the target namespace's anchor as federate remembers it."""
        return self.process.register.recorded().get(TARGET_NAMESPACE, "")

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Let federate run inside; it has synced when it is entered."""
        await self.start()
        bookmarks = asyncio.create_task(self._send_bookmarks())
        try:
            await asyncio.sleep(0.5)
            yield
        finally:
            bookmarks.cancel()
            await self.stop()

    async def _send_bookmarks(self) -> None:
        """An API server's watch says something about once a minute."""
        while True:
            await asyncio.sleep(45.0)
            self.hub.bookmark()
            self.target.bookmark()

    # -- faults ----------------------------------------------------------------------------------

    def plan_fault(self, cluster: str, fault: Planned, *, after: int = 0) -> None:
        """Let the `after`-th of the next calls to that cluster, watches aside, meet the fault."""
        self._faults[cluster].append((after, fault))

    def heal(self) -> None:
        for cluster in (self.hub, self.target):
            self._faults[cluster.name].clear()
            cluster.come_up()
            cluster.catch_up()
            cluster.cache_lag = cluster.swallows = cluster.doubles = 0
        self.fault_of = None
        if not self.target_reachable:
            self.target_reachable = True
            self.process.wake_all()

    def _next_fault(self, call: Call) -> Fault | None:
        if self.fault_of is not None and (fault := self.fault_of(call)):
            return fault
        if call.verb == "watch":
            return None
        name = call.client
        waiting = self._faults[name]
        due = next((fault for after, fault in waiting if after == 0), None)
        if due is not None:
            waiting.remove((0, due))
        self._faults[name] = [(max(0, after - 1), fault) for after, fault in waiting]
        if isinstance(due, Late):
            return self._on_its_way(call, due)
        if isinstance(due, Stop):
            self.lives.zombie = due.zombie
            self.witness.sees_sharply = False
            # Two who lead may answer each other's writes: that must take time, or it never ends.
            self.slow_down(LATENCY_SECONDS)
            return due.freeze
        return due

    def slow_down(self, seconds: float) -> None:
        """Let every request take that long from now on."""
        for cluster in (self.hub, self.target):
            cluster.latency_seconds = seconds

    def _on_its_way(self, call: Call, late: Late) -> Fault:
        if call.is_write:
            self._on_the_wire += 1
            asyncio.get_running_loop().call_later(late.seconds, self._arrive, call)
        return CrashBefore()

    def _arrive(self, call: Call) -> None:
        self._on_the_wire -= 1
        with suppress(ClusterError):
            self.cluster(call.client).carry_out(call)

    def cluster(self, name: str) -> FakeCluster:
        return self.hub if name == "hub" else self.target

    def back_up(self, name: str) -> None:
        """Keep a cluster as it is."""
        self._backups[name] = self.cluster(name).backup()

    def restore(self, name: str) -> None:
        """Bring a cluster back to where it was backed up, old uids and all."""
        if name not in self._backups:
            return
        with self.others():
            self.cluster(name).restore(self._backups[name])
        self.witness.sees_sharply = False
        self.witness.was_restored = True
        if name == "hub":
            self.witness.hub_forgot()

    # -- everybody else --------------------------------------------------------------------------

    @contextmanager
    def others(self) -> Iterator[None]:
        """What happens inside is not federate's doing."""
        before, self.witness.federate_acts = self.witness.federate_acts, False
        try:
            yield
        finally:
            self.witness.federate_acts = before

    def submit(self, builder: PodBuilder) -> ObjectKey:
        """A user's pod lands on the virtual node, unless one of its name is there."""
        pod = builder.bound_to(SCOPE.node_name).build()
        key = key_of(pod)
        del pod["metadata"]["uid"]
        namespace = self.hub.find(NAMESPACES, ObjectKey("", key.namespace))
        is_ending = namespace is not None and is_terminating(namespace)
        with self.others():
            if not is_ending and self.hub.find(PODS, key) is None:
                self.hub.add(PODS, pod)
        return key

    def next_update(self) -> int:
        """Number the changes that users make to specs."""
        return next(self._updates)

    def mirror_key(self, key: ObjectKey) -> ObjectKey:
        found = mirror_key(self.namespaces, SCOPE.hub_id, key)
        assert found is not None, f"{key} gets no mirror"
        return found

    def mirror(self, key: ObjectKey) -> JsonDict | None:
        """What stands in the target under the name of the hub pod's mirror."""
        return self.target.find(PODS, self.mirror_key(key))

    def is_taken_away(self, key: ObjectKey) -> bool:
        """Tell whether somebody took the marks off the pod's mirror, and it still stands."""
        mirror = self.mirror(key)
        return mirror is not None and self.witness.is_unmarked(uid_of(mirror))

    def hub_pod(self, key: ObjectKey) -> JsonDict | None:
        return self.hub.find(PODS, key)

    def play(self, key: ObjectKey, phase: str) -> None:
        """The target's kubelet brings a mirror forward, as far as that is possible."""
        mirror = self.mirror(key)
        if mirror is None or is_terminal(mirror) or is_gated(mirror) or not origin_of(mirror):
            return
        if phase != "Failed" and is_terminating(mirror) and phase_of(mirror) != "Running":
            return
        if phase == "Succeeded" and spec_of(mirror).get("restartPolicy") == "Always":
            return
        with self.others():
            if not node_name_of(mirror):
                self.target.schedule(self.mirror_key(key), "worker")
            self.target.set_pod_status(self.mirror_key(key), phase=phase)

    def kubelets_finish(self) -> int:
        """Let every terminating pod of the target end."""
        done = 0
        for resource, pod in list(self.target.store.all()):
            if resource == PODS and is_terminating(pod):
                with self.others():
                    self.target.finish_termination(key_of(pod))
                done += 1
        return done

    def _kubelet_sees(self, change: Change) -> None:
        if change.resource == PODS and change.new is not None:
            asyncio.get_running_loop().call_later(BRISK_SECONDS, self._kubelet_acts, change.key)

    def _kubelet_acts(self, key: ObjectKey) -> None:
        found = self.target.find(PODS, key)
        if found is None or origin_of(found) is None or is_gated(found):
            return
        with self.others():
            if is_terminating(found):
                self.target.finish_termination(key)
            elif phase_of(found) == "Pending":
                if not node_name_of(found):
                    self.target.schedule(key, "worker")
                self.target.set_pod_status(key, phase="Running")

    def controllers_act(self) -> int:
        """Let garbage collectors and namespace controllers of both clusters do their part."""
        done = 0
        with self.others():
            done += self.target.collect_garbage()
            for cluster in (self.hub, self.target):
                for resource, namespace in list(cluster.store.all()):
                    if resource == NAMESPACES and is_terminating(namespace):
                        done += self._empty(cluster, key_of(namespace).name)
        return done

    def _empty(self, cluster: FakeCluster, namespace: str) -> int:
        pods = [
            pod
            for resource, pod in cluster.store.all()
            if resource == PODS and key_of(pod).namespace == namespace
        ]
        for pod in pods:
            if not is_terminating(pod):
                cluster.delete_by_user(PODS, key_of(pod))
        if not pods:
            cluster.finish_namespace(namespace)
        return 1

    # -- rest ------------------------------------------------------------------------------------

    async def settle(self, seconds: float = 600.0) -> None:
        """No more faults, time enough, and kubelets and controllers that do their part."""
        self.heal()
        ends_at = self.clock() + seconds
        calm = 0
        while self.clock() < ends_at and calm < 3:
            await asyncio.sleep(8.0)
            is_calm = self.kubelets_finish() + self.controllers_act() == 0 and self._is_idle()
            calm = calm + 1 if is_calm else 0

    def _is_idle(self) -> bool:
        """Tell whether nobody has anything in hand, or waits for a second try."""
        queue, reflectors = self.process.queue, self.process.mirroring.reflectors
        waiting = queue.delayed() + sum(queue.depth(lane) for lane in queue.lanes)
        return (
            not waiting
            and not queue.in_hand()
            and not (self._on_the_wire or self.hub.under_way or self.target.under_way)
            and not self.lives.are_haunted
            and not self.keeps_namespace_in_vain()
            and all(r.synced.is_set() and r.last_error is None for r in reflectors)
        )

    def keeps_namespace_in_vain(self) -> bool:
        """Tell whether the target namespace stands empty though its hub namespace is gone."""
        if self.hub.find(NAMESPACES, ObjectKey("", "default")) is not None:
            return False
        is_used = any(key_of(p).namespace == TARGET_NAMESPACE for p in self.witness.target_pods())
        namespace = self.target.find(NAMESPACES, ObjectKey("", TARGET_NAMESPACE))
        return self._with_nets and namespace is not None and not is_used

    def differences(self) -> list[str]:
        """What of the desired is not actual, in words; empty where all is as it should be."""
        return list(differences(self))


_LISTED = (PODS, CONFIGMAPS, SERVICEACCOUNTS)


def _served(resource: Resource) -> JsonDict:
    """Describe a resource as the discovery of an API server does."""
    return {
        "name": resource.plural,
        "kind": resource.kind,
        "namespaced": resource.namespaced,
        "verbs": ["list"],
    }
