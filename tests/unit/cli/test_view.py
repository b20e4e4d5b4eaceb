"""What `federate status` shows, from hub objects."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from federate.cli.view import (
    HubView,
    count_phases,
    format_age,
    is_waiting,
    view_of,
    why_waiting,
)
from federate.model.marks import RECORD_ANNOTATION, MirrorRecord
from federate.model.objects import JsonDict, ObjectKey
from tests.support.builders import PodBuilder, pod

NOW = datetime(2026, 1, 1, 1, 0, 0, tzinfo=UTC)


def node(name: str = "edge", **conditions: JsonDict) -> JsonDict:
    types = {"ready": "Ready", "target": "federate.dev/TargetReachable"}
    return {
        "metadata": {
            "name": name,
            "annotations": {"federate.dev/hub": "uid"},
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "status": {
            "allocatable": {"cpu": "8", "memory": "33554432Ki", "pods": "50"},
            "conditions": [{"type": types[k], **v} for k, v in conditions.items()],
        },
    }


def lease(**spec: Any) -> JsonDict:
    return {"spec": {"holderIdentity": "host-1", "leaseDurationSeconds": 15, **spec}}


def view(nodes: list[JsonDict], pods: list[JsonDict] | None = None, **leases: JsonDict) -> HubView:
    return view_of(nodes, {"edge": pods or []}, leases, now=NOW)


def test_a_healthy_node_is_summed_up() -> None:
    """A node shows its pods by phase, what they request, what it has, and who leads it."""
    pods = [
        pod("a").bound_to("edge").with_requests(cpu="500m", memory="1Gi").running().build(),
        pod("b").bound_to("edge").with_requests(cpu="1").build(),
        pod("c").bound_to("edge").with_requests(cpu="4").succeeded().build(),
        pod("d").bound_to("edge").running().terminating().build(),
    ]
    healthy = node(ready={"status": "True"}, target={"status": "True", "reason": "Answers"})
    (shown,) = view([healthy], pods, edge=lease(renewTime="2026-01-01T00:59:55.000000Z")).nodes
    assert (shown.name, shown.ready, shown.target_reachable) == ("edge", "Ready", "True")
    assert (shown.reason, shown.message) == ("", "")
    assert shown.age_seconds == 3600
    assert shown.pods == {"Running": 1, "Pending": 1, "Terminating": 1, "Succeeded": 1}
    assert shown.requested == {"cpu": "1500m", "memory": "1Gi", "pods": "3"}
    assert shown.allocatable == {"cpu": "8", "memory": "32Gi", "pods": "50"}
    assert (shown.leader, shown.leader_silent_seconds) == ("host-1", None)


def test_what_came_along_is_counted_once() -> None:
    """ConfigMaps and Secrets that pods with a mirror name; a pod that is over needs none."""

    def naming(name: str, *, has_mirror: bool = True) -> PodBuilder:
        record = MirrorRecord(
            pod_uid=f"uid-{name}",
            mirror=ObjectKey("t", name),
            mirror_uid="m" if has_mirror else "",
        )
        volumes = [{"name": "v", "secret": {"secretName": "login"}}]
        pulls = [{"name": "login"}, {"name": "registry"}]
        builder = pod(name).bound_to("edge").with_spec(volumes=volumes, imagePullSecrets=pulls)
        return builder.with_annotations({RECORD_ANNOTATION: record.format()})

    pods = [
        naming("a").build(),
        naming("b").build(),
        naming("waits", has_mirror=False).with_spec(imagePullSecrets=[{"name": "x"}]).build(),
        naming("over").with_spec(imagePullSecrets=[{"name": "y"}]).succeeded().build(),
    ]
    (shown,) = view([node()], pods).nodes
    assert shown.companions == 2


def test_sizes_are_written_for_people() -> None:
    """Counts are written in full, bytes in the largest unit that fits."""
    large = node()
    large["status"]["allocatable"] = {"cpu": "2k", "memory": "1024Gi", "pods": "5000"}
    (shown,) = view([large]).nodes
    assert shown.allocatable == {"cpu": "2000", "memory": "1Ti", "pods": "5000"}


def test_an_unreachable_target_says_why() -> None:
    """Reason and message are those of the condition that is not well."""
    refused = {"status": "False", "reason": "ConnectionRefused", "message": "no answer"}
    (shown,) = view([node(ready={"status": "Unknown"}, target=refused)]).nodes
    assert (shown.ready, shown.target_reachable) == ("Unknown", "False")
    assert (shown.reason, shown.message) == ("ConnectionRefused", "no answer")


def test_a_node_that_is_not_ready_says_why() -> None:
    """With the target well, the reason is that of Ready."""
    ready = {"status": "False", "reason": "Stopped", "message": "bye"}
    (shown,) = view([node(ready=ready, target={"status": "True"})]).nodes
    assert (shown.ready, shown.reason, shown.message) == ("NotReady", "Stopped", "bye")


@pytest.mark.parametrize(
    ("reason", "shown_as"), [("FederateReady", ""), ("CompanionsLeft", "CompanionsLeft")]
)
def test_a_node_that_is_ready_may_have_a_word_for_operators(reason: str, shown_as: str) -> None:
    """As where companions are off, and some of before are left."""
    ready = {"status": "True", "reason": reason, "message": "said"}
    answers = {"status": "True", "reason": "TargetAnswers"}
    (shown,) = view([node(ready=ready, target=answers)]).nodes
    assert (shown.ready, shown.reason) == ("Ready", shown_as)
    assert shown.message == ("said" if shown_as else "")


def test_a_node_tells_what_is_decided_about_addresses() -> None:
    """The word of its condition; one of an earlier version has none."""
    told = node()
    told["status"]["conditions"] = [
        {"type": "federate.dev/AddressesReflected", "reason": "RangesOverlap", "message": "hidden"}
    ]
    (shown,) = view([told]).nodes
    assert (shown.addresses, shown.addresses_reason) == ("hidden", "RangesOverlap")
    (shown,) = view([node()]).nodes
    assert (shown.addresses, shown.addresses_reason) == ("", "")


def test_a_cordoned_node_says_so() -> None:
    """Cordoning shows as with kubectl."""
    cordoned = {**node(ready={"status": "True"}), "spec": {"unschedulable": True}}
    (shown,) = view([cordoned]).nodes
    assert shown.ready == "Ready,cordoned"


def test_a_bare_node_is_shown_too() -> None:
    """A node that has just been registered has no status, lease or time; that is no error."""
    bare = {"metadata": {"name": "edge", "annotations": {"federate.dev/hub": "uid"}}}
    (shown,) = view([bare]).nodes
    assert (shown.ready, shown.target_reachable, shown.leader) == ("Unknown", "Unknown", "")
    assert shown.age_seconds is None
    assert shown.pods == {}
    assert shown.allocatable == {}


def test_other_nodes_are_left_out() -> None:
    """Real nodes, and virtual nodes of others, are not federate's to show."""
    other: JsonDict = {"metadata": {"name": "real"}}
    assert [n.name for n in view([node("b"), other, node("a")]).nodes] == ["a", "b"]


