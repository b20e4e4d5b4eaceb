"""What pods take of the memory: the stores of mirroring, in a process of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PAIRS = 1500
MOST_TIMES_JSON = 2.5
"""Measured: 1.7 of the JSON of a hub pod with its mirror; as trees of dicts 4.9."""


def test_a_hub_pod_and_its_mirror_take_little_memory() -> None:
    """They go through the stores as events, four versions of each, and stay there."""
    ended = subprocess.run(
        [sys.executable, "-m", "tests.support.memory", str(PAIRS)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[3],
    )
    taken, json = map(int, ended.stdout.split())
    print(f"{taken} bytes for each hub pod with its mirror, {json} bytes as JSON")
    assert taken < MOST_TIMES_JSON * json
