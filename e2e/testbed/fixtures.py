"""Clusters as pytest fixtures.

A conftest takes them in with `from e2e.testbed.fixtures import *`. Clusters start at first use and
live until the session ends; who breaks a cluster asks the factory for one under another name.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext

import pytest

from .binaries import Binaries
from .choose import choose_provider
from .local import LocalCluster, LocalProvider, programs_of
from .places import Places
from .progress import Progress
from .provider import ClusterSpec, Provider, TestCluster, start_all

__all__ = ["hub", "hub_and_target", "light_hub", "light_target", "target", "testbed_factory"]

HUB = ClusterSpec(name="hub", service_range="10.96.0.0/16")
TARGET = ClusterSpec(name="target", service_range="10.97.0.0/16", nodes=3)
LIGHT_HUB = ClusterSpec(
    name="light-hub",
    service_range="10.98.0.0/16",
    with_controller_manager=False,
    with_scheduler=False,
)
LIGHT_TARGET = ClusterSpec(
    name="light-target",
    service_range="10.99.0.0/16",
    with_controller_manager=False,
    with_scheduler=False,
)


class TestbedFactory:
    """Start clusters on demand and keep each for the session: one per distinct spec."""

    # Keeps pytest from collecting the class in modules that import it.
    __test__ = False

    def __init__(
        self, places: Places, *, uncaptured: Callable[[], AbstractContextManager[None]]
    ) -> None:
        """`uncaptured` lets a build of minutes show although pytest captures output."""
        self.places = places
        self.binaries = Binaries(places, Progress(quiet=True))
        self._uncaptured = uncaptured
        self._local: LocalProvider | None = None
        self._chosen: Provider | None = None
        self._running: dict[ClusterSpec, TestCluster] = {}

    @property
    def local(self) -> LocalProvider:
        """The provider for tests that hurt API servers or need a special cluster."""
        if self._local is None:
            self._local = LocalProvider(self.binaries)
        return self._local

    @property
    def chosen(self) -> Provider:
        """The provider that FEDERATE_TESTBED_PROVIDER names; local when it names none."""
        if self._chosen is None:
            name = self.places.provider
            self._chosen = self.local if name == "local" else choose_provider(name, self.binaries)
        return self._chosen

    def cluster(self, spec: ClusterSpec) -> LocalCluster:
        """Return the local cluster for the spec, starting it the first time.

        Specs that differ need different names. Who stops a cluster is its last user.
        """
        return self.clusters(spec)[0]

    def clusters(self, *specs: ClusterSpec) -> list[LocalCluster]:
        """Like `cluster` for several, which start side by side."""
        found = self.from_provider(self.local, specs)
        return [cluster for cluster in found if isinstance(cluster, LocalCluster)]

    def from_provider(
        self, provider: Provider, specs: tuple[ClusterSpec, ...]
    ) -> list[TestCluster]:
        missing = [spec for spec in specs if spec not in self._running]
        if provider.name == "local":
            with self._uncaptured():
                for spec in missing:
                    self.binaries.find_all(programs_of(spec), spec.minor)
        for spec, cluster in zip(missing, start_all(provider, missing), strict=True):
            self._running[spec] = cluster
        return [self._running[spec] for spec in specs]

    def close(self) -> None:
        """Stop everything, and remove what belonged to it."""
        for provider in (self._local, self._chosen):
            if provider is not None:
                provider.close()
        self._running.clear()


@pytest.fixture(scope="session")
def testbed_factory(request: pytest.FixtureRequest) -> Iterator[TestbedFactory]:
    """Clusters of any variant, always local."""
    capture = request.config.pluginmanager.get_plugin("capturemanager")
    uncaptured = capture.global_and_fixture_disabled if capture else nullcontext
    factory = TestbedFactory(Places(), uncaptured=uncaptured)
    yield factory
    factory.close()


@pytest.fixture(scope="session")
def hub_and_target(testbed_factory: TestbedFactory) -> tuple[TestCluster, TestCluster]:
    """Start hub and target side by side, on the provider the user chose."""
    hub, target = testbed_factory.from_provider(testbed_factory.chosen, (HUB, TARGET))
    return hub, target


@pytest.fixture(scope="session")
def hub(hub_and_target: tuple[TestCluster, TestCluster]) -> TestCluster:
    """A full control plane without nodes: the only node will be federate's."""
    return hub_and_target[0]


@pytest.fixture(scope="session")
def target(hub_and_target: tuple[TestCluster, TestCluster]) -> TestCluster:
    """A full control plane with three fake nodes that play pods."""
    return hub_and_target[1]


@pytest.fixture(scope="session")
def light_hub(testbed_factory: TestbedFactory) -> LocalCluster:
    """An API server and its storage, nothing else; starts together with `light_target`."""
    return testbed_factory.clusters(LIGHT_HUB, LIGHT_TARGET)[0]


@pytest.fixture(scope="session")
def light_target(testbed_factory: TestbedFactory) -> LocalCluster:
    """Another API server and its storage, nothing else."""
    return testbed_factory.clusters(LIGHT_HUB, LIGHT_TARGET)[1]
