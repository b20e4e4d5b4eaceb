"""When claims are looked at again, and pods told: at once, for nobody looks twice by himself."""

from __future__ import annotations

import asyncio

from federate.claims.keys import volume_name
from federate.claims.protocol import STORAGE_PROVISIONER_ANNOTATIONS
from federate.errors import Conflict
from federate.flow.controller import Again
from federate.model.objects import JsonDict, ObjectKey, key_of
from federate.model.reasons import PodReason
from federate.model.resources import CLAIMS, CORE_EVENTS, STORAGE_CLASSES, VOLUMES
from tests.support.claimstage import ClaimStage, claiming
from tests.support.clock import virtual_time
from tests.support.fakeclient import Call, Delay, Fault
from tests.support.issuestage import refusing
from tests.support.scene import TARGET_NAMESPACE

WEB = ObjectKey("default", "web")


def why(stage: ClaimStage, pod: JsonDict) -> str:
    """Say why a pod is held back; "" where nothing does, or what it needs is on its way."""
    hold = stage.claims.hold(pod, TARGET_NAMESPACE)
    return str(hold.blocked.reason) if hold is not None and hold.blocked is not None else ""


def of_another(claim: JsonDict) -> None:
    """Let a claim be another provisioner's business."""
    claim["metadata"]["annotations"] = {STORAGE_PROVISIONER_ANNOTATIONS[0]: "disk.example.org"}


@virtual_time
async def test_what_changes_during_a_round_is_looked_at_at_once() -> None:
    """The target has storage while it is asked why it has none."""
    stage = ClaimStage()

    def slow(call: Call) -> Fault | None:
        return Delay(5.0) if call.resource == CORE_EVENTS else None

    stage.target.faults = slow
    async with stage.running():
        key = stage.ask()
        await stage.until(lambda: stage.is_bound(key), seconds=15.0)


@virtual_time
async def test_a_claim_that_is_nobodys_business_is_looked_at_when_a_pod_asks() -> None:
    stage = ClaimStage()
    pod = claiming("web", "data")
    key = stage.ask(volumeName="by-hand")
    stage.hub.edit(CLAIMS, key.hub_key, of_another)
    reference = {"namespace": "default", "name": "data", "uid": key.uid}
    stage.add_stranger("by-hand", claimRef=reference, nfs={})
    async with stage.running():
        await asyncio.sleep(30.0)
        assert stage.claims.counts() == {}
        assert why(stage, pod) == ""
        await stage.until(lambda: WEB in stage.woken, seconds=5.0)
        assert why(stage, pod) == PodReason.CLAIM_REFUSED


@virtual_time
async def test_the_loss_of_data_that_was_given_on_is_noticed_at_once() -> None:
    """The claim in the target says for which it was made, the volume for which it is now."""
    stage = ClaimStage()
    pod = claiming("web", "again")
    async with stage.running():
        first = stage.ask()
        await stage.until(lambda: stage.is_bound(first))
        stage.hub.delete_by_user(CLAIMS, first.hub_key)
        await asyncio.sleep(10.0)
        volume = ObjectKey("", volume_name(first))
        second = stage.ask("again", volumeName=volume.name)
        reference = {"namespace": "default", "name": "again", "uid": second.uid}
        stage.hub.edit(VOLUMES, volume, lambda obj: obj["spec"].update(claimRef=reference))
        await stage.until(lambda: stage.is_bound(second) and stage.is_ready(pod))
        await asyncio.sleep(10.0)
        stage.target.delete_by_user(CLAIMS, key_of(stage.claim(first) or {}))
        await stage.until(lambda: why(stage, pod) == PodReason.CLAIM_LOST, seconds=5.0)


@virtual_time
async def test_a_pod_hears_of_its_claim_while_the_target_is_away() -> None:
    """That it is there now, and that it is gone."""
    stage = ClaimStage()
    stage.reachable = False
    pod = claiming("web", "data")
    async with stage.running():
        assert why(stage, pod) == PodReason.CLAIM_PENDING
        key = stage.ask()
        await stage.until(lambda: WEB in stage.woken, seconds=5.0)
        stage.woken.clear()
        assert why(stage, pod) == ""
        stage.hub.delete_by_user(CLAIMS, key.hub_key)
        await stage.until(lambda: WEB in stage.woken, seconds=5.0)


@virtual_time
async def test_a_claim_that_is_being_deleted_serves_the_pods_that_run_with_it() -> None:
    """As on any node: no other pod begins with it."""
    stage = ClaimStage()
    stage.mirrored = {"old"}
    async with stage.running():
        key = stage.ask()
        await stage.until(lambda: stage.is_bound(key))
        ending = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["kubernetes.io/x"]}
        stage.hub.edit(CLAIMS, key.hub_key, lambda claim: claim["metadata"].update(ending))
        await asyncio.sleep(30.0)
        assert stage.is_ready(claiming("old", "data"))
        assert why(stage, claiming("web", "data")) == PodReason.CLAIM_PENDING


@virtual_time
async def test_who_may_not_act_looks_at_nothing() -> None:
    """A leader that is not sure to lead waits."""
    stage = ClaimStage()
    stage.instead = Again(2.0)
    async with stage.running():
        before = len(stage.hub.calls)
        key = stage.ask()
        await asyncio.sleep(30.0)
        assert len(stage.hub.calls) == before
        stage.instead = None
        await stage.until(lambda: stage.is_bound(key), seconds=10.0)


@virtual_time
async def test_an_operators_word_has_all_looked_at_that_waits() -> None:
    stage = ClaimStage()
    body = stage.hub.find(STORAGE_CLASSES, ObjectKey("", "fed"))
    assert body is not None
    stage.hub.delete_by_user(STORAGE_CLASSES, ObjectKey("", "fed"))
    async with stage.running():
        key = stage.ask()
        await stage.until(lambda: stage.claims.counts() == {"blocked": 1})
        stage.hub.add(STORAGE_CLASSES, {**body, "metadata": {"name": "fed"}})
        stage.claims.wake_all()
        await stage.until(lambda: stage.is_bound(key), seconds=5.0)


@virtual_time
async def test_two_that_write_against_each_other_do_not_hurry() -> None:
    """Read anew once, then ever more seldom."""
    stage = ClaimStage()
    async with stage.running():
        key = stage.ask()
        await stage.until(lambda: stage.is_bound(key))
        stage.target.faults = refusing(
            "patch", CLAIMS.plural, Conflict("changed", reason="Conflict", status=409)
        )
        size = {"storage": "5Gi"}
        stage.hub.edit(
            CLAIMS, key.hub_key, lambda claim: claim["spec"]["resources"].update(requests=size)
        )
        await asyncio.sleep(30.0)
        assert 2 <= len([c for c in stage.target.calls if c.verb == "patch"]) <= 30
        stage.target.faults = None
        await stage.until(
            lambda: (stage.hub_claim(key) or {})["status"]["capacity"] == size, seconds=200.0
        )
        assert key_of(stage.claim(key) or {}).namespace == TARGET_NAMESPACE
