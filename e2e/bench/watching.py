"""The other end of the witness: what it has seen of both clusters' pods, and waiting for it."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from e2e.testbed.errors import TestbedError
from e2e.testbed.local import LocalCluster

from .witness import Watched

POLL_SECONDS = 0.5
"""How often a wait looks whether those it waits for still live."""


@dataclass(slots=True)
class PodSeen:
    """One pod's story, on the monotonic clock; 0 is not yet."""

    name: str
    created_at: float = 0.0
    bound_at: float = 0.0
    ready_at: float = 0.0
    deleting_at: float = 0.0
    gone_at: float = 0.0
    is_ready: bool = False
    restarts: int = 0
    restarted_at: float = 0.0
    """When `restarts` was seen to change."""


@dataclass(slots=True)
class ClusterSeen:
    """The pods of one cluster by uid, and who of them lives and is ready."""

    pods: dict[str, PodSeen] = field(default_factory=dict)
    alive: set[str] = field(default_factory=set)
    ready: set[str] = field(default_factory=set)
    by_name: dict[str, PodSeen] = field(default_factory=dict)
    is_listed: bool = False

    def forget_gone(self) -> None:
        """Keep only what is alive: a new story begins."""
        self.pods = {uid: pod for uid, pod in self.pods.items() if uid in self.alive}
        self.by_name = {pod.name: pod for pod in self.pods.values()}


class Watching:
    """A witness process and what it told; enter it to have it run."""

    def __init__(self, clusters: Sequence[LocalCluster], *, log: Path) -> None:
        self.seen = {cluster.name: ClusterSeen() for cluster in clusters}
        self._arguments = [watched(cluster).format() for cluster in clusters]
        self._log = log
        self._changed = threading.Condition()
        self._goal: Callable[[], bool] | None = None
        self._reached_at = 0.0
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None

    def __enter__(self) -> Watching:
        command = [sys.executable, "-m", "e2e.bench.witness", *self._arguments]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=Path(__file__).resolve().parents[2],
                start_new_session=True,
            )
        self._reader = threading.Thread(target=self._read, name="bench-witness", daemon=True)
        self._reader.start()
        self.wait("the witness watches", self._all_listed, timeout_seconds=60.0)
        return self

    def __exit__(self, *_exception: object) -> None:
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        if self._reader is not None:
            self._reader.join()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def wait(
        self,
        what: str,
        goal: Callable[[], bool],
        *,
        timeout_seconds: float,
        check: Callable[[], None] = lambda: None,
    ) -> float:
        """Wait until a goal holds; returns when the witness saw what made it so.

        The goal is looked at with each line of the witness. `check` raises when waiting is futile.

        Raises:
            TestbedError: not in time, or the witness ended.
        """
        deadline = time.monotonic() + timeout_seconds
        with self._changed:
            if goal():
                return time.monotonic()
            self._goal, self._reached_at = goal, 0.0
        try:
            while True:
                with self._changed:
                    if self._reached_at or self._changed.wait_for(
                        lambda: bool(self._reached_at), POLL_SECONDS
                    ):
                        return self._reached_at
                check()
                self._check_alive()
                if time.monotonic() > deadline:
                    counts = {n: (len(s.alive), len(s.ready)) for n, s in self.seen.items()}
                    raise TestbedError(
                        f"Not within {timeout_seconds:.0f} s: {what}; alive and ready: {counts}."
                    )
        finally:
            with self._changed:
                self._goal = None

    def forget_gone(self) -> None:
        """Begin a new story on both sides."""
        with self._changed:
            for cluster in self.seen.values():
                cluster.forget_gone()

    def _all_listed(self) -> bool:
        return all(cluster.is_listed for cluster in self.seen.values())

    def _check_alive(self) -> None:
        assert self._process is not None
        if self._process.poll() is not None:
            raise TestbedError(f"The witness ended: {self._log.read_text().strip()}")

    def _read(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        for line in self._process.stdout:
            at, cluster, what, *values = orjson.loads(line)
            with self._changed:
                note(self.seen[cluster], at, what, values)
                if self._goal is not None and not self._reached_at and self._goal():
                    self._reached_at = at
                    self._changed.notify_all()


def note(cluster: ClusterSeen, at: float, what: str, values: Sequence[object]) -> None:
    """Take in one line of the witness."""
    if what == "listed":
        cluster.is_listed = True
        return
    uid, name, node, is_ready, is_terminating, restarts = values
    pod = cluster.pods.get(str(uid))
    if pod is None:
        pod = PodSeen(name=str(name), created_at=at)
        cluster.pods[str(uid)] = cluster.by_name[pod.name] = pod
        cluster.alive.add(str(uid))
    if what == "gone":
        pod.gone_at = at
        cluster.alive.discard(str(uid))
        cluster.ready.discard(str(uid))
        return
    pod.bound_at = pod.bound_at or (at if node else 0.0)
    pod.deleting_at = pod.deleting_at or (at if is_terminating else 0.0)
    if restarts != pod.restarts:
        pod.restarts, pod.restarted_at = int(str(restarts)), at
    if is_ready:
        pod.ready_at = pod.ready_at or at
        cluster.ready.add(str(uid))
    else:
        cluster.ready.discard(str(uid))


def watched(cluster: LocalCluster) -> Watched:
    """Describe a cluster to the witness."""
    api = cluster.api
    return Watched(
        cluster.name, api.port, str(api.authority), str(api.user.certificate), str(api.user.key)
    )
