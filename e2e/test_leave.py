"""One command leaves a target for good, with a federate or without, and whatever kills it (C15)."""

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from e2e.support.accounts import account_of
from e2e.support.companions import COMPANION_LABEL
from e2e.support.manifests import container, deployment, pod_spec, run_once
from e2e.support.matrix import configmap, secret
from e2e.support.measuring import Measurements
from e2e.support.pods import name_of, phase_of
from e2e.support.process import FederateProcess
from e2e.support.spare import Pair, lent, spare_pair
from e2e.support.world import Space, World, wait_for
from e2e.support.worlds import Worlds
from e2e.testbed.fixtures import TestbedFactory

pytest_plugins = ["e2e.support.fixtures"]
pytestmark = pytest.mark.e2e

COMMAND_SECONDS = 150.0
"""It takes ten; where a killed one's lease has to run out, fifteen more."""
STAYS_AWAY_SECONDS = 5.0
"""A federate that has not understood registers its node again within one."""


@pytest.fixture(scope="module")
def pair(worlds: Worlds, testbed_factory: TestbedFactory) -> Iterator[Pair]:
    """Clusters of which the target may be stopped."""
    with lent(spare_pair(testbed_factory), worlds) as found:
        yield found


def command(world: World, *arguments: str, with_target: bool = True) -> list[str]:
    options = world.federate.options
    target = ["--target", f"{world.node}={options.target}"] if with_target else []
    return [
        *(sys.executable, "-m", "federate", "leave", world.node, "--hub", str(options.hub)),
        *target,
        *arguments,
    ]


def run(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        arguments,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
        check=False,
    )


def leave(world: World, *arguments: str, with_target: bool = True) -> str:
    """Give the command and wait for its end; returns what it says."""
    done = run(command(world, *arguments, with_target=with_target))
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{world.federate.log_tail()}"
    return done.stdout


def leases(world: World) -> list[str]:
    """Name the leases that this virtual node has on the hub."""
    names = [("kube-system", f"federate-{world.node}"), ("kube-node-lease", world.node)]
    return [name for space, name in names if world.hub.get("Lease", space, name) is not None]


def anchors(world: World) -> list[str]:
    """Name the namespaces where anything federate made stands."""
    found = world.target.list("ConfigMap", labels="federate.dev/hub")
    return sorted({anchor["metadata"]["namespace"] for anchor in found})


class LeftSpace(Space):
    """A space whose pods wait for no node after it was left."""

    def on_node(self) -> list[str]:
        """Name the hub pods that are still bound to the virtual node."""
        return [name_of(p) for p in self.pods() if p["spec"].get("nodeName") == self.node]

    def fill(self) -> None:
        """Run two replicas that read a ConfigMap and a Secret, and a run-once pod."""
        for made in (configmap("settings", {"a": "b"}), secret("settings", {"a": "b"})):
            self.create(made)
        sources = [{"configMapRef": {"name": "settings"}}, {"secretRef": {"name": "settings"}}]
        spec = pod_spec(self.node, containers=[container(envFrom=sources)])
        self.create(deployment("web", spec, replicas=2))
        self.create(run_once("once", self.node))
        self.wait(
            "all run, or have run",
            lambda: len([p for p in self.pods() if phase_of(p) in ("Running", "Succeeded")]) == 3,
        )


def assert_left(space: LeftSpace, *, stays: bool = False) -> None:
    """Make sure that nothing of the virtual node is on either side; a namespace may stay."""
    world = space.world
    assert world.hub.get("Node", "", world.node) is None
    assert leases(world) == []
    assert space.mirrors() == []
    assert (space.target.get("Namespace", "", space.target_namespace) is not None) == stays
    assert space.target_namespace not in anchors(world)
    assert space.target.list("Secret", space.target_namespace, labels=COMPANION_LABEL) == []
    assert space.on_node() == []


@pytest.mark.long
def test_a_running_federate_is_left_and_does_not_come_back(
    worlds: Worlds, pair: Pair, measured: Measurements
) -> None:
    """A dry run changes nothing; the command drains, cleans, retires; again it does nothing."""
    with worlds.world(node="leaver", hub=pair.hub, target=pair.target) as world:
        space = LeftSpace(world, "leave")
        space.open()
        space.fill()
        bystander = "stays-where-it-is"
        space.target.create(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": bystander}}, "default"
        )

        assert re.search(r"\d hub pods evicted", leave(world, "--dry-run", "--force"))
        assert len(space.on_node()) == 3
        assert not world.read_node()["spec"].get("unschedulable")

        protect = ("create", "pdb", "web", "--selector=app=web", "--min-available=2")
        pair.hub.kubectl("-n", space.namespace, *protect)
        held = run(command(world, "--yes", "--force", "--timeout", "6"))
        assert held.returncode == 1
        assert "held by a PodDisruptionBudget" in " ".join(held.stderr.split())
        assert len(space.on_node()) == 2
        pair.hub.kubectl("-n", space.namespace, "delete", "pdb", "web")

        started = time.monotonic()
        told = leave(world, "--yes", "--force")
        measured.note("leave with a running federate", f"{time.monotonic() - started:.1f} s")
        assert "remove it from federate's configuration" in " ".join(told.split())
        assert_left(space)
        space.hold(
            "the Node stays away",
            lambda: world.hub.get("Node", "", world.node) is None,
            seconds=STAYS_AWAY_SECONDS,
        )
        assert world.federate.is_running
        assert world.federate.is_ready()
        assert space.target.get("ConfigMap", "default", bystander) is not None
        assert "Nothing to do" in leave(world)
        space.target.delete("ConfigMap", "default", bystander)
        space.close()


