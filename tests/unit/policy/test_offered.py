"""What the virtual node offers follows what its target's policy lets pods have."""

from __future__ import annotations

import pytest

from federate.policy.offered import offered
from federate.policy.rules import Outcome, PolicyRules

CAPACITY = {"cpu": "4", "pods": "9", "hugepages-2Mi": "1Gi", "amd.com/gpu": "1", "x.io/tpu": "2"}


@pytest.mark.parametrize(
    ("outcome", "left_out"),
    [
        (Outcome.ALLOW, set()),
        (Outcome.STRIP, set()),
        (Outcome.REFUSE, {"x.io/tpu"}),
    ],
)
def test_refused_devices_are_not_offered(outcome: Outcome, left_out: set[str]) -> None:
    """Those on the list are, and whatever every node has; who strips them lets their pods come."""
    rules = PolicyRules(outcomes={"devices": outcome}, devices=frozenset({"amd.com/gpu"}))
    assert CAPACITY.keys() - offered(CAPACITY, rules).keys() == left_out
    assert offered(CAPACITY, rules).items() <= CAPACITY.items()


def test_all_devices_are_offered_by_default() -> None:
    """Nobody asked for less."""
    assert offered(CAPACITY, PolicyRules()) == CAPACITY
