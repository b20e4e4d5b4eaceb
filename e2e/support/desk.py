"""What a developer does with kubectl on a pod: through the hub, and for comparison in the target.

The same words are said to both; what comes back through the hub has to be what the target says
itself.
"""

import os
import re
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO

from e2e.testbed.docker import Docker
from e2e.testbed.places import Places
from e2e.testbed.provider import TestCluster

from .pods import condition_of
from .world import Space, wait_for

NETWORK = "kind"
KUBECTL_SECONDS = 120.0
FORWARDS = re.compile(rb"Forwarding from 127\.0\.0\.1:(\d+)")

SPDY: Mapping[str, str] = {
    "KUBECTL_REMOTE_COMMAND_WEBSOCKETS": "false",
    "KUBECTL_PORT_FORWARD_WEBSOCKETS": "false",
}
WEBSOCKET: Mapping[str, str] = {
    "KUBECTL_REMOTE_COMMAND_WEBSOCKETS": "true",
    "KUBECTL_PORT_FORWARD_WEBSOCKETS": "true",
}
PROTOCOLS: Mapping[str, Mapping[str, str]] = {"spdy": SPDY, "websocket": WEBSOCKET}


def address_for_containers(places: Places) -> str:
    """Return this host's address in Docker's network `kind`: what a hub in there can reach."""
    template = "{{range .IPAM.Config}}{{.Gateway}}\n{{end}}"
    listed = Docker(places=places).run("network", "inspect", NETWORK, "--format", template)
    return next(line for line in listed.split() if "." in line)


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """kubectl on one of the two clusters, in the namespace that the pods have there."""

    cluster: TestCluster
    namespace: str

    def command(self, *arguments: str) -> list[str]:
        """Render a command line."""
        return [
            str(self.cluster.kubectl_path),
            f"--kubeconfig={self.cluster.kubeconfig}",
            f"--namespace={self.namespace}",
            *arguments,
        ]

    def run(
        self,
        *arguments: str,
        stdin: bytes = b"",
        protocol: Mapping[str, str] | None = None,
        seconds: float = KUBECTL_SECONDS,
    ) -> subprocess.CompletedProcess[bytes]:
        """Run kubectl to its end, whatever its exit code."""
        return subprocess.run(
            self.command(*arguments),
            input=stdin,
            capture_output=True,
            env=environment(protocol),
            timeout=seconds,
            check=False,
        )

    def read(self, *arguments: str, protocol: Mapping[str, str] | None = None) -> bytes:
        """Run kubectl, which has to succeed, and return what it prints."""
        ended = self.run(*arguments, protocol=protocol)
        assert ended.returncode == 0, (arguments, ended.stdout[-500:], ended.stderr[-1000:])
        return ended.stdout

    @contextmanager
    def running(
        self,
        *arguments: str,
        protocol: Mapping[str, str] | None = None,
        stdin: int | IO[bytes] = subprocess.DEVNULL,
    ) -> Iterator[subprocess.Popen[bytes]]:
        """Run kubectl while the block lasts."""
        with subprocess.Popen(
            self.command(*arguments),
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment(protocol),
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    @contextmanager
    def forwarded(
        self, pod: str, port: int, *, protocol: Mapping[str, str] | None = None
    ) -> Iterator[int]:
        """Forward a free local port to a pod's while the block lasts; yields it."""
        place = f"pod/{pod}"
        with self.running("port-forward", place, f":{port}", protocol=protocol) as process:
            assert process.stdout is not None
            said = b""
            while (told := FORWARDS.search(said)) is None:
                line = process.stdout.readline()
                assert line, said
                said += line
            yield int(told[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """Both sides of one space."""

    space: Space
    hub: Side
    target: Side

    @classmethod
    def of(cls, space: Space, *, hub: TestCluster, target: TestCluster) -> "Desk":
        """Take a space's namespaces."""
        return cls(
            space=space,
            hub=Side(cluster=hub, namespace=space.namespace),
            target=Side(cluster=target, namespace=space.target_namespace),
        )

    def wait_served(self) -> None:
        """Wait until the Node says that it answers as a kubelet."""

        def told() -> bool:
            found = condition_of(self.space.world.read_node(), "federate.dev/KubeletServing")
            return bool(found.get("status") == "True")

        wait_for("the node answers as a kubelet", told, explain=self.space.explain)

    def same(self, *arguments: str) -> bytes:
        """Say the same to both, wait until the answers agree, and return that answer."""

        def agreed() -> tuple[bytes] | None:
            through, directly = self.hub.read(*arguments), self.target.read(*arguments)
            return (through,) if through == directly else None

        return wait_for(f"both say the same to {arguments}", agreed)[0]


def environment(protocol: Mapping[str, str] | None) -> dict[str, str]:
    """The environment of a kubectl, with a protocol forced."""
    return {**os.environ, **(protocol or {})}


def exchange(port: int, data: bytes, *, seconds: float = 60.0) -> bytes:
    """Send all, say that this is all, and return all that comes back until the other side ends."""
    deadline = time.monotonic() + seconds
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        got = b""
        while part := connection.recv(65536):
            got += part
            connection.settimeout(max(0.1, deadline - time.monotonic()))
        return got


def lines_of(output: bytes) -> Sequence[str]:
    """Split what a program printed on a terminal or not."""
    return output.decode(errors="replace").replace("\r\n", "\n").splitlines()
