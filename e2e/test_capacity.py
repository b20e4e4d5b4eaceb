"""How large a virtual node is: selected nodes, share, cap, devices, and a quota, all live (C14).

On the test bed's own clusters: the nodes' devices are written into their status, and the target's
quotas are counted by its controllers.
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from decimal import Decimal
from pathlib import Path
from uuid import uuid4

import pytest

from e2e.support.accounts import account_of
from e2e.support.manifests import container, pod, pod_spec
from e2e.support.pods import amount, condition_of, is_ready, name_of, phase_of
from e2e.support.witness import Json, Witness
from e2e.support.world import Space, World, hold, wait_for
from e2e.support.worlds import Worlds
from e2e.testbed.local import LocalCluster

pytest_plugins = ["e2e.support.fixtures"]
pytestmark = pytest.mark.e2e

DEVICE = "example.com/gpu"
POOL = "example.com/pool"
CAP = {"memory": "4Gi", "pods": "20", "example.com/absent": "9"}

GRANTED = {"requests.cpu": "4", "requests.memory": "8Gi", "pods": "10", f"requests.{DEVICE}": "2"}
DEFAULTS = {"cpu": "250m", "memory": "64Mi"}
"""What the target's LimitRange requests for containers that request nothing."""


def write_config(path: Path, node: str, *, hub: Path, target: Path, **spec: object) -> Path:
    """Write a configuration with one virtual node."""
    content = {
        "apiVersion": "federate.dev/v1alpha1",
        "kind": "Federation",
        "hub": {"kubeconfig": str(hub)},
        "virtualNodes": [{"nodeName": node, "target": {"kubeconfig": str(target)}, **spec}],
    }
    path.write_text(json.dumps(content), encoding="utf-8")  # JSON is YAML
    return path


def offer_of(world: World) -> dict[str, Decimal]:
    allocatable = world.read_node()["status"]["allocatable"]
    return {name: amount(quantity) for name, quantity in allocatable.items()}


def wait_offer(world: World, **expected: str | Decimal) -> None:
    """Wait until the node offers so much of these; `gpu` is the device."""
    wanted = {DEVICE if name == "gpu" else name: amount(str(q)) for name, q in expected.items()}
    wait_for(
        f"the node offers {expected}",
        lambda: {name: offer_of(world).get(name) for name in wanted} == wanted,
        explain=lambda: f"It offers {offer_of(world)}.\n{world.federate.log_tail()}",
    )


def asking(**requests: str) -> Json:
    """Render a container that asks for so much; `gpu` is the device, which needs a limit too."""
    named = {DEVICE if name == "gpu" else name: quantity for name, quantity in requests.items()}
    devices = {name: quantity for name, quantity in named.items() if name == DEVICE}
    return container(resources={"requests": named, "limits": devices})


# -- nodes -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def capped(
    worlds: Worlds,
    local_hub: LocalCluster,
    local_target: LocalCluster,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[World]:
    """A world that counts one of the target's nodes, which has three devices, and offers half."""
    config = write_config(
        tmp_path_factory.mktemp("capped") / "federate.yaml",
        "capped",
        hub=local_hub.kubeconfig,
        target=local_target.kubeconfig,
        capacity={"nodeSelector": {POOL: "batch"}, "share": 0.5, "cap": CAP},
    )
    with (
        worlds.world(
            node="capped", hub=local_hub, target=local_target, config=config, started=False
        ) as world,
        ExitStack() as stack,
    ):
        first, second, *_ = sorted(name_of(n) for n in world.target.list("Node") if is_ready(n))
        for name, pool in ((first, "batch"), (second, "web")):
            stack.callback(mark, world.target, name, None, None)
            mark(world.target, name, pool, "3")
        world.start_federate()
        yield world


def mark(target: Witness, name: str, pool: str | None, devices: str | None) -> None:
    """Put a node into a pool, and give it devices as a device plugin would; None takes both."""
    target.patch("Node", "", name, {"metadata": {"labels": {POOL: pool}}})
    status = {"capacity": {DEVICE: devices}, "allocatable": {DEVICE: devices}}
    target.patch("Node", "", name, {"status": status}, subresource="status")


@pytest.fixture
def capped_space(capped: World) -> Iterator[Space]:
    """A hub namespace for that node's pods."""
    found = Space(capped, "capped")
    found.open()
    yield found
    found.close()


