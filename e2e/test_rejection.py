"""What a target does not take: hub pods wait, say why, and no storm of pods arises (C26, C27)."""

import time
from collections.abc import Callable, Iterator

import pytest

from e2e.support.manifests import daemon_set, deployment, pod, pod_spec, quota
from e2e.support.pods import (
    MIRRORED_CONDITION,
    condition_of,
    name_of,
    phase_of,
    waiting_reason,
    waiting_words,
)
from e2e.support.refusing import QUOTA, asking, causes, namespace_of, wait_refused
from e2e.support.witness import Json
from e2e.support.world import Space

pytest_plugins = ["e2e.support.fixtures"]
pytestmark = pytest.mark.e2e

SLOW_RETRY_SECONDS = 30.0
"""A pod refused a moment ago is tried again within this; the pace slows down to minutes."""


def make_namespace(space: Space) -> None:
    """Let the target namespace come into being, by a pod that goes again."""
    space.run_pod(pod("first", pod_spec(space.node)))
    space.delete_pod("first")
    space.wait_nothing_left()


def close_target(space: Space) -> None:
    """Let the target namespace come into being, and then take no more pods."""
    make_namespace(space)
    space.target.create(quota(QUOTA, pods="0"), space.target_namespace)

    def counts() -> bool:
        found = space.target.get("ResourceQuota", space.target_namespace, QUOTA)
        return found is not None and "hard" in found.get("status", {})

    space.wait("the target's quota is in force", counts)


def open_target(space: Space) -> None:
    space.target.delete("ResourceQuota", space.target_namespace, QUOTA)


def restrict_target(space: Space) -> None:
    """Let the target namespace come into being, and its admin ask for more of pods there."""
    make_namespace(space)
    set_level(space, "restricted")
    wait_refused(space, pod("probe", pod_spec("nowhere")))


def set_level(space: Space, level: str) -> None:
    """Set the PodSecurity level of the target namespace."""
    body = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": level}}}
    space.target.patch("Namespace", "", space.target_namespace, body)


def submit_three(space: Space) -> set[str]:
    """Create a Deployment of three that the target refuses; return earlier hub pods' uids."""
    before = space.hub_pod_uids()
    space.create(deployment("refused", pod_spec(space.node), replicas=3))
    space.wait(
        "three pods wait for the quota",
        lambda: [waiting_reason(found) for found in space.pods()] == ["QuotaExceeded"] * 3,
    )
    for found in space.pods():
        assert "exceeded quota" in waiting_words(found), waiting_words(found)
        assert QUOTA in waiting_words(found)
    return before


def assert_calm(space: Space, before: set[str], *, seconds: float) -> None:
    """Make sure that for a while there are the same three pods, all Pending."""
    space.hold(
        "the pods wait",
        lambda: [phase_of(found) for found in space.pods()] == ["Pending"] * 3,
        seconds=seconds,
    )
    assert len(space.hub_pod_uids() - before) == 3, space.explain()


def test_a_refused_deployment_of_three_is_three_pods(space: Space) -> None:
    """A Deployment that the target's quota refuses shows the quota's words and stays three pods."""
    close_target(space)
    before = submit_three(space)
    assert_calm(space, before, seconds=5.0)


@pytest.mark.long
def test_a_refused_deployment_of_three_is_three_pods_after_a_minute(space: Space) -> None:
    """A Deployment of three that the target refuses has exactly three pods after a minute."""
    close_target(space)
    before = submit_three(space)
    assert_calm(space, before, seconds=60.0)


def test_pods_run_when_the_quota_is_lifted(space: Space) -> None:
    """Pods that waited for a quota run by themselves once it is gone, and say nothing of it."""
    close_target(space)
    submit_three(space)
    open_target(space)
    for found in space.wait_ready_pods(3, timeout_seconds=SLOW_RETRY_SECONDS):
        assert not found["status"].get("reason")
        assert not condition_of(found, MIRRORED_CONDITION)
    space.assert_one_mirror_each()


