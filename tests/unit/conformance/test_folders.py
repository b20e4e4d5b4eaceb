"""Where logs lie, how many are kept, and that there is room."""

import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from e2e.conformance.folders import KEPT, require_space, run_folder
from e2e.testbed.errors import TestbedError
from e2e.testbed.places import Places

START = datetime(2026, 11, 30, 12, tzinfo=UTC)


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(environment={"HOME": str(tmp_path)}, checkout=tmp_path)


def nobody() -> None:
    raise AssertionError("Nobody else has the checkout.")


def test_the_last_runs_folders_are_kept(places: Places) -> None:
    """A run's logs are there when it is over; a month of runs does not fill the disk."""
    made = []
    for number in range(KEPT + 2):
        with run_folder(places, START + timedelta(minutes=number), on_wait=nobody) as folder:
            (folder / "log").write_text("x")
            made.append(folder)
    assert [one for one in made if one.exists()] == made[-KEPT:]


def test_one_run_at_a_time_has_a_checkout(places: Places) -> None:
    """The next one says that it waits: two would write the same results."""
    waits, entered = threading.Event(), threading.Event()

    def second() -> None:
        with run_folder(places, START + timedelta(minutes=1), on_wait=waits.set):
            entered.set()

    with run_folder(places, START, on_wait=nobody):
        other = threading.Thread(target=second)
        other.start()
        assert waits.wait(10.0)
        assert not entered.is_set()
    other.join(10.0)
    assert entered.is_set()


def test_a_full_disk_is_told_before_anything_is_started(tmp_path: Path) -> None:
    """An hour later specs would fail in words that say nothing of a disk."""
    require_space(tmp_path, needed=1)
    require_space(tmp_path / "elsewhere", needed=2**50)
    with pytest.raises(TestbedError, match=r"GiB free, and a run needs about 1048576"):
        require_space(tmp_path, needed=2**50)
