"""The claims that stay in a target when a virtual node is left: data is nobody's to throw away."""

from __future__ import annotations

from collections.abc import Iterable

from federate.claims.keys import origin_of_claim
from federate.cluster.port import ClusterPort
from federate.model.marks import Scope
from federate.model.objects import JsonDict, key_of
from federate.model.resources import CLAIMS


async def kept_claims(
    target: ClusterPort, scope: Scope, namespaces: Iterable[str]
) -> list[JsonDict]:
    """List the claims that this virtual node made in the target; "" stands for all namespaces.

    Raises:
        ClusterError: it cannot be told.
    """
    found: list[JsonDict] = []
    for namespace in namespaces:
        listing = await target.list(CLAIMS, namespace=namespace, label_selector=scope.selector)
        found += [claim for claim in listing.items if origin_of_claim(scope, claim) is not None]
    return sorted(found, key=key_of)
