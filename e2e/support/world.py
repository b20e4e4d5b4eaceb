"""A hub, a target, federate between them, and the witnesses of both sides.

A test gets a `Space`: a hub namespace of its own. What it leaves behind is removed by deleting
that namespace, and after every test the space makes sure that nothing is left on either side.
"""

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar
from uuid import uuid4

from .manifests import pod, pod_spec
from .pace import Pace
from .pods import (
    hub_pod_uid_of,
    is_ready,
    name_of,
    phase_of,
    sketch,
    uid_of,
    waiting_reason,
)
from .process import FederateProcess
from .recorder import WatchRecorder
from .witness import Json, Witness

T = TypeVar("T")

POLL_SECONDS = 0.05

PATIENCE_SECONDS = 30.0
"""How long a test waits for what takes a second or two on an idle machine."""

SKETCHED_PODS = 20

WORKLOADS = ("Deployment", "StatefulSet", "DaemonSet", "Job", "Pod")
"""In this order: a controller that lives would replace its pods."""


def wait_for(
    what: str,
    probe: Callable[[], T | None],
    *,
    timeout_seconds: float = PATIENCE_SECONDS,
    explain: Callable[[], str] = str,
) -> T:
    """Poll until the probe returns something true, and return it.

    Raises:
        AssertionError: it did not in time; the message names `what` and explains.
    """
    deadline = time.monotonic() + timeout_seconds
    while not (found := probe()):
        if time.monotonic() > deadline:
            raise AssertionError(f"Not within {timeout_seconds:.0f} s: {what}.\n{explain()}")
        time.sleep(POLL_SECONDS)
    return found


def hold(
    what: str, probe: Callable[[], bool], *, seconds: float, explain: Callable[[], str]
) -> None:
    """Make sure that something stays true for a while."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not probe():
            raise AssertionError(f"No longer true: {what}.\n{explain()}")
        time.sleep(POLL_SECONDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Everything a story needs; `federate` stands for the virtual node of its options."""

    hub: Witness
    target: Witness
    hub_record: WatchRecorder
    target_record: WatchRecorder
    federate: FederateProcess
    pace: Pace

    @property
    def node(self) -> str:
        """The virtual node's name."""
        return self.federate.options.node

    def read_node(self) -> Json:
        """Read the virtual node."""
        node = self.hub.get("Node", "", self.node)
        assert node is not None, f"There is no node {self.node}.\n{self.federate.log_tail()}"
        return node

    def start_federate(self) -> None:
        """Start federate and wait until its virtual node takes pods."""
        self.federate.start()
        self.federate.wait_ready()
        self.wait_node_ready()

    def wait_node_ready(self) -> None:
        """Wait until the hub's scheduler would use the virtual node."""

        def probe() -> bool:
            node = self.hub.get("Node", "", self.node)
            return node is not None and is_ready(node) and not _is_held_back(node)

        wait_for(f"node {self.node} takes pods", probe, explain=self.federate.log_tail)

    def forget_node(self) -> None:
        """Remove the virtual node from the hub: a later test's DaemonSets shall not see it."""
        self.hub.delete("Node", "", self.node)


def _is_held_back(node: Json) -> bool:
    """Tell whether the node controller has not yet taken its own taints from the node."""
    taints = node["spec"].get("taints") or ()
    return any(taint["key"].startswith("node.kubernetes.io/") for taint in taints)


