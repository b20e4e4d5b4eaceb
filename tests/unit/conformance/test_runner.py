"""In which order slices are run, and what is kept when."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from e2e.conformance.keeping import Keeping
from e2e.conformance.origin import Origin
from e2e.conformance.record import Runs
from e2e.conformance.results import NOTHING, Outcome, Result, Results
from e2e.conformance.runner import Chosen, Runner
from e2e.conformance.suite import Run, Suite
from e2e.conformance.watch import StageBrokenError, Watch
from e2e.testbed.progress import Progress

ORIGIN = Origin(kubernetes="v1.34.4", source="aa")
OLD = Origin(kubernetes="v1.34.4", source="old")
PASSED = Result(outcome=Outcome.PASSED, origin=ORIGIN)
FAILED = Result(outcome=Outcome.FAILED, origin=ORIGIN)
ABSENT = replace(NOTHING, origin=ORIGIN)

Ends = Results | BaseException
HERE = Path("kubeconfig")


class Played:
    """A suite whose runs end as told."""

    def __init__(self, *ends: Ends, so_far: Results | None = None) -> None:
        self.ends = list(ends)
        self.runs: list[Run] = []
        self.so_far = so_far or {}

    def run(self, run: Run, _start_watch: Callable[[], Watch]) -> Results:
        self.runs.append(run)
        end = self.ends.pop(0)
        if isinstance(end, BaseException):
            raise end
        return end

    @property
    def asked(self) -> list[list[str]]:
        return [list(run.names) for run in self.runs]


def well() -> Watch:
    return Watch({})


@pytest.fixture
def keeping(tmp_path: Path) -> Keeping:
    (tmp_path / "exemptions.yaml").write_text("[]")
    return Keeping(tmp_path, tmp_path)


def runner(
    played: Played, keeping: Keeping, wanted: Sequence[str], *, only_differing: bool = False
) -> Runner:
    return Runner(
        suite=cast(Suite, played),
        keeping=keeping,
        progress=Progress(quiet=True),
        chosen={"apps": Chosen(of_slice="abcd", wanted=wanted)},
        origin=lambda: ORIGIN,
        procs=1,
        only_differing=only_differing,
    )


def test_only_what_differs_is_run_again(keeping: Keeping) -> None:
    """The target's run decides what is run through the node, and each run what the next has."""
    played = Played(
        {"a": PASSED, "b": PASSED, "c": PASSED, "d": FAILED},
        {"a": PASSED, "b": FAILED},
        {"b": PASSED, "c": FAILED},
        {"c": FAILED},
    )
    one = runner(played, keeping, "abcd")
    one.run_direct("apps", HERE, well)
    one.run_through("apps", HERE, well, again=2)
    assert played.asked == [["a", "b", "c", "d"], ["a", "b", "c"], ["b", "c"], ["c"]]
    record = keeping.read("apps")
    assert record["b"].through == (FAILED, PASSED)
    assert record["c"].through == (ABSENT, FAILED, FAILED)
    assert record["d"] == Runs(direct=FAILED)


def test_specs_that_the_targets_run_has_no_word_of_are_told_and_not_counted(
    keeping: Keeping, capsys: pytest.CaptureFixture[str]
) -> None:
    """They would make the denominator smaller without anybody seeing it."""
    runner(Played({"a": PASSED}), keeping, "ab").run_direct("apps", HERE, well)
    assert keeping.read("apps").keys() == {"a"}
    assert "of 1 specs the run has no word; they are not counted: b" in capsys.readouterr().err


def test_nothing_is_run_through_the_node_that_does_not_pass(keeping: Keeping) -> None:
    """Without anything that passes on the target there is nothing to compare to."""
    played = Played()
    runner(played, keeping, "abcd").run_through("apps", HERE, well, again=5)
    assert played.runs == []


def test_a_choice_holds_on_both_sides(keeping: Keeping) -> None:
    """What is known of other specs stays as it is."""
    keeping.write("apps", {"a": Runs(direct=PASSED), "b": Runs(direct=PASSED)})
    played = Played({"b": PASSED})
    runner(played, keeping, "b").run_through("apps", HERE, well, again=5)
    assert played.asked == [["b"]]
    assert keeping.read("apps") == {
        "a": Runs(direct=PASSED),
        "b": Runs(direct=PASSED, through=(PASSED,)),
    }


def test_only_what_is_open_is_run_when_that_is_wished(keeping: Keeping) -> None:
    """Old results of what passes stay; what failed with another federate is run anew."""
    failed = replace(FAILED, origin=OLD)
    keeping.write(
        "apps",
        {
            "a": Runs(direct=PASSED, through=(PASSED,)),
            "b": Runs(direct=PASSED, through=(failed,) * 6),
            "c": Runs(direct=PASSED),
            "d": Runs(direct=FAILED),
        },
    )
    played = Played({"b": PASSED, "c": PASSED})
    runner(played, keeping, "abcd", only_differing=True).run_through("apps", HERE, well, again=5)
    assert played.asked == [["b", "c"]]
    assert keeping.read("apps")["b"].through == (PASSED,)


@pytest.mark.parametrize("end", [KeyboardInterrupt(), SystemExit(143), StageBrokenError("gone")])
def test_a_run_that_ends_early_keeps_what_was_over(keeping: Keeping, end: BaseException) -> None:
    """Specs that the run did not come to are not taken for failures."""
    keeping.write("apps", {"a": Runs(direct=PASSED), "b": Runs(direct=PASSED)})
    played = Played(end, so_far={"a": PASSED})
    with pytest.raises(type(end)):
        runner(played, keeping, "ab").run_through("apps", HERE, well, again=5)
    assert keeping.read("apps") == {
        "a": Runs(direct=PASSED, through=(PASSED,)),
        "b": Runs(direct=PASSED),
    }
