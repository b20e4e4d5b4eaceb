"""Tokens and news of Services: made before a pod starts, kept fresh, removed with it."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest
import structlog

from federate.companions.identity import IdentityRules, TokenAsk
from federate.companions.issued import place_of
from federate.companions.issuer import LOOK_SECONDS, PASS_SECONDS
from federate.companions.issuing import LINGER_SECONDS
from federate.companions.lifetimes import facts_of
from federate.companions.steps import Ground
from federate.errors import Forbidden, ServerFault, Throttled, Unreachable
from federate.flow.controller import Again
from federate.model.marks import RECORD_ANNOTATION, MirrorRecord
from federate.model.objects import JsonDict, JsonObject, ObjectKey, key_of
from federate.model.reasons import PodReason
from federate.model.resources import CONFIGMAPS, PODS, SECRETS, SERVICEACCOUNTS, SERVICES
from tests.support.clock import virtual_time
from tests.support.fakeclient import Call, Fault, Refuse
from tests.support.fakecluster import EPOCH
from tests.support.issuestage import (
    TARGET_NAMESPACE,
    IssueStage,
    api_access,
    decoded,
    refusing,
    token_volume,
    until,
)
from tests.support.views import SCOPE

API = TokenAsk("", 3600)


def token_in(stage: IssueStage, pod: JsonObject, ask: TokenAsk = API) -> str:
    secret = stage.issued(stage.token_key(pod))
    return decoded(secret or {}).get(ask.value_key, "")


def has_changed(stage: IssueStage, pod: JsonObject, ask: TokenAsk, before: str) -> bool:
    return token_in(stage, pod, ask) != before


def service(name: str, address: str = "10.0.0.5", *, namespace: str = "default") -> JsonDict:
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": {"a": "b"}},
        "spec": {"clusterIP": address, "ports": [{"port": 80}], "selector": {"app": name}},
        "status": {"loadBalancer": {}},
    }


# -- before a pod starts ---------------------------------------------------------------------------


@virtual_time
async def test_a_pod_waits_for_its_token_and_is_woken() -> None:
    """On record before it is there; what it waits for is named meanwhile."""
    stage = IssueStage()
    pod = stage.submit()
    held = stage.issuer.hold(pod, TARGET_NAMESPACE)
    assert held is not None and held.blocked is None
    assert [str(key) for key in held.coming] == [
        "tokens of pod default/web",
        "environment of Services in default",
    ]
    async with stage.running():
        await until(partial(stage.is_ready, pod))
        assert set(stage.woken) == {key_of(pod)}
        facts = facts_of(token_in(stage, pod))
        assert facts is not None and facts.pod_uid == pod["metadata"]["uid"]
        assert len(stage.listed()) == 2
        writes = [str(call) for call in stage.target.writes()]
        tokens = str(place_of(SCOPE, stage.token_key(pod)))
        ours = [write for write in writes if tokens in write]
        assert ours == [f"create {kind} {tokens}" for kind in ("configmaps", "secrets")]
        assert dict(stage.issuer.counts()) == {
            "settled": 2,
            "coming": 0,
            "blocked": 0,
            "overdue": 0,
        }


@virtual_time
async def test_each_wish_is_answered_with_its_audience_and_life() -> None:
    """All in one Secret, by one request each."""
    stage = IssueStage()
    pod = stage.submit("web", api_access(), token_volume(audience="vault", expirationSeconds=600))
    async with stage.running():
        await until(partial(stage.is_ready, pod))
    found = {ask: facts_of(token_in(stage, pod, ask)) for ask in (API, TokenAsk("vault", 600))}
    lives = {ask: (f.audiences, f.life_seconds) for ask, f in found.items() if f}
    assert lives == {
        API: (("https://kubernetes.default.svc",), 3600.0),
        TokenAsk("vault", 600): (("vault",), 600.0),
    }
    assert len(stage.asked_tokens()) == 2


@virtual_time
async def test_pods_that_are_refused_or_over_are_issued_nothing() -> None:
    """Nor is the hub asked on their behalf; a refusal may end."""
    stage = IssueStage()
    stage.refused = {"banned"}
    stage.submit("banned")
    over = stage.submit("over")
    stage.hub.set_pod_status(key_of(over), phase="Succeeded")
    async with stage.running():
        await asyncio.sleep(5)
        assert not stage.asked_tokens() and not stage.listed()
        stage.refused = set()
        banned = ObjectKey("default", "banned")
        stage.hub.edit(PODS, banned, lambda pod: pod["metadata"].update(labels={"a": "b"}))
        await until(lambda: len(stage.listed()) == 2)


@pytest.mark.parametrize("mode", ["none", "target"])
@virtual_time
async def test_in_other_modes_nothing_is_issued(mode: str) -> None:
    """No token is asked for, no pod waits, no Service is watched."""
    stage = IssueStage(rules=IdentityRules(scope=SCOPE, mode=mode))  # type: ignore[arg-type]
    pod = stage.submit()
    async with stage.running():
        await asyncio.sleep(5)
        assert stage.issuer.hold(pod, TARGET_NAMESPACE) is None
        assert not stage.issuer._wanted
    assert not stage.listed() and not stage.asked_tokens()
    assert not any(call.resource == SERVICES for call in stage.hub.calls)


@virtual_time
async def test_the_ground_is_made_where_there_is_none() -> None:
    """By whoever comes first."""
    stage = IssueStage()
    stage.target.delete_by_user(CONFIGMAPS, key_of(stage.ground.anchor(TARGET_NAMESPACE) or {}))
    pod = stage.submit()
    async with stage.running():
        await until(partial(stage.is_ready, pod))


@virtual_time
async def test_an_uninstalled_namespace_stays_empty() -> None:
    """The pod says so, and goes on once an operator has confirmed."""
    stage = IssueStage()
    stage.ground.stands = Ground.UNINSTALLED
    pod = stage.submit()
    async with stage.running():
        await until(lambda: (h := stage.issuer.hold(pod, TARGET_NAMESPACE)) and h.blocked)
        held = stage.issuer.hold(pod, TARGET_NAMESPACE)
        assert held is not None and held.blocked is not None
        assert held.blocked.reason == PodReason.UNINSTALLED
        assert not stage.target.writes()
        await until(lambda: stage.issuer.counts()["blocked"] == 2)
        stage.ground.stands = Ground.READY
        anchor = key_of(stage.ground.anchor(TARGET_NAMESPACE) or {})
        stage.target.delete_by_user(CONFIGMAPS, anchor)
        await stage.ground.prepare("default")
        await until(partial(stage.is_ready, pod))
        assert set(stage.woken) == {key_of(pod)}


@virtual_time
async def test_the_hubs_refusal_is_told_and_tried_again() -> None:
    """In its own words, without a token in them; the pod starts once it is granted."""
    stage = IssueStage()
    pod = stage.submit("web", token_volume(audience="vault"))
    denied = Forbidden("cannot create resource serviceaccounts/token", status=403)
    stage.hub.faults = refusing("create", "serviceaccounts", denied, sub="token")
    async with stage.running():
        await until(lambda: (h := stage.issuer.hold(pod, TARGET_NAMESPACE)) and h.blocked)
        held = stage.issuer.hold(pod, TARGET_NAMESPACE)
        assert held is not None and held.blocked is not None
        assert held.blocked.reason == PodReason.TOKEN_REFUSED
        assert 'default/default for audience "vault"' in held.blocked.message
        assert "cannot create resource" in held.blocked.message
        await until(lambda: stage.issuer.counts()["blocked"] == 1)
        stage.hub.faults = None
        stage.woken.clear()
        await until(partial(stage.is_ready, pod), seconds=120)
        assert key_of(pod) in stage.woken


@virtual_time
async def test_a_missing_account_is_waited_for() -> None:
    """As a kubelet does: its words name the account."""
    stage = IssueStage()
    pod = stage.submit(serviceAccountName="robot")
    async with stage.running():
        await until(lambda: (h := stage.issuer.hold(pod, TARGET_NAMESPACE)) and h.blocked)
        held = stage.issuer.hold(pod, TARGET_NAMESPACE)
        assert held is not None and held.blocked is not None
        assert '"robot" not found' in held.blocked.message
        stage.hub.add(SERVICEACCOUNTS, {"metadata": {"name": "robot", "namespace": "default"}})
        await until(partial(stage.is_ready, pod), seconds=200)


@virtual_time
async def test_what_the_target_does_not_take_is_told() -> None:
    """A quota on Secrets, say: in its words."""
    stage = IssueStage()
    pod = stage.submit()
    full = Forbidden("exceeded quota: secrets", status=403)
    stage.target.faults = refusing("create", "secrets", full)
    async with stage.running():
        await until(lambda: (h := stage.issuer.hold(pod, TARGET_NAMESPACE)) and h.blocked)
        held = stage.issuer.hold(pod, TARGET_NAMESPACE)
        assert held is not None and held.blocked is not None
        assert held.blocked.reason == PodReason.COMPANION_REFUSED
        assert "exceeded quota" in held.blocked.message
        stage.target.faults = None
        await until(partial(stage.is_ready, pod), seconds=200)


@virtual_time
async def test_a_target_that_takes_no_entry_is_told() -> None:
    """A quota on ConfigMaps, say: then no Secret is made."""
    stage = IssueStage()
    pod = stage.submit()
    full = Forbidden("exceeded quota: few, requested: count/configmaps=1", status=403)
    stage.target.faults = refusing("create", "configmaps", full)
    async with stage.running():
        await until(lambda: (h := stage.issuer.hold(pod, TARGET_NAMESPACE)) and h.blocked)
        held = stage.issuer.hold(pod, TARGET_NAMESPACE)
        assert held is not None and held.blocked is not None
        assert held.blocked.reason == PodReason.COMPANION_REFUSED
        assert "exceeded quota" in held.blocked.message
        assert not [c for c in stage.target.writes() if c.resource == SECRETS]
        stage.target.faults = None
        await until(partial(stage.is_ready, pod), seconds=200)


@virtual_time
async def test_a_target_that_lets_nobody_look_is_told() -> None:
    """Nothing is made on trust; it goes on when the right is given."""
    stage = IssueStage()
    pod = stage.submit()
    denied = Forbidden("cannot get secrets", status=403)
    stage.target.faults = refusing("get", "secrets", denied)
    async with stage.running():
        await until(lambda: (h := stage.issuer.hold(pod, TARGET_NAMESPACE)) and h.blocked)
        held = stage.issuer.hold(pod, TARGET_NAMESPACE)
        assert held is not None and held.blocked is not None
        assert held.blocked.reason == PodReason.COMPANION_REFUSED
        assert "does not let federate read" in held.blocked.message
        stage.target.faults = None
        await until(partial(stage.is_ready, pod), seconds=400)


@virtual_time
async def test_a_name_that_is_taken_is_left_alone() -> None:
    """What a stranger put there is neither changed nor believed."""
    stage = IssueStage()
    pod = stage.submit()
    place = place_of(SCOPE, stage.token_key(pod))
    planted = {
        "metadata": {"namespace": place.namespace, "name": place.name},
        "data": {"x": "eA=="},
    }
    stage.target.add(SECRETS, planted)
    async with stage.running():
        await until(lambda: (h := stage.issuer.hold(pod, TARGET_NAMESPACE)) and h.blocked)
        held = stage.issuer.hold(pod, TARGET_NAMESPACE)
        assert held is not None and held.blocked is not None
        assert held.blocked.reason == PodReason.NAME_TAKEN
        there = stage.target.find(SECRETS, place)
        assert there is not None and there["data"] == {"x": "eA=="}
        stage.target.delete_by_user(SECRETS, place)
        await until(partial(stage.is_ready, pod), seconds=200)


# -- while it runs ---------------------------------------------------------------------------------


@virtual_time
async def test_a_token_is_renewed_in_place_before_it_grows_old() -> None:
    """Before 80 % of its life, again and again, in the same Secret."""
    stage = IssueStage()
    pod = stage.submit("web", token_volume(expirationSeconds=600))
    ask = TokenAsk("", 600)
    async with stage.running():
        await until(lambda: token_in(stage, pod, ask))
        uids, ages = set(), []
        for _ in range(5):
            token = token_in(stage, pod, ask)
            await until(partial(has_changed, stage, pod, ask, token), seconds=600)
            facts = facts_of(token)
            assert facts is not None
            ages.append(EPOCH.timestamp() + asyncio.get_running_loop().time() - facts.issued_at)
            secret = stage.issued(stage.token_key(pod))
            uids.add((secret or {})["metadata"]["uid"])
        assert len(uids) == 1
        assert all(300 < age <= 425 for age in ages), ages
        assert stage.issuer.counts()["overdue"] == 0 and not stage.told.events


@virtual_time
async def test_a_renewal_that_fails_is_tried_to_success() -> None:
    """A token past 80 % of its life is told once; the pod's file never gets empty."""
    stage = IssueStage()
    pod = stage.submit("web", token_volume(expirationSeconds=600))
    ask = TokenAsk("", 600)
    async with stage.running():
        await until(lambda: token_in(stage, pod, ask))
        first = token_in(stage, pod, ask)
        broken = ServerFault("etcd has no leader", status=500)
        stage.hub.faults = refusing("create", "serviceaccounts", broken, sub="token")
        await asyncio.sleep(560)
        assert token_in(stage, pod, ask) == first
        assert stage.issuer.counts()["overdue"] == 1
        [(about, reason, note)] = stage.told.events
        assert (about, reason) == (key_of(pod), PodReason.TOKEN_OVERDUE)
        assert "etcd has no leader" in note and first not in note
        stage.hub.faults = None
        await until(lambda: token_in(stage, pod, ask) != first, seconds=90)
        assert stage.issuer.counts()["overdue"] == 0
        await asyncio.sleep(600)
        assert len(stage.told.events) == 1


