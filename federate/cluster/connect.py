"""From a kubeconfig file, or the service account of a pod, to a client that stays authenticated.

The only module that knows kubernetes_asyncio: its loader finds tokens (inline, file, OIDC, GCP,
basic), its provider runs exec plugins. Everything is read again when it may have changed, so that
rotated files, tokens and certificates are picked up without a restart. Only the first load raises;
later ones keep what worked and leave the verdict to the API server.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import structlog
from kubernetes_asyncio.client import Configuration
from kubernetes_asyncio.config import ConfigException
from kubernetes_asyncio.config.dateutil import parse_rfc3339
from kubernetes_asyncio.config.exec_provider import ExecProvider
from kubernetes_asyncio.config.incluster_config import InClusterConfigLoader
from kubernetes_asyncio.config.kube_config import ConfigNode, KubeConfigLoader

from federate.cluster.client import (
    REQUEST_TIMEOUT_SECONDS,
    SILENCE_SECONDS,
    ClusterClient,
    Observer,
    ignore_requests,
)
from federate.cluster.kubeconfig import Entry, TlsMaterial, build_tls, read_entry, read_tls
from federate.cluster.sessions import Access
from federate.errors import ConfigError

log = structlog.get_logger()

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

RELOAD_SECONDS = 5.0
"""How long files are trusted. Longer: a rotated token is late, and so is the word on a kubeconfig
that leads elsewhere (C5); shorter: needless reading."""

RENEW_SECONDS = 10.0
"""At most one renewal after a 401 in this time, so that a plugin is not started per request."""

EXPIRY_MARGIN_SECONDS = 30.0
"""A token of a plugin is replaced so long before it expires: clocks differ, requests take time."""

PLUGIN_TIMEOUT_SECONDS = 60.0
"""A plugin may talk to an identity provider; one that hangs must not hang us."""


class Source(Protocol):
    """Where an access comes from."""

    async def load(self, *, force: bool) -> tuple[Access, TlsMaterial]:
        """Read everything again; `force` distrusts cached tokens too. The access has no TLS yet.

        Raises:
            ConfigError: something is missing or unusable.
        """

    @property
    def where(self) -> str:
        """What to call it in messages."""

    @property
    def valid_seconds(self) -> float:
        """How long the last load may be used."""


class ReloadingCredentials:
    """Keep the access of a source fresh; satisfies `sessions.Credentials`."""

    def __init__(
        self,
        source: Source,
        *,
        name: str,
        clock: Callable[[], float] = time.monotonic,
        on_moved: Callable[[], None] | None = None,
    ) -> None:
        """With `on_moved` the access never leads elsewhere: a file that does is only told of."""
        self._on_moved = on_moved
        self._place: tuple[object, ...] | None = None
        self._source = source
        self._name = name
        self._clock = clock
        self._lock = asyncio.Lock()
        self._access = Access(server="")
        self._material: TlsMaterial | None = None
        self._tls: ssl.SSLContext | None = None
        self._load_at = self._renew_at = float("-inf")

    async def start(self) -> None:
        """Load for the first time.

        Raises:
            ConfigError: something is missing or unusable.
        """
        await self._load(force=False)

    async def current(self) -> Access:
        """Return the access, read again when its time is over."""
        if self._clock() >= self._load_at:
            async with self._lock:
                if self._clock() >= self._load_at:
                    await self._try_load(force=False)
        return self._access

    async def renew(self, refused: Access) -> Access:
        """Return what is newer than `refused`; itself where that was tried a moment ago."""
        async with self._lock:
            if self._access is refused and self._clock() >= self._renew_at:
                self._renew_at = self._clock() + RENEW_SECONDS
                await self._try_load(force=True)
        return self._access

    async def _try_load(self, *, force: bool) -> None:
        try:
            await self._load(force=force)
        except ConfigError as error:
            self._load_at = self._clock() + RENEW_SECONDS
            log.warning("credentials not renewed", cluster=self._name, error=str(error))

    async def _load(self, *, force: bool) -> None:
        access, material = await self._source.load(force=force)
        self._keep_place(access, material)
        if material != self._material:
            self._tls = None
            if access.server.startswith("https://"):
                self._tls = await asyncio.to_thread(build_tls, material, where=self._source.where)
            self._material = material
        self._access = replace(access, tls=self._tls)
        self._load_at = self._clock() + self._source.valid_seconds

    def _keep_place(self, access: Access, material: TlsMaterial) -> None:
        """Refuse to go where another cluster may be: only a new client may ask who is there."""
        place = (access.server, access.server_hostname, access.proxy, material.authority)
        if self._on_moved is not None and self._place not in (None, place):
            self._on_moved()
            raise ConfigError(
                f"{self._source.where} leads elsewhere now: nothing goes there by this connection"
            )
        self._place = place


class KubeconfigSource:
    """One context of a kubeconfig file."""

    def __init__(
        self, path: Path, context: str | None, *, wall_clock: Callable[[], float] = time.time
    ) -> None:
        self._path = path.expanduser()
        self._context = context
        self._wall_clock = wall_clock
        self._entry: Entry | None = None
        self._loader: KubeConfigLoader | None = None
        self._plugin_said: Mapping[str, Any] | None = None
        self._expires_at: float | None = None

    @property
    def where(self) -> str:
        """What to call it in messages."""
        return f"kubeconfig {self._path}"

    @property
    def valid_seconds(self) -> float:
        """Until files are read again, or the plugin's token nears its end."""
        if self._expires_at is None:
            return RELOAD_SECONDS
        left = self._expires_at - self._wall_clock() - EXPIRY_MARGIN_SECONDS
        return min(RELOAD_SECONDS, max(RENEW_SECONDS, left))

    async def load(self, *, force: bool) -> tuple[Access, TlsMaterial]:
        """Read the file, its certificates and the token."""
        entry = await asyncio.to_thread(read_entry, self._path, self._context)
        # `kubectl config use-context` on that file later must not move us to another cluster.
        self._context = entry.context
        material = await asyncio.to_thread(read_tls, entry)
        if self._loader is None or entry != self._entry:
            self._entry, self._loader, self._plugin_said = entry, _loader_for(entry), None
        token = await _token_of(entry, self._loader)
        if "exec" in entry.user:
            said = await self._ask_plugin(entry, force=force)
            token = f"Bearer {said['token']}" if said.get("token") else token
            material = _with_plugin_certificate(entry, material, said)
        access = Access(
            server=str(entry.cluster["server"]).rstrip("/"),
            server_hostname=entry.cluster.get("tls-server-name"),
            proxy=_proxy_of(entry),
            headers=_headers(token, where=self.where),
        )
        return access, material

    async def _ask_plugin(self, entry: Entry, *, force: bool) -> Mapping[str, Any]:
        expired = self._expires_at is not None and (
            self._wall_clock() >= self._expires_at - EXPIRY_MARGIN_SECONDS
        )
        if self._plugin_said is None or expired or force:
            self._plugin_said = await _run_plugin(entry)
            self._expires_at = _expiry_of(entry, self._plugin_said)
        return self._plugin_said


