"""Worlds, spaces and measurements as pytest fixtures, and the measurements' page in the report.

Clusters are `hub` and `target`, of the provider that was chosen: what is tested there holds on fake
nodes and on real ones. `local_hub` and `local_target` are for what only the test bed's own clusters
can do; docs/testing.md says which tests that are.

Most tests share one federate process with the node `edge`, which nobody stops. Those that stop or
kill federate share another, with the node `fragile`; it is up when a test begins. A test that needs
other options or other clusters builds a world of its own from `worlds`.
"""

import re
from collections.abc import Iterator

import pytest

from e2e.testbed.fixtures import TestbedFactory
from e2e.testbed.local import LocalCluster
from e2e.testbed.provider import TestCluster

from .measuring import Measurements, lines_of
from .world import Space, World
from .worlds import Worlds

__all__ = [
    "edge",
    "fragile",
    "fragile_space",
    "local_hub",
    "local_target",
    "measured",
    "often_stopped",
    "pytest_terminal_summary",
    "space",
    "world",
    "worlds",
]


@pytest.fixture(scope="session")
def local_hub(local_hub_and_target: tuple[LocalCluster, LocalCluster]) -> LocalCluster:
    """A hub without real nodes, whatever was chosen; `hub` itself where local was."""
    return local_hub_and_target[0]


@pytest.fixture(scope="session")
def local_target(local_hub_and_target: tuple[LocalCluster, LocalCluster]) -> LocalCluster:
    """A target whose nodes kwok plays, whatever was chosen; `target` itself where local was."""
    return local_hub_and_target[1]


@pytest.fixture(scope="session")
def worlds(
    tmp_path_factory: pytest.TempPathFactory, testbed_factory: TestbedFactory
) -> Iterator[Worlds]:
    """Worlds with virtual nodes of their own, and the recorders they share.

    It takes the test bed only to end before the clusters do.
    """
    del testbed_factory
    found = Worlds(tmp_path_factory.mktemp("federate"))
    yield found
    found.close()


@pytest.fixture(scope="session")
def edge(worlds: Worlds, hub: TestCluster, target: TestCluster) -> Iterator[World]:
    """The world that most tests share."""
    with worlds.world(node="edge", hub=hub, target=target) as found:
        yield found


@pytest.fixture
def world(edge: World) -> World:
    """The shared world; a federate that an earlier test saw crash is started again."""
    if not edge.federate.is_running:
        edge.start_federate()
    return edge


@pytest.fixture
def space(world: World, request: pytest.FixtureRequest) -> Iterator[Space]:
    """A hub namespace of the test's own in the shared world."""
    found = Space(world, slug(request.node.name))
    found.open()
    yield found
    found.close()


@pytest.fixture(scope="session")
def often_stopped(worlds: Worlds, hub: TestCluster, target: TestCluster) -> Iterator[World]:
    """The world of `fragile`, whatever state the last test left it in."""
    with worlds.world(node="fragile", hub=hub, target=target) as found:
        yield found


@pytest.fixture
def fragile(often_stopped: World) -> World:
    """A world whose federate the test may stop or kill."""
    if not often_stopped.federate.is_running:
        often_stopped.start_federate()
    return often_stopped


@pytest.fixture
def fragile_space(fragile: World, request: pytest.FixtureRequest) -> Iterator[Space]:
    """A hub namespace of the test's own in that world."""
    found = Space(fragile, slug(request.node.name))
    found.open()
    yield found
    if not fragile.federate.is_running:
        fragile.start_federate()
    found.close()


@pytest.fixture
def measured(request: pytest.FixtureRequest) -> Measurements:
    """Note seconds and counts for the end of the report; times are held against their limits."""
    return Measurements(test=request.node.name, properties=request.node.user_properties)


def slug(test_name: str) -> str:
    """Turn a test's name into a part of a namespace's."""
    return re.sub(r"[^a-z0-9]+", "-", test_name.removeprefix("test_").lower()).strip("-")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what was measured."""
    reports = [report for found in terminalreporter.stats.values() for report in found]
    if lines := lines_of(reports):
        terminalreporter.section("measured")
        for line in lines:
            terminalreporter.write_line(line)
