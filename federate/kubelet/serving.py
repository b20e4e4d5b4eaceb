"""The certificate the kubelet API serves with, and whom it believes: kept good while we run (C62).

There is always a certificate to serve with: what is wanted comes from the hub's signer or from
files; until it is there, and whenever it is not usable, one signed by ourselves stands in, because
API servers verify those of kubelets only where they are told to. So trouble here degrades logs and
exec at most, and a word for the Node says which and what to do.
"""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import ssl
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import structlog

from federate.cluster.kubeconfig import load_identity
from federate.cluster.port import ClusterPort
from federate.errors import (
    ClusterError,
    ConfigError,
    Conflict,
    Forbidden,
    NotFound,
    ServerFault,
    Throttled,
    Unreachable,
)
from federate.kubelet.clientca import ClientAuthority, ServingContext
from federate.kubelet.csr import (
    NotUsable,
    Pair,
    Verdict,
    answer_of,
    approved,
    check_issued,
    named,
    new_key,
    read_pair,
    request_object,
    self_signed,
    signing_request,
)
from federate.kubelet.rules import CertificateMode, ServingRules
from federate.model.expiry import Expiry
from federate.model.instants import format_instant
from federate.model.objects import JsonObject, ObjectKey, uid_of
from federate.model.reasons import NodeReason
from federate.model.resources import CERTIFICATE_REQUESTS

log = structlog.get_logger()

RENEW_FROM, RENEW_WITHIN = 0.7, 0.1
"""A certificate is replaced when this share of its life is over, plus up to the other one: many
virtual nodes that began together do not ask together."""

YOUNG_SECONDS = 60.0
SOON_SECONDS, LATER_SECONDS = 1.0, 10.0
"""How often a request is looked at: while it is young, somebody may be about to approve it."""

LEAST_LIFE_SECONDS = 60.0
"""How long a new certificate is kept at least. Signers end theirs with their own authority, so the
last ones are due at once; each of them would be a request that stays on the hub for hours."""

LEAST_BACK_OFF_SECONDS, MOST_BACK_OFF_SECONDS = 1.0, 300.0

DENIED_SECONDS = 3600.0
"""How long after a no the hub is asked again. Shorter: refused requests pile up there."""

FILES_SECONDS = 5.0
"""How often certificate files are looked at."""

LONGEST_SLEEP_SECONDS = 3600.0
"""The clock on the wall may be set meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingWord:
    """What the Node's condition is to say of it."""

    is_good: bool
    reason: NodeReason
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """A CertificateSigningRequest of ours that stands on the hub."""

    name: str
    uid: str
    made_at: float
    key: bytes = field(repr=False)


