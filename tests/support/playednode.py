"""A node in a real API server that somebody answers for, with one pod on it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from federate.cluster.client import ClusterClient
from federate.model.objects import JsonDict, ObjectKey, uid_of
from federate.model.resources import NAMESPACES, NODES, PODS, SERVICEACCOUNTS
from federate.patch.document import MERGE, PatchBody


@asynccontextmanager
async def pod_on_a_node(client: ClusterClient, name: str, *, port: int) -> AsyncIterator[JsonDict]:
    """Yield pod `a` of a namespace `name` on a node `name`, whose kubelet is at that local port."""
    node = await client.create(NODES, {"metadata": {"name": name}})
    status = {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    }
    patch = PatchBody(media_type=MERGE, body={"status": status})
    await client.patch(NODES, ObjectKey("", name), patch, subresource="status")
    await client.create(NAMESPACES, {"metadata": {"name": name}})
    await client.create(SERVICEACCOUNTS, {"metadata": {"name": "default"}}, namespace=name)
    spec = {
        "nodeName": name,
        "automountServiceAccountToken": False,
        "containers": [{"name": "c", "image": "i"}],
    }
    pod = await client.create(PODS, {"metadata": {"name": "a"}, "spec": spec}, namespace=name)
    try:
        yield pod
    finally:
        await client.delete(PODS, ObjectKey(name, "a"), uid=uid_of(pod), grace_seconds=0)
        await client.delete(NODES, ObjectKey("", name), uid=uid_of(node))
