"""What the user wants to come along with pods. Plain values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from federate.companions.environment import Advertised
from federate.companions.keys import Kind


class IdentityMode(StrEnum):
    """As whom a pod in the target speaks to an API server (C31)."""

    NONE = "none"
    """As nobody."""
    HUB = "hub"
    """To the hub's, as its own service account there."""
    TARGET = "target"
    """To the target's, as a service account that is named here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompanionRules:
    """What is told of companions and identity in the configuration."""

    are_made: bool = True
    """Whether ConfigMaps and Secrets come along; without, pods that name some are refused."""
    shared: frozenset[tuple[Kind, str]] = frozenset()
    """Objects of the target that pods may name as they are, in each target namespace."""
    identity: IdentityMode = IdentityMode.NONE
    advertised: Advertised | None = None
    """Where pods in the target reach the hub's API server; identity `hub` needs it."""
    renew_share: float = 0.8
    """The part of its life after which a token is renewed; identity `hub`."""
    target_account: str = ""
    """The service account of the target namespace that mirrors run as; identity `target`."""
