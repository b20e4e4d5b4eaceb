"""Connections through a SOCKS5 proxy."""

from __future__ import annotations

from pathlib import Path

import pytest

from federate.cluster.connect import connect
from federate.errors import Unreachable
from tests.support.credentials import Authority, embed, kubeconfig, server_of
from tests.support.relays import QUOTED_PASSWORD, USER, Relay, socks_relay


def through(folder: Path, server: str, relay: Relay, authority: Authority, password: str) -> Path:
    return kubeconfig(
        folder,
        server,
        user={"token": "t"},
        **{
            "proxy-url": f"socks5://{USER}:{password}@127.0.0.1:{relay.port}",
            "certificate-authority-data": embed(authority.ca.pem),
        },
    )


@pytest.mark.parametrize("password", [QUOTED_PASSWORD, "wrong"])
async def test_c72_a_socks_proxy_leads_to_the_server(tmp_path: Path, password: str) -> None:
    """The proxy makes the connection, TLS is with the server; one who is refused gets no answer."""
    authority = Authority()
    async with server_of(authority, tmp_path) as server, socks_relay() as relay:
        path = through(tmp_path, server, relay, authority, password)
        client = await connect(path, name="east")
        try:
            if password == "wrong":
                with pytest.raises(Unreachable, match="the SOCKS proxy did not connect"):
                    await client.raw_get("/version")
                assert (relay.tunnels, relay.refused) == (0, 1)
            else:
                assert (await client.raw_get("/version"))["token"] == "Bearer t"
                assert relay.tunnels == 1
        finally:
            await client.aclose()


async def test_a_socks_proxy_that_is_not_there(tmp_path: Path) -> None:
    """It is as unreachable as a server that is not there."""
    authority, relay = Authority(), Relay(port=1)
    path = through(tmp_path, "https://10.0.0.1", relay, authority, QUOTED_PASSWORD)
    client = await connect(path, name="east")
    with pytest.raises(Unreachable):
        await client.raw_get("/version")
    await client.aclose()
