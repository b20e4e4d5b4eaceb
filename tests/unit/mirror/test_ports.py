"""What is remembered of a hub pod between two rounds: the last word of its mirror."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, cast

import pytest

from federate.cluster.store import Store
from federate.companions.holding import Hold
from federate.companions.steps import Blocked
from federate.mirror.ports import PodMemories, PodMemory, PodPorts
from federate.mirror.refusal import Refusal
from federate.model.marks import RECORDED_GATE, Origin
from federate.model.objects import JsonDict, JsonObject, ObjectKey, uid_of
from tests.support.builders import PodBuilder
from tests.support.companions import key_for
from tests.support.views import NOW, SCOPE, hub_pod, mirror, recording

KEY = ObjectKey("default", "web")
REFUSAL = Refusal(reason="UpdateRejected", message="no")


class _Ports:
    def __init__(self, hub: JsonObject) -> None:
        self.hub_pods = Store()
        self.hub_pods.replace([dict(hub)])


def remembered(hub: JsonObject, known: JsonObject, last: JsonObject, **memory: Any) -> Any:
    memories = PodMemories(cast(PodPorts, _Ports(hub)))
    for name, value in memory.items():
        setattr(memories.of(uid_of(hub)), name, value)
    memories.note_end(Origin(scope=SCOPE, pod=KEY, pod_uid=uid_of(hub)), known, last=last)
    return memories.peek(uid_of(hub)).last_state


def gated(builder: PodBuilder) -> JsonDict:
    return builder.with_spec(schedulingGates=[{"name": RECORDED_GATE}]).build()


def test_the_end_of_the_mirror_on_record_is_kept() -> None:
    """Gated or not: it may have been let go."""
    hub = recording(hub_pod()).build()
    last = mirror().succeeded().build()
    assert remembered(hub, mirror().build(), last) == last
    assert remembered(hub, gated(mirror()), gated(mirror())) == gated(mirror())


def test_the_end_of_another_mirror_is_not() -> None:
    """A second mirror of the same hub pod says nothing."""
    hub = recording(hub_pod()).build()
    second = mirror(uid="second").succeeded().build()
    assert remembered(hub, second, second) is None


def test_an_unrecorded_mirror_counts_only_if_it_could_run() -> None:
    """By its last object: the gate may have been lifted by hand since it was seen."""
    hub = hub_pod().build()
    last = mirror().succeeded().build()
    assert remembered(hub, gated(mirror()), gated(mirror())) is None
    assert remembered(hub, gated(mirror()), last) == last


@pytest.mark.parametrize("weakened_by", ["", "hostUsers"])
def test_what_federate_took_back_is_no_end_of_the_pod(weakened_by: str) -> None:
    """A mirror that would run weaker was removed by us."""
    hub = hub_pod().build()
    last = mirror().build()
    found = remembered(hub, last, last, weakened_by=weakened_by)
    assert found == (None if weakened_by else last)


def test_what_federate_took_back_unused_is_no_end_either() -> None:
    """Also where its watch told of its end before the answer to the delete came."""
    hub = recording(hub_pod()).build()
    last = gated(mirror())
    assert remembered(hub, last, last, taken_back=uid_of(last)) is None
    memory = PodMemory(last_state=last)
    memory.note_taken_back("another")
    assert memory.last_state is last
    memory.note_taken_back(uid_of(last))
    assert memory.last_state is None


def test_a_refused_change_is_tried_again_ever_more_seldom() -> None:
    """5 s, 10 s, ... 5 min; another change begins anew; a long refusal breaks nothing."""
    memory = PodMemory()

    def waits(fingerprint: str) -> float:
        memory.note_refused("images", fingerprint, REFUSAL, now=NOW)
        return (memory.refused["images"].again_at - NOW).total_seconds()

    assert [waits("a") for _ in range(8)] == [5, 10, 20, 40, 80, 160, 300, 300]
    assert waits("b") == 5
    assert [waits("b") for _ in range(2000)][-1] == 300


def test_c30_it_is_remembered_since_when_companions_come() -> None:
    """As long as any is coming; a clock that is set back makes it no longer."""
    memories = PodMemories(cast(PodPorts, _Ports(hub_pod().build())))
    key = key_for()
    hold, later = Hold(coming=(key,)), NOW + timedelta(seconds=9)
    assert memories.note_hold("u", hold, now=NOW) == NOW
    assert memories.note_hold("u", hold, now=later) == NOW
    assert memories.note_hold("u", hold, now=NOW - timedelta(hours=1)) == NOW - timedelta(hours=1)
    stuck = Hold(stuck=((key, Blocked(reason="NameTaken", message="no")),))
    assert memories.note_hold("u", stuck, now=later) is None
    assert memories.note_hold("u", hold, now=later) == later
    assert memories.note_hold("u", None, now=later) is None
    assert memories.peek("u").held_since is None


def test_what_waits_for_nothing_is_not_remembered() -> None:
    """Most pods."""
    memories = PodMemories(cast(PodPorts, _Ports(hub_pod().build())))
    assert memories.note_hold("u", None, now=NOW) is None
    assert memories.peek("u") is not memories.peek("u")
