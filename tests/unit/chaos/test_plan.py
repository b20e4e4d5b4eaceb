"""Drawing a storm: every fault once, lanes in order, and the same seed the same storm."""

import random
from dataclasses import replace

import pytest

from e2e.chaos.plan import FaultKind, Lane, Patience, Shape, Side, Storm, plan_storm

SHAPE = Shape(
    seconds=55.0,
    acts_per_second=1.3,
    freeze_seconds=24.0,
    patience=Patience(wire_seconds=1.0, single_seconds=1.0, leader_seconds=1.0, repeats=False),
)
SEEDS = range(50)


def storm(seed: int, shape: Shape = SHAPE) -> Storm:
    return plan_storm(random.Random(seed), shape)


def test_the_same_seed_draws_the_same_storm() -> None:
    """A storm can be repeated by its seed, and another seed draws another."""
    assert storm(7) == storm(7)
    assert storm(7) != storm(8)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_storm_has_every_fault_on_both_sides(seed: int) -> None:
    """So many storms, so many faults of each kind."""
    faults = storm(seed).faults()
    assert {fault.kind for fault in faults} == set(FaultKind)
    sides = {kind: {f.side for f in faults if f.kind is kind} for kind in FaultKind}
    assert all(found in ({None}, set(Side)) for found in sides.values())
    assert len({fault.name for fault in faults}) == len(faults)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_faults_of_a_lane_follow_one_another_within_the_storm(seed: int) -> None:
    """A lane has one fault at a time, and the last one ends with the storm."""
    for lane in storm(seed).lanes.values():
        ends = 0.0
        for timed in lane:
            assert timed.at >= ends - 1e-9
            ends = timed.at + timed.fault.seconds
        assert ends <= SHAPE.seconds + 1e-9


def test_faults_are_shortened_where_the_storm_is_short_but_the_freeze_is_not() -> None:
    """A freeze that is shorter than the lease would prove nothing."""
    short = storm(1, replace(SHAPE, seconds=26.0))
    by_kind = {timed.fault.kind: timed.fault for timed in short.lanes[Lane.PROCESSES]}
    assert by_kind[FaultKind.FREEZE].seconds == SHAPE.freeze_seconds
    others = [fault.seconds for kind, fault in by_kind.items() if kind is not FaultKind.FREEZE]
    assert sum(others) <= 2.0 + 1e-9


def test_a_storm_without_freezes_has_all_the_rest() -> None:
    """The short storm leaves out what alone takes as long as the storm."""
    kinds = {fault.kind for fault in storm(1, replace(SHAPE, freeze_seconds=0.0)).faults()}
    assert kinds == set(FaultKind) - {FaultKind.FREEZE}


def test_acts_come_in_order_and_at_the_rate_that_was_asked_for() -> None:
    """Users act all through the storm."""
    acts = storm(3).acts
    assert len(acts) == round(SHAPE.seconds * SHAPE.acts_per_second)
    assert [act.at for act in acts] == sorted(act.at for act in acts)
    assert all(0.0 <= act.at <= SHAPE.seconds for act in acts)
