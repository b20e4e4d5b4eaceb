"""Pods with storage, mirrored between two clusters in memory: what a leader makes of claims."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from federate.claims.keys import claim_key, origin_of_claim
from federate.claims.reconciler import LOOK_SECONDS
from federate.claims.rules import ClaimRules
from federate.model.objects import (
    JsonDict,
    JsonObject,
    ObjectKey,
    condition_of,
    key_of,
    spec_of,
    uid_of,
)
from federate.model.resources import CLAIMS, CORE_EVENTS, PODS
from federate.policy.rules import PolicyRules
from tests.support.builders import PodBuilder, pod
from tests.support.claimstage import RULES, Storage, hub_claim
from tests.support.clock import virtual_time
from tests.support.fakeclient import Call, CrashAfter, Fault
from tests.support.fakepods import is_gated
from tests.support.scene import SCOPE, TARGET_NAMESPACE
from tests.support.worlds import World

WEB = ObjectKey("default", "web")


class ClaimWorld(World):
    """Both clusters have the controllers that storage needs."""

    def __init__(self, claims: ClaimRules = RULES, **how: Any) -> None:
        super().__init__(claims=claims, **how)
        with self.others():
            self.storage = Storage(self.hub, self.target, acting=self.others)

    @asynccontextmanager
    async def stored(self) -> AsyncIterator[None]:
        """Run federate and the controllers."""
        control = asyncio.create_task(self.storage.run())
        try:
            async with self.running():
                yield
        finally:
            control.cancel()
            with suppress(asyncio.CancelledError):
                await control

    async def until(self, condition: Callable[[], object], *, seconds: float = 60.0) -> None:
        async with asyncio.timeout(seconds):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    def ask(self, storage_class: str) -> JsonDict:
        with self.others():
            return self.hub.add(CLAIMS, hub_claim(storageClassName=storage_class))

    def reads_of_claims(self) -> int:
        return sum(call.verb == "get" and call.resource == CLAIMS for call in self.hub.calls)

    def claim_there(self, claim: JsonDict) -> JsonDict | None:
        found = (c for r, c in self.target.store.all() if r == CLAIMS)
        return next((c for c in found if origin_of_claim(SCOPE, c) == claim_key(claim)), None)

    def told(self, kind: str) -> tuple[str, str]:
        """Reason and message of a condition of the hub pod."""
        found = condition_of(self.hub_pod(WEB) or {}, kind) or {}
        return found.get("reason", ""), found.get("message", "")


def stored_pod() -> PodBuilder:
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    return pod("web").with_spec(volumes=[volume])


@virtual_time
async def test_a_mirror_names_the_targets_claim() -> None:
    """The pod waits until there is one, and says so."""
    world = ClaimWorld()
    async with world.stored():
        world.submit(stored_pod())
        await world.until(lambda: world.told("federate.dev/Mirrored")[0] == "ClaimPending")
        claim = world.ask("fed")
        await world.until(lambda: world.mirror(WEB) is not None)
        mirror, there = world.mirror(WEB), world.claim_there(claim)
        assert mirror is not None
        assert there is not None
        (volume,) = [v for v in spec_of(mirror)["volumes"] if v["name"] == "data"]
        assert volume["persistentVolumeClaim"] == {"claimName": key_of(there).name}
        await asyncio.sleep(30.0)
        # The witness of mirrors knows nothing of storage.
        assert not [said for said in world.broken if "persistentvolume" not in said]


@virtual_time
async def test_by_default_a_pod_with_a_claim_leaves_no_trace_in_the_target() -> None:
    world = ClaimWorld(ClaimRules())
    async with world.stored():
        world.submit(stored_pod())
        await world.until(lambda: world.told("federate.dev/Mirrored")[0] == "ClaimRefused")
        world.ask("fed")
        await asyncio.sleep(60.0)
        assert not world.target.writes()


@virtual_time
async def test_c26_a_namespace_whose_pods_are_refused_whole_gets_nothing_in_the_target() -> None:
    """Whoever may make claims may say himself which node was chosen for one, and need no pod."""
    world = ClaimWorld(policy=PolicyRules(namespaces=("team-*",)))
    async with world.stored():
        world.ask("fed")
        await asyncio.sleep(60.0)
        assert not world.target.writes()


@virtual_time
async def test_a_pod_of_an_unbound_claim_says_so_and_is_not_looked_at_on_and_on() -> None:
    """Its user named the node himself, so no scheduler has the claim bound."""
    world = ClaimWorld()
    async with world.stored():
        with world.others():
            body = hub_claim(storageClassName="fed")
            del body["metadata"]["annotations"]
            world.hub.add(CLAIMS, body)
        world.submit(stored_pod())
        await world.until(lambda: world.told("federate.dev/Mirrored")[0] == "ClaimPending")
        await asyncio.sleep(5.0)
        before = len(world.hub.calls)
        await asyncio.sleep(20.0)
        assert len(world.hub.calls) - before < 60


@virtual_time
async def test_a_claim_is_looked_at_no_more_when_the_pod_that_waited_is_gone() -> None:
    """It is bound to our node: the request that removes it is ours, and no watch tells of it."""
    world = ClaimWorld()
    async with world.stored():
        with world.others():
            body = hub_claim(storageClassName="fed")
            del body["metadata"]["annotations"]
            world.hub.add(CLAIMS, body)
        world.submit(stored_pod())
        await world.until(lambda: world.told("federate.dev/Mirrored")[0] == "ClaimPending")
        await asyncio.sleep(1.0)
        with world.others():
            world.hub.delete_by_user(PODS, WEB)
        await world.until(lambda: world.hub_pod(WEB) is None)
        await asyncio.sleep(LOOK_SECONDS + 60.0)
        before = world.reads_of_claims()
        await asyncio.sleep(LOOK_SECONDS * 3)
        assert world.reads_of_claims() == before


@virtual_time
async def test_why_there_is_no_storage_stands_on_the_pod_until_there_is() -> None:
    """In the target's words and the hub's names, though no scheduler says a word."""
    world = ClaimWorld()
    world.storage.fails = True
    async with world.stored():
        claim = world.ask("fed-late")
        world.submit(stored_pod())
        await world.until(lambda: world.mirror(WEB) is not None)
        there = world.claim_there(claim)
        assert there is not None
        with world.others():
            world.target.add(
                CORE_EVENTS,
                {
                    "metadata": {"namespace": TARGET_NAMESPACE, "name": "e1"},
                    "involvedObject": {"kind": CLAIMS.kind, "uid": uid_of(there)},
                    "type": "Warning",
                    "message": f'no disk left for claim "{key_of(there).name}"',
                },
            )
        said = 'no disk left for claim "data"'
        await world.until(
            lambda: world.told("federate.dev/MirrorScheduled") == ("ClaimPending", said)
        )
        assert world.told("Ready") == ("MirrorUnschedulable", said)
        world.storage.fails = False
        world.storage.consume(there)
        await world.until(lambda: world.told("federate.dev/MirrorScheduled")[1] != said)


@virtual_time
async def test_c30_a_mirror_of_a_dead_process_does_not_run_with_data_of_another_claim() -> None:
    """Its claim was deleted and made anew meanwhile: the new one has storage of its own."""
    world = ClaimWorld()
    begun: list[str] = []

    def dies(call: Call) -> Fault | None:
        if (call.client, call.verb, call.resource) != ("target", "create", PODS) or begun:
            return None
        begun.extend(claims_of(call.body or {}))
        with world.others():
            world.hub.delete_by_user(CLAIMS, ObjectKey("default", "data"))
            anew = hub_claim(storageClassName="fed", uid="uid-anew")
            world.hub.add(CLAIMS, anew)
        return CrashAfter()

    def now() -> list[str]:
        return claims_of(world.mirror(WEB) or {})

    async with world.stored():
        world.ask("fed")
        world.fault_of = dies
        world.submit(stored_pod())
        await world.until(lambda: begun and now() and now() != begun, seconds=300.0)
        anew = next(obj for resource, obj in world.hub.store.all() if resource == CLAIMS)
        there = world.claim_there(anew)
        assert there is not None
        assert now() == [key_of(there).name]
        await world.until(lambda: not is_gated(world.mirror(WEB) or {}))
        assert now() == [key_of(there).name]


def claims_of(mirror: JsonObject) -> list[str]:
    """Name the claims that a mirror names."""
    sources = (v.get("persistentVolumeClaim") for v in spec_of(mirror).get("volumes") or ())
    return [source["claimName"] for source in sources if source is not None]
