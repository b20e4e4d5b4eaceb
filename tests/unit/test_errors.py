"""The error tree, and the one table that says what to do about each."""

from __future__ import annotations

import inspect

import pytest

from federate import errors
from federate.errors import (
    LONGEST_DETAIL,
    AlreadyExists,
    ClusterError,
    ConfigError,
    Conflict,
    Disposition,
    Expired,
    FederateError,
    Forbidden,
    LeadershipLost,
    NotFound,
    NotOurs,
    Rejected,
    ServerFault,
    Throttled,
    Unauthorized,
    Unreachable,
    disposition_of,
)

CLASSES = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, Exception) and kind.__module__ == errors.__name__
]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (Unreachable, Disposition.BACK_OFF),
        (Throttled, Disposition.BACK_OFF),
        (ServerFault, Disposition.BACK_OFF),
        (Unauthorized, Disposition.BACK_OFF),
        (Forbidden, Disposition.BACK_OFF),
        (NotFound, Disposition.BACK_OFF),
        (AlreadyExists, Disposition.BACK_OFF),
        (Expired, Disposition.BACK_OFF),
        (Conflict, Disposition.RETRY_NOW),
        (Rejected, Disposition.SLOW),
        (NotOurs, Disposition.SLOW),
        (LeadershipLost, Disposition.STOP),
        (ValueError, Disposition.BACK_OFF),
    ],
)
def test_dispositions(kind: type[Exception], expected: Disposition) -> None:
    """Nothing is dropped: what is unknown backs off, and only a lost leadership stops."""
    assert disposition_of(kind("x")) is expected


@pytest.mark.parametrize("kind", CLASSES)
def test_every_error_is_federates_and_stands_in_the_tree(kind: type[Exception]) -> None:
    """The tree at the top of the module names each class, and all have one root."""
    assert issubclass(kind, FederateError)
    assert kind.__name__ in (errors.__doc__ or "")
    assert kind.__name__ in errors.__all__


def test_a_cluster_error_says_what_where_and_what_came_back() -> None:
    """Verb, object, cluster, the server's words."""
    error = NotFound(
        "pods not found", cluster="berlin", verb="get", subject="pod a/b", status=404, reason="NF"
    )
    assert str(error) == "get pod a/b at berlin: pods not found"
    assert (error.status, error.reason) == (404, "NF")
    assert str(ClusterError("only words")) == "only words"
    assert str(ClusterError("words", verb="list")) == "list: words"


def test_long_answers_are_cut() -> None:
    """A server's page of HTML does not fill the log."""
    assert len(ClusterError("x" * 5000).detail) == LONGEST_DETAIL


def test_a_server_that_names_no_time_is_left_alone_for_a_second() -> None:
    """What the user wrote wrongly is no answer of a cluster."""
    assert Throttled("x").retry_after_seconds == 1.0
    assert not isinstance(ConfigError("x"), ClusterError)
