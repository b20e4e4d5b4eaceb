"""Comparing both sides: what is right is silent, each thing that is wrong has a name."""

from dataclasses import replace

import pytest

from e2e.chaos.calm import LABEL_PREFIX, Picture, differences
from e2e.support.witness import Json

NODE = "stormy"


def pod(name: str, uid: str, phase: str = "Running", **metadata: object) -> Json:
    ready = "True" if phase == "Running" else "False"
    state = {"Running": "running", "Pending": "waiting"}.get(phase, "terminated")
    return {
        "metadata": {"name": name, "uid": uid, **metadata},
        "spec": {"nodeName": NODE},
        "status": {
            "phase": phase,
            "conditions": [{"type": "Ready", "status": ready}],
            "containerStatuses": [{"name": "main", "state": {state: {}}}],
        },
    }


def mirror(name: str, of: str, phase: str = "Running", **labels: str) -> Json:
    return pod(name, f"{of}-mirror", phase, labels={"federate.dev/hub-pod-uid": of, **labels})


def gated(found: Json) -> Json:
    gate = {"name": "federate.dev/recorded"}
    return {**found, "spec": {**found["spec"], "schedulingGates": [gate]}}


READY_NODE: Json = {
    "metadata": {"name": NODE},
    "spec": {"taints": [{"key": "virtual-kubelet.io/provider"}]},
    "status": {
        "conditions": [
            {"type": "Ready", "status": "True"},
            {"type": "federate.dev/TargetReachable", "status": "True"},
        ]
    },
}
RIGHT = Picture(
    hub_pods=[pod("a", "A"), pod("b", "B", "Succeeded")],
    target_pods=[mirror("a", "A"), mirror("b", "B", "Succeeded"), pod("stranger", "S")],
    workloads=[{"metadata": {"name": "web"}, "spec": {"replicas": 0}}],
    node=READY_NODE,
    node_name=NODE,
)


def test_two_sides_that_agree_have_no_differences() -> None:
    """Strangers in the target are nobody's business."""
    assert differences(RIGHT) == []


@pytest.mark.parametrize(
    ("hub_pods", "target_pods", "words", "is_federates"),
    [
        ([], [mirror("a", "A")], "orphan mirrors: a", True),
        ([pod("a", "A")], [], "a: no mirror", True),
        ([pod("a", "A", "Failed")], [mirror("a", "A")], "a: Failed, its mirror Running", True),
        ([pod("a", "A")], [mirror("a", "A"), mirror("c", "A")], "a: 2 mirrors", True),
        (
            [pod("a", "A", "Pending")],
            [gated(mirror("a", "A", "Pending"))],
            "a: its mirror is still held back",
            True,
        ),
        (
            [pod("a", "A", "Pending")],
            [mirror("a", "A", "Pending")],
            "a: its mirror is pending",
            False,
        ),
        (
            [pod("a", "A", deletionTimestamp="now")],
            [],
            "a: still terminating ",
            True,
        ),
        (
            [pod("a", "A", deletionTimestamp="now", finalizers=["of/others"])],
            [],
            "a: still terminating ['of/others']",
            False,
        ),
        (
            [pod("a", "A", labels={f"{LABEL_PREFIX}colour": "red"})],
            [mirror("a", "A", **{f"{LABEL_PREFIX}colour": "blue"})],
            f"a: its mirror lacks labels {{'{LABEL_PREFIX}colour': 'red'}}",
            True,
        ),
    ],
)
def test_each_difference_is_told(
    hub_pods: list[Json], target_pods: list[Json], words: str, is_federates: bool
) -> None:
    """With whose it is to mend."""
    (found,) = differences(replace(RIGHT, hub_pods=hub_pods, target_pods=target_pods))
    assert (found.words, found.is_federates) == (words, is_federates)


def test_a_status_that_lags_behind_is_told() -> None:
    """Phase, readiness and the containers' states have to be the mirror's."""
    (found,) = differences(
        replace(RIGHT, hub_pods=[pod("a", "A")], target_pods=[mirror("a", "A", "Succeeded")])
    )
    assert "its mirror {'phase': 'Succeeded'" in found.words and found.is_federates


def test_a_pod_that_is_not_bound_or_bound_elsewhere_is_not_federates() -> None:
    """The hub's scheduler has not got so far, or chose another node."""
    unbound, elsewhere = pod("a", "A", "Pending"), pod("b", "B")
    unbound["spec"], elsewhere["spec"] = {}, {"nodeName": "another"}
    (found,) = differences(replace(RIGHT, hub_pods=[unbound, elsewhere], target_pods=[]))
    assert found.words == "a: not scheduled on the hub" and not found.is_federates


def test_a_pod_whose_name_a_stranger_has_waits_rightly() -> None:
    """As long as it has no mirror."""
    picture = replace(RIGHT, hub_pods=[pod("a", "A", "Pending")], squatted=frozenset({"a"}))
    assert differences(replace(picture, target_pods=[])) == []
    (found,) = differences(replace(picture, target_pods=[mirror("a", "A")]))
    assert found.words == "a: has a mirror at a stranger's name"


def test_a_workload_that_is_not_complete_waits_for_the_clusters() -> None:
    """A controller may be slow to see what is ready."""
    web: Json = {"metadata": {"name": "web"}, "spec": {"replicas": 2}, "status": {}}
    (found,) = differences(replace(RIGHT, workloads=[web]))
    assert found.words.startswith("web: 0 of 2 ready") and not found.is_federates


def test_the_virtual_node_has_to_be_there_and_well() -> None:
    """Registered, ready, its target reachable, and not held back by the hub."""
    (absent,) = differences(replace(RIGHT, node=None))
    assert absent.words == "the virtual node is not registered"
    sick: Json = {"spec": {"taints": [{"key": "node.kubernetes.io/unreachable"}]}, "metadata": {}}
    words = [found.words for found in differences(replace(RIGHT, node=sick))]
    assert words == [
        "the virtual node is not ready",
        "the virtual node says its target is not reachable",
        "the virtual node has ['node.kubernetes.io/unreachable']",
    ]
