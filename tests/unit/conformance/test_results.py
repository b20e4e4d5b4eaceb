"""What is read of ginkgo's report."""

import json
from typing import Any

import pytest

from e2e.conformance.results import MESSAGE_CHARACTERS, Outcome, read_report


def spec(name: str, state: str, **more: Any) -> dict[str, Any]:
    return {
        "ContainerHierarchyTexts": ["[sig-node] Pods"],
        "LeafNodeType": "It",
        "LeafNodeText": name,
        "State": state,
        "NumAttempts": 1,
        "RunTime": 2_345_000_000,
        **more,
    }


def report(*specs: dict[str, Any]) -> str:
    return json.dumps([{"SuitePath": "e2e", "SpecReports": list(specs)}])


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
