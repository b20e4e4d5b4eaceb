"""Read what ginkgo reports of a run: which specs it ran and how each ended."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from .origin import UNKNOWN, Origin

MESSAGE_CHARACTERS = 400
"""Enough to see what a spec waited for; whole messages dump pods and nodes."""

TOKEN = re.compile(r"eyJ[\w-]+(\.[\w-]*)*")
"""A JWT, as service accounts have; it may be cut off."""


class Outcome(StrEnum):
    """How a spec ended in one run."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    """It looked at the cluster and found it unfit."""
    ABSENT = "absent"
    """The run has no word of it: it ended before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One spec of one run."""

    outcome: Outcome
    seconds: float = 0.0
    message: str = ""
    """Why it did not pass, in its own words."""
    feature: str = ""
    """What it is about: the suite's own headings above it."""
    origin: Origin = UNKNOWN
    """The run."""


NOTHING = Result(outcome=Outcome.ABSENT)

Results = Mapping[str, Result]
"""By the spec's whole name, which is unique."""


CUT_OFF = ("interrupted", "aborted")
"""States of specs that say nothing where the run was stopped from outside."""


def read_report(
    text: str, *, was_stopped: bool = False, until: datetime | None = None
) -> dict[str, Result]:
    """Read ginkgo's JSON report: the specs that were chosen, or got to their end.

    What ended later than `until` is left out.

    Raises:
        ValueError: it is no report, or not the whole of one.
    """
    try:
        suites: list[dict[str, Any]] = json.loads(text)
        return {
            name_of(spec): result_of(spec)
            for suite in suites
            for spec in suite.get("SpecReports") or ()
            if spec.get("LeafNodeType") == "It" and was_chosen(spec)
            if not (was_stopped and spec["State"] in CUT_OFF)
            if until is None or ended_at(spec) <= until
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"This is no report of ginkgo's: {error!r}") from error


def read_selection(text: str) -> list[str]:
    """Read the report of a run in which nothing was run: the names of what would be.

    Raises:
        ValueError: it is no report.
    """
    suites: list[dict[str, Any]] = json.loads(text)
    return [
        name_of(spec)
        for suite in suites
        for spec in suite.get("SpecReports") or ()
        if spec.get("LeafNodeType") == "It" and spec["State"] != "skipped"
    ]


def ended_at(spec: Mapping[str, Any]) -> datetime:
    """Read when a spec was over."""
    return datetime.fromisoformat(spec["EndTime"])


def was_chosen(spec: Mapping[str, Any]) -> bool:
    """Tell whether the filter chose the spec; those it left out have no attempt."""
    return bool(spec.get("NumAttempts"))


def name_of(spec: Mapping[str, Any]) -> str:
    """Render the spec's whole name, as ginkgo's focus sees it."""
    return " ".join((*headings_of(spec), spec["LeafNodeText"]))


def headings_of(spec: Mapping[str, Any]) -> list[str]:
    """Name the headings above a spec, the widest first."""
    return list(spec.get("ContainerHierarchyTexts") or ())


def result_of(spec: Mapping[str, Any]) -> Result:
    """Read how a spec ended; panics, timeouts and interrupts are failures."""
    match spec["State"]:
        case "passed":
            outcome = Outcome.PASSED
        case "skipped" | "pending":
            outcome = Outcome.SKIPPED
        case _:
            outcome = Outcome.FAILED
    message = (spec.get("Failure") or {}).get("Message", "")
    return Result(
        outcome=outcome,
        seconds=round(spec.get("RunTime", 0) / 1e9, 1),
        message=shortened(message),
        feature=" ".join(headings_of(spec)),
    )


def shortened(message: str) -> str:
    """Bring a message to one line of bearable length, without the tokens that specs print."""
    line = TOKEN.sub("(a token)", " ".join(message.split()))
    return line if len(line) <= MESSAGE_CHARACTERS else f"{line[:MESSAGE_CHARACTERS]} …"
