"""A mirror is deleted in the target by somebody else: the hub pod's owner replaces it (C43)."""

import time
from collections.abc import Callable

import pytest

from e2e.support.manifests import deployment, pod_spec, slow_to_end
from e2e.support.measuring import Measurements
from e2e.support.pods import condition_of, is_ready, is_terminating, name_of, phase_of, uid_of
from e2e.support.witness import Json
from e2e.support.world import Space

pytest_plugins = ["e2e.support.fixtures"]
pytestmark = pytest.mark.e2e

PROMISE_SECONDS = 1.0
"""From the deletion to a hub pod that says so: one watch event and a write or two."""


def delete_plainly(space: Space, name: str) -> None:
    space.target.delete("Pod", space.target_namespace, name)


def evict(space: Space, name: str) -> None:
    space.target.evict(space.target_namespace, name)


def destroy(space: Space, name: str) -> None:
    space.target.delete("Pod", space.target_namespace, name, grace_seconds=0)


def run_one(space: Space) -> Json:
    """Run a Deployment of one pod, and return that pod."""
    space.create(deployment("web", pod_spec(space.node), replicas=1))
    (hub_pod,) = space.wait_ready_pods(1)
    return hub_pod


def wait_replaced(space: Space, old: Json) -> Json:
    """Wait until another ready pod stands in for the old one."""

    def probe() -> Json | None:
        others = [pod for pod in space.pods() if uid_of(pod) != uid_of(old)]
        return next(filter(is_ready, others), None)

    return space.wait("the ReplicaSet's new pod is ready", probe)


@pytest.mark.parametrize("delete", [delete_plainly, evict, destroy])
def test_a_mirror_deleted_in_the_target_takes_its_hub_pod_along(
    space: Space, measured: Measurements, delete: Callable[[Space, str], None]
) -> None:
    """A mirror deleted in the target, kindly or not, takes its hub pod along, which is replaced."""
    hub_pod = run_one(space)
    name = name_of(hub_pod)

    started = time.monotonic()
    delete(space, name)
    space.wait(
        "the hub pod ends",
        lambda: (pod := space.pod(name)) is None or is_terminating(pod),
    )
    measured.seconds(
        "from the deletion to the hub pod's", time.monotonic() - started, promise=PROMISE_SECONDS
    )
    wait_replaced(space, hub_pod)
    measured.note("to a ready replacement", f"{time.monotonic() - started:.2f} s")

    space.wait_pod_gone(name)
    *_, last = space.world.hub_record.events(uid=uid_of(hub_pod))
    assert last.phase == "Failed", last
    assert last.conditions["DisruptionTarget"]["status"] == "True"
    assert not last.is_ready
    space.assert_one_mirror_each()
    assert len(space.hub_pod_uids()) == 2, space.explain()


def test_a_mirror_that_vanished_unseen_fails_its_hub_pod(
    fragile_space: Space, measured: Measurements
) -> None:
    """A mirror destroyed while federate is down fails its hub pod as MirrorLost, exit code 137."""
    space = fragile_space
    hub_pod = run_one(space)
    space.world.federate.stop()
    destroy(space, name_of(hub_pod))
    started = time.monotonic()
    space.world.start_federate()
    failed = space.wait_phase(name_of(hub_pod), "Failed")
    measured.note("from the start to a Failed hub pod", f"{time.monotonic() - started:.2f} s")
    wait_replaced(space, hub_pod)

    assert uid_of(failed) == uid_of(hub_pod)
    assert failed["status"]["reason"] == "MirrorLost"
    (ended,) = failed["status"]["containerStatuses"]
    assert ended["state"]["terminated"]["exitCode"] == 137
    assert condition_of(failed, "DisruptionTarget")["status"] == "True"
    assert condition_of(failed, "Ready")["status"] == "False"
    space.assert_one_mirror_each()


def test_a_mirror_destroyed_while_ending_by_drain_is_no_loss(space: Space) -> None:
    """A bare pod whose mirror lingers in deletion waits for it, terminating, and is gone after."""
    name = "lingers"
    space.run_pod(slow_to_end(name, space.node, seconds=5))
    delete_plainly(space, name)
    space.wait(
        "the hub pod is terminating",
        lambda: (pod := space.pod(name)) is not None and is_terminating(pod),
    )
    space.hold(
        "the hub pod stays, not Failed, while its mirror ends",
        lambda: (pod := space.pod(name)) is not None and phase_of(pod) == "Running",
        seconds=2.0,
    )
    space.wait_pod_gone(name)
    space.wait_mirror_gone(name)
