"""Count what federate wrote to a pod. Pure: recorded events in, numbers out.

A write counts as federate's when its field manager shows it, and when nobody's does: the numbers
are upper bounds.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from .recorder import Change, PodEvent

FIELD_MANAGER = "federate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Writes:
    """federate's writes to one hub pod, before and after its deletion was asked for."""

    up: int
    down: int
    """Statuses, and the one delete that ends the pod."""


def is_federates(event: PodEvent) -> bool:
    """Tell whether federate made the write, as far as can be seen."""
    return event.change is Change.WRITTEN and (FIELD_MANAGER in event.writers or not event.writers)


def hub_writes(history: Sequence[PodEvent]) -> Writes:
    """Count the writes to a hub pod."""
    down = sum(
        event.is_terminating and (is_federates(event) or event.change is Change.DELETED)
        for event in history
    )
    up = sum(not event.is_terminating and is_federates(event) for event in history)
    return Writes(up=up, down=down)


def mirror_patches(history: Sequence[PodEvent]) -> int:
    """Count the changes federate made to a mirror after its creation."""
    return sum(FIELD_MANAGER in e.writers for e in history if e.change is Change.WRITTEN)
