"""When to tell of the end of a credential."""

from __future__ import annotations

import pytest

from federate.model.expiry import FIXED_NOTICE_SECONDS, Expiry, earliest, expiry_between

DAY = 86_400.0


@pytest.mark.parametrize(
    ("life", "is_renewed", "notice"),
    [
        (365 * DAY, False, 7 * DAY),
        (6 * DAY, False, 2 * DAY),
        (365 * DAY, True, 7 * DAY),
        (3600.0, True, 360.0),
        (-5.0, True, 0.0),
    ],
)
def test_how_long_before_the_end_it_is_told(life: float, is_renewed: bool, notice: float) -> None:
    """A person gets a week; what renews itself had nine tenths of its life to do so."""
    expiry = expiry_between(0.0, life, what="x", is_renewed=is_renewed)
    assert expiry.at - expiry.warn_at == pytest.approx(notice)


@pytest.mark.parametrize(("is_renewed", "notice"), [(True, 0.0), (False, FIXED_NOTICE_SECONDS)])
def test_an_end_without_a_known_beginning(is_renewed: bool, notice: float) -> None:
    """How much of its life is over is not known, so that what renews itself is trusted to."""
    expiry = expiry_between(None, 1e6, what="x", is_renewed=is_renewed)
    assert expiry.warn_at == 1e6 - notice


def test_the_earliest_end_counts() -> None:
    """What is not known does not count."""
    early = Expiry(at=1.0, warn_at=0.0, what="a")
    assert earliest([None, Expiry(at=2.0, warn_at=1.0, what="b"), early]) is early
    assert earliest([None]) is None
