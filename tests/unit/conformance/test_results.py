"""What is read of ginkgo's report."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from e2e.conformance.results import (
    MESSAGE_CHARACTERS,
    Outcome,
    read_report,
    read_selection,
    shortened,
)
from tests.support.ginkgo import spec_report as spec
from tests.support.ginkgo import whole_report


def report(*specs: Mapping[str, Any]) -> str:
    return json.dumps(whole_report(*specs))


@pytest.mark.parametrize(
    ("state", "outcome"),
    [
        ("passed", Outcome.PASSED),
        ("failed", Outcome.FAILED),
        ("panicked", Outcome.FAILED),
        ("timedout", Outcome.FAILED),
        ("interrupted", Outcome.FAILED),
        ("aborted", Outcome.FAILED),
        ("skipped", Outcome.SKIPPED),
        ("pending", Outcome.SKIPPED),
    ],
)
def test_every_state_of_ginkgo_is_an_outcome(state: str, outcome: Outcome) -> None:
    """Whatever is neither passed nor skipped is a failure."""
    [result] = read_report(report(spec("run", state))).values()
    assert result.outcome is outcome
    assert result.seconds == 2.3


def test_a_spec_goes_by_its_whole_name() -> None:
    """The name is what ginkgo's focus is matched with, without the suite's."""
    [(name, result)] = read_report(report(spec("should run", "passed"))).items()
    assert name == "[sig-node] Pods should run"
    assert result.feature == "[sig-node] Pods"


def test_what_the_filter_left_out_is_no_result() -> None:
    """ginkgo reports thousands of specs that it skipped without an attempt; they are not asked."""
    left_out = spec("other", "skipped", NumAttempts=0)
    setup = spec("", "passed", LeafNodeType="SynchronizedBeforeSuite")
    assert read_report(report(left_out, setup, spec("run", "skipped"))).keys() == {
        "[sig-node] Pods run"
    }


def test_an_empty_suite_has_no_results() -> None:
    """A suite that could not begin has no specs at all."""
    assert read_report(json.dumps([{"SpecReports": None}])) == {}


def test_messages_are_short_and_of_one_line() -> None:
    """A failure dumps whole pods; the record keeps the beginning."""
    failure = {"Message": "Timed out\n  waiting " + "x" * 5000}
    [result] = read_report(report(spec("run", "failed", Failure=failure))).values()
    assert result.message.startswith("Timed out waiting xxx")
    assert len(result.message) <= MESSAGE_CHARACTERS + 2


def test_of_a_stopped_run_counts_what_was_over() -> None:
    """Specs that were cut off say nothing; where nobody stopped the run they are failures."""
    text = report(spec("over", "failed"), spec("cut", "interrupted"), spec("late", "aborted"))
    assert read_report(text, was_stopped=True).keys() == {"[sig-node] Pods over"}
    assert len(read_report(text)) == 3


def test_what_ended_too_late_is_left_out() -> None:
    """ginkgo writes nanoseconds, and the year 1 for what never began."""
    text = report(
        spec("early", EndTime="2026-11-30T12:00:00.123456789Z"),
        spec("late", EndTime="2026-11-30T14:00:00.000000001+01:00"),
        spec("never", NumAttempts=0, EndTime="0001-01-01T00:00:00Z"),
    )
    until = datetime(2026, 11, 30, 12, 30, tzinfo=UTC)
    assert read_report(text, until=until).keys() == {"[sig-node] Pods early"}


@pytest.mark.parametrize(
    "text", ["", "[{", '{"a": 1}', '[{"SpecReports": [{"LeafNodeType": "It", "NumAttempts": 1}]}]']
)
def test_what_is_no_report_is_told(text: str) -> None:
    """A file that breaks off, or of something else, is no run without specs."""
    with pytest.raises(ValueError, match=r"no report of ginkgo|Expecting"):
        read_report(text)


def test_of_a_run_without_running_the_chosen_are_read() -> None:
    """There nothing has an attempt; what the filter left out is skipped."""
    setup = spec("", LeafNodeType="BeforeSuite", NumAttempts=0)
    text = report(setup, spec("a", NumAttempts=0), spec("b", "skipped", NumAttempts=0))
    assert read_selection(text) == ["[sig-node] Pods a"]


def test_c73_tokens_that_specs_print_are_left_out() -> None:
    """Some print the file that a pod finds; what is recorded goes into the repository."""
    said = "content of file: eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJodHRwcyJ9.c2lnbmVk-_ perms: -rw-r--r--"
    assert shortened(said) == "content of file: (a token) perms: -rw-r--r--"
    assert shortened("of file: eyJhbGciOiJSUzI1Ni") == "of file: (a token)"
