"""What the API demands of every Event, whoever tells it."""

from __future__ import annotations

NOTE_BYTES = 1024
"""Longer words are refused."""

NAME_LENGTH = 253

WORD_LENGTH = 128
"""Of a reason, an action and who speaks: what the newer form of Events allows."""


def event_name(about: str, digest: str) -> str:
    """Name an Event after the object it is about; the digest tells it from its others."""
    return about[: NAME_LENGTH - len(digest) - 1].rstrip(".-") + "." + digest


def cut_word(text: object) -> str:
    """Cut a reason, an action or a name to what an Event takes."""
    return str(text)[:WORD_LENGTH]


def cut_note(text: str) -> str:
    """Cut words to what an Event takes, between characters."""
    return text.encode()[:NOTE_BYTES].decode(errors="ignore")
