"""What pods cost in a target: kwok plays hundreds a second, a kubelet starts two.

Tests say how many pods they would like and how soon they expect something; what may be had, and how
long they wait, is decided here.
"""

import math
from dataclasses import dataclass

from e2e.testbed.local import LocalCluster
from e2e.testbed.provider import TestCluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How fast a target's nodes are, and how much they hold."""

    share: float
    """How many of the pods that a test would like there are."""
    patience: float
    """How much longer than usual a test waits before it gives up."""
    ending_seconds: float
    """How long a pod takes to be gone that ends as soon as it is told to."""

    def many(self, count: int) -> int:
        """Return how many pods stand in for so many."""
        return max(1, math.ceil(self.share * count))


PLAYED = Pace(share=1.0, patience=1.0, ending_seconds=0.0)

REAL = Pace(share=0.3, patience=3.0, ending_seconds=3.0)
"""One node holds 110 pods, some of which are the cluster's own."""


def pace_of(target: TestCluster) -> Pace:
    """Return the pace of a target's pods."""
    return PLAYED if isinstance(target, LocalCluster) else REAL
