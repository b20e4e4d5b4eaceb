"""How end-to-end tests share clusters and processes, and how their measurements get home."""

from dataclasses import dataclass, field

import pytest

from e2e.support.grouping import SHARED, group_of
from e2e.support.measuring import Measurements, lines_of
from e2e.support.pace import PLAYED, REAL


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """What of a test is looked at."""

    location: tuple[str, int, str]
    fixturenames: list[str] = field(default_factory=list)


def items_of(module: str, *fixtures: str) -> list[Item]:
    """Make a test for each fixture."""
    return [Item(location=(module, 0, name), fixturenames=[name]) for name in fixtures]


def test_tests_of_the_same_clusters_stay_together() -> None:
    """Whoever needs the shared clusters goes with all of those, the others with their module."""
    items = [
        *items_of("e2e/test_cli.py", "hub_and_target", "tmp_path"),
        *items_of("e2e/test_outage.py", "testbed_factory"),
        *items_of("e2e/containers/test_pods.py", "real_hub_and_target"),
    ]
    groups = [group_of(item, 1) for item in items]  # type: ignore[arg-type]
    assert groups == ["clusters-0", "e2e/test_cli.py", "e2e/test_outage.py", "clusters-0"]


def test_modules_are_dealt_out_among_the_pairs_of_clusters() -> None:
    """A module's tests stay together, since what it starts for itself is started once."""
    modules = [f"e2e/test_{number}.py" for number in range(40)]
    items = [item for module in modules for item in items_of(module, *SHARED)]
    groups = [group_of(item, 2) for item in items]  # type: ignore[arg-type]
    assert set(groups) == {"clusters-0", "clusters-1"}
    assert groups[::2] == groups[1::2]


def test_groups_reach_pytest_xdist(request: pytest.FixtureRequest) -> None:
    """It appends them to a name of pytest's own; where that does nothing, groups are torn apart."""
    name = request.node._nodeid
    request.node._nodeid = f"{name}@clusters"
    try:
        assert request.node.nodeid == f"{name}@clusters"
    finally:
        request.node._nodeid = name


def report(when: str, properties: list[tuple[str, object]]) -> pytest.TestReport:
    return pytest.TestReport(
        nodeid="test",
        location=("", 0, "test"),
        keywords={},
        outcome="passed",
        longrepr=None,
        when=when,  # type: ignore[arg-type]
        user_properties=properties,
    )


def test_measurements_travel_with_the_report() -> None:
    """What a test measured is told once, whichever process it ran in."""
    properties: list[tuple[str, object]] = [("other", "thing")]
    measured = Measurements(test="test_it", properties=properties)
    measured.seconds("takeover", 1.0, promise=2.0)
    with pytest.raises(AssertionError, match="generous"):
        measured.seconds("return", 11.0, promise=2.0)
    reports = [report(when, properties) for when in ("setup", "call", "teardown")]
    assert lines_of([*reports, "no report"]) == [
        "test_it: takeover: 1.00 s (promised 2 s)",
        "test_it: return: 11.00 s (promised 2 s)",
    ]


def test_a_real_node_gets_fewer_pods_but_some() -> None:
    """However few a test would like, there is one."""
    assert [PLAYED.many(50), PLAYED.many(1)] == [50, 1]
    assert [REAL.many(50), REAL.many(1)] == [15, 1]
