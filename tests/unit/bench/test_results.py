"""What is told of the measurements."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from e2e.bench.machine import cpu_model
from e2e.bench.plan import Plan, arms_in_turn
from e2e.bench.plot import draw
from e2e.bench.profile import summarize
from e2e.bench.results import Result, Series, lines_of, write_document
from e2e.bench.updown import Arm, Phase, Round

CPUINFO = "processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\n"


def phase(seconds: float) -> Phase:
    return Phase(
        seconds=seconds,
        federate_cpu_seconds=seconds / 10,
        machine_cpu_seconds=seconds * 2,
        hub_writes={"patch pods/status": 20, "create events": 5},
        target_writes={"create pods": 10},
    )


def played(arm: Arm, seconds: float) -> Round:
    return Round(arm=arm, pods=10, up=phase(seconds), down=phase(seconds / 2))


@pytest.fixture
def series() -> Series:
    found = Series(play="plain", pods=10)
    for slowness in (1.0, 4.0, 2.0):
        found.pairs.append(
            {
                Arm.BOTH: played(Arm.BOTH, slowness),
                Arm.FEDERATE: played(Arm.FEDERATE, slowness * 1.2),
            }
        )
    return found


def test_a_ratio_is_federates_to_another_arm(series: Series) -> None:
    """An arm that was not run has no ratio."""
    ratio = series.ratio_to(Arm.BOTH, "up")
    assert ratio is not None
    assert ratio.median == pytest.approx(1.2)
    assert series.ratio_to(Arm.TARGET, "up") is None


def test_writes_are_told_per_pod(series: Series) -> None:
    """Events stand beside the pods' own writes."""
    assert series.writes_per_pod("hub", "up") == {"create events": 0.5, "patch pods/status": 2.0}
    assert series.pod_writes_per_pod("hub", "up") == 2.0
    assert series.pod_writes_per_pod("target", "down") == 1.0


def test_cpu_is_told_per_thousand_pods(series: Series) -> None:
    """So that sizes can be compared."""
    assert series.cpu_seconds_per_1000("up").median == pytest.approx(24.0)


def test_what_a_free_federate_would_cost_is_told(series: Series) -> None:
    """Its own CPU seconds taken off those of the machine: 2.4 less 0.12 against 2.0."""
    free = series.free_ratio_to(Arm.BOTH, "up")
    assert free is not None
    assert free.median == pytest.approx(1.14)
    assert series.free_ratio_to(Arm.TARGET, "up") is None
    assert "ratio_to_both_of_a_free_federate" in series.summary()["up"]


def test_a_series_without_federate_tells_of_seconds_only() -> None:
    """Whoever measures the machine alone gets no empty columns of ours."""
    series = Series(play="plain", pods=10, pairs=[{Arm.BOTH: played(Arm.BOTH, 1.0)}])
    assert set(series.summary()["up"]) == {"seconds"}
    assert len(lines_of(series)) == 2


def test_the_document_is_json_and_a_picture(series: Series, tmp_path: Path) -> None:
    """Every single round can be read again; an unfinished series does not spoil the others."""
    result = Result(
        plan=Plan(),
        machine={"cpu": "c", "cores": 2, "memory_gib": 4.0},
        software={"kubernetes": "v1", "federate": "0", "python": "3"},
        series=[series, Series(play="plain", pods=1000)],
    )
    path = tmp_path / "docs" / "bench.json"
    write_document(path, result.document())
    read = orjson.loads(path.read_bytes())
    assert [row["pods"] for row in read["summary"]] == [10]
    assert len(read["rounds"]) == 6
    draw(read, path.with_suffix(".svg"))
    assert "seen on the hub" in path.with_suffix(".svg").read_text()
    assert sorted(p.name for p in path.parent.iterdir()) == ["bench.json", "bench.svg"]


def test_nothing_is_drawn_of_nothing(tmp_path: Path) -> None:
    """A run of another part alone leaves no empty picture."""
    draw({"summary": []}, tmp_path / "none.svg")
    assert list(tmp_path.iterdir()) == []


def test_arms_take_turns_in_coming_first() -> None:
    """What gets worse with time must not always hit the same arm."""
    assert arms_in_turn(tuple(Arm), 0) == list(Arm)
    assert arms_in_turn(tuple(Arm), 1) == [Arm.BOTH, Arm.TARGET, Arm.FEDERATE]


def test_the_cpu_is_named() -> None:
    """Where the system does not tell, its architecture stands in."""
    assert cpu_model(CPUINFO) == "Some CPU @ 2 GHz"
    assert cpu_model("") != ""


def test_a_profile_tells_own_time_and_all_time() -> None:
    """A function that calls itself is counted once per sample."""
    waiting = "thread;_worker (concurrent/futures/thread.py:69) 90\n"
    told = summarize(["main;work;work;leaf 3\n", "main;work 1\n", waiting])
    own, whole = told.split("with what it calls")
    assert "75.0 %  leaf" in own
    assert "100.0 %  work" in whole
