"""The papers say what the code says, in both directions: nothing is missing, nothing is left over.

Reasons, conditions, metrics, labels and annotations stand in docs/operations.md, commands and
options in docs/reference/cli.md, which is generated (`FEDERATE_WRITE_DOCS=1 pytest` of this file
writes it anew).
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from federate.cli.app import app
from federate.model import marks
from federate.model.reasons import NodeReason, PodReason
from federate.runtime.telemetry import METRICS, MetricRow
from tests.support.clireference import commands_of, render_cli_reference

ROOT = Path(__file__).parents[2]
OPERATIONS = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
CLI_REFERENCE = ROOT / "docs" / "reference" / "cli.md"
PAPERS = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if "decisions" not in path.parts
}

POD_SECTIONS = ("Why a pod waits", "What a mirrored pod says", "How a pod ended")
NODE_SECTION = "The virtual node's conditions"
MARKS_SECTION = "Labels and annotations"

WORD = re.compile(r"`([A-Za-z]+)`")
CONDITION = re.compile(r"federate\.dev/[A-Z][A-Za-z]+")
METRIC = re.compile(r"`(federate_[a-z_]+)`")
COMMANDS = commands_of(app)


def section(title: str) -> str:
    """Return the text below a heading of docs/operations.md."""
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", OPERATIONS, re.M | re.S)
    assert found, f"docs/operations.md has no section {title}"
    return found[1]


def rows(text: str) -> list[list[str]]:
    """Return the cells of all tables, headings and rulers left out."""
    lines = [line.strip().strip("|") for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.split("|")] for line in lines]
    rulers = {n for n, row in enumerate(cells) if set("".join(row)) <= set("-: ")}
    return [row for n, row in enumerate(cells) if n not in rulers and n + 1 not in rulers]


def trees() -> Iterator[tuple[Path, ast.Module]]:
    """Parse all of our code."""
    for path in sorted((ROOT / "federate").rglob("*.py")):
        yield path, ast.parse(path.read_text(encoding="utf-8"))


# -- reasons ---------------------------------------------------------------------------------------


def documented_pod_reasons() -> set[str]:
    found = [row[0] for title in POD_SECTIONS for row in rows(section(title))]
    return {reason for cell in found for reason in WORD.findall(cell)}


def test_pod_reasons_and_their_rows_are_the_same() -> None:
    """Each reason a pod may show stands first in a row, and each such row is about one."""
    assert documented_pod_reasons() == set(map(str, PodReason))


def test_node_reasons_and_their_rows_are_the_same() -> None:
    """Each reason of a node condition stands in a row, and each such row is about one."""
    documented = {reason for row in rows(section(NODE_SECTION)) for reason in WORD.findall(row[1])}
    assert documented == set(map(str, NodeReason))


@pytest.mark.parametrize("title", POD_SECTIONS[:2])
def test_every_reason_that_lasts_has_a_remedy(title: str) -> None:
    """Whoever reads a reason reads what to do, too."""
    assert [row[0] for row in rows(section(title)) if len(row) != 3 or not row[2]] == []


def test_reasons_of_events_come_from_the_register() -> None:
    """No Event, and no refusal that becomes one, has a reason that was made up on the spot."""
    made_up = [
        f"{path.relative_to(ROOT)}:{call.lineno}"
        for path, tree in trees()
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and name_of(call.func) in ("event", "Refusal")
        for keyword in call.keywords
        if keyword.arg == "reason" and isinstance(keyword.value, ast.Constant | ast.JoinedStr)
    ]
    assert made_up == []


def name_of(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


# -- conditions ------------------------------------------------------------------------------------


def conditions_in_code() -> set[str]:
    return {
        node.value
        for _, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and CONDITION.fullmatch(node.value)
    }


def test_every_condition_is_documented() -> None:
    """Each condition type of federate's own stands in docs/operations.md."""
    assert conditions_in_code() - set(CONDITION.findall(OPERATIONS)) == set()


@pytest.mark.parametrize("paper", PAPERS)
def test_no_condition_is_told_of_that_does_not_exist(paper: str) -> None:
    """No paper speaks of a condition type that the code does not know."""
    assert set(CONDITION.findall(PAPERS[paper])) - conditions_in_code() == set()


# -- labels and annotations ------------------------------------------------------------------------


def marks_in_code() -> set[str]:
    kinds = ("_LABEL", "_ANNOTATION", "_GATE")
    return {
        value.removeprefix(marks.PREFIX)
        for name, value in vars(marks).items()
        if name.endswith(kinds) and not name.startswith("_")
    }


