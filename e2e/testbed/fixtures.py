"""Clusters as pytest fixtures.

A conftest takes them in with `from e2e.testbed.fixtures import *`. Clusters start at first use and
live until the session ends; who breaks a cluster asks the factory for one under another name.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path

import pytest

from e2e.images.build import app_archives

from .binaries import Binaries
from .choose import provider_name
from .docker import Docker
from .existing import ExistingProvider
from .kind import KindProvider, RealCluster
from .local import LocalCluster, LocalProvider, programs_of
from .places import Places
from .progress import Progress
from .provider import ClusterSpec, Provider, TestCluster, start_all

__all__ = [
    "hub",
    "hub_and_target",
    "light_hub",
    "light_target",
    "local_hub_and_target",
    "real_hub_and_target",
    "target",
    "testbed_factory",
]

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
        self._kind: KindProvider | None = None
        self._chosen: Provider | None = None
        self._running: dict[tuple[str, ClusterSpec], TestCluster] = {}

    @property
    def local(self) -> LocalProvider:
        """The provider for tests that hurt API servers or need a special cluster."""
        if self._local is None:
            self._local = LocalProvider(self.binaries)
        return self._local

    @property
    def kind(self) -> KindProvider:
        """The provider for tests that need real containers.

        Raises:
            TestbedError: Docker does not answer.
        """
        if self._kind is None:
            with self._uncaptured():
                self._kind = KindProvider(self.binaries, images=self._images)
        return self._kind

    @property
    def chosen(self) -> Provider:
        """The provider that FEDERATE_TESTBED_PROVIDER names, or the one that fits."""
        if self._chosen is None:
            match provider_name(self.places):
                case "local":
                    self._chosen = self.local
                case "kind":
                    self._chosen = self.kind
                case _:
                    self._chosen = ExistingProvider(self.binaries)
        return self._chosen

    def _images(self) -> Sequence[Path]:
        return app_archives(self.places, self.binaries.progress)

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
        name = provider.name
        missing = [spec for spec in specs if (name, spec) not in self._running]
        if missing:
            with self._uncaptured():
                started = self._start(provider, missing)
            self._running.update(
                ((name, spec), cluster) for spec, cluster in zip(missing, started, strict=True)
            )
        return [self._running[name, spec] for spec in specs]

    def _start(self, provider: Provider, specs: Sequence[ClusterSpec]) -> list[TestCluster]:
        """Start clusters; whatever takes minutes shows, one step after the other."""
        if isinstance(provider, KindProvider):
            provider.prepare()
            names = " and ".join(spec.name for spec in specs)
            with self.binaries.progress.long_step(f"Creating {names} with kind"):
                return start_all(provider, specs)
        if isinstance(provider, LocalProvider):
            for spec in specs:
                self.binaries.find_all(programs_of(spec), spec.minor)
        return start_all(provider, specs)

    def close(self) -> None:
        """Stop everything, and remove what belonged to it; one that fails saves no other."""
        providers = {id(p): p for p in (self._kind, self._local, self._chosen) if p is not None}
        with ExitStack() as stack:
            for provider in providers.values():
                stack.callback(provider.close)
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
def local_hub_and_target(testbed_factory: TestbedFactory) -> tuple[LocalCluster, LocalCluster]:
    """The same on bare control planes, for what only they can do."""
    hub, target = testbed_factory.clusters(HUB, TARGET)
    return hub, target


@pytest.fixture(scope="session")
def real_hub_and_target(testbed_factory: TestbedFactory) -> tuple[RealCluster, RealCluster]:
    """The same on kind, with real containers.

    Without Docker a test is skipped, unless FEDERATE_REQUIRE_REAL=1 makes that an error.
    """
    required = os.environ.get("FEDERATE_REQUIRE_REAL") == "1"
    if not required and (complaint := Docker(places=testbed_factory.places).complaint()):
        pytest.skip(f"needs real containers, and Docker does not answer: {complaint}")
    found = testbed_factory.from_provider(testbed_factory.kind, (HUB, TARGET))
    hub, target = (cluster for cluster in found if isinstance(cluster, RealCluster))
    return hub, target


@pytest.fixture(scope="session")
def hub(hub_and_target: tuple[TestCluster, TestCluster]) -> TestCluster:
    """The hub. A local one has no nodes: the only node will be federate's."""
    return hub_and_target[0]


@pytest.fixture(scope="session")
def target(hub_and_target: tuple[TestCluster, TestCluster]) -> TestCluster:
    """The target. A local one has three fake nodes that play pods, a kind one a real node."""
    return hub_and_target[1]


@pytest.fixture(scope="session")
def light_hub(testbed_factory: TestbedFactory) -> LocalCluster:
    """An API server and its storage, nothing else; starts together with `light_target`."""
    return testbed_factory.clusters(LIGHT_HUB, LIGHT_TARGET)[0]


@pytest.fixture(scope="session")
def light_target(testbed_factory: TestbedFactory) -> LocalCluster:
    """Another API server and its storage, nothing else."""
    return testbed_factory.clusters(LIGHT_HUB, LIGHT_TARGET)[1]
