"""What the rules of a target refuse of a pod, and what they change. Pure.

The product's own functions judge (`mirror.refusal`, `policy.verdict`, `claims.places`,
`services.policies`); the first refusal here is the one that the hub pod is told.
"""

from __future__ import annotations

from collections.abc import Iterator

from federate.claims.places import volume_refusals
from federate.explain.advice import advised
from federate.explain.facts import PodFacts, TargetRules, Unread, listed
from federate.explain.stations import Standing, Station, quoted
from federate.mirror.refusal import Refusal, refusal_of, unmapped_refusal
from federate.model.marks import record_of
from federate.model.naming import allows_system_namespaces, mirror_key
from federate.model.objects import JsonObject, key_of
from federate.model.reasons import PodReason
from federate.policy.verdict import NAMED, judge
from federate.services.policies import policies_of, policy_refusal, warning_words
from federate.services.rules import NetworkPolicyMode

_OF_THE_SPEC = (
    PodReason.POLICY_REFUSED,
    PodReason.CLAIM_REFUSED,
    PodReason.VOLUME_REFUSED,
    PodReason.COMPANION_MISSING,
)
"""Where one thing is refused, another may be, too; other reasons are about the pod as a whole."""


def rules_stations(facts: PodFacts, pod: JsonObject) -> Iterator[Station]:
    """Say what speaks against the pod, else what is another in the target."""
    rules = facts.rules
    if rules is None:
        yield Station(
            id="rules",
            standing=Standing.UNKNOWN,
            said=f"how {facts.node.name} is configured is not known here",
            todo="give --config FILE, the file of federate run",
        )
        return
    refused = list(refusals(facts, pod, rules))
    record = record_of(pod)
    has_mirror = record is not None and bool(record.mirror_uid)
    for refusal in refused:
        yield _refused(facts, refusal, has_mirror=has_mirror)
    if not refused:
        yield Station(id="rules", standing=Standing.OK, said=f"{rules.name} refuses nothing of it")
    yield from _notes(facts, pod, rules, is_refused=bool(refused))


def _refused(facts: PodFacts, refusal: Refusal, *, has_mirror: bool) -> Station:
    if has_mirror:
        return Station(
            id="rules",
            standing=Standing.NOTE,
            reason=refusal.reason,
            said=f"it has its mirror, and keeps it; made today it would be refused: "
            f"{quoted(refusal.message)}",
        )
    is_pretended = refusal.reason == PodReason.NOT_RUN_HERE
    return Station(
        id="rules",
        standing=Standing.NOTE if is_pretended else Standing.STOPPED,
        reason=refusal.reason,
        said=quoted(refusal.message),
        todo=advised(facts, refusal.reason),
    )


def refusals(facts: PodFacts, pod: JsonObject, rules: TargetRules) -> Iterator[Refusal]:
    """List what refuses the pod: first what the product says of it, then what else would."""
    key = mirror_key(rules.namespaces, rules.scope.hub_id, key_of(pod))
    if key is None:
        yield unmapped_refusal(rules.name, key_of(pod).namespace)
        return
    first = refusal_of(
        pod,
        mirror_key=key,
        rules=rules.render,
        target_name=rules.name,
        allow_system_namespaces=allows_system_namespaces(rules.namespaces),
    )
    if first is not None:
        yield first
    if first is None or first.reason in _OF_THE_SPEC:
        yield from (other for other in _others(facts, pod, rules) if other != first)


def _others(facts: PodFacts, pod: JsonObject, rules: TargetRules) -> Iterator[Refusal]:
    """List what of the spec is refused, one by one: a message names but the first few."""
    for violation in judge(pod, rules.policy).refused[NAMED:]:
        yield Refusal(reason=PodReason.POLICY_REFUSED, message=f"{rules.name} refuses {violation}")
    for blocked in volume_refusals(pod, rules.claims, target_name=rules.name):
        yield Refusal(reason=blocked.reason, message=blocked.message)
    if rules.network.network_policies is NetworkPolicyMode.REFUSE:
        names = policies_of(pod, listed(facts.policies))
        if isolated := policy_refusal(names, target_name=rules.name):
            yield Refusal(reason=isolated.reason, message=isolated.message)


def _notes(
    facts: PodFacts, pod: JsonObject, rules: TargetRules, *, is_refused: bool
) -> Iterator[Station]:
    if not is_refused:
        for note in judge(pod, rules.policy).notes:
            yield Station(id="rules", standing=Standing.NOTE, said=quoted(note))
    mode = rules.network.network_policies
    if mode is NetworkPolicyMode.IGNORE:
        return
    if isinstance(facts.policies, Unread):
        yield Station(
            id="rules",
            standing=Standing.UNKNOWN,
            said=f"NetworkPolicies of the hub: {facts.policies.why}",
        )
    elif mode is NetworkPolicyMode.WARN and (names := policies_of(pod, facts.policies)):
        yield Station(
            id="rules",
            standing=Standing.NOTE,
            said=f"NetworkPolicy {', '.join(names)}: {warning_words(target_name=rules.name)}",
        )
