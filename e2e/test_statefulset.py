"""A StatefulSet's pod and its successor have one name, and never two mirrors at once (C20)."""

import pytest

from e2e.support.manifests import pod_spec, stateful_set
from e2e.support.pods import is_terminating, uid_of
from e2e.support.recorder import Change
from e2e.support.witness import Json
from e2e.support.world import Space

pytest_plugins = ["e2e.support.fixtures"]
pytestmark = pytest.mark.e2e

NAME = "web-0"


def run_first(space: Space) -> Json:
    space.create(stateful_set("web", pod_spec(space.node)))
    return space.wait_phase(NAME, "Running")


def assert_mirrors_took_turns(space: Space, *hub_pods: Json) -> None:
    """Make sure that each hub pod had one mirror, and each began after the last was gone."""
    history = [
        event
        for event in space.world.target_record.events(namespace=space.target_namespace)
        if event.name == NAME and event.change in (Change.CREATED, Change.DELETED)
    ]
    turns = [(event.hub_pod_uid, event.change) for event in history]
    first, *later = [uid_of(pod) for pod in hub_pods]
    expected = [(first, Change.CREATED)]
    for before, after in zip([first, *later], later, strict=False):
        expected += [(before, Change.DELETED), (after, Change.CREATED)]
    assert turns == expected, space.explain()


def test_a_statefulset_pods_successor_gets_a_mirror_of_its_own(space: Space) -> None:
    """The successor of a deleted StatefulSet pod runs in a new mirror, after the old one ended."""
    first = run_first(space)
    space.delete_pod(NAME)
    second = space.wait_phase(NAME, "Running", not_uid=uid_of(first))
    assert_mirrors_took_turns(space, first, second)


def test_a_successor_waits_for_the_mirror_of_a_force_deleted_pod(space: Space) -> None:
    """The successor of a force-deleted pod waits, and says so, while the old mirror still ends."""
    first = run_first(space)
    held = space.read_mirror(NAME)
    space.hold_mirror(held)
    try:
        space.delete_pod(NAME, grace_seconds=0)
        waiting = space.wait_waiting(NAME, "PredecessorTerminating")
        assert uid_of(waiting) != uid_of(first)
        mirror = space.read_mirror(NAME)
        assert uid_of(mirror) == uid_of(held) and is_terminating(mirror), space.explain()
    finally:
        space.release_mirror(held)
    second = space.wait_phase(NAME, "Running", not_uid=uid_of(first))
    assert_mirrors_took_turns(space, first, second)


def test_a_successor_made_while_federate_is_down_gets_a_mirror_of_its_own(
    fragile_space: Space,
) -> None:
    """A pod replaced in federate's absence runs in a mirror of its own after the return."""
    space = fragile_space
    first = run_first(space)
    space.world.federate.stop()
    space.delete_pod(NAME, grace_seconds=0)

    def successor() -> Json | None:
        found = space.pod(NAME)
        is_bound = found is not None and found["spec"].get("nodeName") == space.node
        return found if is_bound and found and uid_of(found) != uid_of(first) else None

    second = space.wait("the successor is bound", successor)
    space.world.start_federate()
    running = space.wait_phase(NAME, "Running", not_uid=uid_of(first))
    assert uid_of(running) == uid_of(second)
    assert_mirrors_took_turns(space, first, second)
