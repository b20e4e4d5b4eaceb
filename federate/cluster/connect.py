"""From a kubeconfig file, or the service account of a pod, to a client that stays authenticated.

The door to `client`. Everything is read again when it may have changed, so that rotated files,
tokens and certificates are picked up without a restart; docs/reference/credentials.md says what is
taken from where. Only the first load raises; later ones keep what worked and leave the verdict to
the API server.
"""

from __future__ import annotations

import asyncio
import base64
import math
import os
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import structlog

from federate.cluster.client import (
    REQUEST_TIMEOUT_SECONDS,
    SILENCE_SECONDS,
    ClusterClient,
    Observer,
    ignore_requests,
)
from federate.cluster.expiry import expiry_of_certificate, expiry_of_token
from federate.cluster.kubeconfig import (
    Entry,
    TlsMaterial,
    basic_of,
    build_tls,
    impersonation_of,
    read_entry,
    read_tls,
    read_token,
)
from federate.cluster.oidc import OidcTokens
from federate.cluster.plugins import PluginCredential, ask_plugin, read_plugin
from federate.cluster.proxies import Proxy, parse_proxy, proxy_in_environment
from federate.cluster.sessions import Access, authorization, to_conceal
from federate.errors import ConfigError
from federate.model.expiry import Expiry, earliest, expiry_between

log = structlog.get_logger()

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

RELOAD_SECONDS = 5.0
"""How long files are trusted. Longer: a rotated token is late, and so is the word on a kubeconfig
that leads elsewhere (C5); shorter: needless reading."""

RENEW_SECONDS = 10.0
"""At most one renewal after a 401 in this time, so that a plugin is not started per request."""

PATIENCE_SECONDS = 1.0
"""How long a request waits for a new reading while the old one still holds. Files take moments; a
plugin may take a minute, and goes on behind the requests."""

EXPIRY_MARGIN_SECONDS = 30.0
"""A plugin's credential is replaced so long before its end, or at half its life if that is later:
clocks differ, requests take time."""

TELL_AGAIN_SECONDS = 86_400.0
"""How often the log repeats that credentials are about to end."""


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


