"""Measured values: held against generous limits, printed at the end of the run.

The promise is what federate keeps on an idle machine. Tests share theirs with compilers and other
tests, so they fail only far beyond it; the printed value shows what it really was.
"""

from dataclasses import dataclass, field

import pytest

GENEROSITY = 5.0
"""Smaller, and a busy machine fails tests; larger, and a slow federate passes them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """What one test, or all of them, measured."""

    test: str = ""
    lines: list[str] = field(default_factory=list)

    def of(self, test: str) -> "Measurements":
        """Return the same page, written to on behalf of a test."""
        return Measurements(test=test, lines=self.lines)

    def note(self, what: str, value: object) -> None:
        """Write down a value."""
        self.lines.append(f"{self.test}: {what}: {value}")

    def seconds(self, what: str, seconds: float, *, promise: float) -> None:
        """Write down a duration, which may not exceed its promise by far."""
        self.note(what, f"{seconds:.2f} s (promised {promise:g} s)")
        limit = promise * GENEROSITY
        assert seconds <= limit, f"{what} took {seconds:.1f} s; even {limit:g} s would be generous"


_MEASUREMENTS = pytest.StashKey[Measurements]()


def measurements_of(config: pytest.Config) -> Measurements:
    """Return the session's page."""
    return config.stash.setdefault(_MEASUREMENTS, Measurements())
