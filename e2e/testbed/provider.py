"""The seam: what a test asks for, what it gets, and who can give it.

Tests see `TestCluster`. What only clusters on this machine can do (freezing an API server, say)
is on `local.LocalCluster`.
"""

import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, Protocol

from .components import DEFAULT_MINOR
from .errors import TestbedError

Storage = Literal["etcd", "kine"]
NodePlay = Literal["plain", "lifelike"]
KubectlFinder = Callable[[], Path]

ERROR_CHARACTERS = 2000
"""How much of kubectl's error output a message quotes; it can say one thing a thousand times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    """What a cluster should be like. Two equal specs mean the same cluster to the fixtures."""

    name: str
    minor: str = DEFAULT_MINOR
    storage: Storage = "etcd"
    """`kine` keeps everything in SQLite, as K3s does."""
    with_controller_manager: bool = True
    """Without it nothing makes ServiceAccounts, runs Jobs or collects garbage."""
    with_scheduler: bool = True
    nodes: int = 0
    """Nodes played by kwok; the hub has none, its node is federate's."""
    node_cpu: str = "32"
    node_memory: str = "256Gi"
    node_pods: int = 1000
    node_play: NodePlay = "plain"
    """How kwok plays pods: `plain` in one step, `lifelike` in a kubelet's, with its Events."""
    service_range: str = "10.96.0.0/16"
    pod_range: str = "10.244.0.0/16"
    """Of real nodes: clusters whose pods shall reach each other need ranges of their own."""
    verifies_kubelets: bool = False
    """Whether the API server insists that kubelets' certificates come from the cluster's
    authority, as kubeadm's does not by default."""
    apiserver_arguments: tuple[str, ...] = ()
    controller_manager_arguments: tuple[str, ...] = ()
    scheduler_arguments: tuple[str, ...] = ()
    kubelet_settings: tuple[tuple[str, str], ...] = ()
    """Of real nodes: fields of the KubeletConfiguration and their values."""


class TestCluster:
    """A running cluster and the way to it."""

    # Keeps pytest from collecting the class in modules that import it.
    __test__: ClassVar[bool] = False

    def __init__(
        self,
        *,
        name: str,
        kubeconfig: Path,
        api_url: str,
        version: str,
        find_kubectl: KubectlFinder,
    ) -> None:
        self.name = name
        self.kubeconfig = kubeconfig
        self.api_url = api_url
        self.version = version
        """What the API server says, like `v1.34.4`."""
        self._find_kubectl = find_kubectl

    @property
    def kubectl_path(self) -> Path:
        """The kubectl that fits the cluster; searched for at the first use."""
        return self._find_kubectl()

    def kubectl(
        self, *arguments: str, stdin: str | None = None, timeout_seconds: float = 60.0
    ) -> str:
        """Run kubectl against the cluster and return its standard output.

        Raises:
            TestbedError: kubectl failed or took too long; the message has its error output.
        """
        command = [str(self.kubectl_path), f"--kubeconfig={self.kubeconfig}", *arguments]
        wording = f"kubectl {' '.join(arguments)} on {self.name}"
        try:
            finished = subprocess.run(
                command,
                input=stdin,
                stdin=subprocess.DEVNULL if stdin is None else None,
                capture_output=True,
                text=True,
                timeout=timeout_seconds,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise TestbedError(f"{wording} took over {timeout_seconds:.0f} s.") from error
        if finished.returncode != 0:
            said = finished.stderr.strip()[-ERROR_CHARACTERS:]
            raise TestbedError(f"{wording} ended with {finished.returncode}: {said}")
        return finished.stdout

    def stop(self) -> None:
        """Give the cluster back; twice does no harm."""


class Provider(Protocol):
    """Turn specs into running clusters."""

    name: str

    def start(self, spec: ClusterSpec) -> TestCluster:
        """Start a cluster and return when it is usable; whoever calls stops it.

        Raises:
            TestbedError: it cannot be had; nothing is left running.
        """
        ...

    def close(self) -> None:
        """Stop whatever the provider started and still runs."""
        ...


def start_all(provider: Provider, specs: Sequence[ClusterSpec]) -> list[TestCluster]:
    """Start clusters side by side: all of them, or none and an error."""
    starts: list[Future[TestCluster]] = []
    with ThreadPoolExecutor(max_workers=max(1, len(specs))) as pool:
        try:
            for spec in specs:
                starts.append(pool.submit(provider.start, spec))
            wait(starts)
            return [start.result() for start in starts]
        except BaseException:
            # An interrupt too: the caller closes the provider, whose folders the starts still use.
            with ExitStack() as stack:
                for start in starts:
                    # Waits for the start.
                    if start.exception() is None:
                        stack.callback(start.result().stop)
            raise
