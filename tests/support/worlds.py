"""Two clusters in memory, a federate process between them, and a witness who sees every change.

`World` holds hub and target, plays users, admins, the target's scheduler and kubelets, and starts
the real mirroring (stores, reflectors, queue, controller, reconciler) anew whenever it crashed.
Nothing of federate's memory outlives a `Process`. `Witness` judges each change the moment it
happens, by what stands in the clusters and never by what federate believes.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from uuid import uuid4

from federate.cluster.client import ClusterClient
from federate.cluster.port import ClusterPort
from federate.cluster.reflector import Reflector
from federate.cluster.store import Change, Store
from federate.errors import ClusterError, NotFound
from federate.flow.controller import Controller
from federate.flow.ratebound import RateBound
from federate.flow.workqueue import WorkQueue
from federate.garbage.namespaces import NamespaceKeeper
from federate.garbage.sweeper import Sweeper
from federate.mirror.ground import Ground, GroundRules
from federate.mirror.ports import ORIGIN_INDEX, PodPorts, origin_index
from federate.mirror.reconciler import PodReconciler
from federate.mirror.render import RenderRules, metadata_changes
from federate.mirror.steps import (
    CREATE_TIMEOUT_SECONDS,
    Lane,
    PlanRules,
)
from federate.model.instants import parse_instant
from federate.model.marks import (
    HUB_LABEL,
    HUB_NAMESPACE_ANNOTATION,
    NODE_HUB_ANNOTATION,
    MirrorRecord,
    Scope,
    origin_of,
    record_of,
)
from federate.model.naming import NamespaceStrategy, anchor_name, target_namespace
from federate.model.objects import (
    JsonDict,
    JsonObject,
    ObjectKey,
    condition_of,
    is_terminating,
    key_of,
    labels_of,
    metadata_of,
    spec_of,
    status_of,
    uid_of,
)
from federate.model.pods import has_started, is_terminal, may_run_again, node_name_of, phase_of
from federate.model.resources import CONFIGMAPS, NAMESPACES, NODES, PODS, SERVICEACCOUNTS
from federate.node.anchors import NodeAnchors
from federate.patch.document import MERGE, STRATEGIC, PatchBody
from federate.runtime.leading import Leading, LeadingPorts
from federate.runtime.settings import TargetSettings
from federate.runtime.telemetry import Metrics
from federate.status.project import MIRRORED, Addresses
from tests.support.builders import PodBuilder
from tests.support.fakeclient import Call, Crash, CrashBefore, FakeClient, Fault
from tests.support.fakecluster import EPOCH, FakeCluster
from tests.support.fakestore import Change as Write
from tests.support.fakestore import Watching

SCOPE = Scope(hub_id="hub-id", node_name="edge")
RULES = PlanRules(
    render=RenderRules(), addresses=Addresses(node_address="10.0.0.9"), target_name="target"
)
TARGET_NAMESPACE = target_namespace(NamespaceStrategy.PREFIXED, SCOPE.hub_id, "default")
ANCHOR = ObjectKey(TARGET_NAMESPACE, anchor_name(SCOPE))
COMPARE_SECONDS = 5.0
SWEEP_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Late:
    """The process dies with the request on the wire, which arrives that much later (C70)."""

    seconds: float


async def agreed() -> None:
    """The hub is still the cluster it was."""


class NoEvents:
    """Notes the reasons of the Events that were told."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def event(
        self, regarding: JsonObject, *, reason: str, note: str, action: str, warning: bool = True
    ) -> None:
        self.reasons.append(reason)


