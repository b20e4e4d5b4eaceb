"""Addresses, Services, policies and DNS of a virtual node: what is written becomes rules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from federate.config.load import load
from federate.config.network import DnsPart, dns_rules
from federate.config.schema import virtual_node_findings
from federate.errors import ConfigError
from federate.services.dns import DnsPolicy, DnsRules, dns_problem
from federate.services.rules import AddressMode, FollowMode, NetworkPolicyMode, NetworkRules

FILE = """
apiVersion: federate.dev/v1alpha1
kind: Federation
virtualNodes:
- nodeName: edge
  target: {kubeconfig: edge.yaml}
"""


def rules(tmp_path: Path, more: str = "") -> NetworkRules:
    (tmp_path / "edge.yaml").write_text("")
    path = tmp_path / "federation.yaml"
    [target] = load(path, (FILE + more).encode()).targets()
    return target.network


def test_nothing_written_is_the_default(tmp_path: Path) -> None:
    """A file and a bare `--target` mean the same."""
    assert rules(tmp_path) == NetworkRules()


def test_everything_written_becomes_rules(tmp_path: Path) -> None:
    written = """
  addresses: hide
  services: labelled
  networkPolicies: refuse
  dns:
    policy: config
    nameservers: [10.0.0.53, "fd00::53"]
    searches: [corp.example.org, _tcp.example.org.]
    options: {ndots: "2", edns0: ""}
"""
    assert rules(tmp_path, written) == NetworkRules(
        addresses=AddressMode.HIDE,
        follow=FollowMode.LABELLED,
        network_policies=NetworkPolicyMode.REFUSE,
        dns=DnsRules(
            policy=DnsPolicy.CONFIG,
            nameservers=("10.0.0.53", "fd00::53"),
            searches=("corp.example.org", "_tcp.example.org."),
            options=(("ndots", "2"), ("edns0", "")),
        ),
    )


@pytest.mark.parametrize(
    "written",
    [
        {"policy": "hub"},
        {"nameservers": ["dns.example.org"]},
        {"searches": ["no domain"]},
        {"options": {"": "1"}},
        {"options": {"ndots": "a b"}},
        {"servers": []},
    ],
)
def test_what_is_none_is_refused(written: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        DnsPart.model_validate(written)


@pytest.mark.parametrize(
    ("written", "key", "words"),
    [
        ({"dns": {"policy": "config"}}, "nameservers", "policy config needs one"),
        ({"dns": {"nameservers": ["1.1.1.1"] * 4}}, "nameservers", "expected 3 at most"),
        ({"dns": {"searches": [f"d{n}" for n in range(33)]}}, "searches", "expected 32 at most"),
        ({"services": "all", "namespaces": {"strategy": "single"}}, "services", "would meet"),
        ({"services": "labelled", "namespaces": {"strategy": "single"}}, "services", "ignore"),
    ],
)
def test_what_does_not_go_together_is_told(written: dict[str, Any], key: str, words: str) -> None:
    [(loc, said)] = [f for f in virtual_node_findings(written) if f[0][0] != "namespaces"]
    assert loc[-1] == key
    assert words in said


@pytest.mark.parametrize(
    "written",
    [
        {"services": "ignore", "namespaces": {"strategy": "single"}},
        {"services": "all"},
        {"dns": {"nameservers": "nonsense", "searches": [1]}},
        {"dns": {"policy": "config", "nameservers": ["1.1.1.1"]}},
    ],
)
def test_what_goes_together_or_is_told_elsewhere_is_no_finding(written: dict[str, Any]) -> None:
    assert [f for f in virtual_node_findings(written) if f[0][0] in ("services", "dns")] == []


def test_whatever_the_file_takes_an_api_server_takes() -> None:
    part = DnsPart.model_validate(
        {"nameservers": ["1.1.1.1"], "searches": ["a.b", "c"], "options": {"use-vc": ""}}
    )
    assert dns_problem(dns_rules(part)) == ""


def test_services_and_a_single_namespace_do_not_go_together(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="services"):
        rules(tmp_path, "  services: all\n  namespaces: {strategy: single, single: hub}\n")
