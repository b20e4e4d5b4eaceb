"""A configuration file: virtual nodes come, change and go while federate runs (C15)."""

import os
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml

from e2e.support.manifests import pod, pod_spec
from e2e.support.measuring import Measurements
from e2e.support.pods import is_ready, is_terminating, labels_of, phase_of, uid_of
from e2e.support.world import Space, World, wait_for
from e2e.support.worlds import Worlds
from e2e.testbed.local import LocalCluster

pytest_plugins = ["e2e.support.fixtures"]
pytestmark = pytest.mark.e2e

FIRST, SECOND = "config-a", "config-b"

NOTICE_SECONDS = 30.0
"""A change is noticed within 2.5 s on an idle machine."""


class File:
    """A configuration file of virtual nodes in one target."""

    def __init__(self, path: Path, hub: LocalCluster, target: LocalCluster) -> None:
        self.path = path
        self._hub = hub
        self._target = target

    def write(self, nodes: Mapping[str, Mapping[str, str]]) -> None:
        """Replace the file by one with these virtual nodes and their labels."""
        new = self.path.with_suffix(".new")
        new.write_text(yaml.safe_dump(self._document(nodes)))
        new.replace(self.path)

    def _document(self, nodes: Mapping[str, Mapping[str, str]]) -> object:
        return {
            "apiVersion": "federate.dev/v1alpha1",
            "kind": "Federation",
            "hub": {"kubeconfig": str(self._hub.kubeconfig)},
            "virtualNodes": [
                {
                    "nodeName": name,
                    "target": {"kubeconfig": str(self._target.kubeconfig)},
                    "labels": dict(labels),
                }
                for name, labels in nodes.items()
            ],
        }


@pytest.fixture
def file(tmp_path: Path, local_hub: LocalCluster, local_target: LocalCluster) -> File:
    made = File(tmp_path / "federation.yaml", local_hub, local_target)
    made.write({FIRST: {}})
    return made


@pytest.fixture
def configured(
    worlds: Worlds, file: File, local_hub: LocalCluster, local_target: LocalCluster
) -> Iterator[World]:
    """A world whose federate has its word from the file alone."""
    with worlds.world(node=FIRST, hub=local_hub, target=local_target, config=file.path) as world:
        yield world
    world.hub.delete("Node", "", SECOND)


@pytest.fixture
def config_space(configured: World) -> Iterator[Space]:
    found = Space(configured, "config")
    found.open()
    yield found
    found.close()


def is_valid(world: World) -> bool:
    return "\nfederate_config_valid 1.0" in world.federate.fetch("/metrics")


def test_virtual_nodes_follow_the_file(
    config_space: Space, configured: World, file: File, measured: Measurements
) -> None:
    """Added, changed and removed: each touches its own virtual node, and no pod anywhere.

    A wrong file changes nothing, and says so. What is removed and comes back goes on as it was.
    """
    space, world = config_space, configured
    hub = world.hub

    def log() -> str:
        return world.federate.log_tail(lines=10_000)

    def took(what: str, started: float) -> None:
        measured.seconds(what, time.monotonic() - started, promise=NOTICE_SECONDS)

    def node(name: str) -> dict[str, str] | None:
        """Return the labels of a virtual node that is ready."""
        found = hub.get("Node", "", name)
        return labels_of(found) if found is not None and is_ready(found) else None

    def mirrors() -> dict[str, str]:
        return {
            found["metadata"]["name"]: uid_of(found)
            for found in space.mirrors()
            if phase_of(found) == "Running" and not is_terminating(found)
        }

    space.run_pod(pod("on-a", pod_spec(FIRST)))
    before = mirrors()

    started = time.monotonic()
    file.write({FIRST: {}, SECOND: {}})
    wait_for("the second node is ready", lambda: node(SECOND), explain=log)
    took("a virtual node added to the file is ready", started)
    space.run_pod(pod("on-b", pod_spec(SECOND)))
    running = mirrors()
    assert running["on-a"] == before["on-a"]

    # Written in place this time, and wrong.
    file.path.write_text(file.path.read_text() + "virtualnodes: []\n")
    wait_for("the wrong file is told", lambda: not is_valid(world), explain=log)
    wrong = "virtualnodes: unknown key; did you mean virtualNodes?"
    assert log().count(wrong) == 1
    os.kill(world.federate.pid, signal.SIGHUP)
    wait_for("it is told again to who asks", lambda: log().count(wrong) == 2, explain=log)
    space.run_pod(pod("meanwhile", pod_spec(FIRST)))
    assert mirrors().items() >= running.items()

    started = time.monotonic()
    file.write({FIRST: {}, SECOND: {"example.com/site": "north"}})
    wait_for(
        "the second node has its label",
        lambda: (node(SECOND) or {}).get("example.com/site") == "north",
        explain=log,
    )
    took("a changed label is on the Node", started)
    wait_for("the right file is told", lambda: is_valid(world), explain=log)
    assert mirrors().items() >= running.items()
    assert log().count("virtual node changed") == 1

    file.write({SECOND: {"example.com/site": "north"}})
    wait_for("the removal is told", lambda: "virtual node removed" in log(), explain=log)
    assert "is removed from the configuration. Nothing is deleted" in log()
    still = mirrors()
    assert still.items() >= running.items()
    late = space.create(pod("late", pod_spec(FIRST)))
    space.run_pod(pod("others-go-on", pod_spec(SECOND)))
    space.hold(
        "nothing that ran is touched, and nothing new starts on the removed one",
        lambda: mirrors().items() >= still.items() and "late" not in mirrors(),
        seconds=2.0,
    )
    assert hub.get("Node", "", FIRST) is not None

    file.write({FIRST: {}, SECOND: {}})
    space.wait_phase("late", "Running")
    assert mirrors().items() >= still.items()
    assert uid_of(late) in space.hub_pod_uids()
    space.assert_one_mirror_each()
