"""What a round makes sure of before it believes an absence, and when it looks again."""

from __future__ import annotations

import asyncio

from federate.claims.keys import ClaimKey
from federate.model.objects import ObjectKey, copied, key_of
from federate.model.reasons import PodReason
from federate.model.resources import CLAIMS, STORAGE_CLASSES, VOLUMES
from tests.support.claimstage import ClaimStage, claiming
from tests.support.clock import virtual_time
from tests.support.scene import TARGET_NAMESPACE


@virtual_time
async def test_data_is_not_called_lost_on_the_word_of_another_target() -> None:
    """Its address leads to a new cluster, where no claim is (C5)."""
    stage = ClaimStage()
    pod = claiming("web", "data")

    def why() -> str:
        hold = stage.claims.hold(pod, TARGET_NAMESPACE)
        return str(hold.blocked.reason) if hold is not None and hold.blocked is not None else ""

    async with stage.running():
        key = stage.ask()
        await stage.until(lambda: stage.is_bound(key) and stage.is_ready(pod))
        there = stage.claim(key)
        assert there is not None
        stage.is_other_target = True
        stage.target.delete_by_user(CLAIMS, key_of(there))
        for _ in range(60):
            await asyncio.sleep(10.0)
            assert why() == ""
        stage.is_other_target = False
        await stage.until(lambda: why() == PodReason.CLAIM_LOST, seconds=400.0)


@virtual_time
async def test_the_hub_is_asked_once_more_before_data_goes() -> None:
    """Between the look and the deletion lies a wait, in which its address may move."""
    stage = ClaimStage()
    async with stage.running():
        key = stage.ask(storageClassName="fed-delete")
        await stage.until(lambda: stage.is_bound(key))
        await asyncio.sleep(30.0)
        asked = 0

        def move() -> None:
            nonlocal asked
            asked += 1
            stage.is_other_hub = asked % 2 == 0  # each look is believed, no deletion is

        stage.on_confirm_hub = move
        stage.hub.delete_by_user(CLAIMS, key.hub_key)
        await asyncio.sleep(300.0)
        assert asked >= 2
        assert stage.claim(key) is not None
        stage.on_confirm_hub = lambda: None
        stage.is_other_hub = False
        await stage.until(lambda: stage.claim(key) is None, seconds=400.0)


@virtual_time
async def test_an_empty_claim_that_another_volume_leads_to_stays() -> None:
    """An administrator may give it on before the target has storage for it."""
    stage = ClaimStage()
    async with stage.running():
        key = stage.ask(storageClassName="fed-late")
        await stage.until(lambda: stage.is_bound(key))
        give_on(stage, key)
        stage.hub.delete_by_user(CLAIMS, key.hub_key)
        await asyncio.sleep(700.0)
        assert stage.claim(key) is not None
        stage.hub.delete_by_user(VOLUMES, ObjectKey("", "by-hand"))
        stage.claims.enqueue(key)
        await stage.until(lambda: stage.claim(key) is None)


def give_on(stage: ClaimStage, key: ClaimKey) -> None:
    """Let a volume of another name, for another claim, lead there in place of the claim's own."""
    volume = stage.volume(key)
    assert volume is not None
    other = copied(volume)
    other["metadata"] = {
        "name": "by-hand",
        **{part: volume["metadata"][part] for part in ("labels", "annotations")},
    }
    other["spec"]["claimRef"] = {"namespace": "default", "name": "other", "uid": "uid-other"}
    stage.hub.add(VOLUMES, other)
    stage.hub.delete_by_user(VOLUMES, key_of(volume))


@virtual_time
async def test_what_nothing_tells_of_is_looked_for_within_a_minute() -> None:
    """A storage class that was made, a right that was given."""
    stage = ClaimStage()
    fed = ObjectKey("", "fed")
    body = stage.hub.find(STORAGE_CLASSES, fed)
    assert body is not None
    stage.hub.delete_by_user(STORAGE_CLASSES, fed)
    async with stage.running():
        key = stage.ask()
        await stage.until(lambda: stage.claims.counts() == {"blocked": 1})
        stage.hub.add(STORAGE_CLASSES, {**body, "metadata": {"name": "fed"}})
        await stage.until(lambda: stage.is_bound(key), seconds=70.0)
