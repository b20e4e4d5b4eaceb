"""Which DNS the containers of mirrors ask, where the target's own is not enough. Pure.

A mirror that asks the cluster's DNS asks the target's. `policy: target` adds to that, `policy:
config` takes its place; what a pod says of its own stays, and comes first where an API server takes
only so many. Pods that chose another dnsPolicy, or live in their node's network, are left alone.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from federate.model.objects import JsonDict, JsonObject, copied

MOST_NAMESERVERS = 3
MOST_SEARCHES = 32
SEARCHES_LENGTH = 2048
"""What API servers take of a pod's dnsConfig (pkg/apis/core/validation)."""

ASKS_CLUSTER = "ClusterFirst"
ASKS_CONFIG = "None"

_DOMAIN = re.compile(r"([a-z0-9_]([-a-z0-9_]*[a-z0-9_])?)(\.[a-z0-9_]([-a-z0-9_]*[a-z0-9_])?)*\.?")


class DnsPolicy(StrEnum):
    """What the rules are to the target's DNS."""

    TARGET = "target"
    """They come on top of it."""
    CONFIG = "config"
    """They take its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DnsRules:
    """What is added to a mirror's resolv.conf."""

    policy: DnsPolicy = DnsPolicy.TARGET
    nameservers: tuple[str, ...] = ()
    searches: tuple[str, ...] = ()
    options: tuple[tuple[str, str], ...] = ()
    """Name and value; "" where an option has none."""

    @property
    def say_anything(self) -> bool:
        """Whether a mirror differs by them."""
        return self.policy is DnsPolicy.CONFIG or bool(
            self.nameservers or self.searches or self.options
        )


def dns_problem(rules: DnsRules) -> str:
    """Say why no API server would take a pod with these rules; "" where one does."""
    return next(_problems(rules), "")


def _problems(rules: DnsRules) -> Iterator[str]:
    yield from (f"nameserver {a!r} is no IP address" for a in rules.nameservers if not _is_ip(a))
    if len(rules.nameservers) > MOST_NAMESERVERS:
        yield f"a pod has {MOST_NAMESERVERS} nameservers at most"
    if rules.policy is DnsPolicy.CONFIG and not rules.nameservers:
        yield "with policy `config` at least one nameserver is needed"
    for search in rules.searches:
        if not _DOMAIN.fullmatch(search):
            yield f"search domain {search!r} is no name of a domain"
    if len(rules.searches) > MOST_SEARCHES or _length(rules.searches) > SEARCHES_LENGTH:
        yield (
            f"a pod has {MOST_SEARCHES} search domains at most, of {SEARCHES_LENGTH} characters "
            "together"
        )
    if any(not name for name, _ in rules.options):
        yield "an option needs a name"


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def with_dns(spec: JsonObject, rules: DnsRules) -> JsonDict:
    """Return a copy of a mirror's spec that asks as the rules say; again changes nothing."""
    told: JsonDict = copied(spec)
    is_concerned = spec.get("dnsPolicy") in (None, "", ASKS_CLUSTER) and not spec.get("hostNetwork")
    if not (is_concerned and rules.say_anything):
        return told
    config = _merged(spec.get("dnsConfig") or {}, rules)
    if rules.policy is DnsPolicy.CONFIG:
        told["dnsPolicy"] = ASKS_CONFIG
    if config:
        told["dnsConfig"] = config
    return told


def _merged(own: JsonObject, rules: DnsRules) -> JsonDict:
    merged: JsonDict = dict(own)
    nameservers = _distinct((*(own.get("nameservers") or ()), *rules.nameservers))
    searches = _distinct((*(own.get("searches") or ()), *rules.searches))
    options = _options(own.get("options") or (), rules.options)
    if nameservers:
        merged["nameservers"] = nameservers[:MOST_NAMESERVERS]
    if searches:
        merged["searches"] = _fitting(searches)
    if options:
        merged["options"] = options
    return merged


def _options(own: Sequence[JsonObject], ruled: Iterable[tuple[str, str]]) -> list[JsonDict]:
    """Add what the pod does not say itself."""
    said = {option.get("name") for option in own}
    added = [
        {"name": name, **({"value": value} if value else {})}
        for name, value in ruled
        if name not in said
    ]
    return [*(dict(option) for option in own), *added]


def _distinct(values: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(values))


def _length(searches: Sequence[str]) -> int:
    return len(" ".join(searches))


def _fitting(searches: list[str]) -> list[str]:
    """Leave out the last ones, where there are more than an API server takes."""
    kept = searches[:MOST_SEARCHES]
    while _length(kept) > SEARCHES_LENGTH:
        kept.pop()
    return kept
