"""Carry out the plan for one followed Service: the thin half of `plan`.

A round builds a view, asks `plan_service` for one step, executes it, and looks again. It may be
killed between any two lines: what it makes is found again by its marks, and every write names the
version it is about.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, assert_never

import structlog

from federate.cluster.port import ClusterPort
from federate.companions.steps import Blocked
from federate.errors import AlreadyExists, ClusterError, Conflict, NotFound
from federate.model.marks import RECORD_ANNOTATION, record_of
from federate.model.objects import (
    JsonDict,
    JsonObject,
    ObjectKey,
    annotations_of,
    is_terminating,
    metadata_of,
    resource_version_of,
    uid_of,
)
from federate.model.resources import PODS, SERVICES
from federate.services.following import ServiceKey, service_of
from federate.services.plan import plan_service
from federate.services.ports import ServicePorts
from federate.services.refusals import (
    Memory,
    change_of,
    refusal_of_write,
    stripped_words,
    undone_words,
)
from federate.services.rules import FollowMode
from federate.services.steps import (
    ConfirmUnwanted,
    CreateService,
    DeleteService,
    LookUpCompanion,
    LookUpHubService,
    PatchService,
    Rest,
    ServiceReason,
    ServiceView,
    Standing,
    Step,
)

log = structlog.stdlib.get_logger(__name__)

MAX_STEPS = 12
"""Steps of one round: the longest road has six. More: two writers undo each other."""
RESTLESS_SECONDS = 5.0
GROUND_SECONDS = 5.0
"""How soon to look whether the first mirror has its ground by now; its record comes after it."""
UNCLEAR_SECONDS = 60.0
"""How long to wait where a listing shows pods that no event told of."""
ENDING_SECONDS = 5.0
BLOCKED_SECONDS = 60.0
"""Nothing tells that a stranger's Service of the name is gone."""
SELDOM_SECONDS = 300.0
"""Where an event tells when to look again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """How a round ended: where the Service came to rest, and of which versions that is true."""

    rest: Rest | None
    """None: it did not come to rest."""
    hub_service: JsonObject | None = None
    """As it was read; for whoever is told."""
    hub_version: str | None = None
    """"" where the hub has none; None where it was not asked."""
    companion_version: str | None = None
    again_seconds: float | None = None


class Need(NamedTuple):
    """Whether pods that want a Service are there, at the moment of asking."""

    is_wanted: bool
    lingers_seconds: float = 0.0
    """How long what nobody wants may still stay."""


class ServiceRound:
    """One reconcile of one Service: the view grows surer from step to step."""

    def __init__(
        self,
        key: ServiceKey,
        *,
        mode: FollowMode,
        ports: ServicePorts,
        memory: Memory,
        need: Callable[[], Need],
    ) -> None:
        self.hub_seen: str | None = None
        """The version that the watch told during the round, "" for a deletion."""
        self.companion_seen: str | None = None
        """The same of the target's."""
        self._key = key
        self._mode = mode
        self._ports = ports
        self._memory = memory
        self._need = need
        self._hub_service: JsonObject | None = None
        self._hub_fresh = False
        self._companion: JsonObject | None = None
        self._companion_fresh = False
        self._is_unwanted_for_sure = False
        self._conflicts = 0

    async def run(self) -> Settled:
        """Go on until nothing is left to do now.

        Raises:
            LeadershipLost, ClusterError: as the steps do.
        """
        await self._take_back()
        for _ in range(MAX_STEPS):
            step = plan_service(self._view())
            if isinstance(step, Rest):
                return self._settled(step, self._again_seconds(step))
            log.debug("step", step=type(step).__name__, reason=step.reason)
            settled = self._held_back(step) or await self._execute(step)
            if settled is not None:
                return settled
        log.warning("a Service does not come to rest; somebody undoes what federate writes")
        return self._settled(None, RESTLESS_SECONDS)

    def _view(self) -> ServiceView:
        key, ports, need = self._key, self._ports, self._need()
        return ServiceView(
            key=key,
            scope=ports.scope,
            mode=self._mode,
            target_name=ports.target_name,
            is_wanted=need.is_wanted,
            lingers=need.lingers_seconds > 0,
            unwanted_fresh=self._is_unwanted_for_sure,
            hub_service=self._hub_service,
            hub_fresh=self._hub_fresh,
            companion=self._companion,
            companion_fresh=self._companion_fresh,
            ground=ports.ground.state(key.target_namespace),
            anchor=ports.ground.anchor(key.target_namespace),
        )

    def _settled(self, rest: Rest | None, again_seconds: float | None) -> Settled:
        return Settled(
            rest=rest,
            hub_service=self._hub_service,
            hub_version=_version(self._hub_service) if self._hub_fresh else None,
            companion_version=_version(self._companion) if self._companion_fresh else None,
            again_seconds=again_seconds,
        )

    def _again_seconds(self, rest: Rest) -> float | None:
        if rest.standing is Standing.WAITING:
            return GROUND_SECONDS
        if rest.blocked is not None:
            return _BLOCKED_AGAIN.get(rest.blocked.reason, BLOCKED_SECONDS)
        need = self._need()
        if not need.is_wanted and need.lingers_seconds > 0:
            return need.lingers_seconds
        is_ending = self._companion is not None and is_terminating(self._companion)
        return ENDING_SECONDS if is_ending else None

    def _held_back(self, step: Step) -> Settled | None:
        """Do not try before its time what the target refused."""
        now = self._ports.clock()
        refused = self._memory.refusals.refused(change_of(step), now=now)
        return self._blocked(refused.why, refused.again_at - now) if refused else None

    def _blocked(self, blocked: Blocked, again_seconds: float) -> Settled:
        rest = Rest(reason="refused", standing=Standing.BLOCKED, blocked=blocked)
        return self._settled(rest, again_seconds)

    async def _execute(self, step: Step) -> Settled | None:
        """Carry out one step; the plan is asked for the next, unless the round is over."""
        match step:
            case LookUpHubService():
                await self._look_up_hub_service()
            case LookUpCompanion():
                await self._look_up_companion()
            case ConfirmUnwanted():
                return await self._confirm_unwanted()
            case CreateService() | PatchService():
                return await self._write(step)
            case DeleteService():
                return await self._delete(step)
            case Rest():
                raise AssertionError("run() sees to it")
            case _:
                assert_never(step)
        return None

    # -- looking -----------------------------------------------------------------------------------

    async def _look_up_hub_service(self) -> None:
        self._hub_service = await _read(self._ports.hub, self._key.hub_key)
        if self._hub_service is None:
            await self._ports.confirm_hub()
        self._hub_fresh = True

    async def _look_up_companion(self) -> None:
        self._companion = await _read(self._ports.target, self._key.target_key)
        if self._companion is None:
            await self._ports.confirm_target()
        self._companion_fresh = True

    async def _confirm_unwanted(self) -> Settled | None:
        ports, key = self._ports, self._key
        listing = await ports.hub.list(
            PODS,
            namespace=key.namespace,
            field_selector=f"spec.nodeName={ports.scope.node_name},"
            "status.phase!=Succeeded,status.phase!=Failed",
            metadata_only=True,
            shrink=_outline,
        )
        await ports.confirm_hub()
        records = [record_of(pod) for pod in listing.items]
        if any(r is not None and r.mirror.namespace == key.target_namespace for r in records):
            return self._settled(None, UNCLEAR_SECONDS)
        self._is_unwanted_for_sure = True
        return None

    # -- writing -----------------------------------------------------------------------------------

    def _fence(self) -> None:
        """Stop before a write to the target where we may not act, or it is another cluster."""
        self._ports.fence()
        self._ports.fence_target()

    async def _write(self, step: CreateService | PatchService) -> Settled | None:
        self._fence()
        target, key = self._ports.target, self._key
        try:
            if isinstance(step, CreateService):
                reply = await target.create(SERVICES, step.body, namespace=key.target_namespace)
            else:
                reply = await target.patch(SERVICES, key.target_key, step.patch)
        except (AlreadyExists, NotFound, Conflict) as error:
            self._look_again(error)
            return None
        except ClusterError as error:
            return self._refuse(step, error)
        if isinstance(step, CreateService) and service_of(self._ports.scope, reply) is None:
            return await self._undo_stripped(step, reply)
        self._note_written(step)
        self._companion = reply
        log.info("service written", service=str(key.target_key), reason=step.reason)
        return None

    def _look_again(self, error: ClusterError) -> None:
        """Read anew what was not as we thought, once; then the failure stands."""
        self._conflicts += 1
        if self._conflicts > 1:
            raise error
        self._companion_fresh = False

    def _refuse(self, step: Step, error: ClusterError) -> Settled:
        """Tell a refusal and wait; what may pass is raised."""
        blocked = refusal_of_write(error, self._key, target_name=self._ports.target_name)
        if blocked is None:
            raise error
        return self._wait_with(step, blocked)

    def _wait_with(self, step: Step, blocked: Blocked) -> Settled:
        now = self._ports.clock()
        refused = self._memory.refusals.note_refused(change_of(step), blocked, now=now)
        log.info("a Service does not follow", reason=blocked.reason, said=blocked.message)
        return self._blocked(blocked, refused.again_at - now)

    def _note_written(self, step: CreateService | PatchService) -> None:
        refusals, change = self._memory.refusals, change_of(step)
        now = self._ports.clock()
        if refusals.is_made_again(type(step).__name__, change, now=now):
            words = undone_words(self._key, target_name=self._ports.target_name)
            refusals.note_refused(change, words, now=now)

    async def _undo_stripped(self, step: CreateService, reply: JsonObject) -> Settled:
        """Take back what came back without our marks: nobody could find it again.

        It is ours beyond doubt: the reply to our own create names its uid.
        """
        self._memory.stripped_uid = uid_of(reply)
        words = stripped_words(self._key, target_name=self._ports.target_name)
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
            await self._ports.target.delete(SERVICES, self._key.target_key, uid=uid)
        except Conflict:
            log.info("a stripped Service is gone already", service=str(self._key.target_key))
        self._memory.stripped_uid = ""

    async def _delete(self, step: DeleteService) -> Settled | None:
        await self._ports.delete_bound.take()
        # It goes on the word of an absence: in a cluster that took the target's place it is not
        # ours to judge (C5).
        await self._ports.confirm_target()
        self._fence()
        try:
            await self._ports.target.delete(
                SERVICES,
                self._key.target_key,
                uid=step.uid,
                resource_version=step.resource_version,
            )
        except Conflict as error:
            self._look_again(error)
            return None
        except ClusterError as error:
            return self._refuse(step, error)
        log.info("service deleted", service=str(self._key.target_key), reason=step.reason)
        self._companion_fresh = False
        return None


_BLOCKED_AGAIN: Mapping[str, float] = {
    ServiceReason.SERVICE_ENDING: ENDING_SECONDS,
    ServiceReason.UNINSTALLED: SELDOM_SECONDS,
}


async def _read(cluster: ClusterPort, key: ObjectKey) -> JsonDict | None:
    try:
        return await cluster.get(SERVICES, key)
    except NotFound:
        return None


def _outline(pod: JsonDict) -> JsonDict:
    """Keep what `record_of` reads: there may be very many, with long annotations."""
    record = annotations_of(pod).get(RECORD_ANNOTATION)
    kept = {RECORD_ANNOTATION: record} if record is not None else {}
    return {"metadata": {"uid": metadata_of(pod).get("uid"), "annotations": kept}}


def _version(obj: JsonObject | None) -> str:
    return resource_version_of(obj) if obj is not None else ""
