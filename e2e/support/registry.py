"""A registry that asks for a password, on the loopback address of each node of kind clusters.

It stands in the network of the node itself, where containerd speaks plain HTTP to 127.0.0.1 without
being told: nothing on the node is changed. What it hands out is the program of the test images.
"""

import base64
import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from uuid import uuid4

from e2e.images.build import app_archives, tag_of
from e2e.testbed.docker import OWNER_LABEL, Docker, Owner
from e2e.testbed.kind import RealCluster
from e2e.testbed.places import Places
from e2e.testbed.progress import Progress

from .witness import Json

ADDRESS = "127.0.0.1:5005"
USER = "reader"


@dataclass(frozen=True, slots=True, kw_only=True)
class Registry:
    """One that runs on several nodes, with one password for all."""

    docker: Docker
    containers: Sequence[str]
    password: str

    @property
    def image(self) -> str:
        """What a pod has to ask for."""
        return f"{ADDRESS}/private/app:1"

    def login(self, name: str) -> Json:
        """Render the Secret that lets a kubelet pull."""
        key = base64.b64encode(f"{USER}:{self.password}".encode()).decode()
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name},
            "type": "kubernetes.io/dockerconfigjson",
            "stringData": {".dockerconfigjson": json.dumps({"auths": {ADDRESS: {"auth": key}}})},
        }

    def asked(self, number: int) -> list[str]:
        """Return what one node's registry was asked for, and whether by somebody it knows."""
        return self.docker.lines("logs", self.containers[number])


@contextmanager
def registry_on(clusters: Sequence[RealCluster], places: Places) -> Iterator[Registry]:
    """Run it on the nodes until the block ends; a later start removes it should we be killed."""
    docker = Docker(places=places)
    docker.load(app_archives(places, Progress(quiet=True))[0])
    password = uuid4().hex
    names = [f"federate-registry-{uuid4().hex[:8]}" for _ in clusters]
    with ExitStack() as stack:
        stack.callback(docker.remove_containers, names)
        for cluster, name in zip(clusters, names, strict=True):
            docker.run(
                *("run", "--detach", "--network", f"container:{cluster.node_name}"),
                *("--name", name, "--label", f"{OWNER_LABEL}={Owner.own().format()}"),
                *(tag_of("1"), "registry", ADDRESS, USER, password),
            )
        yield Registry(docker=docker, containers=names, password=password)
