"""The group of virtual nodes: what a new configuration asks for, and that it is done one by one."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from federate.errors import ConfigError
from federate.runtime.nodes import Change, NodeGroup, plan_change
from federate.runtime.settings import TargetSettings
from federate.runtime.virtual_node import VirtualNode
from tests.support.clock import virtual_time


def target(name: str, **changed: Any) -> TargetSettings:
    return TargetSettings(name=name, kubeconfig=Path(name), **changed)


# -- the plan --------------------------------------------------------------------------------------


def test_what_stays_the_same_is_in_no_plan() -> None:
    """Neither the order of virtual nodes nor that of keys says anything."""
    running = [target("a", labels={"x": "1", "y": "2"}), target("b")]
    wanted = [target("b"), target("a", labels={"y": "2", "x": "1"})]
    assert plan_change(running, wanted) == Change()


def test_what_is_new_starts_what_is_other_starts_anew_what_is_gone_stops() -> None:
    """Each by its name; what is gone is told as it was."""
    running = [target("same"), target("other"), target("gone")]
    new, other = target("new"), target("other", labels={"zone": "north"})
    assert plan_change(running, [new, other, target("same")]) == Change(
        start=(new,), restart=(other,), stop=(target("gone"),)
    )


@pytest.mark.parametrize("field", TargetSettings.__dataclass_fields__)
def test_every_setting_makes_a_virtual_node_another(field: str) -> None:
    """No key of the file is one that a running virtual node does not notice."""
    before = target("a")
    if field == "name":
        return
    change = plan_change([before], [_replaced(before, field)])
    assert [t.name for t in change.restart] == ["a"]


def _replaced(settings: TargetSettings, field: str) -> TargetSettings:
    values = {name: getattr(settings, name) for name in TargetSettings.__dataclass_fields__}
    return TargetSettings(**{**values, field: object()})


# -- the group -------------------------------------------------------------------------------------


ENDING_SECONDS = 600.0


class FakeNode:
    """A virtual node that only lives; it takes its time to end."""

    def __init__(self, stage: Stage, settings: TargetSettings) -> None:
        self.settings = settings
        self.stage = stage
        self.is_ready = True
        self.fails: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        name = self.settings.name
        assert name not in self.stage.alive, f"two of {name} at once"
        self.stage.alive[name] = self
        self.stage.log.append(f"{name} starts")
        try:
            await self.fails
        finally:
            await asyncio.sleep(self.stage.ending_seconds.get(name, 0.0))
            del self.stage.alive[name]
            self.stage.log.append(f"{name} ended")
            if name in self.stage.fails_ending:
                raise RuntimeError("broke while ending")


class Stage:
    def __init__(self) -> None:
        self.alive: dict[str, FakeNode] = {}
        self.log: list[str] = []
        self.forgotten: list[str] = []
        self.ending_seconds: dict[str, float] = {}
        self.fails_ending: set[str] = set()
        self.group = NodeGroup(
            lambda settings: cast(VirtualNode, FakeNode(self, settings)),
            forget=self.forgotten.append,
        )

    async def end(self) -> None:
        """End the group; a group that hangs fails its test and does not hold up all others."""
        async with asyncio.timeout(ENDING_SECONDS):
            await self.group.end()


@virtual_time
async def test_only_what_changed_is_touched() -> None:
    """The one that stays is the same object in the same task, whatever happens around it."""
    stage = Stage()
    stage.group.become([target("stays"), target("goes"), target("turns")])
    await asyncio.sleep(1.0)
    stays = stage.alive["stays"]
    change = stage.group.become(
        [target("stays"), target("turns", labels={"a": "b"}), target("comes")]
    )
    await asyncio.sleep(1.0)
    assert [t.name for t in (*change.start, *change.restart, *change.stop)] == [
        "comes",
        "turns",
        "goes",
    ]
    assert stage.alive["stays"] is stays
    assert stage.alive["turns"].settings.labels == {"a": "b"}
    assert stage.alive.keys() == {"stays", "turns", "comes"}
    assert sorted(stage.forgotten) == ["goes", "turns"]
    assert [seat.settings.name for seat in stage.group.seats] == ["stays", "comes", "turns"]
    await stage.end()
    assert not stage.alive


@virtual_time
async def test_a_virtual_node_never_runs_twice_at_once() -> None:
    """Who comes next waits until the one before has ended; nobody else waits with it."""
    stage = Stage()
    stage.ending_seconds["slow"] = 30.0
    stage.group.become([target("slow"), target("quick")])
    await asyncio.sleep(1.0)
    for round in range(3):
        stage.group.become([target("slow", labels={"r": str(round)}), target(f"new-{round}")])
        await asyncio.sleep(1.0)
        assert f"new-{round}" in stage.alive
    stage.group.become([])
    stage.group.become([target("slow", labels={"r": "last"})])
    (seat,) = stage.group.seats
    await asyncio.sleep(1.0)
    assert seat.node is None
    await asyncio.sleep(30.0)
    assert stage.log.count("slow starts") == 2, "those in between never began"
    assert stage.alive["slow"].settings.labels == {"r": "last"}
    assert [seat.is_ready for seat in stage.group.seats] == [True]
    await stage.end()


@virtual_time
async def test_a_failure_is_told_and_ends_nobody_by_itself() -> None:
    """Who runs the group decides; the others live until it ends them."""
    stage = Stage()
    stage.group.become([target("a"), target("b")])
    failing = asyncio.ensure_future(stage.group.fail())
    await asyncio.sleep(1.0)
    stage.alive["a"].fails.set_exception(ConfigError("no such context"))
    with pytest.raises(ConfigError, match="no such context"):
        await failing
    assert stage.alive.keys() == {"b"}
    await stage.end()
    assert not stage.alive


@virtual_time
async def test_one_that_fails_while_it_ends_harms_nobody() -> None:
    """It was not wanted any more; the process goes on."""
    stage = Stage()
    stage.group.become([target("a"), target("b")])
    failing = asyncio.ensure_future(stage.group.fail())
    await asyncio.sleep(1.0)
    stage.fails_ending.add("a")
    stage.group.become([target("b")])
    await asyncio.sleep(10.0)
    assert not failing.done()
    assert stage.alive.keys() == {"b"}
    assert not stage.group._ending
    failing.cancel()
    await stage.end()