@virtual_time
async def test_a_target_that_is_away_makes_tokens_overdue_and_is_served_on_return() -> None:
    """Nothing is asked of the hub that could not be written."""
    stage = IssueStage()
    pod = stage.submit("web", token_volume(expirationSeconds=600))
    ask = TokenAsk("", 600)
    async with stage.running():
        await until(lambda: token_in(stage, pod, ask))
        first = token_in(stage, pod, ask)
        stage.target_reachable = False
        await asyncio.sleep(700)
        assert len(stage.asked_tokens()) == 1
        assert [reason for _, reason, _ in stage.told.events] == [PodReason.TOKEN_OVERDUE]
        stage.target_reachable = True
        stage.issuer.wake_all()
        await until(lambda: token_in(stage, pod, ask) != first, seconds=5)


@virtual_time
async def test_a_new_leader_takes_over_what_stands_there() -> None:
    """A token that is good is not asked for again; one that is old is renewed at once."""
    stage = IssueStage()
    pod = stage.submit("web", token_volume(expirationSeconds=600))
    ask = TokenAsk("", 600)
    async with stage.running():
        await until(partial(stage.is_ready, pod))
    first = token_in(stage, pod, ask)
    stage.start()
    async with stage.running():
        await until(partial(stage.is_ready, pod))
        await asyncio.sleep(100)
        assert token_in(stage, pod, ask) == first and len(stage.asked_tokens()) == 1
    await asyncio.sleep(450)
    stage.start()
    async with stage.running():
        await until(lambda: token_in(stage, pod, ask) != first, seconds=10)


