"""`companions: false` where companions were brought before: what is left goes, and is told of."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from federate.companions.environment import Advertised
from federate.companions.issued import place_of, token_key
from federate.companions.keys import Kind
from federate.companions.rules import CompanionRules, IdentityMode
from federate.errors import Forbidden
from federate.model.objects import ObjectKey, condition_of
from federate.model.resources import SECRETS
from tests.support.clock import virtual_time
from tests.support.companionworlds import CompanionWorld, needing
from tests.support.fakeclient import Call, Fault, Refuse
from tests.support.issuestage import token_volume
from tests.support.process import WITHOUT_COMPANIONS
from tests.support.scene import SCOPE, TARGET_NAMESPACE

A, B = ObjectKey("default", "a"), ObjectKey("default", "b")
BOTH = ((Kind.CONFIGMAP, "settings"), (Kind.SECRET, "db"))
HUB = CompanionRules(identity=IdentityMode.HUB, advertised=Advertised(host="192.0.2.1", port=6443))


def there(world: CompanionWorld) -> list[Kind]:
    return [kind for kind, name in BOTH if world.companion(kind, name) is not None]


def turn_off(world: CompanionWorld) -> None:
    """The operator sets `companions: false`, and starts federate anew."""
    world.companions = WITHOUT_COMPANIONS
    world.hub.calls.clear()
    world.target.calls.clear()
    world.kill()


def left(world: CompanionWorld) -> str:
    return world.process.mirroring.companions_left()


@virtual_time
async def test_what_was_brought_goes_with_the_last_mirror_that_uses_it() -> None:
    """A pod that runs keeps what its containers may be started with again; no hub is asked."""
    world = CompanionWorld(is_brisk=True)
    for each in BOTH:
        world.give(*each, key="value")
    async with world.running():
        world.submit(needing("a", *BOTH))
        await world.until(lambda: world.mirror(A) is not None)
        assert left(world) == ""
        turn_off(world)
        world.submit(needing("b", *BOTH))  # waits, and so keeps nothing
        world.give(Kind.SECRET, "db", key="another")
        await asyncio.sleep(200.0)
        assert there(world) == [Kind.CONFIGMAP, Kind.SECRET]
        assert "2 used by pods that run" in left(world)
        assert not [call for call in world.hub.calls if call.resource == SECRETS]
        waiting = condition_of(world.hub_pod(B) or {}, "federate.dev/Mirrored") or {}
        assert waiting["reason"] == "CompanionMissing"
        world.delete(A)
        took = await world.until(lambda: not there(world) and not world.listed(), seconds=300.0)
        print(f"gone {took:.0f} s after the pod was deleted")
        assert left(world) == ""
        assert not world.broken


@virtual_time
async def test_what_the_last_life_left_goes_too() -> None:
    """Nobody wanted it when the process ended: it is found by marks and lists."""
    world = CompanionWorld(is_brisk=True)
    for each in BOTH:
        world.give(*each, key="value")
    async with world.running():
        world.submit(needing("a", *BOTH))
        await world.until(lambda: world.mirror(A) is not None)
        world.delete(A)
        await world.until(lambda: world.mirror(A) is None)
        assert there(world)
        turn_off(world)
        await world.until(lambda: not there(world) and not world.listed(), seconds=300.0)
        assert not world.broken


@virtual_time
async def test_without_the_rights_it_stays_and_is_told_of() -> None:
    """Who turned companions off may have taken the rights too; they given, it goes."""
    world = CompanionWorld(is_brisk=True)
    for each in BOTH:
        world.give(*each, key="value")
    is_forbidden = True

    def forbid(call: Call) -> Fault | None:
        is_ours = call.client == "target" and call.resource == SECRETS
        refusal = Forbidden("no", cluster="target", verb=call.verb, subject="secrets")
        return Refuse(refusal) if is_ours and is_forbidden else None

    async with world.running():
        world.submit(needing("a", *BOTH))
        await world.until(lambda: world.mirror(A) is not None)
        world.delete(A)
        await world.until(lambda: world.mirror(A) is None)
        world.fault_of = forbid
        turn_off(world)
        await world.until(lambda: there(world) == [Kind.SECRET], seconds=300.0)
        await asyncio.sleep(1800.0)
        assert "1 about to go" in left(world)
        asked = [call for call in world.target.calls if call.resource == SECRETS]
        print(f"{len(asked)} requests in half an hour")
        assert len(asked) < 120
        is_forbidden = False
        await world.until(lambda: not there(world) and not world.listed(), seconds=600.0)
        assert left(world) == ""


@virtual_time
async def test_c31_tokens_of_pods_that_run_stay_and_are_not_renewed() -> None:
    """Nor is any issued anew; they go with their pods."""
    world = CompanionWorld(companions=replace(HUB, renew_share=0.01), is_brisk=True)
    async with world.running():
        world.submit(needing("a").with_spec(volumes=[token_volume()]))
        await world.until(lambda: world.mirror(A) is not None)
        secret = place_of(SCOPE, token_key(world.hub_pod(A) or {}, TARGET_NAMESPACE))
        before = world.target.find(SECRETS, secret)
        assert before is not None
        turn_off(world)
        await asyncio.sleep(600.0)
        assert world.target.find(SECRETS, secret) == before
        world.delete(A)
        await world.until(lambda: world.target.find(SECRETS, secret) is None, seconds=300.0)
