"""A target's Event in the hub pod's terms."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from federate.events.render import (
    count_of,
    first_seen_at,
    last_seen_at,
    mirror_uid_of,
    render_event,
)
from federate.model.objects import JsonDict, JsonObject, ObjectKey, uid_of
from federate.patch.document import MERGE
from tests.support.builders import pod

HUB_POD = pod("web", namespace="shop").with_uid("hub-uid").build()


def told(**more: Any) -> JsonDict:
    """An Event as a kubelet writes it."""
    return {
        "metadata": {
            "name": "web.1",
            "namespace": "hub-x-shop",
            "uid": "event-1",
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": "hub-x-shop",
            "name": "web",
            "uid": "mirror-uid",
            "resourceVersion": "77",
            "fieldPath": "spec.containers{main}",
        },
        "type": "Warning",
        "reason": "BackOff",
        "message": "Back-off restarting failed container main",
        "source": {"component": "kubelet", "host": "worker1"},
        "reportingComponent": "kubelet",
        "reportingInstance": "worker1",
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:05:00Z",
        "eventTime": None,
        "count": 7,
    } | more


def scheduler_said(**more: Any) -> JsonDict:
    """An Event as the scheduler writes it, in the newer form."""
    return told(
        type="Warning",
        reason="FailedScheduling",
        message="0/3 nodes are available",
        action="Scheduling",
        source={},
        reportingComponent="default-scheduler",
        reportingInstance="default-scheduler-cp1",
        firstTimestamp=None,
        lastTimestamp=None,
        count=None,
        eventTime="2026-01-01T00:01:00.250000Z",
        series={"count": 3, "lastObservedTime": "2026-01-01T00:04:00.750000Z"},
    ) | {**more}


def test_a_kubelets_event() -> None:
    """The hub pod gets the same words, type, count and times, and the container it is about."""
    found = render_event(told(), HUB_POD, target_name="edge")
    assert found.key.namespace == "shop"
    assert found.key.name.startswith("web.")
    assert (found.mirror_uid, found.pod_uid) == ("mirror-uid", "hub-uid")
    assert found.body == {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": found.key.name, "namespace": "shop"},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": "shop",
            "name": "web",
            "uid": "hub-uid",
            "fieldPath": "spec.containers{main}",
        },
        "type": "Warning",
        "reason": "BackOff",
        "message": "Back-off restarting failed container main",
        "count": 7,
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:05:00Z",
        "source": {"component": "kubelet", "host": "edge/worker1"},
        "reportingComponent": "kubelet",
        "reportingInstance": "worker1",
    }


def test_a_schedulers_event() -> None:
    """An Event of the newer form is told in the older one, and FROM names the target."""
    body = render_event(scheduler_said(), HUB_POD, target_name="edge").body
    assert body["source"] == {"component": "default-scheduler, edge"}
    assert body["reportingComponent"] == "default-scheduler"
    assert body["reportingInstance"] == "default-scheduler-cp1"
    assert body["count"] == 3
    assert body["firstTimestamp"] == "2026-01-01T00:01:00Z"
    assert body["lastTimestamp"] == "2026-01-01T00:04:00Z"
    assert body["action"] == "Scheduling"
    assert "eventTime" not in body
    assert "series" not in body


def test_the_name_follows_from_both_sides() -> None:
    """The same Event has the same name however often it is told; others have others."""
    first = render_event(told(), HUB_POD, target_name="edge")
    again = render_event(told(count=9, message="other words"), HUB_POD, target_name="edge")
    assert again.key == first.key
    other_event = told(metadata={"uid": "event-2"})
    assert render_event(other_event, HUB_POD, target_name="edge").key != first.key
    successor = pod("web", namespace="shop").with_uid("hub-uid-2").build()
    assert render_event(told(), successor, target_name="edge").key != first.key


def test_progress_grows_with_each_repeat() -> None:
    """A later version of an Event has more progress, by count or by time."""
    first = render_event(told(), HUB_POD, target_name="edge").progress
    counted = render_event(told(count=8), HUB_POD, target_name="edge").progress
    later = told(lastTimestamp="2026-01-01T00:06:00Z")
    assert first < counted
    assert first < render_event(later, HUB_POD, target_name="edge").progress


def test_a_change_brings_count_time_and_words() -> None:
    """What is there already is brought up to date by three fields."""
    change = render_event(told(), HUB_POD, target_name="edge").change()
    assert change.media_type == MERGE
    assert change.body == {
        "count": 7,
        "lastTimestamp": "2026-01-01T00:05:00Z",
        "message": "Back-off restarting failed container main",
    }


def test_an_event_that_says_little() -> None:
    """What a client left out is filled in, or left out too."""
    bare: JsonDict = {
        "metadata": {"uid": "e", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "involvedObject": {"kind": "Pod", "uid": "mirror-uid"},
    }
    found = render_event(bare, HUB_POD, target_name="edge")
    assert found.body["type"] == "Normal"
    assert found.body["count"] == 1
    assert found.body["firstTimestamp"] == found.body["lastTimestamp"] == "2026-01-01T00:00:00Z"
    assert found.body["source"] == {"component": "unknown, edge"}
    assert "fieldPath" not in found.body["involvedObject"]
    assert "action" not in found.body
    nothing: JsonDict = {}
    assert (mirror_uid_of(nothing), count_of(nothing)) == ("", 1)
    assert last_seen_at(nothing) == first_seen_at(nothing) == datetime.min.replace(tzinfo=UTC)


def test_a_kubelet_that_does_not_say_where() -> None:
    """Where no node is named, the target is."""
    event = told(source={"component": "kubelet"}, reportingInstance="")
    body = render_event(event, HUB_POD, target_name="edge").body
    assert body["source"] == {"component": "kubelet", "host": "edge"}


def test_c73_words_are_bounded() -> None:
    """A message longer than the API takes is cut."""
    body = render_event(told(message="x" * 5000), HUB_POD, target_name="edge").body
    assert len(body["message"]) == 1024
    long = "y" * 5000
    event = told(reason=long, action=long, type=long, source={"component": long, "host": long})
    event["involvedObject"]["fieldPath"] = long
    body = render_event(event, HUB_POD, target_name="edge").body
    assert len(str(body)) < 3000
    assert body["type"] == "Normal"


def test_the_name_fits_a_long_pod_name() -> None:
    """A pod with the longest name there is gets Events with names that are valid."""
    longest = pod("x" * 253, namespace="shop").with_uid("u").build()
    key = render_event(told(), longest, target_name="edge").key
    assert isinstance(key, ObjectKey)
    assert len(key.name) == 253


def test_c30_names_of_companions_are_the_hubs() -> None:
    """What puts them back is asked for this pod and its mirror's namespace; then it is cut."""
    asked: list[tuple[str, str]] = []

    def words(hub_pod: JsonObject, namespace: str) -> Callable[[str], str]:
        asked.append((uid_of(hub_pod), namespace))
        return lambda text: text.replace("db-x", "db")

    said = 'MountVolume.SetUp failed for volume "v" : secret "db-x" not found'
    found = render_event(told(message=said), HUB_POD, target_name="edge", words=words)
    assert found.body["message"] == said.replace("db-x", "db")
    assert asked == [("hub-uid", "hub-x-shop")]