def have_mirror(pod: JsonDict) -> None:
    place = ObjectKey(TARGET_NAMESPACE, key_of(pod).name)
    record = MirrorRecord(pod_uid=pod["metadata"]["uid"], mirror=place, mirror_uid="m")
    pod["metadata"]["annotations"] = {RECORD_ANNOTATION: record.format()}


@virtual_time
async def test_c31_a_pod_whose_mirror_knows_of_no_token_is_issued_none() -> None:
    """It ran when identity was set otherwise: a token would lie in the target for nobody."""
    stage = IssueStage()
    key = key_of(stage.submit("old"))
    stage.hub.edit(PODS, key, have_mirror)
    async with stage.running():
        await asyncio.sleep(100)
        assert not stage.asked_tokens() and stage.is_empty()
        debug = {"name": "d", "image": "busybox"}
        stage.hub.edit(PODS, key, lambda pod: pod["spec"].update(ephemeralContainers=[debug]))
        await asyncio.sleep(1)
        debugged = stage.hub_pods.get(key)
        assert debugged is not None
        await until(partial(stage.is_ready, debugged))  # told of Services, as any container is
        assert not stage.asked_tokens()


@virtual_time
async def test_a_new_pod_does_not_wait_until_all_running_ones_are_looked_at() -> None:
    """A new leader looks at each token, and the target answers slowly."""
    stage = IssueStage()
    stage.is_all_used = True
    for number in range(400):
        stage.hub.edit(PODS, key_of(stage.submit(f"old-{number}")), have_mirror)
    async with stage.running():
        stage.target.latency_seconds = 1.0
        await asyncio.sleep(0.1)
        new = stage.submit("new")
        began_at = asyncio.get_running_loop().time()
        await until(partial(stage.is_ready, new), seconds=300)
        took = asyncio.get_running_loop().time() - began_at
        print(f"ready after {took:.1f} virtual seconds")
        assert took < 30.0


