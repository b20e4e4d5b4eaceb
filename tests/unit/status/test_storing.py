"""Why there is no storage, on the hub pod of a mirror without a node."""

from __future__ import annotations

from typing import Any

from federate.model.objects import JsonDict
from federate.status.project import MIRROR_SCHEDULED
from federate.status.storing import with_claim_words
from tests.support.builders import pod

NOW, BEFORE = "2026-01-01T00:10:00Z", "2026-01-01T00:00:00Z"
HUB = pod("web").bound_to("edge").build()
MIRROR = pod("web").build()
READY = {"type": "Ready", "status": "False", "reason": "MirrorUnschedulable", "message": "full"}
SCHEDULED = {"type": MIRROR_SCHEDULED, "status": "False", "reason": "X", "message": "full"}


def told(conditions: list[JsonDict], *, hub: JsonDict = HUB, **how: Any) -> dict[str, JsonDict]:
    how = {"said": "no disk", **how}
    status = with_claim_words({"conditions": conditions}, hub, MIRROR, now=NOW, **how)
    return {c["type"]: c for c in status["conditions"]}


def test_where_the_scheduler_says_nothing_the_claim_does() -> None:
    """It waits for storage, and the pod would be Pending without a word."""
    other = {"type": "Initialized", "status": "True"}
    found = told([other, {"type": "Ready", "status": "False", "reason": "ContainersNotReady"}])
    assert found["Initialized"] == other
    scheduled, ready = found[MIRROR_SCHEDULED], found["Ready"]
    assert (scheduled["status"], scheduled["reason"]) == ("False", "ClaimPending")
    assert (ready["status"], ready["reason"]) == ("False", "MirrorUnschedulable")
    assert scheduled["message"] == ready["message"] == "no disk"
    assert scheduled["lastTransitionTime"] == NOW


def test_the_time_of_the_change_stays() -> None:
    """The same status again is no write."""
    condition = {**SCHEDULED, "lastTransitionTime": BEFORE}
    hub = pod("web").bound_to("edge").with_status(conditions=[condition]).build()
    assert told([], hub=hub)[MIRROR_SCHEDULED]["lastTransitionTime"] == BEFORE


def test_behind_the_schedulers_own_words() -> None:
    found = told([SCHEDULED, READY, {"type": "Initialized", "status": "True"}])
    assert found[MIRROR_SCHEDULED] == {**SCHEDULED, "message": "full; no disk"}
    assert found["Ready"] == {**READY, "message": "full; no disk"}
    assert "message" not in found["Initialized"]


def test_nothing_is_added_where_nothing_is_said_or_the_mirror_has_a_node() -> None:
    status: JsonDict = {"conditions": [READY]}
    assert with_claim_words(status, HUB, MIRROR, said="", now=NOW) is status
    placed = pod("web").bound_to("worker").build()
    assert with_claim_words(status, HUB, placed, said="no disk", now=NOW) is status
