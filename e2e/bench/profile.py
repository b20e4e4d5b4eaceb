"""Where federate's CPU time goes, by py-spy: samples of a process that runs, from outside.

The sampling itself takes CPU, and stops the process for a moment each time: the seconds of a run
with a profile are not to be compared with others.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from e2e.testbed.errors import TestbedError

RATE_HERTZ = 200
SHOWN = 80
WAITING = ("EpollSelector.select ", "_worker (concurrent/futures/")
"""Where threads wait: on a busy machine py-spy takes that for work now and then."""
STOP_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """One recording under way."""

    process: subprocess.Popen[bytes]
    stacks: Path
    log: Path

    def stop(self) -> None:
        """End it, and write the summary beside the stacks.

        Raises:
            TestbedError: nothing was recorded.
        """
        self.process.send_signal(signal.SIGINT)
        self.process.wait(STOP_SECONDS)
        if not self.stacks.exists():
            raise TestbedError(f"py-spy recorded nothing: {self.log.read_text().strip()}")
        with self.stacks.open() as lines:
            summary = summarize(lines)
        self.stacks.with_suffix(".txt").write_text(summary)


class Profiler:
    """Record into a folder, one file of stacks and one summary per phase."""

    def __init__(self, folder: Path) -> None:
        beside = Path(sys.executable).with_name("py-spy")
        found = str(beside) if beside.exists() else shutil.which("py-spy")
        if found is None:
            raise TestbedError("--profile needs py-spy: pip install py-spy")
        self._program = found
        self._folder = folder
        self._folder.mkdir(parents=True, exist_ok=True)

    def record(self, pid: int, name: str) -> Recording:
        """Begin to sample a process; only what runs on a CPU counts."""
        stacks = self._folder / f"{name}.stacks"
        stacks.unlink(missing_ok=True)
        log = stacks.with_suffix(".log")
        command = [self._program, "record", "--pid", str(pid), "--format", "raw"]
        command += ["--rate", str(RATE_HERTZ), "--output", str(stacks), "--function"]
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return Recording(process=process, stacks=stacks, log=log)


def summarize(stacks: Iterable[str]) -> str:
    """Tell of each function its own share of all samples, and that of what it calls."""
    own: Counter[str] = Counter()
    whole: Counter[str] = Counter()
    for line in stacks:
        frames, _, count = line.rpartition(" ")
        names = frames.split(";")
        if names[-1].startswith(WAITING):
            continue
        own[names[-1]] += int(count)
        for name in set(names):
            whole[name] += int(count)
    total = sum(own.values()) or 1

    def table(title: str, counts: Counter[str]) -> list[str]:
        rows = [f"  {100 * n / total:5.1f} %  {name}" for name, n in counts.most_common(SHOWN)]
        return [f"{title} (of {total} samples):", *rows, ""]

    return "\n".join([*table("its own time", own), *table("with what it calls", whole)])
