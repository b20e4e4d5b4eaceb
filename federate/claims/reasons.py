"""What is told of the hub's claims alone, beside the reasons that pods wait with too.

Registered once, as `model.reasons` are: docs/volumes.md says what each means.
"""

from __future__ import annotations

from enum import StrEnum


class ClaimReason(StrEnum):
    """Of Events of claims."""

    EXPANSION_REFUSED = "ExpansionRefused"
    """The target does not make it larger."""
    CLAIM_MADE = "ClaimMade"
    """Its storage is asked for in the target."""