class Process:
    """What runs of federate for one virtual node, from start to crash: only mirroring.

    `with_nets` adds the comparisons and the sweeper, as a leader runs them.
    """

    def __init__(
        self,
        hub: FakeClient,
        target: FakeClient,
        *,
        clock: Callable[[], float],
        target_reachable: Callable[[], bool] = lambda: True,
        workers: int = 3,
        with_nets: bool = True,
    ) -> None:
        self.hub, self.target = hub, target
        self.clock = clock
        self.events = NoEvents()
        self.orphans_deleted = 0
        self.hub_pods = Store()
        self.mirrors = Store(indexers={ORIGIN_INDEX: origin_index})
        self.anchors = Store()
        self.fence: Callable[[], None] = lambda: None
        self.queue: WorkQueue[ObjectKey] = WorkQueue(
            lanes=tuple(Lane), clock=clock, random=random.Random(7), fair_by=lambda k: k.namespace
        )
        self.register = NodeAnchors(hub=hub, scope=SCOPE, fence=lambda: self.fence())
        self.ground = Ground(
            rules=GroundRules(scope=SCOPE, strategy=NamespaceStrategy.PREFIXED),
            target=target,
            anchors=self.anchors,
            register=self.register,
            now=self.now,
        )
        self._build_reflectors()
        self.pods = PodReconciler(
            scope=SCOPE,
            rules=RULES,
            ports=PodPorts(
                hub=hub,
                target=target,
                hub_pods=self.hub_pods,
                mirrors=self.mirrors,
                ground=self.ground,
                events=self.events,
                target_reachable=target_reachable,
                watch_gaps=lambda: self.mirror_reflector.relists,
                watch_heard_at=lambda: self.mirror_reflector.last_activity_at,
                confirm_hub=agreed,
                clock=clock,
                fence=lambda: self.fence(),
                now=self.now,
                orphan_bound=RateBound(per_second=50, burst=100, clock=clock),
                mirror_changed=lambda _change: None,
                on_orphan_deleted=self._count_orphan,
            ),
        )
        self.workers: dict[str, int] = dict.fromkeys(Lane, workers)
        self.with_nets = with_nets

    def _count_orphan(self) -> None:
        self.orphans_deleted += 1

    def now(self) -> datetime:
        return EPOCH + timedelta(seconds=self.clock())

    def _build_reflectors(self) -> None:
        self.hub_reflector = self._reflector(
            self.hub,
            "hub-pods",
            self.hub_pods,
            self._on_hub_pod,
            field_selector=f"spec.nodeName={SCOPE.node_name}",
            matches=lambda pod: node_name_of(pod) == SCOPE.node_name,
        )
        self.mirror_reflector = self._reflector(
            self.target,
            "mirrors",
            self.mirrors,
            self._on_mirror,
            label_selector=SCOPE.selector,
            matches=SCOPE.owns,
        )
        self.anchor_reflector = Reflector(
            self.target,
            CONFIGMAPS,
            self.anchors,
            name="anchors",
            on_change=self._on_anchor,
            label_selector=SCOPE.selector,
            matches=SCOPE.owns,
            clock=self.clock,
            jitter=lambda: 0.5,
        )

    def _reflector(
        self,
        client: FakeClient,
        name: str,
        store: Store,
        on_change: Callable[[Change], None],
        *,
        matches: Callable[[JsonObject], bool],
        field_selector: str = "",
        label_selector: str = "",
    ) -> Reflector:
        return Reflector(
            client,
            PODS,
            store,
            name=name,
            on_change=on_change,
            matches=matches,
            field_selector=field_selector,
            label_selector=label_selector,
            clock=self.clock,
            jitter=lambda: 0.5,
        )

    # -- the wiring of runtime/leading.py ------------------------------------------------------

    def _on_hub_pod(self, change: Change) -> None:
        self.queue.add(*self.pods.on_hub_pod(change))

    def _on_mirror(self, change: Change) -> None:
        woken = self.pods.on_mirror(change)
        if woken is not None:
            self.queue.add(*woken)

    def _on_anchor(self, change: Change) -> None:
        for key in list(self.hub_pods.keys()):
            if self.ground.mirror_key(key).namespace == change.key.namespace:
                self.enqueue(key)

    def enqueue(self, key: ObjectKey) -> None:
        self.queue.add(key, self.pods.lane_of_key(key))

    def wake_all(self) -> None:
        for key in list(self.hub_pods.keys()):
            self.enqueue(key)

    async def run(self) -> None:
        """Run until cancelled or crashed."""
        reflectors = (self.hub_reflector, self.mirror_reflector, self.anchor_reflector)
        async with asyncio.TaskGroup() as group:
            for reflector in reflectors:
                group.create_task(reflector.run())
            for reflector in reflectors:
                await reflector.synced.wait()
            await self._learn()
            controller = Controller("pods", self.queue, self.pods.reconcile, self.workers)
            group.create_task(controller.run())
            if not self.with_nets:
                return
            group.create_task(self._compare())
            for reflector in reflectors[:2]:
                group.create_task(self._verify(reflector))
            group.create_task(self._build_sweeper().run())

    def _build_sweeper(self) -> Sweeper:
        keeper = NamespaceKeeper(
            hub=self.hub,
            target=self.target,
            scope=SCOPE,
            forget_anchor=self.register.forget,
            confirm_hub=agreed,
            fence=lambda: self.fence(),
        )
        return Sweeper(
            hub=self.hub,
            target=self.target,
            scope=SCOPE,
            confirm_hub=agreed,
            enqueue=self.enqueue,
            namespaces=keeper,
        )

    async def _learn(self) -> None:
        while True:
            try:
                self.register.learn(await self.hub.get(NODES, ObjectKey("", SCOPE.node_name)))
            except ClusterError:
                await asyncio.sleep(0.5)
            else:
                return

    async def _compare(self) -> None:
        while True:
            await asyncio.sleep(COMPARE_SECONDS)
            for key in self.pods.unsettled_keys():
                self.enqueue(key)

    async def _verify(self, reflector: Reflector) -> None:
        while True:
            await asyncio.sleep(COMPARE_SECONDS)
            try:
                await reflector.verify()
            except ClusterError:
                continue


