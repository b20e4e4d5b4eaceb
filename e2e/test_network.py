"""Addresses, Services, network policies and DNS: each setting with each outcome (C33, C47).

One federate process serves a virtual node for each of three configurations, all of one target. Both
clusters tell ranges that are apart, so by default addresses are shown; two real clusters of equal
ranges are in `containers.test_network`. All of it is done with exactly the rights that `federate
rbac --with services` prints (C1).
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import yaml

from e2e.support.accounts import account_of
from e2e.support.manifests import pod, pod_spec
from e2e.support.pods import condition_of, is_ready, name_of, uid_of, waiting_words
from e2e.support.process import FederateProcess, run_cli
from e2e.support.rights import asked_by, assert_all_granted, assert_all_in_table
from e2e.support.witness import Json
from e2e.support.world import Space, World, wait_for
from e2e.support.worlds import Worlds
from e2e.testbed.fake_nodes import fake_node_name
from e2e.testbed.fixtures import TARGET, TestbedFactory
from e2e.testbed.local import LocalCluster
from e2e.testbed.provider import ClusterSpec

pytest_plugins = ["e2e.support.fixtures"]
pytestmark = pytest.mark.e2e

PLAIN, CLOSED, OPEN = "net-plain", "net-closed", "net-open"

SERVER = "192.0.2.53"
CONFIGURATIONS: Mapping[str, Json] = {
    PLAIN: {},
    CLOSED: {
        "addresses": "hide",
        "services": "labelled",
        "networkPolicies": "refuse",
        "dns": {"searches": ["hub.test"], "options": {"ndots": "2", "rotate": ""}},
    },
    OPEN: {
        "addresses": "reflect",
        "services": "all",
        "networkPolicies": "ignore",
        "dns": {"policy": "config", "nameservers": [SERVER]},
    },
}

SPEC: ClusterSpec = replace(TARGET, name="spare-target", nodes=1)
"""That of the pair that other modules hurt: in one process it is started once."""
TARGET_RANGE = "10.244.0.0/24"
"""Within what kwok gives its pods."""
HUB_RANGE = "10.60.0.0/24"

FOLLOW = "federate.dev/follow"


def document(hub: Path, target: Path) -> Json:
    return {
        "apiVersion": "federate.dev/v1alpha1",
        "kind": "Federation",
        "hub": {"kubeconfig": str(hub)},
        "virtualNodes": [
            {"nodeName": name, "target": {"kubeconfig": str(target)}, **rules}
            for name, rules in CONFIGURATIONS.items()
        ],
    }


@pytest.fixture(scope="module")
def networked(
    worlds: Worlds,
    local_hub: LocalCluster,
    testbed_factory: TestbedFactory,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[World]:
    """The three virtual nodes, and a node of the hub's own that tells its range."""
    target, folder = testbed_factory.cluster(SPEC), tmp_path_factory.mktemp("network")
    nodes = [argument for name in CONFIGURATIONS for argument in ("--node", name)]
    follow, file = ("--with", "services"), folder / "federation.yaml"
    with ExitStack() as stack:
        stack.callback(worlds.forget, target)
        grant = partial(account_of, folder=folder)
        hub_side = stack.enter_context(grant(local_hub, "--side", "hub", *nodes, *follow))
        target_side = stack.enter_context(grant(target, "--side", "target", *follow))
        file.write_text(yaml.safe_dump(document(hub_side, target_side)))
        plain = stack.enter_context(
            worlds.world(
                node=PLAIN,
                hub=local_hub,
                target=target,
                config=file,
                also=(CLOSED, OPEN),
                started=False,
            )
        )
        options = replace(plain.federate.options, hub=hub_side, target=target_side)
        federate = FederateProcess(options, folder=folder)
        stack.callback(federate.close)
        world = replace(plain, federate=federate)
        wait_granted(file)
        tell_ranges(world, stack)
        world.start_federate()
        for name in CONFIGURATIONS:
            wait_for(
                f"{name} is ready and has decided",
                partial(has_decided, world, name),
                explain=world.federate.log_tail,
            )
        yield world


