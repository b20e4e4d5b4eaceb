"""What is told of streams."""

from __future__ import annotations

import io

import pytest

from e2e.bench.plan import Plan
from e2e.bench.results import Result
from e2e.bench.streamclients import drained, read_line
from e2e.bench.streams import Carried, Followed, Stalled, Streams, Way, rows_of, ways_in_turn


def carried(way: Way, seconds: float) -> Carried:
    return Carried(
        what="log",
        way=way,
        mebibytes=100,
        load_before=1.0,
        seconds=seconds,
        federate_cpu_seconds=0.5,
        machine_cpu_seconds=2 * seconds,
    )


def followed(way: Way) -> Followed:
    return Followed(
        way=way,
        followers=200,
        load_before=1.0,
        seconds=30.0,
        lines=1000,
        delay_p50_ms=2.0,
        delay_p99_ms=9.0,
        federate_cpu_seconds=3.0,
        machine_cpu_seconds=9.0,
        resident_mib_before=90.0,
        resident_mib_most=130.0,
    )


@pytest.fixture
def streams() -> Streams:
    return Streams(
        execs=[{Way.HUB: 60.0, Way.TARGET: 50.0}, {Way.HUB: 90.0, Way.TARGET: 86.0}],
        carried=[
            {Way.HUB: carried(Way.HUB, 2.0), Way.TARGET: carried(Way.TARGET, 1.0)},
            {Way.HUB: carried(Way.HUB, 4.0), Way.TARGET: carried(Way.TARGET, 3.2)},
            {Way.HUB: carried(Way.HUB, 2.0), Way.TARGET: carried(Way.TARGET, 1.8)},
        ],
        followed=[followed(way) for way in Way],
        stalled=Stalled(
            offered_mebibytes=1024, resident_mib_before=90.0, resident_mib_after={"60": 93.0}
        ),
    )


def test_what_is_compared_stands_in_one_pair(streams: Streams) -> None:
    """Ratios and differences are those of pairs, and not of medians."""
    told = streams.summary()
    assert told["exec_milliseconds"]["added"]["median"] == 7.0
    log = told["carried"]["log"]
    assert log["ratio"]["median"] == pytest.approx(0.8)
    assert log["mebibytes_per_second"]["hub"]["median"] == pytest.approx(50.0)
    assert log["federate_cpu_seconds_per_gibibyte"]["median"] == pytest.approx(5.12)


def test_nothing_measured_is_nothing_told() -> None:
    """A run that was ended early can be written down all the same."""
    assert rows_of(Streams()) == []
    assert Streams().document()["carried"] == {}


def test_the_document_has_every_single_value(streams: Streams) -> None:
    """It stands beside the other parts."""
    result = Result(plan=Plan(), machine={}, streams=streams)
    found = result.document()["streams"]
    assert len(found["every_transfer"]) == 6
    assert len(found["every_exec"]) == 2
    assert Result(plan=Plan(), machine={}).document()["streams"] is None


def test_a_table_tells_the_comparison(streams: Streams) -> None:
    """One row of each kind."""
    rows = {row[0]: row[1:] for row in rows_of(streams)}
    assert rows["exec, ms"] == ("75", "68", "+7.0 ms")
    assert rows["log, MiB/s"] == ("50", "56", "0.80 (0.65-0.85)")
    assert "60 s: 93 MiB" in rows["stalled reader"][0]


def test_the_order_turns_with_each_pair() -> None:
    """So that none always comes second."""
    assert ways_in_turn(0) == [Way.HUB, Way.TARGET]
    assert ways_in_turn(1) == [Way.TARGET, Way.HUB]


def test_output_is_counted_to_its_end() -> None:
    """And a line is read without what follows it."""
    output = io.BytesIO(b"ready\nrest")
    assert read_line(output) == b"ready"
    assert drained(output)[1] == 4
