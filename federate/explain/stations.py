"""The stations of a road, and what a whole road comes to: plain values. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

MESSAGE_LENGTH = 1000
"""What others wrote is cut after so many characters; API servers let them write more."""


class Standing(StrEnum):
    """How it stands at one station."""

    OK = "ok"
    NOTE = "note"
    """The pod goes on, and there is something to know."""
    WAITING = "wait"
    """Something is on its way, and comes by itself."""
    STOPPED = "stop"
    """Somebody must do something, or something must become free."""
    UNKNOWN = "unknown"
    """It could not be read."""
    AHEAD = "ahead"
    """The road has not come that far."""


_URGENT = (Standing.STOPPED, Standing.WAITING, Standing.UNKNOWN)
"""What stops a pod has to be seen to first; where nothing is known to, more has to be known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Station:
    """One station: what was found there in plain words, and what to do."""

    id: str
    standing: Standing
    said: str
    reason: str = ""
    """As conditions and Events have it; docs/operations.md says more."""
    todo: str = ""
    since: str = ""
    """For how long it stands so, where that was told."""

    def as_json(self) -> dict[str, Any]:
        """Return what `-o json` prints."""
        return {
            "id": self.id,
            "standing": str(self.standing),
            "said": self.said,
            "reason": self.reason,
            "todo": self.todo,
            "since": self.since,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Road:
    """All stations in the order of the road, and what they come to."""

    about: str
    """`pod shop/web-0`, or `node edge`."""
    verdict: str
    is_well: bool
    stations: tuple[Station, ...]

    @property
    def todo(self) -> tuple[str, ...]:
        """What to do next, what comes first on the road first."""
        if self.is_well:
            return ()
        found = (_todo(self.stations, one) for one in _URGENT)
        return tuple(next(filter(None, found), ()))

    def as_json(self) -> dict[str, Any]:
        """Return what `-o json` prints."""
        return {
            "about": self.about,
            "ok": self.is_well,
            "verdict": self.verdict,
            "todo": list(self.todo),
            "stations": [station.as_json() for station in self.stations],
        }


def _todo(stations: Iterable[Station], standing: Standing) -> list[str]:
    found = (s.todo for s in stations if s.standing is standing and s.todo)
    return list(dict.fromkeys(found))


def first(stations: Iterable[Station], standing: Standing) -> Station | None:
    """Return the first station where it stands so."""
    return next((s for s in stations if s.standing is standing), None)


def told(station: Station) -> str:
    """Say in one sentence what a station found, with its reason in front."""
    return f"{station.reason}: {station.said}" if station.reason else station.said


def once(stations: Iterable[Station]) -> Iterator[Station]:
    """Leave out a stop that says what one before it said."""
    said: set[tuple[str, str]] = set()
    for station in stations:
        words = (station.reason, station.said)
        if station.standing is Standing.STOPPED and station.reason and words in said:
            continue
        said.add(words)
        yield station


def quoted(text: object) -> str:
    """Put what somebody else wrote on one line, and not too long a one."""
    words = " ".join(printable(str(text)).split())
    return words if len(words) <= MESSAGE_LENGTH else words[:MESSAGE_LENGTH] + "…"


def printable(text: str) -> str:
    """Put a space for what would move the cursor of a terminal, or colour it."""
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)


def age(seconds: float) -> str:
    """Write an age as kubectl does: the largest unit, of small ages in full."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{int(seconds // size)}{unit}"
    return f"{max(0, int(seconds))}s"
