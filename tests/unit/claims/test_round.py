"""What a round makes sure of before it believes an absence, and when it looks again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from federate.claims.keys import ClaimKey
from federate.claims.reasons import ClaimReason
from federate.errors import Conflict, Forbidden
from federate.model.objects import (
    JsonDict,
    ObjectKey,
    copied,
    key_of,
    resource_version_of,
    uid_of,
)
from federate.model.reasons import PodReason
from federate.model.resources import CLAIMS, STORAGE_CLASSES, VOLUMES, Resource
from federate.patch.document import PatchBody
from tests.support.claimstage import ClaimStage, claiming
from tests.support.claimviews import volume_of
from tests.support.clock import virtual_time
from tests.support.fakeclient import Refuse
from tests.support.fakecluster import FakeCluster
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


def _keep(volume: JsonDict) -> None:
    volume["spec"]["persistentVolumeReclaimPolicy"] = "Retain"


def _take_off(volume: JsonDict) -> None:
    volume["spec"]["claimRef"] = None


@pytest.mark.parametrize("decide", [_keep, _take_off], ids=["retained", "given on"])
def test_who_decides_otherwise_while_a_deletion_waits_is_heard(
    decide: Callable[[JsonDict], None],
) -> None:
    """The target's claim does not change by that: its version is no precondition."""

    @virtual_time
    async def waits() -> None:
        stage = ClaimStage()
        async with stage.running():
            key = stage.ask(storageClassName="fed-delete")
            await stage.until(lambda: stage.is_bound(key))
            await asyncio.sleep(30.0)
            asked = 0

            def ask() -> None:
                nonlocal asked
                asked += 1
                if asked == 2:  # the first was for the look that found the hub's claim gone
                    volume = stage.volume(key)
                    assert volume is not None
                    stage.hub.edit(VOLUMES, key_of(volume), decide)

            stage.on_confirm_hub = ask
            stage.hub.delete_by_user(CLAIMS, key.hub_key)
            await asyncio.sleep(700.0)
            assert asked >= 2
            assert stage.claim(key) is not None
            assert stage.volume(key) is not None

    waits()


@virtual_time
async def test_an_empty_claim_that_is_given_on_while_its_deletion_waits_stays() -> None:
    stage = ClaimStage()
    stage.storage.fails = True
    async with stage.running():
        key = stage.ask()
        await stage.until(lambda: stage.claim(key) is not None)
        there = stage.claim(key)
        assert there is not None
        asked = 0

        def ask() -> None:
            nonlocal asked
            asked += 1
            if asked == 3:  # the claim's look, the volume's, and then the deletion
                lead(stage, there)

        stage.on_confirm_hub = ask
        stage.hub.delete_by_user(CLAIMS, key.hub_key)
        await asyncio.sleep(700.0)
        assert asked >= 3
        assert stage.claim(key) is not None


def lead(stage: ClaimStage, there: JsonDict) -> None:
    """Let a volume that was made by hand lead to a claim of the target."""
    volume = volume_of(there)
    volume["metadata"] |= {"name": "by-hand", "uid": "uid-by-hand"}
    volume["spec"]["claimRef"] = {"namespace": "default", "name": "other", "uid": "uid-other"}
    stage.hub.add(VOLUMES, volume)


async def use_again(stage: ClaimStage, first: ClaimKey) -> ClaimKey:
    """Give the data of a claim that is gone to a new one, as volumes.md says."""
    volume = stage.volume(first)
    assert volume is not None
    second = stage.ask("again", volumeName=key_of(volume).name)
    reference = {"namespace": "default", "name": "again", "uid": second.uid}
    stage.hub.edit(VOLUMES, key_of(volume), lambda v: v["spec"].update(claimRef=reference))
    pod = claiming("web", "again")
    await stage.until(lambda: stage.is_bound(second) and stage.is_ready(pod))
    return second


@virtual_time
async def test_who_led_before_deletes_nothing_that_was_given_on_since() -> None:
    """He stood still behind his fence, with the version that he had seen."""
    stage = ClaimStage()
    async with stage.running():
        first = stage.ask()
        await stage.until(lambda: stage.is_bound(first))
        stage.hub.delete_by_user(CLAIMS, first.hub_key)
        await asyncio.sleep(10.0)
        there = stage.claim(first)
        assert there is not None
        await use_again(stage, first)
        with pytest.raises(Conflict):
            await stage.target.client().delete(
                CLAIMS,
                key_of(there),
                uid=uid_of(there),
                resource_version=resource_version_of(there),
            )
        marked = stage.claim(first)
        await asyncio.sleep(700.0)
        assert stage.claim(first) == marked, "it is marked once"


@virtual_time
async def test_data_is_used_again_where_the_target_strips_the_mark() -> None:
    """Once more for each look, ever more seldom; and no pod waits for it."""
    stage = ClaimStage()

    def strip(body: JsonDict) -> None:
        body["metadata"].pop("annotations", None)

    mutate(stage.target, CLAIMS, strip)
    async with stage.running():
        first = stage.ask()
        await stage.until(lambda: stage.is_bound(first))
        stage.hub.delete_by_user(CLAIMS, first.hub_key)
        await asyncio.sleep(10.0)
        await use_again(stage, first)
        await asyncio.sleep(900.0)
        assert patches(stage.target, CLAIMS) <= 10


