"""Carry out the plan for one claim: the thin half of `plan`.

A round builds a view, asks `plan_claim` for one step, executes it, and looks again. It may be
killed between any two lines: what it makes has names that follow from the hub's claim, and marks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, assert_never

import structlog

from federate.claims.keys import ClaimKey, Handle, handle_of, origin_of_claim
from federate.claims.plan import plan_claim
from federate.claims.ports import ClaimTools
from federate.claims.provision import give_up, place_of
from federate.claims.reasons import ClaimReason
from federate.claims.steps import (
    Change,
    ClaimView,
    ConfirmUnreferenced,
    CreateClaim,
    CreateVolume,
    Delete,
    GiveUp,
    Look,
    LookForUsers,
    LookUp,
    PrepareGround,
    Rest,
    Seen,
    Sought,
    Standing,
    Step,
    Users,
    Wish,
)
from federate.claims.users import Waiting
from federate.claims.words import as_on_hub, latest_warning
from federate.companions.steps import Blocked, Ground
from federate.errors import (
    AlreadyExists,
    ClusterError,
    Conflict,
    Forbidden,
    NotFound,
    Rejected,
    ServerFault,
)
from federate.flow.refusals import Refusals
from federate.model.objects import (
    JsonDict,
    JsonObject,
    ObjectKey,
    key_of,
    resource_version_of,
    uid_of,
)
from federate.model.reasons import PodReason
from federate.model.resources import CLAIMS, CORE_EVENTS, STORAGE_CLASSES, VOLUMES, Resource

log = structlog.stdlib.get_logger(__name__)

MAX_STEPS = 24
"""Steps of one round: the longest road has fourteen. More: two writers undo each other."""
RESTLESS_SECONDS = 5.0
UNBOUND_SECONDS = 30.0
"""How often to ask what the target says while it has no storage for a claim."""
LEAST_SECONDS = 0.1
"""Timers may be early by a hair; nothing is looked at again before this."""
BLOCKED_SECONDS = 60.0
"""A right that was given, a class that was made: nothing tells of it."""
_INTERNAL_ERROR = 500
"""What a failing admission webhook is answered with; 502 to 504 are of proxies and of overload."""

_RESOURCES: Mapping[Sought, Resource] = {
    Sought.HUB_CLAIM: CLAIMS,
    Sought.VOLUME: VOLUMES,
    Sought.HUB_CLASS: STORAGE_CLASSES,
    Sought.CLAIM: CLAIMS,
    Sought.TARGET_CLASS: STORAGE_CLASSES,
}


_Write: TypeAlias = CreateClaim | CreateVolume | Change | GiveUp | Delete


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """How a round ended: where the claim came to rest, and of which versions that is true."""

    rest: Rest | None
    """None: it did not come to rest."""
    versions: Mapping[Sought, str] = field(default_factory=dict)
    """"" where there is none; nothing of what was not asked for."""
    again_seconds: float | None = None
    said: str = ""
    """The target's words while it has no storage."""


