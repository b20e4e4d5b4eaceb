"""The two API servers of the contract suite, behind one door."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Protocol

from federate.cluster.connect import connect
from federate.cluster.port import ClusterPort
from federate.model.objects import ObjectKey
from federate.model.resources import NAMESPACES, SERVICEACCOUNTS, Resource
from tests.support.fakecluster import FakeCluster

_serial = itertools.count()


class Server(Protocol):
    """An API server under test."""

    def open(self) -> AbstractAsyncContextManager[tuple[ClusterPort, str]]:
        """Connect, and give a fresh namespace that pods can be created in."""

    async def bind(self, client: ClusterPort, key: ObjectKey, node: str) -> None:
        """Bind a pod to a node as a scheduler does."""


class FakeServer:
    """The in-memory API server."""

    def __init__(self) -> None:
        self._cluster: FakeCluster

    @asynccontextmanager
    async def open(self) -> AsyncIterator[tuple[ClusterPort, str]]:
        self._cluster = FakeCluster("contract", asyncio.get_running_loop().time)
        self._cluster.add_namespace("fresh")
        client = self._cluster.client()
        yield client, "fresh"
        await client.aclose()

    async def bind(self, client: ClusterPort, key: ObjectKey, node: str) -> None:
        self._cluster.schedule(key, node)


class RealServer:
    """A kube-apiserver without any controllers, through federate's own client."""

    def __init__(self, kubeconfig: Path) -> None:
        self._kubeconfig = kubeconfig

    @asynccontextmanager
    async def open(self) -> AsyncIterator[tuple[ClusterPort, str]]:
        client = await connect(self._kubeconfig, name="contract")
        namespace = f"contract-{os.getpid()}-{next(_serial)}"
        try:
            await client.create(NAMESPACES, {"metadata": {"name": namespace}})
            account = {"metadata": {"name": "default"}}
            await client.create(SERVICEACCOUNTS, account, namespace=namespace)
            yield client, namespace
        finally:
            await client.aclose()

    async def bind(self, client: ClusterPort, key: ObjectKey, node: str) -> None:
        binding = Resource(
            group_version="v1", plural=f"pods/{key.name}/binding", kind="Binding", namespaced=True
        )
        target = {"kind": "Node", "name": node}
        body = {"metadata": {"name": key.name}, "target": target}
        await client.create(binding, body, namespace=key.namespace)
