"""Which cluster is this? The uid of its kube-system namespace (C3)."""

from __future__ import annotations

from federate.cluster.port import ClusterPort
from federate.model.objects import ObjectKey, uid_of
from federate.model.resources import NAMESPACES


async def cluster_identity(client: ClusterPort) -> str:
    """Return the cluster's identity; raises ClusterError where it may not be read."""
    return uid_of(await client.get(NAMESPACES, ObjectKey("", "kube-system")))
