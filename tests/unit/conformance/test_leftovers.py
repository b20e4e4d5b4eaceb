"""What is left of a run before the next one begins."""

from typing import cast

import pytest

from e2e.conformance.leftovers import wait_for_empty
from e2e.testbed.progress import Progress
from e2e.testbed.provider import TestCluster


class Cluster:
    """A cluster whose namespaces go away after some looks."""

    def __init__(self, name: str, *, suites: int = 0, federates: int = 0) -> None:
        self.name = name
        self.left = {"e2e-run": suites, "federate.dev/hub": federates}
        self.looks = 0

    def kubectl(self, *arguments: str) -> str:
        [selector] = [word for word in arguments if word.startswith("--selector=")]
        label = selector.removeprefix("--selector=")
        self.looks += 1
        if not self.left[label]:
            return ""
        self.left[label] -= 1
        return f"namespace/{label.replace('/', '-')}-1\n"


def wait_for(*clusters: Cluster, seconds: float) -> dict[str, list[str]]:
    found = [cast(TestCluster, one) for one in clusters]
    return wait_for_empty(found, Progress(quiet=True), timeout_seconds=seconds, poll_seconds=0.0)


def test_where_nothing_is_left_nobody_waits(capsys: pytest.CaptureFixture[str]) -> None:
    """One look at each kind of namespace is enough."""
    hub, target = Cluster("hub"), Cluster("target")
    assert wait_for(hub, target, seconds=60.0) == {}
    assert (hub.looks, target.looks) == (2, 2)
    assert capsys.readouterr().err == ""


def test_the_suites_namespaces_and_federates_are_waited_for() -> None:
    """Both end some time after the last spec."""
    hub, target = Cluster("hub", suites=2), Cluster("target", federates=4)
    assert wait_for(hub, target, seconds=60.0) == {}
    assert target.left["federate.dev/hub"] == 0


def test_what_stays_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """The next run goes on all the same, and nobody has to guess what it was slow for."""
    target = Cluster("target", federates=10**9)
    assert wait_for(Cluster("hub"), target, seconds=0.05) == {"target": ["federate.dev-hub-1"]}
    assert "target: 1 namespaces stay after" in capsys.readouterr().err
