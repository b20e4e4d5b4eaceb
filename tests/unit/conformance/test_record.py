"""What is kept of a slice, and how runs of parts go into it."""

import json

import pytest

from e2e.conformance.origin import Origin
from e2e.conformance.record import (
    Runs,
    answers,
    origins_of,
    passing_directly,
    read_record,
    render_record,
    with_again,
    with_direct,
    with_origin,
    with_through,
)
from e2e.conformance.results import NOTHING, Outcome, Result

PASSED = Result(outcome=Outcome.PASSED, seconds=1.5)
ABOUT = Result(outcome=Outcome.PASSED, feature="[sig-node] Pods")
FAILED = Result(outcome=Outcome.FAILED, seconds=2.0, message="Timed out")

FIRST = Origin(kubernetes="v1.34.4", at="2026-11-30 12:00", federate="0.1.0", source="aa")
LATER = Origin(
    kubernetes="v1.34.4",
    at="2026-11-30 13:00",
    federate="0.1.0",
    source="bb",
    commit="1234+",
    images="stand-ins",
    procs=4,
)


def of(origin: Origin, result: Result) -> Result:
    return with_origin({"": result}, origin)[""]


def test_a_file_gives_back_what_was_written() -> None:
    """Reading a record returns every result, and of which run it is."""
    record = {
        "a": Runs(direct=of(FIRST, ABOUT), through=(of(FIRST, FAILED), of(LATER, PASSED))),
        "b": Runs(direct=of(LATER, FAILED)),
    }
    text = render_record(record)
    assert read_record(text) == record
    assert origins_of(record) == [FIRST, LATER]
    assert len(json.loads(text)["runs"]) == 2


@pytest.mark.parametrize(
    "text",
    [
        "",
        '{"runs": [',
        "{}",
        '{"version": "v1", "specs": {}}',
        '{"runs": [{"nonsense": 1}], "specs": {}}',
        '{"runs": [{}], "specs": {"a": {"direct": {"outcome": "passed", "run": 9}}}}',
    ],
)
def test_what_is_no_record_is_told(text: str) -> None:
    """Half a file, or one of another kind, is not taken for an empty record."""
    with pytest.raises(ValueError, match=r"no record of ours|Expecting"):
        read_record(text)


def test_a_run_of_a_part_leaves_the_rest() -> None:
    """A direct run of one spec forgets what was known of it through the node, and nothing else."""
    record = {
        "a": Runs(direct=PASSED, through=(PASSED,)),
        "b": Runs(direct=PASSED, through=(FAILED,)),
    }
    assert with_direct(record, {"b": FAILED, "c": PASSED}, of_slice="abc") == {
        "a": Runs(direct=PASSED, through=(PASSED,)),
        "b": Runs(direct=FAILED),
        "c": Runs(direct=PASSED),
    }


def test_specs_that_a_slice_has_no_more_go() -> None:
    """A newer Kubernetes gives specs new names."""
    record = {"old": Runs(direct=PASSED), "kept": Runs(direct=PASSED)}
    assert with_direct(record, {"new": PASSED}, of_slice=["kept", "new"]).keys() == {"kept", "new"}


def test_a_first_run_replaces_and_later_ones_add() -> None:
    """What was known of another spec stays."""
    record = {"a": Runs(direct=PASSED, through=(FAILED, FAILED)), "b": Runs(direct=PASSED)}
    first = with_through(record, {"a": FAILED})
    assert first == {"a": Runs(direct=PASSED, through=(FAILED,)), "b": Runs(direct=PASSED)}
    assert with_again(first, {"a": PASSED})["a"].through == (FAILED, PASSED)


def test_runs_of_another_federate_do_not_count_with_those_of_this_one() -> None:
    """A mended spec is not flaky; one that fails at times is, however often it is run."""
    old, new = of(FIRST, FAILED), of(LATER, FAILED)
    passed = of(LATER, PASSED)
    record = {"a": Runs(direct=PASSED, through=(old, old))}
    mended = with_again(record, {"a": passed})
    assert mended["a"].through == (passed,)
    assert with_again(mended, {"a": new})["a"].through == (passed, new)


def test_of_what_a_run_has_no_word_that_is_noted() -> None:
    """A run to its end should have a word of all; specs whose names look alike are none of it."""
    results = {"a": PASSED, "alike": PASSED}
    whole = answers(results, ["a", "b"], origin=FIRST, is_over=True)
    assert whole == {"a": of(FIRST, PASSED), "b": of(FIRST, NOTHING)}
    assert answers(results, ["a", "b"], origin=FIRST, is_over=False) == {"a": of(FIRST, PASSED)}


def test_only_what_passes_directly_is_wanted_through_the_node() -> None:
    """The rest would say nothing."""
    assert passing_directly({"a": Runs(direct=PASSED), "b": Runs(direct=FAILED)}) == ["a"]
