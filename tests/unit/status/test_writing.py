"""One patch says what the hub pod must say: three-way, atomic, guarded, and only if needed."""

from __future__ import annotations

import copy

import pytest

from federate.model.marks import (
    RECORD_ANNOTATION,
    TARGET_ANNOTATION,
    TARGET_NODE_ANNOTATION,
    MirrorRecord,
    record_of,
)
from federate.model.objects import JsonDict, ObjectKey, annotations_of, condition_of, status_of
from federate.patch.document import STRATEGIC
from federate.status.project import project_status, waiting_status
from federate.status.writing import plan_hub_write
from tests.support.views import ADDRESSES, condition_status, hub_pod, mirror, patched

RECORD = MirrorRecord(pod_uid="uid-web", mirror=ObjectKey("hub-x", "web"), mirror_uid="m-1")


def mirrored() -> JsonDict:
    """Return a hub pod whose mirror's status was written."""
    hub = hub_pod().with_condition("example.com/lb", "True").build()
    status = project_status(hub, mirror().running().build(), ADDRESSES)
    return patched(hub, plan_hub_write(hub, status=status, record=RECORD, target="berlin"))


def test_everything_travels_in_one_guarded_patch() -> None:
    """Status, record and annotations are atomic, under uid and version (C20, C70)."""
    hub = hub_pod().build()
    status = project_status(hub, mirror().running().build(), ADDRESSES)
    write = plan_hub_write(hub, status=status, record=RECORD, target="berlin", target_node="b-7")
    assert write is not None
    assert write.patch.media_type == STRATEGIC
    body = write.patch.body
    assert (body["metadata"]["uid"], body["metadata"]["resourceVersion"]) == ("uid-web", "1")
    assert set(body["metadata"]["annotations"]) == {
        RECORD_ANNOTATION,
        TARGET_ANNOTATION,
        TARGET_NODE_ANNOTATION,
    }
    assert body["status"]["phase"] == "Running"


def test_c41_the_same_status_is_no_write() -> None:
    """Nothing changed costs nothing."""
    hub = mirrored()
    status = project_status(hub, mirror().running().build(), ADDRESSES)
    assert plan_hub_write(hub, status=status, record=RECORD, target="berlin") is None
    assert plan_hub_write(hub) is None


def test_c41_conditions_of_others_survive() -> None:
    """A load balancer's readiness condition is nobody's but its controller's."""
    hub = mirrored()
    status = project_status(hub, mirror().failed().build(), ADDRESSES)
    told = patched(hub, plan_hub_write(hub, status=status))
    assert condition_status(told, "example.com/lb") == "True"
    assert condition_status(told, "PodScheduled") == "True"
    assert condition_status(told, "Ready") == "False"


def test_c41_ready_comes_back_after_the_node_controller_overwrote_it() -> None:
    """The live object is compared, not a memory of the last write."""
    hub = mirrored()
    ready = condition_of(hub, "Ready")
    assert ready is not None
    overwritten = copy.deepcopy(hub)
    for condition in overwritten["status"]["conditions"]:
        if condition["type"] == "Ready":
            condition.update(status="False", reason="NodeNotReady")
    status = project_status(overwritten, mirror().running().build(), ADDRESSES)
    told = patched(overwritten, plan_hub_write(overwritten, status=status))
    assert condition_of(told, "Ready") == ready


def test_c41_what_the_mirror_no_longer_says_is_removed() -> None:
    """A message of yesterday does not stay."""
    hub = hub_pod().build()
    waiting = waiting_status(
        hub, reason="TargetUnreachable", message="m", now="2026-01-01T00:00:00Z"
    )
    told = patched(hub, plan_hub_write(hub, status=waiting))
    status = project_status(told, mirror().running().build(), ADDRESSES)
    mirrored_now = patched(told, plan_hub_write(told, status=status))
    assert not {"reason", "message"} & set(status_of(mirrored_now))
    assert condition_of(mirrored_now, "federate.dev/Mirrored") is None


def test_c41_a_disruption_of_the_hubs_own_stays() -> None:
    """The hub's eviction wrote DisruptionTarget: a mirror without it does not remove it."""
    hub = mirrored()
    hub["status"]["conditions"].append({"type": "DisruptionTarget", "status": "True"})
    status = project_status(hub, mirror().failed().build(), ADDRESSES)
    told = patched(hub, plan_hub_write(hub, status=status))
    assert condition_status(told, "DisruptionTarget") == "True"


def test_foreign_annotations_survive() -> None:
    """Only our own annotations are touched."""
    hub = hub_pod().with_annotations({"team": "blue"}).build()
    told = patched(hub, plan_hub_write(hub, record=RECORD, target="berlin"))
    assert annotations_of(told)["team"] == "blue"
    assert record_of(told) == RECORD


def test_a_write_without_a_status_leaves_the_status() -> None:
    """An intent says nothing about the pod's state."""
    hub = hub_pod().running().build()
    write = plan_hub_write(hub, record=RECORD)
    assert write is not None
    assert "status" not in write.patch.body


@pytest.mark.parametrize(("phase", "is_told"), [("", False), ("running", True)])
def test_the_target_node_is_worth_a_write_only_past_pending(phase: str, is_told: bool) -> None:
    """While a pod is Pending more news comes anyway: the node rides along with it."""
    seen = mirror().running() if phase else mirror()
    hub = hub_pod().build()
    status = project_status(hub, seen.build(), ADDRESSES)
    hub = patched(hub, plan_hub_write(hub, status=status)) if phase else hub
    status = project_status(hub, seen.build(), ADDRESSES)
    write = plan_hub_write(hub, status=status, target_node="berlin-7")
    assert (write is not None) is is_told


def test_the_target_node_rides_along_with_news() -> None:
    """A Pending pod that has something to say tells its node too."""
    hub = hub_pod().build()
    status = project_status(hub, mirror().build(), ADDRESSES)
    told = patched(hub, plan_hub_write(hub, status=status, target="berlin", target_node="berlin-7"))
    assert annotations_of(told)[TARGET_NODE_ANNOTATION] == "berlin-7"


def test_a_futile_write_is_not_repeated() -> None:
    """A field that the hub does not take is not asked for again and again (C4)."""
    hub = hub_pod().build()
    write = plan_hub_write(hub, target="berlin")
    assert write is not None
    assert plan_hub_write(hub, target="berlin", futile=write.fingerprint) is None
    assert plan_hub_write(hub, target="paris", futile=write.fingerprint) is not None


def test_a_fingerprint_tells_the_content_not_the_version() -> None:
    """The same wish on a newer version of the pod is the same wish."""
    hub = hub_pod().build()
    newer = copy.deepcopy(hub)
    newer["metadata"]["resourceVersion"] = "2"
    first, second = plan_hub_write(hub, target="berlin"), plan_hub_write(newer, target="berlin")
    assert first is not None
    assert second is not None
    assert first.fingerprint == second.fingerprint
    assert first.patch != second.patch
