"""What the API demands of every Event."""

from __future__ import annotations

from federate.model.events import cut_note, event_name


def test_names() -> None:
    """An Event is named after what it is about, and the name is never too long, nor malformed."""
    assert event_name("web-0", "0123") == "web-0.0123"
    long = event_name("x" * 235 + "." * 18, "0123456789abcdef")
    assert len(long) <= 253
    assert ".." not in long
    assert len(event_name("x" * 253, "0123456789abcdef")) == 253


def test_notes() -> None:
    """Words are cut to what the API takes, between characters."""
    assert cut_note("short") == "short"
    assert len(cut_note("ü" * 600).encode()) == 1024
    assert len(cut_note("x" + "ü" * 600).encode()) == 1023
