"""Which tests share a process when pytest-xdist runs them side by side.

Clusters live in the process that started them, so tests of the same clusters stay together: those
of kind whether kind was chosen or not. Half of their modules go with a pair of clusters in one
process and half with a pair in another, where the machine bears two: by default it does not, since
each kind node takes a third of the inotify instances that Linux gives a user. The others keep
together by module: what a module starts for itself is started once.
"""

import functools
import zlib

import pytest

from e2e.testbed.kind import inotify_hint

SHARED = frozenset({"hub_and_target", "real_hub_and_target"})
"""The fixtures of clusters that many modules share."""


def group_of(item: pytest.Item, pairs: int) -> str:
    """Name the group of a test: those of the shared clusters are dealt out by module.

    Each of the processes that run side by side collects for itself, and must come to the same.
    """
    fixtures: list[str] = getattr(item, "fixturenames", [])
    module: str = item.location[0]
    if SHARED & set(fixtures):
        return f"clusters-{zlib.crc32(module.encode()) % pairs}"
    return module


@functools.cache
def pairs_of_clusters() -> int:
    """Say how many pairs of the shared clusters this machine bears."""
    return 1 if inotify_hint() else 2


def pytest_itemcollected(item: pytest.Item) -> None:
    """Tell pytest-xdist, before it looks at the groups."""
    if item.get_closest_marker("e2e") and item.config.pluginmanager.hasplugin("xdist"):
        item.add_marker(pytest.mark.xdist_group(group_of(item, pairs_of_clusters())))
