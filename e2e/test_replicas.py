"""Two federate processes for one virtual node: one works, the other stands by (C13)."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from e2e.support.manifests import pod, pod_spec
from e2e.support.measuring import Measurements
from e2e.support.process import FederateProcess
from e2e.support.replicas import TAKEOVER_SECONDS, leader_of, wait_leading
from e2e.support.world import Space, World, hold
from e2e.support.worlds import Worlds
from e2e.testbed.provider import TestCluster

pytest_plugins = ["e2e.support.fixtures"]
pytestmark = pytest.mark.e2e

TAKEOVER_AFTER_STOP_SECONDS = 5.0
"""An orderly stop gives the lease back."""


@pytest.fixture
def first(worlds: Worlds, hub: TestCluster, target: TestCluster) -> Iterator[World]:
    """A world with a virtual node of its own, led by its federate.

    The processes get names, as if on different hosts: on one host, a federate sees at once that
    its predecessor's process is gone.
    """
    arguments = ["--identity", "first"]
    with worlds.world(node="shared", hub=hub, target=target, arguments=arguments) as found:
        yield found


@pytest.fixture
def second(first: World, tmp_path: Path) -> Iterator[World]:
    """The same virtual node with a second process, not started."""
    options = replace(first.federate.options, arguments=["--identity", "second"])
    standby = FederateProcess(options, folder=tmp_path / "standby")
    yield replace(first, federate=standby)
    standby.close()


def start_standby(world: World, leader: str) -> None:
    """Start a process while another leads, and see it stand by."""
    world.federate.start()
    world.federate.wait_ready()
    hold(
        f"{leader} leads on",
        lambda: leader_of(world) == leader,
        seconds=2.0,
        explain=world.federate.log_tail,
    )


def run_in(world: World, name: str) -> Space:
    space = Space(world, name)
    space.open()
    space.run_pod(pod(name, pod_spec(world.node)))
    return space


def test_a_standby_takes_over_from_a_killed_and_from_a_stopped_leader(
    first: World, second: World, measured: Measurements
) -> None:
    """A second process writes nothing until the first dies or stops, and then goes on."""
    assert leader_of(first) == "first"
    start_standby(second, "first")
    before = run_in(first, "before")

    first.federate.kill()
    seconds = wait_leading(second, "second")
    measured.seconds("takeover after kill -9", seconds, promise=TAKEOVER_SECONDS)
    after_kill = run_in(second, "after-kill")

    start_standby(first, "second")
    second.federate.stop()
    seconds = wait_leading(first, "first")
    measured.seconds("takeover after SIGTERM", seconds, promise=TAKEOVER_AFTER_STOP_SECONDS)
    after_stop = run_in(first, "after-stop")

    for space in (before, after_kill, after_stop):
        assert len(space.mirrors()) == 1, space.explain()
        space.assert_one_mirror_each()
        space.close()
