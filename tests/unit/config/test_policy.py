"""The policy part of the file: every topic is a key, and what is written becomes rules."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from federate.config.policy import PolicyPart, policy_rules
from federate.config.schema import virtual_node_findings
from federate.policy.rules import (
    DaemonSetMode,
    ImageRewrite,
    OnRefusal,
    Outcome,
    PolicyRules,
)
from federate.policy.topics import TOPICS

PAGE = (Path(__file__).parents[3] / "docs" / "policy.md").read_text(encoding="utf-8")


def read(written: dict[str, Any]) -> PolicyRules:
    return policy_rules(PolicyPart.model_validate(written))


def test_every_topic_is_a_key_with_its_default() -> None:
    """Whoever adds a topic adds its key."""
    fields = {field.alias: field for field in PolicyPart.model_fields.values()}
    for topic in TOPICS:
        assert fields[topic.key].default is topic.default, topic.key
        for outcome in Outcome:
            rules = read({topic.key: str(outcome)})
            assert topic.outcome(rules) is outcome
            assert all(t.outcome(rules) is t.default for t in TOPICS if t is not topic)


def test_nothing_written_is_the_default_policy() -> None:
    """A file and a bare `--target` mean the same."""
    assert read({}) == PolicyRules()


def test_everything_written_becomes_rules() -> None:
    """Lists, maps and words."""
    rules = read(
        {
            "allowedCapabilities": ["CHOWN"],
            "allowedSysctls": ["kernel.msgmax"],
            "allowedDevices": ["nvidia.com/gpu"],
            "allowedTolerations": ["example.com/", "gpu"],
            "runtimeClasses": {"gvisor": "runsc"},
            "priorityClasses": {"gold": "high"},
            "schedulers": {"default-scheduler": "kueue"},
            "nodeKeys": {"acme.com/pool": "cloud.example/pool"},
            "images": [{"from": "docker.io", "to": "edge:5000/docker"}],
            "deniedLabels": ["sidecar.istio.io/"],
            "deniedAnnotations": ["note"],
            "allowedMetadata": ["spiffe.io/", "istio.io/rev"],
            "namespaces": ["team-*", "web"],
            "onRefusal": "fail",
            "daemonSets": "pretend",
        }
    )
    assert rules.capabilities == {"CHOWN"}
    assert rules.sysctls == {"kernel.msgmax"}
    assert rules.devices == {"nvidia.com/gpu"}
    assert rules.toleration_keys == ("example.com/", "gpu")
    assert rules.runtime_classes == {"gvisor": "runsc"}
    assert rules.priority_classes == {"gold": "high"}
    assert rules.schedulers == {"default-scheduler": "kueue"}
    assert rules.node_keys["acme.com/pool"] == "cloud.example/pool"
    assert rules.node_keys["kubernetes.io/os"] == "kubernetes.io/os"
    assert rules.images == (ImageRewrite(before="docker.io", after="edge:5000/docker"),)
    assert rules.denied_labels == ("sidecar.istio.io/",)
    assert rules.denied_annotations == ("note",)
    assert rules.allowed_metadata == ("spiffe.io/", "istio.io/rev")
    assert rules.namespaces == ("team-*", "web")
    assert rules.on_refusal is OnRefusal.FAIL
    assert rules.daemon_sets is DaemonSetMode.PRETEND


@pytest.mark.parametrize(
    "written",
    [
        {"hostPath": "forbid"},
        {"hostPath": True},
        {"hostpath": "allow"},
        {"allowedCapabilities": "CHOWN"},
        {"allowedCapabilities": ["two words"]},
        {"allowedDevices": ["no/such/key"]},
        {"deniedLabels": ["a b"]},
        {"deniedLabels": ["/"]},
        {"allowedMetadata": ["*"]},
        {"namespaces": ["Team"]},
        {"namespaces": ["team-*/x"]},
        {"images": [{"from": "nginx", "to": "edge:5000"}]},
        {"images": [{"from": "docker.io", "to": "https://edge"}]},
        {"images": [{"from": "docker.io"}]},
        {"priorityClasses": {"Gold": "high"}},
        {"nodeKeys": {"a": 1}},
        {"onRefusal": "failed"},
        {"daemonSets": "ready"},
    ],
)
def test_what_makes_no_sense_is_told(written: dict[str, Any]) -> None:
    """Before anything runs by it."""
    with pytest.raises(ValidationError):
        PolicyPart.model_validate(written)


def test_rules_that_cannot_be_kept_together_are_told() -> None:
    """With their place in the file."""
    policy = {"hostProcess": "allow", "hostNetwork": "strip", "nodeKeys": {"a": "x", "b": "x"}}
    found = [loc for loc, _ in virtual_node_findings({"policy": policy})]
    assert found == [("policy", "hostProcess"), ("policy", "nodeKeys", "b")]


def test_the_page_tells_every_key() -> None:
    """docs/policy.md is the one reference of them all."""
    for field in PolicyPart.model_fields.values():
        assert re.search(rf"`(policy\.)?{field.alias}(: [^`]*)?`", PAGE), field.alias


def test_the_pages_example_is_a_policy() -> None:
    """Who copies it has a file that is taken."""
    (example,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    [node] = yaml.safe_load(example)["virtualNodes"]
    PolicyPart.model_validate(node["policy"])
    assert list(virtual_node_findings(node)) == []
