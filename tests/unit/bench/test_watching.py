"""What the witness prints, and what is made of its lines."""

from __future__ import annotations

from typing import Any

import pytest

from e2e.bench.watching import ClusterSeen, note
from e2e.bench.witness import ClusterWatch, Output, PodState, Watched, state_of

WATCHED = Watched("hub", 1234, "ca.crt", "admin.crt", "admin.key")


class Lines(Output):
    """Keep lines instead of printing them."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[str, PodState]] = []

    def line(self, cluster: str, what: str, uid: str, name: str, state: PodState) -> None:
        self.lines.append((what, state))


def pod(*, ready: bool = False, node: str = "", restarts: int = 0) -> dict[str, Any]:
    return {
        "metadata": {"name": "a", "uid": "u1", "resourceVersion": "1"},
        "spec": {"nodeName": node} if node else {},
        "status": {
            "conditions": [{"type": "Ready", "status": str(ready)}],
            "containerStatuses": [{"restartCount": restarts}],
        },
    }


def test_an_argument_survives_the_command_line() -> None:
    """The witness watches what it was told to."""
    assert Watched.parse(WATCHED.format()) == WATCHED


def test_the_state_is_what_counts() -> None:
    """Node, readiness, deletion and restarts; a pod that nobody has touched has none."""
    assert state_of(pod(ready=True, node="n", restarts=2)) == PodState("n", True, False, 2)
    assert state_of({"metadata": {"deletionTimestamp": "t"}, "spec": {}}) == PodState(
        is_terminating=True
    )


def test_only_changes_that_count_are_printed() -> None:
    """An annotation, or the same status again, is no line."""
    lines = Lines()
    watch = ClusterWatch(WATCHED, lines)
    for seen in (pod(), pod(), pod(node="n"), pod(node="n", ready=True)):
        watch._note(seen, gone=False)
    watch._note(pod(node="n", ready=True), gone=True)
    assert [what for what, _ in lines.lines] == ["is", "is", "is", "gone"]


@pytest.fixture
def cluster() -> ClusterSeen:
    return ClusterSeen()


def tell(cluster: ClusterSeen, at: float, what: str, state: PodState) -> None:
    values = [state.node, state.is_ready, state.is_terminating, state.restarts]
    note(cluster, at, what, ["u1", "a", *values])


def test_a_pods_story_has_its_times(cluster: ClusterSeen) -> None:
    """Created, bound, ready, deleted, gone: each when it was first seen."""
    tell(cluster, 1.0, "is", PodState())
    tell(cluster, 2.0, "is", PodState("n"))
    tell(cluster, 3.0, "is", PodState("n", is_ready=True))
    assert (cluster.alive, cluster.ready) == ({"u1"}, {"u1"})
    tell(cluster, 4.0, "is", PodState("n", is_ready=True, is_terminating=True))
    tell(cluster, 5.0, "gone", PodState("-"))
    seen = cluster.by_name["a"]
    story = (seen.created_at, seen.bound_at, seen.ready_at, seen.deleting_at, seen.gone_at)
    assert story == (1.0, 2.0, 3.0, 4.0, 5.0)
    assert (cluster.alive, cluster.ready) == (set(), set())


def test_a_pod_that_is_not_ready_any_more_does_not_count(cluster: ClusterSeen) -> None:
    """All ready means all at once."""
    tell(cluster, 1.0, "is", PodState("n", is_ready=True))
    tell(cluster, 2.0, "is", PodState("n"))
    assert cluster.ready == set()
    assert cluster.by_name["a"].ready_at == 1.0


def test_restarts_are_seen_with_their_time(cluster: ClusterSeen) -> None:
    """They are what a measured status is recognised by."""
    tell(cluster, 1.0, "is", PodState("n"))
    tell(cluster, 2.0, "is", PodState("n", restarts=3))
    tell(cluster, 3.0, "is", PodState("n", is_ready=True, restarts=3))
    assert (cluster.by_name["a"].restarts, cluster.by_name["a"].restarted_at) == (3, 2.0)


def test_what_is_gone_is_forgotten_for_the_next_story(cluster: ClusterSeen) -> None:
    """A later pod of the name is another one; what lives is kept."""
    tell(cluster, 1.0, "is", PodState())
    cluster.forget_gone()
    assert "a" in cluster.by_name
    tell(cluster, 2.0, "gone", PodState())
    cluster.forget_gone()
    assert (cluster.by_name, cluster.pods) == ({}, {})
