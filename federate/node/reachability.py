"""Is the target alive, and is it still the same? Pings with hysteresis; pure.

A *hung* target is as dead as one that refuses: a ping has a bound. A glitch changes nothing: it
takes several failures in a row to call it dead, and more than one answer to call it back. Only that
*another cluster* answers is believed at once, since every further request could hurt there (C5);
then no failure makes it anything else, and it is over when the cluster on record answers.
"""

from __future__ import annotations

from enum import Enum

from federate.errors import Forbidden, Unauthorized

PING_PERIOD_SECONDS = 2.0
PING_TIMEOUT_SECONDS = 3.0
RETRY_PERIOD_SECONDS = 0.5
FAILURES_UNTIL_DEAD = 3
"""With the periods above a dead target is known within 2 + 3 * 3 + 2 * 0.5 = 12 s (C12: 15 s)."""
ANSWERS_UNTIL_BACK = 2
"""One answer of a half-dead target is no recovery; two half a second apart are."""


class TargetState(Enum):
    """What the virtual node knows of its target."""

    UNKNOWN = "not asked yet"
    REACHABLE = "answers"
    REFUSED = "answers, but refuses our credentials"
    UNREACHABLE = "does not answer"
    CHANGED = "is another cluster than the one on record"

    @property
    def is_silent(self) -> bool:
        """Tell whether the Node falls silent once it has told of this state (C12)."""
        return self in (TargetState.UNREACHABLE, TargetState.CHANGED)


class Reachability:
    """Counts answers and failures; single writer."""

    def __init__(self) -> None:
        self.state = TargetState.UNKNOWN
        self.message = ""
        self._failures = 0
        self._answers = 0

    @property
    def is_reachable(self) -> bool:
        """Tell whether requests to the target are worth sending."""
        return self.state is TargetState.REACHABLE

    def note_answer(self) -> bool:
        """Count an answer of the cluster on record; tells whether the state changed."""
        self._failures = 0
        self._answers += 1
        enough = self.state is TargetState.UNKNOWN or self._answers >= ANSWERS_UNTIL_BACK
        return enough and self._become(TargetState.REACHABLE, "the target answers")

    def note_failure(self, error: Exception) -> bool:
        """Count a failure; tells whether the state changed."""
        self._answers = 0
        self._failures += 1
        if self._failures < FAILURES_UNTIL_DEAD or self.state is TargetState.CHANGED:
            return False
        if isinstance(error, (Unauthorized, Forbidden)):
            return self._become(TargetState.REFUSED, str(error))
        text = str(error) or f"no answer within {PING_TIMEOUT_SECONDS:g} s"
        return self._become(TargetState.UNREACHABLE, text)

    def note_other(self, message: str) -> bool:
        """Note an answer of another cluster; tells whether there is something new to tell."""
        self._failures = self._answers = 0
        is_new = self.state is not TargetState.CHANGED or message != self.message
        self.state, self.message = TargetState.CHANGED, message
        return is_new

    def pause_seconds(self) -> float:
        """Say how long to wait before the next ping."""
        rests = self.state is TargetState.REACHABLE or (
            self.state is TargetState.CHANGED and self._answers == 0
        )
        return PING_PERIOD_SECONDS if rests and self._failures == 0 else RETRY_PERIOD_SECONDS

    def _become(self, state: TargetState, message: str) -> bool:
        if state is self.state:
            return False
        self.state, self.message = state, message
        return True
