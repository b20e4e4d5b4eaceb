"""Where the suite's pods are made, what runs in them, and how the virtual node is configured."""

import json
import socket
from uuid import uuid4

from e2e.support.desk import address_for_containers
from e2e.support.witness import Json
from e2e.testbed.errors import TestbedError
from e2e.testbed.kind import RealCluster
from e2e.testbed.places import Places
from e2e.testbed.processes import wait_until
from e2e.testbed.provider import TestCluster

ACCOUNT_SECONDS = 30.0

PLAYED = "federate.test/pause:1"

ELSEWHERE = ("198.51.100.1", 9)
"""An address of no machine: nothing is sent, the kernel only says how it would be reached."""


def image_of(target: TestCluster) -> str:
    """Name an image that the target's nodes have, and that waits until it is told to end.

    Every real node holds one, to keep pods' namespaces open; kwok plays any.
    """
    nodes = json.loads(target.kubectl("get", "nodes", "-o", "json"))["items"]
    held = (image for node in nodes for image in node["status"].get("images") or ())
    names = (name for image in held for name in image.get("names") or ())
    return next((name for name in names if "/pause:" in name), PLAYED)


def federation(node: str, *, hub: TestCluster, target: TestCluster, places: Places) -> Json:
    """Render federate's configuration.

    The suite waits for an address of each pod and goes to none, so that the ranges of the two
    clusters need not be apart.
    """
    virtual_node = {
        "nodeName": node,
        "target": {"kubeconfig": str(target.kubeconfig)},
        "nodeAddress": node_address(hub, places),
        "addresses": "reflect",
    }
    return {
        "apiVersion": "federate.dev/v1alpha1",
        "kind": "Federation",
        "hub": {"kubeconfig": str(hub.kubeconfig)},
        "virtualNodes": [virtual_node],
    }


def node_address(hub: TestCluster, places: Places) -> str:
    """Say where the hub's API server reaches this host: it takes no loopback address for a node's.

    Raises:
        OSError: this host has no other.
    """
    if isinstance(hub, RealCluster):
        return address_for_containers(places)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        asked.connect(ELSEWHERE)
        return str(asked.getsockname()[0])


def new_namespace(cluster: TestCluster) -> str:
    """Make a namespace in which pods may be made."""
    name = f"providersuite-{uuid4().hex[:4]}"
    cluster.kubectl("create", "namespace", name)

    def has_account() -> bool:
        return bool(cluster.kubectl("-n", name, "get", "serviceaccounts", "-o", "name").strip())

    if not wait_until(has_account, ACCOUNT_SECONDS):
        raise TestbedError(f"Namespace {name} of {cluster.name} has no service account.")
    return name
