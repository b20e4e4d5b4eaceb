"""federate ends when it is told to, deletes nothing, and says clearly when it cannot start."""

import signal
from pathlib import Path

import pytest

from e2e.support.manifests import pod, pod_spec
from e2e.support.measuring import Measurements
from e2e.support.pods import uid_of, version_of
from e2e.support.process import run_cli
from e2e.support.world import Space
from e2e.testbed.provider import TestCluster

pytest_plugins = ["e2e.support.fixtures"]
pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_federate_and_deletes_nothing(
    fragile_space: Space, measured: Measurements, number: signal.Signals
) -> None:
    """SIGTERM and Ctrl-C end federate within 5 s with code 0; node, hub pods and mirrors stay."""
    space, world = fragile_space, fragile_space.world
    for each in range(3):
        space.create(pod(f"stays-{each}", pod_spec(space.node)))
    hub_pods = space.wait_ready_pods(3)
    mirrors = {uid_of(m): version_of(m) for m in space.mirrors()}
    node = uid_of(world.read_node())

    seconds = world.federate.stop(number)
    measured.note("to the end", f"{seconds:.2f} s")
    assert world.federate.exit_code == 0

    space.hold(
        "mirrors stay as they are",
        lambda: {uid_of(m): version_of(m) for m in space.mirrors()} == mirrors,
        seconds=2.0,
    )
    assert {uid_of(p) for p in space.pods()} == {uid_of(p) for p in hub_pods}
    assert uid_of(world.read_node()) == node

    world.start_federate()
    space.run_pod(pod("another", pod_spec(space.node)))
    assert mirrors.keys() < {uid_of(m) for m in space.mirrors()}
    space.assert_one_mirror_each()


def absent(folder: Path) -> Path:
    return folder / "absent.yaml"


def not_yaml(folder: Path) -> Path:
    path = folder / "broken.yaml"
    path.write_text("clusters: [unclosed")
    return path


def without_cluster(folder: Path) -> Path:
    path = folder / "empty.yaml"
    path.write_text("apiVersion: v1\nkind: Config\nclusters: []\ncontexts: []\nusers: []\n")
    return path


@pytest.mark.parametrize("make", [absent, not_yaml, without_cluster])
@pytest.mark.parametrize("side", ["hub", "target"])
def test_a_bad_kubeconfig_is_told_in_one_line(
    tmp_path: Path, hub: TestCluster, make: object, side: str
) -> None:
    """A kubeconfig that cannot be used ends federate with code 2 and one line that names it."""
    assert callable(make)
    bad = make(tmp_path)
    paths = {"hub": hub.kubeconfig, "target": hub.kubeconfig, side: bad}
    ended = run_cli(
        "run", "--hub", str(paths["hub"]), "--target", f"edge={paths['target']}",
        "--listen", "127.0.0.1:0",
    )  # fmt: skip
    assert ended.returncode == 2, ended.stderr
    told = [line for line in ended.stderr.splitlines() if bad.name in line]
    assert len(told) == 1, ended.stderr
    assert "Traceback" not in ended.stderr
