"""Run the build's commands so that none outlives the build, however that ends.

A build that is killed lets go of its lock at once, and the next removes what it left: no process
may still write there.
"""

import shutil
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from ..errors import TestbedError
from ..places import Places
from ..processes import Launcher, Server

QUOTED_LINES = 12


class Commands:
    """Commands of one build, with their logs in its folder; leaving the context ends them."""

    def __init__(self, folder: Path, places: Places) -> None:
        self._folder = folder
        self._places = places
        self._launcher = Launcher(tied=True)
        self._lock = threading.Lock()
        self._closed = False
        for name in ("logs", "processes"):
            (folder / name).mkdir()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._lock:
            self._closed = True
        # What it started and still runs dies with it.
        self._launcher.close()

    def path_of(self, program: str) -> str:
        """Find a program.

        Raises:
            TestbedError: it is not on the search path.
        """
        found = shutil.which(program, path=self._places.search_path)
        if found is None:
            raise TestbedError(f"Building the node image needs {program}, which is not installed.")
        return found

    def run(self, name: str, command: Sequence[str | Path]) -> str:
        """Run a command to its end; `name` names its log. Returns all that it said.

        Raises:
            TestbedError: it failed; the message quotes the end of its log.
        """
        log = self._folder / "logs" / f"{name}.log"
        record = self._folder / "processes" / f"{name}.json"
        program, *arguments = map(str, command)
        with self._lock:
            if self._closed:
                raise TestbedError(f"{name} was not started: the build of the node image ended.")
            process = self._launcher.launch(
                [self.path_of(program), *arguments], log=log, record=record
            )
        code = process.wait()
        told = log.read_text(errors="replace")
        if code != 0:
            last = "\n".join(told.splitlines()[-QUOTED_LINES:])
            raise TestbedError(f"Building the node image: {name} ended with {code}:\n{last}")
        return told

    def run_alone(self, name: str, command: Sequence[str | Path]) -> str:
        """Run a command that starts many processes, which all end with it."""
        alone = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
        return self.run(name, (*alone, *command))

    def server(self, name: str, command: Sequence[str | Path]) -> Server:
        """Make a server of the build, tied to it; the caller starts and stops it."""
        program, *arguments = map(str, command)
        return Server(
            name,
            [self.path_of(program), *arguments],
            folder=self._folder,
            launcher=self._launcher,
        )
