"""What this process knows of companions beyond what is written down; makes it only surer. Pure.

Of contents nothing is kept: a change is remembered by a number that this process alone can make.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from federate.companions.steps import (
    Blocked,
    CreateCompanion,
    DeleteCompanion,
    PatchCompanion,
    Rest,
    Step,
)
from federate.model.objects import fingerprint_of, metadata_of

REFUSED_AGAIN_SECONDS = 5.0
"""How long after its first refusal a change is tried again; it doubles each time."""
REFUSED_AGAIN_CAP_SECONDS = 300.0
"""How long a policy of the target that was mended may go unnoticed."""
MOST_DOUBLINGS = 16
"""Keeps the power finite after thousands of refusals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """Where a companion came to rest, and of which versions that is true; "" for an absent one."""

    rest: Rest
    hub_version: str
    companion_version: str
    hub_at: float
    """When the hub's object was last looked at."""
    target_at: float
    """When what stands in the target was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A change that is not to be tried before its time."""

    change: int
    blocked: Blocked
    again_at: float
    failures: int


class Memory:
    """What was tried for one companion."""

    def __init__(self) -> None:
        self.stripped_uid = ""
        """An object of our own making whose marks the target took off; it is to be taken back."""
        self.held_uid = ""
        """The object that this process wrote, and has not asked to be deleted since."""
        self.is_left_told = False
        """It was said that what nobody wants stays there."""
        self._refused: Refused | None = None
        self._made: dict[str, tuple[int, float]] = {}
        """The last change of each kind that the target took, and when."""

    def refused(self, step: Step, *, now: float) -> Refused | None:
        """Return why a step must wait; None where it may be tried."""
        refused = self._refused
        if refused is None or refused.change != change_of(step) or now >= refused.again_at:
            return None
        return refused

    def note_refused(self, step: Step, blocked: Blocked, *, now: float) -> None:
        """Remember that a step was refused, and when it is to be tried again."""
        change, before = change_of(step), self._refused
        is_same = (
            before is not None
            and before.change == change
            and now - before.again_at < REFUSED_AGAIN_CAP_SECONDS
        )
        failures = before.failures + 1 if before is not None and is_same else 1
        doubled = REFUSED_AGAIN_SECONDS * 2.0 ** min(failures - 1, MOST_DOUBLINGS)
        again_at = now + min(doubled, REFUSED_AGAIN_CAP_SECONDS)
        self._refused = Refused(
            change=change, blocked=blocked, again_at=again_at, failures=failures
        )

    def is_made_again(self, step: Step, *, now: float) -> bool:
        """Note a step that the target took; tell whether it took the very same shortly before.

        Then somebody there undoes it, and doing it at once again would never end.
        """
        kind, change = type(step).__name__, change_of(step)
        before, at = self._made.get(kind, (0, now))
        self._made[kind] = (change, now)
        return before == change and now - at < REFUSED_AGAIN_CAP_SECONDS


def change_of(step: Step) -> int:
    """Return a number for what a step changes, whatever versions it names.

    Python's own hash of a text is keyed anew in each process, so that it tells nobody else what a
    short Secret might be.
    """
    match step:
        case CreateCompanion():
            return hash(("create", fingerprint_of(step.body)))
        case PatchCompanion():
            body: dict[str, Any] = dict(step.patch.body)
            metadata = {**metadata_of(body), "resourceVersion": "", "uid": ""}
            return hash(("patch", fingerprint_of({**body, "metadata": metadata})))
        case DeleteCompanion():
            return hash(("delete", step.uid))
        case _:
            return hash(step.reason)
