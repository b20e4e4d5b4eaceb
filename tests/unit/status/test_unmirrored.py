"""What hub pods say that by policy have no mirror and do not wait for one."""

from __future__ import annotations

from federate.model.objects import condition_of
from federate.model.pods import has_started, is_terminal
from federate.status.unmirrored import failed_status, pretended_status
from tests.support.views import hub_pod

NOW, LATER = "2026-01-01T02:00:00Z", "2026-01-01T03:00:00Z"


def test_c26_a_refused_pod_can_fail() -> None:
    """Phase, reason and message say why, and no container has a status."""
    built = hub_pod().build()
    status = failed_status(built, reason="Refused", message="leave it out", now=NOW)
    assert is_terminal({"status": status})
    assert (status["reason"], status["message"]) == ("Refused", "leave it out")
    ready = condition_of({"status": status}, "Ready")
    assert ready is not None
    assert (ready["status"], ready["reason"]) == ("False", "Refused")
    assert "containerStatuses" not in status


def test_c26_a_pretended_pod_is_ready_and_has_run_nothing() -> None:
    """The DaemonSet goes on; nobody takes it for a pod that once ran."""
    built = hub_pod().build()
    status = pretended_status(built, reason="NotRunHere", message="not run", now=NOW)
    told = {**built, "status": status}
    ready = condition_of(told, "Ready")
    assert ready is not None
    assert (ready["status"], ready["reason"], ready["lastTransitionTime"]) == (
        "True",
        "NotRunHere",
        NOW,
    )
    assert status["reason"] == "NotRunHere"
    assert not has_started(told)
    assert not is_terminal(told)


def test_c26_since_when_it_is_ready_stays() -> None:
    """minReadySeconds counts from the first time: saying it again is no change."""
    built = hub_pod().build()
    said = pretended_status(built, reason="NotRunHere", message="not run", now=NOW)
    again = pretended_status(
        {**built, "status": said}, reason="NotRunHere", message="not run", now=LATER
    )
    assert again == said
