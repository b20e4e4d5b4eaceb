"""How far the two sides of a pod lie behind each other."""

from __future__ import annotations

import asyncio

import pytest

from federate.cluster.store import Change
from federate.model.marks import MirrorRecord, Origin, Scope
from federate.model.objects import JsonObject, ObjectKey
from federate.model.resources import PODS
from federate.runtime.lags import PodLags
from tests.support.builders import pod
from tests.support.clock import virtual_time
from tests.support.fakeclient import Call, Delay, Fault
from tests.support.worlds import World

A = ObjectKey("default", "a")
MIRROR = ObjectKey("hub-default", "a")
ORIGIN = Origin(scope=Scope(hub_id="hub-id", node_name="edge"), pod=A, pod_uid="u1")


class Bench:
    """Lags by hand: a clock to turn, and what was told."""

    def __init__(self) -> None:
        self.time = 0.0
        self.mirrored: list[float] = []
        self.told: list[float] = []
        self.lags = PodLags(
            mirrored=self.mirrored.append, told=self.told.append, clock=lambda: self.time
        )

    def hub_pod(self, old: JsonObject | None, new: JsonObject | None) -> None:
        self.lags.hub_pod_changed(Change(key=A, old=old, new=new))

    def mirror(self, old: JsonObject | None, new: JsonObject | None) -> None:
        change = Change(key=MIRROR, old=old, new=new)
        self.lags.mirror_changed(change)
        self.lags.mirror_told(change)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def hub_pod(uid: str = "u1") -> JsonObject:
    return pod("a").with_uid(uid).build()


def recorded(uid: str) -> JsonObject:
    record = MirrorRecord(pod_uid="u1", mirror=MIRROR, mirror_uid=uid).format()
    return pod("a").with_uid("u1").with_annotations({"federate.dev/mirror": record}).build()


def mirror(phase: str = "Pending", *, version: str = "1") -> JsonObject:
    found = (
        pod("a", namespace=MIRROR.namespace)
        .with_uid("m1")
        .with_labels(ORIGIN.labels())
        .with_annotations(ORIGIN.annotations())
        .with_status(phase=phase)
        .build()
    )
    found["metadata"]["resourceVersion"] = version
    return found


def test_a_new_hub_pod_lags_until_its_mirror_is_there(bench: Bench) -> None:
    """The span ends with whatever shows the mirror first, and is told once."""
    bench.hub_pod(None, hub_pod())
    bench.time = 2.0
    bench.mirror(None, mirror())
    bench.mirror(None, mirror())
    assert bench.mirrored == [2.0]


def test_a_pod_that_waits_counts_with_all_its_waiting(bench: Bench) -> None:
    """What was written to the hub pod meanwhile does not begin the span anew."""
    bench.hub_pod(None, hub_pod())
    bench.time = 60.0
    bench.hub_pod(hub_pod(), recorded(""))
    bench.time = 61.0
    bench.mirror(None, mirror())
    assert bench.mirrored == [61.0]


def test_a_hub_pod_with_a_mirror_on_record_is_from_before(bench: Bench) -> None:
    """A new leader finds pods and mirrors in any order: none of them was late."""
    bench.hub_pod(None, recorded("m1"))
    bench.mirror(None, mirror())
    assert bench.mirrored == []


def test_a_hub_pod_that_goes_is_forgotten(bench: Bench) -> None:
    """A pod that never had a mirror takes no memory and tells nothing."""
    bench.hub_pod(None, hub_pod())
    bench.hub_pod(hub_pod(), None)
    bench.mirror(None, mirror())
    assert bench.mirrored == []


def test_a_successor_begins_anew(bench: Bench) -> None:
    """A pod of the same name and another uid is another pod."""
    bench.hub_pod(None, hub_pod("u0"))
    bench.time = 5.0
    bench.hub_pod(hub_pod("u0"), hub_pod())
    bench.time = 6.0
    bench.mirror(None, mirror())
    assert bench.mirrored == [1.0]


def test_a_status_lags_from_its_first_change_until_it_is_written(bench: Bench) -> None:
    """Several changes that one write tells count from the first."""
    bench.mirror(mirror(), mirror("Running", version="2"))
    bench.time = 1.0
    bench.mirror(mirror("Running", version="2"), mirror("Succeeded", version="3"))
    bench.time = 3.0
    bench.lags.reconciled(A, wrote=True, rests=False)
    bench.lags.reconciled(A, wrote=True, rests=True)
    assert bench.told == [3.0]


def test_a_change_that_leads_to_no_write_is_none(bench: Bench) -> None:
    """Where the hub pod says all already, nothing lags."""
    bench.mirror(mirror(), mirror("Running", version="2"))
    bench.lags.reconciled(A, wrote=False, rests=True)
    bench.time = 9.0
    bench.lags.reconciled(A, wrote=True, rests=True)
    assert bench.told == []


def test_a_move_between_lanes_does_not_end_the_span(bench: Bench) -> None:
    """It was not written yet, and will be."""
    bench.mirror(mirror(), mirror("Running", version="2"))
    bench.lags.reconciled(A, wrote=False, rests=False)
    bench.time = 4.0
    bench.lags.reconciled(A, wrote=True, rests=True)
    assert bench.told == [4.0]


def test_changes_of_metadata_are_no_status(bench: Bench) -> None:
    """A label of the mirror, or its end, tells the hub pod nothing that lags."""
    bench.mirror(mirror(), mirror(version="2"))
    bench.mirror(mirror(version="2"), None)
    bench.lags.reconciled(A, wrote=True, rests=True)
    assert bench.told == []


@virtual_time
async def test_lags_of_a_pod_on_its_way() -> None:
    """A create that takes 3 s and a hub that takes 2 s for a status show as just that."""
    world = World()

    def slow(call: Call) -> Fault | None:
        if (call.client, call.verb, call.resource) == ("target", "create", PODS):
            return Delay(3.0)
        return None

    world.fault_of = slow
    async with world.running():
        world.submit(pod("a"))
        await asyncio.sleep(10.0)
        world.fault_of = lambda call: (
            Delay(2.0) if (call.client, call.verb) == ("hub", "patch") else None
        )
        world.play(A, "Running")
        await asyncio.sleep(5.0)
        assert [round(lag) for lag in world.process.mirror_lags] == [3]
        assert [round(lag) for lag in world.process.status_lags][-1:] == [2]
