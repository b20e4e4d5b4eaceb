"""Carry out faults, one function per kind. Each returns whether it struck anything.

A fault ends before its function returns, whatever happens meanwhile: in a calm nothing is broken.
"""

import random
import signal
import time
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from kubernetes.dynamic.exceptions import DynamicApiError

from e2e.support.pods import labels_of, name_of, uid_of
from e2e.support.witness import Json
from e2e.testbed import faults as wire
from e2e.testbed.faultproxy import FaultProxy
from e2e.testbed.processes import wait_until

from .plan import Fault, FaultKind, Patience
from .stage import NODE, REPLICAS, Replica, Stage
from .users import Users
from .watching import Watching

RELEASE_SECONDS = 10.0
DELAY_SECONDS = 1.5

WRITES = "(POST|PUT|PATCH|DELETE) .*"
POD_WRITES = "(POST|PATCH|DELETE) .*/pods.*"
POD_WATCHES = "GET .*/pods.*watch=.*"
MARKS = "federate.dev/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """A leader that was taken away, for the measurement of take-overs."""

    at: float
    how: str
    holder: str


class Faults:
    """Whoever breaks things; lanes call it side by side."""

    def __init__(
        self, stage: Stage, watching: Watching, users: Users, *, patience: Patience, seed: int
    ) -> None:
        self.struck: Counter[str] = Counter()
        self.missed: Counter[str] = Counter()
        """Faults that met nothing they could have struck."""
        self.late_answers: Counter[int] = Counter()
        """How late writes were answered when they came."""
        self.outages: list[Outage] = []
        self.stop_seconds: list[float] = []
        self.timeline: list[tuple[float, str]] = []
        self._stage = stage
        self._watching = watching
        self._users = users
        self._patience = patience
        self._rng = random.Random(seed)

    def inflict(self, fault: Fault) -> bool:
        """Let something break, and mend it; False when it met nothing."""
        whose = " for the leader" if fault.is_leaders else ""
        self.timeline.append((time.monotonic(), f"{fault.name}{whose} begins"))
        struck = self._inflict(fault)
        self.timeline.append((time.monotonic(), f"{fault.name} ends{'' if struck else ' unmet'}"))
        (self.struck if struck else self.missed)[fault.name] += 1
        return struck

    def _inflict(self, fault: Fault) -> bool:
        match fault.kind:
            case FaultKind.KILL:
                return self._end(fault, signal.SIGKILL)
            case FaultKind.TERMINATE:
                return self._end(fault, signal.SIGTERM)
            case FaultKind.FREEZE:
                return self._freeze(fault)
            case FaultKind.FORCED_MEANWHILE:
                return self._force_meanwhile(fault)
            case FaultKind.PAUSE_API | FaultKind.KILL_API:
                return self._hurt_api(fault)
            case FaultKind.LATE_REQUEST:
                return self._make_late(fault)
            case FaultKind.VANISH:
                return self._vanish()
            case FaultKind.UNMARK:
                return self._unmark(fault)
            case FaultKind.NODE_DELETED:
                return self._stage.hub.delete("Node", "", NODE)
            case FaultKind.LEASE_DELETED:
                return self._stage.hub.delete("Lease", "kube-system", f"federate-{NODE}")
            case _:
                return self._hurt_wire(fault)

    # -- processes --

    def _leader(self) -> Replica:
        """Return who held the lease last, dead or alive."""
        return self._stage.replicas.get(self._watching.leader, self._stage.replicas[REPLICAS[0]])

    def _leading(self) -> Replica:
        """Wait until somebody leads; who held the lease last, if nobody does for long."""
        began = time.monotonic()

        def leads() -> bool:
            renewal = self._watching.next_leading(began)
            return renewal is not None and self._stage.replicas[renewal.holder].is_running

        wait_until(leads, self._patience.leader_seconds)
        return self._leader()

    def _end(self, fault: Fault, number: signal.Signals) -> bool:
        leader = self._leading()
        self._note_outage(f"after {number.name}", leader)
        seconds = leader.end(number)
        if seconds is not None and number is signal.SIGTERM:
            self.stop_seconds.append(seconds)
        time.sleep(fault.seconds)
        leader.come_back()
        return seconds is not None

    def _freeze(self, fault: Fault) -> bool:
        """Freeze the leader until another leads, and let it go on right then."""
        leader = self._leading()
        began = time.monotonic()
        self._note_outage("after SIGSTOP", leader)
        with leader.lock:
            if not leader.is_running:
                return False
            leader.freeze()
        taken_over = wait_until(
            lambda: self._watching.leader not in ("", leader.name), fault.seconds
        )
        with leader.lock:
            leader.thaw()
        words = f"frozen for {time.monotonic() - began:.1f} s, another leads: {taken_over}"
        self.timeline.append((time.monotonic(), f"{leader.name} {words}"))
        return taken_over

    def _force_meanwhile(self, fault: Fault) -> bool:
        """Force a hub pod away while nobody looks."""
        replicas = list(self._stage.replicas.values())
        self._note_outage("after SIGKILL of both", self._leading())
        for replica in replicas:
            replica.end(signal.SIGKILL)
        try:
            found = self._users.any_pod(self._rng, ["on-", "plain-", "web-"])
            forced = found is not None and self._users.force(found)
            time.sleep(fault.seconds)
        finally:
            for replica in replicas:
                replica.come_back()
        return forced

    def _note_outage(self, how: str, leader: Replica) -> None:
        self.outages.append(Outage(at=time.monotonic(), how=how, holder=leader.name))

    # -- API servers --

    def _hurt_api(self, fault: Fault) -> bool:
        assert fault.side is not None
        cluster = self._stage.clusters[fault.side]
        if fault.kind is FaultKind.PAUSE_API:
            cluster.pause_apiserver()
            try:
                time.sleep(fault.seconds)
            finally:
                cluster.resume_apiserver()
        else:
            cluster.kill_apiserver()
            try:
                time.sleep(fault.seconds)
            finally:
                cluster.start_apiserver()
        return True

    # -- wires --

    def _proxies(self, fault: Fault) -> list[FaultProxy]:
        assert fault.side is not None
        proxies = self._stage.proxies[fault.side]
        return [proxies[self._leader().name]] if fault.is_leaders else list(proxies.values())

    def _hurt_wire(self, fault: Fault) -> bool:
        with ExitStack() as stack:
            handles = [
                stack.enter_context(set_fault(proxy, fault)) for proxy in self._proxies(fault)
            ]
            time.sleep(fault.seconds)
            return wait_until(
                lambda: any(handle.inflicted for handle in handles), self._patience_for(fault)
            )

    def _patience_for(self, fault: Fault) -> float:
        is_single = fault.kind in (FaultKind.SWALLOW, FaultKind.LATE_REQUEST)
        return self._patience.single_seconds if is_single else self._patience.wire_seconds

    def _make_late(self, fault: Fault) -> bool:
        """Keep a write back, and let it through when nobody waits for it any more."""
        with ExitStack() as stack:
            holds = [stack.enter_context(proxy.hold(POD_WRITES)) for proxy in self._proxies(fault)]
            patience = self._patience_for(fault)
            if not wait_until(lambda: any(h.caught.is_set() for h in holds), patience):
                return False
            time.sleep(fault.seconds)
            for hold in holds:
                if hold.caught.is_set():
                    self._release(hold, fault)
        return True

    def _release(self, hold: wire.Hold, fault: Fault) -> None:
        call = hold.wait_caught(0.0)
        try:
            status = hold.release(RELEASE_SECONDS)
        except Exception as error:  # whatever the wire to the API server does by then
            status, words = 0, f" ({error!r})"
        else:
            words = ""
        self.late_answers[status] += 1
        where = f"{fault.side} {call.method} {call.path}"
        self.timeline.append((time.monotonic(), f"late: {where} -> {status}{words}"))

    # -- objects --

    def _vanish(self) -> bool:
        mirror = self._users.any_mirror(self._rng)
        if mirror is None:
            return False
        self._users.take(mirror, "vanishes")
        return self._stage.target.delete(
            "Pod", self._stage.target_namespace, name_of(mirror), grace_seconds=0
        )

    def _unmark(self, fault: Fault) -> bool:
        """Take federate's labels off a mirror, and put them back."""
        mirror = self._users.any_mirror(self._rng)
        if mirror is None:
            return False
        marks = {key: value for key, value in labels_of(mirror).items() if key.startswith(MARKS)}
        try:
            self._relabel(mirror, dict.fromkeys(marks))
        except DynamicApiError:
            return False
        time.sleep(fault.seconds)
        with suppress(DynamicApiError):  # it may be gone
            self._relabel(mirror, marks)
        return True

    def _relabel(self, mirror: Json, labels: dict[str, str | None] | dict[str, str]) -> None:
        # The uid is a precondition: another pod of the name is left alone.
        body = {"metadata": {"uid": uid_of(mirror), "labels": labels}}
        self._stage.target.patch("Pod", self._stage.target_namespace, name_of(mirror), body)


def set_fault(proxy: FaultProxy, fault: Fault) -> wire.Fault:
    """Set a fault of the wire on a proxy."""
    match fault.kind:
        case FaultKind.DROP:
            return proxy.drop()
        case FaultKind.RESET:
            return proxy.reset()
        case FaultKind.HALF_OPEN:
            return proxy.half_open()
        case FaultKind.DELAY:
            return proxy.delay(DELAY_SECONDS)
        case FaultKind.BUFFER_WATCH:
            return proxy.buffer_watch()
        case FaultKind.THROTTLE:
            return proxy.answer(429, retry_after=1)
        case FaultKind.UNAVAILABLE:
            return proxy.answer(503)
        case FaultKind.LOSE_REPLY:
            return proxy.lose_reply(WRITES, mute=fault.is_mute)
        case FaultKind.SWALLOW:
            return proxy.swallow(type="ADDED|MODIFIED|DELETED", matching=POD_WATCHES)
        case _:
            raise AssertionError(f"{fault.kind} is none of the wire")
