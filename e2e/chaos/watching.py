"""The witness: watches both clusters from outside and lets the judge look at every event.

It looks through API servers of its own, which nothing happens to, at the same storage: so it sees
what is written while those that federate uses are frozen or dead. A watch that breaks goes on from
the last version; where it cannot, that is a gap, and the run is no proof.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from kubernetes.dynamic.exceptions import DynamicApiError
from urllib3.exceptions import HTTPError

from e2e.support.pods import uid_of
from e2e.support.witness import Expired, Json, Witness

from .judge import APART_SECONDS, Judge
from .plan import Side
from .sighting import Sighting, read_sighting

RETRY_SECONDS = 0.2
LOOK_SECONDS = 0.3
"""How often leader lease and node are read: take-over times are no finer than this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leading:
    """Who held the leader lease from some moment on, and which renewal it was."""

    at: float
    holder: str
    renewed: str


class Watching:
    """Threads that watch, until they are closed. `court` guards the judge."""

    def __init__(self, *, hub: Witness, target: Witness, node: str) -> None:
        self.judge = Judge(node=node)
        self.court = threading.Lock()
        self.gaps: list[str] = []
        """Where events may have been missed: each spoils the run."""
        self.leading: list[Leading] = []
        self.node_absent: list[tuple[float, float]] = []
        """Stretches in which the virtual node was not registered."""
        self._hub = hub
        self._target = target
        self._node = node
        self._stopping = threading.Event()
        self._last_look: dict[str, float] = {}
        self._threads = [
            threading.Thread(target=self._guarded(work), name=f"witness-{name}", daemon=True)
            for name, work in (
                ("hub", lambda: self._watch(Side.HUB, hub)),
                ("target", lambda: self._watch(Side.TARGET, target)),
                ("node", self._look_around),
            )
        ]

    def start(self) -> None:
        """Begin; what is there already is taken in first."""
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """End, with every question answered."""
        time.sleep(APART_SECONDS)
        self._stopping.set()
        for thread in self._threads:
            thread.join()
        with self.court:
            self.judge.tick(time.monotonic())

    def tell(self, say: Callable[[Judge], None]) -> None:
        """Tell the judge something, beside the watches."""
        with self.court:
            say(self.judge)

    def _guarded(self, work: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                work()
            except Exception as error:
                # Nobody waits for the thread; a witness that is blind has to be told of.
                self.gaps.append(f"{threading.current_thread().name} ended: {error!r}")

        return run

    # -- pods --

    def _watch(self, side: Side, witness: Witness) -> None:
        version = self._list(side, witness)
        while not self._stopping.is_set():
            try:
                for event in witness.watch("Pod", resource_version=version):
                    version = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] != "BOOKMARK":
                        self._see(side, event["type"], event["object"])
                    if self._stopping.is_set():
                        return
            except Expired as error:
                self.gaps.append(f"{side}: {error}")
                version = self._list(side, witness)
            except (DynamicApiError, HTTPError) as error:
                # Its own API server is never hurt, but it may be slow: go on from the last event.
                self._stopping.wait(RETRY_SECONDS)
                if getattr(error, "status", 0) == 410:
                    self.gaps.append(f"{side}: {error!r}")
                    version = self._list(side, witness)

    def _list(self, side: Side, witness: Witness) -> str:
        listing = witness.listing("Pod")
        for pod in listing["items"]:
            self._see(side, "ADDED", pod)
        version: str = listing["metadata"]["resourceVersion"]
        return version

    def _see(self, side: Side, event: str, pod: Json) -> None:
        seen = read_sighting(side, event, pod, time.monotonic())
        with self.court:
            self.judge.see(seen)
            self.judge.tick(seen.at)
        if side is Side.HUB and seen.is_gone and seen.node == self._node:
            self._ask_for_mirrors(seen)

    def _ask_for_mirrors(self, hub_pod: Sighting) -> None:
        """Read the mirrors of a hub pod that has just gone: they have to be gone already."""
        with self.court:
            known = [mirror.last for mirror in self.judge.mirrors_of(hub_pod.uid)]
        for mirror in known:
            found = self._target.get("Pod", mirror.namespace, mirror.name)
            if found is not None and uid_of(found) == mirror.uid:
                outlived = partial(
                    Judge.mirror_outlived, hub_pod_uid=hub_pod.uid, mirror_uid=mirror.uid
                )
                self.tell(partial(outlived, at=time.monotonic()))

    # -- node and lease --

    def _look_around(self) -> None:
        absent_since: float | None = None
        while not self._stopping.wait(LOOK_SECONDS):
            try:
                lease = self._hub.get("Lease", "kube-system", f"federate-{self._node}")
                node = self._hub.get("Node", "", self._node)
            except (DynamicApiError, HTTPError):
                continue
            now = time.monotonic()
            self._note_leading(lease, now)
            if node is None and absent_since is None:
                absent_since = now
            elif node is not None and absent_since is not None:
                self.node_absent.append((absent_since, now))
                absent_since = None
            with self.court:
                self.judge.tick(now)

    def _note_leading(self, lease: Json | None, now: float) -> None:
        spec = (lease or {}).get("spec", {})
        found = Leading(
            at=now, holder=spec.get("holderIdentity") or "", renewed=spec.get("renewTime") or ""
        )
        last = self.leading[-1] if self.leading else None
        if last is None or (last.holder, last.renewed) != (found.holder, found.renewed):
            self.leading.append(found)

    @property
    def leader(self) -> str:
        """Who held the lease when it was last read."""
        return self.leading[-1].holder if self.leading else ""

    def next_leading(self, after: float) -> Leading | None:
        """Return the first renewal or take-over that was seen after an instant."""
        return next((seen for seen in self.leading if seen.at > after and seen.holder), None)