class _Watcher(Watching):
    """A watch that judges at once instead of queueing."""

    def __init__(self, see: Callable[[Write], None]) -> None:
        super().__init__(PODS, client="witness", after=0)
        self._see = see

    def tell(self, change: Write) -> None:
        self._see(change)


class Witness:
    """Sees every change of both clusters as it happens, and notes what may never happen.

    `federate_acts` is False while the world lets somebody else act.
    """

    def __init__(self, hub: FakeCluster, target: FakeCluster) -> None:
        self.hub, self.target = hub, target
        self.federate_acts = True
        self.broken: list[str] = []
        self.runs: dict[str, set[str]] = {}
        self.mirrors_made: Counter[str] = Counter()
        self.federate_changes = 0
        hub.store.watches.append(_Watcher(self._see_hub))
        target.store.watches.append(_Watcher(self._see_target))

    def _note(self, text: str) -> None:
        self.broken.append(text)

    def mirrors_of(self, hub_pod_uid: str) -> list[JsonObject]:
        """Return what stands in the target with that hub pod's uid."""
        return [pod for pod in self._target_pods() if _origin_uid(pod) == hub_pod_uid]

    def _target_pods(self) -> Iterator[JsonObject]:
        for resource, obj in self.target.store.all():
            if resource == PODS:
                yield obj

    def _hub_pod(self, uid: str) -> JsonObject | None:
        for resource, obj in self.hub.store.all():
            if resource == PODS and uid_of(obj) == uid:
                return obj
        return None

    # -- the hub ---------------------------------------------------------------------------------

    def _see_hub(self, change: Write) -> None:
        if not self.federate_acts:
            return
        self.federate_changes += 1
        if change.resource != PODS:
            if change.resource != NODES:
                self._note(f"federate wrote {change.resource.plural} {change.key} on the hub")
            return
        old, new = change.old, change.new
        if old is None:
            self._note(f"federate created hub pod {change.key}")
        elif node_name_of(old) != SCOPE.node_name:
            self._note(f"federate wrote hub pod {change.key}, which is bound elsewhere")
        elif new is None:
            if self.mirrors_of(uid_of(old)):
                self._note(f"hub pod {change.key} was removed before its mirror")
        elif is_terminal(old) and phase_of(old) != phase_of(new):
            self._note(f"{change.key} went from {phase_of(old)} to {phase_of(new)}")
        elif metadata_of(old).get("finalizers") != metadata_of(new).get("finalizers"):
            self._note(f"finalizers of {change.key} changed")

    # -- the target ------------------------------------------------------------------------------

    def _see_target(self, change: Write) -> None:
        if change.resource == PODS and change.new is not None:
            self._count_run(change.new)
        if not self.federate_acts:
            return
        self.federate_changes += 1
        if change.resource == PODS:
            self._see_mirror(change)
        elif not self._may_write(change):
            self._note(f"federate wrote {change.resource.plural} {change.key} in the target")

    def _may_write(self, change: Write) -> bool:
        if change.resource == NAMESPACES:
            # Made, or (marked as ours) told that it is in use.
            before = labels_of(change.old or change.new or {}).get(HUB_LABEL)
            return before == SCOPE.hub_id and change.key.name == TARGET_NAMESPACE
        if change.resource == SERVICEACCOUNTS or change.key.name == "kube-root-ca.crt":
            return change.old is None  # the cluster's own controllers fill a new namespace
        return change.resource == CONFIGMAPS and change.key == ANCHOR and change.old is None

    def _see_mirror(self, change: Write) -> None:
        for state in (change.old, change.new):
            if state is not None and not SCOPE.owns(state):
                self._note(f"federate wrote the foreign pod {change.key}")
        if change.old is None and change.new is not None:
            self._see_new_mirror(change.key, change.new)

    def _see_new_mirror(self, key: ObjectKey, mirror: JsonObject) -> None:
        uid = _origin_uid(mirror)
        self.mirrors_made[uid] += 1
        if len(self.mirrors_of(uid)) > 1:
            self._note(f"a second mirror of {uid} at {key}")
        hub_pod = self._hub_pod(uid)
        if hub_pod is None:
            return  # force-deleted while the create was under way (C53)
        record = record_of(hub_pod)
        if is_terminal(hub_pod):
            self._note(f"the terminal hub pod {key_of(hub_pod)} got a mirror")
        elif record is None:
            self._note(f"{key_of(hub_pod)} got a mirror without an intent on record")
        elif record.mirror_uid:
            self._note(f"{key_of(hub_pod)} got a mirror after {record.mirror_uid}")
        elif self._is_young(record):
            self.runs.pop(uid, None)  # within one create timeout C20 cannot tell, and tries

    def _is_young(self, record: MirrorRecord) -> bool:
        intended_at = parse_instant(record.intended_at)
        now = parse_instant(self.target.now())
        assert intended_at is not None
        assert now is not None
        return (now - intended_at).total_seconds() < CREATE_TIMEOUT_SECONDS

    def _count_run(self, mirror: JsonObject) -> None:
        uid = _origin_uid(mirror)
        if not uid or not has_started(mirror):
            return
        runs = self.runs.setdefault(uid, set())
        runs.add(uid_of(mirror))
        if len(runs) > 1 and not may_run_again(mirror):
            self._note(f"hub pod {uid} ran {len(runs)} times")


