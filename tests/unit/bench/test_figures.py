"""Medians, quantiles and ratios of pairs."""

from __future__ import annotations

import pytest

from e2e.bench.figures import paired_ratios, quantile, spread_of


def test_a_quantile_lies_between_neighbours_in_proportion() -> None:
    """Few values still have a 99th percentile."""
    assert quantile([1.0, 2.0, 3.0, 4.0, 5.0], 0.5) == 3.0
    assert quantile([0.0, 10.0], 0.25) == 2.5
    assert quantile([7.0], 0.99) == 7.0
    assert quantile([3.0, 1.0, 2.0], 1.0) == 3.0


def test_a_spread_tells_the_middle_and_the_edges() -> None:
    """Order does not matter."""
    spread = spread_of([5.0, 1.0, 3.0, 2.0, 4.0])
    assert (spread.least, spread.low, spread.median, spread.high, spread.most) == (1, 2, 3, 4, 5)
    assert spread.count == 5


def test_ratios_are_taken_pair_by_pair() -> None:
    """A slow minute that hits both of a pair changes nothing."""
    assert paired_ratios([1.1, 11.0, 2.2], [1.0, 10.0, 2.0]).most == pytest.approx(1.1)


def test_nothing_measured_is_an_error() -> None:
    """A median of nothing would read as zero."""
    with pytest.raises(ValueError, match="nothing was measured"):
        spread_of([])


def test_a_pair_has_two_sides() -> None:
    """A round without its partner is not left out silently."""
    with pytest.raises(ValueError, match="shorter"):
        paired_ratios([1.0, 2.0], [1.0])