def tell_ranges(world: World, stack: ExitStack) -> None:
    """Give both sides nodes with ranges. Others may use the target: its node keeps its own."""
    body = {"spec": {"podCIDR": TARGET_RANGE, "podCIDRs": [TARGET_RANGE]}}
    world.target.patch("Node", "", fake_node_name(SPEC, 0), body)
    own = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "hub-own"},
        "spec": {"podCIDR": HUB_RANGE, "podCIDRs": [HUB_RANGE], "unschedulable": True},
    }
    world.hub.create(own)
    stack.callback(world.hub.delete, "Node", "", name_of(own))
    status = {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]}
    world.hub.patch("Node", "", name_of(own), {"status": status}, subresource="status")


def wait_granted(file: Path) -> None:
    """Wait until the API servers know the rights: `federate check` asks for each."""

    def check() -> CompletedProcess[str]:
        return run_cli("check", "--config", str(file))

    wait_for(
        "every right is granted", lambda: not check().returncode, explain=lambda: check().stdout
    )


def has_decided(world: World, name: str) -> bool:
    node = world.hub.get("Node", "", name)
    return node is not None and is_ready(node) and shown_of(node)[0] != "Unknown"


def shown_of(node: Json) -> tuple[str, str]:
    shown = condition_of(node, "federate.dev/AddressesReflected")
    return shown.get("status", "Unknown"), shown.get("reason", "")


@pytest.fixture
def space(networked: World, request: pytest.FixtureRequest) -> Iterator[Space]:
    found = Space(networked, "network")
    found.open()
    yield found
    found.close()


def bound(name: str, node: str, **more: Any) -> Json:
    """Render a pod of a virtual node; it is bound there once that is ready."""
    return pod(name, pod_spec(node, **more), labels={"app": "web", "pod": name})


def service(name: str, *, labels: Json | None = None, **spec: Any) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}], **spec},
    }


def policy(name: str, **labels: str) -> Json:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name},
        "spec": {"podSelector": {"matchLabels": labels}},
    }


def told(space: Space, kind: str, name: str) -> list[str]:
    """Name the reasons that an object was told."""
    found = space.hub.get(kind, space.namespace, name)
    assert found is not None
    events = space.hub.list("Event", space.namespace)
    return [e["reason"] for e in events if e["involvedObject"].get("uid") == uid_of(found)]


# -- addresses -------------------------------------------------------------------------------------


def test_c47_addresses_are_shown_or_hidden_as_it_is_set(space: Space) -> None:
    """By default because the ranges are apart; a Service with a hidden one is told once."""
    for name, selector in (("front", {"app": "web"}), ("open", {"pod": "open"})):
        space.create(service(name, selector=selector))
    names = {"plain": PLAIN, "closed": CLOSED, "open": OPEN}
    for name, node in names.items():
        space.create(bound(name, node))
    shown = {name: space.wait_running(name)["status"].get("podIP") for name in names}
    there = {name: space.read_mirror(name)["status"]["podIP"] for name in names}
    assert shown == {**there, "closed": None}

    def leads_to() -> list[str]:
        slices = space.hub.list(
            "EndpointSlice", space.namespace, labels="kubernetes.io/service-name=front"
        )
        ends = [end for each in slices for end in each.get("endpoints") or ()]
        return sorted(address for end in ends for address in end["addresses"])

    space.wait(
        "the Service leads to two", lambda: leads_to() == sorted(filter(None, shown.values()))
    )
    reasons = {name: shown_of(read_node(space, node)) for name, node in names.items()}
    assert reasons == {
        "plain": ("True", "RangesApart"),
        "closed": ("False", "AddressesConfigured"),
        "open": ("True", "AddressesConfigured"),
    }
    space.wait("the Service is told", lambda: told(space, "Service", "front"))
    space.run_pod(bound("another", CLOSED))
    assert told(space, "Service", "front") == ["AddressHidden"]
    assert told(space, "Service", "open") == []


def read_node(space: Space, name: str) -> Json:
    node = space.hub.get("Node", "", name)
    assert node is not None
    return node


# -- Services --------------------------------------------------------------------------------------


