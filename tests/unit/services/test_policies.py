"""NetworkPolicies of the hub that select a pod."""

from __future__ import annotations

from federate.model.objects import JsonDict
from federate.model.reasons import PodReason
from federate.services.policies import (
    policies_of,
    policy_refusal,
    unknown_refusal,
    warning_words,
)


def policy(name: str, **labels: str) -> JsonDict:
    selector = {"matchLabels": labels} if labels else {}
    return {"metadata": {"name": name}, "spec": {"podSelector": selector}}


POD: JsonDict = {"metadata": {"labels": {"app": "web"}}}


def test_the_policies_that_select_a_pod_are_named() -> None:
    policies = [policy("web", app="web"), policy("all"), policy("db", app="db")]
    assert policies_of(POD, policies) == ("all", "web")
    assert policies_of({}, policies) == ("all",)


def test_a_refusal_names_them_and_says_what_to_do() -> None:
    refused = policy_refusal(("a", "b", "c", "d", "e"), target_name="edge-1")
    assert refused is not None
    assert refused.reason == PodReason.NETWORK_POLICY_NOT_ENFORCED
    assert "a, b, c and 2 more" in refused.message
    assert "edge-1" in refused.message
    assert policy_refusal((), target_name="edge-1") is None


def test_what_is_not_known_is_refused_with_the_reason() -> None:
    assert "federate rbac" in unknown_refusal(is_forbidden=True).message
    assert "not read yet" in unknown_refusal(is_forbidden=False).message


def test_a_policy_is_told_where_it_does_not_hold() -> None:
    assert "not enforced" in warning_words(target_name="edge-1")