@virtual_time
async def test_what_somebody_changed_in_the_target_is_put_right() -> None:
    """Within minutes: a value, or all of it; at once where the entry goes, and news of Services."""
    stage = IssueStage()
    pod = stage.submit()
    key = stage.token_key(pod)
    place = place_of(SCOPE, key)

    def spoil(secret: JsonDict) -> None:
        secret["data"][API.value_key] = "Zm9yZWlnbg=="

    async with stage.running():
        await until(partial(stage.is_ready, pod))
        stage.target.edit(SECRETS, place, spoil)
        await until(lambda: facts_of(token_in(stage, pod)), seconds=LOOK_SECONDS + 5)
        stage.target.edit(SECRETS, place, lambda secret: secret["data"].clear())
        await until(lambda: facts_of(token_in(stage, pod)), seconds=LOOK_SECONDS + 5)
        stage.target.delete_by_user(SECRETS, place)
        await until(lambda: facts_of(token_in(stage, pod)), seconds=LOOK_SECONDS + 5)
        for gone in (place, place_of(SCOPE, stage.services_key())):
            stage.target.delete_by_user(CONFIGMAPS, gone)
            stage.target.collect_garbage()
            await until(lambda: len(stage.listed()) == 2, seconds=5)
            await until(lambda: facts_of(token_in(stage, pod)), seconds=5)


