"""`federate check`: lines for people, JSON for programs, and what the exit code says."""

from __future__ import annotations

import io
import json
import socket
from pathlib import Path

import pytest
from rich.console import Console

from federate.check.findings import Finding, FindingId, StepResult
from federate.cli import main
from federate.cli.check import as_json, show, summary
from tests.support.credentials import kubeconfig

Captured = pytest.CaptureFixture[str]


def step(*found: FindingId, skipped: bool = False) -> StepResult:
    findings = tuple(Finding(id=one, what="what [it] is", fix="do this") for one in found)
    return StepResult(
        end="hub", step="rights", said="3 of 4", findings=findings, is_skipped=skipped
    )


def shown(result: StepResult) -> list[str]:
    out = io.StringIO()
    show(result, Console(file=out, soft_wrap=True, width=40), width=4)
    return out.getvalue().splitlines()


def test_a_good_step_is_one_line() -> None:
    assert shown(step()) == ["hub   ok    rights: 3 of 4"]


def test_what_is_wrong_stands_below_with_its_fix() -> None:
    """Nothing in it is taken for markup, or cut."""
    assert shown(step(FindingId.RIGHT_MISSING, FindingId.NO_LEADER)) == [
        "hub   fail  rights: 3 of 4",
        "            RightMissing: what [it] is",
        "              -> do this",
        "            NoLeader: what [it] is",
        "              -> do this",
    ]
    assert shown(step(skipped=True)) == ["hub   skip  rights: 3 of 4"]


def test_the_last_line_says_how_it_went() -> None:
    assert summary([step()]) == "All is well."
    assert summary([step(FindingId.NO_LEADER)]) == "All is well."
    assert summary([step(FindingId.CLOCK_SKEW)]) == "federate can work; 1 warning."
    failed = summary([step(FindingId.CLOCK_SKEW), step(FindingId.RIGHT_MISSING)])
    assert failed == "federate cannot work: 1 failure, 1 warning."


def test_json_says_whether_all_is_well() -> None:
    assert as_json([step(FindingId.CLOCK_SKEW)])["ok"]
    assert not as_json([step(FindingId.CLOCK_SKEW), step(FindingId.RIGHT_MISSING)])["ok"]


def test_ends_that_nobody_answers_at_are_told(tmp_path: Path, capsys: Captured) -> None:
    """With exit code 1, each end by itself, and no word of what is in the kubeconfigs."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        server = f"https://127.0.0.1:{held.getsockname()[1]}"
        file = kubeconfig(tmp_path, server, user={"token": "canary-token"})
        arguments = ["check", "--hub", str(file), "--target", f"edge={file}"]
        assert main([*arguments, "-o", "json"]) == 1
        told = capsys.readouterr()
        found = json.loads(told.out)
        assert main(arguments) == 1
        lines = capsys.readouterr()
    assert {s["end"] for s in found["steps"] if s["status"] == "fail"} == {"hub", "edge"}
    assert "ConnectionFailed" in lines.out
    assert "LoopbackAddress" in lines.out
    assert lines.out.splitlines()[-1].startswith("federate cannot work: 2 failures")
    for text in (told.out, told.err, lines.out, lines.err):
        assert "canary" not in text
        assert "Traceback" not in text


def test_a_kubeconfig_that_is_none_is_told(tmp_path: Path, capsys: Captured) -> None:
    """That is a finding of that end, the others are looked at."""
    file = tmp_path / "config"
    file.write_text("{}")
    assert main(["check", "--hub", str(file), "--target", f"edge={file}", "-o", "json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [f["id"] for s in found["steps"] for f in s["findings"]] == ["KubeconfigUnusable"] * 2


def test_options_are_those_of_run(capsys: Captured) -> None:
    assert main(["check", "--target", "edge=/no/such/file"]) == 2
    assert "--target" in capsys.readouterr().err