def test_c33_services_follow_as_it_is_set(space: Space) -> None:
    """None, those with the label, or all; a headless one is headless, and pods may keep it out."""
    for body in (
        service("any"),
        service("headless", clusterIP="None", publishNotReadyAddresses=True),
        service("wanted", labels={FOLLOW: "true"}, type="NodePort"),
        service("unwanted", labels={FOLLOW: "false"}),
    ):
        space.create(body)
    space.run_pod(bound("plain", PLAIN))
    space.run_pod(bound("closed", CLOSED))
    space.wait("the one with the label follows", lambda: followed(space).keys() == {"wanted"})
    assert followed(space)["wanted"]["type"] == "ClusterIP"
    space.run_pod(bound("open", OPEN))
    space.wait("the others follow", lambda: followed(space).keys() == {"any", "headless", "wanted"})
    headless = followed(space)["headless"]
    assert (headless["clusterIP"], headless["publishNotReadyAddresses"]) == ("None", True)
    selector = headless["selector"]
    assert selector.keys() == {"app", "federate.dev/hub", "federate.dev/hub-pod-namespace"}
    assert selector["federate.dev/hub-pod-namespace"] == space.namespace
    assert space.read_mirror("open")["metadata"]["labels"].items() >= selector.items()
    space.hub.delete("Service", space.namespace, "any")
    space.wait("it goes with the hub's", lambda: "any" not in followed(space))


def followed(space: Space) -> dict[str, Json]:
    """Return the specs of the Services in the target namespace."""
    found = space.target.list("Service", space.target_namespace)
    return {name_of(each): each["spec"] for each in found}


# -- network policies ------------------------------------------------------------------------------


def test_c33_a_network_policy_is_told_or_keeps_pods_out(space: Space) -> None:
    """A refused pod leaves nothing in the target, and runs once the policy is gone."""
    space.create(policy("wall", app="web"))
    space.create(policy("curtain", pod="open"))
    space.create(bound("closed", CLOSED))
    words = waiting_words(space.wait_waiting("closed", "NetworkPolicyNotEnforced"))
    assert "NetworkPolicy wall selects this pod" in words
    assert space.target.get("Namespace", "", space.target_namespace) is None
    space.run_pod(bound("open", OPEN))
    space.run_pod(bound("plain", PLAIN))
    space.wait("the policy is told", lambda: told(space, "NetworkPolicy", "wall"))
    assert space.mirror("closed") is None
    assert told(space, "NetworkPolicy", "wall") == ["NetworkPolicyNotEnforced"]
    assert told(space, "NetworkPolicy", "curtain") == []
    space.hub.delete("NetworkPolicy", space.namespace, "wall")
    space.wait_running("closed")


# -- DNS -------------------------------------------------------------------------------------------


def test_c33_a_mirror_asks_the_dns_that_is_set(space: Space) -> None:
    """Beside the target's, or instead; what the pod says of its own comes first."""
    own = {"dnsConfig": {"searches": ["own.test"], "options": [{"name": "ndots", "value": "1"}]}}
    for name, node, more in (
        ("plain", PLAIN, {}),
        ("added", CLOSED, {}),
        ("merged", CLOSED, own),
        ("replaced", OPEN, {}),
        ("left-alone", OPEN, {"dnsPolicy": "Default"}),
    ):
        space.create(bound(name, node, **more))
    ruled = [{"name": "ndots", "value": "2"}, {"name": "rotate"}]
    for name, expected in (
        ("plain", ("ClusterFirst", None)),
        ("added", ("ClusterFirst", {"searches": ["hub.test"], "options": ruled})),
        (
            "merged",
            (
                "ClusterFirst",
                {
                    "searches": ["own.test", "hub.test"],
                    "options": [{"name": "ndots", "value": "1"}, {"name": "rotate"}],
                },
            ),
        ),
        ("replaced", ("None", {"nameservers": [SERVER]})),
        ("left-alone", ("Default", None)),
    ):
        space.wait_running(name)
        spec = space.read_mirror(name)["spec"]
        assert (spec["dnsPolicy"], spec.get("dnsConfig")) == expected, name


# -- rights ----------------------------------------------------------------------------------------


def test_c1_nothing_was_asked_for_that_is_not_granted(networked: World) -> None:
    """In all of the above; and Services and policies were read."""
    asked = asked_by(networked.federate)
    assert_all_granted(asked, networked.federate)
    assert_all_in_table(asked)
    assert {resource for _, _, resource, _ in asked} >= {"services", "networkpolicies", "nodes"}
