"""A record of a cluster has all that happened before it is asked, however late its watch."""

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from urllib3.exceptions import HTTPError

from e2e.support import recorder
from e2e.support.recorder import Change, WatchRecorder

Json = dict[str, Any]

LATE_SECONDS = 0.3


class LateCluster:
    """A witness of a cluster whose lists are up to date, and whose watch comes later."""

    def __init__(self) -> None:
        self.pods: dict[str, Json] = {}
        self.is_away = False
        self._told: list[Json] = []
        self._version = 0

    def put(self, uid: str) -> None:
        kind = "MODIFIED" if uid in self.pods else "ADDED"
        self._version += 1
        metadata = {"namespace": "ns", "name": uid, "uid": uid, "resourceVersion": self._version}
        self.pods[uid] = {"metadata": metadata, "spec": {}, "status": {"phase": "Running"}}
        self._tell_late(kind, self.pods[uid])

    def remove(self, uid: str) -> None:
        self._tell_late("DELETED", self.pods.pop(uid))

    def _tell_late(self, kind: str, pod: Json) -> None:
        event = {"type": kind, "object": pod}
        threading.Timer(LATE_SECONDS, self._told.append, [event]).start()

    def listing(self, kind: str, namespace: str = "") -> Json:
        return {"items": list(self.pods.values()), "metadata": {"resourceVersion": "0"}}

    def list(self, kind: str, namespace: str = "") -> list[Json]:
        if self.is_away:
            raise HTTPError("away")
        return list(self.pods.values())

    def watch(self, kind: str, *, resource_version: str) -> Iterator[Json]:
        threading.Event().wait(0.005)
        while self._told:
            yield self._told.pop(0)

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> LateCluster:
    late = LateCluster()
    monkeypatch.setattr(recorder, "Witness", lambda name, kubeconfig: late)
    return late


def open_record() -> closing[WatchRecorder]:
    return closing(WatchRecorder("late", Path("unused")))


def test_what_a_read_shows_is_on_record(cluster: LateCluster) -> None:
    """A pod that was created, changed or deleted before the question is in the answer."""
    with open_record() as record:
        cluster.put("one")
        assert [event.change for event in record.events(uid="one")] == [Change.CREATED]
        cluster.put("one")
        assert [event.change for event in record.events(uid="one")][1:] == [Change.WRITTEN]
        cluster.remove("one")
        gone = record.find(lambda event: event.change is Change.DELETED)
        assert gone is not None and gone.uid == "one"


def test_the_latest_of_each_pod_is_told_without_waiting(cluster: LateCluster) -> None:
    """What polls a record asks for the latest only."""
    with open_record() as record:
        cluster.put("one")
        assert record.latest("ns") == []
        assert len(record.events()) == 1
        assert [event.uid for event in record.latest("ns")] == ["one"]
        assert record.latest("elsewhere") == []


def test_a_cluster_that_is_away_leaves_what_was_recorded(cluster: LateCluster) -> None:
    """Nobody can have seen more than the watch did."""
    with open_record() as record:
        cluster.put("one")
        assert len(record.events()) == 1
        cluster.put("two")
        cluster.is_away = True
        assert [event.uid for event in record.events()] == ["one"]


def test_a_record_that_was_ended_stays_as_it_is(cluster: LateCluster) -> None:
    """Of a cluster that was set back, the record from before still answers."""
    with open_record() as record:
        cluster.put("one")
        assert len(record.events()) == 1
    cluster.put("two")
    assert [event.uid for event in record.events()] == ["one"]


def test_a_watch_that_stays_behind_is_an_error(
    cluster: LateCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record with a gap never passes for a whole one."""
    monkeypatch.setattr(recorder, "BEHIND_SECONDS", LATE_SECONDS / 10)
    with open_record() as record:
        cluster.put("one")
        with pytest.raises(AssertionError, match="one"):
            record.events()
