"""NetworkPolicies of the hub that select a pod: told, or a reason to refuse it (C33). Pure.

federate carries no traffic, and the target enforces its own policies alone. A pod that a policy of
the hub isolates would run without that protection.
"""

from __future__ import annotations

from collections.abc import Iterable

from federate.companions.steps import Blocked
from federate.model.objects import JsonObject, key_of, labels_of
from federate.model.reasons import PodReason
from federate.services.selecting import policy_selects

MOST_NAMED = 3


def policies_of(hub_pod: JsonObject, policies: Iterable[JsonObject]) -> tuple[str, ...]:
    """Name the policies of the pod's namespace that select it, sorted."""
    labels = labels_of(hub_pod)
    return tuple(sorted(key_of(p).name for p in policies if policy_selects(p, labels)))


def policy_refusal(names: tuple[str, ...], *, target_name: str) -> Blocked | None:
    """Refuse a pod that these policies select; None where none does."""
    if not names:
        return None
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return Blocked(
        reason=PodReason.NETWORK_POLICY_NOT_ENFORCED,
        message=f"NetworkPolicy {', '.join(names[:MOST_NAMED])}{more} selects this pod and would "
        f"not be enforced in {target_name} (networkPolicies: refuse). Run the pod on a node of the "
        "hub, or ask the operator of the virtual node",
    )


def unknown_refusal(*, is_forbidden: bool) -> Blocked:
    """Have a pod wait until the policies are known."""
    why = (
        "the hub does not let federate read NetworkPolicies: see federate rbac --side hub"
        if is_forbidden
        else "the hub's NetworkPolicies are not read yet"
    )
    return Blocked(
        reason=PodReason.NETWORK_POLICIES_UNKNOWN,
        message=f"no pod that a NetworkPolicy selects may run here, and {why}",
    )


def warning_words(*, target_name: str) -> str:
    """Tell a policy."""
    return (
        f"this policy selects pods that run in {target_name}; it is not enforced there. The "
        "target's own NetworkPolicies are"
    )
