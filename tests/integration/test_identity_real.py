"""Identity `hub` with real API servers: they judge the tokens that a pod finds (C31)."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import structlog

from e2e.testbed.local import LocalCluster
from federate.cluster.port import ClusterPort
from federate.companions.environment import Advertised
from federate.companions.identity import TokenAsk
from federate.companions.issued import IssuedKey, place_of, services_key, token_key
from federate.companions.lifetimes import facts_of
from federate.companions.record import told_by
from federate.companions.rules import CompanionRules, IdentityMode
from federate.errors import NotFound
from federate.model.objects import JsonDict, ObjectKey, condition_of, key_of, uid_of
from federate.model.reasons import PodReason
from federate.model.resources import (
    CONFIGMAPS,
    PODS,
    SECRETS,
    SERVICEACCOUNTS,
    SERVICES,
    TOKEN_REVIEWS,
)
from federate.services.door import door_name
from tests.integration.test_reconciler_real import world_of
from tests.support.issuestage import decoded, token_volume
from tests.support.realworld import RealWorld

pytestmark = pytest.mark.integration

SECONDS = 60.0
RULES = CompanionRules(
    identity=IdentityMode.HUB, advertised=Advertised(host="192.0.2.1", port=6443)
)
OFTEN = replace(RULES, renew_share=0.005)
"""Of the shortest life, ten minutes: every three seconds."""
SHORT = TokenAsk("vault", 600)
TOKEN_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"


@asynccontextmanager
async def identity_world(
    hub: LocalCluster, target: LocalCluster, rules: CompanionRules = RULES
) -> AsyncIterator[RealWorld]:
    """A leader with identity, in a namespace that has the hub's CA."""
    async with world_of(hub, target) as world:
        ca = {"metadata": {"name": "kube-root-ca.crt"}, "data": {"ca.crt": "CA of the hub"}}
        await world.hub.create(CONFIGMAPS, ca, namespace=world.namespace)
        async with world.leading(rules):
            yield world


def place(world: RealWorld, key: IssuedKey) -> ObjectKey:
    return place_of(world.scope, key)


def tokens_of(world: RealWorld, pod: JsonDict) -> ObjectKey:
    return place(world, token_key(pod, world.target_namespace))


async def token_in(world: RealWorld, pod: JsonDict, ask: TokenAsk) -> str:
    secret = await world.target.get(SECRETS, tokens_of(world, pod))
    return decoded(secret)[ask.value_key]


async def review(hub: ClusterPort, token: str, *audiences: str) -> JsonDict:
    """Ask the hub's API server whose token it is."""
    body = {"spec": {"token": token, "audiences": list(audiences)}}
    reply = await hub.create(TOKEN_REVIEWS, body)
    status: JsonDict = reply["status"]
    return status


async def listed(world: RealWorld) -> set[str]:
    """What is on record in the target of what was issued."""
    marked = await world.target.list(
        CONFIGMAPS,
        namespace=world.target_namespace,
        label_selector=f"{world.scope.selector},federate.dev/companion",
        metadata_only=True,
    )
    told = {key_of(each).name: told_by(world.scope, each) for each in marked.items}
    return {name for name, key in told.items() if isinstance(key, IssuedKey)}


async def gone(client: ClusterPort, world: RealWorld, pod: JsonDict) -> None:
    async with asyncio.timeout(SECONDS):
        while True:
            try:
                await client.get(SECRETS, tokens_of(world, pod))
            except NotFound:
                return
            await asyncio.sleep(0.05)


async def test_the_hub_takes_the_tokens_for_what_was_asked(
    light_hub: LocalCluster, light_target: LocalCluster
) -> None:
    """Its own account, its own pod, the audience and life of each volume; dead with the pod."""
    async with identity_world(light_hub, light_target) as world:
        await world.hub.create(
            SERVICEACCOUNTS, {"metadata": {"name": "robot"}}, namespace=world.namespace
        )
        db = {"metadata": {"name": "db"}, "spec": {"ports": [{"port": 5432}]}}
        address = (await world.hub.create(SERVICES, db, namespace=world.namespace))["spec"]
        pod = await world.submit(
            "web",
            serviceAccountName="robot",
            volumes=[token_volume(audience="vault", expirationSeconds=600)],
        )
        async with asyncio.timeout(SECONDS):
            mirror = await world.mirrored("web")

        api = await token_in(world, pod, TokenAsk("", 3600))
        said = await review(world.hub, api)
        assert said["authenticated"] is True
        user = said["user"]
        assert user["username"] == f"system:serviceaccount:{world.namespace}:robot"
        assert user["extra"]["authentication.kubernetes.io/pod-uid"] == [uid_of(pod)]
        vault = await token_in(world, pod, SHORT)
        assert (await review(world.hub, vault, "vault"))["authenticated"] is True
        assert not (await review(world.hub, vault)).get("authenticated")
        lives = [facts.life_seconds for t in (api, vault) if (facts := facts_of(t))]
        assert lives == [3600.0, 600.0], "an hour where admission asks for a year"

        spec = mirror["spec"]
        volumes = {volume["name"]: volume["projected"]["sources"] for volume in spec["volumes"]}
        [admitted] = [volume for name, volume in volumes.items() if name != "vault"]
        token, ca, namespace = admitted
        assert token["secret"]["items"][0]["path"] == "token"
        companion = await world.target.get(
            CONFIGMAPS, ObjectKey(world.target_namespace, ca["configMap"]["name"])
        )
        assert companion["data"] == {"ca.crt": "CA of the hub"}
        [item] = namespace["downwardAPI"]["items"]
        annotation = item["fieldRef"]["fieldPath"].split("'")[1]
        assert mirror["metadata"]["annotations"][annotation] == world.namespace
        [container] = spec["containers"]
        assert [mount["mountPath"] for mount in container["volumeMounts"]] == [TOKEN_PATH]
        assert spec["automountServiceAccountToken"] is False
        door = await world.target.get(
            SERVICES, ObjectKey(world.target_namespace, door_name(world.scope))
        )
        [alias] = spec["hostAliases"]
        assert alias["ip"] == door["spec"]["clusterIP"]
        assert "kubernetes.default.svc" in alias["hostnames"]
        told = await world.target.get(
            CONFIGMAPS,
            ObjectKey(world.target_namespace, container["envFrom"][0]["configMapRef"]["name"]),
        )
        assert told["data"]["DB_SERVICE_HOST"] == address["clusterIP"]
        assert told["data"]["KUBERNETES_SERVICE_HOST"] == "192.0.2.1"

        await world.hub.delete(PODS, world.key("web"), uid=uid_of(pod), grace_seconds=0)
        await gone(world.target, world, pod)
        async with asyncio.timeout(SECONDS):
            while (await review(world.hub, api)).get("authenticated"):  # noqa: ASYNC110
                await asyncio.sleep(0.2)  # it is believed from a cache for some seconds


