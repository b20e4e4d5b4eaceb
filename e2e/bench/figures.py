"""Numbers from numbers. Pure: medians, quantiles and the ratios of pairs."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A median and how far the values lie apart."""

    median: float
    low: float
    """Lower quartile."""
    high: float
    """Upper quartile."""
    least: float
    most: float
    count: int


def spread_of(values: Sequence[float]) -> Spread:
    """Sum values up.

    Raises:
        ValueError: there are none.
    """
    if not values:
        raise ValueError("nothing was measured")
    return Spread(
        median=round(statistics.median(values), 4),
        low=round(quantile(values, 0.25), 4),
        high=round(quantile(values, 0.75), 4),
        least=round(min(values), 4),
        most=round(max(values), 4),
        count=len(values),
    )


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value below which a share of all lies, between neighbours in proportion."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def paired_ratios(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """Sum up the ratios of pairs.

    The two of a pair ran one after the other, so that what the machine did meanwhile hit both.
    """
    return spread_of([our / their for our, their in zip(ours, theirs, strict=True)])
