"""`federate accept`: what is shown, and what is written on the Node (C5)."""

from __future__ import annotations

import pytest

from federate.cli.accept import accept_offered, describe, offered_by
from federate.errors import ConfigError, Conflict, NotFound
from federate.model.marks import (
    ACCEPT_TARGET_ANNOTATION,
    NODE_HUB_ANNOTATION,
    RECORD_ANNOTATION,
    TARGET_IDENTITY_ANNOTATION,
    MirrorRecord,
    Scope,
)
from federate.model.objects import JsonDict, ObjectKey, annotations_of
from federate.model.resources import NODES, PODS
from federate.node.probe import changed_message
from tests.support.builders import pod
from tests.support.clock import ManualClock
from tests.support.fakecluster import FakeCluster

Captured = pytest.CaptureFixture[str]
EDGE = ObjectKey("", "edge")


def node(*, reason: str = "TargetChanged", **annotations: str) -> JsonDict:
    message = changed_message(node_name="edge", recorded="old-uid", found="new-uid")
    condition = {
        "type": "federate.dev/TargetReachable",
        "status": "False",
        "reason": reason,
        "message": message,
    }
    marks = {NODE_HUB_ANNOTATION: "hub", TARGET_IDENTITY_ANNOTATION: "old-uid", **annotations}
    return {
        "metadata": {"name": "edge", "annotations": marks},
        "status": {"conditions": [condition]},
    }


def recorded_pod(name: str, *, mirror_uid: str = "m", phase: str = "Running") -> JsonDict:
    record = MirrorRecord(pod_uid=name, mirror=ObjectKey("ns", name), mirror_uid=mirror_uid)
    built = pod(name).with_uid(name).bound_to("edge").build()
    built["metadata"].setdefault("annotations", {})[RECORD_ANNOTATION] = record.format()
    built["status"] = {"phase": phase}
    return built


def hub_with(body: JsonDict | None, *pods: JsonDict) -> FakeCluster:
    hub = FakeCluster("hub", ManualClock())
    if body is not None:
        hub.add(NODES, body)
    for one in pods:
        hub.add(PODS, one)
    return hub


async def run(hub: FakeCluster, *, answer: bool = True) -> None:
    await accept_offered(hub.client(), "edge", may_accept=lambda: answer)


async def test_the_word_is_written_on_the_node(capsys: Captured) -> None:
    """Both clusters and the price are shown first; one patch, under the version that was shown."""
    hub = hub_with(node(), recorded_pod("a"), recorded_pod("b"))
    await run(hub)
    shown = capsys.readouterr().out
    assert "on record   old-uid" in shown
    assert "present cluster     new-uid" in shown
    assert "cluster on record: 2" in shown
    assert "Accepted." in shown
    scope = Scope(hub_id="hub", node_name="edge")
    assert f"delete configmap -A -l {scope.selector}" in shown
    assert annotations_of(hub.read(NODES, EDGE))[ACCEPT_TARGET_ANNOTATION] == "new-uid"
    [patch] = hub.writes()
    assert {"uid", "resourceVersion"} <= set((patch.body or {})["metadata"])


async def test_without_consent_nothing_is_written(capsys: Captured) -> None:
    """To look costs nothing."""
    hub = hub_with(node())
    await run(hub, answer=False)
    assert "Nothing is accepted." in capsys.readouterr().out
    assert hub.writes() == []


async def test_a_node_that_changed_while_it_was_shown_is_not_written() -> None:
    """What is accepted is what was seen."""
    hub = hub_with(node())

    def change_meanwhile() -> bool:
        hub.edit(NODES, EDGE, lambda n: n["metadata"]["annotations"].update(other="x"))
        return True

    with pytest.raises(Conflict):
        await accept_offered(hub.client(), "edge", may_accept=change_meanwhile)
    assert ACCEPT_TARGET_ANNOTATION not in annotations_of(hub.read(NODES, EDGE))


async def test_a_healthy_node_offers_nothing(capsys: Captured) -> None:
    """Nor does one whose target is merely away."""
    for reason in ("TargetAnswers", "TargetUnreachable"):
        hub = hub_with(node(reason=reason))
        await run(hub)
        assert "Nothing to accept" in capsys.readouterr().out
        assert hub.writes() == []


async def test_what_is_accepted_already_is_not_accepted_again(capsys: Captured) -> None:
    """It waits for a federate that runs."""
    hub = hub_with(node(**{ACCEPT_TARGET_ANNOTATION: "new-uid"}))
    await run(hub)
    assert "waits for a running federate" in capsys.readouterr().out
    assert hub.writes() == []


async def test_a_strangers_node_is_left_alone() -> None:
    """No word is written where nobody would read it."""
    hub = hub_with({"metadata": {"name": "edge"}})
    with pytest.raises(ConfigError, match="no virtual node"):
        await run(hub)
    with pytest.raises(NotFound):
        await run(hub_with(None))
    assert hub.writes() == []


def test_only_pods_that_will_be_lost_are_counted() -> None:
    """Ended ones stay as they are, and one without a mirror is made in the new cluster."""
    pods = [
        recorded_pod("runs"),
        recorded_pod("waits", phase="Pending"),
        recorded_pod("ended", phase="Succeeded"),
        recorded_pod("intended", mirror_uid=""),
        pod("never").bound_to("edge").build(),
    ]
    offered = offered_by(node(), pods)
    assert offered.mirrors == 2
    assert "MirrorLost" in describe(Scope(hub_id="hub", node_name="edge"), offered)
