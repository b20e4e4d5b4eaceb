"""Why the target does not take a companion: in its words, less what they show of a Secret."""

from __future__ import annotations

import pytest

from federate.companions.keys import Kind
from federate.companions.refused import (
    WORDS_KEPT,
    discreet,
    refusal_of_write,
    shown_words,
    stripped_words,
    undone_words,
)
from federate.errors import (
    ClusterError,
    Forbidden,
    Rejected,
    ServerFault,
    Throttled,
    Unauthorized,
    Unreachable,
)
from tests.support.companions import encoded, hub_object, key_for

KEY = key_for(Kind.SECRET, "db")
CONTENTS = hub_object(KEY, {"password": "hunter2", "note": "line one\ntoken=abcdefghij\n"})


@pytest.mark.parametrize(
    "error", [Forbidden("exceeded quota"), Rejected("no"), ServerFault("webhook", status=500)]
)
def test_a_refusal_is_told_in_the_servers_words(error: ClusterError) -> None:
    blocked = refusal_of_write(error, KEY, target_name="berlin", contents=CONTENTS)
    assert blocked is not None
    assert blocked.reason == "CompanionRefused"
    assert error.detail in blocked.message
    assert "berlin" in blocked.message
    assert "Secret default/db" in blocked.message


@pytest.mark.parametrize(
    "error",
    [Unreachable("no"), Throttled("wait"), ServerFault("proxy", status=502), Unauthorized("who")],
)
def test_what_may_pass_is_no_refusal(error: ClusterError) -> None:
    assert refusal_of_write(error, KEY, target_name="berlin", contents=CONTENTS) is None


@pytest.mark.parametrize(
    "words",
    [
        "the value hunter2 is weak",
        f"data[password]={encoded('hunter2')} is weak",
        "found a token=abcdef in it",
        f"no: {encoded('line one')[:8]}",
    ],
)
def test_c73_words_that_show_a_secrets_contents_are_kept(words: str) -> None:
    """Whole short values, and any eight characters in a row of long ones, encoded or not."""
    assert shown_words(words, Kind.SECRET, CONTENTS) == WORDS_KEPT
    error = Rejected(words, cluster="berlin", verb="create", subject="Secret x", status=422)
    kept = discreet(error, Kind.SECRET, CONTENTS)
    assert isinstance(kept, Rejected)
    assert (kept.status, kept.verb, kept.detail) == (422, "create", WORDS_KEPT)
    assert words not in str(kept)


def test_other_words_are_told() -> None:
    words = "exceeded quota: count/secrets, requested: 1, used: 5, limited: 5"
    assert shown_words(words, Kind.SECRET, CONTENTS) == words
    error = Rejected(words)
    assert discreet(error, Kind.SECRET, CONTENTS) is error
    assert discreet(error, Kind.SECRET, None) is error


def test_config_maps_are_no_secrets() -> None:
    config = hub_object(key_for(Kind.CONFIGMAP, "db"), {"a": "hunter2"})
    assert shown_words("hunter2", Kind.CONFIGMAP, config) == "hunter2"


def test_binary_values_are_looked_at_as_they_are() -> None:
    contents = {"data": {"bad": "###not base64###", "raw": encoded("ÿÿ")}}
    assert shown_words("bad ###not base64###", Kind.SECRET, contents) == WORDS_KEPT


def test_what_the_target_does_to_ours_is_named() -> None:
    assert undone_words(KEY, target_name="berlin").reason == "CompanionRefused"
    assert stripped_words(KEY, target_name="berlin").reason == "MarksRemoved"
