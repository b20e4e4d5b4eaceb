"""Pods whose containers start in an order, die of hunger, or cannot start (C40)."""

import pytest

from e2e.support.manifests import pod, stateful_set
from e2e.support.pods import condition_of, phase_of, uid_of
from e2e.support.witness import Json

from .crate import NOWHERE, PULL_FAILED, Crate, probe, statuses_of, waits_for_image

pytest_plugins = ["e2e.containers.fixtures"]
pytestmark = pytest.mark.e2e

KILLED = 137

REASONS_OF_HUNGER = ("OOMKilled", "Error")
"""A busy containerd may hear of the exit before the kernel's word of the reason (seen on 1.34)."""

ASKS_READY = probe("/ready", failureThreshold=60)

FULL = {"limits": {"memory": "32Mi"}}


@pytest.fixture(scope="module", autouse=True)
def _started(crate: Crate) -> None:
    """Submit everything before the first test waits."""
    crate.create(pod("steps", stepwise(crate)))
    hungry = crate.app("eat", "256", resources=FULL)
    crate.create(pod("hungry", crate.spec(hungry, restartPolicy="Never")))
    crate.create(pod("insatiable", crate.spec(hungry)))
    crate.create(pod("absent", crate.spec(crate.app("serve", image=NOWHERE))))
    ordered = crate.spec(crate.app("serve", readinessProbe=ASKS_READY))
    body = stateful_set("ordered", ordered)
    body["spec"]["replicas"] = 2
    crate.create(body)


def stepwise(crate: Crate) -> Json:
    """Render a pod with two steps before the work, and a companion that lives through both."""
    first = crate.app("exit", "0", name="first")
    beside = crate.app("serve", name="beside", restartPolicy="Always", startupProbe=ASKS_READY)
    second = crate.app("exit", "0", name="second")
    return crate.spec(
        crate.app("sleep", "1"),
        initContainers=[first, beside, second],
        restartPolicy="Never",
    )


def test_init_containers_and_sidecars_start_and_end_in_order(crate: Crate) -> None:
    """Steps run one after the other, a native sidecar outlives the work, and the pod completes."""
    found = crate.wait_phase("steps", "Succeeded")
    assert crate.events("steps") == [
        ("first", "started"),
        ("first", "ended"),
        ("beside", "started"),
        ("second", "started"),
        ("second", "ended"),
        ("main", "started"),
        ("main", "ended"),
        ("beside", "asked to end"),
        ("beside", "ended"),
    ], crate.explain()
    ended = {
        name: status["state"]["terminated"]["exitCode"]
        for name, status in statuses_of(found).items()
    }
    assert ended == {"first": 0, "beside": 0, "second": 0, "main": 0}
    mirror = crate.mirror("steps")
    assert mirror is not None and phase_of(mirror) == "Succeeded"


def test_a_container_out_of_memory_says_so(crate: Crate) -> None:
    """The hub names the exit code and the reason that the target's kubelet has for the death."""
    found = crate.wait_phase("hungry", "Failed")
    mirror = crate.mirror("hungry")
    assert mirror is not None
    ended = statuses_of(found)["main"]["state"]["terminated"]
    assert ended == statuses_of(mirror)["main"]["state"]["terminated"]
    assert (ended["reason"], ended["exitCode"]) in [(r, KILLED) for r in REASONS_OF_HUNGER]
    assert crate.events("hungry") == [("main", "started")]


def test_a_container_that_is_restarted_tells_why_the_last_run_ended(crate: Crate) -> None:
    """After a restart the reason of the death before stands in lastState."""
    status = crate.wait_container(
        "insatiable",
        "was restarted after it was out of memory",
        lambda c: c["lastState"].get("terminated", {}).get("reason") == "OOMKilled",
    )
    assert status["restartCount"] >= 1
    assert status["lastState"]["terminated"]["exitCode"] == KILLED


def test_an_image_that_cannot_be_pulled_is_told(crate: Crate) -> None:
    """The hub shows the reason and the words of the target's kubelet, also in `kubectl get`."""
    status = crate.wait_container("absent", "waits for its image", waits_for_image)
    assert NOWHERE in status["state"]["waiting"]["message"]
    assert phase_of(crate.read("Pod", "absent")) == "Pending"
    shown = crate.kubectl("get", "pod", "absent", "--no-headers")
    assert any(reason in shown for reason in PULL_FAILED), shown
    assert not crate.told("absent")


def test_a_stateful_set_starts_and_ends_in_order(crate: Crate) -> None:
    """The second pod starts when the first is ready, and is the first to go."""
    crate.wait_rolled_out("statefulset/ordered")
    first, second = crate.read("Pod", "ordered-0"), crate.read("Pod", "ordered-1")
    ready_at = condition_of(first, "Ready")["lastTransitionTime"]
    assert ready_at <= second["metadata"]["creationTimestamp"], crate.explain()
    (start_of_first,) = crate.told("ordered-0")
    (start_of_second,) = crate.told("ordered-1")
    assert start_of_first.heard_at < start_of_second.heard_at

    crate.kubectl("scale", "statefulset/ordered", "--replicas=1")
    crate.wait_pod_gone("ordered-1")
    assert [event for _, event in crate.events("ordered-1")] == ["started", "asked to end", "ended"]
    assert uid_of(crate.read("Pod", "ordered-0")) == uid_of(first)
    assert crate.starts("ordered-0") == 1
