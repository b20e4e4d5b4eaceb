"""Variables that tell of the hub's Services, and their place in a container's environment."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from federate.companions.environment import (
    Advertised,
    service_environment,
    with_environment,
)
from federate.model.objects import JsonDict

HUB = Advertised(host="192.0.2.1", port=6443)

API_VARIABLES = {
    "KUBERNETES_SERVICE_HOST": "192.0.2.1",
    "KUBERNETES_SERVICE_PORT": "6443",
    "KUBERNETES_SERVICE_PORT_HTTPS": "6443",
    "KUBERNETES_PORT": "tcp://192.0.2.1:6443",
    "KUBERNETES_PORT_6443_TCP": "tcp://192.0.2.1:6443",
    "KUBERNETES_PORT_6443_TCP_PROTO": "tcp",
    "KUBERNETES_PORT_6443_TCP_PORT": "6443",
    "KUBERNETES_PORT_6443_TCP_ADDR": "192.0.2.1",
}


def service(
    name: str, address: str | None = "10.0.0.5", /, *, of: str = "shop", **port: Any
) -> JsonDict:
    return {
        "metadata": {"name": name, "namespace": of},
        "spec": {"clusterIP": address, "ports": [{"port": 80, "protocol": "TCP", **port}]},
    }


def told(*services: JsonDict, links: bool = True, hub: Advertised = HUB) -> dict[str, str]:
    return service_environment(services, namespace="shop", has_links=links, advertised=hub)


def test_the_hubs_api_server_is_where_it_is_advertised() -> None:
    """Its Service's own address leads nowhere in the target."""
    real = service("kubernetes", "10.0.0.1", of="default")
    assert told(real) == API_VARIABLES
    assert told() == API_VARIABLES


def test_services_of_the_namespace_are_told_as_a_kubelet_tells_them() -> None:
    """Each in its own way and in the way of Docker links; names in capitals."""
    named = service("my-db", name="main")
    named["spec"]["ports"].append({"port": 53, "protocol": "UDP", "name": "dns-x"})
    variables = told(named)
    assert {k: v for k, v in variables.items() if k not in API_VARIABLES} == {
        "MY_DB_SERVICE_HOST": "10.0.0.5",
        "MY_DB_SERVICE_PORT": "80",
        "MY_DB_SERVICE_PORT_MAIN": "80",
        "MY_DB_SERVICE_PORT_DNS_X": "53",
        "MY_DB_PORT": "tcp://10.0.0.5:80",
        "MY_DB_PORT_80_TCP": "tcp://10.0.0.5:80",
        "MY_DB_PORT_80_TCP_PROTO": "tcp",
        "MY_DB_PORT_80_TCP_PORT": "80",
        "MY_DB_PORT_80_TCP_ADDR": "10.0.0.5",
        "MY_DB_PORT_53_UDP": "udp://10.0.0.5:53",
        "MY_DB_PORT_53_UDP_PROTO": "udp",
        "MY_DB_PORT_53_UDP_PORT": "53",
        "MY_DB_PORT_53_UDP_ADDR": "10.0.0.5",
    }


def test_without_service_links_only_the_api_server_is_told() -> None:
    """enableServiceLinks: false."""
    assert told(service("db"), links=False) == API_VARIABLES


@pytest.mark.parametrize("address", ["None", "", None])
def test_services_without_an_address_are_not_told(address: str | None) -> None:
    """Headless ones, and names for what lies outside."""
    assert told(service("db", address)) == API_VARIABLES


def test_services_of_other_namespaces_are_not_told() -> None:
    """A Service called kubernetes is one like any other outside of `default`, but hides nothing."""
    assert told(service("db", of="prod")) == API_VARIABLES
    assert told(service("kubernetes"))["KUBERNETES_SERVICE_HOST"] == "10.0.0.5"


def test_a_pod_of_default_is_told_of_the_advertised_one() -> None:
    """There the API server's Service is one of its own namespace, too."""
    real = service("kubernetes", "10.0.0.1", of="default")
    variables = service_environment([real], namespace="default", has_links=True, advertised=HUB)
    assert variables == API_VARIABLES


def test_addresses_of_version_6_stand_in_brackets_where_a_port_follows() -> None:
    """As in a URL."""
    variables = told(hub=Advertised(host="fd00::1", port=443))
    assert variables["KUBERNETES_SERVICE_HOST"] == "fd00::1"
    assert variables["KUBERNETES_PORT"] == "tcp://[fd00::1]:443"


def test_a_port_without_a_protocol_is_tcp() -> None:
    """The API's default."""
    bare = service("db")
    del bare["spec"]["ports"][0]["protocol"]
    assert told(bare)["DB_PORT_80_TCP_PROTO"] == "tcp"


def test_a_service_without_ports_tells_its_address() -> None:
    """Nothing is invented."""
    bare = service("db")
    del bare["spec"]["ports"]
    assert {k for k in told(bare) if k.startswith("DB")} == {"DB_SERVICE_HOST"}


def test_the_same_services_tell_the_same() -> None:
    """Whatever their order."""
    some = [service("b-c"), service("b.c", "10.0.0.6"), service("a")]
    assert told(*some) == told(*reversed(some))


def test_variables_of_services_come_first_so_that_all_else_goes_before() -> None:
    """A later envFrom and every env of the user override them; `$(VAR)` sees them."""
    mine = {"secretRef": {"name": "s"}}
    spec = {
        "containers": [{"name": "a", "envFrom": [mine], "env": [{"name": "X", "value": "1"}]}],
        "initContainers": [{"name": "b"}],
        "ephemeralContainers": [{"name": "c"}],
    }
    before = copy.deepcopy(spec)
    source = {"configMapRef": {"name": "services"}}
    made = with_environment(spec, "services")
    assert made["containers"][0]["envFrom"] == [source, mine]
    assert made["containers"][0]["env"] == [{"name": "X", "value": "1"}]
    assert made["initContainers"] == [{"name": "b", "envFrom": [source]}]
    assert made["ephemeralContainers"] == [{"name": "c", "envFrom": [source]}]
    assert spec == before
