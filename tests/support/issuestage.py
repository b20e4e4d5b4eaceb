"""Two clusters in memory and an issuer between them, for tests of what is issued for pods."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from federate.cluster.reflector import Reflector
from federate.cluster.store import Change, Store
from federate.companions.environment import Advertised
from federate.companions.identity import IdentityRules
from federate.companions.issued import IssuedKey, place_of, services_key, token_key
from federate.companions.issuer import Issuer
from federate.companions.issuing import IssueTools
from federate.companions.keys import Kind
from federate.companions.lists import Lists
from federate.companions.ports import CompanionPorts
from federate.companions.record import told_by
from federate.companions.references import names_used
from federate.companions.rules import IdentityMode
from federate.companions.steps import Ground
from federate.errors import ClusterError, Unreachable
from federate.flow.controller import Outcome
from federate.flow.ratebound import RateBound
from federate.model.marks import record_of
from federate.model.naming import anchor_name, prefixed_namespace
from federate.model.objects import JsonDict, JsonObject, ObjectKey, key_of
from federate.model.resources import CONFIGMAPS, PODS, Resource
from federate.patch.document import MERGE, PatchBody
from federate.services.watched import hub_services
from tests.support.clock import virtual_loop
from tests.support.fakeclient import Call, Crash, Fault, Faults, Refuse
from tests.support.fakecluster import EPOCH, FakeCluster
from tests.support.views import SCOPE, hub_pod

ADVERTISED = Advertised(host="hub.example.org", port=6443)
TARGET_NAMESPACE = prefixed_namespace(SCOPE.hub_id, "default")
RULES = IdentityRules(scope=SCOPE, mode=IdentityMode.HUB, advertised=ADVERTISED)

TOKEN_SOURCE: JsonObject = {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}}


def api_access(name: str = "kube-api-access-abcde") -> JsonDict:
    """The volume that the ServiceAccount admission plugin puts into each pod."""
    field = {"apiVersion": "v1", "fieldPath": "metadata.namespace"}
    return {
        "name": name,
        "projected": {
            "defaultMode": 0o644,
            "sources": [
                dict(TOKEN_SOURCE),
                {
                    "configMap": {
                        "name": "kube-root-ca.crt",
                        "items": [{"key": "ca.crt", "path": "ca.crt"}],
                    }
                },
                {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": field}]}},
            ],
        },
    }


def token_volume(name: str = "vault", **wish: Any) -> JsonDict:
    """A volume with a token that the user asks for."""
    source = {"serviceAccountToken": {"path": "token", **wish}}
    return {"name": name, "projected": {"defaultMode": 0o644, "sources": [source]}}


def decoded(secret: JsonObject) -> dict[str, str]:
    """The values of a Secret, as a file has them."""
    return {k: base64.b64decode(v).decode() for k, v in (secret.get("data") or {}).items()}


async def until(condition: Callable[[], object], *, seconds: float = 30.0) -> None:
    """Wait in virtual time until the condition holds."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(seconds / 200)


def refusing(verb: str, plural: str, error: ClusterError, *, sub: str = "") -> Faults:
    """Answer requests of that kind with an error."""

    def judge(call: Call) -> Fault | None:
        is_it = (call.verb, call.resource.plural, call.subresource) == (verb, plural, sub)
        return Refuse(error) if is_it else None

    return judge


class StageGround:
    """Ground that stands on a target in memory; satisfies `GroundPort`."""

    def __init__(self, stage: IssueStage) -> None:
        self._stage = stage
        self.stands = Ground.READY

    def state(self, namespace: str) -> Ground:
        if self.stands is not Ground.READY:
            return self.stands
        return Ground.READY if self.anchor(namespace) is not None else Ground.NOT_YET

    def anchor(self, namespace: str) -> JsonObject | None:
        if self.stands is Ground.UNINSTALLED:
            return None
        return self._stage.target.find(CONFIGMAPS, ObjectKey(namespace, anchor_name(SCOPE)))

    async def prepare(self, hub_namespace: str) -> None:
        if self.stands is Ground.READY:
            namespace = prefixed_namespace(SCOPE.hub_id, hub_namespace)
            self._stage.target.add(CONFIGMAPS, anchor_body(namespace))

    async def note(self, namespace: str, entries: Mapping[str, str | None], *, exact: bool) -> None:
        anchor = self.anchor(namespace)
        assert anchor is not None
        metadata = {"uid": anchor["metadata"]["uid"]}
        if exact:
            metadata["resourceVersion"] = anchor["metadata"]["resourceVersion"]
        patch = PatchBody(media_type=MERGE, body={"metadata": metadata, "data": dict(entries)})
        await self._stage.target_client.patch(CONFIGMAPS, key_of(anchor), patch)


