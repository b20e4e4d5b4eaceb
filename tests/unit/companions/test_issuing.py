"""One round for what is issued: lost replies, races, crashes, and targets that undo it."""

from __future__ import annotations

import asyncio
import base64
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import pytest

from federate.companions.identity import TokenAsk
from federate.companions.issued import IssuedKey, issued_of, place_of
from federate.companions.issuing import IssueMemory, IssueRound, IssueTools, IssueWishes
from federate.companions.lifetimes import facts_of
from federate.companions.steps import Ground, Standing
from federate.errors import (
    ClusterError,
    Conflict,
    FederateError,
    Forbidden,
    NotFound,
    NotOurs,
    Rejected,
    ServerFault,
)
from federate.model.objects import JsonDict, ObjectKey, key_of
from federate.model.reasons import PodReason
from federate.model.resources import CONFIGMAPS, PODS, SECRETS
from tests.support.clock import virtual_time
from tests.support.fakeclient import (
    Call,
    CrashAfter,
    CrashBefore,
    Fault,
    LostReply,
    LostRequest,
    Refuse,
)
from tests.support.fakecluster import EPOCH
from tests.support.faketokens import token_for
from tests.support.issuestage import (
    IssueStage,
    decoded,
    refusing,
    token_volume,
    until,
)
from tests.support.views import SCOPE

API = TokenAsk("", 3600)
FAULTS: list[Callable[[], Fault]] = [LostRequest, LostReply, CrashBefore, CrashAfter]


@dataclass
class Once:
    """Meets the n-th request of an issuer with a fault."""

    number: int
    fault: Fault
    seen: list[str] = field(default_factory=list)

    def __call__(self, call: Call) -> Fault | None:
        if call.verb in ("list", "watch"):
            return None
        self.seen.append(str(call))
        return self.fault if len(self.seen) == self.number + 1 else None

    @property
    def has_struck(self) -> bool:
        return len(self.seen) > self.number


def round_for(stage: IssueStage, pod: JsonDict, memory: IssueMemory) -> IssueRound:
    loop = asyncio.get_running_loop()
    tools = IssueTools(
        ports=stage.ports,
        lists=stage.lists,
        rules=stage.rules,
        is_used=stage.is_used,
        wall_clock=lambda: EPOCH.timestamp() + loop.time(),
    )
    wishes = IssueWishes(hub_pod=pod, is_wanted=True)
    return IssueRound(stage.token_key(pod), tools=tools, memory=memory, wishes=wishes)


def left_in_target(stage: IssueStage) -> list[ObjectKey]:
    """What stands in the target with our marks, other than the anchor."""
    found = [
        obj
        for resource in (SECRETS, CONFIGMAPS)
        for key in (place_of(SCOPE, k) for k in _keys(stage))
        if (obj := stage.target.find(resource, key)) is not None
    ]
    return [key_of(obj) for obj in found if issued_of(SCOPE, obj)]


def _keys(stage: IssueStage) -> list[IssuedKey]:
    pod = {"metadata": {"namespace": "default", "name": "web", "uid": "uid-web"}}
    return [stage.token_key(pod), stage.services_key()]


async def settled(stage: IssueStage, pod: JsonDict) -> None:
    await until(partial(stage.is_ready, pod), seconds=120)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("at_hub", [True, False])
@virtual_time
async def test_whatever_request_fails_or_is_the_last_of_a_process(
    fault: Callable[[], Fault], at_hub: bool
) -> None:
    """The pod gets its token, and nothing is left when it has gone."""
    number = 0
    while True:
        stage = IssueStage()
        cluster = stage.hub if at_hub else stage.target
        cluster.faults = once = Once(number, fault())
        pod = stage.submit()
        async with stage.running():
            await asyncio.sleep(5)
            is_dead = once.has_struck and isinstance(fault(), CrashBefore | CrashAfter)
            if not is_dead:
                await settled(stage, pod)
        if is_dead:
            stage.start()
            async with stage.running():
                await settled(stage, pod)
        cluster.faults = None
        token = decoded(stage.issued(stage.token_key(pod)) or {})[API.value_key]
        assert facts_of(token) is not None
        assert len(stage.listed()) == len(left_in_target(stage)) == 2
        stage.start()
        async with stage.running():
            stage.hub.delete_by_user(PODS, key_of(pod), grace_seconds=0)
            await until(stage.is_empty, seconds=300)
        assert not left_in_target(stage)
        if not once.has_struck:
            break
        number += 1
    assert number >= (1 if at_hub else 5), once.seen


