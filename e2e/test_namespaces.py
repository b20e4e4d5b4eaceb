"""Where mirrors stand: in namespaces of their own, of the same names, or in the hub (C3, C22)."""

import pytest

from e2e.support.manifests import pod, pod_spec
from e2e.support.pods import uid_of
from e2e.support.process import run_cli
from e2e.support.world import Space
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
