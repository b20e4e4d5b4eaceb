"""The hub decides who asks and what they may; its answers are kept for a time, and no longer."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from federate.errors import (
    Forbidden,
    NotFound,
    Rejected,
    ServerFault,
    Throttled,
    Unauthorized,
    Unreachable,
)
from federate.kubelet import access
from federate.kubelet.access import HubAccess, Once
from federate.kubelet.ports import Caller, NodeAccess, PeerCertificate, Unauthenticated
from federate.kubelet.reviews import (
    CREDENTIAL_ID,
    access_review,
    caller_of_certificate,
    caller_of_review,
    digest_of,
    is_allowed,
    token_review,
)
from federate.model.objects import JsonObject
from federate.model.resources import SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS
from tests.support.clock import ManualClock, virtual_loop, virtual_time
from tests.support.credentials import jwt
from tests.support.fakecluster import FakeCluster
from tests.support.kubelethub import KubeletHub

API_SERVER = PeerCertificate(
    common_name="kube-apiserver-kubelet-client", organizations=("system:masters",), fingerprint="ab"
)
JANE = Caller(user="jane", groups=("crew", "system:authenticated"))
LOGS = NodeAccess("get", "log")
PROXY = NodeAccess("get", "proxy")
TOKEN = "a-secret-token-that-nobody-may-see"

Made = tuple[HubAccess, KubeletHub]


def known_as(user: str, *groups: str, **more: Any) -> Callable[[JsonObject], dict[str, Any]]:
    return lambda spec: {
        "authenticated": True,
        "user": {"username": user, "groups": list(groups), **more},
    }


def made(*, vouches: bool = True, wall_clock: Callable[[], float] | None = None) -> Made:
    loop = asyncio.get_running_loop()
    hub = KubeletHub(FakeCluster("hub", loop.time))
    found = HubAccess(
        hub=hub,
        node_name="edge",
        vouches=lambda certificate: vouches,
        clock=loop.time,
        wall_clock=wall_clock or loop.time,
    )
    return found, hub


# -- questions and answers -------------------------------------------------------------------------


def test_a_token_is_reviewed_without_audiences_as_a_kubelet_does() -> None:
    assert token_review("t")["spec"] == {"token": "t"}


def test_a_question_about_rights_names_node_and_subresource_as_a_kubelet_does() -> None:
    caller = replace(JANE, uid="7", extra={"scopes": ("a", "b")})
    assert access_review(caller, LOGS, node_name="edge")["spec"] == {
        "user": "jane",
        "uid": "7",
        "groups": ["crew", "system:authenticated"],
        "extra": {"scopes": ["a", "b"]},
        "resourceAttributes": {
            "verb": "get",
            "version": "v1",
            "resource": "nodes",
            "subresource": "log",
            "name": "edge",
        },
    }


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"authenticated": False, "user": {"username": "jane"}},
        {"authenticated": "true", "user": {"username": "jane"}},
        {"authenticated": True},
        {"authenticated": True, "user": "jane"},
        {"authenticated": True, "user": {"username": ""}},
        {"authenticated": True, "user": {"username": "system:anonymous"}},
        {"authenticated": True, "user": {"username": "x", "groups": ["system:unauthenticated"]}},
    ],
)
def test_an_answer_that_names_nobody_names_nobody(status: dict[str, Any]) -> None:
    assert caller_of_review({"status": status}) is None


def test_an_answer_tells_user_uid_groups_and_extra() -> None:
    status = known_as("jane", "crew", uid="7", extra={"scopes": ["a"]})({})
    caller = caller_of_review({"status": status})
    assert caller is not None
    assert (caller.user, caller.uid, caller.extra) == ("jane", "7", {"scopes": ("a",)})
    assert caller.groups == ("crew", "system:authenticated")


def test_a_certificate_tells_user_groups_and_which_it_is() -> None:
    caller = caller_of_certificate(API_SERVER)
    assert caller is not None
    assert caller.groups == ("system:masters", "system:authenticated")
    assert caller.extra == {CREDENTIAL_ID: ("X509SHA256=ab",)}


def test_a_certificate_of_nobody_names_nobody() -> None:
    """Neither the anonymous user nor its group can be had by a certificate."""
    assert caller_of_certificate(replace(API_SERVER, common_name="system:anonymous")) is None
    groups = ("system:unauthenticated",)
    assert caller_of_certificate(replace(API_SERVER, organizations=groups)) is None


@pytest.mark.parametrize(
    ("status", "allowed"),
    [
        ({"allowed": True}, True),
        ({"allowed": False}, False),
        ({"allowed": True, "denied": True}, False),
        ({"allowed": "true"}, False),
        ({}, False),
    ],
)
def test_only_a_plain_yes_is_a_yes(status: dict[str, Any], allowed: bool) -> None:
    assert is_allowed({"status": status}) is allowed


def test_different_questions_have_different_keys() -> None:
    """Also where callers choose names so that the parts run into each other."""
    callers = (
        Caller(user="a", groups=("b", "c")),
        Caller(user="a", groups=("b,c",)),
        Caller(user='a","groups":["b","c"]'),
        Caller(user="a", uid="b", groups=("c",)),
        Caller(user="a", extra={"groups": ("b", "c")}),
    )
    keys = {
        digest_of(access_review(caller, found, node_name="edge"))
        for caller in callers
        for found in (LOGS, PROXY)
    }
    assert len(keys) == 2 * len(callers)


# -- who asks --------------------------------------------------------------------------------------


@virtual_time
async def test_a_verified_certificate_needs_no_question() -> None:
    found, hub = made()
    caller = await found.authenticate(API_SERVER, TOKEN)
    assert caller.user == "kube-apiserver-kubelet-client"
    assert not hub.reviews


@virtual_time
async def test_a_certificate_nobody_vouches_for_any_more_tells_nothing() -> None:
    """The client CA changed, or it ended: then the token tells, or nobody does."""
    found, hub = made(vouches=False)
    with pytest.raises(Unauthenticated):
        await found.authenticate(API_SERVER, "")
    hub.whose = known_as("jane")
    assert (await found.authenticate(API_SERVER, TOKEN)).user == "jane"


@virtual_time
async def test_nobody_is_nobody() -> None:
    """Without certificate and token the hub is not even asked."""
    found, hub = made()
    with pytest.raises(Unauthenticated):
        await found.authenticate(None, "")
    with pytest.raises(Unauthenticated):
        await found.authenticate(None, "x" * (access.MOST_TOKEN_CHARACTERS + 1))
    assert not hub.reviews


@virtual_time
async def test_a_token_the_hub_knows_is_believed_for_two_minutes() -> None:
    found, hub = made()
    hub.whose = known_as("jane")
    for _ in range(5):
        assert (await found.authenticate(None, TOKEN)).user == "jane"
    assert hub.count(TOKEN_REVIEWS) == 1
    hub.whose = lambda spec: {"authenticated": False}
    await asyncio.sleep(access.KNOWN_SECONDS - 1)
    await found.authenticate(None, TOKEN)
    await asyncio.sleep(2)
    with pytest.raises(Unauthenticated):
        await found.authenticate(None, TOKEN)
    assert hub.count(TOKEN_REVIEWS) == 2


@virtual_time
async def test_a_token_is_not_believed_beyond_its_own_end() -> None:
    clock = virtual_loop().time
    found, hub = made(wall_clock=lambda: clock() - 1000 + 1_800_000_000)
    hub.whose = known_as("jane")
    token = jwt(iat=1_799_999_000, exp=1_800_000_010)
    await found.authenticate(None, token)
    await asyncio.sleep(9)
    await found.authenticate(None, token)
    assert hub.count(TOKEN_REVIEWS) == 1
    hub.whose = lambda spec: {"authenticated": False}
    await asyncio.sleep(2)
    with pytest.raises(Unauthenticated):
        await found.authenticate(None, token)


@virtual_time
async def test_a_token_the_hub_refused_is_refused_for_half_a_minute() -> None:
    found, hub = made()
    for _ in range(5):
        with pytest.raises(Unauthenticated):
            await found.authenticate(None, TOKEN)
    assert hub.count(TOKEN_REVIEWS) == 1
    hub.whose = known_as("jane")
    await asyncio.sleep(access.UNKNOWN_SECONDS + 1)
    assert (await found.authenticate(None, TOKEN)).user == "jane"


@virtual_time
async def test_the_same_token_at_one_time_is_asked_about_once() -> None:
    found, hub = made()
    hub.whose = known_as("jane")
    callers = await asyncio.gather(*(found.authenticate(None, TOKEN) for _ in range(50)))
    assert {caller.user for caller in callers} == {"jane"}
    assert hub.count(TOKEN_REVIEWS) == 1


@virtual_time
async def test_who_goes_away_takes_nobody_along() -> None:
    """The first of two equal questions is cancelled; the other one gets the answer."""
    found, hub = made()
    hub.whose = known_as("jane")
    hub.hold = lambda: asyncio.sleep(1)
    first = asyncio.create_task(found.authenticate(None, TOKEN))
    await asyncio.sleep(0.1)
    second = asyncio.create_task(found.authenticate(None, TOKEN))
    await asyncio.sleep(0.1)
    first.cancel()
    assert (await second).user == "jane"
    assert hub.count(TOKEN_REVIEWS) == 1


@virtual_time
async def test_a_flood_of_made_up_tokens_is_bounded_and_hurts_nobody_known() -> None:
    """Neither who is known already, nor who has a certificate, waits behind strangers."""
    found, hub = made()
    hub.whose = known_as("jane")
    await found.authenticate(None, TOKEN)
    hub.whose = lambda spec: {"authenticated": False}
    hub.hold = lambda: asyncio.sleep(5)
    flood = [found.authenticate(None, f"made-up-{n}") for n in range(2 * access.MOST_WAITING)]
    told = asyncio.gather(*flood, return_exceptions=True)
    await asyncio.sleep(1)
    assert (await found.authenticate(None, TOKEN)).user == "jane"
    assert (await found.authenticate(API_SERVER, "")).user
    kinds = [type(one) for one in await told]
    assert kinds.count(Unauthenticated) == access.MOST_WAITING
    assert kinds.count(Throttled) == access.MOST_WAITING
    assert hub.count(TOKEN_REVIEWS) == 1 + access.MOST_WAITING


@virtual_time
async def test_what_strangers_ask_pushes_out_nothing_that_is_known() -> None:
    found, hub = made()
    hub.whose = known_as("jane")
    await found.authenticate(None, TOKEN)
    hub.whose = lambda spec: {"authenticated": False}
    for n in range(access.MOST_KEPT + 100):
        with pytest.raises(Unauthenticated):
            await found.authenticate(None, f"made-up-{n}")
    asked = hub.count(TOKEN_REVIEWS)
    assert (await found.authenticate(None, TOKEN)).user == "jane"
    assert hub.count(TOKEN_REVIEWS) == asked
    kept = len(found._unknown) + len(found._known)
    assert kept <= 2 * access.MOST_KEPT


# -- may they --------------------------------------------------------------------------------------


@virtual_time
async def test_what_is_allowed_is_allowed_for_five_minutes_what_is_not_is_asked_sooner() -> None:
    found, hub = made()
    hub.allows = lambda spec: {"allowed": True}
    assert await found.may(JANE, [LOGS])
    hub.allows = lambda spec: {"allowed": False}
    await asyncio.sleep(access.ALLOWED_SECONDS - 1)
    assert await found.may(JANE, [LOGS])
    await asyncio.sleep(2)
    assert not await found.may(JANE, [LOGS])
    hub.allows = lambda spec: {"allowed": True}
    assert not await found.may(JANE, [LOGS])
    await asyncio.sleep(access.DENIED_SECONDS + 1)
    assert await found.may(JANE, [LOGS])
    assert hub.count(SUBJECT_ACCESS_REVIEWS) == 3


@virtual_time
async def test_alternatives_are_asked_in_order_until_one_is_allowed() -> None:
    found, hub = made()
    hub.allows = lambda spec: {"allowed": spec["resourceAttributes"]["subresource"] == "proxy"}
    assert await found.may(JANE, [NodeAccess("get", "pods"), PROXY, LOGS])
    asked = [one["spec"]["resourceAttributes"]["subresource"] for one in hub.reviews]
    assert asked == ["pods", "proxy"]
    assert not await found.may(JANE, [])


@virtual_time
async def test_one_callers_right_is_never_anothers() -> None:
    """Nor one of other groups, nor of another verb or subresource."""
    found, hub = made()
    hub.allows = lambda spec: {
        "allowed": spec == access_review(JANE, LOGS, node_name="edge")["spec"]
    }
    assert await found.may(JANE, [LOGS])
    assert not await found.may(replace(JANE, user="john"), [LOGS])
    assert not await found.may(replace(JANE, groups=()), [LOGS])
    assert not await found.may(JANE, [NodeAccess("create", "log"), PROXY])
    assert hub.count(SUBJECT_ACCESS_REVIEWS) == 5


# -- when the hub does not answer ------------------------------------------------------------------


@virtual_time
async def test_a_dead_connection_is_tried_once_more() -> None:
    found, hub = made()
    hub.whose = known_as("jane")
    hub.fails_once = [Unreachable("reset")]
    assert (await found.authenticate(None, TOKEN)).user == "jane"


@virtual_time
@pytest.mark.parametrize("error", [Unreachable("no"), Throttled("no"), ServerFault("no")])
async def test_no_answer_is_neither_yes_nor_no_and_is_not_kept(error: Any) -> None:
    found, hub = made()
    hub.refuses = {one.plural: error for one in (TOKEN_REVIEWS, SUBJECT_ACCESS_REVIEWS)}
    with pytest.raises(type(error)):
        await found.authenticate(None, TOKEN)
    with pytest.raises(type(error)):
        await found.may(JANE, [LOGS])
    hub.refuses = {}
    hub.whose, hub.allows = known_as("jane"), lambda spec: {"allowed": True}
    assert (await found.authenticate(None, TOKEN)).user == "jane"
    assert await found.may(JANE, [LOGS])


@virtual_time
async def test_a_hub_that_hangs_is_no_answer() -> None:
    found, hub = made()
    hub.hold = lambda: asyncio.sleep(3600)
    with pytest.raises(Unreachable):
        await found.authenticate(None, TOKEN)
    with pytest.raises(Unreachable):
        await found.may(JANE, [LOGS])


@virtual_time
@pytest.mark.parametrize("kind", [Forbidden, Unauthorized, Rejected, NotFound])
async def test_a_hub_that_refuses_our_question_refuses_us_not_the_caller(kind: Any) -> None:
    """To the caller it is no answer; what the hub says of the question is not repeated."""
    found, hub = made()
    hub.refuses = {TOKEN_REVIEWS.plural: kind(f"spec.token: Invalid value: {TOKEN}")}
    with capture_logs() as logs, pytest.raises(ServerFault) as told:
        await found.authenticate(None, TOKEN)
    assert TOKEN not in str(told.value)
    assert told.value.__cause__ is None and told.value.__suppress_context__
    assert TOKEN not in json.dumps(logs, default=str)


@virtual_time
async def test_tokens_are_kept_nowhere_in_the_clear() -> None:
    found, hub = made()
    hub.whose = known_as("jane")
    await found.authenticate(None, TOKEN)
    hub.whose = lambda spec: {"authenticated": False}
    with pytest.raises(Unauthenticated):
        await found.authenticate(None, TOKEN + "2")
    kept = repr((vars(found), list(found._known.items()), list(found._unknown.items())))
    assert TOKEN not in kept
    assert base64.b64encode(TOKEN.encode()).decode() not in kept


@virtual_time
async def test_closing_ends_the_questions_under_way() -> None:
    found, hub = made()
    hub.hold = lambda: asyncio.sleep(3600)
    asking = asyncio.create_task(found.authenticate(None, TOKEN))
    await asyncio.sleep(0.1)
    await found.aclose()
    with pytest.raises(Unreachable):
        await asking
    await found.aclose()


@virtual_time
async def test_a_failure_nobody_waits_for_is_taken_note_of() -> None:
    """Warnings are errors in these tests: a task whose exception nobody reads would be one."""
    once: Once[str, int] = Once(what="things")

    async def fail() -> int:
        await asyncio.sleep(1)
        raise ServerFault("no")

    asking = asyncio.create_task(once.ask("a", fail))
    await asyncio.sleep(0.1)
    asking.cancel()
    await asyncio.sleep(2)
    assert not once._asking


def test_the_clock_of_caches_may_be_any() -> None:
    """Nothing is asked of the wall but when tokens end."""
    clock = ManualClock()
    hub = KubeletHub(FakeCluster("hub", clock))
    found = HubAccess(hub=hub, node_name="edge", vouches=lambda _: True, clock=clock)
    assert found._trusted_seconds("opaque") == access.KNOWN_SECONDS
