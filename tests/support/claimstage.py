"""Two clusters in memory with the controllers that storage needs, and claims between them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from random import Random
from typing import Any

from federate.claims.keys import ClaimKey, claim_key, origin_of_claim, volume_name
from federate.claims.ports import ClaimTools
from federate.claims.protocol import (
    PROVISIONED_BY_ANNOTATION,
    PROVISIONER,
    SELECTED_NODE_ANNOTATION,
    STORAGE_PROVISIONER_ANNOTATIONS,
    WAITS_FOR_CONSUMER,
)
from federate.claims.reconciler import Claims
from federate.claims.render import render_storage_class
from federate.claims.rules import ClaimMode, ClaimRules
from federate.cluster.reflector import Reflector
from federate.cluster.store import Store
from federate.companions.ports import CompanionPorts
from federate.companions.steps import Ground
from federate.errors import FederateError, Unreachable
from federate.flow.controller import Outcome
from federate.flow.ratebound import RateBound
from federate.model.naming import prefixed_namespace
from federate.model.objects import JsonDict, JsonObject, ObjectKey, key_of
from federate.model.resources import (
    CLAIMS,
    CONFIGMAPS,
    PODS,
    STORAGE_CLASSES,
    VOLUMES,
    Resource,
)
from tests.support.builders import pod
from tests.support.clock import virtual_loop
from tests.support.fakecluster import FakeCluster
from tests.support.fakestore import Eyes
from tests.support.scene import ANCHOR, SCOPE, TARGET_NAMESPACE

RULES = ClaimRules(
    mode=ClaimMode.TARGET, storage_classes={"fed": "fast", "fed-delete": "fast", "fed-late": "late"}
)
"""`fast` binds at once, `late` waits for a pod."""
HUB_NAMESPACE = "default"


def hub_claim(name: str = "data", *, uid: str = "uid-data", **fields: Any) -> JsonDict:
    """A claim as its user makes it, chosen for our node."""
    spec: JsonDict = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": "fed",
        "volumeMode": "Filesystem",
        **fields,
    }
    return {
        "metadata": {
            "namespace": HUB_NAMESPACE,
            "name": name,
            "uid": uid,
            "resourceVersion": "7",
            "labels": {"app": "web"},
            "annotations": {"note": "mine", **chosen()},
        },
        "spec": spec,
        "status": {"phase": "Pending"},
    }


def chosen(node_name: str = SCOPE.node_name) -> dict[str, str]:
    """What scheduler and volume controller write on a claim."""
    return {
        SELECTED_NODE_ANNOTATION: node_name,
        STORAGE_PROVISIONER_ANNOTATIONS[0]: PROVISIONER,
    }


def claiming(name: str = "web", *claims: str) -> JsonDict:
    """A hub pod that names these claims of its namespace."""
    volumes = [
        {"name": f"v{number}", "persistentVolumeClaim": {"claimName": claim}}
        for number, claim in enumerate(claims)
    ]
    return pod(name).with_spec(volumes=volumes).build()


class Told:
    """Keeps the Events; satisfies `ClaimEvents`."""

    def __init__(self) -> None:
        self.events: list[tuple[ObjectKey, str, str]] = []

    def event(
        self,
        resource: Resource,
        regarding: JsonObject,
        *,
        reason: str,
        note: str,
        action: str,
        warning: bool = True,
    ) -> None:
        assert resource == CLAIMS
        self.events.append((key_of(regarding), reason, note))


class ClaimGround:
    """Ground that is made when asked for; satisfies `GroundPort`."""

    def __init__(self, target: FakeCluster) -> None:
        self._target = target
        self.stands = Ground.READY

    def state(self, namespace: str) -> Ground:
        if self.stands is not Ground.READY:
            return self.stands
        return Ground.READY if self.anchor(namespace) is not None else Ground.NOT_YET

    def anchor(self, namespace: str) -> JsonObject | None:
        return self._target.find(CONFIGMAPS, ObjectKey(namespace, ANCHOR.name))

    async def prepare(self, hub_namespace: str) -> None:
        namespace = prefixed_namespace(SCOPE.hub_id, hub_namespace)
        metadata = {"namespace": namespace, "name": ANCHOR.name, "labels": SCOPE.labels()}
        self._target.add(CONFIGMAPS, {"metadata": metadata})

    async def note(self, namespace: str, entries: Any, *, exact: bool) -> None:
        raise AssertionError("claims are on no list: their marks tell")


class Storage:
    """What both clusters' controllers do: bind the hub's volumes, make the target's disks."""

    def __init__(
        self,
        hub: FakeCluster,
        target: FakeCluster,
        *,
        acting: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """They act within `acting`: it is not federate's doing."""
        self.hub, self.target = hub, target
        self._acting = acting
        self.consumed: set[ObjectKey] = set()
        """Claims of the target that a pod there has asked for; see `consume`."""
        self.fails = False
        self._changed = asyncio.Event()
        for cluster in (hub, target):
            cluster.store.watches.append(Eyes(lambda change: self._changed.set()))
        for name, reclaim in (("fed", "Retain"), ("fed-delete", "Delete"), ("fed-late", "Retain")):
            hub.add(STORAGE_CLASSES, render_storage_class(name, reclaim=reclaim))
        for name, mode in (("fast", "Immediate"), ("late", WAITS_FOR_CONSUMER)):
            body = {"metadata": {"name": name}, "volumeBindingMode": mode, "provisioner": "disk"}
            target.add(STORAGE_CLASSES, body)

    def consume(self, claim: JsonObject) -> None:
        """Let a pod of the target ask for its claim."""
        self.consumed.add(key_of(claim))
        self._changed.set()

    async def run(self) -> None:
        """Work whenever something changed, until cancelled."""
        while True:
            with self._acting():
                self.control()
            await asyncio.sleep(0.2)
            with self._acting():
                self.control()
            self._changed.clear()
            await self._changed.wait()

    def control(self) -> None:
        """Bind and release on the hub, make storage in the target."""
        volumes = [obj for resource, obj in self.hub.store.all() if resource == VOLUMES]
        for volume in volumes:
            self._bind_or_release(volume)
        for resource, claim in self.target.store.all():
            if resource == CLAIMS:
                self._make_storage(claim)

    def _bind_or_release(self, volume: JsonObject) -> None:
        reference = volume["spec"].get("claimRef")
        name = volume["metadata"]["name"]
        if not reference:
            return self._phase(VOLUMES, ObjectKey("", name), "Available")
        key = ObjectKey(reference["namespace"], reference["name"])
        claim = self.hub.find(CLAIMS, key)
        if claim is None or claim["metadata"]["uid"] != reference["uid"]:
            return self._phase(VOLUMES, ObjectKey("", name), "Released")
        if claim["status"].get("phase") == "Bound":
            return None

        def bind(obj: JsonDict) -> None:
            obj["spec"]["volumeName"] = name
            obj["status"] = {"phase": "Bound", "capacity": dict(volume["spec"]["capacity"])}

        self._phase(VOLUMES, ObjectKey("", name), "Bound")
        self.hub.edit(CLAIMS, key, bind)
        return None

    def _phase(self, resource: Any, key: ObjectKey, phase: str) -> None:
        obj = self.hub.find(resource, key)
        if obj is not None and (obj.get("status") or {}).get("phase") != phase:
            self.hub.edit(resource, key, lambda obj: obj.update(status={"phase": phase}))

    def _make_storage(self, claim: JsonObject) -> None:
        key, status = key_of(claim), claim.get("status") or {}
        is_late = claim["spec"].get("storageClassName") == "late" and key not in self.consumed
        asked = claim["spec"]["resources"]["requests"]["storage"]
        if is_late or self.fails or status.get("capacity") == {"storage": asked}:
            return

        def bind(obj: JsonDict) -> None:
            obj["spec"]["volumeName"] = f"disk-{key.name}"
            obj["status"] = {"phase": "Bound", "capacity": {"storage": asked}}

        self.target.edit(CLAIMS, key, bind)


class ClaimStage:
    """Hub, target, and the claims of one process; `running` starts what a leader would."""

    def __init__(self, *, rules: ClaimRules = RULES) -> None:
        loop = virtual_loop()
        self.hub = FakeCluster("hub", loop.time)
        self.target = FakeCluster("berlin", loop.time)
        self.rules = rules
        self.ground = ClaimGround(self.target)
        self.told = Told()
        self.woken: list[ObjectKey] = []
        self.refused: set[str] = set()
        self.reachable = True
        self.leaving = False
        self.is_other_hub = False
        self.is_other_target = False
        self.mirrored: set[str] = set()
        """Names of hub pods that have a mirror."""
        self.instead: Outcome | None = None
        """What is answered in place of a round."""
        self.on_confirm_hub: Callable[[], None] = lambda: None
        self.lost: FederateError | None = None
        """What the fences raise; those asked are in `fenced`."""
        self.fenced: list[str] = []
        self.namespaces: Callable[[str], str | None] = lambda name: prefixed_namespace(
            SCOPE.hub_id, name
        )
        self.storage = Storage(self.hub, self.target)
        self.start()

    def start(self) -> None:
        """Begin anew, as a new leader does: nothing is remembered."""
        loop = virtual_loop()
        ports = CompanionPorts(
            scope=SCOPE,
            target_name="berlin",
            hub=self.hub.client(),
            target=self.target.client(),
            hub_pods=Store(),
            anchors=Store(),
            ground=self.ground,
            shared=frozenset(),
            brings_tokens=False,
            target_namespace=lambda pod: self.namespaces(key_of(pod).namespace),
            has_mirror=lambda pod: key_of(pod).name in self.mirrored,
            is_refused=lambda pod: key_of(pod).name in self.refused,
            watched=lambda: ("",),
            wake=self.woken.append,
            admit=lambda: self.instead,
            target_reachable=lambda: self.reachable,
            leaving=lambda: self.leaving,
            confirm_hub=self._confirm_hub,
            confirm_target=self._confirm_target,
            fence=lambda: self._fence("leads"),
            fence_target=lambda: self._fence("target"),
            count_read=lambda cluster: None,
            delete_bound=RateBound(per_second=50, burst=100, clock=loop.time),
            clock=loop.time,
            random=Random(1),
        )
        tools = ClaimTools(
            ports=ports,
            rules=self.rules,
            events=self.told,
            namespace_of=lambda name: self.namespaces(name),
        )
        self.tools = tools
        self.claims = Claims(tools)

    def _fence(self, name: str) -> None:
        self.fenced.append(name)
        if self.lost is not None:
            raise self.lost

    async def _confirm_hub(self) -> None:
        self.on_confirm_hub()
        if self.is_other_hub:
            raise Unreachable("another cluster answers than the hub")

    async def _confirm_target(self) -> None:
        if self.is_other_target:
            raise Unreachable("another cluster answers than the target")

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run reflectors, claims and the clusters' controllers until the block ends."""
        async with self.living() as dead:
            yield
            assert not dead.done()

    @asynccontextmanager
    async def living(self) -> AsyncIterator[asyncio.Task[None]]:
        """Run them; the task ends when a fault ends the process."""
        reflectors = self.claims.open()
        tasks = [asyncio.create_task(each.run()) for each in reflectors]
        control = asyncio.create_task(self.storage.run())
        tasks.append(asyncio.create_task(self._work(reflectors)))
        dead = asyncio.create_task(_first_of(tasks))
        try:
            await asyncio.wait(
                {dead, asyncio.create_task(_synced(reflectors))},
                return_when=asyncio.FIRST_COMPLETED,
            )
            yield dead
        finally:
            for task in (*tasks, control, dead):
                task.cancel()
            ended = await asyncio.gather(*tasks, control, dead, return_exceptions=True)
            failures = [e for e in ended if isinstance(e, Exception)]
            assert not failures or self.lost is not None, failures

    async def _work(self, reflectors: Iterable[Reflector]) -> None:
        await _synced(reflectors)
        async with asyncio.TaskGroup() as group:
            for part in self.claims.parts().values():
                group.create_task(part())

    # -- what users and tests do -------------------------------------------------------------------

    def ask(self, name: str = "data", *, uid: str = "", **fields: Any) -> ClaimKey:
        """Put a claim on the hub for which our node is chosen."""
        body = hub_claim(name, uid=uid or f"uid-{name}", **fields)
        return claim_key(self.hub.add(CLAIMS, body))

    def submit(self, body: JsonObject) -> JsonDict:
        """Put a pod on the hub that the scheduler has not bound."""
        body = {**body, "spec": {**body["spec"]}}
        body["spec"].pop("nodeName", None)
        return self.hub.add(PODS, body)

    def hub_claim(self, key: ClaimKey) -> JsonDict | None:
        return self.hub.find(CLAIMS, key.hub_key)

    def volume(self, key: ClaimKey) -> JsonDict | None:
        return self.hub.find(VOLUMES, ObjectKey("", volume_name(key)))

    def claims_there(self) -> list[JsonDict]:
        """The claims in the target."""
        return [obj for resource, obj in self.target.store.all() if resource == CLAIMS]

    def claim(self, key: ClaimKey) -> JsonDict | None:
        """What stands for it in the target."""
        found = (c for c in self.claims_there() if origin_of_claim(SCOPE, c) == key)
        return next(found, None)

    def is_bound(self, key: ClaimKey) -> bool:
        claim = self.hub_claim(key)
        return claim is not None and claim["status"].get("phase") == "Bound"

    def is_ready(self, hub_pod: JsonObject) -> bool:
        """Tell whether a pod waits for nothing any more."""
        return self.claims.hold(hub_pod, TARGET_NAMESPACE) is None

    def add_stranger(self, name: str, *, uid: str = "uid-stranger", **spec: Any) -> JsonDict:
        """A volume of the hub that is somebody else's."""
        body = {
            "metadata": {
                "name": name,
                "uid": uid,
                "annotations": {PROVISIONED_BY_ANNOTATION: "disk"},
            },
            "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], **spec},
        }
        return self.hub.add(VOLUMES, body)

    async def until(self, condition: Callable[[], object], *, seconds: float = 60.0) -> None:
        """Wait in virtual time until the condition holds."""
        async with asyncio.timeout(seconds):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.1)


async def _synced(reflectors: Iterable[Reflector]) -> None:
    for reflector in reflectors:
        await reflector.synced.wait()


async def _first_of(tasks: Iterable[asyncio.Task[None]]) -> None:
    """End with the first of them, however it ends."""
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
