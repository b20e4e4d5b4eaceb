"""The part of the configuration file that says what of the hub's network a target has.

See docs/networking.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from federate.config import values
from federate.config.parts import Part, Says, one_of
from federate.config.tree import Loc
from federate.model.naming import NamespaceStrategy
from federate.services.dns import (
    MOST_NAMESERVERS,
    MOST_SEARCHES,
    SEARCHES_LENGTH,
    DnsPolicy,
    DnsRules,
)
from federate.services.rules import FollowMode

Nameserver = Annotated[str, AfterValidator(values.address)]
SearchDomain = Annotated[str, AfterValidator(values.search_domain)]
OptionName = Annotated[str, AfterValidator(values.dns_word)]
OptionValue = Annotated[str, AfterValidator(values.dns_word_or_none)]


class DnsPart(Part):
    """Which DNS pods ask."""

    policy: Annotated[DnsPolicy, one_of(DnsPolicy)] = Field(
        default=DnsPolicy.TARGET,
        description="`target`: the rest is added to what the target's DNS gives. `config`: it "
        "takes its place.",
    )
    nameservers: Annotated[list[Nameserver], Says("list of IP addresses")] = Field(
        default_factory=list, description="Whom pods ask; a pod has three at most."
    )
    searches: Annotated[list[SearchDomain], Says("list of domains")] = Field(
        default_factory=list, description="Domains in which short names are looked for."
    )
    options: Annotated[dict[OptionName, OptionValue], Says("values by option")] = Field(
        default_factory=dict, description="Options of `resolv.conf`; an empty text: no value."
    )


def dns_rules(part: DnsPart) -> DnsRules:
    """Turn the part into rules."""
    return DnsRules(
        policy=part.policy,
        nameservers=tuple(part.nameservers),
        searches=tuple(part.searches),
        options=tuple(part.options.items()),
    )


def dns_findings(part: Mapping[str, Any]) -> Iterator[tuple[Loc, str]]:
    """Say what no API server would take of a pod."""
    nameservers, searches = _texts(part, "nameservers"), _texts(part, "searches")
    if len(nameservers) > MOST_NAMESERVERS:
        yield ("nameservers",), f"found {len(nameservers)}; expected {MOST_NAMESERVERS} at most"
    if part.get("policy") == DnsPolicy.CONFIG and not nameservers:
        yield ("nameservers",), "missing; policy config needs one"
    if len(searches) > MOST_SEARCHES or len(" ".join(searches)) > SEARCHES_LENGTH:
        yield (
            ("searches",),
            f"too many; expected {MOST_SEARCHES} at most, of {SEARCHES_LENGTH} characters together",
        )


def _texts(part: Mapping[str, Any], key: str) -> list[str]:
    found = part.get(key)
    return [one for one in found if isinstance(one, str)] if isinstance(found, list) else []


def services_findings(spec: Mapping[str, Any]) -> Iterator[tuple[Loc, str]]:
    """Say where Services cannot follow: they keep their names."""
    follows = spec.get("services") in (FollowMode.LABELLED, FollowMode.ALL)
    namespaces = spec.get("namespaces")
    strategy = namespaces.get("strategy") if isinstance(namespaces, dict) else None
    if follows and strategy == NamespaceStrategy.SINGLE:
        yield (
            ("services",),
            f"found {spec['services']}; expected ignore with namespaces single, where Services of "
            "all hub namespaces would meet",
        )
