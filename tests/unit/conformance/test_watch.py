"""When what the tests run on is taken to be gone."""

import json
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from e2e.conformance.watch import (
    StageBrokenError,
    Watch,
    look_at_cluster,
    look_at_process,
    unfit_among,
)
from e2e.support.process import FederateProcess
from e2e.testbed.errors import TestbedError
from e2e.testbed.provider import TestCluster

START = datetime(2026, 11, 30, 12, tzinfo=UTC)


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now

    def move(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


def test_a_passing_trouble_is_told_and_ends_nothing() -> None:
    """A busy API server may miss a look."""
    clock, answers = Clock(), iter(["no answer", "", ""])
    watch = Watch({"hub": lambda: next(answers)}, clock=clock)
    clock.move(15)
    assert watch.look() == "hub: no answer"
    assert watch.well_at == START
    clock.move(15)
    assert watch.look() == ""
    assert watch.well_at == START + timedelta(seconds=30)
    clock.move(500)
    assert watch.look() == ""


def test_a_lasting_trouble_breaks_the_stage() -> None:
    """The last look at which all was well tells which results can be trusted."""
    clock = Clock()
    said = {"hub": "", "target": ""}
    watch = Watch({name: partial(said.__getitem__, name) for name in said}, clock=clock)
    clock.move(15)
    watch.look()
    said["target"] = "no answer"
    clock.move(60)
    assert watch.look() == "target: no answer"
    clock.move(1)
    with pytest.raises(StageBrokenError, match=r"for 61 s something is wrong.*target: no answer"):
        watch.look()
    assert watch.well_at == START + timedelta(seconds=15)


def node(name: str = "real", **more: str) -> dict[str, Any]:
    conditions = {"Ready": "True", **more}
    return {
        "metadata": {"name": name},
        "status": {"conditions": [{"type": t, "status": s} for t, s in conditions.items()]},
    }


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (node(), ""),
        (None, "node real is not there"),
        (node(Ready="Unknown"), "node real is not ready: it says nothing"),
        (node(DiskPressure="True"), "node real has DiskPressure"),
        ({"metadata": {"name": "real"}}, "node real is not ready: it says nothing"),
    ],
)
def test_a_node_is_well_while_it_runs_pods(found: dict[str, Any] | None, words: str) -> None:
    """A node without room for pods is no node."""
    assert unfit_among({"real": found}) == words


class Cluster:
    """A cluster that says what it is told to."""

    def __init__(self, said: str | Exception) -> None:
        self.said = said

    def kubectl(self, *_arguments: str, **_more: Any) -> str:
        if isinstance(self.said, Exception):
            raise self.said
        return self.said


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (json.dumps({"items": [node(), node("edge", Ready="False")]}), ""),
        (json.dumps({"items": [node("edge")]}), "node real is not there"),
        (TestbedError("kubectl on hub ended with 1: connection\n refused"), "connection refused"),
        ("half an ans", "the API server does not answer"),
    ],
)
def test_a_cluster_is_well_while_it_answers_and_its_own_nodes_run_pods(
    said: str | Exception, words: str
) -> None:
    """A virtual node that is not ready is federate's own doing, and its failures count."""
    complaint = look_at_cluster(cast(TestCluster, Cluster(said)), ["real"])()
    assert words in complaint if words else complaint == ""


def test_a_federate_that_ended_is_told_with_the_end_of_its_log() -> None:
    """Nobody starts it again, so nothing that fails from then on says anything."""
    federate = SimpleNamespace(
        is_running=True, exit_code=3, log=Path("federate.log"), log_tail=lambda _: "lease lost"
    )
    look = look_at_process(cast(FederateProcess, federate))
    assert look() == ""
    federate.is_running = False
    assert look() == "it ended with 3. Its log federate.log ends:\nlease lost"
