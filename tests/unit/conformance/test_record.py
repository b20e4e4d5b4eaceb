"""What is kept of a slice, and how runs of parts go into it."""

from e2e.conformance.record import (
    Runs,
    passing_directly,
    read_record,
    render_record,
    with_again,
    with_direct,
    with_through,
)
from e2e.conformance.results import NOTHING, Outcome, Result

PASSED = Result(outcome=Outcome.PASSED, seconds=1.5)
ABOUT = Result(outcome=Outcome.PASSED, feature="[sig-node] Pods")
FAILED = Result(outcome=Outcome.FAILED, seconds=2.0, message="Timed out")


def test_a_file_gives_back_what_was_written() -> None:
    """Reading a record returns the version and every result."""
    record = {"a": Runs(direct=ABOUT, through=(FAILED, PASSED)), "b": Runs(direct=FAILED)}
    assert read_record(render_record(record, version="v1.34.4")) == ("v1.34.4", record)


def test_a_run_of_a_part_leaves_the_rest() -> None:
    """A direct run of one spec forgets what was known of it through the node, and nothing else."""
    record = {
        "a": Runs(direct=PASSED, through=(PASSED,)),
        "b": Runs(direct=PASSED, through=(FAILED,)),
    }
    assert with_direct(record, {"b": FAILED, "c": PASSED}) == {
        "a": Runs(direct=PASSED, through=(PASSED,)),
        "b": Runs(direct=FAILED),
        "c": Runs(direct=PASSED),
    }


def test_a_first_run_replaces_and_later_ones_add() -> None:
    """A wanted spec that the run has no word of is told to be absent."""
    record = {"a": Runs(direct=PASSED, through=(FAILED, FAILED)), "b": Runs(direct=PASSED)}
    first = with_through(record, ["a", "b"], {"a": FAILED})
    assert first["a"].through == (FAILED,)
    assert first["b"].through == (NOTHING,)
    assert with_again(first, ["a"], {"a": PASSED})["a"].through == (FAILED, PASSED)


def test_only_what_passes_directly_is_wanted_through_the_node() -> None:
    """The rest would say nothing."""
    assert passing_directly({"a": Runs(direct=PASSED), "b": Runs(direct=FAILED)}) == ["a"]
