"""Say why the target does not take a companion, without a word of what is in it (C73). Pure."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator

from federate.companions.keys import CompanionKey, Kind
from federate.companions.render import CONTENTS
from federate.companions.steps import Blocked
from federate.errors import ClusterError, Forbidden, Rejected, ServerFault
from federate.model.objects import JsonObject
from federate.model.reasons import PodReason

WORDS_KEPT = "its words show something of the Secret, and are not repeated here"

FRAGMENT = 8
"""So many characters in a row that also stand in a value are taken for a part of it. Fewer, and
every message of a server seems to show something."""
SHORTEST = 4
"""Shorter values are words like `yes`: that they occur says nothing."""

_WORD = re.compile(r"\S+")
_INTERNAL_ERROR = 500
"""What a failing admission webhook is answered with; 502 to 504 are of proxies and of overload."""


def refusal_of_write(
    error: ClusterError, key: CompanionKey, *, target_name: str, contents: JsonObject | None
) -> Blocked | None:
    """Read a failed create or change; None where it may be a passing fault."""
    is_refused = isinstance(error, (Forbidden, Rejected))
    is_broken = isinstance(error, ServerFault) and error.status == _INTERNAL_ERROR
    if not is_refused and not is_broken:
        return None
    said = shown_words(error.detail, key.kind, contents)
    return Blocked(
        reason=PodReason.COMPANION_REFUSED,
        message=f"{target_name} does not take {key}; it answered: {said}",
    )


def undone_words(key: CompanionKey, *, target_name: str) -> Blocked:
    """Say that somebody in the target undoes what we write."""
    return Blocked(
        reason=PodReason.COMPANION_REFUSED,
        message=f"somebody in {target_name} (an admission webhook or a controller) changes or "
        f"removes what stands there for {key} each time that federate writes it",
    )


def unreadable_words(key: CompanionKey, error: ClusterError, *, target_name: str) -> Blocked:
    """Say that we may not look at what stands in the target, so that nothing is made there."""
    return Blocked(
        reason=PodReason.COMPANION_REFUSED,
        message=f"{target_name} does not let federate read what stands there for {key}: "
        f"{error.detail}",
    )


def stripped_words(key: CompanionKey, *, target_name: str) -> Blocked:
    """Say that the target takes our marks off what we make."""
    return Blocked(
        reason=PodReason.MARKS_REMOVED,
        message=f"{target_name} strips federate's labels or annotations from what stands for "
        f"{key} (an admission webhook or policy): let federate.dev/ keys pass there",
    )


def shown_words(words: str, kind: Kind, contents: JsonObject | None) -> str:
    """Return a server's words, or others where they show a part of a Secret's values."""
    return WORDS_KEPT if _shows(words, kind, contents) else words


def discreet(error: ClusterError, kind: Kind, contents: JsonObject | None) -> ClusterError:
    """Return the error, without the words that must not be repeated."""
    if not _shows(error.detail, kind, contents):
        return error
    return type(error)(
        WORDS_KEPT,
        cluster=error.cluster,
        verb=error.verb,
        subject=error.subject,
        reason=error.reason,
        status=error.status,
    )


def _shows(words: str, kind: Kind, contents: JsonObject | None) -> bool:
    if kind is not Kind.SECRET or contents is None:
        return False
    parts = {words[i : i + FRAGMENT] for i in range(len(words) - FRAGMENT + 1)}
    return any(
        any(part in value for part in parts) or any(word in words for word in _short_words(value))
        for value in _values(kind, contents)
    )


def _short_words(value: str) -> Iterator[str]:
    """Yield the words that are too short to have fragments; one may be a password."""
    for found in _WORD.finditer(value):
        if SHORTEST <= len(found[0]) <= FRAGMENT:
            yield found[0]


def _values(kind: Kind, contents: JsonObject) -> Iterator[str]:
    for field in CONTENTS[kind]:
        for value in (contents.get(field) or {}).values():
            yield str(value)
            try:
                yield base64.b64decode(str(value)).decode("utf-8", "replace")
            except (binascii.Error, ValueError):
                continue
