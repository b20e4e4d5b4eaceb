"""Clients of commands that ask once never follow a kubeconfig to another cluster."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from federate.cli.clusters import opened
from federate.cluster import connect
from federate.errors import ConfigError

PATIENCE_SECONDS = 20.0


class Place:
    """An API server that only says its name, and counts who asks."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.asked = 0
        self.server = ""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked += 1
        await reader.readuntil(b"\r\n\r\n")
        body = json.dumps({"name": self.name}).encode()
        head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n"
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()


@asynccontextmanager
async def place(name: str) -> AsyncIterator[Place]:
    found = Place(name)
    server = await asyncio.start_server(found.answer, "127.0.0.1", 0)
    async with server:
        found.server = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield found


def point(kubeconfig: Path, to: Place, *, token: str = "a") -> None:
    content = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
        "clusters": [{"name": "c", "cluster": {"server": to.server}}],
        "users": [{"name": "c", "user": {"token": token}}],
    }
    kubeconfig.write_text(json.dumps(content))


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read the kubeconfig anew for every request."""
    monkeypatch.setattr(connect, "RELOAD_SECONDS", 0.0)
    monkeypatch.setattr(connect, "RENEW_SECONDS", 0.0)


async def test_a_command_does_not_follow_its_kubeconfig_elsewhere(tmp_path: Path) -> None:
    """It ends with what happened, at whatever it waits for; the other cluster is asked nothing."""
    kubeconfig = tmp_path / "k"
    async with place("first") as first, place("second") as second:
        point(kubeconfig, first)
        with pytest.raises(ConfigError, match="leads elsewhere now") as failed:
            async with asyncio.timeout(PATIENCE_SECONDS), opened(kubeconfig, name="hub") as hub:
                assert await hub.raw_get("/version") == {"name": "first"}
                point(kubeconfig, second)
                while True:
                    await hub.raw_get("/version")
        assert str(kubeconfig) in str(failed.value)
        assert second.asked == 0
        current = asyncio.current_task()
        assert current is not None
        assert not current.cancelling()


async def test_two_clusters_may_move_at_once(tmp_path: Path) -> None:
    """One of them is told, and nothing is left of the other's word."""
    hub_file, target_file = tmp_path / "hub", tmp_path / "target"
    async with place("first") as first, place("second") as second:
        for file in (hub_file, target_file):
            point(file, first)
        with pytest.raises(ConfigError, match="leads elsewhere now"):
            async with (
                asyncio.timeout(PATIENCE_SECONDS),
                opened(hub_file, name="hub") as hub,
                opened(target_file, name="edge") as target,
            ):
                for file in (hub_file, target_file):
                    point(file, second)
                while True:
                    await asyncio.gather(hub.raw_get("/version"), target.raw_get("/version"))
        current = asyncio.current_task()
        assert current is not None
        assert not current.cancelling()
        await asyncio.sleep(0)
        assert second.asked == 0


async def test_a_renewed_token_is_followed(tmp_path: Path) -> None:
    """Long commands outlive their credentials."""
    kubeconfig = tmp_path / "k"
    async with place("first") as first:
        point(kubeconfig, first)
        async with opened(kubeconfig, name="hub") as hub:
            await hub.raw_get("/version")
            point(kubeconfig, first, token="b")
            for _ in range(3):
                assert await hub.raw_get("/version") == {"name": "first"}


async def test_who_cancels_a_command_is_not_misunderstood(tmp_path: Path) -> None:
    """Ctrl-C stays what it is."""
    kubeconfig = tmp_path / "k"
    async with place("first") as first:
        point(kubeconfig, first)

        async def work() -> None:
            async with opened(kubeconfig, name="hub"):
                await asyncio.sleep(3600)

        task = asyncio.create_task(work())
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
