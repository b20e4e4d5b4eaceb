"""The PodSecurity level of the namespaces that federate makes."""

from __future__ import annotations

import pytest

from federate.policy.level import PodSecurityLevel, level_of
from federate.policy.rules import Outcome, PolicyRules
from federate.policy.topics import TOPICS, Topic


@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic.key)
@pytest.mark.parametrize("outcome", Outcome)
def test_c22_the_level_admits_what_the_policy_allows(topic: Topic, outcome: Outcome) -> None:
    """It is the upper one as soon as one thing is allowed that `baseline` refuses."""
    opens = outcome is Outcome.ALLOW and topic.is_baseline
    expected = PodSecurityLevel.PRIVILEGED if opens else PodSecurityLevel.BASELINE
    assert level_of(PolicyRules(outcomes={topic.key: outcome})) is expected


@pytest.mark.parametrize(
    ("rules", "level"),
    [
        (PolicyRules(), "baseline"),
        (PolicyRules(capabilities=frozenset({"CHOWN"})), "baseline"),
        (PolicyRules(capabilities=frozenset({"SYS_PTRACE"})), "privileged"),
        (PolicyRules(sysctls=frozenset()), "baseline"),
        (PolicyRules(sysctls=frozenset({"kernel.msgmax"})), "privileged"),
    ],
)
def test_c22_lists_count_too(rules: PolicyRules, level: str) -> None:
    """A capability or setting of the operator's own needs the upper level."""
    assert level_of(rules) == level
