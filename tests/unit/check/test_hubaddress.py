"""The hub's address as pods use it: reached, and believed (C31)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from federate.check.connection import Leg, WayFacts
from federate.check.findings import FindingId, Severity
from federate.check.hubaddress import API_NAME, judge_hub_address, judge_hub_names, place_of
from federate.check.legs import walk
from federate.check.readers import AUTHORITIES, read_access_of_pods
from federate.companions.environment import Advertised
from federate.model.resources import CONFIGMAPS
from tests.support.clock import ManualClock
from tests.support.credentials import Authority, server_of
from tests.support.fakecluster import FakeCluster


def facts(host: str = "hub.example.com", failed: Leg | None = None) -> WayFacts:
    place = place_of(Advertised(host=host, port=6443))
    return WayFacts(
        server=f"https://{place}",
        host=host,
        port=6443,
        where="the configuration",
        failed=failed,
        error="it is so",
    )


@pytest.mark.parametrize("failed", [None, *Leg])
def test_each_leg_has_its_finding(failed: Leg | None) -> None:
    """A name that nobody resolves here may resolve there; a certificate is the same everywhere."""
    found = judge_hub_address(facts(failed=failed), target_name="edge")
    expected = {
        None: [],
        Leg.TLS: [FindingId.HUB_ADDRESS_NOT_BELIEVED],
    }.get(failed, [FindingId.HUB_ADDRESS_UNREACHABLE])
    assert [one.id for one in found] == expected
    assert all(one.severity is Severity.WARN and "edge" in one.what for one in found)


def test_a_loopback_address_is_the_pod_itself() -> None:
    """Though something answers there."""
    for host in ("127.0.0.1", "::1", "localhost"):
        (found,) = judge_hub_address(facts(host), target_name="edge")
        assert found.id is FindingId.HUB_ADDRESS_UNREACHABLE
        assert "the pod itself" in found.what
    assert "[::1]:6443" in judge_hub_address(facts("::1"), target_name="edge")[0].what


def hub_with(authorities: str | None) -> FakeCluster:
    hub = FakeCluster("hub", ManualClock())
    if authorities is not None:
        metadata = {"namespace": AUTHORITIES.namespace, "name": AUTHORITIES.name}
        hub.add(CONFIGMAPS, {"metadata": metadata, "data": {"ca.crt": authorities}})
    return hub


@pytest.mark.parametrize("authorities", [None, "", "no certificate", "-----BEGIN CERTIFICATE-----"])
async def test_without_an_authority_pods_believe_nobody(authorities: str | None) -> None:
    """Not even those that this host believes."""
    hub = hub_with(authorities)
    advertised = Advertised(host="hub", port=6443)
    assert await read_access_of_pods(hub.client(), advertised) is None


async def test_what_pods_believe_is_what_the_hub_tells_them(tmp_path: Path) -> None:
    """Another authority, or a name that is not in the certificate, breaks TLS."""
    authority = Authority()
    async with server_of(authority, tmp_path) as server:
        port = int(server.rpartition(":")[2])

        async def failed(host: str, authorities: bytes) -> Leg | None:
            hub = hub_with(authorities.decode())
            access = await read_access_of_pods(hub.client(), Advertised(host=host, port=port))
            assert access is not None and not access.headers
            return (await walk(access, where="the configuration")).failed

        host = server.removeprefix("https://").rpartition(":")[0]
        assert await failed(host, authority.ca.pem) is None
        assert await failed("localhost", authority.ca.pem) is Leg.TLS
        assert await failed(host, Authority().ca.pem) is Leg.TLS


@pytest.mark.parametrize("failed", [None, *Leg])
def test_only_a_certificate_speaks_against_the_names(failed: Leg | None) -> None:
    """Where nothing answers, the address was told of already."""
    found = judge_hub_names(facts(failed=failed), target_name="edge")
    assert [one.id for one in found] == (
        [FindingId.HUB_NAMES_NOT_BELIEVED] if failed is Leg.TLS else []
    )
    for one in found:
        assert one.severity is Severity.WARN
        assert "edge" in one.what
        assert "kubernetes.default.svc" in one.fix


async def test_a_certificate_without_the_names_is_found_out(tmp_path: Path) -> None:
    """Whoever dials the address believes it, whoever dials a name does not."""
    authority = Authority()
    async with server_of(authority, tmp_path) as server:
        host, _, port = server.removeprefix("https://").rpartition(":")
        hub = hub_with(authority.ca.pem.decode())
        access = await read_access_of_pods(hub.client(), Advertised(host=host, port=int(port)))
        assert access is not None
        assert (await walk(access, where="the configuration")).failed is None
        named = await walk(replace(access, server_hostname=API_NAME), where="the configuration")
        assert judge_hub_names(named, target_name="edge")
