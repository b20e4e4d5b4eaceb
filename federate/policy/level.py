"""Which PodSecurity level a namespace needs for what the policy lets run there. Pure.

The level is a second fence round the namespaces that federate makes, beside the policy itself. One
that is lower than needed would refuse what the policy allows.
"""

from __future__ import annotations

from enum import StrEnum

from federate.policy.rules import BASELINE_CAPABILITIES, BASELINE_SYSCTLS, Outcome, PolicyRules
from federate.policy.topics import TOPICS


class PodSecurityLevel(StrEnum):
    """What a namespace's `pod-security.kubernetes.io/enforce` says."""

    RESTRICTED = "restricted"
    BASELINE = "baseline"
    PRIVILEGED = "privileged"


def level_of(rules: PolicyRules) -> PodSecurityLevel:
    """Return the strictest level that admits all that the policy allows, of the upper two.

    `restricted` asks for fields that most pods lack: no default policy is that strict.
    """
    allows_more = any(
        topic.is_baseline and topic.outcome(rules) is Outcome.ALLOW for topic in TOPICS
    )
    lists_more = not (
        rules.capabilities <= BASELINE_CAPABILITIES and rules.sysctls <= BASELINE_SYSCTLS
    )
    return PodSecurityLevel.PRIVILEGED if allows_more or lists_more else PodSecurityLevel.BASELINE
