"""Configure a virtual node with identities of the hub, and read the tokens that its pods see."""

import base64
import json
from collections.abc import Iterable

from e2e.containers.reports import ADDRESS
from e2e.testbed.docker import Docker
from e2e.testbed.kind import RealCluster
from e2e.testbed.places import Places

from .desk import address_for_containers
from .witness import Json

API_PORT = 6443
"""Where API servers of kind listen in Docker's network."""


def federation(
    node: str, *, hub: RealCluster, target: RealCluster, places: Places, **more: object
) -> Json:
    """Render federate's configuration; pods reach the hub by its address in Docker's network."""
    api = Docker(places=places).run("inspect", "--format", ADDRESS, hub.node_name).strip()
    virtual_node = {
        "nodeName": node,
        "target": {"kubeconfig": str(target.kubeconfig)},
        "nodeAddress": address_for_containers(places),
        "identity": "hub",
        "hubAddress": f"{api}:{API_PORT}",
        **more,
    }
    return {
        "apiVersion": "federate.dev/v1alpha1",
        "kind": "Federation",
        "hub": {"kubeconfig": str(hub.kubeconfig)},
        "virtualNodes": [virtual_node],
    }


def token_source(path: str, audience: str, *, seconds: int) -> Json:
    """Render a source of a projected volume: a token of the pod's own wish."""
    wish = {"path": path, "audience": audience, "expirationSeconds": seconds}
    return {"serviceAccountToken": wish}


def claims_of(token: str) -> Json:
    """Read what a token says of itself."""
    middle = token.split(".")[1]
    claims: Json = json.loads(base64.urlsafe_b64decode(middle + "=" * (-len(middle) % 4)))
    return claims


def tokens_noticed(lines: Iterable[str]) -> list[tuple[float, Json]]:
    """Return when a container noticed a token, and what that says of itself, in order.

    The lines are what `app notice` prints.
    """
    found = [line.split(maxsplit=1) for line in lines]
    return [(float(at), claims_of(text.strip('"'))) for at, text in found if text.count(".") == 2]
