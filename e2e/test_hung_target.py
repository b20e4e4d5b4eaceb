"""One target that hangs never slows another that the same process serves (C2)."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import pytest

from e2e.support.manifests import pod, pod_spec
from e2e.support.measuring import Measurements
from e2e.support.pods import condition_of, is_ready, name_of, phase_of
from e2e.support.proxied import proxied
from e2e.support.world import Space, World, wait_for
from e2e.support.worlds import Worlds
from e2e.testbed.faultproxy import FaultProxy
from e2e.testbed.fixtures import TARGET, TestbedFactory
from e2e.testbed.local import LocalCluster

pytest_plugins = ["e2e.support.fixtures"]
pytestmark = pytest.mark.e2e

CALM, HUNG = "calm", "hung"
"""Two virtual nodes of one process."""

SAMPLES = 5
BURST = 40
"""More pods than a virtual node has workers for each kind of work."""

WORSE_AT_MOST, SLACK_SECONDS = 3.0, 1.0
ANNOUNCED_SECONDS = 5.0
NOTICE_SECONDS = 15.0
BACK_SECONDS = 10.0

FROZEN = replace(TARGET, name="hung-target", nodes=1, service_range="10.104.0.0/16")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hanging:
    """A target that can be made to hang, and to come back."""

    kubeconfig: Path
    begin: Callable[[], object]
    end: Callable[[], object]


@contextmanager
def dropping(target: LocalCluster) -> Iterator[Hanging]:
    """Let a target's packets vanish on their way; at the end connections are reset."""
    with FaultProxy.before(target) as proxy:

        def end() -> None:
            assert proxy.inflicted["drop"] > 0, "the hang was not felt"
            proxy.lift_all()
            proxy.reset().lift()

        yield Hanging(kubeconfig=proxy.kubeconfig, begin=proxy.drop, end=end)


@contextmanager
def freezing(testbed_factory: TestbedFactory) -> Iterator[Hanging]:
    """Start a target of its own, whose API server can be frozen."""
    cluster = testbed_factory.cluster(FROZEN)
    try:
        yield Hanging(
            kubeconfig=cluster.kubeconfig,
            begin=cluster.pause_apiserver,
            end=cluster.resume_apiserver,
        )
    finally:
        cluster.stop()


@contextmanager
def serving(
    worlds: Worlds,
    hub: LocalCluster,
    target: LocalCluster,
    hanging: Hanging,
    *,
    started: bool = True,
) -> Iterator[World]:
    """Run one process for both targets; the world is the calm one's."""
    arguments = ["--target", f"{HUNG}={hanging.kubeconfig}"]
    with proxied(
        worlds, node=CALM, hub=hub, target=target, arguments=arguments, started=started
    ) as world:
        try:
            yield world
        finally:
            world.federate.close()
            world.hub.delete("Node", "", HUNG)


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """How long the ways of a pod take from outside, in seconds."""

    to_running: float
    to_gone: float


def measure(space: Space, when: str) -> Latency:
    """Let some pods live one after the other; return the median of each way."""
    ups, downs = [], []
    for number in range(SAMPLES):
        name = f"{when}-{number}"
        started = time.monotonic()
        space.run_pod(pod(name, pod_spec(CALM)))
        ups.append(time.monotonic() - started)
        started = time.monotonic()
        space.delete_pod(name)
        space.wait_pod_gone(name)
        space.wait_mirror_gone(name)
        downs.append(time.monotonic() - started)
    return Latency(to_running=median(ups), to_gone=median(downs))


def assert_as_before(measured: Measurements, when: str, found: Latency, before: Latency) -> None:
    """Hold what was measured in a hang against what was before it."""
    for what, seconds, usual in (
        ("create to Running", found.to_running, before.to_running),
        ("delete to gone", found.to_gone, before.to_gone),
    ):
        measured.note(f"{what} {when}", f"{seconds:.2f} s (before {usual:.2f} s)")
        assert seconds <= WORSE_AT_MOST * usual + SLACK_SECONDS, f"{what} {when}"


def hung_node(world: World) -> dict[str, str]:
    """Say what the hub knows of the hung target."""
    node = world.hub.get("Node", "", HUNG) or {}
    return {
        "ready": str(bool(node) and is_ready(node)),
        "reachable": str(condition_of(node, "federate.dev/TargetReachable").get("status")),
    }


