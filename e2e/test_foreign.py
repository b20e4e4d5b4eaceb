"""What is not federate's in a target is never touched (C20, C23)."""

import pytest

from e2e.support.manifests import container, pod, pod_spec
from e2e.support.pods import MIRRORED_CONDITION, condition_of, is_ready, waiting_words
from e2e.support.witness import Json
from e2e.support.world import Space

pytest_plugins = ["e2e.support.fixtures"]
pytestmark = pytest.mark.e2e

RETRY_LIMIT_SECONDS = 60.0
"""Nothing tells federate that a stranger's pod is gone, but a retry at a slow pace finds it."""


@pytest.fixture
def stranger(space: Space) -> Json:
    """A pod of somebody else in the target namespace, called `taken`."""
    space.run_pod(pod("first", pod_spec(space.node)))
    body = pod("taken", {"containers": [container()]}, labels={"app": "strangers"})
    space.target.create(body, space.target_namespace)

    def settled() -> Json | None:
        found = space.mirror("taken")
        return found if found is not None and is_ready(found) else None

    return space.wait("the stranger's pod runs", settled)


def test_a_strangers_pod_of_the_same_name_is_not_touched(space: Space, stranger: Json) -> None:
    """A hub pod whose name is taken in the target waits and says why; the stranger's pod stays."""
    space.create(pod("taken", pod_spec(space.node)))
    waiting = space.wait_waiting("taken", "NameTaken")
    condition = condition_of(waiting, MIRRORED_CONDITION)
    assert (condition["status"], condition["reason"]) == ("False", "NameTaken")
    assert "taken" in waiting_words(waiting)
    space.hold(
        "the stranger's pod is byte for byte as it was",
        lambda: space.mirror("taken") == stranger,
        seconds=3.0,
    )

    space.delete_pod("taken")
    space.wait_pod_gone("taken")
    assert space.mirror("taken") == stranger


def test_a_name_given_free_is_used(space: Space, stranger: Json) -> None:
    """A hub pod that waited for its name runs after the stranger's pod is removed."""
    space.create(pod("taken", pod_spec(space.node)))
    space.wait_waiting("taken", "NameTaken")
    space.target.delete("Pod", space.target_namespace, "taken", grace_seconds=0)
    space.wait(
        "the hub pod runs",
        lambda: (found := space.pod("taken")) is not None and is_ready(found),
        timeout_seconds=RETRY_LIMIT_SECONDS,
    )