@pytest.mark.parametrize("fault", FAULTS)
@virtual_time
async def test_whatever_request_fails_or_is_the_last_when_the_pod_goes(
    fault: Callable[[], Fault],
) -> None:
    """What is on record is found again, and goes."""
    number = 0
    while True:
        stage = IssueStage()
        pod = stage.submit()
        async with stage.running():
            await settled(stage, pod)
            stage.target.faults = once = Once(number, fault())
            stage.hub.delete_by_user(PODS, key_of(pod), grace_seconds=0)
            await asyncio.sleep(100)
        stage.start()
        async with stage.running():
            await until(stage.is_empty, seconds=300)
        assert not left_in_target(stage)
        if not once.has_struck:
            break
        number += 1
    assert number >= 4, once.seen


@virtual_time
async def test_a_target_that_takes_our_marks_off_gets_no_token() -> None:
    """What came back without them is deleted by its uid, and the pod says so."""
    stage = IssueStage()
    pod = stage.submit()
    memory = IssueMemory()
    create = stage.target.create

    def strip(resource: object, body: JsonDict, key: ObjectKey | None = None) -> JsonDict:
        created = create(resource, body, key)  # type: ignore[arg-type]
        if resource == SECRETS:
            stage.target.edit(SECRETS, key_of(created), lambda s: s["metadata"].pop("labels"))
            created["metadata"].pop("labels")
        return created

    stage.target.create = strip  # type: ignore[method-assign, assignment]
    with pytest.raises(NotOurs):
        await round_for(stage, pod, memory).run()
    assert memory.rest is not None and memory.rest.blocked is not None
    assert memory.rest.blocked.reason == PodReason.MARKS_REMOVED
    assert stage.target.find(SECRETS, place_of(SCOPE, stage.token_key(pod))) is None


@virtual_time
async def test_a_target_that_undoes_what_is_written_is_not_fought_for_ever() -> None:
    """A round ends; the hub is asked for one token, not for one each time."""
    stage = IssueStage()
    pod = stage.submit()
    memory = IssueMemory()
    await round_for(stage, pod, memory).run()
    memory.kept.clear()
    place = place_of(SCOPE, stage.token_key(pod))
    stage.target.edit(SECRETS, place, lambda secret: secret["data"].clear())
    patch = stage.target.patch

    def undo(resource: object, *args: object, **kwargs: object) -> JsonDict:
        patched = patch(resource, *args, **kwargs)  # type: ignore[arg-type]
        if resource == SECRETS:
            stage.target.edit(SECRETS, place, lambda secret: secret["data"].clear())
            patched = stage.target.read(SECRETS, place)
        return patched

    stage.target.patch = undo  # type: ignore[method-assign]
    with pytest.raises(FederateError, match="somebody undoes it"):
        await round_for(stage, pod, memory).run()
    assert len(stage.asked_tokens()) == 2


@pytest.mark.parametrize("token", ["", "no token"])
@virtual_time
async def test_a_reply_without_a_token_is_no_token(token: str) -> None:
    """Nothing is written of it, nor said."""
    stage = IssueStage()
    pod = stage.submit()
    stage.hub.issue_token = lambda *_: {"status": {"token": token}}  # type: ignore[method-assign]
    with pytest.raises(ServerFault, match="no token of that pod"):
        await round_for(stage, pod, IssueMemory()).run()
    assert stage.issued(stage.token_key(pod)) is None


