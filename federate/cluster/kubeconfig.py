"""Read one context of a kubeconfig file, and make TLS settings of it.

Below `connect`. Key material is held in memory; the private key touches the disk only for the
moment OpenSSL reads it, in a folder of our own. Messages name the file, the context and the key
that is wrong, never a value.
"""

from __future__ import annotations

import base64
import binascii
import os
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from federate.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One context with what it points to, as written."""

    path: Path
    context: str
    cluster: Mapping[str, Any] = field(repr=False)
    user: Mapping[str, Any] = field(repr=False)

    def wrong(self, key: str, expected: str) -> ConfigError:
        """Say that `key` is not as expected."""
        return ConfigError(f"kubeconfig {self.path}, context {self.context!r}: {key}: {expected}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsMaterial:
    """What a TLS context is made of. Equal material gives an equivalent context."""

    authority: bytes | None = field(default=None, repr=False)
    certificate: bytes | None = field(default=None, repr=False)
    key: bytes | None = field(default=None, repr=False)
    verify: bool = True


def read_entry(path: Path, context: str | None) -> Entry:
    """Read a context, the current one where none is named.

    Raises:
        ConfigError: the file or the context is unusable.
    """
    content = _read_yaml(path)
    name = context or content.get("current-context")
    if not name:
        raise ConfigError(
            f"kubeconfig {path}: no current-context; name a context, "
            f"or run `kubectl config use-context` on that file"
        )
    chosen = _named(content, path, "contexts", "context", str(name))
    cluster = _named(content, path, "clusters", "cluster", str(chosen.get("cluster") or ""))
    user_name = str(chosen.get("user") or "")
    user = _named(content, path, "users", "user", user_name) if user_name else {}
    entry = Entry(path=path, context=str(name), cluster=cluster, user=user)
    server = cluster.get("server")
    if not isinstance(server, str) or not server.startswith(("https://", "http://")):
        raise entry.wrong("server", "expected an https:// address")
    return entry


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        text = path.read_bytes()
    except FileNotFoundError as error:
        raise ConfigError(
            f"kubeconfig {path}: no such file; give the path of a kubeconfig file"
        ) from error
    except OSError as error:
        raise ConfigError(f"kubeconfig {path}: cannot be read: {error.strerror}") from error
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" (line {mark.line + 1})" if mark is not None else ""
        # The parser's own message quotes the file, which holds secrets: it is not chained.
        raise ConfigError(f"kubeconfig {path}: not YAML{where}") from None
    if not isinstance(content, dict):
        raise ConfigError(f"kubeconfig {path}: expected a mapping with clusters, users, contexts")
    return content


def _named(
    content: Mapping[str, Any], path: Path, listed: str, inner: str, name: str
) -> Mapping[str, Any]:
    entries = content.get(listed) or ()
    known = [e for e in entries if isinstance(e, dict)] if isinstance(entries, list) else []
    for entry in known:
        if entry.get("name") == name and isinstance(entry.get(inner), dict):
            found: dict[str, Any] = entry[inner]
            return found
    names = ", ".join(sorted(str(e.get("name")) for e in known)) or "none"
    raise ConfigError(f"kubeconfig {path}: no {inner} named {name!r}; {listed} there: {names}")


def read_tls(entry: Entry) -> TlsMaterial:
    """Collect the certificates of an entry, embedded or in files beside it.

    Raises:
        ConfigError: a file is missing or an embedded value is no base64.
    """
    certificate = _material(entry, entry.user, "client-certificate")
    key = _material(entry, entry.user, "client-key")
    if (certificate is None) != (key is None):
        raise entry.wrong("client-certificate", "expected both a client certificate and its key")
    return TlsMaterial(
        authority=_material(entry, entry.cluster, "certificate-authority"),
        certificate=certificate,
        key=key,
        verify=not entry.cluster.get("insecure-skip-tls-verify"),
    )


def _material(entry: Entry, section: Mapping[str, Any], key: str) -> bytes | None:
    if embedded := section.get(f"{key}-data"):
        try:
            return base64.b64decode("".join(str(embedded).split()), validate=True)
        except (binascii.Error, ValueError):
            raise entry.wrong(f"{key}-data", "expected base64 of a PEM file") from None
    if not (named := section.get(key)):
        return None
    file = entry.path.parent / str(named)
    try:
        return file.read_bytes()
    except OSError as error:
        raise entry.wrong(key, f"cannot read {file}: {error.strerror}") from error


def build_tls(material: TlsMaterial, *, where: str) -> ssl.SSLContext:
    """Build the TLS context; `where` says in an error whose it is.

    Raises:
        ConfigError: the material is no usable PEM.
    """
    try:
        authority = material.authority.decode("ascii") if material.authority else None
        context = ssl.create_default_context(cadata=authority)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(f"{where}: certificate-authority: expected PEM certificates") from error
    # Judge chains as the Go clients do: certificate authorities of clusters often lack the
    # extensions that strict mode asks for, and a trusted intermediate is enough.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if not material.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if material.certificate and material.key:
        load_identity(context, material.certificate, material.key, where=where)
    return context


def load_identity(context: ssl.SSLContext, certificate: bytes, key: bytes, *, where: str) -> None:
    """Load a client certificate, which OpenSSL takes from files only.

    Raises:
        ConfigError: the pair is no usable PEM.
    """
    with tempfile.TemporaryDirectory(prefix="federate-") as folder:
        file = os.path.join(folder, "identity.pem")
        with open(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as stream:
            stream.write(certificate + b"\n" + key)
        try:
            # An empty password: OpenSSL would otherwise ask on the terminal.
            context.load_cert_chain(file, password=b"")
        except (ssl.SSLError, ValueError) as error:
            raise ConfigError(
                f"{where}: client-certificate, client-key: expected a PEM certificate and the "
                f"unencrypted PEM key that belongs to it"
            ) from error
