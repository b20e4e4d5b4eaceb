"""The way to an API server, walked on loopback: where it breaks, and what is learnt on it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from federate.check.connection import Leg, WayFacts, clock_offset
from federate.check.legs import walk
from federate.cluster.connect import connect
from federate.cluster.sessions import Access
from tests.support.credentials import ENDS, Authority, embed, issue, kubeconfig, server_of


@pytest.fixture
def authority() -> Authority:
    return Authority()


async def walk_by(
    folder: Path, server: str, *, user: dict[str, Any] | None = None, cluster: dict[str, Any]
) -> WayFacts:
    file = kubeconfig(folder, server, user=user, **cluster)
    client = await connect(file, name="edge", environ={})
    try:
        return await walk(await client.access(), where=f"kubeconfig {file}")
    finally:
        await client.aclose()


@asynccontextmanager
async def talker(said: bytes | None) -> AsyncIterator[str]:
    """Take connections; say something, or (None) hang up."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        if said is not None:
            writer.write(said)
            await writer.drain()
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_a_whole_way_tells_clock_and_certificates(
    authority: Authority, tmp_path: Path
) -> None:
    """Any answer will do; both certificates tell their end."""
    mine = issue("me", authority.ca)
    user = {
        "client-certificate-data": embed(mine.pem),
        "client-key-data": embed(mine.key_pem),
    }
    ca = embed(authority.ca.pem)
    async with server_of(authority, tmp_path) as server:
        way = await walk_by(tmp_path, server, user=user, cluster={"certificate-authority-data": ca})
    assert way.failed is None, way.error
    assert way.is_encrypted
    assert way.is_verified
    for ends in (way.server_certificate, way.credential):
        assert ends is not None
        assert abs(ends.at - ENDS.timestamp()) < 2
    offset = clock_offset(way)
    assert offset is not None
    assert abs(offset) < timedelta(seconds=5)


async def test_an_authority_that_did_not_sign_breaks_tls(
    authority: Authority, tmp_path: Path
) -> None:
    """And what OpenSSL says is passed on."""
    other = embed(Authority().ca.pem)
    async with server_of(authority, tmp_path) as server:
        way = await walk_by(tmp_path, server, cluster={"certificate-authority-data": other})
    assert way.failed is Leg.TLS
    assert "certificate" in way.error


async def test_a_name_that_is_not_in_the_certificate_breaks_tls(
    authority: Authority, tmp_path: Path
) -> None:
    """Unless tls-server-name names one that is."""
    ca = embed(authority.ca.pem)
    async with server_of(authority, tmp_path, name="elsewhere") as server:
        way = await walk_by(tmp_path, server, cluster={"certificate-authority-data": ca})
        assert way.failed is Leg.TLS
        assert "mismatch" in way.error
        named = {"certificate-authority-data": ca, "tls-server-name": "elsewhere"}
        assert (await walk_by(tmp_path, server, cluster=named)).failed is None


async def test_an_unverified_way_says_so(authority: Authority, tmp_path: Path) -> None:
    async with server_of(authority, tmp_path) as server:
        way = await walk_by(tmp_path, server, cluster={"insecure-skip-tls-verify": True})
    assert way.failed is None
    assert not way.is_verified


async def test_nobody_listens() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        way = await walk(Access(server=f"https://127.0.0.1:{port}"), where="x")
    assert (way.failed, way.error) == (Leg.TCP, "connection refused")


async def test_a_name_without_address() -> None:
    way = await walk(Access(server="https://no-such-host.invalid"), where="x")
    assert way.failed is Leg.DNS
    assert way.error


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (None, "the connection was cut"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "that was no HTTP"),
        (b"x" * 70_000, ""),
    ],
)
async def test_something_else_listens(said: bytes | None, error: str) -> None:
    """It is told apart from an API server, whatever it says."""
    async with talker(said) as server:
        way = await walk(Access(server=server), where="x")
    assert way.failed is Leg.HTTP
    assert error in way.error


async def test_an_answer_without_a_date_leaves_the_clock_unknown() -> None:
    for head in (b"HTTP/1.1 401 Unauthorized\r\n\r\n", b"HTTP/1.1 200 OK\r\nDate: soon\r\n\r\n"):
        async with talker(head) as server:
            way = await walk(Access(server=server), where="x")
        assert way.failed is None
        assert way.server_time is None
        assert not way.is_encrypted


async def test_a_date_is_the_servers_clock() -> None:
    head = b"HTTP/1.1 200 OK\r\ndate: Mon, 30 Nov 2026 12:00:00 GMT\r\n\r\n"
    async with talker(head) as server:
        way = await walk(Access(server=server), where="x")
    assert way.server_time == datetime(2026, 11, 30, 12, tzinfo=UTC)


async def test_a_server_that_hangs_is_given_up(authority: Authority, tmp_path: Path) -> None:
    """It takes the connection and says nothing: in the handshake, or after the question."""
    with socket.create_server(("127.0.0.1", 0)) as held:
        place = f"127.0.0.1:{held.getsockname()[1]}"
        file = kubeconfig(tmp_path, f"https://{place}")
        client = await connect(file, name="edge", environ={})
        encrypted = await walk(await client.access(), where="x", leg_seconds=0.3)
        await client.aclose()
        plain = await walk(Access(server=f"http://{place}"), where="x", leg_seconds=0.3)
    assert (encrypted.failed, plain.failed) == (Leg.TLS, Leg.HTTP)
    assert encrypted.error == plain.error == "no answer within 0.3 s"


async def test_a_proxy_is_where_the_way_ends(tmp_path: Path) -> None:
    """What is behind it is asked through it later."""
    async with talker(b"") as proxy:
        way = await walk_by(tmp_path, "https://10.255.255.1:6443", cluster={"proxy-url": proxy})
    assert way.failed is None
    assert way.proxy == proxy.removeprefix("http://")
    assert way.server_time is None
