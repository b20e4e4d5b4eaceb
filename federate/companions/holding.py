"""Whether a pod may have its mirror as far as companions go, and what it says meanwhile. Pure.

A mirror waits for what the hub *has* and the target has not yet: it never starts with less than it
would have on the hub. For what the hub has not it does not wait: a kubelet of the target decides
what starts without it, and says so in its own words, as one of the hub would. (An init container
may be about to make the very Secret that another container waits for.)
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from federate.companions.keys import CompanionKey
from federate.companions.steps import Blocked, Rest, Standing

Coming: TypeAlias = Hashable
"""What a pod waits for, to be put into words: a copy of an object of the hub, what federate has
issued for the pod, its storage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """Why a mirror is not made, or a debug container not added, yet."""

    coming: tuple[Coming, ...] = ()
    """What is on its way: whoever brings it wakes its pods. Soon there, so nobody is told."""
    stuck: tuple[tuple[Coming, Blocked], ...] = ()
    """What cannot come, and what keeps it."""

    @property
    def blocked(self) -> Blocked | None:
        """What is to be told: the first in order of their names."""
        return self.stuck[0][1] if self.stuck else None

    def only(self, wants: Collection[CompanionKey]) -> Hold | None:
        """Leave what one container wants of all that its pod waits for; None where that is none."""
        return _hold(
            coming=tuple(key for key in self.coming if key in wants),
            stuck=tuple(held for held in self.stuck if held[0] in wants),
        )


def hold_of(wants: Iterable[CompanionKey], known: Mapping[CompanionKey, Rest]) -> Hold | None:
    """Say what a pod waits for; None where nothing holds it back.

    `known` is where each companion came to rest; one that is not in it is on its way. Optional ones
    count too: an object that the hub has is not missing.
    """
    ordered = sorted(wants)
    return _hold(
        coming=tuple(key for key in ordered if key not in known),
        stuck=tuple(
            (key, rest.blocked)
            for key in ordered
            if (rest := known.get(key)) is not None
            and rest.standing is Standing.BLOCKED
            and rest.blocked is not None
        ),
    )


def joined(first: Hold | None, second: Hold | None) -> Hold | None:
    """Put together what a pod waits for of two sides."""
    if first is None or second is None:
        return first or second
    return Hold(coming=first.coming + second.coming, stuck=first.stuck + second.stuck)


def _hold(*, coming: tuple[Coming, ...], stuck: tuple[tuple[Coming, Blocked], ...]) -> Hold | None:
    return Hold(coming=coming, stuck=stuck) if coming or stuck else None
