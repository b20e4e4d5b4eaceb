"""Every reason that a pod may wait for has an advice, in one place."""

from __future__ import annotations

import pytest

from federate.explain.advice import ADVICE, CONTAINER_ADVICE, advice_for, container_advice
from federate.model.reasons import PodReason


@pytest.mark.parametrize(
    "reason", [*PodReason, "NetworkPolicyNotEnforced", "NetworkPoliciesUnknown"]
)
def test_every_reason_of_a_pod_has_an_advice(reason: str) -> None:
    told = advice_for(reason, target="edge", node="edge-node", place="there")
    assert told
    assert "{" not in told


def test_names_are_filled_in() -> None:
    assert "annotate node edge-node" in advice_for("Uninstalled", target="edge", node="edge-node")
    assert container_advice("CrashLoopBackOff", target="edge", pod="-n shop web-0") == (
        "kubectl logs -n shop web-0 --previous"
    )


def test_what_is_not_known_has_none() -> None:
    """Braces in what somebody else calls his reason are not filled in."""
    assert advice_for("{pod.__class__}", target="edge") == ""
    assert container_advice("Somehow", target="edge", pod="") == ""


def test_no_text_lacks_a_name() -> None:
    for text in (*ADVICE.values(), *CONTAINER_ADVICE.values()):
        text.format(target="t", node="n", pod="p", place="s")
