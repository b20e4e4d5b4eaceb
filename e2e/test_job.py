"""A Job runs once, whatever becomes of its mirrors afterwards (C20, C42)."""

import pytest

from e2e.support.manifests import job, run_once
from e2e.support.pods import condition_of, phase_of, uid_of
from e2e.support.world import Space

pytest_plugins = ["e2e.support.fixtures"]
pytestmark = pytest.mark.e2e

QUIET_SECONDS = 7.0
"""Both sides are compared every 5 s, and what differs for another second is mended."""


def is_complete(space: Space) -> bool:
    found = space.hub.get("Job", space.namespace, "once")
    return found is not None and condition_of(found, "Complete").get("status") == "True"


def test_a_job_whose_mirrors_vanish_afterwards_never_runs_again(space: Space) -> None:
    """A completed Job stays complete, and its pods Succeeded, when its mirrors are destroyed."""
    space.create(job("once", space.node, completions=3))
    space.wait("the Job is complete", lambda: is_complete(space))
    hub_pods = space.pods()
    assert [phase_of(pod) for pod in hub_pods] == ["Succeeded"] * 3, space.explain()

    for mirror in space.mirrors():
        space.target.delete(
            "Pod", space.target_namespace, mirror["metadata"]["name"], grace_seconds=0
        )
    space.hold("no mirror returns", lambda: not space.mirrors(), seconds=QUIET_SECONDS)

    assert is_complete(space)
    after = {uid_of(pod): phase_of(pod) for pod in space.pods()}
    assert after == {uid_of(pod): "Succeeded" for pod in hub_pods}, space.explain()
    space.assert_one_mirror_each()
    mirrored = space.world.target_record.mirror_uids(space.target_namespace)
    assert set(mirrored) == {uid_of(pod) for pod in hub_pods}


def test_a_pod_that_succeeded_stays_so(space: Space) -> None:
    """A Succeeded hub pod stays so although its mirror is made to run again."""
    space.create(run_once("done", space.node))
    hub_pod = space.wait_phase("done", "Succeeded")
    space.target.patch(
        "Pod",
        space.target_namespace,
        "done",
        {"status": {"phase": "Running"}},
        subresource="status",
    )

    def unchanged() -> bool:
        found = space.pod("done")
        return found is not None and found["status"] == hub_pod["status"]

    space.hold("the hub pod's status stays as it is", unchanged, seconds=3.0)
    space.assert_one_mirror_each()
