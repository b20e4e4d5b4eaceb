"""Judge the way to an API server: name, address, TLS, certificates, clock, credentials, version.

Pure: facts in, findings out. `legs` and `readers` find the facts.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

from federate.check.findings import Finding, FindingId

CLOCK_TOLERANCE = timedelta(seconds=10)
"""Tokens and certificates count in seconds. Date headers are whole seconds, replies take time."""

OLDEST_TARGET = (1, 27)
"""Scheduling gates, which keep a mirror from running too early, are on by default from there."""

MOST_SKEW = 3
"""Minors between hub and target with which federate is tested, in both directions."""


class Ending(Protocol):
    """When something ends, in Unix time, and from when on that is worth a word."""

    @property
    def at(self) -> float:
        """The end."""

    @property
    def warn_at(self) -> float:
        """When to tell of it."""

    @property
    def what(self) -> str:
        """What ends."""


class Leg(StrEnum):
    """The parts of the way, in order."""

    DNS = "DNS"
    TCP = "TCP"
    TLS = "TLS"
    HTTP = "HTTP"


@dataclass(frozen=True, slots=True, kw_only=True)
class WayFacts:
    """What happened on the way to an API server."""

    server: str
    """The URL of the kubeconfig."""
    host: str
    port: int
    where: str
    """The kubeconfig, in words."""
    proxy: str | None = None
    """Host of a proxy: then the way ends there."""
    is_encrypted: bool = True
    is_verified: bool = True
    failed: Leg | None = None
    error: str = ""
    server_certificate: Ending | None = None
    credential: Ending | None = None
    """What of our own credentials ends first; None where nothing has a known end."""
    server_time: datetime | None = None
    """What the server's clock said, to the second."""
    asked_at: datetime | None = None
    answered_at: datetime | None = None


