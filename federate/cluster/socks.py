"""Connections through a SOCKS5 proxy, which only this module's library can make.

Below `sessions`, which imports it only where such a proxy is used. The proxy resolves names, as
kubectl has it: an API server's name is often known on its side only.
"""

from __future__ import annotations

import asyncio
import socket
from ssl import SSLContext
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp_socks import ProxyConnector, ProxyType
from python_socks import ProxyConnectionError, ProxyError, ProxyTimeoutError
from python_socks.async_.asyncio import Proxy as SocksProxy

from federate.cluster.proxies import Proxy

SOCKS_PORT = 1080
"""Where a SOCKS proxy listens unless its URL says otherwise."""


class SocksConnector(ProxyConnector):
    """A connector of aiohttp whose failures are aiohttp's own."""

    async def _connect_via_proxy(
        self,
        host: str,
        port: int,
        ssl: SSLContext | None = None,
        timeout: float | None = None,
    ) -> tuple[asyncio.Transport, ResponseHandler]:
        try:
            return await super()._connect_via_proxy(host, port, ssl, timeout)
        except (ProxyConnectionError, ProxyError, ProxyTimeoutError) as error:
            raise aiohttp.ClientConnectionError(
                f"the SOCKS proxy did not connect: {error}"
            ) from error


def socks_connector(proxy: Proxy, **options: Any) -> aiohttp.BaseConnector:
    """Build a connector whose connections all go through the proxy."""
    url = urlsplit(proxy.url)
    return SocksConnector(
        host=url.hostname or "",
        port=url.port or SOCKS_PORT,
        proxy_type=ProxyType.SOCKS5,
        username=proxy.user or None,
        password=proxy.password or None,
        rdns=True,
        **options,
    )


async def socks_connection(proxy: Proxy, host: str, port: int) -> socket.socket:
    """Connect to `host` through the proxy, without an HTTP library.

    Raises:
        OSError: the proxy did not connect.
    """
    url = urlsplit(proxy.url)
    dialer = SocksProxy(
        proxy_type=ProxyType.SOCKS5,
        host=url.hostname or "",
        port=url.port or SOCKS_PORT,
        username=proxy.user or None,
        password=proxy.password or None,
        rdns=True,
    )
    try:
        return await dialer.connect(dest_host=host, dest_port=port)
    except (ProxyConnectionError, ProxyError, ProxyTimeoutError) as error:
        raise ConnectionError(f"the SOCKS proxy did not connect: {error}") from error
