"""Where it all happens: two clusters of our own, replicas behind fault proxies, and eyes.

Each cluster has two API servers at one storage. The first is federate's and its controllers', and
is hurt; the second, the eye, is the users' and the witness's, and is left alone. Each replica has
proxies of its own, so that one may be cut off while the other is not.
"""

import hashlib
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from e2e.support.manifests import IMAGE, deployment, pod, pod_spec, run_once, stateful_set
from e2e.support.pods import is_ready, phase_of, uid_of
from e2e.support.process import FederateProcess, RunOptions
from e2e.support.witness import Json, Witness
from e2e.support.world import wait_for
from e2e.testbed.faultproxy import FaultProxy
from e2e.testbed.fixtures import HUB, TARGET, TestbedFactory
from e2e.testbed.local import LocalCluster

from .plan import Side

T = TypeVar("T")

NODE = "stormy"
NAMESPACE = "chaos"
DEPLOYMENT, STATEFUL_SET = "web", "db"
STRANGER, SQUATTER = "stranger", "squatter"
"""Pods in the target that are no mirrors. A hub pod wants the squatter's name, and may wait."""
REPLICAS = ("first", "second")

SUPERVISION_SECONDS = 0.3
LEADERSHIP_LOST = 3
"""Exit code of a replica that may not lead any more: whatever runs it starts it again."""

START_LIMIT_SECONDS = 90.0

END_LIMIT_SECONDS = 25.0
"""Five times what federate promises for an orderly stop."""

