"""Findings: each has one weight, and a row in docs/operations.md (C74)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from federate.check.findings import (
    NOTES,
    WARNINGS,
    Finding,
    FindingId,
    Severity,
    Status,
    StepResult,
    severity_of,
)

OPERATIONS = Path(__file__).parents[3] / "docs" / "operations.md"


def rows() -> list[tuple[str, str]]:
    """Return id and weight of each row of the table of findings."""
    text = OPERATIONS.read_text(encoding="utf-8")
    table = text.partition("## Before you run: federate check")[2].partition("\n## ")[0]
    return re.findall(r"^\| `(\w+)` \| (\w+) \|", table, re.MULTILINE)


def test_every_finding_is_documented_with_its_weight() -> None:
    """And nothing else is: a finding that was renamed leaves no trace."""
    assert sorted(rows()) == sorted((str(one), str(severity_of(one))) for one in FindingId)


def test_a_finding_has_one_weight() -> None:
    assert not NOTES & WARNINGS


def finding(found: FindingId) -> Finding:
    return Finding(id=found, what="what", fix="fix")


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ((), Status.OK),
        ((FindingId.NO_LEADER,), Status.NOTE),
        ((FindingId.NO_LEADER, FindingId.CLOCK_SKEW), Status.WARN),
        ((FindingId.CLOCK_SKEW, FindingId.RIGHT_MISSING), Status.FAIL),
    ],
)
def test_a_step_is_as_bad_as_its_worst_finding(
    found: tuple[FindingId, ...], expected: Status
) -> None:
    result = StepResult(end="hub", step="x", findings=tuple(map(finding, found)))
    assert result.status is expected


def test_a_step_that_was_not_taken_says_nothing() -> None:
    assert StepResult(end="hub", step="x", is_skipped=True).status is Status.SKIP


def test_json_tells_all() -> None:
    result = StepResult(end="hub", step="x", said="y", findings=(finding(FindingId.CLOCK_SKEW),))
    assert result.as_json() == {
        "end": "hub",
        "step": "x",
        "status": "warn",
        "said": "y",
        "findings": [
            {"severity": str(Severity.WARN), "id": "ClockSkew", "what": "what", "fix": "fix"}
        ],
    }
