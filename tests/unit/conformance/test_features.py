"""Which features work, in a user's words."""

from dataclasses import replace

import pytest

from e2e.conformance.comparing import Comparison, Exemption, compare
from e2e.conformance.features import (
    Area,
    Feature,
    features_with,
    render_features,
    verdict,
)
from e2e.conformance.keeping import Keeping
from e2e.conformance.record import Runs
from e2e.conformance.results import Outcome, Result
from e2e.conformance.slices import SLICES

LETTERS = {"p": Outcome.PASSED, "f": Outcome.FAILED}
BECAUSE = Exemption(pattern="design", reason="a node | of ours", see="C47")

PROBES = Feature(name="Probes", patterns=(r"^\[sig-node\] Probing", "startup"))
EXEC = Feature(name="exec", patterns=("exec",))
HOOKS = Feature(name="Hooks", patterns=("hook",))
AREAS = [
    Area(name="Pods", features=(PROBES, HOOKS)),
    Area(name="kubectl", features=(EXEC,)),
]


def compared(name: str, runs: str) -> Comparison:
    """Compare a spec that ended so directly (the first letter) and then through the node."""
    direct, *through = (Result(outcome=LETTERS[letter]) for letter in runs)
    heading = replace(direct, feature=" ".join(name.split()[:2]))
    [one] = compare({name: Runs(direct=heading, through=tuple(through))}, [BECAUSE])
    return one


@pytest.mark.parametrize(
    ("group", "words"),
    [
        (["pp", "pp"], "works"),
        (["pp", "pfp"], "works, flaky in the tests"),
        (["pp", "pf"], "**differs**"),
        (["f", "pp"], "works"),
        (["f", "f"], "no answer"),
        (["p", "f"], "no answer"),
        (["p"], "not run yet"),
        ([], "not run yet"),
    ],
)
def test_the_worst_of_its_specs_says_how_a_feature_does(group: list[str], words: str) -> None:
    """What does not pass on the target says nothing of the node."""
    assert verdict([compared(f"[sig-node] {n}", runs) for n, runs in enumerate(group)]) == words


def test_what_cannot_be_is_told_from_what_is_not_yet() -> None:
    """A feature may work but for a part that cannot."""
    bad, good = compared("[sig-node] design", "pf"), compared("[sig-node] b", "pp")
    assert verdict([bad]) == "by design not"
    assert verdict([bad, good]) == "by design in part"
    assert verdict([bad, compared("[sig-node] c", "pf")]) == "**differs**"


def rendered(*specs: tuple[str, str]) -> str:
    return render_features({"node": [compared(name, runs) for name, runs in specs]}, AREAS)


def test_a_line_has_the_verdict_the_numbers_and_the_reason() -> None:
    """Features of which nothing is known are there too, and tables stay tables."""
    text = rendered(
        ("[sig-node] Probing should wait", "pp"),
        ("[sig-node] Pods startup design", "pf"),
        ("[sig-cli] Kubectl should exec [Slow]", "pffffff"),
        ("[sig-node] Odd one [Conformance]", "pp"),
    )
    assert "## Pods\n\n| feature | | specs | |" in text
    reason = "a node \\| of ours ([C47](contract.md))"
    assert f"| Probes | by design in part | 1 of 2 | {reason} |" in text
    assert "| Hooks | not run yet |  |  |" in text
    assert "| exec | **differs** | 0 of 1 | not: should exec |" in text
    assert "## Everything else\n\n| feature | | specs | |\n|---|---|---|---|\n| one |" in text
    assert "Of 2 features that there is an answer for, 0 work." in text


def test_a_line_names_a_few_of_many() -> None:
    """The other page has them all."""
    text = rendered(*((f"[sig-cli] Kubectl exec {n}", "pf") for n in range(9)))
    assert "not: exec 0; not: exec 1; not: exec 2; not: exec 3; not: exec 4; and 4 more |" in text


def test_every_spec_of_the_results_is_about_one_feature() -> None:
    """What a newer Kubernetes brings gets a place in e2e/conformance/features.yaml."""
    keeping = Keeping()
    areas = keeping.areas()
    specs = {spec for name in SLICES for spec in keeping.read(name)}
    found = {spec: [one.name for one in features_with(spec, areas)] for spec in sorted(specs)}
    assert {spec: names for spec, names in found.items() if len(names) != 1} == {}


def test_features_have_names_of_their_own() -> None:
    """Two lines of one name would be two answers to one question."""
    names = [one.name for area in Keeping().areas() for one in area.features]
    assert len(names) == len(set(names)) > 50
