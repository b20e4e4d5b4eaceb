"""The printed rights suffice: whatever mirroring asks of two clusters in memory is granted (C1)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from federate.check.rights import Circumstances, Feature, Right, Side, rights, usual_features
from federate.companions.environment import Advertised
from federate.companions.keys import Kind
from federate.companions.rules import CompanionRules, IdentityMode
from federate.model.resources import ENDPOINT_SLICES, SECRETS, SERVICES
from federate.node.capacity import CapacityMode
from tests.support.clock import run_virtual
from tests.support.companionworlds import CompanionWorld, needing
from tests.support.fakeclient import Call
from tests.support.histories import Act, live, run
from tests.support.quiet import quiet
from tests.support.rights import ROLE
from tests.support.worlds import World

HUB = rights(
    Circumstances(side=Side.HUB, node_names=("edge",), features=usual_features(is_confined=False))
)
TARGET = rights(Circumstances(side=Side.TARGET, features=usual_features(is_confined=False)))
WITH_IDENTITY = usual_features(is_confined=False) | {Feature.POD_IDENTITY}
LEADING = rights(Circumstances(side=Side.TARGET, features=WITH_IDENTITY))
VERBS = {"replace": "update"}

STORIES = {
    "an everyday life": [
        (Act("hub_create", "a", "Always"), 1.0),
        (Act("hub_create", "b", "Never"), 1.0),
        (Act("play", "a", "Running"), 1.0),
        (Act("hub_update", "a", "image"), 1.0),
        (Act("hub_update", "a", "debug"), 1.0),
        (Act("hub_relabel", "a", number=2), 1.0),
        (Act("play", "b", "Succeeded"), 1.0),
        (Act("hub_delete", "a", number=30), 2.0),
        (Act("target_finish"), 2.0),
    ],
    "what goes wrong": [
        (Act("hub_create", "a", "Always"), 2.0),
        (Act("play", "a", "Running"), 1.0),
        (Act("target_vanish", "a"), 2.0),
        (Act("hub_create", "b", "Always"), 2.0),
        (Act("play", "b", "Running"), 1.0),
        (Act("hub_delete", "b", number=0), 1.0),
        (Act("kill"), 2.0),
        (Act("target_uninstall"), 2.0),
        (Act("namespace_goes", "a"), 90.0),
        (Act("controllers"), 90.0),
    ],
}


@pytest.fixture(autouse=True, scope="module")
def quiet_logs() -> Iterator[None]:
    with quiet():
        yield


def is_granted(call: Call, granted: tuple[Right, ...]) -> bool:
    verb = VERBS.get(call.verb, call.verb)
    resource = "/".join(part for part in (call.resource.plural, call.subresource) if part)
    if resource.startswith("/"):
        return True  # a document, which every user may read
    return any(
        verb in right.verbs
        and right.resource in (resource, "*")
        and right.namespace in ("", call.key.namespace)
        and (not right.names or verb in ("list", "watch") or call.key.name in right.names)
        for right in granted
    )


def refused(
    world: World, *, by_hub: tuple[Right, ...] = HUB, by_target: tuple[Right, ...] = TARGET
) -> list[str]:
    sides = ((world.hub, by_hub), (world.target, by_target))
    return [
        f"{cluster.name}: {call}"
        for cluster, granted in sides
        for call in cluster.calls
        if not is_granted(call, granted)
    ]


@pytest.mark.parametrize("story", STORIES)
def test_whatever_happens_to_pods_nothing_is_asked_for_that_is_not_granted(story: str) -> None:
    found: list[str] = []
    asked: list[int] = []

    def judge(world: World) -> bool:
        found.extend(refused(world))
        asked.append(len(world.hub.calls) + len(world.target.calls))
        return True

    run(live(STORIES[story], is_brisk=True, ends=judge))
    assert asked[0] > 20
    assert not found


TOKEN_VOLUME = {
    "name": "token",
    "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]},
}


async def with_all_that_comes_along(world: CompanionWorld, *, has_tokens: bool) -> None:
    """Objects appear, change, go and are wanted no more; the target's admin meddles."""
    objects = [(kind, name) for kind in Kind for name in ("here", "later")]
    for kind in Kind:
        world.give(kind, "here", a="1")
    await world.start()
    builder = needing("web", *objects, optional=True)
    if has_tokens:
        builder = builder.with_spec(serviceAccountName="default", volumes=[TOKEN_VOLUME])
    web = world.submit(builder)
    await asyncio.sleep(10.0)
    assert world.values(Kind.CONFIGMAP, "here") == {"a": "1"}
    for kind in Kind:
        world.give(kind, "here", a="2")
        world.give(kind, "later", b="1")
    await asyncio.sleep(10.0)
    for kind in Kind:
        assert world.companion(kind, "later") is not None
        world.admin_edits(kind, "here", lambda obj: obj.update(data={}))
        world.admin_deletes(kind, "later")
    await asyncio.sleep(400.0)
    for kind in Kind:
        assert world.companion(kind, "later") is not None
        world.take(kind, "here")
    await asyncio.sleep(120.0)
    assert world.companion(Kind.SECRET, "here") is None
    world.delete(web)
    await asyncio.sleep(200.0)
    assert world.listed() == set()


@pytest.mark.parametrize("identity", IdentityMode)
def test_whatever_comes_along_nothing_is_asked_for_that_is_not_granted(
    identity: IdentityMode,
) -> None:
    """Tokens and news of Services only with the right that is not usual."""

    async def lived() -> list[str]:
        rules = CompanionRules(
            identity=identity,
            advertised=Advertised(host="192.0.2.1", port=6443),
            target_account="guest",
        )
        world = CompanionWorld(companions=rules)
        try:
            await with_all_that_comes_along(world, has_tokens=identity is not IdentityMode.NONE)
        finally:
            await world.stop()
        asked = [call for call in world.hub.calls if call.subresource == "token"]
        assert bool(asked) == (identity is IdentityMode.HUB)
        for cluster in (world.hub, world.target):
            verbs = {call.verb for call in cluster.calls if call.resource == SECRETS}
            assert "list" not in verbs
        if identity is IdentityMode.HUB:
            made = [c for c in world.target.writes() if c.resource in (SERVICES, ENDPOINT_SLICES)]
            assert {call.verb for call in made} == {"create", "patch"}
            return refused(world, by_hub=issuing, by_target=LEADING)
        return refused(world)

    issuing = rights(Circumstances(side=Side.HUB, node_names=("edge",), features=WITH_IDENTITY))
    assert run_virtual(lived()) == []


def test_the_role_that_confined_tests_run_with_is_the_printed_one() -> None:
    around = Circumstances(
        side=Side.TARGET,
        confined_to=("team-a",),
        capacity=CapacityMode.STATIC,
        features=usual_features(is_confined=True),
    )
    found: dict[str, tuple[str, ...]] = {}
    for right in rights(around):
        name = f"{right.resource}.{right.group}" if right.group else right.resource
        found[name] = (*found.get(name, ()), *right.verbs)
    assert found == ROLE
