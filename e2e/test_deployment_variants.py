"""A Deployment goes to a target and comes back: other storage, other versions (C4)."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from e2e.support.measuring import Measurements
from e2e.support.scenarios import scale_there_and_back
from e2e.support.world import Space
from e2e.support.worlds import Worlds
from e2e.testbed.fixtures import HUB, TARGET, TestbedFactory
from e2e.testbed.local import LocalCluster
from e2e.testbed.provider import TestCluster

pytest_plugins = ["e2e.support.fixtures"]
pytestmark = pytest.mark.e2e

KINE_TARGET = replace(TARGET, name="kine-target", storage="kine", service_range="10.100.0.0/16")
NEW_HUB = replace(HUB, name="new-hub", minor="1.36", service_range="10.101.0.0/16")
NEW_TARGET = replace(TARGET, name="new-target", minor="1.36", service_range="10.102.0.0/16")


@dataclass(frozen=True, slots=True, kw_only=True)
class Variants:
    """The clusters that differ from the default pair."""

    kine_target: TestCluster
    new_hub: TestCluster
    new_target: TestCluster


@pytest.fixture(scope="module")
def variants(testbed_factory: TestbedFactory, worlds: Worlds) -> Iterator[Variants]:
    """Start the clusters side by side, and end them with the module: they are big."""
    clusters = testbed_factory.clusters(KINE_TARGET, NEW_HUB, NEW_TARGET)
    yield Variants(kine_target=clusters[0], new_hub=clusters[1], new_target=clusters[2])
    for cluster in clusters:
        worlds.forget(cluster)
        cluster.stop()


def tell(worlds: Worlds, measured: Measurements, *, hub: TestCluster, target: TestCluster) -> None:
    with worlds.world(node=f"{hub.name}-{target.name}", hub=hub, target=target) as world:
        space = Space(world, "variant")
        space.open()
        scale_there_and_back(space, measured, large=20, small=5)
        space.close()


def test_a_deployment_runs_in_a_target_that_stores_in_sqlite(
    worlds: Worlds, measured: Measurements, local_hub: LocalCluster, variants: Variants
) -> None:
    """A target on kine, which K3s stores in, serves as well as one on etcd."""
    tell(worlds, measured, hub=local_hub, target=variants.kine_target)


def test_a_deployment_runs_in_a_target_two_minors_newer(
    worlds: Worlds, measured: Measurements, local_hub: LocalCluster, variants: Variants
) -> None:
    """A hub of Kubernetes 1.34 runs pods in a target of 1.36, with the same few writes."""
    tell(worlds, measured, hub=local_hub, target=variants.new_target)


def test_a_deployment_runs_in_a_target_two_minors_older(
    worlds: Worlds, measured: Measurements, local_target: LocalCluster, variants: Variants
) -> None:
    """A hub of Kubernetes 1.36 runs pods in a target of 1.34, with the same few writes."""
    tell(worlds, measured, hub=variants.new_hub, target=local_target)
