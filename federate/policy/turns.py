"""Whose turn it is to fail, where refused pods fail instead of waiting. Pure.

A ReplicaSet replaces a failed pod without delay: if each were failed as soon as it comes, hub and
scheduler would be busy with nothing else. So one of an owner's pods fails in each back-off, the
others wait. A restart forgets it all and begins with the shortest back-off.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

FIRST_SECONDS = 10.0
LONGEST_SECONDS = 300.0
FORGET_FACTOR = 2.0
"""An owner that was quiet for so many times the longest back-off begins anew, as with a kubelet."""
OWNERS_KEPT = 10_000
"""A megabyte or two; the one that was quiet longest is forgotten, and begins anew."""


@dataclass(frozen=True, slots=True)
class _Turn:
    pod_uid: str
    at: float
    seconds: float

    @property
    def over_at(self) -> float:
        return self.at + self.seconds


class FailingTurns:
    """The back-offs of the owners of refused pods. `clock` is monotonic."""

    def __init__(self, clock: Callable[[], float], *, owners_kept: int = OWNERS_KEPT) -> None:
        self._clock = clock
        self._owners_kept = owners_kept
        self._turns: OrderedDict[str, _Turn] = OrderedDict()

    def wait_seconds(self, owner_uid: str, pod_uid: str) -> float:
        """Say how long the pod has to wait before it may fail; 0: it is its turn.

        A pod without an owner (`owner_uid` "") is replaced by nobody, and never waits.
        """
        last = self._turns.get(owner_uid)
        if last is None or last.pod_uid == pod_uid:
            return 0.0
        return max(0.0, last.over_at - self._clock())

    def take(self, owner_uid: str, pod_uid: str) -> None:
        """Note that the pod is about to fail: its owner's others wait from now on.

        Whose turn it is keeps it, so that a write that was lost can be made again.
        """
        last, now = self._turns.get(owner_uid), self._clock()
        if not owner_uid or (last is not None and last.pod_uid == pod_uid):
            return
        self._turns[owner_uid] = _Turn(pod_uid, now, _next_seconds(last, now))
        self._turns.move_to_end(owner_uid)
        while len(self._turns) > self._owners_kept:
            self._turns.popitem(last=False)


def _next_seconds(last: _Turn | None, now: float) -> float:
    if last is None or now - last.over_at > FORGET_FACTOR * LONGEST_SECONDS:
        return FIRST_SECONDS
    return min(2 * last.seconds, LONGEST_SECONDS)