def test_c14_a_node_offers_a_share_of_the_selected_nodes_under_a_cap(
    capped: World, capped_space: Space
) -> None:
    """Half of what one pool has left, whole devices, never above the cap; others take live."""
    wait_offer(capped, gpu="1", memory="4Gi", pods="20")
    assert "example.com/absent" not in offer_of(capped)
    assert capped.read_node()["metadata"]["labels"][POOL] == "batch"
    cpu = offer_of(capped)["cpu"]
    neighbours = {
        "here": {"nodeSelector": {POOL: "batch"}, "containers": [asking(cpu="400m", gpu="2")]},
        "there": {"nodeSelector": {POOL: "web"}, "containers": [asking(cpu="600m", gpu="1")]},
    }
    with ExitStack() as stack:
        for name, spec in neighbours.items():
            capped.target.create(pod(name, spec), "default")
            stack.callback(capped.target.delete, "Pod", "default", name, grace_seconds=0)
        wait_offer(capped, cpu=cpu - amount("200m"), gpu="0", memory="4Gi")
    wait_offer(capped, cpu=cpu, gpu="1")

    for name in ("one", "two"):
        spec = pod_spec(capped.node, containers=[asking(cpu="100m", gpu="1")])
        capped_space.create(pod(name, spec))
    running = capped_space.wait(
        "one pod has the device",
        lambda: [p for p in capped_space.pods() if phase_of(p) == "Running"],
    )
    assert len(running) == 1

    def refused() -> bool:
        waiting = [p for p in capped_space.pods() if "nodeName" not in p["spec"]]
        return any(
            f"Insufficient {DEVICE}" in condition_of(p, "PodScheduled").get("message", "")
            for p in waiting
        )

    capped_space.wait("the hub's scheduler knows that there is no other", refused)
    wait_offer(capped, gpu="1")


# -- quota -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def team(local_target: LocalCluster) -> Iterator[str]:
    """A namespace of the target with a quota, and with requests for those that make none."""
    name = f"team-{uuid4().hex[:4]}"
    target = Witness(local_target.name, local_target.kubeconfig)
    target.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    for kind, spec in (
        ("ResourceQuota", {"hard": GRANTED}),
        ("LimitRange", {"limits": [{"type": "Container", "defaultRequest": DEFAULTS}]}),
    ):
        body = {"apiVersion": "v1", "kind": kind, "metadata": {"name": "compute"}, "spec": spec}
        target.create(body, name)
    yield name
    target.delete("Namespace", "", name)
    target.close()


@pytest.fixture(scope="module")
def granted(
    worlds: Worlds,
    team: str,
    local_hub: LocalCluster,
    local_target: LocalCluster,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[World]:
    """A world whose node is as large as that quota, and whose mirrors are all under it.

    It has rights in that namespace alone: those that federate itself says it needs.
    """
    folder = tmp_path_factory.mktemp("granted")
    rights = ("--side", "target", "--namespace", team, "--capacity", "quota")
    with account_of(local_target, *rights, folder=folder, namespace=team) as kubeconfig:
        config = write_config(
            folder / "federate.yaml",
            "granted",
            hub=local_hub.kubeconfig,
            target=kubeconfig,
            capacity={"mode": "quota", "quota": {"namespace": team}},
            namespaces={"strategy": "single", "single": team},
        )
        with worlds.world(
            node="granted", hub=local_hub, target=local_target, config=config
        ) as world:
            yield world


def used(world: World, team: str) -> dict[str, Decimal]:
    """Read what the target itself has counted."""
    quota = world.target.get("ResourceQuota", team, "compute") or {}
    counted = quota.get("status", {}).get("used") or {}
    return {name: amount(quantity) for name, quantity in counted.items()}


def test_c14_a_node_is_as_large_as_the_quota_it_follows(granted: World, team: str) -> None:
    """Own mirrors are not taken off, pods of others and what the target adds are, all live."""
    target = granted.target
    wait_offer(granted, cpu="4", memory="8Gi", pods="10", gpu="2")
    space = Space(granted, "granted")
    space.open()
    try:
        asks = [asking(cpu="1", memory="1Gi", gpu="1")]
        space.create(pod("own", pod_spec(granted.node, containers=asks)))
        space.wait_phase("own", "Running")
        wait_for("the target counts it", lambda: used(granted, team)["requests.cpu"] == 1)
        hold(
            "an own mirror is not taken off",
            lambda: offer_of(granted)["cpu"] == 4 and offer_of(granted)[DEVICE] == 2,
            seconds=1.5,
            explain=lambda: f"The node offers {offer_of(granted)}.",
        )
        space.create(pod("bare", pod_spec(granted.node)))
        space.wait_phase("bare", "Running")
        wait_offer(granted, cpu="3750m", pods="10")

        target.create(pod("other", {"containers": [asking(cpu="500m", memory="1Gi")]}), team)
        wait_offer(granted, cpu="3250m", pods="9")
        more = {"spec": {"hard": {"requests.cpu": "6"}}}
        target.patch("ResourceQuota", team, "compute", more)
        wait_offer(granted, cpu="5250m")
        target.delete("Pod", team, "other", grace_seconds=0)
        wait_offer(granted, cpu="5750m", pods="10")
    finally:
        for found in space.pods():
            space.delete_pod(name_of(found))
        space.hub.delete("Namespace", "", space.namespace)
    wait_offer(granted, cpu="6", pods="10", gpu="2")
    wait_for("nothing is left in the target", lambda: not target.list("Pod", team))

    target.delete("ResourceQuota", team, "compute")
    wait_offer(granted, pods="0", cpu="0")
    ready = condition_of(granted.read_node(), "Ready")
    assert (ready["status"], ready["reason"]) == ("True", "CapacityUnknown")
    assert f"no ResourceQuota at all in namespace {team}" in ready["message"]
