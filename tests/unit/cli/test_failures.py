"""What a failed command says, and what it ends with."""

from __future__ import annotations

import pytest

from federate.cli.failures import explain, first_known
from federate.errors import (
    ConfigError,
    Conflict,
    FederateError,
    Forbidden,
    LeadershipLost,
    NotFound,
    Unauthorized,
    Unreachable,
)


@pytest.mark.parametrize(
    ("error", "code", "step"),
    [
        (ConfigError("bad"), 2, ""),
        (LeadershipLost("lost"), 3, "another federate process"),
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


def test_of_a_group_the_error_that_says_most_is_told() -> None:
    """Nested groups are searched; a wrong configuration explains the rest."""
    config, lost, conflict = ConfigError("c"), LeadershipLost("l"), Conflict("x")
    group = ExceptionGroup("g", [conflict, ExceptionGroup("h", [lost, config])])
    assert first_known(group) is config
    assert first_known(ExceptionGroup("g", [conflict, lost])) is lost
    assert first_known(conflict) is conflict


def test_a_bug_in_a_group_is_not_hidden() -> None:
    """An error that is not ours keeps its traceback."""
    assert first_known(ExceptionGroup("g", [ConfigError("c"), KeyError("bug")])) is None
    assert first_known(KeyError("bug")) is None
