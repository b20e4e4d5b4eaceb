"""All of federate's work with a Role in one namespace of the target, and no other right (C1, C22).

The rights are those that `federate rbac --side target --namespace X` prints. What was refused is
read from federate's own count of requests by outcome: but for one question, once for ever, nothing.
"""

import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from uuid import uuid4

import pytest

from e2e.support.accounts import account_of
from e2e.support.manifests import deployment, pod, pod_spec
from e2e.support.pods import annotations_of, is_ready, name_of, uid_of
from e2e.support.process import FederateProcess, run_sweep
from e2e.support.witness import Json, Witness
from e2e.support.world import Space, World, wait_for
from e2e.support.worlds import Worlds
from e2e.testbed.local import LocalCluster

pytest_plugins = ["e2e.support.fixtures"]
pytestmark = pytest.mark.e2e

NODE = "guest"

REFUSED = re.compile(
    r'^federate_requests_total\{cluster="guest",outcome="(?:Forbidden|Unauthorized)",'
    r'resource="(?P<resource>[^"]+)",verb="(?P<verb>[^"]+)"\} (?P<count>\S+)',
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Guest:
    """A federate that is let into one namespace, and the space of its hub pods."""

    world: World
    space: Space
    namespace: str

    def refused(self) -> list[str]:
        """Name what the target refused in this life of federate."""
        found = REFUSED.finditer(self.world.federate.fetch("/metrics"))
        return [f"{m['verb']} {m['resource']} {float(m['count']):g}" for m in found]

    def identity(self) -> str:
        """Read what is on record of the target."""
        return annotations_of(self.world.read_node()).get("federate.dev/target-identity", "")


@pytest.fixture(scope="module")
def guest(
    worlds: Worlds,
    local_hub: LocalCluster,
    local_target: LocalCluster,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Guest]:
    folder, namespace = tmp_path_factory.mktemp("guest"), f"e2e-guest-{uuid4().hex[:4]}"
    with ExitStack() as stack:
        plain = stack.enter_context(
            worlds.world(
                node=NODE,
                hub=local_hub,
                target=local_target,
                arguments=(
                    *("--namespaces", f"single={namespace}"),
                    *("--capacity", "cpu=8,memory=16Gi,pods=100"),
                ),
                started=False,
            )
        )
        make_namespace(plain.target, namespace)
        stack.callback(plain.target.delete, "Namespace", "", namespace)
        rights = ("--side", "target", "--namespace", namespace)
        file = stack.enter_context(
            account_of(local_target, *rights, folder=folder, namespace=namespace)
        )
        options = replace(plain.federate.options, target=file)
        federate = FederateProcess(options, folder=folder)
        stack.callback(federate.close)
        world = replace(plain, federate=federate)
        world.start_federate()
        space = Space(world, "guest")
        space.target_namespace = namespace
        space.open()
        yield Guest(world=world, space=space, namespace=namespace)
        space.close()


def make_namespace(target: Witness, name: str) -> None:
    target.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    wait_for(
        f"{name} has its service account", lambda: target.get("ServiceAccount", name, "default")
    )


def ready(pods: list[Json], image: str = "") -> list[Json]:
    return [p for p in pods if is_ready(p) and image in ("", p["spec"]["containers"][0]["image"])]


def test_a_role_in_one_namespace_is_enough(guest: Guest) -> None:
    """A Deployment goes up, rolls, shrinks and goes; the target refused one question, ever."""
    space = guest.space
    account = space.target.get("ServiceAccount", guest.namespace, "default")
    assert account is not None
    assert guest.identity() == f"{guest.namespace}/{uid_of(account)}"
    space.create(deployment("web", pod_spec(NODE), replicas=3))
    space.wait_ready_pods(3)
    assert {m["spec"]["hostname"] for m in space.mirrors()} == {name_of(p) for p in space.pods()}
    containers = [{"name": "main", "image": "federate.test/app:2"}]
    rolled = {"spec": {"template": {"spec": {"containers": containers}}}}
    space.hub.patch("Deployment", space.namespace, "web", rolled)
    space.wait(
        "all pods are of the new image",
        lambda: len(space.pods()) == len(ready(space.pods(), "federate.test/app:2")) == 3,
    )
    space.scale("web", 1)
    space.wait_ready_pods(1)
    space.hub.delete("Deployment", space.namespace, "web")
    space.wait_nothing_left()
    space.assert_one_mirror_each()
    assert guest.refused() == ["get namespaces 1"]


def test_what_was_deleted_meanwhile_is_collected_and_nothing_elsewhere_seen(guest: Guest) -> None:
    """A restart asks nothing that is refused; a pod of our marks in another namespace stays."""
    space, world = guest.space, guest.world
    space.run_pods("kept", "lost")
    [twin] = [m for m in space.mirrors() if name_of(m).startswith("lost-")]
    world.federate.stop()
    space.delete_pod("lost", grace_seconds=0)
    elsewhere = f"{guest.namespace}-not"
    make_namespace(world.target, elsewhere)
    try:
        meta = {key: twin["metadata"][key] for key in ("name", "labels", "annotations")}
        stranger = pod("stranger", pod_spec("nowhere"))
        world.target.create({**stranger, "metadata": meta}, elsewhere)
        shown = run_sweep(world.federate.options, "--dry-run", "--namespaces", guest.namespace)
        assert shown.count("itshubpodisgone") == 1, shown
        world.start_federate()
        space.wait(
            "the orphan is gone",
            lambda: world.target.get("Pod", guest.namespace, name_of(twin)) is None,
        )
        assert guest.refused() == []
        assert world.target.get("Pod", elsewhere, name_of(twin)) is not None
        space.delete_pod("kept")
        space.wait_nothing_left()
    finally:
        world.target.delete("Namespace", "", elsewhere)


def test_an_uninstall_is_told_from_another_cluster(guest: Guest) -> None:
    """The anchor goes: the node says Uninstalled, hub pods stay, an operator's word heals it."""
    space, world = guest.space, guest.world
    space.run_pods("stays")
    [anchor] = [
        c for c in world.target.list("ConfigMap", guest.namespace)
        if name_of(c).startswith("federate-anchor-")
    ]  # fmt: skip
    world.target.delete("ConfigMap", guest.namespace, name_of(anchor))

    def reason(kind: str) -> str:
        conditions = world.read_node()["status"]["conditions"]
        return str(next(c["reason"] for c in conditions if c["type"] == kind))

    space.wait("the node says Uninstalled", lambda: reason("Ready") == "Uninstalled")
    space.wait("the target removed the mirror", lambda: not space.mirrors())
    assert reason("federate.dev/TargetReachable") == "TargetAnswers"
    assert space.pod("stays") is not None
    word = {"metadata": {"annotations": {"federate.dev/reinstall": guest.namespace}}}
    world.hub.patch("Node", "", NODE, word)
    space.wait("the node is well again", lambda: reason("Ready") != "Uninstalled")
    space.wait_pod_gone("stays")
    space.run_pods("again")
    space.delete_pod("again")
    space.wait_nothing_left()
