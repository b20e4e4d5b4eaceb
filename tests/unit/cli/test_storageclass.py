"""`federate storage-class`: what is applied to the hub."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from federate.cli.app import app
from federate.errors import ConfigError

DOCS = Path(__file__).parents[3] / "docs" / "volumes.md"


def printed(*arguments: str) -> str:
    found = CliRunner().invoke(app, ["storage-class", *arguments], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return found.stdout


def test_the_class_in_the_papers_is_the_one_that_is_printed() -> None:
    blocks = re.findall(r"\n\n((?:    [^\n]*\n)+)", DOCS.read_text())
    papers = next(yaml.safe_load(block) for block in blocks if "provisioner:" in block)
    assert yaml.safe_load(printed("federate", "--node", "berlin")) == papers


def test_data_is_deleted_where_that_is_asked_for() -> None:
    assert yaml.safe_load(printed("federate", "--reclaim", "Delete"))["reclaimPolicy"] == "Delete"


@pytest.mark.parametrize("arguments", [("No_Name",), ("federate", "--node", "No_Node")])
def test_what_is_no_name_is_refused(arguments: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError):
        printed(*arguments)
