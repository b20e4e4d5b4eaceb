"""Where logs and reports of runs lie: a folder for each, the last few of a checkout are kept.

One run at a time has a checkout: two would write the same results.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from e2e.testbed.errors import TestbedError
from e2e.testbed.locks import held
from e2e.testbed.places import Places

KEPT = 5
"""Runs; each has some tens of megabytes of logs."""

NEEDED_BYTES = 5 * 2**30
"""For two nodes with their images, the programs, what specs write, and logs. Of less than that a
run would fail after an hour, in words that say nothing of a disk."""


@contextmanager
def run_folder(places: Places, now: datetime, *, on_wait: Callable[[], None]) -> Iterator[Path]:
    """Make a folder for this run, and remove those of the oldest."""
    root = places.state / "conformance"
    with held(root / "lock", on_wait=on_wait):
        folder = root / now.strftime("%Y%m%d-%H%M%S")
        folder.mkdir()
        for old in folders_in(root)[:-KEPT]:
            shutil.rmtree(old, ignore_errors=True)
        yield folder


def folders_in(root: Path) -> list[Path]:
    """List the folders of runs, the oldest first."""
    return sorted(one for one in root.iterdir() if one.is_dir())


def require_space(folder: Path, needed: int = NEEDED_BYTES) -> None:
    """Make sure that there is room; of a folder that is not on this machine nobody knows.

    Raises:
        TestbedError: there is not.
    """
    if not folder.is_dir():
        return
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise TestbedError(
            f"{folder} has {free / 2**30:.1f} GiB free, and a run needs about "
            f"{needed / 2**30:.0f} for two nodes, their images and logs."
        )
