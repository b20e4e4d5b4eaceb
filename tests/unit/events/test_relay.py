"""Which of the target's Events reach a hub pod, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from random import Random
from typing import Any

import pytest
import structlog

from federate.errors import LeadershipLost
from federate.events.relay import EventRelay
from federate.events.render import HubEvent, render_event
from federate.events.teller import Teller
from federate.model.marks import RECORD_ANNOTATION, MirrorRecord
from federate.model.objects import JsonObject, ObjectKey
from tests.support.builders import pod
from tests.support.clock import virtual_loop, virtual_time
from tests.support.fakecluster import FakeCluster
from tests.support.rights import role_in

MIRROR = ObjectKey("hub-1-default", "web")
RECORD = MirrorRecord(pod_uid="hub-uid", mirror=MIRROR, mirror_uid="mirror-uid")
HUB_POD = (
    pod("web").with_uid("hub-uid").with_annotations({RECORD_ANNOTATION: RECORD.format()}).build()
)


class Notebook(Teller):
    """Notes what it shall tell; `run` fails as often as it is told to."""

    def __init__(self, *failures: Exception) -> None:
        self.heard: list[HubEvent] = []
        self.failures = list(failures)
        self.started_at: list[float] = []

    def tell(self, event: HubEvent) -> None:
        self.heard.append(event)

    async def run(self) -> None:
        self.started_at.append(virtual_loop().time())
        if self.failures:
            raise self.failures.pop(0)
        await asyncio.sleep(3600.0)


def relay_of(notebook: Notebook, hub_pods: Mapping[str, JsonObject]) -> EventRelay:
    return EventRelay(
        FakeCluster("target", virtual_loop().time).client(),
        hub_pods.get,
        notebook,
        render=partial(render_event, target_name="edge"),
        clock=virtual_loop().time,
        now=lambda: datetime.now(UTC),
        random=Random(1),
    )


def about(uid: str, **more: Any) -> JsonObject:
    return {
        "metadata": {"uid": "event-uid"},
        "involvedObject": {
            "kind": "Pod",
            "namespace": MIRROR.namespace,
            "name": MIRROR.name,
            "uid": uid,
        },
        "reason": "Pulled",
        **more,
    }


@virtual_time
async def test_only_what_is_about_a_mirror_is_told() -> None:
    """An Event about a mirror reaches its hub pod; those about other pods reach nobody."""
    notebook = Notebook()
    relay = relay_of(notebook, {"mirror-uid": HUB_POD})
    for event in (about("foreign"), about(""), {}, about("mirror-uid")):
        relay.on_event(event)
    (told,) = notebook.heard
    assert told.body["involvedObject"]["uid"] == "hub-uid"
    assert told.body["reason"] == "Pulled"


@virtual_time
async def test_who_writes_in_another_namespace_says_nothing_about_a_mirror() -> None:
    """An API server ties an Event to the namespace it names, and not to the uid."""
    notebook = Notebook()
    relay = relay_of(notebook, {"mirror-uid": HUB_POD})
    for elsewhere in ({"namespace": "theirs"}, {"name": "other"}):
        event = about("mirror-uid")
        event = {**event, "involvedObject": {**event["involvedObject"], **elsewhere}}
        relay.on_event(event)
    assert notebook.heard == []


@virtual_time
async def test_c3_no_echo_where_hub_and_target_are_one() -> None:
    """What is told about a hub pod comes back by the watch, and is about no mirror."""
    notebook = Notebook()
    relay = relay_of(notebook, {"mirror-uid": HUB_POD})
    relay.on_event(about("mirror-uid"))
    (told,) = notebook.heard
    relay.on_event(told.body)
    assert notebook.heard == [told]


@virtual_time
async def test_c22_each_namespace_is_watched_by_itself() -> None:
    """With rights there alone; a namespace where they lack leaves the others open."""
    cluster = FakeCluster("target", virtual_loop().time)
    cluster.faults = role_in("team-a")
    relay = EventRelay(
        cluster.client(),
        lambda _uid: None,
        Notebook(),
        render=partial(render_event, target_name="edge"),
        namespaces=lambda: ("team-a", "team-b"),
        clock=virtual_loop().time,
        now=lambda: datetime.now(UTC),
        random=Random(1),
    )
    tasks = [asyncio.create_task(part()) for part in relay.parts().values()]
    await asyncio.sleep(30.0)
    assert {str(call) for call in cluster.calls} == {"watch events team-a/", "watch events team-b/"}
    assert [feed.is_open for feed in relay._feeds] == [True, False]
    cluster.faults = role_in("team-a", "team-b")
    await asyncio.sleep(400.0)
    assert relay.is_open
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@virtual_time
async def test_a_crash_is_supervised() -> None:
    """A part that crashes is started again, later and later; pods do not depend on it."""
    notebook = Notebook(ValueError("odd"), ValueError("odd"), ValueError("odd"))
    relay = relay_of(notebook, {})
    with structlog.testing.capture_logs() as lines:
        task = asyncio.create_task(relay.parts()["events-teller"]())
        await asyncio.sleep(100.0)
        task.cancel()
    assert [at - notebook.started_at[0] for at in notebook.started_at] == [0, 5, 15, 35]
    assert [line["log_level"] for line in lines] == ["error"] * 3


@virtual_time
async def test_c70_a_lost_lease_ends_it() -> None:
    """Who leads no more stops, and with him everything else that a leader runs."""
    relay = relay_of(Notebook(LeadershipLost("not ours")), {})
    with pytest.raises(LeadershipLost):
        await relay.parts()["events-teller"]()
