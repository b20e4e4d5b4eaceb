"""How ginkgo is called, what is read of its output, and what is left of runs that end early."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from e2e.conformance.keeping import Keeping
from e2e.conformance.record import Runs
from e2e.conformance.results import Outcome, Result
from e2e.conformance.slices import SLICES, Slice
from e2e.conformance.suite import FOCUS_BYTES, Programs, Run, Suite, how_far
from e2e.conformance.watch import StageBrokenError, Watch
from e2e.testbed.errors import TestbedError
from e2e.testbed.processes import wait_until
from e2e.testbed.progress import Progress
from tests.support.conformancerun import SLICE
from tests.support.ginkgo import Ginkgo, Plan, played_ginkgo, spec_report, whole_report

PROGRAMS = Programs(
    ginkgo=Path("/p/ginkgo"),
    suite=Path("/p/e2e.test"),
    kubectl=Path("/p/kubectl"),
    repository_list=Path("/p/repositories.yaml"),
)
GOOD, BAD = "[sig-node] Pods good", "[sig-node] Pods bad"
CUT = "[sig-node] Pods cut"
ENOUGH_SECONDS = 20.0


def run_of(*names: str) -> Run:
    return Run(title="t", kubeconfig=Path("c"), names=names)


def test_the_command_line_has_ginkgos_part_and_the_suites() -> None:
    """What is behind `--` goes to the suite; specs are named, brackets and all."""
    run = Run(title="node-direct", kubeconfig=Path("/k.yaml"), names=["[sig-x] A", "[sig-x] B"])
    command = run.command(PROGRAMS, Path("/out"))
    assert command[:3] == ["/usr/bin/env", "KUBE_TEST_REPO_LIST=/p/repositories.yaml", "/p/ginkgo"]
    split = command.index("--")
    assert command[split - 1] == "/p/e2e.test"
    assert {r"--focus= \[sig-x\] A$| \[sig-x\] B$", "--procs=4"} <= set(command[:split])
    assert {
        "--kubeconfig=/k.yaml",
        "--kubectl-path=/p/kubectl",
    } <= set(command[split:])


def test_without_a_list_of_images_the_originals_are_pulled() -> None:
    """No variable tells the suite otherwise."""
    programs = Programs(ginkgo=Path("g"), suite=Path("s"), kubectl=Path("k"))
    assert "REPO_LIST" not in " ".join(run_of("a").command(programs, Path("/out")))


def test_more_specs_than_fit_a_command_line_are_refused_in_words() -> None:
    """The kernel would only say that the argument list is too long."""
    with pytest.raises(TestbedError, match="run parts of it, by --focus"):
        run_of("x" * FOCUS_BYTES).command(PROGRAMS, Path("/out"))


def test_progress_counts_what_is_over() -> None:
    """ginkgo draws a bullet for every spec that is over."""
    assert how_far("") == "starting"
    log = "Will run 27 of 7144 specs\n••\n----\n• [FAILED] [12.3 seconds]\n••"
    assert how_far(log) == "5 of 27 specs over, 1 failed"


# -- which specs there are -------------------------------------------------------------------------


def test_the_suite_is_asked_for_a_slices_specs(tmp_path: Path) -> None:
    """Nothing is run for that; the label filter is the slice's, and so is the choice by name."""
    asked = [spec_report(name, NumAttempts=0) for name in ("good", "bad")]
    left_out = spec_report("other", "skipped", NumAttempts=0)
    ginkgo = played_ginkgo(tmp_path, Plan(report=whole_report(*asked, left_out)))
    one = Slice(about="", label_filter="sig-node && !Slow", names="good")
    assert ginkgo.programs.names_of(one) == [GOOD]
    [call] = ginkgo.calls
    assert {"--dry-run", "--label-filter=sig-node && !Slow"} <= set(call)


def test_a_filter_that_chooses_nothing_is_told_with_what_the_suite_said(tmp_path: Path) -> None:
    """A typing error in a filter is no empty slice."""
    ginkgo = played_ginkgo(tmp_path, Plan(report=whole_report()))
    with pytest.raises(TestbedError, match="no spec for the label filter 'sig-nod'"):
        ginkgo.programs.names_of(Slice(about="", label_filter="sig-nod"))