class Space:
    """One hub namespace and the target namespace that belongs to it."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.hub = world.hub
        self.target = world.target
        self.namespace = f"e2e-{name}"[:40].rstrip("-") + f"-{uuid4().hex[:4]}"
        hub = world.hub.get("Namespace", "", "kube-system")
        assert hub is not None
        short_id = hashlib.sha256(uid_of(hub).encode()).hexdigest()[:8]
        self.target_namespace = f"hub-{short_id}-{self.namespace}"

    @property
    def node(self) -> str:
        """The virtual node that the space's pods are for."""
        return self.world.node

    @property
    def pace(self) -> Pace:
        """How fast the target's pods are."""
        return self.world.pace

    def open(self) -> None:
        """Make the namespace and wait until pods may be created in it."""
        self.hub.create(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}}
        )
        self.wait(
            "the hub namespace has its service account",
            lambda: self.hub.get("ServiceAccount", self.namespace, "default"),
        )

    def close(self) -> None:
        """Delete everything and wait until no pod is left, on either side."""
        # Kubernetes gives a deleted namespace five seconds before it touches what is inside.
        for kind in WORKLOADS:
            self.hub.delete_all(kind, self.namespace)
        if self.world.federate.is_running:
            self.wait_nothing_left()
        self.hub.delete("Namespace", "", self.namespace)

    # -- looking --

    def pods(self) -> list[Json]:
        """List the hub pods."""
        return self.hub.list("Pod", self.namespace)

    def mirrors(self) -> list[Json]:
        """List the pods in the target namespace that are mirrors."""
        return [p for p in self.target.list("Pod", self.target_namespace) if hub_pod_uid_of(p)]

    def pod(self, name: str) -> Json | None:
        """Read a hub pod."""
        return self.hub.get("Pod", self.namespace, name)

    def mirror(self, name: str) -> Json | None:
        """Read the pod of the name in the target namespace."""
        return self.target.get("Pod", self.target_namespace, name)

    def read_mirror(self, name: str) -> Json:
        """Read the pod of the name in the target namespace, which has to be there."""
        found = self.mirror(name)
        assert found is not None, self.explain()
        return found

    def hub_pod_uids(self) -> set[str]:
        """Return the uids of all hub pods there ever were."""
        return set(self.world.hub_record.histories(self.namespace))

    def assert_one_mirror_each(self) -> None:
        """Make sure that no hub pod ever had a second mirror."""
        again = {
            hub_pod: mirrors
            for hub_pod, mirrors in self.world.target_record.mirror_uids(
                self.target_namespace
            ).items()
            if len(mirrors) > 1
        }
        assert not again, f"Hub pods with more than one mirror: {again}\n{self.explain()}"

    def explain(self) -> str:
        """Describe both sides and federate's log for a failure message."""
        return "\n".join(
            [
                f"-- hub pods of {self.namespace}:",
                *self._sketches(self.hub, self.namespace),
                f"-- pods of {self.target_namespace} in the target:",
                *self._sketches(self.target, self.target_namespace),
                f"-- the end of {self.world.federate.log}:",
                self.world.federate.log_tail(),
            ]
        )

    def _sketches(self, witness: Witness, namespace: str) -> list[str]:
        try:
            found = witness.list("Pod", namespace)
        except Exception as error:
            return [f"{witness.name} does not answer: {error!r}"]
        lines = [sketch(pod) for pod in found[:SKETCHED_PODS]]
        left_out = len(found) - len(lines)
        return [*lines, f"and {left_out} more"] if left_out else lines

    # -- acting --

    def create(self, body: Json) -> Json:
        """Create an object in the hub namespace."""
        return self.hub.create(body, self.namespace)

    def scale(self, name: str, replicas: int) -> None:
        """Scale a Deployment."""
        body = {"spec": {"replicas": replicas}}
        self.hub.patch("Deployment", self.namespace, name, body)

    def delete_pod(self, name: str, *, grace_seconds: int | None = None) -> None:
        """Delete a hub pod; grace 0 is a forced deletion."""
        assert self.hub.delete("Pod", self.namespace, name, grace_seconds=grace_seconds)

    def hold_mirror(self, mirror: Json) -> None:
        """Keep this very mirror from vanishing when it is deleted, as a slow kubelet would."""
        self._set_finalizers(mirror, ["example.com/held-by-test"])

    def release_mirror(self, mirror: Json) -> None:
        """Let a held mirror go."""
        self._set_finalizers(mirror, [])

    def _set_finalizers(self, mirror: Json, finalizers: list[str]) -> None:
        body = {"metadata": {"uid": uid_of(mirror), "finalizers": finalizers}}
        self.target.patch("Pod", self.target_namespace, name_of(mirror), body)

    # -- waiting --

    def wait(
        self,
        what: str,
        probe: Callable[[], T | None],
        *,
        timeout_seconds: float = PATIENCE_SECONDS,
    ) -> T:
        """Wait for something in this space, as long as its pods may take.

        A failure shows both sides and the log.
        """
        patience = timeout_seconds * self.pace.patience
        return wait_for(what, probe, timeout_seconds=patience, explain=self.explain)

    def hold(self, what: str, probe: Callable[[], bool], *, seconds: float) -> None:
        """Make sure that something in this space stays true for a while."""
        hold(what, probe, seconds=seconds, explain=self.explain)

    def wait_phase(self, name: str, phase: str, *, not_uid: str = "") -> Json:
        """Wait until the hub pod is in the phase; `not_uid` asks for a successor's."""

        def probe() -> Json | None:
            pod = self.pod(name)
            fits = pod is not None and phase_of(pod) == phase and uid_of(pod) != not_uid
            return pod if fits else None

        return self.wait(f"{name} is {phase}", probe)

    def wait_waiting(self, name: str, reason: str) -> Json:
        """Wait until the hub pod is Pending for the reason."""

        def probe() -> Json | None:
            pod = self.pod(name)
            return pod if pod is not None and waiting_reason(pod) == reason else None

        return self.wait(f"{name} waits with reason {reason}", probe)

    def wait_ready_pods(
        self, count: int, *, timeout_seconds: float = PATIENCE_SECONDS
    ) -> list[Json]:
        """Wait until the hub namespace has exactly so many pods, all ready."""

        def probe() -> list[Json] | None:
            pods = self.pods()
            return pods if len(pods) == count and all(map(is_ready, pods)) else None

        return self.wait(f"exactly {count} pods, all ready", probe, timeout_seconds=timeout_seconds)

    def wait_mirror_gone(self, name: str, *, timeout_seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until the target has no pod of the name."""
        self.wait(
            f"mirror {name} is gone",
            lambda: self.mirror(name) is None,
            timeout_seconds=timeout_seconds,
        )

    def wait_pod_gone(self, name: str) -> None:
        """Wait until the hub has no pod of the name."""
        self.wait(f"hub pod {name} is gone", lambda: self.pod(name) is None)

    def wait_nothing_left(self, *, timeout_seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until neither side has a pod of this space."""
        self.wait(
            "nothing is left on either side",
            lambda: not self.pods() and not self.mirrors(),
            timeout_seconds=timeout_seconds,
        )

    def wait_running(self, name: str) -> Json:
        """Wait until the hub pod runs and is ready: then its mirror changes no more."""

        def probe() -> Json | None:
            found = self.pod(name)
            runs = found is not None and phase_of(found) == "Running" and is_ready(found)
            return found if runs else None

        return self.wait(f"{name} runs and is ready", probe)

    def run_pod(self, body: Json) -> Json:
        """Create a bare pod and wait until it runs; returns the hub pod."""
        self.create(body)
        return self.wait_running(name_of(body))

    def run_pods(self, *names: str) -> None:
        """Create a bare pod of each name and wait until all run."""
        for name in names:
            self.create(pod(name, pod_spec(self.node)))
        for name in names:
            self.wait_running(name)
