"""What a decision about a companion rests on, and the steps it may come to: plain values. Pure.

Contents stand in views and steps while a decision is carried out, and nowhere else: none of these
values shows them when it is printed (C73).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from federate.companions.keys import CompanionKey
from federate.model.marks import Scope
from federate.model.objects import JsonDict, JsonObject
from federate.patch.document import PatchBody


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocked:
    """Why a companion is not as it ought to: `reason` is documented, `message` says what to do."""

    reason: str
    message: str


class Ground(Enum):
    """What stands in the target namespace to own companions (C23)."""

    READY = "ready"
    NOT_YET = "not made yet"
    UNINSTALLED = "somebody removed the anchor"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompanionView:
    """Everything a decision about one companion rests on."""

    key: CompanionKey
    scope: Scope
    hub_object: JsonObject | None = field(default=None, repr=False)
    hub_fresh: bool = False
    """`hub_object` (or its absence) was read from the hub's quorum in this round."""
    hub_forbids: str = ""
    """The hub's words where it does not let us read the object."""
    companion: JsonObject | None = field(default=None, repr=False)
    """What stands in the target under the companion's name, ours or not."""
    companion_fresh: bool = False
    """`companion` (or its absence) was read from the target's quorum in this round."""
    is_wanted: bool
    """A hub pod that is not over, or a mirror that lives, refers to it."""
    has_hub_pod: bool
    """A hub pod does. That a mirror does is the target's word: it keeps what is there, and brings
    nothing."""
    lingers: bool = False
    """It is not wanted, but was a moment ago: the next pod may want it again."""
    unwanted_fresh: bool = False
    """That nobody wants it was confirmed by complete listings of both sides in this round."""
    ground: Ground = Ground.NOT_YET
    anchor: JsonObject | None = None
    entry: JsonObject | None = None
    """The entry of a Secret, as it was before `companion` was read, or as it was enlisted since."""
    entry_fresh: bool = False
    """It was enlisted in this round: whoever is about to strike it finds another version."""
    is_held: bool
    """This process wrote what stands there, or a mirror uses it: no delete of a process that led
    before fits it any more."""
    has_line: bool = False
    """An earlier version put it on the list in the anchor."""
    target_name: str


class Standing(Enum):
    """Where a companion stands, for the pods that wait for it."""

    SETTLED = "as on the hub"
    ABSENT = "the hub has no such object, the target no companion"
    BLOCKED = "it cannot be as on the hub"


# -- the steps -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """Nothing is to be done until something changes."""

    reason: str
    standing: Standing
    blocked: Blocked | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LookUpHubObject:
    """Read the hub's object by its name: contents are read when needed, and not kept."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LookUpCompanion:
    """Read by name what stands in the target."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmUnwanted:
    """List the hub's pods on the virtual node and its mirrors, completely and from the quorum."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareGround:
    """Make sure of the target namespace and its anchor."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Enlist:
    """Make the Secret's entry, or take it up, before there is such a Secret.

    Secrets are never listed in a target, for no right could be limited to ours; so each is on
    record before it is made, and can be found again whatever crashes.
    """

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Strike:
    """Take it off record again: there is no such companion any more."""

    reason: str
    entry: JsonObject | None
    """As it was before that was seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateCompanion:
    """Create it."""

    reason: str
    body: JsonDict = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchCompanion:
    """Change it, under its uid and version."""

    reason: str
    patch: PatchBody = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteCompanion:
    """Delete that very object, as it was seen: under its uid and version."""

    reason: str
    uid: str
    resource_version: str


Step: TypeAlias = (
    Rest
    | LookUpHubObject
    | LookUpCompanion
    | ConfirmUnwanted
    | PrepareGround
    | Enlist
    | Strike
    | CreateCompanion
    | PatchCompanion
    | DeleteCompanion
)