@pytest.mark.parametrize("program", ["/nowhere/ginkgo", "/bin/false"])
def test_a_suite_that_does_not_answer_is_told_without_a_traceback(program: str) -> None:
    """With the command line, so that somebody can try it."""
    programs = Programs(ginkgo=Path(program), suite=Path(program), kubectl=Path("k"))
    for question in (programs.list_images, partial(programs.names_of, SLICES["node"])):
        with pytest.raises(TestbedError, match=f"^{program}"):
            question()


# -- runs ------------------------------------------------------------------------------------------


@contextmanager
def suite_with(ginkgo: Ginkgo, folder: Path) -> Iterator[Suite]:
    suite = Suite(ginkgo.programs, folder=folder / "logs", progress=Progress(quiet=True))
    try:
        yield suite
    finally:
        suite.close()


def well() -> Watch:
    return Watch({})


def test_a_run_to_the_end_gives_its_results(tmp_path: Path) -> None:
    """A report that an earlier run left under the same title is not taken for this one's."""
    specs = whole_report(spec_report("good"), spec_report("bad", "failed"))
    ginkgo = played_ginkgo(tmp_path, Plan(report=specs))
    with suite_with(ginkgo, tmp_path) as suite:
        results = suite.run(run_of(GOOD, BAD), well)
        assert {name: str(one.outcome) for name, one in results.items()} == {
            GOOD: "passed",
            BAD: "failed",
        }
        played_ginkgo(tmp_path, Plan(report=specs, reports=False, says="out of memory"))
        with pytest.raises(TestbedError, match=r"(?s)it ran no spec.*out of memory"):
            suite.run(run_of(GOOD, BAD), well)


def test_results_do_not_tell_where_things_lie(tmp_path: Path) -> None:
    """A failed kubectl is told with its whole command line, and results are checked in."""
    said = f"error running {tmp_path}/bin/kubectl --kubeconfig={tmp_path}/hub/k.yaml get /etc/hosts"
    failed = spec_report("bad", "failed", Failure={"Message": said})
    ginkgo = played_ginkgo(tmp_path, Plan(report=whole_report(failed)))
    programs = replace(ginkgo.programs, kubectl=tmp_path / "bin" / "kubectl")
    run = Run(title="t", kubeconfig=tmp_path / "hub" / "k.yaml", names=[BAD])
    suite = Suite(programs, folder=tmp_path / "logs", progress=Progress(quiet=True))
    [result] = suite.run(run, well).values()
    suite.close()
    assert result.message == "error running kubectl --kubeconfig=k.yaml get /etc/hosts"


def test_a_report_that_breaks_off_is_none(tmp_path: Path) -> None:
    """A full disk, or an end in the middle of writing; the log is shown, not a traceback."""
    plan = Plan(report=whole_report(spec_report("good")), breaks_off=True, says="no space left")
    with suite_with(played_ginkgo(tmp_path, plan), tmp_path) as suite:
        with pytest.raises(TestbedError, match=r"(?s)its report is none.*no space left"):
            suite.run(run_of(GOOD), well)
        assert suite.so_far == {}


def test_a_ginkgo_that_is_killed_leaves_no_results(tmp_path: Path) -> None:
    """The kernel kills what takes too much memory, and no report is written then."""
    ginkgo = played_ginkgo(tmp_path, Plan(report=whole_report(spec_report("good")), seconds=60.0))

    def kill() -> str:
        with suppress(ProcessLookupError):
            if ginkgo.has_started:
                os.kill(ginkgo.pid, signal.SIGKILL)
        return ""

    with (
        suite_with(ginkgo, tmp_path) as suite,
        pytest.raises(TestbedError, match="it ran no spec"),
    ):
        suite.run(run_of(GOOD), lambda: Watch({"killer": kill}, every_seconds=0.1))


# -- what the tests run on is gone -----------------------------------------------------------------


def broken(*, after: Callable[[], bool]) -> Callable[[], Watch]:
    """Look often, and have no patience, so that what is wrong is told at once."""
    looks = {"target": lambda: "no answer" if after() else ""}
    return lambda: Watch(looks, patience=timedelta(), every_seconds=0.1)


