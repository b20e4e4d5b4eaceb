"""Whether a pod may have its mirror as far as companions go, and what it says meanwhile. Pure.

A mirror waits for what the hub *has* and the target has not yet: it never starts with less than it
would have on the hub. For what the hub has not it does not wait: a kubelet of the target decides
what starts without it, and says so in its own words, as one of the hub would. (An init container
may be about to make the very Secret that another container waits for.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from federate.companions.keys import CompanionKey
from federate.companions.steps import Blocked, Rest, Standing


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """Why a mirror is not made, or a debug container not added, yet."""

    coming: tuple[CompanionKey, ...]
    """Companions on their way: whoever brings one wakes its pods. No need to tell anybody."""
    blocked: Blocked | None = None
    """What keeps one from coming, to be told: the first in order of their names."""


def hold_of(wants: Iterable[CompanionKey], known: Mapping[CompanionKey, Rest]) -> Hold | None:
    """Say what a pod waits for; None where nothing holds it back.

    `known` is where each companion came to rest; one that is not in it is on its way. Optional ones
    count too: an object that the hub has is not missing.
    """
    ordered = sorted(wants)
    coming = tuple(key for key in ordered if key not in known)
    blocked = next(
        (
            rest.blocked
            for key in ordered
            if (rest := known.get(key)) is not None and rest.standing is Standing.BLOCKED
        ),
        None,
    )
    if not coming and blocked is None:
        return None
    return Hold(coming=coming, blocked=blocked)
