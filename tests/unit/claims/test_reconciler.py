"""Claims of a virtual node between two clusters in memory, as its mirroring runs them."""

from __future__ import annotations

import asyncio
from collections import Counter

from federate.claims.keys import ClaimKey, target_claim_name
from federate.claims.protocol import SELECTED_NODE_ANNOTATION
from federate.claims.reasons import ClaimReason
from federate.claims.rules import ClaimRules
from federate.cluster.store import Change
from federate.companions.steps import Ground
from federate.errors import Forbidden, LeadershipLost, Rejected, ServerFault
from federate.model.objects import ObjectKey, annotations_of, key_of, spec_of, uid_of
from federate.model.reasons import PodReason
from federate.model.resources import CLAIMS, CORE_EVENTS, NAMESPACES, PODS, VOLUMES
from tests.support.claimstage import ClaimStage, chosen, claiming
from tests.support.clock import virtual_time
from tests.support.fakeclient import Call, Delay, Fault, Refuse
from tests.support.issuestage import refusing
from tests.support.scene import SCOPE, TARGET_NAMESPACE

WEB = ObjectKey("default", "web")


def reasons(stage: ClaimStage) -> set[str]:
    return {reason for _, reason, _ in stage.told.events}


def words(stage: ClaimStage, reason: str) -> str:
    return " ".join(note for _, told, note in stage.told.events if told == reason)


def writes(stage: ClaimStage) -> Counter[str]:
    calls = [*stage.hub.writes(), *stage.target.writes()]
    return Counter(f"{call.verb} {call.resource.plural}" for call in calls)


@virtual_time
async def test_a_claim_gets_storage_in_the_target_and_its_pod_a_mirror_that_names_it() -> None:
    """One claim there, one volume on the hub; nothing else is written."""
    stage = ClaimStage()
    async with stage.running():
        key = stage.ask()
        await stage.until(lambda: stage.is_bound(key))
        there = stage.claim(key)
        assert there is not None
        assert spec_of(there)["storageClassName"] == "fast"
        assert "ownerReferences" not in there["metadata"]
        pod = claiming("web", "data")
        await stage.until(lambda: stage.is_ready(pod))
        name = target_claim_name(SCOPE, key)
        assert stage.claims.names(pod, TARGET_NAMESPACE) == {"v0": name}
        await asyncio.sleep(400.0)
        assert writes(stage) == {
            "create persistentvolumeclaims": 1,
            "create persistentvolumes": 1,
        }
        assert reasons(stage) == {ClaimReason.CLAIM_MADE}
        assert stage.claims.counts() == {"settled": 1}


@virtual_time
async def test_where_hub_and_target_wait_for_a_pod_neither_waits_for_the_other() -> None:
    stage = ClaimStage()
    async with stage.running():
        key = stage.ask(storageClassName="fed-late")
        await stage.until(lambda: stage.is_bound(key))
        pod = claiming("web", "data")
        await stage.until(lambda: stage.is_ready(pod))
        there = stage.claim(key)
        assert there is not None
        assert "status" not in there
        stage.storage.consume(there)
        await stage.until(lambda: (stage.claim(key) or {}).get("status", {}).get("phase"))
        await stage.until(lambda: stage.claims.words(pod) == "")


@virtual_time
async def test_a_pod_waits_for_its_claim_and_is_woken_when_it_is_there() -> None:
    stage = ClaimStage()
    async with stage.running():
        pod = claiming("web", "data")
        hold = stage.claims.hold(pod, TARGET_NAMESPACE)
        assert hold is not None
        assert hold.blocked is not None
        assert hold.blocked.reason == PodReason.CLAIM_PENDING
        key = stage.ask()
        # As its own reconcile does: it asks again whenever it is woken.
        asked = 0
        while not stage.is_ready(pod):
            asked += 1
            stage.woken.clear()
            await stage.until(lambda: WEB in stage.woken)
        assert asked <= 4
        assert stage.is_bound(key)


