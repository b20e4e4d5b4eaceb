"""federate does its work with exactly the rights that `federate rbac` prints (C1)."""

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from e2e.support.accounts import account_of
from e2e.support.companions import KINDS, wait_no_companion, wait_value
from e2e.support.manifests import container, deployment, pod, pod_spec, run_once
from e2e.support.matrix import configmap, secret
from e2e.support.pods import name_of, uid_of
from e2e.support.process import FederateProcess, RunOptions, run_cli
from e2e.support.rights import asked_by, assert_all_granted, assert_all_in_table
from e2e.support.witness import STRATEGIC_PATCH, Json
from e2e.support.world import Space, World, wait_for
from e2e.support.worlds import Worlds
from e2e.testbed.provider import TestCluster

pytest_plugins = ["e2e.support.fixtures"]
pytestmark = pytest.mark.e2e

NODE = "rights"

SMALL = {"requests": {"cpu": "10m"}}
LARGER = {"requests": {"cpu": "20m"}}


@pytest.fixture(scope="module")
def limited(
    worlds: Worlds,
    hub: TestCluster,
    target: TestCluster,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[World]:
    """A world whose federate may do what is printed, on both sides, and nothing else."""
    folder = tmp_path_factory.mktemp("rights")
    with ExitStack() as stack:
        hub_file = stack.enter_context(
            account_of(hub, "--side", "hub", "--node", NODE, folder=folder)
        )
        target_file = stack.enter_context(account_of(target, "--side", "target", folder=folder))
        options = RunOptions(node=NODE, hub=hub_file, target=target_file)
        federate = FederateProcess(options, folder=folder)
        stack.callback(federate.close)
        found = stack.enter_context(worlds.world(node=NODE, hub=hub, target=target, started=False))
        wait_granted(options)
        world = replace(found, federate=federate)
        world.start_federate()
        yield world
        federate.close()


def wait_granted(options: RunOptions) -> None:
    """Wait until the API servers know the rights: `federate check` asks for each."""

    def probe() -> bool:
        return check(options).returncode == 0

    wait_for("every right is granted", probe, explain=lambda: check(options).stdout)


def check(options: RunOptions) -> subprocess.CompletedProcess[str]:
    return run_cli(
        *("check", "--hub", str(options.hub)), "--target", f"{options.node}={options.target}"
    )


@pytest.fixture
def space(limited: World) -> Iterator[Space]:
    found = Space(limited, "rights")
    found.open()
    yield found
    found.close()


def test_the_main_job_needs_the_printed_rights_alone(space: Space) -> None:
    """Deployment, updates, companions, Events, orphans, a lost Node, a restart: nothing is refused.

    And nothing is asked for that the table of rights does not have.
    """
    world, federate = space.world, space.world.federate
    space.create(deployment("web", pod_spec(NODE), replicas=2))
    space.create(run_once("once", NODE))
    for made in (configmap("settings", {"PLACE": "hub"}), secret("settings", {"PLACE": "hub"})):
        space.create(made)
    sources = [{"configMapRef": {"name": "settings"}}, {"secretRef": {"name": "settings"}}]
    changing = container(resources=SMALL, envFrom=sources)
    space.create(pod("changing", pod_spec(NODE, containers=[changing])))
    space.create(pod("orphan", pod_spec(NODE)))
    space.wait_phase("once", "Succeeded")
    for name in ("changing", "orphan"):
        space.wait_running(name)
    change(space)
    change_what_comes_along(space)
    tell_of(space, "changing")
    space.delete_pod("orphan", grace_seconds=0)
    space.wait_mirror_gone("orphan")
    lose_node(world)
    asked = asked_by(federate)
    federate.restart()
    world.wait_node_ready()
    space.hub.delete("Deployment", space.namespace, "web")
    space.delete_pod("changing")
    space.wait("only the completed pod is left", lambda: [*map(name_of, space.pods())] == ["once"])
    space.delete_pod("once")
    space.wait_nothing_left()
    asked += asked_by(federate)
    assert_all_granted(asked, federate)
    assert_all_in_table(asked)


def change(space: Space) -> None:
    """Change what may change in a pod, through every subresource."""
    names = (space.namespace, "changing")
    image = {"name": "main", "image": "federate.test/app:2"}
    debugger = container(name="debugger", image="federate.test/app:1")
    tell_resources(space, "changing")
    for spec, subresource in (
        ({"containers": [image]}, ""),
        ({"ephemeralContainers": [debugger]}, "ephemeralcontainers"),
        ({"containers": [{"name": "main", "resources": LARGER}]}, "resize"),
    ):
        space.hub.patch(
            "Pod", *names, {"spec": spec}, subresource=subresource, media_type=STRATEGIC_PATCH
        )

    def arrived() -> bool:
        found = space.mirror("changing")
        assert found is not None
        spec = found["spec"]
        [main] = spec["containers"]
        return (
            main["image"] == image["image"]
            and main["resources"] == LARGER
            and len(spec.get("ephemeralContainers", ())) == 1
        )

    space.wait("image, debug container and resources are the mirror's", arrived)


def change_what_comes_along(space: Space) -> None:
    """Change what the pod refers to, and revoke it: a companion is made, changed and deleted."""
    for kind in KINDS:
        wait_value(space, kind, "settings", "PLACE", "hub")
        field = "stringData" if kind == "Secret" else "data"
        space.hub.patch(kind, space.namespace, "settings", {field: {"PLACE": "moved"}})
        wait_value(space, kind, "settings", "PLACE", "moved")
        space.hub.delete(kind, space.namespace, "settings")
        wait_no_companion(space, kind, "settings")


def tell_resources(space: Space, name: str) -> None:
    """Have a fake kubelet tell what it gave the container: else the hub allows no resize."""
    mirror = space.mirror(name)
    assert mirror is not None
    told = mirror["status"]["containerStatuses"]
    if "resources" not in told[0]:
        told[0] |= {"resources": SMALL, "allocatedResources": SMALL["requests"]}
        body = {"status": {"containerStatuses": told}}
        space.target.patch("Pod", space.target_namespace, name, body, subresource="status")

    def is_told() -> bool:
        found = space.pod(name)
        return found is not None and "resources" in found["status"]["containerStatuses"][0]

    space.wait("the hub pod tells its resources", is_told)


def tell_of(space: Space, name: str) -> None:
    """Write an Event about a mirror as its kubelet would, and wait for it on the hub."""
    mirror = space.mirror(name)
    assert mirror is not None
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    regarding = {"apiVersion": "v1", "kind": "Pod", "namespace": space.target_namespace}
    body: Json = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{name}.told"},
        "involvedObject": {**regarding, "name": name, "uid": uid_of(mirror)},
        "type": "Normal",
        "reason": "ToldByTest",
        "message": "told",
        "source": {"component": "kubelet", "host": "worker"},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
    space.target.create(body, space.target_namespace)
    fields = "reason=ToldByTest"
    space.wait(
        "the target's Event is told on the hub",
        lambda: space.hub.list("Event", space.namespace, fields=fields),
    )


def lose_node(world: World) -> None:
    """Delete the Node and wait until it is registered again, with a heartbeat of its own."""
    before = uid_of(world.read_node())
    world.hub.delete("Node", "", world.node)

    def is_back() -> bool:
        node = world.hub.get("Node", "", world.node)
        lease = world.hub.get("Lease", "kube-node-lease", world.node)
        if node is None or lease is None or uid_of(node) == before:
            return False
        owners = lease["metadata"].get("ownerReferences") or ()
        return any(owner["uid"] == uid_of(node) for owner in owners)

    wait_for("the Node and its Lease are back", is_back, explain=world.federate.log_tail)
    world.wait_node_ready()
