"""Instants as Kubernetes writes them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from federate.model.instants import format_instant, parse_instant

INSTANT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-01-02T03:04:05Z", INSTANT.replace(microsecond=0)),
        ("2026-01-02T03:04:05.678901Z", INSTANT),
        ("2026-01-02T05:04:05+02:00", INSTANT.replace(microsecond=0)),
        ("2026-01-02T03:04:05", INSTANT.replace(microsecond=0)),
        ("", None),
        ("yesterday", None),
        (None, None),
        (7, None),
    ],
)
def test_instants_are_read(text: Any, expected: datetime | None) -> None:
    """With any offset, to any precision; what is unreadable is None."""
    assert parse_instant(text) == expected


def test_instants_are_written_in_utc_to_the_second() -> None:
    """`metav1.Time` has no fraction."""
    elsewhere = INSTANT.astimezone(timezone(timedelta(hours=9)))
    assert format_instant(elsewhere) == "2026-01-02T03:04:05Z"
    assert parse_instant(format_instant(INSTANT)) == INSTANT.replace(microsecond=0)
