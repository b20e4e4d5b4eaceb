"""What a decision about a followed Service rests on, and the steps it may come to. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from federate.companions.steps import Blocked, Ground
from federate.model.marks import Scope
from federate.model.objects import JsonDict, JsonObject
from federate.patch.document import PatchBody
from federate.services.following import ServiceKey
from federate.services.rules import FollowMode


class ServiceReason(StrEnum):
    """Why a Service of the hub does not follow into the target; Events about it say so."""

    NAME_TAKEN = "NameTaken"
    SERVICE_ENDING = "ServiceEnding"
    SERVICE_REFUSED = "ServiceRefused"
    MARKS_REMOVED = "MarksRemoved"
    UNINSTALLED = "Uninstalled"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceView:
    """Everything a decision about one Service rests on."""

    key: ServiceKey
    scope: Scope
    mode: FollowMode
    target_name: str
    is_wanted: bool
    """Pods of its namespace live on the virtual node, in that target namespace."""
    lingers: bool = False
    """They do not, but did a moment ago."""
    unwanted_fresh: bool = False
    """That none does was confirmed by a complete listing in this round."""
    hub_service: JsonObject | None = None
    hub_fresh: bool = False
    """`hub_service` (or its absence) was read from the hub's quorum in this round."""
    companion: JsonObject | None = None
    """What stands in the target under that name, ours or not."""
    companion_fresh: bool = False
    """`companion` (or its absence) was read from the target's quorum in this round."""
    ground: Ground = Ground.NOT_YET
    anchor: JsonObject | None = None


class Standing(StrEnum):
    """Where a followed Service stands."""

    FOLLOWED = "followed"
    ABSENT = "absent"
    WAITING = "waiting"
    BLOCKED = "blocked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """Nothing is to be done until something changes."""

    reason: str
    standing: Standing
    blocked: Blocked | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LookUpHubService:
    """Read the hub's Service by its name."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LookUpCompanion:
    """Read by name what stands in the target."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmUnwanted:
    """List the hub's pods of that namespace on the virtual node, completely, from the quorum."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateService:
    """Create it."""

    reason: str
    body: JsonDict


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchService:
    """Change it, or who owns it, under its uid and version."""

    reason: str
    patch: PatchBody


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteService:
    """Delete that very object, as it was seen: under its uid and version."""

    reason: str
    uid: str
    resource_version: str


Step: TypeAlias = (
    Rest
    | LookUpHubService
    | LookUpCompanion
    | ConfirmUnwanted
    | CreateService
    | PatchService
    | DeleteService
)
