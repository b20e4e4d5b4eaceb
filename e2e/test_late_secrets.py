"""A Secret whose create was under way while another leader ended all it was for (C70, C51).

The first process's requests are kept by the network. A second one takes over, and takes companion
and tokens off record, for nobody wants them. Then the creates arrive, and both Secrets stand in the
target: on no record, but owned by entries that are no more, so that Kubernetes removes them.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import yaml

from e2e.support.companions import COMPANION_LABEL
from e2e.support.manifests import container, pod, pod_spec
from e2e.support.measuring import Measurements
from e2e.support.pods import name_of
from e2e.support.process import FederateProcess, RunOptions
from e2e.support.replicas import TAKEOVER_SECONDS, wait_leading
from e2e.support.world import Space, World
from e2e.support.worlds import Worlds
from e2e.testbed.faultproxy import FaultProxy
from e2e.testbed.faults import Hold
from e2e.testbed.local import LocalCluster

pytest_plugins = ["e2e.support.fixtures"]
pytestmark = pytest.mark.e2e

NODE = "late-secrets"
HUB_ADDRESS = "192.0.2.7:6443"
"""No pod asks there: what counts is that tokens are issued."""
COLLECTED_SECONDS = 5.0
"""From a late create to its end by the target's garbage collector."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicas:
    """Two processes for one virtual node; the network to the target keeps requests of the first."""

    first: World
    second: World
    way: FaultProxy


@pytest.fixture
def replicas(
    worlds: Worlds, local_hub: LocalCluster, local_target: LocalCluster, tmp_path: Path
) -> Iterator[Replicas]:
    with ExitStack() as stack:
        way = stack.enter_context(FaultProxy.before(local_target))
        plain = stack.enter_context(
            worlds.world(node=NODE, hub=local_hub, target=local_target, started=False)
        )
        worlds_of = {}
        for name, target in (("first", way.kubeconfig), ("second", local_target.kubeconfig)):
            config = tmp_path / f"{name}.yaml"
            config.write_text(yaml.safe_dump(federation(local_hub.kubeconfig, target)))
            options = RunOptions(
                node=NODE,
                hub=local_hub.kubeconfig,
                target=target,
                arguments=["--identity", name],
                config=config,
            )
            federate = FederateProcess(options, folder=tmp_path / name)
            stack.callback(federate.close)
            worlds_of[name] = replace(plain, federate=federate)
        yield Replicas(**worlds_of, way=way)


def federation(hub: Path, target: Path) -> dict[str, object]:
    virtual_node = {
        "nodeName": NODE,
        "target": {"kubeconfig": str(target)},
        "identity": "hub",
        "hubAddress": HUB_ADDRESS,
    }
    return {
        "apiVersion": "federate.dev/v1alpha1",
        "kind": "Federation",
        "hub": {"kubeconfig": str(hub)},
        "virtualNodes": [virtual_node],
    }


def made(space: Space, *kinds: str) -> set[str]:
    """Return the names of what came along, and of entries, by the label's value."""
    return {
        name_of(found)
        for kind in kinds
        for what in ("ConfigMap", "Secret")
        for found in space.target.list(
            what, space.target_namespace, labels=f"{COMPANION_LABEL}={kind}"
        )
    }


def keep_creates(replicas: Replicas, space: Space) -> dict[str, Hold]:
    """Let the first process create a companion and tokens for a pod; neither arrives."""
    held = {
        kind: replicas.way.hold("POST .*/secrets", body=f'"{COMPANION_LABEL}": ?"{kind}"')
        for kind in ("secret", "tokens")
    }
    space.create(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "login"},
            "stringData": {"word": "early-word"},
        }
    )
    source = {"secretRef": {"name": "login", "optional": True}}
    space.create(pod("web", pod_spec(NODE, containers=[container(envFrom=[source])])))
    for hold in held.values():
        hold.wait_caught()
    return held


def test_secrets_that_are_created_after_their_end_are_collected(
    replicas: Replicas, measured: Measurements
) -> None:
    """Of a companion whose object was deleted on the hub, and of tokens whose pod is gone."""
    replicas.first.start_federate()
    space = Space(replicas.second, "late-secrets")
    space.open()
    held = keep_creates(replicas, space)
    assert len(made(space, "entry")) == 2, "each is on record before it is made"

    replicas.first.federate.freeze()
    space.hub.delete("Secret", space.namespace, "login")
    replicas.second.federate.start()
    takeover = wait_leading(replicas.second, "second")
    measured.seconds("takeover", takeover, promise=TAKEOVER_SECONDS)
    space.wait_running("web")
    space.delete_pod("web")
    space.wait_pod_gone("web")
    space.wait("nothing is on record", lambda: not made(space, "entry", "tokens", "secret"))

    started = time.monotonic()
    answers = {kind: hold.release() for kind, hold in held.items()}
    assert answers == {"secret": 201, "tokens": 201}, "their names were free"
    space.wait("both are collected", lambda: not made(space, "secret", "tokens"))
    seconds = time.monotonic() - started
    measured.seconds("until the late Secrets were gone", seconds, promise=COLLECTED_SECONDS)
    replicas.first.federate.thaw()
    space.hold("nothing comes back", lambda: not made(space, "entry", "secret"), seconds=2.0)
    space.close()
