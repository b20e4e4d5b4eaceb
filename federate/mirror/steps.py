"""What a decision about a pod rests on, and the steps it may come to: plain values. Pure.

`plan` fills in the reasoning between the two, `round` gathers the view and carries out the steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum, StrEnum
from typing import TypeAlias

from federate.companions.holding import Hold
from federate.companions.keys import Kind
from federate.companions.steps import Blocked
from federate.mirror.admission import PortClash
from federate.mirror.refusal import Refusal
from federate.mirror.render import RenderRules
from federate.mirror.updates import Update
from federate.model.marks import MirrorRecord
from federate.model.objects import JsonDict, JsonObject, ObjectKey, uid_of
from federate.model.pods import is_gated, node_name_of
from federate.services.addresses import AddressDecision
from federate.services.hubnames import UNLED, HubApi
from federate.status.project import Addresses
from federate.status.writing import HubWrite

HELD_TOLD_AFTER = timedelta(seconds=5)
"""How long companions may be on their way before a pod says so: most are there sooner."""


class Lane(StrEnum):
    """The worker budgets: hanging creates never hold up deletes or statuses (C2)."""

    SYNC = "sync"
    DELETE = "delete"
    STATUS = "status"


class AnchorState(Enum):
    """What stands in the target namespace to own mirrors (C23)."""

    PRESENT = "present"
    NEVER = "not made yet"
    GONE = "it was there, and somebody removed it"


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedChange:
    """A change of a mirror that was refused; another change of the same kind is tried at once."""

    fingerprint: str
    refusal: Refusal
    again_at: datetime
    failures: int = 1
    """How many times in a row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Created:
    """The mirror that this process made, by the answer to its own create."""

    uid: str
    spec: JsonObject
    """As it was sent."""


def is_found(mirror: JsonObject, created: Created | None) -> bool:
    """Tell whether a mirror never ran, and nobody here knows by which rules it was made."""
    is_made_here = created is not None and created.uid == uid_of(mirror)
    return is_gated(mirror) and not node_name_of(mirror) and not is_made_here


@dataclass(frozen=True, slots=True, kw_only=True)
class PodView:
    """Everything a decision about one hub pod key rests on."""

    key: ObjectKey
    mirror_key: ObjectKey | None
    """Where a mirror is to be made; None where the namespace rules have no place for it."""
    hub_pod: JsonObject | None
    hub_pod_fresh: bool = False
    """`hub_pod` (or its absence) was read from the hub's quorum in this reconcile."""
    mirrors: Sequence[JsonObject] = ()
    """This virtual node's mirrors whose origin is the key, of any hub pod uid."""
    mirrors_fresh: bool = False
    """`mirrors` was confirmed by direct reads of the target in this reconcile."""
    last_state: JsonObject | None = None
    """The mirror of this very hub pod as it was last seen before it vanished."""
    created: Created | None = None
    taken_back: str = ""
    """The uid of a mirror that this process deleted, and that never ran."""
    attempt_open: bool = False
    """This process wrote the intent, so it has no need to look where else a mirror may stand."""
    anchor: AnchorState = AnchorState.NEVER
    anchor_fresh: bool = False
    occupant: bool = False
    """An object that is not ours has the mirror's name."""
    hold: Hold | None = None
    """What of the pod's companions is not in the target yet, where a mirror stands or shall."""
    shared: Mapping[str, frozenset[tuple[Kind, str]]] = field(default_factory=dict)
    """By target namespace, as far as it was asked in this reconcile: which objects there the pod
    may name as they are."""
    held_since: datetime | None = None
    """Since when it is on its way; None where nothing is."""
    port_clash: PortClash | None = None
    """Which other pod has, or is about to have, a host port that a pod needs which is new here."""
    fail_wait_seconds: float = 0.0
    """How long the pod has to wait until it may fail, where refused pods do."""
    weakened_by: str = ""
    """Fields that the target dropped, without which the mirror would run weaker than asked."""
    unmarked: bool = False
    """The mirror on record is there, by its uid, but somebody took its marks off."""
    target_reachable: bool = True
    target_known: bool = True
    """The target says which cluster it is: absence was confirmed by its identity (C5)."""
    claim_words: str = ""
    """What the target says of the pod's claims, while it has no storage for them."""
    claim_names: Mapping[str, str] | None = field(default_factory=dict)
    """How a mirror that is to be judged must call the claims of the pod's volumes; None where one
    of them is not known (any more)."""
    hub_api: HubApi | None = UNLED
    """Where the names of the hub's API server lead in a mirror that is to be judged; None where
    that is not known (any more)."""
    network_refusal: Blocked | None = None
    """Which NetworkPolicies of the hub keep the pod from being mirrored, where they may."""
    addresses: AddressDecision | None = None
    """Which addresses of mirrors are shown, as it is decided now; None: as the rules say."""
    leaving: bool = False
    """The virtual node is being left: what has no mirror gets none."""
    futile: str = ""
    """Fingerprint of a write the hub answered without taking it; see `plan_hub_write`."""
    futile_metadata: str = ""
    """Fingerprint of a change to the mirror's metadata that the target undid at once."""
    refused: Mapping[str, RefusedChange] = field(default_factory=dict)
    """Changes of the mirror that the target refused, by their kind."""
    now: datetime

    @property
    def hold_told_at(self) -> datetime:
        """When the pod is to say that it waits for companions."""
        return (self.held_since or self.now) + HELD_TOLD_AFTER


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRules:
    """What stays the same for all pods of a virtual node."""

    render: RenderRules
    addresses: Addresses
    target_name: str
    allow_system_namespaces: bool = False