class ServiceAccountSource:
    """The service account of the pod this process runs in."""

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        self._folder = folder
        self._environ = dict(environ)

    where = "service account of this pod"
    valid_seconds = RELOAD_SECONDS

    async def load(self, *, force: bool) -> tuple[Access, TlsMaterial]:
        """Read the projected token and the cluster's authority."""
        return await asyncio.to_thread(self._read)

    def _read(self) -> tuple[Access, TlsMaterial]:
        configuration, certificate = Configuration(), self._folder / "ca.crt"
        try:
            loader = InClusterConfigLoader(
                token_filename=str(self._folder / "token"),
                cert_filename=str(certificate),
                try_refresh_token=False,
                environ=self._environ,
            )
            loader.load_and_set(configuration)
            authority = certificate.read_bytes()
        except (ConfigException, OSError) as error:
            raise ConfigError(
                f"no kubeconfig is given and this is no pod with a service account ({error}); "
                f"name a kubeconfig file, or run in a pod with automountServiceAccountToken"
            ) from error
        token = str(configuration.api_key.get("BearerToken") or "")
        server = str(configuration.host)
        access = Access(server=server, headers=_headers(token, where=self.where))
        return access, TlsMaterial(authority=authority)


async def connect(  # noqa: PLR0913  each has a default that most keep
    kubeconfig: Path | None,
    *,
    name: str,
    context: str | None = None,
    observer: Observer = ignore_requests,
    on_moved: Callable[[], None] | None = None,
    request_timeout_seconds: float = REQUEST_TIMEOUT_SECONDS,
    silence_seconds: float = SILENCE_SECONDS,
    service_account: Path = SERVICE_ACCOUNT,
    environ: Mapping[str, str] = os.environ,
) -> ClusterClient:
    """Build a client for a kubeconfig's context, or for the pod's own cluster without one.

    Nothing is sent yet. The caller closes the client. With `on_moved` the client stays with the
    address and the authority it began with; it is called, perhaps again and again, once the
    kubeconfig says others: then the caller begins anew (C72).

    Raises:
        ConfigError: what is wrong, in which file, and what to do.
    """
    source: Source = (
        ServiceAccountSource(service_account, environ)
        if kubeconfig is None
        else KubeconfigSource(kubeconfig, context)
    )
    credentials = ReloadingCredentials(source, name=name, on_moved=on_moved)
    await credentials.start()
    return ClusterClient(
        name=name,
        credentials=credentials,
        request_timeout_seconds=request_timeout_seconds,
        silence_seconds=silence_seconds,
        observer=observer,
    )