@virtual_time
async def test_a_pod_that_rests_costs_one_look_at_metadata() -> None:
    """No contents are read, nothing is written, while all is as it was left."""
    stage = IssueStage()
    pod = stage.submit("web", token_volume(expirationSeconds=86400))
    async with stage.running():
        await until(partial(stage.is_ready, pod))
        before = len(stage.target.calls), len(stage.target.writes())
        await asyncio.sleep(10 * LOOK_SECONDS)
        looks = [c for c in stage.target.calls[before[0] :] if c.verb == "get"]
        assert len(stage.target.writes()) == before[1]
        assert 2 * 9 <= len(looks) <= 2 * 14
        assert len(stage.asked_tokens()) == 1


# -- Services --------------------------------------------------------------------------------------


@virtual_time
async def test_news_of_services_are_the_namespaces_and_follow_them() -> None:
    """One ConfigMap for all pods of a namespace, written anew when a Service comes or goes."""
    stage = IssueStage()
    stage.hub.add(SERVICES, service("db"))
    stage.hub.add(SERVICES, service("other", namespace="shop"))
    pods = [stage.submit(f"web-{n}") for n in range(3)]
    key = stage.services_key()

    def variables() -> dict[str, str]:
        return (stage.issued(key) or {}).get("data") or {}

    async with stage.running():
        for pod in pods:
            await until(partial(stage.is_ready, pod))
        assert variables()["DB_SERVICE_HOST"] == "10.0.0.5"
        assert variables()["KUBERNETES_SERVICE_HOST"] == "hub.example.org"
        assert "OTHER_SERVICE_HOST" not in variables()
        stage.hub.add(SERVICES, service("cache", "10.0.0.6"))
        await until(lambda: "CACHE_SERVICE_HOST" in variables(), seconds=5)
        stage.hub.delete_by_user(SERVICES, ObjectKey("default", "db"))
        await until(lambda: "DB_SERVICE_HOST" not in variables(), seconds=5)
        creates = [c for c in stage.target.writes() if c.verb == "create"]
        assert [c.key for c in creates].count(place_of(SCOPE, key)) == 1


@virtual_time
async def test_news_that_many_share_are_looked_at_once() -> None:
    """Not for each pod that comes or goes."""
    stage = IssueStage()
    first = stage.submit()
    async with stage.running():
        await until(partial(stage.is_ready, first))
        before = len(stage.target.calls)
        for number in range(20):
            pod = stage.submit(f"web-{number}")
            await until(partial(stage.is_ready, pod), seconds=2)
            stage.hub.delete_by_user(PODS, key_of(pod), grace_seconds=0)
            await asyncio.sleep(0.1)
        place = place_of(SCOPE, stage.services_key())
        looks = [c for c in stage.target.calls[before:] if c.key == place]
        assert len(looks) <= 1


