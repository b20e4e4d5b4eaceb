"""Carry out the plan for one issued object: the thin half of tokens and news of Services.

A round looks, asks `plan_issued` for one step, does it, and looks again. It may be killed between
any two lines. A token is in memory from the hub's reply to the write in the target, and nowhere
else: of those that are written down only a hash, and when they are to be renewed, is kept (C73).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import assert_never

from federate.companions.identity import (
    IdentityRules,
    TokenAsk,
    account_of,
    token_asks,
    token_request,
)
from federate.companions.issuance import AskForToken, IssuedView, plan_issued
from federate.companions.issued import IssuedKey, IssuedKind, issued_of, listing_of, place_of
from federate.companions.keys import Kind
from federate.companions.lifetimes import (
    RENEW_SHARE,
    TokenFacts,
    facts_of,
    overdue_after_seconds,
    renewed_after_seconds,
)
from federate.companions.ports import CompanionPorts, ListsPort
from federate.companions.refused import discreet
from federate.companions.steps import (
    Blocked,
    ConfirmUnwanted,
    CreateCompanion,
    DeleteCompanion,
    Enlist,
    Ground,
    LookUpCompanion,
    PatchCompanion,
    PrepareGround,
    Rest,
    Standing,
    Strike,
)
from federate.errors import (
    AlreadyExists,
    ClusterError,
    Conflict,
    FederateError,
    Forbidden,
    NotFound,
    NotOurs,
    Rejected,
    ServerFault,
)
from federate.model.objects import (
    JsonDict,
    JsonObject,
    ObjectKey,
    fingerprint_of,
    resource_version_of,
    spec_of,
    uid_of,
)
from federate.model.pods import is_terminal
from federate.model.reasons import PodReason
from federate.model.resources import PODS
from federate.patch.document import PatchBody

MOST_STEPS = 32
"""Steps of one round: the longest road has about ten, and one for each token. More: somebody there
undoes what we write."""
LINGER_SECONDS = 60.0
"""How long news of Services stay when nobody wants them: the next pod of the namespace may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptToken:
    """What is remembered of a token that stands in the target; instants by the monotonic clock."""

    digest: str
    renew_at: float
    overdue_at: float


