"""A hub pod goes away: its mirror first, whoever deleted it and whenever (C50-C52, C54)."""

import pytest

from e2e.support.manifests import pod, pod_spec, slow_to_end, unmirrored
from e2e.support.pods import is_terminating, name_of, phase_of, uid_of
from e2e.support.recorder import Change
from e2e.support.spare import AT_ONCE_SECONDS
from e2e.support.world import Space

pytest_plugins = ["e2e.support.fixtures"]
pytestmark = pytest.mark.e2e


def run_plain(space: Space, name: str) -> str:
    """Run a bare pod and return its uid."""
    return uid_of(space.run_pod(pod(name, pod_spec(space.node))))


def test_a_hub_pod_outlives_its_mirror(space: Space) -> None:
    """A deleted hub pod stays, terminating and without a finalizer, until its mirror is gone."""
    uid = uid_of(space.run_pod(slow_to_end("graceful", space.node, seconds=6)))
    space.delete_pod("graceful")
    space.wait(
        "the mirror is being deleted",
        lambda: (m := space.mirror("graceful")) is not None and is_terminating(m),
    )

    def stays() -> bool:
        found = space.pod("graceful")
        return (
            found is not None
            and is_terminating(found)
            and not found["metadata"].get("finalizers")
            and phase_of(found) == "Running"
        )

    space.hold("the hub pod stays while its mirror ends", stays, seconds=3.0)
    asked = space.world.target_record.find(lambda e: e.hub_pod_uid == uid and e.is_terminating)
    assert asked is not None and asked.grace_seconds == 30
    space.wait_pod_gone("graceful")
    last_phases = [e.phase for e in space.world.hub_record.events(uid=uid)]
    assert last_phases[-1] in ("Failed", "Succeeded"), last_phases
    gone_on_hub = space.world.hub_record.find(lambda e: e.uid == uid and e.change is Change.DELETED)
    gone_in_target = space.world.target_record.find(
        lambda e: e.hub_pod_uid == uid and e.change is Change.DELETED
    )
    assert gone_on_hub and gone_in_target
    assert gone_in_target.at <= gone_on_hub.at + AT_ONCE_SECONDS


def test_a_shortened_grace_reaches_the_mirror(space: Space) -> None:
    """Deleting a terminating hub pod again with less grace shortens its mirror's too."""
    space.run_pod(slow_to_end("hurried", space.node, seconds=6))

    def mirror_grace() -> int | None:
        mirror = space.mirror("hurried")
        assert mirror is not None, space.explain()
        grace: int | None = mirror["metadata"].get("deletionGracePeriodSeconds")
        return grace

    space.delete_pod("hurried", grace_seconds=20)
    space.wait("the mirror has the hub pod's grace", lambda: mirror_grace() == 20)
    space.delete_pod("hurried", grace_seconds=5)
    space.wait("the mirror has the shorter grace", lambda: mirror_grace() == 5)
    space.wait_pod_gone("hurried")


def test_a_force_deleted_hub_pod_takes_its_mirror_along(space: Space) -> None:
    """A hub pod deleted with grace 0 is gone at once, and its mirror soon after."""
    run_plain(space, "forced")
    space.delete_pod("forced", grace_seconds=0)
    assert space.pod("forced") is None
    space.wait_mirror_gone("forced", timeout_seconds=5.0)


def test_a_deleted_hub_namespace_takes_its_mirrors_along(space: Space) -> None:
    """Deleting a hub namespace removes the mirrors of its pods, and the namespace goes."""
    for number in range(5):
        space.create(pod(f"inside-{number}", pod_spec(space.node)))
    space.wait_ready_pods(5)
    space.hub.delete("Namespace", "", space.namespace)
    space.wait_nothing_left()
    space.wait(
        "the hub namespace is gone",
        lambda: space.hub.get("Namespace", "", space.namespace) is None,
        timeout_seconds=60.0,
    )


def test_a_pod_without_a_mirror_is_finished_at_once(space: Space) -> None:
    """A pod that waits for what cannot be mirrored goes away as soon as it is deleted."""
    space.create(unmirrored("waits", space.node))
    space.wait_waiting("waits", "ClaimRefused")
    space.delete_pod("waits")
    space.wait_pod_gone("waits")
    assert not space.world.target_record.mirror_uids(space.target_namespace)


def test_hub_pods_deleted_while_federate_is_down_are_finished_after(fragile_space: Space) -> None:
    """A hub pod deleted in federate's absence waits for it; a forced one leaves no orphan."""
    space = fragile_space
    run_plain(space, "waits")
    run_plain(space, "forced")
    run_plain(space, "stays")
    space.world.federate.stop()

    space.delete_pod("waits")
    space.delete_pod("forced", grace_seconds=0)

    def nobody_acts() -> bool:
        waiting = space.pod("waits")
        return waiting is not None and is_terminating(waiting) and len(space.mirrors()) == 3

    space.hold("nobody finishes anything while federate is down", nobody_acts, seconds=3.0)
    space.world.start_federate()
    space.wait_pod_gone("waits")
    space.wait_mirror_gone("waits")
    space.wait_mirror_gone("forced")
    assert [name_of(p) for p in space.pods()] == ["stays"]
    assert [name_of(m) for m in space.mirrors()] == ["stays"]
    space.assert_one_mirror_each()