class ServingTls:
    """Keeps the TLS context of a virtual node's kubelet API.

    `run` it beside the server. `context` is to be asked for every connection: a new certificate or
    client CA counts from the next one on. `on_change` is called when `word` says something else.
    """

    def __init__(
        self,
        *,
        node_name: str,
        addresses: Iterable[str],
        rules: ServingRules,
        hub: ClusterPort,
        on_change: Callable[[], None] = lambda: None,
        wall_clock: Callable[[], float] = time.time,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._node_name = node_name
        self._names = named(addresses)
        self._rules = rules
        self._hub = hub
        self._on_change = on_change
        self._wall_clock = wall_clock
        self._renew_share = RENEW_FROM + RENEW_WITHIN * jitter()
        self._good: Pair | None = None
        """Of the mode that is wanted."""
        self._makeshift: Pair | None = None
        self._request: _Request | None = None
        self._failures = 0
        self._context: ServingContext | None = None
        self._loaded: tuple[bytes, str] | None = None
        self._own_word = ServingWord(
            is_good=False, reason=NodeReason.KUBELET_STARTING, message="no certificate yet"
        )
        self._told: ServingWord | None = None
        self._log = log.bind(node=node_name)
        self.authority = ClientAuthority(
            hub=hub,
            file=rules.client_ca_file,
            on_change=self._refresh,
            wall_clock=wall_clock,
        )

    # --- what others ask -----------------------------------------------------------------------

    def context(self) -> ssl.SSLContext | None:
        """Return what the next connection is to be accepted with; None: nothing yet."""
        return self._context

    @property
    def word(self) -> ServingWord:
        """What the Node is to say."""
        if self.authority.bundle is None and not self.authority.trouble:
            message = "the hub's client CA is being read"
            return ServingWord(is_good=False, reason=NodeReason.KUBELET_STARTING, message=message)
        if self.authority.bundle is None:
            message = (
                f"no client CA is known, so API servers cannot prove who they are: "
                f"{self.authority.trouble}. Name a file with it in the configuration, or grant the "
                "right to read it"
            )
            reason = NodeReason.KUBELET_CLIENT_AUTHORITY_UNKNOWN
            return ServingWord(is_good=False, reason=reason, message=message)
        return self._own_word

    @property
    def expiry(self) -> Expiry | None:
        """When the certificate ends that is served with."""
        pair = self._served()
        if pair is None:
            return None
        return pair.expiry(is_renewed=self._rules.mode is not CertificateMode.FILES)

    # --- keeping -------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep certificate and client CA until cancelled; failures are told, and tried again."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._supervise(self.authority.run), name="client-ca")
            group.create_task(self._supervise(self._keep), name="serving-certificate")

    async def _supervise(self, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await work()
            except Exception:  # noqa: BLE001  the edge of a supervised loop
                self._log.exception("keeper of the kubelet API's TLS failed, starting it again")
            await asyncio.sleep(LEAST_BACK_OFF_SECONDS)

    async def _keep(self) -> None:
        if self._rules.mode is CertificateMode.CSR and self._rules.folder is not None:
            self._good = self._recall(self._rules.folder)
        while True:
            seconds = await self._round()
            self._refresh()
            await asyncio.sleep(min(seconds, LONGEST_SLEEP_SECONDS))

    async def _round(self) -> float:
        """Do what is due; return after how many seconds to look again."""
        match self._rules.mode:
            case CertificateMode.SELF_SIGNED:
                return self._sign_ourselves()
            case CertificateMode.FILES:
                return self._read_files()
            case CertificateMode.CSR:
                # Whoever comes meanwhile is served already.
                self._refresh()
                return await self._ask_hub()

    def _sign_ourselves(self) -> float:
        reason = NodeReason.KUBELET_CERTIFICATE_SELF_SIGNED
        self._say(reason, "the certificate is signed by federate itself")
        if self._is_due(self._good):
            self._good = self._signed()
        return self._seconds_left(self._good)

    def _read_files(self) -> float:
        certificate, key = self._rules.certificate_file, self._rules.key_file
        try:
            pair = read_pair(_content(certificate), _content(key))
        except (OSError, NotUsable) as error:
            said = getattr(error, "strerror", None) or str(error)
            self._complain(
                NodeReason.KUBELET_CERTIFICATE_UNUSABLE,
                f"{certificate}, {key}: {said}. Correct them; no restart is needed. "
                + self._meanwhile(),
            )
            return FILES_SECONDS
        self._good = pair
        if pair.ends_at <= self._wall_clock():
            message = f"{certificate} ended at {_instant(pair.ends_at)}: replace it. "
            self._complain(NodeReason.KUBELET_CERTIFICATE_UNUSABLE, message + self._meanwhile())
        elif not pair.covers(self._names):
            missing = ", ".join(sorted(self._names - pair.names))
            self._say(
                NodeReason.KUBELET_SERVING,
                f"{certificate} does not name {missing}: an API server that verifies kubelets "
                "refuses it",
            )
        else:
            self._say(NodeReason.KUBELET_SERVING, f"the certificate is that of {certificate}")
        return FILES_SECONDS

    # --- by a request at the hub ---------------------------------------------------------------

    async def _ask_hub(self) -> float:
        try:
            if self._request is not None:
                return await self._look_at(self._request)
            if not self._is_due(self._good):
                self._say(NodeReason.KUBELET_SERVING, "the certificate is signed by the hub")
                return self._seconds_left(self._good)
            return await self._request_one()
        except (Unreachable, Throttled, ServerFault, Conflict) as error:
            self._say(
                NodeReason.KUBELET_CERTIFICATE_PENDING,
                f"the hub could not be asked for a certificate yet: {error}. {self._meanwhile()}",
            )
        except ClusterError as error:
            self._complain(
                NodeReason.KUBELET_CERTIFICATE_REFUSED,
                f"{error}. Grant it (federate rbac --side hub), or set the certificate to files or "
                f"self-signed. {self._meanwhile()}",
            )
        return self._back_off()

    async def _request_one(self) -> float:
        key = new_key()
        name = f"federate-{self._node_name[:200].rstrip('.-')}-{secrets.token_hex(4)}"
        request = signing_request(node_name=self._node_name, key=key, names=self._names)
        made = await self._hub.create(
            CERTIFICATE_REQUESTS, request_object(name=name, request=request)
        )
        self._request = _Request(name=name, uid=uid_of(made), made_at=self._wall_clock(), key=key)
        self._log.info("serving certificate asked for", request=name)
        return await self._judge(self._request, made)

    async def _look_at(self, request: _Request) -> float:
        try:
            found = await self._hub.get(CERTIFICATE_REQUESTS, ObjectKey("", request.name))
        except NotFound:
            found = {}
        if uid_of(found) != request.uid:
            # A hub forgets requests after a day.
            self._request = None
            return self._back_off()
        return await self._judge(request, found)

    async def _judge(self, request: _Request, found: JsonObject) -> float:
        self._failures = 0
        answer = answer_of(found)
        match answer.verdict:
            case Verdict.ISSUED:
                return self._take(request, answer.certificate)
            case Verdict.DENIED | Verdict.FAILED:
                return self._refused(request, str(answer.verdict), answer.said)
            case Verdict.PENDING if self._rules.approves:
                await self._approve(request, found)
            case _:
                self._tell_pending(request, answer.verdict)
        is_young = self._wall_clock() - request.made_at < YOUNG_SECONDS
        return SOON_SECONDS if is_young else LATER_SECONDS

    async def _approve(self, request: _Request, found: JsonObject) -> None:
        """Approve what we made ourselves: uid and resourceVersion travel along."""
        now = datetime.fromtimestamp(self._wall_clock(), tz=UTC)
        body = approved(found, now=format_instant(now))
        try:
            await self._hub.replace(
                CERTIFICATE_REQUESTS, ObjectKey("", request.name), body, subresource="approval"
            )
        except Conflict:
            self._tell_pending(request, Verdict.PENDING)
        except Forbidden as error:
            self._complain(
                NodeReason.KUBELET_CERTIFICATE_PENDING,
                f"federate may not approve its own request: {error}. Grant it (federate rbac "
                f"--side hub --with approve), or {_by_hand(request)}. {self._meanwhile()}",
            )
        else:
            self._tell_pending(request, Verdict.APPROVED)

    def _tell_pending(self, request: _Request, verdict: Verdict) -> None:
        if verdict is Verdict.APPROVED:
            said = f"request {request.name} is approved, and its signer did not answer yet"
        else:
            said = f"request {request.name} waits for approval: {_by_hand(request)}"
        self._say(NodeReason.KUBELET_CERTIFICATE_PENDING, f"{said}. {self._meanwhile()}")

    def _take(self, request: _Request, certificate: bytes) -> float:
        try:
            pair = read_pair(certificate, request.key)
            check_issued(pair, names=self._names, now=self._wall_clock())
        except NotUsable as error:
            return self._refused(request, "useless", str(error))
        self._good, self._request = pair, None
        if self._rules.folder is not None:
            self._remember(self._rules.folder, pair)
        self._say(NodeReason.KUBELET_SERVING, "the certificate is signed by the hub")
        self._log.info("serving certificate taken over", ends_at=_instant(pair.ends_at))
        return max(self._seconds_left(pair), LEAST_LIFE_SECONDS)

    def _refused(self, request: _Request, how: str, said: str) -> float:
        self._request = None
        why = said.rstrip(".") or "no reason is given"
        self._complain(
            NodeReason.KUBELET_CERTIFICATE_DENIED,
            f"request {request.name} is {how}: {why}. It is asked again "
            f"within the hour; or set the certificate to files or self-signed. {self._meanwhile()}",
        )
        return DENIED_SECONDS

    # --- kept in a folder ----------------------------------------------------------------------

    def _recall(self, folder: Path) -> Pair | None:
        try:
            text = self._file(folder).read_bytes()
            pair = read_pair(text, text)
        except (OSError, NotUsable):
            return None
        return None if self._is_due(pair) else pair

    def _remember(self, folder: Path, pair: Pair) -> None:
        file = self._file(folder)
        new = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
        try:
            handle = os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o600)
            with open(handle, "wb") as stream:
                stream.write(pair.key + b"\n" + pair.certificate)
            new.replace(file)
        except OSError as error:
            with suppress(OSError):
                new.unlink()
            self._log.warning("serving certificate not kept", folder=str(folder), error=str(error))

    def _file(self, folder: Path) -> Path:
        return folder / f"{self._node_name}.pem"

    # --- what is served ------------------------------------------------------------------------

    def _served(self) -> Pair | None:
        """What is wanted while it holds, else the makeshift."""
        good = self._good
        return good if good is not None and good.ends_at > self._wall_clock() else self._makeshift

    def _refresh(self) -> None:
        """Build the context anew where certificate or client CA changed, and tell a new word."""
        is_needed = self._good is None or self._good.ends_at <= self._wall_clock()
        if is_needed and self._is_due(self._makeshift):
            self._makeshift = self._signed()
        pair, bundle = self._served(), self.authority.bundle
        if pair is not None:
            state = (pair.certificate, bundle.fingerprint if bundle is not None else "")
            if state != self._loaded:
                self._load(pair, state)
        word = self.word
        if word != self._told:
            self._told = word
            is_usual = word.is_good or word.reason is NodeReason.KUBELET_STARTING
            tell = self._log.info if is_usual else self._log.warning
            tell("kubelet API's certificate", reason=str(word.reason), message=word.message)
            self._on_change()

    def _load(self, pair: Pair, state: tuple[bytes, str]) -> None:
        bundle = self.authority.bundle
        try:
            context = build_context(pair, bundle.pem if bundle is not None else "")
        except ConfigError as error:
            self._complain(NodeReason.KUBELET_CERTIFICATE_UNUSABLE, str(error))
            return
        context.authority = bundle.fingerprint if bundle is not None else ""
        self._context, self._loaded = context, state

    def _signed(self) -> Pair:
        return self_signed(node_name=self._node_name, names=self._names, now=self._wall_clock())

    def _is_due(self, pair: Pair | None) -> bool:
        if pair is None or not pair.covers(self._names):
            return True
        return self._wall_clock() >= pair.renew_at(self._renew_share)

    def _seconds_left(self, pair: Pair | None) -> float:
        if pair is None:
            return 0.0
        return max(0.0, pair.renew_at(self._renew_share) - self._wall_clock())

    def _meanwhile(self) -> str:
        good = self._good
        if good is not None and good.ends_at > self._wall_clock():
            return f"Meanwhile the one of before serves, until {_instant(good.ends_at)}"
        return "Meanwhile one serves that federate signed itself"

    def _say(self, reason: NodeReason, message: str) -> None:
        self._own_word = ServingWord(is_good=True, reason=reason, message=message)

    def _complain(self, reason: NodeReason, message: str) -> None:
        self._own_word = ServingWord(is_good=False, reason=reason, message=message)

    def _back_off(self) -> float:
        self._failures += 1
        doubled = LEAST_BACK_OFF_SECONDS * 2.0 ** min(self._failures - 1, 10)
        return min(doubled, MOST_BACK_OFF_SECONDS)


def build_context(pair: Pair, client_ca: str) -> ServingContext:
    """Build a server's context; without a client CA no certificate is asked for.

    A client may come without a certificate; one that sends a bad one is refused by TLS.

    Raises:
        ConfigError: OpenSSL does not take the pair or the bundle.
    """
    context = ServingContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # A resumed session would bring along a client that was verified long ago.
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
    context.num_tickets = 0
    context.set_alpn_protocols(["http/1.1"])
    # Judge chains as the Go servers do: see `cluster.kubeconfig.build_tls`.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if client_ca:
        try:
            context.load_verify_locations(cadata=client_ca)
        except ssl.SSLError:
            raise ConfigError("the client CA is not what OpenSSL takes") from None
        context.verify_mode = ssl.CERT_OPTIONAL
    _load_pair(context, pair)
    return context


def _load_pair(context: ssl.SSLContext, pair: Pair) -> None:
    """Load key and certificate, which OpenSSL takes from files only: one that is in memory."""
    if not hasattr(os, "memfd_create"):
        load_identity(context, pair.certificate, pair.key, where="the serving certificate")
        return
    handle = os.memfd_create("federate-serving")
    try:
        os.write(handle, pair.key + b"\n" + pair.certificate)
        context.load_cert_chain(f"/proc/self/fd/{handle}", password=b"")
    except (OSError, ValueError):
        raise ConfigError("OpenSSL does not take the serving certificate") from None
    finally:
        os.close(handle)


def _content(file: Path | None) -> bytes:
    if file is None:
        raise NotUsable("certificate and key file are not both named")
    return file.read_bytes()


def _by_hand(request: _Request) -> str:
    return f"kubectl certificate approve {request.name}"


def _instant(at: float) -> str:
    return format_instant(datetime.fromtimestamp(at, tz=UTC))
