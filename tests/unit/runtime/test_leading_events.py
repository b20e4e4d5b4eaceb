"""The target's Events through the wiring of the product, between two clusters in memory (C44)."""

from __future__ import annotations

import asyncio

from federate.errors import Forbidden
from federate.model.marks import RECORD_ANNOTATION, MirrorRecord
from federate.model.objects import JsonDict, ObjectKey, annotations_of, uid_of
from federate.model.pods import phase_of
from federate.model.resources import CORE_EVENTS, PODS
from federate.runtime.leading import Leading
from tests.support.builders import pod
from tests.support.clock import virtual_time
from tests.support.fakeclient import Call, Fault, Refuse
from tests.support.fakecluster import FakeCluster
from tests.support.scene import TARGET_NAMESPACE
from tests.unit.runtime.test_leading import MIRROR, A, Stage

PAST_HISTORY_SECONDS = 40.0
"""The fake clusters' clock is not the wall's: only young watches compare the two."""


def say(cluster: FakeCluster, about: ObjectKey, name: str, *, count: int = 1) -> JsonDict:
    """Let a kubelet say something about a pod."""
    key = ObjectKey(about.namespace, name)
    if cluster.find(CORE_EVENTS, key) is not None:
        return cluster.edit(CORE_EVENTS, key, lambda event: event.update(count=count))
    found = cluster.find(PODS, about)
    assert found is not None
    return cluster.add(
        CORE_EVENTS,
        {
            "metadata": {"namespace": about.namespace, "name": name},
            "involvedObject": {
                "kind": "Pod",
                "namespace": about.namespace,
                "name": about.name,
                "uid": uid_of(found),
            },
            "type": "Normal",
            "reason": "Pulled",
            "message": name,
            "source": {"component": "kubelet", "host": "worker"},
            "firstTimestamp": cluster.now(),
            "lastTimestamp": cluster.now(),
            "count": count,
        },
    )


def told(stage: Stage) -> list[tuple[str, str, int]]:
    """What the hub says about pods: uid, words and count."""
    return [
        (event["involvedObject"]["uid"], event["message"], event["count"])
        for resource, event in stage.hub.store.all()
        if resource == CORE_EVENTS and event["involvedObject"]["namespace"] == A.namespace
    ]


async def run_a(stage: Stage) -> None:
    """Let the pod `a` run, and the first watch of Events grow old."""
    await asyncio.sleep(3.0)
    stage.submit("a")
    await asyncio.sleep(3.0)
    stage.target.schedule(MIRROR, "worker")
    stage.target.set_pod_status(MIRROR, phase="Running")
    await asyncio.sleep(PAST_HISTORY_SECONDS)


def counted(stage_leading: Leading, outcome: str) -> float:
    """Read the counter of told or dropped Events."""
    labels = {"node": "edge", "outcome": outcome}
    registry = stage_leading._ports.metrics.registry
    return registry.get_sample_value("federate_target_events_total", labels) or 0.0


@virtual_time
async def test_what_the_target_says_of_a_mirror_stands_on_the_hub_pod() -> None:
    """Within a second, with the count moving later, and counted."""
    stage = Stage(capacity={"cpu": "4"})
    async with stage.leading() as leading:
        await run_a(stage)
        hub_uid = uid_of(stage.hub.read(PODS, A))
        say(stage.target, MIRROR, "a.1")
        await asyncio.sleep(1.0)
        assert told(stage) == [(hub_uid, "a.1", 1)]
        say(stage.target, MIRROR, "a.1", count=4)
        await asyncio.sleep(11.0)
        assert told(stage) == [(hub_uid, "a.1", 4)]
        assert counted(leading, "told") == 2.0
        assert counted(leading, "dropped") == 0.0


@virtual_time
async def test_what_is_said_of_others_is_not_told() -> None:
    """Pods of others in the target are nobody's business."""
    stage = Stage(capacity={"cpu": "4"})
    async with stage.leading():
        await run_a(stage)
        foreign = pod("a", namespace="other").build()
        stage.target.add(PODS, foreign)
        say(stage.target, ObjectKey("other", "a"), "a.1")
        await asyncio.sleep(5.0)
        assert told(stage) == []


@virtual_time
async def test_a_forged_record_shows_nothing_of_a_strangers_pod() -> None:
    """A user who writes a stranger's uid into the record of his pod learns nothing by it."""
    stage = Stage(capacity={"cpu": "4"})
    async with stage.leading():
        await run_a(stage)
        foreign = stage.target.add(PODS, pod("secret", namespace="other").build())

        def forge(hub_pod: JsonDict) -> None:
            record = MirrorRecord(
                pod_uid=uid_of(hub_pod),
                mirror=ObjectKey("other", "secret"),
                mirror_uid=uid_of(foreign),
            )
            hub_pod["metadata"]["annotations"][RECORD_ANNOTATION] = record.format()

        stage.hub.edit(PODS, A, forge)
        say(stage.target, ObjectKey("other", "secret"), "secret.1")
        await asyncio.sleep(5.0)
        assert told(stage) == []