@virtual_time
async def test_data_is_used_again_where_the_target_refuses_the_mark() -> None:
    stage = ClaimStage()
    denied = Forbidden("cannot patch", reason="Forbidden", status=403)
    async with stage.running():
        first = stage.ask()
        await stage.until(lambda: stage.is_bound(first))
        stage.hub.delete_by_user(CLAIMS, first.hub_key)
        await asyncio.sleep(10.0)
        stage.target.faults = lambda call: Refuse(denied) if call.verb == "patch" else None
        await use_again(stage, first)
        assert patches(stage.target, CLAIMS) == 1


# -- what is taken and not kept --------------------------------------------------------------------


def mutate(cluster: FakeCluster, resource: Resource, webhook: Callable[[JsonDict], None]) -> None:
    """Let a webhook change each patch of a kind before it is taken."""
    patch = cluster.patch

    def mutating(of: Resource, key: ObjectKey, sent: PatchBody, **more: Any) -> JsonDict:
        if of == resource:
            body = copied(sent.body)
            webhook(body)
            sent = PatchBody(media_type=sent.media_type, body=body)
        return patch(of, key, sent, **more)

    cluster.patch = mutating  # type: ignore[method-assign, assignment]


def patches(cluster: FakeCluster, resource: Resource) -> int:
    return sum(call.verb == "patch" and call.resource == resource for call in cluster.writes())


def _cap(body: JsonDict) -> None:
    requests = body.get("spec", {}).get("resources", {}).get("requests", {})
    if "storage" in requests:
        requests["storage"] = "1Gi"


def words(stage: ClaimStage, reason: str) -> str:
    return "\n".join(note for _, told, note in stage.told.events if told == reason)


@virtual_time
async def test_a_size_that_the_target_takes_and_does_not_keep_is_a_refused_one() -> None:
    """A webhook caps it: the answer is 200, and asking again at once would never end."""
    stage = ClaimStage()
    pod = claiming("web", "data")
    mutate(stage.target, CLAIMS, _cap)
    async with stage.running():
        key = stage.ask()
        await stage.until(lambda: stage.is_bound(key) and stage.is_ready(pod))
        size = {"storage": "5Gi"}
        stage.hub.edit(CLAIMS, key.hub_key, lambda c: c["spec"]["resources"].update(requests=size))
        await stage.until(lambda: "5Gi" in words(stage, ClaimReason.EXPANSION_REFUSED))
        await stage.until(lambda: stage.is_ready(pod))
        await asyncio.sleep(900.0)
        assert patches(stage.target, CLAIMS) <= 10
        assert stage.claims.counts() == {"settled": 1}


@virtual_time
async def test_a_claim_that_is_made_smaller_than_asked_for_serves_its_pod() -> None:
    stage = ClaimStage()
    pod = claiming("web", "data")
    mutate(stage.target, CLAIMS, _cap)
    create = stage.target.create

    def capping(resource: Resource, body: Any, *more: Any) -> JsonDict:
        if resource == CLAIMS:
            body = copied(body)
            _cap(body)
        return create(resource, body, *more)

    stage.target.create = capping  # type: ignore[method-assign, assignment]
    async with stage.running():
        key = stage.ask(resources={"requests": {"storage": "5Gi"}})
        await stage.until(lambda: stage.is_bound(key) and stage.is_ready(pod))
        assert "5Gi" in words(stage, ClaimReason.EXPANSION_REFUSED)
        await asyncio.sleep(900.0)
        assert patches(stage.target, CLAIMS) <= 10
        assert stage.claims.counts() == {"settled": 1}


def _drop_capacity(body: JsonDict) -> None:
    for part in ("spec", "status"):
        body.get(part, {}).pop("capacity", None)


@pytest.mark.parametrize("resource", [VOLUMES, CLAIMS], ids=["volume", "status of the claim"])
def test_a_size_that_the_hub_does_not_keep_is_written_once_a_look(resource: Resource) -> None:
    @virtual_time
    async def grows() -> None:
        stage = ClaimStage()
        pod = claiming("web", "data")
        mutate(stage.hub, resource, _drop_capacity)
        async with stage.running():
            key = stage.ask()
            await stage.until(lambda: stage.is_bound(key) and stage.is_ready(pod))
            size = {"storage": "5Gi"}
            stage.hub.edit(
                CLAIMS, key.hub_key, lambda c: c["spec"]["resources"].update(requests=size)
            )
            await stage.until(lambda: patches(stage.hub, resource) > 0)
            await stage.until(lambda: stage.is_ready(pod))
            await asyncio.sleep(900.0)
            assert patches(stage.hub, resource) <= 10
            assert stage.claims.counts() == {"settled": 1}

    grows()


# -- nobody's --------------------------------------------------------------------------------------


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
