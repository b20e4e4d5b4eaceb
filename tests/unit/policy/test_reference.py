"""docs/policy.md says what the table says; `FEDERATE_WRITE_DOCS=1` writes it anew."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from federate.policy.reference import BEGIN, END, render_reference, with_reference
from federate.policy.rules import DaemonSetMode, OnRefusal, Outcome
from federate.policy.topics import TOPICS

PAGE = Path(__file__).parents[3] / "docs" / "policy.md"


def test_the_page_has_the_table_that_judges() -> None:
    """Every topic with its default, and no other."""
    page = PAGE.read_text(encoding="utf-8")
    if os.environ.get("FEDERATE_WRITE_DOCS"):
        PAGE.write_text(with_reference(page), encoding="utf-8")
    assert with_reference(page) == page


@pytest.mark.parametrize("word", [*Outcome, *OnRefusal, *DaemonSetMode])
def test_the_page_says_what_each_word_means(word: str) -> None:
    """Whoever may write it may look it up."""
    assert f"`{word}`" in PAGE.read_text(encoding="utf-8") or f": {word}`" in PAGE.read_text()


def test_each_topic_has_one_row() -> None:
    """A key is a key of the configuration: no two are the same."""
    text = render_reference()
    for topic in TOPICS:
        assert text.count(f"| `{topic.key}` |") == 1
    assert len({topic.key for topic in TOPICS}) == len(TOPICS)


def test_a_page_without_marks_is_refused() -> None:
    """Nothing is written where it was not asked for."""
    for page in ("", BEGIN, END):
        with pytest.raises(ValueError, match="lacks"):
            with_reference(page)
