"""Find the programs of a cluster, or build them.

Order: the folder the user named, the search path, the cache, a build into the cache. Whatever is
found outside the cache must print a version that fits, otherwise the search goes on: a cluster
that says 1.36 is never a 1.34.
"""

import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from .builds import build
from .components import DEFAULT_MINOR, Component, component_of
from .places import BINARIES_VARIABLE, Places
from .progress import Progress

RECENT_KUBECTL = r"v1\.(3[3-9]|[4-9]\d)\."


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A program and where it was found, in words for a person."""

    path: Path
    origin: str


class Binaries:
    """Find programs and remember them: a program is searched for once per instance."""

    def __init__(self, places: Places, progress: Progress) -> None:
        self.places = places
        self.progress = progress
        self._found: dict[tuple[str, str | None], Found] = {}
        self._lock = threading.Lock()

    def find(self, program: str, minor: str = DEFAULT_MINOR) -> Path:
        """Return the program, building it when it is nowhere; this can take minutes.

        Raises:
            TestbedError: nothing was found and it could not be built.
        """
        return self.find_all([program], minor)[0].path

    def find_all(self, programs: Iterable[str], minor: str = DEFAULT_MINOR) -> list[Found]:
        """Find several programs; those missing from one component are built in one go."""
        wanted = [(program, component_of(program, minor)) for program in programs]
        with self._lock:
            missing: dict[str, tuple[Component, list[str]]] = {}
            for program, component in wanted:
                if (program, component.minor) in self._found:
                    continue
                if found := self.search(program, component):
                    self._found[program, component.minor] = found
                else:
                    missing.setdefault(component.name, (component, []))[1].append(program)
            for component, absent in missing.values():
                folder = build(component, absent, places=self.places, progress=self.progress)
                for program in absent:
                    found = Found(path=folder / program, origin="built from Go modules")
                    self._found[program, component.minor] = found
            return [self._found[program, component.minor] for program, component in wanted]

    def find_users_kubectl(self) -> Path:
        """Return the kubectl on the search path, or else ours: for clusters of any version.

        One older than in-place resize is passed over: it lacks what the tests do with it.
        """
        users = shutil.which("kubectl", path=self.places.search_path)
        if users and prints_version(Path(users), RECENT_KUBECTL):
            return Path(users)
        return self.find("kubectl")

    def search(self, program: str, component: Component) -> Found | None:
        """Look everywhere a program may lie ready, without building."""
        if component.accepts is not None:
            for candidate, origin in self._candidates(program, component):
                if is_program(candidate) and prints_version(candidate, component.accepts):
                    return Found(path=candidate, origin=origin)
        cached = self.places.cache / component.cache_key() / program
        return Found(path=cached, origin="in the cache") if is_program(cached) else None

    def _candidates(self, program: str, component: Component) -> Iterator[tuple[Path, str]]:
        if named := self.places.binaries:
            if component.minor:
                yield named / component.minor / program, f"in {BINARIES_VARIABLE}"
            yield named / program, f"in {BINARIES_VARIABLE}"
        if on_path := shutil.which(program, path=self.places.search_path):
            yield Path(on_path), "on the search path"


def is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def prints_version(path: Path, pattern: str) -> bool:
    """Tell whether the program's own word about its version fits; a broken program never does."""
    arguments = ["version", "--client"] if path.name == "kubectl" else ["--version"]
    try:
        answer = subprocess.run(
            [path, *arguments], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return answer.returncode == 0 and re.search(pattern, answer.stdout + answer.stderr) is not None
