"""How ginkgo is called, and what is read of its output."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.conformance.slices import APART, PARALLEL, SLICES
from e2e.conformance.suite import Programs, Run, Suite, how_far
from e2e.testbed.processes import wait_until
from e2e.testbed.progress import Progress

PROGRAMS = Programs(
    ginkgo=Path("/p/ginkgo"),
    suite=Path("/p/e2e.test"),
    kubectl=Path("/p/kubectl"),
    repository_list=Path("/p/repositories.yaml"),
)


def test_the_command_line_has_ginkgos_part_and_the_suites() -> None:
    """What is behind `--` goes to the suite."""
    run = Run(
        title="node-direct",
        kubeconfig=Path("/k.yaml"),
        label_filter=SLICES["node"],
        focus="Pods",
    )
    command = run.command(PROGRAMS, Path("/out"))
    assert command[:3] == ["/usr/bin/env", "KUBE_TEST_REPO_LIST=/p/repositories.yaml", "/p/ginkgo"]
    split = command.index("--")
    assert command[split - 1] == "/p/e2e.test"
    assert {f"--label-filter={SLICES['node']}", "--focus=Pods", "--procs=4"} <= set(command[:split])
    assert {
        "--kubeconfig=/k.yaml",
        "--kubectl-path=/p/kubectl",
    } <= set(command[split:])


def test_without_focus_and_list_their_flags_are_left_out() -> None:
    """An empty focus would be one; without a list the originals are pulled."""
    programs = Programs(ginkgo=Path("g"), suite=Path("s"), kubectl=Path("k"))
    run = Run(title="t", kubeconfig=Path("c"), label_filter="Conformance")
    command = " ".join(run.command(programs, Path("/out")))
    assert "--focus" not in command and "REPO_LIST" not in command


def test_progress_counts_what_is_over() -> None:
    """ginkgo draws a bullet for every spec that is over."""
    assert how_far("") == "starting"
    log = "Will run 27 of 7144 specs\n••\n----\n• [FAILED] [12.3 seconds]\n••"
    assert how_far(log) == "5 of 27 specs over, 1 failed"


def test_every_slice_is_of_parallel_conformance_specs() -> None:
    """Serial specs would disturb the others; what is reported apart is a slice too."""
    assert all(one.startswith(PARALLEL) for one in SLICES.values())
    assert SLICES.keys() >= APART


GINKGO = """#!/bin/sh
{ trap '' INT; while :; do sleep 0.1; done; } &
echo $! > "$0.child"
trap 'cp "$0.report" report.json; touch reported' INT
sleep 0.5
kill -INT $PPID
while [ ! -e reported ]; do sleep 0.1; done
sleep 0.5
"""
"""Interrupts who started it, reports when interrupted in turn, and leaves a process behind."""


@pytest.fixture
def interruptible() -> Iterator[None]:
    """What a shell starts in the background ignores interrupts, and so does all it starts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_reads_what_was_over_and_leaves_no_process(tmp_path: Path) -> None:
    """ginkgo gets the time to report, and what it started ends with it."""
    spec = {"LeafNodeType": "It", "LeafNodeText": "a", "State": "passed", "NumAttempts": 1}
    ginkgo = tmp_path / "ginkgo"
    ginkgo.write_text(GINKGO)
    (tmp_path / "ginkgo.report").write_text(json.dumps([{"SpecReports": [spec]}]))
    ginkgo.chmod(0o755)
    programs = Programs(ginkgo=ginkgo, suite=Path("s"), kubectl=Path("k"))
    suite = Suite(programs, folder=tmp_path, progress=Progress(quiet=True))
    run = Run(title="t", kubeconfig=Path("c"), label_filter="Conformance")
    with pytest.raises(KeyboardInterrupt):
        suite.run(run)
    suite.close()
    assert list(suite.so_far) == ["a"]
    child = int((tmp_path / "ginkgo.child").read_text())
    assert wait_until(lambda: not Path(f"/proc/{child}").exists(), 20.0)
