"""Which cluster is this? The uid of its kube-system namespace (C3)."""

from __future__ import annotations

import time
from collections.abc import Callable

from federate.cluster.port import ClusterPort
from federate.errors import LeadershipLost
from federate.model.objects import ObjectKey, uid_of
from federate.model.resources import NAMESPACES

CONFIRMED_SECONDS = 2.0
"""How long a confirmation counts: a burst of deletions asks once."""


async def cluster_identity(client: ClusterPort) -> str:
    """Return the cluster's identity; raises ClusterError where it may not be read."""
    return uid_of(await client.get(NAMESPACES, ObjectKey("", "kube-system")))


class IdentityGuard:
    """Confirms that a client still speaks to the cluster it was made for.

    A replaced kubeconfig, a moved name or address may lead to another cluster, where everything is
    absent. So nothing that is absent counts before this says so.
    """

    def __init__(
        self, client: ClusterPort, expected: str, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._client = client
        self._expected = expected
        self._clock = clock
        self._confirmed_at = float("-inf")

    async def confirm(self) -> None:
        """Return where it is the same cluster.

        Raises:
            LeadershipLost: it is another one; nobody may act on what it says.
            ClusterError: it cannot be told.
        """
        if self._clock() - self._confirmed_at < CONFIRMED_SECONDS:
            return
        asked_at = self._clock()
        found = await cluster_identity(self._client)
        if found != self._expected:
            raise LeadershipLost(
                f"{self._client.name} is another cluster now (kube-system uid {found or 'none'}, "
                f"expected {self._expected}): nothing is written. Check its kubeconfig"
            )
        self._confirmed_at = asked_at