@virtual_time
async def test_without_links_only_the_api_server_is_told() -> None:
    """Nor does such a pod wait for the list of Services."""
    stage = IssueStage()
    denied = Forbidden("cannot list services", status=403)
    stage.hub.faults = refusing("list", "services", denied)
    pod = stage.submit(enableServiceLinks=False)
    linked = stage.submit("linked")
    async with stage.running():
        await until(partial(stage.is_ready, pod))
        issued = stage.issued(stage.services_key(has_links=False))
        assert all(name.startswith("KUBERNETES_") for name in (issued or {})["data"])
        held = stage.issuer.hold(linked, TARGET_NAMESPACE)
        assert held is not None and held.coming == (stage.services_key(),)
        asked = stage.asked_whether_to_act
        await asyncio.sleep(60)
        assert stage.asked_whether_to_act - asked < 30, "it is asked for five times a second"
        stage.hub.faults = None
        await until(partial(stage.is_ready, linked), seconds=60)


# -- afterwards ------------------------------------------------------------------------------------


@virtual_time
async def test_tokens_go_with_their_pod_and_news_a_minute_later() -> None:
    """Object and entry; the next pod of the namespace keeps the news."""
    stage = IssueStage()
    pod = stage.submit()
    async with stage.running():
        await until(partial(stage.is_ready, pod))
        stage.hub.delete_by_user(PODS, key_of(pod), grace_seconds=0)
        await until(lambda: len(stage.listed()) == 1, seconds=5)
        assert stage.issued(stage.token_key(pod)) is None
        assert stage.issued(stage.services_key()) is not None
        second = stage.submit("second")
        await until(partial(stage.is_ready, second))
        await asyncio.sleep(2 * LINGER_SECONDS)
        assert stage.issued(stage.services_key()) is not None
        stage.hub.delete_by_user(PODS, key_of(second), grace_seconds=0)
        await until(stage.is_empty, seconds=LINGER_SECONDS + 10)
        assert stage.issued(stage.services_key()) is None
        assert sum(stage.issuer.counts().values()) == 0


@virtual_time
async def test_a_pod_that_is_over_needs_its_token_no_more() -> None:
    """Nothing of it is ever started again (C42)."""
    stage = IssueStage()
    pod = stage.submit()
    async with stage.running():
        await until(partial(stage.is_ready, pod))
        stage.hub.set_pod_status(key_of(pod), phase="Failed")
        await until(lambda: stage.issued(stage.token_key(pod)) is None, seconds=5)


@virtual_time
async def test_a_pod_made_anew_under_its_name_has_a_new_token() -> None:
    """The old one's goes, though the name is in use."""
    stage = IssueStage()
    old = stage.submit()
    async with stage.running():
        await until(partial(stage.is_ready, old))
        stage.hub.delete_by_user(PODS, key_of(old), grace_seconds=0)
        new = stage.submit(uid="another")
        await until(partial(stage.is_ready, new))
        await until(lambda: stage.issued(stage.token_key(old)) is None, seconds=5)
        facts = facts_of(token_in(stage, new))
        assert facts is not None and facts.pod_uid == "another"
        assert len(stage.listed()) == 2


@virtual_time
async def test_what_a_crash_left_behind_goes() -> None:
    """The pod went while nobody looked: the list tells."""
    stage = IssueStage()
    pod = stage.submit()
    async with stage.running():
        await until(partial(stage.is_ready, pod))
    stage.hub.delete_by_user(PODS, key_of(pod), grace_seconds=0)
    stage.start()
    async with stage.running():
        await until(stage.is_empty, seconds=PASS_SECONDS + LINGER_SECONDS + 10)
    assert stage.issued(stage.token_key(pod)) is None


@virtual_time
async def test_nothing_goes_while_the_hub_does_not_say_so() -> None:
    """A hub that does not answer, or is another one, says nothing of absence."""
    stage = IssueStage()
    pod = stage.submit()
    async with stage.running():
        await until(partial(stage.is_ready, pod))
        stage.hub.faults = refusing("get", "pods", Unreachable("no answer"))
        stage.hub.delete_by_user(PODS, key_of(pod), grace_seconds=0)
        await asyncio.sleep(30)
        assert stage.issued(stage.token_key(pod)) is not None
        stage.hub.faults = None
        await until(lambda: stage.issued(stage.token_key(pod)) is None, seconds=90)


