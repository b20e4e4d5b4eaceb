"""Names of the hub's API server lead there, and not to the target's."""

from __future__ import annotations

from typing import Any

import pytest

from federate.companions.environment import Advertised
from federate.model.objects import JsonDict, copied
from federate.services.hubnames import (
    UNLED,
    USUAL_DOMAIN,
    HubApi,
    Straight,
    ThroughDoor,
    Way,
    api_names,
    domain_by,
    way_to,
    with_hub_names,
)

HERE = HubApi("192.0.2.1")
EVERYWHERE = [
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
]


def names_of(spec: JsonDict, namespace: str = "shop", api: HubApi = HERE) -> JsonDict:
    """Return which name leads where, as a resolver reads the file: the first counts."""
    led: dict[str, str] = {}
    for alias in with_hub_names(spec, namespace, api).get("hostAliases") or ():
        for name in alias["hostnames"]:
            led.setdefault(name, alias["ip"])
    return led


@pytest.mark.parametrize(
    ("host", "port", "way"),
    [
        ("192.0.2.1", 443, Straight(address="192.0.2.1")),
        ("fd00::5", 443, Straight(address="fd00::5")),
        ("192.0.2.1", 6443, ThroughDoor(host="192.0.2.1", port=6443)),
        ("hub.example.org", 443, ThroughDoor(host="hub.example.org", port=443)),
        ("hub.example.org", 6443, ThroughDoor(host="hub.example.org", port=6443)),
    ],
)
def test_only_an_address_at_the_port_that_is_dialled_needs_no_service(
    host: str, port: int, way: Way
) -> None:
    assert way_to(Advertised(host=host, port=port)) == way


@pytest.mark.parametrize(
    "host",
    [
        *("kubernetes", "kubernetes.default", "kubernetes.default.svc", "Kubernetes.default.SVC."),
        "kubernetes.default.svc.cluster.local",
    ],
)
def test_a_name_that_is_advertised_itself_is_the_targets_own(host: str) -> None:
    """Hub and target are one cluster: its DNS leads there."""
    assert way_to(Advertised(host=host, port=443)) is None
    assert way_to(Advertised(host=f"{host.rstrip('.')}-example", port=443)) is not None


def test_every_name_that_the_hub_would_answer_leads_there() -> None:
    assert names_of({}) == dict.fromkeys(EVERYWHERE, "192.0.2.1")


def test_pods_of_the_namespace_default_know_it_by_its_short_name_too() -> None:
    assert names_of({}, "default") == dict.fromkeys(["kubernetes", *EVERYWHERE], "192.0.2.1")


def test_the_domain_of_the_hub_is_known_beside_the_usual_one() -> None:
    found = names_of({}, api=HubApi("192.0.2.1", "corp.example"))
    assert found == dict.fromkeys([*EVERYWHERE, "kubernetes.default.svc.corp.example"], "192.0.2.1")


def test_names_that_lead_nowhere_are_left_to_the_dns() -> None:
    assert with_hub_names({"hostAliases": []}, "shop", UNLED) == {"hostAliases": []}


@pytest.mark.parametrize("spec", [{"hostNetwork": True}, {"dnsPolicy": "Default"}, {}])
def test_whichever_dns_or_network_a_pod_has_its_file_has_the_names(spec: JsonDict) -> None:
    assert set(names_of(spec)) == set(EVERYWHERE)


@pytest.mark.parametrize(
    "spec", [{"os": {"name": "windows"}}, {"nodeSelector": {"kubernetes.io/os": "windows"}}]
)
def test_windows_has_no_such_file(spec: JsonDict) -> None:
    assert with_hub_names(spec, "shop", HERE) == spec


def test_a_name_that_the_user_leads_somewhere_stays_his() -> None:
    own = {"ip": "203.0.113.9", "hostnames": ["db", "kubernetes.default.svc"]}
    found = names_of({"hostAliases": [own]})
    assert found.pop("kubernetes.default.svc") == "203.0.113.9"
    assert found.pop("db") == "203.0.113.9"
    assert found == dict.fromkeys([EVERYWHERE[0], EVERYWHERE[2]], "192.0.2.1")
    all_own = {"hostAliases": [{"ip": "203.0.113.9", "hostnames": EVERYWHERE}]}
    assert with_hub_names(all_own, "shop", HERE) == all_own


def test_an_address_has_one_entry_and_nothing_given_is_changed() -> None:
    spec: dict[str, Any] = {"hostAliases": [{"ip": "192.0.2.1", "hostnames": ["db"]}]}
    before = copied(spec)
    led = with_hub_names(spec, "shop", HERE)
    assert led["hostAliases"] == [{"ip": "192.0.2.1", "hostnames": ["db", *EVERYWHERE]}]
    assert spec == before
    assert with_hub_names(led, "shop", HERE) == led


@pytest.mark.parametrize(
    ("issuer", "domain"),
    [
        ("https://kubernetes.default.svc.cluster.local", "cluster.local"),
        ("https://kubernetes.default.svc.corp.example", "corp.example"),
        ("https://kubernetes.default.svc.corp.example:443/", "corp.example"),
        ("https://kubernetes.default.svc", USUAL_DOMAIN),
        ("https://oidc.example.org/id/abc", USUAL_DOMAIN),
        ("https://kubernetes.default.svc.-", USUAL_DOMAIN),
        ("https://[kubernetes", USUAL_DOMAIN),
        ("", USUAL_DOMAIN),
    ],
)
def test_the_issuer_of_tokens_tells_the_domain(issuer: str, domain: str) -> None:
    assert domain_by(issuer) == domain


def test_no_name_comes_twice() -> None:
    assert list(api_names("shop", USUAL_DOMAIN)) == EVERYWHERE