class ReloadingCredentials:
    """Keep the access of a source fresh; satisfies `sessions.Credentials`.

    One reading at a time, in a task of its own: a request that gives up does not end it.
    """

    def __init__(
        self,
        source: Source,
        *,
        name: str,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
        on_moved: Callable[[], None] | None = None,
    ) -> None:
        """With `on_moved` the access never leads elsewhere: a file that does is only told of."""
        self._on_moved = on_moved
        self._place: tuple[object, ...] | None = None
        self._source = source
        self._name = name
        self._clock = clock
        self._wall_clock = wall_clock
        self._reading: asyncio.Task[None] | None = None
        self._is_closed = False
        self._access = Access(server="")
        self._material: TlsMaterial | None = None
        self._tls: ssl.SSLContext | None = None
        self._load_at = self._renew_at = self._tell_at = float("-inf")

    async def start(self) -> None:
        """Load for the first time.

        Raises:
            ConfigError: something is missing or unusable.
        """
        await self._load(force=False)

    def known(self) -> Access:
        """Return what is known now; a new reading begins where it is due."""
        if self._clock() >= self._load_at:
            self._begin(force=False)
        return self._access

    async def current(self) -> Access:
        """Return the access, read again when its time is over."""
        if self._clock() >= self._load_at:
            reading = self._begin(force=False)
            if reading is not None:
                await asyncio.wait({reading}, timeout=None if self._is_over else PATIENCE_SECONDS)
        return self._access

    async def renew(self, refused: Access) -> Access:
        """Return what is newer than `refused`; itself where that was tried a moment ago."""
        while self._access is refused:
            reading = self._reading
            if reading is None:
                if self._clock() < self._renew_at:
                    break
                self._renew_at = self._clock() + RENEW_SECONDS
                reading = self._begin(force=True)
            if reading is None:
                break
            await asyncio.wait({reading})
        return self._access

    async def aclose(self) -> None:
        """End a reading that is under way; what is known stays."""
        self._is_closed = True
        if (reading := self._reading) is not None:
            reading.cancel()
            await asyncio.wait({reading})

    @property
    def _is_over(self) -> bool:
        expiry = self._access.expiry
        return expiry is not None and self._wall_clock() >= expiry.at

    def _begin(self, *, force: bool) -> asyncio.Task[None] | None:
        """Return the reading that is under way, or a new one; None once closed."""
        if self._reading is None and not self._is_closed:
            self._reading = asyncio.ensure_future(self._try_load(force=force))
            self._reading.add_done_callback(self._ended)
        return self._reading

    def _ended(self, _reading: asyncio.Task[None]) -> None:
        self._reading = None

    async def _try_load(self, *, force: bool) -> None:
        try:
            await self._load(force=force)
        except ConfigError as error:
            self._tell_failure(str(error))
        except Exception as error:  # noqa: BLE001  whatever it is may quote what was read
            self._tell_failure(type(error).__name__)

    def _tell_failure(self, said: str) -> None:
        self._load_at = self._clock() + RENEW_SECONDS
        log.warning("credentials not renewed", cluster=self._name, error=said)

    async def _load(self, *, force: bool) -> None:
        access, material = await self._source.load(force=force)
        self._keep_place(access, material)
        if material != self._material:
            tls = None
            if access.server.startswith("https://"):
                tls = await asyncio.to_thread(build_tls, material, where=self._source.where)
            self._material, self._tls = material, tls
        access = replace(access, tls=self._tls)
        # Where nothing changed the old one stays, so that a 401 knows what was refused.
        if force or access.content != self._access.content:
            self._access = access
        self._load_at = self._clock() + RELOAD_SECONDS
        self._tell_expiry()

    def _keep_place(self, access: Access, material: TlsMaterial) -> None:
        """Refuse to go where another cluster may be: only a new client may ask who is there."""
        place = (*access.place, material.authority)
        if self._on_moved is not None and self._place not in (None, place):
            self._on_moved()
            raise ConfigError(
                f"{self._source.where} leads elsewhere now: nothing goes there by this connection"
            )
        self._place = place

    def _tell_expiry(self) -> None:
        """Warn before the credentials end, again and again, but rarely."""
        expiry = self._access.expiry
        if expiry is None or self._wall_clock() < expiry.warn_at or self._clock() < self._tell_at:
            return
        self._tell_at = self._clock() + TELL_AGAIN_SECONDS
        log.warning(
            "credentials end: replace them, no restart is needed",
            cluster=self._name,
            what=expiry.what,
            ends_at=expiry.instant,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """As whom we come: what goes into a header, and a certificate that replaces the entry's."""

    token: str = field(default="", repr=False)
    basic: tuple[str, str] | None = field(default=None, repr=False)
    certificate: bytes | None = field(default=None, repr=False)
    key: bytes | None = field(default=None, repr=False)
    expiry: Expiry | None = None

    @property
    def authorization(self) -> str:
        """The value of the header Authorization, "" where there is none."""
        if self.token:
            return f"Bearer {self.token}"
        if self.basic is not None:
            both = ":".join(self.basic).encode()
            return "Basic " + base64.b64encode(both).decode()
        return ""


class KubeconfigSource:
    """One context of a kubeconfig file."""

    def __init__(
        self,
        path: Path,
        context: str | None,
        *,
        wall_clock: Callable[[], float] = time.time,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self._path = path.expanduser()
        self._context = context
        self._wall_clock = wall_clock
        self._environ = environ
        self._entry: Entry | None = None
        self._oidc: OidcTokens | None = None
        self._plugin_said: PluginCredential | None = None
        self._plugin_expiry: Expiry | None = None
        self._ask_plugin_at = math.inf

    @property
    def where(self) -> str:
        """What to call it in messages."""
        return f"kubeconfig {self._path}"

    async def load(self, *, force: bool) -> tuple[Access, TlsMaterial]:
        """Read the file, its certificates and the token."""
        entry = await asyncio.to_thread(read_entry, self._path, self._context)
        # `kubectl config use-context` on that file later must not move us to another cluster.
        self._context = entry.context
        material = await asyncio.to_thread(read_tls, entry)
        if entry != self._entry:
            self._entry, self._oidc, self._plugin_said = entry, None, None
        proof = await self._prove(entry, force=force)
        if proof.certificate:
            material = replace(material, certificate=proof.certificate, key=proof.key)
        proxy = _proxy_of(entry, self._environ)
        headers = [*authorization(proof.authorization, where=self.where), *impersonation_of(entry)]
        if proxy is not None and not proxy.is_socks and entry.server.startswith("http://"):
            headers += proxy.headers.items()  # without a tunnel the request itself goes to it
        password = proof.basic[1] if proof.basic is not None else ""
        access = Access(
            server=entry.server,
            server_hostname=_server_hostname(entry, proxy),
            proxy=proxy,
            headers=tuple(headers),
            expiry=earliest((proof.expiry, _expiry_of_material(entry, material, proof))),
            concealed=to_conceal(tuple(headers), proxy, password),
        )
        return access, material

    async def _prove(self, entry: Entry, *, force: bool) -> Proof:
        """Collect what says who we are; a token in the kubeconfig outranks a plugin's."""
        token = await asyncio.to_thread(read_token, entry)
        is_file = bool(entry.user.get("tokenFile"))
        what = "tokenFile" if is_file else "token"
        if "auth-provider" in entry.user and not token:
            token = await self._ask_provider(entry, force=force)
            what, is_file = "OpenID token", True
        said, plugin_expiry = PluginCredential(), None
        if "exec" in entry.user and not token:
            said, plugin_expiry = await self._ask_plugin(entry, force=force)
        token_expiry = expiry_of_token(token, what=what, is_renewed=is_file)
        return Proof(
            token=token or said.token,
            basic=basic_of(entry),
            certificate=said.certificate,
            key=said.key,
            expiry=earliest((token_expiry, plugin_expiry)),
        )

    async def _ask_provider(self, entry: Entry, *, force: bool) -> str:
        provider = entry.user["auth-provider"]
        kind = provider.get("name") if isinstance(provider, dict) else None
        if kind != "oidc":
            raise entry.wrong(
                "user.auth-provider", "expected oidc; others are exec plugins since Kubernetes 1.26"
            )
        if self._oidc is None:
            self._oidc = OidcTokens(entry=entry)
        return await self._oidc.token(now=self._wall_clock(), force=force, environ=self._environ)

    async def _ask_plugin(
        self, entry: Entry, *, force: bool
    ) -> tuple[PluginCredential, Expiry | None]:
        now = self._wall_clock()
        if self._plugin_said is None or force or now >= self._ask_plugin_at:
            said = await ask_plugin(entry, self._environ)
            expiry = _expiry_of_plugin(said, now, what=f"plugin {read_plugin(entry).name}")
            self._plugin_said, self._plugin_expiry = said, expiry
            self._ask_plugin_at = math.inf
            if expiry is not None:
                half = (expiry.at - now) / 2
                self._ask_plugin_at = expiry.at - max(0.0, min(EXPIRY_MARGIN_SECONDS, half))
        return self._plugin_said, self._plugin_expiry


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
    source: Source
    if kubeconfig is None:
        # Here, not above: kubernetes_asyncio takes 39 MB and half a second, which only pods need.
        from federate.cluster.serviceaccount import ServiceAccountSource

        source = ServiceAccountSource(service_account, environ)
    else:
        source = KubeconfigSource(kubeconfig, context, environ=environ)
    credentials = ReloadingCredentials(source, name=name, on_moved=on_moved)
    await credentials.start()
    return ClusterClient(
        name=name,
        credentials=credentials,
        request_timeout_seconds=request_timeout_seconds,
        silence_seconds=silence_seconds,
        observer=observer,
    )


def _proxy_of(entry: Entry, environ: Mapping[str, str]) -> Proxy | None:
    """Return the context's proxy, else the environment's, as kubectl does."""
    written = entry.cluster.get("proxy-url")
    found = str(written) if written else proxy_in_environment(entry.server, environ)
    if not found:
        return None
    proxy = parse_proxy(found)
    if proxy is None:
        key = "proxy-url" if written else "the proxy of the environment"
        raise entry.wrong(key, "expected an http://, https:// or socks5:// proxy")
    return proxy


def _server_hostname(entry: Entry, proxy: Proxy | None) -> str | None:
    name = entry.cluster.get("tls-server-name")
    if name and proxy is not None and proxy.is_socks:
        raise entry.wrong("tls-server-name", "cannot be used with a socks5:// proxy")
    return str(name) if name else None


def _expiry_of_material(entry: Entry, material: TlsMaterial, proof: Proof) -> Expiry | None:
    if material.certificate is None or proof.certificate is not None:
        return None
    is_file = not entry.user.get("client-certificate-data")
    return expiry_of_certificate(
        material.certificate, what="client certificate", is_renewed=is_file
    )


def _expiry_of_plugin(said: PluginCredential, now: float, *, what: str) -> Expiry | None:
    stated = (
        expiry_between(now, said.expires_at, what=what, is_renewed=True)
        if said.expires_at is not None
        else None
    )
    certified = (
        expiry_of_certificate(said.certificate, what=what, is_renewed=True)
        if said.certificate
        else None
    )
    return earliest((stated, certified, expiry_of_token(said.token, what=what, is_renewed=True)))
