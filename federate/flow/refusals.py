"""What the other side refused, or undid, and when it is tried again. Pure.

Nothing here is needed to be right: after a restart all is tried once more. Whoever asks names his
changes; two of one name are the same change.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

AGAIN_SECONDS = 5.0
"""How long after its first refusal a change is tried again; it doubles each time."""
AGAIN_CAP_SECONDS = 300.0
"""How long a quota or policy that was mended may go unnoticed."""
MOST_DOUBLINGS = 16
"""Keeps the power finite after thousands of refusals."""

Named = TypeVar("Named", bound=Hashable)
"""What names a change."""
Why = TypeVar("Why")


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused(Generic[Why]):
    """A change that is not to be tried before its time."""

    why: Why
    again_at: float
    failures: int


class Refusals(Generic[Named, Why]):
    """What was tried for one object."""

    def __init__(self) -> None:
        self._refused: dict[Named, Refused[Why]] = {}
        self._made: dict[str, tuple[Named, float]] = {}
        """The last change of each kind that was taken, and when."""

    def refused(self, change: Named, *, now: float) -> Refused[Why] | None:
        """Return why a change must wait; None where it may be tried."""
        refused = self._refused.get(change)
        return refused if refused is not None and now < refused.again_at else None

    def note_refused(self, change: Named, why: Why, *, now: float) -> Refused[Why]:
        """Remember a refusal; returns when to try again. One long after the last begins anew."""
        self._forget_old(now)
        before = self._refused.get(change)
        failures = before.failures + 1 if before is not None else 1
        doubled = AGAIN_SECONDS * 2.0 ** min(failures - 1, MOST_DOUBLINGS)
        again_at = now + min(doubled, AGAIN_CAP_SECONDS)
        refused = Refused(why=why, again_at=again_at, failures=failures)
        self._refused[change] = refused
        return refused

    def is_made_again(self, kind: str, change: Named, *, now: float) -> bool:
        """Note a change that was taken; tell whether the last of its kind was the very same.

        If that was not long ago, somebody there undoes it: at once again would never end.
        """
        before = self._made.get(kind)
        self._made[kind] = (change, now)
        return before is not None and before[0] == change and now - before[1] < AGAIN_CAP_SECONDS

    def _forget_old(self, now: float) -> None:
        """Contents may change for ever: what is not tried any more is not kept."""
        old = [c for c, r in self._refused.items() if now - r.again_at >= AGAIN_CAP_SECONDS]
        for change in old:
            del self._refused[change]
