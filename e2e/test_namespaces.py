"""Where mirrors stand: by each of the namespace strategies, and in the hub itself (C3, C22)."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from e2e.support.manifests import pod, pod_spec
from e2e.support.pods import labels_of, name_of, uid_of, waiting_reason
from e2e.support.process import run_cli
from e2e.support.witness import Json
from e2e.support.world import Space, World, wait_for
from e2e.support.worlds import Worlds
from e2e.testbed.local import LocalCluster
from e2e.testbed.provider import TestCluster

pytest_plugins = ["e2e.support.fixtures"]
pytestmark = pytest.mark.e2e


def test_mirrors_stand_in_namespaces_of_the_same_name_if_asked_to(
    worlds: Worlds, hub: TestCluster, target: TestCluster
) -> None:
    """With `--namespaces same` a mirror has its hub pod's namespace and name."""
    arguments = ["--namespaces", "same"]
    with worlds.world(node="same", hub=hub, target=target, arguments=arguments) as world:
        space = Space(world, "same")
        space.target_namespace = space.namespace
        space.open()
        hub_pod = space.run_pod(pod("twin", pod_spec(space.node)))
        mirrored = world.target_record.mirror_uids(space.namespace)
        assert set(mirrored) == {uid_of(hub_pod)}
        space.close()


SIDES = ("suffixed", "map", "single")
"""Strategies, and the virtual nodes that use them."""


class Sides:
    """One process with a virtual node for each of three strategies, in one target."""

    def __init__(self, world: World, config: Path) -> None:
        self.world = world
        self.space = Space(world, "sides")
        self.mapped, self.single = (f"{self.space.namespace}-{word}" for word in ("map", "one"))
        short_id = self.space.target_namespace.split("-")[1]
        self.space.target_namespace = f"{self.space.namespace}-hub-{short_id}"
        self._config = config

    def write(self, *, map_to: str) -> None:
        rules: dict[str, Json] = {
            "suffixed": {"strategy": "suffixed"},
            "map": {"strategy": "map", "map": {self.space.namespace: map_to}},
            "single": {"strategy": "single", "single": self.single},
        }
        options = self.world.federate.options
        document = {
            "apiVersion": "federate.dev/v1alpha1",
            "kind": "Federation",
            "hub": {"kubeconfig": str(options.hub)},
            "virtualNodes": [
                {
                    "nodeName": node,
                    "target": {"kubeconfig": str(options.target)},
                    "namespaces": rules[node],
                }
                for node in SIDES
            ],
        }
        new = self._config.with_suffix(".new")
        new.write_text(yaml.safe_dump(document))
        new.replace(self._config)


@pytest.fixture
def sides(
    worlds: Worlds, local_hub: LocalCluster, local_target: LocalCluster, tmp_path: Path
) -> Iterator[Sides]:
    config = tmp_path / "federation.yaml"
    with worlds.world(
        node="suffixed", hub=local_hub, target=local_target, config=config, started=False
    ) as world:
        found = Sides(world, config)
        for name in (found.mapped, found.single):
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            world.target.create(body)
        found.write(map_to=found.mapped)
        found.space.open()
        world.start_federate()
        yield found
        found.space.close()
        for name in (found.mapped, found.single):
            world.target.delete("Namespace", "", name)
        for node in SIDES:
            world.hub.delete("Node", "", node)


def test_three_strategies_side_by_side(sides: Sides) -> None:
    """A suffixed, a named and a shared namespace; other rules later move no mirror that stands."""
    space, target = sides.space, sides.world.target
    for node in SIDES:
        space.create(pod(node, pod_spec(node)))
    hub_pods = {node: space.wait_running(node) for node in SIDES}
    namespaces = {
        "suffixed": space.target_namespace, "map": sides.mapped, "single": sides.single
    }  # fmt: skip
    mirrors = {}
    for node, namespace in namespaces.items():
        [mirrors[node]] = target.list("Pod", namespace)
        assert labels_of(mirrors[node])["federate.dev/hub-pod-uid"] == uid_of(hub_pods[node])
    assert name_of(mirrors["suffixed"]) == "suffixed"
    assert name_of(mirrors["map"]) == "map"
    assert name_of(mirrors["single"]).startswith(f"single-{space.namespace}-"[:40])
    assert mirrors["single"]["spec"]["hostname"] == "single"
    for name in (sides.mapped, sides.single):
        used = target.get("Namespace", "", name)
        assert used is not None
        assert not [key for key in labels_of(used) if key.startswith("federate.dev/")]

    stray = pod("stray", pod_spec("map"))
    sides.world.hub.create(stray, "default")
    try:
        wait_for(
            "a pod of a namespace without an entry says so",
            lambda: (
                waiting_reason(sides.world.hub.get("Pod", "default", "stray") or {})
                == "NamespaceNotMapped"
            ),
            explain=sides.world.federate.log_tail,
        )
    finally:
        sides.world.hub.delete("Pod", "default", "stray")

    sides.write(map_to=sides.single)
    space.wait("a new pod stands by the new rules", lambda: _stands(sides, "later", sides.single))
    assert uid_of(target.list("Pod", sides.mapped)[0]) == uid_of(mirrors["map"])
    for node in ("map", "later"):
        space.delete_pod(node)
    for node in ("map", "later"):
        space.wait_pod_gone(node)
    assert target.list("Pod", sides.mapped) == []


def _stands(sides: Sides, name: str, namespace: str) -> bool:
    """Run a pod of the node `map`, again until its mirror stands in the namespace."""
    space = sides.space
    if space.pod(name) is None:
        space.create(pod(name, pod_spec("map")))
    space.wait_running(name)
    if sides.world.target.get("Pod", namespace, name) is not None:
        return True
    space.delete_pod(name)
    space.wait_pod_gone(name)
    return False


def test_a_hub_that_is_its_own_target_makes_no_mirrors_of_mirrors(
    worlds: Worlds, local_hub: LocalCluster
) -> None:
    """In a hub that is its own target a mirror waits for a real node, and is never mirrored."""
    # This hub has none.
    with worlds.world(node="self", hub=local_hub, target=local_hub) as world:
        space = Space(world, "self")
        space.open()
        space.create(pod("one", pod_spec(space.node, nodeName=space.node)))
        space.wait("the mirror exists", lambda: space.mirror("one"))

        def is_calm() -> bool:
            mirror = space.mirror("one")
            return mirror is not None and "nodeName" not in mirror["spec"]

        space.hold("the mirror is bound to no virtual node", is_calm, seconds=2.0)
        (mirror,) = space.mirrors()
        assert not world.hub_record.find(lambda e: e.hub_pod_uid == uid_of(mirror))
        space.close()


def test_a_hub_that_is_its_own_target_needs_namespaces_of_its_own(hub: TestCluster) -> None:
    """With target = hub and `--namespaces same` federate refuses to start, and says why."""
    ended = run_cli(
        "run", "--hub", str(hub.kubeconfig), "--target", f"itself={hub.kubeconfig}",
        "--namespaces", "same", "--listen", "127.0.0.1:0",
    )  # fmt: skip
    assert ended.returncode == 2, ended.stderr
    assert "same" in ended.stderr
    assert "Traceback" not in ended.stderr
