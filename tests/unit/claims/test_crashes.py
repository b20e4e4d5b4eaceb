"""The process dies at each request in turn: one claim, one volume, and no data is lost."""

from __future__ import annotations

import asyncio

import pytest

from federate.errors import ServerFault
from federate.model.objects import ObjectKey
from federate.model.resources import CLAIMS
from tests.support.claimstage import ClaimStage
from tests.support.clock import virtual_time
from tests.support.fakeclient import (
    Call,
    CrashAfter,
    CrashBefore,
    Fault,
    LostReply,
    LostRequest,
    RefuseAfter,
)

MOST_CALLS = 40
FAULTS: tuple[Fault, ...] = (
    CrashBefore(),
    CrashAfter(),
    LostRequest(),
    LostReply(),
    RefuseAfter(ServerFault("timed out", status=504)),
)


def strike(stage: ClaimStage, fault: Fault, number: int) -> None:
    """Have the fault meet that request of both clusters together, once."""
    count = iter(range(10_000))

    def judge(call: Call) -> Fault | None:
        return fault if call.verb != "watch" and next(count) == number else None

    stage.hub.faults = stage.target.faults = judge


async def live_through(fault: Fault, number: int) -> None:
    """A claim comes, grows, and goes, and its class asks for the end of its data."""
    stage = ClaimStage()
    strike(stage, fault, number)
    key = stage.ask(storageClassName="fed-delete")
    kept = stage.ask("kept")
    size = {"storage": "2Gi"}

    def grow(claim: dict) -> None:  # type: ignore[type-arg]
        claim["spec"]["resources"]["requests"] = dict(size)

    def has_grown() -> bool:
        return bool((stage.hub_claim(key) or {}).get("status", {}).get("capacity") == size)

    def end() -> None:
        for each in (key, kept):
            stage.hub.delete_by_user(CLAIMS, each.hub_key)

    stories = iter(
        (
            (lambda: stage.is_bound(key) and stage.is_bound(kept), lambda: None),
            (has_grown, lambda: stage.hub.edit(CLAIMS, key.hub_key, grow)),
            (lambda: stage.volume(key) is None, end),
        )
    )
    is_reached, begin = next(stories)
    begin()
    while True:
        async with stage.living() as dead:
            waits = asyncio.create_task(stage.until(is_reached, seconds=900.0))
            await asyncio.wait({waits, dead}, return_when=asyncio.FIRST_COMPLETED)
            if waits.done():
                waits.result()
                try:
                    is_reached, begin = next(stories)
                except StopIteration:
                    break
                begin()
            waits.cancel()
        stage.start()
    assert [claim for claim in stage.claims_there() if claim == stage.claim(kept)]
    assert len(stage.claims_there()) == 1
    assert stage.volume(kept) is not None
    assert stage.hub.find(CLAIMS, ObjectKey("default", "kept")) is None


@pytest.mark.parametrize(
    ("fault", "calls"),
    [
        (CrashAfter(), range(3, MOST_CALLS, 6)),
        (LostReply(), range(6, MOST_CALLS, 9)),
        *(pytest.param(fault, range(MOST_CALLS), marks=pytest.mark.long) for fault in FAULTS),
    ],
    ids=lambda value: "" if isinstance(value, range) else type(value).__name__,
)
def test_c70_whatever_request_fails_all_comes_to_rest(fault: Fault, calls: range) -> None:
    """Before it, after it, or with its reply lost."""
    for number in calls:

        @virtual_time
        async def once(number: int = number) -> None:
            await live_through(fault, number)

        once()
