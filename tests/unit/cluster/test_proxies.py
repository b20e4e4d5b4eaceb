"""Which proxy leads to an API server."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest

from federate.cluster.proxies import is_direct, parse_proxy, proxy_in_environment


def test_a_proxys_user_is_taken_out_of_its_url() -> None:
    """The URL, which messages name, holds no password; the header does."""
    proxy = parse_proxy("http://us%40er:pass%3Aword@proxy.example:3128/path")
    assert proxy is not None
    assert (proxy.url, proxy.user, proxy.password) == (
        "http://proxy.example:3128",
        "us@er",
        "pass:word",
    )
    assert proxy.headers == {"Proxy-Authorization": "Basic dXNAZXI6cGFzczp3b3Jk"}
    assert "pass" not in repr(proxy)


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("http://[::1]:3128", "http://[::1]:3128"),
        ("https://proxy", "https://proxy"),
        ("socks5://proxy", "socks5://proxy"),
        ("socks5h://proxy:1", "socks5h://proxy:1"),
    ],
)
def test_the_kinds_of_proxies(text: str, url: str) -> None:
    """HTTP, HTTPS and SOCKS5 proxies are known; one without a user gets no header."""
    proxy = parse_proxy(text)
    assert proxy is not None
    assert (proxy.url, proxy.headers, proxy.is_socks) == (url, {}, text.startswith("socks"))


@pytest.mark.parametrize("text", ["", "proxy", "ftp://x", "http://", "http://x:port", "http://[x"])
def test_what_is_no_proxy(text: str) -> None:
    """A URL that cannot be used is told from a proxy."""
    assert parse_proxy(text) is None


@pytest.mark.parametrize(
    ("environ", "found"),
    [
        ({}, ""),
        ({"HTTPS_PROXY": "http://a:1"}, "http://a:1"),
        ({"https_proxy": "a:1"}, "http://a:1"),
        ({"http_proxy": "http://a:1"}, ""),
        ({"HTTPS_PROXY": "http://a:1", "no_proxy": "example"}, ""),
    ],
)
def test_the_proxy_of_the_environment(environ: dict[str, str], found: str) -> None:
    """It is the one for the server's scheme, where the server is no exception."""
    assert proxy_in_environment("https://api.example:6443", environ) == found


@pytest.mark.parametrize(
    ("server", "exceptions", "direct"),
    [
        ("https://127.0.0.1:6443", "", True),
        ("https://[::1]:6443", "", True),
        ("https://localhost", "", True),
        ("https://10.1.2.3", "", False),
        ("https://10.1.2.3", "10.0.0.0/8", True),
        ("https://10.1.2.3", "10.1.2.3", True),
        ("https://10.1.2.3:6443", "10.1.2.3:6443", True),
        ("https://10.1.2.3:6443", "10.1.2.3:443", False),
        ("https://[fd00::1]", "fd00::/8", True),
        ("https://api.example", "*", True),
        ("https://api.example", "example", True),
        ("https://api.example", "EXAMPLE, other", True),
        ("https://api.example", ".example", True),
        ("https://api.example", "*.example", True),
        ("https://example", ".example", False),
        ("https://notexample", "example", False),
        ("https://api.example", "api.example:443", True),
        ("https://api.example", "api.example:6443", False),
        ("https://api.example", " , ", False),
    ],
)
def test_no_proxy(server: str, exceptions: str, direct: bool) -> None:
    """NO_PROXY names hosts, domains, addresses and ranges; this machine needs no proxy at all."""
    assert is_direct(urlsplit(server), exceptions) is direct
