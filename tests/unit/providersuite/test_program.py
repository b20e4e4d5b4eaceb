"""How the suite is run, and what is read from what it says."""

from dataclasses import replace
from pathlib import Path

import pytest

from e2e.conformance.results import Outcome, Result
from e2e.providersuite.program import Wish, read_output, run_specs
from e2e.testbed.errors import TestbedError
from e2e.testbed.places import Places

SAID = """\
=== RUN   TestProvider
    suite.go:62: True
=== RUN   TestProvider/TestGetPods
    basic.go:43: Created pod: nginx-1
    basic.go:49: Pod nginx-1 ready
=== RUN   TestProvider/TestGetStatsSummary
    basic.go:89: timed out waiting
        for the condition
=== RUN   TestProvider/TestLeftOut
    suite.go:50: Skipped
--- FAIL: TestProvider (61.00s)
    --- PASS: TestProvider/TestGetPods (0.33s)
    --- FAIL: TestProvider/TestGetStatsSummary (60.07s)
    --- SKIP: TestProvider/TestLeftOut (0.00s)
FAIL
"""
CUT_OFF = """\
=== RUN   TestProvider
=== RUN   TestProvider/TestGetPods
    basic.go:43: Created pod: nginx-1
panic: test timed out after 1s
"""
WISH = Wish(kubeconfig=Path("hub.yaml"), namespace="one", node="edge", image="pause:1")


def test_each_spec_has_an_outcome_and_its_last_words() -> None:
    """What went well is not told of a failure, nor anything of a spec that passed."""
    found = read_output(SAID)
    assert found["TestGetPods"] == Result(outcome=Outcome.PASSED, seconds=0.33)
    assert found["TestGetStatsSummary"] == Result(
        outcome=Outcome.FAILED,
        seconds=60.07,
        message="basic.go:89: timed out waiting for the condition",
    )
    assert found["TestLeftOut"].outcome is Outcome.SKIPPED
    assert len(found) == 3


def test_a_spec_that_was_cut_off_failed() -> None:
    """Where Go ended the program, what ran then has no outcome of its own."""
    (found,) = read_output(CUT_OFF).values()
    assert found.outcome is Outcome.FAILED
    assert found.message.startswith("basic.go:43: Created pod")


def test_some_specs_are_run_or_left_out_by_name() -> None:
    """Names are whole ones, patterns are looked for."""
    program = Path("suite")
    plain = WISH.command(program)
    assert not [word for word in plain if word.startswith(("-test.run", "-test.skip"))]
    some = replace(WISH, only=["TestB", "TestA"], without=["^TestC", "D$"]).command(program)
    assert "-test.run=^TestProvider$/^(TestA|TestB)$" in some
    assert "-test.skip=^TestProvider$/(^TestC|D$)" in some


def places_of(tmp_path: Path) -> Places:
    return Places(environment={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"})


def program_that(tmp_path: Path, script: str) -> Path:
    program = tmp_path / "suite"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return program


def test_what_the_suite_says_is_read_and_kept(tmp_path: Path) -> None:
    """A run that fails is one that is told; its log stays."""
    program = program_that(tmp_path, f"cat <<'END'\n{SAID}END\nexit 1")
    found = run_specs(program, WISH, folder=tmp_path, places=places_of(tmp_path))
    assert found == read_output(SAID)
    assert (tmp_path / "suite.log").read_text() == SAID


def test_a_suite_that_runs_no_spec_says_why(tmp_path: Path) -> None:
    """Of a node that is not there nothing is known."""
    program = program_that(tmp_path, "echo the node is not Ready; exit 1")
    with pytest.raises(TestbedError, match="the node is not Ready"):
        run_specs(program, WISH, folder=tmp_path, places=places_of(tmp_path))
