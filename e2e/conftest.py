"""Clusters for the end-to-end tests."""

from e2e.testbed.fixtures import *  # noqa: F403  (pytest finds fixtures by the module's names)