def test_marks_and_their_rows_are_the_same() -> None:
    """Every label, annotation and gate we write is documented, and no other is."""
    cells = [row[1] for row in rows(section(MARKS_SECTION))]
    documented = {
        key.removeprefix(marks.PREFIX) for cell in cells for key in re.findall(r"`([^`]+)`", cell)
    }
    assert documented == marks_in_code()


def test_marks_are_written_down_in_one_place() -> None:
    """No module spells a label or annotation of ours itself."""
    ours = {marks.PREFIX + key for key in marks_in_code()}
    spelt = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.value}"
        for path, tree in trees()
        if path.name != "marks.py"
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and node.value in ours
    ]
    assert spelt == []


# -- metrics ---------------------------------------------------------------------------------------


def documented_labels() -> dict[str, set[str]]:
    """Return the labels of each metric that a row is about."""
    return {
        name: set(row[1].replace(",", " ").split())
        for row in rows(section("Metrics"))
        for name in METRIC.findall(row[0])
    }


@pytest.mark.parametrize("row", METRICS, ids=lambda row: row.name)
def test_every_metric_is_documented(row: MetricRow) -> None:
    """Each metric stands in docs/operations.md, with its labels."""
    assert documented_labels().get(row.name) == set(row.labels)


@pytest.mark.parametrize("paper", PAPERS)
def test_no_metric_is_told_of_that_does_not_exist(paper: str) -> None:
    """A metric that was renamed leaves no trace in the papers."""
    known = {row.name for row in METRICS}
    suffixed = {f"{name}{end}" for name in known for end in ("_bucket", "_count", "_sum")}
    told = set(re.findall(r"\bfederate_[a-z_]+[a-z]\b", PAPERS[paper]))
    assert told - known - suffixed == set()


# -- the command line ------------------------------------------------------------------------------


def test_the_reference_of_the_command_line_is_up_to_date() -> None:
    """docs/reference/cli.md says what --help says: each command, each option, its default."""
    rendered = render_cli_reference(app)
    if os.environ.get("FEDERATE_WRITE_DOCS") == "1":
        CLI_REFERENCE.parent.mkdir(exist_ok=True)
        CLI_REFERENCE.write_text(rendered, encoding="utf-8")
    assert CLI_REFERENCE.read_text(encoding="utf-8") == rendered, (
        "run FEDERATE_WRITE_DOCS=1 pytest tests/unit/test_drift.py"
    )


def shown_commands(paper: str) -> Iterator[tuple[str, list[str]]]:
    """Find what begins with `federate` in a code span, or on a line of a code block."""
    blocks = re.findall(r"^```[a-z]*\n(.*?)^```", paper, re.M | re.S)
    prose = re.sub(r"^```.*?^```", "", paper, flags=re.M | re.S)
    spans = [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", prose)]
    for line in [*spans, *(line for block in blocks for line in block.splitlines())]:
        words = re.sub(r"[;|&#].*", "", line.removeprefix("$ ")).split()
        if len(words) > 1 and words[0] == "federate" and words[1].isalpha():
            yield words[1], words[2:]


def options_of(command: Any) -> set[str]:
    return {name for parameter in command.params for name in parameter.opts} | {"--help", "-h"}


@pytest.mark.parametrize("paper", sorted(PAPERS.keys() - {"docs/contract.md"}))
def test_commands_in_the_papers_can_be_typed(paper: str) -> None:
    """Each `federate COMMAND --option` that a paper shows exists."""
    wrong = []
    for command, arguments in shown_commands(PAPERS[paper]):
        if command not in COMMANDS:
            wrong.append(f"federate {command}")
            continue
        options = {a.split("=")[0] for a in arguments if re.match(r"--[a-z]", a)}
        wrong += [f"federate {command} {o}" for o in options - options_of(COMMANDS[command])]
    assert wrong == []


# -- tests that the papers name --------------------------------------------------------------------

TEST = re.compile(r"`(?:[\w/]+/)?(test_\w+)`")


def test_tests_that_the_papers_name_are_there() -> None:
    """docs/testing.md says which test would notice what broke elsewhere."""
    named = set(TEST.findall(PAPERS["docs/testing.md"]))
    modules = [path for top in ("tests", "e2e") for path in (ROOT / top).rglob("test_*.py")]
    there = {path.stem for path in modules}
    for path in modules:
        there.update(re.findall(r"def (test_\w+)\(", path.read_text(encoding="utf-8")))
    assert len(named) > 20
    assert named - there == set()
