"""What of a target's resources its virtual node offers to the hub's scheduler. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from federate.policy.hostside import is_extended
from federate.policy.rules import Outcome, PolicyRules
from federate.policy.topics import DEVICES, TOPIC_OF


def offered(capacity: Mapping[str, str], rules: PolicyRules) -> Mapping[str, str]:
    """Leave out devices that pods are refused for: the scheduler would go on placing them there.

    Where asking for one is stripped the node offers it, else no such pod would ever come.
    """
    if TOPIC_OF[DEVICES].outcome(rules) is not Outcome.REFUSE:
        return capacity
    return {
        name: amount
        for name, amount in capacity.items()
        if not is_extended(name) or name in rules.devices
    }