def wait_hung_node(world: World, key: str, value: str) -> float:
    """Wait for the hub's word on the hung target; return the seconds it took."""
    started = time.monotonic()
    wait_for(
        f"node {HUNG} has {key}={value}",
        lambda: hung_node(world)[key] == value,
        timeout_seconds=5 * NOTICE_SECONDS,
        explain=world.federate.log_tail,
    )
    return time.monotonic() - started


def keep_busy(space: Space) -> None:
    """Give the hung target more to create and to delete than it has workers for."""
    for number in range(BURST):
        space.delete_pod(f"old-{number}")
        space.create(pod(f"new-{number}", pod_spec(HUNG)))


def run_burst(space: Space) -> None:
    """Fill the target that will hang with pods."""
    for number in range(BURST):
        space.create(pod(f"old-{number}", pod_spec(HUNG)))
    space.wait_ready_pods(BURST)


def wait_caught_up(space: Space) -> None:
    """Wait until what was asked of the hung target is done."""
    names = {f"new-{number}" for number in range(BURST)}
    space.wait(
        "the target that hung has caught up",
        lambda: {name_of(p): phase_of(p) for p in space.pods()} == dict.fromkeys(names, "Running"),
        timeout_seconds=60.0,
    )


def test_a_hung_target_does_not_slow_another(
    worlds: Worlds, local_hub: LocalCluster, local_target: LocalCluster, measured: Measurements
) -> None:
    """While one target drops everything, another's pods come and go as fast as ever."""
    with (
        dropping(local_target) as hanging,
        serving(worlds, local_hub, local_target, hanging) as world,
    ):
        space = Space(world, "hung")
        space.open()
        run_burst(space)
        before = measure(space, "before")
        hanging.begin()
        keep_busy(space)
        assert_as_before(measured, "in the hang", measure(space, "during"), before)
        hanging.end()
        started = time.monotonic()
        wait_caught_up(space)
        measured.seconds("to catch up", time.monotonic() - started, promise=BACK_SECONDS)
        space.assert_one_mirror_each()
        space.close()


@pytest.mark.long
def test_a_frozen_target_does_not_slow_another(
    worlds: Worlds,
    local_hub: LocalCluster,
    local_target: LocalCluster,
    testbed_factory: TestbedFactory,
    measured: Measurements,
) -> None:
    """A target whose API server is frozen slows no other, before and after it is noticed."""
    with (
        freezing(testbed_factory) as hanging,
        serving(worlds, local_hub, local_target, hanging) as world,
    ):
        space = Space(world, "frozen")
        space.open()
        run_burst(space)
        before = measure(space, "before")
        hanging.begin()
        try:
            keep_busy(space)
            assert_as_before(measured, "in the hang", measure(space, "during"), before)
            seconds = wait_hung_node(world, "reachable", "False")
            measured.seconds("until the hang is told", seconds, promise=NOTICE_SECONDS)
            assert_as_before(measured, "when it is known", measure(space, "known"), before)
        finally:
            hanging.end()
        wait_hung_node(world, "reachable", "True")
        wait_caught_up(space)
        space.close()


def test_a_target_that_hangs_from_the_start_does_not_keep_another_from_starting(
    worlds: Worlds, local_hub: LocalCluster, local_target: LocalCluster, measured: Measurements
) -> None:
    """With one target hung at the start, the other serves at once, and the hung one when it can."""
    with dropping(local_target) as hanging:
        hanging.begin()
        with serving(worlds, local_hub, local_target, hanging, started=False) as world:
            started = time.monotonic()
            world.federate.start()
            world.wait_node_ready()
            seconds = time.monotonic() - started
            measured.seconds("until the other takes pods", seconds, promise=ANNOUNCED_SECONDS)
            space = Space(world, "start")
            space.open()
            space.run_pod(pod("calm", pod_spec(CALM)))
            assert hung_node(world)["ready"] == "False", "nothing is announced that is not true"
            hanging.end()
            seconds = wait_hung_node(world, "ready", "True")
            measured.seconds("until the hung one is there", seconds, promise=BACK_SECONDS)
            space.run_pod(pod("hung", pod_spec(HUNG)))
            space.close()
