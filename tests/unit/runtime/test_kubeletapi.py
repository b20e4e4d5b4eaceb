"""The kubelet API of a virtual node: it serves, says how it stands, and tries again (C60, C62)."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path

import pytest

from federate.cluster.store import Store
from federate.errors import Unreachable
from federate.kubelet.ports import Reply, UpstreamCall
from federate.kubelet.rules import CertificateMode, ServingRules
from federate.model.reasons import NodeReason
from federate.node.render import KubeletWord
from federate.runtime.hosted import HostedPods
from federate.runtime.kubeletapi import KubeletApi, KubeletPorts, places_to_listen
from federate.runtime.settings import KubeletSettings
from federate.runtime.telemetry import Metrics
from tests.support.credentials import Authority
from tests.support.fakecluster import FakeCluster
from tests.support.kubelethub import KubeletHub
from tests.support.scene import SCOPE

LOOPBACK = "127.0.0.1"
SELF_SIGNED = ServingRules(mode=CertificateMode.SELF_SIGNED)
ENOUGH_SECONDS = 30.0


def no_stream(call: UpstreamCall) -> AbstractAsyncContextManager[Reply]:
    raise Unreachable(f"no target here for {call.path}")


class Stage:
    """A kubelet API on the loopback, between two clusters in memory."""

    def __init__(self, settings: KubeletSettings, *, authority: Authority | None = None) -> None:
        clock = asyncio.get_running_loop().time
        self.hub = KubeletHub(FakeCluster("hub", clock))
        if authority is not None:
            self.hub.publish(authority.ca.pem)
        self.metrics = Metrics(version="0")
        self.told = asyncio.Event()
        self.api = KubeletApi(
            settings,
            KubeletPorts(
                hub=self.hub,
                target=FakeCluster("target", clock).client(),
                open_call=no_stream,
                pods=HostedPods(hub_pods=Store(), mirror_by_uid=lambda _uid: None),
                namespaces=lambda: ("",),
                counts=self.metrics.kubelet_counts("edge"),
                tell=self._tell,
            ),
            scope=SCOPE,
            node_address=LOOPBACK,
        )

    def _tell(self) -> None:
        self.told.set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[KubeletApi]:
        task = asyncio.create_task(self.api.run())
        try:
            yield self.api
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def wait(self, is_wanted: Callable[[KubeletWord], bool]) -> KubeletWord:
        async with asyncio.timeout(ENOUGH_SECONDS):
            while not is_wanted(self.api.word()):
                self.told.clear()
                await self.told.wait()
        return self.api.word()


async def status_of(port: int, path: str) -> int:
    """Ask without a certificate or a token."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    reader, writer = await asyncio.open_connection(LOOPBACK, port, ssl=context)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        return int((await reader.readline()).split()[1])
    finally:
        writer.close()
        with suppress(OSError, ssl.SSLError):
            await writer.wait_closed()


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


async def test_it_serves_and_says_where(authority: Authority) -> None:
    """A free port is named once it is answered on, and strangers get 401 there."""
    stage = Stage(KubeletSettings(serving=SELF_SIGNED), authority=authority)
    assert stage.api.word() == KubeletWord(
        port=0,
        is_serving=False,
        reason=NodeReason.KUBELET_STARTING,
        message="the kubelet API is not served yet",
    )
    async with stage.running() as api:
        word = await stage.wait(lambda word: word.is_serving)
        assert word.reason == NodeReason.KUBELET_CERTIFICATE_SELF_SIGNED
        assert "Only a hub on this very host reaches 127.0.0.1" in word.message
        assert await status_of(word.port, "/pods") == 401
        assert api.open_streams == 0
        assert api.certificate_ends_at() is not None
        assert stage.told.is_set()
    counted = stage.metrics.exposition().decode()
    assert 'federate_kubelet_requests_total{kind="pods",node="edge",status="401"} 1.0' in counted


async def test_a_taken_port_is_told_and_tried_again(authority: Authority) -> None:
    """Only logs wait for it: the word says so, until the port is free."""
    with socket.socket() as taken:
        taken.bind((LOOPBACK, 0))
        taken.listen()
        port = taken.getsockname()[1]
        stage = Stage(KubeletSettings(port=port, serving=SELF_SIGNED), authority=authority)
        async with stage.running():
            word = await stage.wait(lambda word: word.reason == NodeReason.KUBELET_PORT_TAKEN)
            assert (word.port, word.is_serving) == (0, False)
            assert f"{LOOPBACK}:{port}" in word.message
            taken.close()
            word = await stage.wait(lambda word: word.is_serving)
            assert word.port == port
            assert await status_of(port, "/pods") == 401


async def test_a_free_port_is_asked_for_again(authority: Authority) -> None:
    """One that begins anew is found where it was."""
    stage = Stage(KubeletSettings(serving=SELF_SIGNED), authority=authority)
    async with stage.running():
        first = await stage.wait(lambda word: word.is_serving)
    async with stage.running():
        assert await status_of_soon(first.port) == 401
    assert stage.api.word().port == first.port


async def status_of_soon(port: int) -> int:
    async with asyncio.timeout(ENOUGH_SECONDS):
        while True:
            try:
                return await status_of(port, "/pods")
            except (OSError, IndexError):
                await asyncio.sleep(0.05)


async def test_an_address_of_somebody_else_is_told(authority: Authority) -> None:
    """Where the user named it; it may become ours, so it is tried again."""
    settings = KubeletSettings(address="192.0.2.10", serving=SELF_SIGNED)
    stage = Stage(settings, authority=authority)
    async with stage.running():
        word = await stage.wait(lambda word: word.reason == NodeReason.KUBELET_FAILED)
        assert "192.0.2.10" in word.message and not word.is_serving


def test_where_to_listen() -> None:
    """The user's word; else the node's address, and where that is none of ours, everywhere."""
    given = KubeletSettings(address="10.0.0.1")
    assert places_to_listen(given, "10.0.0.9") == ("10.0.0.1",)
    assert places_to_listen(KubeletSettings(), "10.0.0.9") == ("10.0.0.9", "0.0.0.0")
    assert places_to_listen(KubeletSettings(), "fd00::9") == ("fd00::9", "::")


async def test_without_the_hubs_client_ca_it_says_so() -> None:
    """Then only tokens prove anything: API servers cannot ask."""
    stage = Stage(KubeletSettings(serving=SELF_SIGNED))
    async with stage.running():
        word = await stage.wait(
            lambda word: word.reason == NodeReason.KUBELET_CLIENT_AUTHORITY_UNKNOWN
        )
        assert not word.is_serving


async def test_files_that_are_missing_are_told(authority: Authority, tmp_path: Path) -> None:
    """The word names what is wrong; a self-signed certificate stands in."""
    rules = ServingRules(
        mode=CertificateMode.FILES,
        certificate_file=tmp_path / "tls.crt",
        key_file=tmp_path / "tls.key",
    )
    stage = Stage(KubeletSettings(serving=rules), authority=authority)
    async with stage.running():
        word = await stage.wait(lambda word: word.reason == NodeReason.KUBELET_CERTIFICATE_UNUSABLE)
        assert "tls.crt" in word.message
