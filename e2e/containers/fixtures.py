"""Real clusters with federate between them, and crates in them, as pytest fixtures."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from e2e.support.fixtures import slug, worlds
from e2e.support.world import World
from e2e.support.worlds import Worlds
from e2e.testbed.fixtures import TestbedFactory
from e2e.testbed.kind import RealCluster

from .crate import Crate
from .reports import Reports, hear_reports

__all__ = ["crate", "real_world", "reports", "worlds"]

NODE = "harbor"


@pytest.fixture(scope="session")
def reports(
    tmp_path_factory: pytest.TempPathFactory,
    testbed_factory: TestbedFactory,
    real_hub_and_target: tuple[RealCluster, RealCluster],
) -> Iterator[Reports]:
    """What containers tell; the network they tell it over is there once clusters are."""
    del real_hub_and_target
    folder = tmp_path_factory.mktemp("reports")
    with hear_reports(folder, testbed_factory.places) as found:
        yield found


@pytest.fixture(scope="session")
def real_world(
    worlds: Worlds, real_hub_and_target: tuple[RealCluster, RealCluster]
) -> Iterator[World]:
    """The world that all tests with real containers share."""
    hub, target = real_hub_and_target
    with worlds.world(node=NODE, hub=hub, target=target) as found:
        yield found


@pytest.fixture(scope="module")
def crate(
    request: pytest.FixtureRequest,
    real_world: World,
    real_hub_and_target: tuple[RealCluster, RealCluster],
    reports: Reports,
) -> Iterator[Crate]:
    """A crate of the module's own; in the end every start in it is accounted for."""
    hub, target = real_hub_and_target
    name = slug(request.module.__name__.rpartition(".")[2])
    found = Crate(real_world, name, hub=hub, target=target, reports=reports)
    found.open()
    with ExitStack() as stack:
        stack.callback(found.close)
        yield found
        found.assert_one_mirror_each()
        found.wait_starts_agree()
