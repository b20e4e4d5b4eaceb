"""A target's admin removes federate from a namespace by deleting one object (C23)."""

from collections.abc import Iterator

import pytest

from e2e.support.manifests import deployment, pod, pod_spec
from e2e.support.pods import annotations_of, condition_of, is_terminating, phase_of, uid_of
from e2e.support.world import Space, wait_for
from e2e.testbed.provider import TestCluster
from federate.model.marks import REINSTALL_ANNOTATION
from federate.model.reasons import NodeReason, PodReason

pytest_plugins = ["e2e.support.fixtures"]
pytestmark = pytest.mark.e2e

NAMESPACE_SECONDS = 60.0
"""Kubernetes gives a deleted namespace five seconds before it touches what is inside."""


@pytest.fixture
def reinstalled(space: Space) -> Iterator[Space]:
    """The space, given free again after the test, whatever came of it."""
    yield space
    if node_reason(space) == NodeReason.UNINSTALLED:
        allow(space)


def anchors_of(space: Space) -> list[str]:
    return [
        found["metadata"]["name"]
        for found in space.target.list("ConfigMap", space.target_namespace)
        if found["metadata"]["name"].startswith("federate-anchor-")
    ]


def delete_anchor(space: Space) -> str:
    """Delete the anchor, and wait until the target has removed what it owned."""
    (anchor,) = anchors_of(space)
    space.target.delete("ConfigMap", space.target_namespace, anchor)
    space.wait("the target's garbage collector removed the mirrors", lambda: not space.mirrors())
    return anchor


def delete_target_namespace(space: Space) -> None:
    """Delete the target namespace, and wait until it is gone with all that was in it."""
    assert space.target.delete("Namespace", "", space.target_namespace)
    space.wait(
        "the target namespace is gone",
        lambda: space.target.get("Namespace", "", space.target_namespace) is None,
        timeout_seconds=NAMESPACE_SECONDS,
    )


def allow(space: Space) -> None:
    """Say the operator's word: the space's target namespace may be used again."""
    metadata = {"annotations": {REINSTALL_ANNOTATION: space.target_namespace}}
    space.hub.patch("Node", "", space.node, {"metadata": metadata})


def run_old(space: Space) -> list[str]:
    """Run three bare pods; returns their uids."""
    for number in range(3):
        space.create(pod(f"old-{number}", pod_spec(space.node)))
    return [uid_of(space.wait_phase(f"old-{number}", "Running")) for number in range(3)]


def living(space: Space) -> list[str]:
    """Return the uids of those that still look as if nothing had happened."""
    return [
        uid_of(found)
        for number in range(3)
        if (found := space.pod(f"old-{number}")) is not None
        and phase_of(found) == "Running"
        and not is_terminating(found)
    ]


def node_reason(space: Space) -> str:
    return str(condition_of(space.world.read_node(), "Ready")["reason"])


def wait_uninstalled(space: Space) -> None:
    """Wait until the node says where federate is uninstalled, and how to go on."""

    def told() -> bool:
        ready = condition_of(space.world.read_node(), "Ready")
        return ready["reason"] == NodeReason.UNINSTALLED and (
            space.target_namespace in ready["message"]
        )

    space.wait("the node says that it is uninstalled there", told)


def test_a_deleted_anchor_uninstalls_until_an_operator_confirms(
    space: Space, hub: TestCluster
) -> None:
    """Deleting the anchor removes all mirrors and starts nothing anew; hub pods stay as they are.

    An annotation on the node lets federate use the namespace again.
    """
    old = run_old(space)
    anchor = delete_anchor(space)
    space.create(pod("new", pod_spec(space.node)))
    space.wait_waiting("new", PodReason.UNINSTALLED)
    space.hold(
        "hub pods stay as they are, and no anchor returns",
        lambda: living(space) == old and not anchors_of(space),
        seconds=5.0,
    )
    assert not space.mirrors()
    wait_uninstalled(space)

    hub.kubectl("annotate", "node", space.node, f"federate.dev/reinstall={space.target_namespace}")
    space.wait_phase("new", "Running")
    assert anchors_of(space) == [anchor]
    space.wait("the node is whole again", lambda: node_reason(space) != NodeReason.UNINSTALLED)


def test_an_anchor_deleted_in_federates_absence_uninstalls_too(fragile_space: Space) -> None:
    """federate finds at its start that it was uninstalled, and later that it may go on again.

    After the operator's word, pods whose mirrors the uninstall removed are lost.
    """
    space, federate = fragile_space, fragile_space.world.federate
    old = run_old(space)
    federate.stop()
    anchor = delete_anchor(space)
    space.world.start_federate()
    wait_uninstalled(space)
    space.create(pod("new", pod_spec(space.node)))
    space.wait_waiting("new", PodReason.UNINSTALLED)
    assert living(space) == old
    assert not anchors_of(space)

    federate.stop()
    allow(space)
    space.world.start_federate()
    space.wait_phase("new", "Running")
    assert anchors_of(space) == [anchor]
    assert REINSTALL_ANNOTATION not in annotations_of(space.world.read_node())
    for number in range(3):
        lost = space.wait_phase(f"old-{number}", "Failed")
        assert lost["status"]["reason"] == PodReason.MIRROR_LOST
    wait_for("the node is whole again", lambda: node_reason(space) == NodeReason.READY)


@pytest.mark.long
def test_a_deleted_target_namespace_is_an_uninstall(reinstalled: Space) -> None:
    """A target namespace deleted under running mirrors does not come back by itself.

    Neither do its mirrors; what owns the hub pods replaces none of them before an operator's word.
    """
    space = reinstalled
    space.create(deployment("web", pod_spec(space.node), replicas=2))
    before = {uid_of(found) for found in space.wait_ready_pods(2)}
    delete_target_namespace(space)
    wait_uninstalled(space)

    def unchanged() -> bool:
        present = {uid_of(found) for found in space.pods() if not is_terminating(found)}
        return present == before == space.hub_pod_uids()

    space.hold("hub pods stay as they are", unchanged, seconds=2.0)
    assert space.target.get("Namespace", "", space.target_namespace) is None

    allow(space)
    space.wait(
        "the Deployment has new pods",
        lambda: len({uid_of(p) for p in space.pods() if phase_of(p) == "Running"} - before) == 2,
    )
    assert len(anchors_of(space)) == 1
    space.assert_one_mirror_each()


@pytest.mark.long
def test_a_target_namespace_deleted_in_federates_absence_is_an_uninstall(
    fragile_space: Space,
) -> None:
    """A target namespace that is gone when federate starts is not made again."""
    space = fragile_space
    old = run_old(space)
    space.world.federate.stop()
    delete_target_namespace(space)
    space.world.start_federate()
    wait_uninstalled(space)
    space.hold(
        "hub pods stay as they are, and the namespace gone",
        lambda: (
            living(space) == old
            and space.target.get("Namespace", "", space.target_namespace) is None
        ),
        seconds=10.0,
    )
    allow(space)
    wait_for("the node is whole again", lambda: node_reason(space) == NodeReason.READY)
