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
from federate.flow.refusals import Refusals
from federate.model.objects import fingerprint_of, metadata_of


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


class Memory:
    """What was tried for one companion; changes are named by `change_of`."""

    def __init__(self) -> None:
        self.stripped_uid = ""
        """An object of our own making whose marks the target took off; it is to be taken back."""
        self.held_uid = ""
        """The object that this process wrote, and has not asked to be deleted since."""
        self.is_left_told = False
        """It was said that what nobody wants stays there."""
        self.refusals: Refusals[int, Blocked] = Refusals()


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
