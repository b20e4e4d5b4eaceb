"""Pods of a target find each other by the hub's names, and nobody on the hub is misled (C33, C47).

Both clusters of the tests give their pods addresses of the same range, as two K3s clusters do. One
process serves two virtual nodes: one decides by itself, one shows addresses whatever they are.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

import pytest
import yaml

from e2e.support.manifests import pod, stateful_set
from e2e.support.pods import condition_of, uid_of
from e2e.support.witness import Json
from e2e.support.worlds import Worlds
from e2e.testbed.errors import TestbedError
from e2e.testbed.kind import RealCluster

from .crate import Crate
from .reports import PORT, Reports

pytest_plugins = ["e2e.containers.fixtures"]
pytestmark = pytest.mark.e2e

NODE = "quay"
SHOWING = "lighthouse"
WHO = "/file?path=/etc/hostname"
"""Whoever answers tells its name."""
CALM_SECONDS = 12.0
"""Twice as long as it takes to tell Services what is new to them."""
RESOLVED_SECONDS = 90.0
"""A name that was asked for before it was there is remembered as none for half a minute."""


@pytest.fixture(scope="module")
def networked(
    worlds: Worlds,
    real_hub_and_target: tuple[RealCluster, RealCluster],
    reports: Reports,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Crate]:
    """Two virtual nodes, and a StatefulSet of two pods on that into which all Services follow."""
    hub, target = real_hub_and_target
    config = tmp_path_factory.mktemp("network") / "federate.yaml"
    config.write_text(yaml.safe_dump(configuration(hub, target)))
    with ExitStack() as stack:
        world = stack.enter_context(
            worlds.world(node=NODE, hub=hub, target=target, config=config, also=(SHOWING,))
        )
        crate = Crate(world, "network", hub=hub, target=target, reports=reports)
        crate.open()
        stack.callback(crate.close)
        crate.create(service("ship", clusterIP="None"))
        crate.create(service("pier"))
        body = stateful_set("ship", crate.spec(crate.app("serve", ports=[{"containerPort": PORT}])))
        body["spec"] |= {"replicas": 2, "podManagementPolicy": "Parallel"}
        crate.create(body)
        for ship in ("ship-0", "ship-1"):
            crate.wait_serving(ship)
        yield crate


def configuration(hub: RealCluster, target: RealCluster) -> Json:
    at = {"target": {"kubeconfig": str(target.kubeconfig)}}
    return {
        "apiVersion": "federate.dev/v1alpha1",
        "kind": "Federation",
        "hub": {"kubeconfig": str(hub.kubeconfig)},
        "virtualNodes": [
            {"nodeName": NODE, **at, "services": "all"},
            {"nodeName": SHOWING, **at, "addresses": "reflect"},
        ],
    }


def service(name: str, app: str = "ship", **spec: object) -> Json:
    """A Service, of the StatefulSet's pods for one."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"selector": {"app": app}, "ports": [{"port": PORT}], **spec},
    }


def answer_of(crate: Crate, asking: str, host: str) -> str | None:
    """Ask who answers at a name, from within a pod; None where nobody does."""
    fetch = ("exec", asking, "--", "/app", "fetch", f"http://{host}:{PORT}{WHO}")
    try:
        found = crate.target_cluster.kubectl(f"--namespace={crate.target_namespace}", *fetch)
        return found.strip() or None
    except TestbedError:
        return None


def test_c33_pods_of_a_stateful_set_find_each_other_in_the_target(networked: Crate) -> None:
    """By their names behind a headless Service, and by that of an ordinary one."""
    crate = networked
    for ship, host, answers in (
        ("ship-0", "ship-1.ship", {"ship-1"}),
        ("ship-1", "ship-0.ship", {"ship-0"}),
        ("ship-0", "pier", {"ship-0", "ship-1"}),
    ):
        found = crate.wait(
            f"{ship} finds {host}",
            partial(answer_of, crate, ship, host),
            timeout_seconds=RESOLVED_SECONDS,
        )
        assert found in answers
    crate.kubectl("delete", "service", "pier")
    crate.wait(
        "the pier is gone from the target",
        lambda: crate.target.get("Service", crate.target_namespace, "pier") is None or None,
    )
    crate.create(service("pier"))


