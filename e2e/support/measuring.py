"""Measured values: held against generous limits, printed at the end of the run.

The promise is what federate keeps on an idle machine. Tests share theirs with compilers and other
tests, so they fail only far beyond it; the printed value shows what it really was.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import pytest

GENEROSITY = 5.0
"""Smaller, and a busy machine fails tests; larger, and a slow federate passes them."""

PROPERTY = "measured"
"""Under this name values travel with a test's report, out of the process it ran in too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """What one test measured."""

    test: str
    properties: list[tuple[str, object]]

    def note(self, what: str, value: object) -> None:
        """Write down a value."""
        self.properties.append((PROPERTY, f"{self.test}: {what}: {value}"))

    def seconds(self, what: str, seconds: float, *, promise: float) -> None:
        """Write down a duration, which may not exceed its promise by far."""
        self.note(what, f"{seconds:.2f} s (promised {promise:g} s)")
        limit = promise * GENEROSITY
        assert seconds <= limit, f"{what} took {seconds:.1f} s; even {limit:g} s would be generous"


def lines_of(reports: Iterable[object]) -> list[str]:
    """Return what the tests of these reports wrote down."""
    return [
        str(value)
        for report in reports
        if isinstance(report, pytest.TestReport) and report.when == "call"
        for name, value in report.user_properties
        if name == PROPERTY
    ]
