"""Which volumes lead where, as they come, change and go."""

from __future__ import annotations

from federate.claims.leading import Leads
from tests.support.claimviews import KEY, PLACE, volume_of
from tests.support.scene import SCOPE

NAME = f"pvc-{KEY.uid}"
AFTER = KEY._replace(name="again", uid="uid-after")


def test_a_volume_is_found_from_both_ends() -> None:
    leads = Leads(SCOPE)
    assert leads.volume_is(NAME, volume_of()) == {KEY}
    assert leads.volume_for(KEY) == NAME
    assert list(leads.led_to(PLACE)) == [KEY]


def test_a_volume_that_is_given_to_another_claim_tells_both() -> None:
    leads = Leads(SCOPE)
    leads.volume_is(NAME, volume_of())
    given = volume_of()
    given["spec"]["claimRef"] |= {"name": AFTER.name, "uid": AFTER.uid}
    assert leads.volume_is(NAME, given) == {KEY, AFTER}
    assert leads.volume_for(KEY) is None
    assert list(leads.led_to(PLACE)) == [AFTER]


def test_a_volume_for_nobody_leads_to_nobody() -> None:
    leads = Leads(SCOPE)
    free = volume_of()
    del free["spec"]["claimRef"]
    assert leads.volume_is(NAME, free) == frozenset()
    assert list(leads.led_to(PLACE)) == []


def test_what_is_gone_is_forgotten() -> None:
    leads = Leads(SCOPE)
    leads.volume_is(NAME, volume_of())
    assert leads.volume_is(NAME, None) == {KEY}
    assert leads.volume_for(KEY) is None
    assert list(leads.led_to(PLACE)) == []
    assert leads.volume_is(NAME, None) == frozenset()


def test_two_volumes_may_lead_to_one_claim() -> None:
    """An administrator's, beside ours: each end is kept for itself."""
    leads = Leads(SCOPE)
    leads.volume_is(NAME, volume_of())
    other = volume_of()
    other["spec"]["claimRef"] |= {"uid": AFTER.uid, "name": AFTER.name}
    leads.volume_is("by-hand", other)
    assert set(leads.led_to(PLACE)) == {KEY, AFTER}
    leads.volume_is(NAME, None)
    assert list(leads.led_to(PLACE)) == [AFTER]