def _loader_for(entry: Entry) -> KubeConfigLoader:
    """Give the loader only what is left to it: tokens.

    Certificates are kept from it because it writes them to files that outlive us, plugins because
    it hides their expiry.
    """
    ours = ("exec", "client-certificate", "client-key")
    user = {
        key: value for key, value in entry.user.items() if key.removesuffix("-data") not in ours
    }
    name = entry.context
    return KubeConfigLoader(
        config_dict={
            "current-context": name,
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "clusters": [{"name": name, "cluster": {"server": entry.cluster["server"]}}],
            "users": [{"name": name, "user": user}],
        },
        config_base_path=str(entry.path.parent),
    )


async def _token_of(entry: Entry, loader: KubeConfigLoader) -> str:
    configuration = Configuration()
    try:
        await loader.load_and_set(configuration)
    except Exception as error:  # noqa: BLE001  its providers raise anything, and quote what they read
        raise entry.wrong("user", f"no usable credentials ({type(error).__name__})") from None
    return str(configuration.api_key.get("BearerToken") or "")


async def _run_plugin(entry: Entry) -> Mapping[str, Any]:
    plugin = entry.user["exec"]
    if not isinstance(plugin, dict) or not (plugin.get("command") and plugin.get("apiVersion")):
        raise entry.wrong("user.exec", "expected command and apiVersion")
    command = Path(str(plugin["command"])).name
    try:
        async with asyncio.timeout(PLUGIN_TIMEOUT_SECONDS):
            said = await ExecProvider(ConfigNode("exec", plugin)).run()
    except FileNotFoundError as error:
        raise entry.wrong("user.exec", f"the plugin {command} is not installed here") from error
    except Exception:  # noqa: BLE001  the provider raises anything, and quotes what was printed
        raise entry.wrong(
            "user.exec", f"the plugin {command} failed; run it by hand to see why"
        ) from None
    if not isinstance(said, dict) or not (said.get("token") or said.get("clientCertificateData")):
        raise entry.wrong("user.exec", f"the plugin {command} gave no token and no certificate")
    return said


def _expiry_of(entry: Entry, said: Mapping[str, Any]) -> float | None:
    if not (stamp := said.get("expirationTimestamp")):
        return None
    try:
        expires_at: float = parse_rfc3339(stamp).timestamp()
    except (ValueError, AttributeError) as error:
        raise entry.wrong("user.exec", "the plugin's expirationTimestamp is no time") from error
    return expires_at


def _with_plugin_certificate(
    entry: Entry, material: TlsMaterial, said: Mapping[str, Any]
) -> TlsMaterial:
    certificate, key = said.get("clientCertificateData"), said.get("clientKeyData")
    if not certificate:
        return material
    if not key:
        raise entry.wrong("user.exec", "the plugin gave a certificate without its key")
    return replace(material, certificate=str(certificate).encode(), key=str(key).encode())


def _headers(token: str, *, where: str) -> Mapping[str, str]:
    value = token.strip()
    if not value:
        return {}
    if not value.isascii() or not value.isprintable():
        raise ConfigError(f"{where}: the token holds characters that no HTTP header may hold")
    return {"Authorization": value}


def _proxy_of(entry: Entry) -> str | None:
    """Return the context's proxy, else the environment's, as kubectl does."""
    server = urlsplit(str(entry.cluster["server"]))
    proxy = entry.cluster.get("proxy-url")
    if not proxy and not proxy_bypass(server.netloc):
        proxy = getproxies().get(server.scheme)
    if not proxy:
        return None
    if urlsplit(str(proxy)).scheme not in ("http", "https"):
        raise entry.wrong("proxy-url", "expected an http:// or https:// proxy")
    return str(proxy)
