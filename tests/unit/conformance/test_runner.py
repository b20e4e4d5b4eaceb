"""In which order slices are run, and what is kept when."""

from pathlib import Path
from typing import cast

import pytest

from e2e.conformance.keeping import Keeping
from e2e.conformance.record import Runs
from e2e.conformance.results import NOTHING, Outcome, Result, Results
from e2e.conformance.runner import Runner
from e2e.conformance.suite import Run, Suite
from e2e.testbed.progress import Progress

PASSED = Result(outcome=Outcome.PASSED)
FAILED = Result(outcome=Outcome.FAILED)


class Played:
    """A suite whose runs end as told, the last one by an interrupt where there is nothing more."""

    def __init__(self, *ends: Results) -> None:
        self.ends = list(ends)
        self.runs: list[Run] = []
        self.so_far: Results = {}

    def run(self, run: Run) -> Results:
        self.runs.append(run)
        if len(self.ends) == 1 and self.so_far:
            raise KeyboardInterrupt
        return self.ends.pop(0)


@pytest.fixture
def keeping(tmp_path: Path) -> Keeping:
    (tmp_path / "exemptions.yaml").write_text("[]")
    return Keeping(tmp_path, tmp_path / "page.md")


def runner(played: Played, keeping: Keeping, *, focus: str = "") -> Runner:
    return Runner(
        suite=cast(Suite, played),
        keeping=keeping,
        progress=Progress(quiet=True),
        version="v1.34.4",
        focus=focus,
        procs=1,
    )


def test_only_what_differs_is_run_again(keeping: Keeping, tmp_path: Path) -> None:
    """The target's run decides what is run through the node, and each run what the next has."""
    played = Played(
        {"a": PASSED, "b": PASSED, "c": PASSED, "d": FAILED},
        {"a": PASSED, "b": FAILED},
        {"b": PASSED, "c": FAILED},
        {"c": FAILED},
    )
    one = runner(played, keeping)
    one.run_direct("apps", tmp_path)
    one.run_through("apps", tmp_path, again=2)
    assert [run.focus for run in played.runs] == ["", " a$| b$| c$", " b$| c$", " c$"]
    record = keeping.read("apps")
    assert record["b"].through == (FAILED, PASSED)
    assert record["c"].through == (NOTHING, FAILED, FAILED)
    assert record["d"] == Runs(direct=FAILED)


def test_nothing_is_run_through_the_node_that_does_not_pass(
    keeping: Keeping, tmp_path: Path
) -> None:
    """Without anything that passes on the target there is nothing to compare to."""
    played = Played()
    runner(played, keeping).run_through("apps", tmp_path, again=5)
    assert played.runs == []


def test_a_focus_holds_on_both_sides(keeping: Keeping, tmp_path: Path) -> None:
    """What is known of other specs stays as it is."""
    keeping.write("apps", {"a": Runs(direct=PASSED), "b": Runs(direct=PASSED)}, version="v1")
    played = Played({"b": PASSED})
    runner(played, keeping, focus="b").run_through("apps", tmp_path, again=5)
    assert [run.focus for run in played.runs] == [" b$"]
    assert keeping.read("apps") == {
        "a": Runs(direct=PASSED),
        "b": Runs(direct=PASSED, through=(PASSED,)),
    }


def test_an_interrupt_keeps_what_was_over(keeping: Keeping, tmp_path: Path) -> None:
    """Specs that the run did not come to are not taken for failures."""
    keeping.write("apps", {"a": Runs(direct=PASSED), "b": Runs(direct=PASSED)}, version="v1")
    played = Played({})
    played.so_far = {"a": PASSED}
    with pytest.raises(KeyboardInterrupt):
        runner(played, keeping).run_through("apps", tmp_path, again=5)
    assert keeping.read("apps") == {
        "a": Runs(direct=PASSED, through=(PASSED,)),
        "b": Runs(direct=PASSED),
    }