@pytest.fixture
def guest(worlds: Worlds, pair: Pair, tmp_path: Path) -> Iterator[World]:
    """A federate that may do what `federate rbac` prints for it, and is let into one namespace."""
    node, namespace = "guest", f"e2e-left-{uuid4().hex[:4]}"
    with ExitStack() as stack:
        plain = stack.enter_context(
            worlds.world(
                node=node,
                hub=pair.hub,
                target=pair.target,
                arguments=(
                    *("--namespaces", f"single={namespace}"),
                    *("--capacity", "cpu=8,memory=16Gi,pods=100"),
                ),
                started=False,
            )
        )
        plain.target.create(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        )
        stack.callback(plain.target.delete, "Namespace", "", namespace)
        wait_for(
            "the namespace has its service account",
            lambda: plain.target.get("ServiceAccount", namespace, "default"),
        )
        leaves = ("--with", "leave")
        hub = account_of(pair.hub, "--side", "hub", "--node", node, *leaves, folder=tmp_path)
        target = account_of(
            pair.target,
            *("--side", "target", "--namespace", namespace, *leaves),
            folder=tmp_path,
            namespace=namespace,
        )
        options = replace(
            plain.federate.options,
            hub=stack.enter_context(hub),
            target=stack.enter_context(target),
        )
        federate = FederateProcess(options, folder=tmp_path)
        stack.callback(federate.close)
        world = replace(plain, federate=federate)
        world.start_federate()
        yield world


def test_without_a_federate_a_killed_command_goes_on(guest: World, measured: Measurements) -> None:
    """The command leads itself; killed in the midst of it, the next one ends what it began.

    All with the rights that `federate rbac --with leave` prints: in the target in one namespace,
    which was there before, and stays.
    """
    space = LeftSpace(guest, "leave-alone")
    space.target_namespace = guest.federate.options.arguments[1].partition("=")[2]
    space.open()
    space.fill()
    guest.federate.stop()
    first = subprocess.Popen(
        command(guest, "--yes", "--force"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        space.wait("the drain has begun", lambda: guest.read_node()["spec"].get("unschedulable"))
    finally:
        first.kill()
        first.wait()
    started = time.monotonic()
    told = leave(guest, "--yes", "--force")
    measured.note("leave without federate", f"{time.monotonic() - started:.1f} s")
    assert f"namespace {space.target_namespace} stays" in told
    assert_left(space, stays=True)
    assert "Nothing to do" in leave(guest, "--namespaces", space.target_namespace)
    space.close()


def test_a_target_that_is_gone_is_abandoned_and_swept_when_it_returns(
    worlds: Worlds, pair: Pair, measured: Measurements
) -> None:
    """The hub is freed while the target hangs; its mirrors go should it ever come back."""
    with worlds.world(node="abandoned", hub=pair.hub, target=pair.target) as world:
        space = LeftSpace(world, "abandon")
        space.open()
        space.fill()
        refused = run(command(world, "--abandon", "--yes", with_target=False))
        assert refused.returncode == 2
        assert re.search(r"abandon abandoned", " ".join(refused.stderr.split()))
        mirrors = {name_of(mirror) for mirror in space.mirrors()}
        pair.target.pause_apiserver()
        try:
            wait_for(
                "the node says that its target is away",
                lambda: "TargetUnreachable" in str(world.read_node()["status"]["conditions"]),
                timeout_seconds=60.0,
                explain=world.federate.log_tail,
            )
            started = time.monotonic()
            told = leave(world, "--abandon", "--yes", with_target=False)
            measured.note("leave --abandon", f"{time.monotonic() - started:.1f} s")
            assert all(name in "".join(told.split()) for name in mirrors)
            assert world.hub.get("Node", "", world.node) is None
            assert leases(world) == []
            assert space.on_node() == []
        finally:
            pair.target.resume_apiserver()
        wait_for(
            "the target answers again",
            lambda: {name_of(mirror) for mirror in space.mirrors()} == mirrors,
        )
        world.federate.stop()
        world.start_federate()
        space.wait(
            "the abandoned mirrors are swept",
            lambda: not mirrors & {name_of(mirror) for mirror in space.mirrors()},
        )
        space.close()
