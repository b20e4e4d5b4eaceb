"""What is printed in the end."""

from e2e.conformance.comparing import Exemption, compare
from e2e.conformance.origin import UNKNOWN, Origin
from e2e.conformance.record import Runs, with_origin
from e2e.conformance.results import Outcome, Result
from e2e.conformance.telling import tell

NOW = Origin(
    kubernetes="v1.34.4",
    at="2026-11-30 20:00",
    federate="0.1.0",
    source="aa",
    commit="cc",
    images="stand-ins",
)
BEFORE = Origin(kubernetes="v1.34.4", at="2026-11-29 20:00", federate="0.1.0", source="bb")

PASSED, FAILED = Result(outcome=Outcome.PASSED), Result(outcome=Outcome.FAILED)


def runs(origin: Origin, *through: Result) -> Runs:
    made = with_origin({str(n): one for n, one in enumerate((PASSED, *through))}, origin)
    direct, *rest = made.values()
    return Runs(direct=direct, through=tuple(rest))


def said(record: dict[str, dict[str, Runs]], *exemptions: Exemption) -> str:
    compared = {name: compare(one, exemptions) for name, one in record.items()}
    return tell(compared, exemptions, present_source="aa")


def test_the_figure_comes_first_and_what_is_no_part_of_it_apart() -> None:
    """Each slice tells of which federate, and when."""
    text = said(
        {
            "node": {"a": runs(NOW, PASSED), "b": runs(NOW, FAILED)},
            "network": {"c": runs(NOW, FAILED)},
        }
    )
    lines = text.splitlines()
    assert lines[0].startswith("1 of 2 specs that pass on the target pass through the virtual node")
    assert lines[1] == "  node: 1 of 2 (50.0 %); 0 flaky, 0 by design, 1 differ, 0 not run"
    assert lines[2] == (
        "    2 specs: 2026-11-30 20:00 UTC, federate 0.1.0, cc, files aa, Kubernetes v1.34.4, "
        "stand-ins"
    )
    assert lines[3:5] == [
        "Not part of the figure:",
        "  network: 0 of 1 (0.0 %); 0 flaky, 0 by design, 1 differ, 0 not run",
    ]
    assert "Not run yet: storage, apps" in text
    assert "Beware" not in text


def test_results_of_several_federates_are_told() -> None:
    """A figure that was put together from several is of none of them."""
    text = said({"node": {"a": runs(NOW, PASSED), "b": runs(BEFORE, PASSED)}})
    assert "    1 specs: 2026-11-29 20:00 UTC, federate 0.1.0, files bb" in text
    assert "Beware: the results are not all of one federate" in text
    assert "Beware: of another federate than that of this checkout" in text


def test_results_of_another_federate_than_the_present_one_are_told() -> None:
    """So are those of which nobody knows."""
    text = said({"node": {"a": runs(BEFORE, PASSED)}, "apps": {"b": runs(BEFORE, PASSED)}})
    assert "not all of one" not in text
    assert "results of: node, apps." in text
    assert "results of: node." in said({"node": {"a": runs(UNKNOWN, PASSED)}})


def test_what_was_run_last_counts() -> None:
    """A spec that failed with an old federate and passes with the new one is of the new one."""
    old = runs(BEFORE, FAILED)
    both = Runs(direct=old.direct, through=(*old.through, *runs(NOW, PASSED).through))
    assert "Beware" not in said({"node": {"a": both}})


def test_a_stale_exemption_is_told() -> None:
    """It would hide the next failure."""
    stale = Exemption(pattern="^a$", reason="so", see="C1")
    assert "no spec needs the exemption '^a$' any more" in said(
        {"node": {"a": runs(NOW, PASSED)}}, stale
    )
    assert "exemption" not in said({"node": {"a": runs(NOW, FAILED)}}, stale)
