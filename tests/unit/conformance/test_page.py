"""The page, and what is kept in the checkout."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from e2e.conformance.comparing import Exemption, compare, stale_among
from e2e.conformance.keeping import DOCS, Keeping
from e2e.conformance.origin import Origin
from e2e.conformance.page import leaf_of, render_page
from e2e.conformance.record import Runs
from e2e.conformance.results import Outcome, Result
from e2e.testbed.errors import TestbedError

ORIGIN = Origin(
    kubernetes="v1.34.4", at="2026-11-30 12:00", federate="0.1.0", source="aa", images="stand-ins"
)
LATER = replace(ORIGIN, at="2026-11-30 13:00")
PASSED = Result(outcome=Outcome.PASSED, origin=ORIGIN)
FAILED = Result(outcome=Outcome.FAILED, origin=LATER, message="expected <int>: 1 | got 2")


def runs(feature: str, direct: Result, *through: Result) -> Runs:
    return Runs(direct=replace(direct, feature=feature), through=through)


def page() -> str:
    node = {
        "[sig-node] Probes should work": runs("[sig-node] Probes", PASSED, PASSED),
        "[sig-node] Probes should wait": runs("[sig-node] Probes", PASSED, *[FAILED] * 6),
        "[sig-node] Exec should run": runs("[sig-node] Exec [X]", PASSED, FAILED, PASSED),
        "[sig-node] Seccomp should hold": runs("[sig-node] Seccomp", PASSED, FAILED),
        "[sig-node] Swap should grow": runs("[sig-node] Swap", FAILED),
    }
    dns = runs("[sig-network] DNS", PASSED, *[FAILED] * 6)
    network = {"[sig-network] DNS should answer": dns}
    exemptions = [
        Exemption(pattern="Seccomp", reason="so it is", see="C26"),
        Exemption(pattern="Probes should work", reason="of no use", see="networking.md"),
    ]
    slices = {"node": compare(node, exemptions), "network": compare(network, exemptions)}
    return render_page(slices, ["## A second judge\n", ""])


def test_the_page_tells_the_figure_of_each_slice() -> None:
    """Network is told too, and left out of the sum; so is what was not run."""
    text = page()
    assert "2 of 4 specs that pass on the target pass through the virtual node: 50.0 %" in text
    assert "| node | conformance: what a kubelet does | 4 | 2 | 1 | 1 | 1 | 50.0 % |" in text
    assert re.search(r"\| network \| .* \| 1 \| 0 \| 0 \| 0 \| 1 \| 0.0 % \|", text)
    assert "| **the figure** | of the slices above | 4 | 2 | 1 | 1 | 1 | 50.0 % |" in text
    assert "| storage | conformance: volumes | not run yet |" in text


def test_the_page_tells_of_which_federate_the_results_are() -> None:
    """All that was run last, from the first run to the last one."""
    assert (
        "| node | 4 | 2026-11-30 12:00 to 2026-11-30 13:00 | 0.1.0, files aa | v1.34.4 "
        "| stand-ins |" in page()
    )
    assert "The results are of one federate." in page()
    other = Result(outcome=Outcome.PASSED, origin=replace(ORIGIN, source="bb"))
    slices = {
        "node": compare({"a": runs("", PASSED, PASSED)}),
        "apps": compare({"b": runs("", PASSED, other)}),
    }
    assert "The results are not known to be of one federate." in render_page(slices)


def test_the_page_tells_what_does_not_pass_and_why() -> None:
    """By design one by one with what says so; else what the spec said; tables stay tables."""
    text = page()
    assert "| [sig-node] Seccomp should hold | so it is | [C26](contract.md) |" in text
    assert "of no use" not in text
    assert "| [sig-node] Probes should wait | 6 | failed: expected &lt;int>: 1 \\| got 2 |" in text
    assert "- [sig-node] Exec should run (1 of 2 times)" in text
    assert "On the target 1 failed:\n\n| spec | what it said there |\n|---|---|\n" in text
    assert "| [sig-node] Swap should grow | failed: expected &lt;int>: 1 \\| got 2 |" in text


def test_the_page_has_what_others_tell() -> None:
    """Who has nothing to tell leaves no trace."""
    assert "\n\n## A second judge\n\n## Not counted" in page()


def test_a_spec_is_named_without_headings_and_labels() -> None:
    """A reader knows what it is about already."""
    name = "[sig-apps] StatefulSet Basic [Set] Should recreate [Slow] evicted ones [Conformance]"
    [one] = compare({name: runs("[sig-apps] StatefulSet Basic [Set]", PASSED)})
    assert leaf_of(one) == "Should recreate evicted ones"


# -- what is checked in ----------------------------------------------------------------------------


@pytest.mark.parametrize("page", ["conformance.md", "features.md"])
def test_the_checked_in_pages_are_those_of_the_checked_in_results(page: str) -> None:
    """`make conformance ARGS=--page` writes them."""
    assert Keeping().pages()[DOCS / page] == (DOCS / page).read_text()


def test_every_exemption_is_needed() -> None:
    """One that no failing spec needs any more would hide the next failure."""
    keeping = Keeping()
    rows = [one for compared in keeping.compared().values() for one in compared]
    assert [one.pattern for one in stale_among(keeping.exemptions(), rows)] == []


def test_every_exemption_has_a_reason_and_what_says_so() -> None:
    """A clause of the contract that there is, or a page that there is."""
    contract = (DOCS / "contract.md").read_text()
    for one in Keeping().exemptions():
        assert len(one.reason) > 20, one.pattern
        is_clause = re.fullmatch(r"C\d+", one.see) and re.search(rf"\b{one.see}\b", contract)
        assert is_clause or (one.see and (DOCS / one.see).is_file()), one.pattern


# -- files -----------------------------------------------------------------------------------------


def test_a_file_that_makes_no_sense_is_told_with_what_to_do(tmp_path: Path) -> None:
    """It is not taken for a slice of which nothing is known, and written over."""
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "apps.json").write_text('{"runs": [')
    with pytest.raises(TestbedError, match=r"apps\.json cannot be read: .*--slice apps"):
        Keeping(tmp_path, tmp_path).read("apps")


def test_pages_are_written_where_they_belong(tmp_path: Path) -> None:
    """A checkout with no results yet has pages too."""
    (tmp_path / "exemptions.yaml").write_text("")
    (tmp_path / "features.yaml").write_text("- {area: A, features: [{feature: F, specs: [x]}]}")
    Keeping(tmp_path, tmp_path, sections=()).write_pages()
    assert "No spec was run on both sides." in (tmp_path / "conformance.md").read_text()
    assert "| F | not run yet |  |  |" in (tmp_path / "features.md").read_text()
