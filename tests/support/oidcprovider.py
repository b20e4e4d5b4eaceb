"""An OpenID provider over TLS: discovery, keys, and a token endpoint that renews."""

from __future__ import annotations

import base64
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from aiohttp import web
from aiohttp.test_utils import TestServer
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from tests.support.credentials import Authority

CLIENT = "federate"


def _b64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def _number(value: int) -> str:
    return _b64(value.to_bytes((value.bit_length() + 7) // 8, "big"))


@dataclass
class OidcProvider:
    """Signs tokens; notes what it was asked for."""

    url: str = ""
    authority_pem: bytes = b""
    """Who vouches for its certificate."""
    refresh_token: str = "refresh-1"
    rotates: bool = False
    """Give another refresh token each time, and take the last only."""
    seconds: float = 3600.0
    methods: list[str] = field(default_factory=lambda: ["client_secret_basic"])
    endpoint: str = ""
    """Where to renew tokens, instead of here."""
    answer: dict[str, Any] | None = None
    """What the token endpoint answers instead."""
    asked: list[dict[str, str]] = field(default_factory=list)
    key: rsa.RSAPrivateKey = field(
        default_factory=lambda: rsa.generate_private_key(public_exponent=65537, key_size=2048)
    )

    def sign(self, user: str, **claims: Any) -> str:
        """Return a token for a user."""
        now = int(time.time())
        body = {
            "iss": self.url,
            "aud": CLIENT,
            "sub": user,
            "iat": now,
            "exp": now + int(self.seconds),
            "jti": _b64(str(time.monotonic_ns()).encode()),
            **claims,
        }
        head = {"alg": "RS256", "kid": "one", "typ": "JWT"}
        signed = f"{_b64(orjson.dumps(head))}.{_b64(orjson.dumps(body))}"
        signature = self.key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{signed}.{_b64(signature)}"

    async def discover(self, _request: web.Request) -> web.Response:
        return web.json_response(
            {
                "issuer": self.url,
                "authorization_endpoint": f"{self.url}/authorize",
                "token_endpoint": self.endpoint or f"{self.url}/token",
                "jwks_uri": f"{self.url}/keys",
                "response_types_supported": ["id_token"],
                "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": ["RS256"],
                "token_endpoint_auth_methods_supported": self.methods,
            }
        )

    async def keys(self, _request: web.Request) -> web.Response:
        numbers = self.key.public_key().public_numbers()
        key = {"kty": "RSA", "use": "sig", "alg": "RS256", "kid": "one"}
        key |= {"n": _number(numbers.n), "e": _number(numbers.e)}
        return web.json_response({"keys": [key]})

    async def renew(self, request: web.Request) -> web.Response:
        form = {key: str(value) for key, value in (await request.post()).items()}
        self.asked.append({**form, "authorization": request.headers.get("Authorization", "")})
        if self.answer is not None:
            return web.json_response(self.answer, status=400)
        if form.get("refresh_token") != self.refresh_token:
            return web.json_response({"error": "invalid_grant"}, status=400)
        answer = {"access_token": "unused", "token_type": "Bearer", "id_token": self.sign("jane")}
        if self.rotates:
            self.refresh_token += "1"
            answer["refresh_token"] = self.refresh_token
        return web.json_response(answer)


@asynccontextmanager
async def provider_of(
    authority: Authority, folder: Path, provider: OidcProvider
) -> AsyncIterator[OidcProvider]:
    """Serve it on a free port of this machine."""
    app = web.Application()
    app.router.add_get("/.well-known/openid-configuration", provider.discover)
    app.router.add_get("/keys", provider.keys)
    app.router.add_post("/token", provider.renew)
    server = TestServer(app, scheme="https")
    await server.start_server(ssl=authority.server_tls(folder, "provider"), shutdown_timeout=0.1)
    provider.authority_pem = authority.ca.pem
    provider.url = f"https://127.0.0.1:{server.port}"
    try:
        yield provider
    finally:
        await server.close()
