"""Is it still the same cluster? Asked by many at once, answered by reads that began afterwards."""

from __future__ import annotations

import asyncio

import pytest

from federate.cluster.identity import (
    CONFIRM_SECONDS,
    IdentityGuard,
    SharedCheck,
    cluster_identity,
)
from federate.errors import (
    ClusterError,
    Forbidden,
    LeadershipLost,
    NotFound,
    ServerFault,
    Unreachable,
)
from federate.model.objects import ObjectKey, uid_of
from federate.model.resources import NAMESPACES
from tests.support.clock import ManualClock, virtual_loop, virtual_time
from tests.support.fakeclient import Delay, Refuse
from tests.support.fakecluster import FakeCluster

SYSTEM = ObjectKey("", "kube-system")


class Slow:
    """A check that takes a second, and notes when each began; `failure` is what it finds."""

    def __init__(self) -> None:
        self.began: list[float] = []
        self.failure: Exception | None = None
        self.shared = SharedCheck(self._check)

    async def _check(self) -> None:
        self.began.append(virtual_loop().time())
        failure = self.failure
        await asyncio.sleep(1.0)
        if failure is not None:
            raise failure

    async def ask(self) -> tuple[float, float]:
        """Return when the question was asked, and when the check that answered it began."""
        asked_at = virtual_loop().time()
        await self.shared()
        return asked_at, self.began[-1]


# -- one check for many ----------------------------------------------------------------------------


@virtual_time
async def test_c5_every_verdict_is_younger_than_its_question() -> None:
    """Whenever one asks, the check that answers began afterwards."""
    slow = Slow()
    asking = []
    for _ in range(60):
        asking.append(asyncio.create_task(slow.ask()))
        await asyncio.sleep(0.07)
    for asked_at, began_at in await asyncio.gather(*asking):
        assert began_at >= asked_at


@virtual_time
async def test_a_burst_costs_two_checks() -> None:
    """The first of a thousand asks at once, all others wait together for the next."""
    slow = Slow()
    started_at = virtual_loop().time()
    await asyncio.gather(*(slow.ask() for _ in range(1000)))
    assert len(slow.began) == 2
    assert virtual_loop().time() - started_at == 2.0


@virtual_time
async def test_c5_nothing_is_remembered_from_one_question_to_the_next() -> None:
    """A confirmation of a moment ago says nothing of what was seen since."""
    slow = Slow()
    await slow.ask()
    slow.failure = LeadershipLost("another cluster")
    with pytest.raises(LeadershipLost):
        await slow.ask()
    slow.failure = None
    await slow.ask()
    assert len(slow.began) == 3


@virtual_time
async def test_c5_a_change_under_a_check_is_met_by_those_who_asked_after_it() -> None:
    """Who asks while a check is under way does not get its verdict."""
    slow = Slow()
    first = asyncio.create_task(slow.ask())
    await asyncio.sleep(0.5)
    slow.failure = LeadershipLost("another cluster")
    late = asyncio.create_task(slow.ask())
    await first
    with pytest.raises(LeadershipLost):
        await late


@virtual_time
async def test_a_failure_is_told_to_all_who_wait_for_it() -> None:
    """They do not try one after the other; each has an error of its own."""
    slow = Slow()
    slow.failure = ServerFault("etcd", cluster="berlin", verb="get", status=500)
    results = await asyncio.gather(*(slow.ask() for _ in range(5)), return_exceptions=True)
    assert [str(result) for result in results] == ["get at berlin: etcd"] * 5
    assert len({id(result) for result in results}) == 5
    assert len(slow.began) == 2


@virtual_time
async def test_a_check_whose_asker_gives_up_is_made_for_the_others() -> None:
    """Who is cancelled takes no verdict away from those who wait."""
    slow = Slow()
    first = asyncio.create_task(slow.ask())
    await asyncio.sleep(0.5)
    others = [asyncio.create_task(slow.ask()) for _ in range(3)]
    await asyncio.sleep(0.1)
    first.cancel()
    others[0].cancel()
    assert len(await asyncio.gather(*others[1:])) == 2
    assert len(slow.began) == 2


@virtual_time
async def test_a_crashing_check_confirms_nothing() -> None:
    """An error that nobody foresaw is raised, and the next who waits checks anew."""
    slow = Slow()
    slow.failure = ZeroDivisionError()
    first = asyncio.create_task(slow.ask())
    await asyncio.sleep(0.5)
    slow.failure = None
    second = asyncio.create_task(slow.ask())
    with pytest.raises(ZeroDivisionError):
        await first
    await second


# -- the hub's guard -------------------------------------------------------------------------------


async def test_a_hub_is_known_by_its_kube_system_uid() -> None:
    """The identity is the hub's own (C3)."""
    hub = FakeCluster("hub", ManualClock())
    assert await cluster_identity(hub.client()) == uid_of(hub.read(NAMESPACES, SYSTEM))


async def test_c51_another_hub_is_never_confirmed() -> None:
    """Another kube-system uid is another cluster, every time it is asked."""
    hub = FakeCluster("hub", ManualClock())
    guard = IdentityGuard(hub.client(), "the-uid-we-began-with")
    for _ in range(2):
        with pytest.raises(LeadershipLost, match="another cluster"):
            await guard.confirm()
    assert len(hub.calls) == 2


async def test_c51_a_hub_that_is_replaced_is_found_out_at_once() -> None:
    """A confirmation of a moment ago does not hold for the next absence."""
    hub = FakeCluster("hub", ManualClock())
    guard = IdentityGuard(hub.client(), await cluster_identity(hub.client()))
    await guard.confirm()
    hub.edit(NAMESPACES, SYSTEM, lambda n: n["metadata"].update(uid="rebuilt"))
    with pytest.raises(LeadershipLost):
        await guard.confirm()


@pytest.mark.parametrize("way", ["down", "forbidden", "absent"])
async def test_c51_a_hub_that_does_not_tell_who_it_is_is_not_confirmed(way: str) -> None:
    """Unreadable is neither the same nor another, and is not remembered as either."""
    hub = FakeCluster("hub", ManualClock())
    guard = IdentityGuard(hub.client(), await cluster_identity(hub.client()))
    if way == "down":
        hub.go_down()
    else:
        error = NotFound("no", status=404) if way == "absent" else Forbidden("no", status=403)
        hub.faults = lambda _call: Refuse(error)
    with pytest.raises(ClusterError):
        await guard.confirm()
    hub.come_up()
    hub.faults = None
    await guard.confirm()


@virtual_time
async def test_c51_a_hub_that_hangs_is_not_waited_for_without_end() -> None:
    """Who asks for a confirmation has an answer, or none, in bounded time."""
    hub = FakeCluster("hub", virtual_loop().time)
    guard = IdentityGuard(hub.client(), await cluster_identity(hub.client()))
    hub.faults = lambda _call: Delay(3600)
    started_at = virtual_loop().time()
    with pytest.raises(Unreachable, match="no answer"):
        await guard.confirm()
    assert virtual_loop().time() - started_at == CONFIRM_SECONDS
