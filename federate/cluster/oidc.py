"""Keep the token of an OpenID provider fresh (`user.auth-provider` of kind `oidc`).

Below `connect`. kubectl writes a renewed token back into the kubeconfig; federate holds it in
memory, because that file is often mounted read-only and belongs to somebody. Nothing a provider
answers is ever repeated.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from federate.cluster.expiry import expiry_of_token
from federate.cluster.kubeconfig import Entry, TlsMaterial, build_tls, read_material
from federate.cluster.proxies import parse_proxy, proxy_in_environment

ANSWER_SECONDS = 20.0
"""Both questions together: what the endpoints are, and the token."""

EARLY_SECONDS = 10.0
"""So long before its end a token is renewed, as kubectl does."""

_WHAT = "user.auth-provider"


@dataclass(slots=True, kw_only=True, eq=False)
class OidcTokens:
    """The tokens of one user; begins with those in the kubeconfig."""

    entry: Entry
    id_token: str = field(default="", repr=False)
    refresh_token: str = field(default="", repr=False)

    @property
    def _config(self) -> Mapping[str, Any]:
        provider = self.entry.user["auth-provider"]
        config = provider.get("config") if isinstance(provider, dict) else None
        return config if isinstance(config, dict) else {}

    def __post_init__(self) -> None:
        """Take the tokens that the kubeconfig holds."""
        self.id_token = str(self._config.get("id-token") or "")
        self.refresh_token = str(self._config.get("refresh-token") or "")

    async def token(self, *, now: float, force: bool, environ: Mapping[str, str]) -> str:
        """Return the id token, renewed where it is over or `force` is set.

        Raises:
            ConfigError: there is none, and none to be had.
        """
        expiry = expiry_of_token(self.id_token, what="", is_renewed=True)
        is_over = expiry is not None and now >= expiry.at - EARLY_SECONDS
        if self.id_token and not is_over and not force:
            return self.id_token
        if self.refresh_token:
            await self._renew(environ)
        elif not self.id_token or is_over:
            raise self.entry.wrong(
                _WHAT,
                "the id-token is missing or over, and there is no refresh-token: log in again",
            )
        return self.id_token

    async def _renew(self, environ: Mapping[str, str]) -> None:
        issuer = str(self._config.get("idp-issuer-url") or "").rstrip("/")
        if not issuer.startswith("https://") or not self._config.get("client-id"):
            raise self.entry.wrong(_WHAT, "expected client-id and an https:// idp-issuer-url")
        tls = await asyncio.to_thread(self._build_tls)
        try:
            async with asyncio.timeout(ANSWER_SECONDS), _session(tls) as session:
                answer = await self._exchange(session, issuer, environ)
        except (aiohttp.ClientError, OSError, ValueError, TypeError, AttributeError):
            raise self.entry.wrong(_WHAT, "the provider did not answer as expected") from None
        renewed = answer.get("id_token")
        if not isinstance(renewed, str) or not renewed:
            raise self.entry.wrong(_WHAT, "the provider refused to renew the token: log in again")
        self.id_token = renewed
        self.refresh_token = str(answer.get("refresh_token") or self.refresh_token)

    async def _exchange(
        self, session: aiohttp.ClientSession, issuer: str, environ: Mapping[str, str]
    ) -> Mapping[str, Any]:
        where = f"{issuer}/.well-known/openid-configuration"
        async with session.get(
            where, allow_redirects=False, **_through(where, environ)
        ) as response:
            known = await response.json(content_type=None)
        endpoint = str(known["token_endpoint"]) if "token_endpoint" in known else ""
        if not endpoint.startswith("https://"):
            raise self.entry.wrong(_WHAT, "the provider names no https:// token_endpoint")
        form = {"grant_type": "refresh_token", "refresh_token": self.refresh_token}
        client, secret = (
            str(self._config["client-id"]),
            str(self._config.get("client-secret") or ""),
        )
        headers = {"Accept": "application/json"}
        ways = known.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
        if secret and "client_secret_basic" in ways:
            both = base64.b64encode(f"{client}:{secret}".encode()).decode()
            headers["Authorization"] = f"Basic {both}"
        else:
            form |= {"client_id": client} | ({"client_secret": secret} if secret else {})
        async with session.post(
            endpoint,
            data=form,
            headers=headers,
            allow_redirects=False,
            **_through(endpoint, environ),
        ) as response:
            answer = await response.json(content_type=None)
            return answer if response.ok and isinstance(answer, dict) else {}

    def _build_tls(self) -> ssl.SSLContext:
        authority = read_material(
            self.entry, self._config, "idp-certificate-authority", is_public=True
        )
        return build_tls(TlsMaterial(authority=authority), where=f"kubeconfig {self.entry.path}")


def _session(tls: ssl.SSLContext) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=tls),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=ANSWER_SECONDS),
    )


def _through(url: str, environ: Mapping[str, str]) -> dict[str, Any]:
    """Say how a request reaches the provider; a SOCKS proxy of the environment is not used."""
    proxy = parse_proxy(proxy_in_environment(url, environ))
    if proxy is None or proxy.is_socks:
        return {}
    return {"proxy": proxy.url, "proxy_headers": proxy.headers}
