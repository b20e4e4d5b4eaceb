"""Ports of a node: which a pod takes, and which clash."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federate.model.hostports import HostPort, host_port_index, host_ports_of
from tests.support.builders import pod

ANY = HostPort(port=80)
HERE = HostPort(port=80, address="10.0.0.1")


def container(**port: Any) -> dict[str, Any]:
    return {"name": "c", "image": "i", "ports": [{"containerPort": 1, **port}]}


def test_ports_of_containers_and_sidecars_count() -> None:
    """With a server's defaults; init containers that end give theirs back before others start."""
    spec = {
        "initContainers": [
            container(hostPort=1),
            {**container(hostPort=2), "restartPolicy": "Always"},
        ],
        "containers": [
            container(hostPort=3, protocol="UDP", hostIP="10.0.0.1"),
            container(hostPort=3, protocol="UDP", hostIP="10.0.0.1"),
            container(hostPort=0),
            container(),
            {"name": "none"},
        ],
    }
    assert host_ports_of(spec) == (
        HostPort(port=2),
        HostPort(port=3, protocol="UDP", address="10.0.0.1"),
    )
    assert host_ports_of({}) == ()


@pytest.mark.parametrize(
    ("one", "other", "clash"),
    [
        (ANY, ANY, True),
        (ANY, HERE, True),
        (HERE, HERE, True),
        (HERE, HostPort(port=80, address="10.0.0.2"), False),
        (ANY, HostPort(port=81), False),
        (ANY, HostPort(port=80, protocol="UDP"), False),
    ],
)
def test_what_clashes(one: HostPort, other: HostPort, clash: bool) -> None:
    """As schedulers and kubelets say: one that names no address takes the port of all."""
    assert one.clashes_with(other) is other.clashes_with(one) is clash


PORTS = st.builds(
    HostPort,
    port=st.integers(1, 3),
    protocol=st.sampled_from(("TCP", "UDP")),
    address=st.sampled_from(("0.0.0.0", "10.0.0.1", "10.0.0.2")),
)


@given(one=PORTS, other=PORTS)
def test_whoever_clashes_is_found_under_the_same_place(one: HostPort, other: HostPort) -> None:
    """So that only those are compared."""
    assert one.place == other.place or not one.clashes_with(other)


def test_a_pod_that_has_ended_is_not_in_the_index() -> None:
    asks = pod("web").with_spec(containers=[container(hostPort=80, protocol="TCP")])
    assert set(host_port_index(asks.build())) == {"TCP/80"}
    assert not set(host_port_index(asks.failed().build()))
    assert not set(host_port_index(pod("web").build()))


def test_a_port_says_what_it_is() -> None:
    assert (str(ANY), str(HERE)) == ("TCP 80", "TCP 80 of 10.0.0.1")
