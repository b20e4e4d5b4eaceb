"""The demo's telling: rows in kubectl's words, waits with a limit; and what ends what it kept."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from rich.console import Console

from e2e.demo.federate import Federate
from e2e.demo.narrator import Narrator, StoryError
from e2e.demo.tables import agree, format_age, hub_pod_row, mirror_row, node_row, status_of
from e2e.support.witness import Json
from e2e.testbed.beds import Bed
from e2e.testbed.processes import Launcher, Record, Server, wait_until

NOW = datetime(2026, 1, 1, 12, 0, 30, tzinfo=UTC)


class Time:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def told() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def narrator(told: io.StringIO) -> Narrator:
    time = Time()
    return Narrator(Console(file=told, width=120), clock=time.clock, sleep=time.sleep)


def pod(**status: object) -> Json:
    return {
        "metadata": {
            "name": "web-1",
            "namespace": "demo",
            "creationTimestamp": "2026-01-01T12:00:00Z",
            "annotations": {"federate.dev/target-node": "target-node-0"},
        },
        "spec": {"nodeName": "edge", "containers": [{"name": "main"}]},
        "status": {
            "phase": "Running",
            "startTime": "2026-01-01T12:00:01Z",
            "containerStatuses": [{"ready": True}],
            "conditions": [{"type": "Ready", "status": "True"}],
            **status,
        },
    }


def mirror() -> Json:
    found = pod()
    found["metadata"]["annotations"] = {
        "federate.dev/hub-pod-namespace": "demo",
        "federate.dev/hub-pod-name": "web-1",
    }
    found["metadata"]["labels"] = {"federate.dev/hub-pod-uid": "0123456789"}
    found["spec"]["nodeName"] = "target-node-0"
    return found


def test_a_hub_pod_is_shown_with_the_node_its_mirror_runs_on() -> None:
    """A row of the hub names the virtual node and the target's node."""
    row = hub_pod_row(pod(), now=NOW)
    assert row == ("web-1", "1/1", "Running", "edge", "target-node-0", "30s")


def test_a_waiting_pod_is_shown_with_its_reason() -> None:
    """The reason of a pod stands where kubectl puts it, and a deletion wins over it."""
    waiting = pod(phase="Pending", reason="MirrorRejected", containerStatuses=None)
    assert hub_pod_row(waiting, now=NOW)[1:3] == ("0/1", "MirrorRejected")
    waiting["metadata"]["deletionTimestamp"] = "2026-01-01T12:00:10Z"
    assert status_of(waiting) == "Terminating"


def test_a_mirror_is_shown_with_its_hub_pod() -> None:
    """A row of the target says which hub pod the mirror stands for."""
    assert mirror_row(mirror())[-2:] == ("target-node-0", "demo/web-1 (uid 01234567)")


def test_a_node_is_shown_with_its_size() -> None:
    """A node that says nothing of its size is shown all the same."""
    node = {"metadata": {"name": "edge"}, "status": {"allocatable": {"cpu": "96"}}}
    assert node_row(node) == ("edge", "NotReady", "", "96", "?", "?")


def test_a_hub_pod_agrees_with_its_mirror_only_if_everything_came_back() -> None:
    """The demo's check of the status direction sees a stale phase and a wrong node."""
    assert agree(pod(), mirror())
    assert not agree(pod(phase="Pending"), mirror())
    elsewhere = mirror()
    elsewhere["spec"]["nodeName"] = "target-node-1"
    assert not agree(pod(), elsewhere)


@pytest.mark.parametrize(("second", "age"), [(30, "30s"), (29, "29s")])
def test_ages_are_short(second: int, age: str) -> None:
    """Ages are told as kubectl tells them."""
    assert format_age("2026-01-01T12:00:00Z", now=NOW.replace(second=second)) == age
    assert format_age("2026-01-01T11:50:00Z", now=NOW) == "10m"


def test_a_wait_tells_how_long_it_took(narrator: Narrator, told: io.StringIO) -> None:
    """Where no spinner turns, a long wait tells of itself every few seconds."""
    answers = iter([False] * 120 + [True])
    assert narrator.wait("the orphan is collected", lambda: next(answers)) is True
    lines = told.getvalue().splitlines()
    assert [line.split(": ")[-1] for line in lines[:-1]] == ["5 s", "10 s"]
    assert lines[-1] == "   ok  the orphan is collected (12.0 s)"


def test_a_wait_that_is_over_fails_the_story(narrator: Narrator) -> None:
    """The message names what did not come true and how long it was waited for."""
    with pytest.raises(StoryError, match="Not within 3 s: pods run"):
        narrator.wait("pods run", lambda: False, timeout_seconds=3.0)


def test_a_check_that_does_not_hold_fails_the_story(narrator: Narrator, told: io.StringIO) -> None:
    """Only what is true is told."""
    with pytest.raises(StoryError, match="Not true: nothing is left"):
        narrator.check("nothing is left", False)
    assert told.getvalue() == ""


def test_text_of_servers_is_no_markup(narrator: Narrator, told: io.StringIO) -> None:
    """What a cluster says in brackets is shown, not taken for a colour."""
    narrator.table("pods", ("NAME",), [("[red]web",)])
    narrator.table("pods", ("NAME",), [])
    assert "[red]web" in told.getvalue()
    assert "(none)" in told.getvalue()


@pytest.fixture
def launcher() -> Iterator[Launcher]:
    found = Launcher(tied=True)
    yield found
    found.close()


def test_a_kept_federate_ends_with_its_bed(tmp_path: Path, launcher: Launcher) -> None:
    """`clusters-down` ends the federate that the demo kept: it is recorded like a server."""
    bed = Bed(folder=tmp_path / "up")
    folder = bed.cluster_folder("federate")
    server = Server(
        "federate",
        [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"],
        folder=folder,
        launcher=launcher,
    )
    server.start()
    server.wait_ready(lambda: "up" in server.log_tail(), timeout_seconds=20.0)
    assert bed.remove() == 1
    assert wait_until(lambda: not server.is_running, 10.0)
    assert not bed.folder.exists()


def test_only_the_recorded_predecessor_is_ended(tmp_path: Path, launcher: Launcher) -> None:
    """A second `make demo KEEP=1` ends the kept federate; without a record it ends nothing."""
    federate = Federate(
        node="edge",
        hub=tmp_path / "hub.yaml",
        target=tmp_path / "target.yaml",
        folder=tmp_path / "federate",
        launcher=launcher,
    )
    assert federate.end_predecessor() is False
    assert federate.command_line == "federate run --hub hub.yaml --target edge=target.yaml"
    kept = Server(
        "federate",
        [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"],
        folder=tmp_path / "federate",
        launcher=launcher,
    )
    kept.start()
    kept.wait_ready(lambda: "up" in kept.log_tail(), timeout_seconds=20.0)
    assert Record.read(kept.record_path) is not None
    assert federate.end_predecessor() is True
    assert wait_until(lambda: not kept.is_running, 10.0)