@virtual_time
async def test_claims_that_wait_for_other_nodes_cost_nothing() -> None:
    """Nor do those of other provisioners: thousands of them may be on the hub."""
    stage = ClaimStage()
    async with stage.running():
        for number in range(20):
            key = stage.ask(f"other-{number}")
            stage.hub.edit(
                CLAIMS,
                key.hub_key,
                lambda claim: claim["metadata"]["annotations"].update(chosen("edge-2")),
            )
        await asyncio.sleep(30.0)
        before = len(stage.hub.calls)
        for number in range(20):
            stage.hub.edit(
                CLAIMS,
                ObjectKey("default", f"other-{number}"),
                lambda claim: claim["metadata"]["annotations"].update(note="new"),
            )
        await asyncio.sleep(30.0)
        assert len(stage.hub.calls) == before
        assert stage.claims.counts() == {}
        assert not stage.claims_there()


@virtual_time
async def test_a_claim_of_the_target_that_is_not_ours_is_never_named() -> None:
    """A user may write any claim's name into a pod, and make a claim of that name on the hub."""
    stage = ClaimStage()
    metadata = {"namespace": TARGET_NAMESPACE, "name": "treasure"}
    spec = {"storageClassName": "late", "resources": {"requests": {"storage": "1Gi"}}}
    stage.target.add(CLAIMS, {"metadata": metadata, "spec": spec})
    async with stage.running():
        pod = claiming("web", "treasure")
        assert not stage.is_ready(pod)
        key = stage.ask("treasure", volumeName="by-hand")
        reference = {"namespace": "default", "name": "treasure", "uid": key.uid}
        stage.add_stranger("by-hand", claimRef=reference, nfs={})
        await asyncio.sleep(60.0)
        hold = stage.claims.hold(pod, TARGET_NAMESPACE)
        assert hold is not None
        assert hold.blocked is not None
        assert hold.blocked.reason == PodReason.CLAIM_REFUSED
        assert stage.claims.names(pod, TARGET_NAMESPACE) is None
        assert len(stage.claims_there()) == 1


# -- refused ---------------------------------------------------------------------------------------


@virtual_time
async def test_what_the_target_does_not_take_is_handed_back_to_the_scheduler() -> None:
    """Its words are on the claim; and where the scheduler chooses us again, ever more seldom."""
    stage = ClaimStage()
    full = Forbidden("exceeded quota: storage", reason="Forbidden", status=403)
    stage.target.faults = refusing("create", "persistentvolumeclaims", full)
    async with stage.running():
        key = stage.ask()

        async def choose_again() -> None:
            while True:
                await asyncio.sleep(1.0)
                claim = stage.hub_claim(key)
                if claim and SELECTED_NODE_ANNOTATION not in annotations_of(claim):
                    stage.hub.edit(
                        CLAIMS,
                        key.hub_key,
                        lambda claim: claim["metadata"]["annotations"].update(chosen()),
                    )

        scheduler = asyncio.create_task(choose_again())
        await asyncio.sleep(900.0)
        assert "exceeded quota" in words(stage, PodReason.CLAIM_REFUSED)
        tried = writes(stage)
        assert 6 <= tried["create persistentvolumeclaims"] <= 12
        assert 6 <= tried["patch persistentvolumeclaims"] <= 12
        stage.target.faults = None
        await stage.until(lambda: stage.is_bound(key), seconds=400.0)
        scheduler.cancel()


@virtual_time
async def test_a_class_that_stands_for_nothing_here_is_handed_back() -> None:
    stage = ClaimStage()
    async with stage.running():
        key = stage.ask(storageClassName="gold")
        await stage.until(lambda: PodReason.CLAIM_REFUSED in reasons(stage))
        claim = stage.hub_claim(key)
        assert claim is not None
        await stage.until(
            lambda: SELECTED_NODE_ANNOTATION not in annotations_of(stage.hub_claim(key) or {})
        )
        assert not stage.claims_there()
        await stage.until(lambda: stage.claims.counts() == {})


