"""A target's admin removes federate from a namespace by deleting one object (C23)."""

import pytest

from e2e.support.manifests import pod, pod_spec
from e2e.support.pods import condition_of, is_terminating, phase_of, uid_of
from e2e.support.world import Space
from e2e.testbed.provider import TestCluster

pytest_plugins = ["e2e.support.fixtures"]
pytestmark = pytest.mark.e2e


def anchors_of(space: Space) -> list[str]:
    return [
        found["metadata"]["name"]
        for found in space.target.list("ConfigMap", space.target_namespace)
        if found["metadata"]["name"].startswith("federate-anchor-")
    ]


def test_a_deleted_anchor_uninstalls_until_an_operator_confirms(
    space: Space, hub: TestCluster
) -> None:
    """Deleting the anchor removes all mirrors and starts nothing anew; hub pods stay as they are.

    An annotation on the node lets federate use the namespace again.
    """
    old = [uid_of(space.run_pod(pod(f"old-{n}", pod_spec(space.node)))) for n in range(3)]
    (anchor,) = anchors_of(space)
    space.target.delete("ConfigMap", space.target_namespace, anchor)
    space.wait("the target's garbage collector removed the mirrors", lambda: not space.mirrors())

    space.create(pod("new", pod_spec(space.node)))
    space.wait_waiting("new", "Uninstalled")

    def unchanged() -> bool:
        pods = [space.pod(f"old-{n}") for n in range(3)]
        return [
            uid_of(found)
            for found in pods
            if found is not None and phase_of(found) == "Running" and not is_terminating(found)
        ] == old and not anchors_of(space)

    space.hold("hub pods stay as they are, and no anchor returns", unchanged, seconds=5.0)
    assert not space.mirrors()
    ready = condition_of(space.world.read_node(), "Ready")
    assert ready["reason"] == "Uninstalled"
    assert space.target_namespace in ready["message"]

    hub.kubectl("annotate", "node", space.node, f"federate.dev/reinstall={space.target_namespace}")
    space.wait_phase("new", "Running")
    assert anchors_of(space) == [anchor]
    space.wait(
        "the node is whole again",
        lambda: condition_of(space.world.read_node(), "Ready")["reason"] != "Uninstalled",
    )
