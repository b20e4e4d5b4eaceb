"""Record everything that happens to pods in a cluster, from outside.

What a test asks at the end of a story ("was there ever a second mirror?") cannot be read from the
final state. A recorder watches from its start on and misses nothing: a watch that cannot go on
where it broke off fails every later question.
"""

import json
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from kubernetes.dynamic.exceptions import ServiceUnavailableError
from urllib3.exceptions import HTTPError

from .pods import hub_pod_uid_of
from .witness import Json, Witness

RETRY_SECONDS = 0.2

CATCH_UP_POLL_SECONDS = 0.01

BEHIND_SECONDS = 15.0
"""A watch on a busy machine is some tenths of a second behind; a broken one is for ever."""


class Change(StrEnum):
    """What an event means for the pod."""

    CREATED = "created"
    BOUND = "bound to a node"
    DELETING = "deletion asked for, or its grace changed"
    WRITTEN = "anything else was written"
    DELETED = "gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodEvent:
    """One version of one pod; `at` is on the monotonic clock."""

    at: float
    change: Change
    writers: frozenset[str]
    """Field managers whose entry changed. Empty when nobody's did: the same fields were written
    again within managedFields' knowledge, or the change is none that it tracks."""
    namespace: str
    name: str
    uid: str
    resource_version: str
    phase: str
    reason: str
    is_terminating: bool
    grace_seconds: int | None
    node: str
    hub_pod_uid: str
    conditions: Mapping[str, Json]

    @property
    def is_ready(self) -> bool:
        """Tell whether the pod said that it is ready."""
        return bool(self.conditions.get("Ready", {}).get("status") == "True")


