"""What the way to an API server tells: each broken leg with its fix, certificates, clocks, skew."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest

from federate.check.connection import (
    Leg,
    WayFacts,
    clock_offset,
    is_loopback,
    judge_clock,
    judge_skew,
    judge_target_version,
    judge_user,
    judge_way,
    parse_version,
)
from federate.check.findings import FindingId, Severity

NOW = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class Ends:
    at: float
    warn_at: float
    what: str = "client certificate"


def ends_in(days: float, *, notice_days: float = 7) -> Ends:
    at = NOW.timestamp() + days * 86400
    return Ends(at=at, warn_at=at - notice_days * 86400)


WAY = WayFacts(
    server="https://10.0.0.1:6443",
    host="10.0.0.1",
    port=6443,
    where="kubeconfig edge.yaml",
    server_time=NOW,
    asked_at=NOW,
    answered_at=NOW,
)


def ids(facts: WayFacts) -> list[FindingId]:
    return [finding.id for finding in judge_way(facts, now=NOW)]


def test_a_good_way_has_no_finding() -> None:
    facts = replace(WAY, server_certificate=ends_in(300), credential=ends_in(300))
    assert judge_way(facts, now=NOW) == ()


@pytest.mark.parametrize(
    ("leg", "expected"),
    [
        (Leg.DNS, FindingId.NAME_NOT_RESOLVED),
        (Leg.TCP, FindingId.CONNECTION_FAILED),
        (Leg.TLS, FindingId.TLS_FAILED),
        (Leg.HTTP, FindingId.NO_HTTP_ANSWER),
    ],
)
def test_a_broken_leg_is_a_failure_of_its_own(leg: Leg, expected: FindingId) -> None:
    facts = replace(WAY, failed=leg, error="it broke")
    [finding] = judge_way(facts, now=NOW)
    assert finding.id is expected
    assert finding.severity is Severity.FAIL
    assert "it broke" in finding.what
    assert finding.fix


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.8.8.8"])
def test_a_loopback_address_of_another_machine_is_explained(host: str) -> None:
    """kind and K3s write kubeconfigs that hold on their own machine alone."""
    facts = replace(WAY, host=host, failed=Leg.TCP, error="connection refused")
    refused, hint = judge_way(facts, now=NOW)
    assert refused.id is FindingId.CONNECTION_FAILED
    assert hint.id is FindingId.LOOPBACK_ADDRESS
    assert "K3s" in hint.what
    assert "set-cluster" in hint.fix


def test_something_else_may_listen_at_a_loopback_address() -> None:
    facts = replace(WAY, host="127.0.0.1", failed=Leg.TLS, error="self-signed certificate")
    assert ids(facts) == [FindingId.TLS_FAILED, FindingId.LOOPBACK_ADDRESS]


def test_a_loopback_address_that_answers_is_fine() -> None:
    assert ids(replace(WAY, host="127.0.0.1")) == []
    assert not is_loopback("10.0.0.1")
    assert not is_loopback("example.org")


def test_behind_a_proxy_no_address_is_ours() -> None:
    facts = replace(
        WAY, host="127.0.0.1", proxy="127.0.0.1:3128", failed=Leg.TCP, error="connection refused"
    )
    [finding] = judge_way(facts, now=NOW)
    assert "127.0.0.1:3128" in finding.what


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("certificate has expired", "renew the API server's certificate"),
        ("hostname mismatch, certificate is not valid for 'x'", "tls-server-name"),
        ("unable to get local issuer certificate", "certificate-authority-data"),
        ("self-signed certificate in certificate chain", "certificate-authority-data"),
        ("wrong version number", "is it https?"),
        ("certificate is not yet valid", "clocks"),
        ("something new", "check the server and the certificates"),
    ],
)
def test_what_tls_says_has_its_own_fix(error: str, words: str) -> None:
    [finding] = judge_way(replace(WAY, failed=Leg.TLS, error=error), now=NOW)
    assert words in finding.fix


def test_nobody_verified_is_a_warning() -> None:
    """Also without TLS at all; not where nothing was reached anyway."""
    assert ids(replace(WAY, is_verified=False)) == [FindingId.TLS_NOT_VERIFIED]
    assert ids(replace(WAY, is_encrypted=False, is_verified=False)) == [FindingId.TLS_NOT_VERIFIED]
    broken = replace(WAY, is_verified=False, failed=Leg.DNS, error="x")
    assert ids(broken) == [FindingId.NAME_NOT_RESOLVED]


def test_certificates_are_told_of_before_they_end() -> None:
    assert ids(replace(WAY, server_certificate=ends_in(3))) == [
        FindingId.SERVER_CERTIFICATE_EXPIRES
    ]
    [finding] = judge_way(replace(WAY, credential=ends_in(3)), now=NOW)
    assert finding.id is FindingId.CREDENTIALS_EXPIRE
    assert "client certificate of kubeconfig edge.yaml ends in 3 days" in finding.what


def test_ended_credentials_stop_work() -> None:
    [finding] = judge_way(replace(WAY, credential=ends_in(-0.01)), now=NOW)
    assert finding.id is FindingId.CREDENTIALS_EXPIRED
    assert finding.severity is Severity.FAIL
    assert "minutes ago" in finding.what


@pytest.mark.parametrize(
    ("server_seconds", "expected_seconds"),
    [(0, 0), (-1, 0), (1, 0), (30, 29), (-30, -29)],
)
def test_the_clock_is_compared_within_what_the_way_takes(
    server_seconds: int, expected_seconds: int
) -> None:
    """The reply took a second, and the header has no fractions."""
    facts = replace(
        WAY,
        server_time=NOW + timedelta(seconds=server_seconds),
        answered_at=NOW + timedelta(seconds=1),
    )
    assert clock_offset(facts) == timedelta(seconds=expected_seconds)


def test_a_wrong_clock_is_a_warning() -> None:
    assert judge_clock(WAY) == ()
    [finding] = judge_clock(replace(WAY, server_time=NOW + timedelta(minutes=5)))
    assert finding.id is FindingId.CLOCK_SKEW
    assert "300 s ahead of" in finding.what
    [finding] = judge_clock(replace(WAY, server_time=NOW - timedelta(minutes=5)))
    assert "behind" in finding.what


def test_a_clock_that_nobody_told_is_unknown() -> None:
    [finding] = judge_clock(replace(WAY, server_time=None, proxy="proxy:3128"))
    assert finding.id is FindingId.CLOCK_UNKNOWN
    assert finding.severity is Severity.NOTE
    assert "proxy" in finding.what


@pytest.mark.parametrize(
    ("version", "expected"),
    [("v1.34.4", (1, 34)), ("v1.30.2+k3s1", (1, 30)), ("1.27", (1, 27)), ("", None)],
)
def test_versions_are_read(version: str, expected: tuple[int, int] | None) -> None:
    assert parse_version(version) == expected


def test_an_old_target_cannot_be_used() -> None:
    assert judge_target_version("v1.27.0") == ()
    [finding] = judge_target_version("v1.26.9")
    assert finding.id is FindingId.TARGET_TOO_OLD
    assert "1.27" in finding.fix
    assert [f.id for f in judge_target_version("")] == [FindingId.VERSION_UNKNOWN]


def test_three_minors_apart_are_fine_in_both_directions() -> None:
    assert judge_skew(hub="v1.34.0", target="v1.31.0") == ()
    assert judge_skew(hub="v1.31.0", target="v1.34.0") == ()
    assert judge_skew(hub="v1.31.0", target="") == ()
    [finding] = judge_skew(hub="v1.30.0", target="v1.34.0")
    assert finding.id is FindingId.VERSION_SKEW


def test_nobody_is_not_a_user() -> None:
    assert judge_user("someone", where="x") == ()
    assert judge_user("", where="x") == ()
    assert [f.id for f in judge_user("system:anonymous", where="x")] == [
        FindingId.NOT_AUTHENTICATED
    ]
