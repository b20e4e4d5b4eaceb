"""That nobody wants a companion is confirmed by complete listings, which many share."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from federate.companions.confirming import GOOD_FOR_SECONDS, Confirming
from federate.companions.keys import Kind
from federate.companions.ports import CompanionPorts
from federate.errors import Forbidden, LeadershipLost
from federate.model.objects import ObjectKey
from federate.model.resources import PODS
from tests.support.clock import virtual_time
from tests.support.companionworlds import CompanionWorld, needing
from tests.support.fakeclient import Refuse
from tests.support.scene import TARGET_NAMESPACE

A = ObjectKey("default", "a")


def confirming_of(world: CompanionWorld) -> Confirming:
    return world.comers.companions._confirming


def lists(world: CompanionWorld) -> int:
    return sum(c.verb == "list" and c.resource == PODS for c in world.hub.calls)


@virtual_time
async def test_one_listing_serves_all_that_ask() -> None:
    """A listing speaks for what nobody wanted when it began, and only for a while."""
    world = CompanionWorld(with_nets=False)
    async with world.running():
        confirming, before = confirming_of(world), lists(world)
        keys = [world.key_of(Kind.SECRET, f"s{n}") for n in range(50)]
        now = world.clock()
        answers = await asyncio.gather(*(confirming.is_unwanted(k, since=now) for k in keys))
        assert all(answers)
        assert lists(world) - before <= 2
        asked = lists(world)
        assert await confirming.is_unwanted(keys[0], since=now)
        assert lists(world) == asked
        assert await confirming.is_unwanted(keys[0], since=world.clock() + 0.1)
        assert lists(world) == asked + 1
        await asyncio.sleep(GOOD_FOR_SECONDS + 1.0)
        assert await confirming.is_unwanted(keys[0], since=now)
        assert lists(world) == asked + 2


@virtual_time
async def test_of_each_listed_pod_only_what_is_compared_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All pods of both sides are listed, and annotations may be long."""
    world = CompanionWorld(with_nets=False)
    seen: dict[str, Any] = {}
    async with world.running():
        world.submit(needing("a").with_annotations({"notes": "x" * 10_000}))
        await world.until(lambda: world.mirror(A) is not None)
        confirming = confirming_of(world)
        for name in ("is_hub_pod_known", "is_mirror_known"):
            known = getattr(confirming._wanted, name)
            monkeypatch.setattr(
                confirming._wanted, name, lambda p, n=name, k=known: k(seen.setdefault(n, p))
            )
        key = world.key_of(Kind.SECRET, "db")
        assert await confirming.is_unwanted(key, since=world.clock())
    assert len(seen) == 2
    for pod in seen.values():
        assert set(pod) == {"metadata"}
        assert set(pod["metadata"]) <= {"namespace", "name", "uid", "generation"}


@virtual_time
async def test_a_pod_that_was_not_told_of_keeps_what_it_may_want() -> None:
    """The listing knows of it, and the events do not: nothing of its namespace goes."""
    world = CompanionWorld(with_nets=False)
    async with world.running():
        confirming = confirming_of(world)
        for watching in list(world.hub.store.watches):
            watching.messages = asyncio.Queue()  # what is told from now on is lost
        world.submit(needing("a", (Kind.SECRET, "db")))
        await asyncio.sleep(0.1)
        key = world.key_of(Kind.SECRET, "db")
        assert not await confirming.is_unwanted(key, since=world.clock())
        other = key._replace(namespace="other")
        assert await confirming.is_unwanted(other, since=world.clock())


@virtual_time
async def test_what_is_wanted_is_not_unwanted() -> None:
    world = CompanionWorld(with_nets=False)
    world.give(Kind.SECRET, "db", a="1")
    async with world.running():
        world.submit(needing("a", (Kind.SECRET, "db")))
        await world.until(lambda: world.mirror(A) is not None)
        confirming = confirming_of(world)
        key = world.key_of(Kind.SECRET, "db")
        assert not await confirming.is_unwanted(key, since=world.clock())


@virtual_time
async def test_another_hub_says_nothing() -> None:
    """Where the hub is another cluster now, its absence of pods is no word (C5)."""
    world = CompanionWorld(with_nets=False)

    async def another() -> None:
        raise LeadershipLost("another cluster")

    async with world.running():
        confirming = confirming_of(world)
        confirming._ports = _with(confirming, confirm_hub=another)
        with pytest.raises(LeadershipLost):
            await confirming.is_unwanted(world.key_of(Kind.SECRET, "x"), since=world.clock())


def _with(confirming: Confirming, **fields: Any) -> CompanionPorts:
    return replace(confirming._ports, **fields)


@virtual_time
async def test_a_namespace_that_may_not_be_read_keeps_what_stands_there() -> None:
    world = CompanionWorld(with_nets=False)
    async with world.running():
        confirming = confirming_of(world)
        confirming._ports = _with(confirming, watched=lambda: (TARGET_NAMESPACE,))
        world.fault_of = lambda call: (
            Refuse(Forbidden("no", status=403))
            if (call.client, call.verb, call.resource) == ("target", "list", PODS)
            else None
        )
        key = world.key_of(Kind.SECRET, "x")
        assert not await confirming.is_unwanted(key, since=world.clock())
        elsewhere = key._replace(target_namespace="elsewhere")
        assert await confirming.is_unwanted(elsewhere, since=world.clock())
        confirming._ports = _with(confirming, watched=lambda: ("",))
        with pytest.raises(Forbidden):
            await confirming.is_unwanted(key, since=world.clock() + 1.0)
