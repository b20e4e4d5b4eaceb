"""The target's words about a claim, as its user reads them."""

from __future__ import annotations

from federate.claims.words import as_on_hub, latest_warning, latest_words
from federate.model.objects import JsonDict, ObjectKey
from tests.support.claimviews import PLACE

FIRST, SECOND = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"


def event(message: str, *, type: str = "Warning", **at: object) -> JsonDict:
    return {"type": type, "message": message, "metadata": {}, **at}


def test_the_last_warning_counts_in_whatever_form_its_time_is() -> None:
    events = [
        event("first", lastTimestamp="2026-01-01T00:00:00Z"),
        event("last", series={"lastObservedTime": "2026-01-01T00:09:00.000000Z"}),
        event("second", eventTime="2026-01-01T00:02:00.000000Z"),
        event("unknown"),
        event("normal", type="Normal", lastTimestamp="2026-01-01T01:00:00Z"),
    ]
    assert latest_warning(events) == "last"
    assert latest_warning(events[3:4]) == "unknown"
    assert latest_warning(events[4:]) == ""
    assert latest_warning([]) == ""


def test_where_nobody_warns_the_last_words_count() -> None:
    """A claim whose class nobody looks after is warned of by nobody."""
    normal = [
        event("waiting for the first consumer", type="Normal", lastTimestamp=FIRST),
        event("waiting for a volume to be created", type="Normal", lastTimestamp=SECOND),
    ]
    assert latest_words(normal) == "waiting for a volume to be created"
    assert latest_words([event("no room", lastTimestamp=FIRST), *normal]) == "no room"
    assert latest_words([]) == ""


def test_names_are_the_hubs() -> None:
    names = {PLACE: ObjectKey("default", "data")}
    text = f'failed to provision volume for claim "{PLACE}" ({PLACE.name}-x)'
    assert as_on_hub(text, names) == (
        f'failed to provision volume for claim "default/data" ({PLACE.name}-x)'
    )
    assert as_on_hub(text, {}) == text
