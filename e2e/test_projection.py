"""What the mirror tells is what the hub pod shows, in the hub's terms (C40, C47)."""

from collections.abc import Iterator

import pytest

from e2e.support.manifests import container, ending, pod, pod_spec
from e2e.support.pods import annotations_of, condition_of, labels_of, phase_of
from e2e.support.witness import Json
from e2e.support.world import Space
from e2e.support.worlds import Worlds
from e2e.testbed.provider import TestCluster

pytest_plugins = ["e2e.support.fixtures"]
pytestmark = pytest.mark.e2e

MORE_THAN_ANY_NODE = "4000"
"""So many CPUs no node of a target has."""


@pytest.fixture
def boastful(worlds: Worlds, hub: TestCluster, target: TestCluster) -> Iterator[Space]:
    """A namespace for a virtual node that offers more than its target has."""
    arguments = ["--capacity", "cpu=8000,memory=64Gi,pods=50"]
    with worlds.world(node="boastful", hub=hub, target=target, arguments=arguments) as world:
        space = Space(world, "boastful")
        space.open()
        yield space
        space.close()


def address_of(node: Json) -> str:
    (address,) = node["status"]["addresses"]
    return str(address["address"])


def test_a_running_pod_shows_its_mirrors_status_in_the_hubs_terms(space: Space) -> None:
    """A hub pod shows the containers of its mirror, the virtual node's address, and where it runs.

    The mirror's own address is hidden: on the hub it might be a stranger's.
    """
    spec = pod_spec(
        space.node,
        containers=[container(), container(name="beside")],
        initContainers=[ending(name="before")],
    )
    hub_pod = space.run_pod(pod("plain", spec))
    mirror = space.mirror("plain")
    assert mirror is not None
    assert mirror["status"]["podIP"]
    shown = hub_pod["status"]
    for field in ("containerStatuses", "initContainerStatuses", "startTime"):
        assert shown[field] == mirror["status"][field]
    assert shown["hostIP"] == address_of(space.world.read_node())
    assert "podIP" not in shown
    for kind in ("Initialized", "ContainersReady", "Ready", "PodScheduled"):
        assert condition_of(hub_pod, kind)["status"] == "True"
    assert annotations_of(hub_pod)["federate.dev/target"] == space.node
    assert annotations_of(hub_pod)["federate.dev/target-node"] == mirror["spec"]["nodeName"]


def test_a_mirror_that_finds_no_node_says_so_on_the_hub(boastful: Space) -> None:
    """The target scheduler's words appear on the hub pod, which itself counts as scheduled."""
    space, requests = boastful, {"cpu": MORE_THAN_ANY_NODE}
    spec = pod_spec(space.node, containers=[container(resources={"requests": requests})])
    space.create(pod("wide", spec))

    def told() -> Json | None:
        found = space.pod("wide")
        return found if found and condition_of(found, "federate.dev/MirrorScheduled") else None

    hub_pod = space.wait("the hub pod tells why its mirror waits", told)
    assert phase_of(hub_pod) == "Pending"
    assert condition_of(hub_pod, "PodScheduled")["status"] == "True"
    assert condition_of(hub_pod, "federate.dev/MirrorScheduled")["status"] == "False"
    assert condition_of(hub_pod, "federate.dev/MirrorScheduled")["reason"] == "TargetLacksRoom"
    for kind in ("federate.dev/MirrorScheduled", "Ready"):
        assert "Insufficient cpu" in condition_of(hub_pod, kind)["message"]
    space.delete_pod("wide")
    space.wait_pod_gone("wide")


def test_a_mirror_is_owned_by_its_anchor_and_kept_off_virtual_nodes(space: Space) -> None:
    """Nothing in the target can adopt a mirror, and it can never be bound to a virtual node."""
    hub_pod = space.run_pod(pod("marked", pod_spec(space.node), labels={"app": "web"}))
    mirror = space.mirror("marked")
    assert mirror is not None
    (owner,) = mirror["metadata"]["ownerReferences"]
    assert owner["kind"] == "ConfigMap" and owner["controller"]
    assert not owner.get("blockOwnerDeletion")
    assert labels_of(mirror)["federate.dev/hub-pod-uid"] == hub_pod["metadata"]["uid"]
    assert not mirror["metadata"].get("finalizers")
    assert not any(
        toleration.get("key") in (None, "virtual-kubelet.io/provider")
        for toleration in mirror["spec"]["tolerations"]
    )
    affinity = mirror["spec"]["affinity"]["nodeAffinity"]
    required = affinity["requiredDuringSchedulingIgnoredDuringExecution"]
    for term in required["nodeSelectorTerms"]:
        assert {"key": "type", "operator": "NotIn", "values": ["virtual-kubelet"]} in term[
            "matchExpressions"
        ]
    assert not mirror["spec"].get("volumes"), "the hub's token does not travel"
    namespace = space.target.get("Namespace", "", space.target_namespace)
    assert namespace is not None
    assert labels_of(namespace)["pod-security.kubernetes.io/enforce"] == "baseline"