async def test_tokens_are_renewed_in_place_and_in_no_log(
    light_hub: LocalCluster, light_target: LocalCluster
) -> None:
    """Again and again, in the same Secret, while nobody else is written to."""
    with structlog.testing.capture_logs() as logs:
        async with identity_world(light_hub, light_target, OFTEN) as world:
            wish = token_volume(audience="vault", expirationSeconds=600)
            pod = await world.submit("web", automountServiceAccountToken=False, volumes=[wish])
            async with asyncio.timeout(SECONDS):
                mirror = await world.mirrored("web")
            seen: dict[str, str] = {}
            async with asyncio.timeout(2 * SECONDS):
                while len(seen) < 3:
                    secret = await world.target.get(SECRETS, tokens_of(world, pod))
                    seen[decoded(secret)[SHORT.value_key]] = uid_of(secret)
                    await asyncio.sleep(0.1)
            assert len(set(seen.values())) == 1
            for token in seen:
                assert (await review(world.hub, token, "vault"))["authenticated"] is True
            now = await world.mirror("web")
            assert now is not None and uid_of(now) == uid_of(mirror)
    said = json.dumps(logs, default=repr)
    for token in seen:
        assert token not in said
        assert token.split(".")[1] not in said
        assert base64.b64encode(token.encode()).decode() not in said


async def test_a_leader_that_takes_over_issues_nothing_twice(
    light_hub: LocalCluster, light_target: LocalCluster
) -> None:
    """And removes what went while nobody led."""
    async with world_of(light_hub, light_target) as world:
        wish = token_volume(audience="vault", expirationSeconds=600)
        spec = {"automountServiceAccountToken": False, "volumes": [wish]}
        async with world.leading(RULES):
            pods = [await world.submit(name, **spec) for name in ("stays", "goes")]
            async with asyncio.timeout(SECONDS):
                for pod in pods:
                    await world.mirrored(pod["metadata"]["name"])
        stays, goes = pods
        before = await token_in(world, stays, SHORT)
        await world.hub.delete(PODS, world.key("goes"), uid=uid_of(goes), grace_seconds=0)
        async with world.leading(RULES):
            await gone(world.target, world, goes)
            third = await world.submit("third", **spec)
            async with asyncio.timeout(SECONDS):
                await world.mirrored("third")
            assert await token_in(world, stays, SHORT) == before
            key = services_key(world.target_namespace, world.namespace, has_links=True)
            await world.target.get(CONFIGMAPS, place(world, key))
            entries = {tokens_of(world, pod).name for pod in (stays, third)}
            entries.add(place(world, key).name)
            async with asyncio.timeout(SECONDS):
                while await listed(world) != entries:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)


async def test_mirrors_run_as_the_one_account_that_the_target_gives(
    light_hub: LocalCluster, light_target: LocalCluster
) -> None:
    """The target mounts its token; a pod waits where there is no such account."""
    rules = CompanionRules(identity=IdentityMode.TARGET, target_account="runner")
    async with world_of(light_hub, light_target) as world, world.leading(rules):
        await world.submit("web", volumes=[token_volume(audience="vault")])
        await world.submit("quiet", automountServiceAccountToken=False)
        async with asyncio.timeout(SECONDS):
            while reason_of(await world.hub_pod("web")) != PodReason.SERVICE_ACCOUNT_MISSING:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        account = {"metadata": {"name": "runner"}}
        await world.target.create(SERVICEACCOUNTS, account, namespace=world.target_namespace)
        async with asyncio.timeout(2 * SECONDS):
            web, quiet = [await world.mirrored(name) for name in ("web", "quiet")]
        assert {m["spec"]["serviceAccountName"] for m in (web, quiet)} == {"runner"}
        own, mounted = web["spec"]["volumes"]
        assert own["projected"]["sources"][0]["serviceAccountToken"]["audience"] == "vault"
        assert mounted["name"].startswith("kube-api-access-")
        [container] = web["spec"]["containers"]
        assert [mount["mountPath"] for mount in container["volumeMounts"]] == [TOKEN_PATH]
        assert not quiet["spec"].get("volumes")
        assert not await listed(world)


def reason_of(pod: JsonDict | None) -> str:
    condition = condition_of(pod or {}, "federate.dev/Mirrored") or {}
    return str(condition.get("reason") or "")
