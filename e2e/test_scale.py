"""A thousand pods up and down, with what it costs: a first look, not a benchmark."""

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from e2e.support.manifests import deployment, pod_spec
from e2e.support.measuring import Measurements
from e2e.support.recorder import Change
from e2e.support.scenarios import assert_mirrored, assert_writes_bounded
from e2e.support.world import Space, World
from e2e.support.worlds import Worlds
from e2e.testbed.fixtures import HUB, TARGET, TestbedFactory

pytest_plugins = ["e2e.support.fixtures"]
pytestmark = [pytest.mark.e2e, pytest.mark.long]

PODS = 1000
TIMEOUT_SECONDS = 600.0

# Clusters without a history: what other tests left behind would be measured too.
LARGE_HUB = replace(HUB, name="large-hub", service_range="10.104.0.0/16")
LARGE_TARGET = replace(TARGET, name="large-target", service_range="10.105.0.0/16")


@pytest.fixture
def large(testbed_factory: TestbedFactory, worlds: Worlds) -> Iterator[World]:
    """A world of two fresh clusters."""
    hub, target = testbed_factory.clusters(LARGE_HUB, LARGE_TARGET)
    with worlds.world(node="large", hub=hub, target=target) as found:
        yield found
    for cluster in (hub, target):
        worlds.forget(cluster)
        cluster.stop()


def test_a_thousand_pods_go_up_and_down(large: World, measured: Measurements) -> None:
    """A Deployment of 1,000 pods runs, and is deleted, with few writes and nothing left."""
    space = Space(large, "scale")
    space.open()
    note_usage(large, measured, "idle")

    started = time.monotonic()
    space.create(deployment("many", pod_spec(space.node), replicas=PODS))
    wait_counted(space, "all pods are ready", ready=PODS)
    measured.note(f"{PODS} pods up", f"{time.monotonic() - started:.1f} s")
    note_usage(large, measured, "up")
    assert_mirrored(space, PODS)

    started = time.monotonic()
    space.hub.delete("Deployment", space.namespace, "many")
    wait_counted(space, "all pods are gone", ready=0)
    space.wait_nothing_left(timeout_seconds=TIMEOUT_SECONDS)
    measured.note(f"{PODS} pods down", f"{time.monotonic() - started:.1f} s")
    note_usage(large, measured, "down")

    assert_writes_bounded(space, measured)
    space.assert_one_mirror_each()


def note_usage(world: World, measured: Measurements, when: str) -> None:
    usage = world.federate.usage()
    measured.note(
        f"federate {when}",
        f"{usage.cpu_seconds:.1f} s of CPU, {usage.resident_bytes / 2**20:.0f} MiB resident, "
        f"{usage.peak_resident_bytes / 2**20:.0f} MiB at most",
    )


def wait_counted(space: Space, what: str, *, ready: int) -> None:
    """Wait until so many pods are ready. The recorder tells, which costs the hub nothing."""

    def count() -> int:
        latest = space.world.hub_record.latest(space.namespace)
        return sum(e.is_ready and e.change is not Change.DELETED for e in latest)

    deadline = time.monotonic() + TIMEOUT_SECONDS
    while count() != ready:
        assert time.monotonic() < deadline, f"Not in time: {what}.\n{space.explain()}"
        time.sleep(0.5)