@virtual_time
async def test_a_second_pod_with_our_marks_is_not_the_mirror() -> None:
    """Only the mirror on record speaks for the hub pod."""
    stage = Stage(capacity={"cpu": "4"})
    async with stage.leading():
        await run_a(stage)
        copy = stage.target.read(PODS, MIRROR)
        copy["metadata"].update(name="b", uid="second")
        stage.target.add(PODS, copy)
        say(stage.target, ObjectKey(TARGET_NAMESPACE, "b"), "b.1")
        await asyncio.sleep(2.0)
        assert told(stage) == []


@virtual_time
async def test_the_last_words_about_a_mirror_that_vanished() -> None:
    """What is said after the mirror vanished still explains the hub pod's end."""
    stage = Stage(capacity={"cpu": "4"})
    async with stage.leading():
        await run_a(stage)
        event = say(stage.target, MIRROR, "a.1")
        stage.target.store.remove(PODS, MIRROR)
        await asyncio.sleep(2.0)
        assert phase_of(stage.hub.read(PODS, A)) == "Failed"
        event["metadata"].update(name="a.2", uid="event-2")
        event["message"] = "a.2"
        stage.target.add(CORE_EVENTS, event)
        await asyncio.sleep(2.0)
        assert {message for _, message, _ in told(stage)} == {"a.1", "a.2"}


@virtual_time
async def test_a_pod_that_is_gone_is_told_nothing() -> None:
    """Once the hub pod is gone, words about its mirror are dropped."""
    stage = Stage(capacity={"cpu": "4"})
    async with stage.leading():
        await run_a(stage)
        event = say(stage.target, MIRROR, "a.1")
        await asyncio.sleep(2.0)
        stage.hub.delete_by_user(PODS, A)
        await asyncio.sleep(2.0)
        stage.target.finish_termination(MIRROR)
        await asyncio.sleep(2.0)
        assert stage.hub.find(PODS, A) is None
        event["metadata"].update(name="a.2", uid="event-2")
        stage.target.add(CORE_EVENTS, event)
        await asyncio.sleep(2.0)
        assert len(told(stage)) == 1


@virtual_time
async def test_c1_a_target_that_shows_no_events_still_runs_pods() -> None:
    """Without the right to watch Events the node is announced and pods run."""
    stage = Stage(capacity={"cpu": "4"})

    def forbid(call: Call) -> Fault | None:
        if call.client == "target" and call.resource == CORE_EVENTS:
            return Refuse(Forbidden("events is forbidden"))
        return None

    stage.target.faults = forbid
    async with stage.leading() as leading:
        await run_a(stage)
        assert leading.is_announced
        assert phase_of(stage.hub.read(PODS, A)) == "Running"
        open_gauge = "federate_target_events_open"
        registry = leading._ports.metrics.registry
        assert registry.get_sample_value(open_gauge, {"node": "edge"}) == 0.0
        say(stage.target, MIRROR, "a.1")
        stage.target.faults = None
        await asyncio.sleep(200.0)
        assert registry.get_sample_value(open_gauge, {"node": "edge"}) == 1.0


@virtual_time
async def test_c3_nothing_goes_round_where_the_target_is_the_hub() -> None:
    """A hub that is its own target tells each Event once."""
    stage = Stage(capacity={"cpu": "4"})
    stage.target = stage.hub
    stage.hub.documents["/version"] = {"gitVersion": "v1.34.4"}
    async with stage.leading():
        await run_a(stage)
        hub_pod = stage.hub.read(PODS, A)
        assert RECORD_ANNOTATION in annotations_of(hub_pod)
        say(stage.hub, MIRROR, "a.1")
        await asyncio.sleep(120.0)
        assert told(stage) == [(uid_of(hub_pod), "a.1", 1)]
        written = [call for call in stage.hub.writes() if call.resource == CORE_EVENTS]
        assert len(written) == 1


@virtual_time
async def test_a_new_leader_tells_what_happened_meanwhile_once() -> None:
    """An Event of the minutes without a leader is told; one that was told stays one."""
    stage = Stage(capacity={"cpu": "4"})
    async with stage.leading():
        await run_a(stage)
        say(stage.target, MIRROR, "a.1")
        await asyncio.sleep(2.0)
        assert len(told(stage)) == 1
    # As young as the wall's clock wants it.
    for name in ("a.1", "a.2"):
        say(stage.target, MIRROR, name)
        key = ObjectKey(TARGET_NAMESPACE, name)
        stage.target.edit(
            CORE_EVENTS, key, lambda e: e.update(lastTimestamp="2999-01-01T00:00:00Z")
        )
    async with stage.leading():
        await asyncio.sleep(10.0)
        assert {message for _, message, _ in told(stage)} == {"a.1", "a.2"}
        assert len(told(stage)) == 2