@virtual_time
async def test_for_a_pod_that_the_target_refuses_nothing_is_written_there() -> None:
    """Not even its storage; for another pod that names the claim it is made."""
    stage = ClaimStage()
    stage.refused = {"bad"}
    async with stage.running():
        stage.submit(claiming("bad", "data"))
        key = stage.ask()
        await stage.until(lambda: PodReason.CLAIM_REFUSED in reasons(stage))
        await asyncio.sleep(60.0)
        assert not stage.target.writes()
        stage.submit(claiming("good", "data"))
        stage.hub.edit(
            CLAIMS, key.hub_key, lambda claim: claim["metadata"]["annotations"].update(chosen())
        )
        await stage.until(lambda: stage.is_bound(key), seconds=400.0)


@virtual_time
async def test_a_failing_webhook_is_told_and_an_overloaded_server_waited_for() -> None:
    stage = ClaimStage()
    broken = ServerFault("failed calling webhook", status=500)
    stage.target.faults = refusing("create", "persistentvolumeclaims", broken)
    async with stage.running():
        stage.ask()
        await stage.until(lambda: "webhook" in words(stage, PodReason.CLAIM_REFUSED))
        busy = ServerFault("timed out", status=504)
        stage.target.faults = refusing("create", "persistentvolumeclaims", busy)
        other = stage.ask("other")
        await asyncio.sleep(10.0)
        assert "timed out" not in words(stage, PodReason.CLAIM_REFUSED)
        stage.target.faults = None
        await stage.until(lambda: stage.is_bound(other))


@virtual_time
async def test_a_claim_whose_marks_are_taken_off_at_once_is_taken_back() -> None:
    """Nobody could find it again."""
    stage = ClaimStage()
    create = stage.target.create

    def stripping(resource, body, key=None):  # type: ignore[no-untyped-def]
        made = create(resource, body, key)
        if resource == CLAIMS:
            made = stage.target.edit(CLAIMS, key_of(made), lambda c: c["metadata"].pop("labels"))
        return made

    stage.target.create = stripping  # type: ignore[method-assign]
    async with stage.running():
        stage.ask()
        await stage.until(lambda: "strips" in words(stage, PodReason.CLAIM_REFUSED))
        assert not stage.claims_there()


@virtual_time
async def test_a_volume_that_the_hub_does_not_take_is_told() -> None:
    stage = ClaimStage()
    denied = Forbidden("cannot create persistentvolumes", reason="Forbidden", status=403)
    stage.hub.faults = refusing("create", "persistentvolumes", denied)
    async with stage.running():
        key = stage.ask()
        await stage.until(lambda: "persistentvolumes" in words(stage, PodReason.CLAIM_PENDING))
        stage.hub.faults = None
        await stage.until(lambda: stage.is_bound(key), seconds=200.0)


# -- what the target says --------------------------------------------------------------------------


@virtual_time
async def test_why_the_target_has_no_storage_is_told_on_the_hub() -> None:
    """In its own words, with the hub's names, on claim and pod; it ends when there is some."""
    stage = ClaimStage()
    stage.storage.fails = True
    async with stage.running():
        key = stage.ask(storageClassName="fed-late")
        await stage.until(lambda: stage.is_bound(key))
        there = stage.claim(key)
        assert there is not None
        stage.target.add(
            CORE_EVENTS,
            {
                "metadata": {"namespace": TARGET_NAMESPACE, "name": "e1"},
                "involvedObject": {"kind": "PersistentVolumeClaim", "uid": uid_of(there)},
                "type": "Warning",
                "message": f"no disk left for {key_of(there)}",
            },
        )
        pod = claiming("web", "data")
        await stage.until(lambda: stage.claims.words(pod) == "no disk left for default/data")
        assert "no disk left for default/data" in words(stage, PodReason.CLAIM_PENDING)
        stage.storage.fails = False
        stage.storage.consume(there)
        await stage.until(lambda: stage.claims.words(pod) == "")


