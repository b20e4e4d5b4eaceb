"""A target that hangs is as dead as one that refuses, and nothing on the hub is lost (C12, C45)."""

import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from e2e.support.manifests import deployment, pod, pod_spec
from e2e.support.measuring import Measurements
from e2e.support.pods import condition_of, is_ready, is_terminating, phase_of, uid_of
from e2e.support.witness import Json
from e2e.support.world import Space, World, wait_for
from e2e.support.worlds import Worlds
from e2e.testbed.fixtures import TARGET, TestbedFactory
from e2e.testbed.local import LocalCluster

pytest_plugins = ["e2e.support.fixtures"]
pytestmark = pytest.mark.e2e

NOTICE_SECONDS = 15.0
RETURN_SECONDS = 5.0

LEASE_PERIOD_SECONDS = 10.0

LONG_OUTAGE_SECONDS = 90.0
GIVEN_UP_SECONDS = 65.0
"""The hub waits 40 or 50 s for a silent node, depending on its version, and looks every 5 s."""

REPLICAS = 3

# Its own controllers, frozen out too, shall not give up on its nodes: kwok does not make pods ready
# again, as a kubelet would.
FROZEN_TARGET = replace(
    TARGET,
    name="frozen-target",
    nodes=1,
    service_range="10.103.0.0/16",
    controller_manager_arguments=("--node-monitor-grace-period=300s",),
)


@pytest.fixture(scope="module")
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
    worlds: Worlds, local_hub: LocalCluster, frozen_target: LocalCluster, measured: Measurements
) -> None:
    """A frozen target shows on the node within 15 s, fails no pod, and is back within seconds."""
    with worlds.world(node="frozen", hub=local_hub, target=frozen_target) as world:
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
def test_a_target_frozen_for_long_costs_no_pod(
    worlds: Worlds, local_hub: LocalCluster, frozen_target: LocalCluster, measured: Measurements
) -> None:
    """After 90 s of a frozen target, for which the hub calls the node dead, every pod goes on."""
    with worlds.world(node="frozen", hub=local_hub, target=frozen_target) as world:
        space = Space(world, "long-outage")
        space.open()
        space.create(deployment("web", pod_spec(space.node), replicas=REPLICAS))
        space.create(pod("bare", pod_spec(space.node)))
        before = {uid_of(found) for found in space.wait_ready_pods(REPLICAS + 1)}
        frozen_target.pause_apiserver()
        thawing_at = time.monotonic() + LONG_OUTAGE_SECONDS
        try:
            seconds = wait_reachable(world, "False")
            measured.seconds("until the outage is told", seconds, promise=NOTICE_SECONDS)
            seconds += wait_ready_condition(world, "Unknown")
            measured.seconds("until the hub calls the node dead", seconds, promise=GIVEN_UP_SECONDS)
            space.wait("its pods are not ready", lambda: not any(map(is_ready, space.pods())))
            space.hold(
                "no pod is evicted, failed or replaced",
                lambda: is_untouched(space, before),
                seconds=thawing_at - time.monotonic(),
            )
        finally:
            frozen_target.resume_apiserver()
        thawed_at = time.monotonic()
        seconds = wait_reachable(world, "True")
        measured.seconds("until its return is told", seconds, promise=RETURN_SECONDS)
        world.wait_node_ready()
        space.wait_ready_pods(REPLICAS + 1)
        measured.note("until all is ready again", f"{time.monotonic() - thawed_at:.2f} s")
        assert {uid_of(found) for found in space.pods()} == space.hub_pod_uids() == before
        assert not world.hub_record.find(
            lambda event: event.phase == "Failed" or event.is_terminating, namespace=space.namespace
        )
        space.assert_one_mirror_each()
        space.close()


def wait_ready_condition(world: World, status: str) -> float:
    """Wait until the node's Ready condition has the status; return the seconds it took."""
    started = time.monotonic()
    wait_for(
        f"the node's Ready is {status}",
        lambda: condition_of(world.read_node(), "Ready").get("status") == status,
        timeout_seconds=2 * GIVEN_UP_SECONDS,
        explain=world.federate.log_tail,
    )
    return time.monotonic() - started


def is_untouched(space: Space, before: set[str]) -> bool:
    """Tell whether the hub pods are the same as before, and none of them ends."""
    pods = space.pods()
    ends = any(is_terminating(found) or phase_of(found) != "Running" for found in pods)
    return {uid_of(found) for found in pods} == before and not ends


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
