"""Which DNS mirrors ask: added to the target's, or in its place."""

from __future__ import annotations

import pytest

from federate.services.dns import (
    MOST_SEARCHES,
    SEARCHES_LENGTH,
    DnsPolicy,
    DnsRules,
    dns_problem,
    with_dns,
)

ADDED = DnsRules(
    nameservers=("10.0.0.53",), searches=("corp.example",), options=(("ndots", "2"), ("edns0", ""))
)


def test_rules_come_on_top_of_the_targets_own_dns() -> None:
    told = with_dns({"dnsPolicy": "ClusterFirst", "containers": []}, ADDED)
    assert told["dnsPolicy"] == "ClusterFirst"
    assert told["dnsConfig"] == {
        "nameservers": ["10.0.0.53"],
        "searches": ["corp.example"],
        "options": [{"name": "ndots", "value": "2"}, {"name": "edns0"}],
    }
    assert with_dns(told, ADDED) == told


def test_rules_may_take_its_place() -> None:
    rules = DnsRules(policy=DnsPolicy.CONFIG, nameservers=("10.0.0.53",))
    told = with_dns({}, rules)
    assert told == {"dnsPolicy": "None", "dnsConfig": {"nameservers": ["10.0.0.53"]}}
    assert with_dns(told, rules) == told


def test_what_a_pod_says_itself_stays_and_comes_first() -> None:
    own = {
        "nameservers": ["1.1.1.1", "1.0.0.1", "9.9.9.9"],
        "searches": ["mine"],
        "options": [{"name": "ndots", "value": "5"}],
    }
    told = with_dns({"dnsConfig": own}, ADDED)["dnsConfig"]
    assert told["nameservers"] == own["nameservers"]
    assert told["searches"] == ["mine", "corp.example"]
    assert told["options"] == [{"name": "ndots", "value": "5"}, {"name": "edns0"}]


@pytest.mark.parametrize(
    "spec",
    [
        {"dnsPolicy": "Default"},
        {"dnsPolicy": "None", "dnsConfig": {"nameservers": ["1.1.1.1"]}},
        {"dnsPolicy": "ClusterFirst", "hostNetwork": True},
    ],
)
def test_pods_that_chose_otherwise_are_left_alone(spec: dict[str, object]) -> None:
    assert with_dns(spec, ADDED) == spec


def test_without_rules_nothing_is_said() -> None:
    assert not DnsRules().say_anything
    assert with_dns({"dnsPolicy": "ClusterFirst"}, DnsRules()) == {"dnsPolicy": "ClusterFirst"}


def test_more_searches_than_an_api_server_takes_are_left_out() -> None:
    many = [f"d{n}.example" for n in range(MOST_SEARCHES)]
    told = with_dns({"dnsConfig": {"searches": many}}, ADDED)["dnsConfig"]
    assert told["searches"] == many
    long = [f"{'x' * 60}{n}.example" for n in range(MOST_SEARCHES - 1)]
    kept = with_dns({"dnsConfig": {"searches": long}}, ADDED)["dnsConfig"]["searches"]
    assert len(" ".join(kept)) <= SEARCHES_LENGTH
    assert kept == long[: len(kept)]


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        (DnsRules(nameservers=("dns.example",)), "no IP address"),
        (DnsRules(nameservers=("1.1.1.1", "1.0.0.1", "9.9.9.9", "::1")), "3 nameservers"),
        (DnsRules(policy=DnsPolicy.CONFIG), "at least one nameserver"),
        (DnsRules(searches=("no domain",)), "no name of a domain"),
        (DnsRules(searches=tuple(f"a{n}" for n in range(MOST_SEARCHES + 1))), "32 search"),
        (DnsRules(options=(("", "1"),)), "needs a name"),
    ],
)
def test_what_no_api_server_takes_is_told(rules: DnsRules, words: str) -> None:
    assert words in dns_problem(rules)


def test_good_rules_have_no_problem() -> None:
    assert dns_problem(ADDED) == dns_problem(DnsRules()) == ""
    assert (
        dns_problem(DnsRules(searches=("_tcp.corp.example.", "a"), nameservers=("fd00::1",))) == ""
    )
