"""What a pod needs beside itself: ConfigMaps and Secrets, and storage. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from federate.claims.holding import verdict_of_name
from federate.claims.steps import GiveUp, Rest
from federate.claims.steps import Standing as ClaimStanding
from federate.claims.words import latest_warning, latest_words
from federate.companions.keys import CompanionKey, companion_of, name_of
from federate.companions.steps import Blocked
from federate.explain.advice import advised
from federate.explain.facts import (
    Brought,
    ClaimFacts,
    PodFacts,
    TargetRules,
    Unread,
    is_ready,
    listed,
    seen,
)
from federate.explain.stations import Standing, Station, quoted
from federate.model.marks import record_of
from federate.model.objects import JsonObject, ObjectKey, condition_of, is_terminating
from federate.model.reasons import PodReason
from federate.status.project import MIRRORED

_WHY_NOT_THERE = (
    PodReason.COMPANION_UNREADABLE,
    PodReason.COMPANION_TOO_LARGE,
    PodReason.COMPANION_REFUSED,
)

# -- ConfigMaps and Secrets ------------------------------------------------------------------------


def companion_stations(facts: PodFacts, pod: JsonObject) -> Iterator[Station]:
    """Say of each that is not as it ought to be what it lacks; the rest in one line."""
    rules = facts.rules
    if rules is None or rules.render.scope is None:
        return
    record = record_of(pod)
    has_mirror = record is not None and bool(record.mirror_uid)
    told = [
        station
        for brought in facts.brought
        if (station := _companion(facts, rules, brought, has_mirror=has_mirror)) is not None
    ]
    yield from told
    well = len(facts.brought) - len(told)
    if not facts.brought:
        yield Station(
            id="companions", standing=Standing.OK, said="it names no ConfigMap and no Secret"
        )
    elif well:
        yield Station(
            id="companions",
            standing=Standing.OK,
            said=f"{well} of {len(facts.brought)} ConfigMaps and Secrets are in {rules.name}",
        )


def _companion(
    facts: PodFacts, rules: TargetRules, brought: Brought, *, has_mirror: bool
) -> Station | None:
    """Return None where all is well."""
    key, there = brought.key, brought.target
    if isinstance(brought.hub, Unread):
        return _unknown(f"{key} of the hub: {brought.hub.why}")
    if brought.is_shared:
        return None
    if brought.hub is None:
        return _not_on_hub(facts, brought, rules)
    why = there.why if isinstance(there, Unread) else facts.target.trouble
    if why or isinstance(there, Unread):
        return _unknown(f"{key}: is it in {rules.name}? {why}")
    return _in_target(facts, rules, key, there, has_mirror=has_mirror)


def _in_target(
    facts: PodFacts,
    rules: TargetRules,
    key: CompanionKey,
    there: JsonObject | None,
    *,
    has_mirror: bool,
) -> Station | None:
    place = name_of(rules.scope, key)
    if there is None and _is_told(facts):
        said = f"{key} is not in {rules.name} (there it is {place}); why is told below"
        return Station(id="companions", standing=Standing.WAITING, said=said)
    if there is None:
        return _lacking(
            facts,
            Standing.STOPPED if has_mirror else Standing.WAITING,
            PodReason.COMPANION_COMING,
            f"{key} is not in {rules.name} yet (there it is {place})",
        )
    if companion_of(rules.scope, there) != key:
        return _lacking(
            facts,
            Standing.STOPPED,
            PodReason.NAME_TAKEN,
            f"{key.kind} {place} of {rules.name} has the name of what stands for {key}, but not "
            "federate's marks: it stays untouched. Remove or rename it there",
        )
    if is_terminating(there):
        return _lacking(
            facts,
            Standing.WAITING,
            PodReason.COMPANION_ENDING,
            f"what stands for {key} in {rules.name} ({place}) is being deleted there",
        )
    return None


def _is_told(facts: PodFacts) -> bool:
    """Tell whether the pod waits for a companion, and federate said why it does not come."""
    told = condition_of(seen(facts.hub_pod) or {}, MIRRORED) or {}
    return told.get("status") == "False" and told.get("reason") in _WHY_NOT_THERE


def _lacking(facts: PodFacts, standing: Standing, reason: str, said: str) -> Station:
    todo = advised(facts, reason)
    return Station(id="companions", standing=standing, reason=reason, said=said, todo=todo)


def _not_on_hub(facts: PodFacts, brought: Brought, rules: TargetRules) -> Station:
    key = brought.key
    if brought.is_optional:
        return Station(
            id="companions",
            standing=Standing.NOTE,
            said=f"{key} is not on the hub; the pod does without (it is optional), and it comes "
            "when it is made",
        )
    todo = f"make {key} on the hub; it comes to {rules.name} by itself"
    if is_ready(seen(facts.hub_pod) or {}):
        return Station(
            id="companions",
            standing=Standing.NOTE,
            said=f"{key} is not on the hub: what runs goes on, and would not start again",
            todo=todo,
        )
    return Station(
        id="companions",
        standing=Standing.STOPPED,
        said=f"{key} is not on the hub: containers that need it wait, as on a node of the hub",
        todo=todo,
    )


def _unknown(said: str, *, station: str = "companions") -> Station:
    return Station(id=station, standing=Standing.UNKNOWN, said=said)


# -- storage ---------------------------------------------------------------------------------------


def claim_stations(facts: PodFacts, pod: JsonObject) -> Iterator[Station]:
    """Say how each claim of the pod stands, at both ends."""
    record = record_of(pod)
    is_new = record is None or not record.mirror_uid
    for claim in facts.claims:
        yield _claim(facts, claim, is_new=is_new)


def _claim(facts: PodFacts, claim: ClaimFacts, *, is_new: bool) -> Station:
    target = facts.rules.name if facts.rules is not None else facts.node.name
    if isinstance(claim.claim, Unread):
        return _unknown(f"{claim.use}: {claim.claim.why}", station="claims")
    blocked = verdict_of_name(claim.use, claim.claim, is_new=is_new)
    if blocked is not None:
        return _blocked(facts, claim, blocked, _hub_words(claim))
    return _planned(facts, claim, target)


def _planned(facts: PodFacts, claim: ClaimFacts, target: str) -> Station:
    step = claim.step
    match step:
        case None:
            said = f"{claim.use}: the hub has it, {_phase(seen(claim.claim))}{_hub_words(claim)}"
            return Station(id="claims", standing=Standing.NOTE, said=said)
        case Unread():
            return _unknown(f"{claim.use}: {step.why}", station="claims")
        case GiveUp():
            return _blocked(facts, claim, step.blocked, "")
        case Rest():
            return _rested(facts, claim, step, target)
    return Station(
        id="claims",
        standing=Standing.WAITING,
        said=f"{claim.use}: on its way, next: {step.reason}{_hub_words(claim)}",
    )


def _rested(facts: PodFacts, claim: ClaimFacts, rest: Rest, target: str) -> Station:
    if rest.blocked is not None:
        return _blocked(facts, claim, rest.blocked, _hub_words(claim))
    if rest.standing is not ClaimStanding.SETTLED or rest.handle is None:
        return Station(id="claims", standing=Standing.WAITING, said=f"{claim.use}: {rest.reason}")
    if rest.is_bound_there:
        return Station(
            id="claims",
            standing=Standing.OK,
            said=f"{claim.use} is bound: its data is in claim {rest.handle.key} of {target}",
        )
    key, events = rest.handle.key, listed(claim.target_events)
    warning, words = latest_warning(events), quoted(latest_words(events))
    said = f"{claim.use} has no storage in {target} yet (claim {key} is Pending there)"
    return Station(
        id="claims",
        standing=Standing.STOPPED if warning else Standing.WAITING,
        reason=PodReason.CLAIM_PENDING,
        said=f"{said}; {target} says: {words}" if words else said,
        todo=("" if warning else "nothing where it is new; else ")
        + f"see storage class and provisioner. In {target}: {_describe(key)}",
    )


def _blocked(facts: PodFacts, claim: ClaimFacts, blocked: Blocked, also: str) -> Station:
    todo = advised(facts, blocked.reason)
    if claim.claim is None:
        todo = f"make {claim.use} on the hub"
    elif blocked.reason == PodReason.CLAIM_PENDING:
        todo = f"see its Events: {_describe(claim.use.claim)}"
    return Station(
        id="claims",
        standing=Standing.STOPPED,
        reason=blocked.reason,
        said=quoted(blocked.message) + also,
        todo=todo,
    )


def _describe(claim: ObjectKey) -> str:
    return f"kubectl -n {claim.namespace} describe pvc {claim.name}"


def _hub_words(claim: ClaimFacts) -> str:
    words = latest_warning(listed(claim.claim_events))
    return f"; last warning: {quoted(words)}" if words else ""


def _phase(claim: JsonObject | None) -> str:
    return str(((claim or {}).get("status") or {}).get("phase") or "without a phase")
