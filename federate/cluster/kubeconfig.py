"""Read one context of a kubeconfig file, and make TLS settings of it.

Below `connect`. Key material is held in memory; the private key touches the disk only for the
moment OpenSSL reads it, in a folder of our own. Messages name the file, the context and the key
that is wrong, never a value: what stands in the wrong place may be a secret. Causes are cut off for
the same reason (`from None`), since a traceback shows them.
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
from urllib.parse import quote, urlsplit

import yaml

from federate.errors import ConfigError

MOST_NAMED = 200
"""Characters of a file's name in a message; what is longer is not its name but its content."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One context with what it points to, as written."""

    path: Path
    context: str
    cluster: Mapping[str, Any] = field(repr=False)
    user: Mapping[str, Any] = field(repr=False)

    @property
    def server(self) -> str:
        """The API server's address."""
        return str(self.cluster["server"]).rstrip("/")

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
    name = context or _text(content.get("current-context"))
    if not name:
        raise ConfigError(
            f"kubeconfig {path}: no current-context; name a context, "
            f"or run `kubectl config use-context` on that file"
        )
    chosen = _named(content, path, "contexts", "context", str(name))
    cluster = _named(content, path, "clusters", "cluster", _text(chosen.get("cluster")))
    user_name = _text(chosen.get("user"))
    user = _named(content, path, "users", "user", user_name) if user_name else {}
    entry = Entry(path=path, context=str(name), cluster=cluster, user=user)
    if not _is_server(cluster.get("server")):
        raise entry.wrong("server", "expected an https:// address, without user and password")
    return entry


def _text(value: object) -> str:
    """Return a name, "" for what is none."""
    return value if isinstance(value, str) else ""


def _is_server(value: object) -> bool:
    if not isinstance(value, str) or not value.startswith(("https://", "http://")):
        return False
    try:
        url = urlsplit(value)
        return bool(url.hostname) and url.username is None and (url.port or 1) > 0
    except ValueError:
        return False


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        raise ConfigError(
            f"kubeconfig {path}: no such file; give the path of a kubeconfig file"
        ) from None
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
    # A name that is no text is a mistake in the file, and may be anything.
    names = ", ".join(sorted(e["name"] for e in known if isinstance(e.get("name"), str))) or "none"
    raise ConfigError(f"kubeconfig {path}: no {inner} named {name!r}; {listed} there: {names}")


def read_tls(entry: Entry) -> TlsMaterial:
    """Collect the certificates of an entry, embedded or in files beside it.

    Raises:
        ConfigError: a file is missing, an embedded value is no base64, or two settings exclude each
            other.
    """
    certificate = read_material(entry, entry.user, "client-certificate", is_public=True)
    key = read_material(entry, entry.user, "client-key")
    if (certificate is None) != (key is None):
        raise entry.wrong("client-certificate", "expected both a client certificate and its key")
    authority = read_authority(entry)
    is_insecure = bool(entry.cluster.get("insecure-skip-tls-verify"))
    if is_insecure and authority is not None:
        raise entry.wrong(
            "insecure-skip-tls-verify", "expected either this or a certificate-authority, not both"
        )
    return TlsMaterial(
        authority=authority, certificate=certificate, key=key, verify=not is_insecure
    )


def read_authority(entry: Entry) -> bytes | None:
    """Read who signs the API server's certificate; None: whom this machine trusts.

    Raises:
        ConfigError: it cannot be read.
    """
    return read_material(entry, entry.cluster, "certificate-authority", is_public=True)


def read_material(
    entry: Entry, section: Mapping[str, Any], key: str, *, is_public: bool = False
) -> bytes | None:
    """Read `key`-data, else the file that `key` names, relative to the kubeconfig; None: neither.

    The name of a file is told only where `is_public`: instead of a name there may stand a secret.

    Raises:
        ConfigError: the file is missing, or the embedded value is no base64.
    """
    if embedded := section.get(f"{key}-data"):
        try:
            return base64.b64decode("".join(str(embedded).split()), validate=True)
        except (binascii.Error, ValueError):
            raise entry.wrong(f"{key}-data", "expected base64 of a PEM file") from None
    if not (named := section.get(key)):
        return None
    try:
        return (entry.path.parent / str(named)).read_bytes()
    except (OSError, ValueError) as error:
        file = str(named)
        which = file if is_public and len(file) < MOST_NAMED and "\n" not in file else "the file"
        why = getattr(error, "strerror", None) or "this is no name of a file"
        raise entry.wrong(key, f"cannot read {which}: {why}") from None


def read_token(entry: Entry) -> str:
    """Return the bearer token, from the file where one is named: that one rotates. "" for none.

    Raises:
        ConfigError: the file cannot be read and no token stands beside it.
    """
    token = str(entry.user.get("token") or "")
    if not entry.user.get("tokenFile"):
        return token.strip()
    try:
        content = read_material(entry, {"tokenFile": entry.user["tokenFile"]}, "tokenFile")
        return (content or b"").decode().strip() or token.strip()
    except (ConfigError, UnicodeDecodeError):
        if token:
            return token.strip()
        raise


def basic_of(entry: Entry) -> tuple[str, str] | None:
    """Return user name and password, None where there is neither."""
    both = (str(entry.user.get("username") or ""), str(entry.user.get("password") or ""))
    return both if any(both) else None


def impersonation_of(entry: Entry) -> list[tuple[str, str]]:
    """Return the headers that ask the API server to take us for somebody else (`as`).

    Raises:
        ConfigError: the settings are none that an API server accepts.
    """
    user, uid = entry.user.get("as"), entry.user.get("as-uid")
    groups, extra = entry.user.get("as-groups") or [], entry.user.get("as-user-extra") or {}
    if not isinstance(groups, list) or not all(isinstance(group, str) for group in groups):
        raise entry.wrong("as-groups", "expected a list of names")
    if not isinstance(extra, dict) or not all(isinstance(v, list) for v in extra.values()):
        raise entry.wrong("as-user-extra", "expected lists of texts by key")
    if not user and (groups or extra or uid):
        raise entry.wrong("as", "expected a user beside as-uid, as-groups and as-user-extra")
    headers = [("Impersonate-User", str(user))] if user else []
    headers += [("Impersonate-Uid", str(uid))] if uid else []
    headers += [("Impersonate-Group", group) for group in groups]
    for key, values in extra.items():
        name = "Impersonate-Extra-" + quote(str(key), safe="!#$&'*+^`|")
        headers += [(name, str(value)) for value in values]
    if not all(value.isascii() and value.isprintable() for _, value in headers):
        raise entry.wrong("as", "expected names that fit into HTTP headers")
    return headers


def build_tls(material: TlsMaterial, *, where: str) -> ssl.SSLContext:
    """Build the TLS context; `where` says in an error whose it is.

    Raises:
        ConfigError: the material is no usable PEM.
    """
    try:
        authority = material.authority.decode("ascii") if material.authority else None
        context = ssl.create_default_context(cadata=authority)
    except (ssl.SSLError, ValueError):
        raise ConfigError(f"{where}: certificate-authority: expected PEM certificates") from None
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
        except (ssl.SSLError, ValueError):
            raise ConfigError(
                f"{where}: client-certificate, client-key: expected a PEM certificate and the "
                f"unencrypted PEM key that belongs to it"
            ) from None