# -- the steps -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Nothing:
    """All is as it should be, or waits for an event, or for a time."""

    reason: str
    again_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LookUpHubPod:
    """Read the hub pod from the quorum before a decision that cannot be taken back."""

    reason: str
    lane: Lane = Lane.DELETE


@dataclass(frozen=True, slots=True, kw_only=True)
class LookUpRival:
    """Read another hub pod from the quorum: has it really the port that this one needs?"""

    reason: str
    rival: ObjectKey
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LookUpRivalMirror:
    """Read that one's mirror from the target: does it live, and have the port?"""

    reason: str
    mirror: ObjectKey
    uid: str
    """Of the other hub pod."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LookUpMirror:
    """Read the mirror by its name, and list by hub pod uid: is it really not there?"""

    reason: str
    lane: Lane


@dataclass(frozen=True, slots=True, kw_only=True)
class LookUpAnchor:
    """Read the anchor: was the mirror's end an uninstall?"""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LookUpShared:
    """Ask for what the pod names in that namespace: do people there share it? (C30)"""

    reason: str
    namespace: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteHubPod:
    """Patch `pods/status` of the hub pod: record, annotations and status in one."""

    reason: str
    lane: Lane
    write: HubWrite
    refusal: Refusal | None = None
    """Told as an Event beside the write."""
    intent: MirrorRecord | None = None
    """The intent that the write records, where it is one."""
    fails: bool = False
    """It lets a pod fail that gets no mirror: the others of its owner wait from now on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareGround:
    """Make sure of the target namespace, its default service account, and the anchor."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateMirror:
    """Send the create: the intent is on record. The mirror is born gated."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UngateMirror:
    """Let the target's scheduler have the mirror: its uid is on record."""

    reason: str
    mirror: JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchMirror:
    """Change labels and annotations of the mirror."""

    reason: str
    mirror: JsonObject
    metadata: JsonDict
    fingerprint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMirror:
    """Take a change of the hub pod's spec over to that very mirror (C25)."""

    reason: str
    mirror: JsonObject
    update: Update


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteMirror:
    """Delete that mirror under its uid; `grace_seconds` None leaves its own."""

    reason: str
    mirror: JsonObject
    grace_seconds: int | None
    as_seen: bool = False
    """Only if nothing has happened to it since: it never ran, and may have begun to."""
    weakened_by: str = ""
    """Which dropped fields are the reason: remembered, so that it is not made again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteHubPod:
    """Delete the hub pod under its uid and the version the decision was taken on."""

    reason: str
    uid: str
    resource_version: str
    grace_seconds: int


Step: TypeAlias = (
    Nothing
    | LookUpHubPod
    | LookUpRival
    | LookUpRivalMirror
    | LookUpMirror
    | LookUpAnchor
    | LookUpShared
    | WriteHubPod
    | PrepareGround
    | CreateMirror
    | UngateMirror
    | PatchMirror
    | UpdateMirror
    | DeleteMirror
    | DeleteHubPod
)


def lane_of(step: Step) -> Lane:
    """Say whose budget a step is taken from."""
    match step:
        case WriteHubPod(lane=lane) | LookUpMirror(lane=lane) | LookUpHubPod(lane=lane):
            return lane
        case PrepareGround() | CreateMirror() | UngateMirror() | PatchMirror() | UpdateMirror():
            return Lane.SYNC
        case LookUpShared() | LookUpRival() | LookUpRivalMirror():
            return Lane.SYNC
        case LookUpAnchor() | DeleteMirror() | DeleteHubPod():
            return Lane.DELETE
        case Nothing():
            return Lane.STATUS


def touches_target(step: Step) -> bool:
    """Tell whether a step waits for the target: such a step never runs in the status lane."""
    return isinstance(
        step,
        (
            LookUpMirror,
            LookUpAnchor,
            LookUpShared,
            LookUpRivalMirror,
            PrepareGround,
            CreateMirror,
            UngateMirror,
            PatchMirror,
            UpdateMirror,
            DeleteMirror,
        ),
    )


def belongs(step: Step, lane: str, *, first: bool) -> bool:
    """Tell whether a step may run in a lane's budget.

    The first step must be of the lane itself. Later ones go on in the same hand (what was looked up
    stays fresh), but creates only in their own lane, and nothing that waits for the target in the
    status lane: so a hanging target holds up neither deletes nor statuses (C2).
    """
    if lane_of(step) == lane:
        return True
    if first or (lane == Lane.STATUS and touches_target(step)):
        return False
    if isinstance(step, LookUpHubPod):
        # One before an update is worth nothing here: the update would be another lane's again.
        return step.lane != Lane.SYNC
    return not isinstance(
        step,
        (
            LookUpRivalMirror,
            PrepareGround,
            LookUpShared,
            CreateMirror,
            UngateMirror,
            PatchMirror,
            UpdateMirror,
        ),
    )
