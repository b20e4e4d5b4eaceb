"""What is known of the suite, and what the page says of it."""

from pathlib import Path

from e2e.conformance.record import Runs, render_record
from e2e.conformance.results import Outcome, Result
from e2e.providersuite.keeping import Keeping
from e2e.providersuite.page import section

PASSED = Result(outcome=Outcome.PASSED)
FAILED = Result(outcome=Outcome.FAILED, message="timed out | so it is")

EXEMPTIONS = """\
always:
  - pattern: ^TestMetrics$
    reason: no kubelet does that
withContainers:
  - pattern: ^TestDelete$
    reason: takes longer
"""


def keeping(tmp_path: Path) -> Keeping:
    record = {
        "TestGetPods": Runs(direct=PASSED, through=(PASSED,)),
        "TestDelete": Runs(direct=FAILED, through=(FAILED,)),
        "TestEnd": Runs(direct=FAILED, through=(PASSED,)),
        "TestSummary": Runs(direct=PASSED, through=(FAILED,)),
        "TestMetrics": Runs(direct=FAILED, through=(FAILED,)),
    }
    (tmp_path / "results.json").write_text(render_record(record))
    (tmp_path / "exemptions.yaml").write_text(EXEMPTIONS)
    return Keeping(tmp_path)


def test_the_section_has_a_line_for_each_spec(tmp_path: Path) -> None:
    """Each tells both sides, and why it does not pass through the node."""
    text = section(keeping(tmp_path))
    assert "| TestGetPods | passed | passed |  |" in text
    assert "| TestEnd | failed | passed |  |" in text
    assert "| TestDelete | failed | failed | takes longer |" in text
    assert "| TestSummary | passed | failed | not classified: timed out \\| so it is |" in text
    assert "| TestMetrics | failed | failed | no kubelet does that |" in text


def test_the_section_counts(tmp_path: Path) -> None:
    """What is exempted is not what differs."""
    text = section(keeping(tmp_path))
    assert "Of 5 specs 2 pass through the virtual node, 2 on the target's own node" in text
    assert "2 ask for what no kubelet does; 1 differ." in text


def test_some_exemptions_are_for_containers_only(tmp_path: Path) -> None:
    """Where pods are played, more is asked."""
    kept = keeping(tmp_path)
    assert [one.pattern for one in kept.exemptions(with_containers=False)] == ["^TestMetrics$"]
    assert len(kept.exemptions(with_containers=True)) == 2


def test_without_results_there_is_no_section(tmp_path: Path) -> None:
    """Nothing is said of what was never run."""
    (tmp_path / "exemptions.yaml").write_text(EXEMPTIONS)
    assert section(Keeping(tmp_path)) == ""


def test_what_is_exempted_fails_on_a_real_kubelet_too() -> None:
    """An exemption has a proof and a need, and all else passes through the virtual node."""
    kept = Keeping()
    exemptions, record = kept.exemptions(with_containers=True), kept.read()
    exempted = {name for name in record if any(one.matches(name) for one in exemptions)}
    passing = {name for name, runs in record.items() if runs.through[-1].outcome is PASSED.outcome}
    assert exempted
    assert {record[name].direct.outcome for name in exempted} == {Outcome.FAILED}
    assert passing == record.keys() - exempted
    assert all(any(one.matches(name) for name in record) for one in exemptions)