def _origin_uid(pod: JsonObject) -> str:
    origin = origin_of(pod)
    return origin.pod_uid if origin is not None and origin.scope == SCOPE else ""


class World:
    """Hub, target, and everybody in them; federate runs as long as `running` is entered."""

    def __init__(
        self,
        *,
        workers: int = 3,
        with_nets: bool = True,
        hub_type: type[FakeCluster] = FakeCluster,
    ) -> None:
        self.clock = asyncio.get_running_loop().time
        self.hub = hub_type("hub", self.clock)
        self.target = FakeCluster("target", self.clock)
        self.target_reachable = True
        self.process: Process
        self.processes = 0
        self._workers, self._with_nets = workers, with_nets
        self._task: asyncio.Task[None] | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self._faults: dict[str, list[tuple[int, Fault | Late]]] = {"hub": [], "target": []}
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
        self.witness = Witness(self.hub, self.target)
        for cluster in (self.hub, self.target):
            cluster.faults = self._next_fault

    # -- federate --------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start federate, and start it again after every crash."""
        self._supervisor = asyncio.create_task(self._supervise())
        await asyncio.sleep(0)

    async def stop(self) -> None:
        assert self._supervisor is not None
        self._supervisor.cancel()
        with suppress(asyncio.CancelledError):
            await self._supervisor

    def kill(self) -> None:
        """The process dies wherever it stands; the supervisor starts a new one."""
        if self._task is not None:
            self._task.cancel()

    async def _supervise(self) -> None:
        while True:
            self.processes += 1
            self.process = Process(
                self.hub.client(),
                self.target.client(),
                clock=self.clock,
                target_reachable=lambda: self.target_reachable,
                workers=self._workers,
                with_nets=self._with_nets,
            )
            self._task = asyncio.create_task(self.process.run())
            (ended,) = await asyncio.gather(self._task, return_exceptions=True)
            if isinstance(ended, BaseException) and not _only_crashes(ended):
                self.witness.broken.append(f"the process ended: {ended!r}")
            await asyncio.sleep(0.1)

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

    def plan_fault(self, cluster: str, fault: Fault | Late, *, after: int = 0) -> None:
        """Let the `after`-th of the next write calls to that cluster meet the fault."""
        self._faults[cluster].append((after, fault))

    def heal(self) -> None:
        for cluster in (self.hub, self.target):
            self._faults[cluster.name].clear()
            cluster.come_up()
            cluster.cache_lag = 0
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
        return self._on_its_way(call, due) if isinstance(due, Late) else due

    def _on_its_way(self, call: Call, late: Late) -> Fault:
        loop = asyncio.get_running_loop()
        if call.is_write:
            loop.call_later(late.seconds, self._arrive, call)
        return CrashBefore()

    def _arrive(self, call: Call) -> None:
        cluster = self.hub if call.client == "hub" else self.target
        body = call.body or {}
        with suppress(ClusterError):
            match call.verb:
                case "create":
                    cluster.create(call.resource, body, call.key)
                case "delete":
                    cluster.delete(call.resource, call.key, body)
                case "patch":
                    media_type = STRATEGIC if call.subresource == "status" else MERGE
                    patch = PatchBody(media_type=media_type, body=body)
                    cluster.patch(call.resource, call.key, patch, subresource=call.subresource)

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
        with self.others():
            if self.hub.find(PODS, key) is None:
                self.hub.add(PODS, pod)
        return key

    def mirror_key(self, key: ObjectKey) -> ObjectKey:
        return ObjectKey(
            target_namespace(NamespaceStrategy.PREFIXED, SCOPE.hub_id, key.namespace), key.name
        )

    def mirror(self, key: ObjectKey) -> JsonDict | None:
        """What stands in the target under the name of the hub pod's mirror."""
        return self.target.find(PODS, self.mirror_key(key))

    def hub_pod(self, key: ObjectKey) -> JsonDict | None:
        return self.hub.find(PODS, key)

    def play(self, key: ObjectKey, phase: str) -> None:
        """The target's kubelet brings a mirror forward, as far as that is possible."""
        mirror = self.mirror(key)
        if mirror is None or not SCOPE.owns(mirror) or is_terminal(mirror):
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

    # -- rest ------------------------------------------------------------------------------------

    async def settle(self, seconds: float = 400.0) -> None:
        """No more faults, time enough, and kubelets that do their part."""
        self.heal()
        ends_at = self.clock() + seconds
        calm = 0
        while self.clock() < ends_at and calm < 3:
            await asyncio.sleep(8.0)
            is_calm = self.kubelets_finish() == 0 and self._is_idle()
            calm = calm + 1 if is_calm else 0

    def _is_idle(self) -> bool:
        """Tell whether federate has nothing in hand and waits for no second try."""
        queue, process = self.process.queue, self.process
        reflectors = (process.hub_reflector, process.mirror_reflector, process.anchor_reflector)
        waiting = queue.delayed() + sum(queue.depth(lane) for lane in queue.lanes)
        return (
            not waiting
            and not queue.in_hand()
            and all(r.synced.is_set() and r.last_error is None for r in reflectors)
        )

    def differences(self) -> list[str]:
        """What of the desired is not actual, in words; empty where all is as it should be."""
        found: list[str] = []
        for resource, pod in self.hub.store.all():
            if resource == PODS and node_name_of(pod) == SCOPE.node_name:
                found += self._unmet(pod)
        for mirror in self.witness._target_pods():
            uid = _origin_uid(mirror)
            if uid and self.witness._hub_pod(uid) is None:
                found.append(f"orphan mirror {key_of(mirror)} of {uid}")
        return found

    def _unmet(self, hub_pod: JsonObject) -> list[str]:
        key = key_of(hub_pod)
        if is_terminating(hub_pod):
            return [] if metadata_of(hub_pod).get("finalizers") else [f"{key} still terminates"]
        mirrors = self.witness.mirrors_of(uid_of(hub_pod))
        if is_terminal(hub_pod):
            return [f"terminal {key} has a live mirror" for m in mirrors if not is_terminal(m)]
        if not mirrors:
            return [] if self._says_why(hub_pod) else [f"{key} has no mirror and says nothing"]
        return self._untold(hub_pod, mirrors[0])

    def _says_why(self, hub_pod: JsonObject) -> bool:
        reason = (condition_of(hub_pod, MIRRORED) or {}).get("reason")
        occupant = self.mirror(key_of(hub_pod))
        if reason == "NameTaken":
            return occupant is not None and not SCOPE.owns(occupant)
        return reason == "Uninstalled" and self.target.find(CONFIGMAPS, ANCHOR) is None

    def _untold(self, hub_pod: JsonObject, mirror: JsonObject) -> list[str]:
        key, found = key_of(hub_pod), []
        record = record_of(hub_pod)
        if record is None or record.mirror_uid != uid_of(mirror):
            found.append(f"{key} does not remember its mirror")
        if phase_of(hub_pod) != phase_of(mirror):
            found.append(f"{key} is {phase_of(hub_pod)}, its mirror {phase_of(mirror)}")
        for name in ("containerStatuses", "startTime"):
            if status_of(hub_pod).get(name) != status_of(mirror).get(name):
                found.append(f"{name} of {key} differ")
        if condition_of(hub_pod, MIRRORED) is not None:
            found.append(f"{key} says why it has no mirror, and has one")
        if metadata_changes(hub_pod, mirror, RULES.render) is not None:
            found.append(f"labels or annotations of {key} differ")
        return found


def _only_crashes(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(_only_crashes(one) for one in error.exceptions)
    return isinstance(error, (Crash, asyncio.CancelledError))


class RealWorld:
    """A real leader between two real API servers without kubelets; the test plays the rest.

    Each has a virtual node, and so target namespaces, of its own.
    """

    def __init__(self, hub: ClusterClient, target: ClusterPort) -> None:
        self.hub, self.target = hub, target
        suffix = uuid4().hex[:6]
        self.scope = Scope(hub_id=f"hub-{suffix}", node_name=f"edge-{suffix}")
        self.namespace = f"ns-{suffix}"
        self.target_namespace = target_namespace(
            NamespaceStrategy.PREFIXED, self.scope.hub_id, self.namespace
        )
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
    async def leading(self) -> AsyncIterator[Leading]:
        """Let a leader run inside, announced when it is entered."""
        settings = TargetSettings(
            name=self.scope.node_name, kubeconfig=Path("unused"), capacity={"cpu": "4"}
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


async def until(condition: Callable[[], bool], *, seconds: float = 20.0) -> None:
    """Wait in real time until the condition holds."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.02)
