"""The next step for what is issued: one decision after the other."""

from __future__ import annotations

from typing import Any

import pytest

from federate.companions.identity import TokenAsk
from federate.companions.issuance import AskForToken, IssuedView, plan_issued
from federate.companions.issued import (
    IssuedKey,
    listing_of,
    place_of,
    render_issued,
    services_key,
    token_key,
)
from federate.companions.steps import (
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
from federate.model.objects import JsonDict
from federate.model.reasons import PodReason
from tests.support.companions import ANCHOR, TARGET_NAMESPACE, encoded, entry_of
from tests.support.views import SCOPE, hub_pod

TOKENS = token_key(hub_pod().with_uid("uid-1").build(), TARGET_NAMESPACE)
SERVICES = services_key(TARGET_NAMESPACE, "default", has_links=True)
API, VAULT = TokenAsk("", 3600), TokenAsk("vault", 600)
ENTRY = entry_of(place_of(SCOPE, TOKENS), listing_of(TOKENS))
OLD, NEW = encoded("old.token.x"), encoded("new.token.x")


def there(key: IssuedKey = TOKENS, values: dict[str, str] | None = None, **fields: Any) -> JsonDict:
    owner = ENTRY if key is TOKENS else ANCHOR
    made = render_issued(key, values or {API.value_key: OLD}, scope=SCOPE, owner=owner)
    made["metadata"] |= {"uid": "uid-target", "resourceVersion": "3"}
    return {**made, **fields}


def view(key: IssuedKey = TOKENS, **fields: Any) -> IssuedView:
    seen: dict[str, Any] = {
        "is_wanted": True,
        "asks": (API,) if key is TOKENS else (),
        "issued_fresh": True,
        "ground": Ground.READY,
        "anchor": ANCHOR,
        "entry": ENTRY if key is TOKENS else None,
        "entry_fresh": key is TOKENS,
        "is_held": True,
        **fields,
    }
    return IssuedView(key=key, scope=SCOPE, target_name="berlin", **seen)


def blocked_by(step: object) -> str:
    assert isinstance(step, Rest) and step.standing is Standing.BLOCKED and step.blocked
    return step.blocked.reason


def test_the_way_to_a_first_token() -> None:
    """Ground, look, list, ask, create: each only where it is missing."""
    assert isinstance(plan_issued(view(ground=Ground.NOT_YET)), PrepareGround)
    assert isinstance(plan_issued(view(anchor=None)), PrepareGround)
    assert isinstance(plan_issued(view(issued_fresh=False)), LookUpCompanion)
    assert isinstance(plan_issued(view(entry=None, entry_fresh=False)), Enlist)
    assert isinstance(plan_issued(view(entry_fresh=False)), Enlist)
    asked = plan_issued(view(asks=(API, VAULT)))
    assert isinstance(asked, AskForToken) and asked.ask == API
    second = plan_issued(view(asks=(API, VAULT), minted={API.value_key: NEW}))
    assert isinstance(second, AskForToken) and second.ask == VAULT
    created = plan_issued(view(minted={API.value_key: NEW}))
    assert isinstance(created, CreateCompanion)
    assert created.body["data"] == {API.value_key: NEW}
    assert [o["uid"] for o in created.body["metadata"]["ownerReferences"]] == ["uid-entry"]


def test_a_good_token_stays() -> None:
    """The hub is asked for nothing, the target for nothing."""
    step = plan_issued(view(issued=there(), good=frozenset({API})))
    assert isinstance(step, Rest) and step.standing is Standing.SETTLED


def test_an_old_token_is_renewed_and_its_neighbour_stays() -> None:
    """One patch of one value, under uid and version of what was seen."""
    both = there(values={API.value_key: OLD, VAULT.value_key: OLD})
    seen = view(issued=both, asks=(API, VAULT), good=frozenset({VAULT}))
    asked = plan_issued(seen)
    assert isinstance(asked, AskForToken) and asked.ask == API
    step = plan_issued(
        view(
            issued=both,
            asks=(API, VAULT),
            good=frozenset({VAULT}),
            minted={API.value_key: NEW},
        )
    )
    assert isinstance(step, PatchCompanion)
    assert step.patch.body == {
        "metadata": {"uid": "uid-target", "resourceVersion": "3"},
        "data": {API.value_key: NEW},
    }


def test_what_nobody_asks_for_is_taken_out() -> None:
    """A value that somebody in the target put there would be of no use but his."""
    step = plan_issued(
        view(issued=there(values={API.value_key: OLD, "x": OLD}), good=frozenset({API}))
    )
    assert isinstance(step, PatchCompanion) and step.patch.body["data"] == {"x": None}


def test_what_somebody_fixed_is_made_anew() -> None:
    """Of an immutable one no value can be renewed."""
    step = plan_issued(view(issued=there(immutable=True), minted={API.value_key: NEW}))
    assert isinstance(step, DeleteCompanion)
    assert (step.uid, step.resource_version) == ("uid-target", "3")


def test_what_keeps_it_from_coming_is_told() -> None:
    """And nothing is touched that is not ours."""
    assert blocked_by(plan_issued(view(ground=Ground.UNINSTALLED))) == PodReason.UNINSTALLED
    stranger = {"metadata": {"name": place_of(SCOPE, TOKENS).name, "uid": "x"}}
    assert blocked_by(plan_issued(view(issued=stranger))) == PodReason.NAME_TAKEN
    ending = there()
    ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert blocked_by(plan_issued(view(issued=ending))) == PodReason.COMPANION_ENDING
    huge = {f"SERVICE_{n}": "x" * 1000 for n in range(1100)}
    step = plan_issued(view(SERVICES, variables=huge))
    assert blocked_by(step) == PodReason.COMPANION_TOO_LARGE


def test_news_of_services_follow_them() -> None:
    """Exactly the variables of now: one that is gone goes."""
    created = plan_issued(view(SERVICES, variables={"A": "1"}))
    assert isinstance(created, CreateCompanion) and created.body["data"] == {"A": "1"}
    assert [o["uid"] for o in created.body["metadata"]["ownerReferences"]] == ["anchor-1"]
    old = there(SERVICES, {"A": "1", "B": "2"})
    step = plan_issued(view(SERVICES, variables={"A": "2"}, issued=old))
    assert isinstance(step, PatchCompanion) and step.patch.body["data"] == {"A": "2", "B": None}
    kept = plan_issued(view(SERVICES, variables={"A": "1", "B": "2"}, issued=old))
    assert isinstance(kept, Rest) and kept.standing is Standing.SETTLED


def test_c70_news_that_a_process_before_us_made_are_taken_up() -> None:
    """He may be about to delete them under the version that he saw."""
    seen = view(SERVICES, variables={"A": "1"}, issued=there(SERVICES, {"A": "1"}), is_held=False)
    step = plan_issued(seen)
    assert isinstance(step, PatchCompanion)
    assert step.patch.body == {
        "metadata": {
            "uid": "uid-target",
            "resourceVersion": "3",
            "annotations": {"federate.dev/taken-up": "1"},
        }
    }


def test_what_nobody_wants_goes() -> None:
    """After a look and a confirmation; off the list once it is gone."""
    seen: dict[str, Any] = {"is_wanted": False, "asks": ()}
    assert isinstance(plan_issued(view(lingers=True, **seen)), Rest)
    assert isinstance(plan_issued(view(issued_fresh=False, **seen)), LookUpCompanion)
    assert isinstance(plan_issued(view(issued=there(), **seen)), ConfirmUnwanted)
    step = plan_issued(view(issued=there(), unwanted_fresh=True, **seen))
    assert isinstance(step, DeleteCompanion) and step.uid == "uid-target"
    struck = plan_issued(view(**seen))
    assert isinstance(struck, Strike) and struck.entry == ENTRY
    assert isinstance(plan_issued(view(entry=None, has_line=True, **seen)), Strike)
    gone = plan_issued(view(entry=None, **seen))
    assert isinstance(gone, Rest) and gone.standing is Standing.ABSENT


def test_a_strangers_object_is_never_deleted() -> None:
    """Whatever its name. It stays on record, which may be the only trace of one of ours."""
    stranger = {"metadata": {"name": place_of(SCOPE, TOKENS).name, "uid": "x"}}
    seen: dict[str, Any] = {"is_wanted": False, "asks": (), "issued": stranger}
    step = plan_issued(view(unwanted_fresh=True, **seen))
    assert blocked_by(step) == PodReason.NAME_TAKEN
    gone = plan_issued(view(entry=None, **seen))
    assert isinstance(gone, Rest) and gone.standing is Standing.ABSENT


def test_tokens_that_lost_their_marks_are_known_by_their_owner() -> None:
    """The target's admission takes marks off, and the process died before it took it back."""
    stripped = there()
    stripped["metadata"] |= {"labels": {}, "annotations": {}}
    assert isinstance(plan_issued(view(issued=stripped)), DeleteCompanion)
    step = plan_issued(view(is_wanted=False, asks=(), issued=stripped, unwanted_fresh=True))
    assert isinstance(step, DeleteCompanion)


def test_an_end_that_takes_its_time_is_waited_for() -> None:
    """Somebody's finalizer holds it: it stays on the list."""
    ending = there()
    ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    step = plan_issued(view(is_wanted=False, asks=(), issued=ending, unwanted_fresh=True))
    assert isinstance(step, Rest) and step.standing is Standing.ABSENT


@pytest.mark.parametrize("secret", [OLD, NEW])
def test_nothing_shows_a_token_when_it_is_printed(secret: str) -> None:
    """Neither views nor steps (C73)."""
    seen = view(issued=there(), minted={API.value_key: NEW})
    assert secret not in repr(seen)
    assert secret not in repr(plan_issued(seen))
    assert secret not in repr(plan_issued(view(minted={API.value_key: NEW})))