@virtual_time
async def test_a_claim_that_is_removed_in_the_target_is_told_and_never_made_again() -> None:
    """An empty one in its place would look like the data."""
    stage = ClaimStage()
    async with stage.running():
        key = stage.ask()
        pod = claiming("web", "data")
        await stage.until(lambda: stage.is_bound(key) and stage.is_ready(pod))
        there = stage.claim(key)
        assert there is not None
        stage.target.delete_by_user(CLAIMS, key_of(there))
        await stage.until(lambda: not stage.is_ready(pod))
        await stage.until(lambda: stage.claims.counts() == {"blocked": 1})
        hold = stage.claims.hold(pod, TARGET_NAMESPACE)
        assert hold is not None
        assert hold.blocked is not None
        assert hold.blocked.reason == PodReason.CLAIM_LOST
        await asyncio.sleep(400.0)
        assert not stage.claims_there()


# -- sizes -----------------------------------------------------------------------------------------


def grow(stage: ClaimStage, key: ClaimKey, size: str) -> None:
    stage.hub.edit(
        CLAIMS, key.hub_key, lambda c: c["spec"]["resources"]["requests"].update(storage=size)
    )


@virtual_time
async def test_a_claim_grows_on_both_sides() -> None:
    stage = ClaimStage()
    async with stage.running():
        key = stage.ask()
        await stage.until(lambda: stage.is_bound(key))
        grow(stage, key, "5Gi")
        size = {"storage": "5Gi"}
        await stage.until(lambda: (stage.hub_claim(key) or {})["status"]["capacity"] == size)
        volume = stage.volume(key)
        assert volume is not None
        assert spec_of(volume)["capacity"] == size


@virtual_time
async def test_a_growth_that_the_target_refuses_is_told_and_stops_no_pod() -> None:
    stage = ClaimStage()
    pod = claiming("web", "data")
    async with stage.running():
        key = stage.ask()
        await stage.until(lambda: stage.is_bound(key) and stage.is_ready(pod))
        never = Rejected("its class allows no expansion", reason="Invalid", status=422)
        stage.target.faults = refusing("patch", "persistentvolumeclaims", never)
        grow(stage, key, "5Gi")
        await stage.until(lambda: ClaimReason.EXPANSION_REFUSED in reasons(stage))
        await stage.until(lambda: stage.is_ready(pod))
        await asyncio.sleep(900.0)
        assert writes(stage)["patch persistentvolumeclaims"] <= 10
        stage.target.faults = None
        size = {"storage": "5Gi"}
        await stage.until(
            lambda: (stage.hub_claim(key) or {})["status"]["capacity"] == size, seconds=400.0
        )


# -- the end ---------------------------------------------------------------------------------------


@virtual_time
async def test_data_stays_when_the_hubs_claim_goes() -> None:
    stage = ClaimStage()
    async with stage.running():
        key = stage.ask()
        await stage.until(lambda: stage.is_bound(key))
        stage.hub.delete_by_user(CLAIMS, key.hub_key)
        await asyncio.sleep(400.0)
        assert stage.claim(key) is not None
        assert stage.volume(key) is not None
        assert not [call for call in stage.target.writes() if call.verb == "delete"]


@virtual_time
async def test_data_goes_where_its_class_asks_for_it() -> None:
    stage = ClaimStage()
    async with stage.running():
        key = stage.ask(storageClassName="fed-delete")
        await stage.until(lambda: stage.is_bound(key))
        await asyncio.sleep(30.0)
        stage.hub.delete_by_user(CLAIMS, key.hub_key)
        await stage.until(lambda: stage.volume(key) is None)
        assert stage.claim(key) is None
        await stage.until(lambda: stage.claims.counts() == {})