@virtual_time
async def test_a_pod_that_went_meanwhile_is_issued_nothing() -> None:
    """The hub says so where the store does not yet."""
    stage = IssueStage()
    pod = stage.submit()
    stage.hub.delete_by_user(PODS, key_of(pod), grace_seconds=0)
    rest = await round_for(stage, pod, IssueMemory()).run()
    assert rest.standing is Standing.ABSENT and not stage.listed()
    second = stage.submit(uid="another")
    assert second["metadata"]["uid"] == "another"
    rest = await round_for(stage, pod, IssueMemory()).run()
    assert rest.standing is Standing.ABSENT and not stage.listed()


@pytest.mark.parametrize("kind", [NotFound, Conflict])
@virtual_time
async def test_a_refusal_for_a_pod_that_is_there_is_only_for_people_to_end(
    kind: type[NotFound],
) -> None:
    """It is tried again at leisure, and told."""
    stage = IssueStage()
    pod = stage.submit()
    memory = IssueMemory()
    stage.hub.faults = refusing("create", "serviceaccounts", kind("odd", status=409), sub="token")
    with pytest.raises(Rejected, match="odd"):
        await round_for(stage, pod, memory).run()
    assert memory.rest is not None and memory.rest.standing is Standing.BLOCKED


@virtual_time
async def test_a_token_of_another_audience_or_pod_is_not_taken_over() -> None:
    """After a restart only what is asked for counts, whoever wrote it."""
    stage = IssueStage()
    vault = TokenAsk("vault", 3600)
    pod = stage.submit("web", token_volume(audience="vault"))
    await round_for(stage, pod, IssueMemory()).run()
    place = place_of(SCOPE, stage.token_key(pod))
    for odd in ("Zm9v", "%%%", "/w==", _token_of("vault", "another"), _token_of("api", "uid-web")):
        stage.target.edit(SECRETS, place, partial(set_value, vault.value_key, odd))
        await round_for(stage, pod, IssueMemory()).run()
        facts = facts_of(decoded(stage.issued(stage.token_key(pod)) or {})[vault.value_key])
        assert facts is not None
        assert (facts.audiences, facts.pod_uid) == (("vault",), "uid-web")
    assert len(stage.asked_tokens()) == 6


def set_value(key: str, value: str, secret: JsonDict) -> None:
    secret["data"][key] = value


def _token_of(audience: str, uid: str) -> str:
    token = token_for(issued_at=EPOCH.timestamp() + 1000, audiences=[audience], pod_uid=uid)
    return base64.b64encode(token.encode()).decode()


@virtual_time
async def test_a_patch_that_somebody_got_ahead_of_is_made_anew() -> None:
    """Under the version that was seen: a late one changes nothing."""
    stage = IssueStage()
    pod = stage.submit("web", token_volume(expirationSeconds=600))
    memory = IssueMemory()
    await round_for(stage, pod, memory).run()
    await asyncio.sleep(500)
    place = place_of(SCOPE, stage.token_key(pod))

    def overtake(call: Call) -> Fault | None:
        if call.verb == "patch" and call.resource == SECRETS:
            stage.target.faults = None
            stage.target.edit(SECRETS, place, lambda s: s["metadata"].update(annotations={}))
        return None

    stage.target.faults = overtake
    with pytest.raises(Conflict):
        await round_for(stage, pod, memory).run()
    rest = await round_for(stage, pod, memory).run()
    assert rest.standing in (Standing.SETTLED, Standing.BLOCKED)


@virtual_time
async def test_a_secret_that_vanishes_under_a_patch_is_made_again() -> None:
    """In the same round."""
    stage = IssueStage()
    pod = stage.submit("web", token_volume(expirationSeconds=600))
    memory = IssueMemory()
    await round_for(stage, pod, memory).run()
    await asyncio.sleep(500)
    place = place_of(SCOPE, stage.token_key(pod))

    def vanish(call: Call) -> Fault | None:
        if call.verb == "patch" and call.resource == SECRETS:
            stage.target.faults = None
            stage.target.delete_by_user(SECRETS, place)
        return None

    stage.target.faults = vanish
    rest = await round_for(stage, pod, memory).run()
    assert rest.standing is Standing.SETTLED
    assert stage.issued(stage.token_key(pod)) is not None


