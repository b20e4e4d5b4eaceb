"""What containers told is counted once each, and held against what the hub says of them."""

import json
from pathlib import Path

import pytest

from e2e.containers.crate import starts_of, statuses_of, waits_for_image
from e2e.containers.reports import Reports
from e2e.support.witness import Json

RAN = {"containerID": "containerd://1", "exitCode": 0}


def line(event: str, *, run: str = "one", space: str = "here", pod: str = "p") -> str:
    told = {
        "space": space,
        "pod": pod,
        "uid": f"uid-of-{pod}",
        "container": "main",
        "run": run,
        "version": "1",
        "event": event,
        "detail": "",
        "heard_at": 1.5,
    }
    return json.dumps(told) + "\n"


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """What the witness prints."""
    path = tmp_path / "output"
    path.touch()
    return path


def say(output: Path, text: str) -> None:
    with output.open("a") as stream:
        stream.write(text)


def test_reports_are_read_as_they_come(output: Path) -> None:
    """A line that is there in part is read when it is whole, and nothing is read twice."""
    reports = Reports(output, url="")
    whole = line("ended")
    say(output, line("started") + whole[:20])
    assert [r.event for r in reports.all(space="here")] == ["started"]
    say(output, whole[20:])
    assert [r.event for r in reports.all(space="here")] == ["started", "ended"]


def test_a_report_that_arrived_twice_is_one(output: Path) -> None:
    """A container that did not hear the answer says it again: that is no second run."""
    reports = Reports(output, url="")
    say(output, line("started") + line("started") + line("started", run="two"))
    (starts,) = reports.starts(space="here").values()
    assert [r.run for r in starts] == ["one", "two"]


def test_reports_are_found_by_space_and_pod(output: Path) -> None:
    """Tests that run side by side hear of their own containers only."""
    reports = Reports(output, url="")
    say(output, line("started", space="there", run="x") + line("started", pod="q"))
    assert [r.pod for r in reports.all(space="here")] == ["q"]
    assert not reports.all(space="here", pod="p")
    assert list(reports.starts(space="there")) == [("uid-of-p", "main")]


@pytest.mark.parametrize(
    ("status", "starts"),
    [
        ({"state": {"waiting": {"reason": "ContainerCreating"}}, "restartCount": 0}, 0),
        ({"state": {"running": {}}, "restartCount": 0}, 1),
        ({"state": {"running": {}}, "lastState": {"terminated": RAN}, "restartCount": 2}, 3),
        ({"state": {"terminated": RAN}, "restartCount": 0}, 1),
        (
            {
                "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                "lastState": {"terminated": RAN},
                "restartCount": 1,
            },
            2,
        ),
        ({"state": {"terminated": {"exitCode": 137, "reason": "MirrorLost"}}}, 0),
    ],
)
def test_starts_are_read_from_a_container_status(status: Json, starts: int) -> None:
    """A container ran once more than it was restarted, if it ran at all."""
    assert starts_of(status) == starts


def test_all_kinds_of_containers_count() -> None:
    """Init and debug containers are held against their starts as well."""
    status = {
        "initContainerStatuses": [{"name": "first"}],
        "containerStatuses": [{"name": "main"}],
        "ephemeralContainerStatuses": [{"name": "look"}],
    }
    assert list(statuses_of({"status": status})) == ["first", "main", "look"]
    assert statuses_of({}) == {}


def test_a_container_that_is_being_created_does_not_yet_lack_its_image() -> None:
    """Only a failed pull counts as one."""
    assert waits_for_image({"state": {"waiting": {"reason": "ErrImagePull"}}})
    assert not waits_for_image({"state": {"waiting": {"reason": "ContainerCreating"}}})
    assert not waits_for_image({"state": {"running": {}}})