@virtual_time
async def test_nothing_is_deleted_on_the_word_of_another_hub() -> None:
    """The hub's address leads to a new cluster, where no claim is (C5)."""
    stage = ClaimStage()
    async with stage.running():
        key = stage.ask(storageClassName="fed-delete")
        await stage.until(lambda: stage.is_bound(key))
        await asyncio.sleep(30.0)
        stage.is_other_hub = True
        stage.hub.delete_by_user(CLAIMS, key.hub_key)
        await asyncio.sleep(300.0)
        assert stage.claim(key) is not None
        stage.is_other_hub = False
        await stage.until(lambda: stage.claim(key) is None, seconds=400.0)


@virtual_time
async def test_a_claim_of_the_same_name_has_storage_of_its_own() -> None:
    """A StatefulSet's user deletes a claim to begin anew; the old data stays where it is."""
    stage = ClaimStage()
    async with stage.running():
        first = stage.ask()
        await stage.until(lambda: stage.is_bound(first))
        stage.hub.delete_by_user(CLAIMS, first.hub_key)
        second = stage.ask(uid="uid-anew")
        pod = claiming("web", "data")
        await stage.until(lambda: stage.is_bound(second) and stage.is_ready(pod))
        assert len(stage.claims_there()) == 2
        name = target_claim_name(SCOPE, second)
        assert stage.claims.names(pod, TARGET_NAMESPACE) == {"v0": name}


@virtual_time
async def test_kept_data_serves_a_new_claim_when_an_administrator_gives_it_on() -> None:
    """As everywhere: `claimRef` is taken off the volume, and a claim names it."""
    stage = ClaimStage()
    async with stage.running():
        first = stage.ask()
        await stage.until(lambda: stage.is_bound(first))
        stage.hub.delete_by_user(CLAIMS, first.hub_key)
        volume = stage.volume(first)
        assert volume is not None
        await asyncio.sleep(10.0)
        second = stage.ask("again", volumeName=key_of(volume).name)

        def give(obj: dict) -> None:  # type: ignore[type-arg]
            obj["spec"]["claimRef"] = {
                "namespace": "default",
                "name": "again",
                "uid": second.uid,
            }

        stage.hub.edit(VOLUMES, key_of(volume), give)
        pod = claiming("web", "again")
        await stage.until(lambda: stage.is_bound(second) and stage.is_ready(pod))
        name = target_claim_name(SCOPE, first)
        assert stage.claims.names(pod, TARGET_NAMESPACE) == {"v0": name}
        assert len(stage.claims_there()) == 1


@virtual_time
async def test_what_was_made_for_a_claim_that_is_gone_goes_if_it_is_empty() -> None:
    stage = ClaimStage()
    stage.storage.fails = True
    async with stage.running():
        key = stage.ask()
        await stage.until(lambda: stage.claim(key) is not None)
        stage.hub.delete_by_user(CLAIMS, key.hub_key)
        await stage.until(lambda: not stage.claims_there())


# -- the world around ------------------------------------------------------------------------------


@virtual_time
async def test_claims_wait_for_a_target_that_is_away() -> None:
    stage = ClaimStage()
    stage.reachable = False
    async with stage.running():
        key = stage.ask()
        await asyncio.sleep(60.0)
        assert not stage.claims_there()
        stage.reachable = True
        stage.claims.wake_all()
        await stage.until(lambda: stage.is_bound(key))


@virtual_time
async def test_nothing_is_made_from_a_virtual_node_that_is_left() -> None:
    stage = ClaimStage()
    stage.leaving = True
    async with stage.running():
        stage.ask()
        await stage.until(lambda: PodReason.CLAIM_REFUSED in reasons(stage))
        assert not stage.claims_there()
        assert not stage.is_ready(claiming("web", "data"))


@virtual_time
async def test_nothing_is_made_where_federate_was_uninstalled() -> None:
    stage = ClaimStage()
    stage.ground.stands = Ground.UNINSTALLED
    async with stage.running():
        stage.ask()
        await stage.until(lambda: PodReason.UNINSTALLED in reasons(stage))
        assert not stage.claims_there()


