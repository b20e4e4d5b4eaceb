"""Clusters for the end-to-end tests, and which of these run in one process."""

import pytest

# Whoever imports them first, pytest shows what their assertions compared.
pytest.register_assert_rewrite("e2e.support", "e2e.containers")

from e2e.support.grouping import pytest_itemcollected as pytest_itemcollected  # noqa: E402
from e2e.testbed.fixtures import *  # noqa: E402, F403  (pytest finds fixtures by their names)