@dataclass(slots=True)
class IssueMemory:
    """What this process knows of one issued object; makes it only surer."""

    rest: Rest | None = None
    version: str = ""
    """What stood in the target when all was as it ought to be."""
    variables: str = ""
    """Of the environment: a fingerprint of what was written."""
    kept: dict[TokenAsk, KeptToken] = field(default_factory=dict)
    unwanted_since: float | None = None
    is_overdue_told: bool = False
    is_left_told: bool = False
    held_uid: str = ""
    """The object that this process wrote."""

    def renew_at(self) -> float:
        """Say when the first of its tokens is due."""
        return min((token.renew_at for token in self.kept.values()), default=float("inf"))

    def is_overdue(self, now: float) -> bool:
        """Tell whether a token should have been renewed, and is not."""
        return any(token.overdue_at <= now for token in self.kept.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class IssueWishes:
    """What is wanted of one issued object just now."""

    hub_pod: JsonObject | None
    """The pod that tokens are for, while it is known and not over."""
    is_wanted: bool
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class IssueTools:
    """What each round acts through."""

    ports: CompanionPorts
    lists: ListsPort
    rules: IdentityRules
    is_used: Callable[[Kind, ObjectKey], bool]
    """Whether a mirror refers to that object of the target."""
    wall_clock: Callable[[], float]
    """Seconds since the epoch; only tokens of a former process are measured by it."""
    renew_share: float = RENEW_SHARE


class IssueRound:
    """One reconcile of one issued object: the view grows surer from step to step."""

    def __init__(
        self, key: IssuedKey, *, tools: IssueTools, memory: IssueMemory, wishes: IssueWishes
    ) -> None:
        self._key = key
        self._tools = tools
        self._ports = tools.ports
        self._memory = memory
        self._wishes = wishes
        self._place = place_of(tools.rules.scope, key)
        self._issued: JsonDict | None = None
        self._issued_fresh = False
        self._entry: JsonObject | None = None
        self._entry_fresh = False
        self._unwanted_fresh = False
        self._is_over = False
        """The hub said in this round that the pod is gone."""
        self._minted: dict[TokenAsk, tuple[str, TokenFacts, float]] = {}

    async def run(self) -> Rest:
        """Carry out steps until there is nothing left to do.

        Raises:
            ClusterError: whatever a cluster answered; what it means for pods is in the memory.
        """
        if await self._is_untouched() and self._memory.rest is not None:
            return self._memory.rest
        for _ in range(MOST_STEPS):
            view = self._view()
            step = plan_issued(view)
            match step:
                case Rest():
                    return self._come_to_rest(view, step)
                case ConfirmUnwanted():
                    if not await self._confirm_unwanted():
                        return Rest(reason="something needs it yet", standing=Standing.ABSENT)
                case PrepareGround() | LookUpCompanion() | Enlist() | Strike():
                    await self._make_sure(step)
                case AskForToken() | CreateCompanion() | PatchCompanion() | DeleteCompanion():
                    await self._act(step)
                case _:
                    assert_never(step)
        raise FederateError(
            f"{self._key}: it does not become as it was written, somebody undoes it"
        )

    async def _make_sure(self, step: PrepareGround | LookUpCompanion | Enlist | Strike) -> None:
        match step:
            case PrepareGround():
                await self._prepare()
            case LookUpCompanion():
                await self._look_up()
            case Enlist():
                await self._enlist()
            case Strike(entry=entry):
                await self._ports.confirm_target()
                await self._tools.lists.strike(self._place, entry)
                self._entry, self._entry_fresh = None, False
            case _:
                assert_never(step)

    async def _act(
        self, step: AskForToken | CreateCompanion | PatchCompanion | DeleteCompanion
    ) -> None:
        match step:
            case AskForToken(ask=ask):
                await self._ask(ask)
            case CreateCompanion(body=body):
                await self._create(body)
            case PatchCompanion(patch=patch):
                await self._patch(patch)
            case DeleteCompanion(uid=uid, resource_version=version):
                await self._delete(uid, version)
            case _:
                assert_never(step)

    # -- looking -----------------------------------------------------------------------------------

    def _view(self) -> IssuedView:
        rules, ports = self._tools.rules, self._ports
        namespace = self._key.target_namespace
        asks = self._asks()
        return IssuedView(
            key=self._key,
            scope=rules.scope,
            target_name=ports.target_name,
            is_wanted=self._is_wanted(),
            unwanted_fresh=self._unwanted_fresh,
            lingers=self._lingers(),
            asks=asks,
            good=frozenset(ask for ask in asks if self._is_good(ask)),
            minted={ask.value_key: minted[0] for ask, minted in self._minted.items()},
            variables=self._wishes.variables,
            issued=self._issued,
            issued_fresh=self._issued_fresh,
            ground=ports.ground.state(namespace),
            anchor=ports.ground.anchor(namespace),
            entry=self._entry,
            entry_fresh=self._entry_fresh,
            has_line=self._tools.lists.has_line(self._place),
            is_held=self._is_held(),
        )

    def _is_held(self) -> bool:
        """Tell whether no delete of a process that led before fits what is there any more."""
        if self._key.kind is IssuedKind.TOKENS:
            return True  # they were deleted for a pod that does not come back
        is_written = self._issued is not None and uid_of(self._issued) == self._memory.held_uid
        return is_written or self._tools.is_used(self._key.kind.kind, self._place)

    def _entry_there(self) -> JsonObject | None:
        is_secret = self._key.kind is IssuedKind.TOKENS
        return self._tools.lists.entry(self._place) if is_secret else None

    def _is_wanted(self) -> bool:
        return self._wishes.is_wanted and not self._is_over

    def _asks(self) -> tuple[TokenAsk, ...]:
        pod = self._wishes.hub_pod
        return token_asks(spec_of(pod)) if pod is not None else ()

    def _lingers(self) -> bool:
        memory, now = self._memory, self._ports.clock()
        if self._key.kind is IssuedKind.TOKENS or self._is_wanted() or self._ports.leaving():
            return False
        if memory.unwanted_since is None:
            memory.unwanted_since = now
        return now - memory.unwanted_since < LINGER_SECONDS

    async def _is_untouched(self) -> bool:
        """Tell whether all is as it was left, from the metadata alone."""
        memory = self._memory
        is_settled = memory.rest is not None and memory.rest.standing is Standing.SETTLED
        is_listed = self._key.kind is IssuedKind.SERVICES or self._entry_there() is not None
        is_due = (
            memory.variables != fingerprint_of(self._wishes.variables)
            or memory.renew_at() <= self._ports.clock()
            or memory.kept.keys() != set(self._asks())
        )
        is_ground = self._ports.ground.state(self._place.namespace) is Ground.READY
        if not (self._is_wanted() and is_settled and is_listed and is_ground) or is_due:
            return False
        try:
            there = await self._ports.target.get(
                self._key.resource, self._place, metadata_only=True
            )
        except NotFound:
            return False
        return resource_version_of(there) == memory.version

    async def _look_up(self) -> None:
        if not self._entry_fresh:
            # Before the look: who makes the Secret after it takes up the entry first.
            self._entry = self._entry_there()
        try:
            self._see(await self._ports.target.get(self._key.resource, self._place))
        except NotFound:
            self._see(None)
        except Forbidden as error:
            if self._is_wanted():
                self._block(
                    PodReason.COMPANION_REFUSED,
                    f"{self._ports.target_name} does not let federate read what stands there for "
                    f"the {self._key}: {error.detail}",
                )
            raise

    def _see(self, issued: JsonDict | None) -> None:
        self._issued, self._issued_fresh = issued, True

    def _see_written(self, issued: JsonDict) -> None:
        self._memory.held_uid = uid_of(issued)
        self._see(issued)

    def _is_good(self, ask: TokenAsk) -> bool:
        """Tell whether the token that stands there is good for some time to come."""
        token = self._token_there(ask)
        if token is None:
            return False
        kept = self._memory.kept.get(ask)
        if kept is None:
            kept = self._recognised(ask, token)
        return (
            kept is not None
            and kept.digest == _digest(token)
            and self._ports.clock() < kept.renew_at
        )

    def _token_there(self, ask: TokenAsk) -> str | None:
        value = ((self._issued or {}).get("data") or {}).get(ask.value_key)
        try:
            return base64.b64decode(value).decode() if value else None
        except (binascii.Error, ValueError):
            return None

    def _recognised(self, ask: TokenAsk, token: str) -> KeptToken | None:
        """Take over a token that a former process wrote, where it is what is asked for."""
        facts = facts_of(token)
        if facts is None or facts.pod_uid != self._key.uid:
            return None
        if ask.audience and ask.audience not in facts.audiences:
            return None
        age = max(0.0, self._tools.wall_clock() - facts.issued_at)
        kept = self._kept(token, facts, born_at=self._ports.clock() - age)
        self._memory.kept[ask] = kept
        return kept

    def _kept(self, token: str, facts: TokenFacts, *, born_at: float) -> KeptToken:
        share = self._tools.renew_share
        return KeptToken(
            digest=_digest(token),
            renew_at=born_at + renewed_after_seconds(facts, self._key.uid, share=share),
            overdue_at=born_at + overdue_after_seconds(facts),
        )

    # -- whether it is wanted ----------------------------------------------------------------------

    async def _confirm_unwanted(self) -> bool:
        """Make sure that no pod needs it any more: neither one of the hub nor a mirror."""
        if self._key.kind is IssuedKind.TOKENS:
            self._unwanted_fresh = await self._pod_is_over()
        else:
            self._unwanted_fresh = not self._tools.is_used(self._key.kind.kind, self._place)
        return self._unwanted_fresh

    async def _pod_is_over(self) -> bool:
        """Ask the hub whether the pod, and no other of its name, is there and may yet run."""
        try:
            pod = await self._ports.hub.get(PODS, self._key.pod)
        except NotFound:
            pod = {}
        if uid_of(pod) == self._key.uid:
            return is_terminal(pod)
        await self._ports.confirm_hub()
        return True

    # -- acting ------------------------------------------------------------------------------------

    def _fence(self) -> None:
        self._ports.fence()
        self._ports.fence_target()

    async def _prepare(self) -> None:
        """Make the ground; what keeps it from being made is told by the pod's own reconcile."""
        await self._ports.ground.prepare(self._key.namespace)
        namespace = self._key.target_namespace
        if self._ports.ground.state(namespace) is Ground.NOT_YET:
            raise FederateError(f"namespace {namespace} of {self._ports.target_name} is not ready")

    async def _ask(self, ask: TokenAsk) -> None:
        """Have the hub issue a token; it is the pod's, whoever asks again."""
        pod = self._wishes.hub_pod
        assert pod is not None  # noqa: S101 (who asks for tokens is there)
        account = ObjectKey(self._key.namespace, account_of(pod))
        asked_at = self._ports.clock()
        self._ports.fence()
        try:
            reply = await self._ports.hub.request_token(account, token_request(ask, pod))
        except (NotFound, Conflict) as error:
            if await self._pod_is_over():
                self._is_over = self._unwanted_fresh = True
                return
            self._refused(ask, account, error)
            raise _waits(error) from error
        except (Forbidden, Rejected) as error:
            self._refused(ask, account, error)
            raise
        token = str((reply.get("status") or {}).get("token") or "")
        facts = facts_of(token)
        if facts is None or facts.pod_uid not in ("", self._key.uid):
            raise ServerFault(
                "the reply is no token of that pod",
                cluster=self._ports.hub.name,
                verb="create",
                subject=f"token of service account {account}",
            )
        value = base64.b64encode(token.encode()).decode()
        self._minted[ask] = (value, facts, asked_at)

    def _refused(self, ask: TokenAsk, account: ObjectKey, error: ClusterError) -> None:
        audience = f' for audience "{ask.audience}"' if ask.audience else ""
        self._block(
            PodReason.TOKEN_REFUSED,
            f"the hub issues no token of service account {account}{audience}: {error.detail}",
        )

    def _block(self, reason: PodReason, message: str) -> None:
        """Let pods say why they wait; the error goes on to whoever tries again."""
        self._memory.rest = Rest(
            reason=reason,
            standing=Standing.BLOCKED,
            blocked=Blocked(reason=reason, message=message),
        )

    async def _enlist(self) -> None:
        try:
            self._entry = await self._tools.lists.enlist(self._place, listing_of(self._key))
        except (Forbidden, Rejected) as error:
            self._not_taken(error)
            raise
        except NotOurs as error:
            self._block(PodReason.NAME_TAKEN, str(error))
            raise
        self._entry_fresh = True

    async def _create(self, body: JsonObject) -> None:
        self._fence()
        resource = self._key.resource
        try:
            created = await self._ports.target.create(
                resource, body, namespace=self._place.namespace
            )
        except AlreadyExists:
            self._issued_fresh = False
            return
        except ClusterError as error:
            raise self._not_taken(error) from None
        if issued_of(self._tools.rules.scope, created) != self._key:
            await self._ports.target.delete(resource, self._place, uid=uid_of(created))
            self._block(
                PodReason.MARKS_REMOVED,
                f"{self._ports.target_name} takes federate's marks off the {self._key}: it was "
                "removed again. Let its admission leave federate.dev/ alone",
            )
            raise NotOurs(f"{self._key}: the target takes off federate's marks")
        self._see_written(created)

    async def _patch(self, patch: PatchBody) -> None:
        self._fence()
        try:
            patched = await self._ports.target.patch(self._key.resource, self._place, patch)
            self._see_written(patched)
        except NotFound:
            self._issued_fresh = False
        except ClusterError as error:
            raise self._not_taken(error) from None

    def _not_taken(self, error: ClusterError) -> ClusterError:
        """Tell a refusal; return the error without words that show a token (C73)."""
        there = (self._issued or {}).get("data") or {}
        minted = {ask.value_key: minted[0] for ask, minted in self._minted.items()}
        said = discreet(error, self._key.kind.kind, {"data": {**there, **minted}})
        if isinstance(error, (Forbidden, Rejected)):
            self._block(
                PodReason.COMPANION_REFUSED,
                f"{self._ports.target_name} does not take the {self._key}: {said.detail}",
            )
        return said

    async def _delete(self, uid: str, version: str) -> None:
        await self._ports.confirm_target()
        self._fence()
        # Where no answer comes it may yet arrive: what it names is to be taken up again.
        self._memory.held_uid = ""
        await self._ports.target.delete(
            self._key.resource, self._place, uid=uid, resource_version=version
        )
        self._issued_fresh = False

    def _come_to_rest(self, view: IssuedView, rest: Rest) -> Rest:
        memory = self._memory
        if rest.standing is Standing.SETTLED and self._issued is not None:
            memory.version = resource_version_of(self._issued)
            memory.variables = fingerprint_of(view.variables)
            for ask, (_, facts, asked_at) in self._minted.items():
                token = self._token_there(ask)
                if token is not None:
                    memory.kept[ask] = self._kept(token, facts, born_at=asked_at)
            memory.is_overdue_told = memory.is_overdue_told and memory.is_overdue(
                self._ports.clock()
            )
        if view.is_wanted:
            memory.unwanted_since = None
        memory.rest = rest
        return rest


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _waits(error: ClusterError) -> FederateError:
    """Let what only a person can change be tried at leisure."""
    return Rejected(
        error.detail,
        cluster=error.cluster,
        verb=error.verb,
        subject=error.subject,
        reason=error.reason,
        status=error.status,
    )
