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
from federate.model.resources import NAMESPACES, SERVICEACCOUNTS
from tests.support.fakecluster import FakeCluster

_serial = itertools.count()


class Server(Protocol):
    """An API server under test."""

    def open(self) -> AbstractAsyncContextManager[tuple[ClusterPort, str]]:
        """Connect, and give a fresh namespace that pods can be created in."""


class FakeServer:
    """The in-memory API server."""

    @asynccontextmanager
    async def open(self) -> AsyncIterator[tuple[ClusterPort, str]]:
        cluster = FakeCluster("contract", asyncio.get_running_loop().time)
        cluster.add_namespace("fresh")
        client = cluster.client()
        yield client, "fresh"
        await client.aclose()


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
