"""What came along, found and removed on real API servers, with the rights that are printed (C1).

The servers say what their RBAC grants: Secrets are read by name, and listed nowhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from e2e.support.accounts import account_of
from e2e.testbed.local import LocalCluster
from federate.cluster.client import ClusterClient
from federate.cluster.connect import connect
from federate.companions.demand import listing_entry
from federate.companions.entries import render_entry
from federate.companions.keys import CompanionKey, Kind, name_of
from federate.companions.render import render_companion
from federate.errors import Forbidden, NotFound
from federate.garbage.companions import (
    NOT_OURS,
    BroughtSurvey,
    remove_brought,
    survey_brought,
)
from federate.leave.survey import TargetSurvey
from federate.model.marks import Scope
from federate.model.naming import anchor_name
from federate.model.objects import JsonDict, ObjectKey
from federate.model.resources import CONFIGMAPS, PODS, SECRETS
from federate.patch.document import MERGE, PatchBody
from tests.integration.test_reconciler_real import world_of
from tests.support.realworld import RealWorld
from tests.support.scene import agreed

pytestmark = pytest.mark.integration

NOT_GIVE_BACK = ("--without", "give-back")
"""The one feature that lists Secrets, as every other kind: whether a namespace is empty."""


@asynccontextmanager
async def limited(
    cluster: LocalCluster, folder: Path, *arguments: str, namespace: str = "kube-system"
) -> AsyncIterator[ClusterClient]:
    """A client that may do what is printed for these arguments, and nothing else."""
    with account_of(cluster, *arguments, folder=folder, namespace=namespace) as file:
        client = await connect(file, name=cluster.name)
        try:
            yield client
        finally:
            await client.aclose()


async def granted(ask: Callable[[], Awaitable[object]]) -> bool:
    """Tell whether it may be asked for, whatever the answer is."""
    try:
        await ask()
    except Forbidden:
        return False
    except NotFound:
        return True
    return True


async def until_answered(ask: Callable[[], Awaitable[bool]]) -> None:
    """Wait until the answer is yes: API servers learn of new roles by and by."""
    async with asyncio.timeout(60.0):
        while not await ask():  # noqa: ASYNC110
            await asyncio.sleep(0.1)


async def bring(world: RealWorld, *names: str, scope: Scope) -> None:
    """A ConfigMap and a Secret of each name stand in the target, Secrets with their entries."""
    keys = [
        CompanionKey(world.target_namespace, kind, world.namespace, name)
        for name in names
        for kind in Kind
    ]
    metadata = {"name": anchor_name(scope), "labels": scope.labels()}
    anchor = await world.target.create(
        CONFIGMAPS, {"metadata": metadata}, namespace=world.target_namespace
    )
    for key in keys:
        owner = await enlisted(world, key, scope, anchor) if key.kind is Kind.SECRET else anchor
        body = render_companion(key, {}, scope=scope, owner=owner)
        await world.target.create(key.kind.resource, body, namespace=world.target_namespace)


async def enlisted(world: RealWorld, key: CompanionKey, scope: Scope, anchor: JsonDict) -> JsonDict:
    place = name_of(scope, key)
    entry = render_entry(place, listing_entry(key), scope=scope, anchor=anchor)
    return await world.target.create(CONFIGMAPS, entry, namespace=place.namespace)


async def names_left(world: RealWorld, scope: Scope) -> list[str]:
    survey = TargetSurvey(world.target, scope, ())
    found = await survey.brought(await survey.anchors())
    there = []
    for one in found:
        try:
            await world.target.get(one.kind.resource, one.place)
        except NotFound:
            continue
        there.append(f"{one.kind} {one.key.name}")
    return there


async def test_the_printed_rights_read_secrets_by_name_and_list_none(
    light_hub: LocalCluster, light_target: LocalCluster, tmp_path: Path
) -> None:
    """On both sides, watched by name or not; tokens only where that is asked for."""
    login = ObjectKey("default", "login")
    ways: list[dict[str, Any]] = [
        {},
        {"namespace": "default"},
        {"namespace": "default", "field_selector": "metadata.name=login"},
    ]
    async with (
        limited(light_hub, tmp_path, "--side", "hub", "--node", "edge") as hub,
        limited(light_target, tmp_path, "--side", "target", *NOT_GIVE_BACK) as target,
    ):
        await until_answered(lambda: granted(lambda: hub.get(SECRETS, login)))
        await until_answered(lambda: granted(lambda: target.get(SECRETS, login)))
        for client in (hub, target):
            for where in ways:
                assert not await granted(partial(client.list, SECRETS, **where))
        body = {"metadata": {"name": "login"}}
        assert not await granted(lambda: hub.create(SECRETS, body, namespace="default"))
        assert not await granted(lambda: hub.delete(SECRETS, login, uid="x"))
        assert not await granted(lambda: token_of(hub))
    bare = ("--without", "companions")
    async with (
        limited(light_hub, tmp_path, "--side", "hub", "--with", "pod-identity", *bare) as hub,
        limited(light_target, tmp_path, "--side", "target", *NOT_GIVE_BACK, *bare) as target,
    ):
        await until_answered(lambda: granted(lambda: token_of(hub)))
        await until_answered(lambda: granted(lambda: target.list(PODS)))
        assert not await granted(lambda: hub.get(SECRETS, login))
        assert not await granted(lambda: target.get(SECRETS, login))


async def token_of(hub: ClusterClient) -> JsonDict:
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    return await hub.request_token(ObjectKey("default", "nobody"), body)


async def test_c51_what_nobody_wants_is_removed_with_the_printed_rights(
    light_hub: LocalCluster, light_target: LocalCluster, tmp_path: Path
) -> None:
    """In a target confined to one namespace; what a hub pod names, or is not ours, stays."""
    async with world_of(light_hub, light_target) as world:
        namespace = world.target_namespace
        other = Scope(hub_id=world.scope.hub_id, node_name="west")
        await bring(world, "wanted", "unwanted", "taken", scope=world.scope)
        await bring(world, "unwanted", scope=other)
        taken = CompanionKey(namespace, Kind.SECRET, world.namespace, "taken")
        stripped = CompanionKey(namespace, Kind.SECRET, world.namespace, "unwanted")
        bare: JsonDict = {"labels": {"federate.dev/companion": None}}
        await edit(world, stripped, bare)
        await edit(world, taken, {**bare, "ownerReferences": None})
        await world.hub.create(PODS, pod_naming("wanted", world), namespace=world.namespace)
        arguments = ("--side", "target", "--namespace", namespace)
        async with limited(light_target, tmp_path, *arguments, namespace=namespace) as target:

            async def look() -> BroughtSurvey:
                return await survey_brought(
                    world.hub,
                    target,
                    world.scope,
                    confirm_hub=agreed,
                    namespaces=(namespace,),
                )

            async def sees_all() -> bool:
                return bool((await look()).found)

            await until_answered(sees_all)
            found = await look()
            assert found.unknown == {"west": 2}, "an entry counts for its Secret"
            outcomes, again = [
                {
                    f"{one.kind} {one.key.name}": await remove_brought(
                        target, world.scope, one, fence=lambda: None
                    )
                    for one in found.unwanted
                }
                for _ in range(2)
            ]
        assert again == {name: said if said == NOT_OURS else "" for name, said in outcomes.items()}
        assert outcomes == {
            "ConfigMap unwanted": "asked to go",
            "Secret unwanted": "asked to go",
            "ConfigMap taken": "asked to go",
            "Secret taken": NOT_OURS,
        }
        assert await names_left(world, world.scope) == [
            "ConfigMap wanted",
            "Secret taken",
            "Secret wanted",
        ]
        assert await names_left(world, other) == ["ConfigMap unwanted", "Secret unwanted"]


async def edit(world: RealWorld, key: CompanionKey, metadata: JsonDict) -> None:
    """Somebody in the target changes marks; one whose owner is left is known by that."""
    patch = PatchBody(media_type=MERGE, body={"metadata": metadata})
    await world.target.patch(key.kind.resource, name_of(world.scope, key), patch)


def pod_naming(name: str, world: RealWorld) -> JsonDict:
    sources: list[JsonDict] = [{"secretRef": {"name": name}}, {"configMapRef": {"name": name}}]
    container = {"name": "app", "image": "app", "envFrom": sources}
    spec = {"containers": [container], "nodeName": world.scope.node_name}
    return {"metadata": {"name": "web"}, "spec": spec}
