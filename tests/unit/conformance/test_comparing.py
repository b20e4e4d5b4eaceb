"""Where a spec stands, from its runs on both sides, and what is counted."""

import re

import pytest

from e2e.conformance.comparing import (
    MOST_RUNS,
    Exemption,
    Standing,
    compare,
    figure_of,
    focus_on,
    stale_among,
    to_run_again,
    to_settle,
)
from e2e.conformance.record import Runs
from e2e.conformance.results import Outcome, Result

LETTERS = {
    "p": Outcome.PASSED,
    "f": Outcome.FAILED,
    "s": Outcome.SKIPPED,
    "a": Outcome.ABSENT,
}


def runs(direct: str, through: str) -> Runs:
    return Runs(
        direct=Result(outcome=LETTERS[direct]),
        through=tuple(Result(outcome=LETTERS[letter]) for letter in through),
    )


@pytest.mark.parametrize(
    ("direct", "through", "standing"),
    [
        ("p", "p", Standing.SAME),
        ("p", "f", Standing.DIFFERS),
        ("p", "s", Standing.DIFFERS),
        ("p", "a", Standing.DIFFERS),
        ("p", "ffffff", Standing.DIFFERS),
        ("p", "ffp", Standing.FLAKY),
        ("p", "", Standing.NOT_RUN),
        ("f", "p", Standing.NOT_COUNTED),
        ("s", "", Standing.NOT_COUNTED),
    ],
)
def test_standing(direct: str, through: str, standing: Standing) -> None:
    """A skip and silence through the node are failures; a later pass makes a spec flaky."""
    [found] = compare({"spec": runs(direct, through)})
    assert found.standing is standing


def test_an_exemption_is_for_what_differs_alone() -> None:
    """What passes needs no excuse; what does not has its reason told."""
    because = Exemption(pattern=r"\[sig-node\].*seccomp", reason="because", see="C26")
    record = {
        "[sig-node] seccomp works": runs("p", "f"),
        "[sig-node] seccomp too": runs("p", "p"),
        "[sig-apps] others": runs("p", "f"),
    }
    found = {one.name: (one.standing, one.reason) for one in compare(record, [because])}
    assert found["[sig-node] seccomp works"] == (Standing.BY_DESIGN, "because")
    assert found["[sig-node] seccomp too"][0] is Standing.SAME
    assert found["[sig-apps] others"] == (Standing.DIFFERS, "")


def test_an_exemption_that_no_spec_needs_is_stale() -> None:
    """All that it was for pass by now, go by an earlier one, or were not run."""
    needed, passed, second, unrun = (
        Exemption(pattern=pattern, reason="so") for pattern in ("bad", "good", "b[a]d", "never")
    )
    record = {"good": runs("p", "p"), "bad": runs("p", "f"), "never": runs("p", "")}
    listed = [needed, passed, second, unrun]
    assert stale_among(listed, compare(record, listed)) == [passed, second, unrun]


def test_only_what_differs_is_run_again_and_not_for_ever() -> None:
    """What passed, what is by design and what failed six times is left alone."""
    record = {
        "good": runs("p", "p"),
        "bad": runs("p", "f"),
        "flaky": runs("p", "fp"),
        "design": runs("p", "f"),
        "hopeless": runs("p", "f" * MOST_RUNS),
        "never": runs("f", ""),
    }
    compared = compare(record, [Exemption(pattern="design", reason="so")])
    assert to_run_again(compared) == ["bad"]


def test_what_differs_or_was_not_run_is_open() -> None:
    """A new federate may do better with these; of the others it is known."""
    record = {
        "good": runs("p", "p"),
        "hopeless": runs("p", "f" * MOST_RUNS),
        "new": runs("p", ""),
        "flaky": runs("p", "fp"),
        "never": runs("f", ""),
    }
    assert to_settle(compare(record)) == ["hopeless", "new"]


def test_the_figure_is_of_what_passes_directly() -> None:
    """Flaky specs count as passing, those by design as not; the denominator has both."""
    record = {
        "a": runs("p", "p"),
        "b": runs("p", "fp"),
        "c": runs("p", "f"),
        "design": runs("p", "s"),
        "e": runs("f", "p"),
        "f": runs("p", ""),
    }
    figure = figure_of(compare(record, [Exemption(pattern="design", reason="so")]))
    assert (figure.of, figure.passing, figure.flaky) == (4, 2, 1)
    assert (figure.by_design, figure.differs, figure.not_run) == (1, 1, 1)
    assert figure.percent == 50.0
    assert figure.sentence().startswith("2 of 4 specs that pass on the target pass through")
    assert "1 more were not run" in figure.sentence()


def test_nothing_to_pass_is_nothing_to_fall_short_of() -> None:
    """Without any spec the figure does not divide by zero."""
    assert figure_of([]).percent == 100.0
    assert figure_of([]).sentence() == "No spec was run on both sides."


def test_focus_matches_the_named_specs_and_no_longer_ones() -> None:
    """ginkgo matches anywhere in the suite's name and the spec's; names have brackets and dots."""
    names = ["[sig-node] Pods should (really) run v1.0", "[sig-node] Pods should run"]
    focus = re.compile(focus_on(names))
    for name in names:
        assert focus.search(f"Kubernetes e2e suite {name}")
    assert not focus.search("Kubernetes e2e suite [sig-node] Pods should run twice")
    assert not focus.search("Kubernetes e2e suite [sig-node] Pods should (really) run v1x0")
