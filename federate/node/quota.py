"""What a ResourceQuota of the target leaves to a virtual node (C14). Pure.

Where a target lets federate see its namespaces only, the quota of one says how much may run there.
The offer is what the quota grants, less what *others* use of it, less what admission added to our
mirrors. What our own mirrors use is not taken off: the hub's scheduler counts their hub pods.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal

from federate.model.objects import JsonObject, ObjectKey, key_of, spec_of, status_of
from federate.model.quantities import PODS, Amounts, largest, parse_amounts, subtract
from federate.node.capacity import CapacityRules, bounded, capped, to_show

_PLAIN = ("cpu", "memory", "ephemeral-storage", PODS)
_REQUESTS = "requests."
_HUGEPAGES = "hugepages-"

SETTLE_SECONDS = 1.0
"""How long less must be left before less is offered. The target counts a new mirror before we hear
that it is there, and an ended one after: without a pause each pod would cost two writes of the
Node. Longer: pods are placed meanwhile that the target refuses, to be tried again."""

NEEDED = ("cpu", "memory", PODS)
"""Without a value of these a node takes hardly any pod."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """What is offered by a quota, and what is wrong with it, in words."""

    capacity: Mapping[str, str] | None
    """None: the target has not counted yet, so what was said before stands."""
    trouble: str = ""


def node_resource(entry: str) -> str | None:
    """Name the resource of a node that an entry of a quota limits; None where it limits none.

    `limits.…` is none: a scheduler places by requests alone.
    """
    if entry == f"count/{PODS}":
        return PODS
    resource = entry.removeprefix(_REQUESTS)
    if entry in _PLAIN or resource in _PLAIN or resource.startswith(_HUGEPAGES):
        return resource
    return resource if entry.startswith(_REQUESTS) and "/" in resource else None


def offer_by_quota(
    quotas: Collection[JsonObject],
    *,
    own: Amounts,
    excess: Amounts,
    rules: CapacityRules,
    wanted: ObjectKey,
) -> Granted:
    """Return what the one quota among `quotas` lets us offer.

    `own` is what our mirrors in its namespace request, `excess` what they request beyond their hub
    pods. Where no quota tells how much there is, nothing is offered.
    """
    if trouble := _why_none(quotas, wanted):
        return Granted(capacity=to_show({}), trouble=trouble)
    (quota,) = quotas
    left = _left(quota, own)
    if left is None:
        return Granted(
            capacity=None, trouble=f"the target has not counted {_named(quota)} yet: no pod starts"
        )
    granted = subtract(bounded(left, rules), excess, floor_at_zero=True)
    beside = {n: a for n, a in parse_amounts(rules.static).items() if n not in left}
    offered = {**capped(beside, rules), **granted}
    return Granted(capacity=to_show(offered), trouble=_what_lacks(quota, offered))


def _why_none(quotas: Collection[JsonObject], wanted: ObjectKey) -> str:
    if not quotas:
        which = f"ResourceQuota {wanted}" if wanted.name else "ResourceQuota at all"
        return f"there is no {which} in namespace {wanted.namespace} of the target"
    if len(quotas) > 1:
        names = ", ".join(sorted(key_of(quota).name for quota in quotas))
        return (
            f"namespace {wanted.namespace} of the target has {len(quotas)} ResourceQuotas "
            f"({names}): name the one to follow in capacity.quota"
        )
    (quota,) = quotas
    if scopes := ", ".join(_scopes(quota)):
        return f"{_named(quota)} has scopes ({scopes}): it limits some pods only"
    return ""


def _scopes(quota: JsonObject) -> Iterator[str]:
    spec = spec_of(quota)
    yield from spec.get("scopes") or ()
    for expression in (spec.get("scopeSelector") or {}).get("matchExpressions") or ():
        yield str(expression.get("scopeName"))


def _left(quota: JsonObject, own: Amounts) -> Amounts | None:
    """Return what others leave of the quota, by resource; None while it is not counted.

    By its status, as admission does, which refuses every pod until both parts are there. An entry
    may stand under two names (`cpu`, `requests.cpu`): the tighter one counts.
    """
    hard, used = (parse_amounts(status_of(quota).get(part)) for part in ("hard", "used"))
    if hard.keys() - used.keys() or (spec_of(quota).get("hard") and not hard):
        return None
    left: Amounts = {}
    for entry, granted in hard.items():
        resource = node_resource(entry)
        if resource is None:
            continue
        others = max(Decimal(0), used[entry] - own.get(resource, Decimal(0)))
        rest = max(Decimal(0), granted - others)
        left[resource] = min(rest, left.get(resource, rest))
    return left


def _what_lacks(quota: JsonObject, offered: Amounts) -> str:
    lacking = [name for name in NEEDED if name not in offered]
    if not lacking:
        return ""
    consequence = "no pods" if PODS in lacking else "no pods that request it"
    return (
        f"{_named(quota)} does not limit {', '.join(lacking)}, so the node takes {consequence}: "
        "say how much there is in capacity.static"
    )


def _named(quota: JsonObject) -> str:
    return f"ResourceQuota {key_of(quota)}"


class Settling:
    """Holds back what sinks until it stayed down for `SETTLE_SECONDS`; what rises passes."""

    def __init__(self) -> None:
        self._settled: Amounts = {}
        self._lower_since: float | None = None

    def holds_back(self) -> bool:
        """Tell whether more is offered than is left: look again when the time is over."""
        return self._lower_since is not None

    def settle(self, left: Amounts, *, now: float) -> Amounts:
        """Return what to offer, where so much is left at this time."""
        sinks = any(left.get(name, 0) < amount for name, amount in self._settled.items())
        if not sinks:
            self._lower_since = None
        elif self._lower_since is None:
            self._lower_since = now
        if self._lower_since is not None and now - self._lower_since < SETTLE_SECONDS:
            self._settled = largest(left, self._settled)
        else:
            self._settled, self._lower_since = left, None
        return self._settled

    def forget(self) -> None:
        """Let the next amounts pass whatever they are."""
        self._settled, self._lower_since = {}, None