STORMY_HUB = replace(HUB, service_range="10.104.0.0/16")
STORMY_TARGET = replace(
    TARGET,
    nodes=2,
    service_range="10.105.0.0/16",
    # kwok does not make pods ready again that the target's own node controller gave up on.
    controller_manager_arguments=("--node-monitor-grace-period=300s",),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """A replica ended by itself."""

    at: float
    replica: str
    code: int


class Replica(FederateProcess):
    """One federate process, which is started again when it ends, unless it is kept away."""

    def __init__(self, name: str, options: RunOptions, *, folder: Path) -> None:
        super().__init__(options, folder=folder)
        self.name = name
        self.is_away = False
        """Somebody ended it on purpose and starts it again."""
        self.lock = threading.Lock()

    def end(self, number: signal.Signals) -> float | None:
        """Keep it away, and end it with a signal.

        Returns how long that took; None when it had just ended by itself.
        """
        with self.lock:
            self.is_away = True
            if not self.is_running:
                return None
            began = time.monotonic()
            self._signal(number)
            assert self._process is not None
            try:
                self._process.wait(END_LIMIT_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()
            return time.monotonic() - began

    def come_back(self) -> None:
        """Start it again after `end`."""
        with self.lock:
            if not self.is_running:
                self.start()
            self.is_away = False

    def thaw(self) -> None:
        """Let it go on, if it was not ended meanwhile."""
        if self.is_running:
            super().thaw()


class Supervisor:
    """Start replicas again that ended, as a Deployment would."""

    def __init__(self, replicas: Sequence[Replica]) -> None:
        self.exits: list[Exit] = []
        self._replicas = replicas
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="supervisor", daemon=True)

    def __enter__(self) -> "Supervisor":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(SUPERVISION_SECONDS):
            for replica in self._replicas:
                with replica.lock:
                    code = replica.exit_code
                    if code is None or replica.is_away:
                        continue
                    self.exits.append(Exit(at=time.monotonic(), replica=replica.name, code=code))
                    replica.start()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Everything that acts and faults are done with."""

    clusters: Mapping[Side, LocalCluster]
    eyes: Mapping[Side, Witness]
    """Users, admins and the calm look and act through these."""
    witnesses: Mapping[Side, Witness]
    """The same, for the threads that watch."""
    proxies: Mapping[Side, Mapping[str, FaultProxy]]
    """By side and replica."""
    replicas: Mapping[str, Replica]
    supervisor: Supervisor
    target_namespace: str
    foreign: list[Json] = field(default_factory=list)
    """Pods in the target that are nobody's mirrors."""

    @property
    def hub(self) -> Witness:
        """The hub, where users act."""
        return self.eyes[Side.HUB]

    @property
    def target(self) -> Witness:
        """The target, where its admins act."""
        return self.eyes[Side.TARGET]

    def logs(self) -> str:
        """Return the ends of the replicas' logs."""
        return "\n".join(f"-- {r.name}:\n{r.log_tail(30)}" for r in self.replicas.values())


@contextmanager
def set_up(factory: TestbedFactory, folder: Path, *, weather: str) -> Iterator[Stage]:
    """Start everything and wait until the virtual node takes pods; nothing is left afterwards.

    The clusters have the weather's name, because they are stopped at its end.
    """
    with ExitStack() as stack:
        hub, target = factory.clusters(
            replace(STORMY_HUB, name=f"{weather}-hub"),
            replace(STORMY_TARGET, name=f"{weather}-target"),
        )
        stack.callback(hub.stop)
        stack.callback(target.stop)
        clusters = {Side.HUB: hub, Side.TARGET: target}
        kubeconfigs = _open_eyes(stack, clusters)
        eyes, witnesses = (
            {side: _witness(stack, side, kubeconfigs[side]) for side in Side} for _ in range(2)
        )
        proxies = {
            side: {name: stack.enter_context(FaultProxy.before(cluster)) for name in REPLICAS}
            for side, cluster in clusters.items()
        }
        replicas = {name: _replica(name, proxies, folder) for name in REPLICAS}
        for replica in replicas.values():
            stack.callback(replica.close)
            replica.start()
        supervisor = stack.enter_context(Supervisor(list(replicas.values())))
        stage = Stage(
            clusters=clusters,
            eyes=eyes,
            witnesses=witnesses,
            proxies=proxies,
            replicas=replicas,
            supervisor=supervisor,
            target_namespace=_target_namespace(eyes[Side.HUB]),
        )
        _furnish(stage)
        yield stage


def _replica(name: str, proxies: Mapping[Side, Mapping[str, FaultProxy]], folder: Path) -> Replica:
    options = RunOptions(
        node=NODE,
        hub=proxies[Side.HUB][name].kubeconfig,
        target=proxies[Side.TARGET][name].kubeconfig,
        arguments=["--identity", name],
    )
    return Replica(name, options, folder=folder / name)


def _open_eyes(stack: ExitStack, clusters: Mapping[Side, LocalCluster]) -> dict[Side, Path]:
    """Start a second API server for each cluster; returns the kubeconfigs for them."""
    seconds = [c.second_apiserver(storage_port=c.storage_port) for c in clusters.values()]
    with ThreadPoolExecutor() as pool:
        opened = pool.map(stack.enter_context, seconds)
        return {side: eye.kubeconfig for side, eye in zip(clusters, opened, strict=True)}


def _witness(stack: ExitStack, side: Side, kubeconfig: Path) -> Witness:
    witness = Witness(side, kubeconfig)
    stack.callback(witness.close)
    return witness


def _target_namespace(hub: Witness) -> str:
    system = hub.get("Namespace", "", "kube-system")
    assert system is not None
    short_id = hashlib.sha256(uid_of(system).encode()).hexdigest()[:8]
    return f"hub-{short_id}-{NAMESPACE}"


# -- what is there before the first storm ----------------------------------------------------------


def _furnish(stage: Stage) -> None:
    """Make the namespace, workloads that stay, and strangers in the target."""
    hub, target = stage.hub, stage.target
    hub.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    _wait(stage, "service account", lambda: hub.get("ServiceAccount", NAMESPACE, "default"))
    _wait(stage, "the virtual node", lambda: (n := hub.get("Node", "", NODE)) and is_ready(n))
    hub.create(deployment(DEPLOYMENT, pod_spec(NODE), replicas=2), NAMESPACE)
    hub.create(stateful_set(STATEFUL_SET, pod_spec(NODE)), NAMESPACE)
    namespace = stage.target_namespace
    _wait(stage, "mirrors", lambda: len(target.list("Pod", namespace)) == 3)
    for name in (STRANGER, SQUATTER):
        target.create(pod(name, {"containers": [{"name": "main", "image": IMAGE}]}), namespace)
        probe = partial(_running, target, namespace, name)
        stage.foreign.append(_wait(stage, name, probe))
    hub.create(run_once(SQUATTER, NODE), NAMESPACE)


def _running(target: Witness, namespace: str, name: str) -> Json | None:
    found = target.get("Pod", namespace, name)
    return found if found is not None and phase_of(found) == "Running" else None


def _wait(stage: Stage, what: str, probe: Callable[[], T | None]) -> T:
    return wait_for(what, probe, timeout_seconds=START_LIMIT_SECONDS, explain=stage.logs)
