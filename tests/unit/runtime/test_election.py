"""One leader at a time: two candidates, one lease, virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta

import pytest

from federate.errors import Conflict, LeadershipLost, ServerFault, VirtualNodeLeft
from federate.model.leases import holder_of
from federate.model.marks import LEFT_ANNOTATION
from federate.model.objects import JsonDict, ObjectKey, annotations_of, spec_of
from federate.model.resources import LEASES
from federate.runtime.election import (
    CONFLICT_PAUSE_SECONDS,
    DURATION_SECONDS,
    RENEW_DEADLINE_SECONDS,
    RENEW_PERIOD_SECONDS,
    RETRY_PERIOD_SECONDS,
    STANDBY_PERIOD_SECONDS,
    Election,
)
from federate.runtime.identity import own_identity
from tests.support.clock import virtual_loop, virtual_time
from tests.support.fakeclient import Call, Delay, Fault, LostReply, LostRequest, Refuse
from tests.support.fakecluster import FakeCluster

KEY = ObjectKey("kube-system", "federate-edge")
DEAD_PROCESS_START = "1"


class Terms:
    """Who leads when: never two at once, or `overlaps` says so."""

    def __init__(self) -> None:
        self.leading: set[str] = set()
        self.history: list[tuple[str, float, float]] = []
        self.overlaps: list[str] = []

    def body(self, election: Election, name: str) -> Callable[[], Awaitable[None]]:
        async def lead() -> None:
            started_at = virtual_loop().time()
            if self.leading:
                self.overlaps.append(f"{name} began while {self.leading} led")
            self.leading.add(name)
            try:
                while True:
                    election.fence()
                    await asyncio.sleep(0.25)
            finally:
                self.leading.discard(name)
                self.history.append((name, started_at, virtual_loop().time()))

        return lead


async def agreed() -> None:
    """The hub is still the one it was."""


class Stage:
    """One hub, and candidates each with a client of its own name."""

    def __init__(self) -> None:
        self.hub = FakeCluster("hub", asyncio.get_running_loop().time)
        self.terms = Terms()
        self.is_elsewhere = False

    async def confirm(self) -> None:
        if self.is_elsewhere:
            raise LeadershipLost("the hub is another cluster")

    def candidate(self, name: str, *, retires: bool = True) -> Election:
        return Election(
            hub=self.hub.client(name),
            key=KEY,
            identity=name,
            confirm_hub=self.confirm,
            now=lambda: datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=virtual_loop().time()),
            clock=virtual_loop().time,
            retires=retires,
        )

    @asynccontextmanager
    async def running(self, election: Election, name: str) -> AsyncIterator[asyncio.Task[None]]:
        task = asyncio.create_task(election.lead(self.terms.body(election, name)))
        try:
            yield task
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError, LeadershipLost):
                await task

    def holder(self) -> str:
        return holder_of(self.hub.find(LEASES, KEY))

    def faults(self, client: str, fault: Fault, *, verbs: tuple[str, ...] = ()) -> None:
        """All requests of one candidate (of those verbs) meet the fault."""

        def meets(call: Call) -> Fault | None:
            return fault if call.client == client and (not verbs or call.verb in verbs) else None

        self.hub.faults = meets


@virtual_time
async def test_the_first_leads_and_the_second_stands_by() -> None:
    """One leads for as long as it renews; the other knows whom it waits for."""
    stage = Stage()
    a, b = stage.candidate("a"), stage.candidate("b")
    async with stage.running(a, "a"):
        await asyncio.sleep(1.0)
        async with stage.running(b, "b"):
            await asyncio.sleep(300.0)
            assert (a.is_leading, b.is_leading) == (True, False)
            assert (stage.holder(), b.holder) == ("a", "a")
            with pytest.raises(LeadershipLost):
                b.fence()
    assert not stage.terms.overlaps
    renewals = [c for c in stage.hub.writes() if c.client == "a"]
    assert len(renewals) <= 300 / RENEW_PERIOD_SECONDS + 3


@virtual_time
async def test_an_orderly_end_hands_over_at_once() -> None:
    """A leader that ends gives the lease back; the standby need not wait it out."""
    stage = Stage()
    a, b = stage.candidate("a"), stage.candidate("b")
    async with stage.running(b, "b"):
        pass
    async with stage.running(a, "a"):
        await asyncio.sleep(1.0)
        second = asyncio.create_task(b.lead(stage.terms.body(b, "b")))
        await asyncio.sleep(5.0)
    ended_at = virtual_loop().time()
    while not b.is_leading:  # noqa: ASYNC110
        await asyncio.sleep(0.1)
    assert virtual_loop().time() - ended_at <= STANDBY_PERIOD_SECONDS + 0.2
    second.cancel()
    with suppress(asyncio.CancelledError):
        await second
    assert not stage.terms.overlaps


@virtual_time
async def test_a_silent_leader_stops_before_another_starts() -> None:
    """Cut off from the hub, the leader stops at its deadline; the other starts after the lease."""
    stage = Stage()
    a, b = stage.candidate("a"), stage.candidate("b")
    async with stage.running(a, "a") as first, stage.running(b, "b"):
        await asyncio.sleep(20.0)
        assert a.is_leading
        cut_at = virtual_loop().time()
        stage.faults("a", LostRequest())
        await asyncio.sleep(40.0)
        assert isinstance(first.exception(), LeadershipLost)
        assert b.is_leading
    (name, _, stopped_at), (_, started_at, _) = stage.terms.history
    assert name == "a"
    assert stopped_at - cut_at <= RENEW_DEADLINE_SECONDS + 0.5
    assert started_at - cut_at >= DURATION_SECONDS - RENEW_PERIOD_SECONDS
    assert started_at - stopped_at >= 1.0
    assert not stage.terms.overlaps


@virtual_time
async def test_a_hanging_hub_is_as_bad_as_a_silent_one() -> None:
    """Renewals that hang are given up in time: the fence closes at the same deadline."""
    stage = Stage()
    a, b = stage.candidate("a"), stage.candidate("b")
    async with stage.running(a, "a") as first, stage.running(b, "b"):
        await asyncio.sleep(20.0)
        cut_at = virtual_loop().time()
        stage.faults("a", Delay(3600.0))
        await asyncio.sleep(60.0)
        assert isinstance(first.exception(), LeadershipLost)
        assert b.is_leading
    assert stage.terms.history[0][2] - cut_at <= RENEW_DEADLINE_SECONDS + 0.5
    assert not stage.terms.overlaps


@virtual_time
async def test_the_fence_closes_by_the_clock_alone() -> None:
    """A process that was stopped and goes on finds the fence closed before it writes."""
    stage = Stage()
    now = [0.0]
    a = Election(
        hub=stage.hub.client("a"),
        key=KEY,
        identity="a",
        confirm_hub=agreed,
        now=lambda: datetime(2026, 1, 1, tzinfo=UTC),
        clock=lambda: now[0],
    )

    async def idle() -> None:
        await asyncio.Event().wait()

    task = asyncio.create_task(a.lead(idle))
    await asyncio.sleep(0.1)
    a.fence()
    now[0] += RENEW_DEADLINE_SECONDS - 0.1
    a.fence()
    now[0] += 0.2
    with pytest.raises(LeadershipLost):
        a.fence()
    assert not a.is_leading
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert stage.holder() == "a"  # a lease that ran out is not given back: it may be another's


@virtual_time
async def test_lost_replies_do_not_cost_the_lease() -> None:
    """A renewal that was carried out unseen is recognised as our own."""
    stage = Stage()
    a, b = stage.candidate("a"), stage.candidate("b")
    left = [1]

    def lose_one(call: Call) -> Fault | None:
        if call.client == "a" and call.verb == "replace" and left[0]:
            left[0] -= 1
            return LostReply()
        return None

    async with stage.running(a, "a") as first, stage.running(b, "b"):
        await asyncio.sleep(2.0)
        stage.hub.faults = lose_one
        await asyncio.sleep(30.0)
        assert not left[0]
        assert a.is_leading
        assert not first.done()
    assert not stage.terms.overlaps


@virtual_time
async def test_a_renewal_that_got_no_answer_is_made_good_at_once() -> None:
    """A half-open connection of some seconds: the conflict with our own renewal costs no time."""
    stage = Stage()
    a = stage.candidate("a")
    asked: list[float] = []

    def cut(call: Call) -> Fault | None:
        if call.client != "a" or call.resource != LEASES:
            return None
        asked.append(virtual_loop().time())
        return LostReply() if len(asked) == 1 else None

    async with stage.running(a, "a"):
        await asyncio.sleep(2.0)
        stage.hub.faults = cut
        await asyncio.sleep(10.0)
        assert a.is_leading
    lost, conflicting, _, renewed = asked[:4]
    assert conflicting - lost == RETRY_PERIOD_SECONDS
    assert renewed - conflicting <= 2 * CONFLICT_PAUSE_SECONDS


@virtual_time
async def test_a_lost_create_is_ours() -> None:
    """A first lease whose reply was lost is taken over without waiting it out."""
    stage = Stage()
    a = stage.candidate("a")
    stage.faults("a", LostReply(), verbs=("create",))
    async with stage.running(a, "a"):
        await asyncio.sleep(3.0)
        assert a.is_leading


@virtual_time
async def test_faults_and_conflicts_of_a_moment_are_ridden_out() -> None:
    """Some seconds of 5xx or conflicts do not end a leadership."""
    for error in (ServerFault("etcd", status=500), Conflict("modified", status=409)):
        stage = Stage()
        a = stage.candidate("a")
        async with stage.running(a, "a") as first:
            await asyncio.sleep(5.0)
            stage.faults("a", Refuse(error), verbs=("replace",))
            await asyncio.sleep(4.0)
            before = len(stage.hub.calls)
            assert before < 60, "conflicts are tried again without a pause"
            stage.hub.faults = None
            await asyncio.sleep(10.0)
            assert a.is_leading
            assert not first.done()


@virtual_time
async def test_endless_conflicts_end_the_leadership_without_a_busy_loop() -> None:
    """A lease that can never be written is lost at the deadline, with a bounded number of tries."""
    stage = Stage()
    a = stage.candidate("a")
    async with stage.running(a, "a") as first:
        await asyncio.sleep(5.0)
        stage.faults("a", Refuse(Conflict("modified", status=409)), verbs=("replace",))
        await asyncio.sleep(20.0)
        assert isinstance(first.exception(), LeadershipLost)
        assert len(stage.hub.calls) < 100


@virtual_time
async def test_endless_conflicts_of_a_candidate_are_no_busy_loop() -> None:
    """A candidate that cannot take the lease tries at a human pace."""
    stage = Stage()
    a, b = stage.candidate("a"), stage.candidate("b")
    async with stage.running(a, "a"):
        await asyncio.sleep(1.0)
    stage.faults("b", Refuse(Conflict("modified", status=409)), verbs=("replace",))
    task = asyncio.create_task(b.lead(stage.terms.body(b, "b")))
    before = len(stage.hub.calls)
    for _ in range(2000):  # a loop without a pause would never let virtual time move
        if len(stage.hub.calls) - before > 1000:
            break
        await asyncio.sleep(0)
    tried = len(stage.hub.calls) - before
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert tried < 20


@virtual_time
async def test_a_lease_taken_by_another_is_lost_at_once() -> None:
    """Whoever wrote over our lease leads: the next renewal finds it out."""
    stage = Stage()
    a = stage.candidate("a")
    async with stage.running(a, "a") as first:
        await asyncio.sleep(1.0)
        stage.hub.edit(LEASES, KEY, lambda lease: lease["spec"].update(holderIdentity="thief"))
        await asyncio.sleep(RENEW_PERIOD_SECONDS + 2.0)
        assert isinstance(first.exception(), LeadershipLost)
    assert stage.holder() == "thief"


@virtual_time
async def test_a_deleted_lease_is_made_again() -> None:
    """Somebody deletes the lease: its holder makes it anew and goes on."""
    stage = Stage()
    a = stage.candidate("a")
    async with stage.running(a, "a") as first:
        await asyncio.sleep(1.0)
        stage.hub.delete_by_user(LEASES, KEY)
        await asyncio.sleep(30.0)
        assert a.is_leading
        assert not first.done()
        assert stage.holder() == "a"


@virtual_time
async def test_c70_a_deleted_lease_is_no_vacancy_for_who_knows_its_holder() -> None:
    """The leader does not know of it until it renews, and may be cut off from the hub meanwhile."""
    stage = Stage()
    a, b = stage.candidate("a"), stage.candidate("b")
    async with stage.running(a, "a"), stage.running(b, "b"):
        await asyncio.sleep(20.0)
        assert (a.is_leading, b.holder) == (True, "a")
        stage.faults("a", LostRequest())
        stage.hub.delete_by_user(LEASES, KEY)
        await asyncio.sleep(40.0)
        assert b.is_leading
    assert not stage.terms.overlaps


@virtual_time
async def test_a_lease_deleted_under_a_leader_in_reach_stays_its_own() -> None:
    """The standby waits, the leader makes it anew with its next renewal."""
    stage = Stage()
    a, b = stage.candidate("a"), stage.candidate("b")
    async with stage.running(a, "a"), stage.running(b, "b"):
        await asyncio.sleep(20.0)
        stage.hub.delete_by_user(LEASES, KEY)
        await asyncio.sleep(40.0)
        assert (a.is_leading, b.is_leading, stage.holder()) == (True, False, "a")
    assert not stage.terms.overlaps


@virtual_time
@pytest.mark.parametrize("leads", [True, False])
async def test_c51_no_lease_is_made_on_another_hub(leads: bool) -> None:
    """Where the lease is absent because the hub is another cluster, nobody leads there."""
    stage = Stage()
    a = stage.candidate("a")
    stage.is_elsewhere = not leads
    async with stage.running(a, "a") as task:
        await asyncio.sleep(1.0)
        assert a.is_leading is leads
        made = len(stage.hub.writes())
        assert made == int(leads)
        if leads:
            stage.hub.delete_by_user(LEASES, KEY)
            stage.is_elsewhere = True
        await asyncio.sleep(30.0)
        assert stage.hub.find(LEASES, KEY) is None
        assert isinstance(task.exception(), LeadershipLost)
        assert not [c for c in stage.hub.writes()[made:] if c.verb == "create"]
        assert not a.is_leading


@virtual_time
async def test_a_dead_neighbour_is_not_waited_for() -> None:
    """A process started again sees that its predecessor on this host is gone, and leads at once."""
    stage = Stage()
    ours = own_identity()
    place = ours.rpartition("_")[0].rpartition("_")[0]
    dead = f"{place}_{2**22 + 7}_{DEAD_PROCESS_START}"
    before, after = stage.candidate(dead), stage.candidate(ours)
    with suppress(asyncio.CancelledError):
        task = asyncio.create_task(before.lead(stage.terms.body(before, "dead")))
        await asyncio.sleep(1.0)
        stage.faults(dead, LostRequest())  # it dies without giving the lease back
        task.cancel()
        await task
    assert stage.holder() == dead
    async with stage.running(after, "after"):
        await asyncio.sleep(0.5)
        assert after.is_leading


@virtual_time
async def test_the_lease_tells_people_who_leads_since_when() -> None:
    """Acquire time and transitions follow the holder, not the renewals."""
    stage = Stage()
    a, b = stage.candidate("a"), stage.candidate("b")
    async with stage.running(a, "a"):
        await asyncio.sleep(30.0)
        spec = spec_of(stage.hub.read(LEASES, KEY))
        assert spec["leaseTransitions"] == 0
        assert spec["acquireTime"] < spec["renewTime"]
    async with stage.running(b, "b"):
        await asyncio.sleep(3.0)
        assert spec_of(stage.hub.read(LEASES, KEY))["leaseTransitions"] == 1


@virtual_time
async def test_a_failing_body_ends_the_leadership_and_frees_the_lease() -> None:
    """A crash of what is led is raised bare, and the lease is given back."""
    stage = Stage()
    a = stage.candidate("a")

    async def crash() -> None:
        await asyncio.sleep(1.0)
        raise ValueError("boom")

    with pytest.raises(ValueError, match="boom"):
        await a.lead(crash)
    assert stage.holder() == ""
    assert not a.is_leading


def mark_left(lease: JsonDict) -> None:
    lease["metadata"].setdefault("annotations", {})[LEFT_ANNOTATION] = "now"


@virtual_time
async def test_a_marked_lease_retires_leader_and_standby() -> None:
    """The leader gives it back at its next renewal, the standby gives up, and both say why."""
    stage = Stage()
    a, b = stage.candidate("a"), stage.candidate("b")
    async with stage.running(a, "a") as leads:
        await asyncio.sleep(1.0)
        async with stage.running(b, "b") as stands_by:
            await asyncio.sleep(1.0)
            stage.hub.edit(LEASES, KEY, mark_left)
            await asyncio.wait({leads, stands_by}, timeout=RENEW_PERIOD_SECONDS + 1.0)
            for task in (leads, stands_by):
                assert task.done()
                assert isinstance(task.exception(), VirtualNodeLeft)
                for way_back in (
                    f"annotate lease -n {KEY.namespace} {KEY.name}",
                    "annotate node NODE federate.dev/leaving-",
                    "kubectl uncordon NODE",
                ):
                    assert way_back in str(task.exception())
    assert stage.holder() == ""
    assert LEFT_ANNOTATION in annotations_of(stage.hub.read(LEASES, KEY))


@virtual_time
async def test_who_set_the_mark_leads_with_it() -> None:
    """Nobody else takes a marked lease; once the mark is off, anybody does."""
    stage = Stage()
    leaving = stage.candidate("leaving", retires=False)
    async with stage.running(leaving, "leaving"):
        await asyncio.sleep(1.0)
        stage.hub.edit(LEASES, KEY, mark_left)
        await asyncio.sleep(30.0)
        assert leaving.is_leading
    late = stage.candidate("late")
    async with stage.running(late, "late") as task:
        await asyncio.sleep(1.0)
        assert isinstance(task.exception(), VirtualNodeLeft)
    stage.hub.edit(LEASES, KEY, lambda lease: lease["metadata"].pop("annotations"))
    again = stage.candidate("again")
    async with stage.running(again, "again"):
        await asyncio.sleep(3.0)
        assert again.is_leading