def test_a_pod_that_pod_security_refuses_says_so(space: Space) -> None:
    """A pod that violates the target's PodSecurity waits with the target's own words."""
    restrict_target(space)
    space.create(pod("plain", pod_spec(space.node)))
    waiting = space.wait_waiting("plain", "PodSecurityRefused")
    assert "violates PodSecurity" in waiting_words(waiting)
    assert "runAsNonRoot" in waiting_words(waiting)
    assert not space.mirrors()


@pytest.fixture
def closed(space: Space) -> Iterator[Space]:
    """A space whose target namespace refuses pods for one cause each, until `reopen`."""
    make_namespace(space)
    try:
        for cause in causes(space.target_namespace):
            space.target.create(cause, namespace_of(cause, space.target_namespace))
        set_level(space, "restricted")
        for body, _, _ in asking("nowhere").values():
            wait_refused(space, body)
        yield space
    finally:
        reopen(space)


def reopen(space: Space) -> None:
    """Take every cause away; again does no harm."""
    namespace = space.target_namespace
    for cause in causes(namespace):
        space.target.delete(cause["kind"], namespace_of(cause, namespace), name_of(cause))
    set_level(space, "baseline")


def test_what_the_target_refused_runs_when_the_cause_is_gone(closed: Space) -> None:
    """Each kind of refusal has its reason and its words, and heals by itself within its pace."""
    space = closed
    asked = asking(space.node)
    for body, _, _ in asked.values():
        space.create(body)
    for name, (_, reason, words) in asked.items():
        assert words in waiting_words(space.wait_waiting(name, reason))
    assert not space.mirrors()
    reopen(space)
    began_at = time.monotonic()
    for found in space.wait_ready_pods(len(asked), timeout_seconds=SLOW_RETRY_SECONDS):
        assert not found["status"].get("reason")
        assert not condition_of(found, MIRRORED_CONDITION)
    print(f"all run {time.monotonic() - began_at:.1f} s after the causes went")
    space.assert_one_mirror_each()


def needs_claim(spec: Json) -> None:
    claim = {"claimName": "settings"}
    spec["volumes"] = [{"name": "data", "persistentVolumeClaim": claim}]


def needs_token(spec: Json) -> None:
    source = {"serviceAccountToken": {"path": "token", "audience": "vault"}}
    spec["volumes"] = [{"name": "token", "projected": {"sources": [source]}}]


@pytest.mark.parametrize(
    ("needs", "reason", "what"),
    [
        (needs_claim, "ClaimRefused", "spec.volumes[0].persistentVolumeClaim"),
        (needs_token, "CompanionMissing", "a service account token"),
    ],
    ids=["claim", "token"],
)
def test_a_pod_that_needs_what_does_not_come_along_names_it(
    space: Space, needs: Callable[[Json], None], reason: str, what: str
) -> None:
    """A pod that leans on what is not brought to the target waits and names it."""
    # Bound by hand: the hub's scheduler would hold a pod back whose claim is not there.
    spec = pod_spec(space.node, nodeName=space.node)
    needs(spec)
    space.create(pod("needy", spec))
    waiting = space.wait_waiting("needy", reason)
    assert what in waiting_words(waiting)
    assert not space.mirrors()


def test_a_daemonset_has_one_pod_that_waits(space: Space) -> None:
    """A DaemonSet's pod on the virtual node waits instead of failing, so there is only one."""
    space.create(daemon_set("agents", pod_spec(space.node)))
    name = name_of(space.wait("the pod exists", lambda: next(iter(space.pods()), None)))
    waiting = space.wait_waiting(name, "DaemonSetNotMirrored")
    assert "affinity" in waiting_words(waiting)
    space.hold(
        "the pod waits",
        lambda: [phase_of(found) for found in space.pods()] == ["Pending"],
        seconds=3.0,
    )
    assert len(space.hub_pod_uids()) == 1, space.explain()
    assert not space.world.target_record.mirror_uids(space.target_namespace)