class WatchRecorder:
    """The pods of one cluster, event by event, in a thread of its own."""

    def __init__(self, name: str, kubeconfig: Path) -> None:
        self.name = name
        self._witness = Witness(name, kubeconfig)
        self._events: list[PodEvent] = []
        self._latest: dict[str, PodEvent] = {}
        self._noted: set[tuple[str, str]] = set()
        """Each uid with all of its versions."""
        self._managers: dict[str, Mapping[tuple[str, ...], str]] = {}
        self._broken: Exception | None = None
        self._stopping = threading.Event()
        self._version = self._start()
        self._thread = threading.Thread(target=self._run, name=f"recorder-{name}", daemon=True)
        self._thread.start()

    def ask_to_stop(self) -> None:
        """End soon; several recorders end side by side before each is closed."""
        self._stopping.set()

    def close(self) -> None:
        """End, and let the connection go."""
        self.ask_to_stop()
        self._thread.join()
        self._witness.close()

    def events(self, *, namespace: str = "", uid: str = "") -> list[PodEvent]:
        """Return all that happened before this call, in order.

        Raises:
            Exception: what ended the watch; the record has a gap.
            AssertionError: the watch stays behind what a list shows.
        """
        self._catch_up(namespace)
        return [
            event
            for event in list(self._events)
            if namespace in ("", event.namespace) and uid in ("", event.uid)
        ]

    def histories(self, namespace: str) -> dict[str, list[PodEvent]]:
        """Return the events of each pod that was ever in the namespace, by uid."""
        found: dict[str, list[PodEvent]] = defaultdict(list)
        for event in self.events(namespace=namespace):
            found[event.uid].append(event)
        return found

    def mirror_uids(self, namespace: str) -> dict[str, set[str]]:
        """Return the uids of all mirrors that each hub pod uid ever had."""
        found: dict[str, set[str]] = defaultdict(set)
        for event in self.events(namespace=namespace):
            if event.hub_pod_uid:
                found[event.hub_pod_uid].add(event.uid)
        return found

    def latest(self, namespace: str) -> list[PodEvent]:
        """Return the last event noted of each pod; asks nothing of the cluster, and may be late."""
        self._raise_broken()
        return [e for e in list(self._latest.values()) if e.namespace == namespace]

    def find(
        self, is_wanted: Callable[[PodEvent], bool], *, namespace: str = ""
    ) -> PodEvent | None:
        """Return the first event that is wanted."""
        return next(filter(is_wanted, self.events(namespace=namespace)), None)

    def _catch_up(self, namespace: str) -> None:
        """Wait until the watch has told what a read shows already: it comes a moment later.

        While the API server is away nobody can have seen more than the watch did; a record that
        was ended stays as it is.
        """
        self._raise_broken()
        if self._stopping.is_set():
            return
        living = self._living(namespace)
        try:
            pods = self._witness.list("Pod", namespace)
        except (ServiceUnavailableError, HTTPError):
            return
        shown = {(pod["metadata"]["uid"], pod["metadata"]["resourceVersion"]) for pod in pods}
        gone = living - {uid for uid, _ in shown}
        deadline = time.monotonic() + BEHIND_SECONDS
        while lacking := (shown - self._noted) | (gone & self._living(namespace)):
            self._raise_broken()
            assert time.monotonic() < deadline, f"The record of {self.name} lacks {lacking}"
            time.sleep(CATCH_UP_POLL_SECONDS)

    def _living(self, namespace: str) -> set[str]:
        return {
            event.uid
            for event in list(self._latest.values())
            if namespace in ("", event.namespace) and event.change is not Change.DELETED
        }

    def _raise_broken(self) -> None:
        if self._broken is not None:
            raise self._broken

    def _start(self) -> str:
        listing = self._witness.listing("Pod")
        for pod in listing["items"]:
            self._note("ADDED", pod)
        version: str = listing["metadata"]["resourceVersion"]
        return version

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._watch_on()
        except Exception as error:
            # The thread has nobody to tell: whoever asks next learns it.
            self._broken = error

    def _watch_on(self) -> None:
        """Watch from where the last watch ended, until this one does."""
        try:
            for event in self._witness.watch("Pod", resource_version=self._version):
                self._version = event["object"]["metadata"]["resourceVersion"]
                if event["type"] != "BOOKMARK":
                    self._note(event["type"], event["object"])
                if self._stopping.is_set():
                    return
        except (ServiceUnavailableError, HTTPError):
            # The API server is away, which some tests want: go on when it is back.
            self._stopping.wait(RETRY_SECONDS)

    def _note(self, kind: str, pod: Json) -> None:
        metadata, status = pod["metadata"], pod.get("status", {})
        uid = metadata["uid"]
        managers = _managers_of(pod)
        event = PodEvent(
            at=time.monotonic(),
            change=self._change_of(kind, pod),
            writers=_changed(self._managers.get(uid, {}), managers),
            namespace=metadata["namespace"],
            name=metadata["name"],
            uid=uid,
            resource_version=metadata["resourceVersion"],
            phase=status.get("phase", ""),
            reason=status.get("reason", ""),
            is_terminating="deletionTimestamp" in metadata,
            grace_seconds=metadata.get("deletionGracePeriodSeconds"),
            node=pod["spec"].get("nodeName", ""),
            hub_pod_uid=hub_pod_uid_of(pod),
            conditions={c["type"]: c for c in status.get("conditions") or ()},
        )
        self._managers[uid] = managers
        self._events.append(event)
        self._latest[uid] = event
        self._noted.add((uid, event.resource_version))

    def _change_of(self, kind: str, pod: Json) -> Change:
        if kind != "MODIFIED":
            return Change.CREATED if kind == "ADDED" else Change.DELETED
        uid = pod["metadata"]["uid"]
        before = self._latest[uid]
        if not before.node and pod["spec"].get("nodeName"):
            return Change.BOUND
        if before.grace_seconds != pod["metadata"].get("deletionGracePeriodSeconds"):
            return Change.DELETING
        return Change.WRITTEN


def _managers_of(pod: Json) -> dict[tuple[str, ...], str]:
    return {
        (entry["manager"], entry["operation"], entry.get("subresource", "")): json.dumps(
            [entry.get("time"), entry.get("fieldsV1")], sort_keys=True
        )
        for entry in pod["metadata"].get("managedFields") or ()
    }


def _changed(
    before: Mapping[tuple[str, ...], str], after: Mapping[tuple[str, ...], str]
) -> frozenset[str]:
    return frozenset(key[0] for key, value in after.items() if before.get(key) != value)
