"""How several clusters are started at once, and what an error or an interrupt leaves."""

import threading
from pathlib import Path

import pytest

from e2e.testbed.errors import TestbedError
from e2e.testbed.provider import ClusterSpec, TestCluster, start_all

SPECS = [ClusterSpec(name=name) for name in ("hub", "target")]


class FakeCluster(TestCluster):
    """A cluster that knows whether it was stopped."""

    def __init__(self, name: str) -> None:
        self.is_stopped = False
        super().__init__(
            name=name,
            kubeconfig=Path("kubeconfig"),
            api_url="",
            version="",
            find_kubectl=lambda: Path("kubectl"),
        )

    def stop(self) -> None:
        self.is_stopped = True


class FakeProvider:
    """Start the hub at once, and the target when it is let, or not at all."""

    name = "fake"

    def __init__(self) -> None:
        self.started: dict[str, FakeCluster] = {}
        self.is_let = threading.Event()
        self.error: BaseException | None = None

    def start(self, spec: ClusterSpec) -> TestCluster:
        if spec.name == "target":
            assert self.is_let.wait(60)
            if self.error:
                raise self.error
        self.started[spec.name] = FakeCluster(spec.name)
        return self.started[spec.name]

    def close(self) -> None:
        """Nothing is left."""


@pytest.fixture
def provider() -> FakeProvider:
    return FakeProvider()


def test_clusters_come_in_the_order_of_their_specs(provider: FakeProvider) -> None:
    """Whoever unpacks them may rely on it."""
    provider.is_let.set()
    assert [cluster.name for cluster in start_all(provider, SPECS)] == ["hub", "target"]
    assert start_all(provider, []) == []


def test_a_failed_start_stops_the_others(provider: FakeProvider) -> None:
    """All of them, or none and the error."""
    provider.error = TestbedError("no target")
    provider.is_let.set()
    with pytest.raises(TestbedError, match="no target"):
        start_all(provider, SPECS)
    assert provider.started["hub"].is_stopped


def test_an_interrupt_waits_for_the_starts_and_stops_them(
    provider: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller closes the provider next: nothing may still be starting then."""

    def interrupted(_: object) -> None:
        # A start goes on for a while, as kind does.
        threading.Timer(0.3, provider.is_let.set).start()
        raise KeyboardInterrupt

    monkeypatch.setattr("e2e.testbed.provider.wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        start_all(provider, SPECS)
    assert set(provider.started) == {"hub", "target"}
    assert all(cluster.is_stopped for cluster in provider.started.values())