def anchor_body(namespace: str) -> JsonDict:
    return {
        "metadata": {
            "name": anchor_name(SCOPE),
            "namespace": namespace,
            "labels": SCOPE.labels(),
        }
    }


class Told:
    """Keeps the Events; satisfies `EventPort`."""

    def __init__(self) -> None:
        self.events: list[tuple[ObjectKey, str, str]] = []

    def event(
        self, regarding: JsonObject, *, reason: str, note: str, action: str, warning: bool = True
    ) -> None:
        self.events.append((key_of(regarding), reason, note))


class IssueStage:
    """Hub, target, and the parts of one process; `run` starts what a leader would."""

    def __init__(self, *, rules: IdentityRules = RULES, renew_share: float = 0.8) -> None:
        loop = virtual_loop()
        self.hub = FakeCluster("hub", loop.time)
        self.target = FakeCluster("berlin", loop.time)
        self.target.add(CONFIGMAPS, anchor_body(TARGET_NAMESPACE))
        self.rules = rules
        self.renew_share = renew_share
        self.told = Told()
        self.woken: list[ObjectKey] = []
        self.instead: Outcome | None = None
        self.asked_whether_to_act = 0
        """How many reconciles there were."""
        self.refused: set[str] = set()
        self.is_all_used = False
        """Whether there are mirrors that refer to whatever is issued."""
        self.target_reachable = True
        self.is_other_hub = False
        self.leaving = False
        self.start()

    def start(self) -> None:
        """Begin anew, as a new leader does: nothing is remembered."""
        loop = virtual_loop()
        self.hub_client, self.target_client = self.hub.client(), self.target.client()
        self.hub_pods, self.mirrors, self.anchors = Store(), Store(), Store()
        self.configmaps = Store()
        self.ground = StageGround(self)
        self.ports = CompanionPorts(
            scope=SCOPE,
            target_name="berlin",
            hub=self.hub_client,
            target=self.target_client,
            hub_pods=self.hub_pods,
            anchors=self.anchors,
            ground=self.ground,
            shared=frozenset(),
            brings_tokens=self.rules.brings_tokens,
            target_namespace=lambda pod: prefixed_namespace(SCOPE.hub_id, key_of(pod).namespace),
            has_mirror=_is_recorded,
            is_refused=lambda pod: key_of(pod).name in self.refused,
            watched=lambda: ("",),
            wake=self.woken.append,
            admit=self._admit,
            target_reachable=lambda: self.target_reachable,
            leaving=lambda: self.leaving,
            confirm_hub=self._confirm_hub,
            confirm_target=_agreed,
            fence=lambda: None,
            fence_target=lambda: None,
            count_read=lambda cluster: None,
            delete_bound=RateBound(per_second=50, burst=100, clock=loop.time),
            clock=loop.time,
            random=Random(1),
        )
        self.lists = Lists(self.ports, self.configmaps)
        tools = IssueTools(
            ports=self.ports,
            lists=self.lists,
            rules=self.rules,
            is_used=self.is_used,
            wall_clock=lambda: EPOCH.timestamp() + loop.time(),
            renew_share=self.renew_share,
        )
        self.services = hub_services(
            self.hub_client, clock=loop.time, random=Random(1), is_needed=True
        )
        self.issuer = Issuer(tools, self.told, self.services)
        self.lists.listeners.append(self.issuer.on_record)

    def _admit(self) -> Outcome | None:
        self.asked_whether_to_act += 1
        return self.instead

    async def _confirm_hub(self) -> None:
        if self.is_other_hub:
            raise Unreachable("another cluster answers than the hub")

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run reflectors and issuer, until the block ends."""
        reflectors = (
            self._reflector(self.hub_client, PODS, self.hub_pods, self._on_hub_pod),
            self._reflector(self.target_client, PODS, self.mirrors, lambda change: None),
            self._reflector(
                self.target_client,
                CONFIGMAPS,
                self.anchors,
                self.issuer.on_anchor,
                label_selector=f"{SCOPE.selector},!federate.dev/companion",
            ),
            self._reflector(
                self.target_client,
                CONFIGMAPS,
                self.configmaps,
                self.lists.note,
                label_selector=f"{SCOPE.selector},federate.dev/companion",
            ),
        )
        tasks = [asyncio.create_task(each.run()) for each in reflectors]
        for reflector in reflectors:
            await reflector.synced.wait()
        tasks += [asyncio.create_task(part()) for part in self.issuer.parts().values()]
        if self.issuer.reads_services:
            tasks.append(asyncio.create_task(self.services.run()))
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            failures = [e for e in ended if not isinstance(e, (asyncio.CancelledError, Crash))]
            assert not failures, failures

    def _on_hub_pod(self, change: Change) -> None:
        """Take note of a pod, and ask what it waits for, as its own reconcile does."""
        self.issuer.on_hub_pod(change)
        if change.new is not None and record_of(change.new) is None:
            self.issuer.hold(change.new, TARGET_NAMESPACE)

    def _reflector(
        self, client: Any, resource: Resource, store: Store, on_change: Any, **options: Any
    ) -> Reflector:
        name = f"{client.name}-{resource.plural}"
        return Reflector(client, resource, store, name=name, on_change=on_change, **options)

    def submit(self, name: str = "web", *volumes: JsonDict, uid: str = "", **spec: Any) -> JsonDict:
        """Put a hub pod on the virtual node, with admission's volume where none is given."""
        own = {"automountServiceAccountToken": False, "volumes": list(volumes or (api_access(),))}
        pod = hub_pod(name).with_uid(uid or f"uid-{name}").with_spec(**own, **spec)
        return self.hub.add(PODS, pod.build())

    def token_key(self, pod: JsonObject) -> IssuedKey:
        return token_key(pod, TARGET_NAMESPACE)

    def services_key(self, *, has_links: bool = True) -> IssuedKey:
        return services_key(TARGET_NAMESPACE, "default", has_links=has_links)

    def issued(self, key: IssuedKey) -> JsonDict | None:
        return self.target.find(key.resource, place_of(SCOPE, key))

    def listed(self) -> dict[str, str]:
        """What is on record in the target, by name: tokens by entries, news by marks."""
        return {
            key_of(obj).name: str(key)
            for resource, obj in self.target.store.all()
            if resource == CONFIGMAPS and (key := told_by(SCOPE, obj)) is not None
        }

    def is_ready(self, pod: JsonObject) -> bool:
        """Tell whether a pod waits for nothing any more."""
        return self.issuer.hold(pod, TARGET_NAMESPACE) is None

    def is_used(self, kind: Kind, place: ObjectKey) -> bool:
        """Tell whether a mirror refers to an object of the target."""
        mirrors = [m for m in self.mirrors.values() if key_of(m).namespace == place.namespace]
        return self.is_all_used or any((kind, place.name) in names_used(m) for m in mirrors)

    def is_empty(self) -> bool:
        """Tell whether nothing is on record."""
        return not self.listed()

    def asked_tokens(self) -> list[JsonObject]:
        """The TokenRequests that reached the hub."""
        return [c.body["spec"] for c in self.hub.calls if c.subresource == "token" and c.body]


def _is_recorded(pod: JsonObject) -> bool:
    """On this stage records tell the truth."""
    record = record_of(pod)
    return record is not None and bool(record.mirror_uid)


async def _agreed() -> None:
    """The cluster is the one it was."""