@pytest.mark.parametrize("has_another", [True, False])
@virtual_time
async def test_nothing_goes_on_the_word_of_another_cluster(has_another: bool) -> None:
    """It may have a pod of that name, or none: neither says anything of ours."""
    stage = IssueStage()
    pod = stage.submit()
    async with stage.running():
        await until(partial(stage.is_ready, pod))
        stage.is_other_hub = True
        stage.hub.delete_by_user(PODS, key_of(pod), grace_seconds=0)
        if has_another:
            stage.submit(uid="another")
        await asyncio.sleep(30)
        assert stage.issued(stage.token_key(pod)) is not None
        stage.is_other_hub = False
        await until(lambda: stage.issued(stage.token_key(pod)) is None, seconds=90)


@virtual_time
async def test_mirrors_of_an_earlier_setting_keep_what_they_stand_on() -> None:
    """Identity was turned off: the news stay while a mirror names them, tokens with their pod."""
    stage = IssueStage()
    pod = stage.submit()
    async with stage.running():
        await until(partial(stage.is_ready, pod))
    source = {"configMapRef": {"name": place_of(SCOPE, stage.services_key()).name}}
    mirror = {
        "metadata": {"name": "web", "namespace": TARGET_NAMESPACE, "labels": SCOPE.labels()},
        "spec": {"containers": [{"name": "main", "envFrom": [source]}]},
    }
    stage.target.add(PODS, mirror)
    stage.rules = IdentityRules(scope=SCOPE)
    stage.start()
    async with stage.running():
        before = len(stage.hub.calls)
        await asyncio.sleep(5 * PASS_SECONDS)
        assert len(stage.listed()) == 2
        assert not [call for call in stage.hub.calls[before:] if call.verb == "get"]
        stage.hub.delete_by_user(PODS, key_of(pod), grace_seconds=0)
        stage.target.delete_by_user(PODS, ObjectKey(TARGET_NAMESPACE, "web"), grace_seconds=0)
        await until(stage.is_empty, seconds=3 * PASS_SECONDS)


@virtual_time
async def test_where_the_node_is_left_nothing_lingers() -> None:
    """The namespace is to be empty soon."""
    stage = IssueStage()
    pod = stage.submit()
    async with stage.running():
        await until(partial(stage.is_ready, pod))
        stage.leaving = True
        stage.hub.delete_by_user(PODS, key_of(pod), grace_seconds=0)
        await until(stage.is_empty, seconds=10)


@virtual_time
async def test_who_may_not_act_does_nothing() -> None:
    """What is asked before each reconcile stands instead of it."""
    stage = IssueStage()
    stage.instead = Again(1.0)
    stage.submit()
    async with stage.running():
        await asyncio.sleep(10)
        assert not stage.asked_tokens() and not stage.target.writes()
        stage.instead = None
        await until(lambda: len(stage.listed()) == 2)


@virtual_time
async def test_a_server_that_asks_for_patience_gets_it() -> None:
    """A thousand pods at once are throttled, and all start in the end."""
    stage = IssueStage()
    count = {"refused": 0}

    def judge(call: Call) -> Fault | None:
        if call.subresource == "token" and count["refused"] < 20:
            count["refused"] += 1
            return Refuse(Throttled("slow down", status=429))
        return None

    stage.hub.faults = judge
    pods = [stage.submit(f"web-{n}") for n in range(60)]
    async with stage.running():
        for pod in pods:
            await until(partial(stage.is_ready, pod), seconds=60)
        assert len(stage.listed()) == 61
        lists = [c for c in stage.target.writes() if c.verb == "patch"]
        assert len(lists) < 40, "entries go together"


@virtual_time
async def test_tokens_are_in_no_log() -> None:
    """Whatever fails on the way (C73)."""
    stage = IssueStage()
    pod = stage.submit()
    with structlog.testing.capture_logs() as logs:
        async with stage.running():
            await until(lambda: token_in(stage, pod))
            stage.target.faults = refusing("patch", "secrets", ServerFault("boom", status=500))
            first = token_in(stage, pod)
            await asyncio.sleep(3500)
            stage.target.faults = None
            await until(lambda: token_in(stage, pod) != first, seconds=90)
    said = repr(logs) + repr(stage.told.events) + repr(stage.issuer.__dict__)
    assert logs and stage.told.events
    assert first not in said and token_in(stage, pod) not in said
    assert first.split(".")[1] not in said