@virtual_time
async def test_a_patch_that_the_target_refuses_is_told() -> None:
    """The token that stands there stays."""
    stage = IssueStage()
    pod = stage.submit("web", token_volume(expirationSeconds=600))
    memory = IssueMemory()
    await round_for(stage, pod, memory).run()
    await asyncio.sleep(500)
    before = stage.issued(stage.token_key(pod))
    denied = Forbidden("denied by the policy", status=403)
    stage.target.faults = refusing("patch", "secrets", denied)
    with pytest.raises(Forbidden):
        await round_for(stage, pod, memory).run()
    assert memory.rest is not None and memory.rest.blocked is not None
    assert memory.rest.blocked.reason == PodReason.COMPANION_REFUSED
    assert "denied by the policy" in memory.rest.blocked.message
    assert stage.issued(stage.token_key(pod)) == before


@pytest.mark.parametrize("verb", ["create", "patch"])
@pytest.mark.parametrize(
    ("kind", "status"), [(Forbidden, 403), (Rejected, 422), (ServerFault, 500), (Conflict, 409)]
)
@virtual_time
async def test_c73_a_target_that_quotes_a_token_does_not_get_it_told(
    verb: str, kind: type[ClusterError], status: int
) -> None:
    """Neither as it is nor in base64, on the hub pod, in an error, or in what led to it."""
    stage = IssueStage()
    pod = stage.submit("web", token_volume(expirationSeconds=600))
    memory = IssueMemory()
    quoted: list[str] = []
    if verb == "patch":
        await round_for(stage, pod, memory).run()
        await asyncio.sleep(500)

    def quote(call: Call) -> Fault | None:
        if (call.verb, call.resource) != (verb, SECRETS) or call.body is None:
            return None
        (value,) = call.body["data"].values()
        quoted[:] = [value, base64.b64decode(value).decode()]
        return Refuse(kind(f"denied: {quoted[verb == 'patch']}", status=status))

    stage.target.faults = quote
    with pytest.raises(kind) as failed:
        await round_for(stage, pod, memory).run()
    assert quoted
    shown = "".join(traceback.format_exception(failed.value)) + repr(memory) + failed.value.detail
    assert not any(word[:40] in shown for word in quoted)
    if kind in (Forbidden, Rejected):
        assert memory.rest is not None and memory.rest.blocked is not None
        assert "not repeated" in memory.rest.blocked.message


@virtual_time
async def test_who_comes_second_takes_what_is_there() -> None:
    """Another leader created it between our look and our create: the hub is not asked again."""
    stage = IssueStage()
    pod = stage.submit()
    place = place_of(SCOPE, stage.token_key(pod))
    await round_for(stage, pod, IssueMemory()).run()
    theirs = stage.issued(stage.token_key(pod)) or {}
    stage.target.delete_by_user(SECRETS, place)

    def overtake(call: Call) -> Fault | None:
        if call.verb == "create" and call.resource == SECRETS:
            stage.target.faults = None
            stage.target.add(SECRETS, theirs)
        return None

    stage.target.faults = overtake
    rest = await round_for(stage, pod, IssueMemory()).run()
    assert rest.standing is Standing.SETTLED
    assert len(stage.asked_tokens()) == 2


@virtual_time
async def test_where_no_ground_can_be_made_nothing_is_asked_for() -> None:
    """The namespace is another one by today's rules, say."""
    stage = IssueStage()
    pod = stage.submit()
    stage.ground.stands = Ground.NOT_YET
    with pytest.raises(FederateError, match="not ready"):
        await round_for(stage, pod, IssueMemory()).run()
    assert not stage.asked_tokens()
