"""Storage of pods in the target, from the claim to what is left when a target is left (C33).

Everything happens with exactly the rights that `federate rbac --with claims` prints (C1).
"""

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from e2e.support.accounts import account_of
from e2e.support.manifests import pod, pod_spec
from e2e.support.pods import labels_of, name_of, uid_of, waiting_words
from e2e.support.process import FederateProcess, run_cli
from e2e.support.rights import asked_by, assert_all_granted, assert_all_in_table
from e2e.support.storage import (
    TARGET_CLASS,
    claim,
    claim_spec,
    claims_there,
    classes,
    disk,
    of_claim,
    told_of,
)
from e2e.support.witness import Json
from e2e.support.world import Space, World, wait_for
from e2e.support.worlds import Worlds
from e2e.testbed.provider import TestCluster

pytest_plugins = ["e2e.support.fixtures"]
pytestmark = pytest.mark.e2e

NODE = "granary"
KEEPING, DROPPING = "e2e-keep", "e2e-drop"
"""Classes of the hub: what is stored outlives its claim, or ends with it."""

GENERATED = re.compile(r"[a-z0-9-]+-[a-z2-7]{16}")
CLAIM = "PersistentVolumeClaim"
BINDING = ("pv.kubernetes.io/bind-completed", "pv.kubernetes.io/bound-by-controller")
"""By which the hub's volume controller knows that it bound a claim."""


@pytest.fixture(scope="module")
def stored(
    worlds: Worlds,
    hub: TestCluster,
    target: TestCluster,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[World]:
    """A virtual node with storage, whose federate may do what is printed and nothing else."""
    claims, folder = ("--with", "claims"), tmp_path_factory.mktemp("claims")
    with ExitStack() as stack:
        files = {
            "hub": stack.enter_context(
                account_of(hub, "--side", "hub", "--node", NODE, *claims, folder=folder)
            ),
            "target": stack.enter_context(
                account_of(target, "--side", "target", *claims, folder=folder)
            ),
        }
        config = folder / "federation.yaml"
        config.write_text(yaml.safe_dump(configuration(**files)))
        plain = stack.enter_context(
            worlds.world(node=NODE, hub=hub, target=target, config=config, started=False)
        )
        options = replace(plain.federate.options, hub=files["hub"], target=files["target"])
        federate = FederateProcess(options, folder=folder)
        stack.callback(federate.close)
        world = replace(plain, federate=federate)
        stack.enter_context(classes(world, hub, **{KEEPING: "Retain", DROPPING: "Delete"}))
        for _ in range(4):
            stack.enter_context(disk(world, "2Gi"))
        wait_granted(config)
        world.start_federate()
        yield world


def configuration(*, hub: Path, target: Path) -> Json:
    volumes = {
        "claims": "target",
        "storageClasses": {KEEPING: TARGET_CLASS, DROPPING: TARGET_CLASS},
    }
    node = {"nodeName": NODE, "target": {"kubeconfig": str(target)}, "volumes": volumes}
    return {
        "apiVersion": "federate.dev/v1alpha1",
        "kind": "Federation",
        "hub": {"kubeconfig": str(hub)},
        "virtualNodes": [node],
    }


def wait_granted(config: Path) -> None:
    """Wait until the API servers know the rights: `federate check` asks for each."""

    def told() -> str:
        checked = run_cli("check", "--config", str(config))
        return "" if checked.returncode == 0 else checked.stdout + checked.stderr

    wait_for("every right is granted", lambda: not told(), explain=told)


@pytest.fixture
def space(stored: World) -> Iterator[Space]:
    with opened(stored, "claims") as found:
        yield found


@contextmanager
def opened(world: World, name: str) -> Iterator[Space]:
    """Open a space; in the end nothing is left of its storage either."""
    found = Space(world, name)
    found.open()
    yield found
    found.close()
    for volume in volumes_of(found):
        found.hub.delete("PersistentVolume", "", name_of(volume))
    found.target.delete("Namespace", "", found.target_namespace)


def volumes_of(space: Space) -> list[Json]:
    """List the hub's volumes for claims of the space."""
    found = space.hub.list("PersistentVolume", labels="federate.dev/hub")
    return [v for v in found if v["spec"]["claimRef"]["namespace"] == space.namespace]


def test_c30_what_is_stored_for_somebody_else_is_out_of_reach(space: Space) -> None:
    """A user may write all that a claim says, and its name; each way leads to storage of his own,
    or to none."""
    owner = space
    owner.create(claim("hoard", KEEPING))
    owner.run_pod(pod("owner", pod_spec(NODE, volumes=[of_claim("hoard")])))
    [hoard] = names_of(owner.read_mirror("owner")).values()
    found = owner.hub.get(CLAIM, owner.namespace, "hoard")
    assert found is not None
    with opened(owner.world, "thief") as thief:
        bound = claim("bound", KEEPING)
        bound["metadata"]["annotations"] = dict.fromkeys(BINDING, "yes")
        bound["spec"]["volumeName"] = found["spec"]["volumeName"]
        named = claim(hoard, KEEPING)
        named["metadata"]["annotations"] = {
            "federate.dev/claim-of": json.dumps(
                {"namespace": owner.namespace, "name": "hoard", "uid": uid_of(found)}
            )
        }
        for body in (bound, named):
            thief.create(body)
        # Bound by hand: the hub's scheduler would hold one of them back.
        for name, used in (("bound", "bound"), ("named", hoard)):
            spec = pod_spec(NODE, nodeName=NODE, volumes=[of_claim(used)])
            thief.create(pod(name, spec))
        thief.create(pod("asking", pod_spec(NODE, volumes=[of_claim(hoard)])))
        words = waiting_words(thief.wait_waiting("bound", "ClaimPending"))
        assert "not bound to each other" in words, words
        thief.wait("claims called so have storage", lambda: thief.mirror("named"))
        [own] = names_of(thief.read_mirror("named")).values()
        assert own != hoard
        assert GENERATED.fullmatch(own)
        assert hoard not in map(name_of, claims_there(thief))
        thief.hold("nothing leads there", lambda: thief.mirror("bound") is None, seconds=2.0)


def test_c33_storage_in_the_target_from_its_making_to_leaving(
    space: Space, hub: TestCluster, target: TestCluster
) -> None:
    """A claim outlives its pod and the virtual node, an ephemeral one goes with the pod; sizes
    follow, and neither cluster refuses anything that federate asks for."""
    world, federate = space.world, space.world.federate
    space.create(claim("grain", KEEPING))
    template = {"spec": claim_spec(DROPPING)}
    scratch = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}
    first = uid_of(
        space.run_pod(pod("first", pod_spec(NODE, volumes=[of_claim("grain"), scratch])))
    )
    used = names_of(space.read_mirror("first"))
    assert {name_of(found) for found in claims_there(space)} == set(used.values())
    assert all(map(GENERATED.fullmatch, used.values()))
    assert all(map(is_ours_alone, claims_there(space)))
    assert "ClaimMade" in told_of(space, "grain")
    space.wait("the hub knows the size", lambda: size_of(space, "grain") == "2Gi")
    grow(space, used["data"])
    space.delete_pod("first")
    space.wait(
        "the ephemeral storage is gone",
        lambda: [*map(name_of, claims_there(space))] == [used["data"]],
    )
    asked = asked_by(federate)
    federate.restart()
    world.wait_node_ready()
    second = uid_of(space.run_pod(pod("second", pod_spec(NODE, volumes=[of_claim("grain")]))))
    assert second != first
    assert names_of(space.read_mirror("second")) == {"data": used["data"]}
    asked += asked_by(federate)
    assert_all_granted(asked, federate)
    assert_all_in_table(asked)
    federate.stop()
    before = stored_as(space, used["data"])
    words = leave(hub, target)
    assert "KEPT" in words, words
    place = f"--namespace {space.target_namespace} delete persistentvolumeclaim {used['data']}"
    assert place in words
    assert space.mirrors() == []
    assert stored_as(space, used["data"]) == before
    assert volumes_of(space), "the hub's volume stays, too"


