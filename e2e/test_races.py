"""Deleting races creating, and nothing is left (C53)."""

import time

import pytest

from e2e.support.manifests import pod, pod_spec
from e2e.support.measuring import Measurements
from e2e.support.world import Space

pytest_plugins = ["e2e.support.fixtures"]
pytestmark = pytest.mark.e2e

PODS = 60


@pytest.mark.parametrize("delay_seconds", [pytest.param(2.0, marks=pytest.mark.long), 0.3])
def test_pods_deleted_right_after_their_creation_leave_nothing(
    space: Space, measured: Measurements, delay_seconds: float
) -> None:
    """60 pods deleted 2 s after their creation, or at once, leave nothing on either side."""
    pods = space.pace.many(PODS)
    for number in range(pods):
        space.create(pod(f"brief-{number}", pod_spec(space.node)))
    time.sleep(delay_seconds)
    started = time.monotonic()
    space.hub.delete_all("Pod", space.namespace)
    space.wait_nothing_left(timeout_seconds=60.0)
    measured.note("until nothing was left", f"{time.monotonic() - started:.2f} s")

    space.hold("nothing comes back", lambda: not space.pods() and not space.mirrors(), seconds=2.0)
    assert len(space.hub_pod_uids()) == pods
    space.assert_one_mirror_each()
