"""A Deployment goes to a target and comes back, on one pair of clusters."""

import pytest

from e2e.support.measuring import Measurements
from e2e.support.scenarios import scale_there_and_back
from e2e.support.world import Space

pytest_plugins = ["e2e.support.fixtures"]
pytestmark = pytest.mark.e2e


def test_a_deployment_of_50_shrinks_grows_and_leaves_nothing(
    space: Space, measured: Measurements
) -> None:
    """A Deployment scaled 50, 5, 50 and deleted has each pod mirrored once, with few writes."""
    many = space.pace.many
    scale_there_and_back(space, measured, large=many(50), small=many(5))
