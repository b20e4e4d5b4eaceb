"""Certificates, kubeconfigs and plugins as clusters have them; a server that asks who calls."""

from __future__ import annotations

import base64
import datetime
import ipaddress
import json
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

ENDS = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)
BEGINS = ENDS - datetime.timedelta(days=2)


@dataclass
class Issued:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        return self.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )


def issue(
    name: str, by: Issued | None = None, *, life: tuple[datetime.datetime, ...] = (BEGINS, ENDS)
) -> Issued:
    """Issue a certificate, as plain as clusters have them: no key identifiers."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    names = [x509.DNSName(name), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    if name == "elsewhere":
        names = names[:1]
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(by.certificate.subject if by else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(life[0])
        .not_valid_after(life[1])
        .add_extension(x509.BasicConstraints(ca=by is None, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
    )
    return Issued(builder.sign(by.key if by else key, hashes.SHA256()), key)


@dataclass
class Authority:
    ca: Issued = field(default_factory=lambda: issue("ca"))

    def server_tls(self, folder: Path, name: str) -> ssl.SSLContext:
        pair = issue(name, self.ca)
        file = folder / f"{name}.pem"
        file.write_bytes(pair.pem + pair.key_pem)
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=self.ca.pem.decode())
        tls.load_cert_chain(file)
        tls.verify_mode = ssl.CERT_OPTIONAL
        return tls


@asynccontextmanager
async def server_of(
    authority: Authority, folder: Path, *, name: str = "kubernetes", good: str = ""
) -> AsyncIterator[str]:
    """Echo who calls: the certificate's name and the Authorization header.

    With `good`, any other token is refused.
    """

    async def echo(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        peer = request.transport.get_extra_info("peercert") or {}
        subject = {k: v for part in peer.get("subject", ()) for k, v in part}
        token = request.headers.get("Authorization", "")
        if good and token != good:
            return web.json_response({"kind": "Status", "message": "who?"}, status=401)
        return web.json_response({"name": subject.get("commonName", ""), "token": token})

    app = web.Application()
    app.router.add_get("/version", echo)
    server = TestServer(app, scheme="https")
    tls = authority.server_tls(folder, name)
    await server.start_server(ssl=tls, shutdown_timeout=0.1)
    try:
        yield f"https://127.0.0.1:{server.port}"
    finally:
        await server.close()


def embed(content: bytes) -> str:
    return base64.b64encode(content).decode()


def kubeconfig(
    folder: Path, server: str, *, user: dict[str, Any] | None = None, **cluster: Any
) -> Path:
    users = [] if user is None else [{"name": "u", "user": user}]
    context = {"cluster": "c"} if user is None else {"cluster": "c", "user": "u"}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
        "users": users,
        "contexts": [{"name": "x", "context": context}],
        "current-context": "x",
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(content))
    return path


VERSION = "client.authentication.k8s.io/v1"


def exec_credential(**status: Any) -> str:
    """What a plugin prints."""
    return json.dumps({"apiVersion": VERSION, "kind": "ExecCredential", "status": status})


def plugin_of(folder: Path, *lines: str, **settings: Any) -> dict[str, Any]:
    """A user whose plugin is that Python program."""
    script = folder / "plugin.py"
    script.write_text("\n".join(lines) + "\n")
    command = {"apiVersion": VERSION, "command": sys.executable, "args": [str(script)]}
    return {"exec": {**command, **settings}}


def plugin(folder: Path, status: dict[str, Any], *, code: int = 0) -> dict[str, Any]:
    """A credential plugin that counts its calls in a file."""
    return plugin_of(
        folder,
        f"open({str(folder / 'calls')!r}, 'a').write('x')",
        f"print({exec_credential(**status)!r})",
        f"raise SystemExit({code})",
    )


def jwt(**claims: Any) -> str:
    """A token whose claims can be read; nobody signed it."""
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"e30.{body}.c2ln"
