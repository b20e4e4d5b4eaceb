"""The page, and what is kept in the checkout."""

import re
from dataclasses import replace

from e2e.conformance.comparing import Exemption, compare
from e2e.conformance.keeping import PAGE, Keeping
from e2e.conformance.page import render_page, without_labels
from e2e.conformance.record import Runs
from e2e.conformance.results import Outcome, Result

PASSED = Result(outcome=Outcome.PASSED)
FAILED = Result(outcome=Outcome.FAILED, message="expected <int>: 1 | got 2")


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
    exemptions = [Exemption(pattern="Seccomp", reason="so it is")]
    return render_page(
        "v1.34.4",
        {"node": compare(node, exemptions), "network": compare(network, exemptions)},
    )


def test_the_page_tells_the_figure_of_each_slice() -> None:
    """Network is told too, and left out of the sum."""
    text = page()
    assert "| node | 4 | 2 | 1 | 1 | 1 | 50.0 % |" in text
    assert "| network | 1 | 0 | 0 | 0 | 1 | 0.0 % |" in text
    assert "| **all but network** | 4 | 2 | 1 | 1 | 1 | 50.0 % |" in text
    assert "Not run yet: storage, apps, auth-cli." in text


def test_the_page_tells_what_differs_and_why() -> None:
    """A reason is the exemption's, or else what the spec said; tables stay tables."""
    text = page()
    assert "| [sig-node] Seccomp should hold | so it is |" in text
    assert "not classified; failed: expected &lt;int>: 1 \\| got 2" in text
    assert "- [sig-node] Exec should run (1 of 2 times)" in text
    assert "- [sig-node] Swap should grow: failed" in text


def test_the_page_tells_which_features_work() -> None:
    """Specs are put together by what they are about."""
    text = page()
    assert "| [sig-node] Probes | **differs** (1 of 2) |" in text
    assert "| [sig-node] Seccomp | not by design (0 of 1) |" in text
    assert "| [sig-node] Exec | works, flaky in the tests (1 of 1) |" in text


def test_a_feature_is_named_without_labels() -> None:
    """The special interest group stays."""
    label = "[sig-apps] StatefulSet Basic StatefulSet functionality [StatefulSetBasic]"
    assert without_labels(label) == "[sig-apps] StatefulSet Basic StatefulSet functionality"
    assert without_labels("[sig-node] Pods Extended [Feature:X] QOS") == (
        "[sig-node] Pods Extended QOS"
    )


def test_the_checked_in_page_is_that_of_the_checked_in_results() -> None:
    """`make conformance ARGS=--page` writes it."""
    assert PAGE.read_text() == Keeping().page()


def test_every_exemption_is_of_use() -> None:
    """Each pattern is one, has a reason, and is for a spec that differs."""
    keeping = Keeping()
    names = [one.name for rows in keeping.compared().values() for one in rows]
    for exemption in keeping.exemptions():
        assert exemption.reason.strip()
        assert any(re.search(exemption.pattern, name) for name in names), exemption.pattern
