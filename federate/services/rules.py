"""What the user wants of addresses, Services, network policies and DNS in one target. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

from federate.model.naming import NamespaceRules, NamespaceStrategy
from federate.services.dns import DnsRules


class AddressMode(StrEnum):
    """Whether hub pods show the addresses of their mirrors (C47)."""

    AUTO = "auto"
    REFLECT = "reflect"
    HIDE = "hide"


class FollowMode(StrEnum):
    """Which hub Services are made in the target (C33)."""

    IGNORE = "ignore"
    LABELLED = "labelled"
    ALL = "all"


class NetworkPolicyMode(StrEnum):
    """What becomes of a pod that a NetworkPolicy of the hub selects (C33)."""

    WARN = "warn"
    REFUSE = "refuse"
    IGNORE = "ignore"


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkRules:
    """The rules of one target."""

    addresses: AddressMode = AddressMode.AUTO
    follow: FollowMode = FollowMode.IGNORE
    network_policies: NetworkPolicyMode = NetworkPolicyMode.WARN
    dns: DnsRules = field(default_factory=DnsRules)

    @property
    def shows_addresses(self) -> bool:
        """Whether any address may be shown."""
        return self.addresses is not AddressMode.HIDE

    @property
    def is_followed(self) -> bool:
        """Whether Services follow."""
        return self.follow is not FollowMode.IGNORE

    @property
    def heeds_policies(self) -> bool:
        """Whether NetworkPolicies are read."""
        return self.network_policies is not NetworkPolicyMode.IGNORE


def follow_problem(follow: FollowMode, namespaces: NamespaceRules) -> str:
    """Say why Services cannot follow into such namespaces; "" where they can.

    They keep their names, so a target namespace must stand for one hub namespace alone.
    """
    if follow is FollowMode.IGNORE:
        return ""
    if namespaces.strategy is NamespaceStrategy.SINGLE:
        return (
            "Services keep their names in the target, and with namespaces `single` those of all "
            "hub namespaces would meet in one"
        )
    if namespaces.strategy is NamespaceStrategy.MAP:
        meeting = [name for name, n in Counter(namespaces.mapping.values()).items() if n > 1]
        if meeting:
            return (
                "Services keep their names in the target, and more than one hub namespace is "
                f"mapped to {', '.join(sorted(meeting))}"
            )
    return ""
