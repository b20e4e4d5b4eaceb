"""Facts about a pod: has it run, has it ended, what does it lean on."""

from __future__ import annotations

import pytest

from federate.model.objects import JsonDict
from federate.model.pods import (
    admission_token_volumes,
    container_statuses_of,
    containers_of,
    ended_before_deletion,
    grace_seconds_of,
    has_started,
    is_daemonset_pod,
    is_terminal,
    is_token_mount,
    node_name_of,
    phase_of,
)
from tests.support.builders import pod


def test_phases() -> None:
    """A pod without a phase is Pending; Succeeded and Failed are terminal."""
    assert phase_of({}) == "Pending"
    assert not is_terminal(pod("x").running().build())
    assert is_terminal(pod("x").succeeded().build())
    assert is_terminal(pod("x").failed().build())


def test_small_facts() -> None:
    """Node, owner, grace."""
    assert node_name_of({}) == ""
    assert node_name_of(pod("x").bound_to("edge").build()) == "edge"
    assert is_daemonset_pod(pod("x").owned_by("DaemonSet", "d").build())
    assert not is_daemonset_pod(pod("x").owned_by("ReplicaSet", "d").build())
    assert not is_daemonset_pod(pod("x").build())
    assert grace_seconds_of(pod("x").build()) is None
    assert grace_seconds_of(pod("x").terminating(grace=0).build()) == 0


@pytest.mark.parametrize(
    ("finished_at", "ended"),
    [
        ("2026-01-01T00:59:24Z", True),
        ("2026-01-01T00:59:25Z", None),
        ("2026-01-01T00:59:30Z", None),  # the second in which the deletion was asked for
        ("2026-01-01T00:59:35Z", None),
        ("2026-01-01T00:59:36Z", False),
        ("", None),
    ],
)
def test_who_ended_before_its_deletion(finished_at: str, ended: bool | None) -> None:
    """A pod that may end is judged by its containers; one that is restarted for ever is killed."""
    found = pod("x").with_restart_policy("Never").succeeded().terminating(grace=30).build()
    [container] = found["status"]["containerStatuses"]
    container["state"]["terminated"]["finishedAt"] = finished_at
    assert ended_before_deletion(found) is ended
    found["spec"]["restartPolicy"] = "Always"
    assert ended_before_deletion(found) is False
    found["spec"]["containers"][0]["restartPolicy"] = "Never"
    assert ended_before_deletion(found) is ended
    del found["metadata"]["deletionTimestamp"]
    assert ended_before_deletion(found) is True


@pytest.mark.parametrize(
    ("status", "started"),
    [
        ({"state": {"waiting": {"reason": "ContainerCreating"}}}, False),
        ({"state": {}}, False),
        ({}, False),
        ({"restartCount": 1, "state": {"waiting": {}}}, True),
        ({"lastState": {"terminated": {}}, "state": {"waiting": {}}}, True),
        ({"state": {"running": {}}}, True),
        ({"state": {"terminated": {"exitCode": 0}}}, True),
    ],
)
@pytest.mark.parametrize(
    "field", ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"]
)
def test_a_container_that_was_seen_started_was_a_run(
    field: str, status: JsonDict, started: bool
) -> None:
    """Of any kind, now or before."""
    assert has_started({"status": {field: [status]}}) is started


def test_every_kind_of_container_is_listed() -> None:
    """Init, ordinary, ephemeral; in spec and status."""
    spec = {
        "initContainers": [{"name": "a"}],
        "containers": [{"name": "b"}],
        "ephemeralContainers": [{"name": "c"}],
    }
    assert [c["name"] for c in containers_of(spec)] == ["a", "b", "c"]
    assert list(containers_of({})) == []
    assert list(container_statuses_of({})) == []


# -- the admission-made token ----------------------------------------------------------------------


def test_the_admission_made_token_volume_is_known() -> None:
    """By its name and its source."""
    spec = pod("x").build()["spec"]
    [name] = admission_token_volumes(spec)
    [mount] = spec["containers"][0]["volumeMounts"]
    assert is_token_mount(mount, frozenset({name}))
    assert not is_token_mount({**mount, "mountPath": "/elsewhere"}, frozenset({name}))
    assert not is_token_mount(mount, frozenset())


@pytest.mark.parametrize(
    "volume",
    [
        {"name": "kube-api-access-x", "emptyDir": {}},
        {"name": "kube-api-access-x", "projected": {"sources": [{"secret": {"name": "s"}}]}},
        {"name": "mine", "projected": {"sources": [{"serviceAccountToken": {}}]}},
        {"name": "kube-api-access-x", "projected": {}},
    ],
)
def test_a_volume_that_only_looks_like_it_is_not(volume: JsonDict) -> None:
    """A user's own volume is not dropped in silence."""
    assert admission_token_volumes({"volumes": [volume]}) == frozenset()