def is_loopback(host: str) -> bool:
    """Tell whether a host is the machine itself, whichever that is."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def judge_way(facts: WayFacts, *, now: datetime) -> tuple[Finding, ...]:
    """Judge reachability and certificates."""
    found = [*_judge_leg(facts), *_judge_server_certificate(facts, now)]
    if facts.failed is None and not (facts.is_encrypted and facts.is_verified):
        found.append(
            Finding(
                id=FindingId.TLS_NOT_VERIFIED,
                what=f"nobody proves that {facts.server} is the cluster: "
                + ("the certificate is not verified" if facts.is_encrypted else "no TLS is used"),
                fix="use https with certificate-authority-data, without insecure-skip-tls-verify, "
                f"in {facts.where}",
            )
        )
    return (*found, *_judge_credential(facts, now))


def _judge_leg(facts: WayFacts) -> Iterable[Finding]:
    place = facts.proxy or f"{facts.host}:{facts.port}"
    match facts.failed:
        case Leg.DNS:
            yield Finding(
                id=FindingId.NAME_NOT_RESOLVED,
                what=f"the name {facts.proxy or facts.host} has no address: {facts.error}",
                fix=f"check the server in {facts.where} and this host's DNS",
            )
        case Leg.TCP:
            yield Finding(
                id=FindingId.CONNECTION_FAILED,
                what=f"no connection to {place}: {facts.error}",
                fix="start the API server or proxy there, open the port in firewalls, or correct "
                f"the server in {facts.where}",
            )
            if facts.proxy is None and is_loopback(facts.host):
                yield _loopback(facts)
        case Leg.TLS:
            yield Finding(
                id=FindingId.TLS_FAILED,
                what=f"TLS with {place} failed: {facts.error}",
                fix=_tls_fix(facts),
            )
            if is_loopback(facts.host):
                # Something else of this machine may listen there.
                yield _loopback(facts)
        case Leg.HTTP:
            yield Finding(
                id=FindingId.NO_HTTP_ANSWER,
                what=f"{place} takes connections but does not answer: {facts.error}",
                fix="the API server hangs, or something else listens there: try `kubectl "
                "--kubeconfig FILE get --raw /readyz`",
            )


def _loopback(facts: WayFacts) -> Finding:
    return Finding(
        id=FindingId.LOOPBACK_ADDRESS,
        what=f"{facts.host} is this machine itself, or this container. kind and K3s write such an "
        "address into their kubeconfigs; on another machine it leads nowhere",
        fix="put an address into the kubeconfig that this machine reaches: kubectl config "
        f"set-cluster NAME --server=https://ADDRESS:{facts.port} --kubeconfig FILE. It has to "
        "stand in the server's certificate (K3s: --tls-san ADDRESS; kind: networking."
        "apiServerAddress and kubeadm certSANs), or set --tls-server-name to a name that does",
    )


_TLS_FIXES = (
    (r"has expired", "renew the API server's certificate, or set this host's clock"),
    (r"not yet valid", "set the clocks of this host and the server"),
    (
        r"[Hh]ostname mismatch|IP address mismatch|not valid for",
        "use a name that stands in the server's certificate, or set tls-server-name to one, in "
        "{where}",
    ),
    (
        r"self[- ]signed|local issuer|verify failed|unknown ca",
        "put the certificate authority of that cluster into certificate-authority-data in {where}; "
        "was the cluster built anew?",
    ),
    (r"wrong version number|record layer", "is it https? Correct the server in {where}"),
)


def _tls_fix(facts: WayFacts) -> str:
    for pattern, fix in _TLS_FIXES:
        if re.search(pattern, facts.error):
            return fix.format(where=facts.where)
    return f"check the server and the certificates in {facts.where}"


def _judge_server_certificate(facts: WayFacts, now: datetime) -> Iterable[Finding]:
    ends = facts.server_certificate
    if ends is not None and ends.warn_at <= now.timestamp():
        yield Finding(
            id=FindingId.SERVER_CERTIFICATE_EXPIRES,
            what=f"the API server's certificate ends {_when(ends, now)}",
            fix="renew it there (kubeadm: kubeadm certs renew apiserver; K3s: restart it)",
        )


def _judge_credential(facts: WayFacts, now: datetime) -> Iterable[Finding]:
    ends = facts.credential
    if ends is None or ends.warn_at > now.timestamp():
        return
    fix = f"put a new one into {facts.where}; federate takes it without a restart"
    if ends.at <= now.timestamp():
        yield Finding(
            id=FindingId.CREDENTIALS_EXPIRED,
            what=f"{ends.what} of {facts.where} ended {_when(ends, now)}",
            fix=fix,
        )
        return
    yield Finding(
        id=FindingId.CREDENTIALS_EXPIRE,
        what=f"{ends.what} of {facts.where} ends {_when(ends, now)}",
        fix=fix,
    )


def _when(ends: Ending, now: datetime) -> str:
    seconds = ends.at - now.timestamp()
    size, unit = (86400, "days") if abs(seconds) >= 2 * 86400 else (60, "minutes")
    span = f"{abs(seconds) // size:.0f} {unit}"
    return f"in {span}" if seconds > 0 else f"{span} ago"


def clock_offset(facts: WayFacts) -> timedelta | None:
    """Return how far the server's clock is ahead of ours, beyond what the reply's way explains."""
    if facts.server_time is None or facts.asked_at is None or facts.answered_at is None:
        return None
    # The header is cut to the second: the true time is up to a second later.
    if facts.server_time + timedelta(seconds=1) < facts.asked_at:
        return facts.server_time + timedelta(seconds=1) - facts.asked_at
    if facts.server_time > facts.answered_at:
        return facts.server_time - facts.answered_at
    return timedelta(0)


def judge_clock(facts: WayFacts) -> tuple[Finding, ...]:
    """Judge the server's clock against this host's."""
    offset = clock_offset(facts)
    if offset is None:
        return (
            Finding(
                id=FindingId.CLOCK_UNKNOWN,
                what="the server's clock could not be read"
                + (" through the proxy" if facts.proxy else ""),
                fix="compare `date -u` on both machines",
            ),
        )
    if abs(offset) <= CLOCK_TOLERANCE:
        return ()
    seconds = abs(offset).total_seconds()
    direction = "ahead of" if offset > timedelta(0) else "behind"
    return (
        Finding(
            id=FindingId.CLOCK_SKEW,
            what=f"the server's clock is {seconds:.0f} s {direction} this host's: "
            "tokens and certificates may be refused, ages look wrong",
            fix="run NTP on both machines (timedatectl set-ntp true)",
        ),
    )


_VERSION = re.compile(r"v?(\d+)\.(\d+)")


def parse_version(text: str) -> tuple[int, int] | None:
    """Read major and minor of `v1.34.4+k3s1`."""
    found = _VERSION.match(text)
    return (int(found[1]), int(found[2])) if found else None


def judge_target_version(version: str) -> tuple[Finding, ...]:
    """Judge a target by itself."""
    parsed = parse_version(version)
    if parsed is None:
        return (
            Finding(
                id=FindingId.VERSION_UNKNOWN,
                what=f"the target does not tell its version ({version or 'nothing'})",
                fix="let everybody read /version (ClusterRole system:public-info-viewer)",
            ),
        )
    if parsed >= OLDEST_TARGET:
        return ()
    oldest = ".".join(map(str, OLDEST_TARGET))
    return (
        Finding(
            id=FindingId.TARGET_TOO_OLD,
            what=f"the target is Kubernetes {version}: mirrors need scheduling gates",
            fix=f"upgrade the target to {oldest} or later",
        ),
    )


def judge_skew(*, hub: str, target: str) -> tuple[Finding, ...]:
    """Judge both versions together."""
    ours, theirs = parse_version(hub), parse_version(target)
    if ours is None or theirs is None or abs(ours[1] - theirs[1]) <= MOST_SKEW:
        return ()
    return (
        Finding(
            id=FindingId.VERSION_SKEW,
            what=f"hub {hub} and target {target} are {abs(ours[1] - theirs[1])} minors apart; "
            f"federate is tested with up to {MOST_SKEW}",
            fix="upgrade the older one; until then look out for FieldsDropped at pods",
        ),
    )


ANONYMOUS = "system:anonymous"


def judge_user(user: str, *, where: str) -> tuple[Finding, ...]:
    """Judge who the server takes us for; "" where it does not tell."""
    if user != ANONYMOUS:
        return ()
    return (
        Finding(
            id=FindingId.NOT_AUTHENTICATED,
            what=f"the server takes us for nobody ({ANONYMOUS}): {where} names no user with "
            "credentials",
            fix="put a token, client certificate or exec plugin into the kubeconfig's user",
        ),
    )
