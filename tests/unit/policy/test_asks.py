"""Whatever a policy can say is shown on real clusters (e2e/test_policy.py)."""

from __future__ import annotations

from e2e.support.asks import ASKS, LISTS, NEVER_ASKED, everything
from federate.config.policy import PolicyPart, policy_rules
from federate.policy.rules import PolicyRules
from federate.policy.topics import TOPIC_OF
from federate.policy.verdict import refusals_of

TOLD_OTHERWISE = {"namespaces", "onRefusal", "daemonSets"}
"""Keys with tests of their own there."""

NOTHING = {"containers": [{"name": "main"}]}


def test_each_topic_has_its_case() -> None:
    """None can be added that no real API server was asked about."""
    assert set(ASKS) | NEVER_ASKED == set(TOPIC_OF)
    assert not set(ASKS) & NEVER_ASKED


def test_each_list_has_its_case() -> None:
    """Nor a list or a map."""
    keys = {field.alias for field in PolicyPart.model_fields.values()}
    assert set(LISTS) | TOLD_OTHERWISE | set(TOPIC_OF) == keys


def test_each_case_asks_for_its_topic() -> None:
    """And what a list lets pass is refused without it."""
    strict = rules(everything("refuse"))
    for key, ask in ASKS.items():
        assert (key, ask.path) in asked(ask.spec, strict), key
    for key, one in LISTS.items():
        if one.topic:
            listing = rules({**everything("refuse"), key: one.value})
            assert asked(one.other, listing) == {(one.topic, one.path)}, key
            assert asked(one.spec, strict)
            assert not asked(one.spec, listing), key


def rules(written: dict[str, object]) -> PolicyRules:
    return policy_rules(PolicyPart.model_validate(written))


def asked(spec: dict[str, object], policy: PolicyRules) -> set[tuple[str, str]]:
    hub_pod = {"metadata": {"namespace": "shop"}, "spec": {**NOTHING, **spec}}
    return {(violation.key, violation.spot.path) for violation in refusals_of(hub_pod, policy)}
