"""Whether a pod may have its mirror as far as companions go."""

from __future__ import annotations

from federate.companions.holding import hold_of, joined
from federate.companions.keys import Kind
from federate.companions.steps import Blocked, Rest, Standing
from tests.support.companions import key_for

A, B, C = (key_for(Kind.SECRET, name) for name in "abc")
SETTLED = Rest(reason="", standing=Standing.SETTLED)
ABSENT = Rest(reason="", standing=Standing.ABSENT)


def blocked(words: str) -> Rest:
    return Rest(
        reason="", standing=Standing.BLOCKED, blocked=Blocked(reason="NameTaken", message=words)
    )


def test_a_pod_that_wants_nothing_is_not_held() -> None:
    """Most pods."""
    assert hold_of([], {}) is None


def test_what_is_there_and_what_the_hub_lacks_hold_nothing() -> None:
    """What the hub lacks is the kubelet's to tell, optional or not."""
    assert hold_of([A, B], {A: SETTLED, B: ABSENT}) is None


def test_what_is_on_its_way_is_waited_for() -> None:
    """Optional ones as well: the hub has it, so the pod has it."""
    hold = hold_of({C, A, B}, {B: SETTLED})
    assert hold is not None
    assert hold.coming == (A, C)
    assert hold.blocked is None


def test_what_is_blocked_is_told() -> None:
    """The first in order, always the same one."""
    hold = hold_of({C, A, B}, {C: blocked("c"), B: blocked("b")})
    assert hold is not None
    assert hold.coming == (A,)
    assert hold.blocked is not None
    assert hold.blocked.message == "b"


def test_what_the_hub_lacks_does_not_hide_what_is_blocked() -> None:
    """Whatever their order."""
    hold = hold_of([A, B], {A: ABSENT, B: blocked("b")})
    assert hold is not None
    assert hold.coming == ()
    assert hold.blocked is not None


def test_what_is_blocked_is_known_by_its_companion() -> None:
    """Each with what keeps it."""
    hold = hold_of({C, A, B}, {C: blocked("c"), B: blocked("b")})
    assert hold is not None
    assert [(key, why.message) for key, why in hold.stuck] == [(B, "b"), (C, "c")]


def test_one_container_waits_only_for_what_it_names() -> None:
    """Whatever else its pod waits for."""
    hold = hold_of({A, B, C}, {B: SETTLED, C: blocked("c")})
    assert hold is not None
    assert hold.only(frozenset({A})) == hold_of([A], {})
    assert hold.only(frozenset({C})) == hold_of([C], {C: blocked("c")})
    assert hold.only(frozenset({A, B, C})) == hold
    assert hold.only(frozenset({B})) is None
    assert hold.only(frozenset()) is None


def test_two_sides_are_waited_for_together() -> None:
    """Copies of the hub's objects, and what is issued for the pod."""
    one, other = hold_of([A], {}), hold_of([B], {B: blocked("b")})
    both = joined(one, other)
    assert both == hold_of([A, B], {B: blocked("b")})
    assert joined(one, None) == joined(None, one) == one
    assert joined(None, None) is None