def test_a_leader_that_fell_silent_is_noticed() -> None:
    """A lease past its duration has no leader any more, whoever stands in it."""
    (shown,) = view([node()], edge=lease(renewTime="2026-01-01T00:58:00.000000Z")).nodes
    assert (shown.leader, shown.leader_silent_seconds) == ("host-1", 120)
    (freed,) = view([node()], edge=lease(holderIdentity="")).nodes
    assert (freed.leader, freed.leader_silent_seconds) == ("", None)


def test_waiting_pods_come_longest_first() -> None:
    """Pods that have yet to run are listed with their reason, the oldest first."""

    def waiting(name: str, at: str) -> JsonDict:
        made = pod(name).bound_to("edge").with_status(phase="Pending", reason="CompanionMissing")
        built = made.build()
        return {**built, "metadata": {**built["metadata"], "creationTimestamp": at}}

    pods = [
        waiting("young", "2026-01-01T00:59:00Z"),
        waiting("old", "2026-01-01T00:10:00Z"),
        pod("up").bound_to("edge").running().build(),
    ]
    shown = view([node()], pods).waiting
    assert [(w.name, w.node, w.reason) for w in shown] == [
        ("old", "edge", "CompanionMissing"),
        ("young", "edge", "CompanionMissing"),
    ]
    assert shown[0].age_seconds == 3000


def test_terminating_pods_do_not_wait() -> None:
    """A pod that ends before it ran is on its way out."""
    assert not is_waiting(pod("a").terminating().build())
    assert is_waiting(pod("a").build())


def test_the_reason_may_be_a_containers() -> None:
    """Where the pod's status says nothing, a container that waits does."""
    held = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    statuses = [{"name": "a", "state": {"running": {}}}, {"name": "b", "state": held}]
    assert why_waiting({"status": {"containerStatuses": statuses}}) == (
        "ImagePullBackOff",
        "no such image",
    )
    assert why_waiting({"status": {"message": "m", "containerStatuses": statuses}}) == ("", "m")
    assert why_waiting({}) == ("", "")


def test_phases_are_counted_in_order() -> None:
    """Terminal pods count as such even while they terminate."""
    pods = [pod("a").succeeded().terminating().build(), pod("b").build(), pod("c").build()]
    assert list(count_phases(pods).items()) == [("Pending", 2), ("Succeeded", 1)]


def test_the_view_is_json() -> None:
    """`-o json` prints every field of the view."""
    shown = json.loads(json.dumps(view([node()], [pod("a").bound_to("edge").build()]).as_json()))
    assert shown["nodes"][0]["name"] == "edge"
    assert shown["waiting"][0]["name"] == "a"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "?"), (0, "0s"), (119, "119s"), (120, "2m"), (7200, "2h"), (200000, "2d")],
)
def test_ages_are_short(seconds: float | None, text: str) -> None:
    """Ages read as kubectl writes them."""
    assert format_age(seconds) == text
