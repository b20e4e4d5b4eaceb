"""The benchmark itself, small: ten pods, one pair. And federate writes no more than it must."""

from __future__ import annotations

import pytest

from e2e.bench.plan import Part, Plan
from e2e.bench.results import PHASES, Series
from e2e.bench.run import run_plan
from e2e.bench.updown import Arm
from e2e.support.measuring import Measurements
from e2e.testbed.progress import Progress

pytest_plugins = ["e2e.support.fixtures"]
pytestmark = pytest.mark.e2e

PODS = 10

WRITES_PER_POD = {
    ("hub", "up"): 3,  # intent; record with the first status; Running
    ("target", "up"): 2,  # create; the gate lifted
    ("hub", "down"): 2,  # the last word; the delete
    ("target", "down"): 1,
}
"""The most that federate may write to pods, Events apart; docs/benchmarks says why so many."""


@pytest.fixture(scope="module")
def series() -> Series:
    """One pair of all three arms, on clusters of its own."""
    plan = Plan(parts=[Part.UP_DOWN], sizes=[PODS], pairs=1, plays=["plain"])
    return run_plan(plan, Progress(quiet=True)).series[0]


def test_ten_pods_go_up_and_down_in_all_arms(series: Series, measured: Measurements) -> None:
    """Each arm ends, and is told with its seconds."""
    assert series.arms == list(Arm)
    for phase in PHASES:
        seconds = {arm: series.seconds(arm, phase)[0] for arm in Arm}
        assert all(seconds.values())
        told = ", ".join(f"{arm} {value:.2f} s" for arm, value in seconds.items())
        measured.note(f"{PODS} pods {phase}", told)


@pytest.mark.parametrize(("side", "phase"), WRITES_PER_POD)
def test_federate_writes_no_more_than_it_must(
    series: Series, measured: Measurements, side: str, phase: str
) -> None:
    """As the API servers count it: by their audit log, of federate's own user."""
    by_kind = series.writes_per_pod(side, phase)
    assert by_kind, "the audit log is empty"
    measured.note(f"{side} writes per pod, {phase}", by_kind)
    assert series.pod_writes_per_pod(side, phase) <= WRITES_PER_POD[side, phase], by_kind
