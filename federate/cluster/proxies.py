"""Which proxy leads to an API server: the kubeconfig's, else the environment's, as kubectl decides.

Below `connect`. The user and password of a proxy's URL are taken out of it and travel as a header,
so that no message that names the proxy can hold them.
"""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import SplitResult, unquote, urlsplit

SOCKS = ("socks5", "socks5h")
"""Both let the proxy resolve names, as kubectl has it."""

SCHEMES = ("http", "https", *SOCKS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    """A proxy, its URL without who we are there."""

    url: str
    user: str = field(default="", repr=False)
    password: str = field(default="", repr=False)

    @property
    def is_socks(self) -> bool:
        """Tell whether it speaks SOCKS, not HTTP."""
        return urlsplit(self.url).scheme in SOCKS

    @property
    def authorization(self) -> str:
        """The value of Proxy-Authorization, "" where we are nobody there."""
        if not self.user and not self.password:
            return ""
        return "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()

    @property
    def headers(self) -> dict[str, str]:
        """What says to an HTTP proxy who we are."""
        return {"Proxy-Authorization": self.authorization} if self.authorization else {}


def parse_proxy(text: str) -> Proxy | None:
    """Read a proxy's URL; None where it is none that can be used."""
    try:
        url = urlsplit(text)
        port = url.port
    except ValueError:
        return None
    if url.scheme not in SCHEMES or not url.hostname or not text.isascii():
        return None
    host = f"[{url.hostname}]" if ":" in url.hostname else url.hostname
    return Proxy(
        url=f"{url.scheme}://{host}" + (f":{port}" if port is not None else ""),
        user=unquote(url.username or ""),
        password=unquote(url.password or ""),
    )


def proxy_in_environment(server: str, environ: Mapping[str, str]) -> str:
    """Return the URL of the environment's proxy for a server, "" where it is reached directly."""
    url = urlsplit(server)
    name = f"{url.scheme}_proxy"
    found = environ.get(name.upper()) or environ.get(name) or ""
    exceptions = environ.get("NO_PROXY") or environ.get("no_proxy") or ""
    if not found or is_direct(url, exceptions):
        return ""
    return found if "://" in found else f"http://{found}"


def is_direct(server: SplitResult, exceptions: str) -> bool:
    """Tell whether a server needs no proxy: this machine, or one that NO_PROXY covers."""
    host = (server.hostname or "").rstrip(".")
    port = server.port or {"https": 443, "http": 80}.get(server.scheme, 0)
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    words = (word.strip().lower() for word in exceptions.split(","))
    return any(_covers(word, host, port, address) for word in words if word)


_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def _covers(word: str, host: str, port: int, address: _Address | None) -> bool:
    if word == "*":
        return True
    if address is not None:
        try:
            return address in ipaddress.ip_network(word, strict=False)
        except ValueError:
            pass
    name, _, wanted = word.rpartition(":") if word.rpartition(":")[2].isdigit() else (word, "", "")
    if wanted and int(wanted) != port:
        return False
    name = name.strip("[]").removeprefix("*")
    if address is not None:
        return name == host
    return host == name or host.endswith(name if name.startswith(".") else f".{name}")


def _address(host: str) -> _Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
