"""The reference page says what the schema says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import BaseModel

from federate.cli.sources import VARIABLES
from federate.config.problems import part_of
from federate.config.reference import OVERRIDES, keys, reference
from federate.config.schema import Federation

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "config.md"


def test_the_page_is_the_one_of_this_schema() -> None:
    """Whoever changes the schema writes the page anew: python -m federate.config."""
    assert PAGE.read_text(encoding="utf-8") == reference(), "run: python -m federate.config"


def test_the_page_is_written_by_a_command(tmp_path: Path) -> None:
    """The command writes to a file that it is given."""
    page = tmp_path / "reference" / "config.md"
    subprocess.run([sys.executable, "-m", "federate.config", str(page)], check=True, timeout=60)
    assert page.read_text(encoding="utf-8") == reference()


@pytest.mark.parametrize(("path", "field"), [*keys()], ids=lambda value: str(value)[:40])
def test_every_key_is_described(path: str, field: object) -> None:
    """A sentence for each, and a row."""
    description = getattr(field, "description", None)
    assert description and description.endswith("."), path
    assert f"\n| `{path}` | " in reference()


def test_what_goes_over_a_key_exists() -> None:
    """Options and variables stand at keys that are there, and no variable is left out."""
    paths = {path for path, _field in keys()}
    assert paths >= OVERRIDES.keys()
    named = " ".join(OVERRIDES.values())
    for flag, variable in VARIABLES.items():
        if flag not in ("--config", "--identity"):
            assert f"`{flag}`" in named and f"`${variable}`" in named


def test_every_mapping_refuses_unknown_keys() -> None:
    """Also those that are added later."""

    def shapes(shape: type[BaseModel]) -> list[type[BaseModel]]:
        inner = [part_of(field.annotation) for field in shape.model_fields.values()]
        return [shape, *(found for part in inner if part is not None for found in shapes(part))]

    for shape in shapes(Federation):
        assert shape.model_config["extra"] == "forbid", shape
        assert shape.model_config["strict"] is True, shape
