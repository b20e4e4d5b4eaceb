"""Whether a pod may have its mirror as far as companions go."""

from __future__ import annotations

from federate.companions.holding import hold_of
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
