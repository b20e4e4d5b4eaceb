"""A real kube-apiserver talks to the kubelet API of a virtual node; the target is played.

The node proxy is not among it: API servers refuse it to nodes on loopback.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

import orjson
import pytest

from e2e.testbed.local import LocalCluster
from federate.cluster.client import ClusterClient
from federate.cluster.connect import connect
from federate.cluster.upstream import UpstreamCall
from federate.errors import Unreachable
from federate.kubelet.ports import Caller, Located, NodeAccess
from federate.kubelet.server import KubeletServer, listen
from federate.model.objects import ObjectKey
from tests.support.credentials import issue
from tests.support.kubeletstage import (
    PlayedAccess,
    PlayedPages,
    PlayedPods,
    PlayedTarget,
    saying,
    switching,
    until,
)
from tests.support.playednode import pod_on_a_node

pytestmark = pytest.mark.integration

SPDY = (("Upgrade", "SPDY/3.1"), ("X-Stream-Protocol-Version", "v4.channel.k8s.io"))


class Everything(PlayedAccess):
    """Lets the API server do all, and remembers what it asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.callers: list[Caller] = []
        self.wanted: list[NodeAccess] = []

    async def may(self, caller: Caller, alternatives: Sequence[NodeAccess]) -> bool:
        self.callers.append(caller)
        self.wanted += alternatives
        return True


@dataclass
class Stage:
    """A pod on a node that `KubeletServer` answers for."""

    client: ClusterClient
    server: KubeletServer
    target: PlayedTarget
    access: Everything
    name: str

    def call(self, path: str, *query: tuple[str, str], upgrades: bool = False) -> UpstreamCall:
        return UpstreamCall(
            method="POST" if upgrades else "GET",
            path=path,
            query=query,
            headers=SPDY if upgrades else (),
        )

    def pod(self, subresource: str) -> str:
        return f"/api/v1/namespaces/{self.name}/pods/a/{subresource}"

    async def get(self, path: str, *query: tuple[str, str]) -> tuple[int, bytes]:
        async with self.client.stream(self.call(path, *query)) as reply:
            assert reply.body is not None
            return reply.status, b"".join([part async for part in reply.body])

    async def message(self, path: str) -> tuple[int, str]:
        status, body = await self.get(path)
        return status, str(orjson.loads(body)["message"])


def tls_of(cluster: LocalCluster) -> ssl.SSLContext:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(cluster.ca_certificate))
    with TemporaryDirectory() as folder:
        pair, file = issue("kubelet"), Path(folder, "kubelet.pem")
        file.write_bytes(pair.pem + pair.key_pem)
        tls.load_cert_chain(file)
    tls.verify_mode = ssl.CERT_OPTIONAL
    return tls


@asynccontextmanager
async def staged(cluster: LocalCluster) -> AsyncIterator[Stage]:
    name = f"kubelet-{uuid4().hex[:8]}"
    async with AsyncExitStack() as held:
        client = await connect(cluster.kubeconfig, name=cluster.name)
        held.push_async_callback(client.aclose)
        listener = listen("127.0.0.1", 0)
        pod = await held.enter_async_context(
            pod_on_a_node(client, name, port=listener.getsockname()[1])
        )
        mirror = ObjectKey("there", "mirror-of-a")
        located = Located(
            hub_pod=pod,
            mirror=mirror,
            mirror_uid="m",
            mirror_pod={"metadata": {"uid": "m"}, "spec": pod["spec"]},
        )
        target, access, tls = PlayedTarget(), Everything(), tls_of(cluster)
        server = KubeletServer(
            access=access,
            pods=PlayedPods(located),
            open_call=target.open_call,
            pages=PlayedPages(),
            tls=lambda: tls,
        )
        task = asyncio.create_task(server.serve(listener))
        try:
            yield Stage(client, server, target, access, name)
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def test_c60_an_api_server_is_answered(light_target: LocalCluster) -> None:
    """Logs, and messages as a person sees them, over connections that it re-uses."""
    async with staged(light_target) as stage:
        log = stage.pod("log")
        assert await stage.get(log, ("tailLines", "3"), ("timestamps", "true")) == (
            200,
            b"one\ntwo\n",
        )
        assert stage.target.calls[-1].path == "/api/v1/namespaces/there/pods/mirror-of-a/log"
        assert dict(stage.target.calls[-1].query) == {
            "container": "c",
            "tailLines": "3",
            "timestamps": "true",
        }
        for _turn in range(20):
            assert (await stage.get(log))[0] == 200
        print(f"21 requests over {stage.server.admission.connections} connections")
        assert stage.server.admission.connections < 10

        waiting = b'{"kind":"Status","message":"container \\"c\\" in pod \\"mirror-of-a\\" waits"}'
        stage.target.reply = saying(waiting, status=400)
        assert await stage.message(log) == (400, 'container "c" in pod "a" waits')
        stage.target.fails = Unreachable("10.0.0.1 does not answer")
        status, message = await stage.message(log)
        assert status == 502
        assert "the target cluster does not answer" in message
        assert "10.0.0.1" not in message
        assert {caller.user for caller in stage.access.callers} != {""}
        assert NodeAccess("get", "proxy") in stage.access.wanted


async def test_c60_an_api_server_hands_streams_over(light_target: LocalCluster) -> None:
    """Exec and port-forward carry bytes both ways, and what cannot be opened is said so."""
    async with staged(light_target) as stage:
        stage.target.reply = switching(("X-Stream-Protocol-Version", "v4.channel.k8s.io"))
        query = (("container", "c"), ("stdout", "true"), ("command", "a b"), ("command", "%&?"))
        call = stage.call(stage.pod("exec"), *query, upgrades=True)
        async with stage.client.stream(call) as reply:
            assert reply.status == 101
            assert reply.upgraded is not None
            data = bytes(range(256)) * 4000
            sending = asyncio.create_task(reply.upgraded.write(data))
            came = bytearray()
            while len(came) < len(data):
                came += await reply.upgraded.read(262_144)
            await sending
            assert bytes(came) == data
        await until(lambda: stage.target.open == 0)
        asked = stage.target.calls[-1]
        assert [value for name, value in asked.query if name == "command"] == ["a b", "%&?"]
        assert NodeAccess("create", "proxy") in stage.access.wanted
        call = stage.call(stage.pod("portforward"), upgrades=True)
        async with stage.client.stream(call) as reply:
            assert reply.status == 101
        await until(lambda: stage.target.open == 0)

        stage.target.fails = Unreachable("away")
        call = stage.call(stage.pod("attach"), ("stdout", "true"), upgrades=True)
        async with stage.client.stream(call) as reply:
            assert reply.status == 502