class ClaimRound:
    """One reconcile of one claim: the view grows surer from step to step."""

    def __init__(
        self,
        key: ClaimKey,
        *,
        tools: ClaimTools,
        waiting: Waiting,
        refusals: Refusals[str, str],
        volume_name: str,
    ) -> None:
        self.key = key
        self._tools = tools
        self._ports = tools.ports
        self._waiting = waiting
        self._refusals = refusals
        self._volume_name = volume_name
        self._namespace = tools.namespace_of(key.namespace)
        self._seen: dict[Look, Seen] = {}
        self._users = Users.UNKNOWN
        self._keeps: set[Wish] = set()
        self._taken: set[str] = set()
        """Changes that a cluster took in this round."""
        self._is_unreferenced: bool | None = None
        self._is_prepared = False
        self._conflicts = 0
        self._again_at: float | None = None

    async def run(self) -> Settled:
        """Go on until nothing is left to do now.

        Raises:
            LeadershipLost, NotOurs, ClusterError: as the steps do.
        """
        for _ in range(MAX_STEPS):
            step = plan_claim(self._view())
            if isinstance(step, Rest):
                return await self._settle(step)
            log.debug("step", step=type(step).__name__, reason=step.reason)
            settled = await self._execute(step)
            if settled is not None:
                return settled
        log.warning("a claim does not come to rest; somebody undoes what federate writes")
        return Settled(rest=None, again_seconds=RESTLESS_SECONDS)

    def _view(self) -> ClaimView:
        ports, namespace = self._ports, self._namespace
        return ClaimView(
            key=self.key,
            scope=ports.scope,
            rules=self._tools.rules,
            target_name=ports.target_name,
            target_namespace=namespace,
            volume_name=self._volume_name,
            ground=ports.ground.state(namespace) if namespace else Ground.NOT_YET,
            seen=self._seen,
            users=self._users,
            is_leaving=ports.leaving(),
            keeps=frozenset(self._keeps),
            is_unreferenced=self._is_unreferenced,
        )

    async def _execute(self, step: Step) -> Settled | None:
        """Carry out one step; the plan is asked for the next, unless the round is over."""
        match step:
            case LookUp():
                await self._look_up(step.look)
            case LookForUsers():
                self._users = await self._waiting.users(self.key.hub_key)
            case ConfirmUnreferenced():
                await self._list_referrers(step.handle)
            case PrepareGround():
                return await self._prepare_ground()
            case Rest():
                raise AssertionError("run() sees to it")
            case _:
                return await self._write(step)
        return None

    async def _write(self, step: _Write) -> Settled | None:
        match step:
            case CreateClaim():
                return await self._create_claim(step)
            case CreateVolume():
                return await self._create_volume(step)
            case Change():
                await self._change(step)
                return None
            case GiveUp():
                return await self._give_up(step)
            case Delete():
                return await self._delete(step)
            case _:
                assert_never(step)

    # -- coming to rest ----------------------------------------------------------------------------

    async def _settle(self, rest: Rest) -> Settled:
        said = "" if rest.is_bound_there else await self._ask_for_words(rest)
        again = [BLOCKED_SECONDS] if rest.standing is Standing.BLOCKED else []
        if not rest.is_bound_there:
            again.append(UNBOUND_SECONDS)
        if self._again_at is not None:
            again.append(self._seconds_until(self._again_at))
        return self._settled(rest, again_seconds=min(again, default=None), said=said)

    def _seconds_until(self, at: float) -> float:
        return max(LEAST_SECONDS, at - self._ports.clock())

    def _settled(
        self, rest: Rest | None, *, again_seconds: float | None, said: str = ""
    ) -> Settled:
        versions = {
            look.sought: resource_version_of(seen.obj) if seen.obj is not None else ""
            for look, seen in self._seen.items()
            if not seen.forbids
        }
        return Settled(rest=rest, versions=versions, again_seconds=again_seconds, said=said)

    async def _ask_for_words(self, rest: Rest) -> str:
        """Say on the hub why the target has no storage yet: its own words, in the hub's names."""
        look, claim = self._claim_there(rest)
        if claim is None:
            return ""
        try:
            listing = await self._ports.target.list(
                CORE_EVENTS,
                namespace=look.key.namespace,
                field_selector=f"involvedObject.uid={uid_of(claim)}",
            )
        except ClusterError as error:
            log.info("what the target says of a claim is not known", error=str(error))
            return ""
        said = as_on_hub(latest_warning(listing.items), {look.key: self.key.hub_key})
        if said:
            self._tell(PodReason.CLAIM_PENDING, f"{self._ports.target_name} says: {said}")
        return said

    def _claim_there(self, rest: Rest) -> tuple[Look, JsonObject | None]:
        place = rest.handle.key if rest.handle else place_of(self._view(), self.key)
        look = Look(Sought.CLAIM, place)
        return look, self._seen.get(look, Seen()).obj

    def _tell(self, reason: str, message: str, *, warning: bool = True) -> None:
        hub_claim = self._seen.get(Look(Sought.HUB_CLAIM, self.key.hub_key), Seen()).obj
        if hub_claim is not None:
            self._tools.events.event(
                CLAIMS,
                hub_claim,
                reason=reason,
                note=message,
                action="Provisioning",
                warning=warning,
            )

    # -- looking -----------------------------------------------------------------------------------

    async def _look_up(self, look: Look) -> None:
        is_on_hub = look.sought.is_on_hub
        cluster = self._ports.hub if is_on_hub else self._ports.target
        self._ports.count_read(cluster.name)
        try:
            found = Seen(obj=await cluster.get(_RESOURCES[look.sought], look.key))
        except NotFound:
            await (self._ports.confirm_hub() if is_on_hub else self._ports.confirm_target())
            found = Seen()
        except Forbidden as error:
            found = Seen(forbids=error.detail)
        self._seen[look] = found

    async def _prepare_ground(self) -> Settled | None:
        if self._is_prepared:
            return self._settled(None, again_seconds=BLOCKED_SECONDS)
        await self._ports.ground.prepare(self.key.namespace)
        self._is_prepared = True
        return None

    async def _list_referrers(self, handle: Handle) -> None:
        scope = self._ports.scope
        listing = await self._ports.hub.list(VOLUMES, label_selector=scope.selector)
        await self._ports.confirm_hub()
        led_to = {handle_of(scope, volume) for volume in listing.items}
        self._is_unreferenced = handle not in led_to

    # -- writing -----------------------------------------------------------------------------------

    def _fence_target(self) -> None:
        self._ports.fence()
        self._ports.fence_target()

    def _fence(self, *, is_on_hub: bool) -> None:
        if is_on_hub:
            self._ports.fence()
        else:
            self._fence_target()

    async def _create_claim(self, step: CreateClaim) -> Settled | None:
        held = self._refusals.refused("create", now=self._ports.clock())
        if held is not None:
            return await self._refused_there(held.why)
        self._fence_target()
        place = key_of(step.body)
        try:
            reply = await self._ports.target.create(CLAIMS, step.body, namespace=place.namespace)
        except AlreadyExists as error:
            self._look_again(error, Look(Sought.CLAIM, place))
            return None
        except ClusterError as error:
            return await self._refused_there(self._words_of(error, self.key))
        if origin_of_claim(self._ports.scope, reply) != self.key:
            return await self._take_back(reply, place)
        self._seen[Look(Sought.CLAIM, place)] = Seen(obj=reply)
        self._tell(
            ClaimReason.CLAIM_MADE,
            f"storage is asked for in {self._ports.target_name}, by claim {place}",
            warning=False,
        )
        log.info("claim made", claim=str(place), reason=step.reason)
        return None

    def _words_of(self, error: ClusterError, what: object) -> str:
        """Return what a refusal says; what may pass is raised."""
        is_refused = isinstance(error, (Forbidden, Rejected))
        is_broken = isinstance(error, ServerFault) and error.status == _INTERNAL_ERROR
        if not is_refused and not is_broken:
            raise error
        return f"{self._ports.target_name} does not take {what}; it answered: {error.detail}"

    async def _refused_there(self, message: str) -> Settled | None:
        now = self._ports.clock()
        if self._refusals.refused("create", now=now) is None:
            self._refusals.note_refused("create", message, now=now)
        hub_claim = self._seen[Look(Sought.HUB_CLAIM, self.key.hub_key)].obj
        assert hub_claim is not None  # noqa: S101 (who makes a claim has seen it)
        why = Blocked(reason=PodReason.CLAIM_REFUSED, message=message)
        return await self._give_up(give_up(hub_claim, why))

    async def _take_back(self, reply: JsonObject, place: ObjectKey) -> Settled | None:
        """Delete what came back without our marks: nobody could find it again.

        It is ours beyond doubt, and empty: the reply to our own create names its uid.
        """
        self._fence_target()
        await self._ports.target.delete(CLAIMS, place, uid=uid_of(reply))
        name = self._ports.target_name
        return await self._refused_there(
            f"{name} strips federate's labels or annotations from what stands for {self.key} (an "
            "admission webhook or policy): let federate.dev/ keys pass there"
        )

    async def _create_volume(self, step: CreateVolume) -> Settled | None:
        self._ports.fence()
        look = Look(Sought.VOLUME, ObjectKey("", key_of(step.body).name))
        try:
            reply = await self._ports.hub.create(VOLUMES, step.body)
        except AlreadyExists as error:
            self._look_again(error, look)
            return None
        except (Forbidden, Rejected) as error:
            message = f"the hub does not take the volume for {self.key}: {error.detail}"
            self._tell(PodReason.CLAIM_PENDING, message)
            why = Blocked(reason=PodReason.CLAIM_PENDING, message=message)
            rest = Rest(reason="refused", standing=Standing.BLOCKED, blocked=why)
            return self._settled(rest, again_seconds=BLOCKED_SECONDS)
        self._seen[look] = Seen(obj=reply)
        log.info("volume made", volume=look.key.name, reason=step.reason)
        return None

    async def _change(self, step: Change) -> None:
        """Ask for it; refused, or taken and not kept, the pods go on with what there is."""
        change, is_on_hub = _named(step), step.look.sought.is_on_hub
        held = self._refusals.refused(change, now=self._ports.clock())
        if held is not None:
            self._keep(step, held.again_at)
            return
        if change in self._taken:
            # The plan has seen the reply, and asks for the same: an admission webhook, say.
            self._note_unkept(step, self._unkept_words(step))
            return
        try:
            self._seen[step.look] = Seen(obj=await self._patch(step))
        except (Conflict, NotFound) as error:
            self._look_again(error, step.look)
        except ClusterError as error:
            if is_on_hub:
                raise
            self._note_unkept(step, self._words_of(error, f"{step.wish.value} of {self.key}"))
        else:
            self._taken.add(change)

    def _unkept_words(self, step: Change) -> str:
        name = "the hub" if step.look.sought.is_on_hub else self._ports.target_name
        return (
            f"{name} takes {step.wish.value} of {self.key} ({step.wanted}) and does not keep it "
            "(an admission webhook or policy)"
        )

    def _note_unkept(self, step: Change, words: str) -> None:
        if step.wish is Wish.SIZE:
            self._tell(ClaimReason.EXPANSION_REFUSED, words)
        log.info("a change of a claim is not kept", said=words)
        noted = self._refusals.note_refused(_named(step), words, now=self._ports.clock())
        self._keep(step, noted.again_at)

    def _keep(self, step: Change, again_at: float) -> None:
        """Leave it as it is until then."""
        self._keeps.add(step.wish)
        self._again_at = again_at if self._again_at is None else min(self._again_at, again_at)

    async def _patch(self, step: Change) -> JsonDict:
        is_on_hub = step.look.sought.is_on_hub
        self._fence(is_on_hub=is_on_hub)
        cluster = self._ports.hub if is_on_hub else self._ports.target
        return await cluster.patch(
            _RESOURCES[step.look.sought], step.look.key, step.patch, subresource=step.subresource
        )

    async def _give_up(self, step: GiveUp) -> Settled | None:
        """Tell why, and let the scheduler choose again; ever more seldom, for it may choose us."""
        why, now = step.blocked, self._ports.clock()
        self._tell(why.reason, why.message)
        rest = Rest(reason=step.reason, standing=Standing.BLOCKED, blocked=why)
        held = self._refusals.refused("give up", now=now)
        if held is not None:
            return self._settled(rest, again_seconds=self._seconds_until(held.again_at))
        noted = self._refusals.note_refused("give up", why.message, now=now)
        log.info("a claim cannot be served here", reason=why.reason, said=why.message)
        self._ports.fence()
        look = Look(Sought.HUB_CLAIM, self.key.hub_key)
        try:
            await self._ports.hub.patch(CLAIMS, look.key, step.patch)
        except (Conflict, NotFound) as error:
            self._look_again(error, look)
            return None
        return self._settled(rest, again_seconds=self._seconds_until(noted.again_at))

    async def _delete(self, step: Delete) -> Settled | None:
        is_on_hub = step.look.sought.is_on_hub
        cluster = self._ports.hub if is_on_hub else self._ports.target
        await self._ports.delete_bound.take()
        # It goes on the word of an absence, so both must still be the clusters they were (C5).
        await self._ports.confirm_hub()
        if not is_on_hub:
            await self._ports.confirm_target()
        if not await self._is_still_asked(step):
            return None
        self._fence(is_on_hub=is_on_hub)
        try:
            await cluster.delete(
                _RESOURCES[step.look.sought],
                step.look.key,
                uid=step.uid,
                resource_version=step.resource_version,
            )
        except Conflict as error:
            self._look_again(error, step.look)
            return None
        log.info("deleted", what=step.look.sought.value, key=str(step.look.key), why=step.reason)
        self._seen.pop(step.look, None)
        return None

    async def _is_still_asked(self, step: Delete) -> bool:
        """Read anew what asks for an end; if it is not as it was, the plan is asked again.

        Time went by, in which an administrator may have said `Retain`, or given the data on:
        neither changes the target's claim, so the deletion's own precondition does not tell.
        """
        volume = Look(Sought.VOLUME, ObjectKey("", self._volume_name))
        looks = (Look(Sought.HUB_CLAIM, self.key.hub_key), volume)
        before = [_version_of(self._seen.get(look)) for look in looks]
        for look in looks:
            await self._look_up(look)
        if [_version_of(self._seen[look]) for look in looks] != before:
            return False
        if self._seen[volume].obj is not None:
            return True
        await self._list_referrers(Handle(*step.look.key, step.uid))
        return self._is_unreferenced is True

    def _look_again(self, error: ClusterError, look: Look) -> None:
        """Read anew what was not as we thought, once; then the failure stands."""
        self._conflicts += 1
        if self._conflicts > 1:
            raise error
        self._seen.pop(look, None)


def _named(step: Change) -> str:
    return f"{step.wish.name} {step.wanted}"


def _version_of(seen: Seen | None) -> tuple[str, ...]:
    """Tell what was seen from what is seen now."""
    if seen is None or seen.obj is None:
        return (seen.forbids,) if seen is not None else ()
    return uid_of(seen.obj), resource_version_of(seen.obj)
