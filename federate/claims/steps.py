"""What a decision about a claim rests on, and the steps it may come to: plain values. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, TypeAlias

from federate.claims.keys import ClaimKey, Handle
from federate.claims.rules import ClaimRules
from federate.companions.steps import Blocked, Ground
from federate.model.marks import Scope
from federate.model.objects import JsonDict, JsonObject, ObjectKey
from federate.patch.document import PatchBody


class Sought(Enum):
    """What may be looked up."""

    HUB_CLAIM = "the hub's claim"
    VOLUME = "the hub's volume"
    HUB_CLASS = "the hub's storage class"
    CLAIM = "the target's claim"
    TARGET_CLASS = "the target's storage class"

    @property
    def is_on_hub(self) -> bool:
        """Tell which of the clusters has it."""
        return self in (Sought.HUB_CLAIM, Sought.VOLUME, Sought.HUB_CLASS)


class Look(NamedTuple):
    """One object to be read by its name, from the quorum."""

    sought: Sought
    key: ObjectKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a look found in this round."""

    obj: JsonObject | None = None
    forbids: str = ""
    """The cluster's words where it does not let us read it; then nothing is known of it."""


class Users(Enum):
    """The pods of the hub that wait for a claim to be bound."""

    UNKNOWN = "not looked for yet"
    NONE = "there is none"
    WELCOME = "some may run in the target"
    REFUSED = "none of them may"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimView:
    """Everything a decision about one claim rests on."""

    key: ClaimKey
    scope: Scope
    rules: ClaimRules
    target_name: str
    target_namespace: str | None
    """Where it stands, or shall stand by today's rules; None: nowhere."""
    volume_name: str
    """The hub's volume that names the claim, or would."""
    ground: Ground = Ground.NOT_YET
    seen: Mapping[Look, Seen] = field(default_factory=dict)
    users: Users = Users.UNKNOWN
    is_leaving: bool = False
    """The virtual node is being left: nothing new is made."""
    keeps: Collection[Wish] = ()
    """What was refused a moment ago, or taken and not kept."""
    is_unreferenced: bool | None = None
    """Whether a complete listing showed that no volume of the hub leads to the target's claim."""


class Wish(Enum):
    """What a change of an object that stands there is for."""

    SIZE = "another size"
    """Of the target's claim."""
    MARK = "the mark of another use"
    """On the target's claim: its data was given on."""
    VOLUME_SIZE = "the size that the target has"
    """Told by the hub's volume."""
    CLAIM_SIZE = "the size that there is"
    """Told by the hub's claim."""


class Standing(Enum):
    """Where a claim stands, for the pods that wait for it."""

    SETTLED = "the hub's volume leads to our claim in the target"
    COMING = "it is on its way"
    BLOCKED = "it cannot serve a pod"
    ELSEWHERE = "it is none of this virtual node's business"


# -- the steps -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """Nothing is to be done until something changes."""

    reason: str
    standing: Standing
    blocked: Blocked | None = None
    handle: Handle | None = None
    """The claim in the target that mirrors name; with `SETTLED` alone."""
    is_bound_there: bool = True
    """The target has storage for it; else its words are worth a look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LookUp:
    """Read an object."""

    reason: str
    look: Look


@dataclass(frozen=True, slots=True, kw_only=True)
class LookForUsers:
    """List the pods that wait for the claim, and have them judged: see `Users`."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareGround:
    """Make sure of the target namespace and its anchor."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateClaim:
    """Create the claim in the target."""

    reason: str
    body: JsonDict


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateVolume:
    """Create the volume on the hub, which binds it and then the pods."""

    reason: str
    body: JsonDict


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Change what was looked up, under its uid and version."""

    reason: str
    wish: Wish
    wanted: str
    """The size, or whom the data was given to: two of one wish for the same are one change."""
    look: Look
    patch: PatchBody
    subresource: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveUp:
    """Say why the claim cannot be served here, and let the scheduler choose another node."""

    reason: str
    blocked: Blocked
    patch: PatchBody


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmUnreferenced:
    """List the hub's volumes completely: does one lead to the claim in the target?"""

    reason: str
    handle: Handle


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """Delete that very object as it was seen, under its uid and version."""

    reason: str
    look: Look
    uid: str
    resource_version: str


Step: TypeAlias = (
    Rest
    | LookUp
    | LookForUsers
    | PrepareGround
    | CreateClaim
    | CreateVolume
    | Change
    | GiveUp
    | ConfirmUnreferenced
    | Delete
)
