"""The process dies at each request in turn: all comes to rest, and no Secret is lost sight of."""

from __future__ import annotations

import asyncio

import pytest

from federate.companions.entries import is_entry, is_made_with
from federate.companions.keys import Kind, companion_of, name_of
from federate.errors import Conflict, ServerFault
from federate.model.marks import Scope
from federate.model.objects import JsonObject, ObjectKey, key_of
from federate.model.resources import CONFIGMAPS, SECRETS, Resource
from tests.support.clock import virtual_time
from tests.support.companions import encoded
from tests.support.companionworlds import CompanionWorld, needing
from tests.support.fakeclient import (
    Call,
    CrashAfter,
    CrashBefore,
    Fault,
    Freeze,
    LostReply,
    LostRequest,
    RefuseAfter,
)
from tests.support.fakestore import Change, Eyes
from tests.support.process import Zombie
from tests.support.scene import SCOPE
from tests.support.worlds import Late, Planned, Stop

A = ObjectKey("default", "a")
CM, SECRET = Kind.CONFIGMAP, Kind.SECRET
MOST_CALLS = 60
FAULTS: tuple[Planned, ...] = (
    CrashBefore(),
    CrashAfter(),
    LostRequest(),
    LostReply(),
    RefuseAfter(ServerFault("timed out", status=504)),
    Late(2.0),
    Late(700.0),
    Stop(Freeze(), Zombie()),
    Stop(Freeze(arrives_after=5.0), Zombie(blind_for=3.0)),
)


class Records:
    """Sees that each Secret of ours is on record when it is made, and as long as it is there."""

    def __init__(self, world: CompanionWorld) -> None:
        self.broken: list[str] = []
        self._world = world
        world.target.store.watches.append(Eyes(self.see))

    def see(self, change: Change) -> None:
        if change.resource != SECRETS or change.new is None:
            return
        if companion_of(SCOPE, change.new) and not self._is_listed(change.new):
            self.broken.append(f"{change.key} is not on record")

    def _is_listed(self, secret: JsonObject) -> bool:
        entry = self._world.target.find(CONFIGMAPS, key_of(secret))
        return entry is not None and is_entry(SCOPE, entry) and is_made_with(entry, secret)


async def collect(world: CompanionWorld) -> None:
    """Remove what has lost its owner, as the target's garbage collector does."""
    while True:
        await asyncio.sleep(1.0)
        with world.others():
            world.target.collect_garbage()


def ours(world: CompanionWorld, scope: Scope = SCOPE) -> list[str]:
    """All companions that stand in the target."""
    return sorted(
        str(key_of(obj))
        for resource, obj in world.target.store.all()
        if resource in (SECRETS, CONFIGMAPS) and companion_of(scope, obj) is not None
    )


async def live_through(world: CompanionWorld, fault: Planned, cluster: str, after: int) -> Records:
    """A pod with two references comes, both change, one is revoked; then the pod goes."""
    records = Records(world)
    world.give(CM, "settings", a="1")
    world.give(SECRET, "db", a="1")
    collector = asyncio.create_task(collect(world))
    async with world.running():
        world.plan_fault(cluster, fault, after=after)
        world.submit(needing("a", (CM, "settings"), (SECRET, "db")).with_restart_policy("Never"))
        await world.until(lambda: world.mirror(A) is not None, seconds=200.0)
        mirror = world.mirror(A)
        assert mirror is not None
        await asyncio.sleep(1.0)
        world.give(SECRET, "db", a="2")
        await world.until(lambda: world.values(SECRET, "db") == {"a": encoded("2")}, seconds=200.0)
        world.take(CM, "settings")
        await world.until(lambda: world.companion(CM, "settings") is None, seconds=200.0)
        world.delete(A)
        await world.until(lambda: world.mirror(A) is None, seconds=400.0)
        await world.until(lambda: not ours(world) and not world.listed(), seconds=600.0)
        await asyncio.sleep(100.0)
        assert not ours(world)
        assert not world.listed()
    collector.cancel()
    return records


@pytest.mark.parametrize(
    ("fault", "cluster", "calls"),
    [
        (CrashAfter(), "target", range(6, 40, 5)),
        (LostReply(), "target", range(7, 40, 5)),
        (CrashBefore(), "hub", range(8, 40, 8)),
        *(
            pytest.param(fault, cluster, range(MOST_CALLS), marks=pytest.mark.long)
            for fault in FAULTS
            for cluster in ("hub", "target")
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_c70_whatever_request_fails_all_comes_to_rest(
    fault: Planned, cluster: str, calls: range
) -> None:
    """One fault at each request of the way, in turn: before it, after it, or while it is late."""
    for after in calls:

        @virtual_time
        async def once(after: int = after) -> None:
            world = CompanionWorld(is_brisk=True)
            records = await live_through(world, fault, cluster, after)
            assert not records.broken
            assert not world.broken

        once()


@pytest.mark.parametrize("crashes", [False, True], ids=["same", "next"])
@pytest.mark.parametrize("resource", [SECRETS, CONFIGMAPS], ids=["secret", "entry"])
@virtual_time
async def test_c70_a_late_delete_hits_nothing_that_was_taken_up_again(
    resource: Resource, crashes: bool
) -> None:
    """It is on its way when a pod comes that wants the Secret, which is there or made anew."""
    world = CompanionWorld(is_brisk=True)
    records = Records(world)
    world.give(SECRET, "db", a="1")
    place = name_of(SCOPE, world.key_of(SECRET, "db"))
    late: list[Call] = []

    def lose(call: Call) -> Fault | None:
        if (call.verb, call.resource, call.key) != ("delete", resource, place):
            return None
        late.append(call)
        return LostRequest()

    world.fault_of = lose
    async with world.running():
        world.submit(needing("a", (SECRET, "db")).with_restart_policy("Never"))
        await world.until(lambda: world.mirror(A) is not None)
        world.delete(A)
        await world.until(lambda: bool(late), seconds=300.0)
        if crashes:
            world.kill()
        world.submit(needing("b", (SECRET, "db")))
        await world.until(lambda: world.mirror(ObjectKey("default", "b")) is not None, seconds=200)
        assert world.values(SECRET, "db") == {"a": encoded("1")}
        for call in late:
            with pytest.raises(Conflict):
                world.target.carry_out(call)
        await asyncio.sleep(5.0)
        assert world.target.collect_garbage() == 0
        assert world.listed() == {"Secret default/db"}
        assert not records.broken
