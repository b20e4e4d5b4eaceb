"""What was refused is tried again, ever more seldom; what is undone is found out."""

from __future__ import annotations

from federate.flow.refusals import AGAIN_CAP_SECONDS, AGAIN_SECONDS, Refusals


def refusals() -> Refusals[str, str]:
    return Refusals()


def test_a_refused_change_waits_twice_as_long_each_time_up_to_a_cap() -> None:
    known, now, waits = refusals(), 1000.0, []
    for _ in range(40):
        refused = known.note_refused("create", "no", now=now)
        waits.append(refused.again_at - now)
        assert known.refused("create", now=refused.again_at - 0.1) is refused
        assert known.refused("create", now=refused.again_at) is None
        now = refused.again_at
    assert waits[:3] == [AGAIN_SECONDS, 2 * AGAIN_SECONDS, 4 * AGAIN_SECONDS]
    assert waits[-1] == AGAIN_CAP_SECONDS


def test_a_change_waits_for_its_time_and_others_do_not() -> None:
    """Nor does one make another be forgotten."""
    known = refusals()
    known.note_refused("create", "no", now=0.0)
    assert known.refused("size", now=0.0) is None
    known.note_refused("size", "nor this", now=1.0)
    said = [known.refused(change, now=2.0) for change in ("create", "size")]
    assert [refused.why for refused in said if refused] == ["no", "nor this"]


def test_long_after_a_refusal_it_begins_anew() -> None:
    known = refusals()
    for _ in range(6):
        known.note_refused("create", "no", now=0.0)
    assert known.note_refused("create", "no", now=10 * AGAIN_CAP_SECONDS).failures == 1


def test_what_is_not_tried_any_more_is_not_kept() -> None:
    """A user may change contents that are refused as often as they like."""
    known = refusals()
    for number in range(1000):
        known.note_refused(f"contents {number}", "no", now=10.0 * number)
    assert len(known._refused) < 50


def test_the_same_change_made_again_soon_was_undone() -> None:
    """One that goes to and fro is the user's own doing."""
    known = refusals()
    assert not known.is_made_again("patch", "x", now=0.0)
    assert known.is_made_again("patch", "x", now=10.0)
    assert not known.is_made_again("patch", "x", now=10.0 + AGAIN_CAP_SECONDS)
    assert not known.is_made_again("patch", "y", now=400.0)
    assert not known.is_made_again("patch", "x", now=401.0)
    assert not known.is_made_again("create", "x", now=402.0)
