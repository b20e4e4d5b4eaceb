"""A target that hangs is as dead as one that refuses, and nothing on the hub is lost (C12, C45)."""

import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from e2e.support.manifests import pod, pod_spec
from e2e.support.measuring import Measurements
from e2e.support.pods import condition_of, is_ready, is_terminating, phase_of, uid_of
from e2e.support.witness import Json
from e2e.support.world import Space, World, wait_for
from e2e.support.worlds import Worlds
from e2e.testbed.fixtures import TARGET, TestbedFactory
from e2e.testbed.local import LocalCluster
from e2e.testbed.provider import TestCluster

pytest_plugins = ["e2e.support.fixtures"]
pytestmark = pytest.mark.e2e

NOTICE_SECONDS = 15.0
RETURN_SECONDS = 5.0

LEASE_PERIOD_SECONDS = 10.0

FROZEN_TARGET = replace(TARGET, name="frozen-target", nodes=1, service_range="10.103.0.0/16")


@pytest.fixture
def frozen_target(testbed_factory: TestbedFactory, worlds: Worlds) -> Iterator[LocalCluster]:
    """A target of its own, whose API server the test freezes."""
    cluster = testbed_factory.cluster(FROZEN_TARGET)
    yield cluster
    worlds.forget(cluster)
    cluster.stop()


def reachable(world: World) -> Json:
    return condition_of(world.read_node(), "federate.dev/TargetReachable")


def renew_time(world: World) -> datetime:
    lease = world.hub.get("Lease", "kube-node-lease", world.node)
    assert lease is not None
    return datetime.fromisoformat(lease["spec"]["renewTime"])


def wait_reachable(world: World, status: str) -> float:
    """Wait for the node's word on its target; return the seconds it took."""
    started = time.monotonic()
    wait_for(
        f"TargetReachable is {status}",
        lambda: reachable(world).get("status") == status,
        timeout_seconds=100.0,
        explain=world.federate.log_tail,
    )
    return time.monotonic() - started


def test_a_frozen_target_is_noticed_and_forgiven(
    worlds: Worlds, hub: TestCluster, frozen_target: LocalCluster, measured: Measurements
) -> None:
    """A frozen target shows on the node within 15 s, fails no pod, and is back within seconds."""
    with worlds.world(node="frozen", hub=hub, target=frozen_target) as world:
        space = Space(world, "outage")
        space.open()
        before = space.run_pod(pod("patient", pod_spec(space.node)))
        frozen_target.pause_apiserver()
        try:
            seconds = wait_reachable(world, "False")
            measured.seconds("until the outage is told", seconds, promise=NOTICE_SECONDS)
            assert reachable(world)["reason"] == "TargetUnreachable"
            assert reachable(world)["message"]
            last = renew_time(world)
            space.create(pod("waits", pod_spec(space.node)))
            space.wait_waiting("waits", "TargetUnreachable")
            due = last + timedelta(seconds=LEASE_PERIOD_SECONDS + 2.0)
            time.sleep(max(0.0, (due - datetime.now(UTC)).total_seconds()))
            assert renew_time(world) == last, "a node without its target renews no lease"
            during = space.pod("patient")
            assert during is not None and uid_of(during) == uid_of(before)
            assert phase_of(during) == "Running"
        finally:
            frozen_target.resume_apiserver()
        seconds = wait_reachable(world, "True")
        measured.seconds("until its return is told", seconds, promise=RETURN_SECONDS)
        world.wait_node_ready()
        space.wait_phase("waits", "Running")
        after = space.wait_phase("patient", "Running")
        assert uid_of(after) == uid_of(before) and is_ready(after)
        space.assert_one_mirror_each()
        space.close()


@pytest.mark.long
def test_pods_that_the_hub_gave_up_on_are_put_right_after_an_absence(
    fragile_space: Space, measured: Measurements
) -> None:
    """After a long absence of federate living pods are ready again, and evicted ones go.

    The hub's own node controller made all pods not ready meanwhile, and evicted one.
    """
    space, world = fragile_space, fragile_space.world
    unreachable = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
    patient, impatient = pod_spec(space.node), pod_spec(space.node)
    patient["tolerations"].append({**unreachable, "operator": "Exists"})
    impatient["tolerations"].append({**unreachable, "operator": "Exists", "tolerationSeconds": 1})
    before = space.run_pod(pod("patient", patient))
    space.run_pod(pod("impatient", impatient))
    world.federate.kill()

    def given_up() -> bool:
        stays, goes = space.pod("patient"), space.pod("impatient")
        assert stays is not None and goes is not None, space.explain()
        return not is_ready(stays) and is_terminating(goes)

    space.wait("the hub gives up on the node", given_up, timeout_seconds=120.0)
    assert len(space.mirrors()) == 2
    started = time.monotonic()
    world.start_federate()
    space.wait(
        "the living pod is ready again",
        lambda: (found := space.pod("patient")) is not None and is_ready(found),
    )
    space.wait_pod_gone("impatient")
    space.wait_mirror_gone("impatient")
    measured.note("from the start to all is right", f"{time.monotonic() - started:.2f} s")
    after = space.pod("patient")
    assert after is not None and uid_of(after) == uid_of(before)
    space.assert_one_mirror_each()
