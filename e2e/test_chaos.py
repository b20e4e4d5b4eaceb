"""Everything fails at random, and no promise breaks: judged by a witness that nothing happens to.

`FEDERATE_CHAOS_SECONDS` says how long the long one lasts, `FEDERATE_CHAOS_SEED` repeats a plan.
"""

import math
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.chaos.plan import Patience, Shape, Side
from e2e.chaos.report import Report
from e2e.chaos.run import Story
from e2e.chaos.stage import NODE, Stage, set_up
from e2e.chaos.watching import Watching
from e2e.support.measuring import Measurements
from e2e.testbed.fixtures import TestbedFactory

pytest_plugins = ["e2e.support.fixtures"]
pytestmark = pytest.mark.e2e

SEED_VARIABLE = "FEDERATE_CHAOS_SEED"
SECONDS_VARIABLE = "FEDERATE_CHAOS_SECONDS"
DEFAULT_SECONDS = 1800.0

CYCLE_SECONDS = 160.0
"""A long storm and the calm after it, much of which the clusters' own controllers need."""

FREEZE_SECONDS = 24.0
"""A lease of 15 s, a standby that looks every 2 s, and time for a busy machine."""

SHORT = Shape(
    seconds=18.0,
    acts_per_second=2.5,
    freeze_seconds=0.0,
    patience=Patience(wire_seconds=0.5, single_seconds=4.0, leader_seconds=3.0, repeats=False),
)
"""Without the freeze, which alone takes as long."""

LONG = Shape(
    seconds=110.0,
    rounds=2,
    acts_per_second=1.3,
    freeze_seconds=FREEZE_SECONDS,
    patience=Patience(wire_seconds=8.0, single_seconds=25.0, leader_seconds=20.0, repeats=True),
)

ENOUGH_OF_EACH = 20
"""Faults of each kind in the default duration."""


@pytest.fixture
def storm(testbed_factory: TestbedFactory, tmp_path: Path) -> Iterator[Stage]:
    """Clusters of the test's own, and two replicas behind fault proxies."""
    with set_up(testbed_factory, tmp_path, weather="storm") as found:
        yield found


@pytest.fixture
def long_storm(testbed_factory: TestbedFactory, tmp_path: Path) -> Iterator[Stage]:
    """The same once more."""
    with set_up(testbed_factory, tmp_path, weather="long-storm") as found:
        yield found


SHORT_STORMS = 3
"""A storm may meet little (a fault of writes where nobody writes): then another one follows."""


def weather(
    stage: Stage, measured: Measurements, folder: Path, *, shape: Shape, storms: int
) -> Report:
    """Live through so many storms; the report stays in the test's folder."""
    seed = int(os.environ.get(SEED_VARIABLE, secrets.randbelow(1_000_000)))
    print(f"{SEED_VARIABLE}={seed}")
    watching = Watching(
        hub=stage.witnesses[Side.HUB], target=stage.witnesses[Side.TARGET], node=NODE
    )
    story = Story(stage=stage, watching=watching, seed=seed, shape=shape, storms=storms, say=print)
    report = story.tell()
    path = folder / "chaos-report.txt"
    path.write_text(report.text())
    print(report.text())
    for line in report.summary():
        measured.note("chaos", line)
    measured.note("report", path)
    assert not report.violations, report.text()
    return report


def test_no_promise_breaks_in_a_short_storm(
    storm: Stage, measured: Measurements, tmp_path: Path
) -> None:
    """Faults of most kinds strike within seconds: nothing runs twice, is lost, or left behind."""
    struck: set[str] = set()
    for _ in range(SHORT_STORMS):
        report = weather(storm, measured, tmp_path, shape=SHORT, storms=1)
        struck |= set(+report.struck)
        if 2 * len(struck) > len(report.kinds):
            return
    raise AssertionError(report.text())


@pytest.mark.long
def test_no_promise_breaks_in_half_an_hour_of_storms(
    long_storm: Stage, measured: Measurements, tmp_path: Path
) -> None:
    """At least twenty faults of each kind, with calms between in which both sides must agree."""
    seconds = float(os.environ.get(SECONDS_VARIABLE, DEFAULT_SECONDS))
    storms = max(1, math.ceil(seconds / CYCLE_SECONDS))
    report = weather(long_storm, measured, tmp_path, shape=LONG, storms=storms)
    if seconds >= DEFAULT_SECONDS:
        rare = {k: report.struck[k] for k in report.kinds if report.struck[k] < ENOUGH_OF_EACH}
        assert not rare, f"too few to prove anything: {rare}"