def test_c47_with_equal_ranges_no_hub_service_leads_to_a_stranger(networked: Crate) -> None:
    """The pods are ready and have no address; the Service, its policy and the Node are told."""
    crate = networked
    policy = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "wall"},
        "spec": {"podSelector": {}},
    }
    crate.create(policy)
    ship = crate.read("Pod", "ship-0")
    assert condition_of(ship, "Ready")["status"] == "True"
    assert "podIP" not in ship["status"]
    slices = crate.hub.list("EndpointSlice", crate.namespace)
    assert [one["endpoints"] for one in slices if one.get("endpoints")] == []
    assert shown_of(crate, NODE) == ("False", "RangesOverlap")
    for kind, name, reason in (
        ("Service", "pier", "AddressHidden"),
        ("Service", "ship", "AddressHidden"),
        ("NetworkPolicy", "wall", "NetworkPolicyNotEnforced"),
    ):
        about = uid_of(crate.read(kind, name))
        crate.wait(f"{name} is told {reason}", partial(told, crate, reason, about))
    # A third pod, and one that comes again, are no news.
    crate.hub.patch("StatefulSet", crate.namespace, "ship", {"spec": {"replicas": 3}})
    crate.wait_serving("ship-2")
    crate.hold(
        "each is told once",
        lambda: set(Counter(map(_what, events_of(crate))).values()) == {1},
        seconds=CALM_SECONDS,
    )


def test_c47_addresses_are_shown_where_the_configuration_says_so(networked: Crate) -> None:
    """The very address of the mirror, and hub Services lead there."""
    crate = networked
    crate.create(service("beacon", app="beacon"))
    spec = crate.spec(
        crate.app("serve", ports=[{"containerPort": PORT}]),
        nodeSelector={"kubernetes.io/hostname": SHOWING},
    )
    crate.create(pod("beacon", spec, labels={"app": "beacon"}))
    crate.wait_serving("beacon")
    address = crate.read_mirror("beacon")["status"]["podIP"]

    def leads_there() -> bool:
        slices = crate.hub.list(
            "EndpointSlice", crate.namespace, labels="kubernetes.io/service-name=beacon"
        )
        found = [e for one in slices for e in one.get("endpoints") or ()]
        return [e["addresses"] for e in found if e["conditions"]["ready"]] == [[address]]

    crate.wait("the Service leads to the mirror", leads_there)
    assert crate.read("Pod", "beacon")["status"]["podIP"] == address
    assert shown_of(crate, SHOWING) == ("True", "AddressesConfigured")
    assert not told(crate, "AddressHidden", uid_of(crate.read("Service", "beacon")))


def shown_of(crate: Crate, name: str) -> tuple[str, str]:
    """Read from a virtual node whether its pods show addresses, and why."""
    node = crate.hub.get("Node", "", name)
    assert node is not None
    shown = condition_of(node, "federate.dev/AddressesReflected")
    return shown["status"], shown["reason"]


def events_of(crate: Crate) -> list[Json]:
    """List the Events that Services and policies got."""
    about = ("Service", "NetworkPolicy")
    events = crate.hub.list("Event", crate.namespace)
    return [event for event in events if event["involvedObject"]["kind"] in about]


def told(crate: Crate, reason: str, uid: str) -> Json | None:
    """Find an Event of that reason about an object."""
    return next((e for e in events_of(crate) if _what(e) == (reason, uid)), None)


def _what(event: Json) -> tuple[str, str]:
    return event["reason"], event["involvedObject"]["uid"]
