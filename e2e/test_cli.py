"""The commands a person types besides `federate run`."""

import json

import pytest

from e2e.support.manifests import pod, pod_spec, unmirrored
from e2e.support.process import run_cli
from e2e.support.world import Space, World
from e2e.testbed.provider import TestCluster

pytest_plugins = ["e2e.support.fixtures"]
pytestmark = pytest.mark.e2e


def test_status_shows_the_node_and_why_a_pod_waits(space: Space, hub: TestCluster) -> None:
    """`federate status` shows the virtual nodes and the reason of each waiting pod."""
    space.create(unmirrored("waits", space.node))
    space.wait_waiting("waits", "ClaimRefused")
    told = run_cli("status", "--hub", str(hub.kubeconfig))
    assert told.returncode == 0, told.stderr
    assert space.node in told.stdout
    assert "ClaimRefused" in told.stdout
    parsed = run_cli("status", "--hub", str(hub.kubeconfig), "-o", "json")
    assert parsed.returncode == 0, parsed.stderr
    assert space.namespace in parsed.stdout
    json.loads(parsed.stdout)


def test_sweep_shows_an_orphan_and_deletes_it_when_told_to(
    fragile_space: Space, hub: TestCluster, target: TestCluster
) -> None:
    """`federate sweep --dry-run` names an orphan and deletes nothing; `--yes` deletes only it."""
    space = fragile_space
    space.run_pod(pod("orphan", pod_spec(space.node)))
    space.run_pod(pod("wanted", pod_spec(space.node)))
    space.world.federate.stop()
    space.delete_pod("orphan", grace_seconds=0)
    command = ["sweep", "--hub", str(hub.kubeconfig), "--target", f"fragile={target.kubeconfig}"]

    shown = run_cli(*command, "--dry-run")
    assert shown.returncode == 0, shown.stderr
    assert "orphan" in "".join(shown.stdout.split())
    assert "wanted" not in shown.stdout
    assert len(space.mirrors()) == 2

    unsure = run_cli(*command)
    assert unsure.returncode == 2, "without a terminal somebody has to say --yes"
    assert len(space.mirrors()) == 2

    swept = run_cli(*command, "--yes")
    assert swept.returncode == 0, swept.stderr
    space.wait_mirror_gone("orphan")
    assert space.mirror("wanted") is not None


def test_version_is_told() -> None:
    """`federate version` names federate."""
    told = run_cli("version")
    assert told.returncode == 0, told.stderr
    assert "federate" in told.stdout


def test_health_and_metrics_are_served(world: World) -> None:
    """A running federate answers for its health and readiness, and counts its work."""
    world.federate.fetch("/healthz")
    world.federate.fetch("/readyz")
    assert "federate_request_duration_seconds_count" in world.federate.fetch("/metrics")
