"""What a failed command says, and what it ends with."""

from __future__ import annotations

import pytest

from federate.cli.failures import explain
from federate.errors import (
    ConfigError,
    FederateError,
    Forbidden,
    NotFound,
    Unauthorized,
    Unreachable,
)


@pytest.mark.parametrize(
    ("error", "code", "step"),
    [
        (ConfigError("bad"), 2, ""),
        (FederateError("x"), 1, ""),
        (NotFound("x", cluster="edge"), 1, ""),
        (Unreachable("refused", cluster="edge"), 1, "edge gave no answer: check the server"),
        (Unauthorized("x", cluster="hub"), 1, "hub does not accept the credentials"),
        (
            Forbidden("no", cluster="hub", verb="list", subject="Node"),
            1,
            "lacks the right to list Node",
        ),
        (Forbidden("no"), 1, ""),
    ],
)
def test_each_error_has_a_code_and_a_next_step(error: FederateError, code: int, step: str) -> None:
    """The message comes first, then what to do where that is known."""
    failure = explain(error)
    assert failure.exit_code == code
    assert failure.lines[0] == str(error)
    assert step in failure.lines[-1]
    assert len(failure.lines) == (2 if step else 1)


def test_an_error_without_words_is_named() -> None:
    """Something is always printed."""
    assert explain(ConfigError("")).lines == ("ConfigError",)
