"""Carry out the plan for one companion: the thin half of `plan`.

A round builds a view, asks `plan_companion` for one step, executes it, and looks again. It may be
killed between any two lines: a Secret is on record before it is made, and all else is found by its
marks. Contents live in the round and end with it; no error that leaves it shows any.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, assert_never

import structlog

from federate.cluster.port import ClusterPort
from federate.companions.confirming import Confirming
from federate.companions.demand import listing_entry
from federate.companions.keys import CompanionKey, Kind, companion_of, name_of
from federate.companions.lists import Lists
from federate.companions.memory import Memory, change_of
from federate.companions.plan import plan_companion
from federate.companions.ports import CompanionPorts
from federate.companions.refused import (
    discreet,
    refusal_of_write,
    stripped_words,
    undone_words,
    unreadable_words,
)
from federate.companions.steps import (
    Blocked,
    CompanionView,
    ConfirmUnwanted,
    CreateCompanion,
    DeleteCompanion,
    Enlist,
    LookUpCompanion,
    LookUpHubObject,
    PatchCompanion,
    PrepareGround,
    Rest,
    Standing,
    Step,
    Strike,
)
from federate.errors import (
    AlreadyExists,
    ClusterError,
    Conflict,
    Forbidden,
    NotFound,
    NotOurs,
    Rejected,
)
from federate.model.objects import JsonDict, JsonObject, is_terminating, resource_version_of, uid_of
from federate.model.reasons import PodReason

log = structlog.stdlib.get_logger(__name__)

MAX_STEPS = 16
"""Steps of one round: the longest road has nine. More: two writers undo each other."""
UNCLEAR_SECONDS = 60.0
"""How long to wait where a listing does not say for sure that nobody wants it."""
RESTLESS_SECONDS = 5.0
ENDING_SECONDS = 5.0
"""How soon to look again at what waits for somebody's finalizer."""
BLOCKED_SECONDS = 30.0
SELDOM_SECONDS = 300.0
"""Where an event tells when to look again."""
UNREADABLE_SECONDS = 60.0
"""A right that was given is noticed within this; nothing tells of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """How a round ended: where the companion came to rest, and of which versions that is true."""

    rest: Rest | None
    """None: it did not come to rest."""
    hub_version: str | None = None
    """"" where the hub has none; None where it was not asked."""
    companion_version: str | None = None
    again_seconds: float | None = None


class Need(NamedTuple):
    """Whether somebody wants a companion, at the moment of asking."""

    is_wanted: bool
    has_hub_pod: bool = False
    """A hub pod refers to it, not a mirror alone."""
    unwanted_since: float = 0.0
    is_used: bool = False
    """A mirror refers to it."""
    lingers_seconds: float = 0.0
    """How long what nobody wants may still stay."""


class CompanionRound:
    """One reconcile of one companion: the view grows surer from step to step."""

    def __init__(
        self,
        key: CompanionKey,
        *,
        ports: CompanionPorts,
        lists: Lists,
        confirming: Confirming,
        memory: Memory,
        need: Callable[[], Need],
    ) -> None:
        self.key = key
        self.hub_seen: str | None = None
        """The version that the watch told during the round, "" for a deletion."""
        self.companion_seen: str | None = None
        """The same of the target's."""
        self._ports = ports
        self._lists = lists
        self._confirming = confirming
        self._memory = memory
        self._need = need
        self._place = name_of(ports.scope, key)
        self._hub_object: JsonObject | None = None
        self._hub_fresh = False
        self._hub_forbids = ""
        self._companion: JsonObject | None = None
        self._companion_fresh = False
        self._entry: JsonObject | None = None
        self._entry_fresh = False
        self._is_unwanted_for_sure = False
        self._is_prepared = False
        self._conflicts = 0

    async def run(self) -> Settled:
        """Go on until nothing is left to do now.

        Raises:
            LeadershipLost, NotOurs, ClusterError: as the steps do.
        """
        await self._take_back()
        for _ in range(MAX_STEPS):
            step = plan_companion(self._view())
            if isinstance(step, Rest):
                return self._settle(step)
            log.debug("step", step=type(step).__name__, reason=step.reason)
            settled = self._held_back(step) or await self._execute(step)
            if settled is not None:
                return settled
        log.warning("a companion does not come to rest; somebody undoes what federate writes")
        return Settled(rest=None, again_seconds=RESTLESS_SECONDS)

    def _view(self) -> CompanionView:
        key, ports, need = self.key, self._ports, self._need()
        return CompanionView(
            key=key,
            scope=ports.scope,
            hub_object=self._hub_object,
            hub_fresh=self._hub_fresh,
            hub_forbids=self._hub_forbids,
            companion=self._companion,
            companion_fresh=self._companion_fresh,
            is_wanted=need.is_wanted,
            has_hub_pod=need.has_hub_pod,
            lingers=need.lingers_seconds > 0,
            unwanted_fresh=self._is_unwanted_for_sure,
            ground=ports.ground.state(key.target_namespace),
            anchor=ports.ground.anchor(key.target_namespace),
            entry=self._entry,
            entry_fresh=self._entry_fresh,
            is_held=need.is_used or self._memory.held_uid == _uid(self._companion),
            has_line=key.kind is Kind.SECRET and self._lists.has_line(self._place),
            target_name=ports.target_name,
        )

    def _settle(self, rest: Rest) -> Settled:
        if rest.blocked is not None and not self._need().is_wanted:
            self._tell_left(rest.blocked)
        return Settled(
            rest=rest,
            hub_version=_version(self._hub_object) if self._hub_fresh else None,
            companion_version=_version(self._companion) if self._companion_fresh else None,
            again_seconds=self._again_seconds(rest),
        )

    def _tell_left(self, blocked: Blocked) -> None:
        """Say once what stays on record though nobody wants it: no pod tells of it."""
        if not self._memory.is_left_told:
            self._memory.is_left_told = True
            log.warning("a Secret on record is left alone", said=blocked.message)

    def _again_seconds(self, rest: Rest) -> float | None:
        if rest.blocked is not None and not self._need().is_wanted:
            return SELDOM_SECONDS
        if rest.blocked is not None:
            return _BLOCKED_AGAIN.get(rest.blocked.reason, BLOCKED_SECONDS)
        need = self._need()
        if not need.is_wanted and need.lingers_seconds > 0:
            return need.lingers_seconds
        # Absent for its pods, and still there for a while.
        is_ending = self._companion is not None and is_terminating(self._companion)
        return ENDING_SECONDS if is_ending else None

    def _held_back(self, step: Step) -> Settled | None:
        """Do not try before its time what the target refused."""
        now = self._ports.clock()
        refused = self._memory.refusals.refused(change_of(step), now=now)
        return self._blocked(refused.why, refused.again_at - now) if refused else None

    def _blocked(self, blocked: Blocked, again_seconds: float) -> Settled:
        rest = Rest(reason="refused", standing=Standing.BLOCKED, blocked=blocked)
        return Settled(
            rest=rest,
            hub_version=_version(self._hub_object) if self._hub_fresh else None,
            companion_version=_version(self._companion) if self._companion_fresh else None,
            again_seconds=again_seconds,
        )

    async def _execute(self, step: Step) -> Settled | None:
        """Carry out one step; the plan is asked for the next, unless the round is over."""
        match step:
            case LookUpHubObject() | LookUpCompanion() | ConfirmUnwanted():
                return await self._look(step)
            case PrepareGround():
                return await self._prepare_ground()
            case Enlist() | Strike():
                return await self._write_list(step)
            case CreateCompanion() | PatchCompanion():
                return await self._write(step)
            case DeleteCompanion():
                return await self._delete(step)
            case Rest():
                raise AssertionError("run() sees to it")
            case _:
                assert_never(step)

    # -- looking -----------------------------------------------------------------------------------

    async def _look(
        self, step: LookUpHubObject | LookUpCompanion | ConfirmUnwanted
    ) -> Settled | None:
        match step:
            case LookUpHubObject():
                await self._look_up_hub_object()
                return None
            case LookUpCompanion():
                return await self._look_up_companion(step)
            case ConfirmUnwanted():
                return await self._confirm_unwanted()
            case _:
                assert_never(step)

    async def _look_up_hub_object(self) -> None:
        try:
            self._hub_object = await self._read(self._ports.hub)
        except Forbidden as error:
            self._hub_forbids = error.detail
            return
        if self._hub_object is None:
            await self._ports.confirm_hub()
        self._hub_fresh = True

    async def _look_up_companion(self, step: LookUpCompanion) -> Settled | None:
        if self.key.kind is Kind.SECRET and not self._entry_fresh:
            # Before the look: who makes the Secret after it takes up the entry first.
            self._entry = self._lists.entry(self._place)
        try:
            self._companion = await self._read(self._ports.target)
        except Forbidden as error:
            if not self._need().is_wanted:
                raise
            name = self._ports.target_name
            return self._wait_with(step, unreadable_words(self.key, error, target_name=name))
        if self._companion is None:
            await self._ports.confirm_target()
        self._companion_fresh = True
        return None

    async def _read(self, cluster: ClusterPort) -> JsonDict | None:
        is_hub = cluster is self._ports.hub
        self._ports.count_read(cluster.name)
        try:
            return await cluster.get(
                self.key.kind.resource, self.key.hub_key if is_hub else self._place
            )
        except NotFound:
            return None

    async def _confirm_unwanted(self) -> Settled | None:
        self._is_unwanted_for_sure = await self._confirming.is_unwanted(
            self.key, since=self._need().unwanted_since
        )
        if self._is_unwanted_for_sure:
            return None
        return Settled(rest=None, again_seconds=UNCLEAR_SECONDS)

    async def _prepare_ground(self) -> Settled | None:
        if self._is_prepared:
            # The namespace is none of today's rules: who stands there made its ground, or nobody.
            return Settled(rest=None, again_seconds=BLOCKED_SECONDS)
        await self._ports.ground.prepare(self.key.namespace)
        self._is_prepared = True
        return None

    # -- writing -----------------------------------------------------------------------------------

    def _fence(self) -> None:
        """Stop before a write to the target where we may not act, or it is another cluster."""
        self._ports.fence()
        self._ports.fence_target()

    async def _write_list(self, step: Enlist | Strike) -> Settled | None:
        try:
            if isinstance(step, Enlist):
                said = listing_entry(self.key)
                self._entry = await self._lists.enlist(self._place, said)
                self._entry_fresh = True
            else:
                await self._lists.strike(self._place, step.entry)
                self._entry, self._entry_fresh = None, False
        except (Rejected, Forbidden) as error:
            return self._refuse(step, error)
        except NotOurs as error:
            blocked = Blocked(reason=PodReason.NAME_TAKEN, message=str(error))
            return self._wait_with(step, blocked)
        return None

    async def _write(self, step: CreateCompanion | PatchCompanion) -> Settled | None:
        self._fence()
        resource, target = self.key.kind.resource, self._ports.target
        try:
            if isinstance(step, CreateCompanion):
                namespace = self.key.target_namespace
                reply = await target.create(resource, step.body, namespace=namespace)
            else:
                reply = await target.patch(resource, self._place, step.patch)
        except (AlreadyExists, NotFound, Conflict) as error:
            self._look_again(error)
            return None
        except ClusterError as error:
            return self._refuse(step, error)
        if isinstance(step, CreateCompanion) and companion_of(self._ports.scope, reply) is None:
            return await self._undo_stripped(step, reply)
        self._note_written(step)
        self._companion = reply
        self._memory.held_uid = uid_of(reply)
        log.info("companion written", companion=str(self._place), reason=step.reason)
        return None

    def _look_again(self, error: ClusterError) -> None:
        """Read anew what was not as we thought, once; then the failure stands."""
        self._conflicts += 1
        if self._conflicts > 1:
            raise discreet(error, self.key.kind, self._hub_object) from None
        self._companion_fresh = False

    def _refuse(self, step: Step, error: ClusterError) -> Settled:
        """Tell a refusal and wait; what may pass is raised, without words that show contents."""
        blocked = refusal_of_write(
            error,
            self.key,
            target_name=self._ports.target_name,
            contents=self._hub_object,
        )
        if blocked is None:
            raise discreet(error, self.key.kind, self._hub_object) from None
        return self._wait_with(step, blocked)

    def _wait_with(self, step: Step, blocked: Blocked) -> Settled:
        now = self._ports.clock()
        refused = self._memory.refusals.note_refused(change_of(step), blocked, now=now)
        log.info("a companion cannot be made", reason=blocked.reason, said=blocked.message)
        return self._blocked(blocked, refused.again_at - now)

    def _note_written(self, step: CreateCompanion | PatchCompanion) -> None:
        refusals, change = self._memory.refusals, change_of(step)
        now = self._ports.clock()
        if refusals.is_made_again(type(step).__name__, change, now=now):
            words = undone_words(self.key, target_name=self._ports.target_name)
            refusals.note_refused(change, words, now=now)

    async def _undo_stripped(self, step: CreateCompanion, reply: JsonObject) -> Settled:
        """Take back what came back without our marks: nobody could find it again.

        It is ours beyond doubt: the reply to our own create names its uid.
        """
        self._memory.stripped_uid = uid_of(reply)
        words = stripped_words(self.key, target_name=self._ports.target_name)
        settled = self._wait_with(step, words)
        await self._take_back()
        return settled

    async def _take_back(self) -> None:
        """Delete a stripped object under its uid; it is remembered until the target answers."""
        uid = self._memory.stripped_uid
        if not uid:
            return
        self._fence()
        try:
            await self._ports.target.delete(self.key.kind.resource, self._place, uid=uid)
        except Conflict:
            log.info("a stripped companion is gone already", companion=str(self._place))
        self._memory.stripped_uid = ""

    async def _delete(self, step: DeleteCompanion) -> Settled | None:
        if not self._need().is_wanted:
            await self._ports.delete_bound.take()
        # It goes on the word of an absence: in a cluster that took the target's place it is not
        # ours to judge (C5).
        await self._ports.confirm_target()
        self._fence()
        # Where no answer comes it may yet arrive: what it names is to be taken up again.
        self._memory.held_uid = ""
        try:
            await self._ports.target.delete(
                self.key.kind.resource,
                self._place,
                uid=step.uid,
                resource_version=step.resource_version,
            )
        except Conflict as error:
            self._look_again(error)
            return None
        except ClusterError as error:
            return self._refuse(step, error)
        log.info("companion deleted", companion=str(self._place), reason=step.reason)
        self._companion_fresh = False
        return None


_BLOCKED_AGAIN: Mapping[str, float] = {
    PodReason.COMPANION_ENDING: ENDING_SECONDS,
    PodReason.COMPANION_UNREADABLE: UNREADABLE_SECONDS,
    PodReason.COMPANION_TOO_LARGE: SELDOM_SECONDS,
    PodReason.UNINSTALLED: SELDOM_SECONDS,
}


def _uid(obj: JsonObject | None) -> str:
    return uid_of(obj) if obj is not None else ""


def _version(obj: JsonObject | None) -> str:
    return resource_version_of(obj) if obj is not None else ""
