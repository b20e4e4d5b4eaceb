"""Containers are asked to end, and given the time: deletion, force and drain (C43, C50, C51)."""

import time

import pytest

from e2e.support.manifests import deployment, pod
from e2e.support.pods import is_ready, name_of, uid_of
from e2e.support.recorder import Change

from .crate import Crate

pytest_plugins = ["e2e.containers.fixtures"]
pytestmark = pytest.mark.e2e

LINGER_SECONDS = 3
LONG_LINGER_SECONDS = 8


@pytest.fixture(scope="module", autouse=True)
def _started(crate: Crate) -> None:
    """Submit everything before the first test waits."""
    say = {"exec": {"command": ["/app", "say", "preStop"]}}
    polite = crate.app("serve", linger=LINGER_SECONDS, lifecycle={"preStop": say})
    crate.create(pod("polite", crate.spec(polite)))
    slow = crate.app("sleep", linger=LONG_LINGER_SECONDS)
    crate.create(pod("hurried", crate.spec(slow)))
    crate.create(pod("forced", crate.spec(crate.app("sleep"))))
    crate.create(deployment("moved", crate.spec(crate.app("sleep")), replicas=2))
    crate.create(pod("lone", crate.spec(crate.app("sleep"))))


def test_a_container_is_asked_to_end_and_given_the_time(crate: Crate) -> None:
    """preStop, SIGTERM and the end come in order, and the hub pod stays until all is over."""
    uid = uid_of(crate.wait_phase("polite", "Running"))
    crate.wait_told("polite", "started")
    crate.delete_pod("polite")
    crate.wait_pod_gone("polite")
    assert [event for _, event in crate.events("polite")] == [
        "started",
        "preStop",
        "asked to end",
        "ended",
    ]
    _, hook, asked, ended = crate.told("polite")
    assert asked.heard_at - hook.heard_at >= LINGER_SECONDS, "the hook was not waited for"
    assert ended.heard_at < gone_at(crate, uid), crate.explain()


def test_a_grace_shortened_later_reaches_the_target(crate: Crate) -> None:
    """The mirror gets the shorter grace; the hub pod stays for as long as its container does.

    A kubelet that waits for a container to end does not look at its pod meanwhile (kubernetes
    issue 113606), so that the container ends when it likes, on the hub's own nodes as well.
    """
    uid = uid_of(crate.wait_phase("hurried", "Running"))
    crate.wait_told("hurried", "started")
    crate.delete_pod("hurried", grace_seconds=60)
    crate.wait_told("hurried", "asked to end")
    crate.delete_pod("hurried", grace_seconds=2)

    def has_shorter_grace() -> bool:
        mirror = crate.mirror("hurried")
        return mirror is not None and mirror["metadata"]["deletionGracePeriodSeconds"] == 2

    crate.wait("the mirror has the shorter grace", has_shorter_grace)
    crate.wait_pod_gone("hurried")
    assert [event for _, event in crate.events("hurried")][:2] == ["started", "asked to end"]
    ended_at = max(report.heard_at for report in crate.told("hurried"))
    assert ended_at < gone_at(crate, uid), crate.explain()


def gone_at(crate: Crate, uid: str) -> float:
    """Return when the hub pod was gone, by the wall clock."""
    gone = crate.world.hub_record.find(lambda e: e.uid == uid and e.change is Change.DELETED)
    assert gone is not None
    return gone.at + time.time() - time.monotonic()


def test_a_force_deleted_pod_ends_its_container(crate: Crate) -> None:
    """A forced deletion does not wait on the hub, and still leaves nothing running."""
    crate.wait_phase("forced", "Running")
    crate.wait_told("forced", "started")
    crate.delete_pod("forced", grace_seconds=0)
    assert crate.pod("forced") is None
    crate.wait_told("forced", "ended")
    crate.wait_mirror_gone("forced")


def test_a_drained_node_hands_its_pods_back(crate: Crate) -> None:
    """`kubectl drain` in the target ends hub pods as disrupted; their owners replace them."""
    crate.wait_rolled_out("deployment/moved")
    crate.wait_told("lone", "started")
    before = {uid_of(found) for found in crate.pods_of("moved")}
    lone = uid_of(crate.read("Pod", "lone"))
    node = crate.target_cluster.node_name
    try:
        crate.target_cluster.kubectl(
            *("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=120s"),
            timeout_seconds=150.0,
        )
        for uid in (lone, *before):
            assert was_disrupted(crate, uid), crate.explain()
    finally:
        crate.target_cluster.kubectl("uncordon", node)

    def replaced() -> bool:
        after = crate.pods_of("moved")
        fresh = before.isdisjoint(map(uid_of, after))
        return fresh and len(after) == 2 and all(map(is_ready, after))

    crate.wait("both pods are replaced", replaced)
    crate.wait_pod_gone("lone")
    assert [event for _, event in crate.events("lone")] == ["started", "asked to end", "ended"]
    for found in crate.pods_of("moved"):
        crate.wait_told(name_of(found), "started")
        assert crate.starts(name_of(found)) == 1


def was_disrupted(crate: Crate, uid: str) -> bool:
    """Tell whether the hub pod ever said that it was ended for another's sake."""
    conditions = (event.conditions for event in crate.world.hub_record.events(uid=uid))
    return any(c.get("DisruptionTarget", {}).get("status") == "True" for c in conditions)
