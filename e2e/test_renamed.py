"""A virtual node leaves the command line, or gets another name: nothing goes but by command.

One story (C15, C51): a process serves the nodes `kept` and `former` of one target, the next one
`kept` and `renamed`. The tests look at what the first said at its end, and at what stays of
`former`.
"""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from e2e.support.manifests import pod, pod_spec
from e2e.support.measuring import Measurements
from e2e.support.pods import name_of, uid_of, version_of
from e2e.support.process import FederateProcess, run_cli, run_sweep
from e2e.support.world import Space, World
from e2e.support.worlds import Worlds
from e2e.testbed.provider import TestCluster

pytest_plugins = ["e2e.support.fixtures"]
pytestmark = pytest.mark.e2e

OLD_PODS = ("one", "two")

SETTLED_SECONDS = 2.0

SWEEP_PERIOD_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One namespace, before and after the nodes of the command line changed."""

    old: Space
    """For pods on `former`, whose process has ended."""
    new: Space
    """For pods on `renamed`, which is served."""
    before: dict[str, str]
    """What stood for `former` at the end of its process."""
    told: str
    """What that process said."""


@pytest.fixture(scope="module")
def change(
    worlds: Worlds,
    hub: TestCluster,
    target: TestCluster,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Change]:
    """Serve the old nodes, stop, and serve the new ones."""
    also_kept = ["--target", f"kept={target.kubeconfig}"]
    with worlds.world(node="former", hub=hub, target=target, arguments=also_kept) as before:
        old = Space(before, "renamed")
        old.open()
        old.create(pod("stays", pod_spec("kept")))
        for name in OLD_PODS:
            old.create(pod(name, pod_spec("former")))
        old.wait_ready_pods(1 + len(OLD_PODS))
        before.federate.stop()
        state, told = state_of_former(old), before.federate.log.read_text()
        after = renamed(before, tmp_path_factory.mktemp("renamed"))
        after.start_federate()
        yield Change(old=old, new=beside(old, after), before=state, told=told)
        clean_up(old, after)


def renamed(world: World, folder: Path) -> World:
    """Return the world with another name for its node, served by another process."""
    options = replace(world.federate.options, node="renamed")
    return replace(world, federate=FederateProcess(options, folder=folder))


def beside(space: Space, world: World) -> Space:
    """Return the same namespace for the pods of another node."""
    found = Space(world, "renamed")
    found.namespace, found.target_namespace = space.namespace, space.target_namespace
    return found


def clean_up(old: Space, after: World) -> None:
    """Leave nothing behind, of the node that nobody serves either."""
    for name in OLD_PODS:
        old.hub.delete("Pod", old.namespace, name, grace_seconds=0)
        old.target.delete("Pod", old.target_namespace, name)
    beside(old, after).close()
    after.federate.close()
    after.forget_node()
    old.hub.delete("Node", "", "kept")


def state_of_former(space: Space) -> dict[str, str]:
    """Return the Node and the hub pods by their uids, and the mirrors by their versions."""
    found = {f"hub pod {name}": space.pod(name) for name in OLD_PODS}
    found["Node"] = space.hub.get("Node", "", "former")
    mirrors = {f"mirror {name}": space.mirror(name) for name in OLD_PODS}
    uids = {what: uid_of(each) for what, each in found.items() if each is not None}
    versions = {what: version_of(each) for what, each in mirrors.items() if each is not None}
    return uids | versions


def unknown_mirrors(world: World) -> float:
    """Read from /metrics how many mirrors of other virtual nodes of the hub were seen."""
    page = world.federate.fetch("/metrics").splitlines()
    wanted = f'federate_unknown_mirrors{{target="{world.node}"}} '
    (line,) = (line for line in page if line.startswith(wanted))
    return float(line.removeprefix(wanted))


def test_how_to_leave_is_printed_for_each_node_at_the_end(change: Change) -> None:
    """A stopped federate says that nothing is deleted, and how to leave each node for good."""
    assert "Stopped. Nothing is deleted" in change.told
    for node in ("former", "kept"):
        assert f"  federate leave {node} --target {node}=" in change.told, change.told


@pytest.mark.long
def test_the_printed_command_leaves_for_good(
    worlds: Worlds, hub: TestCluster, target: TestCluster
) -> None:
    """Who does as the stopped federate said has no node, no pods and no mirrors in the end."""
    with worlds.world(node="leaving", hub=hub, target=target) as world:
        space = Space(world, "leaving")
        space.open()
        space.run_pod(pod("last", pod_spec("leaving")))
        world.federate.stop()
        told = world.federate.log.read_text()
        [command] = [line for line in told.splitlines() if line.startswith("  federate leave ")]
        left = run_cli(*shlex.split(command)[1:], "--yes", "--force", timeout_seconds=240.0)
        assert left.returncode == 0, left.stdout + left.stderr
        space.wait_nothing_left()
        space.hold(
            "the node stays away",
            lambda: space.hub.get("Node", "", "leaving") is None,
            seconds=SETTLED_SECONDS,
        )
        space.close()


def test_a_node_that_is_no_longer_served_keeps_everything(change: Change) -> None:
    """Node, hub pods and mirrors of a node that has left the command line stay; new nodes work."""
    old, new = change.old, change.new
    new.run_pod(pod("three", pod_spec("renamed")))
    new.run_pod(pod("four", pod_spec("kept")))
    new.hold(
        "all that was the old node's stays as it was",
        lambda: state_of_former(old) == change.before,
        seconds=SETTLED_SECONDS,
    )
    new.assert_one_mirror_each()


@pytest.mark.long
def test_mirrors_of_a_former_node_are_counted(change: Change, measured: Measurements) -> None:
    """The periodic sweep counts mirrors of other virtual nodes of the hub, and tells them once."""
    new = change.new
    new.wait(
        "the mirrors of the old node are counted",
        lambda: unknown_mirrors(new.world) >= len(OLD_PODS),
        timeout_seconds=3 * SWEEP_PERIOD_SECONDS,
    )
    measured.note("mirrors of other virtual nodes in the target", unknown_mirrors(new.world))
    assert state_of_former(change.old) == change.before
    assert "`federate sweep` lists them" in new.world.federate.log_tail()


def test_mirrors_of_a_former_node_go_by_command(change: Change) -> None:
    """A sweep shows the mirrors of a former node and leaves them; one under its name removes them.

    Even so only those whose hub pods are gone.
    """
    old, new = change.old, change.new
    told = run_sweep(new.world.federate.options, "--yes")
    assert "Noorphansofrenamed." in told and "Nottouched" in told and "former" in told, told
    former = replace(new.world.federate.options, node="former")
    assert "Noorphansofformer." in run_sweep(former, "--yes")
    assert state_of_former(old) == change.before

    gone, stays = OLD_PODS
    old.delete_pod(gone, grace_seconds=0)
    assert "Orphansofformer" in run_sweep(former, "--yes")
    old.wait_mirror_gone(gone)
    left = {what: each for what, each in change.before.items() if not what.endswith(f" {gone}")}
    assert state_of_former(old) == left
    assert stays in {name_of(mirror) for mirror in new.mirrors()}
