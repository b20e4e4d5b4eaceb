"""Hysteresis of the ping, and its timing: a dead or hung target is known within 15 s (C12)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from federate.errors import Forbidden, Unauthorized, Unreachable
from federate.node.reachability import (
    PING_PERIOD_SECONDS,
    PING_TIMEOUT_SECONDS,
    RETRY_PERIOD_SECONDS,
    Reachability,
    TargetState,
)


def state_of(seen: Reachability) -> TargetState:
    return seen.state  # read anew: a type checker takes an attribute for unchanged


def reachable() -> Reachability:
    seen = Reachability()
    assert seen.note_answer()
    return seen


def dead() -> Reachability:
    seen = reachable()
    for _ in range(3):
        seen.note_failure(Unreachable("refused"))
    assert state_of(seen) is TargetState.UNREACHABLE
    return seen


def test_the_first_answer_is_enough() -> None:
    """At start one answer makes the target reachable."""
    seen = Reachability()
    assert (seen.state, seen.is_reachable) == (TargetState.UNKNOWN, False)
    assert seen.note_answer()
    assert (seen.state, seen.is_reachable) == (TargetState.REACHABLE, True)
    assert not seen.note_answer()


def test_a_glitch_changes_nothing() -> None:
    """Two failures in a row, however often, are no outage."""
    seen = reachable()
    for _ in range(10):
        assert not seen.note_failure(Unreachable("reset"))
        assert not seen.note_failure(Unreachable("reset"))
        assert not seen.note_answer()
    assert seen.is_reachable


def test_three_failures_are_an_outage_with_a_reason() -> None:
    """The state changes once, with the words of the failure."""
    seen = reachable()
    results = [seen.note_failure(Unreachable("connection refused")) for _ in range(4)]
    assert results == [False, False, True, False]
    assert seen.message == "connection refused"


def test_an_outage_without_words_is_silence() -> None:
    """A failure that says nothing is told as what it is."""
    seen = Reachability()
    for _ in range(3):
        seen.note_failure(TimeoutError())
    assert seen.message == "no answer within 3 s"


@pytest.mark.parametrize("kind", [Unauthorized, Forbidden])
def test_refused_credentials_are_not_silence(kind: type[Unauthorized | Forbidden]) -> None:
    """A target that answers 401 or 403 is alive, and refuses us."""
    seen = reachable()
    for _ in range(3):
        seen.note_failure(kind("no access"))
    assert state_of(seen) is TargetState.REFUSED
    assert not seen.is_reachable
    assert seen.message == "no access"


def test_a_half_dead_target_is_not_back_with_one_answer() -> None:
    """Two answers in a row are a recovery, one is not."""
    seen = dead()
    assert not seen.note_answer()
    seen.note_failure(Unreachable("reset"))
    assert not seen.note_answer()
    assert seen.note_answer()
    assert seen.is_reachable


def test_a_state_becomes_another_bad_one_at_once() -> None:
    """A target that comes back with our credentials revoked is refused without delay."""
    seen = dead()
    assert seen.note_failure(Unauthorized("expired"))
    assert state_of(seen) is TargetState.REFUSED


def test_pings_are_calm_only_while_all_is_well() -> None:
    """Trouble, and the time before the first answer, are asked about quickly."""
    seen = Reachability()
    assert seen.pause_seconds() == RETRY_PERIOD_SECONDS
    seen.note_answer()
    assert seen.pause_seconds() == PING_PERIOD_SECONDS
    seen.note_failure(Unreachable("reset"))
    assert seen.pause_seconds() == RETRY_PERIOD_SECONDS
    seen = dead()
    seen.note_answer()
    assert seen.pause_seconds() == RETRY_PERIOD_SECONDS


@pytest.mark.parametrize("answers_after_seconds", [0.0, 0.5, 2.9, PING_TIMEOUT_SECONDS])
def test_c12_a_dead_target_is_known_within_15_seconds(answers_after_seconds: float) -> None:
    """However long each ping hangs, and whenever in the calm the target died."""
    seen = reachable()
    clock = seen.pause_seconds()  # the worst moment: right after a good answer
    while state_of(seen) is not TargetState.UNREACHABLE:
        clock += min(answers_after_seconds, PING_TIMEOUT_SECONDS)
        seen.note_failure(Unreachable("x"))
        if state_of(seen) is not TargetState.UNREACHABLE:
            clock += seen.pause_seconds()
    assert clock <= 12.0


def test_c12_a_live_target_is_known_within_seconds() -> None:
    """Back means back soon."""
    seen = dead()
    clock = seen.pause_seconds()
    seen.note_answer()
    clock += seen.pause_seconds()
    assert seen.note_answer()
    assert clock <= 1.0


def changed() -> Reachability:
    seen = reachable()
    assert seen.note_other("another cluster")
    return seen


@pytest.mark.parametrize("before", [Reachability, reachable, dead])
def test_c5_another_cluster_is_believed_at_once(before: Callable[[], Reachability]) -> None:
    """No hysteresis: every further request could hurt there."""
    seen = before()
    assert seen.note_other("another cluster")
    assert (state_of(seen), seen.message) == (TargetState.CHANGED, "another cluster")
    assert not seen.is_reachable
    assert not seen.note_other("another cluster")


def test_c5_no_failure_makes_another_cluster_merely_dead() -> None:
    """What answered last was not ours, and its silence does not make it so."""
    seen = changed()
    for _ in range(10):
        assert not seen.note_failure(Unreachable("refused"))
        assert not seen.note_failure(Unauthorized("expired"))
    assert (state_of(seen), seen.message) == (TargetState.CHANGED, "another cluster")


def test_c5_it_is_over_when_the_cluster_on_record_answers_again() -> None:
    """Two answers in a row, with none of another between them."""
    seen = changed()
    assert not seen.note_answer()
    seen.note_other("another cluster")
    assert not seen.note_answer()
    assert seen.note_answer()
    assert seen.is_reachable


def test_c5_a_third_cluster_is_told() -> None:
    """The words follow who answers."""
    seen = changed()
    assert seen.note_other("a third cluster")
    assert seen.message == "a third cluster"


def test_another_cluster_is_asked_calmly_until_ours_answers() -> None:
    """It may stand there for days; its end is told quickly all the same."""
    seen = changed()
    assert seen.pause_seconds() == PING_PERIOD_SECONDS
    seen.note_answer()
    assert seen.pause_seconds() == RETRY_PERIOD_SECONDS


def test_the_node_is_silent_of_what_it_cannot_vouch_for() -> None:
    """A dead target and another cluster: no status, no lease (C12)."""
    silent = {state for state in TargetState if state.is_silent}
    assert silent == {TargetState.UNREACHABLE, TargetState.CHANGED}
