"""Instants as Kubernetes writes them: RFC 3339 in UTC, to the second or the microsecond."""

from __future__ import annotations

from datetime import UTC, datetime


def parse_instant(text: str) -> datetime | None:
    """Read an instant; None where it is absent or unreadable."""
    try:
        instant = datetime.fromisoformat(text)
    except (ValueError, TypeError):
        return None
    return instant if instant.tzinfo else instant.replace(tzinfo=UTC)


def format_instant(instant: datetime) -> str:
    """Write `metav1.Time`: to the second."""
    return instant.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_micro_instant(instant: datetime) -> str:
    """Write `metav1.MicroTime`: six digits, always UTC."""
    return instant.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