def test_a_run_ends_when_what_it_runs_on_is_gone(tmp_path: Path) -> None:
    """What was over while all was well is kept; what failed since says nothing."""
    late = spec_report("bad", "failed", EndTime="2999-01-01T00:00:00.123456789Z")
    plan = Plan(report=whole_report(spec_report("good"), late), seconds=60.0)
    ginkgo = played_ginkgo(tmp_path, plan)
    with suite_with(ginkgo, tmp_path) as suite:
        with pytest.raises(StageBrokenError, match="target: no answer"):
            suite.run(run_of(GOOD, BAD), broken(after=lambda: ginkgo.has_started))
        assert suite.so_far.keys() == {GOOD}
    assert not Path(f"/proc/{ginkgo.pid}").exists()


def test_what_is_gone_when_the_last_spec_ends_is_noticed(tmp_path: Path) -> None:
    """With everything gone specs fail faster than anybody looks."""
    late = spec_report("bad", "failed", EndTime="2999-01-01T00:00:00Z")
    ginkgo = played_ginkgo(tmp_path, Plan(report=whole_report(late)))
    looks = {"target": lambda: "no answer"}
    with suite_with(ginkgo, tmp_path) as suite:
        with pytest.raises(StageBrokenError):
            suite.run(run_of(BAD), lambda: Watch(looks, patience=timedelta(), every_seconds=0.01))
        assert suite.so_far == {}


# -- a run that somebody ends ----------------------------------------------------------------------


def before(folder: Path) -> Keeping:
    """Know something of a spec already."""
    keeping = Keeping(folder, folder)
    keeping.write(SLICE, {CUT: Runs(direct=Result(outcome=Outcome.PASSED))})
    return keeping


def has_ended(pid: int) -> bool:
    return wait_until(lambda: not Path(f"/proc/{pid}").exists(), ENOUGH_SECONDS)


@contextmanager
def running(folder: Path, **more: Any) -> Iterator[tuple[subprocess.Popen[str], Ginkgo]]:
    """Run a slice in a process of its own, until its specs run."""
    specs = whole_report(
        spec_report("good"), spec_report("bad", "failed"), spec_report("cut", "interrupted")
    )
    ginkgo = played_ginkgo(folder, Plan(report=specs, seconds=60.0, **more))
    command = [sys.executable, "-m", "tests.support.conformancerun", str(folder), GOOD, BAD, CUT]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            assert wait_until(lambda: ginkgo.has_started, ENOUGH_SECONDS)
            yield process, ginkgo
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_keeps_what_was_over(tmp_path: Path, number: signal.Signals) -> None:
    """Ctrl-C and a kind kill alike: ginkgo reports, and what it started ends with it."""
    keeping = before(tmp_path)
    with running(tmp_path, leaves_child=True) as (process, ginkgo):
        process.send_signal(number)
        said, _ = process.communicate(timeout=ENOUGH_SECONDS)
        assert process.returncode
    assert "2 of 3 specs are kept" in said
    kept = {name: str(runs.direct.outcome) for name, runs in keeping.read(SLICE).items()}
    # The one that was cut off is known from before.
    assert kept == {GOOD: "passed", BAD: "failed", CUT: "passed"}
    for pid in (ginkgo.pid, ginkgo.child):
        assert has_ended(pid)


def test_a_run_that_is_interrupted_while_it_reports_keeps_what_was_known(tmp_path: Path) -> None:
    """Half a report is none, and nothing of before is lost."""
    keeping = before(tmp_path)
    known = keeping.read(SLICE)
    with running(tmp_path, breaks_off=True) as (process, _):
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=ENOUGH_SECONDS)
    assert "0 of 3 specs are kept" in said
    assert keeping.read(SLICE) == known


def test_a_run_that_is_killed_changes_nothing(tmp_path: Path) -> None:
    """ginkgo dies with it, the record is that of before, and the next run works."""
    keeping = before(tmp_path)
    known = keeping.read(SLICE)
    with running(tmp_path) as (process, ginkgo):
        process.kill()
        process.communicate(timeout=ENOUGH_SECONDS)
        assert has_ended(ginkgo.pid)
    assert keeping.read(SLICE) == known
    ginkgo = played_ginkgo(tmp_path, Plan(report=whole_report(spec_report("good"))))
    with suite_with(ginkgo, tmp_path) as suite:
        assert suite.run(run_of(GOOD), well).keys() == {GOOD}
