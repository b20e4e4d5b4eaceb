"""Which tests share a process when pytest-xdist runs them side by side.

Clusters live in the process that started them, so tests of the same clusters stay together: those
of kind whether kind was chosen or not, since one pair of kind clusters is as much as a machine
bears by default (each node takes a third of the inotify instances that Linux gives a user). The
others keep together by module: what a module starts for itself is started once.
"""

import pytest

SHARED = frozenset({"hub_and_target", "real_hub_and_target"})
"""The fixtures of clusters that many modules share."""


def group_of(item: pytest.Item) -> str:
    """Name the group of a test: a test of the shared clusters is with all of those."""
    fixtures: list[str] = getattr(item, "fixturenames", [])
    module: str = item.location[0]
    return "clusters" if SHARED & set(fixtures) else module


def pytest_itemcollected(item: pytest.Item) -> None:
    """Tell pytest-xdist, before it looks at the groups."""
    if item.get_closest_marker("e2e") and item.config.pluginmanager.hasplugin("xdist"):
        item.add_marker(pytest.mark.xdist_group(group_of(item)))
