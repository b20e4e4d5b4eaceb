"""What a target's operator says about volumes, as plain values. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class ClaimMode(StrEnum):
    """What becomes of a pod that asks for storage by a claim."""

    REFUSE = "refuse"
    """It waits, and says why."""
    TARGET = "target"
    """Its storage is made in the target, by a claim of federate's own there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRules:
    """Which volumes pods may have in this target."""

    mode: ClaimMode = ClaimMode.REFUSE
    storage_classes: Mapping[str, str] = field(default_factory=dict)
    """Class of the hub -> class of the target; "" there is whatever the target has as default."""
    csi_drivers: frozenset[str] = frozenset()
    """Drivers of the target that pods may call by volumes of their own: each acts there with its
    own rights, on what a hub user writes."""

    @property
    def are_made(self) -> bool:
        """Tell whether claims are made in the target."""
        return self.mode is ClaimMode.TARGET
