"""Entries of the anchors' lists: many at once are one request, and each knows what became of it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from federate.companions.lists import Lists
from federate.companions.steps import Ground
from federate.errors import Conflict, FederateError, Rejected, Unreachable
from federate.model.objects import JsonDict, JsonObject
from tests.support.clock import virtual_time


class Anchors:
    """Takes a second for each request."""

    def __init__(self) -> None:
        self.data: dict[str, str] = {}
        self.requests: list[tuple[dict[str, str | None], bool]] = []
        self.failure: FederateError | None = None

    def state(self, namespace: str) -> Ground:
        return Ground.READY

    def anchor(self, namespace: str) -> JsonObject | None:
        anchor: JsonDict = {"data": self.data} if self.data else {}
        return anchor if namespace == "there" else None

    async def prepare(self, hub_namespace: str) -> None:
        raise AssertionError

    async def note(self, namespace: str, entries: Mapping[str, str | None], *, exact: bool) -> None:
        self.requests.append((dict(entries), exact))
        await asyncio.sleep(1.0)
        if self.failure is not None:
            raise self.failure
        for name, entry in entries.items():
            if entry is None:
                self.data.pop(name, None)
            else:
                self.data[name] = entry


@virtual_time
async def test_a_burst_is_two_requests() -> None:
    """The first goes at once; all that come while it is under way go together."""
    anchors = Anchors()
    lists = Lists(anchors)
    await asyncio.gather(*(lists.enlist("there", f"n{n}", f"Secret d/{n}") for n in range(100)))
    assert [len(entries) for entries, _ in anchors.requests] in ([1, 99], [100])
    assert len(anchors.data) == 100
    assert lists.entry("there", "n7") == "Secret d/7"
    assert lists.entry("there", "other") is None
    assert lists.entry("nowhere", "n7") is None


@virtual_time
async def test_names_are_struck_off_under_the_lists_version() -> None:
    """Together, but not with names that are put on."""
    anchors = Anchors()
    lists = Lists(anchors)
    await lists.enlist("there", "a", "Secret d/a")
    await asyncio.gather(lists.strike("there", "a"), lists.enlist("there", "b", "Secret d/b"))
    assert anchors.requests[1:] == [({"a": None}, True), ({"b": "Secret d/b"}, False)]
    assert anchors.data == {"b": "Secret d/b"}


@virtual_time
async def test_all_of_a_batch_learn_that_it_failed() -> None:
    anchors = Anchors()
    anchors.failure = Rejected("too large", verb="patch", subject="configmap")
    lists = Lists(anchors)
    results = await asyncio.gather(
        *(lists.enlist("there", f"n{n}", "Secret d/n") for n in range(5)), return_exceptions=True
    )
    assert all(isinstance(result, Rejected) for result in results)
    anchors.failure = None
    await lists.enlist("there", "n0", "Secret d/n")
    assert anchors.data == {"n0": "Secret d/n"}


@virtual_time
async def test_who_waits_with_a_task_that_is_cancelled_is_told() -> None:
    """Whether the request arrived nobody knows; it is asked again."""
    anchors = Anchors()
    lists = Lists(anchors)
    first = asyncio.create_task(lists.enlist("there", "a", "Secret d/a"))
    await asyncio.sleep(0.5)
    second = asyncio.create_task(lists.enlist("there", "b", "Secret d/b"))
    await asyncio.sleep(0)
    third = asyncio.create_task(lists.enlist("there", "c", "Secret d/c"))
    await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(Unreachable):
        await third
    await first
    await lists.enlist("there", "c", "Secret d/c")
    assert set(anchors.data) == {"a", "c"}


@virtual_time
async def test_a_conflict_is_a_conflict() -> None:
    anchors = Anchors()
    anchors.failure = Conflict("another version")
    with pytest.raises(Conflict):
        await Lists(anchors).strike("there", "a")