def names_of(mirror: Json) -> dict[str, str]:
    """Return the claims that a mirror names, by volume."""
    volumes = mirror["spec"].get("volumes", ())
    sources = {v["name"]: v.get("persistentVolumeClaim") for v in volumes}
    return {name: source["claimName"] for name, source in sources.items() if source}


def is_ours_alone(there: Json) -> bool:
    """Tell whether no label of a claim in the target is anybody's but federate's."""
    return all(key.startswith("federate.dev/") for key in labels_of(there))


def size_of(space: Space, name: str) -> str:
    found = space.hub.get(CLAIM, space.namespace, name) or {}
    return str(found.get("status", {}).get("capacity", {}).get("storage", ""))


def grow(space: Space, there: str) -> None:
    """Ask for more on the hub; the target is asked for as much."""
    larger = {"spec": {"resources": {"requests": {"storage": "3Gi"}}}}
    space.hub.patch(CLAIM, space.namespace, "grain", larger)

    def is_asked() -> bool:
        found = space.target.get(CLAIM, space.target_namespace, there)
        assert found is not None
        return bool(found["spec"]["resources"]["requests"]["storage"] == "3Gi")

    space.wait("the target is asked for more", is_asked)


def stored_as(space: Space, there: str) -> str:
    """Return the uid of a claim in the target that nobody has deleted."""
    found = space.target.get(CLAIM, space.target_namespace, there)
    assert found is not None
    assert "deletionTimestamp" not in found["metadata"]
    return uid_of(found)


def leave(hub: TestCluster, target: TestCluster) -> str:
    """Leave the target for good; returns what the command says."""
    told = run_cli(
        *("leave", NODE, "--hub", str(hub.kubeconfig), "--yes", "--force"),
        *("--target", f"{NODE}={target.kubeconfig}"),
        timeout_seconds=150.0,
    )
    assert told.returncode == 0, told.stdout + told.stderr
    return " ".join(told.stdout.split())