@virtual_time
async def test_a_target_namespace_is_made_for_the_first_claim() -> None:
    """The claim comes before any pod."""
    stage = ClaimStage()
    assert stage.target.find(NAMESPACES, ObjectKey("", TARGET_NAMESPACE)) is None
    async with stage.running():
        key = stage.ask()
        await stage.until(lambda: stage.is_bound(key))
        assert stage.ground.state(TARGET_NAMESPACE) is Ground.READY


@virtual_time
async def test_by_default_nothing_is_watched_and_nothing_made() -> None:
    stage = ClaimStage(rules=ClaimRules())
    assert stage.claims.open() == ()
    assert stage.claims.parts() == {}
    assert stage.claims.hold(claiming("web", "data"), TARGET_NAMESPACE) is None


@virtual_time
async def test_a_pod_that_is_gone_is_not_woken() -> None:
    stage = ClaimStage()
    async with stage.running():
        pod = claiming("web", "data")
        assert not stage.is_ready(pod)
        stage.claims.on_hub_pod(Change(key=WEB, old=pod, new=None))
        stage.ask()
        await asyncio.sleep(30.0)
        assert WEB not in stage.woken


@virtual_time
async def test_a_hundred_claims_of_one_namespace_share_the_listings_of_its_pods() -> None:
    """Which take long where there are many pods."""
    stage = ClaimStage()

    def slow(call: Call) -> Fault | None:
        return Delay(0.5) if call.verb == "list" and call.resource == PODS else None

    stage.hub.faults = slow
    async with stage.running():
        keys = []
        for number in range(100):
            stage.submit(claiming(f"p{number}", f"c{number}"))
            keys.append(stage.ask(f"c{number}"))
        await stage.until(lambda: all(stage.is_bound(key) for key in keys))
        listings = [c for c in stage.hub.calls if c.verb == "list" and c.resource == PODS]
        assert len(listings) <= 40, len(listings)
        assert writes(stage) == {
            "create persistentvolumeclaims": 100,
            "create persistentvolumes": 100,
        }


@virtual_time
async def test_a_word_that_the_watch_lost_is_found_by_looking() -> None:
    stage = ClaimStage()
    pod = claiming("web", "data")
    async with stage.running():
        key = stage.ask()
        await stage.until(lambda: stage.is_bound(key) and stage.is_ready(pod))
        there = stage.claim(key)
        assert there is not None

        def answer(call: Call) -> Fault | None:
            is_it = call.verb == "get" and call.key == key_of(there)
            gone = Forbidden("no right any more", reason="Forbidden", status=403)
            return Refuse(gone) if is_it else None

        stage.target.faults = answer
        await stage.until(lambda: not stage.is_ready(pod), seconds=400.0)


@virtual_time
async def test_who_leads_no_more_writes_nothing() -> None:
    """Each write asks first, on the hub too; it ends the process."""
    stage = ClaimStage()
    stage.lost = LeadershipLost("another replica leads")
    stage.ask()
    async with stage.living() as dead:
        await asyncio.wait({dead}, timeout=60.0)
        assert dead.done()
    assert not stage.hub.writes()
    assert not stage.target.writes()


@virtual_time
async def test_every_write_asks_whether_it_may() -> None:
    """Claim, volume, sizes on both sides, a claim handed back, both deletions: one each."""
    stage = ClaimStage()
    async with stage.running():
        key = stage.ask(storageClassName="fed-delete")
        stage.ask("other", storageClassName="gold")
        await stage.until(lambda: stage.is_bound(key))
        grow(stage, key, "2Gi")
        size = {"storage": "2Gi"}
        await stage.until(lambda: (stage.hub_claim(key) or {})["status"]["capacity"] == size)
        stage.hub.delete_by_user(CLAIMS, key.hub_key)
        await stage.until(lambda: stage.volume(key) is None)
        assert stage.fenced.count("leads") == len(stage.hub.writes()) + len(stage.target.writes())
        assert stage.fenced.count("target") == len(stage.target.writes())
